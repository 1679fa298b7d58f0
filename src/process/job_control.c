/* dlock, the command and what it starts are one process group on one terminal.
 * Where signals come from:
 *
 *   the terminal (Ctrl-C, Ctrl-\, Ctrl-Z, its size, its end) sends to the group:
 *       the command has the signal already, unless it has left the group (timeout,
 *       setsid): then it is passed on.
 *   the terminal, at its end, to the leader of its session alone: if that is dlock
 *       (exec dlock, ssh -t HOST dlock), it is passed on.
 *   the kernel, to dlock alone (an alarm(2) from before its exec, SIGXCPU):
 *       passed on; without dlock it would have ended the command.
 *   a process, to dlock alone: passed on. It may have sent to the whole group
 *       (kill %1 in a shell, systemd's KillMode=control-group), which cannot be
 *       distinguished; then the command has it twice.
 *   the command, or what it has started, most often by kill(0): not passed on.
 *       Otherwise a command whose TERM handler ends with `kill 0` would be sent TERM
 *       for ever. A sender that has ended already is not known any more.
 *
 * If the command is ended by a signal that has come to dlock, too, and not from the
 * command, dlock dies of that signal once the lock is released. Otherwise a shell would
 * go on with its loop after Ctrl-C, and a stopped unit of systemd would have failed. The
 * end of the command may be read before the signal, but the kernel reports no end before
 * it has sent a signal to the whole group: so signals are read once more after the end.
 *
 * A job is stopped when its processes are. So dlock stops when the command has,
 * and when the stop was one of the whole group: Ctrl-Z, an editor that sends
 * SIGTSTP to its group, a read from the terminal in the background. If a command
 * handles SIGTSTP and runs on, dlock goes on watching it. dlock does not follow a
 * command that is stopped alone (SIGSTOP, a debugger): its sender may continue it
 * alone, and it would run unwatched. Orders in which that can happen:
 *
 *   1. SIGTSTP to both -> the command stops -> dlock learns of it and stops. Either
 *      news may come first; a stop that is not followed in stop_window is not
 *      followed any more.
 *   2. The command is continued before dlock gets to stop -> SIGCONT, which came to
 *      both, takes the stop back, and dlock asks /proc right before it stops.
 *   3. dlock is continued alone -> it continues the command.
 *   4. The command is continued alone -> with --tree the guard continues dlock;
 *      without, no process can (the manual says so).
 *   5. dlock is in a script that was stopped with it, so that the shell has already
 *      taken the terminal back -> dlock need not stop, and goes on. */
#include "process/job_control.h"

#include "util/signames.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* How long after SIGTSTP a stop of the command still belongs to it: the command
 * may want to restore the screen first. */
static const struct duration stop_window = {2 * NS_PER_S};

static bool terminal_has_told(const struct child *child, int number)
{
    bool to_leader_alone = number == SIGHUP && getsid(0) == getpid();
    pid_t group = getpgid(child->command);
    return !to_leader_alone && (group < 0 || group == getpgrp());
}

static bool is_from_others(const struct job_control *job, const struct child *child,
                           const struct signal_event *event)
{
    char name[32];
    if (event->number == SIGCHLD)
        return false;
    if (event->sender == child->pid || event->sender == child->command)
        return false; /* the guard woke dlock; or the command, which may have been reaped */
    if (event->sender > 0 && process_tree_has(event->sender, &child->except)) {
        say_verbose(job->out, "not passed on, since the command has sent it: %s",
                    signame_format(event->number, name, sizeof name));
        return false;
    }
    return true;
}

bool job_pass_signals_on(struct job_control *job, struct child *child)
{
    struct signal_event event;
    struct drain drain = {0};
    char name[32];
    bool child_changed = false;
    while (drain_goes_on(&drain) && signals_next(job->signals, &event)) {
        child_changed |= event.number == SIGCHLD;
        if (event.number == SIGTSTP)
            job->stop_asked = deadline_now();
        if (event.number == SIGCONT)
            child->stopped_by = 0;
        if (!is_from_others(job, child, &event))
            continue;
        sigaddset(&job->told, event.number);
        if (child->ended || (event.typed && terminal_has_told(child, event.number)))
            continue;
        /* fg has continued the whole group; kill -CONT only dlock. */
        bool again = event.number == SIGCONT && job->resumed;
        if (again)
            job->resumed = false;
        if (again && !child_is_stopped(child))
            continue;
        child_signal(child, event.number);
        say_verbose(job->out, "passed %s on to the command",
                    signame_format(event.number, name, sizeof name));
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

/* SIGTTIN and SIGTTOU are blocked: if they were sent to the whole group, they
 * are pending for dlock too. */
static bool is_pending(int number)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, number) == 1;
}

static bool was_for_the_group(const struct job_control *job, int number)
{
    if (number == SIGTTIN || number == SIGTTOU)
        return is_pending(number);
    return number == SIGTSTP && !deadline_passed(deadline_plus(job->stop_asked, stop_window)) &&
           in_foreground();
}

void job_stop_with_command(struct job_control *job, struct child *child)
{
    int number = child->stopped_by;
    if (number != 0 && child->stops != job->stops)
        job->stop_seen = deadline_now();
    job->stops = child->stops;
    if (number == 0)
        return;
    bool follow = was_for_the_group(job, number);
    if (follow || deadline_passed(deadline_plus(job->stop_seen, stop_window)))
        child->stopped_by = 0; /* once for each stop, and not much later */
    if (!follow || !child_is_stopped(child))
        return;
    job->resumed = true;
    signals_stop_here(number);
}
