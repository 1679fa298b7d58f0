/* The command's heartbeat (--heartbeat): a socket that it finds in
 * NOTIFY_SOCKET, to which it sends WATCHDOG=1 as long as it makes progress. */
#ifndef DLOCK_RUN_WATCHDOG_H
#define DLOCK_RUN_WATCHDOG_H

#include "util/array.h"
#include "util/clock.h"
#include "util/errmsg.h"
#include "util/message.h"

#include <stdbool.h>

struct watchdog {
    int fd;        /* readable when the command has sent something; -1: none */
    char name[64]; /* in the form of NOTIFY_SOCKET */
};

/* Opens the socket under a unique name: `id` is part of it. False with *why set. */
bool watchdog_open(struct watchdog *heartbeat, const char *id, struct errmsg *why);
void watchdog_close(struct watchdog *heartbeat);

/* Puts NOTIFY_SOCKET and WATCHDOG_USEC into the command's environment: `interval`, or the
 * service manager's own if that is shorter. */
void watchdog_export(struct environment *environment, const struct watchdog *heartbeat,
                     struct duration interval);

/* Reads all that has been sent, and passes it on to the service manager. True
 * if a WATCHDOG=1 was among it. Messages from users other than dlock's own and
 * root do not count. */
bool watchdog_read(const struct watchdog *heartbeat, const struct notify *to);

#endif
