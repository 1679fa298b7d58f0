#include "ui/wait_text.h"

#include "ui/run_times.h"
#include "util/clock.h"
#include "util/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- a holder ------------------------------------------------------------ */

const char *holder_life_text(const struct holder *holder, enum process_life life)
{
    if (holder->detached)
        return "; acquired with --acquire";
    if (life == PROCESS_ENDED)
        return "; has ended";
    return life == PROCESS_HIDDEN ? "; hidden by /proc" : "";
}

const char *holder_format(const struct holder *holder, const char *life,
                          char text[HOLDER_TEXT_SIZE])
{
    bool has_command = holder->command[0] != '\0';
    char pid[32] = "";
    if (!holder->known)
        return "another client";
    if (holder->pid > 0)
        snprintf(pid, sizeof pid, "pid %ld%s", (long)holder->pid, has_command ? ", " : "");
    bool described = has_command || holder->pid > 0;
    snprintf(text, HOLDER_TEXT_SIZE, "%s@%s%s%s%s%s%s", holder->user, holder->host,
             described ? " (" : "", pid, holder->command, described ? life : "",
             described ? ")" : "");
    return text;
}

/* The time is from the holder's clock. A time that is in the future by this host's clock is left
 * out, because it would only confuse. A record that could be read only in part may also contain
 * such a time. */
const char *holder_since_format(const struct holder *holder, char text[HOLDER_TEXT_SIZE])
{
    char time[40] = "";
    if (holder->known && !holder->kept && holder->since_wall_ms > 0 &&
        holder->since_wall_ms <= wall_now_ms())
        wall_format_local(holder->since_wall_ms, time, sizeof time);
    snprintf(text, HOLDER_TEXT_SIZE, "%s%s", time[0] != '\0' ? " since " : "", time);
    return text;
}

const char *holder_refusal_format(const struct holder *holder, int slots, enum process_life life,
                                  char text[HOLDER_TEXT_SIZE])
{
    char who[HOLDER_TEXT_SIZE], since[HOLDER_TEXT_SIZE], with_slots[96];
    const char *how = holder->shares ? "held in shared mode by" : "held by";
    if (holder->refusal == REFUSED_QUEUED)
        return "free, but others have waited longer";
    if (!holder->known)
        return holder->shares ? "held in shared mode by another client" : "held by another client";

    if (holder->slots > 0)
        how = "held with --slots by";
    if (holder->kept) {
        how = "released by";
    } else if (holder->slots > 0 && slots == holder->slots) {
        snprintf(with_slots, sizeof with_slots, "%d of %d slots are taken, one by",
                 holder->slots_taken, slots);
        how = with_slots;
    } else if (holder->slots > 0 && slots > 0) {
        snprintf(with_slots, sizeof with_slots,
                 "--slots=%d was requested, but the lock is held with --slots=%d by", slots,
                 holder->slots);
        how = with_slots;
    }
    snprintf(text, HOLDER_TEXT_SIZE, "%s %s%s%s", how,
             holder_format(holder, holder_life_text(holder, life), who),
             holder_since_format(holder, since), holder->kept ? ", but kept" : "");
    return text;
}

static const char *pause_end_format(const struct pause *pause, char text[HOLDER_TEXT_SIZE])
{
    char time[40];
    wall_format_local(wall_after_ms(pause->left), time, sizeof time);
    snprintf(text, HOLDER_TEXT_SIZE, "paused by %s until %s", pause->by, time);
    return text;
}

const char *pause_format(const struct pause *pause, char text[HOLDER_TEXT_SIZE])
{
    size_t used = strlen(pause_end_format(pause, text));
    snprintf(text + used, HOLDER_TEXT_SIZE - used, "; message: %s", pause->message);
    return text;
}

/* --- a wait -------------------------------------------------------------- */

/* At most this much of a lock's name is shown: more would only push the holder out of sight. */
enum { NAME_COLUMNS = 40 };

__attribute__((format(printf, 2, 3))) static void add(struct wait_text *text, const char *format,
                                                      ...)
{
    char raw[1600];
    size_t used = strlen(text->line);
    va_list args;
    va_start(args, format);
    int length = vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    text_escape(text->line + used, sizeof text->line - used, length >= 0 ? raw : "");
}

static struct duration whole_seconds(struct duration d)
{
    return (struct duration){d.ns - d.ns % NS_PER_S};
}

void wait_text_begin(struct wait_text *text, struct duration waited, const char *name)
{
    char time[DURATION_TEXT_SIZE];
    text->line[0] = '\0';
    add(text, "waiting");
    if (waited.ns >= NS_PER_S)
        add(text, " %s", duration_format(whole_seconds(waited), time, sizeof time));
    if (name != NULL) {
        int columns;
        size_t fits = mbwidth_fit(name, NAME_COLUMNS, &columns);
        add(text, " for %.*s%s", (int)fits, name, name[fits] != '\0' ? "~" : "");
    }
    add(text, ": ");
}

/* --- the holder ------------------------------------------------------------ */

static const char *ordinal_suffix(int number)
{
    static const char *const suffixes[] = {"th", "st", "nd", "rd"};
    bool is_teen = number % 100 >= 11 && number % 100 <= 13;
    return is_teen || number % 10 > 3 ? "th" : suffixes[number % 10];
}

static void add_place(struct wait_text *text, const struct holder *holder)
{
    if (holder->ahead == 0)
        add(text, "; you are next");
    else if (holder->ahead > 0 && holder->ahead < INT32_MAX)
        add(text, "; %d%s in line", holder->ahead + 1, ordinal_suffix(holder->ahead + 1));
}

static void add_until(struct wait_text *text, const struct holder *holder, int64_t until_ms,
                      bool died)
{
    char time[40];
    if (until_ms == 0) {
        add(text, ", with no time limit");
        return;
    }
    wall_format_local(until_ms, time, sizeof time);
    if (died)
        add(text, "; the lease ends at %s", time);
    else
        add(text, holder->kept ? " until %s (--hold-at-least)" : ", until %s at the latest", time);
}

static void shell_quote(char *target, size_t size, const char *word)
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

/* Adds the command that releases the lock. The command repeats the options that select the lock.
 * Settings from the environment and from files need not be repeated. */
static void add_advice(struct wait_text *text, const struct awaited_lock *lock)
{
    const struct {
        const char *name, *value;
    } repeated[] = {{"scope", lock->scope},
                    {"prefix", lock->prefix},
                    {"redis", lock->redis},
                    {"lock-dir", lock->lock_dir}};
    char words[1024] = "", word[1024];
    size_t used = 0;
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
        if (repeated[i].value == NULL)
            continue;
        shell_quote(word, sizeof word, repeated[i].value);
        int length =
            snprintf(words + used, sizeof words - used, " --%s=%s", repeated[i].name, word);
        used += length > 0 ? (size_t)length : 0;
        if (used >= sizeof words)
            return;
    }
    shell_quote(word, sizeof word, lock->name);
    add(text, "; to release the lock now: dlock --force-release%s %s", words, word);
}

void wait_text_holder(struct wait_text *text, const struct holder *holder, int64_t until_ms,
                      enum process_life life, const struct awaited_lock *lock)
{
    bool died = life == PROCESS_ENDED;
    char who[HOLDER_TEXT_SIZE];
    if (holder->pause.left.ns > 0) {
        add(text, "%s", pause_end_format(&holder->pause, who));
        add_place(text, holder);
        add(text, "; message: %s", holder->pause.message);
        return;
    }
    add(text, "%s", holder_refusal_format(holder, lock->slots, life, who));
    if (holder->refusal != REFUSED_QUEUED)
        add_until(text, holder, until_ms, died);
    add_place(text, holder);
    if (holder->known && holder->message[0] != '\0' && holder->refusal != REFUSED_QUEUED)
        add(text, "; message: %s", holder->message);
    /* No advice if others hold the lock too, because --force-release would also end their
     * leases. */
    if (died && !holder->shares && holder->refusal != REFUSED_QUEUED)
        add_advice(text, lock);
}

void wait_text_estimate(struct wait_text *text, const struct holder *holder, int bar_columns)
{
    const struct typical *typical = &holder->typical;
    const struct estimate estimate = holder_estimate(holder, typical);
    char usual[RUN_TIMES_SIZE], bar[BAR_SIZE];
    int64_t length_ms = estimate.longer ? 0 : estimate.end_ms - holder->since_wall_ms;
    int64_t lasted_ms = estimate.longer ? 0 : length_ms - estimate.left_ms;
    size_t used = strlen(text->line);

    if (!estimate.known)
        return;
    if (bar_columns > 0 && (estimate.longer || estimate.end_ms > 0)) /* a bar needs no escaping */
        snprintf(text->line + used, sizeof text->line - used, "%s ",
                 bar_format(bar_columns, lasted_ms, length_ms, bar));
    add(text, "%s; ", estimate_format(&estimate, typical, holder->ahead, usual));
}

void wait_text_outage(struct wait_text *text, const char *why, struct duration left)
{
    char time[DURATION_TEXT_SIZE];
    add(text, "%s", why);
    if (left.ns >= NS_PER_S)
        add(text, "; retrying for up to another %s",
            duration_format(whole_seconds(left), time, sizeof time));
}

void wait_text_fit(struct wait_text *text, int columns)
{
    int used;
    if (mbwidth_of(text->line) <= columns)
        return;
    size_t fits = columns > 0 ? mbwidth_fit(text->line, columns - 1, &used) : 0;
    text_copy(text->line + fits, sizeof text->line - fits, columns > 0 ? "~" : "");
}
