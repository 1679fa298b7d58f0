#include "store/redis/redis_int.h"

#include "lock/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis/scripts/embedded.h"

const char *const redis_companion_names[REDIS_COMPANIONS] = {
    "meta", REDIS_OWN, "holders", "slots", "counts", "queue", "waiters"};

void redis_companion(char name[COMPANION_SIZE], const char *key, int i, const char *token)
{
    char part[sizeof REDIS_OWN + TOKEN_SIZE];
    const char *plain = redis_companion_names[i];
    snprintf(part, sizeof part, "%s%s", plain, strcmp(plain, REDIS_OWN) == 0 ? token : "");
    lock_key_companion(name, COMPANION_SIZE, key, part);
}

struct redis_call *redis_script_begin(struct redis_backend *redis,
                                      const struct redis_script *script, int keys, const char *key,
                                      const char *token)
{
    struct redis_call *call = redis->call;
    int first = script == &redis_share_script ? COMPANION_OWN : COMPANION_META;

    freeReplyObject(call->reply);
    *call = (struct redis_call){.script = script, .keys = keys};
    snprintf(call->count, sizeof call->count, "%d", keys);
    redis_command_add(&call->words, ""); /* EVALSHA or EVAL, set before sending */
    redis_command_add(&call->words, "");
    redis_command_add(&call->words, call->count);
    redis_command_add(&call->words, key);
    for (int i = 0; i < keys - 1; i++) {
        redis_companion(call->companions[i], key, first + i, token);
        redis_command_add(&call->words, call->companions[i]);
    }
    return call;
}

void redis_script_is_about(struct redis_call *call, const struct lease *lease)
{
    call->owns = !lease->outside;
    call->least_keys = call->owns && lease->mode == MODE_EXCLUSIVE ? KEYS_OWNED : 0;
}

void redis_script_add_number(struct redis_call *call, int64_t number)
{
    if (call->number_count >= NUMBERS_MOST)
        abort(); /* a programming error */
    char *text = call->numbers[call->number_count++];
    snprintf(text, sizeof call->numbers[0], "%" PRId64, number);
    redis_command_add(&call->words, text);
}

static void drop_reply(struct redis_call *call)
{
    freeReplyObject(call->reply);
    call->reply = NULL;
}

enum lock_result redis_script_send(struct redis_backend *redis, bool by_text, struct bound bound,
                                   struct errmsg *why)
{
    struct redis_call *call = redis->call;

    drop_reply(call);
    call->words.words[0] = by_text ? "EVAL" : "EVALSHA";
    call->words.words[1] = by_text ? call->script->text : call->script->sha1;
    enum lock_result result =
        redis_subscribe_call(&redis->conn, &call->words, call->channels, &call->reply, bound, why);
    if (result != LOCK_OK)
        call->reply = NULL;
    return result;
}

static void shed_keys(struct redis_call *call)
{
    struct redis_command *words = &call->words;
    int more = call->least_keys > 0 ? call->keys - call->least_keys : 0,
        rest = REDIS_CALL_KEY + call->keys;
    memmove(&words->words[rest - more], &words->words[rest],
            (size_t)(words->count - rest) * sizeof *words->words);
    words->count -= more;
    call->keys -= more;
    snprintf(call->count, sizeof call->count, "%d", call->keys);
}

/* --- the server --------------------------------------------------------- */

static enum lock_result open_once(struct redis_backend *redis, const char *key, struct bound bound,
                                  struct errmsg *why)
{
    switch (redis->url.topology) {
    case REDIS_SENTINEL: return redis_sentinel_open(redis, bound, why);
    case REDIS_CLUSTER: return redis_cluster_open(redis, key, bound, why);
    case REDIS_ONE: break;
    }
    return redis_conn_open(&redis->conn, bound, why);
}

enum lock_result redis_topology_open(struct redis_backend *redis, const char *key,
                                     struct bound bound, struct errmsg *why)
{
    enum lock_result result = open_once(redis, key, bound, why);
    if (result == LOCK_REFUSED && redis_conn_renew(&redis->conn))
        result = open_once(redis, key, bound, why);
    return result;
}

/* --- running a script ----------------------------------------------------- */

/* Runs the script by its digest, or by its text if the server does not know the digest yet. */
static enum lock_result run_here(struct redis_backend *redis, struct bound bound,
                                 struct errmsg *why)
{
    const struct redis_call *call = redis->call;
    struct deadline late = deadline_earlier(bound.until, deadline_after(redis->settings.timeout));
    enum lock_result result = redis_script_send(redis, call->by_text, bound, why);

    if (result == LOCK_OK && call->reply->type == REDIS_REPLY_ERROR &&
        strncmp(call->reply->str, "NOSCRIPT", 8) == 0)
        result = redis_script_send(redis, true, bound, why);

    bool failed = result != LOCK_OK && result != LOCK_CANCELLED;
    if (failed && redis->url.topology == REDIS_SENTINEL)
        redis_sentinel_failed(redis);
    if (failed && redis->url.topology == REDIS_CLUSTER)
        redis_cluster_failed(redis, deadline_passed(late), why);
    return result;
}

/* Judges an error reply. Returns LOCK_OK if the script must be run again. */
static enum lock_result judge(struct redis_backend *redis, struct redis_detour *detour,
                              struct bound bound, struct errmsg *why)
{
    const struct redis_call *call = redis->call;
    const char *key = call->words.words[REDIS_CALL_KEY];
    const char *error = call->reply->str;
    char command[32], answer[250], keys[200], companions[2 * LOCK_KEY_SIZE];
    enum lock_result result = redis->url.topology == REDIS_CLUSTER
                                  ? redis_cluster_judge(redis, key, error, detour, bound, why)
                                  : redis_error_result(error, why);

    if (result == LOCK_REFUSED) {
        lock_key_companion(companions, sizeof companions, key, "*");
        snprintf(keys, sizeof keys, "%.80s and %.80s", key, companions);
        redis_error_explain(&redis->url, call->script->text, keys, error, why);
    }
    if (result == LOCK_INVALID &&
        redis_error_command(error, call->script->text, command, sizeof command)) {
        redis_error_text(error, answer, sizeof answer);
        errmsg_set(why, "the server does not know the command %s: %s", command, answer);
    }
    /* This server is no longer the master, so dlock must look for the current master. */
    if (redis_error_is(error, "READONLY"))
        redis_conn_close(&redis->conn);
    return result;
}

/* Reads the reply {"newer", format} or {"unusable", key, what is wrong with it}. If the call is
 * about this process's lease, "newer" means that a newer dlock has acquired the lock in the
 * meantime. Returns LOCK_OK for any other reply. */
static enum lock_result read_refusal(struct redis_backend *redis, struct errmsg *why)
{
    struct redis_call *call = redis->call;
    redisReply *const *element = call->reply->element;

    if (redis_reply_is(call->reply, "unusable", 3)) {
        call->unusable = true;
        errmsg_set(why, "the key %s cannot be used: %s", redis_reply_text(element[1]),
                   redis_reply_text(element[2]));
    } else if (redis_reply_is(call->reply, "newer", 2) &&
               redis_reply_number(element[1], STORE_FORMAT + 1, INT64_MAX, &call->newer)) {
        format_newer(why, call->newer);
    } else {
        return LOCK_OK;
    }
    redis->conn.sent = false; /* the script has changed nothing */
    return call->owns && call->newer > 0 ? LOCK_FOREIGN : LOCK_INVALID;
}

/* Returns an element as text, or NULL if the element is neither a string nor an integer, or
 * contains a NUL. */
static const char *text_of(const redisReply *element, char number[24])
{
    if (element->type == REDIS_REPLY_INTEGER) {
        snprintf(number, 24, "%lld", element->integer);
        return number;
    }
    bool is_text = element->type == REDIS_REPLY_STRING && strlen(element->str) == element->len;
    return is_text ? element->str : NULL;
}

bool redis_fields_read(const struct fields *fields, redisReply *const *from, void *object)
{
    bool good = true;

    fields_clear(fields, object);
    for (size_t i = 0; i < fields->count; i++) {
        const struct field *field = &fields->list[i];
        char number[24];
        bool is_text = field->kind == FIELD_TEXT;
        const char *value = is_text ? redis_reply_text(from[i]) : text_of(from[i], number);

        if (value == NULL || !field_set(field, object, value))
            good = false;
    }
    return good;
}

static enum lock_result run_once(struct redis_backend *redis, struct bound bound,
                                 struct errmsg *why)
{
    struct redis_call *call = redis->call;
    enum lock_result result =
        redis_topology_open(redis, call->words.words[REDIS_CALL_KEY], bound, why);

    if (result == LOCK_OK && call->careful)
        result = redis_conn_call(&redis->conn, NULL, 0, NULL, bound, why);
    return result == LOCK_OK ? run_here(redis, bound, why) : result;
}

enum lock_result redis_script_run(struct redis_backend *redis, struct bound bound,
                                  struct errmsg *why)
{
    struct redis_call *call = redis->call;
    struct redis_detour detour = {.start = deadline_now()};

    for (;;) {
        enum lock_result result = run_once(redis, bound, why);
        /* In TLS 1.3 a server rejects the client's certificate only after the handshake, but before
         * it runs a script, so the script can be sent again. */
        if (result == LOCK_REFUSED && redis_conn_renew(&redis->conn))
            continue;
        if (result != LOCK_OK)
            return result;

        const redisReply *reply = call->reply;
        if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
            reply->element[0]->type == REDIS_REPLY_STRING)
            return read_refusal(redis, why);
        result = reply->type == REDIS_REPLY_ERROR ? judge(redis, &detour, bound, why)
                                                  : redis_conn_nonsense(&redis->conn, why);
        if (result != LOCK_OK)
            return result;
        if (detour.pause.ns > 0)
            shed_keys(call);
    }
}

enum lock_result redis_script_run_again(struct redis_backend *redis, struct bound bound,
                                        struct errmsg *why)
{
    bool reused = redis->conn.socket.fd >= 0;
    unsigned lessons = redis->conn.lessons;
    enum lock_result result = redis_script_run(redis, bound, why);

    if (result == LOCK_UNAVAILABLE && (reused || redis->conn.lessons != lessons) &&
        redis->conn.socket.fd < 0 && !deadline_passed(bound.until)) {
        redis->call->sent_before = redis->conn.sent;
        result = redis_script_run(redis, bound, why);
    }
    return result;
}

enum lock_result redis_command_run(struct redis_backend *redis, const struct redis_command *command,
                                   struct bound bound, struct errmsg *why)
{
    redisReply *reply = NULL;
    enum lock_result result = redis_topology_open(redis, NULL, bound, why);

    drop_reply(redis->call);
    if (result == LOCK_OK)
        result = redis_conn_call(&redis->conn, command, 1, &reply, bound, why);
    if (result != LOCK_OK)
        return result;
    redis->call->reply = reply;
    if (reply->type == REDIS_REPLY_ERROR)
        result = redis_error_judge(&redis->url, reply->str, why);
    return result;
}

enum lock_result redis_script_end(struct redis_backend *redis, enum lock_result result,
                                  struct errmsg *why)
{
    drop_reply(redis->call);
    if (redis->conn.greeting_failed)
        redis_conn_close(&redis->conn);
    if (result != LOCK_OK && result != LOCK_HELD && result != LOCK_CANCELLED)
        errmsg_prefix(why, redis->url.shown);
    return result;
}
