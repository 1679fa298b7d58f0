/* The target, which is the process that a lock is attached to, and the guard, which is the process
 * that holds the lock after dlock has ended. */
#ifndef DLOCK_RUN_ATTACH_DAEMON_H
#define DLOCK_RUN_ATTACH_DAEMON_H

#include "process/procfs.h"
#include "run/acquisition.h"
#include "run/expiry.h"

#include <stdbool.h>

struct attach_target {
    struct process_id id;
    int fd;         /* a pidfd, which is readable once the process has ended; -1: not open */
    char name[160]; /* "deploy.sh (pid 7)" */
};

/* Opens a pidfd of the process `given` (0: our parent), and checks whether a lock can be attached
 * to that process. Returns STATUS_OK, or reports the failure and returns its exit status. Call
 * attach_target_close() in any case. */
int attach_target_open(struct attach_target *target, pid_t given, const struct messages *out);
void attach_target_close(struct attach_target *target);

/* True if the target has ended, even if it has not been reaped yet. */
bool attach_target_has_ended(const struct attach_target *target);

struct attach_plan {
    struct expiry_plan end;
    bool in_place; /* the guard stays in the current directory, because some paths are relative */
};

/* Starts the guard of the lock and waits until the guard is watching the lease and the target. From
 * then on, the lock belongs to the guard, and this process must not use the backend any more, not
 * even close it. False: the failure has been reported, the lock has been released, and *status is
 * the exit status. If a signal was the reason, lock->ended_by is that signal. */
bool attach_daemon_start(struct acquisition *lock, const struct attach_target *target,
                         const struct attach_plan *plan, int *status);

#endif
