#include "store/redis/redis_int.h"

#include "util/text.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- one lock ------------------------------------------------------------ */

/* The reply of store/redis/scripts/state.lua consists of "lock", these fields, the fields of the
 * counts and of the memory of runs, the last run, the last success, the history, the waiters and
 * the owners. */
static const struct field of_state[] = {
    FIELD(lock_state, "mode", NULL, FIELD_MODE, 0, mode),
    FIELD(lock_state, "slots", NULL, FIELD_INT, 0, slots),
    FIELD(lock_state, "waiters", NULL, FIELD_INT, -1, waiters),
    FIELD(lock_state, "fence", NULL, FIELD_NUMBER, 0, last_fence),
    FIELD(lock_state, "last_owner", NULL, FIELD_TEXT, 0, last_owner),
    FIELD(lock_state, "released", NULL, FIELD_TIME, 0, released_wall_ms),
    FIELD(lock_state, "paused", NULL, FIELD_DURATION, 0, pause.left),
    FIELD(lock_state, "paused_by", NULL, FIELD_TEXT, 0, pause.by),
    FIELD(lock_state, "pause_why", NULL, FIELD_TEXT, 0, pause.message),
};
static const struct fields state_fields = FIELDS(of_state);

/* An owner in the reply of state.lua: {token, rest of the lease, rest of the hold
 * (--hold-at-least), record}. */
static const struct field of_owner[] = {
    FIELD(lock_owner, "token", NULL, FIELD_TEXT, 0, token),
    FIELD(lock_owner, "left", NULL, FIELD_DURATION, -2, holder.left),
    FIELD(lock_owner, "hold", NULL, FIELD_DURATION, 0, hold_left),
};
static const struct fields held_fields = FIELDS(of_owner);

void redis_holder_read(const redisReply *record, struct holder *holder)
{
    holder->expires = holder->left.ns >= 0;
    holder->left = duration_max(holder->left, DURATION_ZERO);
    holder->known =
        fields_read(&holder_fields, holder, redis_reply_text(record)) && holder->pid > 0;
}

static bool read_owner(const redisReply *reply, struct lock_owner *owner)
{
    size_t last = held_fields.count;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != last + 1 ||
        reply->element[1]->type != REDIS_REPLY_INTEGER ||
        !redis_fields_read(&held_fields, reply->element, owner))
        return false;
    redis_holder_read(reply->element[last], &owner->holder);
    (void)fields_read(&owner_fields, owner, redis_reply_text(reply->element[last]));
    return true;
}

/* Reads the waiters. Fields that cannot be read stay empty, because the queue is only shown to
 * people. Returns false if memory is exhausted. */
static bool read_queue(const redisReply *reply, struct lock_state *state)
{
    size_t count = reply->type == REDIS_REPLY_ARRAY ? reply->elements : 0;

    state->queue = count > 0 ? calloc(count, sizeof *state->queue) : NULL;
    if (count > 0 && state->queue == NULL)
        return false;
    state->queue_count = count;
    for (size_t i = 0; i < count; i++)
        (void)fields_read(&waiter_fields, &state->queue[i], redis_reply_text(reply->element[i]));
    return true;
}

static bool read_owners(const redisReply *reply, struct lock_state *state)
{
    for (size_t i = 0; i < state->owner_count; i++)
        if (!read_owner(reply->element[i], &state->owners[i]))
            return false;
    return true;
}

enum lock_result redis_state_read(struct redis_backend *redis, const char *key,
                                  struct lock_state *state, struct errmsg *why)
{
    const redisReply *reply = redis->call->reply;
    enum { RUN, SUCCESS, HISTORY, QUEUE, OWNERS, LISTS };
    struct run_memory *memory = &state->memory;
    size_t lists = 1 + state_fields.count + counts_fields.count + memory_fields.count;
    redisReply *const *from = reply->element + lists;

    if (!redis_reply_is(reply, "lock", lists + LISTS) || from[OWNERS]->type != REDIS_REPLY_ARRAY)
        return redis_conn_nonsense(&redis->conn, why);
    if (!lock_state_init(state, key, from[OWNERS]->elements) || !read_queue(from[QUEUE], state)) {
        lock_state_free(state);
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    }
    if (!read_owners(from[OWNERS], state)) {
        lock_state_free(state);
        return redis_conn_nonsense(&redis->conn, why);
    }

    /* These values are missing if dlock has never held the lock. Invalid values that another client
     * has written are ignored, too. */
    from = reply->element + 1;
    (void)redis_fields_read(&state_fields, from, state);
    from += state_fields.count;
    (void)redis_fields_read(&counts_fields, from, &state->counts);
    from += counts_fields.count;
    (void)redis_fields_read(&memory_fields, from, memory);
    from += memory_fields.count;
    (void)fields_read_row(&run_fields, &memory->last, redis_reply_text(from[RUN]));
    (void)fields_read_row(&run_fields, &memory->success, redis_reply_text(from[SUCCESS]));
    text_copy(memory->history, sizeof memory->history, redis_reply_text(from[HISTORY]));

    /* If all shared leases have ended, the lock is free, although its key may still exist. */
    if (!state->locked)
        state->mode = MODE_EXCLUSIVE;
    if (state->mode != MODE_SLOTS)
        state->slots = 0;
    return LOCK_OK;
}

/* --- all locks ----------------------------------------------------------- */

/* How many keys one SCAN command examines; this takes the server about 100 us. */
static const char scan_count[] = "1000";

/* Limits far beyond any real use: a billion keys to examine, a million keys to list. */
enum { STEPS_MOST = 1 << 20, KEYS_MOST = 1 << 20 };

/* Makes a glob pattern for all keys with this prefix. The prefix is not a pattern, so its special
 * characters are escaped. */
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

/* True if this is a companion key, such as {KEY}:meta (lock_key_companion()). */
static bool is_companion(const char *key)
{
    const char *colon = strrchr(key, ':');
    for (size_t i = 0; *key == '{' && colon != NULL && i < REDIS_COMPANIONS; i++)
        if (strcmp(colon + 1, redis_companion_names[i]) == 0)
            return true;
    return *key == '{' && strstr(key, ":" REDIS_OWN) != NULL;
}

/* Finds the key of the lock whose meta key is `companion`: KEY for {KEY}:meta or, if KEY has a hash
 * tag, for {TAG}KEY:meta. Returns false if `companion` is not the name of a meta key. */
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
    const struct listing *listing;
    char cursor[32];
    char earlier[32];
    int steps;
};

static bool matches(const struct listing *listing, const char *key)
{
    size_t length = strlen(listing->prefix);

    return strncmp(key, listing->prefix, length) == 0 && key[length] != '\0' &&
           strlen(key) < LOCK_KEY_SIZE && !is_companion(key) &&
           (listing->pattern == NULL || fnmatch(listing->pattern, key + length, 0) == 0);
}

/* Reads the reply {cursor, {key...}} to SCAN. Returns LOCK_OK after copying the cursor and adding
 * the matching keys to `keys`. */
static enum lock_result read_step(struct redis_backend *redis, struct scan *scan,
                                  struct key_list *keys, struct errmsg *why)
{
    const redisReply *reply = redis->call->reply;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[0]->len >= sizeof scan->cursor ||
        reply->element[1]->type != REDIS_REPLY_ARRAY)
        return redis_conn_nonsense(&redis->conn, why);

    text_copy(scan->cursor, sizeof scan->cursor, reply->element[0]->str);
    for (size_t i = 0; i < reply->element[1]->elements; i++) {
        char of_meta[LOCK_KEY_SIZE];
        const char *key = redis_reply_text(reply->element[1]->element[i]);

        if (lock_of_meta(key, of_meta)) /* a lock that is paused but free has only this key */
            key = of_meta;
        if (!matches(scan->listing, key))
            continue;
        if (keys->count >= KEYS_MOST)
            return errmsg_fail(why, LOCK_SYSTEM,
                               "there are more than %d keys with the prefix %.200s", KEYS_MOST,
                               scan->listing->prefix);
        if (!key_list_add(keys, key))
            return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    }
    return LOCK_OK;
}

/* True if the SCAN would never end. The cursor of a working SCAN never repeats. As in Brent's
 * algorithm, each cursor is compared with an earlier one, which is replaced whenever the number of
 * steps is a power of two. This finds a repetition in a few rounds. */
static bool is_endless(struct scan *scan)
{
    scan->steps++;
    if (scan->steps > STEPS_MOST || strcmp(scan->cursor, scan->earlier) == 0)
        return true;
    if ((scan->steps & (scan->steps - 1)) == 0)
        text_copy(scan->earlier, sizeof scan->earlier, scan->cursor);
    return false;
}

/* Finds and sorts the keys on this server. Uses SCAN in small steps, which do not block other
 * clients; `each` is the time limit of one step. The caller frees the keys, even after a
 * failure. */
static enum lock_result find_keys(struct redis_backend *redis, const struct listing *listing,
                                  struct key_list *keys, struct bound bound, struct duration each,
                                  struct errmsg *why)
{
    char match[2 * LOCK_KEY_SIZE + 2] = "*";
    struct scan scan = {.listing = listing, .cursor = "0"};
    enum lock_result result;

    glob_of_prefix(listing->prefix, match + 1, sizeof match - 1);
    do {
        const struct redis_command command =
            redis_words("SCAN", scan.cursor, "MATCH", match, "COUNT", scan_count);
        result = redis_command_run(redis, &command, bound_again(bound, each), why);
        if (result == LOCK_OK)
            result = read_step(redis, &scan, keys, why);
        if (result == LOCK_OK && is_endless(&scan))
            result = errmsg_fail(why, LOCK_UNAVAILABLE, "SCAN does not end");
    } while (result == LOCK_OK && strcmp(scan.cursor, "0") != 0);

    if (result == LOCK_OK)
        key_list_sort(keys);
    return redis_script_end(redis, result, why);
}

/* --- the masters of a Cluster ---------------------------------------------- */

struct master {
    struct redis_endpoint at;
    struct redis_backend *redis; /* NULL: not opened yet */
    struct key_list keys;
    size_t done; /* how many of `keys` have been visited */
};

struct masters {
    struct master *list;
    size_t count, room;
};

static bool add_master(struct masters *masters, const struct redis_endpoint *at)
{
    for (size_t i = 0; i < masters->count; i++)
        if (redis_endpoint_is(&masters->list[i].at, at))
            return true;
    struct master *master =
        array_add(&masters->list, &masters->count, &masters->room, sizeof *master);
    if (master != NULL)
        master->at = *at;
    return master != NULL;
}

static void free_masters(struct masters *masters, const struct redis_backend *own)
{
    for (size_t i = 0; i < masters->count; i++) {
        struct redis_backend *redis = masters->list[i].redis;
        key_list_free(&masters->list[i].keys);
        if (redis != NULL && redis != own)
            redis->base.close(&redis->base);
    }
    free(masters->list);
}

/* Reads one range {first slot, last slot, {host, port, ...}, ...} of the reply to CLUSTER SLOTS. In
 * a range the master comes before its replicas. A master without a host is on the host of the node
 * that was asked. */
static bool read_range(const redisReply *range, const struct redis_endpoint *here,
                       struct redis_endpoint *at, int64_t *slots)
{
    int64_t first, last, number;
    char port[8];
    if (range->type != REDIS_REPLY_ARRAY || range->elements < 3)
        return false;
    const redisReply *node = range->element[2];
    if (!redis_reply_number(range->element[0], 0, REDIS_SLOTS - 1, &first) ||
        !redis_reply_number(range->element[1], first, REDIS_SLOTS - 1, &last) ||
        node->type != REDIS_REPLY_ARRAY || node->elements < 2 ||
        !redis_reply_number(node->element[1], 1, UINT16_MAX, &number))
        return false;
    const char *host = redis_reply_text(node->element[0]);
    *slots += last - first + 1;
    snprintf(port, sizeof port, "%d", (int)number);
    return redis_cluster_endpoint(at, here, host, strlen(host), port);
}

static enum lock_result read_slots(struct redis_backend *redis, struct masters *masters,
                                   struct errmsg *why)
{
    const redisReply *reply = redis->call->reply;
    int64_t slots = 0;

    if (reply->type != REDIS_REPLY_ARRAY)
        return redis_conn_nonsense(&redis->conn, why);
    for (size_t i = 0; i < reply->elements; i++) {
        struct redis_endpoint at;
        if (!read_range(reply->element[i], &redis->conn.at, &at, &slots))
            return redis_conn_nonsense(&redis->conn, why);
        if (!add_master(masters, &at))
            return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    }
    if (slots == REDIS_SLOTS)
        return LOCK_OK;
    return errmsg_fail(
        why, LOCK_UNAVAILABLE,
        "only %d of the Cluster's %d slots have a master, so not all locks can be listed",
        (int)slots, REDIS_SLOTS);
}

static enum lock_result find_masters(struct redis_backend *redis, struct masters *masters,
                                     struct bound bound, struct errmsg *why)
{
    const struct redis_command command = redis_words("CLUSTER", "SLOTS");
    enum lock_result result = redis_command_run(redis, &command, bound, why);

    if (result == LOCK_OK)
        result = read_slots(redis, masters, why);
    return redis_script_end(redis, result, why);
}

/* --- the locks of all masters -------------------------------------------- */

/* Returns the master whose next key comes first in the order of all keys, or NULL if no key is
 * left. */
static struct master *first_of(const struct masters *masters)
{
    struct master *first = NULL;
    for (size_t i = 0; i < masters->count; i++) {
        struct master *one = &masters->list[i];
        if (one->done < one->keys.count &&
            (first == NULL || strcmp(one->keys.keys[one->done], first->keys.keys[first->done]) < 0))
            first = one;
    }
    return first;
}

/* Visits the locks of all masters, sorted by key; `each` is the time limit for one lock. Two
 * masters may report the same key while its slot is being moved; such a key is visited once. A key
 * that cannot be a lock of dlock in a Cluster (redis_keys_is_shared()) belongs to another client,
 * and is skipped. */
static enum lock_result visit_keys(const struct masters *masters, const struct listing *listing,
                                   struct bound bound, struct duration each, struct errmsg *why)
{
    const char *last = "";
    for (struct master *master; (master = first_of(masters)) != NULL;) {
        const char *key = master->keys.keys[master->done++];
        struct backend *backend = &master->redis->base;
        struct lock_state state = {0};
        if (strcmp(key, last) == 0 ||
            (master->redis->url.topology == REDIS_CLUSTER && !redis_keys_is_shared(key)))
            continue;
        last = key;
        enum lock_result result = lock_state_of_list(
            &state, key, backend->look(backend, key, &state, bound_again(bound, each), why));
        if (result != LOCK_OK)
            return result;
        bool more =
            !lock_state_is_listed(&state, listing->all) || listing->visit(listing->data, &state);
        lock_state_free(&state);
        if (!more)
            break;
    }
    return LOCK_OK;
}

enum lock_result redis_list_with(redis_open_node *open_node, struct redis_backend *redis,
                                 const struct listing *listing, struct bound bound,
                                 struct errmsg *why)
{
    struct masters masters = {0};
    enum lock_result result = LOCK_OK;
    const struct duration each = deadline_left(bound.until);
    if (redis->url.topology == REDIS_CLUSTER)
        result = find_masters(redis, &masters, bound, why);
    else if (add_master(&masters, &redis->conn.at))
        masters.list[0].redis = redis;
    else
        result = errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    for (size_t i = 0; result == LOCK_OK && i < masters.count; i++) {
        struct master *one = &masters.list[i];
        if (one->redis == NULL)
            result = open_node(&one->redis, redis, &one->at, why);
        if (result == LOCK_OK)
            result = find_keys(one->redis, listing, &one->keys, bound, each, why);
    }
    if (result == LOCK_OK)
        result = visit_keys(&masters, listing, bound, each, why);
    free_masters(&masters, redis);
    return result;
}
