/* Results of requests to a lock store, or to something that a store needs. There is one result for
 * each way in which the caller can react. A struct errmsg has the text for people. */
#ifndef DLOCK_LOCK_RESULT_H
#define DLOCK_LOCK_RESULT_H

#include "util/errmsg.h"
#include "util/exit_status.h"

#include <errno.h>
#include <stdbool.h>

enum lock_result {
    LOCK_OK,          /* success: the lock was acquired, is still ours, or was released */
    LOCK_HELD,        /* another process holds the lock; the caller waits or gives up */
    LOCK_GONE,        /* the lock is no longer ours, and has no holder */
    LOCK_FOREIGN,     /* the lock is not ours: it is held under another owner token */
    LOCK_RELEASED,    /* the lock was ours, and was released with its owner token */
    LOCK_ENDED,       /* our lease ended before the release reached the service */
    LOCK_UNAVAILABLE, /* the service gave no usable answer: try again */
    LOCK_REFUSED,     /* the service or file permissions refuse us: pointless to retry */
    LOCK_INVALID,     /* the configuration cannot be used */
    LOCK_CANT_CREATE, /* the lock file cannot be created */
    LOCK_CANCELLED,   /* the caller cancelled the request (its cancel descriptor became readable) */
    LOCK_SYSTEM,      /* out of memory, out of file descriptors, ... */
};

/* True if a lock that we held was taken away from us, or has expired. */
static inline bool lock_is_lost(enum lock_result result)
{
    return result == LOCK_GONE || result == LOCK_FOREIGN;
}

/* True if a lock that we held is no longer ours, for whatever reason. */
static inline bool lock_is_past(enum lock_result result)
{
    return lock_is_lost(result) || result == LOCK_RELEASED || result == LOCK_ENDED;
}

/* Returns the exit status for a result other than LOCK_OK if no command ran. LOCK_HELD gives
 * STATUS_CONFLICT, which -E may replace later. */
static inline enum exit_status status_of(enum lock_result result)
{
    switch (result) {
    case LOCK_OK: return STATUS_OK;
    case LOCK_HELD: return STATUS_CONFLICT;
    case LOCK_GONE:
    case LOCK_ENDED:
    case LOCK_FOREIGN: return STATUS_STOPPED;
    case LOCK_RELEASED: return STATUS_OK;
    case LOCK_UNAVAILABLE: return STATUS_UNAVAILABLE;
    case LOCK_REFUSED: return STATUS_NOT_PERMITTED;
    case LOCK_INVALID: return STATUS_CONFIG;
    case LOCK_CANT_CREATE: return STATUS_CANT_CREATE;
    case LOCK_SYSTEM: return STATUS_SYSTEM;
    case LOCK_CANCELLED: break;
    }
    return STATUS_INTERNAL;
}

/* The result for an errno from opening or creating a file. */
static inline enum lock_result file_error_result(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
    case ELOOP: /* O_NOFOLLOW was given, but the file is a symbolic link */ return LOCK_REFUSED;
    case EMFILE:
    case ENFILE:
    case ENOMEM: return LOCK_SYSTEM;
    default: return LOCK_CANT_CREATE;
    }
}

/* The result if secret_read() fails with this errno: LOCK_REFUSED if dlock has no permission to
 * read the file, otherwise LOCK_INVALID. */
static inline enum lock_result secret_error_result(int error)
{
    return error == EACCES || error == EPERM ? LOCK_REFUSED : LOCK_INVALID;
}

#endif
