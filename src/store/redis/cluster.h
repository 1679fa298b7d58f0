/* A Redis Cluster: finding the node that has a key, and following the key when
 * it moves. */
#ifndef DLOCK_STORE_REDIS_CLUSTER_H
#define DLOCK_STORE_REDIS_CLUSTER_H

#include "store/redis/internal.h"

/* The functions of store/redis/topology.h for a Cluster. */

/* Connects to the node that last had the key, otherwise to whichever can be reached. The
 * limit is for all of them; LOCK_INVALID: the key cannot be a lock in a Cluster. */
enum lock_result redis_cluster_open(struct redis_backend *redis, const char *key,
                                    struct bound bound, struct errmsg *why);

enum lock_result redis_cluster_judge(struct redis_backend *redis, const char *key,
                                     const char *error, struct redis_detour *detour,
                                     struct bound bound, struct errmsg *why);

/* If time ran out for this node, others are asked first for a while. */
void redis_cluster_failed(struct redis_backend *redis, bool too_late, struct errmsg *why);

/* Reads an address from a node's reply: without a host, that of `here` is used. False if
 * it is not an address. */
bool redis_cluster_endpoint(struct redis_endpoint *at, const struct redis_endpoint *here,
                            const char *host, size_t length, const char *port);

#endif
