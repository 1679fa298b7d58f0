/* The replies of a Redis server: hiredis's parser, with limits of our own, because a reply may
 * claim any size; words and numbers; what an error means. No I/O. */
#ifndef DLOCK_REDIS_REPLY_H
#define DLOCK_REDIS_REPLY_H

#include "lock/result.h"
#include "redis/url.h"

#include <hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Data that a reader needs as long as it lives, at an address of its own. */
struct redis_limits {
    size_t elements; /* claimed by the arrays of the reply that is being read */
    redisReplyObjectFunctions functions;
    const redisReplyObjectFunctions *hiredis_functions;
};

/* The caller frees it with redisReaderFree() and feeds it with redisReaderFeed(); NULL:
 * out of memory. */
redisReader *redis_reader_create(struct redis_limits *limits);

/* The next complete reply, or message, of the bytes fed, which the caller frees with
 * freeReplyObject(); NULL in *reply: there is none yet. False: it is not the Redis
 * protocol, or has too many elements or levels. */
bool redis_reader_next(redisReader *reader, redisReply **reply);

/* The number of bytes that belong to no complete reply yet; 0 without a reader (NULL). */
static inline size_t redis_reader_left(const redisReader *reader)
{
    return reader != NULL ? reader->len - reader->pos : 0;
}

/* True if only messages, as far as can be seen, are left. */
bool redis_reader_has_only_messages(const redisReader *reader);

/* A message on a channel that we have subscribed to: {"message", channel, anything}. */
bool redis_reply_is_message(const redisReply *reply);

/* --- words and numbers ---------------------------------------------------
 *
 * The answers of scripts. No answer is trusted: each word is checked. */

/* True if the answer is this word and has this many elements. */
bool redis_reply_is(const redisReply *reply, const char *word, size_t elements);

/* A century: the longest time accepted from a server. Another client may have set an
 * expiry that no clock here can count to. */
#define REDIS_MS_MOST (INT64_C(100) * 365 * 86400 * 1000)

/* A whole number that comes as text, or as an integer; "" is 0. */
bool redis_reply_number(const redisReply *element, int64_t least, int64_t most, int64_t *out);

/* The text of an element; "" for any other type. */
const char *redis_reply_text(const redisReply *element);

/* --- errors -------------------------------------------------------------- */

/* True if the error has this code: the word in capitals that it begins with, even for an
 * error inside a script. */
bool redis_error_is(const char *error, const char *code);

/* True if it has a code more specific than "ERR". */
bool redis_error_has_code(const char *error);

/* With *why set: LOCK_REFUSED for logins and ACLs, LOCK_INVALID for errors that no retry
 * can mend, LOCK_UNAVAILABLE for the rest (LOADING, READONLY, OOM, ...). */
enum lock_result redis_error_result(const char *error, struct errmsg *why);

/* The error as shown to people: without the place in a script that servers add. */
void redis_error_text(const char *error, char *text, size_t size);

/* The command of this script that the error is about. False: it names no line of it, or a
 * line without a call. */
bool redis_error_command(const char *error, const char *script, char *command, size_t size);

/* Removes the parts of AUTH that a server without AUTH repeats in its error. */
void redis_error_hide_login(const struct redis_url *url, char *error);

/* After an error that redis_error_result() calls LOCK_REFUSED, to this script (its text), which
 * needs these keys (for people), or to another command (both NULL): the text says which user was
 * refused what, and what helps. */
void redis_error_explain(const struct redis_url *url, const char *script, const char *keys,
                         const char *error, struct errmsg *why);

/* redis_error_result() of an error to a command that is no script, explained if refused. */
enum lock_result redis_error_judge(const struct redis_url *url, const char *error,
                                   struct errmsg *why);

#endif
