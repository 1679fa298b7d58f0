/* The process that holds an attached lock, once dlock has returned. */
#ifndef DLOCK_RUN_ATTACH_DAEMON_H
#define DLOCK_RUN_ATTACH_DAEMON_H

#include "process/target_process.h"
#include "run/acquisition.h"

#include <stdbool.h>

/* Starts it and waits until it watches lease and target: from then on the lock
 * is its own, and this process may not touch the backend any more, closing it
 * included. False: told, the lock is given back, and *status is the exit
 * status; or lock->ended_by is the signal that came meanwhile. */
bool attach_daemon_start(struct acquisition *lock, const struct target_process *target,
                         int *status);

#endif
