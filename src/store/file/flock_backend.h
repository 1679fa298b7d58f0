/* --lock-file: flock(2) on exactly one file, as flock(1) takes it. */
#ifndef DLOCK_STORE_FILE_FLOCK_BACKEND_H
#define DLOCK_STORE_FILE_FLOCK_BACKEND_H

#include "store/backend.h"

/* Opens the backend for the one file at `path`. The file is created empty if it is
 * missing, and is neither written nor removed, so that flock(1) and dlock exclude each
 * other. It keeps no record: another process's lease cannot be found by its token.
 * LOCK_OK with *backend set; LOCK_SYSTEM, LOCK_INVALID with *why set. */
enum lock_result flock_backend_open(struct backend **opened, const char *path, struct errmsg *why);

#endif
