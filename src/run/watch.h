/* The helper thread that watches the lease while the command runs. The thread extends the lease
 * only after a heartbeat of the command. */
#ifndef DLOCK_RUN_WATCH_H
#define DLOCK_RUN_WATCH_H

#include "store/backend.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/errmsg.h"
#include "util/message.h"

#include <pthread.h>
#include <stdatomic.h>

/* The socket for the command's heartbeat (--heartbeat). The command finds the name of the socket in
 * NOTIFY_SOCKET, and sends WATCHDOG=1 to it as long as the command is making progress. */
struct watchdog {
    int fd;        /* readable when the command has sent something; -1: none */
    char name[64]; /* the socket's name, as in NOTIFY_SOCKET */
};

/* Opens the socket under a unique name, which contains `id`. False with *why set. */
bool watchdog_open(struct watchdog *heartbeat, const char *id, struct errmsg *why);
void watchdog_close(struct watchdog *heartbeat);

/* Puts NOTIFY_SOCKET and WATCHDOG_USEC into the command's environment. WATCHDOG_USEC is `interval`,
 * or the service manager's own interval if that is shorter. */
void watchdog_export(struct environment *environment, const struct watchdog *heartbeat,
                     struct duration interval);

/* Reads the messages that have come, and passes them on to the service manager. True if one of
 * them is WATCHDOG=1. Ignores messages from users other than dlock's own and root. */
bool watchdog_read(const struct watchdog *heartbeat, const struct notify *to);

enum watch_verdict {
    WATCH_HELD,     /* as far as is known, we hold the lock until the deadline */
    WATCH_ENDING,   /* the last check before the stop did not show that the lease was extended */
    WATCH_LOST,     /* the store reports that the lock is no longer ours */
    WATCH_RELEASED, /* the lock was released with its owner token, usually by the command */
};

struct watch_state {
    enum watch_verdict verdict;
    struct deadline deadline; /* of the lease, as last changed by dlock or another process */
    struct duration set;      /* the length that the lease was last set to */
    int64_t end_ms;           /* the end of the lease as last set, on the store's clock */
    struct errmsg why;  /* the reason for WATCH_LOST or WATCH_RELEASED, or for WATCH_ENDING if the
                         * store does not answer */
    struct errmsg note; /* the last message for -v */
    int notes;          /* how many messages for -v there have been */
};

/* Which thread has the backend. */
enum watch_owner {
    WATCH_TAKEN,  /* the main thread */
    WATCH_ASLEEP, /* the watch thread, which is waiting: the main thread may take the backend */
    WATCH_BUSY,   /* the watch thread */
};

struct watch {
    /* Set by the caller: */
    struct backend *backend;
    struct lease lease;    /* a copy that belongs to the thread that has the backend */
    struct duration grace; /* from the last check to the deadline; negative: the default */
    const struct watchdog *heartbeat; /* its socket is read before the last check; its fd is -1
                                       * if there is none */
    const struct notify *notify;      /* receives what the command sends to the socket */
    /* Private to run/watch.c: */
    atomic_int owner; /* enum watch_owner */
    int news_fd;      /* tells the main thread that the state has changed */
    int quit_fd;      /* tells the watch thread to quit */
    atomic_bool quit; /* also tells the watch thread to quit, in case poll(2) of quit_fd fails */
    int beat_fd;      /* tells the watch thread that the command is making progress */
    int store_fd;     /* the watch thread's copy of the descriptor by which the backend reports
                       * changes */
    bool beat;        /* a heartbeat has come that the watch thread has not acted on yet */
    struct deadline extended; /* when the watch thread last tried to extend the lease */
    bool said_cannot;         /* the watch thread has reported that the store cannot notify it */
    struct errmsg stands;     /* the backend's note that the watch thread reported last; "": none */
    pthread_mutex_t mutex;
    struct watch_state state; /* guarded by mutex */
    pthread_t thread;
    bool runs; /* the watch thread was started and not joined yet; only the main thread uses this */
};

/* Opens everything that the watch needs, so that later only the start of the thread can fail. What
 * *watch points to must not move. Returns LOCK_OK, or LOCK_SYSTEM with *why set and nothing left
 * open. */
enum lock_result watch_open(struct watch *watch, struct errmsg *why);
/* Ends the watch thread at once if it is running, even in the middle of a wait, and closes
 * everything. */
void watch_close(struct watch *watch);

/* Starts the thread, which has the backend for itself until watch_take(). Returns LOCK_OK, or
 * LOCK_SYSTEM with *why set. */
enum lock_result watch_start(struct watch *watch, struct errmsg *why);

/* Checks the lease once in the main thread, for use while the watch thread cannot be started. Takes
 * a second at most, and ends before the command must be stopped. Returns when the next check is
 * due, or DEADLINE_NEVER if the lease is over. */
struct deadline watch_look_alone(struct watch *watch);

/* Returns the current state. After this, news_fd is readable only if the state changes again. */
struct watch_state watch_read(struct watch *watch);

/* Reports a heartbeat of the command. The watch thread then extends the lease, so that at least its
 * TTL is left. */
void watch_beat(const struct watch *watch);

/* Takes the backend back. Waits for the thread only if the thread is using the backend at this
 * moment; a sleeping thread ends only in watch_close(). Returns the last state. */
struct watch_state watch_take(struct watch *watch);

/* The time limit for the answer to the watch thread's last check, shortly before `deadline`. Until
 * then, the main thread leaves it to the watch thread whether the command must be stopped. */
struct deadline watch_last_answer(struct deadline deadline, struct duration grace);

#endif
