/* All locks of a server, or of a Redis Cluster, in which each node knows only its own. */
#ifndef DLOCK_STORE_REDIS_CLUSTER_LIST_H
#define DLOCK_STORE_REDIS_CLUSTER_LIST_H

#include "store/backend.h"

/* list() of store/backend.h. Every master of a Cluster is asked, on a connection of its own;
 * if one cannot be asked, or slots have no master, the list would be incomplete:
 * LOCK_UNAVAILABLE. */
enum lock_result redis_list(struct backend *backend, const char *prefix, const char *pattern,
                            bool all, bool (*visit)(void *data, const struct lock_state *),
                            void *data, struct bound bound, struct errmsg *why);

#endif
