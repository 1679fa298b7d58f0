#include "store/redis/backend.h"

#include "redis/tls.h"
#include "store/redis/redis_int.h"
#include "util/text.h"

#include <stdlib.h>
#include <string.h>

/* --- check, extend, release ---------------------------------------------- */

/* Reads the reply {"gone" or "other", reason} or {"released", anything}. The reason is "forced
 * USER@HOST" (removed by force), "late" (the lease ended before the release arrived), "ended" (the
 * lease ended, or another client removed the key) or "". Returns LOCK_OK for any other reply. */
static enum lock_result read_loss(const redisReply *reply, const struct lease *lease,
                                  struct errmsg *why)
{
    static const char forced[] = "forced ";
    const char *key = lease->key;
    bool gone = redis_reply_is(reply, "gone", 2), other = redis_reply_is(reply, "other", 2);
    const char *how = gone || other ? redis_reply_text(reply->element[1]) : "";
    if (strncmp(how, forced, strlen(forced)) == 0) {
        lock_forced(why, how + strlen(forced));
        return gone ? LOCK_GONE : LOCK_FOREIGN;
    }
    if (strcmp(how, "late") == 0)
        return errmsg_fail(why, LOCK_ENDED, "the lease had ended when the release arrived");
    if (gone) {
        bool ended = lease->outside && strcmp(how, "ended") == 0;
        return errmsg_fail(why, LOCK_GONE, "the key %s is gone%s", key,
                           ended ? ": the lease has ended, or another client has removed the key"
                                 : "");
    }
    if (other)
        return errmsg_fail(why, LOCK_FOREIGN, "the key %s is held under another owner token", key);
    if (redis_reply_is(reply, "released", 2))
        return errmsg_fail(why, LOCK_RELEASED, "already released");
    return LOCK_OK;
}

/* The reply {"ours", left, end, mode, slots, slot}: see say_ours() in
 * store/redis/scripts/holders.lua. */
struct standing {
    int64_t left_ms, end_ms;
    enum lock_mode mode;
    int slots, slot;
};

static const struct field of_standing[] = {
    FIELD(standing, "left", NULL, FIELD_MS, -1, left_ms),
    FIELD(standing, "end", NULL, FIELD_TIME, -1, end_ms),
    FIELD(standing, "mode", NULL, FIELD_MODE, 0, mode),
    FIELD(standing, "slots", NULL, FIELD_INT, 0, slots),
    FIELD(standing, "slot", NULL, FIELD_INT, -1, slot),
};
static const struct fields standing_fields = FIELDS(of_standing);
static const struct fields brief_fields = {of_standing, 2}; /* the reply of share.lua */

/* Reads the reply to a check of a lease that must last for at least `least`. Returns LOCK_HELD if
 * share.lua could not decide; the caller must then run check.lua. */
static enum lock_result read_check(struct redis_backend *redis, struct deadline before,
                                   struct duration least, struct lease *lease, struct errmsg *why)
{
    const redisReply *reply = redis->call->reply;
    struct standing standing = {.mode = lease->mode, .slots = lease->slots, .slot = lease->slot};
    enum lock_result result = read_loss(reply, lease, why);
    if (result != LOCK_OK)
        return result;
    if (redis_reply_is(reply, "unclear", 1))
        return LOCK_HELD;

    bool brief = redis_reply_is(reply, "ours", 1 + brief_fields.count);
    const struct fields *fields = brief ? &brief_fields : &standing_fields;
    if (!redis_reply_is(reply, "ours", 1 + fields->count) ||
        reply->element[1]->type != REDIS_REPLY_INTEGER ||
        !redis_fields_read(fields, reply->element + 1, &standing))
        return redis_conn_nonsense(&redis->conn, why);

    lease->mode = standing.mode;
    lease->slots = standing.slots;
    lease->slot = standing.slot;
    /* If another client has removed the expiry, this process keeps to its own deadline. */
    if (standing.left_ms >= 0)
        lease_adopt(lease, before, deadline_now(), (struct duration){standing.left_ms * NS_PER_MS},
                    standing.end_ms);
    lease_extend(lease, before, least);
    return LOCK_OK;
}

/* Runs a script whose answers have the form of store/redis/scripts/check.lua. */
static enum lock_result run_check(struct redis_backend *redis, struct duration least,
                                  struct lease *lease, struct bound bound, struct errmsg *why)
{
    struct deadline before = deadline_now();

    enum lock_result result = redis_script_run_again(redis, bound, why);
    if (result == LOCK_OK)
        result = read_check(redis, before, least, lease, why);
    if (redis->watched && result == LOCK_OK)
        redis_sentinel_attend(redis, bound);
    return redis_script_end(redis, result, why);
}

/* Begins a script about a lease. For an exclusive lock of this process, the script gets only two
 * keys, because the server watches each key that a script gets, and reports its changes. */
static struct redis_call *begin_check(struct redis_backend *redis,
                                      const struct redis_script *script, const struct lease *lease)
{
    bool owned = !lease->outside && lease->mode == MODE_EXCLUSIVE;
    struct redis_call *call = redis_script_begin(redis, script, owned ? KEYS_OWNED : KEYS_WATCHED,
                                                 lease->key, lease->token);

    redis_script_is_about(call, lease);
    call->channels.touches = redis->watched;
    redis_command_add(&call->words, lease->token);
    redis_command_add(&call->words, lease->take_id);
    return call;
}

static enum lock_result redis_check(struct backend *backend, struct lease *lease,
                                    struct bound bound, struct errmsg *why)
{
    struct redis_backend *redis = redis_of(backend);

    if (lease->mode != MODE_EXCLUSIVE) {
        struct redis_call *call =
            redis_script_begin(redis, &redis_share_script, KEYS_SHARE, lease->key, lease->token);
        call->channels.touches = redis->watched;
        redis_command_add(&call->words, lease->take_id);
        enum lock_result result = run_check(redis, DURATION_ZERO, lease, bound, why);
        if (result != LOCK_HELD)
            return result;
    }
    begin_check(redis, &redis_check_script, lease);
    return run_check(redis, DURATION_ZERO, lease, bound, why);
}

/* True if the call could affect another lock. If SELECT is refused, the script would run in
 * database 0, where another lock may have the same user-chosen token. */
static bool may_hit_another(const struct redis_backend *redis, const struct lease *lease)
{
    return lease->outside && redis->url.database != 0;
}

static enum lock_result redis_extend(struct backend *backend, struct lease *lease,
                                     enum extend_how how, struct bound bound, struct errmsg *why)
{
    struct redis_backend *redis = redis_of(backend);
    struct redis_call *call = begin_check(redis, &redis_extend_script, lease);

    call->careful = may_hit_another(redis, lease);
    redis_script_add_number(call, lease->ttl.ns / NS_PER_MS);
    redis_command_add(&call->words, how == EXTEND_EXACTLY ? "1" : "");
    return run_check(redis, lease->ttl, lease, bound, why);
}

static enum lock_result redis_raise_fence(struct backend *backend, struct lease *lease,
                                          struct bound bound, struct errmsg *why)
{
    struct redis_backend *redis = redis_of(backend);

    redis_script_add_number(begin_check(redis, &redis_check_script, lease), lease->fence);
    return run_check(redis, DURATION_ZERO, lease, bound, why);
}

/* Adds a request id to a call that has no take id. Without an id, a call that is sent again could
 * affect the next holder. */
static void add_request(struct redis_backend *redis)
{
    if (redis->request[0] == '\0')
        token_make(redis->request);
    redis_command_add(&redis->call->words, redis->request);
}

/* Reads the reply {"released", "now"}, which may have a third element that says what could not be
 * written. Leaves any other reply to read_loss(). */
static enum lock_result read_release(struct redis_backend *redis, const struct lease *lease,
                                     struct errmsg *why)
{
    const redisReply *reply = redis->call->reply;
    bool unwritten = redis_reply_is(reply, "released", 3);

    if ((unwritten || redis_reply_is(reply, "released", 2)) &&
        strcmp(redis_reply_text(reply->element[1]), "now") == 0) {
        if (unwritten) {
            (void)redis_error_judge(&redis->url, redis_reply_text(reply->element[2]),
                                    &redis->unwritten);
            errmsg_prefix(&redis->unwritten, redis->url.shown);
            redis->base.warning = redis->unwritten.text;
        }
        return LOCK_OK;
    }

    enum lock_result result = read_loss(reply, lease, why);
    if (result == LOCK_OK)
        return redis_conn_nonsense(&redis->conn, why);
    return result == LOCK_RELEASED && redis->release_sent ? LOCK_OK : result;
}

/* If the reply to a release is lost, dlock sends the release again, and learns the result of the
 * first attempt. */
static enum lock_result redis_release(struct backend *backend, const struct lease *lease,
                                      struct bound bound, struct errmsg *why)
{
    struct redis_backend *redis = redis_of(backend);
    struct redis_call *call = redis_release_begin(redis, lease);

    if (lease->outside)
        add_request(redis);
    call->careful = may_hit_another(redis, lease);
    /* Once the lease has ended, this process does not wait long for a reply, so it may exit before
     * the server carries out the release. Near the end of the lease, the script is therefore sent
     * as text: after EVALSHA, the server might first ask for the text. The whole release must fit
     * into the server's first read of 16 kB, because the server stops reading when it replies to
     * the greeting and finds the connection closed. */
    call->by_text = redis->base.uncertain ||
                    (!lease->outside && deadline_left(lease->deadline).ns < 5 * NS_PER_S);
    redis->conn.sent = false;
    redis->base.warning = NULL;

    enum lock_result result = redis_script_run_again(redis, bound, why);
    redis->release_sent =
        redis->release_sent || call->sent_before || (result != LOCK_OK && redis->conn.sent);
    if (result == LOCK_OK)
        result = read_release(redis, lease, why);
    return redis_script_end(redis, result, why);
}

/* --- looking ------------------------------------------------------------- */

static enum lock_result run_look(struct redis_backend *redis, const char *key,
                                 struct lock_state *state, struct bound bound, struct errmsg *why)
{
    struct redis_call *call = redis->call;

    if (redis->base.queued) /* keep the subscriptions of a waiter, which must still be notified */
        call->channels = redis_subscribe_to(&redis->conn);

    enum lock_result result = redis_script_run_again(redis, bound, why);
    if (result == LOCK_OK)
        result = redis_state_read(redis, key, state, why);
    if (call->newer > 0)
        state->newer = call->newer;
    state->unusable = call->unusable;
    return redis_script_end(redis, result, why);
}

static enum lock_result redis_look(struct backend *backend, const char *key,
                                   struct lock_state *state, struct bound bound, struct errmsg *why)
{
    struct redis_backend *redis = redis_of(backend);

    redis_script_begin(redis, &redis_look_script, KEYS_ALL, key, "");
    return run_look(redis, key, state, bound, why);
}

static enum lock_result redis_force_release(struct backend *backend, const char *key,
                                            struct lock_state *was, struct bound bound,
                                            struct errmsg *why)
{
    struct redis_backend *redis = redis_of(backend);
    struct redis_call *call = redis_script_begin(redis, &redis_force_script, KEYS_ALL, key, "");
    char forcer[FORCER_SIZE];

    lock_forcer(forcer);
    call->careful = true; /* if SELECT is refused, the call would affect a lock in another
                           * database */
    redis_script_add_number(call, wall_now_ms());
    add_request(redis);
    redis_command_add(&call->words, forcer);
    return run_look(redis, key, was, bound, why);
}

static enum lock_result redis_pause(struct backend *backend, const char *key,
                                    const struct pause *pause, struct bound bound,
                                    struct errmsg *why)
{
    struct redis_backend *redis = redis_of(backend);
    struct redis_call *call = redis_script_begin(redis, &redis_pause_script, KEYS_ALL, key, "");

    call->careful = true; /* if SELECT is refused, the call would affect a lock in another
                           * database */
    redis_script_add_number(call, pause->left.ns / NS_PER_MS);
    redis_command_add(&call->words, pause->by);
    redis_command_add(&call->words, pause->message);
    add_request(redis);

    enum lock_result result = redis_script_run_again(redis, bound, why);
    if (result == LOCK_OK && redis_reply_is(call->reply, "none", 1))
        result = errmsg_fail(why, LOCK_GONE, "the lock is not paused");
    else if (result == LOCK_OK && !redis_reply_is(call->reply, "done", 1))
        result = redis_conn_nonsense(&redis->conn, why);
    return redis_script_end(redis, result, why);
}

/* --- news -------------------------------------------------------------------- */

/* The descriptor also becomes readable when the connection ends. */
static struct news redis_news(struct backend *backend)
{
    struct redis_backend *redis = redis_of(backend);
    redis->watched = true;
    bool moved = redis_sentinel_moved(redis);
    struct news news = {
        .fd = -1,
        .cannot = redis->conn.listening.no_touches ? redis->conn.listening.why_touches.text : NULL};
    if (redis_subscribe_to(&redis->conn).touches)
        news =
            (struct news){.fd = redis->conn.socket.fd, .due = redis_conn_has_unread(&redis->conn)};
    news.due = news.due || moved;
    news.fd = redis_sentinel_join(redis, news.fd);
    news.by = redis_sentinel_asks(redis);
    return news;
}

static void redis_close(struct backend *backend)
{
    struct redis_backend *redis = redis_of(backend);
    redis_conn_free(&redis->conn);
    redis_sentinel_free(redis);
    if (redis->owns_tls)
        redis_tls_close(redis->settings.tls);
    free(redis->cluster);
    freeReplyObject(redis->call->reply);
    free(redis->call);
    explicit_bzero(&redis->url, sizeof redis->url);
    free(redis);
}

static redis_open_node open_node;

static enum lock_result redis_list(struct backend *backend, const struct listing *listing,
                                   struct bound bound, struct errmsg *why)
{
    return redis_list_with(open_node, redis_of(backend), listing, bound, why);
}

static struct redis_backend *make(const struct redis_url *url,
                                  const struct redis_settings *settings)
{
    struct redis_backend *redis = calloc(1, sizeof *redis);
    struct redis_call *call = calloc(1, sizeof *call);
    if (redis == NULL || call == NULL) {
        free(redis);
        free(call);
        return NULL;
    }
    redis->call = call;
    redis->base = (struct backend){
        .kind = "redis",
        .poll_least = DURATION_MS(250),
        .take = redis_take,
        .listen = redis_listen,
        .check = redis_check,
        .extend = redis_extend,
        .raise_fence = redis_raise_fence,
        .release = redis_release,
        .look = redis_look,
        .force_release = redis_force_release,
        .pause = redis_pause,
        .list = redis_list,
        .news = redis_news,
        .close = redis_close,
    };
    redis->url = *url;
    redis->settings = *settings;
    redis_conn_init(&redis->conn, &redis->url, &redis->settings);
    redis->conn.socket.is_crowded = settings->one_of_several;
    redis->conn.on_message = redis_hear;
    redis->conn.message_data = redis;
    return redis;
}

enum lock_result redis_backend_open(struct backend **backend, const struct redis_url *url,
                                    const struct redis_settings *settings, enum redis_fault *fault,
                                    struct errmsg *why)
{
    struct redis_backend *redis = make(url, settings);
    *fault = REDIS_FAULT_URL;
    if (redis == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    enum lock_result result = redis_login_find(&redis->url, settings, fault, why);
    redis->owns_tls = true;
    if (result == LOCK_OK && redis->url.tls)
        result = redis_tls_open(&redis->settings.tls, settings, fault, why);
    if (result == LOCK_OK)
        result = redis_sentinel_init(redis, fault, why);
    if (result != LOCK_OK)
        redis_close(&redis->base);
    else
        *backend = &redis->base;
    return result;
}

static enum lock_result open_node(struct redis_backend **node, const struct redis_backend *first,
                                  const struct redis_endpoint *at, struct errmsg *why)
{
    char place[ENDPOINT_TEXT_SIZE];
    struct redis_backend *redis = make(&first->url, &first->settings);
    if (redis == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    redis->url.hosts[0] = *at;
    redis->url.host_count = 1;
    snprintf(redis->url.shown, sizeof redis->url.shown, "redis%s+cluster://%s",
             redis->url.tls ? "s" : "", redis_endpoint_format(at, place));
    redis_conn_go_to(&redis->conn, at);
    *node = redis;
    return LOCK_OK;
}

/* --- for --doctor ---------------------------------------------------------- */

void redis_backend_shows(struct backend *backend, const struct redis_url **url,
                         const struct redis_settings **settings)
{
    *url = &redis_of(backend)->url;
    *settings = &redis_of(backend)->settings;
}

/* A server that refuses to answer is assumed to be the right one, because other checks of --doctor
 * report such refusals. */
enum lock_result redis_backend_find(struct backend *backend, const char *key,
                                    struct redis_endpoint *at, struct bound bound,
                                    struct errmsg *why)
{
    struct redis_backend *redis = redis_of(backend);
    enum lock_result result = redis_topology_open(redis, key, bound, why);

    if (result == LOCK_OK && redis->url.topology == REDIS_CLUSTER) {
        redis_script_begin(redis, &redis_look_script, KEYS_ALL, key, "");
        result = redis_script_run(redis, bound, why);
        if (result == LOCK_REFUSED || result == LOCK_INVALID || redis->conn.greeting_failed)
            result = LOCK_OK;
    }
    *at = redis->conn.at;
    if (redis->conn.greeting_failed)
        redis_conn_close(&redis->conn);
    return result;
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
