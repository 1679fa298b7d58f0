#include "run/watch.h"

#include "util/fileutils.h"
#include "util/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MOST = 4096, FDS_MOST = 16 };

static bool cannot_open(struct watchdog *heartbeat, struct errmsg *why)
{
    errmsg_set(why, "cannot create the socket for --heartbeat: %s", strerror(errno));
    watchdog_close(heartbeat);
    return false;
}

/* Uses an abstract name, so that a killed dlock leaves nothing in a directory. Any process on this
 * host can send to the socket, so the kernel must report the sender (SO_PASSCRED). */
bool watchdog_open(struct watchdog *heartbeat, const char *id, struct errmsg *why)
{
    struct sockaddr_un at;
    socklen_t size;
    int on = 1;

    snprintf(heartbeat->name, sizeof heartbeat->name, "@dlock/%.40s", id);
    heartbeat->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (heartbeat->fd < 0 || !sd_notify_address(&at, &size, heartbeat->name) ||
        setsockopt(heartbeat->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
        bind(heartbeat->fd, (const struct sockaddr *)&at, size) != 0)
        return cannot_open(heartbeat, why);
    return true;
}

void watchdog_close(struct watchdog *heartbeat)
{
    fd_close(&heartbeat->fd);
}

/* A service manager's WATCHDOG_USEC is for dlock's pid alone (WATCHDOG_PID). But the command must
 * meet that interval, because dlock only passes the command's messages on. */
void watchdog_export(struct environment *environment, const struct watchdog *heartbeat,
                     struct duration interval)
{
    const char *given = environment_get(environment, "WATCHDOG_USEC");
    int64_t us = interval.ns / NS_PER_US, manager_us;
    char text[24];

    if (given != NULL && number_parse(given, 1, INT64_MAX, &manager_us) && manager_us < us)
        us = manager_us;
    snprintf(text, sizeof text, "%" PRId64, us);
    environment_set(environment, "NOTIFY_SOCKET", heartbeat->name);
    environment_set(environment, "WATCHDOG_USEC", text);
    environment_set(environment, "WATCHDOG_PID", NULL);
}

static bool has_line(const char *text, size_t length, const char *line)
{
    size_t line_length = strlen(line);

    for (size_t at = 0; at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t here = end != NULL ? (size_t)(end - (text + at)) : length - at;
        if (here == line_length && memcmp(text + at, line, here) == 0)
            return true;
        at += here + 1;
    }
    return false;
}

struct received {
    char text[TEXT_MOST];
    size_t length;
    int fds[FDS_MOST];
    size_t fd_count;
    bool trusted;
};

/* Avoids CMSG_NXTHDR(3), because musl's version mixes signed and unsigned numbers, and GCC warns
 * about that here. */
static void read_control(struct received *received, const char *control, size_t size)
{
    struct cmsghdr header;

    for (size_t at = 0; at + sizeof header <= size; at += CMSG_ALIGN(header.cmsg_len)) {
        memcpy(&header, control + at, sizeof header);
        if (header.cmsg_len < CMSG_LEN(0))
            return;
        const char *data = control + at + CMSG_LEN(0);
        size_t length = header.cmsg_len - CMSG_LEN(0);
        if (header.cmsg_level != SOL_SOCKET)
            continue;
        if (header.cmsg_type == SCM_RIGHTS && length <= sizeof received->fds) {
            memcpy(received->fds, data, length);
            received->fd_count = length / sizeof(int);
        } else if (header.cmsg_type == SCM_CREDENTIALS && length == sizeof(struct ucred)) {
            struct ucred sender;
            memcpy(&sender, data, sizeof sender);
            received->trusted = sender.uid == geteuid() || sender.uid == 0;
        }
    }
}

/* Receives one message. False if no message is left. A message that is longer than the protocol
 * allows is truncated, and is marked as not trusted. */
static bool receive(int fd, struct received *received)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(FDS_MOST * sizeof(int))];
    } control;
    struct iovec part = {received->text, sizeof received->text};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t length;
    do
        length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (length < 0 && errno == EINTR);
    if (length < 0)
        return false;
    received->length = (size_t)length;
    received->fd_count = 0;
    received->trusted = false;
    read_control(received, control.bytes, message.msg_controllen);
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        received->trusted = false;
    return true;
}

bool watchdog_read(const struct watchdog *heartbeat, const struct notify *to)
{
    struct received received;
    struct drain drain = {0};
    bool beat = false;

    while (drain_goes_on(&drain) && receive(heartbeat->fd, &received)) {
        if (received.trusted) {
            beat |= has_line(received.text, received.length, "WATCHDOG=1");
            sd_notify_forward(to, received.text, received.length, received.fds, received.fd_count);
        }
        for (size_t fd = 0; fd < received.fd_count; fd++)
            close(received.fds[fd]);
    }
    return beat;
}
