#include "store/redis/doctor.h"

#include "store/redis/internal.h"
#include "store/redis/scripts.h"
#include "store/redis/sentinel.h"
#include "store/redis/topology.h"

void redis_backend_shows(struct backend *backend, const struct redis_url **url,
                         const struct redis_settings **settings)
{
    *url = &redis_of(backend)->url;
    *settings = &redis_of(backend)->settings;
}

/* Asks for the key, and follows redirections. A server that refuses to answer is assumed to be the
 * right one: the other checks report its refusals. */
static enum lock_result follow_key(struct redis_backend *redis, const char *key, struct bound bound,
                                   struct errmsg *why)
{
    const struct redis_command command = redis_words("GET", key);
    struct redis_detour detour = {.start = deadline_now()};
    enum lock_result result;
    bool led;
    do {
        redisReply *reply;
        led = false;
        result = redis_topology_open(redis, key, bound, why);
        if (result == LOCK_OK && redis->url.topology == REDIS_CLUSTER) {
            result = redis_conn_call(&redis->conn, &command, 1, &reply, bound, why);
            if (result != LOCK_OK)
                return redis->conn.greeting_failed ? LOCK_OK : result;
            led = reply->type == REDIS_REPLY_ERROR;
            if (led)
                result = redis_topology_judge(redis, key, reply->str, &detour, bound, why);
            freeReplyObject(reply);
        }
    } while (led && result == LOCK_OK);
    return led && (result == LOCK_REFUSED || result == LOCK_INVALID) ? LOCK_OK : result;
}

enum lock_result redis_backend_find(struct backend *backend, const char *key,
                                    struct redis_endpoint *at, struct bound bound,
                                    struct errmsg *why)
{
    struct redis_backend *redis = redis_of(backend);
    enum lock_result result = follow_key(redis, key, bound, why);
    *at = redis->conn.at;
    if (redis->conn.greeting_failed)
        redis_conn_close(&redis->conn);
    return result;
}

enum lock_result redis_backend_ask_sentinel(struct backend *backend, int i,
                                            char master[ENDPOINT_TEXT_SIZE], bool *refuses,
                                            struct bound bound, struct errmsg *why)
{
    return redis_sentinel_ask_one(redis_of(backend), i, master, refuses, bound, why);
}

void redis_backend_forget(struct backend *backend, const char *key, struct bound bound)
{
    struct redis_backend *redis = redis_of(backend);
    struct redis_command command = redis_words("DEL");
    char(*companions)[COMPANION_SIZE] = redis->call->companions;
    struct errmsg ignored = {""};
    redisReply *reply;
    for (size_t i = 0; i < REDIS_COMPANIONS; i++) {
        redis_companion(companions[i], key, (int)i, "doctor");
        redis_command_add(&command, companions[i]);
    }
    if (redis_topology_open(redis, key, bound, &ignored) == LOCK_OK &&
        redis_subscribe_call(&redis->conn, &command, (struct redis_channels){0}, &reply, bound,
                             &ignored) == LOCK_OK)
        freeReplyObject(reply);
}
