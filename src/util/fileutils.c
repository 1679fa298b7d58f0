#include "util/fileutils.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int file_open(int dir, const char *path, int flags, struct stat *status)
{
    int fd = openat(dir, path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (fd >= 0 && fstat(fd, status) != 0)
        fd_close(&fd);
    /* The umask may have taken rights that the next run of this user needs. */
    if (fd >= 0 && (flags & O_CREAT) != 0 && status->st_uid == geteuid() &&
        S_ISREG(status->st_mode) && (~status->st_mode & 0600) != 0)
        (void)fchmod(fd, (status->st_mode & 07777) | 0600);
    return fd;
}

void fd_close(int *fd)
{
    int error = errno;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    errno = error;
}

const char *user_name_local(uid_t uid, char *text, size_t size)
{
    char line[1024];
    bool found = false, begins = true; /* a longer line comes in pieces */
    FILE *users = fopen("/etc/passwd", "re");
    snprintf(text, size, "%lu", (unsigned long)uid);
    while (users != NULL && !found && fgets(line, sizeof line, users) != NULL) {
        bool ends = strchr(line, '\n') != NULL;
        char *rest = line, *name = strsep(&rest, ":"),
             *number = (strsep(&rest, ":"), strsep(&rest, ":"));
        found = begins && rest != NULL && *name != '\0' && strcmp(number, text) == 0;
        if (found)
            snprintf(text, size, "%s", name);
        begins = ends;
    }
    if (users != NULL)
        fclose(users);
    return text;
}

const char *user_name(uid_t uid, char *text, size_t size)
{
    const struct passwd *user = getpwuid(uid);
    if (user != NULL)
        snprintf(text, size, "%s", user->pw_name);
    else
        snprintf(text, size, "%lu", (unsigned long)uid);
    return text;
}
