/* One connection to a Redis server: greeting, calls, messages; a deadline on every wait.
 * hiredis formats the commands and parses the replies; redis/socket.c moves the bytes,
 * because hiredis 0.14 does not let its users replace that part.
 *
 * A connection is used by one thread at a time: by the main thread until the command runs,
 * by the watch thread while the command runs (run/watch.c), by the main thread again for the
 * release. */
#ifndef DLOCK_REDIS_CONN_H
#define DLOCK_REDIS_CONN_H

#include "redis/reply.h"
#include "redis/socket.h"
#include "redis/url.h"

#include <stdbool.h>
#include <stddef.h>

struct redis_command {
    int count;
    const char *words[40];
};

void redis_command_add(struct redis_command *command, const char *word);

/* Makes a command of the words before the first NULL. */
struct redis_command redis_command_of(const char *const *words);
#define redis_words(...) redis_command_of((const char *const[]){__VA_ARGS__, NULL})

/* A message that the server sends on a channel. */
typedef void redis_message(void *data, const char *channel, const redisReply *payload);

/* What dlock sends first on a new connection, in this order. */
enum redis_greeting { GREETING_AUTH, GREETING_SELECT, GREETING_ROLE, GREETING_NAME, GREETINGS };

/* The notifications that a call subscribes to. */
struct redis_channels {
    bool touches;     /* other clients' writes to the keys that the script reads */
    const char *wake; /* our own channel; NULL: none */
};

/* What is known about notifications on the current connection. */
struct redis_listening {
    long long id;                   /* the server's id of the connection; 0: not known */
    bool on;                        /* CLIENT TRACKING was accepted */
    struct redis_channels channels; /* subscribed to: no script runs before UNSUBSCRIBE */
    bool no_touches, no_wake;       /* the server refused to send these */
    struct errmsg why_touches, why_wake;
    int broken;  /* how many connections in a row ended while subscribing */
    bool spoilt; /* a refusal ended this connection, and would end the next one as well */
};

struct redis_conn {
    const struct redis_url *url;
    const struct redis_settings *settings;
    struct redis_endpoint at;  /* the target of the connection; set with redis_conn_go_to() */
    bool masters_only;         /* refuse a server that is not the master */
    redis_message *on_message; /* NULL: messages are dropped */
    void *message_data;

    struct addresses addresses; /* of the host name, from the last lookup */
    struct deadline look_up;    /* no lookup before this time */
    struct redis_socket socket;
    unsigned serial; /* rises with each attempt to connect */

    char *out; /* the bytes to send */
    size_t out_used, out_size;
    redisReader *reader;
    struct redis_limits limits; /* of the reader */
    size_t received;            /* bytes in this call, then those of an incomplete message */

    enum redis_greeting greetings[GREETINGS]; /* sent, but not answered yet */
    int greeting_count;
    bool nameless;        /* CLIENT SETNAME is left out: the server hung up at a greeting */
    bool greeting_failed; /* a greeting was refused: the login, database or role is wrong */
    bool sent;            /* whether the last call may have reached the server */
    bool asking;          /* ASKING precedes each script: the slot is moving to this Cluster node */
    /* Rises when the next connection will omit something that the server did not accept, so that it
     * is worth connecting again at once. */
    unsigned lessons;
    struct redis_listening listening;
};

/* Sets up a closed connection to the first host of url. url and settings must outlive it. */
void redis_conn_init(struct redis_conn *conn, const struct redis_url *url,
                     const struct redis_settings *settings);

/* The next redis_conn_open() connects to this server. Closes a connection to another server. */
void redis_conn_go_to(struct redis_conn *conn, const struct redis_endpoint *at);

/* Closes the socket and discards partial input and output. redis_conn_open() can connect it
 * again. */
void redis_conn_close(struct redis_conn *conn);

/* Closes the connection and frees everything. */
void redis_conn_free(struct redis_conn *conn);

/* Connects if the connection is closed, has ended, or has received something unexpected. Looks the
 * host name up again, because it may lead to another server by now; if that fails, uses the
 * addresses found earlier. Tries each address in turn. Queues the greeting (login, database, with
 * masters_only the question for the role, and client name), which goes out in one write with the
 * first call. LOCK_OK; otherwise the results of redis_conn_call(). */
enum lock_result redis_conn_open(struct redis_conn *conn, struct bound bound, struct errmsg *why);

/* After LOCK_REFUSED: true if a certificate was refused and a renewed one has been read,
 * so that it is worth connecting once more. */
bool redis_conn_renew(const struct redis_conn *conn);

/* Sends `count` commands in one write (0: the greeting alone, if it is due) and waits for a reply
 * to each, which the caller frees with freeReplyObject(). The caller judges error replies
 * (redis_error_result()). Messages that arrive in between go to on_message. The whole call is
 * limited to settings->timeout, to bound, and to a maximum of bytes. LOCK_OK; LOCK_UNAVAILABLE: no
 * connection, no answer in time, an answer that makes no sense, or more replies than commands;
 * LOCK_REFUSED: the server accepts no client like us; LOCK_CANCELLED; LOCK_SYSTEM. After each of
 * these failures the connection is closed. Only a refused greeting leaves it open: greeting_failed
 * is set, and the server refused the login or the database (the result is redis_error_result()'s)
 * or is not the master (LOCK_UNAVAILABLE). The server may then have carried out the commands, in
 * the database that was selected before. Without LOCK_OK there are no replies, and conn->sent says
 * whether the commands may have been carried out. */
enum lock_result redis_conn_call(struct redis_conn *conn, const struct redis_command *commands,
                                 int count, redisReply **replies, struct bound bound,
                                 struct errmsg *why);

/* For a reply that makes no sense: closes the connection. LOCK_UNAVAILABLE. */
enum lock_result redis_conn_nonsense(struct redis_conn *conn, struct errmsg *why);

/* True if bytes have been read that no reply or message has used yet: poll(2) on the descriptor
 * does not show them. */
bool redis_conn_has_unread(const struct redis_conn *conn);

/* Reads the messages that have arrived, without waiting for any; of a flood, only the first ones.
 * Closes the connection if it has ended, or if anything unexpected arrives. */
void redis_conn_read_messages(struct redis_conn *conn);

/* --- notifications (subscribe.c) -----------------------------------------
 *
 * The server notifies dlock at once of two events: another client has touched a key (CLIENT
 * TRACKING of Redis 6 and later), and it is our turn to take a lock (our own channel). Both
 * notifications arrive on the connection that subscribes to them.
 *
 * hiredis 0.14 reads only RESP2. In RESP2 the server sends messages only to a subscribed
 * connection, which accepts no script. So each call unsubscribes, then runs the script and
 * subscribes again in one transaction (MULTI ... EXEC), all in one write. The script sees what
 * happened before it runs. Because the script reads the key, the server reports the next touch, but
 * not the script's own (NOLOOP). (Since Redis 6.0, all keys of a script count as read as soon as
 * the script reads one.) Nothing comes between script and SUBSCRIBE, however the network cuts the
 * write.
 *
 * No permission is tested before it is needed. If the server refuses:
 *
 *   CLIENT ID, CLIENT TRACKING  no touches are reported on this connection
 *   SUBSCRIBE                   the transaction is discarded -> the script runs by itself
 *   UNSUBSCRIBE, EXEC           nothing has run, and the connection runs no script any more -> the
 *                               next connection does not subscribe
 *   MULTI                       the script has run, but not in one step with SUBSCRIBE -> the
 *                               next connection does not subscribe
 *
 * If two connections in a row end while they subscribe, the next one does not subscribe either. */

/* The channel on which the server reports touched keys. */
#define REDIS_INVALIDATE "__redis__:invalidate"

/* Runs a script as redis_conn_call() runs a command, on a connection that may be subscribed, and
 * subscribes to those of `channels` that the server permits. If the server permits none, the script
 * is still run. The text of channels.wake must live as long as the connection. */
enum lock_result redis_subscribe_call(struct redis_conn *conn, const struct redis_command *script,
                                      struct redis_channels channels, redisReply **reply,
                                      struct bound bound, struct errmsg *why);

/* True if there is a channel to subscribe to. */
static inline bool redis_subscribe_any(struct redis_channels channels)
{
    return channels.touches || channels.wake != NULL;
}

/* The notifications that the server will send on this connection. */
struct redis_channels redis_subscribe_to(const struct redis_conn *conn);

#endif
