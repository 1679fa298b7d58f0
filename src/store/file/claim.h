/* How those below a holder of a --lock-file find out whether it holds it still. The
 * kernel names the holder in /proc/locks alone: not to another pid namespace, and
 * nothing there tells of which take the lock is. */
#ifndef DLOCK_STORE_FILE_CLAIM_H
#define DLOCK_STORE_FILE_CLAIM_H

#include "lock/lease.h"

/* The holder of the open file: others find its claim until the descriptor that this
 * returns is closed, at its death at the latest. -1 where that is not to be had:
 * nobody finds it then. */
int claim_make(int file_fd, const char *take_id, enum lock_mode mode);

/* Whether a holder of the open file claims it for this take, and in which mode. */
bool claim_find(int file_fd, const char *take_id, enum lock_mode *mode);

#endif
