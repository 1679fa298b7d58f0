/* The descendants of a process, by /proc. */
#ifndef DLOCK_PROCESS_TREE_H
#define DLOCK_PROCESS_TREE_H

#include <sys/types.h>

enum { EXCEPT_MOST = 64 };

/* Children that are none of our business: a process that executes dlock keeps
 * those that it had. */
struct process_except {
    int count;
    pid_t pids[EXCEPT_MOST];
};

/* Fills in the children that this process has now. */
void process_tree_inherited(struct process_except *except);

/* Sends the signal (0: to look whether they are there) to every descendant of
 * `root`, not to itself and not to `except` and below, as /proc
 * shows them at this moment: one that is forked meanwhile can be missed, and
 * is found by the next call. Returns how many it was sent to; 0 also where
 * the kernel does not list children (CONFIG_PROC_CHILDREN). */
int process_tree_signal(pid_t root, int number, const struct process_except *except);

#endif
