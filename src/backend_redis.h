/* Locks in Redis or Valkey: the standard lock, SET key token NX PX ttl, in
 * Lua scripts that keep its companion keys as well. */
#ifndef DLOCK_BACKEND_REDIS_H
#define DLOCK_BACKEND_REDIS_H

#include "backend.h"
#include "redis_settings.h"

/* Opens the backend for the server at `url`, which is not yet connected.
 * LOCK_OK with *backend set, to be closed with its close(); LOCK_INVALID:
 * what *fault says cannot be used; LOCK_SYSTEM. */
enum lock_result backend_redis_open(struct backend **backend, const char *url, const struct redis_settings *settings,
                                    enum redis_fault *fault, struct why *why);

#endif
