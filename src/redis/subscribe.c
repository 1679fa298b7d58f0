/* Notifications: redis/conn.h. */
#include "redis/conn.h"

#include <stdio.h>
#include <string.h>

enum {
    /* A server, or a proxy before it, may close the connection instead of refusing to subscribe.
     * After so many in a row dlock stops subscribing, because it must still look at the lock. A
     * single connection may have ended for another reason. */
    BROKEN_MOST = 2,
    CHANNELS_MOST = 2,
};

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

/* True for a reply to (UN)SUBSCRIBE: this word, the channel, this number of subscriptions. */
static bool is_count(const redisReply *reply, const char *word, long long count)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
           strcmp(redis_reply_text(reply->element[0]), word) == 0 &&
           reply->element[2]->type == REDIS_REPLY_INTEGER && reply->element[2]->integer == count;
}

static bool is_error(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_ERROR;
}

/* True if EXEC has discarded the transaction. After any other error of EXEC, servers before Redis
 * 6.2 leave it open. */
static bool is_discarded(const redisReply *exec)
{
    return is_error(exec) && strncmp(exec->str, "EXECABORT", strlen("EXECABORT")) == 0;
}

static redisReply *take_over(redisReply **reply)
{
    redisReply *taken = *reply;
    *reply = NULL;
    return taken;
}

static void free_replies(redisReply **replies, int count)
{
    while (count > 0)
        freeReplyObject(replies[--count]);
}

/* One call of redis_subscribe_call(). */
struct attempt {
    struct redis_conn *conn;
    struct redis_channels channels;    /* to subscribe to */
    struct errmsg no_touches, no_wake; /* the server's first refusal of each */
    bool pass;                         /* a refusal has a passing cause: learn() remembers none */
    redisReply *reply;                 /* the script's; NULL: it has not been run */
    struct errmsg *why;
};

static void note_refusal(struct attempt *attempt, struct errmsg *refusal, const char *command,
                         const redisReply *error)
{
    struct errmsg ignored = {""};
    attempt->pass |= redis_error_has_code(error->str) &&
                     redis_error_result(error->str, &ignored) == LOCK_UNAVAILABLE;
    if (refusal->text[0] == '\0')
        errmsg_set(refusal, "%s: %.400s", command, error->str);
}

/* Closes the connection, because it is unknown what it would accept now; a new one may work. */
static enum lock_result give_up(const struct attempt *attempt, const redisReply *error)
{
    (void)redis_error_result(error->str, attempt->why); /* for the text */
    redis_conn_close(attempt->conn);
    return LOCK_UNAVAILABLE;
}

/* Asks for the id of the connection, and tries the other commands: a connection that could not
 * leave a channel again, or not end a transaction, would be of no use. */
static enum lock_result ask_id(struct attempt *attempt, struct bound bound)
{
    enum { ID, LEAVE, BEGIN, END, QUESTIONS };
    static const char *const names[QUESTIONS] = {"CLIENT ID", "UNSUBSCRIBE", "MULTI", "EXEC"};
    const struct redis_command commands[QUESTIONS] = {redis_words("CLIENT", "ID"),
                                                      redis_words("UNSUBSCRIBE", REDIS_INVALIDATE),
                                                      redis_words("MULTI"), redis_words("EXEC")};
    redisReply *replies[QUESTIONS];
    enum lock_result result =
        redis_conn_call(attempt->conn, commands, QUESTIONS, replies, bound, attempt->why);
    if (result != LOCK_OK)
        return result;

    for (int i = 0; i < QUESTIONS; i++) {
        if (is_error(replies[i]))
            note_refusal(attempt, &attempt->no_touches, names[i], replies[i]);
        if (is_error(replies[i]) && i != ID)
            note_refusal(attempt, &attempt->no_wake, names[i], replies[i]);
    }
    if (!is_error(replies[BEGIN]) && is_error(replies[END]) && !is_discarded(replies[END]))
        result = give_up(attempt, replies[END]);
    else if (replies[ID]->type == REDIS_REPLY_INTEGER && replies[ID]->integer > 0)
        attempt->conn->listening.id = replies[ID]->integer;
    else if (!is_error(replies[ID]))
        result = redis_conn_nonsense(attempt->conn, attempt->why);
    free_replies(replies, QUESTIONS);
    return result;
}

/* The commands that go out in one write, and the indexes of its parts; -1: not needed. The first
 * call that listens to anything turns tracking on, so that no urgent call needs to. A script whose
 * touches do not matter is not tracked, because the server remembers each reader of a key until the
 * key changes, and a key does not change again after the release of its lock. */
struct batch {
    struct redis_command commands[2 * CHANNELS_MOST + 5];
    redisReply *replies[2 * CHANNELS_MOST + 5];
    int count, left, on, spare, asking, script, entered;
    char id[24];
};

static int add(struct batch *batch, struct redis_command command)
{
    batch->commands[batch->count] = command;
    return batch->count++;
}

/* CLIENT CACHING and ASKING apply only to the next command, so only one of them can be sent. ASKING
 * goes first: an unneeded report of a touch does no harm. */
static void fill(struct batch *batch, const struct attempt *attempt,
                 const struct redis_command *script)
{
    const struct redis_listening *listening = &attempt->conn->listening;
    const char *leave[CHANNELS_MOST], *enter[CHANNELS_MOST];
    bool tells = redis_subscribe_any(attempt->channels) && !listening->no_touches;
    *batch = (struct batch){.on = -1, .spare = -1, .asking = -1};
    batch->left = channel_names(listening->channels, leave);
    batch->entered = channel_names(attempt->channels, enter);

    for (int i = 0; i < batch->left; i++)
        add(batch, redis_words("UNSUBSCRIBE", leave[i]));
    if (tells && !listening->on) {
        snprintf(batch->id, sizeof batch->id, "%lld", listening->id);
        batch->on = add(batch, redis_words("CLIENT", "TRACKING", "ON", "REDIRECT", batch->id,
                                           "OPTOUT", "NOLOOP"));
    }
    if (attempt->conn->asking)
        batch->asking = add(batch, redis_words("ASKING"));
    else if ((tells || listening->on) && !attempt->channels.touches)
        batch->spare = add(batch, redis_words("CLIENT", "CACHING", "NO"));

    if (batch->entered > 0)
        add(batch, redis_words("MULTI"));
    batch->script = add(batch, *script);
    for (int i = 0; i < batch->entered; i++)
        add(batch, redis_words("SUBSCRIBE", enter[i]));
    if (batch->entered > 0)
        add(batch, redis_words("EXEC"));
}

/* The replies to MULTI, script, SUBSCRIBE... and EXEC. LOCK_OK without attempt->reply: the server
 * carried out nothing. */
static enum lock_result read_transaction(struct attempt *attempt, const struct batch *batch)
{
    redisReply *const *queued = &batch->replies[batch->script];
    const redisReply *begin = queued[-1], *exec = batch->replies[batch->count - 1];
    /* If the server refused MULTI, it ran the script and each SUBSCRIBE by themselves; EXEC may
     * answer EXECABORT even then. */
    if (is_error(begin))
        return give_up(attempt, begin);
    for (int i = 1; is_error(exec) && i <= batch->entered; i++)
        if (is_error(queued[i]))
            note_refusal(attempt,
                         attempt->channels.touches && i == 1 ? &attempt->no_touches
                                                             : &attempt->no_wake,
                         "SUBSCRIBE", queued[i]);
    if (is_error(exec))
        return is_discarded(exec) ? LOCK_OK : give_up(attempt, exec);

    bool whole = exec->type == REDIS_REPLY_ARRAY && exec->elements == 1 + (size_t)batch->entered;
    for (int i = 1; whole && i <= batch->entered; i++)
        whole = is_count(exec->element[i], "subscribe", i);
    if (!whole)
        return redis_conn_nonsense(attempt->conn, attempt->why);
    attempt->conn->listening.channels = attempt->channels;
    attempt->reply = take_over(&exec->element[0]);
    return LOCK_OK;
}

/* Reads the replies. LOCK_UNAVAILABLE: the connection is closed, because it is unknown what
 * it would accept now. */
static enum lock_result read_batch(struct attempt *attempt, struct batch *batch)
{
    struct redis_listening *listening = &attempt->conn->listening;
    for (int i = 0; i < batch->left; i++) {
        if (is_error(batch->replies[i]))
            return give_up(attempt, batch->replies[i]);
        if (!is_count(batch->replies[i], "unsubscribe", batch->left - 1 - i))
            return redis_conn_nonsense(attempt->conn, attempt->why);
    }
    listening->channels = (struct redis_channels){0};

    const redisReply *on = batch->on < 0 ? NULL : batch->replies[batch->on];
    if (is_error(on))
        note_refusal(attempt, &attempt->no_touches, "CLIENT TRACKING", on);
    else if (on != NULL && on->type != REDIS_REPLY_STATUS)
        return redis_conn_nonsense(attempt->conn, attempt->why);
    else if (on != NULL)
        listening->on = true;
    const redisReply *spare = batch->spare < 0 ? NULL : batch->replies[batch->spare];
    if (is_error(spare) && redis_subscribe_any(attempt->channels))
        note_refusal(attempt, &attempt->no_touches, "CLIENT CACHING", spare);

    if (batch->entered > 0)
        return read_transaction(attempt, batch);
    attempt->reply = take_over(&batch->replies[batch->script]);
    return LOCK_OK;
}

static enum lock_result run(struct attempt *attempt, const struct redis_command *script,
                            struct bound bound)
{
    struct batch batch;
    fill(&batch, attempt, script);
    enum lock_result result = redis_conn_call(attempt->conn, batch.commands, batch.count,
                                              batch.replies, bound, attempt->why);
    if (result != LOCK_OK)
        return result;
    result = read_batch(attempt, &batch);
    /* If the server refuses ASKING, it answers the script with a redirection, and the call would go
     * back and forth. The error of ASKING says why the call fails. */
    if (is_error(attempt->reply) && batch.asking >= 0 && is_error(batch.replies[batch.asking])) {
        freeReplyObject(attempt->reply);
        attempt->reply = take_over(&batch.replies[batch.asking]);
    }
    free_replies(batch.replies, batch.count);
    return result;
}

/* Remembers what the server does not permit. A refusal by a server that is loading or busy does not
 * count: such a server refuses everything for a while. */
static void learn(const struct attempt *attempt)
{
    struct redis_listening *listening = &attempt->conn->listening;
    bool ran = !is_error(attempt->reply) ||
               strncmp(attempt->reply->str, "NOSCRIPT", strlen("NOSCRIPT")) == 0;
    if (attempt->pass || !ran)
        return;
    if (attempt->no_touches.text[0] != '\0') {
        listening->no_touches = true;
        listening->why_touches = attempt->no_touches;
    }
    if (attempt->no_wake.text[0] != '\0') {
        listening->no_wake = true;
        listening->why_wake = attempt->no_wake;
    }
}

static enum lock_result try(struct attempt *attempt, const struct redis_command *script,
                            struct bound bound)
{
    const struct redis_listening *listening = &attempt->conn->listening;
    enum lock_result result = LOCK_OK;
    if (redis_subscribe_any(attempt->channels) && listening->id == 0 && !listening->no_touches)
        result = ask_id(attempt, bound);
    attempt->channels.touches &= attempt->no_touches.text[0] == '\0';
    if (attempt->no_wake.text[0] != '\0')
        attempt->channels.wake = NULL;
    if (result == LOCK_OK)
        result = run(attempt, script, bound);
    /* Nothing was carried out: the server refuses a channel, is full or busy, or the slot has
     * moved. Run the script without channels: that may succeed, or its error says why not. */
    if (result == LOCK_OK && attempt->reply == NULL) {
        attempt->channels = (struct redis_channels){0};
        result = run(attempt, script, bound);
    }
    if (result == LOCK_OK)
        learn(attempt);
    return result;
}

enum lock_result redis_subscribe_call(struct redis_conn *conn, const struct redis_command *script,
                                      struct redis_channels channels, redisReply **reply,
                                      struct bound bound, struct errmsg *why)
{
    struct redis_listening *listening = &conn->listening;
    if (listening->broken >= BROKEN_MOST) {
        listening->broken = 0;
        listening->no_touches = listening->no_wake = true;
        errmsg_set(&listening->why_touches, "the connection ended when CLIENT TRACKING was tried");
        errmsg_set(&listening->why_wake, "the connection ended when SUBSCRIBE was tried");
    }
    struct attempt attempt = {
        .conn = conn,
        .channels = {.touches = channels.touches && !listening->no_touches,
                     .wake = listening->no_wake ? NULL : channels.wake},
        .why = why,
    };
    bool fresh = redis_subscribe_any(attempt.channels) && !redis_subscribe_any(listening->channels);
    enum lock_result result = try(&attempt, script, bound);
    *reply = attempt.reply;
    if (fresh && result == LOCK_UNAVAILABLE && conn->socket.fd < 0)
        listening->broken++;
    else if (fresh && result == LOCK_OK)
        listening->broken = 0;
    return result;
}

struct redis_channels redis_subscribe_to(const struct redis_conn *conn)
{
    struct redis_channels channels = {0};
    if (conn->socket.fd >= 0)
        channels = conn->listening.channels;
    channels.touches = channels.touches && conn->listening.on;
    return channels;
}
