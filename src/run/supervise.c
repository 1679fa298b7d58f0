/* The watch thread starts when the command has run for a moment. For a command
 * that ends at once it would cost more than everything else: a thread, two
 * round trips to Redis, and 15 ms for closing an inotify descriptor. Its first
 * look finds whatever happened before it started. Its descriptors are opened
 * before the command is started: if there are too few, nothing is run.
 *
 * The orphan guard is forked before it, while there is no other thread. Either may
 * fail if the user, or the container, may start no more processes for now. The
 * command does not suffer for that:
 *   one fails -> both are tried again and again, the guard first.
 *   a check is due meanwhile -> a warning; the main thread makes the check itself. It
 *       has the backend until the thread is there.
 *   that check hangs -> it ends within a second, and before the command has to be
 *       stopped; signals and heartbeats wait for that long.
 *
 * One loop: signals, news from the watch thread, the guard and the command's
 * heartbeat, and a timer on the boot clock, which goes off at once after a
 * suspend that outlasted it. run/expiry.c decides what is done at the end of
 * the lease, and in which phases. */
#include "run/supervise.h"

#include "process/child.h"
#include "process/job_control.h"
#include "run/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* After the start of the command; again, if it fails; and when the first check is due then. */
static const struct duration watch_after = {30 * NS_PER_MS}, watch_again = {100 * NS_PER_MS},
                             first_look = {1 * NS_PER_S};

struct supervise_run {
    const struct supervision *plan;
    struct child child;
    struct job_control job;
    struct watch watch;
    struct deadline watch_at; /* when it starts; NEVER: it already has */
    struct deadline look_at;  /* when a check is due if the watch has not started */
    bool warned;              /* that the guard or the watch has not started */
    struct expiry end;
    int timer_fd;
    struct outcome *outcome;
};

static void stop_command(void *data, int number, struct deadline until)
{
    struct supervise_run *run = data;
    child_signal_tree(&run->child, number, until);
}

static void kill_command(void *data)
{
    struct supervise_run *run = data;
    child_kill_tree(&run->child);
}

static bool start_guard_and_watch(struct supervise_run *run, struct errmsg *why)
{
    if (child_guard_orphans(&run->child, environment_get(run->plan->environment, "DLOCK_HELD")))
        return watch_start(&run->watch, why) == LOCK_OK;
    errmsg_set(why, "cannot start the process that stops what a killed dlock leaves: %s",
               strerror(errno));
    return false;
}

static void supervise_watch(struct supervise_run *run)
{
    struct errmsg why = {""};
    run->watch_at = DEADLINE_NEVER;
    if (start_guard_and_watch(run, &why))
        return;
    if (deadline_passed(run->look_at)) {
        run->look_at = watch_look_alone(&run->watch);
        if (!run->warned)
            say_warning(run->plan->out, "%s; trying again", why.text);
        run->warned = true;
    }
    run->watch_at = deadline_earlier(deadline_after(watch_again), run->look_at);
}

/* The command is reaped first, so that one which has ended by itself is not
 * reported as stopped. */
static void supervise_act(struct supervise_run *run)
{
    run->end.state = watch_read(&run->watch);
    expiry_act(&run->end);
    if (run->end.phase == RUNNING && deadline_passed(run->watch_at))
        supervise_watch(run);
}

/* --- the loop ------------------------------------------------------------ */

/* Read as long as the command runs, whatever has become of the lease: the
 * sender of a notification blocks until there is room for it. */
static void read_heartbeat(struct supervise_run *run)
{
    const struct supervision *plan = run->plan;
    if (plan->heartbeat->fd < 0 || !watchdog_read(plan->heartbeat, &plan->out->notify))
        return;
    run->end.beaten = deadline_now();
    watch_beat(&run->watch);
}

static void supervise_wait_for_event(const struct supervise_run *run)
{
    struct deadline next = expiry_next(&run->end);
    if (run->end.phase == RUNNING)
        next = deadline_earlier(next, run->watch_at);
    struct pollfd fds[] = {
        {.fd = run->plan->signals->fd, .events = POLLIN},
        {.fd = run->watch.news_fd, .events = POLLIN},
        {.fd = run->timer_fd, .events = POLLIN},
        {.fd = run->child.ended ? -1 : run->child.guard_fd, .events = POLLIN},
        {.fd = run->plan->heartbeat->fd, .events = POLLIN},
    };
    int timeout = deadline_set_timer(run->timer_fd, next);
    (void)poll(fds, sizeof fds / sizeof *fds, timeout);
}

/* The command has ended; if it was stopped, no process of its tree may be left. */
static bool supervise_is_over(struct supervise_run *run)
{
    if (run->end.phase != RUNNING)
        child_find_unreaped(&run->child);
    if (!run->child.ended || run->end.phase == RUNNING)
        return run->child.ended;
    if (child_tree_gone(&run->child))
        return true;
    if (!expiry_gives_up(&run->end))
        return false;
    expiry_say_left(&run->end, child_tree_left(&run->child));
    return true;
}

/* The kernel has killed the command with its guard; dlock is now the parent of
 * what the command has started. */
static void guard_lost(struct supervise_run *run)
{
    expiry_kill(&run->end);
    say_error(run->plan->out, "the process that guards the command for --tree was killed; killing "
                              "what is left of the command");
}

static void supervise_reap(struct supervise_run *run)
{
    bool had_ended = run->child.command_ended;
    child_reap(&run->child);
    if (run->child.guard_lost && run->end.phase == RUNNING)
        guard_lost(run);
    else if (run->child.command_ended && !had_ended && !run->child.ended)
        say_verbose(run->plan->out,
                    "the command has ended; waiting for the processes it started (--tree)");
}

/* Stopping takes precedence, even on waking from a freeze or a stop. A SIGCHLD
 * that is read may report a change since the last look: then look again. Each
 * step reads only the first of a flood, so that it puts off none of them. */
static void watch_command(struct supervise_run *run)
{
    for (;;) {
        supervise_reap(run);
        if (supervise_is_over(run))
            return;
        supervise_act(run);
        bool changed = job_pass_signals_on(&run->job, &run->child);
        read_heartbeat(run);
        if (run->end.phase == RUNNING)
            job_stop_with_command(&run->job, &run->child);
        if (!changed)
            supervise_wait_for_event(run);
    }
}

/* A command with --heartbeat talks to the service manager itself, and knows
 * when it is ready. */
static void say_started(const struct supervision *plan, const struct child *child)
{
    char until[40];
    say_verbose(plan->out, "started %s, pid %ld", plan->argv[0], (long)child->command);
    if (plan->out->notify.fd < 0)
        return; /* and the file of the time zone need not be read */
    wall_format_local(wall_at_ms(plan->lease->deadline), until, sizeof until);
    say_status(plan->out, "holding the lock %s until %s, running %s", plan->lease->name, until,
               plan->argv[0]);
    if (plan->heartbeat->fd < 0)
        sd_notify_send(&plan->out->notify, "READY=1");
}

/* From the start of the command to its end. */
static void supervise_command(struct supervise_run *run)
{
    const struct supervision *plan = run->plan;
    struct outcome *outcome = run->outcome;
    /* The first heartbeat may come at once, and does not start the watch by itself. */
    run->watch_at = plan->heartbeat->fd >= 0 ? deadline_now() : deadline_after(watch_after);
    run->look_at = deadline_earlier(
        deadline_after(first_look),
        deadline_minus(plan->lease->deadline, lease_grace(plan->lease->set, plan->end.grace)));
    if (run->child.page->exec_errno == 0)
        say_started(plan, &run->child);
    watch_command(run);
    (void)job_pass_signals_on(&run->job, &run->child);
    read_heartbeat(run); /* its last words */

    run->end.state = watch_stop(&run->watch);
    expiry_judge(&run->end);
    outcome->released = run->end.released;
    outcome->lease_over = run->end.over;
    outcome->over_since = run->end.over_since;
    outcome->status = run->child.status;
    if (WIFSIGNALED(outcome->status) && sigismember(&run->job.told, WTERMSIG(outcome->status)) == 1)
        outcome->signalled = WTERMSIG(outcome->status);
    outcome->exec_error = run->child.exec_error;
    child_close(&run->child);
}

void supervise(const struct supervision *plan, struct outcome *outcome)
{
    struct supervise_run run = {.plan = plan, .outcome = outcome};
    *outcome = (struct outcome){0};
    run.end = (struct expiry){
        .out = plan->out,
        .lease = plan->lease,
        .worker = {"the command", stop_command, kill_command, &run},
        .plan = plan->end,
        .beaten = plan->heartbeat->fd >= 0 ? plan->lease->taken : (struct deadline){0},
    };
    expiry_init(&run.end);
    /* Frozen between the take and this point, or answered too late: nothing may start. */
    if (lease_as_good_as_over(plan->lease)) {
        outcome->lease_over = true;
        errmsg_set(&outcome->error, "the lease ended before the command could be started");
        return;
    }
    /* From the fork on, the command also receives what is sent to the whole
     * group. (A key typed in the microseconds before that is lost.) */
    outcome->signalled = signals_ended_by(plan->signals);
    if (outcome->signalled != 0)
        return;
    run.timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (run.timer_fd < 0) {
        errmsg_set(&outcome->error, "cannot make a timer: %s", strerror(errno));
        return;
    }
    run.job = (struct job_control){.signals = plan->signals, .out = plan->out};
    run.watch = (struct watch){
        .backend = plan->backend,
        .lease = *plan->lease,
        .grace = plan->end.grace,
        .heartbeat = plan->heartbeat,
        .notify = &plan->out->notify,
    };
    bool ready = watch_open(&run.watch, &outcome->error) == LOCK_OK;
    outcome->started = ready && child_start(&run.child, plan->argv, plan->environment,
                                            plan->signals, plan->tree, &outcome->error);
    if (outcome->started)
        supervise_command(&run);
    watch_close(&run.watch);
    close(run.timer_fd);
}
