/* One connection to a Redis server. dlock first sends a greeting (such as the login), and then
 * makes calls: a call sends commands and waits for their replies. The server may also send messages
 * on channels. Every wait has a deadline. hiredis formats the commands and parses the replies.
 * redis/socket.c sends and receives the bytes, because hiredis 0.14 does not let a program replace
 * hiredis's own I/O.
 *
 * Only one thread at a time uses a connection: the main thread until the command runs, the watch
 * thread (run/watch.c) while the command runs, and the main thread again for the release. */
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

/* Makes a command from the words before the first NULL. */
struct redis_command redis_command_of(const char *const *words);
#define redis_words(...) redis_command_of((const char *const[]){__VA_ARGS__, NULL})

/* Called for each message that the server sends on a channel. */
typedef void redis_message(void *data, const char *channel, const redisReply *payload);

/* What dlock sends first on a new connection, in this order. */
enum redis_greeting { GREETING_AUTH, GREETING_SELECT, GREETING_ROLE, GREETING_NAME, GREETINGS };

/* The notifications that a call subscribes to. */
struct redis_channels {
    bool touches;     /* other clients' writes to the keys that the script reads */
    const char *wake; /* the channel on which we are told to request the lock again; NULL: none */
};

/* What is known about notifications on the current connection. */
struct redis_listening {
    long long id;                   /* id of the connection on the server; 0: not known */
    bool on;                        /* CLIENT TRACKING was accepted */
    struct redis_channels channels; /* subscribed now; UNSUBSCRIBE must come before a script */
    bool no_touches, no_wake;       /* the server refused these notifications */
    struct errmsg why_touches, why_wake;
    int broken;  /* how many connections in a row ended while subscribing */
    bool spoilt; /* a refused subscription ended this connection, and would end the next one too */
};

struct redis_conn {
    const struct redis_url *url;
    const struct redis_settings *settings;
    struct redis_endpoint at;  /* the server to connect to; set with redis_conn_go_to() */
    bool masters_only;         /* refuse a server that is not the master */
    redis_message *on_message; /* NULL: messages are dropped */
    void *message_data;

    struct addresses addresses; /* of the host name, from the last lookup */
    struct deadline look_up;    /* no new lookup before this time */
    struct redis_socket socket;
    unsigned serial; /* rises with each attempt to connect */

    char *out; /* the bytes to send */
    size_t out_used, out_size;
    redisReader *reader;
    struct redis_limits limits; /* limits of the reader */
    /* During a call: the bytes received so far. After a call: the bytes of an incomplete
     * message. */
    size_t received;

    enum redis_greeting greetings[GREETINGS]; /* sent, but not answered yet */
    int greeting_count;
    /* Omit CLIENT SETNAME, because the server closed a connection whose greeting contained it. */
    bool nameless;
    bool greeting_failed; /* a greeting was refused: the login, database or role is wrong */
    bool sent;            /* whether the last call may have reached the server */
    bool asking; /* send ASKING before each script: the slot is moving to this Cluster node */
    /* Rises when dlock learns that the next connection must omit something that this server did not
     * accept. After such a rise, it is worth connecting again at once. */
    unsigned lessons;
    struct redis_listening listening;
};

/* Sets up a closed connection to the first host of url. url and settings must outlive the
 * connection. */
void redis_conn_init(struct redis_conn *conn, const struct redis_url *url,
                     const struct redis_settings *settings);

/* Makes the next redis_conn_open() connect to this server. Closes a connection to a different
 * server. */
void redis_conn_go_to(struct redis_conn *conn, const struct redis_endpoint *at);

/* Closes the socket, and discards partial input and output. redis_conn_open() can connect again. */
void redis_conn_close(struct redis_conn *conn);

/* Closes the connection and frees everything. */
void redis_conn_free(struct redis_conn *conn);

/* Connects if the connection is closed, has ended, or has received something unexpected. Looks up
 * the host name again, because it may now belong to a different server; if the lookup fails, uses
 * the addresses found earlier. Tries each address in turn. Queues the greeting (login, database,
 * ROLE if masters_only is set, client name), which is sent in one write with the first call.
 * Returns LOCK_OK, or a failure as redis_conn_call() does. */
enum lock_result redis_conn_open(struct redis_conn *conn, struct bound bound, struct errmsg *why);

/* After LOCK_REFUSED: if a certificate was refused, reads the certificate files again if they have
 * changed. True: dlock has read new files, so another connection may succeed. */
bool redis_conn_renew(const struct redis_conn *conn);

/* Sends `count` commands in one write (0: only the greeting, if it is not sent yet), and waits for
 * a reply to each. The caller frees the replies with freeReplyObject(), and judges error replies
 * (redis_error_result()). Messages that arrive in between go to on_message. The whole call is
 * limited by settings->timeout, by bound, and by a maximum number of bytes.
 *
 * LOCK_OK; LOCK_UNAVAILABLE: no connection, no answer in time, an answer that makes no sense, or
 * more replies than commands; LOCK_REFUSED: the server does not accept clients like us;
 * LOCK_CANCELLED; LOCK_SYSTEM. Each of these failures closes the connection, except a refused
 * greeting.
 *
 * A refused greeting leaves the connection open, and sets greeting_failed. Either the server has
 * refused the login or the database (redis_error_result() gives the result), or the server is not
 * the master (LOCK_UNAVAILABLE). The server may still have carried out the commands, in the
 * database that was selected before.
 *
 * After any failure there are no replies, and conn->sent says whether the server may have carried
 * out the commands. */
enum lock_result redis_conn_call(struct redis_conn *conn, const struct redis_command *commands,
                                 int count, redisReply **replies, struct bound bound,
                                 struct errmsg *why);

/* Closes the connection after a reply that makes no sense. Returns LOCK_UNAVAILABLE. */
enum lock_result redis_conn_nonsense(struct redis_conn *conn, struct errmsg *why);

/* True if bytes have been read from the socket but not used yet. poll(2) on the descriptor does not
 * report such bytes. */
bool redis_conn_has_unread(const struct redis_conn *conn);

/* Reads the messages that have arrived, without waiting. Of a flood of messages, reads only the
 * first ones. Closes the connection if it has ended, or if anything unexpected arrives. */
void redis_conn_read_messages(struct redis_conn *conn);

/* --- notifications (subscribe.c) -----------------------------------------
 *
 * The server notifies dlock at once of two events. One is a touch: another client has written to a
 * key (CLIENT TRACKING of Redis 6 and later). The other is that it is our turn to acquire the lock
 * (a message on our own channel). Both notifications arrive on the connection that subscribes.
 *
 * hiredis 0.14 reads only RESP2. In RESP2, the server sends messages only to a subscribed
 * connection, and a subscribed connection cannot run scripts. So each call sends two things in one
 * write: UNSUBSCRIBE, and a transaction (MULTI ... EXEC) that runs the script and subscribes again.
 * The script sees the effect of all earlier touches. Because the script reads the key, the server
 * reports the next touch, except a write by the script itself (NOLOOP). (Since Redis 6.0, a script
 * that reads one of its keys counts as a reader of all of them.) No touch can come between the
 * script and SUBSCRIBE, however the network splits the write.
 *
 * dlock does not test permissions in advance. If the server refuses a command:
 *
 *   CLIENT ID, CLIENT TRACKING  no touches are reported on this connection
 *   SUBSCRIBE                   the transaction is discarded -> dlock runs the script alone
 *   UNSUBSCRIBE, EXEC           nothing has run, and the connection can run no more scripts -> the
 *                               next connection does not subscribe
 *   MULTI                       the script has run, but not in one step with SUBSCRIBE -> the
 *                               next connection does not subscribe
 *
 * If two connections in a row end while they subscribe, the next connection does not subscribe. */

/* The channel on which the server reports changed keys. */
#define REDIS_INVALIDATE "__redis__:invalidate"

/* Like redis_conn_call() with one script, but works even if the connection is already subscribed to
 * channels. Also subscribes to those of `channels` that the server permits. If the server permits
 * none, the script still runs. The text of channels.wake must live as long as the connection. */
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
