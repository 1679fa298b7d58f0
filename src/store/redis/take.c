#include "store/redis/redis_int.h"

#include "lock/history.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* How often waiters send a request without being notified. The first NEAR_PLACES waiters (NEAR in
 * queue.lua) do so every look_interval, in case the waiters before them are frozen or no client
 * notifies them. Usually only one of them asks and tells the others, which then ask only every
 * far_interval. A waiter that cannot rely on the others asks every poll_interval. */
static const struct duration look_interval = {2500 * NS_PER_MS};
static const struct duration poll_interval = {3 * NS_PER_S};
static const struct duration far_interval = {30 * NS_PER_S};
enum { NEAR_PLACES = 65 };

/* A waiter that has become the first in the queue sends a request within this time, to subscribe to
 * touches (any changes of the lock's key). If the lock becomes free sooner, the waiter is notified
 * before it sends this request, and the request is not needed. */
static const struct duration head_interval = {1 * NS_PER_S};

/* --- replies ------------------------------------------------------------- */

/* The replies {"taken", ...} and {"held", ...} of store/redis/scripts/take.lua. */
struct grant {
    int64_t fence, left_ms, end_ms;
    int slot;
};

static const struct field of_grant[] = {
    FIELD(grant, "fence", NULL, FIELD_NUMBER, 0, fence),
    FIELD(grant, "left", NULL, FIELD_MS, 0, left_ms),
    FIELD(grant, "slot", NULL, FIELD_INT, -1, slot),
    FIELD(grant, "end", NULL, FIELD_TIME, 0, end_ms),
};
static const struct fields grant_fields = FIELDS(of_grant);

struct refused {
    struct holder holder;
    bool reserved; /* the lock is free, but earlier waiters come first */
    int64_t ask_ms, came;
    char mode[16];      /* the mode in which the lock is held */
    char uncalled[512]; /* why waiters cannot be notified; "" if they can be */
};

static const struct field of_refused[] = {
    FIELD(refused, "left", NULL, FIELD_DURATION, -2, holder.left),
    FIELD(refused, "ask", NULL, FIELD_MS, -2, ask_ms),
    FIELD(refused, "mode", NULL, FIELD_TEXT, 0, mode),
    FIELD(refused, "reserved", NULL, FIELD_FLAG, 0, reserved),
    FIELD(refused, "ahead", NULL, FIELD_INT, -1, holder.ahead),
    FIELD(refused, "came", NULL, FIELD_NUMBER, 0, came),
    FIELD(refused, "uncalled", NULL, FIELD_TEXT, 0, uncalled),
    FIELD(refused, "paused", NULL, FIELD_DURATION, 0, holder.pause.left),
    FIELD(refused, "paused_by", NULL, FIELD_TEXT, 0, holder.pause.by),
    FIELD(refused, "pause_why", NULL, FIELD_TEXT, 0, holder.pause.message),
};
static const struct fields refused_fields = FIELDS(of_refused);

/* These values are only shown to people, so a value that cannot be read counts as missing. */
static const struct field of_slots[] = {
    FIELD(refused, "slots", NULL, FIELD_INT, 0, holder.slots),
    FIELD(refused, "slots_taken", NULL, FIELD_INT, 0, holder.slots_taken),
};
static const struct fields slots_fields = FIELDS(of_slots);

/* The reply {"done", start of the successful run, its host}. */
static const struct field of_done[] = {
    FIELD(holder, "since", NULL, FIELD_TIME, 0, since_wall_ms),
    FIELD(holder, "host", NULL, FIELD_TEXT, 0, host),
};
static const struct fields done_fields = FIELDS(of_done);

/* When to send a request after a lease, or another waiter's turn, has ended. The waiters ask one
 * after the other, in the order of the queue. If all asked at once, the later waiters could not see
 * what the first ones have done. */
static struct deadline ask_time(int64_t ask_ms, int64_t ahead)
{
    enum { STEP_MS = 5, STEPS_MOST = 500 };
    if (ask_ms < 0)
        return DEADLINE_NEVER;
    if (ahead < 0)
        ahead = 0;
    int64_t steps = ahead < STEPS_MOST ? ahead : STEPS_MOST;
    return deadline_after(DURATION_MS(ask_ms + 1 + steps * STEP_MS));
}

static struct deadline look_time(int64_t ahead)
{
    return ahead < NEAR_PLACES ? ask_time(look_interval.ns / NS_PER_MS, ahead) : DEADLINE_NEVER;
}

static void note_place(struct redis_backend *redis, const struct refused *refused)
{
    struct redis_place *place = &redis->place;
    const struct holder *holder = &refused->holder;
    bool called = refused->uncalled[0] == '\0';

    place->ahead = holder->ahead;
    place->came = refused->came;
    place->may_call = place->listens && called ? redis->conn.serial : 0;
    /* Only the first two waiters watch for the end of a lease. */
    place->changes = holder->ahead > 1 && (holder->expires || holder->pause.left.ns > 0)
                         ? DEADLINE_NEVER
                         : ask_time(refused->ask_ms, holder->ahead);
    place->look = look_time(holder->ahead);
    if (!called) {
        place->listens = false;
        redis->conn.listening.no_wake = true;
        errmsg_set(&redis->conn.listening.why_wake, "%.400s", refused->uncalled);
    }
    if (place->ahead == 0 && place->listens && !redis->conn.listening.no_touches &&
        !redis_subscribe_to(&redis->conn).touches)
        place->changes =
            deadline_earlier(place->changes, deadline_after(duration_jittered(head_interval)));
}

static bool read_refused(struct redis_backend *redis, struct holder *holder)
{
    const redisReply *reply = redis->call->reply;
    struct refused refused = {.holder = {.refusal = REFUSED_HELD}};

    if (reply->element[1]->type != REDIS_REPLY_INTEGER ||
        !redis_fields_read(&refused_fields, reply->element + 1, &refused))
        return false;
    (void)redis_fields_read(&slots_fields, reply->element + 1 + refused_fields.count, &refused);
    redis_holder_read(reply->element[reply->elements - 1], &refused.holder);
    history_typical_of(&refused.holder.typical,
                       redis_reply_text(reply->element[reply->elements - 2]));
    if (refused.reserved)
        refused.holder.refusal = REFUSED_QUEUED;
    refused.holder.shares = strcmp(refused.mode, lock_mode_name(MODE_EXCLUSIVE)) != 0;
    note_place(redis, &refused);
    *holder = refused.holder;
    return true;
}

static bool read_grant(struct redis_backend *redis, const struct lock_request *request,
                       struct deadline before, struct lease *lease)
{
    const redisReply *reply = redis->call->reply;
    struct grant grant;

    if (!redis_fields_read(&grant_fields, reply->element + 1, &grant) || grant.fence == 0 ||
        grant.end_ms == 0 || reply->element[2]->type != REDIS_REPLY_INTEGER)
        return false;

    lease_begin(lease, request, before, grant.fence);
    lease->slot = grant.slot;
    lease->end_ms = grant.end_ms;
    /* The lease is shorter than the TTL if an earlier attempt had already acquired the lock. */
    struct deadline end = deadline_plus(before, (struct duration){grant.left_ms * NS_PER_MS});
    lease_cut(lease, deadline_minus(end, lease_drift(lease->ttl)));

    redis->base.uncertain = redis->base.queued = false;
    return true;
}

static enum lock_result read_take(struct redis_backend *redis, const struct lock_request *request,
                                  struct deadline before, struct lease *lease,
                                  struct holder *holder, struct errmsg *why)
{
    const redisReply *reply = redis->call->reply;

    if (redis_reply_is(reply, "taken", 1 + grant_fields.count) &&
        read_grant(redis, request, before, lease))
        return LOCK_OK;

    /* If an earlier attempt got no reply, base.uncertain stays set, because the server may still
     * carry out that attempt. */
    if (redis_reply_is(reply, "held", 3 + refused_fields.count + slots_fields.count) &&
        read_refused(redis, holder))
        return LOCK_HELD;

    if (redis_reply_is(reply, "done", 1 + done_fields.count)) {
        redis->base.queued = false;
        *holder = (struct holder){.refusal = REFUSED_DONE};
        (void)redis_fields_read(&done_fields, reply->element + 1, holder);
        return LOCK_HELD;
    }

    redis->base.uncertain = true;
    return redis_conn_nonsense(&redis->conn, why);
}

/* --- asking -------------------------------------------------------------- */

/* For its own lock, this process sends how much longer other clients must be kept out
 * (--hold-at-least). For the lock of another process it sends "", and the script uses the time that
 * is stored with the lock. */
static struct redis_call *begin_release(struct redis_backend *redis, const struct lease *lease,
                                        bool may_come)
{
    struct redis_call *call =
        redis_script_begin(redis, &redis_release_script, KEYS_ALL, lease->key, lease->token);

    redis_script_is_about(call, lease);
    redis_command_add(&call->words, lease->token);
    redis_command_add(&call->words, lease->take_id);
    redis_script_add_number(call, wall_now_ms());
    if (lease->outside)
        redis_command_add(&call->words, "");
    else
        redis_script_add_number(call, deadline_left(lease->hold).ns / NS_PER_MS);
    /* Giving up a request for the lock, which may never have been granted, does not count as losing
     * the lock. */
    if (lease->lost || lease->fence == 0)
        redis_command_add(&call->words, lease->lost ? "lost" : "");
    else
        redis_script_add_number(call, lease->end_ms - lease_drift(lease->set).ns / NS_PER_MS);
    redis_command_add(&call->words, may_come ? "1" : "");
    redis_script_add_number(call, lease->end.ended_ms > 0 ? lease->end.ended_ms : wall_now_ms());
    redis_command_add(&call->words, run_end_write(&lease->end, call->end));
    redis_script_add_number(call, lease->began_ms);
    redis_script_add_number(call, lease->outside ? 0 : lease->fence);
    return call;
}

/* If a request for the lock got no reply, this release may overtake it, because the two were sent
 * on different connections. The script is therefore told that the request may still arrive, even if
 * a later attempt was answered. */
struct redis_call *redis_release_begin(struct redis_backend *redis, const struct lease *lease)
{
    return begin_release(
        redis, lease, lease->take_id[0] != '\0' && strcmp(lease->take_id, redis->unanswered) == 0);
}

/* Releases the lock after the server has refused the greeting. The request for the lock was sent in
 * the same write as the greeting, so the server may have granted it, in whatever database this
 * connection uses. */
static void undo_take(struct redis_backend *redis, const struct lock_request *request,
                      struct bound bound)
{
    struct lease lease;
    struct errmsg ignored;

    lease_begin(&lease, request, deadline_now(), 0);
    lease.hold = deadline_now();
    begin_release(redis, &lease, false);
    for (int by_text = 0; by_text < 2 && redis->conn.socket.fd >= 0; by_text++)
        (void)redis_script_send(redis, by_text, bound, &ignored);
}

/* Returns the word that tells the script what this client does if it does not get the lock: it asks
 * again ("asks"), it waits in the queue ("queues"), or it gives up ("timeout", "conflict"). */
static const char *refusal_word(const struct lock_request *request, bool queues)
{
    if (!request->last)
        return queues ? "queues" : "asks";
    return request->waits ? "timeout" : "conflict";
}

/* The TTL to request. If other servers have already granted the lease, this is the rest of that
 * lease. It shrinks while dlock connects, so this is called after connecting. */
static struct duration ttl_now(const struct lock_request *request)
{
    if (request->end.boot_ns == 0)
        return request->ttl;
    return duration_max(duration_min(request->ttl, deadline_left(request->end)), DURATION_MS(1));
}

/* The start of the run: now or, if other servers have already granted the lease (request->end is
 * set), the start that was recorded there. */
static int64_t since_now(const struct lock_request *request)
{
    return request->end.boot_ns == 0 ? wall_now_ms() : request->self.since_wall_ms;
}

static void write_record(const struct lock_request *request, struct duration ttl,
                         char text[RECORD_SIZE])
{
    const struct lock_owner owner = {.ttl = ttl, .slot = -1};
    struct holder self = request->self;

    self.since_wall_ms = since_now(request);
    self.detached = request->detached;
    text_copy(self.take_id, sizeof self.take_id, request->take_id);
    size_t used = fields_write(&holder_fields, &self, text, 0, RECORD_SIZE);
    (void)fields_write(&owner_fields, &owner, text, used, RECORD_SIZE);
}

static const char *listen_word(const struct redis_backend *redis, bool queues)
{
    if (!queues || redis->conn.listening.no_wake)
        return "0";
    return redis->place.may_call == redis->conn.serial ? "1" : "try";
}

static struct redis_call *begin_take(struct redis_backend *redis,
                                     const struct lock_request *request, bool queues)
{
    struct duration ttl = ttl_now(request);
    /* Only a request for a shared lock names the key of a shared holder. For an exclusive lock that
     * key would be useless, but the server would have to watch one such key for each waiter. */
    const char *own = request->mode == MODE_EXCLUSIVE ? "" : request->token;
    struct redis_call *call =
        redis_script_begin(redis, &redis_take_script, KEYS_ALL, request->key, own);

    redis_command_add(&call->words, request->token);
    redis_script_add_number(call, ttl.ns / NS_PER_MS);
    redis_command_add(&call->words, request->take_id);
    redis_command_add(&call->words, redis->base.uncertain ? "1" : "0");
    write_record(request, ttl, call->record);
    redis_command_add(&call->words, call->record);
    redis_command_add(&call->words, lock_mode_name(request->mode));
    redis_script_add_number(call, request->slots);
    redis_script_add_number(call, request->hold_at_least.ns / NS_PER_MS);
    redis_command_add(&call->words, refusal_word(request, queues));
    redis_script_add_number(call, request->waited.ns / NS_PER_MS);
    redis_script_add_number(call, redis->place.came);
    redis_command_add(&call->words, listen_word(redis, queues));
    redis_script_add_number(call, request->remember.ns / NS_PER_MS);
    redis_script_add_number(call, request->once_per.ns / NS_PER_MS);
    redis_command_add(&call->words, redis->place.unseen ? "1" : "");
    redis_script_add_number(call, request->fence);
    redis_command_add(&call->words, request->fence > 0 && request->end.boot_ns > 0 ? "1" : "");
    return call;
}

/* --- waiting for replicas ------------------------------------------------ */

/* WAIT is sent separately, after the lock has been acquired, and not in one write with the script,
 * because WAIT blocks the connection while the server serves other clients. If SUBSCRIBE came after
 * WAIT, a waiter could be notified before it listens, and be dropped from the queue as dead. A
 * waiter that is refused the lock has nothing to WAIT for anyway.
 *
 * Neither an extension nor a release waits for replicas. If a failover loses an extension, the
 * lease is shorter, and the next check finds that out. If a failover loses a release, the lock
 * blocks other clients until the lease ends. Both are safe. But if a failover loses the lock
 * itself, two clients can hold it. */

/* The timeout of WAIT (ms). The server checks this timeout only every 100 ms (hz 10), and must
 * answer before this process stops waiting for the reply. The result is never 0, which would mean
 * no timeout. */
static int64_t wait_ms(struct deadline until)
{
    enum { TICK_MS = 150 };
    int64_t left = deadline_left(until).ns / NS_PER_MS, most = left * 3 / 4;
    int64_t ms = left - TICK_MS < most ? left - TICK_MS : most;
    return ms > 0 ? ms : 1;
}

static enum lock_result read_count(struct redis_backend *redis, const redisReply *reply,
                                   struct errmsg *why)
{
    int wanted = redis->settings.wait_replicas;
    if (reply->type == REDIS_REPLY_ERROR)
        return redis_error_judge(&redis->url, reply->str, why);
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < 0)
        return redis_conn_nonsense(&redis->conn, why);
    if (reply->integer >= wanted)
        return LOCK_OK;
    return errmsg_fail(why, LOCK_UNAVAILABLE, "only %lld of %d replicas confirmed the lock in time",
                       reply->integer, wanted);
}

/* Waits until as many replicas as the settings require have stored the lock. Returns LOCK_OK then,
 * or at once if the settings require none. Returns LOCK_UNAVAILABLE if too few replicas have stored
 * it after three quarters of the remaining time. Otherwise returns LOCK_REFUSED or the results of
 * redis_conn_call(). After any failure this client still holds the lock, and base.uncertain is set:
 * the next attempt finds that the lock is already held, and waits for the replicas again. A caller
 * that gives up releases the lock. */
static enum lock_result await_replicas(struct redis_backend *redis, const struct lease *lease,
                                       struct bound bound, struct errmsg *why)
{
    struct redis_command command = {0};
    redisReply *reply;
    char wanted[16], ms[24];
    if (redis->settings.wait_replicas == 0)
        return LOCK_OK;
    bound = bound_within(bound, redis->settings.timeout);
    bound.until = deadline_earlier(bound.until, lease->deadline);
    snprintf(wanted, sizeof wanted, "%d", redis->settings.wait_replicas);
    snprintf(ms, sizeof ms, "%" PRId64, wait_ms(bound.until));
    redis_command_add(&command, "WAIT");
    redis_command_add(&command, wanted);
    redis_command_add(&command, ms);
    /* A waiter that was in the queue is still subscribed, so WAIT cannot be sent with
     * redis_conn_call(). */
    enum lock_result result = redis_subscribe_call(&redis->conn, &command,
                                                   (struct redis_channels){0}, &reply, bound, why);
    if (result == LOCK_OK) {
        result = read_count(redis, reply, why);
        freeReplyObject(reply);
    }
    if (result != LOCK_OK)
        redis->base.uncertain = true;
    return result;
}

/* The channels that a waiter subscribes to. The first waiter also subscribes to touches (any
 * changes of the lock's key), because clients other than dlock do not notify waiters. It does so
 * only some time after it has joined the queue (head_interval). */
static struct redis_channels channels_for(const struct redis_backend *redis)
{
    return (struct redis_channels){.touches = redis->base.queued && redis->place.ahead == 0,
                                   .wake = redis->place.wake};
}

static enum lock_result ask(struct redis_backend *redis, const struct lock_request *request,
                            bool queues, struct lease *lease, struct holder *holder,
                            struct bound bound, struct errmsg *why)
{
    enum lock_result result = redis_topology_open(redis, request->key, bound, why);
    struct redis_call *call = begin_take(redis, request, queues);

    if (queues)
        call->channels = channels_for(redis);
    redis->place.listens = queues && !redis->conn.listening.no_wake;
    redis->place.called = redis->place.touched = redis->place.unseen = false;
    /* The lease counts from here, so that the time to connect is not part of it. */
    struct deadline before = deadline_now();
    if (result == LOCK_OK)
        result = redis_script_run(redis, bound, why);
    if (result == LOCK_OK) {
        redis->base.queued = queues || (redis->base.queued && !request->last);
        result = read_take(redis, request, before, lease, holder, why);
        if (result == LOCK_OK)
            result = await_replicas(redis, lease, bound, why);
    } else if (redis->conn.sent) {
        redis->base.uncertain = true;
        text_copy(redis->unanswered, sizeof redis->unanswered, request->take_id);
        if (redis->conn.greeting_failed)
            undo_take(redis, request, bound);
    }
    return redis_script_end(redis, result, why);
}

/* Sends the request, and sends it once more at once if the server has only refused something
 * optional. */
static enum lock_result ask_again(struct redis_backend *redis, const struct lock_request *request,
                                  bool queues, struct lease *lease, struct holder *holder,
                                  struct bound bound, struct errmsg *why)
{
    unsigned lessons = redis->conn.lessons;
    enum lock_result result = ask(redis, request, queues, lease, holder, bound, why);
    if (result == LOCK_UNAVAILABLE && redis->conn.lessons != lessons)
        result = ask(redis, request, queues, lease, holder, bound, why);
    return result;
}

/* True if the waiter must send another request to change its subscriptions. Either it joined the
 * queue as a listener, but the server has just refused the subscription. Or it is the first in the
 * queue, no message on its channel can wake it, and the server does not report changes of the
 * lock's key to it yet. The next request subscribes to whatever the server allows. */
static bool must_subscribe(const struct redis_backend *redis)
{
    const struct redis_listening *listening = &redis->conn.listening;
    struct redis_channels channels = redis_subscribe_to(&redis->conn);
    if (redis->conn.socket.fd < 0 || !redis->base.queued)
        return false;
    if (listening->no_wake && redis->place.ahead == 0 && !channels.touches &&
        !listening->no_touches)
        return true;
    return redis->place.listens && channels.wake == NULL;
}

enum lock_result redis_take(struct backend *backend, const struct lock_request *request,
                            struct lease *lease, struct holder *holder, struct bound bound,
                            struct errmsg *why)
{
    struct redis_backend *redis = redis_of(backend);
    bool stays = request->waits && !request->last;
    /* A waiter that was told that its turn has come usually gets the lock, so its request does not
     * subscribe. */
    bool called = stays && redis->place.called && !redis->place.vain;
    bool queues = stays && redis->place.came > 0 && !called;
    char part[TOKEN_SIZE + sizeof "wake:"];
    snprintf(part, sizeof part, "wake:%s", request->take_id);
    lock_key_companion(redis->place.wake, sizeof redis->place.wake, request->key, part);
    redis->place.attended = request->attended;
    redis->key = request->key;
    enum lock_result result = ask_again(redis, request, queues, lease, holder, bound, why);
    redis->conn.socket.is_crowded |= result == LOCK_HELD;
    redis->place.vain |= called && result == LOCK_HELD;
    if (result == LOCK_HELD && stays && !queues && holder->refusal != REFUSED_DONE)
        result = ask_again(redis, request, true, lease, holder, bound, why);
    for (int i = 0; i < 2 && result == LOCK_HELD && must_subscribe(redis); i++)
        result = ask_again(redis, request, true, lease, holder, bound, why);
    if (result == LOCK_HELD && redis->base.queued)
        redis_sentinel_attend(redis, bound);
    return result;
}

/* --- messages of the server ---------------------------------------------- */

/* Reads a message that keys have changed. `keys` is an array of their names; anything else means
 * that all keys are gone. The server also reports the other keys that the script reads, but only
 * the lock's key matters to a waiter. */
static void hear_touch(struct redis_backend *redis, const redisReply *keys)
{
    redis->place.touched |= keys->type != REDIS_REPLY_ARRAY;
    for (size_t i = 0; i < keys->elements; i++)
        redis->place.touched |= strcmp(redis_reply_text(keys->element[i]), redis->key) == 0;
}

/* Reads a message to this waiter: "turn" (its turn has come), "held MS" (it is now the first in the
 * queue, and the lease of the holder ends in MS milliseconds) or "seen" (it is among the first
 * NEAR_PLACES waiters, and another one of them has just asked, or it has just become one of
 * them). */
static void hear_call(struct redis_place *place, const char *text)
{
    enum { HELD_LEAST_MS = 10 }; /* a shorter time could make this waiter ask over and over */
    int64_t ms = REDIS_MS_MOST;
    if (strcmp(text, "turn") == 0)
        place->called = true;
    if (strncmp(text, "held ", 5) == 0) {
        (void)number_parse(text + 5, 0, REDIS_MS_MOST, &ms);
        struct duration left = DURATION_MS(ms < HELD_LEAST_MS ? HELD_LEAST_MS : ms + 1);
        left = duration_min(left, duration_jittered(head_interval));
        place->ahead = 0;
        place->changes = deadline_earlier(place->changes, deadline_after(left));
    } else if (strcmp(text, "seen") == 0) {
        place->ahead = place->ahead < NEAR_PLACES ? place->ahead : NEAR_PLACES - 1;
        place->look = look_time(place->ahead);
    }
}

void redis_hear(void *data, const char *channel, const redisReply *payload)
{
    struct redis_backend *redis = data;
    if (redis->key == NULL)
        return; /* take() was never called, so no waiter needs this message */
    if (strcmp(channel, REDIS_INVALIDATE) == 0)
        hear_touch(redis, payload);
    else if (strcmp(channel, redis->place.wake) == 0)
        hear_call(&redis->place, redis_reply_text(payload));
}

struct call redis_listen(struct backend *backend)
{
    struct redis_backend *redis = redis_of(backend);
    struct redis_place *place = &redis->place;
    struct call call = {.fd = -1, .poll_most = poll_interval};
    struct redis_channels channels = redis_subscribe_to(&redis->conn);
    bool callable = channels.wake != NULL && !redis->conn.listening.no_wake;
    bool listened = callable || channels.touches;
    bool astray = redis_sentinel_hear(redis) || redis_sentinel_moved(redis);
    if (listened)
        redis_conn_read_messages(&redis->conn);
    /* If the server closes all connections, all waiters notice this at the same moment. A random
     * delay keeps them from asking at the same moment. */
    struct duration random = {duration_jittered(DURATION_S(1)).ns - NS_PER_S / 2};
    if (astray || (listened && redis->conn.socket.fd < 0))
        place->changes = deadline_earlier(place->changes, deadline_after(random));
    call.by = place->changes;
    if (listened && redis->conn.socket.fd >= 0) {
        call.fd = redis->conn.socket.fd;
        call.now = place->called || place->touched || redis_socket_has_unread(&redis->conn.socket);
        /* Do not rely on notifications in a Cluster: if the lock moves to another node, clients
         * there cannot notify the waiter until it has sent that node a request. */
        bool relies = callable && !place->attended && redis->url.topology != REDIS_CLUSTER &&
                      !redis_sentinel_is_unsubscribed(redis);
        place->unseen = relies && deadline_passed(place->look);
        if (relies) {
            call.poll_most = far_interval;
            call.by = deadline_earlier(call.by, place->look);
        }
    }
    if (redis->conn.listening.no_wake) {
        call.cannot = redis->conn.listening.why_wake.text;
        call.poll_most = place->ahead == 0 ? DURATION_MS(500) : poll_interval;
    }
    call.fd = redis_sentinel_join(redis, call.fd);
    return call;
}
