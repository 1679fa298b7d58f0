/* Leaving the caller's company, for a process that outlives its dlock. */
#ifndef DLOCK_PROCESS_DAEMONIZE_H
#define DLOCK_PROCESS_DAEMONIZE_H

#include <stdbool.h>
#include <sys/types.h>

/* In a fresh fork: a session of its own; every signal blocked that can be, since
 * a terminal, systemd and CI runners send theirs to all that they find; the
 * root directory, where `keep_directory` does not say that paths are relative;
 * and none of the descriptors that dlock was started with but stderr.
 *
 * That stderr is a pipe which `target` has not open itself, as in
 * $(dlock --attach ... 2>&1), its reader would wait for us: then it becomes the
 * target's own, or nobody's if `target` is 0. False with errno set. */
bool daemonize(pid_t target, bool keep_directory);

#endif
