#include "store/file/file_int.h"

#include "lock/fields.h"
#include "lock/format.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char first_word[] = "dlock ";
static const char last_line[] = "end\n";

/* The fields of a record. Durations are in nanoseconds, as in records of format 1. */
#define RECORD(name, kind, none, member) FIELD(record, name, NULL, kind, none, member)
static const struct field of_record[] = {
    RECORD("key", FIELD_TEXT, 0, key),
    RECORD("token", FIELD_TEXT, 0, token),
    RECORD("mode", FIELD_MODE, 0, mode),
    RECORD("fence", FIELD_NUMBER, 0, fence),
    RECORD("ttl", FIELD_NUMBER, 0, ttl),
    RECORD("expires", FIELD_DEADLINE, 0, expires),
    RECORD("hold", FIELD_DEADLINE, 0, hold),
    RECORD("slots", FIELD_INT, 0, slots),
    RECORD("slot", FIELD_INT, -1, slot),
    RECORD("remember", FIELD_NUMBER, 0, remember),
    RECORD("once_per", FIELD_NUMBER, 0, once_per),
};
static const struct fields record_fields = FIELDS(of_record);

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
        .holder = request->self,
    };
    text_copy(record->key, sizeof record->key, request->key);
    text_copy(record->token, sizeof record->token, request->token);
    text_copy(record->holder.take_id, sizeof record->holder.take_id, request->take_id);
    record->holder.detached = request->detached;
    record->holder.kept = false;
    record->holder.since_wall_ms = wall_now_ms();
}

void record_release(struct record *record, struct deadline hold)
{
    record->hold = hold;
    record->holder.kept = true;
    record->holder.message[0] = '\0';
}

size_t record_format(const struct record *record, char text[LOCK_RECORD_MOST])
{
    size_t used =
        (size_t)snprintf(text, LOCK_RECORD_MOST, "%s%" PRId64 "\n", first_word, record->format);

    used = fields_write(&record_fields, record, text, used, LOCK_RECORD_MOST);
    used = fields_write(&holder_fields, &record->holder, text, used, LOCK_RECORD_MOST);
    if (used + sizeof last_line > LOCK_RECORD_MOST)
        return 0;
    memcpy(text + used, last_line, sizeof last_line);
    return used + sizeof last_line - 1;
}

bool record_begins(const char *text)
{
    return strncmp(text, first_word, strlen(first_word)) == 0;
}

/* Reads the line "dlock FORMAT". Returns the text after that line, and the number in *format; NULL
 * if the text does not begin with such a line. */
static const char *read_first_line(const char *text, int64_t *format)
{
    char digits[24];
    if (!record_begins(text))
        return NULL;

    text += strlen(first_word);
    size_t length = strcspn(text, "\n");
    if (length >= sizeof digits || text[length] == '\0')
        return NULL;
    snprintf(digits, sizeof digits, "%.*s", (int)length, text);
    return number_parse(digits, 1, INT64_MAX, format) ? text + length + 1 : NULL;
}

bool record_is_newer(const struct record *record)
{
    return record->format > STORE_FORMAT;
}

bool record_parse(struct record *record, const char *text)
{
    int64_t format = 0;
    const char *lines = read_first_line(text, &format);

    *record = (struct record){.format = format, .slot = -1};
    if (lines == NULL || record_is_newer(record) || !record_is_whole(text) ||
        !fields_read(&record_fields, record, lines) ||
        !fields_read(&holder_fields, &record->holder, lines) || record->token[0] == '\0') {
        *record = (struct record){.format = format};
        return false;
    }
    record->holder.known = true;
    record->holder.shares = record->mode != MODE_EXCLUSIVE;
    return true;
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
