/* The processes that dlock starts: the command, a guard that outlives a killed dlock, and
 * one that goes on in the background. */
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
    const struct signals *signals; /* read for dlock and the command */
    const struct messages *out;
    bool tree; /* behind a guard that misses no descendant (--tree) */
};

struct child {
    const struct command *plan;
    pid_t pid;               /* our own child: the command, or its guard */
    pid_t command;           /* the command's pid */
    int guard_fd;            /* socket to the guard, readable when it has news; -1: none */
    pid_t orphan_guard;      /* -1: none */
    struct guard_page *page; /* shared with the child, mapped; child_close() unmaps it */
    struct tree tree;        /* our descendants, but for children from before the command */

    int stopped_by;     /* the signal that has stopped the command, until that was acted on; 0 */
    int stops;          /* how often it has been stopped */
    bool command_ended; /* with a guard, descendants of it may be left */
    bool ended;         /* the command; with a guard, all its descendants too */
    bool childless;     /* dlock has no child of any kind: seen by the last child_reap() */
    bool guard_lost;    /* the guard was killed, the command with it, and others may be left */
    int status;         /* of waitpid(2), once the command has ended */
    int exec_error;     /* the errno for which the command was not executed, otherwise 0 */

    sigset_t told;              /* signals that came from others than the command */
    bool resumed;               /* dlock has stopped with the command and was continued */
    struct deadline stop_asked; /* when SIGTSTP came last, from any sender */
    struct deadline stop_seen;  /* when the last stop was seen */
};

/* An exec_error that exec(3) does not give: the command's process does not see its parent,
 * since it is the first one of a new pid namespace (unshare -p without -f). */
#define EXEC_UNSEEN ECHILD

/* Executes the command (found along our PATH), in the process group and on the terminal of
 * dlock, with the signal mask and dispositions that dlock was given and none of its
 * descriptors; it is killed if the calling thread ends. Descendants whose parents end become
 * ours, or the guard's. False with *why set: nothing was started. */
bool child_start(struct child *child, const struct command *plan, struct errmsg *why);

/* From now on, the command's descendants are killed even if dlock is killed, as far as a
 * guard can find them; nothing is done with --tree. `held` is the command's DLOCK_HELD. No
 * other thread may run yet. False with errno set: the caller may try again. */
bool child_guard_orphans(struct child *child, const char *held);

/* Reaps whatever has ended, the command or an adopted descendant, and reads the guard's
 * news, of a flood the first. Never waits. */
void child_reap(struct child *child);

/* The command has ended too if a debugger, which traces it, has yet to reap it. */
void child_find_unreaped(struct child *child);

/* Counts the descendants that are left, as far as can be seen. Reaps as child_reap(). */
struct tree_count child_left(struct child *child);

/* Sends the signal to the command and to every descendant of ours that can be found until
 * `until`, and continues the stopped ones; see tree_signal(). */
void child_signal_tree(struct child *child, int number, struct deadline until);

/* Passes on to the command the signals that were sent to dlock alone, of a flood the first.
 * True if a child has changed its state meanwhile. */
bool child_pass_signals_on(struct child *child);

/* Stops dlock if the terminal has stopped the command, and returns once both are continued;
 * so the shell sees a stopped job, and fg continues it. */
void child_stop_with_command(struct child *child);

void child_close(struct child *child);

/* Kills our child, but not its descendants, and reaps it. */
void process_kill_child(pid_t pid);

/* In a fresh fork. Gives the process a new session; blocks every signal that can be
 * blocked, since a terminal, systemd and CI runners send theirs to all processes that they
 * find; changes to the root directory, unless `keep_directory` says that paths are relative;
 * and closes all descriptors that dlock was started with but stderr.
 *
 * If that stderr is a pipe that `target` does not have open itself, as in
 * $(dlock --attach ... 2>&1), its reader would wait for this process: then it is replaced by
 * the target's own, or by /dev/null if `target` is 0. False with errno set. */
bool daemonize(pid_t target, bool keep_directory);

#endif
