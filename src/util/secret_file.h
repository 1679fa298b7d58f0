/* Files that hold a secret: a password, or the key of hmac-sha256. */
#ifndef DLOCK_UTIL_SECRET_FILE_H
#define DLOCK_UTIL_SECRET_FILE_H

#include "util/errmsg.h"

#include <stdbool.h>
#include <stddef.h>

enum { SECRET_MOST = 4096 };

struct secret {
    size_t length;
    char bytes[SECRET_MOST + 3]; /* any; with room for a line end, and to detect longer files */
};

/* Reads a regular file, or a pipe up to its end, for 30 s at most; a signal that comes
 * meanwhile ends the process, even if it is blocked. One newline at the end comes
 * from the editor and is not part of the secret; nor is a carriage return
 * before that. True with 1 to SECRET_MOST bytes. Otherwise *why begins with the path, and errno is
 * EACCES or EPERM if the file may not be read, another one if the file cannot be used, for example
 * because others can read it. Wipe it with secret_wipe() in any case. */
bool secret_read(struct secret *secret, const char *path, struct errmsg *why);

void secret_wipe(struct secret *secret);

/* From now on this process leaves no core file, and others cannot read its
 * memory. False with *why set: the system refused. */
bool secret_leave_no_core(struct errmsg *why);

#endif
