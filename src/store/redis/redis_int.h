/* Declarations shared by the files of this folder. A redis_backend represents one Redis server, or
 * several servers behind one URL, and one lock stored there.
 *
 *   backend.c    the functions of store/backend.h
 *   take.c       acquires the lock, waits in the queue, reads the server's messages
 *   look.c       looks at one lock, or at all locks
 *   scripts.c    runs a script on the right server
 *   sentinel.c   finds the master
 *   cluster.c    finds the node that has a key */
#ifndef DLOCK_STORE_REDIS_REDIS_INT_H
#define DLOCK_STORE_REDIS_REDIS_INT_H

#include "lock/fields.h"
#include "lock/lock_name.h"
#include "redis/conn.h"
#include "redis/reply.h"
#include "redis/url.h"
#include "store/backend.h"
#include "util/array.h"

#include <stdbool.h>

enum { COMPANION_SIZE = 2 * LOCK_KEY_SIZE + TOKEN_SIZE };

/* A waiter's place in the queue for the lock, and what the server has reported to the waiter. To
 * "call" a waiter means to tell it, on its channel, that its turn has come: it may take the lock
 * now. A client calls the first waiter when it frees the lock or finds the lock free
 * (store/redis/scripts/queue.lua). */
struct redis_place {
    char wake[COMPANION_SIZE]; /* the waiter's channel; "" before its first request */
    int64_t came;              /* time of the first request (server, us); 0: none yet */
    int ahead;                 /* number of waiters before this one; -1: unknown */
    bool attended;             /* a person is watching the wait */
    bool listens;            /* the last request declared that the waiter listens on its channel */
    unsigned may_call;       /* serial number of a connection whose user may send messages to
                              * waiters; 0: unknown */
    bool called;             /* a message has told the waiter that its turn has come */
    bool vain;               /* the waiter was told that its turn had come, but a client that
                              * ignores the queue took the lock first */
    bool touched;            /* another client has changed the lock's key */
    bool unseen;             /* the next request is sent because the other waiters have been
                              * silent for a long time */
    struct deadline changes; /* when to send a request because a lease, or another waiter's turn,
                              * ends */
    struct deadline look;    /* when to send a request, unless another waiter does so first */
};

struct redis_call;
struct redis_sentinel;
struct redis_cluster;

/* The redirections and pauses of one call before it reaches the right node of a Cluster. */
struct redis_detour {
    struct deadline start;
    int redirections;
    struct duration pause; /* pause before the last retry at the same node; 0: none yet */
};

/* One server, or several servers behind one URL, and one lock stored there. */
struct redis_backend {
    struct backend base;
    struct redis_url url;
    struct redis_settings settings;
    const char *key; /* key of the lock that take() requested; NULL before the first take() */
    bool owns_tls;   /* the backend closes settings.tls */
    struct redis_conn conn;
    struct redis_sentinel *sentinel; /* NULL if the URL names no Sentinels */
    struct redis_cluster *cluster;   /* the known nodes; NULL: none known yet, or not a Cluster */
    struct redis_place place;
    bool watched;                /* checks of the lease also ask the server to report changes */
    bool release_sent;           /* a release was sent, but no reply arrived */
    struct redis_call *call;     /* the current call; 32 kB, too much for the stack */
    char request[TOKEN_SIZE];    /* id of a request that is not about our own lease; "": none */
    char unanswered[TOKEN_SIZE]; /* id of a request for the lock that got no reply; "": none */
    struct errmsg unwritten;     /* the text that base.warning points to after a release */
};

static inline struct redis_backend *redis_of(struct backend *backend)
{
    return (struct redis_backend *)(void *)backend;
}

enum { REDIS_SLOTS = 16384 };

/* The slot of a key in a Redis Cluster: 0 to REDIS_SLOTS - 1. The slot depends on the key's hash
 * tag or, without a hash tag, on the whole key (Redis Cluster specification, "Key distribution
 * model"). */
int redis_slot(const char *key);

/* True if the companion keys of a lock with this key are in the same slot as the key. They are in
 * another slot if the key has a '}' but no hash tag (lock_key_companion()). */
bool redis_keys_is_shared(const char *key);

struct redis_script {
    const char *sha1;
    const char *text;
};

extern const struct redis_script redis_take_script, redis_check_script, redis_share_script,
    redis_extend_script, redis_release_script, redis_look_script, redis_force_script,
    redis_pause_script;

/* How many of the lock's keys a script gets. The keys come in the order of
 * store/redis/scripts/keys.lua: lock and meta first. share.lua is the exception: it does not need
 * meta, so it gets lock and own (the record of a shared holder). */
enum {
    KEYS_OWNED = 2,
    KEYS_SHARE = 2,
    KEYS_WATCHED = 4,
    KEYS_ALL = 8,
    REDIS_COMPANIONS = KEYS_ALL - 1
};

enum { COMPANION_META, COMPANION_OWN }; /* indexes of the first two companion keys */

/* What lock_key_companion() adds to the lock's key to form the names of the companion keys, in the
 * order of the scripts' KEYS. A token follows REDIS_OWN. */
#define REDIS_OWN "holder:"
extern const char *const redis_companion_names[REDIS_COMPANIONS];

/* REDIS_CALL_KEY is the index of the lock's key among the words of a script call. */
enum { REDIS_CALL_KEY = 3, NUMBERS_MOST = 12 };

/* The size of the longest record of a holder or waiter, with every text in it encoded. */
enum { RECORD_SIZE = 4096 };

/* A call of a script, begun with redis_script_begin(). The caller adds the arguments to `words`
 * with redis_command_add(). These strings must stay valid until the script has run. */
struct redis_call {
    const struct redis_script *script;
    struct redis_channels channels; /* channels to listen to after the call */
    struct redis_command words;
    char count[8];
    char companions[REDIS_COMPANIONS][COMPANION_SIZE];
    char numbers[NUMBERS_MOST][24]; /* the words that are numbers */
    char end[RUN_END_SIZE];         /* the word that says how a run ended */
    char record[RECORD_SIZE];       /* the word that is the record of a holder or waiter */
    int number_count;
    bool careful; /* sent only after the server has accepted login and SELECT */
    bool by_text; /* use EVAL at once: after a NOSCRIPT for EVALSHA, this process might exit before
                   * it could send the text */
    int keys;
    int least_keys; /* this many keys are enough while a Cluster moves the slot to another node; 0:
                     * all keys are needed */
    bool owns;      /* the call is about this process's lease, which must have been lost if the lock
                     * now has a newer format */

    /* Results of the call: */
    redisReply *reply; /* an array that begins with a word; valid until redis_script_end() */
    int64_t newer;     /* the lock's format, if it is newer than ours and the call was therefore
                        * refused; otherwise 0 */
    bool unusable;     /* the lock's keys belong to another program */
    bool sent_before;  /* the first attempt of redis_script_run_again() had sent the script */
};

/* Begins the next call of the backend. `token` is the token of the calling client, or "" if the
 * client has none. */
struct redis_call *redis_script_begin(struct redis_backend *redis,
                                      const struct redis_script *script, int keys, const char *key,
                                      const char *token);

/* Sets `name` to the name of companion key `i` for the client with this token. */
void redis_companion(char name[COMPANION_SIZE], const char *key, int i, const char *token);

/* Sets `owns` and `least_keys` of a call about this lease. While a Cluster moves a slot, a server
 * refuses a script if one of the script's keys is missing. For an exclusive lock of this process,
 * the script needs only lock and meta, which both exist. The script needs the other keys only to
 * notify waiters, which is impossible during the move anyway. */
void redis_script_is_about(struct redis_call *call, const struct lease *lease);

/* Adds a number to the words of the call. */
void redis_script_add_number(struct redis_call *call, int64_t number);

/* Connects if necessary, and runs the script of the call. Returns LOCK_OK with the reply in the
 * call. Returns LOCK_INVALID if the keys are unusable. If the lock has a newer format than this
 * dlock knows, returns LOCK_FOREIGN if the call's `owns` is set, and LOCK_INVALID otherwise. In all
 * other cases returns the results of redis_conn_call(). */
enum lock_result redis_script_run(struct redis_backend *redis, struct bound bound,
                                  struct errmsg *why);

/* Reads a list of values in the order of the table `fields`. Each value is checked, because no
 * reply is trusted. Returns false if a value cannot be read; that value counts as missing, and the
 * other values are set. A text field accepts any bytes, since another client may have written them;
 * its text ends at the first NUL. */
bool redis_fields_read(const struct fields *fields, redisReply *const *from, void *object);

/* Like redis_script_run(), for a script that may safely run twice. If an idle connection turns out
 * to be broken, or the server hangs up during the greeting, connects again at once, because the
 * call is urgent. */
enum lock_result redis_script_run_again(struct redis_backend *redis, struct bound bound,
                                        struct errmsg *why);

/* Sends the script of the call on the current connection, even if the login was refused. Returns
 * what redis_conn_call() returns; the reply is stored in the call. */
enum lock_result redis_script_send(struct redis_backend *redis, bool by_text, struct bound bound,
                                   struct errmsg *why);

/* Connects if necessary, to any suitable server, and sends a command that is not a script. Returns
 * LOCK_OK with the reply in the call, or the result of redis_error_judge() for an error reply. */
enum lock_result redis_command_run(struct redis_backend *redis, const struct redis_command *command,
                                   struct bound bound, struct errmsg *why);

/* Ends a call, with or without a script. Frees the reply, adds the name of the server to the
 * message of a failure, and returns `result`. Closes a connection whose login or SELECT failed,
 * because such a connection may use the wrong database. */
enum lock_result redis_script_end(struct redis_backend *redis, enum lock_result result,
                                  struct errmsg *why);

/* Connects if necessary, to the server that has the key, or to any suitable server if `key` is
 * NULL. Returns what redis_conn_open() returns. */
enum lock_result redis_topology_open(struct redis_backend *redis, const char *key,
                                     struct bound bound, struct errmsg *why);

/* Makes the backend's `sentinel` from the URL and settings of the backend. Returns LOCK_OK;
 * LOCK_INVALID or LOCK_REFUSED, with *why set, if the file with the login cannot be used; or
 * LOCK_SYSTEM. In any case the caller frees the sentinel with redis_sentinel_free(). */
enum lock_result redis_sentinel_init(struct redis_backend *redis, enum redis_fault *fault,
                                     struct errmsg *why);

void redis_sentinel_free(struct redis_backend *redis);

/* Connects, if necessary, to the master that the Sentinels name. The server itself must also say
 * that it is a master (masters_only). Returns what redis_conn_open() returns, or LOCK_INVALID if
 * all Sentinels say that there is no master of this name. */
enum lock_result redis_sentinel_open(struct redis_backend *redis, struct bound bound,
                                     struct errmsg *why);

/* A holder or waiter calls this after each request to the master. Makes sure that a Sentinel will
 * report the next master, and asks for the current master from time to time. If the master has
 * changed, closes the connection to the old master, and redis_sentinel_moved() becomes true. A
 * failure is ignored, because a later call tries again. */
void redis_sentinel_attend(struct redis_backend *redis, struct bound bound);

/* Reads the messages of a Sentinel, without waiting. If another server is the master now, closes
 * the connection to the old master. Returns true if the connection to the Sentinel has ended. In
 * that case redis_sentinel_attend() turns to the next Sentinel after the next request to the
 * master. */
bool redis_sentinel_hear(struct redis_backend *redis);

/* Called if the server turned out not to be a master, or did not answer. The next search starts
 * with another Sentinel, unless the current Sentinel has just reported a new master. */
void redis_sentinel_failed(struct redis_backend *redis);

/* True if there are Sentinels, but we are subscribed to none, so a new master would not be reported
 * to us. */
bool redis_sentinel_is_unsubscribed(const struct redis_backend *redis);

/* The latest time at which a holder must call redis_sentinel_attend() again, if no Sentinel accepts
 * a subscription. Otherwise 0, because the next check of the lock is soon enough. */
struct deadline redis_sentinel_asks(const struct redis_backend *redis);

/* True if another server has become the master and dlock has not connected to it yet. The
 * connection to the old master is already closed. */
bool redis_sentinel_moved(struct redis_backend *redis);

/* Returns one descriptor that becomes readable when a message arrives from the Sentinel, or from
 * the master on `fd` (-1: there is no connection to the master). The backend owns the
 * descriptor. */
int redis_sentinel_join(struct redis_backend *redis, int fd);

/* Connects to the node that last had the key, otherwise to any node that can be reached. The bound
 * covers all attempts together. Returns LOCK_INVALID if the key cannot be a lock in a Cluster. */
enum lock_result redis_cluster_open(struct redis_backend *redis, const char *key,
                                    struct bound bound, struct errmsg *why);

/* Judges an error reply to a script for this key. Returns LOCK_OK if the script has not run and
 * must be sent again; redis_cluster_open() then connects to the right node. Otherwise returns the
 * result of redis_error_result(). `detour` belongs to this call; at first only detour->start is
 * set. */
enum lock_result redis_cluster_judge(struct redis_backend *redis, const char *key,
                                     const char *error, struct redis_detour *detour,
                                     struct bound bound, struct errmsg *why);

/* Called after a call to a node has failed: adds the node's name to *why. If the call ran out of
 * time (`too_late`), dlock for a while asks other nodes before this one. */
void redis_cluster_failed(struct redis_backend *redis, bool too_late, struct errmsg *why);

/* Reads an address from a node's reply. An address without a host gets the host of `here`. Returns
 * false if the text is not an address. */
bool redis_cluster_endpoint(struct redis_endpoint *at, const struct redis_endpoint *here,
                            const char *host, size_t length, const char *port);

/* Implements take() of store/backend.h. A waiter that is refused the lock joins the queue. If its
 * user has the right to listen to a channel, the waiter gets a message when its turn comes. */
enum lock_result redis_take(struct backend *backend, const struct lock_request *request,
                            struct lease *lease, struct holder *holder, struct bound bound,
                            struct errmsg *why);

/* Implements listen() of store/backend.h. */
struct call redis_listen(struct backend *backend);

/* Implements on_message of redis/conn.h for a redis_backend. */
void redis_hear(void *data, const char *channel, const redisReply *payload);

/* Begins the call that releases the lock of this lease, or withdraws a request for the lock whose
 * result is unknown. */
struct redis_call *redis_release_begin(struct redis_backend *redis, const struct lease *lease);

/* Reads the record of a holder whose `left` is already set, and sets `expires` from `left`. If
 * dlock did not write the record, `known` becomes false. */
void redis_holder_read(const redisReply *record, struct holder *holder);

/* Reads the reply of store/redis/scripts/look.lua. Returns LOCK_OK with *state set, which the
 * caller frees; LOCK_UNAVAILABLE if the reply makes no sense; or LOCK_SYSTEM if memory is
 * exhausted. */
enum lock_result redis_state_read(struct redis_backend *redis, const char *key,
                                  struct lock_state *state, struct errmsg *why);

/* Opens a backend for `at`, one node of the Cluster of `first`. The new backend uses the login and
 * the TLS settings of `first`, which must outlive it. It connects to `at` first, but follows a key
 * that moves to another node. Returns LOCK_OK with *node, which the caller closes like any backend,
 * or LOCK_SYSTEM. */
typedef enum lock_result redis_open_node(struct redis_backend **node,
                                         const struct redis_backend *first,
                                         const struct redis_endpoint *at, struct errmsg *why);

/* Implements list() of store/backend.h. Asks every master of a Cluster, each on its own connection.
 * Returns LOCK_UNAVAILABLE if a master cannot be asked, or slots have no master, because the list
 * would be incomplete. */
enum lock_result redis_list_with(redis_open_node *open_node, struct redis_backend *redis,
                                 const struct listing *listing, struct bound bound,
                                 struct errmsg *why);

#endif
