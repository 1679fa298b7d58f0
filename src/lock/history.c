#include "lock/history.h"

#include "lock/fields.h"
#include "lock/lease.h"
#include "util/text.h"

#include <stdlib.h>
#include <string.h>

/* --- the text ------------------------------------------------------------ */

/* Counts the complete rows at the start of the text that fit into `room` bytes, but no more than
 * `most` rows. Returns their total length in bytes. */
static size_t rows_within(const char *text, int most, size_t room)
{
    size_t length = 0;

    for (int i = 0; i < most; i++) {
        const char *newline = strchr(text + length, '\n');
        if (newline == NULL || (size_t)(newline + 1 - text) > room)
            break;
        length = (size_t)(newline + 1 - text);
    }
    return length;
}

void history_add(char text[HISTORY_SIZE], const struct run_record *run, int64_t ttl_ms)
{
    struct past_run past = {.began_ms = run->began_ms,
                            .length_ms = run->end.ended_ms - run->began_ms,
                            .ttl_ms = ttl_ms,
                            .end = run->end};
    char row[RUN_TEXT_SIZE];

    if (run->end.how == RUN_LOST || run->began_ms <= 0 || past.length_ms < 0)
        past.length_ms = -1;
    text_copy(past.host, sizeof past.host, run->host);

    size_t length = fields_write_row(&past_fields, &past, row, sizeof row - 1);
    row[length++] = '\n';
    size_t kept = rows_within(text, HISTORY_MOST - 1, HISTORY_SIZE - 1 - length);
    memmove(text + length, text, kept);
    memcpy(text, row, length);
    text[length + kept] = '\0';
}

void history_read(struct history *history, const char *text)
{
    history->count = 0;
    while (history->count < HISTORY_MOST && *text != '\0') {
        struct past_run *run = &history->runs[history->count];
        if (fields_read_row(&past_fields, run, text) && run->end.how != RUN_NONE)
            history->count++;
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
}

/* --- what is usual ------------------------------------------------------- */

static int shorter_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Returns a percentile of the sorted lengths by nearest rank: the first length that is at least as
 * long as `percent` % of them. */
static int64_t ranked(const int64_t *lengths, int count, int percent)
{
    return lengths[(count * percent + 99) / 100 - 1];
}

void history_typical(const struct history *history, struct typical *typical)
{
    int64_t lengths[HISTORY_MOST];
    int count = 0;

    *typical = (struct typical){.runs = 0};
    for (size_t i = 0; i < history->count; i++)
        if (run_is_success(&history->runs[i].end) && history->runs[i].length_ms >= 0)
            lengths[count++] = history->runs[i].length_ms;
    if (count == 0)
        return;

    qsort(lengths, (size_t)count, sizeof *lengths, shorter_first);
    *typical = (struct typical){
        .median_ms = (lengths[(count - 1) / 2] + lengths[count / 2]) / 2,
        .quarter_ms = ranked(lengths, count, 25),
        .three_quarters_ms = ranked(lengths, count, 75),
        .p90_ms = ranked(lengths, count, 90),
        .longest_ms = lengths[count - 1],
        .runs = count,
    };
}

void history_typical_of(struct typical *typical, const char *text)
{
    struct history history;

    history_read(&history, text);
    history_typical(&history, typical);
}

struct estimate history_estimate(const struct typical *typical, int64_t since_ms, int64_t now_ms,
                                 int ahead)
{
    struct estimate estimate = {
        .known = typical->runs >= ESTIMATE_LEAST, .left_ms = -1, .wait_ms = -1};
    int64_t lasted_ms = now_ms - since_ms, turns_ms;

    if (!estimate.known || since_ms == 0 || lasted_ms < 0)
        return estimate;
    estimate.longer = lasted_ms > typical->p90_ms;
    if (estimate.longer)
        return estimate;

    int64_t length_ms = lasted_ms <= typical->median_ms ? typical->median_ms : typical->p90_ms;
    estimate.left_ms = length_ms - lasted_ms;
    estimate.end_ms = since_ms + length_ms;
    if (ahead >= 0 && !__builtin_mul_overflow(typical->median_ms, ahead, &turns_ms) &&
        !__builtin_add_overflow(turns_ms, estimate.left_ms, &turns_ms))
        estimate.wait_ms = turns_ms;
    return estimate;
}

/* --- the TTL --------------------------------------------------------------- */

const struct past_run *history_longest(const struct history *history)
{
    const struct past_run *longest = NULL;

    for (size_t i = 0; i < history->count; i++)
        if (history->runs[i].length_ms > (longest != NULL ? longest->length_ms : -1))
            longest = &history->runs[i];
    return longest;
}

bool past_run_was_extended(const struct past_run *run)
{
    return run->ttl_ms > 0 && run->length_ms > run->ttl_ms / 10 * 11;
}

bool past_run_was_stopped(const struct past_run *run)
{
    return run->end.how == RUN_STOPPED;
}

bool past_run_was_cut_off(const struct past_run *run)
{
    return past_run_was_stopped(run) && run->length_ms < run->ttl_ms / 2;
}

bool past_run_is_tight(const struct past_run *run)
{
    return run->ttl_ms > 0 && run->length_ms > run->ttl_ms / 5 * 4;
}

struct duration history_ttl(int64_t longest_ms)
{
    enum { M = 60, H = 60 * M, D = 24 * H };
    static const int figures[] = {10,     15,     30,     1 * M,  2 * M,  5 * M, 10 * M,
                                  15 * M, 30 * M, 45 * M, 1 * H,  90 * M, 2 * H, 3 * H,
                                  4 * H,  6 * H,  8 * H,  12 * H, 1 * D,  2 * D, 3 * D,
                                  5 * D,  7 * D,  10 * D, 14 * D};

    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (longest_ms <= figures[i] * INT64_C(500))
            return DURATION_S(figures[i]);
    return LEASE_MOST;
}
