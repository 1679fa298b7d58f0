/* dlock may be killed by what no process can catch: SIGKILL, the OOM killer, a
 * crash. The command then gets SIGKILL from the kernel (PR_SET_PDEATHSIG), but
 * not what the command has started. So with --tree there is a second process
 * between them, which is the reaper of the tree:
 *
 *   dlock is killed -> the socket ends, and the guard kills the tree. It shares
 *       dlock's lock file, so that a file lock stays held until none of it is left.
 *   the guard is killed -> the kernel kills the command, its descendants become
 *       dlock's, and dlock kills them (run/supervise.c).
 *   both at once -> the kernel kills the command; its descendants live on.
 *
 * The guard takes no signal: what the terminal sends reaches the command
 * anyway, and what is sent to dlock comes through the socket. */
#include "process/tree_guard.h"

#include "process/process_tree.h"
#include "process/spawn.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILL_INTERVAL_MS = 5 };

struct tree_guard_guard {
    int fd;
    pid_t dlock, command;
    struct guard_page *page;
};

/* If the socket is full, dlock has a byte to read already; if dlock is gone,
 * the loop finds out. */
static void tree_guard_tell(const struct tree_guard_guard *guard)
{
    (void)!send(guard->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void command_changed(const struct tree_guard_guard *guard, int status)
{
    struct guard_page *page = guard->page;
    if (WIFSTOPPED(status)) {
        atomic_store(&page->stopped_by, WSTOPSIG(status));
        atomic_fetch_add(&page->stops, 1);
    } else if (WIFCONTINUED(status)) {
        atomic_store(&page->stopped_by, 0);
        /* dlock may have stopped with the command, which must not run alone. */
        kill(guard->dlock, SIGCONT);
    } else {
        atomic_store(&page->status, status);
        atomic_store(&page->ended, 1);
    }
    tree_guard_tell(guard);
}

/* False once no child is left: the command has ended, and so have all
 * descendants that became ours when their parents ended. */
static bool tree_guard_reap(const struct tree_guard_guard *guard)
{
    for (struct drain drain = {0}; drain_goes_on(&drain);) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0)
            return pid == 0;
        if (pid == guard->command)
            command_changed(guard, status);
    }
    raise(SIGCHLD); /* the rest wakes us at once */
    return true;
}

/* Returns false if dlock is gone. */
static bool pass_on(const struct tree_guard_guard *guard)
{
    struct drain drain = {0};
    int number;
    while (drain_goes_on(&drain)) {
        ssize_t length = recv(guard->fd, &number, sizeof number, MSG_DONTWAIT);
        if (length != (ssize_t)sizeof number)
            return length < 0 && (errno == EAGAIN || errno == EINTR);
        if (atomic_load(&guard->page->ended))
            process_tree_signal(NULL, NULL, number, DEADLINE_NEVER);
        else
            kill(guard->command, number);
    }
    return true;
}

__attribute__((noreturn)) static void kill_all(const struct tree_guard_guard *guard)
{
    while (tree_guard_reap(guard) &&
           (process_tree_kill(NULL, NULL).found > 0 || !process_tree_is_gone(NULL)))
        (void)poll(NULL, 0, KILL_INTERVAL_MS);
    _exit(0);
}

void tree_guard_run(int fd, const char *const *argv, const struct environment *environment,
                    const struct signals *signals, struct guard_page *page)
{
    struct tree_guard_guard guard = {.fd = fd, .dlock = getppid(), .page = page};
    sigset_t all, child;
    sigfillset(&all);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    (void)prctl(PR_SET_NAME, "dlock-guard");
    int signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    bool ready = signal_fd >= 0 && sigprocmask(SIG_SETMASK, &all, NULL) == 0 &&
                 prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
    guard.command = ready ? spawn(argv, environment, signals, &page->exec_errno) : -1;
    if (guard.command < 0) {
        atomic_store(&page->error, errno);
        _exit(0);
    }
    atomic_store(&page->command, (int)guard.command);
    tree_guard_tell(&guard);
    while (tree_guard_reap(&guard)) {
        struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};
        struct signalfd_siginfo info;
        (void)poll(fds, 2, -1);
        (void)!read(signal_fd, &info, sizeof info);
        if (fds[0].revents != 0 && !pass_on(&guard))
            kill_all(&guard);
    }
    _exit(0);
}
