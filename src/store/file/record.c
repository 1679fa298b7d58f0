#include "store/file/record.h"

#include "lock/format.h"
#include "process/procfs.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char first_word[] = "dlock ";
static const char last_line[] = "end\n";

/* The fields in the order in which they are written; NUMBER is an int64_t, or a struct of one. */
enum field_kind { FIELD_TEXT, FIELD_MODE, FIELD_NUMBER, FIELD_INT, FIELD_FLAG, FIELD_DEADLINE };

#define FIELD(name, kind, member)                                                       \
    {                                                                                   \
        name, kind, offsetof(struct record, member), sizeof((struct record *)0)->member \
    }
static const struct record_field {
    const char *name;
    enum field_kind kind;
    size_t offset, size;
} fields[] = {
    FIELD("key", FIELD_TEXT, key),
    FIELD("token", FIELD_TEXT, token),
    FIELD("take", FIELD_TEXT, take_id),
    FIELD("mode", FIELD_MODE, mode),
    FIELD("host", FIELD_TEXT, holder.host),
    FIELD("boot", FIELD_TEXT, holder.boot_id),
    FIELD("user", FIELD_TEXT, holder.user),
    FIELD("command", FIELD_TEXT, holder.command),
    FIELD("message", FIELD_TEXT, holder.message),
    FIELD("fence", FIELD_NUMBER, fence),
    FIELD("ttl", FIELD_NUMBER, ttl),
    FIELD("expires", FIELD_DEADLINE, expires),
    FIELD("hold", FIELD_DEADLINE, hold),
    FIELD("since", FIELD_NUMBER, holder.since_wall_ms),
    FIELD("pid", FIELD_INT, holder.pid),
    FIELD("start", FIELD_NUMBER, holder.pid_start),
    FIELD("slots", FIELD_INT, slots),
    FIELD("slot", FIELD_INT, slot),
    FIELD("detached", FIELD_FLAG, detached),
    FIELD("released", FIELD_FLAG, released),
    FIELD("pid_space", FIELD_NUMBER, holder.pid_space),
    FIELD("remember", FIELD_NUMBER, remember),
    FIELD("once_per", FIELD_NUMBER, once_per),
};
enum { FIELDS = sizeof fields / sizeof *fields };

static struct deadline later(struct deadline from, int64_t ns)
{
    return ns >= 0 ? deadline_plus(from, (struct duration){ns})
                   : deadline_minus(from, (struct duration){-ns});
}

static int64_t number_in(const void *at, enum field_kind kind)
{
    switch (kind) {
    case FIELD_INT: return *(const int *)at;
    case FIELD_FLAG: return *(const bool *)at;
    case FIELD_DEADLINE: return later(*(const struct deadline *)at, -proc_boot_offset()).boot_ns;
    case FIELD_TEXT:
    case FIELD_MODE:
    case FIELD_NUMBER: break;
    }
    return *(const int64_t *)at;
}

/* A value of `length` bytes. A record without a mode is that of an exclusive lock. */
static bool parse_field(struct record *record, const struct record_field *field, const char *value,
                        size_t length)
{
    void *at = (char *)record + field->offset;
    char text[24];
    int64_t number;
    if (field->kind == FIELD_TEXT)
        return percent_decode(at, field->size, value, length);
    if (length >= sizeof text)
        return false;
    snprintf(text, sizeof text, "%.*s", (int)length, value);
    if (field->kind == FIELD_MODE)
        return length == 0 || lock_mode_parse(text, at);
    if (!number_parse(text, -1, field->kind == FIELD_INT ? INT32_MAX : INT64_MAX, &number))
        return false;
    if (field->kind == FIELD_INT)
        *(int *)at = (int)number;
    else if (field->kind == FIELD_FLAG)
        *(bool *)at = number != 0;
    else if (field->kind == FIELD_DEADLINE)
        *(struct deadline *)at = later((struct deadline){number}, proc_boot_offset());
    else
        *(int64_t *)at = number;
    return true;
}

void record_fill(struct record *record, const struct lock_request *request,
                 const struct lease *lease)
{
    *record = (struct record){
        .format = STORE_FORMAT,
        .mode = request->mode,
        .slots = request->slots,
        .slot = lease->slot,
        .fence = lease->fence,
        .ttl = request->ttl,
        .expires = deadline_plus(lease->taken, lease->ttl),
        .hold = lease->hold,
        .remember = request->remember,
        .once_per = request->once_per,
        .detached = request->detached,
        .holder = request->self,
    };
    text_copy(record->key, sizeof record->key, request->key);
    text_copy(record->token, sizeof record->token, request->token);
    text_copy(record->take_id, sizeof record->take_id, request->take_id);
    record->holder.since_wall_ms = wall_now_ms();
}

size_t record_format(const struct record *record, char text[LOCK_RECORD_MOST])
{
    size_t used =
        (size_t)snprintf(text, LOCK_RECORD_MOST, "%s%" PRId64 "\n", first_word, record->format);
    for (size_t i = 0; i < FIELDS && used < LOCK_RECORD_MOST; i++) {
        const char *value = (const char *)record + fields[i].offset;
        char number[24];
        if (fields[i].kind == FIELD_MODE) {
            value = lock_mode_name(record->mode);
        } else if (fields[i].kind != FIELD_TEXT) {
            snprintf(number, sizeof number, "%" PRId64, number_in(value, fields[i].kind));
            value = number;
        } else if (record->released && value == record->holder.message) {
            value = "";
        }
        used += (size_t)snprintf(text + used, LOCK_RECORD_MOST - used, "%s ", fields[i].name);
        if (used < LOCK_RECORD_MOST)
            used += percent_encode(text + used, LOCK_RECORD_MOST - used, value, "");
        if (used < LOCK_RECORD_MOST)
            used += (size_t)snprintf(text + used, LOCK_RECORD_MOST - used, "\n");
    }
    if (used < LOCK_RECORD_MOST)
        used += (size_t)snprintf(text + used, LOCK_RECORD_MOST - used, "%s", last_line);
    return used < LOCK_RECORD_MOST ? used : 0;
}

/* Parses one "field value" line of length bytes without its newline. */
static bool parse_line(struct record *record, const char *line, size_t length)
{
    const char *space = memchr(line, ' ', length);
    if (space == NULL)
        return false;
    size_t name_length = (size_t)(space - line);
    for (size_t i = 0; i < FIELDS; i++)
        if (strlen(fields[i].name) == name_length && memcmp(fields[i].name, line, name_length) == 0)
            return parse_field(record, &fields[i], space + 1, length - name_length - 1);
    return true;
}

bool record_begins(const char *text)
{
    return strncmp(text, first_word, strlen(first_word)) == 0;
}

/* The text after the first line, with its number in *format; NULL if it is no such line. */
static const char *read_first_line(const char *text, int64_t *format)
{
    char digits[24];
    size_t length = strlen(first_word);
    if (!record_begins(text))
        return NULL;
    text += length;
    length = strcspn(text, "\n");
    if (length >= sizeof digits || text[length] == '\0')
        return NULL;
    snprintf(digits, sizeof digits, "%.*s", (int)length, text);
    return number_parse(digits, 1, INT64_MAX, format) ? text + length + 1 : NULL;
}

bool record_is_newer(const struct record *record)
{
    return record->format > STORE_FORMAT;
}

static bool parse_lines(struct record *record, const char *text)
{
    while (strncmp(text, last_line, strlen(last_line)) != 0) {
        const char *newline = strchr(text, '\n');
        if (newline == NULL || !parse_line(record, text, (size_t)(newline - text)))
            return false;
        text = newline + 1;
    }
    return record->token[0] != '\0';
}

bool record_parse(struct record *record, const char *text)
{
    *record = (struct record){.slot = -1};
    text = read_first_line(text, &record->format);
    int64_t format = record->format;
    bool parsed = text != NULL && !record_is_newer(record) && parse_lines(record, text);
    if (!parsed)
        *record = (struct record){.format = format};
    record->holder.known = parsed;
    record->holder.since_wall_ms = clamped(record->holder.since_wall_ms);
    record->holder.shares = parsed && record->mode != MODE_EXCLUSIVE;
    return parsed;
}

bool record_is_whole(const char *text)
{
    return strstr(text, "\nend\n") != NULL;
}

static bool is_of_kernel(const char *boot_id)
{
    return *boot_id != '\0' && *boot_id != '~';
}

bool record_may_be_of(const struct record *record, const char *boot_id)
{
    const char *of = record->holder.boot_id;
    if (*of != '\0' && strcmp(of, boot_id) == 0)
        return true;
    if (is_of_kernel(of) && is_of_kernel(boot_id))
        return false;
    return !deadline_before(deadline_after(LEASE_MOST), record->expires);
}
