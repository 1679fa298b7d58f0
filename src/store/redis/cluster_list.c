#include "store/redis/cluster_list.h"

#include "redis/login.h"
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
    struct redis_backend *redis; /* on a connection of its own; NULL: not made yet */
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
        if (strcmp(masters->list[i].at.host, at->host) == 0 &&
            strcmp(masters->list[i].at.port, at->port) == 0)
            return true;
    struct master *master =
        array_add(&masters->list, &masters->count, &masters->room, sizeof *master);
    if (master != NULL)
        master->at = *at;
    return master != NULL;
}

static void free_masters(struct masters *masters)
{
    for (size_t i = 0; i < masters->count; i++) {
        key_list_free(&masters->list[i].keys);
        if (masters->list[i].redis != NULL)
            masters->list[i].redis->base.close(&masters->list[i].redis->base);
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
        return redis_login_error(&redis->url, reply->str, why);
    if (reply->type != REDIS_REPLY_ARRAY)
        return redis_conn_nonsense(&redis->conn, why);
    for (size_t i = 0; i < reply->elements; i++) {
        struct redis_endpoint at;
        if (!read_range(reply->element[i], &redis->conn.at, &at, &slots))
            return redis_conn_nonsense(&redis->conn, why);
        if (!add_master(masters, &at)) {
            errmsg_set(why, "out of memory");
            return LOCK_SYSTEM;
        }
    }
    if (slots == REDIS_SLOTS)
        return LOCK_OK;
    errmsg_set(why, "of the %d slots of the Cluster %d have a master: not all locks can be listed",
               REDIS_SLOTS, (int)slots);
    return LOCK_UNAVAILABLE;
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

static enum lock_result redis_cluster_list_find_keys(const struct redis_backend *redis,
                                                     redis_open_node *open_node,
                                                     struct master *master, const char *prefix,
                                                     const char *pattern, bool all,
                                                     struct bound bound, struct errmsg *why)
{
    enum lock_result result = open_node(&master->redis, redis, &master->at, why);
    return result == LOCK_OK
               ? redis_keys_find(master->redis, prefix, pattern, all, &master->keys, bound, why)
               : result;
}

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
 * moved two masters may know it. A key that cannot be a lock of ours
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
        if (strcmp(key, last) == 0 || !redis_keys_is_shared(key))
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

enum lock_result redis_cluster_list(struct redis_backend *redis, redis_open_node *open_node,
                                    const char *prefix, const char *pattern, bool all,
                                    bool (*visit)(void *data, const struct lock_state *),
                                    void *data, struct bound bound, struct errmsg *why)
{
    struct masters masters = {0};
    enum lock_result result = find_masters(redis, &masters, bound, why);
    for (size_t i = 0; result == LOCK_OK && i < masters.count; i++)
        result = redis_cluster_list_find_keys(redis, open_node, &masters.list[i], prefix, pattern,
                                              all, bound, why);
    if (result == LOCK_OK)
        result = visit_keys(&masters, all, visit, data, bound, why);
    free_masters(&masters);
    return result;
}
