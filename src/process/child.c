/* dlock, the command and the command's descendants form one process group on one terminal. Who
 * sends signals, and what dlock does with them:
 *
 *   the terminal, to the group (Ctrl-C, Ctrl-\, Ctrl-Z, a new window size, a hangup) -> the command
 *       has already received the signal. If the command has left the group (timeout, setsid), dlock
 *       passes the signal on.
 *   the terminal, at a hangup, to the session leader alone -> if dlock is the leader (exec dlock,
 *       ssh -t HOST dlock), dlock passes the signal on.
 *   the kernel, to dlock alone (an alarm(2) set before dlock was executed, SIGXCPU) -> dlock passes
 *       the signal on, because without dlock the signal would have ended the command.
 *   a process, to dlock alone -> dlock passes the signal on. The process may have sent it to the
 *       whole group (kill %1 in a shell, systemd's KillMode=control-group). dlock cannot tell, and
 *       the command then receives the signal twice.
 *   the command or a descendant, most often by kill(0) -> dlock does not pass the signal on.
 *       Otherwise a command whose TERM handler ends with `kill 0` would receive TERM forever. dlock
 *       cannot recognize a sender that has already ended.
 *
 * If the command dies of a signal that dlock has also received, and that the command itself did not
 * send, dlock releases the lock and then dies of the same signal. Otherwise a shell would continue
 * its loop after Ctrl-C, and systemd would report a failure of a unit that systemd itself has
 * stopped. dlock may learn of the command's end before it reads the signal. But the kernel sends a
 * group's signal to every process of the group before it reports that one of them has ended, so
 * dlock reads signals once more after the command's end.
 *
 * A shell regards a job as stopped only when all its processes are stopped. So dlock stops itself
 * if the command has stopped and the stop was meant for the whole group: Ctrl-Z, an editor that
 * sends SIGTSTP to its group, a read from the terminal in the background. If the command handles
 * SIGTSTP and keeps running, dlock keeps watching it. dlock does not stop if only the command is
 * stopped (SIGSTOP, a debugger): the sender may continue the command alone, and a stopped dlock
 * would not watch the command. Orders in which a stop can happen:
 *
 *   1. SIGTSTP to both -> the command stops -> dlock stops. dlock may see the signal or the stop
 *      first. dlock ignores a stop that is older than stop_window.
 *   2. The command is continued before dlock stops -> SIGCONT, which both receive, cancels
 *      the stop, and dlock reads /proc right before it stops.
 *   3. dlock is continued alone -> dlock continues the command.
 *   4. The command is continued alone -> with --tree the guard (process/guard.c) continues dlock;
 *      without --tree no process can (the manual says so).
 *   5. dlock runs in a script that was also stopped, so the shell has already taken the terminal
 *      back -> dlock does not have to stop, and continues. */
#include "process/process_int.h"

#include "util/fileutils.h"
#include "util/text.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- starting ------------------------------------------------------------ */

static bool refuse(struct child *child, const char *text, int error, struct errmsg *why)
{
    errmsg_set(why, "%s: %s", text, strerror(error));
    child_close(child);
    return false;
}

static size_t page_size(const struct command *plan)
{
    size_t count = 0;

    while (plan->argv[count] != NULL)
        count++;
    return sizeof(struct guard_page) + (count + 2) * sizeof *plan->argv;
}

/* Returns 0 or an errno. */
static int start(struct child *child)
{
    int ends[2];
    int error = 0;

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return errno;
    child->exec_fd = ends[0];
    if (child->plan->tree)
        error = tree_guard_start(child, ends[1]);
    else if ((child->pid = child->command = spawn(child->plan, child->page)) < 0)
        error = errno;
    close(ends[1]);
    return error;
}

bool child_start(struct child *child, const struct command *plan, struct errmsg *why)
{
    *child = (struct child){.plan = plan,
                            .pid = -1,
                            .exec_fd = -1,
                            .guard_fd = -1,
                            .orphan_guard = -1,
                            .tree = TREE_OWN};
    void *page =
        mmap(NULL, page_size(plan), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return refuse(child, "cannot allocate memory to share with the command's process", errno,
                      why);
    child->page = page;
    if (!tree_open(&child->tree, (struct process_id){0}))
        return refuse(child, "cannot prepare to stop the command at the end of the lease", errno,
                      why);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        return refuse(child, "cannot become the reaper of the command's descendants", errno, why);

    int error = start(child);
    return error == 0 || refuse(child, "cannot start a process for the command", error, why);
}

static void stop_orphan_guard(struct child *child)
{
    if (child->orphan_guard < 0)
        return;
    process_kill_child(child->orphan_guard);
    tree_reaped(&child->tree, child->orphan_guard);
    child->orphan_guard = -1;
}

bool child_guard_orphans(struct child *child, const char *held)
{
    if (child->plan->tree || child->orphan_guard >= 0)
        return true;
    child->orphan_guard = orphan_guard_start(child, held);
    if (child->orphan_guard < 0)
        return false;
    if (pids_add(&child->tree.except, child->orphan_guard))
        return true;
    stop_orphan_guard(child);
    errno = ENOMEM;
    return false;
}

void child_dismiss_guard(const struct child *child)
{
    if (child->orphan_guard >= 0)
        atomic_store(&child->page->dismissed, true);
}

void child_close(struct child *child)
{
    stop_orphan_guard(child);
    if (child->page != NULL)
        munmap(child->page, page_size(child->plan));
    child->page = NULL;
    tree_close(&child->tree);
    fd_close(&child->exec_fd);
    fd_close(&child->guard_fd);
}

/* --- reaping ------------------------------------------------------------- */

static void read_page(struct child *child)
{
    struct guard_page *page = child->page;
    int stops = atomic_load(&page->stops);
    int stopped_by = atomic_load(&page->stopped_by);

    if (stops != child->stops)
        child->stop_seen = deadline_now();
    if (stops != child->stops || stopped_by == 0)
        child->stopped_by = stopped_by;
    child->stops = stops;
    child->exec_error = atomic_load(&page->exec_errno);
    if (atomic_load(&page->ended)) {
        child->command_ended = true;
        child->status = atomic_load(&page->status);
    }
}

static void notice_exec(struct child *child)
{
    char byte;

    if (child->exec_fd >= 0 && (read(child->exec_fd, &byte, 1) >= 0 || errno != EAGAIN))
        fd_close(&child->exec_fd);
}

/* The pipe of exec_fd also ends if the command's process is killed during exec. In that case, /proc
 * shows that the process has executed no program. If /proc no longer shows the command, the guard
 * of --tree may have reaped it without having reported yet how it ended, so the result is still
 * unknown. */
bool child_judge_start(const struct child *child, bool *started)
{
    struct proc_stat stat;

    if (child->exec_fd >= 0)
        return false;
    *started = child->exec_error == 0;
    if (child->command_ended)
        *started = *started && !WIFSIGNALED(child->status);
    else if (proc_is_ours() && proc_stat_read(child->command, &stat))
        *started = stat.executed;
    else
        return kill(child->command, 0) == 0 || errno != ESRCH;
    return true;
}

static void own_child_changed(struct child *child, int status)
{
    bool guarded = child->plan->tree;
    bool ended = WIFEXITED(status) || WIFSIGNALED(status);

    child->ended = ended;
    if (!guarded) {
        note_change(child->page, status);
    } else if (ended && (WIFSIGNALED(status) || !atomic_load(&child->page->ended))) {
        /* The guard has ended, so it can no longer report on the command. The kernel is killing the
         * command. */
        child->guard_lost = true;
        note_change(child->page, WIFEXITED(status) ? SIGKILL : status);
    }
}

/* process_is_reapable() comes last: if the command ends during the checks, and no debugger traces
 * it, child_reap() can reap it, and nothing has to be done here. */
void child_find_unreaped(struct child *child)
{
    struct proc_stat stat;

    if (child->ended || child->plan->tree || !proc_is_ours() ||
        !proc_stat_read(child->pid, &stat) || !proc_is_dead(child->pid, &stat) ||
        process_is_reapable(child->pid))
        return;
    child->ended = true;
    note_change(child->page, SIGKILL);
    read_page(child);
}

/* False if no child has changed its state. */
static bool reap_next(struct child *child)
{
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);

    child->childless = pid < 0;
    if (pid <= 0)
        return false;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
        tree_reaped(&child->tree, pid);
        if (pid == child->orphan_guard)
            child->orphan_guard = -1;
    }
    if (pid == child->pid)
        own_child_changed(child, status);
    return true;
}

void child_reap(struct child *child)
{
    struct drain drain = {0};
    bool more = true;
    char byte;

    while (more && drain_goes_on(&drain))
        more = reap_next(child);
    if (more)
        raise(SIGCHLD); /* so that dlock reaps the remaining children at once */

    drain = (struct drain){0};
    while (child->plan->tree && drain_goes_on(&drain) &&
           recv(child->guard_fd, &byte, 1, MSG_DONTWAIT) == 1)
        continue;
    notice_exec(child); /* before read_page(), so that read_page() finds why exec failed */
    read_page(child);
}

/* Descendants whose parents have ended are children of dlock, so without children dlock has no
 * descendants. The kernel reports in one call that dlock has no children, whereas a walk through
 * /proc can miss a process whose parent changes during the walk. A walk is only needed if dlock has
 * children from before the command, if a debugger keeps a child from being reaped, or while the
 * guard still runs, because the guard is also a child of dlock. */
struct tree_count child_left(struct child *child)
{
    struct tree_count left = {.known = true};

    child_reap(child);
    if (child->orphan_guard >= 0) {
        left = tree_left(&child->tree);
        if (!tree_is_gone(&left))
            return left;
        stop_orphan_guard(child);
        child_reap(child);
    }
    if (!child->childless) {
        left = tree_left(&child->tree);
        child_reap(child); /* reaps processes that ended during the walks */
    }
    return left;
}

/* --- the tree ------------------------------------------------------------ */

void child_signal(const struct child *child, int number)
{
    if (child->ended)
        return; /* the child was reaped, so another process may have its pid */
    if (child->plan->tree)
        (void)!send(child->guard_fd, &number, sizeof number, MSG_NOSIGNAL | MSG_DONTWAIT);
    else
        kill(child->pid, number);
}

/* If /proc shows no process, signals at least our own child. With --tree, that child is the guard.
 * The guard passes a stop signal on to the command. SIGKILL ends the guard itself, in case it
 * hangs. */
void child_signal_tree(struct child *child, int number, struct deadline until)
{
    if (tree_signal(&child->tree, number, until).found > 0 || child->ended)
        return;
    if (number == SIGKILL)
        kill(child->pid, number);
    else
        child_signal(child, number);
}

/* --- job control --------------------------------------------------------- */

/* If the command stops within this time after SIGTSTP, the stop counts as an effect of SIGTSTP. The
 * command may need the time to restore the screen first. */
static const struct duration stop_window = {2 * NS_PER_S};

/* True if /proc shows that the command is stopped at this moment. */
static bool is_stopped(const struct child *child)
{
    struct proc_stat stat;

    return !child->command_ended && proc_is_ours() && proc_stat_read(child->command, &stat) &&
           stat.state == 'T';
}

static bool terminal_has_told(const struct child *child, int number)
{
    bool to_leader_alone = number == SIGHUP && getsid(0) == getpid();
    pid_t group = getpgid(child->command);

    return !to_leader_alone && (group < 0 || group == getpgrp());
}

static bool is_from_others(const struct child *child, const struct signal_event *event)
{
    char name[32];

    if (event->number == SIGCHLD)
        return false;
    if (event->sender == child->pid || event->sender == child->command)
        return false; /* sent by the command, or by the guard to wake dlock */
    if (event->sender > 0 && tree_has(&child->tree, event->sender)) {
        say_verbose(child->plan->out, "%s was not passed on: the command itself sent the signal",
                    signame_format(event->number, name, sizeof name));
        return false;
    }
    return true;
}

static void pass_on(struct child *child, const struct signal_event *event)
{
    char name[32];

    if (child->ended || (event->typed && terminal_has_told(child, event->number)))
        return;
    /* `fg` continues the command, too, but `kill -CONT` may have continued dlock alone. In that
     * case, dlock must pass SIGCONT on. */
    bool again = event->number == SIGCONT && child->resumed;
    if (again)
        child->resumed = false;
    if (again && !is_stopped(child))
        return;
    child_signal(child, event->number);
    say_verbose(child->plan->out, "passed %s on to the command",
                signame_format(event->number, name, sizeof name));
}

bool child_pass_signals_on(struct child *child)
{
    struct signal_event event;
    struct drain drain = {0};
    bool child_changed = false;

    while (drain_goes_on(&drain) && signals_next(child->plan->signals, &event)) {
        child_changed |= event.number == SIGCHLD;
        if (event.number == SIGTSTP)
            child->stop_asked = deadline_now();
        if (event.number == SIGCONT)
            child->stopped_by = 0;
        if (!is_from_others(child, &event))
            continue;
        sigaddset(&child->told, event.number);
        pass_on(child, &event);
    }
    return child_changed;
}

static bool in_foreground(void)
{
    int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);

    if (terminal < 0)
        return false;
    bool foreground = tcgetpgrp(terminal) == getpgrp();
    close(terminal);
    return foreground;
}

static bool was_for_the_group(const struct child *child, int number)
{
    sigset_t pending;

    /* dlock blocks SIGTTIN and SIGTTOU. So if the signal was sent to the whole group, it is pending
     * for dlock too. */
    if (number == SIGTTIN || number == SIGTTOU)
        return sigpending(&pending) == 0 && sigismember(&pending, number) == 1;
    return number == SIGTSTP && !deadline_passed(deadline_plus(child->stop_asked, stop_window)) &&
           in_foreground();
}

void child_stop_with_command(struct child *child)
{
    int number = child->stopped_by;

    if (number == 0)
        return;
    bool follow = was_for_the_group(child, number);
    if (follow || deadline_passed(deadline_plus(child->stop_seen, stop_window)))
        child->stopped_by = 0; /* forget the stop: dlock stops now, or stop_window is over */
    if (follow && is_stopped(child)) {
        child->resumed = true;
        signals_stop_here(number);
    }
}
