#include "lock_record.h"

#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char first_line[] = "dlock 1\n";
static const char last_line[] = "end\n";

/* The text fields of a record and where they stand in the struct. */
#define TEXT_FIELD(name, member) {name, offsetof(struct lock_record, member), sizeof((struct lock_record *)0)->member}
static const struct text_field {
    const char *name;
    size_t offset, size;
} text_fields[] = {
    TEXT_FIELD("key", key),
    TEXT_FIELD("token", token),
    TEXT_FIELD("host", holder.host),
    TEXT_FIELD("boot", holder.boot_id),
    TEXT_FIELD("user", holder.user),
    TEXT_FIELD("command", holder.command),
};
enum { TEXT_FIELDS = sizeof text_fields / sizeof *text_fields };

struct numbers {
    int64_t fence, expires, hold, since, pid, start;
};
#define NUMBER_FIELD(name, member) {name, offsetof(struct numbers, member)}
static const struct number_field {
    const char *name;
    size_t offset;
} number_fields[] = {
    NUMBER_FIELD("fence", fence), NUMBER_FIELD("expires", expires), NUMBER_FIELD("hold", hold),
    NUMBER_FIELD("since", since), NUMBER_FIELD("pid", pid),         NUMBER_FIELD("start", start),
};
enum { NUMBER_FIELDS = sizeof number_fields / sizeof *number_fields };

static int64_t *number_at(struct numbers *numbers, size_t field)
{
    return (int64_t *)(void *)((char *)numbers + number_fields[field].offset);
}

size_t lock_record_format(const struct lock_record *record, char text[LOCK_RECORD_SIZE])
{
    struct numbers numbers = {
        .fence = record->fence,
        .expires = record->expires.boot_ns,
        .hold = record->hold.boot_ns,
        .since = record->holder.since_wall_ms,
        .pid = record->holder.pid,
        .start = record->holder.pid_start,
    };
    /* Room for the longest is kept: the key, coded, thrice its length. */
    char coded[LOCK_RECORD_SIZE];
    size_t used = (size_t)snprintf(text, LOCK_RECORD_SIZE, "%s", first_line);
    for (size_t i = 0; i < TEXT_FIELDS && used < LOCK_RECORD_SIZE; i++) {
        const char *value = (const char *)record + text_fields[i].offset;
        if (percent_encode(coded, sizeof coded, value, "") >= sizeof coded)
            return 0;
        used += (size_t)snprintf(text + used, LOCK_RECORD_SIZE - used, "%s %s\n", text_fields[i].name, coded);
    }
    for (size_t i = 0; i < NUMBER_FIELDS && used < LOCK_RECORD_SIZE; i++)
        used += (size_t)snprintf(text + used, LOCK_RECORD_SIZE - used, "%s %" PRId64 "\n", number_fields[i].name,
                                 *number_at(&numbers, i));
    if (used < LOCK_RECORD_SIZE)
        used += (size_t)snprintf(text + used, LOCK_RECORD_SIZE - used, "%s", last_line);
    return used < LOCK_RECORD_SIZE ? used : 0;
}

/* Takes in one "field value" line of length bytes without its newline. */
static bool parse_line(struct lock_record *record, struct numbers *numbers, const char *line, size_t length)
{
    const char *space = memchr(line, ' ', length);
    if (space == NULL)
        return false;
    size_t name_length = (size_t)(space - line);
    const char *value = space + 1;
    size_t value_length = length - name_length - 1;
    for (size_t i = 0; i < TEXT_FIELDS; i++)
        if (strlen(text_fields[i].name) == name_length && memcmp(text_fields[i].name, line, name_length) == 0)
            return percent_decode((char *)record + text_fields[i].offset, text_fields[i].size, value, value_length);
    for (size_t i = 0; i < NUMBER_FIELDS; i++) {
        char digits[24];
        if (strlen(number_fields[i].name) != name_length || memcmp(number_fields[i].name, line, name_length) != 0)
            continue;
        if (value_length >= sizeof digits)
            return false;
        snprintf(digits, sizeof digits, "%.*s", (int)value_length, value);
        return number_parse(digits, 0, INT64_MAX, number_at(numbers, i));
    }
    return true;
}

bool lock_record_parse(struct lock_record *record, const char *text)
{
    struct numbers numbers = {0};
    memset(record, 0, sizeof *record);
    if (strncmp(text, first_line, strlen(first_line)) != 0)
        return false;
    for (text += strlen(first_line); strcmp(text, last_line) != 0;) {
        const char *newline = strchr(text, '\n');
        if (newline == NULL || !parse_line(record, &numbers, text, (size_t)(newline - text)))
            return false;
        text = newline + 1;
    }
    if (record->token[0] == '\0' || numbers.pid > INT32_MAX)
        return false;
    record->fence = numbers.fence;
    record->expires = (struct deadline){numbers.expires};
    record->hold = (struct deadline){numbers.hold};
    record->holder.known = true;
    record->holder.since_wall_ms = numbers.since;
    record->holder.pid = (pid_t)numbers.pid;
    record->holder.pid_start = numbers.start;
    return true;
}
