/* The connection to one Sentinel, which a backend has in addition to the connection to the master.
 * Only the thread that uses the backend (redis/conn.c) uses this connection, and only during its
 * calls to the backend.
 *
 * While dlock holds the lock or waits for it, this connection is subscribed to +switch-master.
 * Before that, dlock only asks a Sentinel for the master once. To ask again, dlock sends
 * UNSUBSCRIBE, the question and SUBSCRIBE in one write, as in redis/subscribe.c. A message only
 * means that the master may have changed: dlock closes the connection to the old master, and the
 * next call asks a Sentinel.
 *
 * Orders of events:
 *   1. The old master dies -> its connection ends, or the alarm (3.) ends the wait for a reply ->
 *      until the Sentinels agree on a new master, they name the old one, and each attempt fails as
 *      in an outage -> once they agree, they name the new master.
 *   2. The old master is alive and still answers as a master, but only this host can reach it ->
 *      only the Sentinel's message reveals the new master.
 *   3. The message arrives while a call waits for an old master that hangs -> the call also watches
 *      the descriptor of the Sentinel's connection (alarm_fd), so its wait ends, as in an outage ->
 *      the call is sent again to the new master.
 *   4. The message is sent between the Sentinel's answer and SUBSCRIBE, or the Sentinel itself is
 *      cut off -> redis_sentinel_attend() asks again every `ask_interval`, and so finds the new
 *      master.
 *   5. The subscribed Sentinel dies -> its connection ends, which wakes dlock -> dlock checks the
 *      lock, which is not affected -> redis_sentinel_attend() turns to the next Sentinel.
 *   6. A Sentinel that has not heard of the failover yet names the old master, which is a replica
 *      now -> the replica says so, and is not used -> dlock asks the next Sentinel, as it does if
 *      the named server cannot be reached. But if a Sentinel has just reported the new master,
 *      dlock asks that Sentinel again, because the others may not know the new master yet.
 *   7. A Sentinel answers but refuses the subscription -> dlock tries the next Sentinel, and never
 *      tries to subscribe to that one again -> if all Sentinels refuse, redis_sentinel_attend()
 *      asks every `retry_interval`.
 *
 * dlock looks up the names of all Sentinels before the lease starts, because any of them may be
 * needed while the lock is held, and the resolver may be down then. */
#include "store/redis/redis_int.h"

#include "store/redis/backend.h"
#include "util/fileutils.h"
#include "util/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* How often to ask a Sentinel that has accepted the subscription, how often to look for a Sentinel
 * that accepts it, and the time limit for each of the two. */
static const struct duration ask_interval = {10 * NS_PER_S};
static const struct duration retry_interval = {1 * NS_PER_S};
static const struct duration attend_limit = {1 * NS_PER_S};

/* The time limit for looking up names that are not needed yet. */
static const struct duration names_limit = {500 * NS_PER_MS};

static const char switch_channel[] = "+switch-master";

struct redis_sentinel {
    struct redis_url url;   /* the Sentinels, and the login for them */
    struct redis_conn conn; /* connection to the Sentinel that answered last */
    struct addresses known[REDIS_HOSTS_MOST];
    bool knows_names;
    int first;                      /* number of the Sentinel to ask first */
    struct redis_endpoint master;   /* according to the last answer */
    unsigned subscribed;            /* serial of the subscribed connection; 0: none */
    bool refuses[REDIS_HOSTS_MOST]; /* the Sentinels that refuse a subscription */
    bool moved;                     /* another server is the master now (redis_sentinel_moved()) */
    struct deadline tried;          /* when dlock last asked the Sentinels for notifications */
    int epoll_fd;                   /* -1 until it is needed */
};

/* --- reading a Sentinel's answer ----------------------------------------- */

static bool is_subscribed(const struct redis_sentinel *sentinel)
{
    return sentinel->conn.socket.fd >= 0 && sentinel->subscribed == sentinel->conn.serial;
}

/* Reads "NAME OLD-HOST OLD-PORT NEW-HOST NEW-PORT". A Sentinel sends this whenever any of the
 * masters that it monitors is replaced. */
static void on_switch(void *data, const char *channel, const redisReply *payload)
{
    struct redis_backend *redis = data;
    const char *text = redis_reply_text(payload), *name = redis->url.master;
    char here[sizeof redis->conn.at.host + sizeof redis->conn.at.port + 2];
    size_t length = strlen(name), here_length;
    if (strcmp(channel, switch_channel) != 0 || strncmp(text, name, length) != 0 ||
        text[length] != ' ')
        return;
    snprintf(here, sizeof here, " %s %s", redis->conn.at.host, redis->conn.at.port);
    here_length = strlen(here);
    if (strlen(text) > here_length && strcmp(text + strlen(text) - here_length, here) == 0)
        return; /* this master is already known */
    redis_conn_close(&redis->conn);
    redis->sentinel->moved = true;
}

/* Reads the reply {host, port}. Returns LOCK_GONE if the reply is nil, which means that the
 * Sentinel knows no master of this name. */
static enum lock_result read_master(struct redis_sentinel *sentinel, const redisReply *reply,
                                    struct errmsg *why)
{
    struct redis_endpoint *master = &sentinel->master;
    int64_t port;
    if (reply->type == REDIS_REPLY_ERROR)
        return redis_error_judge(&sentinel->url, reply->str, why);
    if (reply->type == REDIS_REPLY_NIL)
        return LOCK_GONE;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        !redis_reply_number(reply->element[1], 1, 65535, &port))
        return redis_conn_nonsense(&sentinel->conn, why);
    const char *host = redis_reply_text(reply->element[0]);
    if (*host == '\0' || strlen(host) >= sizeof master->host ||
        strlen(host) != (size_t)reply->element[0]->len)
        return redis_conn_nonsense(&sentinel->conn, why);
    *master = (struct redis_endpoint){.host = ""};
    text_copy(master->host, sizeof master->host, host);
    snprintf(master->port, sizeof master->port, "%d", (int)port);
    return LOCK_OK;
}

/* Asks the connected Sentinel, which is number `at` of the URL, for the master called `name`.
 * Returns LOCK_OK with sentinel->master set, LOCK_GONE if the Sentinel knows no such master, or the
 * results of redis_conn_call(). */
static enum lock_result ask(struct redis_sentinel *sentinel, int at, const char *name, bool listens,
                            struct bound bound, struct errmsg *why)
{
    struct redis_command commands[3];
    redisReply *replies[3];
    int count = 0;
    bool leaves = is_subscribed(sentinel);
    if (leaves)
        commands[count++] = redis_words("UNSUBSCRIBE", switch_channel);
    int question = count;
    commands[count++] = redis_words("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name);
    listens = listens && !sentinel->refuses[at];
    if (listens)
        commands[count++] = redis_words("SUBSCRIBE", switch_channel);
    enum lock_result result =
        redis_conn_call(&sentinel->conn, commands, count, replies, bound, why);
    sentinel->subscribed = 0;
    if (result != LOCK_OK)
        return result;
    const redisReply *enter = listens ? replies[count - 1] : NULL;
    result = read_master(sentinel, replies[question], why);
    if (leaves && replies[0]->type != REDIS_REPLY_ARRAY)
        result = redis_conn_nonsense(&sentinel->conn, why);
    if (enter != NULL && enter->type == REDIS_REPLY_ERROR)
        sentinel->refuses[at] = true;
    else if (enter != NULL && enter->type != REDIS_REPLY_ARRAY)
        result = redis_conn_nonsense(&sentinel->conn, why);
    else if (enter != NULL)
        sentinel->subscribed = sentinel->conn.serial;
    while (count > 0)
        freeReplyObject(replies[--count]);
    return result;
}

/* --- which Sentinel to ask ----------------------------------------------- */

/* Connects to Sentinel number `at` if necessary, and asks it for the master. If an idle connection
 * turns out to have ended, dlock connects again at once. */
static enum lock_result ask_at(struct redis_backend *redis, int at, bool listens,
                               struct bound bound, struct errmsg *why)
{
    struct redis_sentinel *sentinel = redis->sentinel;
    redis_conn_go_to(&sentinel->conn, &sentinel->url.hosts[at]);
    bool reused;
    enum lock_result result;
    do {
        reused = sentinel->conn.socket.fd >= 0;
        if (!reused)
            sentinel->conn.addresses = sentinel->known[at];
        result = redis_conn_open(&sentinel->conn, bound, why);
        if (result == LOCK_OK) {
            sentinel->known[at] = sentinel->conn.addresses;
            result = ask(sentinel, at, redis->url.master, listens, bound, why);
        }
        if (result != LOCK_OK)
            redis_conn_close(&sentinel->conn);
    } while (reused && result == LOCK_UNAVAILABLE && !deadline_passed(bound.until));
    return result;
}

/* The progress of a search, and the errors of the Sentinels that could not help. */
struct redis_sentinel_search {
    int from, asked, down;
    struct errmsg refused, failed, invalid; /* the last error of each kind; "": none */
    struct errmsg unknown_to;               /* the Sentinels that know no such master */
};

static void note(struct redis_sentinel_search *vain, enum lock_result result,
                 const struct redis_endpoint *at, const struct errmsg *why)
{
    char text[ENDPOINT_TEXT_SIZE];
    (void)redis_endpoint_format(at, text);
    if (result == LOCK_GONE) {
        struct errmsg before = vain->unknown_to;
        errmsg_set(&vain->unknown_to, "%s%s%s", before.text, before.text[0] != '\0' ? ", " : "",
                   text);
        return;
    }
    vain->down += result == LOCK_UNAVAILABLE;
    struct errmsg *kept = result == LOCK_REFUSED   ? &vain->refused
                          : result == LOCK_INVALID ? &vain->invalid
                                                   : &vain->failed;
    errmsg_set(kept, "Sentinel %s: %.400s", text, why->text);
}

/* Decides which error to report. A refusal comes first: a Sentinel that refuses dlock will go on
 * refusing, while a Sentinel that cannot be reached may answer later. */
static enum lock_result verdict(const struct redis_sentinel_search *vain, const char *name,
                                int count, struct errmsg *why)
{
    if (vain->refused.text[0] != '\0') {
        *why = vain->refused;
        return LOCK_REFUSED;
    }
    if (vain->down > 0)
        return errmsg_fail(why, LOCK_UNAVAILABLE,
                           "%d Sentinel%s asked for the master %.200s without success; %s", count,
                           count > 1 ? "s were" : " was", name, vain->failed.text);
    if (vain->invalid.text[0] != '\0')
        *why = vain->invalid;
    else
        errmsg_set(why, "the Sentinels know no master called %.200s: %.400s", name,
                   vain->unknown_to.text);
    return LOCK_INVALID;
}

/* Asks the Sentinels that have not been asked yet, in turn, beginning with the one that answered
 * last. Each gets a share of the time, and one share is left for the master. If `listens` is set,
 * the search continues until a Sentinel accepts the subscription; if none does, the first answer
 * counts. */
static enum lock_result find_master(struct redis_backend *redis,
                                    struct redis_sentinel_search *search, bool listens,
                                    struct bound bound, struct errmsg *why)
{
    struct redis_sentinel *sentinel = redis->sentinel;
    struct redis_endpoint found = {.host = ""};
    int count = sentinel->url.host_count;
    if (listens)
        sentinel->tried = deadline_now();
    while (search->asked < count) {
        int at = (search->from + search->asked) % count;
        struct bound share = bound_share(bound, count - search->asked + 1);
        struct errmsg one = {""};
        search->asked++;
        if (found.host[0] != '\0' && sentinel->refuses[at])
            continue;
        enum lock_result result = ask_at(redis, at, listens, share, &one);
        if (result == LOCK_CANCELLED || result == LOCK_SYSTEM) {
            *why = one;
            return result;
        }
        if (result != LOCK_OK) {
            note(search, result, &sentinel->url.hosts[at], &one);
            continue;
        }
        if (found.host[0] == '\0' || is_subscribed(sentinel))
            sentinel->first = at;
        if (!listens || is_subscribed(sentinel))
            return LOCK_OK;
        if (found.host[0] == '\0')
            found = sentinel->master;
    }
    sentinel->master = found;
    return found.host[0] != '\0' ? LOCK_OK : verdict(search, redis->url.master, count, why);
}

/* Looks up the names of all Sentinels. A name that cannot be looked up now is not a failure. */
static void look_up_names(struct redis_backend *redis, struct bound bound)
{
    struct redis_sentinel *sentinel = redis->sentinel;
    struct errmsg ignored;
    bound = bound_within(bound, names_limit);
    for (int i = 0; !sentinel->knows_names && i < sentinel->url.host_count; i++) {
        const struct redis_endpoint *at = &sentinel->url.hosts[i];
        if (sentinel->known[i].count == 0)
            (void)redis_resolve(&sentinel->known[i], at->host, at->port, bound, &ignored);
    }
    sentinel->knows_names = true;
}

/* --- for the backend ----------------------------------------------------- */

/* Lets a message from the Sentinel interrupt the attempt to connect to the master, and the calls
 * that follow. No Sentinel may be asked between this function and those calls, because that could
 * replace the Sentinel's connection. */
static void set_alarm(struct redis_backend *redis)
{
    const struct redis_sentinel *sentinel = redis->sentinel;
    redis->conn.socket.alarm_fd = is_subscribed(sentinel) ? sentinel->conn.socket.fd : -1;
}

static enum lock_result find_next(struct redis_backend *redis, struct redis_sentinel_search *search,
                                  struct bound bound, struct errmsg *why)
{
    enum lock_result result =
        find_master(redis, search, redis->watched || redis->base.queued, bound, why);
    redis->sentinel->moved = false; /* messages received in the meantime are older than the answer
                                     * of the Sentinel */
    if (result == LOCK_OK)
        look_up_names(redis, bound);
    set_alarm(redis);
    return result;
}

/* Asks the Sentinels in turn, and connects to the master that a Sentinel names. If that server
 * cannot be reached, it may be the master in the view of this Sentinel only, so the next Sentinel
 * is asked. */
static enum lock_result open_anew(struct redis_backend *redis, struct bound bound,
                                  struct errmsg *why)
{
    struct redis_sentinel *sentinel = redis->sentinel;
    struct redis_sentinel_search search = {.from = sentinel->first};
    struct redis_endpoint failed = {.host = ""};
    for (;;) {
        struct errmsg own = {""};
        enum lock_result result = find_next(redis, &search, bound, &own);
        if (result != LOCK_OK && failed.host[0] != '\0' && result != LOCK_CANCELLED)
            return LOCK_UNAVAILABLE;
        if (result != LOCK_OK) {
            *why = own;
            return result;
        }
        if (!redis_endpoint_is(&sentinel->master, &failed)) {
            redis_conn_go_to(&redis->conn, &sentinel->master);
            result = redis_conn_open(&redis->conn, bound, why);
            if (result != LOCK_OK && result != LOCK_CANCELLED)
                redis_endpoint_blame(&sentinel->master, "the master", why);
            if (result != LOCK_UNAVAILABLE)
                return result;
            failed = sentinel->master;
            redis_sentinel_failed(redis);
        }
        if (search.asked == sentinel->url.host_count || sentinel->moved ||
            deadline_passed(bound.until))
            return LOCK_UNAVAILABLE;
    }
}

enum lock_result redis_sentinel_open(struct redis_backend *redis, struct bound bound,
                                     struct errmsg *why)
{
    (void)redis_sentinel_hear(redis);
    bound = bound_within(bound, redis->settings.timeout);
    if (redis->conn.socket.fd >= 0)
        redis_conn_read_messages(&redis->conn); /* closes a connection that has ended, so that
                                                 * a new one is made */
    if (redis->conn.socket.fd < 0)
        return open_anew(redis, bound, why);
    set_alarm(redis);
    return LOCK_OK;
}

void redis_sentinel_failed(struct redis_backend *redis)
{
    struct redis_sentinel *sentinel = redis->sentinel;
    (void)redis_sentinel_hear(redis);
    if (!sentinel->moved)
        sentinel->first = (sentinel->first + 1) % sentinel->url.host_count;
}

void redis_sentinel_attend(struct redis_backend *redis, struct bound bound)
{
    struct redis_sentinel *sentinel = redis->sentinel;
    struct errmsg ignored;
    if (sentinel == NULL || redis->conn.socket.fd < 0)
        return;
    struct deadline next =
        deadline_plus(sentinel->tried, is_subscribed(sentinel) ? ask_interval : retry_interval);
    if (sentinel->tried.boot_ns > 0 && !deadline_passed(next))
        return;
    /* The search gets half of the time, because the reply of the master must still reach the caller
     * in time. */
    bound = bound_within(bound_share(bound, 2), attend_limit);
    /* A message from the master ends the search, because it is more urgent than a Sentinel that
     * hangs. */
    struct redis_channels channels = redis_subscribe_to(&redis->conn);
    sentinel->conn.socket.alarm_fd = redis_subscribe_any(channels) ? redis->conn.socket.fd : -1;
    struct redis_sentinel_search search = {.from = sentinel->first};
    if (find_master(redis, &search, true, bound, &ignored) == LOCK_OK &&
        !redis_endpoint_is(&sentinel->master, &redis->conn.at)) {
        redis_conn_close(&redis->conn);
        sentinel->moved = true;
    }
    sentinel->conn.socket.alarm_fd = -1;
}

bool redis_sentinel_hear(struct redis_backend *redis)
{
    struct redis_sentinel *sentinel = redis->sentinel;
    bool was_told = sentinel != NULL && is_subscribed(sentinel);
    if (sentinel != NULL)
        redis_conn_read_messages(&sentinel->conn);
    return was_told && sentinel->conn.socket.fd < 0;
}

bool redis_sentinel_is_unsubscribed(const struct redis_backend *redis)
{
    return redis->sentinel != NULL && !is_subscribed(redis->sentinel);
}

struct deadline redis_sentinel_asks(const struct redis_backend *redis)
{
    return redis_sentinel_is_unsubscribed(redis) ? deadline_after(retry_interval)
                                                 : (struct deadline){0};
}

/* A message that arrived together with a reply has already been read from the socket, so the
 * descriptor is not readable. Such a message is looked for here. */
bool redis_sentinel_moved(struct redis_backend *redis)
{
    const struct redis_sentinel *sentinel = redis->sentinel;
    if (sentinel != NULL && is_subscribed(sentinel) && redis_conn_has_unread(&sentinel->conn))
        (void)redis_sentinel_hear(redis);
    return sentinel != NULL && sentinel->moved;
}

enum lock_result redis_backend_ask_sentinel(struct backend *backend, int i,
                                            char master[ENDPOINT_TEXT_SIZE], bool *refuses,
                                            struct bound bound, struct errmsg *why)
{
    struct redis_backend *redis = redis_of(backend);
    enum lock_result result = ask_at(redis, i, true, bound, why);
    *refuses = redis->sentinel->refuses[i];
    if (result == LOCK_OK)
        (void)redis_endpoint_format(&redis->sentinel->master, master);
    else if (result == LOCK_GONE)
        text_copy(master, ENDPOINT_TEXT_SIZE, "none");
    return result == LOCK_GONE ? LOCK_OK : result;
}

/* Adds a descriptor to the epoll set. If this fails, the set already contains the descriptor, or
 * there are no notifications and dlock finds changes by polling. */
static void watch_fd(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    if (fd >= 0)
        (void)epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* Closed descriptors leave the epoll set automatically. */
int redis_sentinel_join(struct redis_backend *redis, int fd)
{
    struct redis_sentinel *sentinel = redis->sentinel;
    if (sentinel == NULL)
        return fd;
    if (sentinel->epoll_fd < 0)
        sentinel->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (sentinel->epoll_fd < 0)
        return fd;
    if (fd < 0 && redis->conn.socket.fd >= 0) /* otherwise the end of this connection would wake
                                               * the caller again and again */
        (void)epoll_ctl(sentinel->epoll_fd, EPOLL_CTL_DEL, redis->conn.socket.fd, NULL);
    watch_fd(sentinel->epoll_fd, fd);
    watch_fd(sentinel->epoll_fd, sentinel->conn.socket.fd);
    return sentinel->epoll_fd;
}

enum lock_result redis_sentinel_init(struct redis_backend *redis, enum redis_fault *fault,
                                     struct errmsg *why)
{
    if (redis->url.topology != REDIS_SENTINEL)
        return LOCK_OK;
    struct redis_sentinel *sentinel = redis->sentinel = calloc(1, sizeof *sentinel);
    if (sentinel == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    sentinel->epoll_fd = -1;
    sentinel->url.is_of_sentinels = true;
    sentinel->url.tls = redis->url.tls;
    sentinel->url.host_count = redis->url.host_count;
    memcpy(sentinel->url.hosts, redis->url.hosts, sizeof sentinel->url.hosts);
    redis_conn_init(&sentinel->conn, &sentinel->url, &redis->settings);
    sentinel->conn.on_message = on_switch;
    sentinel->conn.message_data = redis;
    redis->conn.masters_only = true;
    const char *file = redis->settings.sentinel_password_file;
    *fault = REDIS_FAULT_NONE;
    return file == NULL ? LOCK_OK : redis_login_read_pair(&sentinel->url, file, why);
}

void redis_sentinel_free(struct redis_backend *redis)
{
    struct redis_sentinel *sentinel = redis->sentinel;
    if (sentinel == NULL)
        return;
    redis_conn_free(&sentinel->conn);
    fd_close(&sentinel->epoll_fd);
    explicit_bzero(&sentinel->url, sizeof sentinel->url);
    free(sentinel);
    redis->sentinel = NULL;
}
