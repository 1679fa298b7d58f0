/* Locks on this host: flock(2) on a file, which the kernel frees when its holder dies. */
#ifndef DLOCK_STORE_FILE_BACKEND_H
#define DLOCK_STORE_FILE_BACKEND_H

#include "store/backend.h"

/* Opens the backend for lock files in `dir` (NULL: the default of store/file/dir.h); each
 * file has a lease record and is removed at its release.
 * LOCK_OK with *backend set, which the caller closes with its close(); otherwise as
 * lock_dir_open(). */
enum lock_result dir_backend_open(struct backend **opened, const char *dir, struct errmsg *why);

/* Opens the backend for the one file at `path`: --lock-file. The file is created empty if it is
 * missing, and is neither written nor removed, so that flock(1) and dlock exclude each
 * other. It keeps no record: another process's lease cannot be found by its token.
 * LOCK_OK with *backend set; LOCK_SYSTEM, LOCK_INVALID with *why set. */
enum lock_result flock_backend_open(struct backend **opened, const char *path, struct errmsg *why);

#endif
