/* Runs the command from start to end while watching the lease. */
#ifndef DLOCK_RUN_SUPERVISE_H
#define DLOCK_RUN_SUPERVISE_H

#include "process/signals.h"
#include "run/expiry.h"
#include "run/watchdog.h"
#include "store/backend.h"
#include "util/message.h"

#include <stdbool.h>

struct supervision {
    struct backend *backend;
    struct lease *lease; /* its deadline follows what the watch adopts */
    const struct signals *signals;
    const struct messages *out;
    const char *const *argv;
    const struct environment *environment; /* of the command */
    struct expiry_plan end;
    bool tree;                        /* --tree */
    const struct watchdog *heartbeat; /* of the command; its fd -1: none */
};

struct outcome {
    bool started;  /* false: nothing ran, `error` says why */
    int signalled; /* dlock must end by this signal: it came before the start; or to both, and
                    * ended the command */
    struct errmsg error;
    int exec_error;  /* the errno if the command was not executable */
    int status;      /* of waitpid(2) */
    bool released;   /* with its own token, while the command ran: it runs on without the lock */
    bool lease_over; /* the lease ended or was lost while the command ran */
    struct deadline over_since;
};

/* Runs the command and stops it when the lease ends or is lost. Returns once
 * the command has ended and, if it was stopped, all its descendants. */
void supervise(const struct supervision *plan, struct outcome *outcome);

#endif
