/* Which locks are attached to which processes. DLOCK_HELD describes a command's
 * lock in its environment, but the environment of a running script cannot be
 * changed from outside. So each guard of --attach keeps a small file in the
 * lock directory, by which --extend, --release and --current in that script
 * find the lock. */
#ifndef DLOCK_RUN_ATTACH_RECORD_H
#define DLOCK_RUN_ATTACH_RECORD_H

#include "process/procfs.h"
#include "run/held_locks.h"
#include "util/errmsg.h"

#include <stdbool.h>

/* A guard's own file. */
struct attach_record {
    int dir_fd, fd; /* -1: there is none */
    char name[80];
};

/* Records that the lock, whose line of DLOCK_HELD begins with `where`, is attached to the
 * process; lock_dir as lock_dir_open() takes it. False with *why set: then the lock can still
 * be found by its name. */
bool attach_record_add(struct attach_record *attached, const char *lock_dir,
                       struct process_id target, const char *where, const struct lease *lease,
                       struct errmsg *why);
/* Removes the record, or leaves it behind: the lock has ended, and the process lives on. */
void attach_record_close(struct attach_record *attached, bool leave);

/* Adds the locks that are attached to this process or an ancestor to the list. Each is a claim:
 * only the store knows whether the lock still holds. One whose guard has ended is `ended`.
 * Looks into lock_dir; if that is NULL, into our user's default directories. */
void attach_record_find(struct held_locks *list, const char *lock_dir);

#endif
