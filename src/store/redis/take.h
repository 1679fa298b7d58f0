/* Taking a lock in Redis, and waiting for it in the queue that the server keeps
 * (scripts/queue.lua has its rules, and every order of events). */
#ifndef DLOCK_STORE_REDIS_TAKE_H
#define DLOCK_STORE_REDIS_TAKE_H

#include "store/redis/scripts.h"

/* take() of store/backend.h. If it refuses a waiter, we are in the queue and the server
 * calls us, if it lets us listen. */
enum lock_result redis_take(struct backend *backend, const struct lock_request *request,
                            struct lease *lease, struct holder *holder, struct bound bound,
                            struct errmsg *why);

/* listen() of store/backend.h. */
struct call redis_listen(struct backend *backend);

/* on_message of redis/conn.h, for a redis_backend. */
void redis_hear(void *data, const char *channel, const redisReply *payload);

/* True if the lock cannot have been touched since the last answer: the answer is recent,
 * and the server reports every touch. */
bool redis_is_fresh(struct redis_backend *redis);

/* Begins the call that releases the lease, or gives up its take. */
void redis_release_begin(const struct redis_backend *redis, struct redis_call *call,
                         const struct lease *lease);

/* --wait-replicas: a take counts once enough replicas have it. */

/* Right after a take on the same connection. LOCK_OK: as many replicas as the settings
 * ask for have it (if they ask for none: at once). LOCK_UNAVAILABLE: fewer have it, in
 * three quarters of the time that is left; or as redis_conn_call(), and LOCK_REFUSED.
 * Then the lock is still taken, and uncertain: the next take with this request finds it
 * and waits again, and a caller that gives up releases it. */
enum lock_result redis_replicas_await(struct redis_backend *redis, const struct lease *lease,
                                      struct bound bound, struct errmsg *why);

#endif
