/* The key that the options mean. */
#ifndef DLOCK_LOCK_KEY_H
#define DLOCK_LOCK_KEY_H

#include "lock_name.h"
#include "message.h"
#include "options.h"
#include "status.h"
#include "why.h"

#include <stdbool.h>

/* PREFIX + [SCOPE + ":"] + NAME or its digest (--hash). LOCK_OK; else as
 * secret_read() and name_digest(). */
enum lock_result lock_key_of(char key[LOCK_KEY_SIZE], const struct options *options, struct why *why);

/* The same. False: told, and *status is the exit status. */
bool lock_key_find(char key[LOCK_KEY_SIZE], const struct options *options, const struct messages *out, int *status);

#endif
