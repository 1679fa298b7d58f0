/* A claim is a socket that listens under an abstract name, unix(7), made of the file, the
 * take's id and the mode. The kernel frees the name with the socket, and then any user can
 * listen there, so dlock checks who does. Nothing is ever written. A connection stays in the
 * queue until the holder looks, and if that is full for a second, the process waits for the
 * lock; so does one of another network namespace.
 *
 *   The holder lets go -> it shuts the socket down, also for processes that share it, and
 *     then unlocks the file.
 *   It is killed, and what shares its files -> the kernel closes them in their order, and
 *     the claim comes before the file. */
#include "store/file/claim.h"

#include "process/procfs.h"
#include "store/file/shared_table.h"
#include "util/clock.h"
#include "util/fileutils.h"
#include "util/message.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
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
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && attach(fd, (const struct sockaddr *)&address, size) != 0)
        fd_close(&fd);
    return fd;
}

int claim_make(int *file_fd, const char *take_id, enum lock_mode mode)
{
    int fd = open_socket(bind, *file_fd, take_id, mode);
    int above = fd > *file_fd ? fcntl(*file_fd, F_DUPFD_CLOEXEC, fd) : *file_fd;
    if (fd < 0 || above < 0 || listen(fd, SOMAXCONN) != 0)
        fd_close(&fd);
    if (above >= 0 && above != *file_fd) {
        close(*file_fd); /* the lock belongs to what both are open for */
        *file_fd = above;
    }
    return fd;
}

void claim_tidy(int fd)
{
    struct deadline end = deadline_after(DURATION_MS(10));
    for (int found = 0; found >= 0 && !deadline_passed(end);) {
        found = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        fd_close(&(int){found});
    }
}

void claim_end(int *fd)
{
    if (*fd >= 0)
        (void)shutdown(*fd, SHUT_RDWR);
    fd_close(fd);
}

/* True if an ancestor of another user listens: sudo(8) runs us inside the lock. The listener
 * may have ended, and an ancestor may have its pid by now: then that one's user is another. */
static bool is_ancestor(const struct ucred *listener)
{
    struct proc_ancestry at = {.next = getpid()};
    char path[64];
    struct stat status;

    snprintf(path, sizeof path, "/proc/%ld", (long)listener->pid);
    while (proc_next_ancestor(&at))
        if (at.pid == listener->pid)
            return stat(path, &status) == 0 && status.st_uid == listener->uid;
    return false;
}

static bool may_claim(int fd)
{
    struct ucred listener;
    socklen_t size = sizeof listener;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &size) == 0 &&
           (listener.uid == geteuid() || listener.uid == 0 || is_ancestor(&listener));
}

/* Any user can fill the queue; the holder empties it at its checks. */
enum lock_result claim_find(int file_fd, const char *take_id, enum lock_mode *mode,
                            struct bound bound, struct errmsg *why)
{
    struct deadline end = deadline_earlier(bound.until, deadline_after(DURATION_S(1)));
    struct pollfd cancel = {.fd = bound.cancel_fd, .events = POLLIN};
    for (;;) {
        bool full = false;
        for (*mode = MODE_EXCLUSIVE; *mode <= MODE_SHARED; (*mode)++) {
            int fd = open_socket(connect, file_fd, take_id, *mode);
            full = full || (fd < 0 && errno == EAGAIN);
            bool found = fd >= 0 && may_claim(fd);
            fd_close(&fd);
            if (found)
                return LOCK_OK;
        }
        if (!full)
            return errmsg_fail(why, LOCK_GONE, "no ancestor of this process holds the lock file");
        if (deadline_passed(end) || bound_is_cancelled(bound))
            return errmsg_fail(why, LOCK_UNAVAILABLE,
                               "too many processes ask the holder of the lock file");
        (void)deadline_poll(&cancel, 1, deadline_earlier(end, deadline_after(DURATION_MS(20))));
    }
}
