/* Between fork and this point our parent may have ended; and between getppid(2)
 * and pidfd_open(2) its pid may have become another process's. In each order:
 *
 *   ended before getppid() -> our parent is pid 1, which is never meant unless
 *                             it is named; or a subreaper (a service manager),
 *                             which its session reveals: a caller is of ours
 *   ended before pidfd_open() -> no such process; or another one, and then
 *                             getppid() returns something else from now on
 *   ended later            -> the pidfd is readable
 */
#include "process/target_process.h"

#include "process/procfs.h"
#include "util/fileutils.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static enum exit_status cannot_pin(pid_t pid, int error, struct errmsg *why)
{
    if (error == ESRCH)
        return errmsg_fail(why, STATUS_USAGE, "there is no process %ld", (long)pid);
    if (error == EINVAL || error == ENOENT) /* since Linux 6.15 */
        return errmsg_fail(why, STATUS_USAGE, "%ld is a thread, not a process", (long)pid);
    return errmsg_fail(
        why, STATUS_SYSTEM, "cannot watch process %ld: %s%s", (long)pid,
        error == ENOSYS || error == EPERM ? "pidfd_open(2) (Linux 5.3) is not available: " : "",
        strerror(error));
}

static void describe(struct target_process *target, pid_t pid)
{
    struct proc_stat stat;
    bool there = proc_stat_read(pid, &stat);
    snprintf(target->name, sizeof target->name, "%s (pid %ld)", there ? stat.name : "the process",
             (long)pid);
    target->id = (struct process_id){.pid = pid, .start = there ? stat.start : 0};
}

enum exit_status target_process_open(struct target_process *target, pid_t given, struct errmsg *why)
{
    pid_t pid = given != 0 ? given : getppid();
    *target = (struct target_process){.fd = -1};
    if (given == 0 && pid <= 1)
        return errmsg_fail(
            why, STATUS_USAGE,
            "the process that called dlock has ended, or is pid 1 (--attach=1 is for that)");
    if (given == 0 && getsid(pid) != getsid(0))
        return errmsg_fail(why, STATUS_USAGE,
                           "the process that called dlock has ended, or is of another session "
                           "(--attach=PID is for that)");
    if (pid == getpid())
        return errmsg_fail(why, STATUS_USAGE, "the process to attach to is dlock itself");
    target->fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (target->fd < 0)
        return cannot_pin(pid, errno, why);
    describe(target, pid);
    if (given == 0 && getppid() != pid)
        return errmsg_fail(why, STATUS_USAGE, "the process that called dlock has ended");
    if (target_process_has_ended(target))
        return errmsg_fail(why, STATUS_USAGE, "the process to attach to has ended (a zombie)");
    if (!process_signal(target->fd, pid, 0) && errno == EPERM)
        return errmsg_fail(
            why, STATUS_NOT_PERMITTED,
            "%s belongs to another user, and could not be stopped when the lease ends",
            target->name);
    /* $PPID of an orphan: the end of the lease would stop all that runs on the host. */
    if (pid == 1 && getsid(pid) != getsid(0))
        return errmsg_fail(why, STATUS_USAGE,
                           "pid 1 is of another session, and did not call dlock");
    return STATUS_OK;
}

bool target_process_has_ended(const struct target_process *target)
{
    struct pollfd fd = {.fd = target->fd, .events = POLLIN};
    return poll(&fd, 1, 0) > 0 || proc_life(target->id) == PROCESS_ENDED;
}

void target_process_signal(const struct target_process *target, int number)
{
    (void)process_signal(target->fd, target->id.pid, number); /* it may have ended */
}

void target_process_close(struct target_process *target)
{
    fd_close(&target->fd);
}
