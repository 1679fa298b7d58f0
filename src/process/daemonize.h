/* Detaches a process from its caller, if it outlives its dlock. */
#ifndef DLOCK_PROCESS_DAEMONIZE_H
#define DLOCK_PROCESS_DAEMONIZE_H

#include <stdbool.h>
#include <sys/types.h>

/* In a fresh fork. Gives the process a session of its own; blocks every signal
 * that can be blocked, since a terminal, systemd and CI runners send theirs to
 * all that they find; changes to the root directory, unless `keep_directory`
 * says that paths are relative; and closes all descriptors that dlock was
 * started with but stderr.
 *
 * If that stderr is a pipe that `target` does not have open itself, as in
 * $(dlock --attach ... 2>&1), its reader would wait for us: then it is replaced
 * by the target's own, or by /dev/null if `target` is 0. False with errno set. */
bool daemonize(pid_t target, bool keep_directory);

#endif
