/* The process that a lock is attached to. */
#ifndef DLOCK_PROCESS_TARGET_PROCESS_H
#define DLOCK_PROCESS_TARGET_PROCESS_H

#include "process/process_tree.h"
#include "util/message.h"

#include <stdbool.h>

struct attach_target {
    struct process_id id;
    int fd;         /* a pidfd(2), readable once the process has ended; -1: not open */
    char name[160]; /* "deploy.sh (pid 7)" */
};

/* Pins the process `pid` (0: our parent), and judges whether a lock can be
 * attached to it. False: told, and *status is the exit status.
 * attach_target_close() in any case. */
bool attach_target_open(struct attach_target *target, pid_t pid, const struct messages *out, int *status);

/* Whether it has ended, reaped or not. */
bool attach_target_has_ended(const struct attach_target *target);

/* Sends it the signal, and to nobody else, whoever has its pid by now. */
void attach_target_signal(const struct attach_target *target, int number);

void attach_target_close(struct attach_target *target);

#endif
