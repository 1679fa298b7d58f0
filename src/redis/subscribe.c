#include "redis/subscribe.h"

#include <stdio.h>
#include <string.h>

/* A server, or a proxy before it, that closes the connection instead of saying
 * no is not asked for ever: the lock must still be looked at. One connection
 * may have ended by itself. */
enum { BROKEN_MOST = 2 };

static bool is_current(const struct redis_listening *listening, const struct redis_conn *conn)
{
    return conn->socket.fd >= 0 && listening->serial == conn->serial;
}

static int count_ears(struct redis_ears ears)
{
    return ears.touches + (ears.wake != NULL);
}

/* (UN)SUBSCRIBE with all of the channels. */
static struct redis_command channels(const char *first, struct redis_ears ears)
{
    struct redis_command command = {.replies = count_ears(ears)};
    redis_command_add(&command, first);
    if (ears.wake != NULL)
        redis_command_add(&command, ears.wake);
    if (ears.touches)
        redis_command_add(&command, REDIS_INVALIDATE);
    return command;
}

/* Where the connection is another one, all of it begins anew. */
static void look_at_connection(struct redis_listening *listening, const struct redis_conn *conn)
{
    if (is_current(listening, conn))
        return;
    *listening = (struct redis_listening){.serial = conn->serial, .broken = listening->broken};
    if (listening->broken >= BROKEN_MOST) {
        listening->broken = 0;
        listening->no_touches = listening->no_wake = true;
        why_set(&listening->why_touches, "the connection ended when CLIENT TRACKING was tried");
        why_set(&listening->why_wake, "the connection ended when SUBSCRIBE was tried");
    }
}

/* The last answer to (UN)SUBSCRIBE: that word, the channel, how many there are. */
static bool is_count(const redisReply *reply, const char *word, long long count)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 && reply->element[0]->type == REDIS_REPLY_STRING &&
           strcmp(reply->element[0]->str, word) == 0 && reply->element[2]->type == REDIS_REPLY_INTEGER &&
           reply->element[2]->integer == count;
}

static bool is_error(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR;
}

/* A server that is loading or busy refuses everything for a while. */
static bool is_served(const redisReply *reply)
{
    return !is_error(reply) || strncmp(reply->str, "NOSCRIPT", 8) == 0;
}

static void free_replies(redisReply **replies, int count)
{
    while (count > 0)
        freeReplyObject(replies[--count]);
}

/* What the server has refused in the course of one call. */
struct refusals {
    struct why touches, wake;
    bool pass; /* one of them is due to a trouble that passes: nothing is learnt from it */
};

/* Keeps the first one. */
static void note_refusal(struct refusals *refusals, struct why *refusal, const char *command, const redisReply *error)
{
    struct why ignored = {""};
    refusals->pass |= redis_error_has_code(error->str) && redis_error_result(error->str, &ignored) == LOCK_UNAVAILABLE;
    if (refusal->text[0] == '\0')
        why_set(refusal, "%s: %.400s", command, error->str);
}

/* Asks for the id of the connection, and whether it may UNSUBSCRIBE: one that
 * could not leave a channel again would be of no use. */
static enum lock_result ask_id(struct redis_listening *listening, struct redis_conn *conn, struct refusals *refusals,
                               struct bound bound, struct why *why)
{
    const struct redis_command commands[] = {redis_words("CLIENT", "ID"), redis_words("UNSUBSCRIBE", REDIS_INVALIDATE)};
    redisReply *replies[2];
    enum lock_result result = redis_conn_call(conn, commands, 2, replies, bound, why);
    if (result != LOCK_OK)
        return result;
    if (is_error(replies[0]))
        note_refusal(refusals, &refusals->touches, "CLIENT ID", replies[0]);
    else if (replies[0]->type == REDIS_REPLY_INTEGER && replies[0]->integer > 0)
        listening->id = replies[0]->integer;
    else
        result = redis_conn_nonsense(conn, why);
    if (is_error(replies[1])) {
        note_refusal(refusals, &refusals->touches, "UNSUBSCRIBE", replies[1]);
        note_refusal(refusals, &refusals->wake, "UNSUBSCRIBE", replies[1]);
    } else if (result == LOCK_OK && !is_count(replies[1], "unsubscribe", 0)) {
        result = redis_conn_nonsense(conn, why);
    }
    free_replies(replies, 2);
    return result;
}

/* What goes out in one write; the places of its parts, -1 where one is not
 * needed. Tracking is turned on at the first call that listens to anything, so
 * that this does not have to be done when it is urgent; a script of which the
 * touches do not matter is spared. */
struct batch {
    struct redis_command commands[5];
    redisReply *replies[5];
    struct redis_ears ears; /* that it subscribes to */
    int count, leave, on, spare, asking, script, enter;
    char id[24];
};

static int add(struct batch *batch, struct redis_command command)
{
    batch->commands[batch->count] = command;
    return batch->count++;
}

/* CLIENT CACHING and ASKING hold for the next command alone, so that there is room
 * for one of them: a touch too many does no harm. */
static void fill_batch(struct batch *batch, const struct redis_listening *listening, const struct redis_command *script,
                       struct redis_ears ears, bool asking)
{
    bool tells = count_ears(ears) > 0 && !listening->no_touches;
    *batch = (struct batch){.leave = -1, .on = -1, .spare = -1, .asking = -1, .enter = -1, .ears = ears};
    if (count_ears(listening->ears) > 0)
        batch->leave = add(batch, channels("UNSUBSCRIBE", listening->ears));
    if (tells && !listening->on) {
        snprintf(batch->id, sizeof batch->id, "%lld", listening->id);
        batch->on = add(batch, redis_words("CLIENT", "TRACKING", "ON", "REDIRECT", batch->id, "OPTOUT"));
    }
    if (tells && !ears.touches && !asking)
        batch->spare = add(batch, redis_words("CLIENT", "CACHING", "NO"));
    if (asking)
        batch->asking = add(batch, redis_words("ASKING"));
    batch->script = add(batch, *script);
    if (count_ears(ears) > 0)
        batch->enter = add(batch, channels("SUBSCRIBE", ears));
}

/* Takes in the replies but that to the script. LOCK_UNAVAILABLE: the
 * connection is closed, since nobody knows what it would take now. */
static enum lock_result read_batch(struct redis_listening *listening, struct redis_conn *conn, const struct batch *batch,
                                   struct refusals *refusals, struct why *why)
{
    const redisReply *leave = batch->leave < 0 ? NULL : batch->replies[batch->leave];
    const redisReply *on = batch->on < 0 ? NULL : batch->replies[batch->on];
    const redisReply *spare = batch->spare < 0 ? NULL : batch->replies[batch->spare];
    const redisReply *enter = batch->enter < 0 ? NULL : batch->replies[batch->enter];
    if (leave != NULL && is_error(leave)) {
        (void)redis_error_result(leave->str, why); /* for the text; another connection may do */
        redis_conn_close(conn);
        return LOCK_UNAVAILABLE;
    }
    if (leave != NULL && !is_count(leave, "unsubscribe", 0))
        return redis_conn_nonsense(conn, why);
    listening->ears = (struct redis_ears){0};
    if (on != NULL && is_error(on))
        note_refusal(refusals, &refusals->touches, "CLIENT TRACKING", on);
    else if (on != NULL && on->type != REDIS_REPLY_STATUS)
        return redis_conn_nonsense(conn, why);
    else if (on != NULL)
        listening->on = true;
    if (spare != NULL && is_error(spare))
        note_refusal(refusals, &refusals->touches, "CLIENT CACHING", spare);
    /* Of two channels one may be allowed: the next call tries ours alone. */
    if (enter != NULL && is_error(enter))
        note_refusal(refusals, batch->ears.touches ? &refusals->touches : &refusals->wake, "SUBSCRIBE", enter);
    else if (enter != NULL && !is_count(enter, "subscribe", count_ears(batch->ears)))
        return redis_conn_nonsense(conn, why);
    else if (enter != NULL)
        listening->ears = batch->ears;
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

static enum lock_result call(struct redis_listening *listening, struct redis_conn *conn, const struct redis_command *script,
                             struct redis_ears ears, redisReply **reply, struct bound bound, struct why *why)
{
    struct refusals refusals = {.pass = false};
    struct batch batch;
    enum lock_result result = LOCK_OK;
    if (count_ears(ears) > 0 && listening->id == 0 && !listening->no_touches) {
        result = ask_id(listening, conn, &refusals, bound, why);
        ears.touches = ears.touches && refusals.touches.text[0] == '\0';
        ears.wake = refusals.wake.text[0] == '\0' ? ears.wake : NULL;
    }
    if (result != LOCK_OK)
        return result;
    fill_batch(&batch, listening, script, ears, conn->asking);
    result = redis_conn_call(conn, batch.commands, batch.count, batch.replies, bound, why);
    if (result != LOCK_OK)
        return result;
    result = read_batch(listening, conn, &batch, &refusals, why);
    if (result == LOCK_OK) {
        /* Without ASKING it is led back and forth; why not, its own error says. */
        bool unasked = batch.asking >= 0 && is_error(batch.replies[batch.asking]) && is_error(batch.replies[batch.script]);
        int answer = unasked ? batch.asking : batch.script;
        *reply = batch.replies[answer];
        batch.replies[answer] = NULL;
        if (is_served(*reply))
            learn(listening, &refusals);
    }
    free_replies(batch.replies, batch.count);
    return result;
}

enum lock_result redis_listening_call(struct redis_listening *listening, struct redis_conn *conn,
                                      const struct redis_command *script, struct redis_ears ears, redisReply **reply,
                                      struct bound bound, struct why *why)
{
    look_at_connection(listening, conn);
    ears.touches = ears.touches && !listening->no_touches;
    ears.wake = listening->no_wake ? NULL : ears.wake;
    bool fresh = count_ears(ears) > 0 && count_ears(listening->ears) == 0;
    enum lock_result result = call(listening, conn, script, ears, reply, bound, why);
    if (fresh && result == LOCK_UNAVAILABLE && conn->socket.fd < 0)
        listening->broken++;
    else if (fresh && result == LOCK_OK)
        listening->broken = 0;
    return result;
}

struct redis_ears redis_listening_to(const struct redis_listening *listening, const struct redis_conn *conn)
{
    struct redis_ears ears = {0};
    if (is_current(listening, conn))
        ears = listening->ears;
    ears.touches = ears.touches && listening->on;
    return ears;
}
