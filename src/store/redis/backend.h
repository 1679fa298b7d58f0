/* Locks in Redis or Valkey: the standard lock (SET key token NX PX ttl), set by Lua scripts that
 * also keep its companion keys. */
#ifndef DLOCK_STORE_REDIS_BACKEND_H
#define DLOCK_STORE_REDIS_BACKEND_H

#include "redis/url.h"
#include "store/backend.h"

/* Opens the backend for the server at `url`, without connecting yet. LOCK_OK with *backend set,
 * which the caller closes with its close(); LOCK_INVALID: the setting *fault cannot be used;
 * LOCK_SYSTEM. */
enum lock_result redis_backend_open(struct backend **backend, const struct redis_url *url,
                                    const struct redis_settings *settings, enum redis_fault *fault,
                                    struct errmsg *why);

/* For --doctor, which examines the servers of a store over its own connections. */

/* Sets *url and *settings to the backend's own objects, which live as long as the backend. */
void redis_backend_shows(struct backend *backend, const struct redis_url **url,
                         const struct redis_settings **settings);

/* Finds the server that has the key: LOCK_OK with *at, even if that server refuses to answer.
 * Otherwise the result says why it cannot be found. */
enum lock_result redis_backend_find(struct backend *backend, const char *key,
                                    struct redis_endpoint *at, struct bound bound,
                                    struct errmsg *why);

/* Asks Sentinel number `i` of the URL: LOCK_OK with the master that it names, or "none", and
 * whether it refuses the subscription. Otherwise the results of redis_conn_call(). */
enum lock_result redis_backend_ask_sentinel(struct backend *backend, int i,
                                            char master[ENDPOINT_TEXT_SIZE], bool *refuses,
                                            struct bound bound, struct errmsg *why);

/* For a free lock that will never be acquired again: removes every record of the lock, even its
 * last fence. */
void redis_backend_forget(struct backend *backend, const char *key, struct bound bound);

#endif
