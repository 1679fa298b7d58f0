/* Locks on this host. dlock locks a file with flock(2), and the kernel frees the lock when its
 * holder dies. This file also declares the directory of lock files: its path, and whether dlock can
 * trust it. */
#ifndef DLOCK_STORE_FILE_BACKEND_H
#define DLOCK_STORE_FILE_BACKEND_H

#include "store/backend.h"

#include <stdbool.h>
#include <sys/stat.h>

/* Opens the backend for lock files in `dir` (NULL: the default). Each lock file contains a lease
 * record and is removed when the lock is released. On LOCK_OK, *opened is set, and the caller must
 * call its close(). Otherwise returns a result of lock_dir_open(). */
enum lock_result dir_backend_open(struct backend **opened, const char *dir, struct errmsg *why);

/* Opens the backend for --lock-file: the one file at `path`. dlock creates the file empty if it is
 * missing, and never writes or removes it, so that flock(1) and dlock exclude each other. There is
 * no record, so another process's lease cannot be found by its token. LOCK_OK with *opened set;
 * LOCK_SYSTEM, LOCK_INVALID with *why set. */
enum lock_result flock_backend_open(struct backend **opened, const char *path, struct errmsg *why);

/* A user's default directory is in the first of these places that exists and, except for root, is
 * writable by all users. */
enum lock_dir_place {
    LOCK_DIR_RUN_LOCK, /* /run/lock/dlock for root, /run/lock/dlock-UID for other users */
    LOCK_DIR_RUN,      /* /run/dlock/UID; a package creates /run/dlock */
    LOCK_DIR_TMP,      /* /tmp/dlock-UID */
    LOCK_DIR_GIVEN,    /* a directory that the user gave */
};

void lock_dir_default(enum lock_dir_place place, char *path, size_t size);

struct lock_dir {
    int fd;
    enum lock_dir_place place;
    char path[4096];
};

/* Opens `path`, or the default directory if `path` is NULL. The default must not be in a /tmp that
 * only some of the user's processes can see. Creates a missing directory with mode 0700. Refuses a
 * symbolic link, another user's directory, and a directory that others may write to without the
 * sticky bit; accepts a sticky directory of root, which is meant for all users. LOCK_OK;
 * LOCK_REFUSED, LOCK_INVALID, LOCK_CANT_CREATE, LOCK_SYSTEM with *why set. */
enum lock_result lock_dir_open(struct lock_dir *dir, const char *path, struct errmsg *why);

void lock_dir_close(struct lock_dir *dir);

/* True if the directory belongs to our user, or belongs to root and is sticky, which means that it
 * is for all users. */
bool lock_dir_may_use(const struct stat *status);

/* True if the directory is still at its path: it was not removed or replaced, and nothing is
 * mounted on it. */
bool lock_dir_stands(const struct lock_dir *dir);

/* True if other users can have locks in the directory. */
bool lock_dir_is_shared(const struct lock_dir *dir);

/* The name of one of dlock's own files in a lock directory: `.WHAT-UID`. Each user has a separate
 * file, because in a shared directory a user cannot open another user's file. */
#define LOCK_DIR_OWN_SIZE 64
void lock_dir_own_name(char name[LOCK_DIR_OWN_SIZE], const char *what);

/* True if we may write to this open file: it is a regular file, belongs to our user and has a
 * single link. In a directory that all users may write to, another user may have created the file
 * first, or may have made this name a hard link to another of our files, unless
 * fs.protected_hardlinks prevents that. */
bool lock_dir_may_write(const struct stat *status);

/* Opens dlock's own file `.WHAT-UID`: read-only or, with `make`, read-write. `make` also creates
 * the file if it is missing. Returns -1 with errno on failure. */
int lock_dir_open_own(const struct lock_dir *dir, const char *what, bool make);

/* For warnings that should not appear on every run: true if this function last returned true at
 * least `interval` ago, or if that cannot be determined. */
bool lock_dir_stamp_due(const struct lock_dir *dir, struct duration interval);

/* The kind of file system that a lock is on. */
enum fs_kind {
    FS_LOCAL,      /* a local file system, or one of unknown kind */
    FS_CONTAINER,  /* a file system that belongs to a container */
    FS_NETWORK,    /* the effect of flock(2) depends on the server and on the mount options */
    FS_WHOLE_FILE, /* like FS_NETWORK; flock(2) also locks all bytes against fcntl(2) locks */
};

struct fs_type {
    const char *name;
    enum fs_kind kind;
};

/* Finds out the type of the file system that an open file is on. Returns false with errno on
 * failure. */
bool fs_type_of(int fd, struct fs_type *type);

#endif
