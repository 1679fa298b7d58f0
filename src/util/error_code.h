/* Failures as a program reads them: a code with --json, on stdout; and as
 * people do, a line on stderr. */
#ifndef DLOCK_UTIL_ERROR_CODE_H
#define DLOCK_UTIL_ERROR_CODE_H

#include "util/errmsg.h"
#include "util/exit_status.h"
#include "util/message.h"

enum failure {
    FAIL_HELD,          /* LOCK_ACQUISITION_FAILED: held, and we do not wait */
    FAIL_TIMEOUT,       /* LOCK_TIMEOUT */
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

/* What a result other than LOCK_OK is called. */
enum failure failure_of(enum lock_result result);

/* Tells of the failure: with out->json an object on stdout, else as say_error()
 * does, FAIL_TIMEOUT as say_notice() and FAIL_HELD as say_conflict(). Returns `status`. */
__attribute__((format(printf, 4, 5))) int fail(const struct messages *out, enum failure failure,
                                               int status, const char *format, ...);

/* The same for a result other than LOCK_OK that *why explains. Returns its exit
 * status. */
int fail_result(const struct messages *out, enum lock_result result, const struct errmsg *why);

/* After what was printed on stdout: `status`, or where it could not be written
 * STATUS_CANT_CREATE, and told. */
int flushed(const struct messages *out, int status);

/* As fail(), where people have been told already. */
void fail_json(const struct messages *out, enum failure failure, const char *text);

#endif
