/* --doctor for Redis. */
#ifndef DLOCK_STORE_REDIS_DOCTOR_H
#define DLOCK_STORE_REDIS_DOCTOR_H

#include "lock/lease.h"
#include "redis/conn.h"
#include "store/backend.h"
#include "store/diagnostics.h"

#include <stdbool.h>

/* examine() and forget() of store/backend.h. */
bool redis_examine(struct backend *backend, const struct lock_request *request,
                   struct diagnostics *findings, struct bound bound);
void redis_forget(struct backend *backend, const char *key, struct bound bound);

/* One Redis server under --doctor: a connection of its own, so that the tries there are
 * in no other client's way, and the checks that are made on it. Each check adds its rows;
 * false: the connection is gone, or there is no use in going on. */

struct redis_patient {
    const struct redis_url *url;
    const struct redis_settings *settings;
    const struct lock_request
        *request; /* its key is otherwise unused; ttl and the like are those of the options */
    struct redis_conn conn;
    struct diagnostics *findings;
    struct bound bound;
};

/* True for LOCK_OK. For anything else but LOCK_CANCELLED adds a row with the exit status that a
 * run would have. */
bool redis_patient_served(struct diagnostics *findings, enum lock_result result, const char *name,
                          const char *advice, const struct errmsg *why);

/* Sends the command, and waits for its reply, which the caller frees. False: there is no
 * reply, and row `name` says why. */
bool redis_patient_ask(struct redis_patient *patient, const char *name,
                       const struct redis_command *command, redisReply **reply);

/* Adds a row for a question that was not answered: "unknown: NOPERM ...". */
void redis_patient_unknown(struct redis_patient *patient, const char *name,
                           const redisReply *reply);

/* store/redis/doctor_info.c: version, role, memory, persistence, replicas, by INFO and
 * CONFIG GET. */
bool redis_doctor_info(struct redis_patient *patient);

/* store/redis/doctor_access.c: checks that the user may do what the scripts do, and
 * listen. Leaves nothing behind, if permitted. The connection is subscribed afterwards. */
bool redis_doctor_access(struct redis_patient *patient);

#endif
