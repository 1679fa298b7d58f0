/* Exit statuses: the one place where what happened becomes a number.
 *
 * The values from 64 to 78 are those of sysexits.h(3); 124, 126 and 127 are
 * those of timeout(1) and the shell.
 */
#ifndef DLOCK_UTIL_EXIT_STATUS_H
#define DLOCK_UTIL_EXIT_STATUS_H

#include <errno.h>
#include <stdbool.h>

enum exit_status {
    STATUS_OK = 0,
    STATUS_USAGE = 64,       /* the command line is wrong */
    STATUS_UNAVAILABLE = 69, /* lock service not reachable within --outage */
    STATUS_INTERNAL = 70,
    STATUS_SYSTEM = 71,        /* the system refused: fork, memory, descriptors */
    STATUS_CANT_CREATE = 73,   /* lock file or report cannot be created */
    STATUS_CONFLICT = 75,      /* held by another; retry later (-E changes it) */
    STATUS_NOT_PERMITTED = 77, /* the lock service or file permissions refuse us */
    STATUS_CONFIG = 78,        /* the configuration or the environment is wrong */
    STATUS_STOPPED = 124,      /* dlock stopped the command: the lease ended or was lost */
    STATUS_NOT_EXECUTABLE = 126,
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL_BASE = 128, /* plus the number of the signal that ended the command */
};

/* The exit status if a command could not be executed for this errno. */
static inline enum exit_status status_of_exec(int error)
{
    return error == ENOENT || error == ENOTDIR ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE;
}

/* The result of a request to a backend, sorted by what the caller can do about
 * it. The text for people is in the struct errmsg beside it. */
enum lock_result {
    LOCK_OK,          /* done: taken, still ours, released */
    LOCK_HELD,        /* another has it: wait or give up */
    LOCK_GONE,        /* it is not ours any more: it has no holder */
    LOCK_FOREIGN,     /* it is not ours: it is held under another token */
    LOCK_RELEASED,    /* it was ours, and was released with its own token */
    LOCK_ENDED,       /* it is not ours: its lease ended before a release reached the service */
    LOCK_UNAVAILABLE, /* the service did not answer usably: try again */
    LOCK_REFUSED,     /* the service or file permissions refuse us: pointless to retry */
    LOCK_INVALID,     /* the configuration cannot be used */
    LOCK_CANT_CREATE, /* the lock file cannot be created */
    LOCK_CANCELLED,   /* the caller's own cancel descriptor became readable */
    LOCK_SYSTEM,      /* out of memory, descriptors, ... */
};

/* True if a lock that we had was taken from us, or has expired. */
static inline bool lock_is_lost(enum lock_result result)
{
    return result == LOCK_GONE || result == LOCK_FOREIGN;
}

/* True if a lock that we had is not ours any more, for whatever reason. */
static inline bool lock_is_past(enum lock_result result)
{
    return lock_is_lost(result) || result == LOCK_RELEASED || result == LOCK_ENDED;
}

/* Returns the exit status for a result other than LOCK_OK if no command ran.
 * LOCK_HELD gives STATUS_CONFLICT, before -E. */
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

#endif
