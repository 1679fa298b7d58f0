/* Users as messages call them. */
#ifndef DLOCK_UTIL_USER_NAME_H
#define DLOCK_UTIL_USER_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Fills in and returns text: the name, or the number where there is none. It may
 * load and ask a directory service: not for runs where all goes well. */
const char *user_name(uid_t uid, char *text, size_t size);
#define USER_NAME_SIZE 256

/* Fills in the name that /etc/passwd has, without asking any directory service. False if it has none. */
bool user_name_local(uid_t uid, char *text, size_t size);

#endif
