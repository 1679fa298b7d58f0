#include "process/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool read_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t length = fd < 0 ? -1 : 1;
    /* A part of a line would be another one; a newline may also be in a name. */
    while (length != 0 && fd >= 0 && used < size - 1 && (used == 0 || text[used - 1] != '\n')) {
        length = read(fd, text + used, size - 1 - used);
        if (length < 0 && errno != EINTR)
            break;
        used += length > 0 ? (size_t)length : 0;
    }
    if (fd >= 0)
        close(fd);
    text[length >= 0 ? used : 0] = '\0';
    return length >= 0 && used > 0;
}

bool proc_read_line(const char *path, char *text, size_t size)
{
    bool there = read_file(path, text, size);
    text[strcspn(text, "\n")] = '\0';
    return there;
}

/* The numbers of the fields, as proc(5) counts them; state comes first after the
 * command's name, which stands in parentheses and may itself contain any
 * character, a newline too: so it is no line that is read. */
enum { FIELD_STATE = 3, FIELD_PARENT = 4, FIELD_THREADS = 20, FIELD_START = 22 };

bool proc_stat_read(pid_t pid, struct proc_stat *stat)
{
    char path[64] = "/proc/self/stat", text[1024];
    if (pid != 0)
        snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (!read_file(path, text, sizeof text))
        return false;
    const char *at = strrchr(text, ')');
    *stat = (struct proc_stat){0};
    for (int field = FIELD_STATE; at != NULL && field <= FIELD_START; field++) {
        at = strchr(at + 1, ' ');
        if (at == NULL)
            break;
        if (field == FIELD_STATE)
            stat->state = at[1];
        else if (field == FIELD_PARENT)
            stat->parent = (pid_t)strtol(at, NULL, 10);
        else if (field == FIELD_THREADS)
            stat->threads = (int)strtol(at, NULL, 10);
        else if (field == FIELD_START)
            stat->start = strtoll(at, NULL, 10);
    }
    return at != NULL;
}

bool proc_environ_has(pid_t pid, const char *name, const char *lines)
{
    char path[64], *entry = NULL;
    size_t size = 0, before = strlen(name) + 1, length = strlen(lines);
    bool has = false;
    snprintf(path, sizeof path, "/proc/%ld/environ", (long)pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && !has && getdelim(&entry, &size, '\0', file) > 0) {
        has = strncmp(entry, name, before - 1) == 0 && entry[before - 1] == '=' && strncmp(entry + before, lines, length) == 0 &&
              (entry[before + length] == '\0' || entry[before + length] == '\n');
    }
    free(entry);
    if (file != NULL)
        fclose(file);
    return has;
}

bool proc_is_ours(void)
{
    char target[32];
    ssize_t length = readlink("/proc/self", target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    return strtol(target, NULL, 10) == (long)getpid();
}

int64_t proc_pid_space(void)
{
    struct stat space;
    return stat("/proc/self/ns/pid", &space) == 0 ? (int64_t)space.st_ino : 0;
}
