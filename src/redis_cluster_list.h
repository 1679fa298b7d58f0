/* All locks of a Redis Cluster: each node knows its own alone. */
#ifndef DLOCK_REDIS_CLUSTER_LIST_H
#define DLOCK_REDIS_CLUSTER_LIST_H

#include "redis_scripts.h"

/* As the list() of a backend (backend.h). Every master is asked, on a connection
 * of its own; where one cannot be, or slots are without a master, the list would
 * not be whole: LOCK_UNAVAILABLE. */
enum lock_result redis_cluster_list(struct redis_backend *redis, const char *prefix, const char *pattern,
                                    bool (*visit)(void *data, const struct lock_state *), void *data, struct bound bound,
                                    struct why *why);

#endif
