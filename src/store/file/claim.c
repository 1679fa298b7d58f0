/* A claim is a socket with an abstract name, unix(7), made of the file, the take's id and
 * the mode. Nothing is ever written to it. The kernel frees the name with the socket.
 * From another network namespace it cannot be found, and the process waits for the lock. */
#include "store/file/claim.h"

#include "store/file/shared_table.h"
#include "util/fileutils.h"
#include "util/sd_notify.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int attach_call(int fd, const struct sockaddr *address, socklen_t size);

/* A socket that is bound, or connected, to the name; -1 if this fails. */
static int open_socket(attach_call *attach, int file_fd, const char *take_id, enum lock_mode mode)
{
    char name[100];
    struct sockaddr_un address;
    socklen_t size;
    struct stat file;
    if (fstat(file_fd, &file) != 0)
        return -1;
    snprintf(name, sizeof name, "@dlock-claim %jx %jx %" PRIx64 " %s", (uintmax_t)file.st_dev,
             (uintmax_t)file.st_ino, text_hash(take_id), lock_mode_name(mode));
    if (!sd_notify_address(&address, &size, name))
        return -1;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && attach(fd, (const struct sockaddr *)&address, size) != 0)
        fd_close(&fd);
    return fd;
}

int claim_make(int file_fd, const char *take_id, enum lock_mode mode)
{
    return open_socket(bind, file_fd, take_id, mode);
}

bool claim_find(int file_fd, const char *take_id, enum lock_mode *mode)
{
    for (*mode = MODE_EXCLUSIVE; *mode <= MODE_SHARED; (*mode)++) {
        int fd = open_socket(connect, file_fd, take_id, *mode);
        if (fd >= 0) {
            close(fd);
            return true;
        }
    }
    return false;
}
