#include "process/daemonize.h"

#include "util/fileutils.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FDS_MOST = 4096 }; /* the highest to look at if /proc does not list them */

/* Whatever dlock opens is close-on-exec, so any other descriptor has come
 * through the exec of dlock, from its caller. */
static void close_if_inherited(int fd)
{
    int flags = fd > STDERR_FILENO ? fcntl(fd, F_GETFD) : -1;
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0)
        close(fd);
}

static void close_inherited(void)
{
    DIR *list = opendir("/proc/self/fd");
    if (list == NULL) {
        for (int fd = 0; fd < FDS_MOST; fd++)
            close_if_inherited(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (entry->d_name[0] != '.')
            close_if_inherited((int)strtol(entry->d_name, NULL, 10));
    closedir(list);
}

static bool target_has_open(pid_t target, const struct stat *file)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        struct stat other;
        char path[64];
        snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)target, fd);
        if (stat(path, &other) == 0 && other.st_dev == file->st_dev && other.st_ino == file->st_ino)
            return true;
    }
    return false;
}

static int open_stderr_of(pid_t target)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)target, STDERR_FILENO);
    return open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* Replaces another descriptor by fd, which is closed. */
static bool move_fd(int fd, int to)
{
    bool moved = fd >= 0 && dup2(fd, to) == to;
    fd_close(&fd);
    return moved;
}

static bool is_waited_for(pid_t target)
{
    struct stat file;
    return fstat(STDERR_FILENO, &file) == 0 && (S_ISFIFO(file.st_mode) || S_ISSOCK(file.st_mode)) &&
           !target_has_open(target, &file);
}

static bool replace_standard_fds(pid_t target)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    bool replaced = null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(null, STDOUT_FILENO) >= 0;
    if (replaced && is_waited_for(target) && !move_fd(open_stderr_of(target), STDERR_FILENO))
        replaced = dup2(null, STDERR_FILENO) >= 0;
    if (null > STDERR_FILENO)
        close(null);
    return replaced;
}

bool daemonize(pid_t target, bool keep_directory)
{
    sigset_t all;
    sigfillset(&all);
    if (sigprocmask(SIG_SETMASK, &all, NULL) != 0 || setsid() < 0)
        return false;
    close_inherited();
    return replace_standard_fds(target) && (keep_directory || chdir("/") == 0);
}
