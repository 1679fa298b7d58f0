/* The command: started, signalled with all its descendants, reaped. */
#ifndef DLOCK_PROCESS_CHILD_H
#define DLOCK_PROCESS_CHILD_H

#include "process/process_tree.h"
#include "process/signals.h"
#include "process/tree_guard.h"
#include "util/environment.h"
#include "util/errmsg.h"

#include <stdbool.h>
#include <sys/types.h>

struct child {
    pid_t pid;                  /* our own child: the command, or its guard */
    int guard_fd;               /* socket to the guard, readable when it has news; -1: none */
    struct pids except;         /* children that dlock had before the command */
    struct process_spare spare; /* until the first stop */
    struct guard_page *page;    /* shared with the child, mapped; child_close() unmaps it */
    pid_t command;              /* the command's pid */
    pid_t orphan_guard;         /* -1: none */

    int stopped_by; /* the signal that has stopped the command, until that was acted on; 0: none */
    int stops;      /* how often it has been stopped */
    bool command_ended; /* with a guard, descendants of it may be left */
    bool ended;         /* the command; with a guard, all its descendants too */
    bool childless;     /* dlock has no child of any kind: seen by the last child_reap() */
    bool guard_lost;    /* the guard was killed, the command with it, and others may be left */
    int status;         /* of waitpid(2), once the command has ended */
    int exec_error;     /* the errno for which an ended command was never executed, otherwise 0 */
};

/* Starts argv as spawn() does; with `tree` behind a guard (process/tree_guard.h).
 * Descendants whose parents end become ours, or the guard's.
 * False with *why set: nothing was started. */
bool child_start(struct child *child, const char *const *argv,
                 const struct environment *environment, const struct signals *signals, bool tree,
                 struct errmsg *why);

/* From now on, what the command has started is killed even if dlock is killed
 * (orphan_guard.h); `held` is the command's DLOCK_HELD. No other thread may run yet. False
 * with errno set: it may be tried again. */
bool child_guard_orphans(struct child *child, const char *held);

/* Reaps whatever has ended, the command or an adopted descendant, and takes in
 * the guard's news, of a flood the first. Never waits. */
void child_reap(struct child *child);

/* The command has ended too if a debugger, which traces it, has yet to reap it. */
void child_find_unreaped(struct child *child);

/* True if no descendant is left. Reaps as child_reap(). */
bool child_tree_gone(struct child *child);

/* Those that are left, as far as can be seen. */
struct process_count child_tree_left(const struct child *child);

/* Sends the signal to the command and to every descendant of ours that can be
 * found until `until`, and continues the stopped ones. */
void child_signal_tree(struct child *child, int number, struct deadline until);

/* Sends SIGKILL to all of them. */
void child_kill_tree(struct child *child);

/* Sends it to the command alone; once that has ended, to the processes that the
 * guard still waits for. */
void child_signal(const struct child *child, int number);

/* True if the command is stopped at this moment, by /proc; false if that cannot
 * be seen. */
bool child_is_stopped(const struct child *child);

void child_close(struct child *child);

#endif
