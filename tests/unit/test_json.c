/* How JSON is written. */
#include "unit.h"

#include "util/json.h"

#include <stdlib.h>

static char *written;
static size_t written_size;

static struct json begin(void)
{
    free(written);
    written = NULL;
    struct json json = {.to = open_memstream(&written, &written_size)};
    assert_non_null(json.to);
    return json;
}

static const char *end(struct json *json)
{
    assert_int_equal(fclose(json->to), 0);
    return written;
}

TEST(test_strings)
{
    static const struct {
        const char *name, *text, *json;
    } rows[] = {
        {"plain", "a b", "\"a b\""},
        {"nothing", "", "null"},
        {"no text", NULL, "null"},
        {"quotes and backslashes", "\"\\/", "\"\\\"\\\\/\""},
        {"control characters", "\n\t\x01\x1F", "\"\\u000a\\u0009\\u0001\\u001f\""},
        {"DEL", "\x7F", "\"\\u007f\""},
        {"C1", "\xC2\x9B", "\"\\u009b\""},
        {"beyond ASCII", "\xC3\xBC\xE2\x98\x83\xF0\x9F\x98\x80",
         "\"\xC3\xBC\xE2\x98\x83\xF0\x9F\x98\x80\""},
        {"U+061C", "\xD8\x9C", "\"\\u061c\""},
        {"U+2028", "\xE2\x80\xA8", "\"\\u2028\""},
        {"U+202E", "\xE2\x80\xAE", "\"\\u202e\""},
        {"U+2066", "\xE2\x81\xA6", "\"\\u2066\""},
        {"no UTF-8", "a\xFF\xC3", "\"a\\ufffd\\ufffd\""},
        {"surrogates", "\xED\xA0\x80", "\"\\ufffd\\ufffd\\ufffd\""},
        {"cut off", "\xE2\x98", "\"\\ufffd\\ufffd\""},
    };
    FOR_ROWS(row, rows)
    {
        struct json json = begin();
        json_text(&json, NULL, row->text);
        row_text(row->name, end(&json), row->json);
    }
}

TEST(test_values)
{
    static const struct {
        int64_t value;
        const char *number, *fence, *seconds, *time;
    } rows[] = {
        {0, "0", "null", "0.000", "null"},
        {1, "1", "1", "0.001", "\"1970-01-01T00:00:00Z\""},
        {1500, "1500", "1500", "1.500", "\"1970-01-01T00:00:01Z\""},
        {60000, "60000", "60000", "60.000", "\"1970-01-01T00:01:00Z\""},
        {INT64_C(1795230000000), "1795230000000", "1795230000000", "1795230000.000",
         "\"2026-11-21T03:00:00Z\""},
    };
    FOR_ROWS(row, rows)
    {
        struct json json = begin();
        json_number(&json, NULL, row->value);
        row_text("number", end(&json), row->number);
        json = begin();
        json_number_if(&json, NULL, row->value, row->value > 0);
        row_text("fence", end(&json), row->fence);
        json = begin();
        json_seconds(&json, NULL, row->value);
        row_text("seconds", end(&json), row->seconds);
        json = begin();
        json_time(&json, NULL, row->value);
        row_text("time", end(&json), row->time);
    }
    struct json json = begin();
    json_number(&json, NULL, INT64_MIN);
    row_text("the least", end(&json), "-9223372036854775808");
    json = begin();
    json_time(&json, NULL, -1);
    row_text("before the epoch", end(&json), "null");
}

TEST(test_nesting)
{
    struct json json = begin();
    json_begin(&json, NULL, '{');
    json_text(&json, "na\"me", "x");
    json_begin(&json, "empty", '[');
    json_end(&json, ']');
    json_begin(&json, "list", '[');
    json_bool(&json, NULL, true);
    json_begin(&json, NULL, '{');
    json_null(&json, "n");
    json_end(&json, '}');
    json_begin(&json, NULL, '{');
    json_end(&json, '}');
    json_bool(&json, NULL, false);
    json_end(&json, ']');
    json_number(&json, "last", 1);
    json_end(&json, '}');
    row_text("nested", end(&json),
             "{\"na\\\"me\":\"x\",\"empty\":[],\"list\":[true,{\"n\":null},{},false],\"last\":1}");
}

static int free_written(void **state __attribute__((unused)))
{
    free(written);
    written = NULL;
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("any text is a string of JSON that disturbs no terminal", test_strings),
        ENTRY("numbers, fences, seconds and times, null if not known", test_values),
        ENTRY("objects and lists have a comma between two values, and only there", test_nesting),
    };
    return cmocka_run_group_tests(tests, NULL, free_written);
}
