/* Which locks are attached to which processes. DLOCK_HELD describes a command's
 * lock in its environment, but the environment of a running script cannot be
 * changed from outside. So each guard of --attach keeps a small file in the
 * lock directory, by which --extend, --release and --current in that script
 * find the lock. */
#ifndef DLOCK_RUN_ATTACH_RECORD_H
#define DLOCK_RUN_ATTACH_RECORD_H

#include "process/process_tree.h"
#include "run/held_locks.h"
#include "util/errmsg.h"

#include <stdbool.h>

/* A guard's own file. */
struct attach_record {
    int dir_fd, fd; /* -1: there is none */
    char name[80];
};

/* Records that the lock is attached to the process. `id` is a UUID of this
 * attachment's own; lock_dir as lock_dir_open() takes it. False with *why set:
 * then the lock can still be found by its name. */
bool attach_record_add(struct attach_record *attached, const char *lock_dir,
                       struct process_id target, const char *id, const struct held *held,
                       struct errmsg *why);
void attach_record_remove(struct attach_record *attached);

/* Calls visit() for each lock that is attached to this process or an ancestor,
 * the innermost first, with that process, until it returns true; returns
 * whether it has. What it receives is a claim: the guard is alive, but only the
 * store knows whether the lock still holds. Looks into lock_dir; if that is
 * NULL, into the default directories of our user and of the ancestors' users
 * (sudo). */
bool attach_record_visit_ancestors(const char *lock_dir,
                                   bool (*visit)(void *data, pid_t pid, const struct held *held),
                                   void *data);

#endif
