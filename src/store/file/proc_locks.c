#include "store/file/proc_locks.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* "12: FLOCK  ADVISORY  WRITE 4711 08:01:131074 0 EOF"; a waiter's line has an
 * arrow before its kind. The pid may be 0: of another pid namespace. proc(5),
 * /proc/locks. False where the line is about something else. */
static bool holder_in(const char *line, const struct stat *file, struct flock_holder *holder)
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
    return at != NULL && inode == file->st_ino && makedev(major_number, minor_number) == file->st_dev;
}

static size_t holders_in(const char *path, const struct stat *file, struct flock_holder *holders, size_t room)
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

size_t flock_holders(const struct stat *file, struct flock_holder *holders, size_t room)
{
    return holders_in("/proc/locks", file, holders, room);
}

/* The same lines, after "lock:", tell of each open file what is locked through
 * it. proc(5), /proc/PID/fdinfo. */
bool flock_is_held_by(const struct stat *file, pid_t pid)
{
    char path[512];
    struct flock_holder holder;
    bool held = false;
    snprintf(path, sizeof path, "/proc/%ld/fdinfo", (long)pid);
    DIR *files = opendir(path);
    if (files == NULL)
        return false;
    for (const struct dirent *entry; !held && (entry = readdir(files)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%ld/fdinfo/%s", (long)pid, entry->d_name);
        held = entry->d_name[0] != '.' && holders_in(path, file, &holder, 1) > 0;
    }
    closedir(files);
    return held;
}
