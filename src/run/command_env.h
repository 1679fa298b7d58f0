/* Puts the facts about its lock into the command's environment. */
#ifndef DLOCK_RUN_COMMAND_ENV_H
#define DLOCK_RUN_COMMAND_ENV_H

#include "lock/lease.h"

#include <stdbool.h>

/* Sets DLOCK_NAME, DLOCK_FENCE, DLOCK_EXPIRES_AT (ISO 8601, UTC), DLOCK_SLOT
 * (unset if there is none), DLOCK_LOCK_KEY, DLOCK_LOCK_OWNER, DLOCK_LOCK_TTL
 * (seconds) and DLOCK_LOCK_BACKEND, and adds this lock's line "BACKEND TOKEN
 * TAKE KEY" to DLOCK_HELD, in the environment of this process. None of them is
 * a setting. False if memory is short. */
bool command_env_set(const struct lease *lease, const char *backend);

#endif
