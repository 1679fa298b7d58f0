/* Two processes, and which one owns the lock (its file, its connection) when.
 *
 *   dlock   until the fork; and again if the guard reports through the pipe why it
 *           cannot watch, or ends without a word.
 *   guard   from the fork on, until the lock is released. dlock no longer touches
 *           the backend, and leaves it open when it ends: a file lock belongs to
 *           the open file, of which the guard has a copy.
 *
 * Orders at the start:
 *   1. The guard reports that it watches -> dlock ends with 0.
 *   2. The guard cannot watch -> it reports why before its watch thread has touched
 *      the backend -> dlock releases the lock.
 *   3. The guard is killed before that, or a signal for dlock comes first, or the
 *      lease ends -> dlock kills the guard and releases the lock.
 *   4. dlock is killed -> its caller assumes that the lock was not taken. The guard
 *      finds no reader at the pipe, and releases the lock. If dlock is killed after
 *      the guard has written its word, the guard holds the lock for as long as the
 *      target lives, and the caller's `|| exit` ends that.
 *
 * Orders at the end:
 *   1. The target ends first -> released at once, whatever it has left behind. A dlock
 *      that asks with -n before that finds a holder that has ended, and waits for us for
 *      a moment (run/wait.c).
 *   2. The lease ends or is lost first -> the target and its family are stopped,
 *      and killed (run/expiry.c) -> released when none of them is left.
 *   3. Both were frozen, and the target ends before the guard wakes -> the boot
 *      clock shows that it ended too late, and the guard reports that.
 *   4. The lock is released with its own token, as by dlock --release in the
 *      script -> the guard exits.
 *   5. The guard is killed -> nothing stops the target, and the lock expires by
 *      itself (a file lock at once). No process is left that could do more.
 */
#include "run/attach_daemon.h"

#include "process/daemonize.h"
#include "run/attach_record.h"
#include "util/fileutils.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* How often to check whether a family that was asked to end has done so. */
static const struct duration look_interval = {20 * NS_PER_MS};

struct attach_daemon_guard {
    struct acquisition *lock;
    const struct target_process *target;
    const struct attach_plan *plan;
    int ready_fd; /* to dlock */
    int timer_fd;
    struct process_spare spare;
    struct attach_record attached;
    struct process_family family;
    struct watchdog no_heartbeat;
    struct watch watch;
    struct expiry end;
};

/* --- the end of the lease ------------------------------------------------ */

/* If /proc shows no process, at least the target itself. */
static void stop_target(void *data, int number, struct deadline until)
{
    struct attach_daemon_guard *guard = data;
    process_spare_free(&guard->spare);
    if (process_tree_signal(&guard->family, NULL, number, until).found == 0)
        target_process_signal(guard->target, number);
}

static void kill_target(void *data)
{
    struct attach_daemon_guard *guard = data;
    process_spare_free(&guard->spare);
    if (process_tree_kill(&guard->family, NULL).found == 0)
        target_process_signal(guard->target, SIGKILL);
}

/* None of the stopped processes may be left. */
static bool attach_daemon_is_over(struct attach_daemon_guard *guard)
{
    bool ended = target_process_has_ended(guard->target);
    if (guard->end.released || (ended && guard->end.phase == RUNNING))
        return true;
    if (guard->end.phase == RUNNING)
        return false;
    struct process_count left = process_tree_signal(&guard->family, NULL, 0, DEADLINE_NEVER);
    if (ended && left.found == 0)
        return true;
    if (!expiry_gives_up(&guard->end))
        return false;
    if (left.found == 0) /* /proc hides it */
        left = (struct process_count){.found = 1, .first = guard->target->id.pid, .known = true};
    expiry_say_left(&guard->end, left);
    return true;
}

/* --- the loop ------------------------------------------------------------ */

static void attach_daemon_wait_for_event(const struct attach_daemon_guard *guard)
{
    struct deadline next = expiry_next(&guard->end);
    if (guard->end.phase != RUNNING)
        next = deadline_earlier(next, deadline_after(look_interval));
    struct pollfd fds[] = {
        {.fd = guard->end.phase == RUNNING ? guard->target->fd : -1, .events = POLLIN},
        {.fd = guard->watch.news_fd, .events = POLLIN},
        {.fd = guard->timer_fd, .events = POLLIN},
    };
    int timeout = deadline_set_timer(guard->timer_fd, next);
    (void)poll(fds, sizeof fds / sizeof *fds, timeout);
}

static void watch_target(struct attach_daemon_guard *guard)
{
    for (;;) {
        guard->end.state = watch_read(&guard->watch);
        if (attach_daemon_is_over(guard))
            return;
        expiry_act(&guard->end);
        if (guard->end.released)
            return;
        attach_daemon_wait_for_event(guard);
    }
}

/* The exit status of a process that is no child of ours is not known. */
static void attach_daemon_release(struct attach_daemon_guard *guard, bool wanted)
{
    struct errmsg why = {""};
    guard->lock->lease.lost = guard->end.over;
    guard->lock->lease.end.how = !wanted ? RUN_NONE : guard->end.over ? RUN_STOPPED : RUN_ENDED;
    enum lock_result result = acquisition_release(guard->lock, &why);
    if (lock_is_lost(result) && !guard->end.over)
        say_error(guard->lock->out, "the lock was lost before %s ended: %s", guard->target->name,
                  why.text);
    else
        acquisition_say_released(guard->lock, result, &why);
}

/* --- the start ----------------------------------------------------------- */

/* Reports to dlock, in one write, why there is no guard; "": there is one. */
static bool tell_dlock(const struct attach_daemon_guard *guard, const char *text)
{
    size_t length = strlen(text) + 1;
    ssize_t written;
    do
        written = write(guard->ready_fd, text, length);
    while (written < 0 && errno == EINTR);
    return written == (ssize_t)length;
}

static void close_guard(struct attach_daemon_guard *guard)
{
    attach_record_remove(&guard->attached);
    process_spare_free(&guard->spare);
    process_family_forget(&guard->family);
    fd_close(&guard->timer_fd);
}

__attribute__((noreturn)) static void attach_daemon_refuse(struct attach_daemon_guard *guard,
                                                           const char *what, int error)
{
    struct errmsg why = {""};
    errmsg_set(&why, "%s%s%s", what, error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
    close_guard(guard);
    (void)tell_dlock(guard, why.text);
    _exit(STATUS_SYSTEM);
}

/* The script's own service manager gets no more messages, and its stderr may be
 * another one by now. */
static void adjust_messages(struct messages *out)
{
    fd_close(&out->notify.fd);
    messages_open(out);
    fd_close(&out->notify.fd);
}

/* All signals are blocked, and signals sent to dlock do not concern the guard:
 * they do not cut the release short. */
static void forget_signals(struct acquisition *lock)
{
    fd_close(&lock->cancel_fd);
    fd_close(&lock->signals.fd);
}

/* Without the file the lock is held all the same. */
static void note_attachment(struct attach_daemon_guard *guard)
{
    struct acquisition *lock = guard->lock;
    struct errmsg why = {""};
    if (!attach_record_add(&guard->attached, lock->lock_dir, guard->target->id,
                           lock->where != NULL ? lock->where : lock->kind, &lock->lease, &why))
        say_verbose(lock->out, "%s; --extend and --release need the lock's name and --owner",
                    why.text);
}

static void attach_daemon_prepare(struct attach_daemon_guard *guard)
{
    struct acquisition *lock = guard->lock;
    if (!daemonize(guard->target->id.pid, guard->plan->in_place))
        attach_daemon_refuse(guard, "cannot leave the caller's session", errno);
    (void)prctl(PR_SET_NAME, "dlock-attach");
    adjust_messages(lock->out);
    forget_signals(lock);
    guard->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (guard->timer_fd < 0)
        attach_daemon_refuse(guard, "cannot make a timer", errno);
    if (!process_spare_keep(&guard->spare))
        attach_daemon_refuse(guard, "cannot keep descriptors free for the end of the lease", errno);
    if (!process_family_init(&guard->family, guard->target->id))
        attach_daemon_refuse(guard, "out of memory", 0);
    guard->end = (struct expiry){
        .out = lock->out,
        .lease = &lock->lease,
        .worker = {guard->target->name, stop_target, kill_target, guard},
        .plan = guard->plan->end,
    };
    expiry_init(&guard->end);
    note_attachment(guard);
}

static void attach_daemon_start_watch(struct attach_daemon_guard *guard)
{
    struct errmsg why = {""};
    guard->watch = (struct watch){
        .backend = guard->lock->backend,
        .lease = guard->lock->lease,
        .grace = guard->plan->end.grace,
        .heartbeat = &guard->no_heartbeat,
        .notify = &guard->lock->out->notify,
    };
    if (watch_open(&guard->watch, &why) != LOCK_OK || watch_start(&guard->watch, &why) != LOCK_OK)
        attach_daemon_refuse(guard, why.text, 0);
}

__attribute__((noreturn)) static void
attach_daemon_tree_guard_run(struct acquisition *lock, const struct target_process *target,
                             const struct attach_plan *plan, int ready_fd)
{
    struct attach_daemon_guard guard = {
        .lock = lock,
        .target = target,
        .plan = plan,
        .ready_fd = ready_fd,
        .timer_fd = -1,
        .spare = PROCESS_SPARE_NONE,
        .attached = {-1, -1, ""},
        .no_heartbeat.fd = -1,
    };
    attach_daemon_prepare(&guard);
    attach_daemon_start_watch(&guard);
    bool wanted = tell_dlock(&guard, "");
    close(ready_fd);
    if (wanted)
        watch_target(&guard);
    else
        lock->lease.hold = deadline_now(); /* nothing was done under the lock */
    guard.end.state = watch_stop(&guard.watch);
    watch_close(&guard.watch);
    if (wanted && guard.end.phase == RUNNING)
        expiry_judge(&guard.end);
    close_guard(&guard);
    if (!guard.end.released)
        attach_daemon_release(&guard, wanted);
    _exit(acquisition_close(lock, STATUS_OK));
}

/* --- dlock's own side ---------------------------------------------------- */

/* Waits for the guard's report, until the lease or a signal ends the wait. */
static bool attach_daemon_hear(const struct acquisition *lock, int fd, struct errmsg *why)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN},
                            {.fd = lock->signals.fd, .events = POLLIN}};
    errmsg_set(why, "the guard of the lock did not start in time");
    if (deadline_poll(fds, 2, lock->lease.deadline) <= 0 || fds[0].revents == 0)
        return false;
    ssize_t length;
    do
        length = read(fd, why->text, sizeof why->text);
    while (length < 0 && errno == EINTR);
    if (length <= 0)
        errmsg_set(why, "the guard of the lock was killed");
    return length == 1;
}

bool attach_daemon_start(struct acquisition *lock, const struct target_process *target,
                         const struct attach_plan *plan, int *status)
{
    struct errmsg why = {""};
    int ends[2] = {-1, -1};
    pid_t pid = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (pid == 0) {
        close(ends[0]);
        attach_daemon_tree_guard_run(lock, target, plan, ends[1]);
    }
    if (pid < 0)
        errmsg_set(&why, "cannot start a process that guards the lock: %s", strerror(errno));
    fd_close(&ends[1]);
    bool started = pid > 0 && attach_daemon_hear(lock, ends[0], &why);
    if (pid > 0 && !started)
        process_kill_child(pid); /* it has the lock's file open too, and would keep it locked */
    fd_close(&ends[0]);
    if (!started) {
        lock->ended_by = signals_ended_by(&lock->signals);
        *status = acquisition_give_back(lock, FAIL_SYSTEM, STATUS_SYSTEM, why.text);
    }
    return started;
}
