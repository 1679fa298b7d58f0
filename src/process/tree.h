/* A process and all its descendants, by /proc.
 *
 * This process is the reaper of its own descendants (PR_SET_CHILD_SUBREAPER), so one whose
 * parent has ended is found among its own children. Descendants of another process are
 * reparented elsewhere: the tree remembers each one that was seen in it, by its pid and
 * start time.
 *
 * Apart from its own threads, no process is wrongly taken for a descendant: each pid is
 * pinned by a pidfd(2) before its parent or its start time is looked at, so that a signal
 * never reaches a later process with the same pid. */
#ifndef DLOCK_PROCESS_TREE_H
#define DLOCK_PROCESS_TREE_H

#include "process/procfs.h"
#include "util/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tree {
    struct process_id head; /* pid 0: this process, which does not belong to the tree itself */
    struct pids except;     /* processes that do not belong to it, nor their descendants do */
    pid_t guard;            /* does not belong to it either, but its descendants do; 0: none */

    /* The members of another process's tree that were seen so far. The head comes first,
     * as long as it lives. */
    struct tree_member *members;
    size_t count, room;

    /* Descriptors reserved for a walk: under a low limit (ulimit -n) none may be left, and
     * a process that cannot be looked at is taken for gone. -1: not reserved. */
    int spare[3];
};

#define TREE_OWN ((struct tree){.spare = {-1, -1, -1}})

/* Opens the tree of the process `head`; of this process if its pid is 0. Then the children
 * that this process already has do not belong to it: a process that executes dlock keeps
 * them. (When they end, their own children become dlock's and cannot be distinguished from
 * the command's.) Reserves descriptors until the first tree_signal(). False with errno set;
 * call tree_close() in any case. */
bool tree_open(struct tree *tree, struct process_id head);
void tree_close(struct tree *tree);

/* From now on, the tree belongs to another process, with the same exceptions. False if memory
 * is short. */
bool tree_follow(struct tree *tree, struct process_id head);

void tree_free_spare(struct tree *tree);

/* Adds a process to the tree of another process. False if memory is short. */
bool tree_add(struct tree *tree, struct process_id id);

/* Our child `pid` was reaped: this pid may now belong to a process of the tree. */
void tree_reaped(struct tree *tree, pid_t pid);

/* True if `pid` is a descendant of this process and belongs to its tree. */
bool tree_has(const struct tree *tree, pid_t pid);

/* The processes that a walk over the tree found alive. */
struct tree_count {
    int found;
    int ended;   /* had ended when they were looked at: their children may have been missed */
    pid_t first; /* one of those found, 0 if there is none */
    bool known;  /* false: there is no /proc that could be walked. The first process of a
                  * pid namespace then signals all others in it. */
};

/* Counts the processes that are left. One that has ended does not count, even if it cannot
 * be reaped because a debugger traces it. */
struct tree_count tree_left(struct tree *tree);

/* True if walks found that no process is left. */
static inline bool tree_is_gone(const struct tree_count *left)
{
    return left->known && left->found == 0;
}

/* Sends the signal to every process of the tree, and continues the stopped ones. A few
 * walks find all of them first; then parents are signalled before their children, so that
 * none goes on to its next step because its child has ended. A process that is forked
 * meanwhile can be missed, and the next call finds it. Stops at `until`: among many
 * processes that use the whole processor, a walk may last for seconds.
 *
 * SIGKILL ends all of them, even if they fork faster than they can be walked: all are
 * stopped first, parents before their children, until a walk finds no more than the one
 * before. Then none can fork any more, and all are killed. Killing while some still fork
 * would only give their slots to new ones.
 *
 * Of another process's tree, the head is signalled too; this process never is. A process
 * that a member forks and leaves between two walks is missed; a daemon, which had left the
 * head before the first walk, is missed too. */
struct tree_count tree_signal(struct tree *tree, int number, struct deadline until);

/* Sends the signal to one process; 0 only tries. Uses kill(2) if there is no pidfd (-1), or
 * if a sandbox refuses pidfd_send_signal(2), whatever its error. False with errno set. */
bool process_signal(int pidfd, pid_t pid, int number);

#endif
