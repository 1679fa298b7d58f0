#include "store/redis/topology.h"

#include "store/redis/cluster.h"
#include "store/redis/sentinel.h"

static enum lock_result open_once(struct redis_backend *redis, const char *key, struct bound bound,
                                  struct errmsg *why)
{
    switch (redis->url.topology) {
    case REDIS_SENTINEL: return redis_sentinel_open(redis, bound, why);
    case REDIS_CLUSTER: return redis_cluster_open(redis, key, bound, why);
    case REDIS_ONE: break;
    }
    return redis_conn_open(&redis->conn, bound, why);
}

enum lock_result redis_topology_open(struct redis_backend *redis, const char *key,
                                     struct bound bound, struct errmsg *why)
{
    enum lock_result result = open_once(redis, key, bound, why);
    if (result == LOCK_REFUSED && redis_conn_renew(&redis->conn))
        result = open_once(redis, key, bound, why);
    return result;
}

enum lock_result redis_topology_judge(struct redis_backend *redis, const char *key,
                                      const char *error, struct redis_detour *detour,
                                      struct bound bound, struct errmsg *why)
{
    if (redis->url.topology == REDIS_CLUSTER)
        return redis_cluster_judge(redis, key, error, detour, bound, why);
    return redis_error_result(error, why);
}

void redis_topology_failed(struct redis_backend *redis, bool too_late, struct errmsg *why)
{
    switch (redis->url.topology) {
    case REDIS_SENTINEL: redis_sentinel_failed(redis); break;
    case REDIS_CLUSTER: redis_cluster_failed(redis, too_late, why); break;
    case REDIS_ONE: break;
    }
}
