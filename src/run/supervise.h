/* Watches a lease while a worker works under it. The worker is the command, or the process that a
 * lock is attached to (run/attach_daemon.c). */
#ifndef DLOCK_RUN_SUPERVISE_H
#define DLOCK_RUN_SUPERVISE_H

#include "process/process.h"
#include "run/expiry.h"
#include "run/watch.h"
#include "store/backend.h"

#include <stdbool.h>

enum { WORKER_FDS = 4 };

struct supervision {
    struct expiry end; /* the caller sets some members: see struct expiry */
    struct watch watch;
    int timer_fd;
    /* Set by the worker, which may change them in attend(): */
    int fds[WORKER_FDS]; /* the loop stops waiting when one of them is readable; -1: none */
    struct deadline due; /* the loop stops waiting at this time, too */
};

/* Opens everything that supervise() needs, but does not start the watch thread. Before the call,
 * set those members of run->end that are marked "Set by the caller" in struct expiry. `heartbeat`
 * is as in struct watch. Returns false with *why set on failure. Call supervise_close() in either
 * case. Neither *run nor anything that run->end points to may move. */
bool supervise_open(struct supervision *run, struct backend *backend,
                    const struct watchdog *heartbeat, struct errmsg *why);

/* Returns once the worker has ended and, if it was stopped, all of its processes have ended. After
 * that, run->end says what became of the lease, and the caller may use the backend again. */
void supervise(struct supervision *run);

/* Waits for the watch thread to end, and closes what supervise_open() has opened. The lock may be
 * released before this call. */
void supervise_close(struct supervision *run);

struct supervised_command {
    /* Set by the caller: */
    struct backend *backend;
    struct lease *lease; /* its deadline is updated when the watch thread reports a new one */
    struct command command;
    struct expiry_plan end;
    const struct watchdog *heartbeat; /* the command's heartbeat; its fd is -1 if there is none */
    /* Private to run/supervise.c: */
    struct supervision supervision; /* its `due` is when the watch thread starts */
    struct child child;
    struct deadline look_at; /* when dlock must check the lease itself if the watch thread has not
                              * started */
    bool warned;             /* the user was warned that the guard or the watch thread has not
                              * started */
    bool judged;             /* it is known whether the command has started */
};

struct outcome {
    bool started;  /* false: nothing was run, and `error` or `signalled` says why */
    int signalled; /* the signal by which dlock must end, or 0. The signal came before the command
                    * started, or it came to both dlock and the command and ended the command */
    struct errmsg error;
    int exec_error;  /* the errno if the command could not be executed */
    int status;      /* the command's status from waitpid(2) */
    bool released;   /* the lock was released with its owner token, and the command ran on */
    bool lease_over; /* the lease ended or was lost while the command ran */
    struct deadline over_since;
};

/* Runs the command and stops it when the lease ends or is lost. Returns once the command has ended
 * and, if it was stopped, all its descendants have ended. If the command was started, the caller
 * must release the lock and then call supervise_command_close(). *run must not move. */
void supervise_command(struct supervised_command *run, struct outcome *outcome);

/* Waits until the watch thread and the guard have ended. Neither has anything left to do. */
void supervise_command_close(struct supervised_command *run);

#endif
