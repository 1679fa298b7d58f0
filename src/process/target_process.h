/* The process that a lock is attached to. */
#ifndef DLOCK_PROCESS_TARGET_PROCESS_H
#define DLOCK_PROCESS_TARGET_PROCESS_H

#include "process/process_tree.h"
#include "util/errmsg.h"
#include "util/exit_status.h"

#include <stdbool.h>

struct target_process {
    struct process_id id;
    int fd;         /* a pidfd(2), readable once the process has ended; -1: not open */
    char name[160]; /* "deploy.sh (pid 7)" */
};

/* Pins the process `pid` (0: our parent), and checks whether a lock can be
 * attached to it. STATUS_OK; otherwise *why is set: STATUS_USAGE: no lock can be
 * attached to it; STATUS_NOT_PERMITTED; STATUS_SYSTEM. Call target_process_close() in
 * any case. */
enum exit_status target_process_open(struct target_process *target, pid_t pid, struct errmsg *why);

/* True if it has ended, reaped or not. */
bool target_process_has_ended(const struct target_process *target);

/* Sends it the signal, and never to another process that has its pid by now. */
void target_process_signal(const struct target_process *target, int number);

void target_process_close(struct target_process *target);

#endif
