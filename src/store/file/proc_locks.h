/* Who has locked a file with flock(2), by /proc/locks. */
#ifndef DLOCK_STORE_FILE_PROC_LOCKS_H
#define DLOCK_STORE_FILE_PROC_LOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A file as the kernel names it there. stat(2) may name another device (btrfs,
 * overlayfs), or another inode. */
struct flock_file {
    uint64_t device, inode;
};

/* Of an open file, also one that was opened with O_PATH alone. */
void proc_locks_file_of(int fd, struct flock_file *file);

struct flock_holder {
    pid_t pid;   /* which called flock(2): it may have ended, and another may have its pid */
    bool shares; /* LOCK_SH */
};

/* The locks on this file. Each belongs to an open file, which other processes
 * may have inherited, but is listed under the process that took it. In another
 * pid namespace than the first, the kernel keeps back those whose pid is not to
 * be seen there. Returns how many stand in `holders`. */
size_t proc_locks_holders(const struct flock_file *file, struct flock_holder *holders, size_t room);

/* Whether that process has a lock on this file now, by its open files but `except`
 * (-1: none). False too where we may not look at them. */
bool proc_locks_is_held_by(const struct flock_file *file, pid_t pid, int except);

#endif
