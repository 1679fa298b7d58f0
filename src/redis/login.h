/* The user and password for Redis, and explanations of its refusals. */
#ifndef DLOCK_REDIS_LOGIN_H
#define DLOCK_REDIS_LOGIN_H

#include "lock/result.h"
#include "redis/settings.h"
#include "redis/url.h"

/* If the URL has no password, takes the first available of: the file of --password-file,
 * the service's credential "dlock.password", REDISCLI_AUTH. Once there is a
 * password, from any source, this process no longer leaves a core file.
 * LOCK_OK, with or without a password; LOCK_INVALID, LOCK_REFUSED: the file, which *why
 * names, cannot be used or may not be read; LOCK_INVALID: a user without a password, for
 * which *fault is REDIS_FAULT_URL; LOCK_SYSTEM. */
enum lock_result redis_login_find(struct redis_url *url, const struct redis_settings *settings,
                                  enum redis_fault *fault, struct errmsg *why);

/* Takes user and password from a file that holds USER:PASSWORD or PASSWORD.
 * LOCK_OK; LOCK_INVALID, LOCK_REFUSED as above. */
enum lock_result redis_login_read_pair(struct redis_url *url, const char *path, struct errmsg *why);

/* Removes the parts of AUTH that a server without AUTH repeats in its error. */
void redis_login_hide(const struct redis_url *url, char *error);

/* After an error reply that redis_error_result() calls LOCK_REFUSED to this script (its text)
 * about the lock with this key, or to neither (NULL): the text says which user was refused
 * what, and what helps. */
void redis_login_explain(const struct redis_url *url, const char *script, const char *key,
                         const char *error, struct errmsg *why);

/* redis_error_result() of an error reply that is about no lock, explained if refused. */
enum lock_result redis_login_error(const struct redis_url *url, const char *error,
                                   struct errmsg *why);

#endif
