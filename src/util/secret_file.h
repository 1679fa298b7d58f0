/* Files that hold a secret: a password, or the key of hmac-sha256. */
#ifndef DLOCK_UTIL_SECRET_FILE_H
#define DLOCK_UTIL_SECRET_FILE_H

#include "util/errmsg.h"
#include "util/exit_status.h"

#include <stddef.h>

enum { SECRET_MOST = 4096 };

struct secret {
    size_t length;
    char bytes[SECRET_MOST + 3]; /* any; with room for a line end, and to see that there are more */
};

/* Reads a regular file, or what a pipe gives up to its end. One newline at the
 * end is the editor's and not part of it; nor is a carriage return before that.
 * LOCK_OK with 1 to SECRET_MOST bytes. Else *why begins with the path:
 * LOCK_REFUSED: it may not be read; LOCK_INVALID: it cannot be used, since others
 * can read it, for one. To be wiped with secret_wipe() in any case. */
enum lock_result secret_read(struct secret *secret, const char *path, struct errmsg *why);

void secret_wipe(struct secret *secret);

/* From here on this process leaves no core file, nor can others read its memory.
 * LOCK_OK; LOCK_SYSTEM. */
enum lock_result secret_leave_no_core(struct errmsg *why);

#endif
