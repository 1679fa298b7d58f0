#include "proc.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool proc_read_line(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return length > 0;
}

/* The command's name stands in parentheses and may itself contain any
 * character. After it: state ppid pgrp session tty tpgid flags minflt cminflt
 * majflt cmajflt utime stime cutime cstime priority nice threads itrealvalue
 * starttime. */
bool proc_stat_read(pid_t pid, struct proc_stat *stat)
{
    char path[64] = "/proc/self/stat", line[1024];
    if (pid != 0)
        snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (!proc_read_line(path, line, sizeof line))
        return false;
    const char *name_end = strrchr(line, ')');
    *stat = (struct proc_stat){0};
    return name_end != NULL &&
           sscanf(name_end + 1, " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d %*s %" SCNd64,
                  &stat->state, &stat->parent, &stat->threads, &stat->start) == 4;
}

bool proc_is_ours(void)
{
    char target[32];
    ssize_t length = readlink("/proc/self", target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    return strtol(target, NULL, 10) == (long)getpid();
}
