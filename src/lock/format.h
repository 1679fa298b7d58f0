/* The number of the format in which all stores write their data. In Redis, the data are the key
 * {K}:meta of each lock K, the records of waiters, and the records of holders that share a lock. In
 * files, they are the lock files and, beside them, the file with the remembered runs.
 *
 * Each version of dlock reads all formats up to its own. When dlock acquires a free lock, it writes
 * the data in its own format, and from then on waiters of an older version are refused. While the
 * lock is held, other processes that update the holder's data keep the format of these data. A
 * waiter's entry in the queue is in the format of the waiter's version. If a lock's format is newer
 * than dlock's own, dlock fails (format_newer()), and neither reads nor changes the data.
 *
 * The number rises when an older dlock would misread or damage what a newer dlock writes. A new
 * field that an older dlock may ignore does not change the number, because all stores skip unknown
 * fields. Stores also keep unknown fields in {K}:meta and in the runs that a lock file remembers.
 *
 *   1   records in Redis are JSON
 *   2   records are lines, runs are rows (lock/fields.h), in Redis and in files */
#ifndef DLOCK_LOCK_FORMAT_H
#define DLOCK_LOCK_FORMAT_H

#include "lock/result.h"

#include <stdint.h>

#ifndef STORE_FORMAT /* tests also build a dlock with the next format */
#define STORE_FORMAT 2
#endif

/* Sets *why to the message that the lock has this format, which is newer than dlock's own. Returns
 * LOCK_INVALID. */
enum lock_result format_newer(struct errmsg *why, int64_t format);

#endif
