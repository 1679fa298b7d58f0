/* The Lua scripts, and the one place that calls them. */
#ifndef DLOCK_REDIS_SCRIPTS_H
#define DLOCK_REDIS_SCRIPTS_H

#include "backend.h"
#include "redis_conn.h"
#include "redis_listening.h"
#include "redis_url.h"

#include <stdbool.h>

struct redis_script {
    const char *sha1;
    const char *text;
};

extern const struct redis_script redis_take_script, redis_check_script, redis_extend_script, redis_release_script,
    redis_look_script, redis_force_script;

/* How many of the lock's keys a script is given, lock and meta first (see
 * common.lua). */
enum { KEYS_OWNED = 2, KEYS_WATCHED = 3, KEYS_ALL = 6 };

/* Where the lock's key stands among the words of a call. */
enum { REDIS_CALL_KEY = 3 };

enum { COMPANION_SIZE = 2 * LOCK_KEY_SIZE, NUMBERS_MOST = 10 };

/* Where we stand in the queue for the lock, and what we were told there. */
struct redis_place {
    char wake[COMPANION_SIZE]; /* our channel; "": we have not asked yet */
    int64_t came;              /* when we first asked (server, us); 0: not yet */
    int ahead;                 /* how many come before us; -1: not known */
    bool attended;             /* somebody looks on */
    bool listens;              /* what the server knows of us: that we can be called */
    bool called;               /* it is our turn */
    struct deadline asked;     /* when we asked last */
    struct deadline touched;   /* when to ask since somebody has touched the lock */
    struct deadline changes;   /* when to ask since a lease ends, or a turn */
};

struct redis_sentinel;
struct redis_cluster;

/* What became of one call on its way to the right node of a Cluster. */
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
    bool owns_tls; /* settings.tls is ours to close */
    const char *key; /* of the lock that is taken; NULL: none yet */
    struct redis_conn conn;
    struct redis_sentinel *sentinel; /* NULL: the URL names none */
    struct redis_cluster *cluster; /* its nodes; NULL: none is known yet, or it is no Cluster */
    struct redis_listening listening;
    struct redis_place place;
    bool watched;      /* the checks ask to be told at once */
    bool touched;      /* we were told that somebody has touched the lock */
    struct deadline fresh; /* until when the last answer stands, as long as we are told of touches */
    bool leased;       /* addresses are settled: from here on no name is looked up */
    bool release_sent; /* and its reply never came */
};

/* Makes one for another node of the Cluster of `first`, which must outlive it: its
 * login and its TLS are the same. It begins there, and follows a key that moves.
 * LOCK_OK with *node, to be closed as any backend; LOCK_SYSTEM. */
enum lock_result backend_redis_open_node(struct redis_backend **node, const struct redis_backend *first,
                                         const struct redis_endpoint *at, struct why *why);

static inline struct redis_backend *redis_of(struct backend *backend)
{
    return (struct redis_backend *)(void *)backend;
}

/* A call of a script; begun with redis_script_begin(), its arguments added to
 * `words` with redis_command_add(), which must live until it has run. */
struct redis_call {
    const struct redis_script *script;
    struct redis_ears ears; /* what to listen to from then on */
    struct redis_command words;
    char count[8];
    char companions[KEYS_ALL - 1][COMPANION_SIZE];
    char numbers[NUMBERS_MOST][24]; /* those that are words */
    int number_count;
    bool by_text;     /* sent with its text at once: nobody will be there to send it again */
    int keys, least_keys; /* that it is given, and can do with while its slot is moved (0: with none less) */
    bool sent_before; /* redis_script_run_again() has sent it twice */
};

void redis_script_begin(struct redis_call *call, const struct redis_script *script, int keys, const char *key);

/* With how many keys a script does that is about this lease: an exclusive lock of
 * our own needs lock and meta, and has both. While a Cluster moves its slot, a
 * script is put off as long as one of the keys it is given is not there; what the
 * others are for (calling those who wait) nobody could make use of then. */
int redis_least_keys(const struct lease *lease);

/* Adds a number as a word. */
void redis_script_add_number(struct redis_call *call, int64_t number);

/* Connects if need be and runs the script. LOCK_OK with an array that begins
 * with a word in *reply, to be freed; else as redis_conn_call(). */
enum lock_result redis_script_run(struct redis_backend *redis, struct redis_call *call, redisReply **reply, struct bound bound,
                                  struct why *why);

/* The same for what may be run twice. Where a connection that has been idle
 * turns out to be broken, it is made anew at once: what was asked is urgent. */
enum lock_result redis_script_run_again(struct redis_backend *redis, struct redis_call *call, redisReply **reply,
                                        struct bound bound, struct why *why);

/* Sends it where the connection stands, even if its login was refused. As
 * redis_conn_call(). */
enum lock_result redis_script_send(struct redis_backend *redis, struct redis_call *call, bool by_text, redisReply **reply,
                                   struct bound bound, struct why *why);

/* Every failure names the server that it came from; a connection whose login or
 * SELECT failed stands before the wrong database, and serves nobody else. */
enum lock_result redis_script_end(struct redis_backend *redis, enum lock_result result, struct why *why);

/* --- answers ------------------------------------------------------------- */

/* Whether the answer is this word and has so many elements. */
bool redis_answer_is(const redisReply *reply, const char *word, size_t elements);

enum lock_result redis_bad_answer(struct redis_backend *redis, struct why *why);

/* A century: what no time is longer than that is taken from a server. Another
 * client may have set an expiry that no clock here can count to. */
#define REDIS_MS_MOST (INT64_C(100) * 365 * 86400 * 1000)

/* A PTTL of at least `least`, cut to REDIS_MS_MOST. */
bool redis_left(const redisReply *element, int64_t least, int64_t *out);

/* A whole number that comes as text, or as an integer; "" is 0. */
bool redis_number(const redisReply *element, int64_t least, int64_t most, int64_t *out);

/* The text of an element; "" for anything else. */
const char *redis_text(const redisReply *element);

#endif
