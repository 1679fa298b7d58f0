#include "store/file/proc_locks.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* The number after `separator` at *at, which moves behind it. */
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

/* The number after the word that a line begins with. False if it is a different line. */
static bool number_of(const char *line, const char *word, uint64_t *number)
{
    size_t length = strlen(word);
    if (strncmp(line, word, length) != 0)
        return false;
    *number = strtoull(line + length, NULL, 10);
    return true;
}

/* "36 35 98:0 ...", proc(5), /proc/PID/mountinfo. */
static bool device_in(const char *line, uint64_t mount, uint64_t *device)
{
    char *end = NULL;
    if (strtoull(line, &end, 10) != mount)
        return false;
    (void)strtoull(end, &end, 10); /* the mount that it is in */
    const char *at = end;
    unsigned major_number = (unsigned)number_after(&at, ' ', 10),
             minor_number = (unsigned)number_after(&at, ':', 10);
    *device = makedev(major_number, minor_number);
    return at != NULL;
}

static void find_device(uint64_t mount, uint64_t *device)
{
    char *line = NULL;
    size_t size = 0;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    bool found = mounts == NULL;
    while (!found && getline(&line, &size, mounts) > 0)
        found = device_in(line, mount, device);
    free(line);
    if (mounts != NULL)
        fclose(mounts);
}

/* Values missing there are taken from stat(2). Linux before 5.14 reports no inode. */
static void find_file(int fd, struct flock_file *file)
{
    char path[64], *line = NULL;
    size_t size = 0;
    struct stat status = {0};
    uint64_t mount = 0;
    (void)fstat(fd, &status);
    *file = (struct flock_file){status.st_dev, status.st_ino};
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *info = fopen(path, "re");
    while (info != NULL && getline(&line, &size, info) > 0)
        (void)(number_of(line, "mnt_id:", &mount) || number_of(line, "ino:", &file->inode));
    free(line);
    if (info != NULL)
        fclose(info);
    if (mount != 0)
        find_device(mount, &file->device);
}

/* --- its holders ----------------------------------------------------------- */

/* "12: FLOCK  ADVISORY  WRITE 4711 08:01:131074 0 EOF"; a waiter's line has an arrow
 * before its kind. The pid may be 0: of another pid namespace. proc(5), /proc/locks.
 * False if the line is about something different. */
static bool holder_in(const char *line, const struct flock_file *file, struct flock_holder *holder)
{
    const char *at = strstr(line, ": FLOCK "), *access = at;
    for (int word = 0; word < 3 && at != NULL; word++) { /* ":", kind, advisory, mode */
        access = at + 1;
        at = strchr(at + 1 + strspn(at + 1, " "), ' ');
    }
    holder->shares = at != NULL && strncmp(access + strspn(access, " "), "READ", 4) == 0;
    holder->pid = (pid_t)number_after(&at, ' ', 10);
    unsigned major_number = (unsigned)number_after(&at, ' ', 16);
    unsigned minor_number = (unsigned)number_after(&at, ':', 16);
    unsigned long long inode = number_after(&at, ':', 10);
    return at != NULL && inode == file->inode &&
           makedev(major_number, minor_number) == file->device;
}

static size_t holders_in(const char *path, const struct flock_file *file,
                         struct flock_holder *holders, size_t room)
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

/* The same lines, after "lock:", list for each open file the locks taken through it.
 * proc(5), /proc/PID/fdinfo. */
bool proc_locks_is_held_by(const struct flock_file *file, struct flock_holder *holder, int except)
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
