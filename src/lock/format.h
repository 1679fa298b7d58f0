/* The number of the format in which all stores write. In Redis: the key {K}:meta of each lock
 * K, and the records of waiters and of holders that share a lock. In files: lock files, and the
 * table beside them.
 *
 * A dlock reads all formats up to its own. When it acquires a free lock, it writes in its own
 * format; older waiters are refused from then on. While the lock is held, other processes that
 * write about the holder keep the format that they find. The entry of a waiter has the waiter's
 * format. A dlock neither interprets nor changes a newer format: it refuses the lock.
 *
 * The number rises if an older dlock would misread or damage what a newer one writes. A field that
 * an older dlock may ignore needs no new number: all stores skip unknown fields, and keep the
 * unknown fields of {K}:meta and of a lock file's memory of runs.
 *
 *   1   records in Redis are JSON
 *   2   records are lines, runs are rows (lock/fields.h), in Redis and in files */
#ifndef DLOCK_LOCK_FORMAT_H
#define DLOCK_LOCK_FORMAT_H

#include "lock/result.h"

#include <stdint.h>

#ifndef STORE_FORMAT /* tests also build a dlock of the next format */
#define STORE_FORMAT 2
#endif

/* Sets the message about a lock in a newer format. Returns LOCK_INVALID. */
enum lock_result format_newer(struct errmsg *why, int64_t format);

#endif
