/* The functions that the actions share. They turn the options into what the other folders (run/,
 * store/, doctor/, ui/) work with; the code in those folders does not see the options. */
#ifndef DLOCK_ACTIONS_INT_H
#define DLOCK_ACTIONS_INT_H

#include "actions/actions.h"
#include "lock/lock_name.h"
#include "run/acquisition.h"
#include "run/expiry.h"
#include "run/outer.h"
#include "store/backend.h"

#include <stdbool.h>
#include <sys/types.h>

/* --- open_backend.c --------------------------------------------------------- */

/* Makes the key: PREFIX + NAME, or PREFIX + the digest of NAME (--hash). Returns LOCK_OK, or a
 * failure with *why set. */
enum lock_result lock_key_of(char key[LOCK_KEY_SIZE], const struct options *options,
                             struct errmsg *why);

/* Like lock_key_of(), but also reports a failure. False: *status is the exit status. */
bool lock_key_find(char key[LOCK_KEY_SIZE], const struct options *options,
                   const struct messages *out, int *status);

/* Opens the backend that --backend, --redis and --lock-file choose; the caller closes the backend
 * with its close(). If the store is a file because no Redis is configured, does what --on-degraded
 * says. False: the failure has been reported, and *status is the exit status. */
bool backend_choose(struct backend **backend, const struct options *options,
                    const struct messages *out, int *status);

/* Like backend_choose(), but does not report a failure. If `out` is NULL, prints no warning either.
 * Returns LOCK_OK; otherwise *why is the reason, and *status is the exit status. */
enum lock_result backend_open(struct backend **backend, const struct options *options,
                              const struct messages *out, int *status, struct errmsg *why);

/* Opens the store that, with --fallback, replaces an unreachable Redis. */
enum lock_result backend_open_fallback(struct backend **backend, const char *lock_dir,
                                       struct errmsg *why);

/* Like backend_choose(), but for the lock of an outer dlock: opens a store of the given kind
 * ("redis" or "file"), whatever --backend says, and prints no warning. */
bool backend_of_kind(struct backend **backend, const char *kind, const struct options *options,
                     const struct messages *out, int *status);

/* Makes the options for the lock that `held` describes (see options_under()). `held` is a line of
 * DLOCK_HELD, the variable that tells a command which locks it runs under. Returns LOCK_GONE if
 * `options` names a different lock, or if the command line requests a different kind of store.
 * Otherwise returns LOCK_OK, or a failure with *why set. Call options_under_free() in every
 * case. */
enum lock_result options_of_held(struct options **under, const struct options *options,
                                 const struct held *held, struct errmsg *why);

/* Looks in DLOCK_HELD, the list of the locks that this process runs under, for the lock that the
 * options name. LOCK_OK: the lock is in the list, and its store confirms that it is held. Then
 * *backend is the store, *under are the options for the store, `key` is the lock's key, and *outer
 * is the lease that the store reports. LOCK_GONE: the lock is not in the list, has ended, or cannot
 * be checked. LOCK_UNAVAILABLE with *why set: an ancestor added the lock to the list, but the store
 * did not answer, although dlock asked again for as long as --retry-for says. In that case, do not
 * acquire the lock in a different store, because that would not exclude the processes that the
 * outer lock excludes. Close the backend before options_under_free(). */
enum lock_result backend_of_held(struct backend **backend, struct options **under,
                                 const struct options *options, char key[LOCK_KEY_SIZE],
                                 struct lease *outer, int cancel_fd, const struct messages *out,
                                 struct errmsg *why);

/* --- plan.c ---------------------------------------------------------------- */

/* Fills in *lock, and calls acquisition_open(). `undone` is the part of a failure message that says
 * what did not happen, such as "the command was not run". False: the failure has been reported, and
 * *status is the exit status. */
bool plan_acquisition(struct acquisition *lock, const struct options *options, struct messages *out,
                      const char *undone, const char *command, pid_t pid, int *status);

/* Opens the lock's store, and acquires the lock with acquisition_take(). If DLOCK_HELD shows that
 * an ancestor already holds the lock, opens no store, and returns true if that lock is enough for
 * the request. False: the lock was not acquired, and *status is the exit status. */
bool plan_take(struct acquisition *lock, const struct options *options, int *status);

/* Allocates the zeroed state of an action, which is too large for a small stack (ulimit -s). The
 * caller frees it. NULL: the failure has been reported, and *status is the exit status. */
void *plan_memory(size_t size, const struct messages *out, int *status);

struct awaited_lock plan_awaited(const struct options *options);
struct expiry_plan plan_expiry(const struct options *options);

/* --- lock.c ------------------------------------------------------------------ */

/* A lock that an action works on, and its store. */
struct target {
    const struct options *options;
    struct options *under; /* the lock's options if this process runs under the lock, or NULL */
    bool inside;           /* the store confirms that this process runs under the lock */
    struct messages *out;
    struct backend *backend;
    char key[LOCK_KEY_SIZE];
    char name[LOCK_KEY_SIZE]; /* the name of the lock found, if the options give none */
    char token[TOKEN_SIZE];   /* "": look it up in the store */
    char take_id[TOKEN_SIZE]; /* identifies one acquisition of the lock; "": not known */
    struct lease lease;
    struct duration hold_left; /* the time that is left of --hold-at-least */
    struct deadline ended_at;  /* when the lease would end without --extend; 0: unknown */
    enum extend_how how;
    struct deadline until;   /* when the current query of the store must end */
    struct lock_state state; /* as the store last reported it; with --force-release, the state
                              * before the release */
    struct pause pause;      /* for --pause and --resume */
    struct errmsg unusable;  /* if dlock runs under this lock but cannot use it: the reason */
};

/* Allocates a target, and finds its lock and store with `find`, which returns false if it has
 * reported a failure and set *status. NULL: the failure has been reported, and *status is the exit
 * status. Otherwise call target_close(). */
struct target *target_open(bool (*find)(struct target *, int *status),
                           const struct options *options, struct messages *out, int *status);
void target_close(struct target *target);

/* Finds the lock by the name in the options. For --list, finds the store, and the text that all
 * keys begin with. */
bool target_by_name(struct target *target, int *status);

/* Looks at the lock and fills in target->state, which the caller frees. Gives up at the time
 * target->until. */
enum lock_result target_look(void *data, struct bound bound, struct errmsg *why);

/* Reads the owner token from the file of --owner-file. Returns LOCK_OK; or LOCK_INVALID or
 * LOCK_REFUSED with *why set. */
enum lock_result token_file_read(const char *path, char token[TOKEN_SIZE], struct errmsg *why);

#endif
