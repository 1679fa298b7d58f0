#include "redis/answer.h"

#include "util/text.h"

#include <string.h>

bool redis_answer_is(const redisReply *reply, const char *word, size_t elements)
{
    return reply->elements == elements && reply->element[0]->len == strlen(word) && strcmp(reply->element[0]->str, word) == 0;
}

bool redis_left(const redisReply *element, int64_t least, int64_t *out)
{
    if (element->type != REDIS_REPLY_INTEGER || element->integer < least)
        return false;
    *out = element->integer < REDIS_MS_MOST ? element->integer : REDIS_MS_MOST;
    return true;
}

/* The fence and what else may exceed an integer reply comes as text. */
bool redis_number(const redisReply *element, int64_t least, int64_t most, int64_t *out)
{
    if (element->type == REDIS_REPLY_INTEGER) {
        *out = element->integer;
        return *out >= least && *out <= most;
    }
    *out = 0;
    return element->type == REDIS_REPLY_STRING &&
           (element->len == 0 || (strlen(element->str) == element->len && number_parse(element->str, least, most, out)));
}

const char *redis_text(const redisReply *element)
{
    return element->type == REDIS_REPLY_STRING ? element->str : "";
}
