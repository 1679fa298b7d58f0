/* To find one lock, dlock needs no map of the Cluster, because any wrong node answers MOVED with
 * the address of the right node. This costs one more round trip for the first call and none later.
 * A map would cost at least one round trip, grow with the Cluster, and be out of date just when it
 * matters.
 *
 * A node that gives one of the following answers has not run the script, so dlock may safely send
 * the script again. What dlock does after each answer:
 *   MOVED slot host:port   That node owns the slot from now on. dlock connects to it, and stays
 *                          there.
 *   ASK slot host:port     The slot is being moved to that node, and none of the lock's keys is
 *                          left on this node. dlock connects to that node, stays there, and begins
 *                          each script with ASKING. Once the move is complete or abandoned, either
 *                          ASKING has no effect, or the node answers MOVED. During the move no
 *                          client can create a key of the slot at the old node, because every
 *                          client gets ASK.
 *   TRYAGAIN               The slot is being moved, and some of the lock's keys are not on this
 *                          node: they are on the other node, or do not exist (most locks have no
 *                          queue). dlock sends the script again, with pauses, as long as a reply
 *                          can arrive in time. After that, dlock treats TRYAGAIN as an ordinary
 *                          outage, which ends with the move. During the move the lock can be
 *                          neither acquired nor lost.
 *   CLUSTERDOWN, LOADING,  This node cannot serve dlock, or is cut off from the other nodes. The
 *   MASTERDOWN             next attempt goes to another node.
 * A replica answers MOVED. If a master cannot be reached, dlock asks the other nodes, whose MOVED
 * leads to the replica that was promoted in the master's place.
 *
 * A message on a channel goes to every node of a Cluster, but the sender learns only how many
 * subscribers on its node received the message. Normally that count is right, because all clients
 * of a lock talk to the same node. Just after a move the count may be wrong: a waiter is not
 * counted -> the waiter loses its place in the queue -> it still gets the message -> it sends a
 * request -> it is redirected to the new node -> it gets its place back.
 *
 * Circular redirections, invalid addresses, and redirections to a node that has just failed count
 * as an outage, which may pass. The deadline of the lease remains in force. */
#include "store/redis/redis_int.h"

#include "lock/lock_name.h"
#include "util/text.h"

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODES_MOST = 2 * REDIS_HOSTS_MOST,
    REDIRECTIONS_MOST = 16, /* per call; a slot that is being moved causes two or three */
};

/* For how long dlock prefers other nodes after a node has failed. The second value is for a node
 * whose name could not be looked up. */
static const struct duration rest_time = {1 * NS_PER_S};
static const struct duration rest_time_name = {10 * NS_PER_S};

/* The pause between two tries while a slot is being moved. */
static const struct duration pause_least = {20 * NS_PER_MS};
static const struct duration pause_most = {500 * NS_PER_MS};

/* The least time that must be left for a reply when a script is sent again. With less time, a
 * working server would seem not to answer at all. */
static const struct duration answer_least = {200 * NS_PER_MS};

struct node {
    struct redis_endpoint at;
    struct addresses addresses; /* addresses of the host name, from the last lookup */
    struct deadline rests;      /* until this time, other nodes are asked first */
    char reason[128];           /* why other nodes are asked first */
};

/* The thread that uses the backend owns this struct (run/watch.c). The nodes of the URL come first
 * in the list and are never replaced. Of the nodes learned from redirections, the oldest is
 * replaced first. */
struct redis_cluster {
    struct node nodes[NODES_MOST];
    int count, own;
    int oldest;  /* the next node to be replaced */
    int current; /* the node of the last connection; -1: none yet */
    int next;    /* the target of a redirection that has not been followed yet; -1: none */
    bool asking; /* the last redirection was an ASK */
};

static bool make_cluster(struct redis_backend *redis)
{
    struct redis_cluster *cluster = redis->cluster = calloc(1, sizeof *cluster);
    if (cluster == NULL)
        return false;
    cluster->own = cluster->count = redis->url.host_count;
    cluster->oldest = cluster->own;
    cluster->current = cluster->next = -1;
    for (int i = 0; i < cluster->own; i++)
        cluster->nodes[i].at = redis->url.hosts[i];
    return true;
}

/* --- nodes --------------------------------------------------------------- */

static int find_node(struct redis_cluster *cluster, const struct redis_endpoint *at)
{
    for (int i = 0; i < cluster->count; i++)
        if (redis_endpoint_is(&cluster->nodes[i].at, at))
            return i;
    int place = cluster->count;
    if (place < NODES_MOST) {
        cluster->count++;
    } else {
        if (cluster->oldest == cluster->current)
            cluster->oldest++;
        if (cluster->oldest >= NODES_MOST)
            cluster->oldest = cluster->own;
        place = cluster->oldest++;
    }
    cluster->nodes[place] = (struct node){.at = *at};
    return place;
}

static bool rests(const struct node *node)
{
    return !deadline_passed(node->rests);
}

static void let_rest(struct node *node, struct duration time, const char *reason)
{
    node->rests = deadline_after(time);
    snprintf(node->reason, sizeof node->reason, "%.120s", reason);
}

/* True if node `i` was learned from a redirection and its host name has not been looked up
 * successfully yet. dlock seldom tries to look it up, because each attempt may leave a hanging
 * thread behind (redis/socket.c). */
static bool is_to_be_named(const struct redis_cluster *cluster, int i)
{
    return i >= cluster->own && cluster->nodes[i].addresses.count == 0;
}

/* Chooses the next node that has not been tried yet: first the target of a redirection, then the
 * node of the last connection, then the other nodes in turn. Nodes that have just failed come last.
 * Returns -1 if no node is left. */
static int choose(const struct redis_cluster *cluster, const bool *tried)
{
    if (cluster->next >= 0)
        return cluster->next;
    if (cluster->current >= 0 && !tried[cluster->current] &&
        !rests(&cluster->nodes[cluster->current]))
        return cluster->current;
    for (int late = 0; late < 2; late++)
        for (int i = 0; i < cluster->count; i++)
            if (!tried[i] && (!rests(&cluster->nodes[i]) || (late && !is_to_be_named(cluster, i))))
                return i;
    return -1;
}

static enum lock_result connect_to(struct redis_backend *redis, struct node *node,
                                   struct bound bound, struct errmsg *why)
{
    struct redis_conn *conn = &redis->conn;
    redis_conn_go_to(conn, &node->at);
    conn->addresses = node->addresses;
    enum lock_result result = redis_conn_open(conn, bound, why);
    node->addresses = conn->addresses;
    if (result == LOCK_UNAVAILABLE)
        let_rest(node, node->addresses.count == 0 ? rest_time_name : rest_time, why->text);
    if (result != LOCK_OK && result != LOCK_CANCELLED)
        redis_endpoint_blame(&node->at, "node", why);
    return result;
}

static enum lock_result connect_to_some(struct redis_backend *redis, struct bound bound,
                                        struct errmsg *why)
{
    struct redis_cluster *cluster = redis->cluster;
    bool tried[NODES_MOST] = {false};
    enum lock_result result = LOCK_UNAVAILABLE;
    int count = 0;
    bound = bound_within(bound, redis->settings.timeout);
    errmsg_set(why, "no node of the Cluster has a known address");
    for (int at; result == LOCK_UNAVAILABLE && (at = choose(cluster, tried)) >= 0; count++) {
        bool asking = cluster->asking && at == cluster->next;
        if (count > 0 && deadline_passed(bound.until))
            break;
        cluster->next = -1;
        tried[at] = true;
        /* If other nodes may have to be asked as well, this node gets only a share of the time, so
         * that a node that drops packets leaves time for the others. */
        int tries_left = cluster->count - count;
        struct bound share = bound_share(bound, tries_left < 3 ? tries_left : 3);
        result = connect_to(redis, &cluster->nodes[at], share, why);
        redis->conn.asking = asking;
        cluster->current = at;
    }
    if (result == LOCK_UNAVAILABLE && count > 1) {
        char text[64];
        snprintf(text, sizeof text, "none of %d nodes can be reached, the last one", count);
        errmsg_prefix(why, text);
    }
    return result;
}

enum lock_result redis_cluster_open(struct redis_backend *redis, const char *key,
                                    struct bound bound, struct errmsg *why)
{
    if (redis->cluster == NULL && !make_cluster(redis))
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    if (key != NULL && !redis_keys_is_shared(key))
        return errmsg_fail(why, LOCK_INVALID,
                           "the key %.400s cannot be a lock in a Cluster: the key contains '}' but "
                           "no {tag}, so its companion keys would be in other slots",
                           key);
    if (redis->conn.socket.fd >= 0)
        redis_conn_read_messages(&redis->conn); /* closes a connection that has ended, so that
                                                 * a new one is made */
    return redis->conn.socket.fd >= 0 ? LOCK_OK : connect_to_some(redis, bound, why);
}

void redis_cluster_failed(struct redis_backend *redis, bool too_late, struct errmsg *why)
{
    struct redis_cluster *cluster = redis->cluster;
    if (too_late)
        let_rest(&cluster->nodes[cluster->current], rest_time, why->text);
    redis_endpoint_blame(&redis->conn.at, "node", why);
}

/* --- redirections -------------------------------------------------------- */

bool redis_cluster_endpoint(struct redis_endpoint *at, const struct redis_endpoint *here,
                            const char *host, size_t length, const char *port)
{
    int64_t number;
    *at = (struct redis_endpoint){.host = ""};
    if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
        host++;
        length -= 2;
    }
    /* "?" is sent for a node whose host name is required but not configured. */
    if (length >= sizeof at->host || (length == 1 && *host == '?') ||
        !number_parse(port, 1, UINT16_MAX, &number))
        return false;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)host[i] <= ' ' || host[i] == 0x7F)
            return false;
    if (length == 0)
        memcpy(at->host, here->host, sizeof at->host);
    else
        memcpy(at->host, host, length);
    snprintf(at->port, sizeof at->port, "%d", (int)number);
    return true;
}

/* Reads the slot and address of a MOVED or ASK, such as "3999 127.0.0.1:6381". The slot must be the
 * slot of the key. */
static bool read_redirection(struct redis_endpoint *at, const struct redis_endpoint *here,
                             const char *text, const char *key)
{
    char slot[8];
    int64_t number;
    size_t length = strcspn(text, " ");
    if (length >= sizeof slot || text[length] != ' ')
        return false;
    snprintf(slot, sizeof slot, "%.*s", (int)length, text);
    /* The port follows the last colon, because an IPv6 address contains colons and has no
     * brackets. */
    const char *host = text + length + 1;
    const char *colon = strrchr(host, ':');
    return number_parse(slot, 0, REDIS_SLOTS - 1, &number) && (int)number == redis_slot(key) &&
           colon != NULL &&
           redis_cluster_endpoint(at, here, host, (size_t)(colon - host), colon + 1);
}

static bool begins(const char *error, const char *word)
{
    return strncmp(error, word, strlen(word)) == 0;
}

static enum lock_result redirect(struct redis_backend *redis, const char *key, const char *error,
                                 struct redis_detour *detour, struct errmsg *why)
{
    struct redis_cluster *cluster = redis->cluster;
    struct redis_conn *conn = &redis->conn;
    const struct redis_endpoint here = conn->at;
    struct redis_endpoint at;
    bool asking = begins(error, "ASK ");
    redis_conn_close(conn); /* even if the redirection leads to the same address, because a proxy
                             * there may now lead to another node */
    if (!read_redirection(&at, &here, strchr(error, ' ') + 1, key)) {
        errmsg_set(why, "the server sent an unknown redirection: %.300s", error);
        redis_endpoint_blame(&here, "node", why);
        return LOCK_UNAVAILABLE;
    }
    bool late = deadline_passed(deadline_plus(detour->start, redis->settings.timeout));
    if (late || detour->redirections == REDIRECTIONS_MOST) {
        errmsg_set(why, "the request was redirected %d times%s, the last time by: %.300s",
                   detour->redirections, late ? " until time ran out" : "", error);
        redis_endpoint_blame(&here, "node", why);
        return LOCK_UNAVAILABLE;
    }
    int place = find_node(cluster, &at);
    if (rests(&cluster->nodes[place])) {
        errmsg_set(why, "the key is on this node, which cannot be used: %s",
                   cluster->nodes[place].reason);
        redis_endpoint_blame(&at, "node", why);
        return LOCK_UNAVAILABLE;
    }
    detour->redirections++;
    cluster->next = place;
    cluster->asking = asking;
    return LOCK_OK;
}

/* Pauses before a script is sent again. Returns LOCK_OK, LOCK_CANCELLED if the pause was cancelled,
 * or LOCK_UNAVAILABLE if no time is left for another reply. */
static enum lock_result pause_before_again(struct redis_detour *detour, struct bound bound)
{
    struct deadline latest = deadline_minus(bound.until, answer_least);
    if (deadline_passed(latest))
        return LOCK_UNAVAILABLE;
    detour->pause = duration_max(pause_least, duration_doubled(detour->pause, pause_most));
    struct deadline end =
        deadline_earlier(latest, deadline_after(duration_jittered(detour->pause)));
    struct pollfd fd = {.fd = bound.cancel_fd, .events = POLLIN};
    return deadline_poll(&fd, 1, end) > 0 ? LOCK_CANCELLED : LOCK_OK;
}

enum lock_result redis_cluster_judge(struct redis_backend *redis, const char *key,
                                     const char *error, struct redis_detour *detour,
                                     struct bound bound, struct errmsg *why)
{
    struct redis_cluster *cluster = redis->cluster;
    bool cannot =
        begins(error, "CLUSTERDOWN") || begins(error, "LOADING") || begins(error, "MASTERDOWN");
    bool away = begins(error, "MOVED ") || begins(error, "ASK "),
         moving = begins(error, "TRYAGAIN");
    if (cannot || away || moving)
        redis->conn.sent = false; /* the node has not run the script */
    if (away)
        return redirect(redis, key, error, detour, why);
    if (moving) {
        bound.until =
            deadline_earlier(bound.until, deadline_plus(detour->start, redis->settings.timeout));
        enum lock_result paused = pause_before_again(detour, bound);
        if (paused != LOCK_UNAVAILABLE)
            return paused;
    }
    enum lock_result result = redis_error_result(error, why);
    if (cannot) {
        redis_conn_close(&redis->conn);
        let_rest(&cluster->nodes[cluster->current], rest_time, why->text);
    }
    redis_endpoint_blame(&redis->conn.at, "node", why);
    return result;
}

/* --- slots ---------------------------------------------------------------- */

/* CRC-16/XMODEM: polynomial 0x1021, initial value 0. It is computed bit by bit, without a table,
 * because keys are short and seldom hashed. */
static unsigned crc16(const char *bytes, size_t length)
{
    unsigned crc = 0;
    for (size_t i = 0; i < length; i++) {
        crc ^= (unsigned)(uint8_t)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc << 1 ^ ((crc & 0x8000) != 0 ? 0x1021 : 0)) & 0xFFFF;
    }
    return crc;
}

int redis_slot(const char *key)
{
    const char *open = strchr(key, '{'), *close = open != NULL ? strchr(open, '}') : NULL;
    if (close != NULL && close > open + 1)
        return (int)(crc16(open + 1, (size_t)(close - open) - 1) % REDIS_SLOTS);
    return (int)(crc16(key, strlen(key)) % REDIS_SLOTS);
}

bool redis_keys_is_shared(const char *key)
{
    char companion[2 * LOCK_KEY_SIZE];
    lock_key_companion(companion, sizeof companion, key, "meta");
    return redis_slot(companion) == redis_slot(key);
}
