/* The directory of lock files: which one, and whether it can be trusted. */
#ifndef DLOCK_STORE_FILE_DIR_H
#define DLOCK_STORE_FILE_DIR_H

#include "util/clock.h"
#include "util/errmsg.h"
#include "util/exit_status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct lock_dir {
    int fd;
    char path[4096];
};

/* Opens `path`, or where it is NULL the default: /run/lock/dlock for root,
 * /run/lock/dlock-UID for others, /tmp/dlock-UID where /run/lock is missing or its
 * mode lets not everybody write to it. Makes it (0700) where it is not there. Refuses a
 * link, another user's directory, and one that others may write to without
 * the sticky bit; a sticky one of root's is fine for everybody.
 * LOCK_OK; LOCK_REFUSED, LOCK_CANT_CREATE, LOCK_SYSTEM with *why set. */
enum lock_result lock_dir_open(struct lock_dir *dir, const char *path, struct errmsg *why);

void lock_dir_close(struct lock_dir *dir);

/* True if other users can have locks in it. */
bool lock_dir_is_shared(const struct lock_dir *dir);

/* The name of a file of dlock's own in it, `.WHAT-UID`: one for each user, since
 * others' cannot be opened in a shared directory. */
#define LOCK_DIR_OWN_SIZE 64
void lock_dir_own_name(char name[LOCK_DIR_OWN_SIZE], const char *what);

/* Whether an open file is one that we may write: a regular one of ours, without a second name. In a
 * directory that is open to all somebody else may have made it first, or, where the
 * kernel lets him (fs.protected_hardlinks), have put another file of ours there. */
bool lock_dir_may_write(const struct stat *status);

/* Opens it: to read and write, made where
 * it is not there; or to read alone. -1 with errno. */
int lock_dir_open_own(const struct lock_dir *dir, const char *what, bool make);

/* Whether the last time that this said true is at least `interval` ago, for
 * warnings that should not come at every run. True where that cannot be
 * found out. */
bool lock_dir_stamp_due(const struct lock_dir *dir, struct duration interval);

/* What an errno of opening or making a file means. */
enum lock_result file_error_result(int error);

#endif
