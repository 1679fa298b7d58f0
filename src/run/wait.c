/* Waiting means asking again: when the store notifies us, when the store has
 * said that something will change, and, in case a notice is lost, at a jittered
 * interval that grows.
 *
 * The store may notify us before, during or after the moment at which we fall
 * asleep: the notice stays readable on its descriptor until listen() takes it
 * in, and each pause begins with that.
 *
 * The pauses end by a timer on the boot clock: the timeout of poll(2) does not
 * advance during a suspend, and a lock that is free by then would wait for the
 * rest of it. */
#include "run/wait.h"

#include "ui/lock_print.h"
#include "util/clock.h"
#include "util/fileutils.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>

/* How long to try to release a lock that may be ours without our knowledge, and
 * to leave a queue, which notices by itself in the end. */
static const struct duration abandon_limit = {1 * NS_PER_S}, leave_limit = {200 * NS_PER_MS};

/* How long -n gives the guard of a script that has ended to release the lock (--attach).
 * The end of a script is seen by its guard and by its parent at once, and the parent may
 * start the next script first. */
static const struct duration guard_limit = {500 * NS_PER_MS};

/* The interval of questions that follow notices, on average, since other processes cause
 * these as often as they like; and by how much questions may be ahead of that. */
static const struct duration notice_interval = {10 * NS_PER_MS}, notice_burst = {1 * NS_PER_S};

/* The shortest and the longest pause between tries of a store that is down. */
static const struct duration retry_least = {100 * NS_PER_MS}, retry_most = {2 * NS_PER_S};

struct waiting {
    const struct patience *patience;
    struct lock_request request; /* the caller's, with the state of this try in the wait */
    int cancel_fd;
    int timer_fd; /* of the pauses; -1: there was none yet */
    struct deadline start;
    struct deadline end;      /* of the wait */
    struct deadline tried;    /* when this try has begun */
    struct deadline down;     /* when the first try has begun since the store has answered */
    struct duration interval; /* of asking again for a lock that is held */
    struct duration retry;    /* of asking again a store that is down */
    struct deadline heeded;   /* how far the notices that were followed have used up the time */
    bool uncalled;            /* it was said that the store cannot notify us */
};

/* Waits for `until` or for news_fd (-1: none). LOCK_OK, or LOCK_CANCELLED. */
static enum lock_result sleep_until(struct waiting *waiting, int news_fd, struct deadline until)
{
    if (waiting->timer_fd < 0)
        waiting->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    struct pollfd fds[3] = {
        {.fd = waiting->cancel_fd, .events = POLLIN},
        {.fd = news_fd, .events = POLLIN},
        {.fd = waiting->timer_fd, .events = POLLIN},
    };
    while (!deadline_passed(until)) {
        int ready = poll(fds, 3, deadline_set_timer(waiting->timer_fd, until));
        if (ready > 0 && fds[0].revents != 0)
            return LOCK_CANCELLED;
        if (ready > 0 && fds[1].revents != 0)
            return LOCK_OK;
        if (ready < 0 && errno != EINTR)
            break;
    }
    return LOCK_OK;
}

/* The tries end this long after the start of the first that failed. */
static struct deadline outage_end(const struct waiting *waiting)
{
    return deadline_plus(waiting->down, waiting->patience->outage);
}

/* One try may take as long as the connection's own limit, but should end with
 * the wait, and with the outage. Each try still gets a second; otherwise the
 * last one, or a short --wait, would report a store as unreachable that
 * answers. */
static struct bound try_until(struct deadline until, int cancel_fd)
{
    struct deadline second = deadline_after(DURATION_S(1));
    return (struct bound){deadline_before(until, second) ? second : until, cancel_fd};
}

/* -n, and an outage of 0, which allows one try, set no limit at all. */
static struct bound try_bound(const struct waiting *waiting)
{
    struct deadline until = waiting->patience->outage.ns > 0 ? outage_end(waiting) : DEADLINE_NEVER;
    if (!waiting->patience->forever && waiting->patience->wait.ns > 0)
        until = deadline_earlier(until, waiting->end);
    return try_until(until, waiting->cancel_fd);
}

/* Pauses until it is worth asking again. */
static enum lock_result pause_for_call(struct waiting *waiting, struct backend *backend,
                                       const struct holder *holder)
{
    struct call call = backend->listen(backend);
    if (call.cannot != NULL && !waiting->uncalled)
        progress_say_uncalled(waiting->patience->view, call.cannot);
    waiting->uncalled |= call.cannot != NULL;
    waiting->interval = duration_min(waiting->interval, call.poll_most);
    struct deadline poll =
        deadline_earlier(deadline_after(duration_jittered(waiting->interval)), waiting->end);
    struct deadline shown = deadline_now();
    waiting->interval = duration_doubled(waiting->interval, call.poll_most);
    bool noticed = false;
    for (enum lock_result result = LOCK_OK; result == LOCK_OK; call = backend->listen(backend)) {
        struct deadline next = deadline_earlier(poll, call.by);
        noticed |= call.now;
        if (noticed)
            next = deadline_earlier(next, deadline_minus(waiting->heeded, notice_burst));
        if (noticed && deadline_passed(next))
            waiting->heeded =
                deadline_plus(deadline_passed(waiting->heeded) ? deadline_now() : waiting->heeded,
                              notice_interval);
        if (deadline_passed(next))
            return LOCK_OK;
        if (deadline_passed(shown))
            shown = progress_show(waiting->patience->view, holder, NULL, DEADLINE_NEVER);
        result = sleep_until(waiting, noticed ? -1 : call.fd, deadline_earlier(next, shown));
    }
    return LOCK_CANCELLED;
}

/* True if this try began after the end of the wait. */
static bool is_over(const struct waiting *waiting)
{
    return !deadline_before(waiting->tried, waiting->end);
}

/* With -n, at the first refusal: the lock is requested again at once, now as a waiter. */
static bool wait_for_guard(struct waiting *waiting, const struct holder *holder)
{
    if (waiting->request.waits || holder->shares || holder->pause.left.ns > 0 ||
        holder_life_held(holder) != PROCESS_ENDED)
        return false;
    waiting->request.waits = true;
    waiting->end = deadline_after(guard_limit);
    return true;
}

/* Held by another. LOCK_OK: it is time to ask again; LOCK_HELD: the wait is
 * over. */
static enum lock_result wait_for_holder(struct waiting *waiting, struct backend *backend,
                                        const struct holder *holder)
{
    const struct patience *patience = waiting->patience;
    waiting->retry = retry_least;
    if (patience->is_own(patience->data, holder) || holder->refusal == REFUSED_DONE)
        return LOCK_HELD;
    if (is_over(waiting))
        return wait_for_guard(waiting, holder) ? LOCK_OK : LOCK_HELD;
    return pause_for_call(waiting, backend, holder);
}

/* The store is down. LOCK_UNAVAILABLE: it has been tried long enough. */
static enum lock_result wait_for_store(struct waiting *waiting, const struct errmsg *why)
{
    struct deadline end = deadline_earlier(outage_end(waiting), waiting->end);
    if (deadline_passed(end))
        return LOCK_UNAVAILABLE;
    struct deadline next = deadline_earlier(deadline_after(duration_jittered(waiting->retry)), end);
    enum lock_result result = LOCK_OK;
    waiting->retry = duration_doubled(waiting->retry, retry_most);
    while (result == LOCK_OK && !deadline_passed(next))
        result = sleep_until(
            waiting, -1,
            deadline_earlier(next, progress_show(waiting->patience->view, NULL, why, end)));
    return result;
}

/* A take whose answer never came may have succeeded; and the waiters behind us
 * in the queue should not wait for us. */
static void abandon(struct backend *backend, const struct lock_request *request,
                    enum lock_result result, struct errmsg *why)
{
    struct lease maybe;
    struct errmsg ignored;
    if (!backend->uncertain && !backend->queued)
        return;
    struct duration limit = backend->uncertain ? abandon_limit : leave_limit;
    lease_begin(&maybe, request, deadline_now(), 0);
    maybe.hold = deadline_now();
    bool uncertain = backend->uncertain;
    enum lock_result released =
        backend->release(backend, &maybe, (struct bound){deadline_after(limit), -1}, &ignored);
    if (uncertain && result == LOCK_SYSTEM &&
        (released == LOCK_UNAVAILABLE || released == LOCK_SYSTEM)) {
        struct errmsg before = *why;
        errmsg_set(why,
                   "%.400s; the lock may have been acquired nevertheless, and is then held until "
                   "its lease ends",
                   before.text);
    }
}

/* Taken, but the answer took so long that the lease is almost over. */
static enum lock_result too_late(struct backend *backend, struct lease *lease, struct errmsg *why)
{
    struct errmsg ignored;
    lease->hold = deadline_now();
    (void)backend->release(backend, lease, (struct bound){deadline_after(abandon_limit), -1},
                           &ignored);
    errmsg_set(why, "the lock was acquired, but its lease ended before the answer arrived");
    return LOCK_UNAVAILABLE;
}

enum lock_result wait_for_lock(struct backend *backend, const struct lock_request *request,
                               const struct patience *patience, int cancel_fd, struct lease *lease,
                               struct holder *holder, struct waited *waited, struct errmsg *why)
{
    struct waiting waiting = {
        .patience = patience,
        .request = *request,
        .cancel_fd = cancel_fd,
        .timer_fd = -1,
        .start = deadline_now(),
        .interval = backend->poll_least,
        .retry = retry_least,
    };
    waiting.end = patience->forever ? DEADLINE_NEVER : deadline_plus(waiting.start, patience->wait);
    waiting.request.attended = progress_attended(patience->view);
    bool waits = waiting.request.waits = patience->forever || patience->wait.ns > 0;
    waited->tries = 0;
    enum lock_result result;
    for (bool again = true; again;) {
        enum lock_result pause;
        waiting.tried = deadline_now();
        if (waited->tries++ == 0)
            waiting.down = waiting.tried;
        /* -n that waits for a guard has been counted. */
        waiting.request.last = is_over(&waiting) && waiting.request.waits == waits;
        waiting.request.waited = deadline_gap(waiting.start, waiting.tried);
        result = backend->take(backend, &waiting.request, lease, holder, try_bound(&waiting), why);
        if (result == LOCK_OK && lease_as_good_as_over(lease)) {
            result = too_late(backend, lease, why);
            patience->take_anew(patience->data);
            /* The store has answered; only this process was frozen or slow. */
            waiting.down = waited->tries == 1 ? deadline_now() : waiting.down;
        }
        if (result == LOCK_HELD) {
            waited->tries = 0;
            pause = wait_for_holder(&waiting, backend, holder);
        } else if (result == LOCK_UNAVAILABLE) {
            pause = wait_for_store(&waiting, why);
        } else {
            break;
        }
        again = pause == LOCK_OK;
        if (pause == LOCK_CANCELLED)
            result = LOCK_CANCELLED;
    }
    waited->time = deadline_gap(waiting.start, deadline_now());
    waited->outage = deadline_gap(waiting.down, deadline_now());
    fd_close(&waiting.timer_fd);
    if (result != LOCK_OK)
        abandon(backend, request, result, why);
    return result;
}

/* --- without a lock -------------------------------------------------------- */

char *tried_format(int tries, struct duration time, char text[TRIED_TEXT_SIZE])
{
    char in[DURATION_TEXT_SIZE];
    snprintf(text, TRIED_TEXT_SIZE, "tried %d time%s in %s", tries, tries == 1 ? "" : "s",
             duration_rounded(time, in, sizeof in));
    return text;
}

enum lock_result retry(enum lock_result (*attempt)(void *data, struct bound, struct errmsg *),
                       void *data, struct duration outage, struct errmsg *why)
{
    struct deadline start = deadline_now(), end = deadline_plus(start, outage);
    struct deadline limit = outage.ns > 0 ? end : DEADLINE_NEVER;
    struct duration interval = retry_least;
    for (int tries = 1;; tries++) {
        enum lock_result result = attempt(data, try_until(limit, -1), why);
        if (result != LOCK_UNAVAILABLE)
            return result;
        if (deadline_passed(end)) {
            char tried[TRIED_TEXT_SIZE];
            size_t used = strlen(why->text);
            snprintf(why->text + used, sizeof why->text - used, "; %s",
                     tried_format(tries, deadline_gap(start, deadline_now()), tried));
            return result;
        }
        /* A signal ends dlock: nothing here needs to be finished first. */
        struct duration pause = duration_min(duration_jittered(interval), deadline_left(end));
        (void)nanosleep(
            &(struct timespec){(time_t)(pause.ns / NS_PER_S), (long)(pause.ns % NS_PER_S)}, NULL);
        interval = duration_doubled(interval, retry_most);
    }
}
