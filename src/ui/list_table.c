#include "ui/list_table.h"

#include "ui/holder_text.h"
#include "ui/run_print.h"
#include "ui/tty_line.h"
#include "util/array.h"
#include "util/duration.h"
#include "util/mbwidth.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_LEAST = 16, GAP = 2 };

/* Our own holder, if there is one: "ann@host, pid 12, backup". */
static void format_holder(const struct lock_state *state, char *text, size_t size)
{
    char raw[RUN_LINE_SIZE], who[HOLDER_TEXT_SIZE], count[48] = "";
    if (state->newer > 0) {
        snprintf(text, size, "format %" PRId64 ", of a newer dlock", state->newer);
        return;
    }
    if (state->pause.left.ns > 0) {
        text_escape(text, size, pause_format(&state->pause, who));
        return;
    }
    if (!state->locked) {
        snprintf(text, size, "last run: %s", run_format(&state->memory.last, raw));
        return;
    }
    const struct holder *holder = &state->owners[0].holder;
    if (state->owner_count > 1)
        snprintf(count, sizeof count, "%zu holders%s", state->owner_count,
                 holder->known ? ", one is " : "");
    if (state->owner_count > 1 && !holder->known)
        snprintf(raw, sizeof raw, "%s", count);
    else
        snprintf(raw, sizeof raw, "%s%s%s%s", count, holder_format(holder, "", who),
                 holder->message[0] != '\0' ? ": " : "", holder->message);
    text_escape(text, size, raw);
}

bool list_table_add(struct list_table *listing, const char *name, const struct lock_state *state)
{
    char text[4 * LOCK_KEY_SIZE];
    struct list_table_row *row =
        array_add(&listing->rows, &listing->count, &listing->room, sizeof *row);
    if (row == NULL)
        return false;
    row->name = strdup(text_escape(text, sizeof text, name));
    format_holder(state, text, sizeof text);
    row->holder = strdup(text);
    snprintf(row->left, sizeof row->left, "-");
    if (state->locked && state->owners[0].holder.expires)
        duration_rounded(state->owners[0].holder.left, row->left, sizeof row->left);
    if (!state->locked)
        snprintf(row->mode, sizeof row->mode, "%s", state->newer > 0 ? "-" : "free");
    else if (state->mode == MODE_SLOTS)
        snprintf(row->mode, sizeof row->mode, "slots %zu/%d", state->owner_count, state->slots);
    else
        snprintf(row->mode, sizeof row->mode, "%s", lock_mode_name(state->mode));
    return row->name != NULL && row->holder != NULL;
}

/* Prints as much as fits in `width` columns, and spaces for the rest. */
static void print_cell(const char *text, int width, bool pad)
{
    int used;
    bool cut = mbwidth_of(text) > width;
    size_t length = mbwidth_fit(text, width - (cut ? 1 : 0), &used);
    fwrite(text, 1, length, stdout);
    if (cut && width > 0) {
        putchar('~');
        used++;
    }
    for (; pad && used < width + GAP; used++)
        putchar(' ');
}

static int list_table_larger(int a, int b)
{
    return a > b ? a : b;
}

void list_table_print(const struct list_table *listing)
{
    int width = isatty(STDOUT_FILENO) == 1 ? tty_line_columns(STDOUT_FILENO) : 0;
    static const char name_title[] = "NAME", left_title[] = "ENDS IN", mode_title[] = "MODE",
                      holder_title[] = "HOLDER";
    int name = (int)strlen(name_title), left = (int)strlen(left_title),
        mode = (int)strlen(mode_title), holder = 0;
    if (listing->count == 0)
        return;
    for (size_t i = 0; i < listing->count; i++) {
        name = list_table_larger(name, mbwidth_of(listing->rows[i].name));
        left = list_table_larger(left, mbwidth_of(listing->rows[i].left));
        mode = list_table_larger(mode, mbwidth_of(listing->rows[i].mode));
        holder = list_table_larger(holder, mbwidth_of(listing->rows[i].holder));
    }
    if (width > 0) {
        int rest = list_table_larger(width - left - mode - 3 * GAP, NAME_LEAST);
        name = name > rest / 2 && name + holder > rest ? list_table_larger(rest / 2, rest - holder)
                                                       : name;
        holder = list_table_larger(rest - name, 0);
    }
    print_cell(name_title, name, true);
    print_cell(left_title, left, true);
    print_cell(mode_title, mode, true);
    print_cell(holder_title, list_table_larger(holder, 0), false);
    putchar('\n');
    for (size_t i = 0; i < listing->count; i++) {
        const struct list_table_row *row = &listing->rows[i];
        print_cell(row->name, name, true);
        print_cell(row->left, left, true);
        print_cell(row->mode, mode, true);
        print_cell(row->holder, holder, false);
        putchar('\n');
    }
}

void list_table_free(struct list_table *listing)
{
    for (size_t i = 0; i < listing->count; i++) {
        free(listing->rows[i].name);
        free(listing->rows[i].holder);
    }
    free(listing->rows);
    *listing = (struct list_table){0};
}
