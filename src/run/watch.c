/* A "look" is a request that asks the store whether the lock is still ours.
 *
 * What the two threads own, and when:
 *
 *   backend (its connection, its file)  the main thread until watch_start(), then
 *                            the watch thread until watch_take(), then the main
 *                            thread again. No mutex is needed, because watch->owner
 *                            says which thread has the backend. As long as dlock
 *                            cannot start the watch thread, the main thread looks
 *                            (watch_look_alone()).
 *   watch->lease             a copy; it belongs to the thread that has the backend.
 *   watch->state             both, under the mutex. The thread that has the backend
 *                            writes the state, and makes news_fd readable.
 *   watch->quit              both. It is set once, before quit_fd is written.
 *   polled descriptors       the watch thread, until it is joined: quit_fd, beat_fd
 *                            and store_fd. store_fd is a copy of the backend's
 *                            descriptor, which the main thread may close while the
 *                            watch thread sleeps.
 *   the heartbeat's socket   both: a message belongs to the thread that reads it, and
 *                            no message is read twice.
 *   the command              the main thread. No other thread sends signals or
 *                            reaps, so no signal goes to a pid that has become free.
 *   the deadline's timer     the main thread: a watch thread that hangs on a
 *                            network cannot delay the stop.
 *
 * Possible orders of events at the end of a lease, with stop = deadline - grace:
 *   1. `stop` is reached -> the watch asks the store once more:
 *        the lease was extended -> the main thread reads the new deadline before its
 *          own limit (watch_last_answer()) has passed, and computes a new limit.
 *        the lease was not extended, or no answer came in time (watch_last_answer()) ->
 *          WATCH_ENDING, and the main thread stops the command.
 *   2. An earlier look is unanswered at `stop` -> that look does not count as the final
 *      one, which the watch sends at once.
 *   3. The watch is late or stuck -> the main thread still stops the command at
 *      watch_last_answer(), and kills at the deadline that it last read.
 *   4. The lock is lost meanwhile -> WATCH_LOST, which no later state replaces.
 *   5. The command, or another process with the owner token, releases the lock ->
 *      WATCH_RELEASED, which is final too. There is nothing left to watch, and no
 *      reason to stop the command.
 *   6. The command ends -> the main thread takes the backend: see below.
 *   7. The whole process was frozen -> when it runs again, the main thread's timer and the
 *      watch thread's wait are both over. Whichever thread runs first, the main
 *      thread reads the boot clock before it accepts that the command ended in time.
 *
 * The main thread takes the backend when the command has ended. The release must not wait for a
 * thread to wake up and end, so the main thread swaps watch->owner from ASLEEP to TAKEN in one
 * step, and joins the thread after the release. Possible orders of events:
 *   1. The watch thread sleeps -> the main thread swaps -> when the thread wakes, for whatever
 *      reason, its own swap from ASLEEP to BUSY fails, and it ends without touching anything.
 *   2. The thread has published a state, such as a new deadline, and sleeps -> the main thread
 *      swaps, and reads that state, even if it has not read news_fd yet.
 *   3. A notification has come, and the thread has not swapped to BUSY yet -> the main thread
 *      swaps, and no thread reads the notification. The compare-and-delete of the release decides
 *      whether the lock was lost.
 *   4. The thread has swapped to BUSY -> the main thread cannot swap. It writes quit_fd, which ends
 *      every wait of the thread, joins the thread, and reads the last state. If the most recent
 *      look found that the lock was lost, that state says so.
 *   5. The thread has ended by itself -> `owner` is BUSY, and the join returns at once.
 *
 * A notification from the store only means that something may have changed; the next
 * look decides. Possible orders of events:
 *   1. The watch asks for the descriptor before its first look -> the store reports changes
 *      from then on, and the first look finds what happened before.
 *   2. A notification comes during a look -> after the look, the descriptor is readable or
 *      news.due is set, so that nothing is missed between two looks.
 *   3. A look closes the descriptor and opens another one (a look that finds the
 *      connection broken makes a new one) -> the watch asks for the descriptor before
 *      each wait and never keeps it across a look.
 *   4. The first notification in a while -> the watch looks at once; the next look follows
 *      at least news_interval later. Without a connection there is no descriptor, and the
 *      watch looks again after retry_interval.
 *
 * A heartbeat of the command (watch_beat()) makes the next look an extension:
 *   1. Many beats in a short time -> one extension, beat_interval() after the previous
 *      extension. No beat is forgotten: `beat` stays set until an extension succeeds.
 *   2. A beat before the last look, at `stop` -> that look extends the lease.
 *   3. A beat after the last look -> the watch still extends the lease. But if the main thread has
 *      sent the stop signal, the stop continues.
 */
#include "run/watch.h"

#include "util/clock.h"
#include "util/fileutils.h"
#include "util/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* How soon the watch repeats a check that failed, for example because there is no connection. */
static const struct duration retry_interval = {500 * NS_PER_MS};

/* The shortest pause between two checks of the lock, whatever the store reports. Without this
 * limit, a client that keeps changing the lock would keep dlock busy. */
static const struct duration news_interval = {10 * NS_PER_MS};

/* How often the main thread checks the lease if the watch thread cannot be started, and how long
 * each of these checks may take. The store does not notify the main thread. */
static const struct duration alone_interval = {1 * NS_PER_S};

/* The interval between checks of the lock while nothing happens. */
static struct duration look_interval(const struct watch *watch)
{
    struct news news = watch->backend->news(watch->backend);
    struct duration tenth = {watch->lease.ttl.ns / 10},
                    interval = duration_min(duration_max(tenth, DURATION_S(1)), DURATION_S(10));
    return news.cannot != NULL && news.every.ns > 0 ? duration_min(interval, news.every) : interval;
}

/* The least time between two extensions. */
static struct duration beat_interval(struct duration ttl)
{
    return duration_min(duration_max((struct duration){ttl.ns / 20}, DURATION_MS(10)),
                        DURATION_S(1));
}

struct deadline watch_last_answer(struct deadline deadline, struct duration grace)
{
    struct duration half = duration_min((struct duration){grace.ns / 2}, DURATION_S(1));
    return deadline_plus(deadline_minus(deadline, grace), half);
}

/* Makes an eventfd readable. If the write fails because the counter is full, the eventfd is already
 * readable. Any other failure is retried. */
static void tell(int fd)
{
    for (int tries = 0;
         tries < 3 && write(fd, &(uint64_t){1}, sizeof(uint64_t)) < 0 && errno != EAGAIN; tries++)
        continue;
}

/* Sets *note to the next message for -v, if there is one. One message says that the store cannot
 * notify dlock, and is printed once. The other says how the lock is held (backend->note), and is
 * printed whenever that has changed. If both are due, the second one follows after the next check
 * of the lock. */
static bool has_note(struct watch *watch, struct errmsg *note)
{
    const char *cannot = watch->backend->news(watch->backend).cannot,
               *stands = watch->backend->note;
    char every[DURATION_TEXT_SIZE];

    if (stands == NULL)
        watch->stands.text[0] = '\0';
    if (cannot != NULL && !watch->said_cannot) {
        watch->said_cannot = true;
        errmsg_set(
            note,
            "the backend cannot report changes to the lock (%s); dlock checks the lock every %s",
            cannot, duration_format(look_interval(watch), every, sizeof every));
        return true;
    }
    if (stands == NULL || strcmp(stands, watch->stands.text) == 0)
        return false;
    errmsg_set(&watch->stands, "%s", stands);
    errmsg_set(note, "the lock is held %s", stands);
    return true;
}

static void publish(struct watch *watch, enum watch_verdict verdict, const struct errmsg *why)
{
    struct errmsg note = {""};
    bool noted = has_note(watch, &note);

    pthread_mutex_lock(&watch->mutex);
    bool news = watch->state.verdict != verdict ||
                watch->state.deadline.boot_ns != watch->lease.deadline.boot_ns;
    if (watch->state.verdict != WATCH_LOST) {
        watch->state.verdict = verdict;
        watch->state.deadline = watch->lease.deadline;
        watch->state.set = watch->lease.set;
        watch->state.end_ms = watch->lease.end_ms;
        watch->state.why = *why;
    }
    if (noted) {
        watch->state.note = note;
        watch->state.notes++;
    }
    pthread_mutex_unlock(&watch->mutex);
    if (news || noted)
        tell(watch->news_fd);
}

/* The grace period of the lease as it was last set. */
static struct duration grace_of(const struct watch *watch)
{
    return lease_grace(watch->lease.set, watch->grace);
}

/* When the watch thread asks the store for the last time before the command is stopped. This time
 * moves if the lease changes. */
static struct deadline stop_time(const struct watch *watch)
{
    return deadline_minus(watch->lease.deadline, grace_of(watch));
}

static struct deadline beat_due(const struct watch *watch)
{
    return deadline_plus(watch->extended, beat_interval(watch->lease.ttl));
}

static void take_beat(struct watch *watch)
{
    uint64_t count;
    watch->beat |= read(watch->beat_fd, &count, sizeof count) == (ssize_t)sizeof count;
}

/* Waits until `until`, or until news_fd (-1: none) is readable, an extension is due after a
 * heartbeat, or the thread must quit. *told says whether news_fd is readable. False if the thread
 * must quit, or the main thread has taken the backend. */
static bool wait_until(struct watch *watch, struct deadline until, int news_fd, bool *told)
{
    for (;;) {
        struct deadline next = watch->beat ? deadline_earlier(until, beat_due(watch)) : until;
        struct pollfd fds[3] = {
            {.fd = watch->quit_fd, .events = POLLIN},
            {.fd = news_fd, .events = POLLIN},
            {.fd = watch->beat ? -1 : watch->beat_fd, .events = POLLIN},
        };
        int asleep = WATCH_ASLEEP;
        atomic_store(&watch->owner, WATCH_ASLEEP);
        int ready = poll(fds, 3, deadline_poll_ms(next));
        if (!atomic_compare_exchange_strong(&watch->owner, &asleep, WATCH_BUSY))
            return false;
        if (atomic_load(&watch->quit) || (ready > 0 && fds[0].revents != 0))
            return false;
        if (ready < 0 && errno == EINTR)
            continue;
        *told = ready > 0 && fds[1].revents != 0;
        if (*told || ready <= 0)
            return true;
        take_beat(watch);
    }
}

/* Waits until the next check of the lock is due: at `until`, or when the store reports a change. In
 * the latter case, waits at least news_interval after the last check. Returns false when
 * wait_until() does. */
static bool pause_until(struct watch *watch, struct deadline until)
{
    struct deadline soonest = deadline_after(news_interval);
    struct news news = watch->backend->news(watch->backend);
    bool told = news.due;

    if (news.by.boot_ns > 0)
        until = deadline_earlier(until, news.by);
    /* If the backend has no descriptor now, quit_fd replaces the old copy in store_fd. Otherwise
     * the copy would keep open a descriptor that the backend has closed. */
    bool copied = dup3(news.fd >= 0 ? news.fd : watch->quit_fd, watch->store_fd, O_CLOEXEC) >= 0;
    if (!told && !wait_until(watch, until, copied ? watch->store_fd : -1, &told))
        return false;
    return !told || wait_until(watch, deadline_earlier(until, soonest), -1, &told);
}

/* Checks the lock in the store or, if the command has sent a heartbeat, extends the lease. */
static enum lock_result ask(struct watch *watch, bool last, struct bound bound, struct errmsg *why)
{
    struct backend *backend = watch->backend;

    take_beat(watch);
    /* A heartbeat that was sent in time counts, even if the main thread has not read it yet. */
    if (last && watch->heartbeat->fd >= 0)
        watch->beat |= watchdog_read(watch->heartbeat, watch->notify);
    if (!watch->beat || (!last && !deadline_passed(beat_due(watch))))
        return backend->check(backend, &watch->lease, bound, why);
    enum lock_result result = backend->extend(backend, &watch->lease, EXTEND_AT_LEAST, bound, why);
    watch->extended = deadline_now();
    watch->beat = result != LOCK_OK;
    return result;
}

/* Checks the lock once, which takes at most `most`. Returns when the next check is due, at most
 * `most` from now, or DEADLINE_NEVER if no further check is needed. Checks after the time at which
 * the command must be stopped do not prevent the stop: the main thread has already begun it, or has
 * warned that the command runs on (--on-expire=warn). */
static struct deadline look(struct watch *watch, struct duration most)
{
    struct errmsg why = {""};
    struct deadline until = stop_time(watch);
    enum watch_verdict verdict = WATCH_HELD;
    bool last = deadline_passed(until);

    if (last)
        until = watch_last_answer(watch->lease.deadline, grace_of(watch));
    if (last && deadline_passed(until)) /* with --on-expire=warn the checks continue */
        until = watch->lease.deadline;
    enum lock_result result =
        ask(watch, last, bound_within((struct bound){until, watch->quit_fd}, most), &why);
    if (lock_is_lost(result))
        verdict = WATCH_LOST;
    else if (result == LOCK_RELEASED)
        verdict = WATCH_RELEASED;
    else if (last && deadline_passed(stop_time(watch)))
        verdict = WATCH_ENDING;
    publish(watch, verdict, &why);

    if (lock_is_past(result) || result == LOCK_CANCELLED)
        return DEADLINE_NEVER;
    struct duration interval = result == LOCK_OK ? look_interval(watch) : retry_interval;
    struct deadline next = deadline_after(duration_min(interval, most));
    return verdict == WATCH_ENDING ? next : deadline_earlier(next, stop_time(watch));
}

static void *watch_until_over(void *data)
{
    struct watch *watch = data;

    (void)watch->backend->news(watch->backend); /* from here on, the store reports changes */
    while (!deadline_passed(watch->lease.deadline)) {
        struct deadline next = look(watch, DURATION_FOREVER);
        if (next.boot_ns == INT64_MAX || !pause_until(watch, next))
            break;
    }
    return NULL;
}

struct deadline watch_look_alone(struct watch *watch)
{
    if (deadline_passed(watch->lease.deadline))
        return DEADLINE_NEVER;
    return look(watch, alone_interval);
}

enum lock_result watch_open(struct watch *watch, struct errmsg *why)
{
    bool beats = watch->heartbeat->fd >= 0;
    watch->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch->quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch->store_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); /* pause_until() replaces it */
    watch->beat_fd = beats ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    watch->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    watch->state = (struct watch_state){
        .verdict = WATCH_HELD,
        .deadline = watch->lease.deadline,
        .set = watch->lease.set,
        .end_ms = watch->lease.end_ms,
    };
    if (watch->news_fd >= 0 && watch->quit_fd >= 0 && watch->store_fd >= 0 &&
        (watch->beat_fd >= 0 || !beats))
        return LOCK_OK;
    errmsg_set(why, "cannot prepare to watch the lease: %s", strerror(errno));
    watch_close(watch);
    return LOCK_SYSTEM;
}

static void end_thread(struct watch *watch)
{
    if (!watch->runs)
        return;
    atomic_store(&watch->quit, true); /* in case the thread's poll(2) of quit_fd fails */
    tell(watch->quit_fd);
    pthread_join(watch->thread, NULL);
    watch->runs = false;
}

void watch_close(struct watch *watch)
{
    end_thread(watch);
    fd_close(&watch->news_fd);
    fd_close(&watch->quit_fd);
    fd_close(&watch->store_fd);
    fd_close(&watch->beat_fd);
}

enum lock_result watch_start(struct watch *watch, struct errmsg *why)
{
    atomic_store(&watch->owner, WATCH_BUSY);
    int error = thread_start(&watch->thread, watch_until_over, watch);
    watch->runs = error == 0;
    if (watch->runs)
        return LOCK_OK;
    atomic_store(&watch->owner, WATCH_TAKEN);
    errmsg_set(why, "cannot start the thread that watches the lease: %s", strerror(error));
    return LOCK_SYSTEM;
}

void watch_beat(const struct watch *watch)
{
    tell(watch->beat_fd);
}

struct watch_state watch_read(struct watch *watch)
{
    uint64_t count;
    (void)!read(watch->news_fd, &count,
                sizeof count); /* EAGAIN: there is no news, and the old state is still valid */
    pthread_mutex_lock(&watch->mutex);
    struct watch_state state = watch->state;
    pthread_mutex_unlock(&watch->mutex);
    return state;
}

struct watch_state watch_take(struct watch *watch)
{
    int asleep = WATCH_ASLEEP;

    if (!atomic_compare_exchange_strong(&watch->owner, &asleep, WATCH_TAKEN))
        end_thread(watch);
    return watch->state;
}
