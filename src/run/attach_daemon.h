/* The process that holds an attached lock, once dlock has returned. */
#ifndef DLOCK_RUN_ATTACH_DAEMON_H
#define DLOCK_RUN_ATTACH_DAEMON_H

#include "process/target_process.h"
#include "run/acquisition.h"

#include <stdbool.h>

/* Starts it and waits until it watches lease and target. From then on the lock
 * belongs to it, and this process may not touch the backend any more, not even
 * close it. False: reported, the lock is released, and *status is the exit
 * status; or lock->ended_by is the signal that came meanwhile. */
bool attach_daemon_start(struct acquisition *lock, const struct target_process *target,
                         int *status);

#endif
