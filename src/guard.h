/* The guard: with --tree, a process between dlock and the command. */
#ifndef DLOCK_GUARD_H
#define DLOCK_GUARD_H

#include "signals.h"

/* What the guard tells dlock, one message each. Dlock's own messages are the
 * number of a signal (an int) that is to be passed on. */
enum guard_event {
    GUARD_STARTED,   /* the command was executed, or could not be */
    GUARD_FAILED,    /* value: the errno for which there is no process */
    GUARD_STOPPED,   /* value: the signal that stopped the command */
    GUARD_CONTINUED, /* it runs again */
    GUARD_ENDED,     /* value: its wait status */
};

struct guard_news {
    enum guard_event event;
    int value;
};

/* Runs the command, in a process that was forked for it. Ends when the command
 * and every descendant of it have ended; where dlock ends before, kills them
 * all. fd is a SOCK_SEQPACKET socket whose other end only dlock has. */
__attribute__((noreturn)) void guard_run(int fd, const char *const *argv, const struct signals *signals, int *exec_errno);

#endif
