/* The descendants of this process, or of another one, by /proc.
 *
 * Of its own descendants this process is the reaper (PR_SET_CHILD_SUBREAPER), so
 * that one whose parent has ended is found among its own children. Those of
 * another process fall to somebody else then: each that was seen in its family
 * is remembered, by its pid and start time.
 *
 * Its own threads apart, nothing is taken for a descendant that is none: each
 * pid is pinned by a pidfd(2) before its parent or its start time is looked at,
 * so that a signal never reaches a later process with the same pid. */
#ifndef DLOCK_PROCESS_PROCESS_TREE_H
#define DLOCK_PROCESS_PROCESS_TREE_H

#include "util/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Descriptors that a walk needs, kept until then: under a low limit (ulimit -n)
 * there may be none left, and who cannot be looked at is taken for gone. */
struct process_spare {
    int fds[3]; /* -1: not kept */
};

#define PROCESS_SPARE_NONE ((struct process_spare){{-1, -1, -1}})

/* False with errno set; process_spare_free() in any case. */
bool process_spare_keep(struct process_spare *spare);
void process_spare_free(struct process_spare *spare);

/* Children that are none of our business: a process that executes dlock keeps
 * those that it had. (When they end, what they leave behind falls to us and
 * cannot be told from the command's own.) */
struct process_except {
    size_t count;
    pid_t *pids;
};

/* A process, told from a later one with its pid. */
struct process_id {
    pid_t pid;
    int64_t start; /* of struct proc_stat */
};

/* Another process with all that descends from it; the process itself stands
 * first, as long as it lives. */
struct process_family {
    const struct process_except
        *except; /* the caller's: children of members that are none; NULL: there are none */
    struct process_member *members;
    size_t count, room;
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

/* One more of them. False if memory is short. */
bool process_tree_except(struct process_except *except, pid_t pid);

/* The child is reaped: its pid is free for one that is our business. */
void process_tree_reaped(struct process_except *except, pid_t pid);

/* Sends the signal (0: only counts) to every descendant but `except` and what
 * is below, and continues those that are stopped. First it finds them all, in
 * a few walks; then parents are signalled before their children, so that none
 * goes on to its next step because its child has ended. One that is forked
 * meanwhile can be missed, and is found by the next call. Breaks off at `until`:
 * in a crowd that takes all of the processor a walk may last for seconds. */
struct process_count process_tree_signal(int number, const struct process_except *except,
                                         struct deadline until);

/* Kills them all, also where they fork faster than they can be walked: first
 * all are stopped, parents before their children, until a walk finds no more
 * than the one before; then nobody forks any more, and they are killed. To
 * kill while some still fork would only give their slots to new ones. Takes
 * precedence over other processes meanwhile, where it may. */
struct process_count process_tree_kill(const struct process_except *except);

/* Begins with the process alone. False where memory is short;
 * process_family_forget() in any case. */
bool process_family_init(struct process_family *family, struct process_id head);
/* Adds a process that was found to belong to it. False if memory is short. */
bool process_family_add(struct process_family *family, struct process_id id);
void process_family_forget(struct process_family *family);

/* As process_tree_signal() and process_tree_kill(), for the family: the head
 * itself is signalled too, this process never is. What a member forks and
 * leaves behind between two walks is missed, and so is what had left the head
 * before the first one (a daemon). Forgets those that have ended. */
struct process_count process_family_signal(struct process_family *family, int number,
                                           struct deadline until);
struct process_count process_family_kill(struct process_family *family);

/* Whether `pid` is a descendant of this process, not of `except`. */
bool process_tree_has(pid_t pid, const struct process_except *except);

#endif
