/* Which backend the options select. */
#ifndef DLOCK_ACTIONS_OPEN_BACKEND_H
#define DLOCK_ACTIONS_OPEN_BACKEND_H

#include "config/options.h"
#include "lock/lock_name.h"
#include "run/held_locks.h"
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

/* The options by which the lock of this line of DLOCK_HELD is found: options_under().
 * LOCK_GONE: the line is about another lock than the options name, or the command line asks
 * for a store of another kind. Otherwise as lock_key_of(). options_under_free() in every case. */
enum lock_result options_of_held(struct options **under, const struct options *options,
                                 const struct held *held, struct errmsg *why);

/* True if DLOCK_HELD has the lock that the options name, and its store confirms it: *backend
 * is that store, *under are its options, `key` is the lock's key and *outer what the store
 * reports. A line that has ended, or whose store gives no answer, changes nothing. Close the
 * backend before options_under_free(). */
bool backend_of_held(struct backend **backend, struct options **under,
                     const struct options *options, char key[LOCK_KEY_SIZE], struct lease *outer,
                     int cancel_fd, const struct messages *out);

#endif
