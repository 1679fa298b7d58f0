/* Who has locked a file with flock(2), by /proc/locks. */
#ifndef DLOCK_FLOCK_HOLDER_H
#define DLOCK_FLOCK_HOLDER_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

/* The process that locked this file, if it lives and can be seen; a lock that
 * was inherited is listed under the process that took it. 0: not known. */
pid_t flock_holder(const struct stat *file);

#endif
