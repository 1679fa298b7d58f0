/* The number of the format in which all stores write: in each lock's {K}:meta, in the records
 * of those who share a lock or wait for it, in lock files and in the table beside them.
 *
 * A dlock reads the formats up to its own. A lock that is free is taken in its own format; as
 * long as it is held or has older waiters, what is written there stays in the format found.
 * A newer format is neither interpreted nor changed: the lock is refused.
 *
 * To be raised if an older dlock would misread or damage what a new one writes; a field that
 * it may ignore needs no new number. */
#ifndef DLOCK_LOCK_FORMAT_H
#define DLOCK_LOCK_FORMAT_H

#include "lock/result.h"

#include <stdint.h>

#ifndef STORE_FORMAT /* tests build one of the next format */
#define STORE_FORMAT 1
#endif

/* Sets the message about a lock in a newer format. Returns LOCK_INVALID. */
enum lock_result format_newer(struct errmsg *why, int64_t format);

#endif
