/* Reports failures: to a program as a code with --json, on stdout; to people as
 * a line on stderr. */
#ifndef DLOCK_UI_FAILURE_H
#define DLOCK_UI_FAILURE_H

#include "lock/result.h"
#include "util/message.h"

enum failure {
    FAIL_HELD,          /* LOCK_ACQUISITION_FAILED: held, and we do not wait */
    FAIL_PAUSED,        /* LOCK_PAUSED: the same, by --pause */
    FAIL_TIMEOUT,       /* LOCK_TIMEOUT */
    FAIL_DONE,          /* ALREADY_DONE: --once-per */
    FAIL_NOT_FOUND,     /* LOCK_NOT_FOUND */
    FAIL_MISMATCH,      /* LOCK_OWNERSHIP_MISMATCH */
    FAIL_RELEASED,      /* LOCK_ALREADY_RELEASED */
    FAIL_LOST,          /* LOCK_LOST */
    FAIL_UNAVAILABLE,   /* SERVICE_UNAVAILABLE */
    FAIL_NOT_PERMITTED, /* NOT_PERMITTED */
    FAIL_ARGUMENT,      /* INVALID_ARGUMENT */
    FAIL_CONFIG,        /* INVALID_CONFIG */
    FAIL_SYSTEM,        /* SYSTEM_ERROR: the system refused, or an internal error */
};

/* The code for a result other than LOCK_OK. */
enum failure failure_of(enum lock_result result);

/* Reports the failure: with out->json an object on stdout, otherwise like
 * say_error(); FAIL_TIMEOUT and FAIL_PAUSED like say_notice(), FAIL_HELD and FAIL_DONE like
 * say_conflict(). Returns `status`. */
__attribute__((format(printf, 4, 5))) int fail(const struct messages *out, enum failure failure,
                                               int status, const char *format, ...);

/* The same for a result other than LOCK_OK that *why explains. Returns its exit
 * status. */
int fail_result(const struct messages *out, enum lock_result result, const struct errmsg *why);

/* After printing on stdout. Returns `status`; if the output could not be
 * written, reports that and returns STATUS_CANT_CREATE. */
int flushed(const struct messages *out, int status);

/* Like fail(), if the message for people was printed already. */
void fail_json(const struct messages *out, enum failure failure, const char *text);

#endif
