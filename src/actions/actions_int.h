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

/* Makes the key: PREFIX + NAME, or PREFIX + the digest of NAME (--hash). LOCK_OK; otherwise *why is
 * set, by secret_read() or lock_name_digest(). */
enum lock_result lock_key_of(char key[LOCK_KEY_SIZE], const struct options *options,
                             struct errmsg *why);

/* Like lock_key_of(). False: the failure has been reported, and *status is the exit status. */
bool lock_key_find(char key[LOCK_KEY_SIZE], const struct options *options,
                   const struct messages *out, int *status);

/* Opens the backend that --backend, --redis and --lock-file choose; the caller closes the backend
 * with its close(). If the store is a file because no Redis is configured, does what --on-degraded
 * says. False: the failure has been reported, and *status is the exit status. */
bool backend_choose(struct backend **backend, const struct options *options,
                    const struct messages *out, int *status);

/* Like backend_choose(), but does not report a failure; with `out` NULL prints nothing at all.
 * LOCK_OK; otherwise *why holds the reason and *status the exit status. */
enum lock_result backend_open(struct backend **backend, const struct options *options,
                              const struct messages *out, int *status, struct errmsg *why);

/* Opens the store that, with --fallback, replaces an unreachable Redis. */
enum lock_result backend_open_fallback(struct backend **backend, const char *lock_dir,
                                       struct errmsg *why);

/* Like backend_choose(), but opens a store of this kind ("redis" or "file") whatever --backend
 * says, and without warnings: an outer dlock has its lock in that store. */
bool backend_of_kind(struct backend **backend, const char *kind, const struct options *options,
                     const struct messages *out, int *status);

/* Makes, with options_under(), the options by which dlock finds the lock of this line of
 * DLOCK_HELD. LOCK_GONE: the line is not about the lock that the options name, or the command line
 * requests a store of another kind. Otherwise the results of lock_key_of(). Call
 * options_under_free() in every case. */
enum lock_result options_of_held(struct options **under, const struct options *options,
                                 const struct held *held, struct errmsg *why);

/* Looks in DLOCK_HELD for the lock that the options name. LOCK_OK: DLOCK_HELD has the lock, and the
 * store confirms it: *backend is that store, *under are its options, `key` is the lock's key and
 * *outer is what the store reports. LOCK_GONE: DLOCK_HELD has no such lock. A line whose lock has
 * ended, or whose store does not answer, is skipped. But if an ancestor has added the line, dlock
 * asks the silent store again for --retry-for. If the store stays silent, the result is
 * LOCK_UNAVAILABLE with *why set, because a lock in another store would not exclude what the outer
 * lock excludes. Close the backend before options_under_free(). */
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

/* Takes the lock with acquisition_take(). Opens its store before that, unless an ancestor already
 * holds the lock. False: not taken, and *status is the exit status. */
bool plan_take(struct acquisition *lock, const struct options *options, int *status);

/* Allocates the state of an action, zeroed, because it is too large for a small stack (ulimit -s).
 * The caller frees it. NULL: the failure has been reported, and *status is the exit status. */
void *plan_memory(size_t size, const struct messages *out, int *status);

struct awaited_lock plan_awaited(const struct options *options);
struct expiry_plan plan_expiry(const struct options *options);

/* --- lock.c ------------------------------------------------------------------ */

/* A lock that an action works on, and its store. */
struct target {
    const struct options *options;
    struct options *under; /* from options_of_held(), for a lock around this process; NULL: none */
    bool inside;           /* this process runs under the lock, which the store confirms */
    struct messages *out;
    struct backend *backend;
    char key[LOCK_KEY_SIZE];
    char name[LOCK_KEY_SIZE]; /* of the lock that was found; only if the options give no name */
    char token[TOKEN_SIZE];   /* "": look it up in the store */
    char take_id[TOKEN_SIZE]; /* "": not known */
    struct lease lease;
    struct duration hold_left; /* what is left of --hold-at-least */
    struct deadline ended_at;  /* end of the lease before it is extended; 0: unknown */
    enum extend_how how;
    struct deadline until;   /* when one look must end */
    struct lock_state state; /* from the last look; for --force-release, from before the release */
    struct pause pause;      /* for --pause and --resume */
    struct errmsg unusable;  /* why a lock of this name around this process cannot be used */
};

/* Allocates a target, and finds its lock and store with `find`, which returns false if it has
 * reported a failure and set *status. Call target_close(). NULL: reported. */
struct target *target_open(bool (*find)(struct target *, int *status),
                           const struct options *options, struct messages *out, int *status);
void target_close(struct target *target);

/* Finds the lock by the name in the options; for --list, all locks. */
bool target_by_name(struct target *target, int *status);

/* Looks at the lock, until target->until at most, and fills in target->state, which the caller
 * frees. */
enum lock_result target_look(void *data, struct bound bound, struct errmsg *why);

/* Reads the owner token from the file of --owner-file. LOCK_OK; LOCK_INVALID, LOCK_REFUSED with
 * *why set. */
enum lock_result token_file_read(const char *path, char token[TOKEN_SIZE], struct errmsg *why);

#endif
