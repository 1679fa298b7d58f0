/* Who has locked a file with flock(2), by /proc/locks. */
#ifndef DLOCK_FLOCK_HOLDER_H
#define DLOCK_FLOCK_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

struct flock_holder {
    pid_t pid;   /* which lives, and can be seen */
    bool shares; /* LOCK_SH */
};

/* The processes that locked this file; a lock that was inherited is listed under
 * the process that took it. Returns how many of them stand in `holders`. */
size_t flock_holders(const struct stat *file, struct flock_holder *holders, size_t room);

#endif
