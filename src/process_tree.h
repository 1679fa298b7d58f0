/* The descendants of this process, by /proc.
 *
 * This process is their reaper (PR_SET_CHILD_SUBREAPER), so that a descendant
 * whose parent has ended is found among its own children. Its own threads
 * apart, nothing is taken for a descendant that is none: each pid is pinned by
 * a pidfd(2) before its parent is looked at, so that a signal never reaches a
 * later process with the same pid. */
#ifndef DLOCK_PROCESS_TREE_H
#define DLOCK_PROCESS_TREE_H

#include "clock.h"

#include <stdbool.h>
#include <sys/types.h>

/* Children that are none of our business: a process that executes dlock keeps
 * those that it had. (When they end, what they leave behind falls to us and
 * cannot be told from the command's own.) */
struct process_except {
    size_t count;
    pid_t *pids;
};

/* What one walk over the tree found alive. */
struct process_count {
    int found;
    int ended;   /* had ended when they were looked at: what they left to us may have been missed */
    pid_t first; /* one of those found, 0 where there is none */
    bool known;  /* false: there is no /proc that could be walked. The first process
                  * of a pid namespace then signals all others in it. */
};

/* Fills in the children that this process has now; process_tree_forget() frees
 * them. False where memory is short. */
bool process_tree_inherited(struct process_except *except);
void process_tree_forget(struct process_except *except);

/* Sends the signal (0: only counts) to every descendant but `except` and what
 * is below, children before their parents, and continues those that are
 * stopped. It finds what /proc shows at this moment: one that is forked
 * meanwhile can be missed, and is found by the next walk. Breaks off at `until`:
 * in a crowd that takes all of the processor a walk may last for seconds. */
struct process_count process_tree_signal(int number, const struct process_except *except, struct deadline until);

/* Kills them all, also where they fork faster than they can be walked: first
 * all are stopped, parents before their children, until a walk finds no more
 * than the one before; then nobody forks any more, and they are killed. To
 * kill while some still fork would only give their slots to new ones. Takes
 * precedence over other processes meanwhile, where it may. */
struct process_count process_tree_kill(const struct process_except *except);

/* Whether `pid` is a descendant of this process, not of `except`. */
bool process_tree_has(pid_t pid, const struct process_except *except);

#endif
