/* hiredis's parser, with limits of our own: a reply may claim any size. No I/O. */
#ifndef DLOCK_REDIS_REPLY_H
#define DLOCK_REDIS_REPLY_H

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

/* Reading the answers of scripts. No answer is trusted: each word is checked. */

/* True if the answer is this word and has this many elements. */
bool redis_reply_is(const redisReply *reply, const char *word, size_t elements);

/* A century: the longest time accepted from a server. Another client may have set an
 * expiry that no clock here can count to. */
#define REDIS_MS_MOST (INT64_C(100) * 365 * 86400 * 1000)

/* A PTTL of at least `least`, cut to REDIS_MS_MOST. */
bool redis_reply_left(const redisReply *element, int64_t least, int64_t *out);

/* A whole number that comes as text, or as an integer; "" is 0. */
bool redis_reply_number(const redisReply *element, int64_t least, int64_t most, int64_t *out);

/* The same, from 0, of milliseconds or events: clamped(). */
bool redis_reply_clamped(const redisReply *element, int64_t *out);

/* The text of an element; "" for any other type. */
const char *redis_reply_text(const redisReply *element);

#endif
