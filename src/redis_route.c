#include "redis_route.h"

#include "redis_sentinel.h"

enum lock_result redis_route_open(struct redis_backend *redis, const char *key, struct bound bound, struct why *why)
{
    (void)key;
    if (redis->url.topology == REDIS_ONE)
        return redis_conn_open(&redis->conn, !redis->leased, bound, why);
    if (redis->url.topology == REDIS_SENTINEL)
        return redis_sentinel_open(redis, bound, why);
    why_set(why, "not yet supported");
    return LOCK_INVALID;
}
