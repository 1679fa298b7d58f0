#include "backend_redis.h"

#include "redis_conn.h"
#include "redis_tracking.h"
#include "redis_url.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct redis_script {
    const char *sha1;
    const char *text;
};

#include "scripts.h"

/* How long {K}:meta, with the fence, outlives the lease. */
#define META_KEPT_MS "2592000000" /* 30 days */

struct redis_backend {
    struct backend base;
    struct redis_url url;
    struct redis_conn conn;
    struct redis_tracking tracking;
    bool watched; /* the checks ask to be told at once */
    char meta[LOCK_KEY_SIZE + 16];
    bool leased; /* addresses are settled: from here on no name is looked up */
};

static struct redis_backend *redis_of(struct backend *backend)
{
    return (struct redis_backend *)(void *)backend;
}

/* --- scripts ------------------------------------------------------------- */

struct script_call {
    const struct redis_script *script;
    bool arm;                  /* it reads the lock that is watched */
    struct redis_command rest; /* number of keys, keys, arguments */
};

static enum lock_result send_script(struct redis_backend *redis, const struct script_call *call, bool by_text,
                                    redisReply **reply, struct bound bound, struct why *why)
{
    struct redis_command command = {0};
    redis_command_add(&command, by_text ? "EVAL" : "EVALSHA");
    redis_command_add(&command, by_text ? call->script->text : call->script->sha1);
    for (int i = 0; i < call->rest.count; i++)
        redis_command_add(&command, call->rest.words[i]);
    return redis_tracking_call(&redis->tracking, &redis->conn, &command, call->arm, reply, bound, why);
}

/* A reply is an array that begins with a word. */
static bool is_answer(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 && reply->element[0]->type == REDIS_REPLY_STRING;
}

static bool answer_is(const redisReply *reply, const char *word, size_t elements)
{
    return strcmp(reply->element[0]->str, word) == 0 && reply->elements == elements;
}

static enum lock_result bad_answer(struct redis_backend *redis, struct why *why)
{
    redis_conn_close(&redis->conn);
    why_set(why, "its answer makes no sense");
    return LOCK_UNAVAILABLE;
}

/* Connects if need be and runs the script. LOCK_OK with a well-formed answer
 * in *reply, to be freed; else as redis_conn_call(). */
static enum lock_result run_script(struct redis_backend *redis, const struct script_call *call, redisReply **reply,
                                   struct bound bound, struct why *why)
{
    enum lock_result result = redis_conn_open(&redis->conn, !redis->leased, bound, why);
    if (result == LOCK_OK)
        result = send_script(redis, call, false, reply, bound, why);
    if (result == LOCK_OK && (*reply)->type == REDIS_REPLY_ERROR && strncmp((*reply)->str, "NOSCRIPT", 8) == 0) {
        freeReplyObject(*reply);
        result = send_script(redis, call, true, reply, bound, why);
    }
    if (result != LOCK_OK)
        return result;
    if (is_answer(*reply))
        return LOCK_OK;
    if ((*reply)->type == REDIS_REPLY_ERROR) {
        result = redis_error_result((*reply)->str, why);
    } else {
        result = bad_answer(redis, why);
    }
    freeReplyObject(*reply);
    return result;
}

/* Every failure names the server that it came from. A connection whose login
 * or SELECT failed stands before the wrong database, and serves nobody else. */
static enum lock_result end_call(struct redis_backend *redis, enum lock_result result, struct why *why)
{
    if (redis->conn.greeting_failed)
        redis_conn_close(&redis->conn);
    if (result != LOCK_OK && result != LOCK_HELD && result != LOCK_CANCELLED)
        why_prefix(why, redis->url.shown);
    return result;
}

/* --- take ---------------------------------------------------------------- */

/* A PTTL. Another client may have set one that no clock here can count to. */
static bool left_of(const redisReply *element, int64_t least, int64_t *out)
{
    static const int64_t century_ms = INT64_C(100) * 365 * 86400 * 1000;
    if (element->type != REDIS_REPLY_INTEGER || element->integer < least)
        return false;
    *out = element->integer < century_ms ? element->integer : century_ms;
    return true;
}

/* The fence and what else may exceed an integer reply comes as text. */
static bool number_of(const redisReply *element, int64_t most, int64_t *out)
{
    return element->type == REDIS_REPLY_STRING && number_parse(element->str, 0, most, out);
}

static void read_holder(struct holder *holder, const redisReply *reply, int64_t left_ms)
{
    const char *text[9] = {0};
    int64_t pid = 0, since = 0, start = 0;
    *holder = (struct holder){.expires = left_ms >= 0, .left = {left_ms >= 0 ? left_ms * NS_PER_MS : 0}};
    for (size_t i = 2; i < 9; i++)
        text[i] = reply->element[i]->type == REDIS_REPLY_STRING ? reply->element[i]->str : "";
    text_copy(holder->host, sizeof holder->host, text[2]);
    text_copy(holder->boot_id, sizeof holder->boot_id, text[3]);
    text_copy(holder->user, sizeof holder->user, text[6]);
    text_copy(holder->command, sizeof holder->command, text[7]);
    holder->known = number_of(reply->element[4], INT32_MAX, &pid) && number_of(reply->element[5], INT64_MAX, &start) &&
                    number_of(reply->element[8], INT64_MAX, &since);
    holder->pid = (pid_t)pid;
    holder->pid_start = start;
    holder->since_wall_ms = since;
}

static enum lock_result read_take(struct redis_backend *redis, const redisReply *reply, const struct lock_request *request,
                                  struct deadline before, struct lease *lease, struct holder *holder, struct why *why)
{
    int64_t left_ms, fence;
    if (answer_is(reply, "taken", 3) && number_of(reply->element[1], INT64_MAX, &fence) &&
        left_of(reply->element[2], 0, &left_ms)) {
        lease_begin(lease, request, before, fence);
        /* Less than the TTL where an earlier try had taken it. */
        struct deadline end = deadline_plus(before, (struct duration){left_ms * NS_PER_MS});
        lease->deadline = deadline_earlier(lease->deadline, deadline_minus(end, lease_drift(lease->ttl)));
        redis->leased = true;
        redis->base.uncertain = false;
        return LOCK_OK;
    }
    if (answer_is(reply, "held", 9) && left_of(reply->element[1], -2, &left_ms)) {
        read_holder(holder, reply, left_ms);
        return LOCK_HELD; /* still uncertain, where it was: the lost take may be carried out late */
    }
    if (answer_is(reply, "unusable", 3) && reply->element[1]->type == REDIS_REPLY_STRING &&
        reply->element[2]->type == REDIS_REPLY_STRING) {
        why_set(why, "the key %s cannot be used: %s", reply->element[1]->str, reply->element[2]->str);
        return LOCK_INVALID;
    }
    redis->base.uncertain = true;
    return bad_answer(redis, why);
}

/* The keys and arguments by which a script knows our lease. */
static void add_lease(struct redis_backend *redis, struct redis_command *command, const struct lease *lease)
{
    lock_key_companion(redis->meta, sizeof redis->meta, lease->key, "meta");
    redis_command_add(command, "2");
    redis_command_add(command, lease->key);
    redis_command_add(command, redis->meta);
    redis_command_add(command, lease->token);
    redis_command_add(command, lease->take_id);
}

struct release_numbers {
    char now[24], hold[24];
};

/* As add_lease(), and two numbers, for which there is room in *numbers. */
static void add_release(struct redis_backend *redis, struct redis_command *command, const struct lease *lease,
                        struct release_numbers *numbers)
{
    snprintf(numbers->now, sizeof numbers->now, "%" PRId64, wall_now_ms());
    snprintf(numbers->hold, sizeof numbers->hold, "%" PRId64, deadline_left(lease->hold).ns / NS_PER_MS);
    add_lease(redis, command, lease);
    redis_command_add(command, numbers->now);
    redis_command_add(command, numbers->hold);
}

/* The take went out in one write with a greeting that was refused, and may
 * have been carried out where that left us: it is released in the same place. */
static void undo_take(struct redis_backend *redis, const struct lock_request *request, struct bound bound)
{
    struct script_call call = {.script = &script_release};
    struct lease lease;
    struct why ignored;
    struct release_numbers numbers = {"", ""};
    redisReply *reply;
    lease_begin(&lease, request, deadline_now(), 0);
    lease.hold = deadline_now();
    add_release(redis, &call.rest, &lease, &numbers);
    for (int by_text = 0; by_text < 2 && redis->conn.fd >= 0; by_text++)
        if (send_script(redis, &call, by_text, &reply, bound, &ignored) == LOCK_OK)
            freeReplyObject(reply);
}

static enum lock_result redis_take(struct backend *backend, const struct lock_request *request, struct lease *lease,
                                   struct holder *holder, struct bound bound, struct why *why)
{
    struct redis_backend *redis = redis_of(backend);
    const struct holder *self = &request->self;
    struct script_call call = {.script = &script_take};
    char ttl[24], pid[24], start[24], since[24];
    snprintf(ttl, sizeof ttl, "%" PRId64, request->ttl.ns / NS_PER_MS);
    snprintf(pid, sizeof pid, "%ld", (long)self->pid);
    snprintf(start, sizeof start, "%" PRId64, self->pid_start);
    snprintf(since, sizeof since, "%" PRId64, wall_now_ms());
    lock_key_companion(redis->meta, sizeof redis->meta, request->key, "meta");
    const char *again = backend->uncertain ? "1" : "0";
    const char *words[] = {
        "2", request->key, redis->meta, request->token, ttl, request->take_id, again, META_KEPT_MS,
        self->host, self->boot_id, pid, start, self->user, self->command, since,
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        redis_command_add(&call.rest, words[i]);

    redisReply *reply;
    /* The lease counts from here: connecting is not part of it. */
    enum lock_result result = redis_conn_open(&redis->conn, !redis->leased, bound, why);
    struct deadline before = deadline_now();
    if (result == LOCK_OK)
        result = run_script(redis, &call, &reply, bound, why);
    if (result == LOCK_OK) {
        result = read_take(redis, reply, request, before, lease, holder, why);
        freeReplyObject(reply);
    } else if (redis->conn.sent) {
        backend->uncertain = true;
        if (redis->conn.greeting_failed)
            undo_take(redis, request, bound);
    }
    return end_call(redis, result, why);
}

/* --- check and release --------------------------------------------------- */

/* Runs a script that may be run twice. Where a connection that has been idle
 * turns out to be broken, it is made anew at once: what was asked is urgent. */
static enum lock_result run_script_again(struct redis_backend *redis, const struct script_call *call, redisReply **reply,
                                         struct bound bound, struct why *why)
{
    bool reused = redis->conn.fd >= 0;
    enum lock_result result = run_script(redis, call, reply, bound, why);
    if (result == LOCK_UNAVAILABLE && reused && redis->conn.fd < 0 && !deadline_passed(bound.until))
        result = run_script(redis, call, reply, bound, why);
    return result;
}

static enum lock_result gone(const struct lease *lease, const char *word, struct why *why)
{
    why_set(why, strcmp(word, "gone") == 0 ? "the key %s is gone" : "the key %s has another owner", lease->key);
    return LOCK_GONE;
}

static enum lock_result read_check(struct redis_backend *redis, const redisReply *reply, struct deadline before,
                                   struct lease *lease, struct why *why)
{
    int64_t left_ms;
    if (answer_is(reply, "gone", 1) || answer_is(reply, "other", 1))
        return gone(lease, reply->element[0]->str, why);
    if (!answer_is(reply, "ours", 2) || !left_of(reply->element[1], -1, &left_ms))
        return bad_answer(redis, why);
    /* Without an expiry, which somebody took away, our own deadline stands. */
    if (left_ms >= 0)
        lease_adopt(lease, before, deadline_now(), (struct duration){left_ms * NS_PER_MS});
    return LOCK_OK;
}

/* Runs a script that answers as check.lua does. */
static enum lock_result run_check(struct redis_backend *redis, const struct script_call *call, struct lease *lease,
                                  struct bound bound, struct why *why)
{
    redisReply *reply;
    struct deadline before = deadline_now();
    enum lock_result result = run_script_again(redis, call, &reply, bound, why);
    if (result == LOCK_OK) {
        result = read_check(redis, reply, before, lease, why);
        freeReplyObject(reply);
    }
    return end_call(redis, result, why);
}

static enum lock_result redis_check(struct backend *backend, struct lease *lease, struct bound bound, struct why *why)
{
    struct redis_backend *redis = redis_of(backend);
    struct script_call call = {.script = &script_check, .arm = redis->watched};
    add_lease(redis, &call.rest, lease);
    return run_check(redis, &call, lease, bound, why);
}

static enum lock_result redis_extend(struct backend *backend, struct lease *lease, struct bound bound, struct why *why)
{
    struct redis_backend *redis = redis_of(backend);
    struct script_call call = {.script = &script_extend, .arm = redis->watched};
    char ttl[24];
    snprintf(ttl, sizeof ttl, "%" PRId64, lease->ttl.ns / NS_PER_MS);
    add_lease(redis, &call.rest, lease);
    redis_command_add(&call.rest, ttl);
    redis_command_add(&call.rest, META_KEPT_MS);
    return run_check(redis, &call, lease, bound, why);
}

static enum lock_result redis_release(struct backend *backend, const struct lease *lease, struct bound bound, struct why *why)
{
    struct redis_backend *redis = redis_of(backend);
    struct script_call call = {.script = &script_release};
    struct release_numbers numbers = {"", ""};
    add_release(redis, &call.rest, lease, &numbers);

    redisReply *reply;
    enum lock_result result = run_script_again(redis, &call, &reply, bound, why);
    if (result == LOCK_OK) {
        if (answer_is(reply, "gone", 1) || answer_is(reply, "other", 1))
            result = gone(lease, reply->element[0]->str, why);
        else if (!answer_is(reply, "released", 1))
            result = bad_answer(redis, why);
        freeReplyObject(reply);
    }
    return end_call(redis, result, why);
}

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
        .news = redis_news,
        .close = redis_close,
    };
    *backend = &redis->base;
    return LOCK_OK;
}
