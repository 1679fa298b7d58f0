/* One codec for everything that stores keep and report. A table describes the members of a struct;
 * with it the struct is read and written in each of these forms:
 *
 *   lines   "NAME VALUE\n" for each field that has a value: records of holders and waiters, in lock
 *           files and in Redis. Unknown names are skipped, so that a later version may add some.
 *   row     the values in the order of the table, separated by tabs: what is remembered of a run.
 *           A row ends at the end of the text or at a newline
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
    FIELD_FLAG,     /* bool: "1"; none: false */
    FIELD_INT,      /* int */
    FIELD_NUMBER,   /* int64_t */
    FIELD_COUNT,    /* int64_t, a number of events: 0 if unknown */
    FIELD_MS,       /* int64_t, total milliseconds: 0 if unknown */
    FIELD_LENGTH,   /* int64_t, milliseconds; null in JSON if unknown */
    FIELD_TIME,     /* int64_t, the wall clock in ms; none: 0 */
    FIELD_DURATION, /* struct duration, in whole ms: 0 if unknown */
    FIELD_DEADLINE, /* struct deadline, in ns, by the boot clock of the first time namespace */
};

struct field {
    const char *name; /* in lines */
    const char *json; /* name of the JSON member; NULL: not in JSON */
    enum field_kind kind;
    int64_t none; /* for numbers: the lowest valid one, which means "unknown" */
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
#define FIELDS(table)                               \
    {                                               \
        (table), sizeof(table) / sizeof((table)[0]) \
    }

/* The longest value in a record is a key of 2 kB. */
enum { FIELD_TEXT_SIZE = 2176 };

extern const struct fields holder_fields; /* struct holder */
extern const struct fields owner_fields;  /* struct lock_owner, without its holder */
extern const struct fields waiter_fields; /* struct lock_waiter */
extern const struct fields counts_fields; /* struct lock_counts */
extern const struct fields memory_fields; /* the numbers of struct run_memory */
extern const struct fields pause_fields;  /* struct pause */
extern const struct fields run_fields;    /* struct run_record */
extern const struct fields past_fields;   /* struct past_run */

/* Resets each field: to its `none`, or to "". */
void fields_clear(const struct fields *fields, void *object);

/* Sets one field from its value; "" resets the field. False: the value is not valid for the field,
 * whose contents are then undefined. A text that is too long is truncated. */
bool field_set(const struct field *field, void *object, const char *value);

/* Appends lines to the text, which has room for `size` bytes, of which `used` are in use. Returns
 * how many are in use afterwards; like snprintf(3), counts what did not fit. */
size_t fields_write(const struct fields *fields, const void *object, char *text, size_t used,
                    size_t size);

/* Reads lines up to the end of the text, or to a line "end". If a name occurs twice, the last line
 * counts. Fields that are not in the text get their `none`. False: the text is not made of whole
 * lines, or a value cannot be read. */
bool fields_read(const struct fields *fields, void *object, const char *text);

/* Writes a row; returns its length, as snprintf(3) does. */
size_t fields_write_row(const struct fields *fields, const void *object, char *text, size_t size);

/* Reads a row back. False: the row has too few values, or one cannot be read; all fields are then
 * cleared. */
bool fields_read_row(const struct fields *fields, void *object, const char *text);

/* Writes the members that have a name in JSON; a value that is `none` becomes null. */
void fields_json(const struct fields *fields, const void *object, struct json *json);

#endif
