/* Owner tokens: the proof that a lock is ours. */
#ifndef DLOCK_LOCK_TOKEN_H
#define DLOCK_LOCK_TOKEN_H

#include "util/errmsg.h"

#include <stdbool.h>

#define TOKEN_SIZE 257 /* with the NUL; a token of the user's own may be longer than a UUID */

/* Writes a fresh UUID v4 (RFC 4122), from the kernel's random numbers. */
void token_make(char token[TOKEN_SIZE]);

/* A token given by the user: 1 to 256 printable ASCII characters without a
 * space, since spaces separate it in DLOCK_HELD. */
bool token_valid(const char *token, struct errmsg *why);

#endif
