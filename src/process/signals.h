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
    sigset_t ignored;  /* signals that the caller ignores (nohup); dlock ignores them too */
    sigset_t ending;   /* the signals that end dlock if no command runs */
};

struct signal_event {
    int number;
    /* true if a terminal sent the signal: to its foreground process group or, at a hangup, perhaps
     * to the session leader alone */
    bool typed;
    pid_t sender; /* 0: the kernel (alarm(2), a limit), or a process in another pid namespace */
};

/* Blocks the signals that would end dlock, and opens a descriptor that reports them. Does not block
 * ignored signals, or signals that report a fault, such as SIGSEGV. Also blocks SIGPIPE and
 * SIGXFSZ, so that a write fails instead. Returns false with *why set on failure. */
bool signals_open(struct signals *signals, struct errmsg *why);

/* Call this before a command runs: from now on the descriptor also reports SIGCHLD and the signals
 * that dlock passes on to the command. Also blocks SIGTTIN and SIGTTOU, because dlock stops only
 * when the command does. False with *why set. */
bool signals_widen(struct signals *signals, struct errmsg *why);

/* Call this after the command has ended: the descriptor again reports only signals that end dlock.
 * The other signals stay blocked. */
void signals_narrow(const struct signals *signals);

/* Reads the next signal. False if none has come. Never waits. */
bool signals_next(const struct signals *signals, struct signal_event *event);

/* Reads the signals that have come so far, within the limits of struct drain. Returns the first
 * signal that ends dlock if no command runs, or 0 if there is none. */
int signals_ended_by(const struct signals *signals);

/* Call this before signals_restore() if this process keeps running. Discards a pending SIGPIPE or
 * SIGXFSZ that our own writes have caused, because it would end the process. A signal that our
 * caller had blocked stays pending, because the caller may have caused it. */
void signals_forget_writes(const struct signals *signals);

/* Restores the mask and dispositions that dlock was started with, for exec(3).
 * Async-signal-safe. */
void signals_restore(const struct signals *signals);

/* Stops this process by the default action of a job-control signal (not SIGSTOP), so that the shell
 * sees a stopped job. Returns after dlock was continued. The kernel does not stop dlock if no
 * process could continue it (an orphaned process group). */
void signals_stop_here(int number);

/* Ends this process by the signal, so that a shell sees what happened. If that is impossible,
 * returns 128 + number. */
int signals_die_by(int number);

#endif
