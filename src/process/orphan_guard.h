/* The orphan guard: a process beside dlock that outlives it, and kills what a
 * killed dlock leaves. */
#ifndef DLOCK_PROCESS_ORPHAN_GUARD_H
#define DLOCK_PROCESS_ORPHAN_GUARD_H

#include "process/process_tree.h"

#include <sys/types.h>

/* Forks it; no other thread may run yet. It shares what is open now: a file
 * lock stays held until it ends. `held` is the command's DLOCK_HELD: ours may be that of
 * an outer dlock, whose other processes live on. It does not kill `except`. Returns its
 * pid; -1 with errno set. */
pid_t orphan_guard_start(const char *held, const struct pids *except, struct process_spare *spare);

#endif
