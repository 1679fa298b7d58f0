/* One Redis server, or several behind one URL, and the lock that is taken there: what the files
 * of this folder share.
 *
 *   backend.c    the functions of store/backend.h
 *   take.c       takes, the queue, and messages of the server
 *   look.c       looks at one lock, or at all
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

/* Our place in the queue for the lock, and what the server reported about it. */
struct redis_place {
    char wake[COMPANION_SIZE]; /* our channel; "": we have not asked yet */
    int64_t came;              /* when we first asked (server, us); 0: not yet */
    int ahead;                 /* how many waiters are before us; -1: unknown */
    bool attended;             /* a user is watching */
    bool listens;              /* the server knows that we can be called */
    unsigned may_call;         /* the connection whose user may call waiters; 0: unknown */
    bool called;               /* it is our turn */
    bool touched;              /* another client has touched the lock */
    bool unseen;               /* we ask because no other waiter has for long */
    struct deadline changes;   /* when to ask because a lease or a turn ends */
    struct deadline look;      /* when to ask, unless another waiter does */
};

struct redis_call;
struct redis_sentinel;
struct redis_cluster;

/* The progress of one call on its way to the right node of a Cluster. */
struct redis_detour {
    struct deadline start;
    int redirections;
    struct duration pause; /* before it was made again at the same node */
};

/* One server, and the lock that is taken there. */
struct redis_backend {
    struct backend base;
    struct redis_url url;
    struct redis_settings settings;
    const char *key;   /* of the lock that we take; NULL: none yet */
    const char *token; /* of that take */
    bool shares;       /* we have the lock, in a mode that others share */
    bool owns_tls;     /* the backend closes settings.tls */
    struct redis_conn conn;
    struct redis_sentinel *sentinel; /* NULL: the URL names none */
    struct redis_cluster *cluster;   /* its nodes; NULL: none is known yet, or it is no Cluster */
    struct redis_place place;
    bool watched;      /* the checks request notifications */
    bool touched;      /* the server reported that a client has touched the lock */
    bool release_sent; /* a release was sent, and its reply never came */
    struct deadline
        fresh; /* until when the last answer is valid, as long as touches are reported */
    struct redis_call *call;  /* the call that is made: 32 kB, too much for a stack */
    char request[TOKEN_SIZE]; /* id of the removal that was requested without a take id; "": none */
    char unanswered[TOKEN_SIZE]; /* id of a take of which a try got no answer; "": none */
    struct errmsg unwritten;     /* what base.warning points to after a release */
};

static inline struct redis_backend *redis_of(struct backend *backend)
{
    return (struct redis_backend *)(void *)backend;
}

enum { REDIS_SLOTS = 16384 };

/* The slot of a key in a Redis Cluster: from 0 to REDIS_SLOTS - 1, by the key's hash tag or, without one, all of it
 * (Redis Cluster specification, "Key distribution model"). */
int redis_slot(const char *key);

/* True if the companions of a lock with this key are in its slot. They are not if the key
 * has no hash tag, but a '}' (lock_key_companion()). */
bool redis_keys_is_shared(const char *key);

struct redis_script {
    const char *sha1;
    const char *text;
};

extern const struct redis_script redis_take_script, redis_check_script, redis_share_script,
    redis_extend_script, redis_release_script, redis_look_script, redis_force_script,
    redis_pause_script;

/* The number of the lock's keys that a script is given, lock and meta first (see
 * store/redis/scripts/common.lua), but for share.lua, which has no use for meta. */
enum {
    KEYS_OWNED = 2,
    KEYS_SHARE = 2,
    KEYS_WATCHED = 4,
    KEYS_ALL = 8,
    REDIS_COMPANIONS = KEYS_ALL - 1
};

enum { COMPANION_META, COMPANION_OWN }; /* the first of them */

/* The parts of lock_key_companion() for all keys but the lock itself, in this order; the
 * one that ends in REDIS_OWN is followed by a token. */
#define REDIS_OWN "holder:"
extern const char *const redis_companion_names[REDIS_COMPANIONS];

/* The index of the lock's key among the words of a call. */
enum { REDIS_CALL_KEY = 3, NUMBERS_MOST = 12 };

/* The longest record of a holder or waiter, with all its texts encoded. */
enum { RECORD_SIZE = 4096 };

/* A call of a script; begun with redis_script_begin(). Its arguments are added to `words`
 * with redis_command_add(), and must live until it has run. */
struct redis_call {
    const struct redis_script *script;
    struct redis_channels channels; /* to listen to from then on */
    struct redis_command words;
    char count[8];
    char companions[REDIS_COMPANIONS][COMPANION_SIZE];
    char numbers[NUMBERS_MOST][24]; /* those that are words */
    char end[RUN_END_SIZE];         /* the same */
    char record[RECORD_SIZE];       /* the same */
    int number_count;
    bool careful; /* not sent before login and database are known to be right */
    bool by_text; /* sent with its text at once: no process will be there to send it again */
    int keys;
    int least_keys; /* that it can do with while its slot is moved (0: with none less) */
    bool owns;      /* it is about a lease of this process: a newer format means that it is lost */

    /* Afterwards: */
    redisReply *reply; /* an array that begins with a word, until redis_script_end() */
    int64_t newer;     /* the format of the lock, if that is why it was refused; or 0 */
    bool unusable;     /* the keys of the lock are another program's */
    bool sent_before;  /* redis_script_run_again() has sent it twice */
};

/* Begins the next call of the backend. `token`: of the client that asks ("": it has none). */
struct redis_call *redis_script_begin(struct redis_backend *redis,
                                      const struct redis_script *script, int keys, const char *key,
                                      const char *token);

/* The name of companion `i`, as a script of this client is given it. */
void redis_companion(char name[COMPANION_SIZE], const char *key, int i, const char *token);

/* For a script about this lease: sets `owns` and `least_keys`. An exclusive lock of our own
 * needs lock and meta, and has both. While a Cluster moves its slot, a script is put off
 * as long as one of its keys is missing; the purpose of the other keys (calling waiters)
 * cannot be served then anyway. */
void redis_script_is_about(struct redis_call *call, const struct lease *lease);

/* Adds a number as a word. */
void redis_script_add_number(struct redis_call *call, int64_t number);

/* Connects if necessary and runs the script of the call. LOCK_OK with its reply; LOCK_INVALID,
 * or LOCK_FOREIGN, if the lock has a newer format, or its keys are unusable; otherwise as
 * redis_conn_call(). */
enum lock_result redis_script_run(struct redis_backend *redis, struct bound bound,
                                  struct errmsg *why);

/* Reads a list of values in the order of the table. False: one of them cannot be read, and is
 * none; the others are set. No answer is trusted: each value is checked. */
bool redis_fields_read(const struct fields *fields, redisReply *const *from, void *object);

/* The same for a script that may be run twice. If a connection that has been idle turns
 * out to be broken, or the server hangs up at the greeting, dlock connects again at once: the
 * question is urgent. */
enum lock_result redis_script_run_again(struct redis_backend *redis, struct bound bound,
                                        struct errmsg *why);

/* Sends it on the connection as it is, even if its login was refused. As
 * redis_conn_call(), with the reply of the call. */
enum lock_result redis_script_send(struct redis_backend *redis, bool by_text, struct bound bound,
                                   struct errmsg *why);

/* Connects if necessary, to any suitable server, and sends a command that is no script. LOCK_OK
 * with the reply of the call; an error as redis_error_judge(). */
enum lock_result redis_command_run(struct redis_backend *redis, const struct redis_command *command,
                                   struct bound bound, struct errmsg *why);

/* Ends a call, with or without a script, and returns the result: frees the reply. Every failure names the server that it came from; a connection whose login or SELECT
 * failed is at the wrong database, and must not be used again. */
enum lock_result redis_script_end(struct redis_backend *redis, enum lock_result result,
                                  struct errmsg *why);

/* Connects if necessary, to the server that has the key (NULL: any suitable one). As
 * redis_conn_open(). */
enum lock_result redis_topology_open(struct redis_backend *redis, const char *key,
                                     struct bound bound, struct errmsg *why);

/* Makes the backend's sentinel from its URL and settings. LOCK_OK; LOCK_INVALID,
 * LOCK_REFUSED: the file with the login, as *why says; LOCK_SYSTEM. The caller frees it
 * with redis_sentinel_free() in any case. */
enum lock_result redis_sentinel_init(struct redis_backend *redis, enum redis_fault *fault,
                                     struct errmsg *why);

void redis_sentinel_free(struct redis_backend *redis);

/* Connects, if necessary, to the master that the Sentinels name, and which must itself
 * say that it is one (masters_only). As redis_conn_open(), and LOCK_INVALID if all
 * Sentinels say that there is no master of this name. */
enum lock_result redis_sentinel_open(struct redis_backend *redis, struct bound bound,
                                     struct errmsg *why);

/* For a holder or waiter, after each question to the master: makes sure that a Sentinel
 * reports the next master, and asks for it from time to time. If the master has changed,
 * the connection is closed, and redis_sentinel_moved() is true. No failure of it matters. */
void redis_sentinel_attend(struct redis_backend *redis, struct bound bound);

/* Reads what a Sentinel has reported, without waiting. If the server is no longer the
 * master, its connection is closed. True if the Sentinel has just left us: another
 * question to the master turns to the next one. */
bool redis_sentinel_hear(struct redis_backend *redis);

/* The master was no master, or could not be asked: the next time another Sentinel is
 * asked first, unless one has just reported a new master. */
void redis_sentinel_failed(struct redis_backend *redis);

/* True if there are Sentinels and none of them would report a new master. */
bool redis_sentinel_is_unsubscribed(const struct redis_backend *redis);

/* When a holder must attend to them at the latest because none accepts our subscription;
 * 0: at any check. */
struct deadline redis_sentinel_asks(const struct redis_backend *redis);

/* True if another server is the master, and has not been asked yet; the connection to the
 * old one is closed then. */
bool redis_sentinel_moved(struct redis_backend *redis);

/* One descriptor for the reports of the master on `fd` (-1: none) and of the Sentinel. It
 * belongs to the backend. */
int redis_sentinel_join(struct redis_backend *redis, int fd);

/* Connects to the node that last had the key, otherwise to whichever can be reached. The
 * limit is for all of them; LOCK_INVALID: the key cannot be a lock in a Cluster. */
enum lock_result redis_cluster_open(struct redis_backend *redis, const char *key,
                                    struct bound bound, struct errmsg *why);

/* The meaning of an error reply to a script with this key. LOCK_OK: it was not run, and
 * must be sent again to the node that redis_cluster_open() now leads to; `detour` is that of
 * this call, zero but for its start at first. Otherwise as redis_error_result(). */
enum lock_result redis_cluster_judge(struct redis_backend *redis, const char *key,
                                     const char *error, struct redis_detour *detour,
                                     struct bound bound, struct errmsg *why);

/* The call to a node has failed: *why then names the node. If time ran out for it, others are
 * asked first for a while. */
void redis_cluster_failed(struct redis_backend *redis, bool too_late, struct errmsg *why);

/* Reads an address from a node's reply: without a host, that of `here` is used. False if
 * it is not an address. */
bool redis_cluster_endpoint(struct redis_endpoint *at, const struct redis_endpoint *here,
                            const char *host, size_t length, const char *port);

/* take() of store/backend.h. If it refuses a waiter, we are in the queue and the server
 * calls us, if it lets us listen. */
enum lock_result redis_take(struct backend *backend, const struct lock_request *request,
                            struct lease *lease, struct holder *holder, struct bound bound,
                            struct errmsg *why);

/* listen() of store/backend.h. */
struct call redis_listen(struct backend *backend);

/* on_message of redis/conn.h, for a redis_backend. */
void redis_hear(void *data, const char *channel, const redisReply *payload);

/* True if the lock cannot have been touched since the last answer: the answer is recent,
 * and the server reports every touch. */
bool redis_is_fresh(struct redis_backend *redis);

/* Begins the call that releases the lease, or gives up its take. */
struct redis_call *redis_release_begin(struct redis_backend *redis, const struct lease *lease);

/* Reads the record of a holder whose `left` and so on are known. If the text is no record as
 * dlock writes it, the holder is not `known`. */
void redis_holder_read(const redisReply *record, struct holder *holder);

/* Reads the reply of store/redis/scripts/look.lua. LOCK_OK with *state, which the caller
 * frees; LOCK_UNAVAILABLE for nonsense; LOCK_SYSTEM. */
enum lock_result redis_state_read(struct redis_backend *redis, const char *key,
                                  struct lock_state *state, struct errmsg *why);

/* Opens a store for another node of the Cluster of `first`, which must outlive it: its
 * login and its TLS are the same. It starts there, and follows a key that moves. LOCK_OK
 * with *node, which is closed as any backend; LOCK_SYSTEM. */
typedef enum lock_result redis_open_node(struct redis_backend **node,
                                         const struct redis_backend *first,
                                         const struct redis_endpoint *at, struct errmsg *why);

/* list() of store/backend.h. Every master of a Cluster is asked, on a connection of its own;
 * if one cannot be asked, or slots have no master, the list would be incomplete:
 * LOCK_UNAVAILABLE. */
enum lock_result redis_list_with(redis_open_node *open_node, struct redis_backend *redis,
                                 const struct listing *listing, struct bound bound,
                                 struct errmsg *why);

#endif
