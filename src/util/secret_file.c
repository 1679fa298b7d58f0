/* A password or a private key is in the memory of this process for as long as
 * it may have to connect anew. On its way there it passes through places that
 * we cannot wipe: the argument and the environment as the kernel keeps them,
 * buffers of popt, inih, stdio and OpenSSL. So there is no core file at all, as
 * with ssh-agent(1): PR_SET_DUMPABLE also keeps other processes of the same
 * user from reading memory and environment through /proc. The command is not
 * affected, since execve(2) sets it anew. */
#include "util/secret_file.h"
#include "util/fileutils.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static enum lock_result secret_file_unusable(const char *path, const char *fault,
                                             struct errmsg *why)
{
    errmsg_set(why, "%.300s: %s", path, fault);
    return LOCK_INVALID;
}

static bool secret_file_read_all(struct secret *secret, int fd)
{
    while (secret->length < sizeof secret->bytes) {
        ssize_t length =
            read(fd, secret->bytes + secret->length, sizeof secret->bytes - secret->length);
        if (length == 0)
            return true;
        if (length > 0)
            secret->length += (size_t)length;
        else if (errno != EINTR)
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

static enum lock_result read_from(struct secret *secret, int fd, mode_t mode, const char *path,
                                  struct errmsg *why)
{
    if (!S_ISREG(mode) && !S_ISFIFO(mode))
        return secret_file_unusable(path, "it is neither a regular file nor a pipe", why);
    if ((mode & S_IROTH) != 0)
        return secret_file_unusable(path,
                                    "it holds a secret, and others can read it; use chmod o=", why);
    if (fcntl(fd, F_SETFL, 0) != 0 || !secret_file_read_all(secret, fd))
        return secret_file_unusable(path, strerror(errno), why);
    drop_line_end(secret);
    if (secret->length == 0)
        return secret_file_unusable(path, "it is empty", why);
    if (secret->length > SECRET_MOST)
        return secret_file_unusable(path, "it is too long for a secret", why);
    return LOCK_OK;
}

/* A pipe without a writer is empty, and not waited for. */
enum lock_result secret_read(struct secret *secret, const char *path, struct errmsg *why)
{
    secret->length = 0;
    struct stat status;
    int fd = file_open(AT_FDCWD, path, O_RDONLY, &status);
    if (fd < 0) {
        bool denied = errno == EACCES || errno == EPERM;
        (void)secret_file_unusable(path, strerror(errno), why);
        return denied ? LOCK_REFUSED : LOCK_INVALID;
    }
    enum lock_result result = read_from(secret, fd, status.st_mode, path, why);
    close(fd);
    return result;
}

void secret_wipe(struct secret *secret)
{
    explicit_bzero(secret, sizeof *secret);
}

enum lock_result secret_leave_no_core(struct errmsg *why)
{
    if (prctl(PR_SET_DUMPABLE, 0) == 0)
        return LOCK_OK;
    errmsg_set(why, "cannot keep secrets out of core files: %s", strerror(errno));
    return LOCK_SYSTEM;
}
