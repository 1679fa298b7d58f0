#include "store/file/file_int.h"

#include "process/procfs.h"
#include "util/fileutils.h"

#include <dirent.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Reads the number after the `separator` at *at, and moves *at past the number. If there is no such
 * separator, sets *at to NULL. */
static unsigned long long number_after(const char **at, char separator, int base)
{
    char *end = NULL;
    if (*at == NULL || **at != separator) {
        *at = NULL;
        return 0;
    }
    unsigned long long number = strtoull(*at + 1, &end, base);
    *at = end;
    return number;
}

/* --- the file -------------------------------------------------------------- */

/* A file that we may not read cannot be watched. Its directory, which has the same device, is
 * watched instead. */
static bool watch_file(int watch_fd, int fd)
{
    char path[64], target[PATH_MAX];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (inotify_add_watch(watch_fd, path, IN_DELETE_SELF) >= 0)
        return true;
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    return length > 0 && inotify_add_watch(watch_fd, dirname(target), IN_DELETE_SELF) >= 0;
}

/* The fdinfo of an inotify instance shows the device number that the kernel uses for a watched
 * file: "inotify wd:1 ino:9e7e sdev:800013 ...". Its last 20 bits are the minor number.
 * /proc/self/mountinfo is not enough: in a chroot it lists only the mounts below the root
 * directory. */
static void ask_device(struct flock_file *file)
{
    uint64_t device;
    int watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    file->asked = true;
    if (watch_fd >= 0 && watch_file(watch_fd, file->fd) &&
        proc_fdinfo_number(watch_fd, " sdev:", 16, &device))
        file->device = makedev((unsigned)(device >> 20), (unsigned)(device & 0xfffff));
    lock_file_news_close(&watch_fd);
}

/* Before Linux 5.14, fdinfo has no inode; then the inode from stat(2) stays. */
static void find_file(int fd, struct flock_file *file)
{
    struct stat status = {0};
    (void)fstat(fd, &status);
    *file = (struct flock_file){.fd = fd, .device = status.st_dev, .inode = status.st_ino};
    (void)proc_fdinfo_number(fd, "ino:", 10, &file->inode);
}

/* True if this device and inode are the file's. On some file systems, such as Btrfs, the device in
 * /proc/locks differs from the device that stat(2) returns. So if only the inode matches, dlock
 * once asks the kernel for the former (ask_device()). */
static bool is_file(struct flock_file *file, uint64_t device, uint64_t inode)
{
    if (inode == file->inode && device != file->device && !file->asked)
        ask_device(file);
    return inode == file->inode && device == file->device;
}

/* --- the holders ----------------------------------------------------------- */

/* Parses a line of /proc/locks, proc(5), such as "12: FLOCK  ADVISORY  WRITE 4711 08:01:131074 0
 * EOF". The pid is 0 if it belongs to another pid namespace. False if the line is not about a
 * flock(2) lock on this file. The line of a waiter does not count: it has an arrow before
 * "FLOCK". */
static bool holder_in(const char *line, struct flock_file *file, struct flock_holder *holder)
{
    const char *at = strstr(line, ": FLOCK "), *access = at;
    for (int word = 0; word < 3 && at != NULL; word++) { /* skip "FLOCK", "ADVISORY" and the mode */
        access = at + 1;
        at = strchr(at + 1 + strspn(at + 1, " "), ' ');
    }
    holder->shares = at != NULL && strncmp(access + strspn(access, " "), "READ", 4) == 0;
    holder->pid = (pid_t)number_after(&at, ' ', 10);
    unsigned major_number = (unsigned)number_after(&at, ' ', 16);
    unsigned minor_number = (unsigned)number_after(&at, ':', 16);
    unsigned long long inode = number_after(&at, ':', 10);
    return at != NULL && is_file(file, makedev(major_number, minor_number), inode);
}

static size_t holders_in(const char *path, struct flock_file *file, struct flock_holder *holders,
                         size_t room)
{
    char *line = NULL;
    size_t size = 0, count = 0;
    FILE *locks = fopen(path, "re");
    if (locks == NULL)
        return 0;
    while (count < room && getline(&line, &size, locks) > 0)
        count += holder_in(line, file, &holders[count]);
    free(line);
    fclose(locks);
    return count;
}

size_t proc_locks_holders(int fd, struct flock_file *file, struct flock_holder *holders,
                          size_t room)
{
    find_file(fd, file);
    return holders_in("/proc/locks", file, holders, room);
}

/* The fdinfo of an open file, proc(5), lists the locks that were acquired through it, in lines like
 * those of /proc/locks, with "lock:" in front. */
bool proc_locks_is_held_by(struct flock_file *file, struct flock_holder *holder, int except)
{
    char path[512];
    struct flock_holder found;
    bool held = false;
    snprintf(path, sizeof path, "/proc/%ld/fdinfo", (long)holder->pid);
    DIR *files = opendir(path);
    if (files == NULL)
        return false;
    for (const struct dirent *entry; !held && (entry = readdir(files)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%ld/fdinfo/%s", (long)holder->pid, entry->d_name);
        held = entry->d_name[0] != '.' &&
               (except < 0 || strtol(entry->d_name, NULL, 10) != except) &&
               holders_in(path, file, &found, 1) > 0;
    }
    closedir(files);
    if (held)
        holder->shares = found.shares;
    return held;
}
