/* Starts the command: fork and exec with nothing in between that can fail
 * unseen. */
#ifndef DLOCK_PROCESS_SPAWN_H
#define DLOCK_PROCESS_SPAWN_H

#include "process/signals.h"
#include "util/environment.h"

#include <errno.h>
#include <sys/types.h>

/* An *exec_errno that exec(3) does not give: the child does not see its parent,
 * since it is the first one of a new pid namespace (unshare -p without -f). */
#define SPAWN_UNSEEN ECHILD

/* Executes argv (found along our PATH) in a child of the calling thread, in its
 * process group, on its terminal, with this environment, the signal mask
 * and dispositions that dlock was given and none of its descriptors; killed
 * when the calling thread ends. If it cannot be executed, the child exits with
 * 126 or 127 and *exec_errno, which is in shared memory, holds the reason.
 * Returns its pid; -1 with errno set. */
pid_t spawn(const char *const *argv, const struct environment *environment,
            const struct signals *signals, int *exec_errno);

#endif
