/* Where in the text of a URL its login stands, "user:password@", so that it can
 * be hidden. The text may be wrong, or hold several URLs with white space
 * between them: what hides a login hides rather too much. */
#ifndef DLOCK_REDIS_URL_REDACT_H
#define DLOCK_REDIS_URL_REDACT_H

#include <stdbool.h>

/* Whether there is a password in it. */
bool url_redact_has_password(const char *text);

/* Writes '*' over each login, and changes nothing else. */
void url_redact_logins(char *text);

/* Cuts each password out: "//user@host" is left, or "//host". What that makes
 * room for at the end is filled with NULs. */
void url_redact_passwords(char *text);

#endif
