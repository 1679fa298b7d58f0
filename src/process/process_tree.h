/* The descendants of this process, or of another one, by /proc.
 *
 * This process is the reaper of its own descendants (PR_SET_CHILD_SUBREAPER),
 * so one whose parent has ended is found among its own children. Descendants of
 * another process are reparented elsewhere: each that was seen in its family is
 * remembered, by its pid and start time.
 *
 * Apart from its own threads, no process is wrongly taken for a descendant:
 * each pid is pinned by a pidfd(2) before its parent or its start time is
 * looked at, so that a signal never reaches a later process with the same pid. */
#ifndef DLOCK_PROCESS_PROCESS_TREE_H
#define DLOCK_PROCESS_PROCESS_TREE_H

#include "process/procfs.h"
#include "util/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Descriptors that a walk needs, reserved for it: under a low limit (ulimit -n)
 * there may be none left, and a process that cannot be looked at is taken for
 * gone. */
struct process_spare {
    int fds[3]; /* -1: not kept */
};

#define PROCESS_SPARE_NONE ((struct process_spare){{-1, -1, -1}})

/* False with errno set; call process_spare_free() in any case. */
bool process_spare_keep(struct process_spare *spare);
void process_spare_free(struct process_spare *spare);

/* Another process with all its descendants; the process itself comes first, as
 * long as it lives. */
struct process_family {
    struct process_member *members;
    size_t count, room;
};

/* The processes that one walk over the tree found alive. */
struct process_count {
    int found;
    int ended;   /* had ended when they were looked at: their children may have been missed */
    pid_t first; /* one of those found, 0 if there is none */
    bool known;  /* false: there is no /proc that could be walked. The first process
                  * of a pid namespace then signals all others in it. */
};

/* Fills in the children that this process has now, which do not concern us: a process that
 * executes dlock keeps the children that it had. (When they end, their own children become
 * ours and cannot be distinguished from the command's.) False if memory is short. */
bool process_tree_inherited(struct pids *except);

/* The child is reaped: its pid may now belong to a process that does concern us. */
void process_tree_reaped(struct pids *except, pid_t pid);

/* Begins with the process alone. False if memory is short; call
 * process_family_forget() in any case. */
bool process_family_init(struct process_family *family, struct process_id head);
/* Adds a process that was found to belong to it. False if memory is short. */
bool process_family_add(struct process_family *family, struct process_id id);
void process_family_forget(struct process_family *family);

/* True if walks find no descendant of this process but `except`. One that has ended is none, even
 * if it cannot be reaped, because a debugger traces it. */
bool process_tree_is_gone(const struct pids *except);

/* Sends the signal (0: only counts) to every member of the family (NULL: to every
 * descendant of ours) but `except` (NULL: none) and what is below it, and continues the
 * stopped ones. First it finds them all, in a few walks; then it signals parents before
 * their children, so that none goes on to its next step because its child has ended. A
 * process that is forked meanwhile can be missed, and is found by the next call. Breaks
 * off at `until`: among many processes that use the whole processor a walk may last for
 * seconds.
 *
 * Of a family the head itself is signalled too, this process never is. A process that a
 * member forks and leaves behind between two walks is missed, and so is one that had left
 * the head before the first walk (a daemon). Those that have ended are forgotten. */
struct process_count process_tree_signal(struct process_family *family, const struct pids *except,
                                         int number, struct deadline until);

/* Kills them all, even if they fork faster than they can be walked. First all
 * are stopped, parents before their children, until a walk finds no more than
 * the one before; then none can fork any more, and they are killed. Killing
 * while some still fork would only give their slots to new ones. */
struct process_count process_tree_kill(struct process_family *family, const struct pids *except);

/* Signals the process; 0: only tries. By kill(2) if there is no pidfd (-1), and if a
 * sandbox refuses pidfd_send_signal(2), with whatever error. False with errno set. */
bool process_signal(int pidfd, pid_t pid, int number);

/* Kills a child of ours alone, and reaps it. */
void process_kill_child(pid_t pid);

/* True if `pid` is a descendant of this process, and not of `except`. */
bool process_tree_has(pid_t pid, const struct pids *except);

#endif
