/* What the files of this folder share: one Redis server, or several behind one URL, and the lock
 * stored there.
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

/* A waiter's place in the queue for the lock, and what the server reported about it. To "call" a
 * waiter is to tell it on its channel that it is its turn; a client that frees the lock, or finds
 * it free, does this (store/redis/scripts/queue.lua). */
struct redis_place {
    char wake[COMPANION_SIZE]; /* the waiter's channel; "": it has not asked yet */
    int64_t came;              /* when it first asked (server's clock, us); 0: not yet */
    int ahead;                 /* how many waiters are before it; -1: unknown */
    bool attended;             /* a person is watching */
    bool listens;              /* the last request said that the waiter can be called */
    unsigned may_call;       /* serial of a connection whose user may call waiters; 0: none known */
    bool called;             /* it is the waiter's turn */
    bool vain;               /* a call was in vain: other clients acquire the lock without
                              * queueing */
    bool touched;            /* another client has touched the lock */
    bool unseen;             /* the waiter asks because for a long time no other waiter has
                              * reported that it has asked */
    struct deadline changes; /* when to ask because a lease or a turn ends */
    struct deadline look;    /* when to ask, unless another waiter has asked by then */
};

struct redis_call;
struct redis_sentinel;
struct redis_cluster;

/* The progress of one call towards the right node of a Cluster. */
struct redis_detour {
    struct deadline start;
    int redirections;
    struct duration pause; /* before the last repetition at the same node; 0: none yet */
};

/* One server, or several behind one URL, and the lock there. */
struct redis_backend {
    struct backend base;
    struct redis_url url;
    struct redis_settings settings;
    const char *key; /* of the lock requested with take(); NULL: none yet */
    bool owns_tls;   /* the backend closes settings.tls */
    struct redis_conn conn;
    struct redis_sentinel *sentinel; /* NULL: the URL names none */
    struct redis_cluster *cluster;   /* its nodes; NULL: none known yet, or not a Cluster */
    struct redis_place place;
    bool watched;                /* checks also request notifications */
    bool release_sent;           /* a release was sent, and its reply never came */
    struct redis_call *call;     /* the current call: 32 kB, too much for a stack */
    char request[TOKEN_SIZE];    /* id of a request that has no take id; "": none */
    char unanswered[TOKEN_SIZE]; /* take id of a request that got no answer; "": none */
    struct errmsg unwritten;     /* what base.warning points to after a release */
};

static inline struct redis_backend *redis_of(struct backend *backend)
{
    return (struct redis_backend *)(void *)backend;
}

enum { REDIS_SLOTS = 16384 };

/* The slot of a key in a Redis Cluster: 0 to REDIS_SLOTS - 1. The slot depends on the key's hash
 * tag or, if it has none, on the whole key (Redis Cluster specification, "Key distribution
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

/* How many of the lock's keys a script gets (store/redis/scripts/keys.lua): lock and meta come
 * first. share.lua is the exception: it gets lock and own, because it does not need meta. */
enum {
    KEYS_OWNED = 2,
    KEYS_SHARE = 2,
    KEYS_WATCHED = 4,
    KEYS_ALL = 8,
    REDIS_COMPANIONS = KEYS_ALL - 1
};

enum { COMPANION_META, COMPANION_OWN }; /* the first two */

/* The part that lock_key_companion() adds for each key except the lock itself, in the order of the
 * scripts' KEYS. A token follows REDIS_OWN. */
#define REDIS_OWN "holder:"
extern const char *const redis_companion_names[REDIS_COMPANIONS];

/* The index of the lock's key among the words of a call of a script. */
enum { REDIS_CALL_KEY = 3, NUMBERS_MOST = 12 };

/* The longest record of a holder or waiter, with all its texts encoded. */
enum { RECORD_SIZE = 4096 };

/* A call of a script, begun with redis_script_begin(). The caller adds the arguments to `words`
 * with redis_command_add(); they must live until the script has run. */
struct redis_call {
    const struct redis_script *script;
    struct redis_channels channels; /* to listen to after the call */
    struct redis_command words;
    char count[8];
    char companions[REDIS_COMPANIONS][COMPANION_SIZE];
    char numbers[NUMBERS_MOST][24]; /* the numbers among the words */
    char end[RUN_END_SIZE];         /* the end of a run, a word */
    char record[RECORD_SIZE];       /* the record of a holder or waiter, a word */
    int number_count;
    bool careful; /* not sent until login and database are known to be right */
    bool by_text; /* EVAL at once: this process may have exited before a NOSCRIPT could be answered
                   * with the text */
    int keys;
    int least_keys; /* this many are enough while the slot is moved; 0: all are needed */
    bool owns;      /* about this process's lease, which is lost if the lock has a newer format */

    /* After the call: */
    redisReply *reply; /* an array that begins with a word, until redis_script_end() */
    int64_t newer;     /* the lock's format, if the call was refused because of it; otherwise 0 */
    bool unusable;     /* the lock's keys belong to another program */
    bool sent_before;  /* the first attempt of redis_script_run_again() had already sent it */
};

/* Begins the next call of the backend. `token` is the calling client's ("": none). */
struct redis_call *redis_script_begin(struct redis_backend *redis,
                                      const struct redis_script *script, int keys, const char *key,
                                      const char *token);

/* Sets `name` to the name of companion key `i`, as a script gets it from the client with this
 * token. */
void redis_companion(char name[COMPANION_SIZE], const char *key, int i, const char *token);

/* For a script about this lease: sets `owns` and `least_keys`. While a Cluster moves a slot, the
 * server refuses a script as long as one of its keys is missing. An exclusive lock of this process
 * needs only lock and meta, and has both. The other keys are for calling waiters, which is
 * impossible during the move anyway. */
void redis_script_is_about(struct redis_call *call, const struct lease *lease);

/* Adds a number as a word. */
void redis_script_add_number(struct redis_call *call, int64_t number);

/* Connects if necessary and runs the script of the call. LOCK_OK with the reply. LOCK_INVALID if
 * the keys are unusable or the lock has a newer format, but LOCK_FOREIGN for a newer format if the
 * call `owns`. Otherwise the results of redis_conn_call(). */
enum lock_result redis_script_run(struct redis_backend *redis, struct bound bound,
                                  struct errmsg *why);

/* Reads a list of values in the order of the table. Each value is checked, because no answer is
 * trusted. False: a value cannot be read and counts as missing; the others are set. Reading a text
 * never fails: another client may have written any bytes, and only those before a NUL count. */
bool redis_fields_read(const struct fields *fields, redisReply *const *from, void *object);

/* redis_script_run() for a script that may run twice. If an idle connection turns out to be broken,
 * or the server hangs up at the greeting, dlock connects again at once, because the call is
 * urgent. */
enum lock_result redis_script_run_again(struct redis_backend *redis, struct bound bound,
                                        struct errmsg *why);

/* Sends the script of the call on the current connection, even if its login was refused. Returns
 * what redis_conn_call() returns; the reply is stored in the call. */
enum lock_result redis_script_send(struct redis_backend *redis, bool by_text, struct bound bound,
                                   struct errmsg *why);

/* Connects if necessary, to any suitable server, and sends a command that is not a script. LOCK_OK
 * with the reply in the call; for an error reply, the result of redis_error_judge(). */
enum lock_result redis_command_run(struct redis_backend *redis, const struct redis_command *command,
                                   struct bound bound, struct errmsg *why);

/* Ends a call, with or without a script: frees the reply, makes every failure name its server, and
 * returns the result. A connection whose login or SELECT failed is closed, because it uses the
 * wrong database. */
enum lock_result redis_script_end(struct redis_backend *redis, enum lock_result result,
                                  struct errmsg *why);

/* Connects if necessary, to the server that has the key (NULL: any suitable one). Returns what
 * redis_conn_open() returns. */
enum lock_result redis_topology_open(struct redis_backend *redis, const char *key,
                                     struct bound bound, struct errmsg *why);

/* Makes the backend's sentinel from its URL and settings. LOCK_OK; LOCK_INVALID or LOCK_REFUSED
 * with *why set if the file with the login cannot be used; LOCK_SYSTEM. The caller frees the
 * sentinel with redis_sentinel_free() in any case. */
enum lock_result redis_sentinel_init(struct redis_backend *redis, enum redis_fault *fault,
                                     struct errmsg *why);

void redis_sentinel_free(struct redis_backend *redis);

/* Connects, if necessary, to the master that the Sentinels name. The server itself must also say
 * that it is a master (masters_only). Returns what redis_conn_open() returns, or LOCK_INVALID if
 * all Sentinels say that there is no master of this name. */
enum lock_result redis_sentinel_open(struct redis_backend *redis, struct bound bound,
                                     struct errmsg *why);

/* Called by a holder or waiter after each question to the master. Makes sure that a Sentinel will
 * report the next master, and asks for the current one from time to time. If the master has
 * changed, closes the connection, and redis_sentinel_moved() becomes true. Failures do not
 * matter. */
void redis_sentinel_attend(struct redis_backend *redis, struct bound bound);

/* Reads what a Sentinel has reported, without waiting. If another server is the master now, closes
 * the connection to the old one. True if the connection to the Sentinel turns out to have ended:
 * after the next question to the master, redis_sentinel_attend() turns to the next Sentinel. */
bool redis_sentinel_hear(struct redis_backend *redis);

/* Called if the server turned out not to be a master, or could not be asked. The next search starts
 * with another Sentinel, unless the current one has just reported a new master. */
void redis_sentinel_failed(struct redis_backend *redis);

/* True if there are Sentinels, but none would report a new master. */
bool redis_sentinel_is_unsubscribed(const struct redis_backend *redis);

/* When a holder must call redis_sentinel_attend() again, at the latest, if no Sentinel accepts a
 * subscription; 0: the next check is soon enough. */
struct deadline redis_sentinel_asks(const struct redis_backend *redis);

/* True if another server has become the master and has not been asked yet. The connection to the
 * old master is already closed then. */
bool redis_sentinel_moved(struct redis_backend *redis);

/* Returns one descriptor for the messages of both the master, on `fd` (-1: none), and the Sentinel.
 * The backend owns the descriptor. */
int redis_sentinel_join(struct redis_backend *redis, int fd);

/* Connects to the node that last had the key, otherwise to any node that can be reached. The bound
 * covers all attempts together. LOCK_INVALID: the key cannot be a lock in a Cluster. */
enum lock_result redis_cluster_open(struct redis_backend *redis, const char *key,
                                    struct bound bound, struct errmsg *why);

/* Judges an error reply to a script with this key. LOCK_OK: the script has not run, and must be
 * sent again to the node that redis_cluster_open() now connects to. Otherwise the result of
 * redis_error_result(). `detour` belongs to this call; initially only its start is set. */
enum lock_result redis_cluster_judge(struct redis_backend *redis, const char *key,
                                     const char *error, struct redis_detour *detour,
                                     struct bound bound, struct errmsg *why);

/* Called after a call to a node has failed: adds the node's name to *why. If the call ran out of
 * time (`too_late`), other nodes are asked first for a while. */
void redis_cluster_failed(struct redis_backend *redis, bool too_late, struct errmsg *why);

/* Reads an address from a node's reply. An address without a host gets the host of `here`. False:
 * this is not an address. */
bool redis_cluster_endpoint(struct redis_endpoint *at, const struct redis_endpoint *here,
                            const char *host, size_t length, const char *port);

/* take() of store/backend.h. A waiter that is refused joins the queue, and the server calls it if
 * its user may listen. */
enum lock_result redis_take(struct backend *backend, const struct lock_request *request,
                            struct lease *lease, struct holder *holder, struct bound bound,
                            struct errmsg *why);

/* listen() of store/backend.h. */
struct call redis_listen(struct backend *backend);

/* on_message of redis/conn.h, for a redis_backend. */
void redis_hear(void *data, const char *channel, const redisReply *payload);

/* Begins the call that releases the lease, or gives up its take. */
struct redis_call *redis_release_begin(struct redis_backend *redis, const struct lease *lease);

/* Reads the record of a holder whose `left` is already set, and sets `expires` from `left`. If the
 * text is not a record written by dlock, the holder is not `known`. */
void redis_holder_read(const redisReply *record, struct holder *holder);

/* Reads the reply of store/redis/scripts/look.lua. LOCK_OK with *state, which the caller frees;
 * LOCK_UNAVAILABLE for a nonsensical reply; LOCK_SYSTEM. */
enum lock_result redis_state_read(struct redis_backend *redis, const char *key,
                                  struct lock_state *state, struct errmsg *why);

/* Opens a store for one node, `at`, of the Cluster of `first`. It uses the login and the TLS
 * settings of `first`, which must outlive it. It connects to `at` first, and follows a key that
 * moves. LOCK_OK with *node, which is closed like any backend; LOCK_SYSTEM. */
typedef enum lock_result redis_open_node(struct redis_backend **node,
                                         const struct redis_backend *first,
                                         const struct redis_endpoint *at, struct errmsg *why);

/* list() of store/backend.h. Asks every master of a Cluster, each on its own connection.
 * LOCK_UNAVAILABLE if a master cannot be asked, or slots have no master, because the list would be
 * incomplete. */
enum lock_result redis_list_with(redis_open_node *open_node, struct redis_backend *redis,
                                 const struct listing *listing, struct bound bound,
                                 struct errmsg *why);

#endif
