/* The Lua scripts, and the one place that calls them. */
#ifndef DLOCK_STORE_REDIS_SCRIPTS_H
#define DLOCK_STORE_REDIS_SCRIPTS_H

#include "lock/fields.h"
#include "redis/reply.h"
#include "store/redis/internal.h"

#include <stdbool.h>

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
    int keys,
        least_keys; /* that it is given, and can do with while its slot is moved (0: with none less) */
    bool owns;      /* it is about a lease of this process: a newer format means that it is lost */
    int64_t newer;    /* afterwards: the format of the lock, if that is why it was refused; or 0 */
    bool sent_before; /* redis_script_run_again() has sent it twice */
};

/* `token`: of the client that asks ("": it has none). */
void redis_script_begin(struct redis_call *call, const struct redis_script *script, int keys,
                        const char *key, const char *token);

/* The name of companion `i`, as a script of this client is given it. */
void redis_companion(char name[COMPANION_SIZE], const char *key, int i, const char *token);

/* For a script about this lease: sets `owns` and `least_keys`. An exclusive lock of our own
 * needs lock and meta, and has both. While a Cluster moves its slot, a script is put off
 * as long as one of its keys is missing; the purpose of the other keys (calling waiters)
 * cannot be served then anyway. */
void redis_script_is_about(struct redis_call *call, const struct lease *lease);

/* Adds a number as a word. */
void redis_script_add_number(struct redis_call *call, int64_t number);

/* Connects if necessary and runs the script. LOCK_OK with an array that begins with a
 * word in *reply, which the caller frees; LOCK_INVALID, or LOCK_FOREIGN, if the lock has a
 * newer format; otherwise as redis_conn_call(). */
enum lock_result redis_script_run(struct redis_backend *redis, struct redis_call *call,
                                  redisReply **reply, struct bound bound, struct errmsg *why);

/* Reads a list of values in the order of the table. False: one of them cannot be read, and is
 * none; the others are set. No answer is trusted: each value is checked. */
bool redis_fields_read(const struct fields *fields, redisReply *const *from, void *object);

/* True with *why set if the answer is {"unusable", key, what is wrong with it}: LOCK_INVALID. */
bool redis_script_refuses(const redisReply *reply, struct errmsg *why);

/* The same for a script that may be run twice. If a connection that has been idle turns
 * out to be broken, or the server hangs up at the greeting, it is made anew at once: the
 * question is urgent. */
enum lock_result redis_script_run_again(struct redis_backend *redis, struct redis_call *call,
                                        redisReply **reply, struct bound bound, struct errmsg *why);

/* Sends it on the connection as it is, even if its login was refused. As
 * redis_conn_call(). */
enum lock_result redis_script_send(struct redis_backend *redis, struct redis_call *call,
                                   bool by_text, redisReply **reply, struct bound bound,
                                   struct errmsg *why);

/* Every failure names the server that it came from; a connection whose login or SELECT
 * failed is at the wrong database, and must not be used again. */
enum lock_result redis_script_end(struct redis_backend *redis, enum lock_result result,
                                  struct errmsg *why);

#endif
