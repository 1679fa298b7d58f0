#include "store/file/backend.h"

#include "process/procfs.h"
#include "util/fileutils.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

void lock_dir_default(enum lock_dir_place place, char *path, size_t size)
{
    static const char *const parents[] = {[LOCK_DIR_RUN_LOCK] = "/run/lock/dlock-",
                                          [LOCK_DIR_RUN] = "/run/dlock/",
                                          [LOCK_DIR_TMP] = "/tmp/dlock-"};
    if (geteuid() == 0 && place == LOCK_DIR_RUN_LOCK)
        snprintf(path, size, "/run/lock/dlock");
    else
        snprintf(path, size, "%s%lu", parents[place], (unsigned long)geteuid());
}

/* The default directory is not in $XDG_RUNTIME_DIR. Cron jobs and services lack that variable, so
 * they would not see the locks of the same user's login shell; also, files there are removed at
 * logout. The default is not in /dev/shm either, because files there are removed, too (RemoveIPC=).
 * The place does not depend on what this process may write to: otherwise a unit with a read-only
 * /run/lock would not use the same directory as its user's shell. */
static enum lock_dir_place default_place(void)
{
    struct stat status;
    if (stat("/run/lock", &status) == 0 && (geteuid() == 0 || (status.st_mode & S_IWOTH) != 0))
        return LOCK_DIR_RUN_LOCK;
    bool for_all = stat("/run/dlock", &status) == 0 && status.st_uid == 0 &&
                   (~status.st_mode & (S_ISVTX | S_IWOTH)) == 0;
    return for_all ? LOCK_DIR_RUN : LOCK_DIR_TMP;
}

/* True if this line of /proc/self/mountinfo, proc(5), describes a /tmp that only one unit sees. The
 * line has the form "36 35 0:31 ROOT POINT OPTIONS ... - TYPE SOURCE OPTIONS". With PrivateTmp=yes,
 * ROOT is in a directory of the unit. With PrivateTmp=disconnected, /tmp is a tmpfs of mode 0700,
 * or a directory in such a tmpfs. */
static bool is_private(char *line)
{
    const char *field[6] = {NULL};
    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        field[i] = strsep(&line, " ");
    const char *root = field[3], *point = field[4],
               *type = line != NULL ? strstr(line, "- ") : NULL;
    if (type == NULL)
        return false;
    bool tmpfs = strcmp(point, "/tmp") == 0 && strncmp(type, "- tmpfs ", 8) == 0;
    return strstr(root, "/systemd-private-") != NULL ||
           strstr(root, "/snap-private-tmp/") != NULL ||
           (tmpfs && (strcmp(root, "/") != 0 || strstr(type, "mode=700") != NULL));
}

/* True if other processes of the user may see a different /tmp. */
static bool tmp_is_private(void)
{
    char *line = NULL;
    size_t size = 0;
    uint64_t mount;
    bool found = false, alone = false;
    int fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    FILE *mounts =
        proc_fdinfo_number(fd, "mnt_id:", 10, &mount) ? fopen("/proc/self/mountinfo", "re") : NULL;
    while (mounts != NULL && !found && getline(&line, &size, mounts) > 0)
        found = strtoull(line, NULL, 10) == mount;
    if (found)
        alone = is_private(line);
    free(line);
    if (mounts != NULL)
        fclose(mounts);
    fd_close(&fd);
    return alone;
}

static enum lock_result dir_refuse(const struct lock_dir *dir, const char *reason,
                                   struct errmsg *why)
{
    return errmsg_fail(why, LOCK_REFUSED, "the lock directory %.300s %s", dir->path, reason);
}

bool lock_dir_may_use(const struct stat *status)
{
    return status->st_uid == geteuid() || (status->st_uid == 0 && (status->st_mode & S_ISVTX) != 0);
}

static enum lock_result dir_judge(const struct lock_dir *dir, struct errmsg *why)
{
    struct fs_type type;
    struct stat status;
    if (fstat(dir->fd, &status) != 0)
        return errmsg_fail(why, LOCK_SYSTEM, "cannot examine the lock directory %s: %s", dir->path,
                           strerror(errno));
    bool open_to_others = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    if (!lock_dir_may_use(&status))
        return dir_refuse(dir, "belongs to another user; use --lock-dir", why);
    if (open_to_others && (status.st_mode & S_ISVTX) == 0)
        return dir_refuse(dir, "is writable by others; use chmod go-w or +t", why);
    if (fs_type_of(dir->fd, &type) && type.kind == FS_WHOLE_FILE)
        return errmsg_fail(
            why, LOCK_REFUSED,
            "the lock directory %.300s is on %s; flock(2) conflicts there with the byte-range "
            "locks that dlock needs; use a --lock-dir on a local disk or tmpfs, or --lock-file, "
            "or Redis",
            dir->path, type.name);
    return LOCK_OK;
}

/* Opens the directory, and creates it if it is missing. Returns -1 with errno on failure. No
 * process may be started during this call, because that process would inherit the umask of 0. */
static int open_or_make(const char *path)
{
    static const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    mode_t umask_before = umask(0); /* the umask could even keep us from opening the new
                                     * directory */
    int made = mkdir(path, 0700), error = errno;
    (void)umask(umask_before);
    errno = error;
    if (made != 0 && errno != EEXIST)
        return -1;
    return open(path, flags);
}

enum lock_result lock_dir_open(struct lock_dir *dir, const char *path, struct errmsg *why)
{
    struct stat status;
    dir->fd = -1;
    dir->place = path == NULL ? default_place() : LOCK_DIR_GIVEN;
    if (dir->place == LOCK_DIR_TMP && tmp_is_private())
        return errmsg_fail(
            why, LOCK_INVALID,
            "the lock directory would be in this unit's private /tmp (PrivateTmp=); other "
            "processes of this user would not see its locks there; use the same --lock-dir for "
            "all of them");
    if (path == NULL)
        lock_dir_default(dir->place, dir->path, sizeof dir->path);
    else if ((size_t)snprintf(dir->path, sizeof dir->path, "%s", path) >= sizeof dir->path)
        return dir_refuse(dir, "has a path that is too long", why);
    /* With a trailing slash, open(2) would follow a link in spite of O_NOFOLLOW. */
    for (size_t end = strlen(dir->path); end > 1 && dir->path[end - 1] == '/'; end--)
        dir->path[end - 1] = '\0';
    dir->fd = open_or_make(dir->path);
    if (dir->fd < 0) {
        int error = errno;
        if (lstat(dir->path, &status) == 0 && S_ISLNK(status.st_mode))
            return dir_refuse(dir, "is a symbolic link; name the directory itself", why);
        return errmsg_fail(why, file_error_result(error),
                           "cannot open or create the lock directory %.300s: %s%s", dir->path,
                           strerror(error),
                           error == EROFS && path == NULL
                               ? "; use --lock-dir, or ReadWritePaths=/run/lock in a unit"
                               : "");
    }
    enum lock_result result = dir_judge(dir, why);
    if (result != LOCK_OK)
        lock_dir_close(dir);
    return result;
}

void lock_dir_close(struct lock_dir *dir)
{
    fd_close(&dir->fd);
}

bool lock_dir_stands(const struct lock_dir *dir)
{
    struct stat ours, there;
    return fstat(dir->fd, &ours) == 0 && lstat(dir->path, &there) == 0 &&
           ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

bool lock_dir_is_shared(const struct lock_dir *dir)
{
    struct stat status;
    return fstat(dir->fd, &status) == 0 && (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

void lock_dir_own_name(char name[LOCK_DIR_OWN_SIZE], const char *what)
{
    snprintf(name, LOCK_DIR_OWN_SIZE, ".%s-%lu", what, (unsigned long)geteuid());
}

bool lock_dir_may_write(const struct stat *status)
{
    return S_ISREG(status->st_mode) && status->st_uid == geteuid() && status->st_nlink <= 1;
}

int lock_dir_open_own(const struct lock_dir *dir, const char *what, bool make)
{
    char name[LOCK_DIR_OWN_SIZE];
    lock_dir_own_name(name, what);
    struct stat status;
    int fd = file_open(dir->fd, name, (make ? O_RDWR | O_CREAT : O_RDONLY) | O_NOFOLLOW, &status);
    if (fd >= 0 && !lock_dir_may_write(&status)) {
        fd_close(&fd);
        errno = EPERM;
    }
    return fd;
}

bool lock_dir_stamp_due(const struct lock_dir *dir, struct duration interval)
{
    struct stat status;
    int fd = lock_dir_open_own(dir, "degraded", true);
    if (fd < 0)
        return true;
    /* If the file is empty, it was created a moment ago, and this is the first warning. */
    bool due = fstat(fd, &status) != 0 || status.st_size == 0 ||
               wall_now_ms() - (int64_t)status.st_mtime * 1000 >= interval.ns / NS_PER_MS ||
               (int64_t)status.st_mtime * 1000 > wall_now_ms() + 1000;
    if (due)
        (void)!pwrite(fd, "\n", 1, 0); /* if this fails, the warning is due next time as well */
    close(fd);
    return due;
}

/* --- the file system ------------------------------------------------------ */

/* The magic numbers are from statfs(2) and linux/magic.h. The manual page flock(2) describes, under
 * NOTES, how flock(2) works on each file system. */
static const struct {
    uint32_t magic;
    struct fs_type type;
} special[] = {
    {0x794C7630, {"overlay", FS_CONTAINER}}, {0x61756673, {"aufs", FS_CONTAINER}},
    {0x6969, {"nfs", FS_WHOLE_FILE}},        {0xFF534D42, {"cifs", FS_WHOLE_FILE}},
    {0xFE534D42, {"smb2", FS_WHOLE_FILE}},   {0x517B, {"smb", FS_WHOLE_FILE}},
    {0x00C36400, {"ceph", FS_NETWORK}},      {0x65735546, {"fuse", FS_NETWORK}},
    {0x01021997, {"9p", FS_NETWORK}},        {0x5346414F, {"afs", FS_NETWORK}},
    {0x01161970, {"gfs2", FS_NETWORK}},      {0x7461636F, {"ocfs2", FS_NETWORK}},
    {0x0BD00BD0, {"lustre", FS_NETWORK}},    {0x47504653, {"gpfs", FS_NETWORK}},
};

bool fs_type_of(int fd, struct fs_type *type)
{
    struct statfs status;
    if (fstatfs(fd, &status) != 0)
        return false;
    *type = (struct fs_type){"", FS_LOCAL};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (special[i].magic == (uint32_t)status.f_type)
            *type = special[i].type;
    return true;
}
