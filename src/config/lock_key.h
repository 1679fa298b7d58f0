/* The lock key that results from the options. */
#ifndef DLOCK_CONFIG_LOCK_KEY_H
#define DLOCK_CONFIG_LOCK_KEY_H

#include "config/options.h"
#include "lock/lock_name.h"
#include "lock/result.h"
#include "util/message.h"

#include <stdbool.h>

/* PREFIX + NAME or its digest (--hash). LOCK_OK; otherwise like
 * secret_read() and lock_name_digest(). */
enum lock_result lock_key_of(char key[LOCK_KEY_SIZE], const struct options *options,
                             struct errmsg *why);

/* The same. False: reported, and *status is the exit status. */
bool lock_key_find(char key[LOCK_KEY_SIZE], const struct options *options,
                   const struct messages *out, int *status);

#endif
