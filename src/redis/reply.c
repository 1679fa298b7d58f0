#include "redis/reply.h"

#include "util/clock.h"
#include "util/text.h"

#include <string.h>

/* No expected reply comes near these: ten thousand holders are 170,000 elements, three
 * arrays deep. */
enum {
    REPLY_MOST_ELEMENTS = 1 << 18, /* of a few bytes each, which become a hundred here */
    REPLY_MOST_DEPTH = 7, /* as hiredis 0.14; 1.x reads any depth, and frees by recursion */
};

static int depth(const redisReadTask *task)
{
    int depth = 0;
    for (; task != NULL && depth <= REPLY_MOST_DEPTH; task = task->parent)
        depth++;
    return depth;
}

/* hiredis 0.14 would allocate room for as many elements as a reply claims. All
 * arrays of one reply count, since each element may be one that claims as many. */
#if HIREDIS_MAJOR >= 1
static void *create_array(const redisReadTask *task, size_t elements)
#else
static void *create_array(const redisReadTask *task, int elements)
#endif
{
    struct redis_limits *limits = task->privdata;
    if (task->parent == NULL)
        limits->elements = 0;
    if ((size_t)elements > REPLY_MOST_ELEMENTS - limits->elements || depth(task) > REPLY_MOST_DEPTH)
        return NULL;
    limits->elements += (size_t)elements;
    return limits->hiredis_functions->createArray(task, elements);
}

redisReader *redis_reader_create(struct redis_limits *limits)
{
    redisReader *reader = redisReaderCreate();
    if (reader == NULL)
        return NULL;
    limits->hiredis_functions = reader->fn;
    limits->functions = *reader->fn;
    limits->functions.createArray = create_array;
    reader->fn = &limits->functions;
    reader->privdata = limits;
    return reader;
}

bool redis_reader_next(redisReader *reader, redisReply **reply)
{
    void *parsed = NULL;
    bool good = redisReaderGetReply(reader, &parsed) == REDIS_OK;
    *reply = parsed;
    return good;
}

bool redis_reader_has_only_messages(const redisReader *reader)
{
    static const char beginning[] = "*3\r\n$7\r\nmessage\r\n";
    size_t left = redis_reader_left(reader);
    size_t length = left < strlen(beginning) ? left : strlen(beginning);
    return length == 0 || memcmp(reader->buf + reader->pos, beginning, length) == 0;
}

bool redis_reply_is_message(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
           reply->element[0]->type == REDIS_REPLY_STRING &&
           strcmp(reply->element[0]->str, "message") == 0 &&
           reply->element[1]->type == REDIS_REPLY_STRING;
}

bool redis_reply_is(const redisReply *reply, const char *word, size_t elements)
{
    return reply->elements == elements && reply->element[0]->len == strlen(word) &&
           strcmp(reply->element[0]->str, word) == 0;
}

bool redis_reply_left(const redisReply *element, int64_t least, int64_t *out)
{
    if (element->type != REDIS_REPLY_INTEGER || element->integer < least)
        return false;
    *out = element->integer < REDIS_MS_MOST ? element->integer : REDIS_MS_MOST;
    return true;
}

/* The fence and other values that may exceed an integer reply are sent as text. */
bool redis_reply_number(const redisReply *element, int64_t least, int64_t most, int64_t *out)
{
    if (element->type == REDIS_REPLY_INTEGER) {
        *out = element->integer;
        return *out >= least && *out <= most;
    }
    *out = 0;
    return element->type == REDIS_REPLY_STRING &&
           (element->len == 0 ||
            (strlen(element->str) == element->len && number_parse(element->str, least, most, out)));
}

bool redis_reply_clamped(const redisReply *element, int64_t *out)
{
    bool good = redis_reply_number(element, 0, INT64_MAX, out);
    *out = clamped(*out);
    return good;
}

const char *redis_reply_text(const redisReply *element)
{
    return element->type == REDIS_REPLY_STRING ? element->str : "";
}
