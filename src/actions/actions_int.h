/* The functions that the actions share: they turn options into what the folders below work
 * with; nothing below actions/ sees the options. */
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

/* PREFIX + NAME or its digest (--hash). LOCK_OK; otherwise like
 * secret_read() and lock_name_digest(). */
enum lock_result lock_key_of(char key[LOCK_KEY_SIZE], const struct options *options,
                             struct errmsg *why);

/* The same. False: reported, and *status is the exit status. */
bool lock_key_find(char key[LOCK_KEY_SIZE], const struct options *options,
                   const struct messages *out, int *status);

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

/* Opens the store that replaces an unreachable Redis with --fallback. */
enum lock_result backend_open_fallback(struct backend **backend, const char *lock_dir,
                                       struct errmsg *why);

/* Like backend_choose(), for this kind ("redis" or "file") whatever --backend
 * says, and silently: the store in which an outer dlock has its lock. */
bool backend_of_kind(struct backend **backend, const char *kind, const struct options *options,
                     const struct messages *out, int *status);

/* The options by which the lock of this line of DLOCK_HELD is found: options_under().
 * LOCK_GONE: the line is about another lock than the options name, or the command line asks
 * for a store of another kind. Otherwise as lock_key_of(). options_under_free() in every case. */
enum lock_result options_of_held(struct options **under, const struct options *options,
                                 const struct held *held, struct errmsg *why);

/* LOCK_OK: DLOCK_HELD has the lock that the options name, and its store confirms it: *backend
 * is that store, *under are its options, `key` is the lock's key and *outer what the store
 * reports. LOCK_GONE: it has no such lock. A line that has ended, or whose store gives no
 * answer, changes nothing; but if an ancestor has added the line, the store is asked again for
 * --outage, and then the result is LOCK_UNAVAILABLE with *why set: what is done under another
 * store's lock would not be excluded by what the outer lock excludes. Close the backend before
 * options_under_free(). */
enum lock_result backend_of_held(struct backend **backend, struct options **under,
                                 const struct options *options, char key[LOCK_KEY_SIZE],
                                 struct lease *outer, int cancel_fd, const struct messages *out,
                                 struct errmsg *why);

/* --- plan.c ---------------------------------------------------------------- */

/* Fills in *lock, and opens it: acquisition_open(). `undone` is what does not
 * happen without the lock. False: reported, and *status is the exit status. */
bool plan_acquisition(struct acquisition *lock, const struct options *options, struct messages *out,
                      const char *undone, const char *command, pid_t pid, int *status);

/* Opens the store, and takes the lock in it: acquisition_take(). */
bool plan_take(struct acquisition *lock, const struct options *options, int *status);

/* The state of an action, zeroed, which the caller frees: it would be too much for a small
 * stack (ulimit -s). NULL: reported, and *status is the exit status. */
void *plan_memory(size_t size, const struct messages *out, int *status);

struct awaited_lock plan_awaited(const struct options *options);
struct expiry_plan plan_expiry(const struct options *options);

/* --- lock.c ------------------------------------------------------------------ */

/* A lock that an action works on, and its store. */
struct target {
    const struct options *options;
    struct options *under; /* of the store of a lock that this process runs under; NULL: none */
    bool inside;           /* and that store confirms the lock */
    struct messages *out;
    struct backend *backend;
    char key[LOCK_KEY_SIZE];
    char name[LOCK_KEY_SIZE]; /* used if no name is given */
    char token[TOKEN_SIZE];   /* "": to look up in the store */
    char take_id[TOKEN_SIZE]; /* "": not known */
    struct lease lease;
    struct duration hold_left; /* of --hold-at-least */
    enum extend_how how;
    struct deadline until;   /* of one look */
    struct lock_state state; /* as it was seen; before --force-release */
    struct pause pause;      /* for --pause and --resume */
    struct errmsg unusable;  /* why a lock of this name around this process cannot be used */
};

/* Allocates one, and finds its lock and store: `find` returns false if that is reported, with
 * *status. target_close(); NULL: reported. */
struct target *target_open(bool (*find)(struct target *, int *status),
                           const struct options *options, struct messages *out, int *status);
void target_close(struct target *target);

/* Finds it by the name of the options, or is about all locks for --list. */
bool target_by_name(struct target *target, int *status);

/* Looks at it, until target->until at most: fills in target->state, to be freed. */
enum lock_result target_look(void *data, struct bound bound, struct errmsg *why);

/* Reads the owner token in the file of --owner-file. LOCK_OK; LOCK_INVALID, LOCK_REFUSED with
 * *why set. */
enum lock_result token_file_read(const char *path, char token[TOKEN_SIZE], struct errmsg *why);

#endif
