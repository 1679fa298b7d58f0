/* The last runs of a lock, and what they say about the next one: how long it usually takes, when
 * the current run will end, which TTL is enough. An estimate is no promise, and no decision of
 * dlock is based on one. */
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

/* Reads the text. Others may have written it: rows that cannot be read, and those beyond
 * HISTORY_MOST, are left out. */
void history_read(struct history *history, const char *text);

/* How long the successful runs took; runs of unknown length are left out. Quartiles and p90 use the
 * nearest rank: p90 is the shortest length that at least 90 % of the runs did not exceed. The
 * median of an even number is the mean of the two in the middle. */
void history_typical(const struct history *history, struct typical *typical);

/* Like history_typical(), for the text of a history. */
void history_typical_of(struct typical *typical, const char *text);

/* When a run will end. */
struct estimate {
    bool known;      /* false: there were too few runs, and nothing else is set */
    bool longer;     /* the run has lasted longer than 90 % of the past ones */
    int64_t left_ms; /* until it ends; -1: unknown */
    int64_t end_ms;  /* when it ends, by the wall clock; 0: unknown */
    int64_t wait_ms; /* until a new waiter acquires the lock; -1: unknown */
};

/* Below this number of successes there is no estimate. */
enum { ESTIMATE_LEAST = 5 };

/* Estimates a run that began at since_ms and is still running at now_ms (wall clock; since_ms 0:
 * unknown). The run is expected to last as long as the median or, once it has lasted longer than
 * that, as long as p90. `ahead` is the number of waiters in front; -1: it is unknown, or some of
 * them will share the lock. Each of them is expected to hold the lock alone for as long as the
 * median. */
struct estimate history_estimate(const struct typical *typical, int64_t since_ms, int64_t now_ms,
                                 int ahead);

/* The longest run whose length is known, however it ended; NULL: there is none. */
const struct past_run *history_longest(const struct history *history);

/* True if the run outlasted its TTL by so much that its lease must have been extended. (A run that
 * dlock stops outlasts its TTL by a moment.) */
bool past_run_was_extended(const struct past_run *run);

/* True if dlock stopped the run, so that its full length is unknown. */
bool past_run_was_stopped(const struct past_run *run);

/* True if the run used more than 80 % of its TTL. */
bool past_run_is_tight(const struct past_run *run);

/* The TTL to advise if the longest run lasted this long: twice as long, rounded up to a figure that
 * people use. At most LEASE_MOST. */
struct duration history_ttl(int64_t longest_ms);

#endif
