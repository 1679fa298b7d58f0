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

/* 1 to 1024 bytes of valid UTF-8 without control characters. Otherwise false
 * with *why set; `what` begins that text ("the lock name"). */
bool lock_name_valid(const char *name, const char *what, struct errmsg *why);

/* PREFIX + NAME. Both have passed lock_name_valid() (the prefix may be empty), so
 * it fits. */
void lock_key_make(char key[LOCK_KEY_SIZE], const char *prefix, const char *name);

/* The key of the lock's companion `part` ("meta"), which Redis Cluster puts
 * into the same slot: {KEY}:part, or, if KEY has a hash tag already,
 * TAGKEY:part. It begins with a brace, as no key does that has a prefix without
 * one. (Redis Cluster specification, "Hash tags". A key with a '}' but no tag
 * has no such companion; only Cluster minds.) */
void lock_key_companion(char *companion, size_t size, const char *key, const char *part);

/* The name of the lock's file: the key percent-encoded, plus ".lock". If that
 * would be longer than a file name may be, it keeps a readable head, and a
 * digest (an RFC 4122 version 5 UUID of the key) makes it distinct. */
#define LOCK_FILE_NAME_SIZE 256
void lock_file_name(char name[LOCK_FILE_NAME_SIZE], const char *key);

/* A lock's name as its digest, for keys that do not reveal it. */

enum { LOCK_NAME_DIGEST_SIZE = 64 + 1 };

/* SHA-256 of the name's bytes (FIPS 180-4), or with a secret HMAC-SHA-256 under it
 * (RFC 2104), in lower-case hexadecimal. LOCK_OK; LOCK_INVALID: there is no
 * OpenSSL here; LOCK_SYSTEM. */
enum lock_result lock_name_digest(char digest[LOCK_NAME_DIGEST_SIZE], const char *name,
                                  const struct secret *secret, struct errmsg *why);

/* True if the text looks like one. */
bool lock_name_is_digest(const char *text);

/* --- owner tokens: the proof that a lock is ours --------------------------- */

#define TOKEN_SIZE 257 /* with the NUL; a token of the user's own may be longer than a UUID */

/* Writes a fresh UUID v4 (RFC 4122), from the kernel's random numbers. */
void token_make(char token[TOKEN_SIZE]);

/* A token given by the user: 1 to 256 printable ASCII characters without a
 * space, since spaces separate it in DLOCK_HELD. */
bool token_valid(const char *token, struct errmsg *why);

#endif
