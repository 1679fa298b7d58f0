#include "redis/subscribe.h"

#include <stdio.h>
#include <string.h>

/* A server, or a proxy before it, that closes the connection instead of refusing is not
 * asked for ever: the lock must still be looked at. A single connection may have ended by
 * itself. */
enum { BROKEN_MOST = 2 };

static bool is_current(const struct redis_listening *listening, const struct redis_conn *conn)
{
    return conn->socket.fd >= 0 && listening->serial == conn->serial;
}

enum { CHANNELS_MOST = 2 };

/* The channels for these notifications. */
static int channel_names(struct redis_channels channels, const char *names[CHANNELS_MOST])
{
    int count = 0;
    if (channels.touches)
        names[count++] = REDIS_INVALIDATE;
    if (channels.wake != NULL)
        names[count++] = channels.wake;
    return count;
}

/* On a different connection, all of it begins anew. */
static void look_at_connection(struct redis_listening *listening, const struct redis_conn *conn)
{
    if (is_current(listening, conn))
        return;
    *listening = (struct redis_listening){.serial = conn->serial, .broken = listening->broken};
    if (listening->broken >= BROKEN_MOST) {
        listening->broken = 0;
        listening->no_touches = listening->no_wake = true;
        errmsg_set(&listening->why_touches, "the connection ended when CLIENT TRACKING was tried");
        errmsg_set(&listening->why_wake, "the connection ended when SUBSCRIBE was tried");
    }
}

/* The reply to (UN)SUBSCRIBE: that word, the channel, the number of subscriptions. */
static bool is_count(const redisReply *reply, const char *word, long long count)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
           reply->element[0]->type == REDIS_REPLY_STRING &&
           strcmp(reply->element[0]->str, word) == 0 &&
           reply->element[2]->type == REDIS_REPLY_INTEGER && reply->element[2]->integer == count;
}

static bool is_error(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR;
}

static void free_replies(redisReply **replies, int count)
{
    while (count > 0)
        freeReplyObject(replies[--count]);
}

/* The refusals of the server during one call. */
struct refusals {
    struct errmsg touches, wake;
    bool pass; /* one of them is caused by a passing problem: nothing is learnt from it */
};

/* Keeps the first one. */
static void note_refusal(struct refusals *refusals, struct errmsg *refusal, const char *command,
                         const redisReply *error)
{
    struct errmsg ignored = {""};
    refusals->pass |= redis_error_has_code(error->str) &&
                      redis_error_result(error->str, &ignored) == LOCK_UNAVAILABLE;
    if (refusal->text[0] == '\0')
        errmsg_set(refusal, "%s: %.400s", command, error->str);
}

/* It is unknown what the connection would accept now; another one may do. */
static enum lock_result subscribe_give_up(struct redis_conn *conn, const redisReply *error,
                                          struct errmsg *why)
{
    (void)redis_error_result(error->str, why); /* for the text */
    redis_conn_close(conn);
    return LOCK_UNAVAILABLE;
}

/* Servers before Redis 6.2 leave a transaction open if they do not execute it for another
 * reason. */
static bool is_discarded(const redisReply *exec)
{
    return is_error(exec) && strncmp(exec->str, "EXECABORT", strlen("EXECABORT")) == 0;
}

/* Asks for the id of the connection, and for permission for the other commands: a
 * connection that could not leave a channel again, or not end a transaction, would be of
 * no use. */
static enum lock_result ask_id(struct redis_listening *listening, struct redis_conn *conn,
                               struct refusals *refusals, struct bound bound, struct errmsg *why)
{
    enum { ID, LEAVE, BEGIN, END, QUESTIONS };
    static const char *const names[QUESTIONS] = {"CLIENT ID", "UNSUBSCRIBE", "MULTI", "EXEC"};
    const struct redis_command commands[QUESTIONS] = {redis_words("CLIENT", "ID"),
                                                      redis_words("UNSUBSCRIBE", REDIS_INVALIDATE),
                                                      redis_words("MULTI"), redis_words("EXEC")};
    redisReply *replies[QUESTIONS];
    enum lock_result result = redis_conn_call(conn, commands, QUESTIONS, replies, bound, why);
    if (result != LOCK_OK)
        return result;
    for (int i = 0; i < QUESTIONS; i++) {
        if (is_error(replies[i]))
            note_refusal(refusals, &refusals->touches, names[i], replies[i]);
        if (is_error(replies[i]) && i != ID)
            note_refusal(refusals, &refusals->wake, names[i], replies[i]);
    }
    if (!is_error(replies[BEGIN]) && is_error(replies[END]) && !is_discarded(replies[END]))
        result = subscribe_give_up(conn, replies[END], why);
    else if (replies[ID]->type == REDIS_REPLY_INTEGER && replies[ID]->integer > 0)
        listening->id = replies[ID]->integer;
    else if (!is_error(replies[ID]))
        result = redis_conn_nonsense(conn, why);
    free_replies(replies, QUESTIONS);
    return result;
}

/* The commands that go out in one write; the indexes of its parts, -1 for a part that is
 * not needed. Tracking is turned on at the first call that listens to anything, so that
 * this need not be done when it is urgent; a script whose touches do not matter is not
 * tracked: until a key changes the server remembers each connection that has read it, and
 * the release of a lock was its last one. */
struct batch {
    struct redis_command commands[2 * CHANNELS_MOST + 5];
    redisReply *replies[2 * CHANNELS_MOST + 5];
    struct redis_channels channels; /* that it subscribes to */
    int count, left, on, spare, asking, script, entered;
    char id[24];
};

static int subscribe_add(struct batch *batch, struct redis_command command)
{
    batch->commands[batch->count] = command;
    return batch->count++;
}

/* CLIENT CACHING and ASKING apply only to the next command, so there is room for one of
 * them: an unneeded report of a touch does no harm. */
static void fill_batch(struct batch *batch, const struct redis_listening *listening,
                       const struct redis_command *script, struct redis_channels channels,
                       bool asking)
{
    const char *leave[CHANNELS_MOST], *enter[CHANNELS_MOST];
    bool tells = redis_subscribe_any(channels) && !listening->no_touches;
    *batch = (struct batch){.on = -1, .spare = -1, .asking = -1, .channels = channels};
    batch->left = channel_names(listening->channels, leave);
    batch->entered = channel_names(channels, enter);
    for (int i = 0; i < batch->left; i++)
        subscribe_add(batch, redis_words("UNSUBSCRIBE", leave[i]));
    if (tells && !listening->on) {
        snprintf(batch->id, sizeof batch->id, "%lld", listening->id);
        batch->on = subscribe_add(batch, redis_words("CLIENT", "TRACKING", "ON", "REDIRECT",
                                                     batch->id, "OPTOUT", "NOLOOP"));
    }
    if (asking)
        batch->asking = subscribe_add(batch, redis_words("ASKING"));
    else if ((tells || listening->on) && !channels.touches)
        batch->spare = subscribe_add(batch, redis_words("CLIENT", "CACHING", "NO"));
    if (batch->entered > 0)
        subscribe_add(batch, redis_words("MULTI"));
    batch->script = subscribe_add(batch, *script);
    for (int i = 0; i < batch->entered; i++)
        subscribe_add(batch, redis_words("SUBSCRIBE", enter[i]));
    if (batch->entered > 0)
        subscribe_add(batch, redis_words("EXEC"));
}

static redisReply *take_over(redisReply **reply)
{
    redisReply *taken = *reply;
    *reply = NULL;
    return taken;
}

/* The replies to MULTI, script, SUBSCRIBE... and EXEC. LOCK_OK with *reply NULL: nothing
 * was carried out. */
static enum lock_result read_transaction(struct redis_listening *listening, struct redis_conn *conn,
                                         struct batch *batch, redisReply **reply,
                                         struct refusals *refusals, struct errmsg *why)
{
    redisReply *const *queued = &batch->replies[batch->script];
    const redisReply *begin = queued[-1], *exec = batch->replies[batch->count - 1];
    /* Without MULTI the script was run and the channels were entered one by one; EXEC may
     * answer EXECABORT even then. */
    if (is_error(begin))
        return subscribe_give_up(conn, begin, why);
    for (int i = 1; is_error(exec) && i <= batch->entered; i++)
        if (is_error(queued[i]))
            note_refusal(refusals,
                         batch->channels.touches && i == 1 ? &refusals->touches : &refusals->wake,
                         "SUBSCRIBE", queued[i]);
    if (is_error(exec))
        return is_discarded(exec) ? LOCK_OK : subscribe_give_up(conn, exec, why);
    bool whole = exec->type == REDIS_REPLY_ARRAY && exec->elements == 1 + (size_t)batch->entered;
    for (int i = 1; whole && i <= batch->entered; i++)
        whole = is_count(exec->element[i], "subscribe", i);
    if (!whole)
        return redis_conn_nonsense(conn, why);
    listening->channels = batch->channels;
    *reply = take_over(&exec->element[0]);
    return LOCK_OK;
}

/* Reads the replies. LOCK_UNAVAILABLE: the connection is closed, since it is unknown what
 * it would accept now. */
static enum lock_result read_batch(struct redis_listening *listening, struct redis_conn *conn,
                                   struct batch *batch, redisReply **reply,
                                   struct refusals *refusals, struct errmsg *why)
{
    const redisReply *on = batch->on < 0 ? NULL : batch->replies[batch->on];
    const redisReply *spare = batch->spare < 0 ? NULL : batch->replies[batch->spare];
    for (int i = 0; i < batch->left; i++) {
        if (is_error(batch->replies[i]))
            return subscribe_give_up(conn, batch->replies[i], why);
        if (!is_count(batch->replies[i], "unsubscribe", batch->left - 1 - i))
            return redis_conn_nonsense(conn, why);
    }
    listening->channels = (struct redis_channels){0};
    if (on != NULL && is_error(on))
        note_refusal(refusals, &refusals->touches, "CLIENT TRACKING", on);
    else if (on != NULL && on->type != REDIS_REPLY_STATUS)
        return redis_conn_nonsense(conn, why);
    else if (on != NULL)
        listening->on = true;
    if (spare != NULL && is_error(spare) && redis_subscribe_any(batch->channels))
        note_refusal(refusals, &refusals->touches, "CLIENT CACHING", spare);
    if (batch->entered > 0)
        return read_transaction(listening, conn, batch, reply, refusals, why);
    *reply = take_over(&batch->replies[batch->script]);
    return LOCK_OK;
}

static void learn(struct redis_listening *listening, const struct refusals *refusals)
{
    if (refusals->pass)
        return;
    if (refusals->touches.text[0] != '\0') {
        listening->no_touches = true;
        listening->why_touches = refusals->touches;
    }
    if (refusals->wake.text[0] != '\0') {
        listening->no_wake = true;
        listening->why_wake = refusals->wake;
    }
}

static enum lock_result call(struct redis_listening *listening, struct redis_conn *conn,
                             const struct redis_command *script, struct redis_channels channels,
                             redisReply **reply, struct bound bound, struct errmsg *why)
{
    struct refusals refusals = {.pass = false};
    enum lock_result result = LOCK_OK;
    *reply = NULL;
    if (redis_subscribe_any(channels) && listening->id == 0 && !listening->no_touches)
        result = ask_id(listening, conn, &refusals, bound, why);
    channels.touches = channels.touches && refusals.touches.text[0] == '\0';
    channels.wake = refusals.wake.text[0] == '\0' ? channels.wake : NULL;
    /* A channel is refused, the server is full or busy, or the slot has moved: the script
     * by itself may still be carried out, or its error says why not. */
    for (; result == LOCK_OK && *reply == NULL; channels = (struct redis_channels){0}) {
        struct batch batch;
        fill_batch(&batch, listening, script, channels, conn->asking);
        result = redis_conn_call(conn, batch.commands, batch.count, batch.replies, bound, why);
        if (result != LOCK_OK)
            break;
        result = read_batch(listening, conn, &batch, reply, &refusals, why);
        /* Without ASKING the call is redirected back and forth; the script's own error
         * says why it fails. */
        if (*reply != NULL && is_error(*reply) && batch.asking >= 0 &&
            is_error(batch.replies[batch.asking])) {
            freeReplyObject(*reply);
            *reply = take_over(&batch.replies[batch.asking]);
        }
        free_replies(batch.replies, batch.count);
    }
    /* A server that is loading or busy refuses everything for a while. */
    if (result == LOCK_OK &&
        (!is_error(*reply) || strncmp((*reply)->str, "NOSCRIPT", strlen("NOSCRIPT")) == 0))
        learn(listening, &refusals);
    return result;
}

enum lock_result redis_subscribe_call(struct redis_listening *listening, struct redis_conn *conn,
                                      const struct redis_command *script,
                                      struct redis_channels channels, redisReply **reply,
                                      struct bound bound, struct errmsg *why)
{
    look_at_connection(listening, conn);
    channels.touches = channels.touches && !listening->no_touches;
    channels.wake = listening->no_wake ? NULL : channels.wake;
    bool fresh = redis_subscribe_any(channels) && !redis_subscribe_any(listening->channels);
    enum lock_result result = call(listening, conn, script, channels, reply, bound, why);
    if (fresh && result == LOCK_UNAVAILABLE && conn->socket.fd < 0)
        listening->broken++;
    else if (fresh && result == LOCK_OK)
        listening->broken = 0;
    return result;
}

bool redis_subscribe_any(struct redis_channels channels)
{
    return channels.touches || channels.wake != NULL;
}

struct redis_channels redis_subscribe_to(const struct redis_listening *listening,
                                         const struct redis_conn *conn)
{
    struct redis_channels channels = {0};
    if (is_current(listening, conn))
        channels = listening->channels;
    channels.touches = channels.touches && listening->on;
    return channels;
}
