/* The lock key that results from the options. */
#ifndef DLOCK_CONFIG_LOCK_KEY_H
#define DLOCK_CONFIG_LOCK_KEY_H

#include "config/options.h"
#include "lock/lock_name.h"
#include "util/errmsg.h"
#include "util/exit_status.h"
#include "util/message.h"
#include "util/secret_file.h"

#include <stdbool.h>

/* PREFIX + NAME or its digest (--hash). LOCK_OK; otherwise like
 * secret_read() and name_digest(). */
enum lock_result lock_key_of(char key[LOCK_KEY_SIZE], const struct options *options,
                             struct errmsg *why);

/* The same. False: reported, and *status is the exit status. */
bool lock_key_find(char key[LOCK_KEY_SIZE], const struct options *options,
                   const struct messages *out, int *status);

/* A lock's name as its digest, for keys that do not reveal it. */

enum { NAME_DIGEST_SIZE = 64 + 1 };

/* SHA-256 of the name's bytes (FIPS 180-4), or with a secret HMAC-SHA-256 under it
 * (RFC 2104), in lower-case hexadecimal. LOCK_OK; LOCK_INVALID: there is no
 * OpenSSL here; LOCK_SYSTEM. */
enum lock_result name_digest(char digest[NAME_DIGEST_SIZE], const char *name,
                             const struct secret *secret, struct errmsg *why);

/* True if the text looks like one. */
bool name_is_digest(const char *text);

#endif
