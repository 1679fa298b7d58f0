/* The results that error replies of a Redis server lead to. */
#ifndef DLOCK_REDIS_ERROR_H
#define DLOCK_REDIS_ERROR_H

#include "lock/result.h"

#include <stdbool.h>
#include <stddef.h>

/* True if the error has this code: the word in capitals that it begins with, even for an
 * error inside a script. */
bool redis_error_is(const char *error, const char *code);

/* True if it has a code more specific than "ERR". */
bool redis_error_has_code(const char *error);

/* With *why set: LOCK_REFUSED for logins and ACLs, LOCK_INVALID for errors that no retry
 * can mend, LOCK_UNAVAILABLE for the rest (LOADING, READONLY, OOM, ...). */
enum lock_result redis_error_result(const char *error, struct errmsg *why);

/* The error as shown to people: without the place in a script that servers add. */
void redis_error_text(const char *error, char *text, size_t size);

/* The command of this script that the error is about. False: it names no line of it, or a
 * line without a call. */
bool redis_error_command(const char *error, const char *script, char *command, size_t size);

#endif
