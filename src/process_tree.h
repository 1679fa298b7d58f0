/* The descendants of a process, by /proc. */
#ifndef DLOCK_PROCESS_TREE_H
#define DLOCK_PROCESS_TREE_H

#include <sys/types.h>

/* Sends the signal to every descendant of `root`, not to itself, as /proc
 * shows them at this moment: one that is forked meanwhile can be missed, and
 * is found by the next call. Returns how many it was sent to; 0 also where
 * the kernel does not list children (CONFIG_PROC_CHILDREN). */
int process_tree_signal(pid_t root, int number);

#endif
