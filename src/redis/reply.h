/* hiredis's parser, with limits of ours: a reply may claim anything. No I/O. */
#ifndef DLOCK_REDIS_REPLY_H
#define DLOCK_REDIS_REPLY_H

#include <hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Data that a reader needs as long as it lives, at an address of its own. */
struct redis_limits {
    size_t elements; /* that the arrays of the reply which is being read claim */
    redisReplyObjectFunctions functions;
    const redisReplyObjectFunctions *hiredis_functions;
};

/* To be freed with redisReaderFree(), and fed with redisReaderFeed(); NULL: out
 * of memory. */
redisReader *redis_reader_create(struct redis_limits *limits);

/* The next whole reply, or message, of what was fed, to be freed with
 * freeReplyObject(); NULL in *reply: there is none yet. False: it is not the
 * Redis protocol, or too many elements or levels. */
bool redis_reader_next(redisReader *reader, redisReply **reply);

/* Bytes that are part of no reply yet; of no reader (NULL), none. */
static inline size_t redis_reader_left(const redisReader *reader)
{
    return reader != NULL ? reader->len - reader->pos : 0;
}

/* Whether nothing but messages, as far as can be seen, is left. */
bool redis_reader_has_only_messages(const redisReader *reader);

/* A message on a channel that we have subscribed to: {"message", channel, anything}. */
bool redis_reply_is_message(const redisReply *reply);

/* Reading what scripts answer. No answer is trusted: each word is looked at. */

/* Whether the answer is this word and has so many elements. */
bool redis_reply_is(const redisReply *reply, const char *word, size_t elements);

/* A century: the longest time accepted from a server. Another client may have set an
 * expiry that no clock here can count to. */
#define REDIS_MS_MOST (INT64_C(100) * 365 * 86400 * 1000)

/* A PTTL of at least `least`, cut to REDIS_MS_MOST. */
bool redis_reply_left(const redisReply *element, int64_t least, int64_t *out);

/* A whole number that comes as text, or as an integer; "" is 0. */
bool redis_reply_number(const redisReply *element, int64_t least, int64_t most, int64_t *out);

/* The text of an element; "" for any other type. */
const char *redis_reply_text(const redisReply *element);

#endif
