/* The watch thread starts when the command has run for a moment. For one that
 * is over at once it would cost more than all the rest: a thread, two round
 * trips to Redis, and 15 ms for closing an inotify descriptor. What happened
 * before it started it finds in its first look.
 *
 * One loop: signals, news from the watch thread, the guard and the command's
 * heartbeat, and a timer on the boot clock, which goes off at once after a
 * suspend that outlasted it. The stop goes through these phases, never
 * backwards:
 *
 *   RUNNING   nothing to do but pass signals on
 *   STOPPING  the stop signal was sent to the whole tree; KILL follows at kill_at
 *   KILLING   the whole tree is stopped and killed, again and again until nobody
 *             is left: what is forked during one walk is found by the next
 */
#include "supervise.h"

#include "child.h"
#include "duration.h"
#include "job_control.h"
#include "signal_name.h"
#include "watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* How long to go on with what even KILL does not end (it hangs in the kernel). */
static const struct duration kill_limit = {10 * NS_PER_S}, kill_interval = {5 * NS_PER_MS};

static const struct duration watch_after = {30 * NS_PER_MS};

enum phase { RUNNING, STOPPING, KILLING };

struct run {
    const struct supervision *plan;
    struct child child;
    struct job_control job;
    struct watch watch;
    struct deadline watch_at; /* when it starts; NEVER: it has */
    struct watch_state state;
    bool noted; /* what the watch has to say with -v is said */
    int timer_fd;
    enum phase phase;
    struct deadline kill_at;   /* of STOPPING */
    struct deadline give_up;   /* of KILLING */
    struct deadline next_kill; /* of KILLING */
    struct deadline warn_at;   /* of the warning at 90 %; NEVER: said */
    struct outcome *outcome;
};

static void lease_is_over(struct run *run)
{
    if (!run->outcome->lease_over) {
        run->outcome->over_since = deadline_earlier(deadline_now(), run->state.deadline);
        say_status(run->plan->out, run->plan->warn_only ? "the lock %s is over, the command runs on"
                                                        : "the lock %s is over, stopping the command",
                   run->plan->lease->name);
    }
    run->outcome->lease_over = true;
    run->warn_at = DEADLINE_NEVER;
}

/* --- the stop ------------------------------------------------------------ */

static void start_killing(struct run *run)
{
    if (run->phase == KILLING)
        return;
    run->phase = KILLING;
    run->next_kill = deadline_now();
    run->give_up = deadline_plus(run->next_kill, kill_limit);
}

static void kill_tree(struct run *run)
{
    child_kill_tree(&run->child);
    run->next_kill = deadline_after(kill_interval);
}

static void start_stopping(struct run *run, struct deadline kill_at)
{
    run->phase = STOPPING;
    run->kill_at = kill_at;
    child_signal_tree(&run->child, run->plan->stop_signal, kill_at);
}

/* Each of these acts first and speaks afterwards: whoever reads what we say may
 * be slow. */
static void lease_lost(struct run *run)
{
    const struct supervision *plan = run->plan;
    char name[32];
    if (run->outcome->lease_over)
        return;
    lease_is_over(run);
    if (plan->warn_only) {
        say_error(plan->out, "the lock is lost: %s; the command runs on (--on-expire=warn)", run->state.why.text);
        return;
    }
    start_stopping(run, deadline_earlier(run->state.deadline, deadline_after(plan->grace)));
    say_error(plan->out, "the lock is lost: %s; stopping the command with %s", run->state.why.text,
              signal_format(plan->stop_signal, name, sizeof name));
}

static void lease_ending(struct run *run)
{
    const struct supervision *plan = run->plan;
    char name[32], ttl[DURATION_TEXT_SIZE], left_text[DURATION_TEXT_SIZE];
    struct duration left = deadline_left(run->state.deadline);
    lease_is_over(run);
    start_stopping(run, run->state.deadline);
    say_error(plan->out, "the lease of %s ends in %s%s%s; stopping the command with %s (--ttl sets a longer one)",
              duration_format(plan->lease->ttl, ttl, sizeof ttl), duration_format(left, left_text, sizeof left_text),
              run->state.why.text[0] != '\0' ? " and could not be looked at: " : "", run->state.why.text,
              signal_format(plan->stop_signal, name, sizeof name));
}

static void lease_ended(struct run *run)
{
    const struct supervision *plan = run->plan;
    char ttl[DURATION_TEXT_SIZE];
    bool said = run->outcome->lease_over;
    lease_is_over(run);
    duration_format(plan->lease->ttl, ttl, sizeof ttl);
    if (plan->warn_only) {
        if (!said)
            say_error(plan->out, "the lease of %s has ended; the command runs on without the lease (--on-expire=warn)", ttl);
        return;
    }
    start_killing(run);
    kill_tree(run);
    say_error(plan->out, "the lease of %s has ended; killing the command (--ttl sets a longer one)", ttl);
}

/* By the command itself, or by whoever it gave its token to. */
static void lease_released(struct run *run)
{
    const struct supervision *plan = run->plan;
    run->outcome->released = true;
    say_status(plan->out, "the lock %s is released, running %s", plan->lease->name, plan->argv[0]);
    say_verbose(plan->out, "released with its own token; the command runs on without the lock");
}

static bool is_watched(const struct run *run)
{
    return run->watch_at.boot_ns == INT64_MAX;
}

/* A command that nobody watches may not run. */
static void start_watch(struct run *run)
{
    struct outcome *outcome = run->outcome;
    struct watch_plan plan = {
        .backend = run->plan->backend,
        .lease = run->plan->lease,
        .grace = run->plan->grace,
        .heartbeat = run->plan->heartbeat,
        .notify = &run->plan->out->notify,
    };
    enum lock_result result = watch_start(&run->watch, &plan, &outcome->error);
    if (result == LOCK_OK) {
        run->watch_at = DEADLINE_NEVER;
        return;
    }
    outcome->unwatched = true;
    start_killing(run);
}

/* What the clock and the watch ask for at this moment. The command is reaped
 * first, so that one which has ended by itself is not called stopped. */
static void act(struct run *run)
{
    const struct supervision *plan = run->plan;
    if (is_watched(run))
        run->state = watch_read(&run->watch);
    else if (run->phase == RUNNING && deadline_passed(run->watch_at))
        start_watch(run);
    if (run->phase == RUNNING && run->state.verdict == WATCH_RELEASED && !run->outcome->released)
        lease_released(run);
    if (run->phase == RUNNING && !run->outcome->released) {
        struct deadline now = deadline_now(), deadline = run->state.deadline;
        struct deadline stop = watch_last_answer(deadline, plan->grace);
        if (deadline_before(plan->lease->deadline, deadline)) /* extended: it may be said anew */
            run->warn_at = lease_warning_time(plan->lease, deadline);
        plan->lease->deadline = deadline;
        if (run->state.verdict == WATCH_LOST)
            lease_lost(run);
        else if (!deadline_before(now, deadline))
            lease_ended(run);
        else if (!plan->warn_only && (run->state.verdict == WATCH_ENDING || !deadline_before(now, stop)))
            lease_ending(run);
        else if (!deadline_before(now, run->warn_at)) {
            run->warn_at = DEADLINE_NEVER;
            say_warning(plan->out, "90 %% of the lease are over and the command still runs; --ttl sets a longer one");
        }
    }
    if (run->phase == STOPPING && deadline_passed(run->kill_at)) {
        start_killing(run);
        kill_tree(run);
        say_verbose(plan->out, "the command has not ended: killing it");
    }
    if (run->phase == KILLING && deadline_passed(run->next_kill))
        kill_tree(run);
    if (!run->noted && run->state.note.text[0] != '\0') {
        run->noted = true;
        say_verbose(plan->out, "%s", run->state.note.text);
    }
}

static struct deadline next_event(const struct run *run)
{
    struct deadline deadline = run->state.deadline, next;
    switch (run->phase) {
    case STOPPING: return run->kill_at;
    case KILLING: return run->next_kill;
    case RUNNING: break;
    }
    if (run->outcome->released)
        return run->watch_at;
    if (run->plan->warn_only)
        next = run->outcome->lease_over ? DEADLINE_NEVER : deadline;
    else
        next = deadline_earlier(deadline, watch_last_answer(deadline, run->plan->grace));
    return deadline_earlier(deadline_earlier(next, run->warn_at), run->watch_at);
}

/* --- the loop ------------------------------------------------------------ */

/* Read as long as the command runs, whatever has become of the lease: who
 * sends a notification waits until there is room for it. */
static void read_heartbeat(const struct run *run)
{
    const struct supervision *plan = run->plan;
    if (plan->heartbeat->fd >= 0 && heartbeat_read(plan->heartbeat, &plan->out->notify) && is_watched(run))
        watch_beat(&run->watch);
}

static void wait_for_event(const struct run *run)
{
    struct deadline next = next_event(run);
    struct itimerspec when = {.it_value = {(time_t)(next.boot_ns / NS_PER_S), (long)(next.boot_ns % NS_PER_S)}};
    struct pollfd fds[] = {
        {.fd = run->plan->signals->fd, .events = POLLIN},
        {.fd = is_watched(run) ? run->watch.news_fd : -1, .events = POLLIN},
        {.fd = run->timer_fd, .events = POLLIN},
        {.fd = run->child.ended ? -1 : run->child.guard_fd, .events = POLLIN},
        {.fd = run->plan->heartbeat->fd, .events = POLLIN},
    };
    if (next.boot_ns == INT64_MAX)
        when = (struct itimerspec){0}; /* disarms it */
    int timeout = timerfd_settime(run->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) == 0 ? -1 : deadline_poll_ms(next);
    while (poll(fds, sizeof fds / sizeof *fds, timeout) < 0 && errno == EINTR)
        continue;
}

/* The command has ended; where it was stopped, nobody of its tree may be left. */
static bool is_over(struct run *run)
{
    if (!run->child.ended || run->phase == RUNNING)
        return run->child.ended;
    if (child_tree_gone(&run->child))
        return true;
    if (run->phase != KILLING || !deadline_passed(run->give_up))
        return false;
    struct process_count left = child_tree_left(&run->child);
    if (left.known)
        say_error(run->plan->out, "%d process%s of the command cannot be killed, one of them is pid %ld", left.found,
                  left.found == 1 ? "" : "es", (long)left.first);
    else
        say_error(run->plan->out, "processes of the command are left, and /proc, which is not of this pid namespace, does not show them");
    return true;
}

/* The kernel has killed the command with its guard; what it has started fell to us. */
static void guard_lost(struct run *run)
{
    start_killing(run);
    kill_tree(run);
    say_error(run->plan->out, "the process that guards the command for --tree was killed; killing what is left of the command");
}

static void reap(struct run *run)
{
    bool had_ended = run->child.command_ended;
    child_reap(&run->child);
    if (run->child.guard_lost && run->phase == RUNNING)
        guard_lost(run);
    else if (run->child.command_ended && !had_ended && !run->child.ended)
        say_verbose(run->plan->out, "the command has ended; waiting for what it has started (--tree)");
}

/* Stopping comes before all else, also on waking from a freeze or a stop. A
 * SIGCHLD that is read may tell of a change since the last look: then one looks
 * again. */
static void watch_command(struct run *run)
{
    for (;;) {
        reap(run);
        if (is_over(run))
            return;
        act(run);
        if (job_pass_signals_on(&run->job, &run->child))
            continue;
        read_heartbeat(run);
        if (run->phase == RUNNING)
            job_stop_with_command(&run->job, &run->child);
        wait_for_event(run);
    }
}

/* A command that ended may have done so too late, seen by the clock: dlock was
 * frozen with it or beside it. */
static void judge_end(struct run *run)
{
    run->outcome->released = run->outcome->released || run->state.verdict == WATCH_RELEASED;
    if (run->outcome->lease_over || run->outcome->released)
        return;
    if (run->state.verdict == WATCH_LOST) {
        lease_is_over(run);
        say_error(run->plan->out, "the lock was lost before the command ended: %s", run->state.why.text);
    } else if (deadline_passed(run->state.deadline)) {
        lease_is_over(run);
        say_error(run->plan->out, "the lease had ended when the command's end was seen");
    }
}

/* A command with --heartbeat speaks to the service manager itself, and knows
 * when it is ready. */
static void say_started(const struct supervision *plan)
{
    char until[32];
    wall_format(wall_now_ms() + deadline_left(plan->lease->deadline).ns / NS_PER_MS, until, sizeof until);
    say_status(plan->out, "holding the lock %s until %s, running %s", plan->lease->name, until, plan->argv[0]);
    if (plan->heartbeat->fd < 0)
        notify_send(&plan->out->notify, "READY=1");
}

void supervise(const struct supervision *plan, struct outcome *outcome)
{
    struct run run = {.plan = plan, .outcome = outcome};
    *outcome = (struct outcome){0};
    run.state.deadline = plan->lease->deadline;
    run.warn_at = lease_warning_time(plan->lease, plan->lease->deadline);
    run.timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (run.timer_fd < 0) {
        why_set(&outcome->error, "cannot make a timer: %s", strerror(errno));
        return;
    }
    /* Frozen between take and here, or answered too late: nothing may start. */
    if (lease_as_good_as_over(plan->lease)) {
        outcome->lease_over = true;
        why_set(&outcome->error, "the lease was over before the command could be started");
        close(run.timer_fd);
        return;
    }
    /* What is sent to the whole group from the fork on, the command has as well.
     * (A key typed in the microseconds until then is lost.) */
    outcome->signalled = signals_ended_by(plan->signals);
    if (outcome->signalled != 0) {
        close(run.timer_fd);
        return;
    }
    run.job = (struct job_control){.signals = plan->signals, .out = plan->out};
    outcome->started = child_start(&run.child, plan->argv, plan->signals, plan->tree, &outcome->error) == LOCK_OK;
    if (outcome->started) {
        /* The first heartbeat may come at once, and starts nothing by itself. */
        run.watch_at = plan->heartbeat->fd >= 0 ? deadline_now() : deadline_after(watch_after);
        if (run.child.page->exec_errno == 0)
            say_started(plan);
        watch_command(&run);
        read_heartbeat(&run); /* its last words */
        if (is_watched(&run))
            run.state = watch_stop(&run.watch);
        judge_end(&run);
        outcome->status = run.child.status;
        outcome->exec_error = run.child.exec_error;
        child_close(&run.child);
    }
    close(run.timer_fd);
}
