/* dlock blocks signals from its start on and reads them from a signalfd(2); no handler ever
 * runs. The command inherits the mask and dispositions that dlock was started with. */
#ifndef DLOCK_PROCESS_SIGNALS_H
#define DLOCK_PROCESS_SIGNALS_H

#include "util/errmsg.h"

#include <signal.h>
#include <stdbool.h>

struct signals {
    int fd;            /* signalfd; readable when a signal has come */
    sigset_t original; /* the mask that dlock was started with */
    sigset_t ignored;  /* by the caller (nohup), and so by dlock */
    sigset_t ending;   /* the signals that end dlock if no command runs */
};

struct signal_event {
    int number;
    /* sent by a terminal to its foreground process group or, when the terminal ends, perhaps to the
     * session leader alone */
    bool typed;
    pid_t sender; /* 0: the kernel (alarm(2), a limit), or a process in another pid namespace */
};

/* Blocks the signals that would end dlock, except ignored ones and those of a fault, and opens the
 * descriptor for them. SIGPIPE and SIGXFSZ stay blocked: a write fails instead. False with *why
 * set. */
bool signals_open(struct signals *signals, struct errmsg *why);

/* From now on a command runs: dlock also receives SIGCHLD and the signals that it passes
 * on to the command. SIGTTIN and SIGTTOU stay blocked: dlock stops when the command does.
 * False with *why set. */
bool signals_widen(struct signals *signals, struct errmsg *why);

/* The command has ended: the descriptor again reports only signals that end dlock. The others
 * stay blocked. */
void signals_narrow(const struct signals *signals);

/* The next signal, if one has come. Never waits. */
bool signals_next(const struct signals *signals, struct signal_event *event);

/* Reads the signals that have come so far, within the limits of struct drain. Returns the
 * first signal that ends dlock if no command runs, 0 if there is none. */
int signals_ended_by(const struct signals *signals);

/* Call this before signals_restore() if this process keeps running: discards the pending SIGPIPE
 * and SIGXFSZ of our own writes, which would end the process. A signal that our caller had blocked
 * stays pending, because it may be the caller's own. */
void signals_forget_writes(const struct signals *signals);

/* Restores the mask and dispositions that dlock was started with, for exec(3).
 * Async-signal-safe. */
void signals_restore(const struct signals *signals);

/* Stops this process by the default action of the signal, which stops a job (not SIGSTOP),
 * and returns after dlock was continued. So the shell sees a stopped job. The kernel does not
 * stop dlock if no process could continue it (an orphaned process group). */
void signals_stop_here(int number);

/* Ends this process by the signal, so that a shell sees what happened. Only returns if that
 * is impossible: 128 + number. */
int signals_die_by(int number);

#endif
