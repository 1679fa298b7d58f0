/* Waiting for a lock, and for a store that is down. */
#ifndef DLOCK_RUN_WAIT_H
#define DLOCK_RUN_WAIT_H

#include "store/backend.h"
#include "ui/progress.h"

struct patience {
    bool forever;
    struct duration wait;   /* if not for ever; zero: at most for a guard */
    struct duration outage; /* how long a store that cannot be reached is tried, within `wait` */
    struct progress *view;  /* shows the wait */
    /* True if the wait for this holder would never end: then it ends at once
     * with LOCK_HELD. */
    bool (*is_own)(void *data, const struct holder *holder);
    /* A take that succeeded too late was released: the next one needs its own
     * take id, written to where the request points. */
    void (*take_anew)(void *data);
    void *data;
};

struct waited {
    struct duration time;
    int tries;              /* since the store has answered last */
    struct duration outage; /* since the first of these */
};

/* Takes the lock, waiting for its holder and for the store as `patience` says.
 * If cancel_fd becomes readable, it ends at once with LOCK_CANCELLED. On every
 * result but LOCK_OK nothing of ours is left in the store, as far as it can be
 * reached. Results are those of the backend's take(); LOCK_HELD: the wait ran
 * out, with *holder filled in. *waited is always filled in. */
enum lock_result wait_for_lock(struct backend *backend, const struct lock_request *request,
                               const struct patience *patience, int cancel_fd, struct lease *lease,
                               struct holder *holder, struct waited *waited, struct errmsg *why);

/* Asks a store again while it is down: calls attempt() until it returns something other
 * than LOCK_UNAVAILABLE, or `outage` is over: then *why says how many tries there were. */
enum lock_result retry(enum lock_result (*attempt)(void *data, struct bound, struct errmsg *),
                       void *data, struct duration outage, struct errmsg *why);

/* "tried 3 times in 1.2s". Returns text. */
#define TRIED_TEXT_SIZE 96
char *tried_format(int tries, struct duration time, char text[TRIED_TEXT_SIZE]);

#endif
