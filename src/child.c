#include "child.h"

#include "guard.h"
#include "proc.h"
#include "spawn.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static enum lock_result fail(struct child *child, const char *text, int error, struct why *why)
{
    why_set(why, "%s: %s", text, strerror(error));
    child_close(child);
    return LOCK_SYSTEM;
}

/* Returns 0 or an errno. The guard's first word is that the command runs. */
static int start_guard(struct child *child, const char *const *argv, const struct signals *signals)
{
    int ends[2];
    struct guard_news news = {0};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return errno;
    child->guard_fd = ends[0];
    child->pid = fork();
    if (child->pid == 0) {
        close(ends[0]);
        guard_run(ends[1], argv, signals, child->exec_errno);
    }
    int error = child->pid < 0 ? errno : 0;
    close(ends[1]);
    if (error != 0)
        return error;
    ssize_t length;
    do
        length = recv(child->guard_fd, &news, sizeof news, 0);
    while (length < 0 && errno == EINTR);
    if (length == (ssize_t)sizeof news && news.event == GUARD_STARTED)
        return 0;
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return length == (ssize_t)sizeof news ? news.value : ECHILD;
}

enum lock_result child_start(struct child *child, const char *const *argv, const struct signals *signals, bool tree,
                             struct why *why)
{
    *child = (struct child){.pid = -1, .guard_fd = -1};
    void *page = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return fail(child, "no memory to share with the command's process", errno, why);
    child->exec_errno = page;
    process_tree_inherited(&child->except);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        return fail(child, "cannot become the reaper of the command's descendants", errno, why);
    int error = 0;
    if (tree)
        error = start_guard(child, argv, signals);
    else if ((child->pid = spawn(argv, signals, child->exec_errno)) < 0)
        error = errno;
    return error == 0 ? LOCK_OK : fail(child, "cannot start a process for the command", error, why);
}

void child_close(struct child *child)
{
    if (child->exec_errno != NULL)
        munmap(child->exec_errno, sizeof(int));
    child->exec_errno = NULL;
    if (child->guard_fd >= 0)
        close(child->guard_fd);
    child->guard_fd = -1;
}

/* --- what has happened --------------------------------------------------- */

static void command_ended(struct child *child, int status)
{
    child->command_ended = true;
    child->stopped_by = 0;
    child->status = status;
    child->exec_error = *child->exec_errno;
}

static void read_guard(struct child *child)
{
    struct guard_news news;
    while (recv(child->guard_fd, &news, sizeof news, MSG_DONTWAIT) == (ssize_t)sizeof news) {
        switch (news.event) {
        case GUARD_STOPPED: child->stopped_by = news.value; break;
        case GUARD_CONTINUED: child->stopped_by = 0; break;
        case GUARD_ENDED: command_ended(child, news.value); break;
        case GUARD_STARTED:
        case GUARD_FAILED: break;
        }
    }
}

static void own_child_changed(struct child *child, int status)
{
    bool guarded = child->guard_fd >= 0;
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        if (!guarded)
            child->stopped_by = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
        return;
    }
    child->ended = true;
    if (guarded)
        read_guard(child);
    if (!guarded || !child->command_ended) {
        command_ended(child, status);
        child->guard_lost = guarded;
    }
}

void child_reap(struct child *child)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
        if (pid < 0 && errno == EINTR)
            continue;
        child->childless = pid < 0;
        if (pid <= 0)
            break;
        if (pid == child->pid)
            own_child_changed(child, status);
    }
    if (child->guard_fd >= 0 && !child->ended)
        read_guard(child);
}

/* All descendants whose parents have ended are our children, so who has no
 * child has no descendant; and the kernel says that in one call, where a walk
 * can miss one that changes its parent meanwhile. Only where dlock has
 * children of its own from before the command one has to look. */
bool child_tree_gone(struct child *child)
{
    struct process_count left = {0};
    child_reap(child);
    if (child->childless || child->except.count == 0)
        return child->childless;
    for (int walks = 0; walks < 10; walks++) {
        left = child_tree_left(child);
        if (left.found > 0 || left.ended == 0)
            break;
        child_reap(child);
    }
    return left.found == 0;
}

struct process_count child_tree_left(const struct child *child)
{
    return process_tree_signal(0, &child->except, DEADLINE_NEVER);
}

bool child_is_stopped(const struct child *child)
{
    struct proc_stat stat;
    if (child->guard_fd >= 0)
        return child->stopped_by != 0;
    return !child->ended && proc_stat_read(child->pid, &stat) && stat.state == 'T';
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

/* Where /proc shows nothing, at least our own child. */
static void signal_child(const struct child *child, int number, struct process_count count)
{
    if (count.found == 0 && !child->ended)
        kill(child->pid, number);
}

void child_signal_tree(const struct child *child, int number, struct deadline until)
{
    signal_child(child, number, process_tree_signal(number, &child->except, until));
}

void child_kill_tree(const struct child *child)
{
    signal_child(child, SIGKILL, process_tree_kill(&child->except));
}
