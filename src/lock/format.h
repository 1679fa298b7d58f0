/* The number of the format in which all stores write: in each lock's {K}:meta, in the records
 * of those who share a lock or wait for it, in lock files and in the table beside them.
 *
 * A dlock reads the formats up to its own. A lock that is free is taken in its own format; as
 * long as it is held or has older waiters, what is written there stays in the format found.
 * A newer format is neither interpreted nor changed: the lock is refused.
 *
 * The number rises if an older dlock would misread or damage what a new one writes. A field that
 * an older dlock may ignore needs no new number: all stores skip fields that they do not know,
 * and keep those of {K}:meta and of a lock file's memory of runs.
 *
 *   1   records in Redis are JSON
 *   2   records are lines, runs are rows (lock/fields.h), in Redis as in files. Reserved, in both:
 *       "history", the last 32 runs, newest first, one row each of start, length, end and
 *       host; "typical", a row of median, ninth decile, longest and number of their successes */
#ifndef DLOCK_LOCK_FORMAT_H
#define DLOCK_LOCK_FORMAT_H

#include "lock/result.h"

#include <stdint.h>

#ifndef STORE_FORMAT /* tests build one of the next format */
#define STORE_FORMAT 2
#endif

/* Sets the message about a lock in a newer format. Returns LOCK_INVALID. */
enum lock_result format_newer(struct errmsg *why, int64_t format);

#endif
