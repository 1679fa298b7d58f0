/* The processes that dlock starts: the command, a guard that outlives a killed dlock, and a
 * process that continues in the background. */
#ifndef DLOCK_PROCESS_PROCESS_H
#define DLOCK_PROCESS_PROCESS_H

#include "process/signals.h"
#include "process/tree.h"
#include "util/array.h"
#include "util/errmsg.h"
#include "util/exit_status.h"
#include "util/message.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/types.h>

struct command {
    const char *const *argv;
    const struct environment *environment;
    const struct signals *signals; /* dlock reads the signals, for itself and for the command */
    const struct messages *out;
    bool tree; /* run the command under a guard that misses no descendant (--tree) */
};

struct child {
    const struct command *plan;
    pid_t pid;          /* our own child: the command, or its guard */
    pid_t command;      /* the command's pid */
    int exec_fd;        /* readable once exec has ended; -1 after dlock has noticed the end */
    int guard_fd;       /* socket to the guard, readable when the guard has written; -1: none */
    pid_t orphan_guard; /* the guard that runs beside the command; -1: none */
    struct guard_page *page; /* memory shared with the child; child_close() unmaps it */
    struct tree tree;        /* our descendants, except children that are older than the command */

    int stopped_by;     /* the signal that stopped the command; 0: none, or dlock has acted on it */
    int stops;          /* how often the command has been stopped */
    bool command_ended; /* the command has ended; with --tree, its descendants may still run */
    bool ended;         /* the command has ended; with --tree, all its descendants too */
    bool childless;     /* dlock had no child of any kind at the last child_reap() */
    bool guard_lost;    /* the guard was killed, and the command with it; descendants may be left */
    int status;         /* the command's status from waitpid(2), once the command has ended */
    int exec_error;     /* the errno for which the command was not executed, otherwise 0 */

    sigset_t told;              /* signals that dlock received, but not from the command */
    bool resumed;               /* dlock stopped together with the command, and was continued */
    struct deadline stop_asked; /* when the last SIGTSTP came, from any sender */
    struct deadline stop_seen;  /* when dlock saw the command's last stop */
};

/* An exec_error that does not come from exec(3): the command's process does not see its parent,
 * because it is the first process of a new pid namespace (unshare -p without -f). */
#define EXEC_UNSEEN ECHILD

/* Starts a process that executes the command (found in our PATH) in dlock's process group and on
 * its terminal, with the signal mask and dispositions that dlock was started with, and without
 * dlock's descriptors. Does not wait for exec. The kernel kills the command if the calling thread
 * ends. Descendants whose parents end become children of dlock or of the guard. What `plan` points
 * to must not change until child_close(). False with *why set: nothing was started. */
bool child_start(struct child *child, const struct command *plan, struct errmsg *why);

/* Starts a guard beside the command. If dlock is killed, this guard kills those of the command's
 * descendants that it can find. Does nothing with --tree. `held` is the command's DLOCK_HELD. No
 * other thread may be running yet. False with errno set: the caller may try again. */
bool child_guard_orphans(struct child *child, const char *held);

/* Reaps children that have ended (the command, adopted descendants), notices the end of exec, and
 * reads what the guard has written, within the limits of struct drain. Never waits. */
void child_reap(struct child *child);

/* Returns false if it is not known yet whether exec has succeeded. Otherwise *started says whether
 * the command has started, judged by what child_reap() has found so far. *started is false if a
 * signal has already ended the command, because that may have happened during exec. */
bool child_judge_start(const struct child *child, bool *started);

/* Notices that the command has ended even if a debugger that traces it has not reaped it yet. */
void child_find_unreaped(struct child *child);

/* Reaps like child_reap(), then counts the remaining descendants that dlock can see. */
struct tree_count child_left(struct child *child);

/* Sends the signal to the command and to every descendant of dlock that is found before `until`,
 * and continues those that are stopped (see tree_signal()). */
void child_signal_tree(struct child *child, int number, struct deadline until);

/* Passes the signals that were sent to dlock alone on to the command, within the limits of struct
 * drain. True if SIGCHLD was among the signals: a child has changed its state. */
bool child_pass_signals_on(struct child *child);

/* If the terminal has stopped the command, stops dlock too, so that the shell sees a stopped job.
 * Returns after both were continued (fg). */
void child_stop_with_command(struct child *child);

/* From now on the guard beside the command kills nothing, because processes that the command has
 * left behind are meant to stay. The guard ends with dlock, or in child_close(). */
void child_dismiss_guard(const struct child *child);

void child_close(struct child *child);

/* Kills our child, but not its descendants, and reaps it. */
void process_kill_child(pid_t pid);

/* For a newly forked process. Gives the process a new session. Blocks every signal that can be
 * blocked, because terminals, systemd and CI runners signal all processes that they find. Changes
 * to the root directory, unless `keep_directory` is set because paths are relative. Closes all
 * descriptors that dlock was started with, except stderr.
 *
 * `target` is the process that --attach guards, or 0. If stderr is a pipe that the target does not
 * have open, as in $(dlock --attach ... 2>&1), the reader of the pipe would wait until the daemon
 * ends. So the daemon's stderr is replaced by the target's stderr, or by /dev/null if there is no
 * target. Returns false with errno set on failure. */
bool daemonize(pid_t target, bool keep_directory);

#endif
