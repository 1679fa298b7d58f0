/* The interface that every lock store implements. The code that calls it deals with leases; the
 * code that implements it deals with sockets or files.
 *
 * Only one thread uses a backend at a time. A backend acquires one lock only: the lock named by the
 * first request passed to take(). It can look at any lock. No call lasts longer than the caller's
 * bound or the backend's own limit for one call allows.
 *
 * A "take" is one request to acquire the lock, whether the store grants or refuses it. Its take id
 * tells it apart from later requests by the same owner. */
#ifndef DLOCK_STORE_BACKEND_H
#define DLOCK_STORE_BACKEND_H

#include "lock/lease.h"
#include "lock/lock_state.h"
#include "lock/result.h"
#include "util/clock.h"

#include <stdbool.h>

/* What a store reports to the holder of a lock: when to check the lock again. */
struct news {
    int fd;             /* readable when there is news; -1: the store reports nothing at the
                         * moment */
    bool due;           /* a check is already due, even if fd is not readable */
    struct deadline by; /* the next check must come by this time, because the store then has
                         * something to repair; 0: no limit */
    const char *cannot; /* why the store cannot report at all; NULL: it can, or this is unknown */
    struct duration every; /* if the store cannot report, but checks are cheap: longest interval
                            * between checks; 0: no limit */
};

/* What a store reports to a waiter: when to request the lock again. */
struct call {
    int fd;                    /* readable when the store has more to report; -1: it reports
                                * nothing */
    bool now;                  /* the waiter should request the lock at once */
    struct deadline by;        /* latest time of the next request: the store expects a change by
                                * then */
    struct duration poll_most; /* longest interval between requests while the store reports
                                * nothing, in case a report gets lost */
    const char *cannot; /* why the store cannot wake a waiter; NULL: it can, or this is unknown */
};

enum extend_how { EXTEND_AT_LEAST, EXTEND_EXACTLY };

struct backend {
    const char *kind;           /* "redis" or "file", as in DLOCK_HELD_BACKEND */
    const char *lock_dir;       /* the directory of the lock files; NULL: there is none */
    const char *lock_file;      /* the single lock file (--lock-file); NULL: there is none */
    bool never_calls;           /* the store never wakes waiters: they have to poll, which is not an
                                 * error */
    struct duration poll_least; /* the first polling interval for a held lock, unless the store
                                 * wakes the waiter */
    /* A request for the lock was sent and not answered, so this process may hold the lock now or
     * later. A caller that gives up must therefore call release(). */
    bool uncertain;
    /* Additional information about the last successful call, from stores with several servers:
     * `note` is printed with -v, `warning` always. NULL: none. */
    const char *note, *warning;
    bool queued; /* the request is in the store's queue: a caller that gives up must call release()
                  * to leave the queue */

    /* Requests the lock once. Never waits for the holder. LOCK_OK: *lease is filled in. LOCK_HELD:
     * *holder is filled in; its `refusal` says why the request was refused. The store checks
     * once_per and acquires the lock in one atomic step. Otherwise *why is set: LOCK_UNAVAILABLE,
     * LOCK_REFUSED, LOCK_INVALID (every call returns this if the lock has a newer format than this
     * dlock knows, lock/format.h), LOCK_CANT_CREATE, LOCK_CANCELLED, LOCK_SYSTEM. After
     * LOCK_UNAVAILABLE the caller may repeat the same request. If the previous call acquired the
     * lock and only its answer was lost, the repeated request returns that lease. */
    enum lock_result (*take)(struct backend *, const struct lock_request *, struct lease *,
                             struct holder *, struct bound, struct errmsg *);

    /* For a waiter whose take() has just been refused: reads what the store has reported since
     * then. Never blocks. The answer is valid until the next call of any kind. */
    struct call (*listen)(struct backend *);

    /* Asks whether this process still holds the lock, and adopts a deadline that other processes
     * have moved (lease_adopt()). Never renews the lease. If this backend has not acquired a lock,
     * check(), extend() and release() apply to the lock of another process, which they find by the
     * lease's key and token. check() and extend() then fill in the lease's mode, slots and slot.
     * Returns LOCK_OK; LOCK_GONE, LOCK_FOREIGN, LOCK_RELEASED with *why set; otherwise any result
     * of take() except LOCK_HELD. */
    enum lock_result (*check)(struct backend *, struct lease *, struct bound, struct errmsg *);

    /* Makes the lease last for its TTL from now on, if this process still holds the lock. The TTL
     * counts from a moment before the request was sent. EXTEND_AT_LEAST never shortens the lease.
     * Same results as check(). */
    enum lock_result (*extend)(struct backend *, struct lease *, enum extend_how, struct bound,
                               struct errmsg *);

    /* For a member of a quorum. If this process still holds the lock, raises the store's fencing
     * token to at least the lease's. Same results as check(). NULL: this backend is never a member
     * of a quorum. */
    enum lock_result (*raise_fence)(struct backend *, struct lease *, struct bound,
                                    struct errmsg *);

    /* Compare-and-delete: a lock that another owner holds is never released. If the lease's hold
     * (--hold-at-least) ends in the future, the lock stays until then, and other processes find it
     * held. For a lock that another process acquired, the --hold-at-least of that process applies.
     * After LOCK_UNAVAILABLE the caller may repeat release(); if the previous call removed the lock
     * and only its answer was lost, nothing more is removed.
     *
     * lease->end is recorded as the end of the run, and only once, even if release() is repeated.
     * If the lock is released but the end could not be written, `warning` says why. Same results as
     * check(), and LOCK_ENDED: by the store's clock the lease had ended when the request arrived,
     * and nothing suggests that the lock was lost before that. */
    enum lock_result (*release)(struct backend *, const struct lease *, struct bound,
                                struct errmsg *);

    /* Looks at the lock without changing anything. LOCK_OK: *state is filled in, and the caller
     * frees it with lock_state_free(). If look() fails because the lock has a newer format than
     * this dlock knows, state->newer is set. */
    enum lock_result (*look)(struct backend *, const char *key, struct lock_state *, struct bound,
                             struct errmsg *);

    /* For a store that may not see all holders, after look() has found none: acquires the lock and
     * releases it at once. LOCK_OK: the lock is free, or *state has been filled in again and says
     * that the lock is held, perhaps by an unknown holder. NULL: look() sees all holders. */
    enum lock_result (*probe)(struct backend *, const char *key, struct lock_state *,
                              struct errmsg *);

    /* Looks at the lock and removes it in one step, whoever holds it. LOCK_OK: *was is the state
     * before the removal, which the caller frees; if *was has no owners, there was no lock. Takes
     * effect once for each backend and key: if an unanswered call (LOCK_UNAVAILABLE) did remove the
     * lock, a second call returns what was removed, and leaves the next holder alone. NULL: the
     * lock cannot be removed. */
    enum lock_result (*force_release)(struct backend *, const char *key, struct lock_state *was,
                                      struct bound, struct errmsg *);

    /* Prevents every process from acquiring the lock for `pause.left` from now on, whether the lock
     * is held or not; 0 ends the lock's pause. LOCK_OK; LOCK_GONE with *why set: there was no pause
     * to end; LOCK_UNAVAILABLE, even if only one of several servers failed to confirm the end of
     * the pause; otherwise the results of look(). NULL: the lock cannot be paused. */
    enum lock_result (*pause)(struct backend *, const char *key, const struct pause *, struct bound,
                              struct errmsg *);

    /* Looks at all locks that the listing selects, in the order of their keys, and calls its
     * visit() for each. The bound applies to each step. Returns LOCK_OK, LOCK_UNAVAILABLE and so
     * on. NULL: this store has only one lock. */
    enum lock_result (*list)(struct backend *, const struct listing *, struct bound,
                             struct errmsg *);

    /* For a process that holds the lock and watches it: returns what the store reports. After the
     * first call of news(), each check() makes sure that the store reports later changes to the
     * lock. The answer is valid until the next call of any kind. */
    struct news (*news)(struct backend *);

    void (*close)(struct backend *);
};

#endif
