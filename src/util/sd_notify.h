/* Messages to the service manager: sd_notify(3), whose manual describes the
 * protocol and says that it is stable and may be used without libsystemd. */
#ifndef DLOCK_UTIL_SD_NOTIFY_H
#define DLOCK_UTIL_SD_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
    int fd; /* -1: there is no service manager */
    struct sockaddr_un to;
    socklen_t size;
};

/* Opens the socket that $NOTIFY_SOCKET names, if any. If that cannot be used,
 * no messages are sent: the lock does not depend on them. */
void sd_notify_open(struct notify *notify);

/* Sends lines of NAME=VALUE. Never waits; what cannot be sent is dropped. */
void sd_notify_send(const struct notify *notify, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Passes on what was received from the command, with the descriptors that came
 * with it, which stay the caller's. MAINPID lines are left out: for the
 * service manager the main process is dlock. */
void sd_notify_forward(const struct notify *notify, const char *text, size_t length, const int *fds,
                       size_t fd_count);

/* Fills in the address of a socket as NOTIFY_SOCKET names it: a path, or an
 * abstract name after '@'. False if it is neither or too long. */
bool sd_notify_address(struct sockaddr_un *to, socklen_t *size, const char *name);

#endif
