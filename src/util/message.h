/* What dlock says to people: on stderr, one line an event in one write(2),
 * prefixed "dlock: NAME: ", with whatever is foreign in it escaped. */
#ifndef DLOCK_UTIL_MESSAGE_H
#define DLOCK_UTIL_MESSAGE_H

#include "util/clock.h"
#include "util/sd_notify.h"

#include <stdbool.h>
#include <stddef.h>

struct messages {
    const char *name;       /* of the lock; NULL until it is known */
    int verbosity;          /* -1: -q, 0: normal, 1: -v, 2: -vv */
    bool terminal;          /* whether stderr is one */
    bool journal;           /* whether it goes to systemd's journal: lines carry their priority */
    bool syslog;            /* whether syslog(3) is told as well */
    struct notify notify;   /* the service manager */
    bool json;              /* failures are told as JSON on stdout */
    const char *key;        /* of the lock in its store; NULL: not known yet */
    const char **code;      /* where the code of a failure is noted; NULL: nowhere */
    struct duration waited; /* for the lock; negative: nobody has waited */
};

/* Fills in what can be known of stderr and of the service manager. */
void messages_open(struct messages *out);

/* A failure that ends dlock or stops the command: always said. */
__attribute__((format(printf, 2, 3))) void say_error(const struct messages *out, const char *format,
                                                     ...);

/* Something that the user should know and can change: not with -q. */
__attribute__((format(printf, 2, 3))) void say_warning(const struct messages *out,
                                                       const char *format, ...);

/* Something that is worth a line and no fault: not with -q. */
__attribute__((format(printf, 2, 3))) void say_notice(const struct messages *out,
                                                      const char *format, ...);

/* That the lock was not to be had at once: with -v or on a terminal alone, since a
 * crontab on thirty hosts must not send twenty-nine mails. */
__attribute__((format(printf, 2, 3))) void say_conflict(const struct messages *out,
                                                        const char *format, ...);

/* The story of a run: with -v. */
__attribute__((format(printf, 2, 3))) void say_verbose(const struct messages *out,
                                                       const char *format, ...);

/* Writes these bytes, fewer than PIPE_BUF, to stderr as they are, at once. False
 * where it does not take them; waits a moment for that. */
bool message_write(const char *bytes, size_t length);

/* What dlock is doing at this time, for the service manager alone (STATUS=). */
__attribute__((format(printf, 2, 3))) void say_status(const struct messages *out,
                                                      const char *format, ...);

#endif
