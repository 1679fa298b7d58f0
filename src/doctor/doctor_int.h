/* Shared by the files of doctor/: a Redis server that --doctor examines, and the checks of it. */
#ifndef DLOCK_DOCTOR_DOCTOR_INT_H
#define DLOCK_DOCTOR_DOCTOR_INT_H

#include "doctor/doctor.h"
#include "redis/conn.h"

/* Formats a measured time: "0.21 ms" or "1.5 s". Returns text. */
enum { FINDINGS_TIME_SIZE = 32 };
char *findings_time(struct duration time, char text[FINDINGS_TIME_SIZE]);

/* Advice if a server turns out to be a replica. */
#define MASTERS_URL "use the URL of the master, or redis+sentinel://"

/* One Redis server, on its own connection, so that no check disturbs another client. */
struct server {
    struct backend *store;
    const struct redis_url *url;
    const struct redis_settings *settings;
    const struct lock_request *request; /* its key is otherwise unused; the rest as configured */
    struct findings *findings;
    struct bound bound;
    struct redis_conn conn;
};

/* doctor_examine() for a store in one Redis, Sentinel or Cluster. */
bool doctor_redis(struct backend *store, const struct lock_request *request,
                  struct findings *findings, struct bound bound);

/* Removes what a store in Redis remembers of the free lock, its last fence included. */
void doctor_forget(struct backend *store, const char *key, struct bound bound);

/* Sends the command, and waits for its reply, which the caller frees. False: there is no reply,
 * and a row says why. */
bool server_ask(struct server *server, const struct redis_command *command, redisReply **reply);

/* doctor/redis_info.c: checks version, role, memory, persistence and replicas, by INFO and CONFIG
 * GET. False: the connection is gone, or it is pointless to continue. */
bool server_check_info(struct server *server);

/* doctor/redis_access.c: checks that the user may run what the scripts run, and may subscribe.
 * Leaves nothing in the store, if that is permitted. Call this last: the connection may then be in
 * tracking mode. False: the connection is gone, or the user may not take a lock. */
bool server_check_access(struct server *server);

#endif
