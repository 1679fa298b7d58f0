/* Who has locked a file with flock(2), by /proc/locks. */
#ifndef DLOCK_STORE_FILE_PROC_LOCKS_H
#define DLOCK_STORE_FILE_PROC_LOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

struct flock_holder {
    pid_t pid;   /* which called flock(2): it may have ended, and another may have its pid */
    bool shares; /* LOCK_SH */
};

/* The locks on this file. Each belongs to an open file, which other processes
 * may have inherited, but is listed under the process that took it. In another
 * pid namespace than the first, the kernel keeps back those whose pid is not to
 * be seen there. Returns how many stand in `holders`. */
size_t flock_holders(const struct stat *file, struct flock_holder *holders, size_t room);

/* Whether that process has a lock on this file now, by its open files. False too
 * where we may not look at them. */
bool flock_is_held_by(const struct stat *file, pid_t pid);

#endif
