/* The command: started, signalled with all its descendants, reaped. */
#ifndef DLOCK_CHILD_H
#define DLOCK_CHILD_H

#include "process_tree.h"
#include "signals.h"
#include "status.h"
#include "why.h"

#include <stdbool.h>
#include <sys/types.h>

struct child {
    pid_t pid;
    struct process_except except; /* children that dlock had before the command */
    int exec_error; /* the errno for which an ended command was never executed, else 0 */
    int *exec_errno; /* shared with the child, mapped; child_close() unmaps it */
    bool ended;
    int status; /* of waitpid(2), once ended */
};

/* Forks and executes argv (found along PATH) with the environment of this
 * process, in its process group, on its terminal; with the signal mask and
 * dispositions that dlock was given and none of its descriptors; killed when
 * this thread ends. Descendants whose parents end become ours.
 * LOCK_OK; LOCK_SYSTEM with *why set: nothing was started. */
enum lock_result child_start(struct child *child, const char *const *argv, const struct signals *signals, struct why *why);

/* Reaps whatever has ended, the command or an adopted descendant. Never waits. */
void child_reap(struct child *child);

/* Whether a descendant of the command is left, as far as can be seen. */
bool child_tree_left(const struct child *child);

/* Sends the signal to the command and to every descendant of ours that can be
 * found. */
void child_signal_tree(const struct child *child, int number);

/* Sends it to the command alone. */
void child_signal(const struct child *child, int number);

void child_close(struct child *child);

#endif
