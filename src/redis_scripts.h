/* The Lua scripts, and the one place that calls them. */
#ifndef DLOCK_REDIS_SCRIPTS_H
#define DLOCK_REDIS_SCRIPTS_H

#include "backend.h"
#include "redis_conn.h"
#include "redis_tracking.h"
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
enum { KEYS_WATCHED = 3, KEYS_RELEASED = 4, KEYS_ALL = 6 };

enum { COMPANION_SIZE = 2 * LOCK_KEY_SIZE, NUMBERS_MOST = 8 };

/* One server, and the lock that is taken there. */
struct redis_backend {
    struct backend base;
    struct redis_url url;
    struct redis_conn conn;
    struct redis_tracking tracking;
    bool watched;      /* the checks ask to be told at once */
    bool leased;       /* addresses are settled: from here on no name is looked up */
    bool release_sent; /* and its reply never came */
};

/* A call of a script; begun with redis_script_begin(), its arguments added to
 * `words` with redis_command_add(), which must live until it has run. */
struct redis_call {
    const struct redis_script *script;
    bool arm; /* it reads the lock that is watched */
    struct redis_command words;
    char count[8];
    char companions[KEYS_ALL - 1][COMPANION_SIZE];
    char numbers[NUMBERS_MOST][24]; /* those that are words */
    int number_count;
    bool sent_before; /* redis_script_run_again() has sent it twice */
};

void redis_script_begin(struct redis_call *call, const struct redis_script *script, int keys, const char *key);

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

/* A PTTL of at least `least`, cut to what a clock here can count to. */
bool redis_left(const redisReply *element, int64_t least, int64_t *out);

/* A whole number that comes as text, or as an integer; "" is 0. */
bool redis_number(const redisReply *element, int64_t least, int64_t most, int64_t *out);

/* The text of an element; "" for anything else. */
const char *redis_text(const redisReply *element);

#endif
