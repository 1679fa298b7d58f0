/* Writes JSON (RFC 8259), one value after the other. Bytes that are not UTF-8 become U+FFFD.
 * ferror(3) of the stream reports a failed write. */
#ifndef DLOCK_UTIL_JSON_H
#define DLOCK_UTIL_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *to;
    bool more; /* the next value needs a comma before it */
};

/* Begin and end an object that takes one line. */
struct json json_line_begin(FILE *to);
void json_line_end(struct json *json);

/* Each function writes a member `name` or, if `name` is NULL, an element of an array or the
 * top-level value. The value is null if `known` is false. */
void json_begin(struct json *json, const char *name, char bracket);     /* '{' or '[' */
void json_end(struct json *json, char bracket);                         /* '}' or ']' */
void json_text(struct json *json, const char *name, const char *value); /* NULL or "": null */
void json_number(struct json *json, const char *name, int64_t value);
void json_number_if(struct json *json, const char *name, int64_t value, bool known);
void json_seconds(struct json *json, const char *name, int64_t ms); /* 1500: 1.5 */
void json_seconds_if(struct json *json, const char *name, int64_t ms, bool known);
void json_bool(struct json *json, const char *name, bool value);
void json_null(struct json *json, const char *name);
void json_time(struct json *json, const char *name, int64_t wall_ms); /* ISO 8601, UTC; 0: null */

#endif
