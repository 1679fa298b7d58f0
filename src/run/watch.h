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

/* The command's heartbeat (--heartbeat): a socket that it finds in NOTIFY_SOCKET, to which it sends
 * WATCHDOG=1 as long as it makes progress. */
struct watchdog {
    int fd;        /* readable when the command has sent something; -1: none */
    char name[64]; /* as it stands in NOTIFY_SOCKET */
};

/* Opens the socket under a unique name: `id` is part of it. False with *why set. */
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
    WATCH_ENDING,   /* by the last look before the end, the lease was not extended */
    WATCH_LOST,     /* the store reports that the lock is no longer ours */
    WATCH_RELEASED, /* the lock was released with its token: as a rule by the command itself */
};

struct watch_state {
    enum watch_verdict verdict;
    struct deadline deadline; /* of the lease, even if another process changed the lease */
    struct duration set;      /* the length that the lease was last set to */
    int64_t end_ms;           /* the end as last set, on the store's clock */
    struct errmsg why;  /* of WATCH_LOST, WATCH_RELEASED; of WATCH_ENDING if the store is silent */
    struct errmsg note; /* the last message for -v */
    int notes;          /* how many such messages there were */
};

/* Which thread has the backend. */
enum watch_owner {
    WATCH_TAKEN,  /* the main thread */
    WATCH_ASLEEP, /* the watch thread, which waits; the main thread may take the backend */
    WATCH_BUSY,   /* the watch thread */
};

struct watch {
    /* Set by the caller: */
    struct backend *backend;
    struct lease lease;    /* the thread's own copy */
    struct duration grace; /* from the last look to the deadline; negative: lease_grace() */
    const struct watchdog *heartbeat; /* read before the last look; its fd -1: none */
    const struct notify *notify;      /* receives the messages of the heartbeat's socket */
    /* run/watch.c's own: */
    atomic_int owner; /* enum watch_owner */
    int news_fd;      /* to the main thread: the state has changed */
    int quit_fd;      /* to the watch thread: quit */
    atomic_bool quit; /* the same, for a thread that cannot poll quit_fd */
    int beat_fd;      /* to the watch thread: the command makes progress */
    int store_fd;     /* the thread's own copy of the backend's descriptor for news */
    bool beat;        /* the thread's own: there was a heartbeat that it has not acted on yet */
    struct deadline extended; /* the thread's own: when it last tried to extend */
    bool said_cannot;         /* the thread's own: it said that the store cannot notify us */
    struct errmsg stands; /* the thread's own: the backend's note that it reported last; "": none */
    pthread_mutex_t mutex;
    struct watch_state state; /* guarded by mutex */
    pthread_t thread;
    bool runs; /* the main thread's: the thread was started but not joined yet */
};

/* Opens all that the watch needs, so that later only the start of the thread can fail. What
 * *watch points to must not move. LOCK_OK; LOCK_SYSTEM with *why set, and nothing is open. */
enum lock_result watch_open(struct watch *watch, struct errmsg *why);
/* Ends the thread if it runs, cutting short what it waits for. */
void watch_close(struct watch *watch);

/* Starts the thread, which has the backend for itself until watch_take().
 * LOCK_OK; LOCK_SYSTEM with *why set. */
enum lock_result watch_start(struct watch *watch, struct errmsg *why);

/* One look by the main thread, if it cannot start the watch thread. Takes a second at most, and
 * ends before the command must be stopped. Returns when the next look is due; NEVER: the lease
 * is over. */
struct deadline watch_look_alone(struct watch *watch);

/* The state at this moment. After this, news_fd is readable only if the state changes again. */
struct watch_state watch_read(struct watch *watch);

/* The command makes progress: extends its lease by its TTL. */
void watch_beat(const struct watch *watch);

/* Takes the backend back. Waits for the thread only if the thread is using the backend at this
 * moment; a sleeping thread ends only in watch_close(). Returns the last state. */
struct watch_state watch_take(struct watch *watch);

/* The time, before the deadline, by which the watch has the answer to its last look. Until then,
 * the main thread lets the watch decide whether the command is stopped. */
struct deadline watch_last_answer(struct deadline deadline, struct duration grace);

#endif
