/* Locks on this host: flock(2) on a file, which the kernel frees when its
 * holder dies. */
#ifndef DLOCK_STORE_FILE_DIR_BACKEND_H
#define DLOCK_STORE_FILE_DIR_BACKEND_H

#include "store/backend.h"

/* Opens the backend for lock files in `dir` (NULL: the default of store/file/dir.h); each
 * file has a lease record and is removed at its release.
 * LOCK_OK with *backend set, which the caller closes with its close(); otherwise as
 * lock_dir_open(). */
enum lock_result dir_backend_open(struct backend **opened, const char *dir, struct errmsg *why);

#endif
