#include "util/sd_notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FDS_MOST = 16 };

bool sd_notify_address(struct sockaddr_un *to, socklen_t *size, const char *name)
{
    size_t length = strlen(name);
    if ((*name != '/' && *name != '@') || length < 2 || length >= sizeof to->sun_path)
        return false;
    *to = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(to->sun_path, name, length);
    if (*name == '@')
        to->sun_path[0] = '\0';
    /* An abstract name ends where its length says, not at a NUL. */
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (*name == '/'));
    return true;
}

void sd_notify_open(struct notify *notify)
{
    const char *name = getenv("NOTIFY_SOCKET");
    *notify = (struct notify){.fd = -1};
    if (name != NULL && sd_notify_address(&notify->to, &notify->size, name))
        notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static void send_all(const struct notify *notify, const char *text, size_t length, const int *fds,
                     size_t fd_count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(FDS_MOST * sizeof(int))];
    } control = {0};
    struct sockaddr_un to = notify->to;
    struct iovec part = {(void *)(uintptr_t)text, length}; /* sendmsg(2) does not write there */
    struct msghdr message = {
        .msg_name = &to, .msg_namelen = notify->size, .msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = (socklen_t)CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *header = &control.header; /* the first and only one */
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = (socklen_t)CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    }
    while (sendmsg(notify->fd, &message, MSG_NOSIGNAL) < 0 && errno == EINTR)
        continue;
}

void sd_notify_send(const struct notify *notify, const char *format, ...)
{
    char text[2048];
    va_list args;
    if (notify->fd < 0)
        return;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length > 0)
        send_all(notify, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1,
                 NULL, 0);
}

void sd_notify_forward(const struct notify *notify, const char *text, size_t length, const int *fds,
                       size_t fd_count)
{
    static const char main_pid[] = "MAINPID"; /* and MAINPIDFD, MAINPIDFDID */
    char kept[4096];
    size_t used = 0;
    if (notify->fd < 0 || length > sizeof kept || fd_count > FDS_MOST)
        return;
    for (size_t at = 0; at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t line = end != NULL ? (size_t)(end - (text + at)) + 1 : length - at;
        if (line < sizeof main_pid - 1 || memcmp(text + at, main_pid, sizeof main_pid - 1) != 0) {
            memcpy(kept + used, text + at, line);
            used += line;
        }
        at += line;
    }
    if (used > 0)
        send_all(notify, kept, used, fds, fd_count);
}
