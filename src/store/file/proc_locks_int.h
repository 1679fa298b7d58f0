/* The holders of flock(2) locks on a file, from /proc/locks. */
#ifndef DLOCK_STORE_FILE_PROC_LOCKS_INT_H
#define DLOCK_STORE_FILE_PROC_LOCKS_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* An open file, identified as in /proc/locks. stat(2) may report a different device (btrfs,
 * overlayfs) or a different inode. */
struct flock_file {
    int fd;
    uint64_t device, inode;
    bool asked; /* the kernel was asked for the device, which may differ from that of stat(2) */
};

struct flock_holder {
    pid_t pid; /* the process that called flock(2); it may have ended, and its pid may be reused */
    bool shares; /* the lock is shared (LOCK_SH) */
};

/* Lists the flock(2) locks on the file of an open descriptor, which may be opened with O_PATH, and
 * sets *file to that file. A lock belongs to an open file, which other processes may have
 * inherited, but it is listed under the process that acquired it. In a pid namespace other than the
 * first, the kernel omits locks whose pid is not visible there. The kernel may also omit locks if
 * locks on any file are released during the reading. Returns the number of entries in `holders`. */
size_t proc_locks_holders(int fd, struct flock_file *file, struct flock_holder *holders,
                          size_t room);

/* True if the process holder->pid now has a lock on this file through any of its descriptors except
 * `except` (-1: none), even if another process acquired that lock. In that case also sets
 * holder->shares. False also if we may not look at that process's descriptors. */
bool proc_locks_is_held_by(struct flock_file *file, struct flock_holder *holder, int except);

#endif
