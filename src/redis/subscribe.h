/* Being told by the server, at once: that somebody has touched a key (CLIENT
 * TRACKING of Redis 6 and later), and that it is our turn to take a lock (a
 * channel of our own), on the connection that asks for both.
 *
 * hiredis 0.14 reads RESP2 alone, where such messages come to a subscribed
 * connection only, and a subscribed connection takes no script. So each call
 * leaves its channels, and runs the script and subscribes again in one transaction
 * (MULTI ... EXEC), all in one write. The script sees what happened before it, and
 * since it reads the key the server tells of the next touch, but not of its own
 * (NOLOOP). (All the keys that a script is given count as read as soon as it reads
 * one; so it is from Redis 6.0 on.) Nothing comes between script and SUBSCRIBE, however
 * the network cuts the write. */
#ifndef DLOCK_REDIS_SUBSCRIBE_H
#define DLOCK_REDIS_SUBSCRIBE_H

#include "redis/conn.h"

/* On which the server tells of touched keys. */
#define REDIS_INVALIDATE "__redis__:invalidate"

/* What to listen to from a call on. */
struct redis_ears {
    bool touches;     /* of the keys that its script reads */
    const char *wake; /* our own channel; NULL: none */
};

struct redis_listening {
    unsigned serial;          /* of the connection that all but broken is about */
    long long id;             /* by which the server knows it; 0: not asked yet */
    bool on;                  /* CLIENT TRACKING was accepted */
    struct redis_ears ears;   /* what we listen to: no script runs before UNSUBSCRIBE */
    bool no_touches, no_wake; /* it was tried, and the server does not let us */
    struct errmsg why_touches, why_wake;
    int broken; /* how many connections in a row ended while it was set up */
};

/* Runs a script as redis_conn_call() runs a command, on a connection that may
 * be subscribed, and listens from then on to what `ears` says and is possible.
 * Where the server does not let us, the script is run all the same. The text
 * of ears->wake must live as long as the connection. */
enum lock_result redis_subscribe_call(struct redis_listening *listening, struct redis_conn *conn,
                                      const struct redis_command *script, struct redis_ears ears,
                                      redisReply **reply, struct bound bound, struct errmsg *why);

/* What the server will tell on this connection. */
struct redis_ears redis_subscribe_to(const struct redis_listening *listening,
                                     const struct redis_conn *conn);

#endif
