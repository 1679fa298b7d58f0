/* A password or a private key is in the memory of this process for as long as
 * it may have to connect anew. On its way there it passes through places that
 * we cannot wipe: the argument and the environment as the kernel keeps them,
 * buffers of popt, inih, stdio and OpenSSL. So there is no core file at all, as
 * with ssh-agent(1): PR_SET_DUMPABLE also keeps other processes of the same
 * user from reading memory and environment through /proc. The command is not
 * affected, since execve(2) sets it anew. */
#include "util/secret_file.h"
#include "util/clock.h"
#include "util/fileutils.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static bool unusable(const char *path, const char *fault, struct errmsg *why)
{
    errmsg_set(why, "%.300s: %s", path, fault);
    errno = EINVAL;
    return false;
}

/* Waits for more from a pipe. A signal ends dlock, even in actions that have blocked signals by
 * then (process/signals.h), because there is no lock yet that would have to be released. SIGPIPE
 * and SIGXFSZ may come from writes of our own. */
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

/* A pipe gets so long, as its writer may be a command that asks for the secret elsewhere. */
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
        return unusable(path, "it is neither a regular file nor a pipe", why);
    if ((mode & S_IROTH) != 0)
        return unusable(path, "it holds a secret, and others can read it; use chmod o=", why);
    if (!read_all(secret, fd))
        return unusable(
            path, errno == ETIMEDOUT ? "the pipe had no end within 30s" : strerror(errno), why);
    drop_line_end(secret);
    if (secret->length == 0)
        return unusable(path, "it is empty", why);
    if (secret->length > SECRET_MOST)
        return unusable(path, "it is too long for a secret", why);
    return true;
}

/* A pipe without a writer is empty, and not waited for. */
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
