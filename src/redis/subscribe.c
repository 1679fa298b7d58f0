/* Subscribes to notifications, and runs scripts on a subscribed connection (redis/conn.h). */
#include "redis/conn.h"

#include <stdio.h>
#include <string.h>

enum {
    /* Instead of refusing a subscription, a server or a proxy may close the connection. After this
     * many such connections in a row, dlock stops subscribing, so that it can still ask for the
     * lock. A single connection may have ended for another reason. */
    BROKEN_MOST = 2,
    CHANNELS_MOST = 2,
};

static const struct redis_channels touches_alone = {.touches = true};

/* Fills in the names of the channels for these notifications. Returns how many there are. */
static int channel_names(struct redis_channels channels, const char *names[CHANNELS_MOST])
{
    int count = 0;
    if (channels.touches)
        names[count++] = REDIS_INVALIDATE;
    if (channels.wake != NULL)
        names[count++] = channels.wake;
    return count;
}

/* True if the reply to (UN)SUBSCRIBE is this word, a channel, and this number of subscriptions. */
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
 * 6.2 leave the transaction open. */
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

/* One call of redis_subscribe_call(). */
struct attempt {
    struct redis_conn *conn;
    struct redis_channels channels;    /* the channels to subscribe to */
    struct errmsg no_touches, no_wake; /* the first refusal of each kind, or "" */
    bool pass; /* one of the refusals is temporary, so learn() does not remember any of them */
    redisReply *reply; /* the script's reply; NULL: the script has not run */
    struct errmsg *why;
};

/* Remembers the server's first refusal of a command that these channels need. */
static void note_refusal(struct attempt *attempt, struct redis_channels of, const char *command,
                         const redisReply *error)
{
    attempt->pass |= redis_error_has_code(error->str) && !redis_error_is(error->str, "NOPERM");
    if (of.touches && attempt->no_touches.text[0] == '\0')
        errmsg_set(&attempt->no_touches, "%s: %.400s", command, error->str);
    if (of.wake != NULL && attempt->no_wake.text[0] == '\0')
        errmsg_set(&attempt->no_wake, "%s: %.400s", command, error->str);
}

/* Remembers what the server does not permit, so that dlock does not try it again. A refusal by a
 * server that is loading or busy does not count, because such a server refuses everything for a
 * while. */
static void learn(const struct attempt *attempt)
{
    struct redis_listening *listening = &attempt->conn->listening;
    if (!attempt->pass && attempt->no_touches.text[0] != '\0') {
        listening->no_touches = true;
        listening->why_touches = attempt->no_touches;
    }
    if (!attempt->pass && attempt->no_wake.text[0] != '\0') {
        listening->no_wake = true;
        listening->why_wake = attempt->no_wake;
    }
}

/* Remembers a refusal that ends this connection, so that dlock does not provoke it again on the
 * next one. */
static void spoil(const struct attempt *attempt)
{
    learn(attempt);
    attempt->conn->listening.spoilt = true;
    attempt->conn->lessons++;
}

/* Closes the connection after the server has refused a command that every channel needs. */
static enum lock_result give_up(struct attempt *attempt, const char *command,
                                const redisReply *error)
{
    static const struct redis_channels all = {.touches = true, .wake = ""};
    (void)redis_error_result(error->str, attempt->why); /* sets the text */
    note_refusal(attempt, all, command, error);
    if (!attempt->pass)
        spoil(attempt);
    redis_conn_close(attempt->conn);
    return LOCK_UNAVAILABLE;
}

/* The commands that are sent in one write, and their replies. `left` counts the channels to
 * unsubscribe from, and `entered` the channels to subscribe to. `on`, `asking` and `script` are
 * indexes of commands; -1: not needed. */
struct batch {
    struct redis_command commands[2 * CHANNELS_MOST + 5];
    redisReply *replies[2 * CHANNELS_MOST + 5];
    int count, left, on, asking, script, entered;
    const char *enter[CHANNELS_MOST];
    char id[24];
};

static int add(struct batch *batch, struct redis_command command)
{
    batch->commands[batch->count] = command;
    return batch->count++;
}

static void free_replies(struct batch *batch)
{
    while (batch->count > 0)
        freeReplyObject(batch->replies[--batch->count]);
}

/* Begins a batch with UNSUBSCRIBE, because a subscribed connection accepts no other command. */
static void leave(struct batch *batch, const struct redis_listening *listening)
{
    const char *names[CHANNELS_MOST];
    *batch = (struct batch){.on = -1, .asking = -1};
    batch->left = channel_names(listening->channels, names);
    for (int i = 0; i < batch->left; i++)
        add(batch, redis_words("UNSUBSCRIBE", names[i]));
}

static void enter(struct batch *batch)
{
    for (int i = 0; i < batch->entered; i++)
        add(batch, redis_words("SUBSCRIBE", batch->enter[i]));
}

/* True if the replies to the commands of enter() confirm all subscriptions. */
static bool has_entered(const struct batch *batch, redisReply *const *replies)
{
    bool good = true;
    for (int i = 0; good && i < batch->entered; i++)
        good = is_count(replies[i], "subscribe", i + 1);
    return good;
}

/* Sends the batch, and checks the replies to the commands of leave(). After LOCK_OK the caller
 * frees all replies. */
static enum lock_result exchange(struct attempt *attempt, struct batch *batch, struct bound bound)
{
    struct redis_listening *listening = &attempt->conn->listening;
    enum lock_result result = redis_conn_call(attempt->conn, batch->commands, batch->count,
                                              batch->replies, bound, attempt->why);
    if (result != LOCK_OK)
        return result;
    for (int i = 0; i < batch->left && result == LOCK_OK; i++) {
        const redisReply *reply = batch->replies[i];
        if (is_error(reply))
            result = give_up(attempt, "UNSUBSCRIBE", reply);
        else if (!is_count(reply, "unsubscribe", batch->left - 1 - i))
            result = redis_conn_nonsense(attempt->conn, attempt->why);
    }
    listening->channels = (struct redis_channels){0};
    if (result != LOCK_OK)
        free_replies(batch);
    return result;
}

/* Asks for the id of this connection, so that the server can report changed keys to it. Subscribes
 * again in the same write: otherwise a waiter would have no subscription for a round trip, and
 * another client would often take the waiter for dead and drop it from the queue. */
static enum lock_result ask_id(struct attempt *attempt, struct bound bound)
{
    struct batch batch;
    struct redis_channels channels = attempt->conn->listening.channels;
    leave(&batch, &attempt->conn->listening);
    int asked = add(&batch, redis_words("CLIENT", "ID"));
    batch.entered = channel_names(channels, batch.enter);
    enter(&batch);
    enum lock_result result = exchange(attempt, &batch, bound);
    if (result != LOCK_OK)
        return result;
    const redisReply *id = batch.replies[asked];
    if (is_error(id)) {
        note_refusal(attempt, touches_alone, "CLIENT ID", id);
        attempt->channels.touches = false;
    } else if (id->type == REDIS_REPLY_INTEGER && id->integer > 0) {
        attempt->conn->listening.id = id->integer;
    } else {
        result = redis_conn_nonsense(attempt->conn, attempt->why);
    }
    if (result == LOCK_OK && !has_entered(&batch, &batch.replies[asked + 1]))
        result = redis_conn_nonsense(attempt->conn, attempt->why);
    attempt->conn->listening.channels = channels;
    free_replies(&batch);
    return result;
}

/* CLIENT CACHING and ASKING each apply only to the next command, so only one of them can be sent.
 * ASKING is more important, because an unneeded report of a changed key does no harm. If dlock does
 * not need such reports, CLIENT CACHING NO exempts the script from tracking. Otherwise the server
 * would remember the script as a reader of the key until the key changes, but the key does not
 * change again after the release of its lock. */
static void fill(struct batch *batch, const struct attempt *attempt,
                 const struct redis_command *script)
{
    const struct redis_listening *listening = &attempt->conn->listening;
    leave(batch, listening);
    batch->entered = channel_names(attempt->channels, batch->enter);

    if (attempt->channels.touches && !listening->on) {
        snprintf(batch->id, sizeof batch->id, "%lld", listening->id);
        batch->on = add(batch, redis_words("CLIENT", "TRACKING", "ON", "REDIRECT", batch->id,
                                           "OPTOUT", "NOLOOP"));
    }
    if (attempt->conn->asking)
        batch->asking = add(batch, redis_words("ASKING"));
    else if (listening->on && !attempt->channels.touches)
        add(batch, redis_words("CLIENT", "CACHING", "NO"));

    if (batch->entered > 0)
        add(batch, redis_words("MULTI"));
    batch->script = add(batch, *script);
    enter(batch);
    if (batch->entered > 0)
        add(batch, redis_words("EXEC"));
}

static struct redis_channels channel_of(const struct batch *batch, int i)
{
    bool touches = strcmp(batch->enter[i], REDIS_INVALIDATE) == 0;
    return touches ? touches_alone : (struct redis_channels){.wake = batch->enter[i]};
}

static bool has_run(const redisReply *reply)
{
    return !is_error(reply) || strncmp(reply->str, "NOSCRIPT", strlen("NOSCRIPT")) == 0;
}

/* Reads the replies to MULTI, the script, SUBSCRIBE... and EXEC. LOCK_OK without attempt->reply:
 * the server carried out nothing. */
static enum lock_result read_transaction(struct attempt *attempt, const struct batch *batch)
{
    redisReply *const *queued = &batch->replies[batch->script];
    const redisReply *begin = queued[-1], *exec = batch->replies[batch->count - 1];
    /* If the server refused MULTI, it has run the script and each SUBSCRIBE one by one. */
    if (is_error(begin)) {
        attempt->pass |= !has_run(queued[0]);
        return give_up(attempt, "MULTI", begin);
    }
    bool all = !is_error(queued[0]);
    for (int i = 0; i < batch->entered; i++)
        if (is_error(queued[1 + i])) {
            note_refusal(attempt, channel_of(batch, i), "SUBSCRIBE", queued[1 + i]);
            all = false;
        }
    if (is_error(exec))
        return !all && is_discarded(exec) ? LOCK_OK : give_up(attempt, "EXEC", exec);

    if (exec->type != REDIS_REPLY_ARRAY || exec->elements != 1 + (size_t)batch->entered ||
        !has_entered(batch, exec->element + 1))
        return redis_conn_nonsense(attempt->conn, attempt->why);
    attempt->conn->listening.channels = attempt->channels;
    attempt->reply = take_over(&exec->element[0]);
    return LOCK_OK;
}

static enum lock_result read_batch(struct attempt *attempt, struct batch *batch)
{
    const redisReply *on = batch->on < 0 ? NULL : batch->replies[batch->on];
    if (is_error(on))
        note_refusal(attempt, touches_alone, "CLIENT TRACKING", on);
    else if (on != NULL && on->type != REDIS_REPLY_STATUS)
        return redis_conn_nonsense(attempt->conn, attempt->why);
    else if (on != NULL)
        attempt->conn->listening.on = true;

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
    enum lock_result result = exchange(attempt, &batch, bound);
    if (result != LOCK_OK)
        return result;
    result = read_batch(attempt, &batch);
    /* If the server refuses ASKING, it answers the script with a redirection, and dlock would send
     * the call back and forth between two nodes. So the reply is replaced by the error of ASKING,
     * which says why the call fails. */
    if (is_error(attempt->reply) && batch.asking >= 0 && is_error(batch.replies[batch.asking])) {
        freeReplyObject(attempt->reply);
        attempt->reply = take_over(&batch.replies[batch.asking]);
    }
    free_replies(&batch);
    return result;
}

static enum lock_result try(struct attempt *attempt, const struct redis_command *script,
                            struct bound bound)
{
    enum lock_result result = LOCK_OK;
    if (attempt->channels.touches && attempt->conn->listening.id == 0)
        result = ask_id(attempt, bound);
    if (result == LOCK_OK)
        result = run(attempt, script, bound);
    /* The server carried out nothing: it refuses a channel, it is full or busy, or the slot has
     * moved. Run the script without channels. If that fails too, the error says why. */
    if (result == LOCK_OK && attempt->reply == NULL) {
        attempt->channels = (struct redis_channels){0};
        result = run(attempt, script, bound);
    }
    if (result == LOCK_OK && has_run(attempt->reply))
        learn(attempt);
    return result;
}

/* Counts a connection that ended while it was subscribing to something new. After BROKEN_MOST such
 * connections in a row, the next connection does not subscribe. */
static void note_broken(struct attempt *attempt, bool touches)
{
    if (++attempt->conn->listening.broken < BROKEN_MOST)
        return;
    attempt->conn->listening.broken = 0;
    errmsg_set(&attempt->no_touches, "the connection ended during %s",
               touches ? "CLIENT TRACKING" : "SUBSCRIBE");
    if (!touches)
        attempt->no_wake = attempt->no_touches;
    spoil(attempt);
}

enum lock_result redis_subscribe_call(struct redis_conn *conn, const struct redis_command *script,
                                      struct redis_channels channels, redisReply **reply,
                                      struct bound bound, struct errmsg *why)
{
    struct redis_listening *listening = &conn->listening;
    struct attempt attempt = {
        .conn = conn,
        .channels = {.touches = channels.touches && !listening->no_touches,
                     .wake = listening->no_wake ? NULL : channels.wake},
        .why = why,
    };
    bool touches = attempt.channels.touches && !listening->channels.touches;
    bool fresh = touches || (attempt.channels.wake != NULL && listening->channels.wake == NULL);
    enum lock_result result = try(&attempt, script, bound);
    *reply = attempt.reply;
    if (fresh && result == LOCK_OK)
        listening->broken = 0;
    else if (fresh && result == LOCK_UNAVAILABLE && conn->socket.fd < 0 && !listening->spoilt)
        note_broken(&attempt, touches);
    return result;
}

struct redis_channels redis_subscribe_to(const struct redis_conn *conn)
{
    const struct redis_listening *listening = &conn->listening;
    struct redis_channels channels = {0};
    if (conn->socket.fd >= 0)
        channels = listening->channels;
    channels.touches = channels.touches && listening->on;
    return channels;
}
