/* Opens files, finds the names of their owners for messages, and reads secrets. */
#ifndef DLOCK_UTIL_FILEUTILS_H
#define DLOCK_UTIL_FILEUTILS_H

#include "util/errmsg.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Opens a file like openat(2), but does not wait for the other end of a pipe, and fills in *status
 * like fstat(2). A new file has the mode 0600, whatever the umask. Returns -1 with errno set on
 * failure. */
int file_open(int dir, const char *path, int flags, struct stat *status);

/* Closes the descriptor, if it is not -1, and sets it to -1; keeps errno. */
void fd_close(int *fd);

/* Writes the user's name, or the number if the user has no name. Returns text. Only for messages
 * about failures, because the look-up may load and query a directory service. */
const char *user_name(uid_t uid, char *text, size_t size);
#define USER_NAME_SIZE 256

/* Like user_name(), but from /etc/passwd alone, without a directory service. */
const char *user_name_local(uid_t uid, char *text, size_t size);

/* --- files that hold a secret: a password, or the key of hmac-sha256 -------- */

enum { SECRET_MOST = 4096 };

struct secret {
    size_t length;
    char bytes[SECRET_MOST + 3]; /* any bytes; the last 3 are for CR LF at the end, and for one more
                                  * byte, which shows that a file is too long */
};

/* Reads the secret from a regular file or from a pipe, which its writer must close within 30 s.
 * While dlock waits for the pipe, a signal ends the process, even if the signal is blocked. A
 * newline at the end, and a carriage return before the newline, are not part of the secret, because
 * editors add them.
 *
 * True if the secret has 1 to SECRET_MOST bytes. Otherwise *why begins with the path. errno is then
 * EACCES or EPERM if dlock has no permission to read the file, or another error if the file cannot
 * be used, for example because others can read it. In any case, wipe the secret with
 * secret_wipe(). */
bool secret_read(struct secret *secret, const char *path, struct errmsg *why);

void secret_wipe(struct secret *secret);

/* After this call, the process leaves no core file, and other processes cannot read its memory.
 * False with *why set if the system refused. */
bool secret_leave_no_core(struct errmsg *why);

#endif
