/* Watches a lease while a worker works under it: the command, or the process that a lock is
 * attached to (run/attach_daemon.c). */
#ifndef DLOCK_RUN_SUPERVISE_H
#define DLOCK_RUN_SUPERVISE_H

#include "process/process.h"
#include "run/expiry.h"
#include "run/watch.h"
#include "store/backend.h"

#include <stdbool.h>

enum { WORKER_FDS = 4 };

struct supervision {
    struct expiry end; /* the caller sets its members */
    struct watch watch;
    int timer_fd;
    bool begun; /* supervise() was called */
    /* The worker's, which may change them in attend(): */
    int fds[WORKER_FDS]; /* end the wait when they are readable; -1: none */
    struct deadline due; /* the wait ends then, too */
};

/* Opens all that supervise() needs except the watch thread. The caller has set its members of
 * run->end. `heartbeat` as in struct watch. False with *why set; call supervise_close() in any
 * case. *run and what run->end points to must not move. */
bool supervise_open(struct supervision *run, struct backend *backend,
                    const struct watchdog *heartbeat, struct errmsg *why);

/* Returns once the worker has ended and, if it was stopped, all of its processes. */
void supervise(struct supervision *run);

/* Stops the watch, which gives the backend back. After supervise(), run->end then holds what
 * became of the lease. */
void supervise_close(struct supervision *run);

struct supervised_command {
    struct backend *backend;
    struct lease *lease; /* its deadline follows what the watch adopts */
    struct command command;
    struct expiry_plan end;
    const struct watchdog *heartbeat; /* of the command; its fd -1: none */
};

struct outcome {
    bool started;  /* false: nothing ran, `error` says why */
    int signalled; /* dlock must end by this signal: it came before the start, or it came to
                    * both and ended the command */
    struct errmsg error;
    int exec_error;  /* the errno if the command was not executable */
    int status;      /* of waitpid(2) */
    bool released;   /* the lock was released with its token; the command ran on without it */
    bool lease_over; /* the lease ended or was lost while the command ran */
    struct deadline over_since;
};

/* Runs the command and stops it when the lease ends or is lost. Returns once the command has
 * ended and, if it was stopped, all its descendants. */
void supervise_command(const struct supervised_command *plan, struct outcome *outcome);

#endif
