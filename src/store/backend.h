/* The waist of the house: what every store of locks can do. Above it one
 * speaks of leases, below it of sockets or files.
 *
 * A backend is used by one thread at a time, and takes one lock: the request
 * that it first takes; it may look at any. Every call returns within its bound or the backend's
 * own limit for one call, whichever is sooner. */
#ifndef DLOCK_STORE_BACKEND_H
#define DLOCK_STORE_BACKEND_H

#include "lock/lease.h"
#include "lock/lock_state.h"
#include "store/diagnostics.h"
#include "util/clock.h"
#include "util/errmsg.h"
#include "util/exit_status.h"

#include <stdbool.h>

/* How a store tells that it is time for a check out of turn. */
struct news {
    int fd;             /* readable then; -1: it does not tell at this time */
    bool due;           /* it is time already, though fd does not show it */
    struct deadline by; /* check then at the latest: there is something to mend; 0: when it suits */
    const char *cannot; /* why it cannot tell at all; NULL: it can, or nobody knows */
    struct duration
        every; /* how far apart to check then at most, where a check is cheap; 0: as it suits */
};

/* What a store tells one who waits for a lock. */
struct call {
    int fd;                    /* readable when there is more; -1: nothing ever comes */
    bool now;                  /* it is worth asking at once */
    struct deadline by;        /* ask then at the latest: the store knows that something changes */
    struct duration poll_most; /* how far apart to ask uncalled, as a net under what gets lost */
    const char *cannot;        /* why the store cannot call; NULL: it can, or nobody knows */
};

enum extend_how { EXTEND_AT_LEAST, EXTEND_EXACTLY };

struct backend {
    const char *kind;           /* "redis" or "file", as in DLOCK_LOCK_BACKEND */
    bool never_calls;           /* who waits asks again and again; that is no fault of the store */
    struct duration poll_least; /* how soon to ask again, the first time, for a lock that is held */
    /* A take was sent and nothing came back, so that the lock may be ours, now
     * or late: who gives up must release it. */
    bool uncertain;
    /* What else there is to say of the last call that did what it should, of
     * stores that are several: with -v, and to everybody. NULL: nothing. */
    const char *note, *warning;
    bool queued; /* we stand in the store's queue: who gives up must leave it, with a release */

    /* Asks once for the lock. Never waits for its holder.
     * LOCK_OK: *lease is filled in. LOCK_HELD: *holder is. Else *why is set:
     * LOCK_UNAVAILABLE, LOCK_REFUSED, LOCK_INVALID, LOCK_CANT_CREATE,
     * LOCK_CANCELLED, LOCK_SYSTEM. After LOCK_UNAVAILABLE it may be called
     * again with the same request, and finds a lock that the call before took
     * unknowingly. */
    enum lock_result (*take)(struct backend *, const struct lock_request *, struct lease *,
                             struct holder *, struct bound, struct errmsg *);

    /* For one who waits and whom take() has just refused: takes in what the
     * store has told since. Never blocks. The answer holds until the next call
     * of any kind. */
    struct call (*listen)(struct backend *);

    /* Asks whether the lock is still ours, and adopts a deadline that others
     * have moved (lease_adopt()). Never renews. Where this backend has taken
     * nothing, it asks whether another process, or none, holds the lock of the
     * lease's key and token; so do extend() and release(). The lease's mode,
     * slots and slot are filled in then.
     * LOCK_OK; LOCK_GONE, LOCK_FOREIGN, LOCK_RELEASED with *why set; or as
     * take() without LOCK_HELD. */
    enum lock_result (*check)(struct backend *, struct lease *, struct bound, struct errmsg *);

    /* Makes the lease last for its TTL from now on, if the lock is still ours.
     * The new deadline counts from before it was asked for. EXTEND_AT_LEAST
     * never shortens it. Results as of check(). */
    enum lock_result (*extend)(struct backend *, struct lease *, enum extend_how, struct bound,
                               struct errmsg *);

    /* Where several stores keep a lock together: has the fence that this one
     * keeps be no lower than the lease's, if the lock is still ours. Results as
     * of check(). NULL: this backend is never one of several. */
    enum lock_result (*raise_fence)(struct backend *, struct lease *, struct bound,
                                    struct errmsg *);

    /* Compare-and-delete: a lock that is not ours is never touched. One with a
     * hold in the future stays until then, for others to find it held; where
     * another process has taken it, the hold is the one that it asked for. May
     * be called again after LOCK_UNAVAILABLE, and removes nothing more where the
     * call before did it unknowingly. Results as of check(). */
    enum lock_result (*release)(struct backend *, const struct lease *, struct bound,
                                struct errmsg *);

    /* Looks at the lock, and changes nothing: LOCK_OK with *state filled in, to
     * be freed with lock_state_free(). */
    enum lock_result (*look)(struct backend *, const char *key, struct lock_state *, struct bound,
                             struct errmsg *);

    /* After a look that found nobody, for a store that may not see all holders: asks
     * for the lock, and gives it back at once. LOCK_OK: it is free, or *state, anew,
     * tells that it is held. NULL: look() sees all. */
    enum lock_result (*probe)(struct backend *, const char *key, struct lock_state *,
                              struct errmsg *);

    /* Looks at the lock and removes it, whoever holds it, in one step. LOCK_OK
     * with *was as it was before, to be freed; no owners: there was nothing. Once
     * for each backend and key: called again after LOCK_UNAVAILABLE, it tells what
     * the call before removed unknowingly, and leaves the next holder alone. */
    enum lock_result (*force_release)(struct backend *, const char *key, struct lock_state *was,
                                      struct bound, struct errmsg *);

    /* Looks at all locks whose keys begin with `prefix` and go on with what
     * matches the glob(7) `pattern` (NULL: anything), in the order of their
     * keys; visit() is called for each that is held, and ends it with false.
     * The bound holds for each step. LOCK_OK; LOCK_UNAVAILABLE and so on. */
    enum lock_result (*list)(struct backend *, const char *prefix, const char *pattern,
                             bool (*visit)(void *data, const struct lock_state *), void *data,
                             struct bound, struct errmsg *);

    /* For a lease that is held. Whoever asks is about to watch it: from then
     * on each check sees to it that the store tells of what happens to the
     * lock after that check. The answer holds until the next call. */
    struct news (*news)(struct backend *);

    /* Looks at the store itself, for --doctor: adds to *findings what is good and
     * bad about it for locks like that of the request, whose key nobody uses.
     * True where it is worth trying to take that lock. */
    bool (*examine)(struct backend *, const struct lock_request *, struct diagnostics *,
                    struct bound);

    /* Removes what is remembered of a lock that nobody holds, its last fence too:
     * for one that will never be taken again. NULL: it makes way by itself. */
    void (*forget)(struct backend *, const char *key, struct bound);

    void (*close)(struct backend *);
};

#endif
