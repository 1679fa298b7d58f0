/* Files, and the names of their owners for messages. */
#ifndef DLOCK_UTIL_FILEUTILS_H
#define DLOCK_UTIL_FILEUTILS_H

#include "util/errmsg.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Calls openat(2), without waiting for the other end of a pipe, and fstat(2). A new file has the
 * mode 0600, whatever the umask. -1 with errno. */
int file_open(int dir, const char *path, int flags, struct stat *status);

/* Closes the descriptor, if it is not -1, and sets it to -1; keeps errno. */
void fd_close(int *fd);

/* Returns text: the user's name, or the number if there is none. Only for messages about failures,
 * because the look-up may load and query a directory service. */
const char *user_name(uid_t uid, char *text, size_t size);
#define USER_NAME_SIZE 256

/* Like user_name(), but from /etc/passwd alone, without a directory service. */
const char *user_name_local(uid_t uid, char *text, size_t size);

/* --- files that hold a secret: a password, or the key of hmac-sha256 -------- */

enum { SECRET_MOST = 4096 };

struct secret {
    size_t length;
    char bytes[SECRET_MOST + 3]; /* any values; room for a line end, and to detect longer files */
};

/* Reads a regular file, or a pipe up to its end, for 30 s at most. During this time, a signal ends
 * the process, even if the signal is blocked. The last newline, and a carriage return before it,
 * are not part of the secret, because editors add them. True with 1 to SECRET_MOST bytes. Otherwise
 * *why begins with the path; errno is EACCES or EPERM if dlock has no permission to read the file,
 * or another one if the file cannot be used, for example because others can read it. In any case,
 * wipe the secret with secret_wipe(). */
bool secret_read(struct secret *secret, const char *path, struct errmsg *why);

void secret_wipe(struct secret *secret);

/* After this call the process leaves no core file, and other processes cannot read its memory.
 * False with *why set: the system refused. */
bool secret_leave_no_core(struct errmsg *why);

#endif
