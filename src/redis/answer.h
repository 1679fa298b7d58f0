/* Reading what scripts answer. No answer is trusted: each word is looked at. */
#ifndef DLOCK_REDIS_ANSWER_H
#define DLOCK_REDIS_ANSWER_H

#include <hiredis.h>
#include <stdbool.h>
#include <stdint.h>

/* Whether the answer is this word and has so many elements. */
bool redis_answer_is(const redisReply *reply, const char *word, size_t elements);

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
