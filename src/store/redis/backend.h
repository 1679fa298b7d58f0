/* Locks in Redis or Valkey: the standard lock, SET key token NX PX ttl, in
 * Lua scripts that keep its companion keys as well. */
#ifndef DLOCK_STORE_REDIS_BACKEND_H
#define DLOCK_STORE_REDIS_BACKEND_H

#include "redis/url.h"
#include "store/backend.h"

/* Opens the backend for the server at `url`; it does not connect yet. LOCK_OK with
 * *backend set, which the caller closes with its close(); LOCK_INVALID: the setting
 * *fault cannot be used; LOCK_SYSTEM. */
enum lock_result redis_backend_open(struct backend **backend, const struct redis_url *url,
                                    const struct redis_settings *settings, enum redis_fault *fault,
                                    struct errmsg *why);

#endif
