/* One lock on several independent servers: the client that has the lock on a majority of them holds
 * it. This is Redlock (redis.io, "Distributed Locks with Redis") with the additions that its
 * critics ask for. M. Kleppmann ("How to do distributed locking", 2016) shows that no such lock is
 * safe against a holder that stops for longer than its lease, unless the resource checks a number
 * that only rises. That number is the fence, which is raised on a majority before the command
 * starts. As S. Sanfilippo answered ("Is Redlock safe?", 2016), the lease is counted from before
 * the servers were asked, on a clock that cannot be set. A server whose own clock jumps, or that
 * restarts empty, does no harm as long as it is in the minority. */
#ifndef DLOCK_STORE_QUORUM_BACKEND_H
#define DLOCK_STORE_QUORUM_BACKEND_H

#include "redis/url.h"
#include "store/backend.h"

/* Opens the backend for the servers of `urls`, without connecting yet. Same results as
 * redis_backend_open(). */
enum lock_result quorum_backend_open(struct backend **backend, const struct redis_urls *urls,
                                     const struct redis_settings *settings, enum redis_fault *fault,
                                     struct errmsg *why);

/* Returns the store of server i, counted from 0, for --doctor. NULL if there are fewer servers, or
 * if the backend is not a quorum. */
struct backend *quorum_backend_member(struct backend *backend, int i);

#endif
