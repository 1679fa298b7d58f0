#include "process/child.h"

#include "process/orphan_guard.h"
#include "process/procfs.h"
#include "process/spawn.h"
#include "process/tree_guard.h"
#include "util/fileutils.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static bool child_fail(struct child *child, const char *text, int error, struct errmsg *why)
{
    errmsg_set(why, "%s: %s", text, strerror(error));
    child_close(child);
    return false;
}

/* It is left unreaped. */
static bool child_has_ended(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) != 0 || info.si_pid != 0;
}

/* Returns 0 or an errno. The guard's first word is that the command runs; if
 * the guard ends without one, nothing runs. A word that could not be read is
 * not waited for: the page holds the same, since the guard's last store is
 * visible after its end. */
static int start_guard(struct child *child, const char *const *argv,
                       const struct environment *environment, const struct signals *signals)
{
    int ends[2];
    char byte;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return errno;
    child->guard_fd = ends[0];
    child->pid = fork();
    if (child->pid == 0) {
        close(ends[0]);
        process_spare_free(&child->spare); /* it opens nothing more */
        tree_guard_run(ends[1], argv, environment, signals, child->page);
    }
    int error = child->pid < 0 ? errno : 0;
    close(ends[1]);
    if (error != 0)
        return error;
    while (recv(child->guard_fd, &byte, 1, 0) < 0 && errno == EINTR)
        continue;
    for (bool ended = false; !ended;) {
        ended = child_has_ended(child->pid);
        child->command = (pid_t)atomic_load(&child->page->command);
        if (child->command > 0)
            return 0;
        if (!ended)
            (void)poll(NULL, 0, 1);
    }
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    error = atomic_load(&child->page->error);
    return error != 0 ? error : ECHILD;
}

bool child_start(struct child *child, const char *const *argv,
                 const struct environment *environment, const struct signals *signals, bool tree,
                 struct errmsg *why)
{
    *child =
        (struct child){.pid = -1, .guard_fd = -1, .orphan_guard = -1, .spare = PROCESS_SPARE_NONE};
    void *page = mmap(NULL, sizeof(struct guard_page), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return child_fail(child, "cannot allocate memory to share with the command's process",
                          errno, why);
    child->page = page;
    if (!process_tree_inherited(&child->except))
        return child_fail(child, "cannot remember the children from before the command", ENOMEM,
                          why);
    if (!process_spare_keep(&child->spare))
        return child_fail(child, "cannot keep descriptors free for the end of the lease", errno,
                          why);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        return child_fail(child, "cannot become the reaper of the command's descendants", errno,
                          why);
    int error = 0;
    if (tree)
        error = start_guard(child, argv, environment, signals);
    else if ((child->pid = child->command =
                  spawn(argv, environment, signals, &child->page->exec_errno)) < 0)
        error = errno;
    return error == 0 || child_fail(child, "cannot start a process for the command", error, why);
}

static void stop_orphan_guard(struct child *child)
{
    if (child->orphan_guard < 0)
        return;
    process_kill_child(child->orphan_guard); /* processes that are left now are meant to stay */
    process_tree_reaped(&child->except, child->orphan_guard);
    child->orphan_guard = -1;
}

/* With --tree there already is a guard. */
bool child_guard_orphans(struct child *child, const char *held)
{
    if (child->guard_fd >= 0 || child->orphan_guard >= 0)
        return true;
    child->orphan_guard = orphan_guard_start(held, &child->except, &child->spare);
    if (child->orphan_guard < 0)
        return false;
    if (pids_add(&child->except, child->orphan_guard))
        return true;
    stop_orphan_guard(child);
    errno = ENOMEM;
    return false;
}

void child_close(struct child *child)
{
    stop_orphan_guard(child);
    if (child->page != NULL)
        munmap(child->page, sizeof *child->page);
    child->page = NULL;
    free(child->except.list);
    child->except = (struct pids){0};
    process_spare_free(&child->spare);
    fd_close(&child->guard_fd);
}

/* --- reaping ------------------------------------------------------------- */

static void command_ended(struct child *child, int status)
{
    child->command_ended = true;
    child->stopped_by = 0;
    child->status = status;
    child->exec_error = child->page->exec_errno;
}

static void read_guard(struct child *child)
{
    struct guard_page *page = child->page;
    struct drain drain = {0};
    char byte;
    while (drain_goes_on(&drain) && recv(child->guard_fd, &byte, 1, MSG_DONTWAIT) == 1)
        continue;
    int stops = atomic_load(&page->stops), stopped_by = atomic_load(&page->stopped_by);
    if (stops != child->stops || stopped_by == 0)
        child->stopped_by = stopped_by;
    child->stops = stops;
    if (atomic_load(&page->ended) && !child->command_ended)
        command_ended(child, atomic_load(&page->status));
}

static void own_child_changed(struct child *child, int status)
{
    bool guarded = child->guard_fd >= 0;
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        if (!guarded) {
            child->stopped_by = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
            child->stops += WIFSTOPPED(status);
        }
        return;
    }
    child->ended = true;
    if (guarded)
        read_guard(child);
    child->guard_lost = guarded && (WIFSIGNALED(status) || !child->command_ended);
    /* A guard that has just ended tells us nothing about the command, which is being killed. */
    if (!guarded || child->guard_lost)
        command_ended(child, guarded && WIFEXITED(status) ? SIGKILL : status);
}

/* The order counts: a command without a tracer may just have ended, and is reaped. */
void child_find_unreaped(struct child *child)
{
    struct proc_stat stat;
    if (child->ended || child->guard_fd >= 0 || !proc_is_ours() ||
        !proc_stat_read(child->pid, &stat) || !proc_is_dead(child->pid, &stat) ||
        child_has_ended(child->pid))
        return;
    child->ended = true;
    command_ended(child, SIGKILL);
}

/* False if no child has changed its state. */
static bool reap_next(struct child *child)
{
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
    child->childless = pid < 0;
    if (pid <= 0)
        return false;
    if (WIFEXITED(status) || WIFSIGNALED(status))
        process_tree_reaped(&child->except, pid);
    if (pid == child->orphan_guard && !WIFSTOPPED(status) && !WIFCONTINUED(status))
        child->orphan_guard = -1;
    if (pid == child->pid)
        own_child_changed(child, status);
    return true;
}

void child_reap(struct child *child)
{
    struct drain drain = {0};
    bool more = true;
    while (more && drain_goes_on(&drain))
        more = reap_next(child);
    if (more)
        raise(SIGCHLD); /* the rest wakes us at once */
    if (child->guard_fd >= 0 && !child->ended)
        read_guard(child);
}

/* All descendants whose parents have ended are our children, so a process
 * without children has no descendants; and the kernel reports that in one call,
 * while a walk can miss one that changes its parent meanwhile. A walk is only
 * needed if dlock has children of its own from before the command, or a debugger keeps one
 * from being reaped, and before dlock ends the guard, which is our child too. */
bool child_tree_gone(struct child *child)
{
    child_reap(child);
    if (child->orphan_guard >= 0 && process_tree_is_gone(&child->except)) {
        stop_orphan_guard(child);
        child_reap(child);
    }
    if (child->childless)
        return true;
    bool gone = process_tree_is_gone(&child->except);
    child_reap(child); /* processes that ended during the walks */
    return gone;
}

struct process_count child_tree_left(const struct child *child)
{
    return process_tree_signal(NULL, &child->except, 0, DEADLINE_NEVER);
}

bool child_is_stopped(const struct child *child)
{
    struct proc_stat stat;
    return !child->command_ended && proc_is_ours() && proc_stat_read(child->command, &stat) &&
           stat.state == 'T';
}

/* --- signals ------------------------------------------------------------- */

void child_signal(const struct child *child, int number)
{
    if (child->ended)
        return; /* reaped: its pid may belong to another */
    if (child->guard_fd >= 0)
        (void)!send(child->guard_fd, &number, sizeof number, MSG_NOSIGNAL | MSG_DONTWAIT);
    else
        kill(child->pid, number);
}

/* If /proc shows nothing, at least our own child; and a stop signal is for the
 * command, since the guard takes none. */
static void signal_child(const struct child *child, int number, struct process_count count)
{
    if (count.found > 0 || child->ended)
        return;
    if (number == SIGKILL)
        kill(child->pid, number);
    else
        child_signal(child, number);
}

void child_signal_tree(struct child *child, int number, struct deadline until)
{
    process_spare_free(&child->spare);
    signal_child(child, number, process_tree_signal(NULL, &child->except, number, until));
}

void child_kill_tree(struct child *child)
{
    process_spare_free(&child->spare);
    signal_child(child, SIGKILL, process_tree_kill(NULL, &child->except));
}
