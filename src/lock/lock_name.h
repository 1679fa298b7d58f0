/* The valid names of locks, and the key and file name made of them; owner tokens. */
#ifndef DLOCK_LOCK_LOCK_NAME_H
#define DLOCK_LOCK_LOCK_NAME_H

#include "lock/result.h"
#include "util/fileutils.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    LOCK_NAME_MAX = 1024, /* bytes; also the maximum of a prefix */
    LOCK_KEY_SIZE = 2 * LOCK_NAME_MAX + 16,
};

/* True if the name is 1 to 1024 bytes of valid UTF-8 without control characters. Otherwise false
 * with *why set, a text that starts with `what` ("the lock name"). */
bool lock_name_valid(const char *name, const char *what, struct errmsg *why);

/* Makes the key: PREFIX + NAME. The key has room for both, because they have passed
 * lock_name_valid() (the prefix may be empty). */
void lock_key_make(char key[LOCK_KEY_SIZE], const char *prefix, const char *name);

/* The key of the lock's companion `part` ("meta"), which Redis Cluster puts into the same slot:
 * {KEY}:part, or TAGKEY:part if KEY already has a hash tag. The companion begins with a brace,
 * which no key does unless its prefix does. (Redis Cluster specification, "Hash tags". If a key has
 * a '}' but no tag, its companion is in another slot, which matters to Cluster only.) */
void lock_key_companion(char *companion, size_t size, const char *key, const char *part);

/* The name of the lock's file: the key percent-encoded, plus ".lock". If that is too long for a
 * file name, the name is the readable beginning of the key and a digest that makes the name unique
 * (an RFC 4122 version 5 UUID of the key). */
#define LOCK_FILE_NAME_SIZE 256
void lock_file_name(char name[LOCK_FILE_NAME_SIZE], const char *key);

/* A digest of a lock's name, for keys that do not reveal the name. */

enum { LOCK_NAME_DIGEST_SIZE = 64 + 1 };

/* SHA-256 of the name's bytes (FIPS 180-4), or HMAC-SHA-256 with the secret if there is one (RFC
 * 2104), in lower-case hexadecimal. LOCK_OK; LOCK_INVALID: this host has no OpenSSL;
 * LOCK_SYSTEM. */
enum lock_result lock_name_digest(char digest[LOCK_NAME_DIGEST_SIZE], const char *name,
                                  const struct secret *secret, struct errmsg *why);

/* True if the text looks like a digest. */
bool lock_name_is_digest(const char *text);

/* --- owner tokens: the proof that a lock is ours --------------------------- */

#define TOKEN_SIZE 257 /* with the NUL; a user's own token may be longer than a UUID */

/* Writes a fresh UUID v4 (RFC 4122), from the kernel's random numbers. */
void token_make(char token[TOKEN_SIZE]);

/* True if a token of the user's own is valid: 1 to 256 printable ASCII characters, without spaces,
 * because spaces separate tokens in DLOCK_HELD. */
bool token_valid(const char *token, struct errmsg *why);

#endif
