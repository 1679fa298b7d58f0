/* Reports failures: with --json as an object on stdout for programs, otherwise as a line on stderr
 * for people. Also writes the lines of --report=FILE. */
#ifndef DLOCK_UI_REPORT_H
#define DLOCK_UI_REPORT_H

#include "lock/lease.h"
#include "lock/result.h"
#include "util/message.h"

#include <stdbool.h>

/* The kinds of failure; report.c has their codes for --json. */
enum failure {
    FAIL_HELD,   /* the lock is held, and dlock does not wait */
    FAIL_PAUSED, /* the lock is paused */
    FAIL_TIMEOUT,
    FAIL_DONE, /* a run has already succeeded within the time of --once-per */
    FAIL_NOT_FOUND,
    FAIL_MISMATCH, /* the lock is held under another owner token */
    FAIL_RELEASED, /* the lock was already released */
    FAIL_LOST,
    FAIL_UNAVAILABLE, /* the store cannot be used now */
    FAIL_NOT_PERMITTED,
    FAIL_ARGUMENT,
    FAIL_CONFIG,
    FAIL_SYSTEM, /* the system refused a request, or an internal error occurred */
};

/* The kind of failure for a result other than LOCK_OK. */
enum failure failure_of(enum lock_result result);

/* Reports the failure and returns `status`. With out->json, prints an object on stdout. Otherwise,
 * prints FAIL_TIMEOUT and FAIL_PAUSED as MESSAGE_NOTICE, FAIL_HELD and FAIL_DONE as
 * MESSAGE_CONFLICT, and the rest as MESSAGE_ERROR (util/message.h). */
__attribute__((format(printf, 4, 5))) int fail(const struct messages *out, enum failure failure,
                                               int status, const char *format, ...);

/* Like fail(), for a result other than LOCK_OK that *why explains. Returns the exit status for this
 * result. */
int fail_result(const struct messages *out, enum lock_result result, const struct errmsg *why);

/* Call this after printing on stdout. Returns `status`; if the output could not be written, reports
 * that and returns STATUS_CANT_CREATE. */
int flushed(const struct messages *out, int status);

/* Like fail(), but the message for people has already been printed. */
void fail_json(const struct messages *out, enum failure failure, const char *text);

/* --- --report=FILE: one line of JSON about each run, appended in one write(2), so that many runs
 * may share the file ------------------------------------------------------------ */

struct report {
    int fd; /* -1: no report */
    int64_t asked_wall_ms;
    const char *error; /* code of the failure; NULL: none */
    /* The outcome of the run, set by the caller before the line is written: */
    const char *name, *key, *backend; /* backend may be NULL */
    const struct holder *self;
    const struct lease *lease; /* NULL: not acquired */
    struct duration waited, held;
    bool nested, lost;
    int status;
};

/* Opens the file; if `path` is NULL, there is no report. A new file gets mode 0644 less the umask.
 * Call this before a lock is acquired. Returns LOCK_OK, or LOCK_REFUSED, LOCK_CANT_CREATE or
 * LOCK_SYSTEM with *why set. */
enum lock_result run_report_open(struct report *report, const char *path, struct errmsg *why);

/* Writes the line. False with *why set if that fails. */
bool run_report_write(const struct report *report, struct errmsg *why);

void run_report_close(struct report *report);

#endif
