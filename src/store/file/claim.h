/* How descendants of a holder of a --lock-file find out whether it still holds the lock.
 * The kernel names the holder only in /proc/locks, which does not show it to another pid
 * namespace and does not identify the take. */
#ifndef DLOCK_STORE_FILE_CLAIM_H
#define DLOCK_STORE_FILE_CLAIM_H

#include "lock/lease.h"

/* Called by the holder of the open file, which gets a higher descriptor if need be: others find
 * its claim until claim_end(), at the latest when the holder dies. -1 if a claim cannot be
 * made: then none is found. */
int claim_make(int *file_fd, const char *take_id, enum lock_mode mode);

/* Makes room for others that look for it. */
void claim_tidy(int fd);

void claim_end(int *fd);

/* LOCK_OK: a holder of the open file claims it for this take, in *mode. The claim of a process that
 * is not of our user counts only if it is root's or our ancestor. LOCK_GONE: none does.
 * LOCK_UNAVAILABLE: other processes have kept the holder's queue full for a second. */
enum lock_result claim_find(int file_fd, const char *take_id, enum lock_mode *mode,
                            struct bound bound, struct errmsg *why);

#endif
