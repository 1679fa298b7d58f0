#include "lock_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum lock_result file_error_result(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
    case ELOOP: /* a link where O_NOFOLLOW was asked for */ return LOCK_REFUSED;
    case EMFILE:
    case ENFILE:
    case ENOMEM: return LOCK_SYSTEM;
    default: return LOCK_CANT_CREATE;
    }
}

/* Not $XDG_RUNTIME_DIR: cron and services do not have it, a login shell does,
 * and it goes away at logout; two runs by one user would not see each other's
 * locks. */
static void default_path(struct lock_dir *dir)
{
    uid_t uid = geteuid();
    if (uid == 0 && access("/run/lock", F_OK) == 0)
        snprintf(dir->path, sizeof dir->path, "/run/lock/dlock");
    else if (uid != 0 && access("/run/lock", W_OK) == 0)
        snprintf(dir->path, sizeof dir->path, "/run/lock/dlock-%lu", (unsigned long)uid);
    else
        snprintf(dir->path, sizeof dir->path, "/tmp/dlock-%lu", (unsigned long)uid);
}

static enum lock_result refuse(const struct lock_dir *dir, const char *reason, struct why *why)
{
    why_set(why, "the lock directory %s %s", dir->path, reason);
    return LOCK_REFUSED;
}

static enum lock_result judge(const struct lock_dir *dir, struct why *why)
{
    struct stat status;
    if (fstat(dir->fd, &status) != 0)
        return refuse(dir, strerror(errno), why);
    bool open_to_others = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    bool sticky = (status.st_mode & S_ISVTX) != 0;
    if (status.st_uid != geteuid() && !(status.st_uid == 0 && sticky))
        return refuse(dir, "belongs to another user; --lock-dir names another one", why);
    if (open_to_others && !sticky)
        return refuse(dir, "can be written to by others; chmod go-w or +t helps", why);
    return LOCK_OK;
}

/* Opens the directory, made first where it is not there. Sets errno. */
static int open_or_make(const char *path, bool is_default)
{
    static const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return -1;
    fd = open(path, flags);
    /* Root's is for everybody; should this fail, it is for root alone. */
    if (fd >= 0 && is_default && geteuid() == 0)
        (void)!fchmod(fd, 01777);
    return fd;
}

enum lock_result lock_dir_open(struct lock_dir *dir, const char *path, struct why *why)
{
    struct stat status;
    dir->fd = -1;
    if (path == NULL)
        default_path(dir);
    else if ((size_t)snprintf(dir->path, sizeof dir->path, "%s", path) >= sizeof dir->path)
        return refuse(dir, "has too long a path", why);
    /* A slash at the end would make O_NOFOLLOW follow. */
    for (size_t end = strlen(dir->path); end > 1 && dir->path[end - 1] == '/'; end--)
        dir->path[end - 1] = '\0';
    dir->fd = open_or_make(dir->path, path == NULL);
    if (dir->fd < 0) {
        int error = errno;
        if (lstat(dir->path, &status) == 0 && S_ISLNK(status.st_mode))
            return refuse(dir, "is a link; name the directory itself", why);
        why_set(why, "cannot open or make the lock directory %s: %s", dir->path, strerror(error));
        return file_error_result(error);
    }
    enum lock_result result = judge(dir, why);
    if (result != LOCK_OK)
        lock_dir_close(dir);
    return result;
}

void lock_dir_close(struct lock_dir *dir)
{
    if (dir->fd >= 0)
        close(dir->fd);
    dir->fd = -1;
}

/* A file of dlock's own in the directory, one for each user: others' cannot
 * be opened in a shared directory. */
static int open_own(const struct lock_dir *dir, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, ".%s-%lu", what, (unsigned long)geteuid());
    struct stat status;
    int fd = openat(dir->fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    /* Somebody else may have made it first, in a directory that is open to all. */
    if (fd >= 0 && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid())) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

/* Lock files come and go with their locks, so the last fence lives beside
 * them: one number for the whole directory, which rises for each lock because
 * it rises for all. Processes share it as an atomic in a mapped file: there
 * is no critical section for a frozen or killed process to leave locked.
 *
 * Orders of two takes A and B: each reads last, computes, and swaps only if
 * last is still what it read; else it reads again. So no two get the same, and
 * whoever swaps later gets more. */
enum lock_result lock_dir_next_fence(const struct lock_dir *dir, int64_t *fence, struct why *why)
{
    struct stat status = {0};
    enum lock_result result = LOCK_OK;
    int fd = open_own(dir, "fence");
    int error = fd < 0 || fstat(fd, &status) != 0 ? errno : 0;
    /* Real blocks: a store into a hole of a full disk would be a SIGBUS. */
    if (error == 0 && status.st_size < (off_t)sizeof(int64_t))
        error = posix_fallocate(fd, 0, sizeof(int64_t));
    void *map = error != 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        error = error != 0 ? error : errno;
        why_set(why, "cannot keep the fence in %s: %s", dir->path, strerror(error));
        result = file_error_result(error);
    } else {
        _Atomic int64_t *shared = map;
        int64_t last = atomic_load(shared), now = wall_now_us();
        do
            *fence = last < now ? now : last + 1;
        while (last < INT64_MAX && !atomic_compare_exchange_weak(shared, &last, *fence));
        munmap(map, sizeof(int64_t));
        if (last == INT64_MAX) {
            why_set(why, "the fence in %s is at the end of what can be counted", dir->path);
            result = LOCK_CANT_CREATE;
        }
    }
    if (fd >= 0)
        close(fd);
    return result;
}

bool lock_dir_stamp_due(const struct lock_dir *dir, struct duration interval)
{
    struct stat status;
    int fd = open_own(dir, "degraded");
    if (fd < 0)
        return true;
    /* An empty file is one that openat() has just made. */
    bool due = fstat(fd, &status) != 0 || status.st_size == 0 ||
               wall_now_ms() - (int64_t)status.st_mtime * 1000 >= interval.ns / NS_PER_MS ||
               (int64_t)status.st_mtime * 1000 > wall_now_ms() + 1000;
    if (due)
        (void)!pwrite(fd, "\n", 1, 0); /* fails: it is due next time too */
    close(fd);
    return due;
}
