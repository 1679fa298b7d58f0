/* Replies of a Redis server. Reads them with hiredis's parser, within dlock's own limits, because a
 * reply may claim to have any size. Checks words and numbers, and explains errors. No I/O. */
#ifndef DLOCK_REDIS_REPLY_H
#define DLOCK_REDIS_REPLY_H

#include "lock/result.h"
#include "redis/url.h"

#include <hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a reader needs to limit the size of replies. The struct must outlive the reader, and must
 * not move. */
struct redis_limits {
    size_t elements; /* number of elements claimed by the arrays of the current reply */
    redisReplyObjectFunctions functions;
    const redisReplyObjectFunctions *hiredis_functions;
};

/* Makes a reader, which the caller feeds with redisReaderFeed() and frees with redisReaderFree().
 * NULL: out of memory. */
redisReader *redis_reader_create(struct redis_limits *limits);

/* Sets *reply to the next complete reply or message in the bytes fed to the reader, or to NULL if
 * none is complete yet. The caller frees the reply with freeReplyObject(). False: the bytes do not
 * follow the Redis protocol, or the reply has too many elements or nested arrays. */
bool redis_reader_next(redisReader *reader, redisReply **reply);

/* The number of bytes that are not part of a complete reply yet; 0 if the reader is NULL. */
static inline size_t redis_reader_left(const redisReader *reader)
{
    return reader != NULL ? reader->len - reader->pos : 0;
}

/* True if no bytes are left, or if the remaining bytes start like a Pub/Sub message. */
bool redis_reader_has_only_messages(const redisReader *reader);

/* True for a message on a channel that we have subscribed to: {"message", channel, anything}. */
bool redis_reply_is_message(const redisReply *reply);

/* --- words and numbers ---------------------------------------------------
 *
 * The answers of scripts. No answer is trusted: each word is checked. */

/* True if the answer has this many elements, and the first element is this word. */
bool redis_reply_is(const redisReply *reply, const char *word, size_t elements);

/* The longest time accepted from a server, a century in milliseconds. Another client may have set
 * an expiry so late that no clock on this host can represent the time. */
#define REDIS_MS_MOST (INT64_C(100) * 365 * 86400 * 1000)

/* Reads a whole number from least to most, sent as text or as an integer; "" is 0. */
bool redis_reply_number(const redisReply *element, int64_t least, int64_t most, int64_t *out);

/* The text of an element; "" for any other type. */
const char *redis_reply_text(const redisReply *element);

/* --- errors -------------------------------------------------------------- */

/* True if the error has this code: the word in capitals at its beginning. If the error occurred
 * inside a script, ignores what the server puts before the code. */
bool redis_error_is(const char *error, const char *code);

/* True if the error has a code more specific than "ERR". */
bool redis_error_has_code(const char *error);

/* Judges an error, and sets *why: LOCK_REFUSED for logins and ACLs, LOCK_INVALID for errors that no
 * retry can fix, LOCK_UNAVAILABLE for the rest (LOADING, READONLY, OOM, ...). */
enum lock_result redis_error_result(const char *error, struct errmsg *why);

/* Writes the error as shown to people, without the position in a script that servers add. */
void redis_error_text(const char *error, char *text, size_t size);

/* If the error names a line of the script, finds the command that this line calls. False if the
 * error names no line, or if the line calls no command. */
bool redis_error_command(const char *error, const char *script, char *command, size_t size);

/* Hides the login in an error, because a server that does not know AUTH repeats the arguments of
 * AUTH in its error. */
void redis_error_hide_login(const struct redis_url *url, char *error);

/* Explains an error for which redis_error_result() returns LOCK_REFUSED: *why names the user and
 * what the server refused, and suggests a remedy. `script` is the text of the refused script, and
 * `keys` describes its keys for people. Both are NULL if the refused command is not a script. */
void redis_error_explain(const struct redis_url *url, const char *script, const char *keys,
                         const char *error, struct errmsg *why);

/* Like redis_error_result(), for a command that is not a script. Also explains a refusal. */
enum lock_result redis_error_judge(const struct redis_url *url, const char *error,
                                   struct errmsg *why);

#endif
