/* The locks that this process runs under. Three sources describe them: DLOCK_HELD in the
 * environment, set by an ancestor dlock; a file, written by a guard of --attach; and the store,
 * which names the process of a holder. The first two may be out of date: only the store knows
 * whether such a lock is still held. */
#ifndef DLOCK_RUN_OUTER_H
#define DLOCK_RUN_OUTER_H

#include "process/procfs.h"
#include "store/backend.h"
#include "util/array.h"

#include <stdbool.h>
#include <stddef.h>

/* One line of DLOCK_HELD: "BACKEND?STORE TOKEN TAKE KEY". The id of the take distinguishes the
 * lock from the lock of a later run with the same --owner. STORE is opaque here
 * (config/held_store.c). */
struct held {
    const char *store;   /* in a list: a copy; otherwise it points into the text that was read */
    size_t store_length; /* 0: none */
    char backend[16];
    char token[TOKEN_SIZE];
    char take_id[TOKEN_SIZE];
    char key[LOCK_KEY_SIZE];
    size_t depth;      /* larger for a lock further inside: see outer_read() in run/outer.c */
    int64_t boot_ns;   /* when the lock was attached; 0: a line of DLOCK_HELD */
    pid_t attached_to; /* the pid of the target of --attach; 0: a line of DLOCK_HELD */
    bool ended;        /* its guard has ended, as a rule because the lock was released */
};

/* Reads the line at *at, and moves *at to the next line (NULL after the last one). False if the
 * line is not valid. */
bool held_next(const char **at, struct held *held);

/* True if an ancestor dlock has added the line of DLOCK_HELD that ends before `end` (NULL: the
 * last line). False: the variable has come from elsewhere, or the ancestor cannot be seen from
 * this pid namespace. */
bool held_added_by_ancestor(const char *end);

struct outer_locks {
    struct held *list; /* the innermost first */
    size_t count, room;
    bool short_of_memory; /* some are left out */
    bool ending; /* a process with an attached lock has ended, but the guard of the lock has not */
};

/* Finds the locks in DLOCK_HELD, and the locks that are attached to this process or an ancestor.
 * The records of attached locks are in lock_dir; NULL: in our user's default directories. False
 * if memory is short. Call outer_free() in any case. */
bool outer_read(struct outer_locks *locks, const char *lock_dir);
void outer_free(struct outer_locks *locks);

/* Adds only the locks that are attached to this process or an ancestor; lock_dir as above. */
void outer_read_attached(struct outer_locks *locks, const char *lock_dir);

/* True if a process to which some lock was attached has ended, and its guard has yet to release
 * that lock. */
bool outer_is_ending(const char *lock_dir);

/* Asks the store about a line of DLOCK_HELD. LOCK_OK: this key is held by the take that the line
 * names, and *lease is what the store reports about that take; if the backend has one lock only,
 * the line's key may differ. LOCK_GONE: the line is about another lock. Otherwise the results of
 * backend->check(), which does not confirm a lock that has ended, or that is on another server. */
enum lock_result outer_check(struct backend *backend, const char *key, const struct held *held,
                             struct lease *lease, struct bound bound, struct errmsg *why);

/* How long dlock may ask the store whether an outer lock is still held. */
#define OUTER_LIMIT DURATION_S(3)

/* True if this lock is attached to this process or an ancestor, and the store confirms that:
 * then *lease is what the store reports. */
bool outer_is_attached(struct backend *backend, const char *lock_dir, const char *key,
                       struct lease *lease, struct bound bound);

/* True if the holder is an ancestor of `self`, the process that requests the lock, or is `self`
 * (a script that has become a dlock), on this host and with the same start time. */
bool outer_is_process(const struct holder *holder, const struct holder *self);

/* False if no ancestor is a dlock. Then outer_is_process() is false for every holder, unless a
 * lock is attached to an ancestor. Costs less than a look at all holders. */
bool outer_has_dlock(pid_t self);

/* --- for processes under the lock ------------------------------------------ */

/* Sets in this environment: DLOCK_NAME, DLOCK_FENCE, DLOCK_EXPIRES_AT (ISO 8601, UTC), DLOCK_SLOT
 * (unset if there is none), DLOCK_HELD_KEY, DLOCK_HELD_OWNER, DLOCK_HELD_TTL (seconds) and
 * DLOCK_HELD_BACKEND. Adds this lock's line, which begins with `where`, to DLOCK_HELD. None of
 * these variables is a setting. */
void outer_export(struct environment *environment, const struct lease *lease, const char *backend,
                  const char *where);

/* The file in which a guard of --attach describes the lock to the process that the lock is
 * attached to: the environment of that process cannot be changed from outside. */
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

/* Removes the record. With `leave`, keeps the record, because the lock has ended but the process
 * that it was attached to lives on. */
void attach_record_close(struct attach_record *attached, bool leave);

#endif
