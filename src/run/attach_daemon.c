/* The target is the process that the lock is attached to. The guard is the process that holds the
 * lock after dlock has exited. dlock and the guard use the backend (the lock file or the connection
 * to Redis) one after the other:
 *
 *   dlock   until the fork. dlock uses the backend again if the guard reports through the
 *           pipe that it cannot watch the target, or ends without a report.
 *   guard   from the fork until the lock is released. dlock no longer uses the backend, and
 *           does not even close it, because a file lock belongs to the open file, which the
 *           guard shares with dlock.
 *
 * Possible orders of events at the start:
 *   1. The guard reports that it is watching -> dlock exits with status 0.
 *   2. The guard cannot watch the target -> it reports why before its watch thread has used the
 *      backend -> dlock releases the lock.
 *   3. Before the report, the guard is killed, a signal comes to dlock, or the lease
 *      ends -> dlock kills the guard and releases the lock.
 *   4. dlock is killed before the guard has reported -> the caller assumes that dlock has not
 *      acquired the lock. The guard finds that nobody reads the pipe, and releases the lock.
 *   5. dlock is killed after the guard has reported -> the guard holds the lock as long as the
 *      target lives. If the target is the caller, and exits when dlock fails (`dlock ... || exit`),
 *      the guard then releases the lock.
 *
 * Possible orders of events at the end:
 *   1. The target ends first -> the guard releases the lock at once, even if descendants of the
 *      target are still running. A dlock -n that requests the lock before the release finds a
 *      holder that has ended, and waits a moment for the guard (run/acquisition.c). If the holder
 *      of a --lock-file is unknown, dlock finds the guard by its record, so the guard removes the
 *      record after the release.
 *   2. The lease ends or is lost first -> the guard stops and kills the target and its
 *      descendants (run/expiry.c) -> the guard releases the lock when none of them is left.
 *   3. The guard and the target were frozen, and the target ends before the guard runs again ->
 *      the boot clock shows that the target ended too late, and the guard reports that.
 *   4. The lock is released with its owner token, for example by dlock --release in the
 *      script -> the guard exits.
 *   5. The guard is killed -> nothing stops the target, because no other process watches the
 *      lease. The lock expires by itself; a file lock is free at once.
 *
 * The target is the process that called dlock, or the process that --attach=PID names. The
 * caller may end at any time, and its pid may then be given to another process:
 *
 *   the caller ends before getppid() -> dlock's parent is now pid 1, which dlock accepts only as
 *       --attach=1, or a subreaper (a service manager), which is in another session than dlock
 *   the caller ends before pidfd_open() -> pidfd_open() fails; or another process has got the
 *       pid, which dlock notices because getppid() now returns a different pid
 *   the caller ends later -> the pidfd becomes readable, which shows dlock or the guard that the
 *       target has ended
 */
#include "run/attach_daemon.h"

#include "process/process.h"
#include "run/outer.h"
#include "run/supervise.h"
#include "ui/report.h"
#include "util/fileutils.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- the target ---------------------------------------------------------- */

static int refuse_target(const struct messages *out, const char *text)
{
    return fail(out, FAIL_ARGUMENT, STATUS_USAGE, "%s; nothing is locked", text);
}

static int cannot_pin(const struct messages *out, pid_t pid, int error)
{
    bool none = error == ENOSYS || error == EPERM;

    if (error == ESRCH)
        return fail(out, FAIL_ARGUMENT, STATUS_USAGE, "there is no process %ld; nothing is locked",
                    (long)pid);
    if (error == EINVAL || error == ENOENT) /* ENOENT since Linux 6.15 */
        return fail(out, FAIL_ARGUMENT, STATUS_USAGE,
                    "%ld is a thread, not a process; nothing is locked", (long)pid);
    return fail(out, FAIL_SYSTEM, STATUS_SYSTEM,
                "cannot watch process %ld: %s%s; nothing is locked", (long)pid,
                none ? "pidfd_open(2) (Linux 5.3) is not available: " : "", strerror(error));
}

static void describe(struct attach_target *target, pid_t pid)
{
    struct proc_stat stat;
    bool there = proc_stat_read(pid, &stat);

    snprintf(target->name, sizeof target->name, "%s (pid %ld)", there ? stat.name : "the process",
             (long)pid);
    target->id = (struct process_id){.pid = pid, .start = there ? stat.start : 0};
}

/* True if the caller is a shell in which a user types commands: it has a terminal, and gives each
 * job a new process group. A script that begins with #! is not such a shell, because its process
 * has the name of the script. */
static bool is_interactive_shell(pid_t pid)
{
    static const char *const shells[] = {"sh",   "bash", "dash", "zsh",     "ksh", "ksh93", "mksh",
                                         "yash", "fish", "ash",  "busybox", "csh", "tcsh"};
    struct proc_stat stat;
    bool is_shell = false;
    int terminal = -1;
    if (getpgid(pid) != getpgrp() && proc_stat_read(pid, &stat))
        for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
            is_shell = is_shell || strcmp(stat.name, shells[i]) == 0;
    if (is_shell)
        terminal = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
    bool has_terminal = terminal >= 0;
    fd_close(&terminal);
    return has_terminal;
}

int attach_target_open(struct attach_target *target, pid_t given, const struct messages *out)
{
    pid_t pid = given != 0 ? given : getppid();

    *target = (struct attach_target){.fd = -1};
    if (given == 0 && pid <= 1)
        return refuse_target(
            out, "the process that called dlock has ended, or is pid 1 (use --attach=1 for pid 1)");
    if (given == 0 && getsid(pid) != getsid(0))
        return refuse_target(out, "the process that called dlock has ended, or belongs to another "
                                  "session (use --attach=PID to name a process)");
    if (pid == getpid())
        return refuse_target(out, "the process to attach to is dlock itself");

    target->fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (target->fd < 0)
        return cannot_pin(out, pid, errno);
    describe(target, pid);

    if (given == 0 && getppid() != pid)
        return refuse_target(out, "the process that called dlock has ended");
    if (given == 0 && is_interactive_shell(pid))
        return refuse_target(out, "the caller is an interactive shell, which would be killed at "
                                  "the end of the lease; use --attach=$$ if this is intended");
    if (attach_target_has_ended(target))
        return refuse_target(out, "the process to attach to has already ended (it is a zombie)");
    if (!process_signal(target->fd, pid, 0) && errno == EPERM)
        return fail(out, FAIL_NOT_PERMITTED, STATUS_NOT_PERMITTED,
                    "%s belongs to another user, so dlock could not stop it when the lease ends; "
                    "nothing is locked",
                    target->name);
    /* This is probably --attach=$PPID in an orphaned script, whose parent is pid 1. At the end of
     * the lease, dlock would stop every process on the host. */
    if (pid == 1 && getsid(pid) != getsid(0))
        return refuse_target(out, "pid 1 belongs to another session and did not call dlock");
    return STATUS_OK;
}

bool attach_target_has_ended(const struct attach_target *target)
{
    struct pollfd fd = {.fd = target->fd, .events = POLLIN};
    return poll(&fd, 1, 0) > 0 || proc_life(target->id) == PROCESS_ENDED;
}

void attach_target_close(struct attach_target *target)
{
    fd_close(&target->fd);
}

/* --- the worker of run/supervise.c --------------------------------------- */

/* How often the guard checks whether the target and its descendants have ended after the stop
 * signal. */
static const struct duration look_interval = {20 * NS_PER_MS};

static const struct watchdog no_heartbeat = {.fd = -1};

struct guard {
    struct acquisition *lock;
    const struct attach_target *target;
    int ready_fd; /* the pipe to dlock, for one report */
    struct supervision supervision;
    struct attach_record attached;
    struct tree family; /* the target and its descendants */
};

/* If /proc shows no process of the target, signals at least the target itself. The pidfd makes this
 * safe even if the target has ended. */
static void signal_target(void *data, int number, struct deadline until)
{
    struct guard *guard = data;

    if (tree_signal(&guard->family, number, until).found == 0)
        (void)process_signal(guard->target->fd, guard->target->id.pid, number);
}

static bool target_has_ended(void *data)
{
    const struct guard *guard = data;
    const struct expiry *end = &guard->supervision.end;

    return end->released || end->phase != RUNNING || attach_target_has_ended(guard->target);
}

static struct tree_count target_left(void *data)
{
    struct guard *guard = data;
    struct tree_count left = tree_left(&guard->family);

    if (left.found == 0) /* no process is left, or /proc hides the target */
        left = (struct tree_count){.found = !attach_target_has_ended(guard->target),
                                   .first = guard->target->id.pid,
                                   .known = true};
    return left;
}

static bool attend_target(void *data)
{
    struct guard *guard = data;
    struct supervision *supervision = &guard->supervision;

    if (supervision->end.phase != RUNNING) {
        supervision->fds[0] = -1;
        supervision->due = deadline_after(look_interval);
    }
    return supervision->end.released; /* after a release, supervise() must return at once */
}

/* --- the guard ----------------------------------------------------------- */

/* Reports to dlock, in one write, why the guard cannot watch the target. An empty text means that
 * the guard is watching the target. False if dlock does not read the pipe any more. */
static bool tell_dlock(const struct guard *guard, const char *text)
{
    size_t length = strlen(text) + 1;
    ssize_t written;

    do
        written = write(guard->ready_fd, text, length);
    while (written < 0 && errno == EINTR);
    return written == (ssize_t)length;
}

/* The guard sends no messages to the script's service manager. daemonize() may have replaced the
 * guard's stderr, so messages_open() checks stderr again. */
static void adjust_messages(struct messages *out)
{
    fd_close(&out->notify.fd);
    messages_open(out);
    fd_close(&out->notify.fd);
}

/* Records that the lock is attached to the target. If the record cannot be written, the lock is
 * still held. */
static void note_attachment(struct guard *guard)
{
    struct acquisition *lock = guard->lock;
    struct errmsg why = {""};

    if (!attach_record_add(&guard->attached, lock->lock_dir, guard->target->id,
                           lock->where != NULL ? lock->where : lock->kind, &lock->lease, &why))
        say_verbose(lock->out, "%s; --extend and --release need the lock's name and --owner",
                    why.text);
}

/* Prepares the guard and starts the watch thread. On failure, returns false with *why set; the
 * watch thread has not used the backend in that case, so dlock can use it again. */
static bool prepare(struct guard *guard, const struct attach_plan *plan, struct errmsg *why)
{
    struct acquisition *lock = guard->lock;
    struct supervision *supervision = &guard->supervision;

    if (!daemonize(guard->target->id.pid, plan->in_place))
        return errmsg_fail(why, false, "cannot leave the caller's session: %s", strerror(errno));
    (void)prctl(PR_SET_NAME, "dlock-attach");
    adjust_messages(lock->out);
    /* The guard blocks all signals and does not read them, because a signal that was meant for
     * dlock must not cut short the guard's release of the lock. */
    fd_close(&lock->cancel_fd);
    fd_close(&lock->signals.fd);

    supervision->end = (struct expiry){
        .out = lock->out,
        .lease = &lock->lease,
        .worker = {guard->target->name, guard, signal_target, target_has_ended, target_left,
                   attend_target},
        .plan = plan->end,
    };
    if (!supervise_open(supervision, lock->backend, &no_heartbeat, why))
        return false;
    supervision->fds[0] = guard->target->fd;
    if (!tree_open(&guard->family, guard->target->id))
        return errmsg_fail(why, false,
                           "cannot prepare to stop the process at the end of the lease: %s",
                           strerror(errno));
    note_attachment(guard);
    return watch_start(&supervision->watch, why) == LOCK_OK;
}

/* Releases the lock. The exit status of the target is unknown, because the target is not a child of
 * the guard. */
static void release(struct guard *guard, bool wanted)
{
    struct acquisition *lock = guard->lock;
    bool over = guard->supervision.end.over;
    struct errmsg why = {""};

    lock->lease.lost = over;
    lock->lease.end.how = over ? RUN_STOPPED : RUN_ENDED;
    if (!wanted)
        lock->lease.end.how = RUN_NONE;
    enum lock_result result = acquisition_release(lock, &why);
    if (lock_is_lost(result) && !over)
        say_error(lock->out, "the lock was lost before %s ended: %s", guard->target->name,
                  why.text);
    else
        acquisition_say_released(lock, result, &why);
}

__attribute__((noreturn)) static void guard_lock(struct guard *guard,
                                                 const struct attach_plan *plan)
{
    struct acquisition *lock = guard->lock;
    struct errmsg why = {""};

    if (!prepare(guard, plan, &why)) {
        attach_record_close(&guard->attached, false);
        (void)tell_dlock(guard, why.text);
        _exit(STATUS_SYSTEM);
    }
    bool wanted = tell_dlock(guard, "");
    close(guard->ready_fd);
    if (wanted)
        supervise(&guard->supervision);
    else {
        lock->lease.hold = deadline_now(); /* nothing was run, so release the lock at once */
        (void)watch_take(&guard->supervision.watch);
    }
    if (!guard->supervision.end.released)
        release(guard, wanted);
    attach_record_close(&guard->attached, guard->supervision.end.released);
    supervise_close(&guard->supervision);
    tree_close(&guard->family);
    _exit(acquisition_close(lock, STATUS_OK));
}

/* --- dlock's own side ---------------------------------------------------- */

/* Waits for the guard's report until the lease ends or a signal comes. True if the guard is
 * watching; otherwise *why is the failure. */
static bool hear(const struct acquisition *lock, int fd, struct errmsg *why)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN},
                            {.fd = lock->signals.fd, .events = POLLIN}};
    ssize_t length;

    errmsg_set(why, "the process that guards the lock did not start in time");
    if (deadline_poll(fds, 2, lock->lease.deadline) <= 0 || fds[0].revents == 0)
        return false;
    do
        length = read(fd, why->text, sizeof why->text);
    while (length < 0 && errno == EINTR);
    if (length <= 0)
        errmsg_set(why, "the process that guards the lock was killed");
    return length == 1;
}

bool attach_daemon_start(struct acquisition *lock, const struct attach_target *target,
                         const struct attach_plan *plan, int *status)
{
    struct errmsg why = {""};
    int ends[2] = {-1, -1};
    pid_t pid = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;

    if (pid == 0) {
        struct guard guard = {
            .lock = lock,
            .target = target,
            .ready_fd = ends[1],
            .attached = {-1, -1, ""},
            .family = TREE_OWN,
        };
        close(ends[0]);
        guard_lock(&guard, plan);
    }
    if (pid < 0)
        errmsg_set(&why, "cannot start the process that guards the lock: %s", strerror(errno));
    fd_close(&ends[1]);
    bool started = pid > 0 && hear(lock, ends[0], &why);
    if (pid > 0 && !started)
        process_kill_child(pid); /* otherwise the child's copy of the descriptor would keep the lock
                                  * file locked */
    fd_close(&ends[0]);
    if (!started) {
        lock->ended_by = signals_ended_by(&lock->signals);
        *status = acquisition_give_back(lock, FAIL_SYSTEM, STATUS_SYSTEM, why.text);
    }
    return started;
}
