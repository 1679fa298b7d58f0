/* Locks on this host: flock(2) on a file, which the kernel frees when its holder dies. And the
 * directory of lock files: its path, and whether it can be trusted. */
#ifndef DLOCK_STORE_FILE_BACKEND_H
#define DLOCK_STORE_FILE_BACKEND_H

#include "store/backend.h"

#include <stdbool.h>
#include <sys/stat.h>

/* Opens the backend for lock files in `dir` (NULL: the default); each
 * file has a lease record and is removed at its release.
 * LOCK_OK with *backend set, which the caller closes with its close(); otherwise as
 * lock_dir_open(). */
enum lock_result dir_backend_open(struct backend **opened, const char *dir, struct errmsg *why);

/* Opens the backend for the one file at `path`: --lock-file. The file is created empty if it is
 * missing, and is neither written nor removed, so that flock(1) and dlock exclude each
 * other. It keeps no record: another process's lease cannot be found by its token.
 * LOCK_OK with *backend set; LOCK_SYSTEM, LOCK_INVALID with *why set. */
enum lock_result flock_backend_open(struct backend **opened, const char *path, struct errmsg *why);

/* The default directory of a user is in the first of these places that exists and, except for
 * root, lets all users write. */
enum lock_dir_place {
    LOCK_DIR_RUN_LOCK, /* /run/lock/dlock for root, /run/lock/dlock-UID */
    LOCK_DIR_RUN,      /* /run/dlock/UID: made by packages */
    LOCK_DIR_TMP,      /* /tmp/dlock-UID */
    LOCK_DIR_GIVEN,    /* none of them */
};

void lock_dir_default(enum lock_dir_place place, char *path, size_t size);

struct lock_dir {
    int fd;
    enum lock_dir_place place;
    char path[4096];
};

/* Opens `path`, or the default if it is NULL, which must not be in a /tmp that only some of the
 * user's processes have. Creates it (0700) if it is missing. Refuses a link,
 * another user's directory, and a directory that others may write to without the sticky
 * bit; a sticky one owned by root is accepted for all users.
 * LOCK_OK; LOCK_REFUSED, LOCK_INVALID, LOCK_CANT_CREATE, LOCK_SYSTEM with *why set. */
enum lock_result lock_dir_open(struct lock_dir *dir, const char *path, struct errmsg *why);

void lock_dir_close(struct lock_dir *dir);

/* True if the directory is ours, or root's for all users. */
bool lock_dir_may_use(const struct stat *status);

/* True if its path still leads to it: it was not removed or replaced, and nothing is mounted
 * on it. */
bool lock_dir_stands(const struct lock_dir *dir);

/* True if other users can have locks in it. */
bool lock_dir_is_shared(const struct lock_dir *dir);

/* The name of a file of dlock's own in it, `.WHAT-UID`: one for each user, since
 * others' cannot be opened in a shared directory. */
#define LOCK_DIR_OWN_SIZE 64
void lock_dir_own_name(char name[LOCK_DIR_OWN_SIZE], const char *what);

/* True if we may write to this open file: a regular file of ours with a single link. In a
 * directory that is open to all, another user may have made it first, or have linked
 * another file of ours there, if the kernel allows it (fs.protected_hardlinks). */
bool lock_dir_may_write(const struct stat *status);

/* Opens it read-write, creating it if it is missing, or read-only. -1 with errno. */
int lock_dir_open_own(const struct lock_dir *dir, const char *what, bool make);

/* True if this last returned true at least `interval` ago, for warnings that should not
 * appear at every run. True if that cannot be found out. */
bool lock_dir_stamp_due(const struct lock_dir *dir, struct duration interval);

/* The kind of file system that a lock is on. */
enum fs_kind {
    FS_LOCAL,      /* or not known */
    FS_CONTAINER,  /* a container's own */
    FS_NETWORK,    /* the effect of flock(2) depends on the server and on the mount options */
    FS_WHOLE_FILE, /* as FS_NETWORK, and flock(2) locks all bytes, which excludes fcntl(2) locks */
};

struct fs_type {
    const char *name;
    enum fs_kind kind;
};

/* Of an open file. False with errno. */
bool fs_type_of(int fd, struct fs_type *type);

#endif
