/* Shared by the files of doctor/: one server under --doctor, and its checks. */
#ifndef DLOCK_DOCTOR_DOCTOR_INT_H
#define DLOCK_DOCTOR_DOCTOR_INT_H

#include "doctor/doctor.h"
#include "redis/conn.h"

/* A time that was measured, "0.21 ms" or "1.5 s". Returns text. */
enum { FINDINGS_TIME_SIZE = 32 };
char *findings_time(struct duration time, char text[FINDINGS_TIME_SIZE]);

/* Advice if a server turns out to be a replica. */
#define MASTERS_URL "the URL of the master, or redis+sentinel://"

/* One Redis server, on a connection of its own, so that no check is in another client's way. */
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

/* Two of the checks. False: the connection is gone, or it is pointless to go on.
 * doctor/redis_info.c: version, role, memory, persistence, replicas, by INFO and CONFIG GET. */
bool server_check_info(struct server *server);

/* doctor/redis_access.c: that the user may do what the scripts do, and listen. Leaves nothing in
 * the store, if permitted. The connection has been subscribed afterwards. */
bool server_check_access(struct server *server);

#endif
