#include "redis/conn.h"

#include "redis/tls.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

enum {
    REPLY_MOST_BYTES = 1 << 24, /* per call; a reply with ten thousand holders takes 4 MB */
    MESSAGE_MOST_BYTES = 1 << 20,
};

static const struct duration look_up_limit = {1 * NS_PER_S}, look_up_rest = {10 * NS_PER_S};

void redis_command_add(struct redis_command *command, const char *word)
{
    if (command->count >= (int)(sizeof command->words / sizeof *command->words))
        abort(); /* a bug in dlock */
    command->words[command->count++] = word;
}

struct redis_command redis_command_of(const char *const *words)
{
    struct redis_command command = {0};
    for (; *words != NULL; words++)
        redis_command_add(&command, *words);
    return command;
}

void redis_conn_init(struct redis_conn *conn, const struct redis_url *url,
                     const struct redis_settings *settings)
{
    *conn = (struct redis_conn){.url = url,
                                .settings = settings,
                                .at = url->hosts[0],
                                .socket = {.fd = -1, .alarm_fd = -1}};
}

void redis_conn_go_to(struct redis_conn *conn, const struct redis_endpoint *at)
{
    if (redis_endpoint_is(at, &conn->at))
        return;
    redis_conn_close(conn);
    conn->at = *at;
    conn->addresses.count = 0;
    conn->socket.heard = conn->nameless = false;
}

static void forget_out(struct redis_conn *conn)
{
    if (conn->url->has_password && conn->out != NULL)
        explicit_bzero(conn->out, conn->out_used);
    conn->out_used = 0;
}

void redis_conn_close(struct redis_conn *conn)
{
    redis_socket_close(&conn->socket);
    if (conn->reader != NULL)
        redisReaderFree(conn->reader);
    conn->reader = NULL;
    forget_out(conn);
    conn->greeting_count = 0;
    conn->greeting_failed = false;
    conn->asking = false;
    conn->received = 0;
}

void redis_conn_free(struct redis_conn *conn)
{
    redis_conn_close(conn);
    free(conn->out);
    conn->out = NULL;
    conn->out_size = 0;
}

/* --- bytes --------------------------------------------------------------- */

static enum lock_result hang_up(struct redis_conn *conn, struct errmsg *why, const char *text)
{
    redis_conn_close(conn);
    return errmsg_fail(why, LOCK_UNAVAILABLE, "%s", text);
}

enum lock_result redis_conn_nonsense(struct redis_conn *conn, struct errmsg *why)
{
    return hang_up(conn, why, "the answer is not understood");
}

/* Does not use realloc(3), which would leave a copy of a password in memory. */
static bool grow(struct redis_conn *conn, size_t size)
{
    char *larger = malloc(size);
    if (larger == NULL)
        return false;
    if (conn->out != NULL) {
        memcpy(larger, conn->out, conn->out_used);
        explicit_bzero(conn->out, conn->out_used);
    }
    free(conn->out);
    conn->out = larger;
    conn->out_size = size;
    return true;
}

static bool queue(struct redis_conn *conn, const struct redis_command *command)
{
    char *bytes;
    const char **words =
        (const char **)(uintptr_t)command->words; /* hiredis does not write to them */
    long long length = redisFormatCommandArgv(&bytes, command->count, words, NULL);
    if (length < 0)
        return false;
    size_t needed = conn->out_used + (size_t)length;
    bool fits = needed <= conn->out_size || grow(conn, needed);
    if (fits) {
        memcpy(conn->out + conn->out_used, bytes, (size_t)length);
        conn->out_used = needed;
    }
    if (conn->url->has_password) /* the command may be AUTH */
        explicit_bzero(bytes, (size_t)length);
    redisFreeCommand(bytes);
    return fits;
}

static void deliver(const struct redis_conn *conn, redisReply *message)
{
    if (conn->on_message != NULL)
        conn->on_message(conn->message_data, message->element[1]->str, message->element[2]);
    freeReplyObject(message);
}

/* Takes the next complete reply from the bytes that were read. Delivers the messages that precede
 * this reply to on_message. LOCK_OK with *reply set, or with NULL if no reply is complete yet. */
static enum lock_result take_reply(struct redis_conn *conn, redisReply **reply, struct errmsg *why)
{
    for (;;) {
        if (!redis_reader_next(conn->reader, reply))
            return hang_up(conn, why, "the reply is not in the Redis protocol");
        if (*reply == NULL || !redis_reply_is_message(*reply))
            return LOCK_OK;
        deliver(conn, *reply);
    }
}

static enum lock_result receive(struct redis_conn *conn, redisReply **reply, struct bound bound,
                                struct errmsg *why)
{
    for (bool fed = false;; fed = true) {
        enum lock_result result = take_reply(conn, reply, why);
        if (result != LOCK_OK || *reply != NULL)
            return result;
        /* A cancellation takes effect even if the peer sends without pause. */
        if (fed && bound_is_cancelled(bound))
            return hang_up(conn, why, "no answer in time");
        if (conn->received > REPLY_MOST_BYTES)
            return hang_up(conn, why, "the reply is longer than 16 MB or has no end");
        char bytes[4096];
        size_t length;
        result = redis_socket_receive(&conn->socket, bytes, sizeof bytes, &length, bound, why);
        if (result != LOCK_OK) {
            redis_conn_close(conn);
            return result;
        }
        conn->received += length;
        if (redisReaderFeed(conn->reader, bytes, length) != REDIS_OK)
            return hang_up(conn, why, "out of memory for the reply");
    }
}

/* --- connecting ---------------------------------------------------------- */

static void unix_address(struct addresses *addresses, const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, path, strlen(path) + 1); /* `path` is as large as sun_path */
    memcpy(&addresses->list[0].at, &at, sizeof at);
    addresses->list[0].size = sizeof at;
    addresses->count = 1;
}

static bool greet(struct redis_conn *conn, enum redis_greeting greeting,
                  struct redis_command command)
{
    conn->greetings[conn->greeting_count++] = greeting;
    return queue(conn, &command);
}

static bool queue_greeting(struct redis_conn *conn)
{
    const struct redis_url *url = conn->url;
    char database[16];
    snprintf(database, sizeof database, "%d", url->database);

    bool queued = true;
    if (url->has_password && *url->user != '\0')
        queued = greet(conn, GREETING_AUTH, redis_words("AUTH", url->user, url->password));
    else if (url->has_password)
        queued = greet(conn, GREETING_AUTH, redis_words("AUTH", url->password));
    if (queued && url->database != 0)
        queued = greet(conn, GREETING_SELECT, redis_words("SELECT", database));
    if (queued && conn->masters_only)
        queued = greet(conn, GREETING_ROLE, redis_words("ROLE"));
    if (queued && !conn->nameless)
        queued = greet(conn, GREETING_NAME, redis_words("CLIENT", "SETNAME", "dlock"));
    return queued;
}

/* A lookup that hangs leaves a thread running (redis/socket.c). If dlock already knows addresses,
 * the lookup is not essential and gets less time. After a lookup that hung, dlock uses the known
 * addresses for a while, and starts no new lookup. */
static enum lock_result find_addresses(struct redis_conn *conn, struct bound bound,
                                       struct errmsg *why)
{
    if (conn->at.path[0] != '\0') {
        unix_address(&conn->addresses, conn->at.path);
        return LOCK_OK;
    }
    bool known = conn->addresses.count > 0;
    if (known && !deadline_passed(conn->look_up))
        return LOCK_OK;
    if (known)
        bound = bound_within(bound_share(bound, 2), look_up_limit);

    struct addresses found;
    enum lock_result result = redis_resolve(&found, conn->at.host, conn->at.port, bound, why);
    if (result == LOCK_OK)
        conn->addresses = found;
    else if (deadline_passed(bound.until))
        conn->look_up = deadline_after(look_up_rest);
    return known && result != LOCK_CANCELLED ? LOCK_OK : result;
}

/* Forgets what was known about notifications on the last connection. Remembers only a
 * refusal, and only if it ended that connection: the same request would end the next one too. */
static void forget_listening(struct redis_listening *listening)
{
    bool keeps = listening->spoilt;
    listening->id = 0;
    listening->on = listening->spoilt = false;
    listening->channels = (struct redis_channels){0};
    listening->no_touches &= keeps;
    listening->no_wake &= keeps;
}

enum lock_result redis_conn_open(struct redis_conn *conn, struct bound bound, struct errmsg *why)
{
    if (conn->socket.fd >= 0)
        redis_conn_read_messages(conn); /* closes the connection if a stray reply has arrived */
    if (conn->socket.fd >= 0)
        return LOCK_OK;

    conn->sent = false;
    conn->serial++;
    bound = bound_within(bound, conn->settings->timeout);
    enum lock_result result = find_addresses(conn, bound, why);
    if (result != LOCK_OK)
        return result;

    struct redis_tls *tls = conn->at.path[0] == '\0' ? conn->settings->tls : NULL;
    result = redis_socket_connect(&conn->socket, &conn->addresses, tls, conn->at.host, bound, why);
    if (result != LOCK_OK)
        return result;

    forget_listening(&conn->listening);
    conn->reader = redis_reader_create(&conn->limits);
    if (conn->reader != NULL && queue_greeting(conn))
        return LOCK_OK;
    redis_conn_close(conn);
    return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
}

bool redis_conn_renew(const struct redis_conn *conn)
{
    return conn->settings->tls != NULL && redis_tls_renew(conn->settings->tls);
}

/* --- calls --------------------------------------------------------------- */

/* Reads the reply to ROLE: {"master", ...}, {"slave", ...} or {"sentinel", ...}. */
static enum lock_result read_role(const struct redis_conn *conn, const redisReply *reply,
                                  struct errmsg *why)
{
    bool known = reply->type == REDIS_REPLY_ARRAY && reply->elements > 0;
    const char *role = known ? redis_reply_text(reply->element[0]) : "";
    if (strcmp(role, "master") == 0)
        return LOCK_OK;
    return errmsg_fail(why, LOCK_UNAVAILABLE, "%s port %s is %s", conn->at.host, conn->at.port,
                       strcmp(role, "slave") == 0 ? "a replica: a failover is under way"
                                                  : "not a master");
}

/* It does not matter if CLIENT SETNAME is refused, because the name is only for CLIENT LIST. */
static enum lock_result judge_greeting(struct redis_conn *conn, enum redis_greeting greeting,
                                       const redisReply *reply, struct errmsg *why)
{
    if (reply->type == REDIS_REPLY_ERROR)
        return greeting == GREETING_NAME ? LOCK_OK : redis_error_judge(conn->url, reply->str, why);
    if (greeting == GREETING_ROLE)
        return read_role(conn, reply, why);
    return reply->type == REDIS_REPLY_STATUS ? LOCK_OK : redis_conn_nonsense(conn, why);
}

/* A server that does not accept this client at all answers the first command with an error, and
 * then closes the connection: "ERR max number of clients reached", "DENIED Redis is running in
 * protected mode ...". */
struct dismissal {
    enum lock_result result; /* LOCK_OK: there was no such error */
    struct errmsg why;
};

static void note_dismissal(struct dismissal *dismissal, const char *error)
{
    enum lock_result result = redis_error_result(error, &dismissal->why);
    if (result == LOCK_UNAVAILABLE ||
        redis_error_is(error, "DENIED")) /* any other error is about the command */
        dismissal->result = result;
}

/* Reads all replies to the greeting, so that the next reply answers the command even if the
 * greeting was refused. Returns the first refusal. If the server hangs up, the next greeting omits
 * CLIENT SETNAME, because some proxies do not accept that command. */
static enum lock_result receive_greetings(struct redis_conn *conn, struct dismissal *dismissal,
                                          struct bound bound, struct errmsg *why)
{
    enum lock_result verdict = LOCK_OK;
    for (int i = 0; i < conn->greeting_count; i++) {
        redisReply *reply;
        struct errmsg own = {""};
        enum lock_result result = receive(conn, &reply, bound, &own);
        if (conn->socket.hung_up && verdict == LOCK_OK && !conn->nameless) {
            conn->nameless = true;
            conn->lessons++;
        }
        if (result == LOCK_OK) {
            if (reply->type == REDIS_REPLY_ERROR)
                redis_error_hide_login(conn->url, reply->str);
            if (reply->type == REDIS_REPLY_ERROR && i == 0)
                note_dismissal(dismissal, reply->str);
            result = judge_greeting(conn, conn->greetings[i], reply, &own);
            freeReplyObject(reply);
        }
        if (result != LOCK_OK && (verdict == LOCK_OK || result == LOCK_CANCELLED)) {
            verdict = result;
            *why = own;
        }
        if (conn->socket.fd < 0)
            return verdict;
    }
    if (conn->greeting_count > 0)
        conn->greeting_failed = verdict != LOCK_OK;
    conn->greeting_count = 0;
    return verdict;
}

static enum lock_result send_commands(struct redis_conn *conn, const struct redis_command *commands,
                                      int count, struct bound bound, struct errmsg *why)
{
    for (int i = 0; i < count; i++)
        if (!queue(conn, &commands[i]))
            return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    conn->sent = count > 0;
    enum lock_result result =
        redis_socket_send(&conn->socket, conn->out, conn->out_used, bound, why);
    if (result == LOCK_OK)
        forget_out(conn);
    return result;
}

/* Sets *got to the number of replies read, even after a failure. */
static enum lock_result receive_replies(struct redis_conn *conn, redisReply **replies, int count,
                                        int *got, struct bound bound, struct errmsg *why)
{
    for (*got = 0; *got < count; (*got)++) {
        enum lock_result result = receive(conn, &replies[*got], bound, why);
        if (result != LOCK_OK)
            return result;
    }
    conn->received = redis_reader_left(conn->reader);
    if (!redis_reader_has_only_messages(conn->reader))
        return hang_up(conn, why, "the server sent more replies than requests");
    return LOCK_OK;
}

enum lock_result redis_conn_call(struct redis_conn *conn, const struct redis_command *commands,
                                 int count, redisReply **replies, struct bound bound,
                                 struct errmsg *why)
{
    bound = bound_within(bound, conn->settings->timeout);
    conn->sent = false;
    conn->received = 0;
    enum lock_result result = send_commands(conn, commands, count, bound, why);
    if (result != LOCK_OK) {
        redis_conn_close(conn);
        return result;
    }

    struct dismissal dismissal = {.result = LOCK_OK};
    enum lock_result greeting = receive_greetings(conn, &dismissal, bound, why);
    if (conn->socket.fd < 0)
        return greeting;

    int got;
    struct errmsg own = {""};
    result = receive_replies(conn, replies, count, &got, bound, &own);
    if (greeting == LOCK_OK && result == LOCK_OK)
        return LOCK_OK;
    if (result == LOCK_UNAVAILABLE && got == 0 && dismissal.result != LOCK_OK) {
        result = dismissal.result;
        own = dismissal.why;
    }
    while (got > 0)
        freeReplyObject(replies[--got]);
    if (greeting != LOCK_OK)
        return greeting;
    *why = own;
    return result;
}

bool redis_conn_has_unread(const struct redis_conn *conn)
{
    return redis_reader_left(conn->reader) > 0 || redis_socket_has_unread(&conn->socket);
}

/* Reads bytes that have arrived; closes the connection if the server has ended it. False: nothing
 * has arrived, and the connection is still open. */
static bool read_more(struct redis_conn *conn)
{
    char bytes[4096];
    ssize_t length = redis_socket_take(&conn->socket, bytes, sizeof bytes);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (length <= 0 || redisReaderFeed(conn->reader, bytes, (size_t)length) != REDIS_OK)
        redis_conn_close(conn);
    else
        conn->received += (size_t)length;
    return true;
}

void redis_conn_read_messages(struct redis_conn *conn)
{
    struct drain drain = {0};
    while (conn->socket.fd >= 0) {
        redisReply *message;
        if (!redis_reader_next(conn->reader, &message)) {
            redis_conn_close(conn);
        } else if (message == NULL) {
            if (conn->received > MESSAGE_MOST_BYTES)
                redis_conn_close(conn);
            else if (!drain_goes_on(&drain) || !read_more(conn))
                return;
        } else if (redis_reply_is_message(message)) {
            deliver(conn, message);
            conn->received = redis_reader_left(conn->reader);
        } else {
            freeReplyObject(message);
            redis_conn_close(conn);
        }
    }
}
