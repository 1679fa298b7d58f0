/* --wait-replicas: a take counts once enough replicas have it. */
#ifndef DLOCK_STORE_REDIS_REPLICAS_H
#define DLOCK_STORE_REDIS_REPLICAS_H

#include "store/redis/scripts.h"

/* Right after a take on the same connection. LOCK_OK: as many replicas as the
 * settings ask for have it (none are asked for: at once). LOCK_UNAVAILABLE: fewer
 * have it, in three quarters of the time that is left; or as redis_conn_call(),
 * and LOCK_REFUSED. Then the lock is still taken, and uncertain: the next take
 * with this request finds it and waits again, and who gives up releases it. */
enum lock_result redis_replicas_await(struct redis_backend *redis, const struct lease *lease, struct bound bound,
                                      struct why *why);

#endif
