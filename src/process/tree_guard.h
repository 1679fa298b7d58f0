/* The guard: with --tree, a process between dlock and the command. */
#ifndef DLOCK_PROCESS_TREE_GUARD_H
#define DLOCK_PROCESS_TREE_GUARD_H

#include "process/signals.h"
#include "util/environment.h"

#include <stdatomic.h>

/* Reports of the guard and the command's process to dlock, in shared memory,
 * since a message could be lost if the socket is full. Zero at the start. */
struct guard_page {
    int exec_errno;        /* written before exec(3) fails in the command's process */
    atomic_int command;    /* its pid, 0: not started */
    atomic_int error;      /* the errno for which it could not be started */
    atomic_int stops;      /* how often it has been stopped */
    atomic_int stopped_by; /* the signal that has stopped it; 0: it runs */
    atomic_int ended;      /* set after status */
    atomic_int status;     /* its wait status */
};

/* Runs the command, in a process that was forked for it. Ends when the command
 * and every descendant of it have ended; if dlock ends before, kills them all.
 * fd is a SOCK_SEQPACKET socket whose other end only dlock has: a byte from the
 * guard says that the page has news, an int from dlock is a signal to pass on. */
__attribute__((noreturn)) void tree_guard_run(int fd, const char *const *argv,
                                              const struct environment *environment,
                                              const struct signals *signals,
                                              struct guard_page *page);

#endif
