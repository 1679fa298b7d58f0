/* dlock may die of something that no process can catch: SIGKILL, the OOM killer, a crash. The
 * kernel then kills the command (PR_SET_PDEATHSIG), but not the command's descendants. So a guard,
 * a second process that outlives dlock, kills the descendants. The guard shares dlock's open lock
 * file, so a file lock stays held until the guard has ended.
 *
 * With --tree the guard is dlock's child and the command's parent. It is also the reaper of the
 * tree, so it misses no process:
 *
 *   dlock is killed -> the socket ends, and the guard kills the tree.
 *   dlock is killed while it stops or kills the tree -> the guard kills the tree. dlock signals
 *       only the processes below the guard, because a guard stopped by SIGSTOP could do nothing.
 *   the guard is killed -> the kernel kills the command. The command's descendants become dlock's
 *       children, and dlock kills them (run/supervise.c).
 *   both are killed at once -> the kernel kills the command; its descendants live on.
 *
 * The guard of --tree blocks all signals. The terminal's signals reach the command anyway, and
 * dlock passes other signals on through the socket.
 *
 * Without --tree the guard runs beside the command. When dlock is killed, its children become
 * children of init, and /proc no longer shows that they descend from dlock. The guard takes a
 * process for a descendant of dlock in two cases:
 *
 *   the guard has seen the process among dlock's descendants, which the guard lists from time to
 *       time and remembers.
 *   the DLOCK_HELD of the process begins with the command's DLOCK_HELD, whose last line names this
 *   dlock's lock, and the process is no older than dlock.
 *
 * A process escapes if it has cleared its environment and the guard has never seen it, or if dlock
 * is killed before it has started the guard. The guard of --tree takes a third of the time of a run
 * of `true`. The guard beside the command starts only after the command has run for 30 ms
 * (run/supervise.c), so it does not slow down a short command.
 *
 *   dlock is killed -> the kernel wakes the guard, which kills the processes until none is left.
 *   dlock stops the command -> dlock kills the same processes; the guard waits.
 *   dlock is killed while it kills the processes -> the guard kills the rest, even those that dlock
 *       has stopped.
 *   the command ends -> dlock dismisses the guard (guard_page), releases the lock, and only then
 *       kills the guard: ending a process takes processor time, which the server and the next
 *       waiter need during the release. In a container whose pid 1 does not reap, a guard that
 *       outlived dlock would remain a zombie.
 *   dlock is killed after it has dismissed the guard -> the guard ends, and kills nothing.
 *   the guard is killed -> dlock continues without it. */
#include "process/process_int.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAKE_UP = SIGUSR1 };

/* Intervals that double from the first to the longest: between searches for processes while dlock
 * lives (look_), and between attempts to kill them after dlock has died (kill_). */
static const struct duration look_first = {100 * NS_PER_MS};
static const struct duration look_most = {10 * NS_PER_S};
static const struct duration kill_first = {5 * NS_PER_MS};
static const struct duration kill_most = {1 * NS_PER_S};

struct guard {
    struct tree tree; /* the processes that the guard kills */
    pid_t dlock;
    /* With --tree: */
    int fd; /* the socket to dlock */
    pid_t command;
    struct guard_page *page;
    /* Without --tree: */
    const char *held; /* the command's DLOCK_HELD */
};

/* Kills the processes that /proc shows. If /proc shows none, kills at least the command of --tree,
 * because the kernel would kill the command only when the guard ends. */
static struct tree_count kill_tree(struct guard *guard)
{
    struct tree_count killed = tree_signal(&guard->tree, SIGKILL, DEADLINE_NEVER);

    if (killed.found == 0 && guard->command > 0 && !atomic_load(&guard->page->ended))
        kill(guard->command, SIGKILL);
    return killed;
}

/* Kills the tree until no process is left. Before each further try, find() looks for more
 * processes, and returns false if none is left, or if none can be found. */
__attribute__((noreturn)) static void kill_all(struct guard *guard, bool (*find)(struct guard *))
{
    struct duration interval = kill_first;

    (void)kill_tree(guard);
    while (find(guard)) {
        struct tree_count killed = kill_tree(guard);
        struct tree_count left = tree_left(&guard->tree);
        if (killed.found == 0 && tree_is_gone(&left))
            break;
        (void)poll(NULL, 0, (int)(interval.ns / NS_PER_MS));
        interval = duration_doubled(interval, kill_most);
    }
    _exit(0);
}

/* --- the guard of --tree: between dlock and the command ------------------- */

void note_change(struct guard_page *page, int status)
{
    if (WIFSTOPPED(status)) {
        atomic_store(&page->stopped_by, WSTOPSIG(status));
        atomic_fetch_add(&page->stops, 1);
    } else if (WIFCONTINUED(status)) {
        atomic_store(&page->stopped_by, 0);
    } else {
        atomic_store(&page->stopped_by, 0);
        atomic_store(&page->status, status);
        atomic_store(&page->ended, 1);
    }
}

/* Sends dlock a byte to say that struct guard_page has changed. If the socket is full, dlock
 * already has a byte to read. If dlock is gone, the guard's main loop notices that. */
static void tell(const struct guard *guard)
{
    (void)!send(guard->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void command_changed(const struct guard *guard, int status)
{
    note_change(guard->page, status);
    if (WIFCONTINUED(status))
        kill(guard->dlock,
             SIGCONT); /* dlock may have stopped too, and the command must not run unwatched */
    tell(guard);
}

/* False if no child is left: the command and all adopted descendants have ended. */
static bool reap(struct guard *guard)
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
    raise(SIGCHLD); /* so that the guard reaps the remaining children at once */
    return true;
}

/* Passes on the signals that dlock sends; each is an int, the signal's number. False if dlock is
 * gone. */
static bool pass_on(struct guard *guard)
{
    struct drain drain = {0};
    int number;

    while (drain_goes_on(&drain)) {
        ssize_t length = recv(guard->fd, &number, sizeof number, MSG_DONTWAIT);
        if (length != (ssize_t)sizeof number)
            return length < 0 && (errno == EAGAIN || errno == EINTR);
        if (atomic_load(&guard->page->ended))
            (void)tree_signal(&guard->tree, number, DEADLINE_NEVER);
        else
            kill(guard->command, number);
    }
    return true;
}

__attribute__((noreturn)) static void guard_tree(struct guard *guard, const struct command *plan,
                                                 int exec_end)
{
    sigset_t all, child;

    sigfillset(&all);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    int signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    bool ready = signal_fd >= 0 && sigprocmask(SIG_SETMASK, &all, NULL) == 0 &&
                 prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
    guard->command = ready ? spawn(plan, guard->page) : -1;
    if (guard->command < 0)
        _exit(errno);
    close(exec_end);
    atomic_store(&guard->page->command, (int)guard->command);
    tell(guard);

    while (reap(guard)) {
        struct pollfd fds[] = {{.fd = guard->fd, .events = POLLIN},
                               {.fd = signal_fd, .events = POLLIN}};
        struct signalfd_siginfo info;
        (void)poll(fds, 2, -1);
        (void)!read(signal_fd, &info, sizeof info);
        if (fds[0].revents != 0 && !pass_on(guard))
            kill_all(guard, reap);
    }
    _exit(0);
}

/* Waits until the guard has started the command's process, or has ended. A guard that cannot start
 * the process exits with the errno. The byte from the guard only wakes dlock: the command's pid is
 * read from struct guard_page, even if the guard has already ended. Returns 0 or the errno. */
static int wait_for_command(struct child *child)
{
    struct pollfd news = {.fd = child->guard_fd, .events = POLLIN};
    int status = 0;

    while (atomic_load(&child->page->command) == 0 && !process_is_reapable(child->pid))
        (void)poll(&news, 1, -1);
    child->command = (pid_t)atomic_load(&child->page->command);
    if (child->command > 0)
        return 0;
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : ECHILD;
}

/* Forks a guard, which inherits all open descriptors except those that dlock reserves for its
 * searches of /proc. */
static pid_t fork_guard(const struct child *child, struct guard *guard)
{
    *guard = (struct guard){.tree = TREE_OWN, .dlock = getpid(), .fd = -1, .page = child->page};
    pid_t pid = fork();

    if (pid == 0) {
        struct tree copy = child->tree;
        tree_free_spare(&copy);
        (void)prctl(PR_SET_NAME, "dlock-guard");
    }
    return pid;
}

int tree_guard_start(struct child *child, int exec_end)
{
    struct guard guard;
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return errno;
    child->guard_fd = ends[0];
    child->pid = fork_guard(child, &guard);
    if (child->pid == 0) {
        close(ends[0]);
        guard.fd = ends[1];
        guard_tree(&guard, child->plan, exec_end);
    }
    int error = child->pid < 0 ? errno : 0;
    close(ends[1]);
    child->tree.guard = child->pid;
    return error != 0 ? error : wait_for_command(child);
}

/* --- the guard beside the command ---------------------------------------- */

/* Waits for the end of dlock, but no longer than `most`. Returns false once dlock has ended. */
static bool wait_for_end(const struct guard *guard, struct duration most)
{
    struct timespec timeout = {most.ns / NS_PER_S, most.ns % NS_PER_S};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, WAKE_UP);
    if (getppid() == guard->dlock && sigtimedwait(&set, NULL, &timeout) < 0 && errno != EAGAIN &&
        errno != EINTR)
        (void)poll(NULL, 0, (int)(kill_first.ns / NS_PER_MS));
    return getppid() == guard->dlock;
}

/* Searches /proc for processes whose DLOCK_HELD shows that they are descendants of the command, and
 * adds them to the tree. The search takes time, so kill_all() first kills the processes that the
 * guard has already seen. Returns false if there is no /proc to search, because otherwise the guard
 * would search forever, and would keep a file lock held. */
static bool find_marked(struct guard *guard)
{
    struct pids all = {0};
    struct proc_stat stat;

    if (!proc_is_ours())
        return false;
    (void)proc_list("/proc", &all);
    for (size_t i = 0; i < all.count; i++) {
        pid_t pid = all.list[i];
        if (pid != getpid() && proc_stat_read(pid, &stat) && stat.start >= guard->tree.head.start &&
            proc_environ_has(pid, "DLOCK_HELD", guard->held))
            (void)tree_add(&guard->tree, (struct process_id){pid, stat.start});
    }
    free(all.list);
    return true;
}

__attribute__((noreturn)) static void guard_orphans(struct guard *guard)
{
    struct duration interval = look_first;
    struct proc_stat stat;

    (void)daemonize(0, true);
    if (!proc_is_ours() || !proc_stat_read(guard->dlock, &stat) ||
        prctl(PR_SET_PDEATHSIG, WAKE_UP) != 0 ||
        !tree_follow(&guard->tree, (struct process_id){guard->dlock, stat.start}))
        _exit(0);
    do {
        (void)tree_left(&guard->tree);
        interval = duration_doubled(interval, look_most);
    } while (wait_for_end(guard, interval));
    if (atomic_load(&guard->page->dismissed))
        _exit(0);
    kill_all(guard, find_marked);
}

pid_t orphan_guard_start(const struct child *child, const char *held)
{
    struct guard guard;
    pid_t pid = fork_guard(child, &guard);

    if (pid == 0) {
        guard.tree.except = child->tree.except;
        guard.held = held;
        guard_orphans(&guard);
    }
    return pid;
}
