/* WAIT goes out by itself once the lock is taken, not in one write with the
 * script. It blocks the connection, and the server serves others meanwhile: with
 * SUBSCRIBE behind it, one who waits in the queue would be called before it
 * listens, and be dropped as dead. And one who is refused has nothing to wait for.
 *
 * Neither an extension nor a release waits. An extension that a failover loses
 * leaves the lease shorter, which the next look adopts; a release that it loses
 * leaves the lock in others' way until the lease ends. Both are on the safe side,
 * while a take that it loses is a lock that two have. */
#include "store/redis/replicas.h"

#include "redis/login.h"

#include <inttypes.h>
#include <stdio.h>

/* The server is to answer before we stop listening to it; its own clock for this
 * ticks every 100 ms (hz 10). 0 would be for ever. */
static int64_t wait_ms(struct deadline until)
{
    enum { TICK_MS = 150 };
    int64_t left = deadline_left(until).ns / NS_PER_MS, most = left * 3 / 4;
    int64_t ms = left - TICK_MS < most ? left - TICK_MS : most;
    return ms > 0 ? ms : 1;
}

static enum lock_result read_count(struct redis_backend *redis, const redisReply *reply, struct why *why)
{
    int wanted = redis->settings.wait_replicas;
    if (reply->type == REDIS_REPLY_ERROR) {
        enum lock_result result = redis_error_result(reply->str, why);
        if (result == LOCK_REFUSED)
            redis_login_explain(&redis->url, &(struct redis_refused){NULL, NULL}, reply->str, why);
        return result;
    }
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < 0)
        return redis_conn_nonsense(&redis->conn, why);
    if (reply->integer >= wanted)
        return LOCK_OK;
    why_set(why, "only %lld of %d replicas had the lock in time", reply->integer, wanted);
    return LOCK_UNAVAILABLE;
}

enum lock_result redis_replicas_await(struct redis_backend *redis, const struct lease *lease, struct bound bound,
                                      struct why *why)
{
    struct redis_command command = {0};
    redisReply *reply;
    char wanted[16], ms[24];
    if (redis->settings.wait_replicas == 0)
        return LOCK_OK;
    bound.until = deadline_earlier(bound.until, deadline_after(redis->settings.timeout));
    bound.until = deadline_earlier(bound.until, lease->deadline);
    snprintf(wanted, sizeof wanted, "%d", redis->settings.wait_replicas);
    snprintf(ms, sizeof ms, "%" PRId64, wait_ms(bound.until));
    redis_command_add(&command, "WAIT");
    redis_command_add(&command, wanted);
    redis_command_add(&command, ms);
    /* Whoever was called is subscribed still, and then takes no WAIT. */
    enum lock_result result =
        redis_listening_call(&redis->listening, &redis->conn, &command, (struct redis_ears){0}, &reply, bound, why);
    if (result == LOCK_OK) {
        result = read_count(redis, reply, why);
        freeReplyObject(reply);
    }
    if (result != LOCK_OK) {
        redis->base.uncertain = true;
        redis->leased = false;
    }
    return result;
}
