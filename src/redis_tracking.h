/* Being told by the server, at once, that somebody touched a key: CLIENT
 * TRACKING of Redis 6 and later, on the connection that asks for the key.
 *
 * hiredis 0.14 reads RESP2 alone, where such messages come to a subscribed
 * connection only, and a subscribed connection takes no script. So each call
 * leaves the channel, runs the script and comes back, in one write. The script
 * sees what happened before it, and since it reads the key the server will tell
 * of the next touch. (All the keys that a script is given count as read as soon
 * as it reads one; so it is from Redis 6.0 on.) The server carries out what one
 * read(2) brings it without serving others in between. Only where the network
 * cuts the write in two can a touch fall between script and SUBSCRIBE, and then
 * the next check in turn finds it. */
#ifndef DLOCK_REDIS_TRACKING_H
#define DLOCK_REDIS_TRACKING_H

#include "redis_conn.h"

struct redis_tracking {
    unsigned serial; /* of the connection that all but broken is about */
    long long id;    /* by which the server knows it; 0: not asked yet */
    bool on;         /* CLIENT TRACKING was accepted */
    bool subscribed; /* no script runs before UNSUBSCRIBE */
    bool impossible; /* it was tried, and why says what came of it */
    struct why why;
    int broken; /* how many connections in a row ended while it was set up */
};

/* Runs a script as redis_conn_call() runs a command, on a connection that may
 * be subscribed. With `arm`, tracking is set up or renewed as well; where the
 * server does not let us, the script is run all the same. */
enum lock_result redis_tracking_call(struct redis_tracking *tracking, struct redis_conn *conn,
                                     const struct redis_command *script, bool arm, redisReply **reply,
                                     struct bound bound, struct why *why);

/* Whether the server will tell on this connection. */
bool redis_tracking_armed(const struct redis_tracking *tracking, const struct redis_conn *conn);

/* Why it never will; NULL where that is not known. */
const char *redis_tracking_cannot(const struct redis_tracking *tracking, const struct redis_conn *conn);

#endif
