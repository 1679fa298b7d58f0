/* What a lock remembers of its runs: the last one, the last success, how many have failed or were
 * skipped since then, and its history. A run begins with a take and ends with its release; a run
 * whose end was never recorded is lost. All text in it comes from others, and all times are on the
 * clock of the host that ran it. */
#ifndef DLOCK_LOCK_RUN_MEMORY_H
#define DLOCK_LOCK_RUN_MEMORY_H

#include "util/clock.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum run_how {
    RUN_NONE,    /* nothing has run, so there is nothing to remember */
    RUN_STATUS,  /* it ended with the exit status `code` */
    RUN_SIGNAL,  /* it was ended by the signal `code` */
    RUN_STOPPED, /* dlock stopped it, because its lease ended or was lost */
    RUN_ENDED,   /* it ended with an unknown exit status: neither success nor failure */
    RUN_LOST,    /* it began, but no end was recorded */
};

struct run_end {
    enum run_how how;
    int code;         /* of RUN_STATUS and RUN_SIGNAL */
    int64_t ended_ms; /* wall clock; 0: unknown, or the time of the release */
};

struct run_record {
    int64_t began_ms; /* wall clock */
    struct run_end end;
    int64_t fence; /* of the take that began it: a later run has a higher one; 0: unknown */
    pid_t pid;
    char host[256];
    char user[64];
    char command[128];
};

/* What the history keeps of a run. */
struct past_run {
    int64_t began_ms;   /* wall clock */
    int64_t length_ms;  /* -1: unknown, because the run was lost or its clock was set back */
    int64_t ttl_ms;     /* of its lease; 0: unknown */
    struct run_end end; /* without the time */
    char host[65];
};

/* The history is a text: a row of struct past_run (lock/fields.h) and a newline for each of the
 * last runs. The run that ended last comes first. */
enum { HISTORY_MOST = 32, HISTORY_SIZE = HISTORY_MOST * 120 };

/* How long the successes in the history took. */
struct typical {
    int64_t median_ms, quarter_ms, three_quarters_ms, p90_ms, longest_ms;
    int runs; /* number of these successes; 0: nothing is known */
};

struct run_memory {
    struct run_record last, success; /* end.how is RUN_NONE: none is known */
    int64_t failures;                /* consecutive; RUN_ENDED neither counts nor ends the series */
    int64_t runs, skipped;           /* since the last success */
    int64_t needed_until_ms; /* wall clock: --once-per needs the success until then; files only */
    char history[HISTORY_SIZE];
};

/* True if the run ended with status 0. */
bool run_is_success(const struct run_end *end);

/* Adds a run that has ended; it becomes the last run. Of two successful runs that share the lock,
 * the one that began last stays the last success, even if it ended first. The other one only ends a
 * series of failures. */
void run_memory_add(struct run_memory *memory, const struct run_record *run);

/* For --once-per: true if the last success began less than `within` ago by the wall clock. If that
 * time is in the future, a clock is wrong; then its distance from now counts. */
bool run_began_within(const struct run_memory *memory, struct duration within);

/* Like run_began_within(), for --ran-within: the end of the last success counts. */
bool run_ended_within(const struct run_memory *memory, struct duration within);

/* The text of an end: "status 7", "signal 9", "stopped", "ended", "lost"; "" for RUN_NONE. */
#define RUN_END_SIZE 32
char *run_end_write(const struct run_end *end, char text[RUN_END_SIZE]);

/* Reads the text back. False if it is not such a text; then *end is RUN_NONE. */
bool run_end_read(struct run_end *end, const char *text);

/* Room for a row of struct run_record (lock/fields.h). */
#define RUN_TEXT_SIZE 640

#endif
