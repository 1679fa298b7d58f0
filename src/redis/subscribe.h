/* Immediate notifications from the server: that a client has touched a key (CLIENT
 * TRACKING of Redis 6 and later), and that it is our turn to take a lock (a channel of
 * our own), on the connection that asks for both.
 *
 * hiredis 0.14 reads RESP2 alone, in which such messages are sent only to a subscribed
 * connection, and a subscribed connection accepts no script. So each call leaves its
 * channels, and runs the script and subscribes again in one transaction (MULTI ... EXEC),
 * all in one write. The script sees what happened before it, and since it reads the key
 * the server reports the next touch, but not its own (NOLOOP). (All the keys that a
 * script is given count as read as soon as it reads one; this has been so since Redis
 * 6.0.) Nothing comes between script and SUBSCRIBE, however the network cuts the write. */
#ifndef DLOCK_REDIS_SUBSCRIBE_H
#define DLOCK_REDIS_SUBSCRIBE_H

#include "redis/conn.h"

/* The channel on which the server reports touched keys. */
#define REDIS_INVALIDATE "__redis__:invalidate"

/* The notifications to listen for from a call on. */
struct redis_channels {
    bool touches;     /* of the keys that its script reads */
    const char *wake; /* our own channel; NULL: none */
};

struct redis_listening {
    unsigned serial;                /* the connection that all fields but `broken` are about */
    long long id;                   /* the server's id of it; 0: not asked yet */
    bool on;                        /* CLIENT TRACKING was accepted */
    struct redis_channels channels; /* subscribed to: no script runs before UNSUBSCRIBE */
    bool no_touches, no_wake;       /* it was tried, and the server does not permit it */
    struct errmsg why_touches, why_wake;
    int broken; /* how many connections in a row ended while it was set up */
};

/* Runs a script as redis_conn_call() runs a command, on a connection that may be
 * subscribed, and from then on listens for what `channels` asks for and the server permits.
 * If the server does not permit it, the script is still run. The text of channels->wake must
 * live as long as the connection. */
enum lock_result redis_subscribe_call(struct redis_listening *listening, struct redis_conn *conn,
                                      const struct redis_command *script,
                                      struct redis_channels channels, redisReply **reply,
                                      struct bound bound, struct errmsg *why);

/* True if there is a channel to subscribe to. */
bool redis_subscribe_any(struct redis_channels channels);

/* The notifications that the server will send on this connection. */
struct redis_channels redis_subscribe_to(const struct redis_listening *listening,
                                         const struct redis_conn *conn);

#endif
