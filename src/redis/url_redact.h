/* Hides the login, "user:password@", of each URL in a text, with white space between
 * them. If a word is no URL and there is an "@", all is hidden, and counts as a password:
 * too much rather than too little. */
#ifndef DLOCK_REDIS_URL_REDACT_H
#define DLOCK_REDIS_URL_REDACT_H

#include <stdbool.h>

/* True if it contains a password. */
bool url_redact_has_password(const char *text);

/* Writes '*' over each login, and leaves the rest unchanged. */
void url_redact_logins(char *text);

/* Cuts each password out, leaving "//user@host" or "//host". The room that this leaves at
 * the end is filled with NULs. */
void url_redact_passwords(char *text);

#endif
