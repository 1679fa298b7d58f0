/* Which backend the options select. */
#ifndef DLOCK_ACTIONS_OPEN_BACKEND_H
#define DLOCK_ACTIONS_OPEN_BACKEND_H

#include "config/options.h"
#include "store/backend.h"
#include "util/message.h"

/* Opens the backend that --backend, --redis and --lock-file choose; the caller
 * closes it with its close(). If that is a file because no Redis is configured,
 * does what --on-degraded says. False: reported, and *status is the exit
 * status. */
bool backend_choose(struct backend **backend, const struct options *options,
                    const struct messages *out, int *status);

/* The same, without reporting a failure; with `out` NULL it prints nothing at all.
 * LOCK_OK; otherwise *why holds the reason and *status the exit status. */
enum lock_result backend_open(struct backend **backend, const struct options *options,
                              const struct messages *out, int *status, struct errmsg *why);

/* Like backend_choose(), for this kind ("redis" or "file") whatever --backend
 * says, and silently: the store in which an outer dlock has its lock. */
bool backend_of_kind(struct backend **backend, const char *kind, const struct options *options,
                     const struct messages *out, int *status);

#endif
