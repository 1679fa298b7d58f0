/* The locks that this process runs under: what the dlocks above it have told,
 * through the environment, and the guards of --attach beside them. All of it is
 * a claim: the store knows whether it is so still. */
#ifndef DLOCK_RUN_HELD_LOCKS_H
#define DLOCK_RUN_HELD_LOCKS_H

#include "lock/lock_name.h"
#include "lock/token.h"

#include <stdbool.h>
#include <stddef.h>

struct held_locks {
    struct held *list; /* the innermost first */
    size_t count, room;
};

/* Finds them: by DLOCK_HELD, or where the environment was scrubbed (sudo) by
 * that of the nearest ancestor which has it and lets itself be read; and those
 * that are attached to ancestors (run/attach_record.h, for lock_dir). False where memory
 * is short. held_locks_free() in any case. */
bool held_locks_read(struct held_locks *list, const char *lock_dir);
void held_locks_free(struct held_locks *list);

/* What a dlock tells those below it of its lock: a line of DLOCK_HELD. */

/* One line of DLOCK_HELD: "BACKEND TOKEN TAKE KEY". The id of the take tells the
 * lock apart from that of a later run with the same --owner. */
struct held {
    char backend[16];
    char token[TOKEN_SIZE];
    char take_id[TOKEN_SIZE];
    char key[LOCK_KEY_SIZE];
};

/* Reads the line at *at, which moves on to the next one (NULL after the last).
 * False for a line that is none. */
bool held_next(const char **at, struct held *held);

#endif
