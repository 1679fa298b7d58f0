#include "redis_tracking.h"

#include <stdio.h>
#include <string.h>

/* A server, or a proxy before it, that closes the connection instead of saying
 * no is not asked for ever: the lock must still be looked at. One connection
 * may have ended by itself. */
enum { BROKEN_MOST = 2 };

static bool is_current(const struct redis_tracking *tracking, const struct redis_conn *conn)
{
    return conn->fd >= 0 && tracking->serial == conn->serial;
}

static struct redis_command words(const char *first, const char *second)
{
    struct redis_command command = {0};
    redis_command_add(&command, first);
    redis_command_add(&command, second);
    return command;
}

/* Where the connection is another one, all of it begins anew. */
static void look_at_connection(struct redis_tracking *tracking, const struct redis_conn *conn)
{
    if (is_current(tracking, conn))
        return;
    *tracking = (struct redis_tracking){.serial = conn->serial, .broken = tracking->broken};
    if (tracking->broken >= BROKEN_MOST) {
        tracking->broken = 0;
        tracking->impossible = true;
        why_set(&tracking->why, "the connection ended when CLIENT TRACKING was tried");
    }
}

static enum lock_result nonsense(struct redis_conn *conn, struct why *why)
{
    redis_conn_close(conn);
    why_set(why, "its answer makes no sense");
    return LOCK_UNAVAILABLE;
}

/* The answer to (UN)SUBSCRIBE: that word, the channel, how many there are. */
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

/* Keeps the first one. */
static void note_refusal(struct why *refusal, const char *command, const redisReply *error)
{
    if (refusal->text[0] == '\0')
        why_set(refusal, "%s: %.400s", command, error->str);
}

/* Asks for the id of the connection, and whether it may UNSUBSCRIBE: one that
 * could not leave the channel again would be of no use. */
static enum lock_result ask_id(struct redis_tracking *tracking, struct redis_conn *conn, struct why *refusal,
                               struct bound bound, struct why *why)
{
    const struct redis_command commands[] = {words("CLIENT", "ID"), words("UNSUBSCRIBE", REDIS_INVALIDATE)};
    redisReply *replies[2];
    enum lock_result result = redis_conn_call(conn, commands, 2, replies, bound, why);
    if (result != LOCK_OK)
        return result;
    if (is_error(replies[0]))
        note_refusal(refusal, "CLIENT ID", replies[0]);
    else if (is_error(replies[1]))
        note_refusal(refusal, "UNSUBSCRIBE", replies[1]);
    else if (replies[0]->type == REDIS_REPLY_INTEGER && replies[0]->integer > 0 && is_count(replies[1], "unsubscribe", 0))
        tracking->id = replies[0]->integer;
    else
        result = nonsense(conn, why);
    free_replies(replies, 2);
    return result;
}

/* What goes out in one write; the places of its parts, -1 where one is not
 * needed. */
struct batch {
    struct redis_command commands[4];
    redisReply *replies[4];
    int count, leave, on, script, enter;
    char id[24];
};

static int add(struct batch *batch, struct redis_command command)
{
    batch->commands[batch->count] = command;
    return batch->count++;
}

static void fill_batch(struct batch *batch, const struct redis_tracking *tracking, const struct redis_command *script, bool arm)
{
    *batch = (struct batch){.leave = -1, .on = -1, .enter = -1};
    if (tracking->subscribed)
        batch->leave = add(batch, words("UNSUBSCRIBE", REDIS_INVALIDATE));
    if (arm && !tracking->on) {
        struct redis_command command = words("CLIENT", "TRACKING");
        snprintf(batch->id, sizeof batch->id, "%lld", tracking->id);
        redis_command_add(&command, "ON");
        redis_command_add(&command, "REDIRECT");
        redis_command_add(&command, batch->id);
        batch->on = add(batch, command);
    }
    batch->script = add(batch, *script);
    if (arm)
        batch->enter = add(batch, words("SUBSCRIBE", REDIS_INVALIDATE));
}

/* Takes in the replies but that to the script. LOCK_UNAVAILABLE: the
 * connection is closed, since nobody knows what it would take now. */
static enum lock_result read_batch(struct redis_tracking *tracking, struct redis_conn *conn, const struct batch *batch,
                                   struct why *refusal, struct why *why)
{
    const redisReply *leave = batch->leave < 0 ? NULL : batch->replies[batch->leave];
    const redisReply *on = batch->on < 0 ? NULL : batch->replies[batch->on];
    const redisReply *enter = batch->enter < 0 ? NULL : batch->replies[batch->enter];
    if (leave != NULL && is_error(leave)) {
        (void)redis_error_result(leave->str, why); /* for the text; another connection may do */
        redis_conn_close(conn);
        return LOCK_UNAVAILABLE;
    }
    if (leave != NULL && !is_count(leave, "unsubscribe", 0))
        return nonsense(conn, why);
    tracking->subscribed = false;
    if (on != NULL && is_error(on))
        note_refusal(refusal, "CLIENT TRACKING", on);
    else if (on != NULL && on->type != REDIS_REPLY_STATUS)
        return nonsense(conn, why);
    else if (on != NULL)
        tracking->on = true;
    if (enter != NULL && is_error(enter))
        note_refusal(refusal, "SUBSCRIBE", enter);
    else if (enter != NULL && !is_count(enter, "subscribe", 1))
        return nonsense(conn, why);
    else if (enter != NULL)
        tracking->subscribed = true;
    return LOCK_OK;
}

static enum lock_result call(struct redis_tracking *tracking, struct redis_conn *conn, const struct redis_command *script,
                             bool arm, redisReply **reply, struct bound bound, struct why *why)
{
    struct why refusal = {""};
    struct batch batch;
    enum lock_result result = LOCK_OK;
    if (arm && tracking->id == 0) {
        result = ask_id(tracking, conn, &refusal, bound, why);
        arm = refusal.text[0] == '\0';
    }
    if (result != LOCK_OK)
        return result;
    fill_batch(&batch, tracking, script, arm);
    result = redis_conn_call(conn, batch.commands, batch.count, batch.replies, bound, why);
    if (result != LOCK_OK)
        return result;
    result = read_batch(tracking, conn, &batch, &refusal, why);
    if (result == LOCK_OK) {
        *reply = batch.replies[batch.script];
        batch.replies[batch.script] = NULL;
        if (refusal.text[0] != '\0' && is_served(*reply)) {
            tracking->impossible = true;
            tracking->why = refusal;
        }
    }
    free_replies(batch.replies, batch.count);
    return result;
}

enum lock_result redis_tracking_call(struct redis_tracking *tracking, struct redis_conn *conn,
                                     const struct redis_command *script, bool arm, redisReply **reply,
                                     struct bound bound, struct why *why)
{
    look_at_connection(tracking, conn);
    arm = arm && !tracking->impossible;
    bool fresh = arm && !redis_tracking_armed(tracking, conn);
    enum lock_result result = call(tracking, conn, script, arm, reply, bound, why);
    if (fresh && result == LOCK_UNAVAILABLE && conn->fd < 0)
        tracking->broken++;
    else if (fresh && result == LOCK_OK)
        tracking->broken = 0;
    return result;
}

bool redis_tracking_armed(const struct redis_tracking *tracking, const struct redis_conn *conn)
{
    return is_current(tracking, conn) && tracking->on && tracking->subscribed;
}

const char *redis_tracking_cannot(const struct redis_tracking *tracking, const struct redis_conn *conn)
{
    return is_current(tracking, conn) && tracking->impossible ? tracking->why.text : NULL;
}
