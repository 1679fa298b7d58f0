/* The last runs of a lock, and estimates from them: how long a run usually takes, when the current
 * run will end, and which TTL is long enough. dlock bases no decision on an estimate. */
#ifndef DLOCK_LOCK_HISTORY_H
#define DLOCK_LOCK_HISTORY_H

#include "lock/run_memory.h"
#include "util/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct history {
    struct past_run runs[HISTORY_MOST]; /* the run that ended last comes first */
    size_t count;
};

/* Adds a run that has ended, with the TTL of its lease (0: unknown), to the text of a history.
 * Drops the oldest rows if there is no room. */
void history_add(char text[HISTORY_SIZE], const struct run_record *run, int64_t ttl_ms);

/* Reads the text of a history, which other programs may have written. Skips rows that cannot be
 * read, and rows beyond HISTORY_MOST. */
void history_read(struct history *history, const char *text);

/* Computes how long successful runs take; ignores runs of unknown length. Quartiles and p90 use the
 * nearest rank: p90 is the shortest length that at least 90 % of the runs did not exceed. The
 * median of an even number of runs is the mean of the two lengths in the middle. */
void history_typical(const struct history *history, struct typical *typical);

/* Like history_typical(), for the text of a history. */
void history_typical_of(struct typical *typical, const char *text);

/* An estimate of when a run will end. */
struct estimate {
    bool known;      /* false: too few runs for an estimate; ignore the other members */
    bool longer;     /* the run has lasted longer than 90 % of past runs */
    int64_t left_ms; /* until the run ends; -1: unknown */
    int64_t end_ms;  /* end of the run, by the wall clock; 0: unknown */
    int64_t wait_ms; /* until a new waiter acquires the lock; -1: unknown */
};

/* With fewer successful runs than this, there is no estimate. */
enum { ESTIMATE_LEAST = 5 };

/* Estimates the end of a run that began at since_ms (wall clock; 0: unknown) and is still running
 * at now_ms. The run is expected to last as long as the median or, if it has already lasted longer,
 * as long as p90. `ahead` is the number of waiters in front, each of which is expected to hold the
 * lock alone for as long as the median; -1 if the number is unknown, or if some of these waiters
 * will share the lock. */
struct estimate history_estimate(const struct typical *typical, int64_t since_ms, int64_t now_ms,
                                 int ahead);

/* The longest run whose length is known, however it ended; NULL: there is none. */
const struct past_run *history_longest(const struct history *history);

/* True if the run lasted so much longer than its TTL that its lease must have been extended. (A run
 * that dlock stops may last slightly longer than its TTL.) */
bool past_run_was_extended(const struct past_run *run);

/* True if dlock stopped the run. In that case, it is unknown how long the run would have taken. */
bool past_run_was_stopped(const struct past_run *run);

/* True if dlock stopped the run in the first half of its TTL. In that case, the lock was lost, and
 * a longer TTL would not have helped. */
bool past_run_was_cut_off(const struct past_run *run);

/* True if the run used more than 80 % of its TTL. */
bool past_run_is_tight(const struct past_run *run);

/* The TTL to recommend if the longest run lasted longest_ms: twice that time, rounded up to a usual
 * value (such as 15 minutes), but at most LEASE_MOST. */
struct duration history_ttl(int64_t longest_ms);

#endif
