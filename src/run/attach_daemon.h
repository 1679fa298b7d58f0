/* The process that holds an attached lock, once dlock has returned. */
#ifndef DLOCK_RUN_ATTACH_DAEMON_H
#define DLOCK_RUN_ATTACH_DAEMON_H

#include "process/target_process.h"
#include "run/acquisition.h"
#include "run/expiry.h"

#include <stdbool.h>

struct attach_plan {
    struct expiry_plan end;
    bool in_place; /* it stays in the current directory: paths are relative to it */
};

/* Starts it and waits until it watches lease and target. From then on the lock
 * belongs to it, and this process may not touch the backend any more, not even
 * close it. False: reported, the lock is released, and *status is the exit
 * status; or lock->ended_by is the signal that came meanwhile. */
bool attach_daemon_start(struct acquisition *lock, const struct target_process *target,
                         const struct attach_plan *plan, int *status);

#endif
