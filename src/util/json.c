#include "util/json.h"

#include "util/clock.h"
#include "util/text.h"

#include <inttypes.h>
#include <string.h>

/* The code point of a valid UTF-8 character of 2 or 3 bytes. */
static unsigned code_point(const char *text, size_t length)
{
    const unsigned char *b = (const unsigned char *)text;
    if (length == 2)
        return (b[0] & 0x1FU) << 6 | (b[1] & 0x3FU);
    return (b[0] & 0x0FU) << 12 | (b[1] & 0x3FU) << 6 | (b[2] & 0x3FU);
}

static void string(struct json *json, const char *text)
{
    size_t left = strlen(text);
    putc('"', json->to);
    while (left > 0) {
        size_t length = utf8_length(text, left);
        if (length == 0)
            fputs("\\ufffd", json->to);
        else if (*text == '"' || *text == '\\')
            fprintf(json->to, "\\%c", *text);
        else if (length == 1 && ((unsigned char)*text < ' ' || *text == '\x7F'))
            fprintf(json->to, "\\u%04x", (unsigned char)*text);
        else if (utf8_is_control(text, length) || utf8_reorders(text, length))
            fprintf(json->to, "\\u%04x", code_point(text, length));
        else
            fwrite(text, 1, length, json->to);
        length = length == 0 ? 1 : length;
        text += length;
        left -= length;
    }
    putc('"', json->to);
}

static void start(struct json *json, const char *name)
{
    if (json->more)
        putc(',', json->to);
    json->more = true;
    if (name != NULL) {
        string(json, name);
        putc(':', json->to);
    }
}

void json_begin(struct json *json, const char *name, char bracket)
{
    start(json, name);
    putc(bracket, json->to);
    json->more = false;
}

void json_end(struct json *json, char bracket)
{
    putc(bracket, json->to);
    json->more = true;
}

struct json json_line_begin(FILE *to)
{
    struct json json = {.to = to};
    json_begin(&json, NULL, '{');
    return json;
}

void json_line_end(struct json *json)
{
    json_end(json, '}');
    putc('\n', json->to);
}

void json_text(struct json *json, const char *name, const char *value)
{
    if (value == NULL || *value == '\0') {
        json_null(json, name);
        return;
    }
    start(json, name);
    string(json, value);
}

void json_number(struct json *json, const char *name, int64_t value)
{
    start(json, name);
    fprintf(json->to, "%" PRId64, value);
}

void json_number_if(struct json *json, const char *name, int64_t value, bool known)
{
    if (known)
        json_number(json, name, value);
    else
        json_null(json, name);
}

void json_seconds(struct json *json, const char *name, int64_t ms)
{
    start(json, name);
    fprintf(json->to, "%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
}

void json_seconds_if(struct json *json, const char *name, int64_t ms, bool known)
{
    if (known)
        json_seconds(json, name, ms);
    else
        json_null(json, name);
}

void json_bool(struct json *json, const char *name, bool value)
{
    start(json, name);
    fputs(value ? "true" : "false", json->to);
}

void json_null(struct json *json, const char *name)
{
    start(json, name);
    fputs("null", json->to);
}

void json_time(struct json *json, const char *name, int64_t wall_ms)
{
    char text[40] = "";
    if (wall_ms > 0)
        wall_format(wall_ms, text, sizeof text);
    json_text(json, name, text);
}
