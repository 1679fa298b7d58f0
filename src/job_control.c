/* dlock, the command and what it starts are one process group on one terminal.
 * Who sends what:
 *
 *   the terminal (Ctrl-C, Ctrl-\, Ctrl-Z, its size, its end) sends to the group:
 *       the command has the signal already.
 *   a process, to dlock alone: passed on. It may have sent to all of the group
 *       (kill %1 in a shell, systemd's KillMode=control-group), which nothing
 *       tells apart; then the command has it twice.
 *   the command, or what it has started, most often by kill(0): not passed on.
 *       A command whose TERM handler ends with `kill 0` would else be sent TERM
 *       for ever.
 *
 * A job is stopped when its processes are: so dlock stops when the command has,
 * and not because it was sent SIGTSTP itself. A command that handles SIGTSTP
 * and runs on is watched on. A command that stops itself, as an editor does on
 * Ctrl-Z, stops dlock. Away from the terminal's foreground dlock does not stop:
 * whoever sends SIGSTOP to a command in the background may continue that
 * command alone, and it would run unwatched. */
#include "job_control.h"

#include "signal_name.h"

#include <fcntl.h>
#include <unistd.h>

static bool is_for_command(const struct job_control *job, const struct child *child, const struct signal_event *event, bool all)
{
    char name[32];
    if (event->number == SIGCHLD)
        return false;
    if (!event->from_process)
        return all;
    if (event->sender > 0 && process_tree_has(event->sender, &child->except)) {
        say_verbose(job->out, "not passed on, the command has sent it: %s", signal_format(event->number, name, sizeof name));
        return false;
    }
    return true;
}

bool job_pass_signals_on(struct job_control *job, const struct child *child, bool all)
{
    struct signal_event event;
    char name[32];
    bool child_changed = false;
    while (signals_next(job->signals, &event)) {
        child_changed |= event.number == SIGCHLD;
        if (!is_for_command(job, child, &event, all))
            continue;
        /* fg has continued the whole group; kill -CONT, dlock alone. */
        bool again = event.number == SIGCONT && job->resumed;
        if (again)
            job->resumed = false;
        if (again && !child_is_stopped(child))
            continue;
        child_signal(child, event.number);
        say_verbose(job->out, "passed %s on to the command", signal_format(event.number, name, sizeof name));
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

void job_stop_with_command(struct job_control *job, struct child *child)
{
    int number = child->stopped_by;
    /* These two are for the background: the terminal stops whoever reads or
     * writes there. */
    bool by_terminal = number == SIGTTIN || number == SIGTTOU;
    if (number == 0 || (!by_terminal && !in_foreground()))
        return;
    child->stopped_by = 0; /* once for each stop */
    job->resumed = true;
    signals_stop_here(number);
}
