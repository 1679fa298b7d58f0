/* One codec for everything that stores keep and report. A table describes the members of a struct;
 * with it the struct is read and written in each of these forms:
 *
 *   lines   "NAME VALUE\n" for each field that has a value: records of holders and waiters, in lock
 *           files and in Redis. Unknown names are skipped, so that a later version may add some.
 *   row     the values in the order of the table with tabs between: what is remembered of a run
 *   list    the values in the order of the table, from the reply of a Redis script
 *   JSON    for --json
 *
 * In lines and rows each value is percent-encoded: it contains no control character. */
#ifndef DLOCK_LOCK_FIELDS_H
#define DLOCK_LOCK_FIELDS_H

#include "util/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_kind {
    FIELD_TEXT,     /* char[] */
    FIELD_MODE,     /* enum lock_mode, by its name; none: MODE_EXCLUSIVE */
    FIELD_END,      /* struct run_end: "status 7", without the time; none: RUN_NONE */
    FIELD_FLAG,     /* bool: 1; none: false */
    FIELD_INT,      /* int */
    FIELD_NUMBER,   /* int64_t */
    FIELD_COUNT,    /* int64_t, of events: what is not known is 0 */
    FIELD_MS,       /* int64_t, a length of time: what is not known is 0 */
    FIELD_TIME,     /* int64_t, the wall clock in ms; none: 0 */
    FIELD_DURATION, /* struct duration, as whole ms: what is not known is 0 */
    FIELD_DEADLINE, /* struct deadline, as ns of the boot clock of the first time namespace */
};

struct field {
    const char *name; /* in lines */
    const char *json; /* as a member; NULL: it is not in JSON */
    enum field_kind kind;
    int64_t none; /* of numbers: the lowest one, which means that nothing is known */
    size_t offset, size;
};

struct fields {
    const struct field *list;
    size_t count;
};

#define FIELD(type, name, json, kind, none, member)                                             \
    {                                                                                           \
        name, json, kind, none, offsetof(struct type, member), sizeof((struct type *)0)->member \
    }
#define FIELDS(table)                           \
    {                                           \
        (table), sizeof(table) / sizeof(*table) \
    }

/* The longest value in a record is a key of 2 kB. */
enum { FIELD_TEXT_SIZE = 2176 };

extern const struct fields holder_fields; /* struct holder */
extern const struct fields owner_fields;  /* struct lock_owner: what is not in its holder */
extern const struct fields waiter_fields; /* struct lock_waiter */
extern const struct fields counts_fields; /* struct lock_counts */
extern const struct fields memory_fields; /* struct run_memory: its numbers */
extern const struct fields pause_fields;  /* struct pause */
extern const struct fields run_fields;    /* struct run_record */

/* Sets each field to none, or "". */
void fields_clear(const struct fields *fields, void *object);

/* Sets one field from its value; "" is none. False: it is no such value, which sets nothing useful.
 * A text that is too long is cut. */
bool field_set(const struct field *field, void *object, const char *value);

/* Appends lines to the text, which uses `used` bytes of `size` so far; returns the bytes that
 * are used then, as snprintf(3) counts them. */
size_t fields_write(const struct fields *fields, const void *object, char *text, size_t used,
                    size_t size);

/* Reads lines up to the end of the text, or to a line "end". The first of two lines with one name
 * counts less. False: it is not made of whole lines, or a value cannot be read. Fields
 * that are not in the text are none. */
bool fields_read(const struct fields *fields, void *object, const char *text);

/* Writes a row; returns its length, as snprintf(3) does. */
size_t fields_write_row(const struct fields *fields, const void *object, char *text, size_t size);

/* Reads it back. False: there are fewer values, or one cannot be read; all fields are none then. */
bool fields_read_row(const struct fields *fields, void *object, const char *text);

/* Writes the members that have a name in JSON. What is none is null. */
void fields_json(const struct fields *fields, const void *object, struct json *json);

#endif
