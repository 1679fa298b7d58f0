/* All locks of a Redis Cluster: each node knows only its own. */
#ifndef DLOCK_STORE_REDIS_CLUSTER_LIST_H
#define DLOCK_STORE_REDIS_CLUSTER_LIST_H

#include "store/redis/internal.h"

/* Opens a store for another node of the Cluster of `first`, which must outlive it: its
 * login and its TLS are the same. It starts there, and follows a key that moves. LOCK_OK
 * with *node, which is closed as any backend; LOCK_SYSTEM. */
typedef enum lock_result redis_open_node(struct redis_backend **node,
                                         const struct redis_backend *first,
                                         const struct redis_endpoint *at, struct errmsg *why);

/* As the list() of a backend (store/backend.h). Every master is asked, on a connection of
 * its own; if one cannot be asked, or slots have no master, the list would be incomplete:
 * LOCK_UNAVAILABLE. */
enum lock_result redis_cluster_list(struct redis_backend *redis, redis_open_node *open_node,
                                    const char *prefix, const char *pattern, bool all,
                                    bool (*visit)(void *data, const struct lock_state *),
                                    void *data, struct bound bound, struct errmsg *why);

#endif
