/* A lock's name as its digest, for keys that do not tell it. */
#ifndef DLOCK_CONFIG_NAME_DIGEST_H
#define DLOCK_CONFIG_NAME_DIGEST_H

#include "util/errmsg.h"
#include "util/exit_status.h"
#include "util/secret_file.h"

enum { NAME_DIGEST_SIZE = 64 + 1 };

/* SHA-256 of the name's bytes (FIPS 180-4), or with a secret HMAC-SHA-256 under it
 * (RFC 2104), in lower-case hexadecimal. LOCK_OK; LOCK_INVALID: there is no
 * OpenSSL here; LOCK_SYSTEM. */
enum lock_result name_digest(char digest[NAME_DIGEST_SIZE], const char *name, const struct secret *secret, struct why *why);

/* Whether the text looks like one. */
bool name_is_digest(const char *text);

#endif
