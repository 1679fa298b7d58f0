#include "run/expiry.h"

#include "util/clock.h"
#include "util/text.h"

#include <signal.h>
#include <stdio.h>

/* How long, and how often, dlock tries to kill a process that hangs in the kernel, where even
 * SIGKILL does not end it. */
static const struct duration kill_limit = {10 * NS_PER_S}, kill_interval = {5 * NS_PER_MS};

void expiry_init(struct expiry *end)
{
    end->state = (struct watch_state){
        .verdict = WATCH_HELD,
        .deadline = end->lease->deadline,
        .set = end->lease->set,
        .end_ms = end->lease->end_ms,
    };
}

/* When dlock must warn, stop and kill, if the lease does not change again. */
struct dates {
    struct deadline warn, stop, kill;
};

static struct dates dates_of(const struct expiry *end)
{
    struct deadline deadline = end->state.deadline;

    return (struct dates){
        .warn = lease_warning_time(end->lease, deadline),
        .stop = watch_last_answer(deadline, lease_grace(end->state.set, end->plan.grace)),
        .kill = deadline,
    };
}

enum { LEASE_TEXT_SIZE = DURATION_TEXT_SIZE + 32 };

/* Writes "the lease of 1h" or, if another process changed the lease, the length that the lease was
 * last set to. That length is rounded, because dlock learns of the change a moment later and
 * then sees a slightly shorter length. Returns text. */
static const char *lease_format(const struct expiry *end, char text[LEASE_TEXT_SIZE])
{
    char time[DURATION_TEXT_SIZE];
    struct duration set = end->state.set;
    int64_t step = set.ns < NS_PER_S / 2    ? 10 * NS_PER_MS
                   : set.ns < 10 * NS_PER_S ? 100 * NS_PER_MS
                                            : NS_PER_S;
    if (lease_is_as_taken(end->lease, set)) {
        snprintf(text, LEASE_TEXT_SIZE, "the lease of %s",
                 duration_format(end->lease->ttl, time, sizeof time));
        return text;
    }
    set.ns = (set.ns + step / 2) / step * step;
    snprintf(text, LEASE_TEXT_SIZE, "the lease, last set to %s,",
             duration_format(set, time, sizeof time));
    return text;
}

/* Writes advice on how to avoid the end of the lease, or "" if there is none. A longer --ttl does
 * not help if another process changed the lease. Nothing helps if heartbeats came but did not reach
 * the store. Returns text. */
static const char *advice_format(const struct expiry *end, char text[LEASE_TEXT_SIZE])
{
    char time[DURATION_TEXT_SIZE];
    struct duration set = end->state.set, left = deadline_left(end->state.deadline),
                    silent = deadline_gap(end->beaten, deadline_now());
    bool as_taken = lease_is_as_taken(end->lease, set), beats = end->beaten.boot_ns != 0;
    text[0] = '\0';
    if (as_taken && !beats)
        snprintf(text, LEASE_TEXT_SIZE, "; use a longer --ttl");
    else if (as_taken && silent.ns + left.ns >= set.ns - lease_drift(set).ns)
        snprintf(text, LEASE_TEXT_SIZE, " (no heartbeat for %s)",
                 duration_rounded(silent, time, sizeof time));
    else if (!as_taken && !end->plan.warn_only && set.ns <= end->plan.grace.ns)
        snprintf(text, LEASE_TEXT_SIZE, "; the lease is no longer than --grace=%s",
                 duration_format(end->plan.grace, time, sizeof time));
    return text;
}

static void is_over_now(struct expiry *end)
{
    if (!end->over) {
        end->over_since = deadline_earlier(deadline_now(), end->state.deadline);
        say_status(end->out,
                   end->plan.warn_only ? "the lock %s is no longer held; %s keeps running"
                                       : "the lock %s is no longer held; stopping %s",
                   end->lease->name, end->worker.name);
    }
    end->over = end->warned = true;
}

/* --- the stop ------------------------------------------------------------ */

static void kill_now(struct expiry *end)
{
    end->worker.signal(end->worker.data, SIGKILL, DEADLINE_NEVER);
    end->next_kill = deadline_after(kill_interval);
}

void expiry_kill(struct expiry *end)
{
    if (end->phase == KILLING)
        return;
    end->phase = KILLING;
    end->give_up = deadline_after(kill_limit);
    kill_now(end);
}

bool expiry_gives_up(const struct expiry *end)
{
    return end->phase == KILLING && deadline_passed(end->give_up);
}

void expiry_say_left(const struct expiry *end, struct tree_count left)
{
    const char *name = end->worker.name;

    if (left.known)
        say_error(end->out, "cannot kill %d process%s of %s: pid %ld%s", left.found,
                  left.found == 1 ? "" : "es", name, (long)left.first,
                  left.found == 1 ? "" : " and others");
    else
        say_error(end->out,
                  "processes of %s may still be running; /proc does not show this pid namespace",
                  name);
}

static void stop(struct expiry *end, struct deadline kill_at)
{
    end->phase = STOPPING;
    end->kill_at = kill_at;
    end->worker.signal(end->worker.data, end->plan.stop_signal, kill_at);
}

/* lost(), ending() and ended() act first and report afterwards, because the reader of the
 * messages may be slow. */
static void lost(struct expiry *end)
{
    char name[32];

    if (end->over)
        return;
    is_over_now(end);
    if (end->plan.warn_only) {
        say_error(end->out, "the lock is lost: %s; %s keeps running (--on-expire=warn)",
                  end->state.why.text, end->worker.name);
        return;
    }
    stop(end, deadline_earlier(end->state.deadline,
                               deadline_after(lease_grace(end->state.set, end->plan.grace))));
    say_error(end->out, "the lock is lost: %s; stopping %s with %s", end->state.why.text,
              end->worker.name, signame_format(end->plan.stop_signal, name, sizeof name));
}

static void ending(struct expiry *end)
{
    char name[32], lease[LEASE_TEXT_SIZE], left_text[DURATION_TEXT_SIZE], advice[LEASE_TEXT_SIZE];
    struct duration left = deadline_left(end->state.deadline);

    is_over_now(end);
    stop(end, end->state.deadline);
    say_error(end->out, "%s ends in %s%s%s; stopping %s with %s%s", lease_format(end, lease),
              duration_rounded(left, left_text, sizeof left_text),
              end->state.why.text[0] != '\0' ? " and could not be checked: " : "",
              end->state.why.text, end->worker.name,
              signame_format(end->plan.stop_signal, name, sizeof name), advice_format(end, advice));
}

static void ended(struct expiry *end)
{
    char lease[LEASE_TEXT_SIZE], advice[LEASE_TEXT_SIZE];
    bool said = end->over;

    is_over_now(end);
    lease_format(end, lease);
    if (end->plan.warn_only) {
        if (!said)
            say_error(end->out,
                      "%s has ended; %s keeps running without the lock (--on-expire=warn)", lease,
                      end->worker.name);
        return;
    }
    expiry_kill(end);
    say_error(end->out, "%s has ended; killing %s%s", lease, end->worker.name,
              advice_format(end, advice));
}

/* Handles a release by the worker itself, or by another process that has the owner token. */
static void was_released(struct expiry *end)
{
    end->released = true;
    say_status(end->out, "the lock %s was released; %s keeps running", end->lease->name,
               end->worker.name);
    say_verbose(end->out,
                "the lock was released with its owner token; %s keeps running without the lock",
                end->worker.name);
}

static void warn(struct expiry *end)
{
    char advice[LEASE_TEXT_SIZE];

    end->warned = true;
    say_warning(end->out, "90%% of the lease has passed and %s is still running%s",
                end->worker.name, advice_format(end, advice));
}

/* Adopts what the watch thread has learnt about the lease. After an extension, dlock may warn
 * again. */
static struct dates follow_lease(struct expiry *end)
{
    if (deadline_before(end->lease->deadline, end->state.deadline))
        end->warned = false;
    end->lease->deadline = end->state.deadline;
    end->lease->set = end->state.set;
    end->lease->end_ms = end->state.end_ms;
    return dates_of(end);
}

static void act_on_lease(struct expiry *end)
{
    struct dates at = follow_lease(end);

    if (end->state.verdict == WATCH_LOST)
        lost(end);
    else if (deadline_passed(at.kill))
        ended(end);
    else if (!end->plan.warn_only &&
             (end->state.verdict == WATCH_ENDING || deadline_passed(at.stop)))
        ending(end);
    else if (!end->warned && deadline_passed(at.warn))
        warn(end);
}

void expiry_act(struct expiry *end)
{
    if (end->phase == RUNNING && end->state.verdict == WATCH_RELEASED && !end->released)
        was_released(end);
    if (end->phase == RUNNING && !end->released)
        act_on_lease(end);
    if (end->phase == STOPPING && deadline_passed(end->kill_at)) {
        expiry_kill(end);
        say_verbose(end->out, "%s has not ended in time; killing it", end->worker.name);
    }
    if (end->phase == KILLING && deadline_passed(end->next_kill))
        kill_now(end);
    if (end->notes != end->state.notes) {
        end->notes = end->state.notes;
        say_verbose(end->out, "%s", end->state.note.text);
    }
}

struct deadline expiry_next(const struct expiry *end)
{
    struct dates at = dates_of(end);
    struct deadline next = at.kill;

    switch (end->phase) {
    case STOPPING: return end->kill_at;
    case KILLING: return end->next_kill;
    case RUNNING: break;
    }
    if (end->released)
        return DEADLINE_NEVER;
    if (!end->plan.warn_only)
        next = deadline_earlier(at.kill, at.stop);
    else if (end->over)
        next = DEADLINE_NEVER;
    return end->warned ? next : deadline_earlier(next, at.warn);
}

void expiry_judge(struct expiry *end)
{
    end->released = end->released || end->state.verdict == WATCH_RELEASED;
    if (end->over || end->released)
        return;
    follow_lease(end);
    if (end->state.verdict == WATCH_LOST) {
        is_over_now(end);
        say_error(end->out, "the lock was lost before %s ended: %s", end->worker.name,
                  end->state.why.text);
    } else if (deadline_passed(end->state.deadline)) {
        is_over_now(end);
        say_error(end->out, "the lease had already ended when dlock saw that %s had ended",
                  end->worker.name);
    }
}
