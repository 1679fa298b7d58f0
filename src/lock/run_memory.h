/* What a lock remembers of its runs: the last one, the last success, and how many have
 * failed or were skipped since. A run begins with a take and ends with its release; one
 * whose end was never recorded is lost. All text in it is foreign, and all times are
 * those of the host that ran it. */
#ifndef DLOCK_LOCK_RUN_MEMORY_H
#define DLOCK_LOCK_RUN_MEMORY_H

#include "util/clock.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum run_how {
    RUN_NONE,    /* nothing has run: there is nothing to remember */
    RUN_STATUS,  /* it ended with the exit status `code` */
    RUN_SIGNAL,  /* it was ended by the signal `code` */
    RUN_STOPPED, /* dlock stopped it, because its lease ended or was lost */
    RUN_ENDED,   /* it ended, and its exit status is not known: no success, and no failure */
    RUN_LOST,    /* it began, and has not recorded an end */
};

struct run_end {
    enum run_how how;
    int code;         /* of RUN_STATUS and RUN_SIGNAL */
    int64_t ended_ms; /* wall clock; 0: at the release, or not known */
};

struct run_record {
    int64_t began_ms; /* wall clock */
    struct run_end end;
    int64_t fence; /* of its take: the higher, the later it began; 0: not known */
    pid_t pid;
    char host[256];
    char user[64];
    char command[128];
};

struct run_memory {
    struct run_record last, success; /* RUN_NONE: none is known */
    int64_t failures;                /* in a row; RUN_ENDED does not count, and ends no row */
    int64_t runs, skipped;           /* since the last success */
    int64_t needed_until_ms; /* wall clock: until then once_per needs the success; files alone */
};

/* True if it ended with status 0. */
bool run_is_success(const struct run_end *end);

/* Takes in a run that has ended: it is the last one now. Of those who share a lock the one
 * that began last may have ended first: it is the last success, and an older one only ends a
 * row of failures. */
void run_memory_add(struct run_memory *memory, const struct run_record *run);

/* True if the last success began less than `within` ago by the wall clock: for
 * --once-per. A time in the future is one of a clock that was wrong, and counts by its
 * distance. */
bool run_began_within(const struct run_memory *memory, struct duration within);

/* The same for the end of the last success: --ran-within. */
bool run_ended_within(const struct run_memory *memory, struct duration within);

/* The text of an end: "status 7", "signal 9", "stopped", "ended", "lost"; "" for RUN_NONE. */
#define RUN_END_SIZE 32
char *run_end_write(const struct run_end *end, char text[RUN_END_SIZE]);

/* Reads it back. False if it is none: then it is RUN_NONE. */
bool run_end_read(struct run_end *end, const char *text);

/* A row of struct run_record (lock/fields.h) fits into this. */
#define RUN_TEXT_SIZE 640

#endif
