/* dlock's messages to people and to the service manager. People get one line on stderr for each
 * event. The line is written in one write(2), with the prefix "dlock: NAME: " and with all foreign
 * text escaped. */
#ifndef DLOCK_UTIL_MESSAGE_H
#define DLOCK_UTIL_MESSAGE_H

#include "util/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
/* must come after sys/socket.h */
#include <linux/vm_sockets.h>

/* --- the service manager --------------------------------------------------
 *
 * The protocol of sd_notify(3). The manual page describes it, and says that it is stable and may be
 * used without libsystemd. */

struct notify {
    int fd;   /* -1: there is no service manager */
    int type; /* SOCK_DGRAM; with any other type, each message needs a new connection */
    union {
        struct sockaddr any;
        struct sockaddr_un un;
        struct sockaddr_vm vm; /* for a manager outside this virtual machine */
    } to;
    socklen_t size;
};

/* Opens the socket that $NOTIFY_SOCKET names, if any. If the socket cannot be used, dlock sends no
 * messages, because the lock does not depend on them. */
void sd_notify_open(struct notify *notify);

/* Sends lines of NAME=VALUE. Never waits for long; drops what cannot be sent. */
void sd_notify_send(const struct notify *notify, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Forwards a message from the command, with its descriptors, which the caller must still close.
 * Omits the MAINPID lines, because to the service manager, dlock is the main process. */
void sd_notify_forward(const struct notify *notify, const char *text, size_t length, const int *fds,
                       size_t fd_count);

/* Fills in the address of a socket from its name in NOTIFY_SOCKET: a path, or an abstract name
 * after '@'. False if the name is neither, or too long. */
bool sd_notify_address(struct sockaddr_un *to, socklen_t *size, const char *name);

/* --- people --------------------------------------------------------------- */

struct messages {
    const char *name;     /* the lock's name; NULL until it is known */
    int verbosity;        /* -1: -q, 0: normal, 1: -v, 2: -vv */
    bool terminal;        /* true if stderr is a terminal */
    bool ci;              /* true if $CI is set; MESSAGE_CONFLICT then needs no -v */
    bool journal;         /* true if stderr goes to systemd's journal; lines then have a priority */
    bool syslog;          /* true if messages also go to syslog(3) */
    struct notify notify; /* the service manager */
    bool json;            /* failures are reported as JSON on stdout */
    const char *scope;    /* the lock's scope; NULL: none */
    const char *key;      /* the lock's key in its store; NULL: not known yet */
    const char **code;    /* where to store the code of a failure; NULL: nowhere */
    struct duration waited; /* time waited for the lock; negative: there was no wait */
};

/* Finds out where stderr leads, and opens the socket of the service manager. */
void messages_open(struct messages *out);

enum message_kind {
    MESSAGE_ERROR,    /* a failure that ends dlock or stops the command: always printed */
    MESSAGE_WARNING,  /* something that the user should know and can change: not with -q */
    MESSAGE_NOTICE,   /* an event that is worth a line but is not a problem: not with -q */
    MESSAGE_CONFLICT, /* the lock could not be acquired at once. Printed only with -v, or on a
                       * terminal, or in CI: cron jobs on thirty hosts that contend for one lock
                       * must not send twenty-nine mails */
    MESSAGE_VERBOSE,  /* what happens during a run: with -v */
};

__attribute__((format(printf, 3, 4))) void say(const struct messages *out, enum message_kind kind,
                                               const char *format, ...);

#define say_error(out, ...) say(out, MESSAGE_ERROR, __VA_ARGS__)
#define say_warning(out, ...) say(out, MESSAGE_WARNING, __VA_ARGS__)
#define say_notice(out, ...) say(out, MESSAGE_NOTICE, __VA_ARGS__)
#define say_verbose(out, ...) say(out, MESSAGE_VERBOSE, __VA_ARGS__)

/* Writes these bytes to stderr, unchanged and in one write. There must be fewer than PIPE_BUF
 * bytes. False if stderr has not accepted them after a short wait. */
bool message_write(const char *bytes, size_t length);

/* Reports what dlock is doing, to the service manager only (STATUS=). */
__attribute__((format(printf, 2, 3))) void say_status(const struct messages *out,
                                                      const char *format, ...);

#endif
