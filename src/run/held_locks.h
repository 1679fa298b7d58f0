/* The locks that this process runs under, as the outer dlocks describe them in
 * the environment and the guards of --attach in their records. All of it is a
 * claim: only the store knows whether it still holds. */
#ifndef DLOCK_RUN_HELD_LOCKS_H
#define DLOCK_RUN_HELD_LOCKS_H

#include "lock/lease.h"
#include "util/array.h"

#include <stdbool.h>
#include <stddef.h>

/* One line of DLOCK_HELD: "BACKEND?STORE TOKEN TAKE KEY". The id of the take
 * distinguishes the lock from that of a later run with the same --owner. STORE is
 * opaque here (config/held_store.c). */
struct held {
    const char *store;   /* of a list: its own copy; otherwise in the text that was read */
    size_t store_length; /* 0: none */
    char backend[16];
    char token[TOKEN_SIZE];
    char take_id[TOKEN_SIZE];
    char key[LOCK_KEY_SIZE];
    size_t depth;      /* its place among the others: see held_locks_read() */
    int64_t boot_ns;   /* when it was attached; of a line of DLOCK_HELD: 0 */
    pid_t attached_to; /* 0: a line of DLOCK_HELD */
    bool ended;        /* its guard has ended, as a rule because the lock was released */
};

struct held_locks {
    struct held *list; /* the innermost first */
    size_t count, room;
    bool short_of_memory; /* some are left out */
};

/* Finds them: those in DLOCK_HELD, and those that are attached to ancestors
 * (run/attach_record.h, for lock_dir). False if memory is short. Call held_locks_free() in any case. */
bool held_locks_read(struct held_locks *list, const char *lock_dir);
void held_locks_add(struct held_locks *list, const struct held *held);
void held_locks_free(struct held_locks *list);

/* Sets DLOCK_NAME, DLOCK_FENCE, DLOCK_EXPIRES_AT (ISO 8601, UTC), DLOCK_SLOT
 * (unset if there is none), DLOCK_LOCK_KEY, DLOCK_LOCK_OWNER, DLOCK_LOCK_TTL
 * (seconds) and DLOCK_LOCK_BACKEND, and adds this lock's line to DLOCK_HELD, which begins
 * with `where`, in this environment. None of them is a setting. */
void held_locks_export(struct environment *environment, const struct lease *lease,
                       const char *backend, const char *where);

/* Reads the line at *at, and moves *at to the next one (NULL after the last).
 * False if it is not a valid line. */
bool held_next(const char **at, struct held *held);

#endif
