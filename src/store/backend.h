/* The interface that every lock store implements. The code above it deals in leases, the code below
 * it in sockets or files.
 *
 * Only one thread uses a backend at a time. A backend acquires one lock only: the lock of the first
 * request that take() gets. It can look at any lock. Every call returns within its bound or the
 * backend's own limit for one call, whichever is sooner. */
#ifndef DLOCK_STORE_BACKEND_H
#define DLOCK_STORE_BACKEND_H

#include "lock/lease.h"
#include "lock/lock_state.h"
#include "lock/result.h"
#include "util/clock.h"

#include <stdbool.h>

/* How a store reports that a check is needed ahead of time. */
struct news {
    int fd;             /* readable when there is news; -1: it reports nothing at this time */
    bool due;           /* a check is already due, even if fd does not show it */
    struct deadline by; /* latest time of the next check, if something needs repair; 0: no limit */
    const char *cannot; /* why the store cannot report at all; NULL: it can, or this is unknown */
    struct duration every; /* longest interval between checks then, if cheap; 0: no limit */
};

/* What a store reports to a waiter. */
struct call {
    int fd;                    /* readable when there is more; -1: nothing ever arrives */
    bool now;                  /* the waiter should ask at once */
    struct deadline by;        /* latest time to ask: the store expects a change then */
    struct duration poll_most; /* longest polling interval without a call, in case one gets lost */
    const char *cannot; /* why the store cannot wake a waiter; NULL: it can, or this is unknown */
};

enum extend_how { EXTEND_AT_LEAST, EXTEND_EXACTLY };

struct backend {
    const char *kind;      /* "redis" or "file", as in DLOCK_LOCK_BACKEND */
    const char *lock_dir;  /* the directory of its lock files; NULL: there is none */
    const char *lock_file; /* the only file that it locks; NULL: there is none */
    bool never_calls;      /* the store never wakes waiters: waiters poll, which is not an error */
    struct duration poll_least; /* the first polling interval for a lock that is held, unless the
                                 * store wakes the waiter */
    /* A take was sent and got no answer, so the lock may be ours, now or later: a caller that gives
     * up must call release(). */
    bool uncertain;
    /* Additional information about the last successful call, from stores with several
     * servers: `note` is printed with -v, `warning` always. NULL: nothing. */
    const char *note, *warning;
    bool queued; /* in the store's queue: a caller that gives up must call release() to leave it */

    /* Asks once for the lock. Never waits for the holder.
     * LOCK_OK: *lease is filled in. LOCK_HELD: *holder is filled in; its `refusal` says whether
     * once_per refused the request, which the store decides in the same step as the take. Otherwise
     * *why is set: LOCK_UNAVAILABLE, LOCK_REFUSED, LOCK_INVALID (every call returns this if the
     * lock has a newer format, lock/format.h), LOCK_CANT_CREATE, LOCK_CANCELLED, LOCK_SYSTEM.
     * After LOCK_UNAVAILABLE the caller may repeat the same request, which finds the lock if the
     * previous call acquired it unnoticed. */
    enum lock_result (*take)(struct backend *, const struct lock_request *, struct lease *,
                             struct holder *, struct bound, struct errmsg *);

    /* For a waiter that take() has just refused: reads what the store has reported since then.
     * Never blocks. The answer is valid until the next call of any kind. */
    struct call (*listen)(struct backend *);

    /* Asks whether the lock is still ours, and adopts a deadline that other processes have moved
     * (lease_adopt()). Never renews. If this backend has not acquired a lock, check(), extend() and
     * release() ask about another process's lock, by the lease's key and token, and fill in the
     * lease's mode, slots and slot.
     * LOCK_OK; LOCK_GONE, LOCK_FOREIGN, LOCK_RELEASED with *why set; otherwise the results of
     * take() without LOCK_HELD. */
    enum lock_result (*check)(struct backend *, struct lease *, struct bound, struct errmsg *);

    /* Makes the lease last for its TTL from now on, if the lock is still ours. The new deadline
     * counts from before the request was sent. EXTEND_AT_LEAST never shortens the lease. Results of
     * check(). */
    enum lock_result (*extend)(struct backend *, struct lease *, enum extend_how, struct bound,
                               struct errmsg *);

    /* If several stores keep a lock together: raises this store's fence to at least the lease's, if
     * the lock is still ours. Results of check(). NULL: this backend is never one of several. */
    enum lock_result (*raise_fence)(struct backend *, struct lease *, struct bound,
                                    struct errmsg *);

    /* Compare-and-delete: a lock that is not ours is never touched. If the hold ends in the future,
     * the lock stays until then, and other processes find it held. For a lock that another process
     * acquired, the hold is the one that the other process requested. After LOCK_UNAVAILABLE
     * release() may be called again; it removes nothing more if the previous call removed the lock
     * unnoticed.
     * lease->end is remembered as the end of the run, only once even if release() is called again.
     * If the lock is released but the end could not be written, `warning` says why.
     * Results of check(), and LOCK_ENDED: by the store's clock the lease had ended when the request
     * arrived, and nothing says that the lock was lost before that. */
    enum lock_result (*release)(struct backend *, const struct lease *, struct bound,
                                struct errmsg *);

    /* Looks at the lock, and changes nothing: LOCK_OK with *state filled in, which the caller frees
     * with lock_state_free(). If the look fails because the lock has a newer format, state->newer
     * is set. */
    enum lock_result (*look)(struct backend *, const char *key, struct lock_state *, struct bound,
                             struct errmsg *);

    /* For a store that may not see all holders, after a look that found none: acquires the lock and
     * releases it at once. LOCK_OK: the lock is free, or *state, which is filled in again, says
     * that the lock is held. NULL: look() sees all holders. */
    enum lock_result (*probe)(struct backend *, const char *key, struct lock_state *,
                              struct errmsg *);

    /* Looks at the lock and removes it, regardless of its holder, in one step. LOCK_OK with *was as
     * it was before, which the caller frees; if *was has no owners, there was no lock. Once for
     * each backend and key: a second call, after LOCK_UNAVAILABLE, returns what the first call
     * removed unnoticed, and leaves the next holder alone. NULL: the lock cannot be removed. */
    enum lock_result (*force_release)(struct backend *, const char *key, struct lock_state *was,
                                      struct bound, struct errmsg *);

    /* Prevents every process from acquiring the lock for `pause.left` from now on, whether the lock
     * is held or not; 0 ends the lock's pause. LOCK_OK; LOCK_GONE with *why set: there was no pause
     * to end; LOCK_UNAVAILABLE, even if only one of several servers may not have ended the pause;
     * otherwise the results of look(). NULL: the lock cannot be paused. */
    enum lock_result (*pause)(struct backend *, const char *key, const struct pause *, struct bound,
                              struct errmsg *);

    /* Looks at all locks that the listing selects, in the order of their keys, and calls its
     * visit() for each. The bound applies to each step. LOCK_OK; LOCK_UNAVAILABLE and so on. NULL:
     * this is a store of one lock. */
    enum lock_result (*list)(struct backend *, const struct listing *, struct bound,
                             struct errmsg *);

    /* For a lease that is held. The caller is about to watch the lock: from then on each check
     * makes sure that the store reports what happens to the lock after that check. The answer is
     * valid until the next call. */
    struct news (*news)(struct backend *);

    void (*close)(struct backend *);
};

#endif
