/* One loop watches the lease and the worker. "This thread" is the one that runs the loop. Which
 * thread uses what:
 *
 *   the backend   this thread until the watch thread starts, and again once this thread has
 *                 taken the backend back (run/watch.c).
 *   the worker    this thread. No other thread sends signals or reaps, so no signal goes to a
 *                 pid that has become free.
 *   the deadline  this thread, by a timer on the boot clock, which fires at once after a suspend
 *                 that outlasted the deadline. A watch thread that hangs on a network does not
 *                 delay a stop.
 *   the verdict   the watch thread decides whether the lock is still held; this thread reads the
 *                 verdict when news_fd is readable.
 *
 * Each iteration of the loop takes these steps in this order, whatever has woken the loop:
 *
 *   1. Has the worker ended? A command is reaped first, so that a command that has ended by
 *      itself is not reported as stopped.
 *   2. run/expiry.c warns, stops or kills, by the boot clock and the watch's verdict. This
 *      takes precedence over what follows, even after dlock was frozen or stopped.
 *   3. The worker's attend() handles signals, heartbeats and job control. For each of these, it
 *      reads a limited number of events (struct drain), so that none delays the others.
 *   4. The loop waits for the next event, unless step 3 has learnt that a child has changed its
 *      state. That may have happened after step 1, so the next iteration starts at once.
 *
 * Possible orders in which the worker and the lease end:
 *
 *   the worker ends first -> the loop ends, whatever the worker has left behind.
 *   the lease ends or is lost first -> the worker's processes are stopped, then killed; the loop
 *       ends when none of them is left, or when dlock gives up killing them.
 *   both end at once, or dlock and the worker were frozen -> expiry_judge() sees by the boot
 *       clock whether the worker ended too late, and reports it.
 *   the lock is released with its owner token while the worker runs -> a command runs on without
 *       the lock, and dlock still passes signals on to it; a guard of --attach exits.
 *   the guard of --tree is killed -> the kernel kills the command. Its descendants become
 *       descendants of dlock, and dlock kills them.
 *
 * The command has a guard (process/guard.c), a process that kills what the command has started if
 * dlock is killed. After the end of the command, dlock releases the lock before it waits for the
 * ends of the watch thread and of the guard, because other processes may be waiting for the lock.
 * Possible orders of events:
 *
 *   expiry_judge() has checked whether the lease lasted -> dlock dismisses the guard (until then,
 *       if dlock is killed, the guard kills the remaining processes) -> dlock releases the lock
 *       -> dlock waits for the ends of the watch thread and the guard.
 *   dlock is killed between the dismissal and the release -> the guard ends and kills nothing, so
 *       processes that the command has left keep running, as after a release. A file lock is free
 *       once dlock and the guard have ended; a lock in Redis is held until its lease ends.
 *   dlock is killed after the release -> the same, and the lock is free.
 *   with --tree -> the command counts as ended when its last descendant has ended. By then the
 *       guard, which is the parent of the command, has ended too.
 *
 * The watch thread starts when the command has run for a moment. For a command that ends at once,
 * the watch would cost more than everything else, because it needs a thread, and two round trips to
 * Redis or an inotify descriptor. The first check by the watch finds whatever happened before the
 * watch started. The descriptors of the watch are opened before the command is started, so that
 * nothing is run if there are too few descriptors.
 *
 * The guard is forked before the watch thread starts, while dlock has no other thread. The guard or
 * the thread may fail to start if the user, or the container, cannot start any more processes for
 * now. The command runs on nevertheless:
 *
 *   one of them fails to start -> dlock keeps trying to start both, the guard first.
 *   a check is due meanwhile -> dlock warns, and this thread makes the check itself.
 *   that check hangs -> it ends within a second, and before the command must be stopped;
 *       signals and heartbeats wait until then. */
#include "run/supervise.h"

#include "run/watch.h"
#include "util/fileutils.h"

#include <poll.h>
#include <string.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

/* --- the loop ------------------------------------------------------------ */

bool supervise_open(struct supervision *run, struct backend *backend,
                    const struct watchdog *heartbeat, struct errmsg *why)
{
    const struct expiry *end = &run->end;

    run->due = DEADLINE_NEVER;
    for (size_t i = 0; i < WORKER_FDS; i++)
        run->fds[i] = -1;
    expiry_init(&run->end);
    run->watch = (struct watch){
        .backend = backend,
        .lease = *end->lease,
        .grace = end->plan.grace,
        .heartbeat = heartbeat,
        .notify = &end->out->notify,
    };
    run->timer_fd = -1;
    if (watch_open(&run->watch, why) != LOCK_OK)
        return false;
    run->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    return run->timer_fd >= 0 ||
           errmsg_fail(why, false, "cannot create a timer: %s", strerror(errno));
}

void supervise_close(struct supervision *run)
{
    watch_close(&run->watch);
    fd_close(&run->timer_fd);
}

/* True if the worker has ended. If dlock has stopped the worker, also requires that none of the
 * worker's processes is left, unless dlock has given up killing them. */
static bool is_over(struct supervision *run)
{
    const struct worker *worker = &run->end.worker;
    bool ended = worker->has_ended(worker->data);

    if (!ended || run->end.phase == RUNNING)
        return ended;
    struct tree_count left = worker->left(worker->data);
    if (tree_is_gone(&left))
        return true;
    if (!expiry_gives_up(&run->end))
        return false;
    expiry_say_left(&run->end, left);
    return true;
}

static void wait_for_event(const struct supervision *run)
{
    struct pollfd fds[2 + WORKER_FDS] = {
        {.fd = run->watch.news_fd, .events = POLLIN},
        {.fd = run->timer_fd, .events = POLLIN},
    };

    for (size_t i = 0; i < WORKER_FDS; i++)
        fds[2 + i] = (struct pollfd){.fd = run->fds[i], .events = POLLIN};
    struct deadline next = deadline_earlier(expiry_next(&run->end), run->due);
    int timeout = deadline_set_timer(run->timer_fd, next);
    (void)poll(fds, sizeof fds / sizeof *fds, timeout);
}

void supervise(struct supervision *run)
{
    const struct worker *worker = &run->end.worker;

    while (!is_over(run)) {
        run->end.state = watch_read(&run->watch);
        expiry_act(&run->end);
        if (!worker->attend(worker->data))
            wait_for_event(run);
    }
    run->end.state = watch_take(&run->watch);
    expiry_judge(&run->end);
}

/* --- the command --------------------------------------------------------- */

/* How long after the start of the command dlock starts the guard and the watch thread
 * (watch_after), and how often dlock tries again if one of them fails to start (watch_again). */
static const struct duration watch_after = {30 * NS_PER_MS};
static const struct duration watch_again = {100 * NS_PER_MS};

/* If the watch thread has not started, the first check is due this long after the command's
 * start. */
static const struct duration first_look = {1 * NS_PER_S};

/* Indices into the fds of struct supervision. */
enum { SIGNALS, HEARTBEAT, GUARD, EXEC };

static void signal_command(void *data, int number, struct deadline until)
{
    struct supervised_command *run = data;
    child_signal_tree(&run->child, number, until);
}

static struct tree_count command_left(void *data)
{
    struct supervised_command *run = data;
    return child_left(&run->child);
}

/* With --heartbeat, the command itself, and not dlock, reports to the service manager that it is
 * ready. */
static void say_started(const struct supervised_command *run)
{
    const struct messages *out = run->command.out;
    char until[40];

    say_verbose(out, "started %s (pid %ld)", run->command.argv[0], (long)run->child.command);
    if (out->notify.fd < 0)
        return; /* nobody reads the status, so the time zone file need not be read */
    wall_format_local(wall_at_ms(run->lease->deadline), until, sizeof until);
    if (!run->supervision.end.over)
        say_status(out, "holding the lock %s until %s, running %s", run->lease->name, until,
                   run->command.argv[0]);
    if (run->heartbeat->fd < 0)
        sd_notify_send(&out->notify, "READY=1");
}

/* Reports the start of the command, once. Looks into /proc only if the report is wanted. */
static void report_start(struct supervised_command *run)
{
    const struct messages *out = run->command.out;
    bool started;

    if (run->judged || (out->verbosity < 1 && out->notify.fd < 0))
        return;
    run->judged = child_judge_start(&run->child, &started);
    if (run->judged && started && run->supervision.end.phase == RUNNING)
        say_started(run);
}

static bool command_has_ended(void *data)
{
    struct supervised_command *run = data;
    struct expiry *end = &run->supervision.end;
    struct child *child = &run->child;
    bool had_ended = child->command_ended;

    child_reap(child);
    report_start(run);
    if (child->guard_lost && end->phase == RUNNING) {
        expiry_kill(end);
        say_error(end->out, "the guard process of --tree was killed; killing the command's "
                            "remaining processes");
    } else if (child->command_ended && !had_ended && !child->ended) {
        say_verbose(end->out, "the command has ended; waiting for its descendants (--tree)");
    }
    if (end->phase != RUNNING)
        child_find_unreaped(child);
    return child->ended;
}

static void start_watching(struct supervised_command *run)
{
    struct supervision *supervision = &run->supervision;
    const char *held = environment_get(run->command.environment, "DLOCK_HELD");
    struct errmsg why = {""};

    supervision->due = DEADLINE_NEVER;
    if (!child_guard_orphans(&run->child, held))
        errmsg_set(&why,
                   "cannot start the guard process, which stops the command if dlock is killed: %s",
                   strerror(errno));
    else if (watch_start(&supervision->watch, &why) == LOCK_OK)
        return;

    if (deadline_passed(run->look_at)) {
        run->look_at = watch_look_alone(&supervision->watch);
        if (!run->warned)
            say_warning(supervision->end.out, "%s; retrying", why.text);
        run->warned = true;
    }
    supervision->due = deadline_earlier(deadline_after(watch_again), run->look_at);
}

/* Reads heartbeats as long as the command runs, even after the end of the lease, because the sender
 * of a message blocks while the socket is full. */
static void read_heartbeat(struct supervised_command *run)
{
    const struct watchdog *heartbeat = run->heartbeat;

    if (heartbeat->fd < 0 || !watchdog_read(heartbeat, &run->command.out->notify))
        return;
    run->supervision.end.beaten = deadline_now();
    watch_beat(&run->supervision.watch);
}

/* Handles signals, heartbeats and job control, and starts the guard and the watch thread when they
 * are due. True if a child has changed its state. */
static bool attend_command(void *data)
{
    struct supervised_command *run = data;
    struct supervision *supervision = &run->supervision;

    if (supervision->end.phase != RUNNING)
        supervision->due = DEADLINE_NEVER;
    else if (deadline_passed(supervision->due))
        start_watching(run);
    bool changed = child_pass_signals_on(&run->child);
    read_heartbeat(run);
    if (supervision->end.phase == RUNNING)
        child_stop_with_command(&run->child);
    supervision->fds[GUARD] = run->child.ended ? -1 : run->child.guard_fd;
    supervision->fds[EXEC] = run->child.exec_fd;
    return changed;
}

/* Supervises the command from its start to its end. */
static void supervise_child(struct supervised_command *run, struct outcome *outcome)
{
    struct supervision *supervision = &run->supervision;
    struct child *child = &run->child;

    supervision->fds[SIGNALS] = run->command.signals->fd;
    supervision->fds[HEARTBEAT] = run->heartbeat->fd;
    /* With --heartbeat the watch thread starts at once, because the first heartbeat may come at
     * once, and a heartbeat does not itself start the thread. */
    supervision->due = run->heartbeat->fd >= 0 ? deadline_now() : deadline_after(watch_after);
    run->look_at = deadline_earlier(
        deadline_after(first_look),
        deadline_minus(run->lease->deadline, lease_grace(run->lease->set, run->end.grace)));
    supervise(supervision);
    (void)child_pass_signals_on(child);
    read_heartbeat(run); /* reads the last messages */
    child_dismiss_guard(child);

    outcome->released = supervision->end.released;
    outcome->lease_over = supervision->end.over;
    outcome->over_since = supervision->end.over_since;
    outcome->status = child->status;
    outcome->exec_error = child->exec_error;
    if (WIFSIGNALED(child->status) && sigismember(&child->told, WTERMSIG(child->status)) == 1)
        outcome->signalled = WTERMSIG(child->status);
}

void supervise_command(struct supervised_command *run, struct outcome *outcome)
{
    *outcome = (struct outcome){0};
    /* If dlock was frozen after it acquired the lock, or the store answered too late, dlock must
     * not start the command. */
    if (lease_as_good_as_over(run->lease)) {
        outcome->lease_over = true;
        errmsg_set(&outcome->error, "the lease ended before the command started");
        return;
    }
    /* Signals that came until now were for dlock alone. After the fork, the command also receives
     * signals to the whole process group. (Ctrl-C in the microseconds between this check and the
     * fork is lost.) */
    outcome->signalled = signals_ended_by(run->command.signals);
    if (outcome->signalled != 0)
        return;

    run->supervision.end = (struct expiry){
        .out = run->command.out,
        .lease = run->lease,
        .worker = {"the command", run, signal_command, command_has_ended, command_left,
                   attend_command},
        .plan = run->end,
        .beaten = run->heartbeat->fd >= 0 ? run->lease->taken : (struct deadline){0},
    };
    outcome->started =
        supervise_open(&run->supervision, run->backend, run->heartbeat, &outcome->error) &&
        child_start(&run->child, &run->command, &outcome->error);
    if (outcome->started)
        supervise_child(run, outcome);
    else
        supervise_close(&run->supervision);
}

void supervise_command_close(struct supervised_command *run)
{
    supervise_close(&run->supervision);
    child_close(&run->child);
}
