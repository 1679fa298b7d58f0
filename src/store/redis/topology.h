/* The server for a call: the one of the URL, the master that Sentinels name, or the node
 * of a Cluster that has the key's slot. */
#ifndef DLOCK_STORE_REDIS_TOPOLOGY_H
#define DLOCK_STORE_REDIS_TOPOLOGY_H

#include "store/redis/internal.h"

/* Connects if necessary, to the server that has the key (NULL: any suitable one). As
 * redis_conn_open(). */
enum lock_result redis_topology_open(struct redis_backend *redis, const char *key,
                                     struct bound bound, struct errmsg *why);

/* The meaning of an error reply to a script with this key. LOCK_OK: it was not run, and
 * must be sent again to the server that redis_topology_open() now leads to; `detour` is
 * that of this call, zero but for its start at first. Otherwise as redis_error_result(). */
enum lock_result redis_topology_judge(struct redis_backend *redis, const char *key,
                                      const char *error, struct redis_detour *detour,
                                      struct bound bound, struct errmsg *why);

/* The call to the server that redis_topology_open() led to has failed, and *why says why;
 * if there are several servers, it then names this one. too_late: time ran out for it. */
void redis_topology_failed(struct redis_backend *redis, bool too_late, struct errmsg *why);

#endif
