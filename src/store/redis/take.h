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

#endif
