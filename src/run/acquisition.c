/* A waiter requests the lock again when the store sends a notification, or when a change that the
 * store announced is due. A notification may be lost on its way, so the waiter also requests the
 * lock at growing intervals with jitter.
 *
 * A waiter does not miss a notification that arrives, even if it arrives just before the waiter
 * falls asleep: the store's descriptor (struct call) stays readable until listen() reads the
 * notification, and each pause starts with listen(). */
#include "run/acquisition.h"
#include "run/outer.h"
#include "run/retry.h"
#include "ui/lock_print.h"
#include "ui/run_times.h"
#include "ui/wait_text.h"
#include "util/clock.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long dlock tries to release a lock that it may have acquired without knowing it, and how long
 * it tries to leave a queue. If dlock cannot leave the queue, the store eventually notices that the
 * waiter is gone. */
static const struct duration abandon_limit = {1 * NS_PER_S}, leave_limit = {200 * NS_PER_MS};

/* How long dlock -n waits for a guard of --attach (the process that holds the lock of a script) to
 * release that lock when the script has ended. The guard and the parent of the script see the
 * script end at the same time, and the parent may start the next script before the guard has
 * released the lock. */
static const struct duration guard_limit = {500 * NS_PER_MS};

/* Limits the requests that follow notifications, because other processes can cause notifications as
 * often as they like. On average, such requests are at least notice_interval apart. In a burst,
 * requests may come earlier than this average allows, but by notice_burst at most. */
static const struct duration notice_interval = {10 * NS_PER_MS}, notice_burst = {1 * NS_PER_S};

/* How long dlock keeps trying to release a lock. After that, the lock stays held until its lease
 * ends. No attempt starts in the last release_interval of this time: the server would have too
 * little time to answer, and dlock would report the missing answer instead of the error that the
 * server reported in an earlier attempt. */
static const struct duration release_limit = {5 * NS_PER_S}, release_interval = {200 * NS_PER_MS};

/* Limits for a release after the end of the lease, when the release matters little because the lock
 * has expired. After under_way_limit, dlock gives up the attempt that is under way and makes one
 * more over another connection. After once_more_limit, dlock gives up that attempt too. */
static const struct duration under_way_limit = {500 * NS_PER_MS}, once_more_limit = {1 * NS_PER_S};

/* --- opening and closing --------------------------------------------------- */

bool acquisition_open(struct acquisition *lock, const char *owner, const char *command, pid_t pid,
                      int *status)
{
    struct errmsg why = {""};

    if (!signals_open(&lock->signals, &why)) {
        *status = fail(lock->out, FAIL_SYSTEM, STATUS_SYSTEM, "%s; %s", why.text, lock->undone);
        return false;
    }
    lock->cancel_fd = lock->signals.fd;
    lock->out->key = lock->request.key = lock->key;
    token_make(lock->take_id);
    snprintf(lock->token, sizeof lock->token, "%s", owner != NULL ? owner : lock->take_id);
    lock->request.token = lock->token;
    lock->request.take_id = lock->take_id;
    holder_fill(&lock->request.self, pid, command);
    return true;
}

int acquisition_close(struct acquisition *lock, int status)
{
    if (lock->backend != NULL)
        lock->backend->close(lock->backend);
    lock->backend = NULL;
    lock->out->key = NULL;
    free(lock->where);
    lock->where = NULL;
    free(lock->ancestors.list);
    lock->ancestors = (struct pids){0};
    return lock->ended_by != 0 ? signals_die_by(lock->ended_by) : status;
}

struct wait {
    struct acquisition *lock;
    struct lock_request request; /* a copy of lock->request; `waits`, `waited` and `last` may change
                                  * with each try */
    bool waits;                  /* false: -n */
    struct retries tries;        /* tries.end is the end of the wait */
    struct deadline start;
    struct deadline tried;    /* when this try started */
    struct duration interval; /* between requests for a lock that is held */
    struct deadline heeded;   /* a token bucket: each request after a notification moves this time
                               * forward by notice_interval */
    bool uncalled;            /* dlock has reported that the store cannot notify it */
    /* Results: */
    struct holder holder; /* set on LOCK_HELD */
    struct errmsg why;
};

/* --- a lock around this one ------------------------------------------------ */

void acquisition_found_outer(struct acquisition *lock, enum lock_mode mode, int slots)
{
    const struct lock_request *request = &lock->request;
    bool covers = mode == MODE_EXCLUSIVE ? request->mode != MODE_SLOTS
                                         : mode == request->mode && slots == request->slots;
    lock->outer = covers ? OUTER_COVERS : OUTER_CONFLICTS;
}

bool acquisition_is_for_us(const struct acquisition *lock)
{
    pid_t pid = lock->request.self.pid;
    return pid == getpid() || pid == getppid();
}

/* True if this process runs under the holder's lock. The holder is then an ancestor, or this
 * process itself: a script that holds a lock may replace itself with dlock (exec dlock).
 *
 * False if this process is the holder only because the store granted an earlier request too late,
 * and dlock's release of that lease (gave_back) did not reach the store. In that case, dlock must
 * wait until the lease ends. gave_back is enough to recognize this case: the store would not have
 * granted the request if this process had held the lock before, as a script. */
static bool is_ancestor(struct acquisition *lock, const struct holder *holder)
{
    const struct holder *self = &lock->request.self;
    struct pids *ancestors = &lock->ancestors;

    /* The list may be out of date: an ancestor may have ended, but a process never gets a new
     * ancestor. So the list can only prove that a process is not an ancestor. */
    if (ancestors->count == 0 && !proc_list_ancestors(self->pid, ancestors))
        ancestors->count = 0; /* the ancestors are listed again at the next refusal */
    if (ancestors->count > 0 && !pids_has(ancestors, holder->pid))
        return false;
    return outer_is_process(holder, self) && !(lock->gave_back && holder_is_process(holder, self));
}

/* Looks for locks of ancestors (outer locks) that a refusal does not show: a lock that is attached
 * to an ancestor, or a shared lock or a slot that an ancestor holds (a refusal names only one of
 * several holders). Searches only once, because the search takes time: it reads a directory and
 * asks the store. */
static void search_outer(struct acquisition *lock)
{
    struct backend *backend = lock->backend;
    struct bound bound = {deadline_after(OUTER_LIMIT), lock->cancel_fd};
    struct lease outer = {0};
    struct lock_state state;
    struct errmsg ignored = {""};

    if (lock->searched)
        return;
    lock->searched = true;
    if (acquisition_is_for_us(lock) &&
        outer_is_attached(backend, lock->lock_dir, lock->key, &outer, bound)) {
        acquisition_found_outer(lock, outer.mode, outer.slots);
        return;
    }
    if (!outer_has_dlock(lock->request.self.pid) ||
        backend->look(backend, lock->key, &state, bound, &ignored) != LOCK_OK)
        return;
    for (size_t i = 0; i < state.owner_count && lock->outer == OUTER_NONE; i++)
        if (is_ancestor(lock, &state.owners[i].holder))
            acquisition_found_outer(lock, state.mode, state.slots);
    lock_state_free(&state);
}

/* True if an ancestor holds the lock. A wait for the lock would then never end, because the
 * ancestor waits for this process to end. */
static bool is_held_by_ancestor(struct acquisition *lock, const struct holder *holder)
{
    bool covers = !holder->shares, conflicts = lock->request.mode == MODE_EXCLUSIVE;

    if (holder->shares || (!holder->known && holder->refusal != REFUSED_QUEUED))
        search_outer(lock);
    if (lock->outer == OUTER_NONE && (covers || conflicts) && is_ancestor(lock, holder))
        acquisition_found_outer(lock, covers ? MODE_EXCLUSIVE : MODE_SHARED, 0);
    return lock->outer != OUTER_NONE;
}

/* --- waiting for the holder ------------------------------------------------ */

/* Pauses until it makes sense to request the lock again. Returns LOCK_OK or LOCK_CANCELLED. */
static enum lock_result pause_for_call(struct wait *wait)
{
    struct backend *backend = wait->lock->backend;
    struct progress *view = &wait->lock->view;
    struct call call = backend->listen(backend);

    if (call.cannot != NULL && !wait->uncalled)
        progress_say_uncalled(view, call.cannot);
    wait->uncalled |= call.cannot != NULL;
    /* A store that sends notifications is polled only in case a notification is lost. */
    if (call.fd >= 0 && call.cannot == NULL)
        wait->interval = call.poll_most;
    wait->interval = duration_min(wait->interval, call.poll_most);
    struct deadline poll =
        deadline_earlier(deadline_after(duration_jittered(wait->interval)), wait->tries.end);
    struct deadline shown = deadline_now();
    wait->interval = duration_doubled(wait->interval, call.poll_most);

    bool noticed = false;
    for (enum lock_result result = LOCK_OK; result == LOCK_OK; call = backend->listen(backend)) {
        struct deadline next = deadline_earlier(poll, call.by), heeded = wait->heeded;
        noticed |= call.now;
        if (noticed)
            next = deadline_earlier(next, deadline_minus(heeded, notice_burst));
        if (noticed && deadline_passed(next))
            wait->heeded =
                deadline_plus(deadline_passed(heeded) ? deadline_now() : heeded, notice_interval);
        if (deadline_passed(next))
            return LOCK_OK;
        if (deadline_passed(shown))
            shown = progress_show(view, &wait->holder, NULL, DEADLINE_NEVER);
        result = retries_sleep(&wait->tries, noticed ? -1 : call.fd, deadline_earlier(next, shown));
    }
    return LOCK_CANCELLED;
}

/* True if this try started after the end of the wait. */
static bool is_over(const struct wait *wait)
{
    return !deadline_before(wait->tried, wait->tries.end);
}

/* True if dlock -n must request the lock again, this time as a waiter, because a guard of --attach
 * (the process that holds the lock of a script) may be about to release the lock:
 *   the holder has ended -> dlock waits for its guard, for guard_limit at most
 *   the holder of a --lock-file is unknown, and some script has ended whose guard has not released
 *     its lock yet -> dlock waits for that guard in the same way
 *   the holder of a --lock-file is unknown, and there is no such guard -> dlock requests the lock
 *     only once more, because a guard may just have released it */
static bool wait_for_guard(struct wait *wait)
{
    const struct holder *holder = &wait->holder;
    bool ended = holder_life_held(holder) == PROCESS_ENDED;
    bool unknown = !holder->known && wait->lock->backend->lock_file != NULL;

    if (wait->request.waits || holder->shares || holder->pause.left.ns > 0 || !(ended || unknown))
        return false;
    wait->request.waits = true;
    wait->tries.end = ended || outer_is_ending(wait->lock->lock_dir) ? deadline_after(guard_limit)
                                                                     : deadline_now();
    return true;
}

/* Called if another process holds the lock. Returns LOCK_OK when it is time to request the lock
 * again, LOCK_HELD if the wait is over, or LOCK_CANCELLED. */
static enum lock_result wait_for_holder(struct wait *wait)
{
    if (is_held_by_ancestor(wait->lock, &wait->holder) || wait->holder.refusal == REFUSED_DONE)
        return LOCK_HELD;
    if (is_over(wait))
        return wait_for_guard(wait) ? LOCK_OK : LOCK_HELD;
    return pause_for_call(wait);
}

/* --- taking ---------------------------------------------------------------- */

/* Tries for at most `limit` to release a lock under which nothing was run. Ignores
 * --hold-at-least. */
static enum lock_result give_up(struct backend *backend, struct lease *lease, struct duration limit)
{
    struct errmsg ignored;
    lease->hold = deadline_now();
    return backend->release(backend, lease, (struct bound){deadline_after(limit), -1}, &ignored);
}

/* Releases the lock if a request was not answered, because that request may have succeeded. Also
 * leaves the queue, so that later waiters do not wait for this one. */
static void abandon(struct wait *wait, enum lock_result result)
{
    struct backend *backend = wait->lock->backend;
    struct lease maybe;
    bool uncertain = backend->uncertain;

    if (!uncertain && !backend->queued)
        return;
    lease_begin(&maybe, &wait->lock->request, deadline_now(), 0);
    enum lock_result released = give_up(backend, &maybe, uncertain ? abandon_limit : leave_limit);
    if (uncertain && result == LOCK_SYSTEM &&
        (released == LOCK_UNAVAILABLE || released == LOCK_SYSTEM)) {
        struct errmsg before = wait->why;
        errmsg_set(&wait->why,
                   "%.400s; the lock may still have been acquired; if so, it stays held until its "
                   "lease ends",
                   before.text);
    }
}

/* Requests the lock once. If the answer took so long that the lease is almost over, releases the
 * lock and makes a new take id, which tells the store that the next request is not a repetition of
 * this one. */
static enum lock_result take(void *data, struct bound bound, struct errmsg *why)
{
    struct wait *wait = data;
    struct acquisition *lock = wait->lock;
    struct backend *backend = lock->backend;

    wait->tried = deadline_now();
    /* dlock -n requests the lock again only to wait for a guard (wait_for_guard()). The store has
     * already counted the first request as refused, and must not count another one. */
    wait->request.last = is_over(wait) && wait->request.waits == wait->waits;
    if (wait->request.waits) /* with -n, the time went by before the store answered */
        wait->request.waited = deadline_gap(wait->start, wait->tried);
    enum lock_result result =
        backend->take(backend, &wait->request, &lock->lease, &wait->holder, bound, why);
    if (result != LOCK_OK || !lease_as_good_as_over(&lock->lease))
        return result;

    (void)give_up(backend, &lock->lease, abandon_limit);
    lock->gave_back = true;
    token_make(lock->take_id);
    /* If the first try outlasted the lease, this process was frozen or slow, and the store was not
     * down. So the time for further tries starts only now. */
    if (wait->tries.count == 1)
        wait->tries.since = deadline_now();
    return errmsg_fail(why, LOCK_UNAVAILABLE,
                       "the lock was acquired, but its lease ended before the answer arrived");
}

/* Waits for the lock in this store. Returns a result of the backend's take(); LOCK_HELD means that
 * the time to wait has run out, or that the wait would never end. If the result is not LOCK_OK,
 * dlock has left the queue and released any lock that it may have acquired, unless the store could
 * not be reached. */
static enum lock_result wait_in_store(struct wait *wait)
{
    struct acquisition *lock = wait->lock;
    enum lock_result result;

    wait->interval = lock->backend->poll_least;
    wait->request.waits = wait->waits;
    wait->tries.end = lock->waits_forever ? DEADLINE_NEVER : deadline_plus(wait->start, lock->wait);
    if (wait->waits) /* the only try of -n has no time limit */
        wait->tries.limit = wait->tries.end;
    for (bool again = true; again;) {
        result = retry(&wait->tries, take, wait, &wait->why);
        if (result != LOCK_HELD)
            break;
        enum lock_result pause = wait_for_holder(wait);
        again = pause == LOCK_OK;
        if (pause == LOCK_CANCELLED)
            result = LOCK_CANCELLED;
    }
    lock->waited = lock->out->waited = deadline_gap(wait->start, deadline_now());
    if (result != LOCK_OK)
        abandon(wait, result);
    progress_hide(&lock->view);
    if (lock->backend->warning != NULL)
        say_warning(lock->out, "%s", lock->backend->warning);
    return result;
}

/* --- all together ---------------------------------------------------------- */

/* Writes why the lock could not be acquired. Returns text. */
static const char *refusal_format(const struct holder *holder, int slots, char *text, size_t size)
{
    char who[HOLDER_TEXT_SIZE], left[DURATION_TEXT_SIZE] = "", usual[RUN_TIMES_SIZE];
    const struct estimate estimate = holder_estimate(holder, &holder->typical);
    bool known = holder->known && holder->refusal != REFUSED_QUEUED;
    const char *until = "", *why = "";

    if (holder->pause.left.ns > 0)
        return text_copy(text, size, pause_format(&holder->pause, who));
    if (holder->expires && holder->refusal != REFUSED_QUEUED) {
        until = holder->kept ? " for another " : ", lease ends in ";
        why = holder->kept ? " (--hold-at-least)" : "";
        duration_rounded(holder->left, left, sizeof left);
    }
    estimate_format(&estimate, &holder->typical, holder->ahead, usual);
    snprintf(text, size, "%s%s%s%s%s%s%s%s",
             holder_refusal_format(holder, slots, holder_life_held(holder), who), until, left, why,
             usual[0] != '\0' ? "; " : "", usual,
             known && holder->message[0] != '\0' ? "; message: " : "",
             known ? holder->message : "");
    return text;
}

static int refused(const struct wait *wait)
{
    const struct acquisition *lock = wait->lock;
    const struct holder *holder = &wait->holder;
    char time[DURATION_TEXT_SIZE] = "", who[2 * HOLDER_TEXT_SIZE], once[DURATION_TEXT_SIZE];
    enum failure failure = wait->waits ? FAIL_TIMEOUT : FAIL_HELD;

    if (holder->refusal == REFUSED_DONE) {
        int64_t ago = wall_now_ms() - holder->since_wall_ms;
        duration_rounded((struct duration){(ago > 0 ? ago : 0) * NS_PER_MS}, time, sizeof time);
        duration_format(lock->request.once_per, once, sizeof once);
        return fail(lock->out, FAIL_DONE, lock->conflict_status,
                    "already done: the last success started %s ago on %s (--once-per=%s); %s", time,
                    holder->host, once, lock->undone);
    }
    if (wait->waits)
        duration_rounded(lock->waited, time, sizeof time);
    return fail(lock->out, holder->pause.left.ns > 0 ? FAIL_PAUSED : failure, lock->conflict_status,
                "%s%s%s%s", wait->waits ? "gave up after " : "", time, wait->waits ? ": " : "",
                refusal_format(holder, lock->request.slots, who, sizeof who));
}

static int not_taken(const struct wait *wait, enum lock_result result)
{
    struct acquisition *lock = wait->lock;
    const struct messages *out = lock->out;
    char tried[TRIED_TEXT_SIZE];

    if (lock->outer == OUTER_CONFLICTS)
        return fail(out, FAIL_ARGUMENT, STATUS_USAGE,
                    "an enclosing dlock holds the lock in another mode; waiting would deadlock; %s",
                    lock->undone);
    if (result == LOCK_HELD)
        return refused(wait);
    if (result == LOCK_CANCELLED) {
        lock->ended_by = signals_ended_by(&lock->signals);
        if (lock->ended_by != 0)
            return STATUS_SIGNAL_BASE + lock->ended_by;
        return fail(out, FAIL_ARGUMENT, STATUS_USAGE,
                    "process %ld ended before the lock was acquired for it; %s",
                    (long)lock->request.self.pid, lock->undone);
    }
    if (result == LOCK_UNAVAILABLE)
        return fail(out, FAIL_UNAVAILABLE, STATUS_UNAVAILABLE, "%s; %s; %s", wait->why.text,
                    tried_format(&wait->tries, tried), lock->undone);
    return fail(out, failure_of(result), (int)status_of(result), "%s; %s", wait->why.text,
                lock->undone);
}

static void say_taken(const struct acquisition *lock)
{
    const struct backend *backend = lock->backend;
    char until[40], time[DURATION_TEXT_SIZE];

    if (lock->out->verbosity < 1)
        return;
    wall_format_local(wall_at_ms(lock->lease.deadline), until, sizeof until);
    say_verbose(lock->out, "acquired (%s, fence %" PRId64 "%s%s) after %s; the lease ends at %s",
                backend->kind, lock->lease.fence, backend->note != NULL ? ", " : "",
                backend->note != NULL ? backend->note : "",
                duration_rounded(lock->waited, time, sizeof time), until);
}

/* Opens the file store of --fallback, and warns the user. False: the failure has been reported. */
static bool fall_back(struct acquisition *lock, const struct errmsg *outage, int *status)
{
    struct errmsg why = {""};

    lock->backend->close(lock->backend);
    lock->backend = NULL;
    lock->searched = false; /* dlock has not searched the new store yet */
    enum lock_result result = lock->open_fallback(&lock->backend, lock->lock_dir, &why);
    if (result != LOCK_OK) {
        *status = fail_result(lock->out, result, &why);
        return false;
    }
    lock->kind = lock->backend->kind;
    say_warning(lock->out,
                "Redis is unreachable (%s); using a file lock instead, which holds on this host "
                "only (--fallback=file)",
                outage->text);
    return true;
}

bool acquisition_take(struct acquisition *lock, int *status)
{
    struct wait wait = {
        .lock = lock,
        .waits = lock->waits_forever || lock->wait.ns > 0,
        .tries = retries_for(lock->retry_for, lock->cancel_fd),
        .start = deadline_now(),
    };

    /* If an ancestor shares the lock or has a slot, the store would also grant the lock to this
     * process. So dlock searches for such an ancestor before it requests a shared lock or a slot.
     * An exclusive request would be refused, so dlock searches only after the refusal. */
    if (lock->outer == OUTER_NONE && lock->request.mode != MODE_EXCLUSIVE)
        search_outer(lock);
    if (lock->outer == OUTER_CONFLICTS)
        *status = not_taken(&wait, LOCK_HELD);
    if (lock->outer != OUTER_NONE)
        return lock->outer == OUTER_COVERS;

    progress_open(&lock->view, &lock->awaited, wait.waits, lock->out);
    wait.request = lock->request;
    wait.request.attended = progress_attended(&lock->view);
    wait.tries.view = &lock->view;

    enum lock_result result = wait_in_store(&wait);
    if (result == LOCK_UNAVAILABLE && lock->open_fallback != NULL &&
        strcmp(lock->backend->kind, "redis") == 0) {
        if (!fall_back(lock, &wait.why, status)) {
            retries_close(&wait.tries);
            return false;
        }
        result = wait_in_store(&wait);
    }
    retries_close(&wait.tries);
    if (lock->outer == OUTER_COVERS)
        return true;
    if (result == LOCK_OK)
        say_taken(lock);
    else
        *status = not_taken(&wait, result);
    return result == LOCK_OK;
}

/* --- releasing ----------------------------------------------------------- */

struct release {
    struct acquisition *lock;
    struct retries tries;
    struct deadline limit;
    struct errmsg failure; /* why the last unsuccessful try failed */
};

/* Makes one try to release the lock. acquisition_release() has discarded all earlier signals,
 * because they were meant for the command. If a signal comes during the release, its sender does
 * not want to wait for a store that is down:
 *   the signal comes between two tries -> dlock makes no further try
 *   the signal comes during a try -> dlock gives up the try, because the server hangs. But the
 *     answer may be on its way, so dlock makes one more try, over another connection, for
 *     under_way_limit at most
 *   in both cases -> the lock lasts until its lease ends, unless one of the tries has released it
 *
 * What a try may find at the end of the lease:
 *   the lock is gone, and the lease has not ended -> the lock was lost
 *   the lease has ended by the store's clock, but not by this host's clock -> the store's clock is
 *     ahead, and others could acquire the lock while the command ran: the lock was lost
 *   the lease ended by both clocks before the release arrived -> the lock was not lost, and the
 *     result is LOCK_ENDED. But if an earlier try failed, that failure is why the lock was not
 *     released, and the result is LOCK_UNAVAILABLE
 *   the server hangs until this process has ended -> the server still carries out the last try
 *     later, and so remembers the run */
static enum lock_result release_once(void *data, struct bound bound, struct errmsg *why)
{
    struct release *release = data;
    struct backend *backend = release->lock->backend;
    const struct lease *lease = &release->lock->lease;
    struct deadline end = lease->deadline;
    bool last = deadline_passed(end);

    bound.until = release->limit;
    if (!last)
        bound.until = deadline_earlier(release->limit, deadline_plus(end, under_way_limit));
    enum lock_result result = backend->release(backend, lease, bound, why);
    if (result == LOCK_CANCELLED) {
        last = true;
        bound.until = deadline_earlier(release->limit, deadline_after(under_way_limit));
        bound.cancel_fd = -1;
        result = backend->release(backend, lease, bound, why);
    }

    if (result == LOCK_ENDED && !deadline_passed(end))
        return LOCK_GONE;
    if (result == LOCK_ENDED && release->failure.text[0] != '\0')
        *why = release->failure;
    else if (result != LOCK_UNAVAILABLE && result != LOCK_SYSTEM)
        return result;
    release->failure = *why;
    if (last || result == LOCK_ENDED)
        release->tries.end = deadline_now();
    return LOCK_UNAVAILABLE;
}

enum lock_result acquisition_release(struct acquisition *lock, struct errmsg *why)
{
    struct deadline late =
        deadline_plus(deadline_after(deadline_left(lock->lease.deadline)), once_more_limit);
    struct release release = {
        .lock = lock,
        .tries = retries_for(release_limit, lock->signals.fd),
        .limit = deadline_earlier(deadline_after(release_limit), late),
    };

    release.tries.end = deadline_minus(release.limit, release_interval);
    release.tries.pause = release.tries.pause_most = release_interval;
    signals_narrow(&lock->signals);
    (void)signals_ended_by(&lock->signals);
    enum lock_result result = retry(&release.tries, release_once, &release, why);
    retries_close(&release.tries);
    return result == LOCK_CANCELLED ? LOCK_UNAVAILABLE : result;
}

static void warn_of_release(const struct acquisition *lock, const struct errmsg *why)
{
    const struct lease *lease = &lock->lease;
    bool ended = deadline_passed(lease->deadline);
    const char *run = "";

    if (lease->end.how != RUN_NONE && lease->remember.ns > 0)
        run = ended ? "; the run might not be recorded" : "; the run was not recorded";
    say_warning(lock->out, "the lock could not be released: %s; %s%s", why->text,
                ended ? "its lease has ended" : "the lock stays held until its lease ends", run);
}

void acquisition_say_released(const struct acquisition *lock, enum lock_result result,
                              const struct errmsg *why)
{
    const struct messages *out = lock->out;
    const struct backend *backend = lock->backend;
    char rest[DURATION_TEXT_SIZE], held[DURATION_TEXT_SIZE];
    struct deadline now = deadline_now(), hold = lock->lease.hold;

    if (lock_is_past(result))
        say_verbose(out, "nothing to release: %s", why->text);
    else if (result != LOCK_OK)
        warn_of_release(lock, why);
    if (result != LOCK_OK)
        return;

    duration_rounded(deadline_gap(lock->lease.taken, now), held, sizeof held);
    if (deadline_before(now, hold))
        say_verbose(out, "released after %s, but kept for another %s (--hold-at-least)", held,
                    duration_rounded(deadline_gap(now, hold), rest, sizeof rest));
    else
        say_verbose(out, "released after %s", held);
    if (backend->warning != NULL)
        say_warning(out, "the lock was released, but the run was not recorded: %s",
                    backend->warning);
    if (backend->note != NULL)
        say_verbose(out, "%s", backend->note);
}

int acquisition_give_back(struct acquisition *lock, enum failure failure, int status,
                          const char *text)
{
    struct errmsg why = {""};

    lock->lease.hold = deadline_now();
    acquisition_say_released(lock, acquisition_release(lock, &why), &why);
    return fail(lock->out, failure, status, "%s; %s", text, lock->undone);
}
