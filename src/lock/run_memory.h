/* What a lock remembers of its runs: the last run, the last success, how many runs have failed or
 * were skipped since then, and a history. A run begins when the lock is acquired and ends when it
 * is released. A run whose end was never recorded counts as lost. Do not trust the texts, which
 * other processes wrote. All times are on the clock of the host on which the run took place. */
#ifndef DLOCK_LOCK_RUN_MEMORY_H
#define DLOCK_LOCK_RUN_MEMORY_H

#include "util/clock.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum run_how {
    RUN_NONE,    /* nothing has run, so there is nothing to remember */
    RUN_STATUS,  /* the run ended with the exit status `code` */
    RUN_SIGNAL,  /* the signal `code` ended the run */
    RUN_STOPPED, /* dlock stopped the run, because its lease ended or was lost */
    RUN_ENDED,   /* the run ended with an unknown exit status: neither success nor failure */
    RUN_LOST,    /* the run began, but no end was recorded */
};

struct run_end {
    enum run_how how;
    int code;         /* for RUN_STATUS and RUN_SIGNAL */
    int64_t ended_ms; /* wall clock; 0: unknown; in a release request, 0 means "now" */
};

struct run_record {
    int64_t began_ms; /* wall clock */
    struct run_end end;
    int64_t fence; /* fencing token: a later run has a higher one; 0: unknown */
    pid_t pid;
    char host[256];
    char user[64];
    char command[128];
};

/* What the history keeps of a run. */
struct past_run {
    int64_t began_ms;   /* wall clock */
    int64_t length_ms;  /* -1: unknown, because the run was lost or the clock was set back */
    int64_t ttl_ms;     /* TTL of the lease; 0: unknown */
    struct run_end end; /* without ended_ms */
    char host[65];
};

/* The history is text with one line per recent run, most recently ended first. Each line holds the
 * fields of a struct past_run (lock/fields.h). */
enum { HISTORY_MOST = 32, HISTORY_SIZE = HISTORY_MOST * 120 };

/* How long the successes in the history took. */
struct typical {
    int64_t median_ms, quarter_ms, three_quarters_ms, p90_ms, longest_ms;
    int runs; /* number of successes; 0: nothing is known */
};

struct run_memory {
    struct run_record last, success; /* end.how is RUN_NONE if no such run is known */
    int64_t failures;      /* failures in a row; RUN_ENDED is neither failure nor success */
    int64_t runs, skipped; /* since the last success */
    /* --once-per needs `success` until this time (wall clock). Only lock directories keep it. */
    int64_t needed_until_ms;
    char history[HISTORY_SIZE];
};

/* True if the run ended with status 0. */
bool run_is_success(const struct run_end *end);

/* Records a run that has ended: it becomes the last run. A success ends a series of failures. It
 * also becomes the last success, unless a run that began later has already succeeded (runs that
 * share a lock can overlap). */
void run_memory_add(struct run_memory *memory, const struct run_record *run);

/* For --once-per: true if the last success began less than `within` ago, by the wall clock. A start
 * in the future, which a wrong clock can cause, counts as if it were equally far in the past. */
bool run_began_within(const struct run_memory *memory, struct duration within);

/* For --ran-within: like run_began_within(), but for the end of the last success. */
bool run_ended_within(const struct run_memory *memory, struct duration within);

/* The text of an end: "status 7", "signal 9", "stopped", "ended", "lost"; "" for RUN_NONE. */
#define RUN_END_SIZE 32
char *run_end_write(const struct run_end *end, char text[RUN_END_SIZE]);

/* Reads a text that run_end_write() has written. For any other text, returns false and sets
 * end->how to RUN_NONE. */
bool run_end_read(struct run_end *end, const char *text);

/* Room for a row of struct run_record (lock/fields.h). */
#define RUN_TEXT_SIZE 640

#endif
