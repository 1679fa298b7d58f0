/* The locks that this process runs under. Three sources describe them: DLOCK_HELD in the
 * environment, set by an ancestor dlock; a file, written by a guard (the process that holds a lock
 * of --attach); and the store, which names the process of a holder. The first two may be out of
 * date, because only the store knows whether such a lock is still held. */
#ifndef DLOCK_RUN_OUTER_H
#define DLOCK_RUN_OUTER_H

#include "process/procfs.h"
#include "store/backend.h"
#include "util/array.h"

#include <stdbool.h>
#include <stddef.h>

/* One line of DLOCK_HELD: "BACKEND?STORE TOKEN TAKE KEY". TAKE is the take id, which distinguishes
 * the lock from the lock of a later run with the same --owner. Only config/held_store.c interprets
 * STORE. */
struct held {
    const char *store;   /* in struct outer_locks, a copy; otherwise part of the text that was
                          * read */
    size_t store_length; /* 0: the line names no store */
    char backend[16];
    char token[TOKEN_SIZE];
    char take_id[TOKEN_SIZE];
    char key[LOCK_KEY_SIZE];
    size_t depth;      /* larger for an inner lock: see outer_read() in run/outer.c */
    int64_t boot_ns;   /* when the lock was attached; 0: the lock is from DLOCK_HELD */
    pid_t attached_to; /* the pid of the target of --attach; 0: the lock is from DLOCK_HELD */
    bool ended;        /* the lock's guard has ended, usually because the lock was released */
};

/* Reads the line at *at, and moves *at to the next line (NULL after the last one). False if the
 * line is not valid. */
bool held_next(const char **at, struct held *held);

/* True if an ancestor dlock has added the line of DLOCK_HELD that ends before `end` (NULL: the
 * last line). False: the variable has come from elsewhere, or the ancestor cannot be seen from
 * this pid namespace. */
bool held_added_by_ancestor(const char *end);

struct outer_locks {
    struct held *list; /* the innermost lock first */
    size_t count, room;
    bool short_of_memory; /* some locks are missing from the list */
    bool ending; /* a process with an attached lock has ended, but the guard of the lock has not */
};

/* Finds the locks in DLOCK_HELD, and the locks that are attached to this process or an ancestor.
 * The records of attached locks are in lock_dir; NULL: in the current user's default directories.
 * False if memory is short. Call outer_free() in any case. */
bool outer_read(struct outer_locks *locks, const char *lock_dir);
void outer_free(struct outer_locks *locks);

/* Adds the locks that are attached to this process or an ancestor to the list in *locks. lock_dir
 * is as in outer_read(). */
void outer_read_attached(struct outer_locks *locks, const char *lock_dir);

/* True if a process with an attached lock has ended, but the guard has not released that lock
 * yet. */
bool outer_is_ending(const char *lock_dir);

/* Asks the store whether the lock that *held describes is still held. Returns LOCK_OK if it is
 * held, and sets *lease to what the store reports. Returns LOCK_GONE if *held describes a lock with
 * another key or in another kind of store. (The key is ignored if the backend has only one lock.)
 * Any other result comes from backend->check(), and says why the store does not confirm the lock:
 * for example, the lock has ended or is on another server. */
enum lock_result outer_check(struct backend *backend, const char *key, const struct held *held,
                             struct lease *lease, struct bound bound, struct errmsg *why);

/* How long dlock may ask the store whether an outer lock is still held. */
#define OUTER_LIMIT DURATION_S(3)

/* True if the lock `key` is attached to this process or an ancestor, and the store confirms that it
 * is held. Then *lease is what the store reports. */
bool outer_is_attached(struct backend *backend, const char *lock_dir, const char *key,
                       struct lease *lease, struct bound bound);

/* True if the holder is `self`, the process that requests the lock, or an ancestor of `self`.
 * (`self` is the holder if a script that holds the lock replaces itself with dlock.) The host and
 * the start time of the process must match too. */
bool outer_is_process(const struct holder *holder, const struct holder *self);

/* True if an ancestor may be a dlock. If none is, outer_is_process() is false for every holder,
 * unless a lock is attached to an ancestor. This check takes less time than reading all holders of
 * the lock. */
bool outer_has_dlock(pid_t self);

/* --- for processes under the lock ------------------------------------------ */

/* Sets these variables in the environment: DLOCK_NAME, DLOCK_FENCE, DLOCK_EXPIRES_AT (ISO 8601,
 * UTC), DLOCK_SLOT (unset if there is no slot), DLOCK_HELD_KEY, DLOCK_HELD_OWNER, DLOCK_HELD_TTL
 * (seconds) and DLOCK_HELD_BACKEND. Adds this lock's line, which begins with `where`, to
 * DLOCK_HELD. dlock does not read any of these variables as a setting. */
void outer_export(struct environment *environment, const struct lease *lease, const char *backend,
                  const char *where);

/* The file in which a guard of --attach describes its lock to the target, which is the process that
 * the lock is attached to. A file is needed because the target's environment cannot be changed from
 * outside. */
struct attach_record {
    int dir_fd, fd; /* -1: there is none */
    char name[80];
};

/* Records that the lock is attached to `target`. The lock's line of DLOCK_HELD begins with `where`;
 * lock_dir is the argument of lock_dir_open(). False with *why set: the lock can then be found only
 * by its name. */
bool attach_record_add(struct attach_record *attached, const char *lock_dir,
                       struct process_id target, const char *where, const struct lease *lease,
                       struct errmsg *why);

/* Closes the record and removes its file. With `leave`, keeps the file, because the lock has ended
 * but the process that it was attached to is still running. */
void attach_record_close(struct attach_record *attached, bool leave);

#endif
