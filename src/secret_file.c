#include "secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A pipe gives its bytes piece by piece. */
static bool read_all(struct secret *secret, int fd)
{
    ssize_t length = 1;
    secret->length = 0;
    while (length > 0 && secret->length < sizeof secret->bytes) {
        length = read(fd, secret->bytes + secret->length, sizeof secret->bytes - secret->length);
        if (length < 0 && errno == EINTR)
            length = 1;
        else if (length > 0)
            secret->length += (size_t)length;
    }
    return length >= 0;
}

static bool judge(struct secret *secret, const char *path, struct why *why)
{
    if (secret->length > 0 && secret->bytes[secret->length - 1] == '\n')
        secret->length--;
    if (secret->length < SECRET_LEAST)
        why_set(why, "%s: the secret has %zu bytes, and should have %d or more", path, secret->length, SECRET_LEAST);
    else if (secret->length > SECRET_MOST)
        why_set(why, "%s: the secret has more than %d bytes", path, SECRET_MOST);
    else
        return true;
    return false;
}

bool secret_read(struct secret *secret, const char *path, struct why *why)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    bool good = fd >= 0 && fstat(fd, &status) == 0;
    if (good && (status.st_mode & S_IROTH) != 0) {
        why_set(why, "%s: it holds a secret, and others can read it; chmod o= helps", path);
        close(fd);
        return false;
    }
    good = good && read_all(secret, fd);
    if (!good)
        why_set(why, "%s: cannot read it: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return good && judge(secret, path, why);
}

void secret_wipe(struct secret *secret)
{
    explicit_bzero(secret, sizeof *secret);
}
