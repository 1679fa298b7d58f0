/* Tries out the life of a lock: a holder and a waiter compete for the same lock. */
#include "doctor/doctor_int.h"

#include "lock/lock_name.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* How long the store may take to send a notification, and how long the clean-up after the trial may
 * take. */
static const struct duration notice_limit = {500 * NS_PER_MS}, clean_limit = {2 * NS_PER_S};

/* If a proxy closes the connection of a subscriber, the trial subscribes again a few times. If that
 * does not help, the trial continues without a subscription, as holders and waiters do outside the
 * trial. */
enum { TRIES = 4 };

/* The holder or the waiter of the trial, with its own backend. */
struct party {
    struct backend *backend;
    struct lock_request request;
    struct lease lease;
    struct holder other; /* the holder that the store names when it refuses the lock */
    char token[TOKEN_SIZE], take_id[TOKEN_SIZE];
    bool holds;
};

struct trial {
    struct party holder, waiter;
    struct findings *findings;
    struct bound bound;
    struct deadline start;   /* when the current step started */
    bool reported;           /* the step has added its row */
    const char *cannot_call; /* why the store cannot notify the waiter; NULL: it can */
};

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

static enum lock_result ask(struct trial *trial, struct party *party, bool waits,
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

static enum lock_result take(struct trial *trial, struct errmsg *why)
{
    enum lock_result result = ask(trial, &trial->holder, false, why);
    if (result == LOCK_HELD)
        return errmsg_fail(why, LOCK_FOREIGN,
                           "the trial lock, whose name is random, is already held");
    return result;
}

/* While the holder has the lock, the store must refuse the waiter. */
static enum lock_result exclude(struct trial *trial, bool waits, struct errmsg *why)
{
    enum lock_result result = ask(trial, &trial->waiter, waits, why);
    if (result == LOCK_OK)
        return errmsg_fail(why, LOCK_FOREIGN, "two holders acquired the same lock");
    return result == LOCK_HELD ? LOCK_OK : result;
}

static enum lock_result take_twice(struct trial *trial, struct errmsg *why)
{
    return exclude(trial, false, why);
}

/* --- watching ------------------------------------------------------------ */

static char *took(const struct trial *trial, char text[FINDINGS_TIME_SIZE])
{
    return findings_time(deadline_gap(trial->start, deadline_now()), text);
}

static enum lock_result check(struct trial *trial, struct errmsg *why)
{
    struct backend *backend = trial->holder.backend;
    enum lock_result result = LOCK_UNAVAILABLE;
    (void)backend->news(backend);
    for (int i = 0; result == LOCK_UNAVAILABLE && i < TRIES; i++)
        result = backend->check(backend, &trial->holder.lease, trial->bound, why);
    return result;
}

/* True if the descriptor becomes readable before `end`. */
static bool is_readable(const struct trial *trial, int fd, struct deadline end)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN},
                            {.fd = trial->bound.cancel_fd, .events = POLLIN}};
    end = deadline_earlier(end, trial->bound.until);
    return deadline_poll(fds, 2, end) > 0 && fds[0].revents != 0;
}

/* The waiter's backend changes the lock by extending the holder's lease. The store must notify the
 * holder of the change. */
static enum lock_result touch(struct trial *trial, struct errmsg *why)
{
    static const char advice[] = "dlock notices a loss only at its next check, within 10s";
    struct backend *holder = trial->holder.backend;
    struct backend *other = trial->waiter.backend;
    struct lease seen = trial->holder.lease;
    struct news news = holder->news(holder);
    char time[FINDINGS_TIME_SIZE];

    if (news.fd < 0) {
        trial->reported = true;
        findings_warn(trial->findings, advice, "no: %s",
                      news.cannot != NULL ? news.cannot
                                          : "this store does not support notifications");
        return LOCK_OK;
    }
    seen.outside = true;
    enum lock_result result = other->extend(other, &seen, EXTEND_EXACTLY, trial->bound, why);
    if (result != LOCK_OK || is_readable(trial, news.fd, deadline_after(notice_limit)))
        return result;
    trial->reported = true;
    findings_warn(trial->findings, advice,
                  "no, although the server agreed to send notifications; waited %s",
                  took(trial, time));
    return LOCK_OK;
}

static enum lock_result extend(struct trial *trial, struct errmsg *why)
{
    struct party *holder = &trial->holder;
    return holder->backend->extend(holder->backend, &holder->lease, EXTEND_AT_LEAST, trial->bound,
                                   why);
}

/* --- handing over -------------------------------------------------------- */

static enum lock_result wait_in_line(struct trial *trial, struct errmsg *why)
{
    struct backend *waiter = trial->waiter.backend;
    enum lock_result result = exclude(trial, true, why);
    trial->cannot_call = result == LOCK_OK ? waiter->listen(waiter).cannot : NULL;
    trial->reported = result == LOCK_OK;
    return result;
}

static enum lock_result release(struct trial *trial, struct errmsg *why)
{
    struct party *holder = &trial->holder;
    holder->lease.hold = deadline_now();
    enum lock_result result =
        holder->backend->release(holder->backend, &holder->lease, trial->bound, why);
    holder->holds = result != LOCK_OK;
    return result;
}

/* True if the waiter is notified of the release, or of an earlier change to the lock. The time is
 * limited, because a descriptor stays readable for ever if its notification cannot be read. */
static bool is_called(struct trial *trial)
{
    struct backend *backend = trial->waiter.backend;
    struct deadline end = deadline_after(notice_limit);
    bool now = false, more = true;

    while (more) {
        const struct call call = backend->listen(backend);
        now = call.now;
        more = !now && call.fd >= 0 && !deadline_passed(end) && is_readable(trial, call.fd, end);
    }
    return now;
}

static enum lock_result hand_over(struct trial *trial, struct errmsg *why)
{
    struct party *waiter = &trial->waiter;
    char time[FINDINGS_TIME_SIZE];
    bool called = is_called(trial);
    enum lock_result result = ask(trial, waiter, true, why);
    if (result == LOCK_HELD)
        return errmsg_fail(why, LOCK_FOREIGN,
                           "a waiter was refused although the lock had been released");
    if (result != LOCK_OK || called)
        return result;
    trial->reported = true;
    findings_add(trial->findings, waiter->backend->never_calls ? FINDING_NOTE : FINDING_WARN,
                 "waiters poll instead, initially four times a second",
                 "%s, but without a notification: %s", took(trial, time),
                 trial->cannot_call != NULL ? trial->cannot_call : "none arrived");
    return LOCK_OK;
}

static enum lock_result compare_fences(struct trial *trial, struct errmsg *why)
{
    int64_t before = trial->holder.lease.fence;
    int64_t after = trial->waiter.lease.fence;
    trial->reported = after > before;
    if (after > before)
        return LOCK_OK;
    return errmsg_fail(why, LOCK_FOREIGN,
                       "the next holder got %" PRId64 ", which is not greater than %" PRId64, after,
                       before);
}

/* --- looking ------------------------------------------------------------- */

static enum lock_result look(struct trial *trial, struct errmsg *why)
{
    struct party *holder = &trial->holder;
    struct lock_state state = {0};
    enum lock_result result =
        holder->backend->look(holder->backend, holder->request.key, &state, trial->bound, why);
    if (result == LOCK_OK && !state.locked)
        result = errmsg_fail(why, LOCK_GONE, "a held lock looks free");
    lock_state_free(&state);
    return result;
}

static enum lock_result force(struct trial *trial, struct errmsg *why)
{
    struct party *holder = &trial->holder;
    struct lock_state was = {0};
    enum lock_result result = holder->backend->force_release(holder->backend, holder->request.key,
                                                             &was, trial->bound, why);
    lock_state_free(&was);
    if (result == LOCK_OK)
        trial->waiter.holds = false;
    return result;
}

/* --- all of it ----------------------------------------------------------- */

/* Each step runs only if the step before it succeeded. If a step succeeds without adding a row,
 * dlock adds a row with the time that the step took. If a step finds the lock in the wrong state,
 * dlock reports that the store cannot be trusted. */
static const struct {
    const char *name;
    enum lock_result (*run)(struct trial *trial, struct errmsg *why);
} steps[] = {
    {"acquire", take},
    {"second acquire refused", take_twice},
    {"check", check},
    {"notified of a change", touch},
    {"extend", extend},
    {"wait", wait_in_line},
    {"release", release},
    {"handed over", hand_over},
    {"fence", compare_fences},
    {"look", look},
    {"release by force", force},
};

static bool run_step(struct trial *trial, size_t i)
{
    struct findings *findings = trial->findings;
    struct errmsg why = {""};
    char time[FINDINGS_TIME_SIZE];

    findings->check = steps[i].name;
    trial->reported = false;
    trial->start = deadline_now();
    enum lock_result result = steps[i].run(trial, &why);
    if (lock_is_past(result))
        findings_fail(findings, FINDING_UNTRUSTED, "use another store", "%s", why.text);
    else if (findings_served(findings, result, NULL, &why) && !trial->reported)
        findings_good(findings, "%s", took(trial, time));
    return result == LOCK_OK;
}

/* Releases the lock if the party holds it, or may hold it because a reply of the store was lost.
 * Also removes the party from the queue. */
static void give_back(struct party *party, struct bound bound)
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

static void clean(struct trial *trial)
{
    struct bound bound = {deadline_after(clean_limit), -1};
    give_back(&trial->waiter, bound);
    give_back(&trial->holder, bound);
    /* Both backends must do this, because one address may lead to two servers, and in that case
     * each server remembers the trial lock. */
    doctor_forget(trial->waiter.backend, trial->waiter.request.key, bound);
    doctor_forget(trial->holder.backend, trial->holder.request.key, bound);
}

void doctor_trial(struct backend *holder, struct backend *waiter,
                  const struct lock_request *request, struct findings *findings, struct bound bound)
{
    struct trial *trial = calloc(1, sizeof *trial); /* 13 kB is too much for a small stack */
    findings_section(findings, "trial", NULL);
    if (trial == NULL) {
        findings->check = "trial";
        findings_fail(findings, STATUS_SYSTEM, NULL, "out of memory");
        return;
    }
    trial->findings = findings;
    trial->bound = bound;
    party_init(&trial->holder, holder, request);
    party_init(&trial->waiter, waiter, request);
    /* A store that compares processes must not take the waiter for the holder. */
    trial->waiter.request.self.pid_start++;

    size_t done = 0;
    while (done < sizeof steps / sizeof *steps && run_step(trial, done))
        done++;
    if (done > 0 || holder->uncertain)
        clean(trial);
    free(trial);
}
