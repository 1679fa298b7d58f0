/* A process and all its descendants, found through /proc.
 *
 * This process is the reaper of its descendants (PR_SET_CHILD_SUBREAPER), so a descendant whose
 * parent has ended becomes its child. Descendants of another process are reparented elsewhere, so
 * the tree remembers the pid and start time of each member that was seen.
 *
 * No process outside the tree is ever mistaken for a descendant: a walk (one search of the tree
 * through /proc) pins each pid by a pidfd(2) before it reads the parent or the start time, so a
 * signal never reaches a later process with the same pid. */
#ifndef DLOCK_PROCESS_TREE_H
#define DLOCK_PROCESS_TREE_H

#include "process/procfs.h"
#include "util/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tree {
    struct process_id head; /* the root of the tree; pid 0: this process, which is not itself in the
                             * tree */
    struct pids except;     /* processes that, with their descendants, do not belong to the tree */
    pid_t guard;            /* a process outside the tree whose descendants belong to the tree; 0:
                             * none */

    /* The members of another process's tree that were seen so far. The head comes first,
     * as long as it lives. */
    struct tree_member *members;
    size_t count, room;

    /* Descriptors that are kept in reserve and closed before a walk; -1: none. Under a low limit
     * (ulimit -n), a walk might otherwise have no descriptor left to read a process, and would
     * regard the process as ended. */
    int spare[3];
};

#define TREE_OWN ((struct tree){.spare = {-1, -1, -1}})

/* Opens the tree of the process `head`, or of this process if head.pid is 0. Children that this
 * process already has do not belong to its tree: a program may have started them before it replaced
 * itself with dlock by exec. (When such a child ends, its own children become children of dlock,
 * and dlock cannot tell them from descendants of the command.) Reserves descriptors until the first
 * tree_signal(). Returns false with errno set on failure; call tree_close() even then. */
bool tree_open(struct tree *tree, struct process_id head);
void tree_close(struct tree *tree);

/* Makes this the tree of another process, and keeps tree->except. False if memory is short. */
bool tree_follow(struct tree *tree, struct process_id head);

void tree_free_spare(struct tree *tree);

/* Adds a process to the tree of another process. False if memory is short. */
bool tree_add(struct tree *tree, struct process_id id);

/* Call this after our child `pid` was reaped: from now on a process of the tree may have this
 * pid. */
void tree_reaped(struct tree *tree, pid_t pid);

/* True if `pid` is a descendant of this process and belongs to its tree. */
bool tree_has(const struct tree *tree, pid_t pid);

/* The processes that a walk over the tree found alive. */
struct tree_count {
    int found;
    int ended;   /* processes that had ended when the walk reached them; their children may have
                  * been missed */
    pid_t first; /* one of those found, or 0 if there is none */
    bool known;  /* false: there is no /proc to walk. In that case, pid 1 of a pid namespace signals
                  * all other processes in the namespace. */
};

/* Counts the processes that are left. A process that has ended does not count, even if it
 * cannot be reaped because a debugger traces it. */
struct tree_count tree_left(struct tree *tree);

/* True if walks found that no process is left. */
static inline bool tree_is_gone(const struct tree_count *left)
{
    return left->known && left->found == 0;
}

/* Sends the signal to every process of the tree, and continues the stopped ones. A few walks first
 * find all processes. Then parents are signalled before their children, so that no parent continues
 * with its next step because its child has ended. A call may miss a process that is forked
 * meanwhile; the next call finds it. The walks end at `until`, because a walk among many processes
 * that use the whole processor may last for seconds.
 *
 * SIGKILL ends all of them, even if they fork faster than a walk can find them. All are stopped
 * first, parents before their children, until a walk finds no more processes than the walk before.
 * Then no process can fork any more, and all are killed. If some processes could still fork, each
 * kill would only make room for a new process.
 *
 * This process is never signalled. In another process's tree, the head is signalled too, but the
 * walks miss a process that a member forks and orphans between two walks, and a daemon that left
 * the tree before the first walk. */
struct tree_count tree_signal(struct tree *tree, int number, struct deadline until);

/* Sends the signal to one process; signal 0 only checks whether that is possible. Uses kill(2) if
 * there is no pidfd (-1), or if a sandbox refuses pidfd_send_signal(2) with any error. False with
 * errno set. */
bool process_signal(int pidfd, pid_t pid, int number);

#endif
