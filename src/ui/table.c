#include "ui/table.h"

#include "util/array.h"
#include "util/text.h"

#include <stdlib.h>
#include <string.h>

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static size_t columns_of(const struct table *table)
{
    size_t count = 0;
    while (count < TABLE_COLUMNS_MOST && table->titles[count] != NULL)
        count++;
    return count;
}

bool table_add(struct table *table, const char *cell)
{
    char **added = array_add(&table->cells, &table->count, &table->room, sizeof *added);
    return added != NULL && (*added = strdup(cell)) != NULL;
}

void table_fit(const struct table *table, int room, int last, int widths[TABLE_COLUMNS_MOST])
{
    size_t columns = columns_of(table);
    int *shrinks = &widths[table->shrinks], *end = &widths[columns - 1];
    int rest = room - ((int)columns - 1) * TABLE_GAP;

    for (size_t i = 0; i < columns; i++)
        widths[i] = (int)strlen(table->titles[i]);
    for (size_t i = 0; i < table->count && columns > 0; i++)
        widths[i % columns] = larger(widths[i % columns], mbwidth_of(table->cells[i]));
    *end = larger(*end, last);
    if (room == 0)
        return;

    for (int *width = widths; width < end; width++)
        rest -= width == shrinks ? 0 : *width;
    rest = larger(rest, table->least);
    if (*shrinks > rest / 2 && *shrinks + *end > rest)
        *shrinks = larger(rest / 2, rest - *end);
    *end = rest - *shrinks;
}

/* Prints as much of the text as fits in `width` columns, and ends a truncated text with '~'.
 * Returns the number of columns used. */
static int print_cell(FILE *to, const char *text, int width)
{
    int used;
    bool cut = mbwidth_of(text) > width;
    size_t length = mbwidth_fit(text, width - (cut ? 1 : 0), &used);
    fwrite(text, 1, length, to);
    if (!cut)
        return used;
    putc('~', to);
    return used + 1;
}

static void print_row(FILE *to, const char *const *cells, size_t columns, const int *widths)
{
    int blanks = 0; /* blanks to print before the next cell, so that no line ends with blanks */
    for (size_t i = 0; i < columns; i++) {
        if (widths[i] <= 0 || cells[i][0] == '\0') {
            blanks += widths[i] > 0 ? widths[i] + TABLE_GAP : 0;
            continue;
        }
        fprintf(to, "%*s", blanks, "");
        blanks = widths[i] + TABLE_GAP - print_cell(to, cells[i], widths[i]);
    }
    putc('\n', to);
}

void table_print(FILE *to, const struct table *table, const int widths[TABLE_COLUMNS_MOST])
{
    size_t columns = columns_of(table);
    if (table->count > 0)
        print_row(to, table->titles, columns, widths);
    for (size_t i = 0; i < table->count; i += columns)
        print_row(to, (const char *const *)&table->cells[i], columns, widths);
}

void table_free(struct table *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    table->cells = NULL;
    table->count = table->room = 0;
}
