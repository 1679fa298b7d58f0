/* One codec for all data that stores keep and report. A table describes the members of a struct.
 * With such a table, a struct can be converted to and from these forms:
 *
 *   lines   "NAME VALUE\n" for each field that has a value, for the records of holders and waiters
 *           in lock files and in Redis. Unknown names are skipped, so later versions can add fields
 *   row     the values in the order of the table, separated by tabs, for a remembered run.
 *           A row ends at a newline or at the end of the text
 *   list    the values in the order of the table, from the reply of a Redis script (only read)
 *   JSON    for --json (only written)
 *
 * In lines and rows, values are percent-encoded, so they contain no control characters. */
#ifndef DLOCK_LOCK_FIELDS_H
#define DLOCK_LOCK_FIELDS_H

#include "util/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_kind {
    FIELD_TEXT, /* char[] */
    FIELD_MODE, /* enum lock_mode, as its name; MODE_EXCLUSIVE if there is no value */
    FIELD_END, /* struct run_end without ended_ms: "status 7", ...; RUN_NONE if there is no value */
    FIELD_FLAG,     /* bool: "1" if true, no value if false */
    FIELD_INT,      /* int */
    FIELD_NUMBER,   /* int64_t */
    FIELD_COUNT,    /* int64_t, a number of events; 0 if unknown */
    FIELD_MS,       /* int64_t, total milliseconds; 0 if unknown */
    FIELD_LENGTH,   /* int64_t, milliseconds; null in JSON if unknown */
    FIELD_TIME,     /* int64_t, wall clock in ms; 0 if unknown */
    FIELD_DURATION, /* struct duration, in whole ms; 0 if unknown */
    FIELD_DEADLINE, /* struct deadline, in ns on the boot clock of the initial time namespace */
};

struct field {
    const char *name; /* in lines */
    const char *json; /* name of the JSON member; NULL: not in JSON */
    enum field_kind kind;
    int64_t none; /* for numbers: the lowest valid value, which means "unknown" */
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

/* Room for the longest value in a record, a key of 2 kB. */
enum { FIELD_TEXT_SIZE = 2176 };

extern const struct fields holder_fields; /* struct holder */
extern const struct fields owner_fields;  /* struct lock_owner, without its holder */
extern const struct fields waiter_fields; /* struct lock_waiter */
extern const struct fields counts_fields; /* struct lock_counts */
extern const struct fields memory_fields; /* the numeric members of struct run_memory */
extern const struct fields pause_fields;  /* struct pause */
extern const struct fields run_fields;    /* struct run_record */
extern const struct fields past_fields;   /* struct past_run */

/* Resets each field to its `none` or to "". */
void fields_clear(const struct fields *fields, void *object);

/* Sets a field to a value that is given as a string; "" resets the field. Truncates a text that is
 * too long. Returns false if the value is not valid; the field is then undefined. */
bool field_set(const struct field *field, void *object, const char *value);

/* Appends lines to the text, which has room for `size` bytes and already contains `used` bytes.
 * Returns the new length of the text; like snprintf(3), also counts bytes that did not fit. */
size_t fields_write(const struct fields *fields, const void *object, char *text, size_t used,
                    size_t size);

/* Reads lines up to a line "end" or the end of the text. If a name occurs twice, the later line
 * counts. A field that does not occur is reset. False if a line is incomplete, or if a value cannot
 * be read. */
bool fields_read(const struct fields *fields, void *object, const char *text);

/* Writes a row; returns its length, as snprintf(3) does. */
size_t fields_write_row(const struct fields *fields, const void *object, char *text, size_t size);

/* Reads a row. If the row has too few values, or one that cannot be read, clears all fields and
 * returns false. */
bool fields_read_row(const struct fields *fields, void *object, const char *text);

/* Writes the fields that have a JSON name. A value that is `none` becomes null. */
void fields_json(const struct fields *fields, const void *object, struct json *json);

#endif
