#include "actions/doctor_trial.h"

#include "lock/token.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* How long the store may take to send a notice, and to be cleaned up. */
static const struct duration tell_limit = {500 * NS_PER_MS}, clean_limit = {2 * NS_PER_S};

/* If a proxy closes the connection of a subscriber, a few tries go by until no
 * subscription is requested any more: watches and waiters do the same. */
enum { TRIES = 4 };

/* One of the two that want the lock. */
struct party {
    struct backend *backend;
    struct lock_request request;
    struct lease lease;
    struct holder other; /* for which it was refused */
    char token[TOKEN_SIZE], take_id[TOKEN_SIZE];
    bool holds;
};

struct trial {
    struct party holder, waiter;
    struct diagnostics *findings;
    struct bound bound;
    struct deadline start; /* of the current step */
};

/* --- rows ---------------------------------------------------------------- */

static void step_begin(struct trial *trial)
{
    trial->start = deadline_now();
}

/* Reports that the step succeeded, or a failure. */
static bool step_end(struct trial *trial, const char *name, enum lock_result result,
                     const struct errmsg *why)
{
    char time[FINDINGS_TIME_SIZE];
    diagnostics_time(deadline_gap(trial->start, deadline_now()), time);
    if (result == LOCK_OK)
        diagnostics_add(trial->findings, FINDING_OK, name, NULL, "%s", time);
    else if (lock_is_past(result))
        diagnostics_fail(trial->findings, FINDING_UNTRUSTED, name, NULL, "%s", why->text);
    else if (result != LOCK_CANCELLED)
        diagnostics_fail(trial->findings, (int)status_of(result), name, NULL, "%s", why->text);
    return result == LOCK_OK;
}

static bool distrust(struct trial *trial, const char *name, const char *text)
{
    diagnostics_fail(trial->findings, FINDING_UNTRUSTED, name, "another store", "%s", text);
    return false;
}

/* --- taking -------------------------------------------------------------- */

static void party_init(struct party *party, struct backend *backend,
                       const struct lock_request *request)
{
    *party = (struct party){.backend = backend, .request = *request};
    token_make(party->token);
    memcpy(party->take_id, party->token, sizeof party->take_id);
    party->request.token = party->token;
    party->request.take_id = party->take_id;
}

static enum lock_result doctor_trial_ask(struct trial *trial, struct party *party, bool waits,
                                         struct errmsg *why)
{
    struct backend *backend = party->backend;
    enum lock_result result = LOCK_UNAVAILABLE;
    party->request.waits = waits;
    party->request.last = !waits;
    for (int i = 0; result == LOCK_UNAVAILABLE && i < (waits ? TRIES : 1); i++)
        result = backend->take(backend, &party->request, &party->lease, &party->other, trial->bound,
                               why);
    party->holds = result == LOCK_OK;
    return result;
}

static bool take(struct trial *trial)
{
    struct errmsg why = {""};
    step_begin(trial);
    enum lock_result result = doctor_trial_ask(trial, &trial->holder, false, &why);
    if (result == LOCK_HELD)
        return distrust(trial, "take", "a lock with a random name is already held");
    return step_end(trial, "take", result, &why);
}

/* The purpose of it all. */
static bool is_exclusive(struct trial *trial)
{
    struct errmsg why = {""};
    step_begin(trial);
    enum lock_result result = doctor_trial_ask(trial, &trial->waiter, false, &why);
    if (result == LOCK_OK)
        return distrust(trial, "second take refused", "two holders acquired the same lock");
    return step_end(trial, "second take refused", result == LOCK_HELD ? LOCK_OK : result, &why);
}

/* --- watching ------------------------------------------------------------ */

static bool doctor_trial_check(struct trial *trial)
{
    struct backend *backend = trial->holder.backend;
    struct errmsg why = {""};
    enum lock_result result = LOCK_UNAVAILABLE;
    step_begin(trial);
    for (int i = 0; result == LOCK_UNAVAILABLE && i < TRIES; i++)
        result = backend->check(backend, &trial->holder.lease, trial->bound, &why);
    return step_end(trial, "check", result, &why);
}

static struct deadline tell_end(const struct trial *trial)
{
    return deadline_earlier(deadline_after(tell_limit), trial->bound.until);
}

/* True if the descriptor is readable before `end`. */
static bool is_told(const struct trial *trial, int fd, struct deadline end)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN},
                            {.fd = trial->bound.cancel_fd, .events = POLLIN}};
    return deadline_poll(fds, 2, end) > 0 && fds[0].revents != 0;
}

/* The lock is touched from elsewhere: the holder must learn of it. */
static bool watch(struct trial *trial)
{
    struct backend *backend = trial->holder.backend, *other = trial->waiter.backend;
    struct errmsg why = {""};
    char time[FINDINGS_TIME_SIZE];
    static const char name[] = "notified of a change",
                      advice[] = "a loss is noticed at the next check, within 10s";
    (void)backend->news(backend);
    if (!doctor_trial_check(trial))
        return false;
    struct news news = backend->news(backend);
    if (news.fd < 0) {
        diagnostics_add(trial->findings, FINDING_WARN, name, advice, "no: %s",
                        news.cannot != NULL ? news.cannot : "this store cannot");
        return true;
    }
    struct lease seen = trial->holder.lease;
    seen.outside = true;
    step_begin(trial);
    enum lock_result result = other->extend(other, &seen, EXTEND_EXACTLY, trial->bound, &why);
    if (result != LOCK_OK)
        return step_end(trial, "extend from elsewhere", result, &why);
    bool told = is_told(trial, news.fd, tell_end(trial));
    diagnostics_time(deadline_gap(trial->start, deadline_now()), time);
    diagnostics_add(trial->findings, told ? FINDING_OK : FINDING_WARN, name, advice,
                    told ? "%s" : "no, though the server has agreed to; waited %s", time);
    return true;
}

static bool doctor_trial_extend(struct trial *trial)
{
    struct backend *backend = trial->holder.backend;
    struct errmsg why = {""};
    step_begin(trial);
    enum lock_result result =
        backend->extend(backend, &trial->holder.lease, EXTEND_AT_LEAST, trial->bound, &why);
    return step_end(trial, "extend", result, &why);
}

/* --- handing over -------------------------------------------------------- */

static bool doctor_trial_release(struct trial *trial)
{
    struct party *holder = &trial->holder;
    struct errmsg why = {""};
    step_begin(trial);
    holder->lease.hold = deadline_now();
    enum lock_result result =
        holder->backend->release(holder->backend, &holder->lease, trial->bound, &why);
    holder->holds = result != LOCK_OK;
    return step_end(trial, "release", result, &why);
}

/* True if the waiter is notified of the release, or that the lock was touched:
 * then it must ask a moment later. A notice that cannot be read stays readable
 * for ever. */
static bool is_called(struct trial *trial)
{
    struct backend *backend = trial->waiter.backend;
    struct deadline soon = deadline_after(tell_limit), end = tell_end(trial);
    struct call call = backend->listen(backend);
    while (!call.now && !deadline_before(call.by, soon) && call.fd >= 0 && !deadline_passed(end) &&
           is_told(trial, call.fd, end))
        call = backend->listen(backend);
    return call.now || deadline_before(call.by, soon);
}

static bool doctor_trial_hand_over(struct trial *trial)
{
    struct party *waiter = &trial->waiter;
    struct errmsg why = {""};
    char time[FINDINGS_TIME_SIZE];
    step_begin(trial);
    enum lock_result result = doctor_trial_ask(trial, waiter, true, &why);
    if (result == LOCK_OK)
        return distrust(trial, "wait", "two holders acquired the same lock");
    if (result != LOCK_HELD)
        return step_end(trial, "wait", result, &why);
    struct call call = waiter->backend->listen(waiter->backend);
    if (!doctor_trial_release(trial))
        return false;
    step_begin(trial);
    bool called = call.cannot == NULL && is_called(trial);
    result = doctor_trial_ask(trial, waiter, true, &why);
    diagnostics_time(deadline_gap(trial->start, deadline_now()), time);
    if (result == LOCK_HELD)
        return distrust(trial, "handed over",
                        "the waiter is refused, although the lock was released");
    if (result != LOCK_OK)
        return step_end(trial, "handed over", result, &why);
    enum finding_result uncalled = waiter->backend->never_calls ? FINDING_NOTE : FINDING_WARN;
    diagnostics_add(trial->findings, called ? FINDING_OK : uncalled, "handed over",
                    "waiters poll instead, at first four times a second",
                    called ? "%s" : "%s, but not called: %s", time,
                    call.cannot != NULL ? call.cannot : "no notification arrived");
    if (waiter->lease.fence <= trial->holder.lease.fence)
        diagnostics_fail(trial->findings, FINDING_UNTRUSTED, "fence", "another store",
                         "%" PRId64 " after %" PRId64, waiter->lease.fence,
                         trial->holder.lease.fence);
    return true;
}

/* --- looking ------------------------------------------------------------- */

static bool doctor_trial_look(struct trial *trial)
{
    struct backend *backend = trial->holder.backend;
    struct lock_state state = {0};
    struct errmsg why = {""};
    step_begin(trial);
    enum lock_result result =
        backend->look(backend, trial->holder.request.key, &state, trial->bound, &why);
    if (result == LOCK_OK && !state.locked) {
        errmsg_set(&why, "a held lock looks free");
        result = LOCK_GONE;
    }
    lock_state_free(&state);
    return step_end(trial, "look", result, &why);
}

static bool doctor_trial_force(struct trial *trial)
{
    struct backend *backend = trial->holder.backend;
    struct lock_state was = {0};
    struct errmsg why = {""};
    step_begin(trial);
    enum lock_result result =
        backend->force_release(backend, trial->holder.request.key, &was, trial->bound, &why);
    lock_state_free(&was);
    return step_end(trial, "release by force", result, &why);
}

/* --- all of it ----------------------------------------------------------- */

static void doctor_trial_give_back(struct party *party, struct bound bound)
{
    struct backend *backend = party->backend;
    struct errmsg ignored;
    if (!party->holds && !backend->uncertain && !backend->queued)
        return;
    if (!party->holds)
        lease_begin(&party->lease, &party->request, deadline_now(), 0);
    party->lease.hold = deadline_now();
    (void)backend->release(backend, &party->lease, bound, &ignored);
}

/* Independent servers, as they should be, each remember something. */
static void doctor_trial_forget(const struct party *party, struct bound bound)
{
    if (party->backend->forget != NULL)
        party->backend->forget(party->backend, party->request.key, bound);
}

static void try_all(struct trial *trial)
{
    struct backend *holder = trial->holder.backend;
    diagnostics_section(trial->findings, "trial", NULL);
    if (!take(trial) && !holder->uncertain)
        return;
    bool good = trial->holder.holds && is_exclusive(trial) && watch(trial) &&
                doctor_trial_extend(trial) && doctor_trial_hand_over(trial);
    if (good && doctor_trial_look(trial) && doctor_trial_force(trial))
        trial->waiter.holds = false; /* its lock was taken away just now */
    struct bound cleaning = {deadline_after(clean_limit), -1};
    doctor_trial_give_back(&trial->waiter, cleaning);
    doctor_trial_give_back(&trial->holder, cleaning);
    doctor_trial_forget(&trial->waiter, cleaning);
    doctor_trial_forget(&trial->holder, cleaning);
}

void doctor_trial(struct backend *holder, struct backend *waiter,
                  const struct lock_request *request, struct diagnostics *findings,
                  struct bound bound)
{
    struct trial *trial = calloc(1, sizeof *trial); /* 13 kB, too much for a stack */
    if (trial == NULL) {
        diagnostics_fail(findings, STATUS_SYSTEM, "trial", NULL, "out of memory");
        return;
    }
    trial->findings = findings;
    trial->bound = bound;
    party_init(&trial->holder, holder, request);
    party_init(&trial->waiter, waiter, request);
    trial->waiter.request.self.pid_start++; /* another process: a store may look for our own */
    try_all(trial);
    free(trial);
}
