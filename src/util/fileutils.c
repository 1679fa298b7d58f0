#include "util/fileutils.h"

#include "util/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

int file_open(int dir, const char *path, int flags, struct stat *status)
{
    int fd = openat(dir, path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (fd >= 0 && fstat(fd, status) != 0)
        fd_close(&fd);
    /* The umask may have removed permissions that this user needs when dlock runs again. */
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
    bool found = false;
    bool starts = true; /* `line` has the start of a line; fgets(3) reads a long line in several
                         * pieces */
    FILE *users = fopen("/etc/passwd", "re");
    snprintf(text, size, "%lu", (unsigned long)uid);
    while (users != NULL && !found && fgets(line, sizeof line, users) != NULL) {
        bool ends = strchr(line, '\n') != NULL;
        char *rest = line;
        char *name = strsep(&rest, ":");
        (void)strsep(&rest, ":"); /* the password */
        char *number = strsep(&rest, ":");
        found = starts && rest != NULL && *name != '\0' && strcmp(number, text) == 0;
        if (found)
            snprintf(text, size, "%s", name);
        starts = ends;
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

/* --- secrets -------------------------------------------------------------- */

static bool unusable(const char *path, const char *fault, struct errmsg *why)
{
    errmsg_set(why, "%.300s: %s", path, fault);
    errno = EINVAL;
    return false;
}

/* Waits for more data from a pipe. A signal ends dlock, even in actions that have already blocked
 * signals (process/signals.h), because there is no lock yet to release. SIGPIPE and SIGXFSZ stay
 * blocked, because they may come from our own writes. */
static bool pipe_has_more(int fd, struct deadline until)
{
    struct pollfd pipe = {.fd = fd, .events = POLLIN};
    struct duration left = deadline_left(until);
    struct timespec most = {(time_t)(left.ns / NS_PER_S), (long)(left.ns % NS_PER_S)};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGPIPE);
    sigaddset(&blocked, SIGXFSZ);
    int ready = ppoll(&pipe, 1, &most, &blocked);
    if (ready == 0)
        errno = ETIMEDOUT;
    return ready > 0 || (ready < 0 && errno == EINTR);
}

/* Reads the file or pipe up to its end. Waits for a pipe for up to 30 s, because the writer may be
 * a command that fetches the secret from elsewhere. */
static bool read_all(struct secret *secret, int fd)
{
    struct deadline until = deadline_after(DURATION_S(30));
    while (secret->length < sizeof secret->bytes) {
        ssize_t length =
            read(fd, secret->bytes + secret->length, sizeof secret->bytes - secret->length);
        if (length == 0)
            return true;
        if (length > 0)
            secret->length += (size_t)length;
        else if (errno != EINTR && (errno != EAGAIN || !pipe_has_more(fd, until)))
            return false;
    }
    return true;
}

static void drop_line_end(struct secret *secret)
{
    const char *bytes = secret->bytes;
    size_t length = secret->length;
    if (length > 0 && bytes[length - 1] == '\n')
        secret->length -= length > 1 && bytes[length - 2] == '\r' ? 2 : 1;
}

static bool read_from(struct secret *secret, int fd, mode_t mode, const char *path,
                      struct errmsg *why)
{
    if (!S_ISREG(mode) && !S_ISFIFO(mode))
        return unusable(path, "neither a regular file nor a pipe", why);
    if ((mode & S_IROTH) != 0)
        return unusable(path, "other users can read this secret; use chmod o=", why);
    if (!read_all(secret, fd))
        return unusable(
            path, errno == ETIMEDOUT ? "the pipe was not closed within 30s" : strerror(errno), why);
    drop_line_end(secret);
    if (secret->length == 0)
        return unusable(path, "the file is empty", why);
    if (secret->length > SECRET_MOST)
        return unusable(path, "too long for a secret", why);
    return true;
}

/* A pipe without a writer counts as empty: dlock does not wait for a writer. */
bool secret_read(struct secret *secret, const char *path, struct errmsg *why)
{
    secret->length = 0;
    struct stat status;
    int fd = file_open(AT_FDCWD, path, O_RDONLY, &status);
    if (fd < 0) {
        int error = errno;
        (void)unusable(path, strerror(error), why);
        errno = error;
        return false;
    }
    bool done = read_from(secret, fd, status.st_mode, path, why);
    fd_close(&fd);
    return done;
}

void secret_wipe(struct secret *secret)
{
    explicit_bzero(secret, sizeof *secret);
}

bool secret_leave_no_core(struct errmsg *why)
{
    if (prctl(PR_SET_DUMPABLE, 0) == 0)
        return true;
    errmsg_set(why, "cannot keep secrets out of core files: %s", strerror(errno));
    return false;
}
