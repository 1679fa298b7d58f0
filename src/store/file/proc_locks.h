/* The holders of flock(2) locks on a file, from /proc/locks. */
#ifndef DLOCK_STORE_FILE_PROC_LOCKS_H
#define DLOCK_STORE_FILE_PROC_LOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* An open file as the kernel names it there. stat(2) may give another device (btrfs,
 * overlayfs), or another inode. */
struct flock_file {
    int fd;
    uint64_t device, inode;
    bool asked; /* the device is the kernel's, not stat(2)'s */
};

struct flock_holder {
    pid_t pid; /* the process that called flock(2): it may have ended, and its pid may be reused */
    bool shares; /* LOCK_SH */
};

/* The locks on the file behind an open descriptor, even one opened with O_PATH, which *file
 * is then. Each belongs to an open file, which other processes may have
 * inherited, but is listed under the process that took it. In a pid namespace other than
 * the first, the kernel omits those whose pid is not visible there. Returns the number of
 * entries in `holders`. */
size_t proc_locks_holders(int fd, struct flock_file *file, struct flock_holder *holders,
                          size_t room);

/* True if the process of *holder has a lock on this file now, through any of its open files
 * but `except` (-1: none), also one that another process took; sets what kind it is. False
 * too if we may not look at them. */
bool proc_locks_is_held_by(struct flock_file *file, struct flock_holder *holder, int except);

#endif
