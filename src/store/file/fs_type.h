/* The kind of file system that a lock is on. */
#ifndef DLOCK_STORE_FILE_FS_TYPE_H
#define DLOCK_STORE_FILE_FS_TYPE_H

#include <stdbool.h>

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
