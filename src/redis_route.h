/* Which server a call goes to: the one of the URL, the master that Sentinels
 * name, or the node of a Cluster that has the key's slot. */
#ifndef DLOCK_REDIS_ROUTE_H
#define DLOCK_REDIS_ROUTE_H

#include "redis_scripts.h"

/* Connects if need be, to the server that has the key (NULL: any that will
 * do). As redis_conn_open(). */
enum lock_result redis_route_open(struct redis_backend *redis, const char *key, struct bound bound, struct why *why);

#endif
