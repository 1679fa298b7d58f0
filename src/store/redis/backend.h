/* Locks in Redis or Valkey. The lock itself is the standard one (SET key token NX PX ttl). The Lua
 * scripts that set it also maintain companion keys, which hold the rest of what dlock knows about
 * the lock. */
#ifndef DLOCK_STORE_REDIS_BACKEND_H
#define DLOCK_STORE_REDIS_BACKEND_H

#include "redis/url.h"
#include "store/backend.h"

/* Opens the backend for the server at `url`, without connecting yet. Returns LOCK_OK with *backend,
 * which the caller closes with the backend's close(); LOCK_INVALID if the setting named by *fault
 * cannot be used; or LOCK_SYSTEM. */
enum lock_result redis_backend_open(struct backend **backend, const struct redis_url *url,
                                    const struct redis_settings *settings, enum redis_fault *fault,
                                    struct errmsg *why);

/* The functions below are for --doctor, which examines the servers of a store over separate
 * connections. */

/* Sets *url and *settings to the backend's own objects, which live as long as the backend. */
void redis_backend_shows(struct backend *backend, const struct redis_url **url,
                         const struct redis_settings **settings);

/* Finds the server that has the key. Returns LOCK_OK with *at set, even if that server refuses to
 * answer. Otherwise the result says why the server cannot be found. */
enum lock_result redis_backend_find(struct backend *backend, const char *key,
                                    struct redis_endpoint *at, struct bound bound,
                                    struct errmsg *why);

/* Asks Sentinel number `i` of the URL for the master. Returns LOCK_OK with the address of the
 * master, or "none", in `master`; *refuses says whether the Sentinel refuses the subscription by
 * which it would report a new master. Otherwise returns the results of redis_conn_call(). */
enum lock_result redis_backend_ask_sentinel(struct backend *backend, int i,
                                            char master[ENDPOINT_TEXT_SIZE], bool *refuses,
                                            struct bound bound, struct errmsg *why);

/* Removes every record of a lock, even its last fencing token. The lock must be free, and must
 * never be acquired again. */
void redis_backend_forget(struct backend *backend, const char *key, struct bound bound);

#endif
