#include "ui/progress_text.h"

#include "util/duration.h"
#include "util/mbwidth.h"
#include "util/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* More of a lock's name is useless beside its holder. */
enum { NAME_COLUMNS = 40 };

__attribute__((format(printf, 3, 4))) static void set(struct progress_text *text,
                                                      enum wait_part part, const char *format, ...)
{
    char raw[sizeof text->parts[part]];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    text_escape(text->parts[part], sizeof text->parts[part], length >= 0 ? raw : "");
}

static struct duration whole_seconds(struct duration d)
{
    return (struct duration){d.ns - d.ns % NS_PER_S};
}

void progress_text_begin(struct progress_text *text, struct duration waited, const char *name)
{
    char time[DURATION_TEXT_SIZE];
    for (int part = 0; part < WAIT_PARTS; part++)
        text->parts[part][0] = '\0';
    if (waited.ns < NS_PER_S)
        set(text, WAIT_TIME, "waiting");
    else
        set(text, WAIT_TIME, "waiting %s",
            duration_format(whole_seconds(waited), time, sizeof time));
    set(text, WAIT_NAME, " for %s", name);
}

/* --- the holder ------------------------------------------------------------ */

static const char *ordinal_suffix(int number)
{
    if (number % 100 >= 11 && number % 100 <= 13)
        return "th";
    return number % 10 == 1 ? "st" : number % 10 == 2 ? "nd" : number % 10 == 3 ? "rd" : "th";
}

static void set_place(struct progress_text *text, const struct holder *holder)
{
    if (holder->ahead == 0)
        set(text, WAIT_PLACE, "; you are next");
    else if (holder->ahead > 0 && holder->ahead < INT32_MAX)
        set(text, WAIT_PLACE, "; %d%s in line", holder->ahead + 1,
            ordinal_suffix(holder->ahead + 1));
}

static const char *who_text(const struct holder *holder)
{
    if (holder->kept)
        return "released, and kept by --hold-at-least of ";
    return holder->detached ? "acquired by " : "held by ";
}

static void set_who(struct progress_text *text, const struct holder *holder, bool died,
                    const struct awaited_lock *lock)
{
    char slots[HOLDER_SLOTS_SIZE];
    if (holder->reserved) {
        set(text, WAIT_WHO, "free, but others have waited longer");
        return;
    }
    if (!holder->known) {
        set(text, WAIT_WHO, "held by %s",
            holder->shares ? "others who share it" : "another client");
        return;
    }
    holder_slots_format(holder, lock->slots, slots);
    set(text, WAIT_WHO, "%s%s%s@%s", slots, who_text(holder), holder->user, holder->host);
    if (holder->pid > 0)
        set(text, WAIT_PID, ", pid %ld", (long)holder->pid);
    if (died)
        set(text, WAIT_COMMAND, ", which has ended without releasing it");
    else
        set(text, WAIT_COMMAND, "%s%s%s", holder->command[0] != '\0' ? ", " : "", holder->command,
            holder->shares ? ", one of those who share it" : "");
}

const char *holder_slots_format(const struct holder *holder, int asked,
                                char text[HOLDER_SLOTS_SIZE])
{
    text[0] = '\0';
    if (holder->slots > 0 && asked == holder->slots)
        snprintf(text, HOLDER_SLOTS_SIZE, "%d of %d slots are taken; ", holder->slots_taken,
                 holder->slots);
    else if (holder->slots > 0 && asked > 0)
        snprintf(text, HOLDER_SLOTS_SIZE, "held with --slots=%d; %d were asked for; ",
                 holder->slots, asked);
    return text;
}

/* The clock is the holder's: a time ahead of ours would only confuse. */
const char *holder_since_format(const struct holder *holder, char text[HOLDER_SINCE_SIZE])
{
    char time[40];
    text[0] = '\0';
    if (holder->since_wall_ms <= 0 || holder->since_wall_ms > wall_now_ms() || holder->kept)
        return text;
    wall_format_local(holder->since_wall_ms, time, sizeof time);
    if (time[0] != '\0')
        snprintf(text, HOLDER_SINCE_SIZE, ", since %s", time);
    return text;
}

static void set_until(struct progress_text *text, const struct holder *holder, int64_t until_ms,
                      bool died)
{
    char time[40];
    if (until_ms == 0) {
        set(text, WAIT_UNTIL, ", without an end of its own");
        return;
    }
    wall_format_local(until_ms + 999, time, sizeof time);
    if (died)
        set(text, WAIT_UNTIL, "; it clears at %s", time);
    else
        set(text, WAIT_UNTIL, ", until %s%s", time, holder->kept ? "" : " at the latest");
}

/* Quoted as a shell reads it back. */
static void quote(char *target, size_t size, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_+=:,./-";
    size_t used = 0;
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        text_copy(target, size, word);
        return;
    }
    text_copy(target, size, "'");
    for (used = 1; *word != '\0' && used + 6 < size; word++)
        used += (size_t)snprintf(target + used, size - used, *word == '\'' ? "'\\''" : "%c", *word);
    text_copy(target + used, size - used, "'");
}

/* The options on the command line that determine which lock it is. The
 * environment and the files need no repetition. */
static void set_advice(struct progress_text *text, const struct awaited_lock *lock)
{
    const struct {
        const char *name, *value;
    } repeated[] = {{"prefix", lock->prefix}, {"redis", lock->redis}, {"lock-dir", lock->lock_dir}};
    char words[1024] = "", word[1024];
    size_t used = 0;
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
        if (repeated[i].value == NULL)
            continue;
        quote(word, sizeof word, repeated[i].value);
        int length =
            snprintf(words + used, sizeof words - used, " --%s=%s", repeated[i].name, word);
        used += length > 0 ? (size_t)length : 0;
        if (used >= sizeof words)
            return;
    }
    quote(word, sizeof word, lock->name);
    set(text, WAIT_ADVICE, "; to clear it now: dlock --force-release%s %s", words, word);
}

void progress_text_holder(struct progress_text *text, const struct holder *holder, int64_t until_ms,
                          bool died, const struct awaited_lock *lock)
{
    char since[HOLDER_SINCE_SIZE];
    set_who(text, holder, died, lock);
    set_place(text, holder);
    if (holder->reserved)
        return;
    set_until(text, holder, until_ms, died);
    if (holder->known && !died)
        set(text, WAIT_SINCE, "%s", holder_since_format(holder, since));
    if (holder->known && holder->message[0] != '\0')
        set(text, WAIT_MESSAGE, ": %s", holder->message);
    /* That would also end the leases of the other holders. */
    if (died && !holder->shares)
        set_advice(text, lock);
}

void progress_text_outage(struct progress_text *text, const char *why, struct duration left)
{
    char time[DURATION_TEXT_SIZE];
    set(text, WAIT_WHO, "%s", why);
    if (left.ns > 0)
        set(text, WAIT_UNTIL, "; tried for another %s at most",
            duration_format(whole_seconds((struct duration){left.ns + NS_PER_S - 1}), time,
                            sizeof time));
}

/* --- joining --------------------------------------------------------------- */

void progress_text_join(const struct progress_text *text, unsigned without,
                        char joined[WAIT_TEXT_SIZE])
{
    size_t used = 0;
    bool begun = false;
    joined[0] = '\0';
    for (unsigned part = 0; part < WAIT_PARTS && used < WAIT_TEXT_SIZE; part++) {
        const char *between = part == WAIT_WHO && begun ? ": " : "";
        if ((without & (1U << part)) != 0 || text->parts[part][0] == '\0')
            continue;
        begun = true;
        int length =
            snprintf(joined + used, WAIT_TEXT_SIZE - used, "%s%s", between, text->parts[part]);
        used += length > 0 ? (size_t)length : 0;
    }
}

static int joined_columns(const struct progress_text *text, unsigned without, bool utf8,
                          char joined[WAIT_TEXT_SIZE])
{
    char all[WAIT_TEXT_SIZE];
    progress_text_join(text, without, utf8 ? joined : all);
    if (!utf8)
        text_escape_beyond_ascii(joined, WAIT_TEXT_SIZE, all);
    return mbwidth_of(joined);
}

/* Cuts at a character, and shows that. */
static void cut(char *text, int columns)
{
    int used;
    if (columns < 1) {
        text[0] = '\0';
        return;
    }
    size_t length = mbwidth_fit(text, columns - 1, &used);
    text_copy(text + length, WAIT_TEXT_SIZE - length, "~");
}

void progress_text_fit(const struct progress_text *text, int columns, bool utf8,
                       char fitting[WAIT_TEXT_SIZE])
{
    /* The least important part goes first; the holder stays. */
    static const enum wait_part order[] = {WAIT_ADVICE,  WAIT_SINCE, WAIT_UNTIL,
                                           WAIT_PLACE,   WAIT_NAME,  WAIT_MESSAGE,
                                           WAIT_COMMAND, WAIT_PID,   WAIT_TIME};
    unsigned without = mbwidth_of(text->parts[WAIT_NAME]) > NAME_COLUMNS ? 1U << WAIT_NAME : 0;
    int width = joined_columns(text, without, utf8, fitting);
    for (size_t i = 0; width > columns && i < sizeof order / sizeof *order; i++) {
        without |= 1U << order[i];
        width = joined_columns(text, without, utf8, fitting);
    }
    if (width > columns)
        cut(fitting, columns);
}
