/* Exit statuses: the only place in which an outcome becomes a number.
 *
 * The values from 64 to 78 are those of sysexits.h(3); 124, 126 and 127 are
 * those of timeout(1) and the shell.
 */
#ifndef DLOCK_UTIL_EXIT_STATUS_H
#define DLOCK_UTIL_EXIT_STATUS_H

#include <errno.h>

enum exit_status {
    STATUS_OK = 0,
    STATUS_USAGE = 64,       /* the command line is wrong */
    STATUS_UNAVAILABLE = 69, /* the lock service was not reachable within --retry-for */
    STATUS_INTERNAL = 70,
    STATUS_SYSTEM = 71,        /* the system refused a request, such as fork(2) */
    STATUS_CANT_CREATE = 73,   /* the lock file or a report cannot be created */
    STATUS_CONFLICT = 75,      /* another process holds the lock; retry later (see -E) */
    STATUS_NOT_PERMITTED = 77, /* the lock service or the file permissions forbid the operation */
    STATUS_CONFIG = 78,        /* the configuration or the environment is wrong */
    STATUS_STOPPED = 124,      /* dlock stopped the command: the lease ended or was lost */
    STATUS_NOT_EXECUTABLE = 126,
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL_BASE = 128, /* plus the number of the signal that ended the command */
};

/* The exit status if executing a command failed with this errno. */
static inline enum exit_status status_of_exec(int error)
{
    return error == ENOENT || error == ENOTDIR ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE;
}

#endif
