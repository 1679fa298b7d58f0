/* Signals are blocked from the start on and read from a signalfd(2); no
 * handler ever runs. What the command inherits is what dlock was given. */
#ifndef DLOCK_PROCESS_SIGNALS_H
#define DLOCK_PROCESS_SIGNALS_H

#include "util/errmsg.h"

#include <signal.h>
#include <stdbool.h>

struct signals {
    int fd;            /* signalfd; readable when a signal has come */
    sigset_t original; /* the mask that dlock was started with */
    bool chld_ignored; /* SIGCHLD's disposition was SIG_IGN */
};

struct signal_event {
    int number;
    bool
        typed; /* at a terminal, or sent at its end: all of its process group has it, or the leader of the session alone */
    pid_t sender; /* 0: the kernel (alarm(2), a limit), or one in another pid namespace */
};

/* Blocks the signals that would end dlock, but for those that are ignored and
 * those of a fault, and opens the descriptor for them. SIGPIPE and
 * SIGXFSZ are blocked for good: the write tells. False with *why set. */
bool signals_open(struct signals *signals, struct errmsg *why);

/* From now on a command runs: SIGCHLD and what is passed on to it come too.
 * SIGTTIN and SIGTTOU stay blocked: dlock stops where the command does. */
bool signals_widen(struct signals *signals, struct errmsg *why);

/* The next signal, if one has come. Never waits. */
bool signals_next(const struct signals *signals, struct signal_event *event);

/* Takes in what has come so far. Returns the first of those that end dlock
 * where no command runs, 0 where there is none. */
int signals_ended_by(const struct signals *signals);

/* Takes back the SIGPIPE and SIGXFSZ of our own writes, before signals_restore()
 * where this process goes on, which they would end. Those that our caller had
 * blocked may be its own. */
void signals_forget_writes(const struct signals *signals);

/* Puts back, in the child before exec(3), what dlock was given. Async-signal-safe. */
void signals_restore(const struct signals *signals);

/* Does what this signal, of those that stop a job (not SIGSTOP), does by
 * default, and returns once dlock is continued: the shell sees a stopped job.
 * The kernel leaves it out where nobody could continue us (an orphaned process
 * group). */
void signals_stop_here(int number);

/* Ends this process by the signal, so that a shell sees what happened.
 * Returns only where that is impossible, 128 + number. */
int signals_die_by(int number);

#endif
