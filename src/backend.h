/* The waist of the house: what every store of locks can do. Above it one
 * speaks of leases, below it of sockets or files.
 *
 * A backend is used by one thread at a time, and for one lock: the request
 * that it first takes. Every call returns within its bound or the backend's
 * own limit for one call, whichever is sooner. */
#ifndef DLOCK_BACKEND_H
#define DLOCK_BACKEND_H

#include "clock.h"
#include "lease.h"
#include "status.h"
#include "why.h"

#include <stdbool.h>

/* How a store tells that it is time for a check out of turn. */
struct news {
    int fd;             /* readable then; -1: it does not tell at this time */
    bool due;           /* it is time already, though fd does not show it */
    const char *cannot; /* why it cannot tell at all; NULL: it can, or nobody knows */
};

struct backend {
    const char *kind;                     /* "redis" or "file", as in DLOCK_BACKEND */
    struct duration poll_least, poll_most; /* how often to ask again for a lock that is held */
    /* A take was sent and nothing came back, so that the lock may be ours, now
     * or late: who gives up must release it. */
    bool uncertain;

    /* Asks once for the lock. Never waits for its holder.
     * LOCK_OK: *lease is filled in. LOCK_HELD: *holder is. Else *why is set:
     * LOCK_UNAVAILABLE, LOCK_REFUSED, LOCK_INVALID, LOCK_CANT_CREATE,
     * LOCK_CANCELLED, LOCK_SYSTEM. After LOCK_UNAVAILABLE it may be called
     * again with the same request, and finds a lock that the call before took
     * unknowingly. */
    enum lock_result (*take)(struct backend *, const struct lock_request *, struct lease *, struct holder *,
                             struct bound, struct why *);

    /* Asks whether the lock is still ours, and adopts a deadline that others
     * have moved (lease_adopt()). Never renews. Where this backend has taken
     * nothing, it asks whether another process holds the lock of the lease's
     * key and token.
     * LOCK_OK, LOCK_GONE with *why set, or as take() without LOCK_HELD. */
    enum lock_result (*check)(struct backend *, struct lease *, struct bound, struct why *);

    /* Makes the lease last for its TTL from now on, if the lock is still ours;
     * never shortens it. The new deadline counts from before it was asked for.
     * Results as of check(). */
    enum lock_result (*extend)(struct backend *, struct lease *, struct bound, struct why *);

    /* Compare-and-delete: a lock that is not ours is never touched. One with a
     * hold in the future stays until then, for others to find it held. May be
     * called again after LOCK_UNAVAILABLE.
     * LOCK_OK, LOCK_GONE with *why set, or as take() without LOCK_HELD. */
    enum lock_result (*release)(struct backend *, const struct lease *, struct bound, struct why *);

    /* For a lease that is held. Whoever asks is about to watch it: from then
     * on each check sees to it that the store tells of what happens to the
     * lock after that check. The answer holds until the next call. */
    struct news (*news)(struct backend *);

    void (*close)(struct backend *);
};

#endif
