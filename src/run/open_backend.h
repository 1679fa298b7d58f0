/* Which backend the options mean. */
#ifndef DLOCK_RUN_OPEN_BACKEND_H
#define DLOCK_RUN_OPEN_BACKEND_H

#include "config/options.h"
#include "store/backend.h"
#include "util/message.h"

/* Opens the backend that --backend, --redis and --lock-file choose, to be closed
 * with its close(); where that is a file because no Redis is configured, does
 * what --on-degraded says. False: told, and *status is the exit status. */
bool backend_choose(struct backend **backend, const struct options *options,
                    const struct messages *out, int *status);

/* The same, told nobody: LOCK_OK; else *why says it and *status is the exit
 * status. */
enum lock_result backend_open(struct backend **backend, const struct options *options, int *status,
                              struct errmsg *why);

/* The file lock of --fallback, said loudly. As above. */
bool backend_fall_back(struct backend **backend, const struct options *options,
                       const struct messages *out, const struct errmsg *outage, int *status);

/* As backend_choose(), of this kind ("redis" or "file") whatever --backend
 * says, and silently: the store in which an outer dlock has its lock. */
bool backend_of_kind(struct backend **backend, const char *kind, const struct options *options,
                     const struct messages *out, int *status);

#endif
