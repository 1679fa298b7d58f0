#include "run/acquisition.h"

#include "run/nesting.h"
#include "run/wait.h"
#include "store/file/backend.h"
#include "ui/lock_print.h"
#include "ui/wait_text.h"
#include "util/clock.h"
#include "util/text.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long to retry a release; after that the lease expires by itself. No try begins in the last
 * interval: there is too little time left for an answer, and a server that has just said why it
 * cannot release the lock would be reported as one that did not answer. */
static const struct duration release_limit = {5 * NS_PER_S}, release_interval = {200 * NS_PER_MS};

/* Once the lease has ended, little is left to be released. The try that is under way is given up
 * after the first of these, and another one, over another connection, after the second. */
static const struct duration under_way_limit = {500 * NS_PER_MS}, once_more_limit = {1 * NS_PER_S};

bool acquisition_open(struct acquisition *acquisition, const char *owner, const char *command,
                      pid_t pid, int *status)
{
    struct errmsg why = {""};
    if (!signals_open(&acquisition->signals, &why)) {
        *status = fail(acquisition->out, FAIL_SYSTEM, STATUS_SYSTEM, "%s; %s", why.text,
                       acquisition->undone);
        return false;
    }
    acquisition->cancel_fd = acquisition->signals.fd;
    acquisition->out->key = acquisition->request.key = acquisition->key;
    token_make(acquisition->take_id);
    snprintf(acquisition->token, sizeof acquisition->token, "%s",
             owner != NULL ? owner : acquisition->take_id);
    acquisition->request.token = acquisition->token;
    acquisition->request.take_id = acquisition->take_id;
    holder_fill(&acquisition->request.self, pid, command);
    return true;
}

int acquisition_close(struct acquisition *acquisition, int status)
{
    if (acquisition->backend != NULL)
        acquisition->backend->close(acquisition->backend);
    acquisition->backend = NULL;
    acquisition->out->key = NULL;
    free(acquisition->where);
    acquisition->where = NULL;
    return acquisition->ended_by != 0 ? signals_die_by(acquisition->ended_by) : status;
}

/* --- taking -------------------------------------------------------------- */

/* Why the lock could not be acquired. Returns text. */
static const char *refusal_format(const struct holder *holder, int slots, char *text, size_t size)
{
    char who[HOLDER_TEXT_SIZE], since[HOLDER_TEXT_SIZE] = "", left[DURATION_TEXT_SIZE] = "";
    if (holder->pause.left.ns > 0)
        return text_copy(text, size, pause_format(&holder->pause, who));
    bool expires = holder->expires && holder->refusal != REFUSED_QUEUED,
         known = holder->known && holder->refusal != REFUSED_QUEUED;
    if (expires)
        duration_rounded(holder->left, left, sizeof left);
    if (known)
        holder_since_format(holder, since);
    snprintf(text, size, "%s%s%s%s%s%s",
             holder_refusal_format(holder, slots, holder_life_held(holder), who), since,
             !expires       ? ""
             : holder->kept ? ", for another "
                            : ", whose lease ends in ",
             left, known && holder->message[0] != '\0' ? ": " : "", known ? holder->message : "");
    return text;
}

/* The last take was released again: the next one needs a new take id. */
static void take_anew(void *data)
{
    struct acquisition *acquisition = data;
    acquisition->gave_back = true;
    token_make(acquisition->take_id);
}

static int not_taken(struct acquisition *acquisition, enum lock_result result,
                     const struct holder *holder, const struct waited *waited,
                     const struct errmsg *why)
{
    const struct messages *out = acquisition->out;
    char time[DURATION_TEXT_SIZE], who[2 * HOLDER_TEXT_SIZE], tried[TRIED_TEXT_SIZE];
    if (acquisition->outer == OUTER_CONFLICTS)
        return fail(out, FAIL_ARGUMENT, STATUS_USAGE,
                    "the command that this runs in holds the lock in another mode, and the wait "
                    "would never end; %s",
                    acquisition->undone);
    if (result == LOCK_HELD && holder->refusal == REFUSED_DONE) {
        int64_t ago = wall_now_ms() - holder->since_wall_ms;
        duration_rounded((struct duration){(ago > 0 ? ago : 0) * NS_PER_MS}, time, sizeof time);
        return fail(out, FAIL_DONE, acquisition->conflict_status,
                    "the last success began %s ago on %s (--once-per); %s", time, holder->host,
                    acquisition->undone);
    }
    if (result == LOCK_HELD) {
        bool waits = acquisition->waits_forever || acquisition->wait.ns > 0;
        enum failure failure = holder->pause.left.ns > 0 ? FAIL_PAUSED
                               : waits                   ? FAIL_TIMEOUT
                                                         : FAIL_HELD;
        return fail(out, failure, acquisition->conflict_status, "%s%s%s",
                    refusal_format(holder, acquisition->request.slots, who, sizeof who),
                    waits ? "; not taken after " : "",
                    waits ? duration_rounded(waited->time, time, sizeof time) : "");
    }
    if (result == LOCK_CANCELLED) {
        acquisition->ended_by = signals_ended_by(&acquisition->signals);
        if (acquisition->ended_by != 0)
            return STATUS_SIGNAL_BASE + acquisition->ended_by;
        return fail(out, FAIL_ARGUMENT, STATUS_USAGE,
                    "process %ld, which the lock was for, has ended; %s",
                    (long)acquisition->request.self.pid, acquisition->undone);
    }
    if (result == LOCK_UNAVAILABLE)
        return fail(out, FAIL_UNAVAILABLE, STATUS_UNAVAILABLE, "%s; %s; %s", why->text,
                    tried_format(waited->tries, waited->outage, tried), acquisition->undone);
    return fail(out, failure_of(result), (int)status_of(result), "%s; %s", why->text,
                acquisition->undone);
}

void acquisition_found_outer(struct acquisition *acquisition, enum lock_mode mode, int slots)
{
    const struct lock_request *request = &acquisition->request;
    bool covers = mode == MODE_EXCLUSIVE ? request->mode != MODE_SLOTS
                                         : mode == request->mode && slots == request->slots;
    acquisition->outer = covers ? OUTER_COVERS : OUTER_CONFLICTS;
}

/* If the release of a take that came too late was lost, that take refuses us
 * until its lease ends. It is then a holder to wait for, not a lock that we run
 * under, since it would not have been granted inside of one. The time of the
 * take cannot tell the two apart, because clocks are set. */
static bool is_ancestor(const struct acquisition *acquisition, const struct holder *holder)
{
    const struct holder *self = &acquisition->request.self;
    return nested_by_ancestry(holder, self) &&
           !(acquisition->gave_back && holder_is_process(holder, self));
}

bool acquisition_is_for_us(const struct acquisition *acquisition)
{
    pid_t pid = acquisition->request.self.pid;
    return pid == getpid() || pid == getppid();
}

/* By what is attached to our callers, which is looked for only once, because it reads a
 * directory. */
static void look_for_attachment(struct acquisition *acquisition)
{
    struct lease outer = {0};
    struct bound bound = {deadline_after(NESTING_LIMIT), acquisition->cancel_fd};
    if (!acquisition_is_for_us(acquisition) || acquisition->searched)
        return;
    acquisition->searched = true;
    if (nested_by_attachment(acquisition->backend, acquisition->lock_dir, acquisition->key, &outer,
                             bound))
        acquisition_found_outer(acquisition, outer.mode, outer.slots);
}

/* If several share the lock, the refusal names one of them. */
static void look_for_ancestor(struct acquisition *acquisition)
{
    struct lock_state state;
    struct errmsg ignored = {""};
    struct bound bound = {deadline_after(NESTING_LIMIT), acquisition->cancel_fd};
    if (acquisition->looked)
        return;
    acquisition->looked = true;
    if (!nested_in_dlock(acquisition->request.self.pid))
        return;
    if (acquisition->backend->look(acquisition->backend, acquisition->key, &state, bound,
                                   &ignored) != LOCK_OK)
        return;
    for (size_t i = 0; i < state.owner_count; i++) {
        if (is_ancestor(acquisition, &state.owners[i].holder)) {
            acquisition_found_outer(acquisition, state.mode, state.slots);
            break;
        }
    }
    lock_state_free(&state);
}

static bool acquisition_held_by_ancestor(void *data, const struct holder *holder)
{
    struct acquisition *acquisition = data;
    bool covers = !holder->shares, conflicts = acquisition->request.mode == MODE_EXCLUSIVE;
    if (holder->shares)
        look_for_ancestor(acquisition);
    if (acquisition->outer == OUTER_NONE && (covers || conflicts) &&
        is_ancestor(acquisition, holder))
        acquisition_found_outer(acquisition, covers ? MODE_EXCLUSIVE : MODE_SHARED, 0);
    if (acquisition->outer == OUTER_NONE && (!holder->known || holder->shares) &&
        holder->refusal != REFUSED_QUEUED)
        look_for_attachment(acquisition);
    return acquisition->outer != OUTER_NONE;
}

/* Waits for what is left of --wait after `already`. */
static enum lock_result wait_on(struct acquisition *acquisition, struct duration already,
                                struct holder *holder, struct waited *waited, struct errmsg *why)
{
    struct duration wait = acquisition->wait;
    struct patience patience = {
        .forever = acquisition->waits_forever,
        .wait = {wait.ns > already.ns ? wait.ns - already.ns : 0},
        .outage = acquisition->outage,
        .view = &acquisition->view,
        .is_own = acquisition_held_by_ancestor,
        .take_anew = take_anew,
        .data = acquisition,
    };
    enum lock_result result =
        wait_for_lock(acquisition->backend, &acquisition->request, &patience,
                      acquisition->cancel_fd, &acquisition->lease, holder, waited, why);
    progress_hide(&acquisition->view);
    if (acquisition->backend->warning != NULL)
        say_warning(acquisition->out, "%s", acquisition->backend->warning);
    return result;
}

static void say_taken(const struct acquisition *acquisition, const char *time)
{
    const struct backend *backend = acquisition->backend;
    char until[40];
    if (acquisition->out->verbosity < 1)
        return;
    wall_format_local(wall_at_ms(acquisition->lease.deadline), until, sizeof until);
    say_verbose(acquisition->out, "taken (%s, fence %" PRId64 "%s%s) after %s, until %s",
                backend->kind, acquisition->lease.fence, backend->note != NULL ? ", " : "",
                backend->note != NULL ? backend->note : "", time, until);
}

/* The file lock of --fallback, with a warning. False: reported. */
static bool fall_back(struct acquisition *acquisition, const struct errmsg *outage, int *status)
{
    struct errmsg why = {""};
    acquisition->backend->close(acquisition->backend);
    acquisition->backend = NULL;
    acquisition->looked = false; /* not there */
    enum lock_result result = dir_backend_open(&acquisition->backend, acquisition->lock_dir, &why);
    acquisition->kind = "file";
    if (result == LOCK_OK)
        say_warning(acquisition->out,
                    "Redis is unreachable (%s): --fallback=file takes a lock that holds on this "
                    "host alone",
                    outage->text);
    else
        *status = fail_result(acquisition->out, result, &why);
    return result == LOCK_OK;
}

bool acquisition_take(struct acquisition *acquisition, int *status)
{
    struct messages *out = acquisition->out;
    struct holder holder = {0};
    struct waited waited = {0};
    struct errmsg why = {""};
    /* A shared request would be granted once more; an exclusive one is refused,
     * and the holder in the refusal may be any of them. */
    if (acquisition->outer == OUTER_NONE && acquisition->request.mode != MODE_EXCLUSIVE) {
        look_for_attachment(acquisition);
        if (acquisition->outer == OUTER_NONE)
            look_for_ancestor(acquisition);
    }
    if (acquisition->outer == OUTER_CONFLICTS)
        *status = not_taken(acquisition, LOCK_HELD, &holder, &waited, &why);
    if (acquisition->outer != OUTER_NONE)
        return acquisition->outer == OUTER_COVERS;
    progress_open(&acquisition->view, &acquisition->awaited,
                  acquisition->waits_forever || acquisition->wait.ns > 0, out);
    enum lock_result result = wait_on(acquisition, DURATION_ZERO, &holder, &waited, &why);
    if (result == LOCK_UNAVAILABLE && acquisition->fallback_to_file &&
        strcmp(acquisition->backend->kind, "redis") == 0) {
        struct duration already = waited.time;
        if (!fall_back(acquisition, &why, status))
            return false;
        result = wait_on(acquisition, already, &holder, &waited, &why);
        waited.time.ns += already.ns;
    }
    acquisition->waited = out->waited = waited.time;
    if (acquisition->outer == OUTER_COVERS)
        return true;
    char time[DURATION_TEXT_SIZE];
    if (result == LOCK_OK)
        say_taken(acquisition, duration_rounded(waited.time, time, sizeof time));
    else
        *status = not_taken(acquisition, result, &holder, &waited, &why);
    return result == LOCK_OK;
}

/* --- releasing ----------------------------------------------------------- */

/* Waits for `until`. False if a signal has come that would end a program. */
static bool pause_release(const struct acquisition *acquisition, struct deadline until)
{
    struct pollfd fd = {.fd = acquisition->signals.fd, .events = POLLIN};
    while (deadline_poll(&fd, 1, until) > 0)
        if (signals_ended_by(&acquisition->signals) != 0)
            return false;
    return true;
}

/* Signals from before were for the command.
 *
 * Orders of a signal and the release. The sender does not want to wait for a store that is down:
 *   between two tries -> no try follows
 *   during a try -> it is given up, as its server hangs; but its answer may be on its way, so that
 *     one more try follows, over another connection, for under_way_limit at most
 *   either way the lock lasts until its lease ends, unless the store carried out a try after all
 *
 * Orders of the lease's end and the release:
 *   the lock is gone, and the lease has not ended -> it was lost
 *   by the store's clock it has ended, by ours it has not -> that clock is ahead, and others
 *     could have the lock while the command ran: it was lost
 *   by both it ended before the release arrived -> it was not lost: LOCK_ENDED; or
 *     LOCK_UNAVAILABLE if an earlier try has failed: that is why it was not released
 *   a server that hangs gets no further before this process has ended -> it carries out the last
 *     try all the same, and so remembers the run */
enum lock_result acquisition_release(struct acquisition *acquisition, struct errmsg *why)
{
    struct backend *backend = acquisition->backend;
    struct deadline end = acquisition->lease.deadline,
                    late = deadline_plus(deadline_after(deadline_left(end)), once_more_limit),
                    limit = deadline_earlier(deadline_after(release_limit), late);
    struct errmsg failure = {""}; /* of the last try that got nowhere */
    bool told = false;            /* to end, by a signal */
    signals_narrow(&acquisition->signals);
    (void)signals_ended_by(&acquisition->signals);
    for (;;) {
        bool last = told || deadline_passed(end);
        struct deadline until =
            last ? limit : deadline_earlier(limit, deadline_plus(end, under_way_limit));
        struct bound bound = {until, told ? -1 : acquisition->signals.fd};
        enum lock_result result = backend->release(backend, &acquisition->lease, bound, why);
        if (result == LOCK_ENDED && !deadline_passed(end))
            return LOCK_GONE;
        if (result == LOCK_ENDED && failure.text[0] != '\0') {
            *why = failure;
            return LOCK_UNAVAILABLE;
        }
        if (result == LOCK_CANCELLED) {
            told = true;
            limit = deadline_earlier(limit, deadline_after(under_way_limit));
            continue;
        }
        if (result != LOCK_UNAVAILABLE && result != LOCK_SYSTEM)
            return result;
        failure = *why;
        struct deadline next = deadline_after(duration_jittered(release_interval));
        if (last || !pause_release(acquisition, deadline_earlier(next, end)) ||
            deadline_passed(deadline_minus(limit, release_interval)))
            return result;
    }
}

void acquisition_say_released(const struct acquisition *acquisition, enum lock_result result,
                              const struct errmsg *why)
{
    const struct messages *out = acquisition->out;
    char rest[DURATION_TEXT_SIZE], held[DURATION_TEXT_SIZE];
    struct deadline now = deadline_now(), hold = acquisition->lease.hold;
    bool ended = !deadline_before(now, acquisition->lease.deadline);
    duration_rounded(deadline_gap(acquisition->lease.taken, now), held, sizeof held);
    if (result == LOCK_OK && deadline_before(now, hold))
        say_verbose(out, "released after %s; it stays held for another %s (--hold-at-least)", held,
                    duration_rounded(deadline_gap(now, hold), rest, sizeof rest));
    else if (result == LOCK_OK)
        say_verbose(out, "released after %s", held);
    else if (lock_is_past(result))
        say_verbose(out, "nothing to release: %s", why->text);
    else
        say_warning(out, "the lock could not be released: %s; %s%s", why->text,
                    ended ? "its lease has ended" : "it is held until its lease ends",
                    acquisition->lease.end.how == RUN_NONE || acquisition->lease.remember.ns <= 0
                        ? ""
                    : ended ? ", and its run may not be recorded"
                            : ", and its run is not recorded");
    if (result == LOCK_OK && acquisition->backend->warning != NULL)
        say_warning(out, "the lock is released, but its run is not remembered: %s",
                    acquisition->backend->warning);
    if (result == LOCK_OK && acquisition->backend->note != NULL)
        say_verbose(out, "%s", acquisition->backend->note);
}

int acquisition_give_back(struct acquisition *acquisition, enum failure failure, int status,
                          const char *text)
{
    struct errmsg why = {""};
    acquisition->lease.hold = deadline_now();
    acquisition_say_released(acquisition, acquisition_release(acquisition, &why), &why);
    return fail(acquisition->out, failure, status, "%s; %s", text, acquisition->undone);
}
