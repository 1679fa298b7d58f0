#include "backend_redis.h"

#include "redis_scripts.h"
#include "redis_state.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

static struct redis_backend *redis_of(struct backend *backend)
{
    return (struct redis_backend *)(void *)backend;
}

/* --- take ---------------------------------------------------------------- */

/* {"held", left, host, boot id, pid, start, user, command, since, mode, claimed, kept} */
static bool read_holder(struct holder *holder, const redisReply *reply)
{
    int64_t left_ms, pid = 0, since = 0, start = 0;
    if (!redis_left(reply->element[1], -2, &left_ms))
        return false;
    *holder = (struct holder){.expires = left_ms >= 0, .left = {left_ms >= 0 ? left_ms * NS_PER_MS : 0}};
    text_copy(holder->host, sizeof holder->host, redis_text(reply->element[2]));
    text_copy(holder->boot_id, sizeof holder->boot_id, redis_text(reply->element[3]));
    text_copy(holder->user, sizeof holder->user, redis_text(reply->element[6]));
    text_copy(holder->command, sizeof holder->command, redis_text(reply->element[7]));
    holder->known = redis_text(reply->element[4])[0] != '\0' && redis_number(reply->element[4], 0, INT32_MAX, &pid) &&
                    redis_number(reply->element[5], 0, INT64_MAX, &start) &&
                    redis_number(reply->element[8], 0, INT64_MAX, &since);
    holder->pid = (pid_t)pid;
    holder->pid_start = start;
    holder->since_wall_ms = since;
    holder->shares = strcmp(redis_text(reply->element[9]), lock_mode_name(MODE_EXCLUSIVE)) != 0;
    holder->claimed = redis_text(reply->element[10])[0] == '1';
    holder->kept = redis_text(reply->element[11])[0] == '1';
    return true;
}

static enum lock_result read_take(struct redis_backend *redis, const redisReply *reply, const struct lock_request *request,
                                  struct deadline before, struct lease *lease, struct holder *holder, struct why *why)
{
    int64_t left_ms, fence, slot;
    if (redis_answer_is(reply, "taken", 4) && redis_number(reply->element[1], 1, INT64_MAX, &fence) &&
        redis_left(reply->element[2], 0, &left_ms) && redis_number(reply->element[3], -1, INT32_MAX, &slot)) {
        lease_begin(lease, request, before, fence);
        lease->slot = (int)slot;
        /* Less than the TTL where an earlier try had taken it. */
        struct deadline end = deadline_plus(before, (struct duration){left_ms * NS_PER_MS});
        lease->deadline = deadline_earlier(lease->deadline, deadline_minus(end, lease_drift(lease->ttl)));
        redis->leased = true;
        redis->base.uncertain = false;
        return LOCK_OK;
    }
    if (redis_answer_is(reply, "held", 12) && read_holder(holder, reply))
        return LOCK_HELD; /* still uncertain, where it was: the lost take may be carried out late */
    if (redis_answer_is(reply, "unusable", 3)) {
        why_set(why, "the key %s cannot be used: %s", redis_text(reply->element[1]), redis_text(reply->element[2]));
        return LOCK_INVALID;
    }
    redis->base.uncertain = true;
    return redis_bad_answer(redis, why);
}

/* The hold is the holder's own to know; where another process has taken the
 * lock, the store knows it. */
static void begin_release(struct redis_call *call, const struct lease *lease)
{
    redis_script_begin(call, &redis_release_script, KEYS_RELEASED, lease->key);
    redis_command_add(&call->words, lease->token);
    redis_command_add(&call->words, lease->take_id);
    redis_script_add_number(call, wall_now_ms());
    if (lease->take_id[0] == '\0')
        redis_command_add(&call->words, "");
    else
        redis_script_add_number(call, deadline_left(lease->hold).ns / NS_PER_MS);
    /* A take that is given up, unknown whether it happened, is no loss. */
    redis_command_add(&call->words, lease->lost ? "lost" : lease->fence == 0 ? "" : "held");
}

/* The take went out in one write with a greeting that was refused, and may
 * have been carried out where that left us: it is released in the same place. */
static void undo_take(struct redis_backend *redis, const struct lock_request *request, struct bound bound)
{
    struct redis_call call;
    struct lease lease;
    struct why ignored;
    redisReply *reply;
    lease_begin(&lease, request, deadline_now(), 0);
    lease.hold = deadline_now();
    begin_release(&call, &lease);
    for (int by_text = 0; by_text < 2 && redis->conn.fd >= 0; by_text++)
        if (redis_script_send(redis, &call, by_text, &reply, bound, &ignored) == LOCK_OK)
            freeReplyObject(reply);
}

static const char *refusal_word(const struct lock_request *request)
{
    if (!request->last)
        return "waits";
    return request->waits ? "timeout" : "conflict";
}

static enum lock_result redis_take(struct backend *backend, const struct lock_request *request, struct lease *lease,
                                   struct holder *holder, struct bound bound, struct why *why)
{
    struct redis_backend *redis = redis_of(backend);
    const struct holder *self = &request->self;
    struct redis_call call;
    redis_script_begin(&call, &redis_take_script, KEYS_ALL, request->key);
    redis_command_add(&call.words, request->token);
    redis_script_add_number(&call, request->ttl.ns / NS_PER_MS);
    redis_command_add(&call.words, request->take_id);
    redis_command_add(&call.words, backend->uncertain ? "1" : "0");
    redis_command_add(&call.words, self->host);
    redis_command_add(&call.words, self->boot_id);
    redis_script_add_number(&call, self->pid);
    redis_script_add_number(&call, self->pid_start);
    redis_command_add(&call.words, self->user);
    redis_command_add(&call.words, self->command);
    redis_script_add_number(&call, wall_now_ms());
    redis_command_add(&call.words, lock_mode_name(request->mode));
    redis_script_add_number(&call, request->slots);
    redis_script_add_number(&call, request->hold_at_least.ns / NS_PER_MS);
    redis_command_add(&call.words, request->detached ? "1" : "");
    redis_command_add(&call.words, refusal_word(request));
    redis_script_add_number(&call, request->waited.ns / NS_PER_MS);

    redisReply *reply;
    /* The lease counts from here: connecting is not part of it. */
    enum lock_result result = redis_conn_open(&redis->conn, !redis->leased, bound, why);
    struct deadline before = deadline_now();
    if (result == LOCK_OK)
        result = redis_script_run(redis, &call, &reply, bound, why);
    if (result == LOCK_OK) {
        result = read_take(redis, reply, request, before, lease, holder, why);
        freeReplyObject(reply);
    } else if (redis->conn.sent) {
        backend->uncertain = true;
        if (redis->conn.greeting_failed)
            undo_take(redis, request, bound);
    }
    return redis_script_end(redis, result, why);
}

/* --- check, extend, release ---------------------------------------------- */

/* {"gone", "ended" or ""}, {"other", ...}, {"released", ...}: LOCK_OK for
 * anything else. */
static enum lock_result read_loss(const redisReply *reply, const struct lease *lease, struct why *why)
{
    const char *key = lease->key;
    if (redis_answer_is(reply, "gone", 2)) {
        bool ended = lease->take_id[0] == '\0' && strcmp(redis_text(reply->element[1]), "ended") == 0;
        why_set(why, "the key %s is gone%s", key, ended ? ": the lease has ended, or somebody has removed it" : "");
        return LOCK_GONE;
    }
    if (redis_answer_is(reply, "other", 2)) {
        why_set(why, "the key %s has another owner", key);
        return LOCK_FOREIGN;
    }
    if (redis_answer_is(reply, "released", 2)) {
        why_set(why, "the key %s was released with this token", key);
        return LOCK_RELEASED;
    }
    return LOCK_OK;
}

/* {"ours", left, mode, slots, slot} */
static enum lock_result read_check(struct redis_backend *redis, const redisReply *reply, struct deadline before,
                                   struct lease *lease, struct why *why)
{
    int64_t left_ms, slots, slot;
    enum lock_result result = read_loss(reply, lease, why);
    if (result != LOCK_OK)
        return result;
    if (!redis_answer_is(reply, "ours", 5) || !redis_left(reply->element[1], -1, &left_ms) ||
        !lock_mode_parse(redis_text(reply->element[2]), &lease->mode) ||
        !redis_number(reply->element[3], 0, INT32_MAX, &slots) || !redis_number(reply->element[4], -1, INT32_MAX, &slot))
        return redis_bad_answer(redis, why);
    lease->slots = (int)slots;
    lease->slot = (int)slot;
    /* Without an expiry, which somebody took away, our own deadline stands. */
    if (left_ms >= 0)
        lease_adopt(lease, before, deadline_now(), (struct duration){left_ms * NS_PER_MS});
    return LOCK_OK;
}

/* Runs a script that answers as check.lua does. */
static enum lock_result run_check(struct redis_backend *redis, struct redis_call *call, struct lease *lease,
                                  struct bound bound, struct why *why)
{
    redisReply *reply;
    struct deadline before = deadline_now();
    enum lock_result result = redis_script_run_again(redis, call, &reply, bound, why);
    if (result == LOCK_OK) {
        result = read_check(redis, reply, before, lease, why);
        freeReplyObject(reply);
    }
    return redis_script_end(redis, result, why);
}

static enum lock_result redis_check(struct backend *backend, struct lease *lease, struct bound bound, struct why *why)
{
    struct redis_backend *redis = redis_of(backend);
    struct redis_call call;
    redis_script_begin(&call, &redis_check_script, KEYS_WATCHED, lease->key);
    call.arm = redis->watched;
    redis_command_add(&call.words, lease->token);
    redis_command_add(&call.words, lease->take_id);
    return run_check(redis, &call, lease, bound, why);
}

static enum lock_result redis_extend(struct backend *backend, struct lease *lease, enum extend_how how, struct bound bound,
                                     struct why *why)
{
    struct redis_backend *redis = redis_of(backend);
    struct redis_call call;
    redis_script_begin(&call, &redis_extend_script, KEYS_WATCHED, lease->key);
    call.arm = redis->watched;
    redis_command_add(&call.words, lease->token);
    redis_command_add(&call.words, lease->take_id);
    redis_script_add_number(&call, lease->ttl.ns / NS_PER_MS);
    redis_command_add(&call.words, how == EXTEND_EXACTLY ? "1" : "");
    return run_check(redis, &call, lease, bound, why);
}

/* A release whose reply was lost is sent again, and finds what it has done. */
static enum lock_result redis_release(struct backend *backend, const struct lease *lease, struct bound bound, struct why *why)
{
    struct redis_backend *redis = redis_of(backend);
    struct redis_call call;
    redisReply *reply;
    begin_release(&call, lease);
    redis->conn.sent = false;
    enum lock_result result = redis_script_run_again(redis, &call, &reply, bound, why);
    redis->release_sent = redis->release_sent || call.sent_before || (result != LOCK_OK && redis->conn.sent);
    if (result == LOCK_OK) {
        bool now = redis_answer_is(reply, "released", 2) && strcmp(redis_text(reply->element[1]), "now") == 0;
        if (!now)
            result = read_loss(reply, lease, why);
        if (!now && result == LOCK_OK)
            result = redis_bad_answer(redis, why);
        else if (result == LOCK_RELEASED && redis->release_sent)
            result = LOCK_OK;
        freeReplyObject(reply);
    }
    return redis_script_end(redis, result, why);
}

/* --- looking ------------------------------------------------------------- */

static enum lock_result run_look(struct redis_backend *redis, struct redis_call *call, const char *key,
                                 struct lock_state *state, struct bound bound, struct why *why)
{
    redisReply *reply;
    enum lock_result result = redis_script_run_again(redis, call, &reply, bound, why);
    if (result == LOCK_OK) {
        result = redis_state_read(redis, reply, key, state, why);
        freeReplyObject(reply);
    }
    return redis_script_end(redis, result, why);
}

static enum lock_result redis_look(struct backend *backend, const char *key, struct lock_state *state, struct bound bound,
                                   struct why *why)
{
    struct redis_call call;
    redis_script_begin(&call, &redis_look_script, KEYS_ALL, key);
    return run_look(redis_of(backend), &call, key, state, bound, why);
}

static enum lock_result redis_force_release(struct backend *backend, const char *key, struct lock_state *was,
                                            struct bound bound, struct why *why)
{
    struct redis_call call;
    redis_script_begin(&call, &redis_force_script, KEYS_ALL, key);
    redis_script_add_number(&call, wall_now_ms());
    return run_look(redis_of(backend), &call, key, was, bound, why);
}

static enum lock_result redis_list(struct backend *backend, const char *prefix, const char *pattern,
                                   bool (*visit)(void *data, const struct lock_state *), void *data, struct bound bound,
                                   struct why *why)
{
    struct redis_keys keys = {0};
    enum lock_result result = redis_keys_find(redis_of(backend), prefix, pattern, &keys, bound, why);
    for (size_t i = 0; result == LOCK_OK && i < keys.count; i++) {
        struct lock_state state = {0};
        if (i > 0 && strcmp(keys.list[i], keys.list[i - 1]) == 0)
            continue; /* SCAN may name a key twice */
        result = redis_look(backend, keys.list[i], &state, bound, why);
        if (result != LOCK_OK)
            break;
        bool more = !state.locked || visit(data, &state);
        lock_state_free(&state);
        if (!more)
            break;
    }
    redis_keys_free(&keys);
    return result;
}

/* --- news and life ------------------------------------------------------- */

/* The end of the connection makes its descriptor readable as well. */
static struct news redis_news(struct backend *backend)
{
    struct redis_backend *redis = redis_of(backend);
    redis->watched = true;
    if (redis_tracking_armed(&redis->tracking, &redis->conn))
        return (struct news){.fd = redis->conn.fd, .due = redis_conn_has_unread(&redis->conn)};
    return (struct news){.fd = -1, .cannot = redis_tracking_cannot(&redis->tracking, &redis->conn)};
}

static void redis_close(struct backend *backend)
{
    struct redis_backend *redis = redis_of(backend);
    redis_conn_free(&redis->conn);
    explicit_bzero(&redis->url, sizeof redis->url);
    free(redis);
}

enum lock_result backend_redis_open(struct backend **backend, const char *url, struct duration timeout, struct why *why)
{
    struct redis_backend *redis = calloc(1, sizeof *redis);
    if (redis == NULL) {
        why_set(why, "out of memory");
        return LOCK_SYSTEM;
    }
    if (!redis_url_parse(&redis->url, url, why)) {
        free(redis);
        return LOCK_INVALID;
    }
    redis_conn_init(&redis->conn, &redis->url, timeout);
    redis->base = (struct backend){
        .kind = "redis",
        .poll_least = DURATION_MS(250),
        .poll_most = DURATION_S(5),
        .take = redis_take,
        .check = redis_check,
        .extend = redis_extend,
        .release = redis_release,
        .look = redis_look,
        .force_release = redis_force_release,
        .list = redis_list,
        .news = redis_news,
        .close = redis_close,
    };
    *backend = &redis->base;
    return LOCK_OK;
}
