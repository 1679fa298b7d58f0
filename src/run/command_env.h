/* What the command learns of its lock through its environment. */
#ifndef DLOCK_RUN_COMMAND_ENV_H
#define DLOCK_RUN_COMMAND_ENV_H

#include "config/options.h"
#include "lock/lease.h"

#include <stdbool.h>

/* Sets DLOCK_NAME, DLOCK_KEY, DLOCK_OWNER, DLOCK_FENCE, DLOCK_TTL (seconds),
 * DLOCK_EXPIRES_AT (ISO 8601, UTC), DLOCK_BACKEND, DLOCK_SLOT (unset where there is none), and adds this lock's line
 * "BACKEND TOKEN TAKE KEY" to DLOCK_HELD, in the environment of this process.
 * Of those that are options as well, it is noted what the environment said
 * before (`options`). DLOCK_HELD_AT says where the lock is, for --extend and its
 * like: a lock directory, or a URL without its password; it is unset where that goes
 * without saying. False where memory is short. */
bool command_env_set(const struct lease *lease, const char *backend, const struct options *options);

#endif
