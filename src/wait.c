/* Waiting is asking again: at a jittered interval that grows from the
 * backend's least to its most, and at the moment when the holder's lease ends.
 * pause_until() is where a wake-up by the store will come in. */
#include "wait.h"

#include <errno.h>
#include <poll.h>

/* How long the release of a lock may take that may be ours unknown to us. */
static const struct duration abandon_limit = {1 * NS_PER_S};
/* The shortest and the longest pause between tries of a store that is down. */
static const struct duration retry_least = {100 * NS_PER_MS}, retry_most = {2 * NS_PER_S};

/* Those who share a lock make way for somebody who shows up this often. */
static const struct duration claim_interval = {500 * NS_PER_MS};

struct waiting {
    const struct patience *patience;
    struct lock_request request; /* the caller's, and how this try stands in the wait */
    int cancel_fd;
    struct deadline start;
    struct deadline end;        /* of the wait */
    struct deadline outage_end; /* of the tries to reach the store; DEADLINE_NEVER: it was reached */
    struct duration interval;   /* of asking again for a lock that is held */
    struct duration retry;      /* of asking again a store that is down */
};

/* LOCK_OK at `until`, LOCK_CANCELLED before it. */
static enum lock_result pause_until(const struct waiting *waiting, struct deadline until)
{
    struct pollfd fd = {.fd = waiting->cancel_fd, .events = POLLIN};
    while (!deadline_passed(until)) {
        int ready = poll(&fd, 1, deadline_poll_ms(until));
        if (ready > 0)
            return LOCK_CANCELLED;
        if (ready < 0 && errno != EINTR)
            break;
    }
    return LOCK_OK;
}

static struct duration doubled(struct duration d, struct duration most)
{
    return duration_min((struct duration){d.ns * 2}, most);
}

/* One try may take as long as the connection's own limit, but should end with
 * the wait. Each still gets a second, or the last one, and a short --wait,
 * would call a store unreachable that answers; and -n sets no limit at all. */
static struct bound try_bound(const struct waiting *waiting)
{
    struct deadline until = DEADLINE_NEVER;
    if (!waiting->patience->forever && waiting->patience->wait.ns > 0) {
        struct deadline second = deadline_after(DURATION_S(1));
        until = deadline_before(waiting->end, second) ? second : waiting->end;
    }
    return (struct bound){until, waiting->cancel_fd};
}

/* Held by another: when is the next time to ask? LOCK_HELD: the wait is over. */
static enum lock_result wait_for_holder(struct waiting *waiting, const struct backend *backend, const struct holder *holder)
{
    waiting->outage_end = DEADLINE_NEVER;
    waiting->retry = retry_least;
    bool is_own = waiting->patience->is_own != NULL && waiting->patience->is_own(waiting->patience->data, holder);
    if (is_own || waiting->request.last)
        return LOCK_HELD;
    if (waiting->patience->pausing != NULL)
        waiting->patience->pausing(waiting->patience->data, holder, NULL);
    struct deadline next = deadline_after(duration_jittered(waiting->interval));
    if (holder->expires && holder->left.ns > 0)
        next = deadline_earlier(next, deadline_plus(deadline_after(holder->left), DURATION_MS(1)));
    waiting->interval = doubled(waiting->interval, backend->poll_most);
    if (holder->claimed)
        waiting->interval = duration_min(waiting->interval, claim_interval);
    return pause_until(waiting, deadline_earlier(next, waiting->end));
}

/* The store is down: LOCK_UNAVAILABLE: it has been tried long enough. */
static enum lock_result wait_for_store(struct waiting *waiting, const struct why *why)
{
    if (waiting->outage_end.boot_ns == DEADLINE_NEVER.boot_ns)
        waiting->outage_end = deadline_earlier(deadline_after(waiting->patience->outage), waiting->end);
    if (deadline_passed(waiting->outage_end))
        return LOCK_UNAVAILABLE;
    if (waiting->patience->pausing != NULL)
        waiting->patience->pausing(waiting->patience->data, NULL, why);
    struct deadline next = deadline_after(duration_jittered(waiting->retry));
    waiting->retry = doubled(waiting->retry, retry_most);
    return pause_until(waiting, deadline_earlier(next, waiting->outage_end));
}

/* A take whose answer never came may have succeeded. */
static void abandon(struct backend *backend, const struct lock_request *request)
{
    struct lease maybe;
    struct why ignored;
    if (!backend->uncertain)
        return;
    lease_begin(&maybe, request, deadline_now(), 0);
    maybe.hold = deadline_now();
    (void)backend->release(backend, &maybe, (struct bound){deadline_after(abandon_limit), -1}, &ignored);
}

/* Taken, but the answer took so long that the lease is as good as over. */
static enum lock_result too_late(struct backend *backend, struct lease *lease, struct why *why)
{
    struct why ignored;
    lease->hold = deadline_now();
    (void)backend->release(backend, lease, (struct bound){deadline_after(abandon_limit), -1}, &ignored);
    why_set(why, "the lock was taken, but its lease was over before the answer came");
    return LOCK_UNAVAILABLE;
}

enum lock_result wait_for_lock(struct backend *backend, const struct lock_request *request, const struct patience *patience,
                               int cancel_fd, struct lease *lease, struct holder *holder, struct waited *waited,
                               struct why *why)
{
    struct waiting waiting = {
        .patience = patience,
        .request = *request,
        .cancel_fd = cancel_fd,
        .start = deadline_now(),
        .outage_end = DEADLINE_NEVER,
        .interval = backend->poll_least,
        .retry = retry_least,
    };
    waiting.end = patience->forever ? DEADLINE_NEVER : deadline_plus(waiting.start, patience->wait);
    waiting.request.waits = patience->forever || patience->wait.ns > 0;
    waited->takes = 0;
    enum lock_result result;
    for (bool again = true; again;) {
        enum lock_result pause;
        waited->takes++;
        waiting.request.last = deadline_passed(waiting.end);
        waiting.request.waited = deadline_gap(waiting.start, deadline_now());
        result = backend->take(backend, &waiting.request, lease, holder, try_bound(&waiting), why);
        if (result == LOCK_OK && lease_as_good_as_over(lease)) {
            result = too_late(backend, lease, why);
            patience->take_anew(patience->data);
        }
        if (result == LOCK_HELD)
            pause = wait_for_holder(&waiting, backend, holder);
        else if (result == LOCK_UNAVAILABLE)
            pause = wait_for_store(&waiting, why);
        else
            break;
        again = pause == LOCK_OK;
        if (pause == LOCK_CANCELLED)
            result = LOCK_CANCELLED;
    }
    waited->time = deadline_gap(waiting.start, deadline_now());
    if (result != LOCK_OK)
        abandon(backend, request);
    return result;
}
