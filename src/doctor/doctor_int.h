/* Shared by the files of doctor/: a Redis server that --doctor examines, and the checks of that
 * server. */
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
    const struct lock_request *request; /* as configured, but with a key that nothing else uses */
    struct findings *findings;
    struct bound bound;
    struct redis_conn conn;
};

/* Does what doctor_examine() does, for one Redis server, a master that Sentinels name, or a
 * Cluster. */
bool doctor_redis(struct backend *store, const struct lock_request *request,
                  struct findings *findings, struct bound bound);

/* Removes everything that Redis remembers about the lock, including its last fencing token. The
 * lock must be free. */
void doctor_forget(struct backend *store, const char *key, struct bound bound);

/* Sends the command, and waits for its reply, which the caller frees. If there is no reply, adds a
 * row that says why, and returns false. */
bool server_ask(struct server *server, const struct redis_command *command, redisReply **reply);

/* doctor/redis_info.c: uses INFO and CONFIG GET to check the version, role, memory, persistence and
 * replicas. Returns false if the server did not reply. */
bool server_check_info(struct server *server);

/* doctor/redis_access.c: checks that the user may run the commands of dlock's scripts, and may
 * subscribe. Deletes the keys that the check created, if the user may do that. Call this last,
 * because it may leave the connection in tracking mode. Returns false if the check could not be
 * finished, or if the user may not acquire locks. */
bool server_check_access(struct server *server);

#endif
