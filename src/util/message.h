/* dlock's messages: to people on stderr, one line an event in one write(2), prefixed "dlock: NAME: ",
 * with all foreign text escaped; and to the service manager. */
#ifndef DLOCK_UTIL_MESSAGE_H
#define DLOCK_UTIL_MESSAGE_H

#include "util/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

/* --- the service manager --------------------------------------------------
 *
 * sd_notify(3), whose manual describes the protocol and says that it is stable and may be used without
 * libsystemd. */

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

/* Passes on a message from the command, with the descriptors that came with it, which stay the
 * caller's. Leaves out the lines with MAINPID: for the service manager the main process is
 * dlock. */
void sd_notify_forward(const struct notify *notify, const char *text, size_t length, const int *fds,
                       size_t fd_count);

/* Fills in the address of a socket as NOTIFY_SOCKET names it: a path, or an
 * abstract name after '@'. False if it is neither or too long. */
bool sd_notify_address(struct sockaddr_un *to, socklen_t *size, const char *name);

/* --- people --------------------------------------------------------------- */

struct messages {
    const char *name;       /* of the lock; NULL until it is known */
    int verbosity;          /* -1: -q, 0: normal, 1: -v, 2: -vv */
    bool terminal;          /* true if stderr is one */
    bool journal;           /* true if it goes to systemd's journal: lines carry their priority */
    bool syslog;            /* true if messages also go to syslog(3) */
    struct notify notify;   /* the service manager */
    bool json;              /* failures are reported as JSON on stdout */
    const char *key;        /* of the lock in its store; NULL: not known yet */
    const char **code;      /* where to note the code of a failure; NULL: nowhere */
    struct duration waited; /* for the lock; negative: there was no wait */
};

/* Finds out where stderr leads, and opens the socket of the service manager. */
void messages_open(struct messages *out);

enum message_kind {
    MESSAGE_ERROR,    /* a failure that ends dlock or stops the command: always printed */
    MESSAGE_WARNING,  /* something that the user should know and can change: not with -q */
    MESSAGE_NOTICE,   /* an event that is worth a line but is not a fault: not with -q */
    MESSAGE_CONFLICT, /* the lock could not be acquired at once: only with -v or on a terminal,
                       * because a crontab on thirty hosts must not send twenty-nine mails */
    MESSAGE_VERBOSE,  /* the story of a run: with -v */
};

__attribute__((format(printf, 3, 4))) void say(const struct messages *out, enum message_kind kind,
                                               const char *format, ...);

#define say_error(out, ...) say(out, MESSAGE_ERROR, __VA_ARGS__)
#define say_warning(out, ...) say(out, MESSAGE_WARNING, __VA_ARGS__)
#define say_notice(out, ...) say(out, MESSAGE_NOTICE, __VA_ARGS__)
#define say_conflict(out, ...) say(out, MESSAGE_CONFLICT, __VA_ARGS__)
#define say_verbose(out, ...) say(out, MESSAGE_VERBOSE, __VA_ARGS__)

/* Writes these bytes, fewer than PIPE_BUF, to stderr unchanged, at once. False
 * if stderr does not take them after a short wait. */
bool message_write(const char *bytes, size_t length);

/* The current activity of dlock, for the service manager alone (STATUS=). */
__attribute__((format(printf, 2, 3))) void say_status(const struct messages *out,
                                                      const char *format, ...);

#endif
