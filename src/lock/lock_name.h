/* Names of locks, the keys and file names made from them, and owner tokens. */
#ifndef DLOCK_LOCK_LOCK_NAME_H
#define DLOCK_LOCK_LOCK_NAME_H

#include "lock/result.h"
#include "util/fileutils.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    LOCK_NAME_MAX = 1024, /* in bytes; the same limit applies to the prefix */
    LOCK_KEY_SIZE = 2 * LOCK_NAME_MAX + 16,
};

/* True if the name is 1 to 1024 bytes of valid UTF-8 without control characters. Otherwise sets
 * *why to a message that begins with `what` (such as "the lock name"). */
bool lock_name_valid(const char *name, const char *what, struct errmsg *why);

/* Sets key to PREFIX followed by NAME. The key has room for both, because lock_name_valid() limits
 * the length of each. */
void lock_key_make(char key[LOCK_KEY_SIZE], const char *prefix, const char *name);

/* A companion is an additional key of a lock, for the data `part` (such as "meta"). Makes the
 * companion's name: {KEY}:PART, or {TAG}KEY:PART if KEY contains the hash tag {TAG}. Redis Cluster
 * puts KEY and its companion into the same slot, unless KEY contains a '}' but no tag (see "Hash
 * tags" in the Redis Cluster specification). A companion always begins with a brace, so it cannot
 * be the key of another lock unless the prefix of that lock begins with a brace. */
void lock_key_companion(char *companion, size_t size, const char *key, const char *part);

/* The name of the lock's file: the key percent-encoded, plus ".lock". If that is too long for a
 * file name, the name is the readable beginning of the key and a digest that makes the name unique
 * (an RFC 4122 version 5 UUID of the key). */
#define LOCK_FILE_NAME_SIZE 256
void lock_file_name(char name[LOCK_FILE_NAME_SIZE], const char *key);

/* A digest of a lock's name, for keys that do not reveal the name. */

enum { LOCK_NAME_DIGEST_SIZE = 64 + 1 };

/* Writes the SHA-256 of the name (FIPS 180-4) or, if there is a secret, its HMAC-SHA-256 (RFC
 * 2104), in lower-case hexadecimal. Returns LOCK_OK, LOCK_INVALID if this host has no OpenSSL, or
 * LOCK_SYSTEM if OpenSSL has no SHA-256. */
enum lock_result lock_name_digest(char digest[LOCK_NAME_DIGEST_SIZE], const char *name,
                                  const struct secret *secret, struct errmsg *why);

/* True if the text looks like a digest. */
bool lock_name_is_digest(const char *text);

/* --- owner tokens: the proof that a lock is ours --------------------------- */

#define TOKEN_SIZE 257 /* including the NUL; a token that a user chose may be longer than a UUID */

/* Writes a fresh UUID v4 (RFC 4122), from the kernel's random numbers. */
void token_make(char token[TOKEN_SIZE]);

/* True if a token that a user chose is valid: 1 to 256 printable ASCII characters without spaces,
 * because spaces separate the tokens in DLOCK_HELD. */
bool token_valid(const char *token, struct errmsg *why);

#endif
