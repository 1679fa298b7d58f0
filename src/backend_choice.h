/* Which backend the options mean. */
#ifndef DLOCK_BACKEND_CHOICE_H
#define DLOCK_BACKEND_CHOICE_H

#include "backend.h"
#include "message.h"
#include "options.h"

/* Opens the backend that --backend, --redis and --lock-file choose; where that
 * is a file because no Redis is configured, does what --on-degraded says.
 * LOCK_OK with *backend set, to be closed with its close(); else *why is set,
 * and *status is the exit status. */
enum lock_result backend_choose(struct backend **backend, const struct options *options, const struct messages *out,
                                enum exit_status *status, struct why *why);

/* The file lock of --fallback, said loudly. Results as above. */
enum lock_result backend_fall_back(struct backend **backend, const struct options *options, const struct messages *out,
                                   enum exit_status *status, const struct why *outage, struct why *why);

#endif
