#include "flock_holder.h"

#include <errno.h>
#include <signal.h>
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
 * arrow before its kind. proc(5), /proc/locks. False where the line is about
 * something else. */
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
    bool same = at != NULL && inode == file->st_ino && makedev(major_number, minor_number) == file->st_dev;
    return same && holder->pid > 0 && (kill(holder->pid, 0) == 0 || errno == EPERM);
}

size_t flock_holders(const struct stat *file, struct flock_holder *holders, size_t room)
{
    char *line = NULL;
    size_t size = 0, count = 0;
    FILE *locks = fopen("/proc/locks", "re");
    if (locks == NULL)
        return 0;
    while (count < room && getline(&line, &size, locks) > 0)
        count += holder_in(line, file, &holders[count]);
    free(line);
    fclose(locks);
    return count;
}
