/* Replies of a server: which bytes are a reply or a message, and which numbers are valid. */
#include "unit.h"

#include "redis/reply.h"
#include "store/redis/redis_int.h"

#include <stdlib.h>

/* What the bytes are: a reply of a type of hiredis, no whole reply yet, or not the protocol. */
enum { NOT_YET = -1, NONSENSE = -2 };

static int read_reply(redisReader *reader, const char *bytes, size_t size, redisReply **reply)
{
    assert_int_equal(redisReaderFeed(reader, bytes, size), REDIS_OK);
    if (!redis_reader_next(reader, reply))
        return NONSENSE;
    return *reply != NULL ? (*reply)->type : NOT_YET;
}

TEST(test_protocol)
{
    static const struct {
        const char *bytes;
        int type;
        size_t left; /* bytes after the reply, or of an incomplete one */
        bool message;
    } rows[] = {
        {"+OK\r\n", REDIS_REPLY_STATUS, 0, false},
        {"-ERR x\r\n", REDIS_REPLY_ERROR, 0, false},
        {":42\r\n", REDIS_REPLY_INTEGER, 0, false},
        {"$2\r\nab\r\n", REDIS_REPLY_STRING, 0, false},
        {"$-1\r\n", REDIS_REPLY_NIL, 0, false},
        {"*0\r\n", REDIS_REPLY_ARRAY, 0, false},
        {"*2\r\n:1\r\n+x\r\n", REDIS_REPLY_ARRAY, 0, false},
        {"+OK\r\n+x", REDIS_REPLY_STATUS, 2, false},
        {"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n", REDIS_REPLY_ARRAY, 0, true},
        {"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n*1\r\n$1\r\nx\r\n", REDIS_REPLY_ARRAY, 0, true},
        {"*3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n", REDIS_REPLY_ARRAY, 0, false},
        {"*2\r\n$7\r\nmessage\r\n$1\r\nx\r\n", REDIS_REPLY_ARRAY, 0, false},
        {"*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\nx\r\n$1\r\ny\r\n", REDIS_REPLY_ARRAY, 0, false},
        {"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n", REDIS_REPLY_ARRAY, 0, false},
        {"", NOT_YET, 0, false},
        {"+OK", NOT_YET, 3, false},
        {"$5\r\nab", NOT_YET, 2, false},
        {"HTTP/1.1 400 Bad Request\r\n", NONSENSE, 0, false},
        {"SSH-2.0-OpenSSH_9.2p1\r\n", NONSENSE, 0, false},
        {":12a\r\n", NONSENSE, 0, false},
        {":\r\n", NONSENSE, 0, false},
        {":9223372036854775808\r\n", NONSENSE, 0, false},
        {"$-2\r\n", NONSENSE, 0, false},
        {"$99999999999999999999\r\n", NONSENSE, 0, false},
        {"*-2\r\n", NONSENSE, 0, false},
        {"*1073741825\r\n:1\r\n", NONSENSE, 0, false},
        {"*9223372036854775807\r\n", NONSENSE, 0, false},
        {"*262144\r\n*262144\r\n*262144\r\n", NONSENSE, 0, false},
    };
    FOR_ROWS(row, rows)
    {
        struct redis_limits limits;
        redisReader *reader = redis_reader_create(&limits);
        redisReply *reply = NULL;
        assert_non_null(reader);
        row_int(row->bytes, read_reply(reader, row->bytes, strlen(row->bytes), &reply), row->type);
        if (row->type != NONSENSE && row->left > 0 && row->type != NOT_YET)
            row_int(row->bytes, redis_reader_left(reader), row->left);
        if (row->type == NOT_YET)
            row_int(row->bytes, redis_reader_left(reader) > 0, row->left > 0);
        if (reply != NULL)
            row_int(row->bytes, redis_reply_is_message(reply), row->message);
        freeReplyObject(reply);
        redisReaderFree(reader);
    }
    row_int("no reader", redis_reader_left(NULL), 0);
}

/* The same bytes make the same replies, wherever they are cut. */
TEST(test_pieces)
{
    static const char bytes[] = "+OK\r\n*2\r\n$3\r\na\r\n\r\n:7\r\n-ERR x\r\n";
    static const int types[] = {REDIS_REPLY_STATUS, REDIS_REPLY_ARRAY, REDIS_REPLY_ERROR};
    char name[32];
    for (size_t piece = 1; piece < sizeof bytes; piece++) {
        struct redis_limits limits;
        redisReader *reader = redis_reader_create(&limits);
        size_t found = 0;
        snprintf(name, sizeof name, "%zu bytes at a time", piece);
        assert_non_null(reader);
        for (size_t at = 0; at < strlen(bytes); at += piece) {
            size_t size = strlen(bytes) - at < piece ? strlen(bytes) - at : piece;
            redisReply *reply = NULL;
            for (int type = read_reply(reader, bytes + at, size, &reply); type != NOT_YET;
                 type = read_reply(reader, "", 0, &reply)) {
                row_true(name, found < COUNT(types));
                row_int(name, type, types[found]);
                found++;
                freeReplyObject(reply);
            }
        }
        row_int(name, found, COUNT(types));
        redisReaderFree(reader);
    }
}

TEST(test_numbers)
{
    static const struct {
        const char *name;
        int type;
        const char *text; /* of a string */
        size_t length;
        long long integer;
        int64_t least, most;
        bool good;
        int64_t value;
    } rows[] = {
        {"an integer", REDIS_REPLY_INTEGER, NULL, 0, 42, 0, 100, true, 42},
        {"the most", REDIS_REPLY_INTEGER, NULL, 0, 100, 0, 100, true, 100},
        {"more", REDIS_REPLY_INTEGER, NULL, 0, 101, 0, 100, false, 0},
        {"less", REDIS_REPLY_INTEGER, NULL, 0, -1, 0, 100, false, 0},
        {"text", REDIS_REPLY_STRING, "42", 2, 0, 0, 100, true, 42},
        {"no text", REDIS_REPLY_STRING, "", 0, 0, 0, 100, true, 0},
        {"too much in text", REDIS_REPLY_STRING, "101", 3, 0, 0, 100, false, 0},
        {"text with more behind it", REDIS_REPLY_STRING, "42x", 3, 0, 0, 100, false, 0},
        {"text with a NUL", REDIS_REPLY_STRING, "42\0", 3, 0, 0, 100, false, 0},
        {"a float", REDIS_REPLY_STRING, "1e3", 3, 0, 0, 10000, false, 0},
        {"beyond all numbers", REDIS_REPLY_STRING, "99999999999999999999", 20, 0, 0, INT64_MAX,
         false, 0},
        {"nothing", REDIS_REPLY_NIL, NULL, 0, 0, 0, 100, false, 0},
        {"a status", REDIS_REPLY_STATUS, "42", 2, 0, 0, 100, false, 0},
        {"an array", REDIS_REPLY_ARRAY, NULL, 0, 0, 0, 100, false, 0},
    };
    char text[32];
    FOR_ROWS(row, rows)
    {
        redisReply reply = {.type = row->type, .integer = row->integer, .len = row->length};
        int64_t value = -7;
        if (row->text != NULL) {
            memcpy(text, row->text, row->length + 1);
            reply.str = text;
        }
        row_int(row->name, redis_reply_number(&reply, row->least, row->most, &value), row->good);
        if (row->good)
            row_int(row->name, value, row->value);
        row_text(row->name, redis_reply_text(&reply), row->type == REDIS_REPLY_STRING ? text : "");
    }
}

struct sample {
    struct duration left;
    int slot;
    char text[4];
};

TEST(test_lists)
{
    static const struct field of_sample[] = {
        FIELD(sample, "left", NULL, FIELD_DURATION, -2, left),
        FIELD(sample, "slot", NULL, FIELD_INT, -1, slot),
        FIELD(sample, "text", NULL, FIELD_TEXT, 0, text),
    };
    static const struct fields fields = FIELDS(of_sample);
    static const struct {
        const char *name;
        int type;
        long long left;
        const char *slot, *text;
        bool good;
        int64_t left_ms;
        int slot_read;
    } rows[] = {
        {"an hour", REDIS_REPLY_INTEGER, 3600000, "3", "abc", true, 3600000, 3},
        {"no end, no slot", REDIS_REPLY_INTEGER, -1, "-1", "", true, -1, -1},
        {"nothing is said of the slot", REDIS_REPLY_INTEGER, 0, "", "", true, 0, -1},
        {"a text that is too long is cut", REDIS_REPLY_INTEGER, 0, "", "abcd", true, 0, -1},
        {"longer than a century", REDIS_REPLY_INTEGER, INT64_MAX, "3", "", true,
         INT64_C(3155760000000), 3},
        {"what PTTL never says", REDIS_REPLY_INTEGER, -3, "3", "abc", false, -2, 3},
        {"no time", REDIS_REPLY_NIL, 0, "3", "abc", false, -2, 3},
        {"an array", REDIS_REPLY_ARRAY, 0, "3", "abc", false, -2, 3},
        {"no slot that there is", REDIS_REPLY_INTEGER, 0, "-2", "abc", false, 0, -1},
    };
    FOR_ROWS(row, rows)
    {
        char slot[8], text[8];
        snprintf(slot, sizeof slot, "%s", row->slot);
        snprintf(text, sizeof text, "%s", row->text);
        redisReply replies[] = {
            {.type = row->type, .integer = row->left},
            {.type = REDIS_REPLY_STRING, .str = slot, .len = strlen(slot)},
            {.type = REDIS_REPLY_STRING, .str = text, .len = strlen(text)},
        };
        redisReply *list[] = {&replies[0], &replies[1], &replies[2]};
        struct sample sample = {.slot = 7};
        row_int(row->name, redis_fields_read(&fields, list, &sample), row->good);
        row_int(row->name, sample.left.ns, row->left_ms * NS_PER_MS);
        row_int(row->name, sample.slot, row->slot_read);
        row_int(row->name, strncmp(sample.text, row->text, 3), 0);
        replies[1].len++; /* a NUL */
        row_false(row->name, redis_fields_read(&fields, list, &sample));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("what is a reply, what is not one yet, and what never will be", test_protocol),
        ENTRY("replies that come in pieces are the same", test_pieces),
        ENTRY("a number comes as an integer or as text, within its borders", test_numbers),
        ENTRY("a list is read by a table of its fields, as far as it can be", test_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
