#include "store/redis/cluster_list.h"

#include "redis/reply.h"
#include "store/redis/cluster.h"
#include "store/redis/keys.h"
#include "store/redis/look.h"
#include "store/redis/topology.h"
#include "util/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct master {
    struct redis_endpoint at;
    struct redis_backend *redis; /* NULL: not made yet */
    struct key_list keys;
    size_t done; /* of its keys */
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

/* --- finding the masters ------------------------------------------------- */

/* {first slot, last slot, {host, port, ...}, ...} of CLUSTER SLOTS, in which the master
 * comes before its replicas; no host: it is that of the node asked. */
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

static enum lock_result redis_cluster_list_read_slots(struct redis_backend *redis,
                                                      const redisReply *reply,
                                                      struct masters *masters, struct errmsg *why)
{
    int64_t slots = 0;
    if (reply->type == REDIS_REPLY_ERROR)
        return redis_error_judge(&redis->url, reply->str, why);
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
        "of the %d slots of the Cluster %d have a master: not all locks can be listed", REDIS_SLOTS,
        (int)slots);
}

static enum lock_result find_masters(struct redis_backend *redis, struct masters *masters,
                                     struct bound bound, struct errmsg *why)
{
    const struct redis_command command = redis_words("CLUSTER", "SLOTS");
    redisReply *reply;
    enum lock_result result = redis_topology_open(redis, NULL, bound, why);
    if (result == LOCK_OK)
        result = redis_conn_call(&redis->conn, &command, 1, &reply, bound, why);
    if (result == LOCK_OK) {
        result = redis_cluster_list_read_slots(redis, reply, masters, why);
        freeReplyObject(reply);
    }
    return redis_script_end(redis, result, why);
}

/* --- their locks --------------------------------------------------------- */

/* The master with the lowest next key; NULL: there is none left. */
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

/* In the order of the keys over all masters. A key may come twice: while its slot is
 * moved two masters may know it. A key that cannot be a lock of ours in a Cluster
 * (redis_keys_is_shared()) is another client's, and cannot be looked at. */
static enum lock_result visit_keys(const struct masters *masters, bool all,
                                   bool (*visit)(void *data, const struct lock_state *), void *data,
                                   struct bound bound, struct errmsg *why)
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
        enum lock_result result =
            lock_state_of_list(&state, key, backend->look(backend, key, &state, bound, why));
        if (result != LOCK_OK)
            return result;
        bool more = !lock_state_is_listed(&state, all) || visit(data, &state);
        lock_state_free(&state);
        if (!more)
            break;
    }
    return LOCK_OK;
}

enum lock_result redis_list(struct backend *backend, const char *prefix, const char *pattern,
                            bool all, bool (*visit)(void *data, const struct lock_state *),
                            void *data, struct bound bound, struct errmsg *why)
{
    struct redis_backend *redis = redis_of(backend);
    struct masters masters = {0};
    enum lock_result result = LOCK_OK;
    if (redis->url.topology == REDIS_CLUSTER)
        result = find_masters(redis, &masters, bound, why);
    else if (add_master(&masters, &redis->conn.at))
        masters.list[0].redis = redis;
    else
        result = errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    for (size_t i = 0; result == LOCK_OK && i < masters.count; i++) {
        struct master *one = &masters.list[i];
        if (one->redis == NULL)
            result = redis_backend_open_node(&one->redis, redis, &one->at, why);
        if (result == LOCK_OK)
            result = redis_keys_find(one->redis, prefix, pattern, all, &one->keys, bound, why);
    }
    if (result == LOCK_OK)
        result = visit_keys(&masters, all, visit, data, bound, why);
    free_masters(&masters, redis);
    return result;
}
