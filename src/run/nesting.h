/* A lock inside the same lock: a dlock that runs inside a command which holds
 * the lock already does not wait for itself. */
#ifndef DLOCK_RUN_NESTING_H
#define DLOCK_RUN_NESTING_H

#include "run/held_locks.h"
#include "store/backend.h"

#include <stdbool.h>

/* Asks the store about a line of DLOCK_HELD. LOCK_OK: this key is held by the take that
 * the line names, and *lease is what the store reports about it. LOCK_GONE: the line is
 * about another lock. Otherwise as backend->check(): an entry that has ended, or belongs to
 * another server, does not count. */
enum lock_result nested_claim_check(struct backend *backend, const char *key,
                                    const struct held *held, struct lease *lease,
                                    struct bound bound, struct errmsg *why);

/* How long to ask whether an outer lock still holds. Without an answer, the lock is
 * requested like any other. */
#define NESTING_LIMIT DURATION_S(3)

/* The same for all locks attached to this process or an ancestor (run/attach_record.h). */
bool nested_by_attachment(struct backend *backend, const char *lock_dir, const char *key,
                          struct lease *lease, struct bound bound);

/* True if the holder is `self`, the process that requests the lock (a script
 * that has become a dlock), or an ancestor of it, on this host and with the
 * same start time. This covers an environment that was scrubbed (sudo), or
 * could not be set (--attach). An ancestor in another pid namespace
 * (unshare(1), a container that the command starts) is not visible in ours:
 * there only DLOCK_HELD shows it. */
bool nested_by_ancestry(const struct holder *holder, const struct holder *self);

/* False if no holder can be meant by nested_by_ancestry(): no ancestor is a dlock, and the
 * caller has found nothing attached. It costs less than to look at all holders. */
bool nested_in_dlock(pid_t self);

#endif
