/* The names of users for messages. */
#ifndef DLOCK_UTIL_USER_NAME_H
#define DLOCK_UTIL_USER_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Fills in and returns text: the name, or the number if there is none. It may
 * load and ask a directory service: not for runs that succeed. */
const char *user_name(uid_t uid, char *text, size_t size);
#define USER_NAME_SIZE 256

/* Fills in the name from /etc/passwd, without asking any directory service.
 * False if it has none. */
bool user_name_local(uid_t uid, char *text, size_t size);

#endif
