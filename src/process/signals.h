/* Signals are blocked from the start on and read from a signalfd(2); no
 * handler ever runs. The command inherits what dlock was given. */
#ifndef DLOCK_PROCESS_SIGNALS_H
#define DLOCK_PROCESS_SIGNALS_H

#include "util/errmsg.h"

#include <signal.h>
#include <stdbool.h>

struct signals {
    int fd;            /* signalfd; readable when a signal has come */
    sigset_t original; /* the mask that dlock was started with */
    sigset_t ignored;  /* by the caller (nohup), and so by dlock */
    sigset_t ending;   /* those that end dlock if no command runs */
};

struct signal_event {
    int number;
    /* by a terminal or at its end: sent to its process group, or to the session leader alone */
    bool typed;
    pid_t sender; /* 0: the kernel (alarm(2), a limit), or one in another pid namespace */
};

/* Blocks the signals that would end dlock, except ignored ones and those of a
 * fault, and opens the descriptor for them. SIGPIPE and SIGXFSZ are blocked for
 * good: the write fails instead. False with *why set. */
bool signals_open(struct signals *signals, struct errmsg *why);

/* From now on a command runs: dlock also receives SIGCHLD and the signals that it passes
 * on to the command. SIGTTIN and SIGTTOU stay blocked: dlock stops when the command does.
 * False with *why set. */
bool signals_widen(struct signals *signals, struct errmsg *why);

/* The command has ended: the descriptor reports only signals that end dlock again. The others
 * stay blocked. */
void signals_narrow(const struct signals *signals);

/* The next signal, if one has come. Never waits. */
bool signals_next(const struct signals *signals, struct signal_event *event);

/* Reads what has come so far, of a flood the first. Returns the first signal that
 * ends dlock if no command runs, 0 if there is none. */
int signals_ended_by(const struct signals *signals);

/* Removes the SIGPIPE and SIGXFSZ of our own writes, before signals_restore()
 * if this process goes on, because they would end it. Those that our caller had
 * blocked may be its own. */
void signals_forget_writes(const struct signals *signals);

/* Restores, in the child before exec(3), what dlock was given. Async-signal-safe. */
void signals_restore(const struct signals *signals);

/* Does what this signal, one of those that stop a job (not SIGSTOP), does by
 * default, and returns once dlock is continued: the shell sees a stopped job.
 * The kernel does not stop us if no process could continue us (an orphaned
 * process group). */
void signals_stop_here(int number);

/* Ends this process by the signal, so that a shell sees what happened. Returns
 * 128 + number, and only if that is impossible. */
int signals_die_by(int number);

#endif
