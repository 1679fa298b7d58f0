#include "ui/run_times.h"

#include "lock/fields.h"
#include "ui/table.h"
#include "util/text.h"

#include <inttypes.h>
#include <string.h>

enum { TIME_SIZE = 40 };

static const char *about(int64_t ms, char text[DURATION_TEXT_SIZE])
{
    return duration_about(DURATION_MS(ms), text, DURATION_TEXT_SIZE);
}

char *bar_format(int columns, int64_t part, int64_t whole, char text[BAR_SIZE])
{
    bool utf8 = mbwidth_of("\u2588") == 1;
    columns = columns < BAR_MOST ? columns : BAR_MOST;
    int filled = part < whole ? (int)((double)part / (double)whole * columns + 0.5) : columns;

    const char *full = utf8 ? "\u2588" : "#", *empty = utf8 ? "\u2591" : ".";
    char *end = text;

    *end = '\0';
    for (int i = 0; i < columns; i++)
        end = stpcpy(end, i < filled ? full : empty);
    return text;
}

/* --- the current run ------------------------------------------------------ */

struct estimate holder_estimate(const struct holder *holder, const struct typical *typical)
{
    bool runs = holder->known && !holder->kept && holder->refusal == REFUSED_HELD &&
                holder->pause.left.ns == 0;
    return runs ? history_estimate(typical, holder->since_wall_ms, wall_now_ms(),
                                   holder->shares ? -1 : holder->ahead)
                : (struct estimate){.left_ms = -1, .wait_ms = -1};
}

const char *estimate_format(const struct estimate *estimate, const struct typical *typical,
                            int ahead, char text[RUN_TIMES_SIZE])
{
    char usual[DURATION_TEXT_SIZE], left[DURATION_TEXT_SIZE], wait[DURATION_TEXT_SIZE];
    bool queued = estimate->wait_ms >= 0 && ahead > 0;

    about(typical->median_ms, usual);
    if (!estimate->known)
        text_copy(text, RUN_TIMES_SIZE, "");
    else if (estimate->longer)
        snprintf(text, RUN_TIMES_SIZE, "longer than usual (usually %s)", usual);
    else if (estimate->left_ms < 0)
        snprintf(text, RUN_TIMES_SIZE, "usually %s", usual);
    else
        snprintf(text, RUN_TIMES_SIZE, "usually %s, about %s left%s%s%s", usual,
                 about(estimate->left_ms, left), queued ? ", about " : "",
                 queued ? about(estimate->wait_ms, wait) : "", queued ? " until your turn" : "");
    return text;
}

void typical_json(struct json *json, const struct typical *typical)
{
    if (typical->runs == 0) {
        json_null(json, "typical");
        return;
    }
    json_begin(json, "typical", '{');
    json_seconds(json, "median", typical->median_ms);
    json_seconds(json, "p90", typical->p90_ms);
    json_seconds(json, "longest", typical->longest_ms);
    json_number(json, "runs", typical->runs);
    json_end(json, '}');
}

/* --- the TTL --------------------------------------------------------------- */

const char *ttl_advice_format(const struct history *history, char text[RUN_TIMES_SIZE])
{
    const struct past_run *longest = history_longest(history);
    char which[64] = "the last run", took[DURATION_TEXT_SIZE], ttl[DURATION_TEXT_SIZE];

    text[0] = '\0';
    if (history->count > 1)
        snprintf(which, sizeof which, "the longest of the last %zu runs", history->count);
    if (longest == NULL || past_run_was_extended(longest) || past_run_was_cut_off(longest))
        return text;
    about(longest->length_ms, took);
    duration_format(history_ttl(longest->length_ms), ttl, sizeof ttl);
    if (past_run_was_stopped(longest))
        snprintf(text, RUN_TIMES_SIZE, "%s was stopped after %s; recommended TTL: at least %s",
                 which, took, ttl);
    else
        snprintf(text, RUN_TIMES_SIZE, "%s took %s; recommended TTL: %s", which, took, ttl);
    return text;
}

/* --- past runs -------------------------------------------------------------- */

/* The time from the start of the first run to the start of the last one. */
static int64_t span_ms(const struct history *history)
{
    int64_t first = INT64_MAX, last = 0;
    for (size_t i = 0; i < history->count; i++) {
        int64_t began = history->runs[i].began_ms;
        first = began < first ? began : first;
        last = began > last ? began : last;
    }
    return history->count > 0 ? last - first : 0;
}

static int successes(const struct history *history)
{
    int count = 0;
    for (size_t i = 0; i < history->count; i++)
        count += run_is_success(&history->runs[i].end);
    return count;
}

/* "32 runs in 31 days, 30 succeeded" */
static void print_count(FILE *to, const struct history *history)
{
    const int64_t day_ms = INT64_C(1000) * 24 * 60 * 60;
    int64_t span = span_ms(history);
    char text[DURATION_TEXT_SIZE];

    fprintf(to, "%zu run%s", history->count, history->count == 1 ? "" : "s");
    if (span >= 2 * day_ms)
        fprintf(to, " in %" PRId64 " days", (span + day_ms / 2) / day_ms);
    else if (history->count > 1)
        fprintf(to, " in %s", about(span, text));
    fprintf(to, ", %d succeeded", successes(history));
}

/* "; usually 12m (half of them between 11m and 13m)" */
static void print_usual(FILE *to, const struct typical *typical)
{
    char usual[DURATION_TEXT_SIZE], from[DURATION_TEXT_SIZE], until[DURATION_TEXT_SIZE];

    if (typical->runs == 0)
        return;
    fprintf(to, "; usually %s", about(typical->median_ms, usual));
    about(typical->quarter_ms, from);
    about(typical->three_quarters_ms, until);
    if (typical->runs >= ESTIMATE_LEAST && strcmp(from, until) != 0)
        fprintf(to, " (half of them between %s and %s)", from, until);
}

/* ", longest 41m; with --ttl=1h, 19m was left"; ", longest 50m, when dlock stopped it" */
static void print_longest(FILE *to, const struct past_run *longest, struct duration ttl)
{
    char took[DURATION_TEXT_SIZE], given[DURATION_TEXT_SIZE], left[DURATION_TEXT_SIZE];
    int64_t left_ms = ttl.ns / NS_PER_MS - longest->length_ms;

    duration_format(ttl, given, sizeof given);
    fprintf(to, ", longest %s", about(longest->length_ms, took));
    if (past_run_was_stopped(longest))
        fprintf(to, ", when dlock stopped it");
    else if (left_ms > 0)
        fprintf(to, "; with --ttl=%s, %s was left", given, about(left_ms, left));
    else
        fprintf(to, "; --ttl=%s is too short for the longest run", given);
}

/* The offset of this time from UTC: " +0100". The offset is in the heading, because a table of 40
 * columns has no room for it in each row. */
static const char *offset_format(int64_t wall_ms, char text[TIME_SIZE])
{
    wall_format_day(wall_ms, wall_ms, text, TIME_SIZE);
    const char *offset = strrchr(text, ' ');
    return offset != NULL ? offset : "";
}

/* Adds the row of a run. The start of the run is shown with a UTC offset only if that differs from
 * the offset in the heading, because the clocks were changed in between. */
static bool add_run(struct table *table, const struct past_run *run, const char *usual_offset,
                    int bar_columns)
{
    char began[TIME_SIZE], host[4 * sizeof run->host], end[RUN_END_SIZE],
        length[DURATION_TEXT_SIZE] = "-", bar[BAR_SIZE] = "";

    wall_format_day(run->began_ms, wall_now_ms(), began, sizeof began);
    char *offset = strrchr(began, ' ');
    if (offset != NULL && strcmp(offset, usual_offset) == 0)
        *offset = '\0';
    if (run->length_ms >= 0)
        duration_rounded(DURATION_MS(run->length_ms), length, sizeof length);
    if (run->length_ms >= 0 && run->ttl_ms > 0)
        bar_format(bar_columns, run->length_ms, run->ttl_ms, bar);
    return table_add(table, began) && table_add(table, text_escape(host, sizeof host, run->host)) &&
           table_add(table, run_end_write(&run->end, end)) && table_add(table, length) &&
           table_add(table, bar);
}

/* The bars fill the space that the other columns leave. So the first round only measures the other
 * columns, and the second round adds the bars. */
static bool print_runs(FILE *to, const struct history *history, int columns)
{
    enum { HOST = 1, BAR = 4 };
    char now[TIME_SIZE], start[TIME_SIZE + sizeof "START"];
    const char *offset = offset_format(wall_now_ms(), now);
    struct table table = {.titles = {start, "HOST", "END", "LENGTH", "TTL USED"}, .shrinks = HOST};
    int widths[TABLE_COLUMNS_MOST] = {0};
    bool whole = true;

    snprintf(start, sizeof start, "START%s", offset);
    for (int round = 0; round < 2; round++) {
        table_free(&table);
        for (size_t i = 0; i < history->count && whole; i++)
            whole = add_run(&table, &history->runs[i], offset, widths[BAR]);
        table_fit(&table, columns, BAR_MOST, widths);
    }
    if (whole)
        table_print(to, &table, widths);
    table_free(&table);
    return whole;
}

bool history_print(FILE *to, const struct history *history, struct duration ttl, int columns)
{
    const struct past_run *longest = history_longest(history);
    struct typical typical;
    char advice[RUN_TIMES_SIZE];

    if (!print_runs(to, history, columns))
        return false;
    history_typical(history, &typical);
    print_count(to, history);
    print_usual(to, &typical);
    if (longest != NULL)
        print_longest(to, longest, ttl);
    putc('\n', to);
    if (*ttl_advice_format(history, advice) != '\0')
        fprintf(to, "%s\n", advice);
    return true;
}

void history_json(struct json *json, const struct history *history, struct duration ttl)
{
    const struct past_run *longest = history_longest(history);
    struct typical typical;

    json_begin(json, "runs", '[');
    for (size_t i = 0; i < history->count; i++) {
        json_begin(json, NULL, '{');
        fields_json(&past_fields, &history->runs[i], json);
        json_end(json, '}');
    }
    json_end(json, ']');
    json_number(json, "succeeded", successes(history));
    json_seconds(json, "span", span_ms(history));

    history_typical(history, &typical);
    typical_json(json, &typical);
    json_begin(json, "half_between", '[');
    if (typical.runs > 0) {
        json_seconds(json, NULL, typical.quarter_ms);
        json_seconds(json, NULL, typical.three_quarters_ms);
    }
    json_end(json, ']');

    int64_t ttl_ms = ttl.ns / NS_PER_MS, longest_ms = longest != NULL ? longest->length_ms : -1;
    bool stopped = longest != NULL && past_run_was_stopped(longest);
    bool extended = longest != NULL && past_run_was_extended(longest);
    json_seconds_if(json, "longest", longest_ms, longest != NULL);
    json_seconds(json, "ttl", ttl_ms);
    json_seconds_if(json, "longest_left", ttl_ms - longest_ms,
                    longest != NULL && longest_ms <= ttl_ms && !stopped);
    json_seconds_if(json, "enough", history_ttl(longest_ms).ns / NS_PER_MS,
                    longest != NULL && !extended && !stopped);
}
