#include "store/redis/look.h"

#include "redis/reply.h"
#include "store/redis/topology.h"
#include "util/text.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- one lock ------------------------------------------------------------ */

/* Indexes into the answers of store/redis/scripts/state.lua. */
enum {
    MODE = 1,
    SLOTS,
    WAITERS,
    QUEUE,
    FENCE,
    LAST_OWNER,
    RELEASED,
    PAUSE,
    COUNTS = PAUSE + 3,
    RUN = COUNTS + 6,
    SUCCESS,
    FAILURES,
    RUNS,
    SKIPPED,
    OWNERS,
    STATE_SIZE
};
enum { TOKEN, LEFT, SLOT, HOLD, HOLDER, OWNER_SIZE };
enum {
    TAKE,
    HOST,
    BOOT,
    PID,
    START,
    SPACE,
    USER,
    COMMAND,
    SINCE,
    MESSAGE,
    DETACHED,
    KEPT,
    ITS_FENCE,
    TTL,
    HOLDER_SIZE
};

void redis_holder_read(const redisReply *reply, int64_t left_ms, struct holder *holder)
{
    int64_t pid;
    redisReply *const *from = reply->element;
    *holder =
        (struct holder){.expires = left_ms >= 0, .left = {left_ms >= 0 ? left_ms * NS_PER_MS : 0}};
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != HOLDER_SIZE)
        return;
    text_copy(holder->take_id, sizeof holder->take_id, redis_reply_text(from[TAKE]));
    if (redis_reply_text(from[PID])[0] == '\0' ||
        !redis_reply_number(from[PID], 0, INT32_MAX, &pid) ||
        !redis_reply_number(from[START], 0, INT64_MAX, &holder->pid_start) ||
        !redis_reply_number(from[SPACE], 0, INT64_MAX, &holder->pid_space) ||
        !redis_reply_clamped(from[SINCE], &holder->since_wall_ms))
        return; /* another client wrote into it */
    holder->known = true;
    holder->pid = (pid_t)pid;
    text_copy(holder->host, sizeof holder->host, redis_reply_text(from[HOST]));
    text_copy(holder->boot_id, sizeof holder->boot_id, redis_reply_text(from[BOOT]));
    text_copy(holder->user, sizeof holder->user, redis_reply_text(from[USER]));
    text_copy(holder->command, sizeof holder->command, redis_reply_text(from[COMMAND]));
    text_copy(holder->message, sizeof holder->message, redis_reply_text(from[MESSAGE]));
    holder->detached = redis_reply_text(from[DETACHED])[0] == '1';
    holder->kept = redis_reply_text(from[KEPT])[0] != '\0';
}

static bool read_owner(const redisReply *reply, struct lock_owner *owner)
{
    struct holder *holder = &owner->holder;
    int64_t left_ms, slot, hold_ms, ttl_ms;
    redisReply *const *from = reply->element;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != OWNER_SIZE ||
        !redis_reply_left(from[LEFT], -2, &left_ms) ||
        !redis_reply_number(from[SLOT], -1, INT32_MAX, &slot))
        return false;
    text_copy(owner->token, sizeof owner->token, redis_reply_text(from[TOKEN]));
    redis_holder_read(from[HOLDER], left_ms, holder);
    holder->known =
        holder->known && redis_reply_clamped(from[HOLD], &hold_ms) &&
        redis_reply_number(from[HOLDER]->element[ITS_FENCE], 0, INT64_MAX, &owner->fence) &&
        redis_reply_clamped(from[HOLDER]->element[TTL], &ttl_ms);
    if (!holder->known)
        return true; /* the lock is still held */
    owner->slot = (int)slot;
    owner->ttl.ns = ttl_ms * NS_PER_MS;
    owner->hold_left.ns = hold_ms * NS_PER_MS;
    return true;
}

/* A lock that dlock never had has no such number; a value that is no number, written
 * there by another client, counts as 0. */
static int64_t number_or_zero(const redisReply *element)
{
    int64_t number;
    return redis_reply_clamped(element, &number) ? number : 0;
}

bool redis_pause_read(redisReply *const *from, struct pause *pause)
{
    bool good = redis_fields_read(&pause_fields, from, pause);

    if (!good || pause->left.ns == 0)
        *pause = (struct pause){.left = DURATION_ZERO};
    return good;
}

/* For people alone: what cannot be read is left out. False if memory is short. */
static bool read_queue(const redisReply *reply, struct lock_state *state)
{
    size_t count = reply->type == REDIS_REPLY_ARRAY ? reply->elements : 0;
    state->queue = count > 0 ? calloc(count, sizeof *state->queue) : NULL;
    if (count > 0 && state->queue == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        const redisReply *from = reply->element[i];
        struct lock_waiter *waiter = &state->queue[state->queue_count];
        int64_t pid, slots;
        if (from->type != REDIS_REPLY_ARRAY || from->elements != 7 ||
            !redis_reply_number(from->element[1], 0, INT32_MAX, &pid) ||
            !redis_reply_clamped(from->element[4], &waiter->since_wall_ms) ||
            !lock_mode_parse(redis_reply_text(from->element[5]), &waiter->mode) ||
            !redis_reply_number(from->element[6], 0, INT32_MAX, &slots))
            continue;
        text_copy(waiter->host, sizeof waiter->host, redis_reply_text(from->element[0]));
        waiter->pid = (pid_t)pid;
        text_copy(waiter->user, sizeof waiter->user, redis_reply_text(from->element[2]));
        text_copy(waiter->message, sizeof waiter->message, redis_reply_text(from->element[3]));
        waiter->slots = (int)slots;
        state->queue_count++;
    }
    return true;
}

enum lock_result redis_state_read(struct redis_backend *redis, const redisReply *reply,
                                  const char *key, struct lock_state *state, struct errmsg *why)
{
    int64_t waiters, slots;
    if (!redis_reply_is(reply, "lock", STATE_SIZE) ||
        !redis_reply_number(reply->element[WAITERS], -1, INT32_MAX, &waiters) ||
        reply->element[OWNERS]->type != REDIS_REPLY_ARRAY)
        return redis_conn_nonsense(&redis->conn, why);
    const redisReply *owners = reply->element[OWNERS];
    if (!lock_state_init(state, key, owners->elements) ||
        !read_queue(reply->element[QUEUE], state)) {
        lock_state_free(state);
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    }
    for (size_t i = 0; i < state->owner_count; i++) {
        if (!read_owner(owners->element[i], &state->owners[i])) {
            lock_state_free(state);
            return redis_conn_nonsense(&redis->conn, why);
        }
    }
    /* The last of those who share it may have ended in this millisecond. */
    if (!state->locked || !lock_mode_parse(redis_reply_text(reply->element[MODE]), &state->mode))
        state->mode = MODE_EXCLUSIVE;
    if (state->mode == MODE_SLOTS &&
        redis_reply_number(reply->element[SLOTS], 0, INT32_MAX, &slots))
        state->slots = (int)slots;
    state->waiters = (int)waiters;
    if (!redis_reply_number(reply->element[FENCE], 0, INT64_MAX, &state->last_fence))
        state->last_fence = 0;
    state->released_wall_ms = number_or_zero(reply->element[RELEASED]);
    text_copy(state->last_owner, sizeof state->last_owner,
              redis_reply_text(reply->element[LAST_OWNER]));
    (void)redis_pause_read(reply->element + PAUSE, &state->pause);
    (void)redis_fields_read(&counts_fields, reply->element + COUNTS, &state->counts);
    struct run_memory *memory = &state->memory;
    (void)run_record_read(&memory->last, redis_reply_text(reply->element[RUN]));
    (void)run_record_read(&memory->success, redis_reply_text(reply->element[SUCCESS]));
    memory->failures = number_or_zero(reply->element[FAILURES]);
    memory->runs = number_or_zero(reply->element[RUNS]);
    memory->skipped = number_or_zero(reply->element[SKIPPED]);
    return LOCK_OK;
}

/* --- all locks ----------------------------------------------------------- */

/* Keys that a step of SCAN looks at: some 100 us of the server's time. */
static const char scan_count[] = "1000";

/* Far more than any user has: a thousand million keys to look at, a million to list. */
enum { STEPS_MOST = 1 << 20, KEYS_MOST = 1 << 20 };

/* The user's own prefix is not a pattern. */
static void glob_of_prefix(const char *prefix, char *glob, size_t size)
{
    size_t used = 0;
    for (; *prefix != '\0' && used + 4 < size; prefix++) {
        if (strchr("*?[]\\^-", *prefix) != NULL)
            glob[used++] = '\\';
        glob[used++] = *prefix;
    }
    glob[used++] = '*';
    glob[used] = '\0';
}

/* {KEY}:meta and so on (lock_key_companion()). */
static bool is_companion(const char *key)
{
    const char *colon = strrchr(key, ':');
    for (size_t i = 0; *key == '{' && colon != NULL && i < REDIS_COMPANIONS; i++)
        if (strcmp(colon + 1, redis_companion_names[i]) == 0)
            return true;
    return *key == '{' && strstr(key, ":" REDIS_OWN) != NULL;
}

/* The lock whose companion {KEY}:meta, or, if the key has a hash tag, {TAG}KEY:meta, this
 * is; false if it is none. */
static bool lock_of_meta(const char *companion, char key[LOCK_KEY_SIZE])
{
    static const char suffix[] = ":meta";
    char again[COMPANION_SIZE];
    size_t length = strlen(companion), tail = strlen(suffix);
    const char *tag_end = strchr(companion, '}');
    if (*companion != '{' || tag_end == NULL || length <= tail || length >= sizeof again ||
        strcmp(companion + length - tail, suffix) != 0)
        return false;
    int whole = (int)(length - tail - 2), rest = (int)(companion + length - tail - tag_end) - 1;
    snprintf(key, LOCK_KEY_SIZE, "%.*s", whole, companion + 1);
    lock_key_companion(again, sizeof again, key, "meta");
    if (strcmp(again, companion) == 0)
        return true;
    snprintf(key, LOCK_KEY_SIZE, "%.*s", rest, tag_end + 1);
    lock_key_companion(again, sizeof again, key, "meta");
    return strcmp(again, companion) == 0;
}

struct scan {
    char cursor[32], earlier[32];
    int steps;
    bool all;
};

/* {cursor, {key...}}: LOCK_OK with the cursor copied. */
static enum lock_result read_step(struct redis_backend *redis, const redisReply *reply,
                                  const char *prefix, const char *pattern, struct key_list *keys,
                                  struct scan *scan, struct errmsg *why)
{
    if (reply->type == REDIS_REPLY_ERROR)
        return redis_error_judge(&redis->url, reply->str, why);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[0]->len >= sizeof scan->cursor ||
        reply->element[1]->type != REDIS_REPLY_ARRAY)
        return redis_conn_nonsense(&redis->conn, why);
    text_copy(scan->cursor, sizeof scan->cursor, reply->element[0]->str);
    for (size_t i = 0; i < reply->element[1]->elements; i++) {
        char of_meta[LOCK_KEY_SIZE];
        const char *key = redis_reply_text(reply->element[1]->element[i]);
        size_t length = strlen(prefix);
        if (scan->all && lock_of_meta(key, of_meta))
            key = of_meta;
        if (strncmp(key, prefix, length) != 0 || key[length] == '\0' ||
            strlen(key) >= LOCK_KEY_SIZE || is_companion(key) ||
            (pattern != NULL && fnmatch(pattern, key + length, 0) != 0))
            continue;
        if (keys->count >= KEYS_MOST)
            return errmsg_fail(why, LOCK_SYSTEM,
                               "there are more than %d keys with the prefix %.200s", KEYS_MOST,
                               prefix);
        if (!key_list_add(keys, key))
            return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    }
    return LOCK_OK;
}

/* A cursor only ever moves on. One that repeats is found in a few rounds, as in Brent's
 * algorithm: the reference cursor is replaced at each power of two. */
static bool is_endless(struct scan *scan)
{
    scan->steps++;
    if (scan->steps > STEPS_MOST || strcmp(scan->cursor, scan->earlier) == 0)
        return true;
    if ((scan->steps & (scan->steps - 1)) == 0)
        text_copy(scan->earlier, sizeof scan->earlier, scan->cursor);
    return false;
}

enum lock_result redis_keys_find(struct redis_backend *redis, const char *prefix,
                                 const char *pattern, bool all, struct key_list *keys,
                                 struct bound bound, struct errmsg *why)
{
    char match[2 * LOCK_KEY_SIZE + 2] = "*";
    struct scan scan = {.cursor = "0", .all = all};
    glob_of_prefix(prefix, match + all, sizeof match - 1);
    enum lock_result result;
    do {
        const struct redis_command command =
            redis_words("SCAN", scan.cursor, "MATCH", match, "COUNT", scan_count);
        redisReply *reply;
        result = redis_topology_open(redis, NULL, bound, why);
        if (result == LOCK_OK)
            result = redis_conn_call(&redis->conn, &command, 1, &reply, bound, why);
        if (result == LOCK_OK) {
            result = read_step(redis, reply, prefix, pattern, keys, &scan, why);
            freeReplyObject(reply);
        }
        if (result == LOCK_OK && is_endless(&scan))
            result = errmsg_fail(why, LOCK_UNAVAILABLE, "its SCAN does not end");
    } while (result == LOCK_OK && strcmp(scan.cursor, "0") != 0);
    if (result == LOCK_OK)
        key_list_sort(keys);
    return redis_script_end(redis, result, why);
}
