/* Files, and the names of their owners for messages. */
#ifndef DLOCK_UTIL_FILEUTILS_H
#define DLOCK_UTIL_FILEUTILS_H

#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/* openat(2) that waits for no pipe, with mode 0600 for a new file, whatever the umask, and its
 * state in *status. -1 with errno. */
int file_open(int dir, const char *path, int flags, struct stat *status);

/* Closes it, if it is open, and sets it to -1; keeps errno. */
void fd_close(int *fd);

/* Fills in and returns text: the name, or the number if there is none. It may
 * load and ask a directory service: not for runs that succeed. */
const char *user_name(uid_t uid, char *text, size_t size);
#define USER_NAME_SIZE 256

/* The same by /etc/passwd alone, without asking any directory service. */
const char *user_name_local(uid_t uid, char *text, size_t size);

#endif
