#include "store/file/record.h"

#include "lock/format.h"
#include "process/procfs.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char first_word[] = "dlock ";
static const char last_line[] = "end\n";

/* A record and its fields in written form. */
struct raw {
    struct record record;
    char mode[16];
    int64_t fence, ttl, expires, hold, remember, since, pid, start, pid_space, slots, slot,
        detached, released;
};

#define TEXT_FIELD(name, member)                                            \
    {                                                                       \
        name, offsetof(struct raw, member), sizeof((struct raw *)0)->member \
    }
static const struct text_field {
    const char *name;
    size_t offset, size;
} text_fields[] = {
    TEXT_FIELD("key", record.key),
    TEXT_FIELD("token", record.token),
    TEXT_FIELD("take", record.take_id),
    TEXT_FIELD("mode", mode),
    TEXT_FIELD("host", record.holder.host),
    TEXT_FIELD("boot", record.holder.boot_id),
    TEXT_FIELD("user", record.holder.user),
    TEXT_FIELD("command", record.holder.command),
    TEXT_FIELD("message", record.holder.message),
};
enum { TEXT_FIELDS = sizeof text_fields / sizeof *text_fields };

#define NUMBER_FIELD(name, member)         \
    {                                      \
        name, offsetof(struct raw, member) \
    }
static const struct number_field {
    const char *name;
    size_t offset;
} number_fields[] = {
    NUMBER_FIELD("fence", fence),       NUMBER_FIELD("ttl", ttl),
    NUMBER_FIELD("expires", expires),   NUMBER_FIELD("hold", hold),
    NUMBER_FIELD("since", since),       NUMBER_FIELD("pid", pid),
    NUMBER_FIELD("start", start),       NUMBER_FIELD("slots", slots),
    NUMBER_FIELD("slot", slot),         NUMBER_FIELD("detached", detached),
    NUMBER_FIELD("released", released), NUMBER_FIELD("pid_space", pid_space),
    NUMBER_FIELD("remember", remember),
};
enum { NUMBER_FIELDS = sizeof number_fields / sizeof *number_fields };

static int64_t *number_at(struct raw *raw, size_t field)
{
    return (int64_t *)(void *)((char *)raw + number_fields[field].offset);
}

static struct deadline later(struct deadline from, int64_t ns)
{
    return ns >= 0 ? deadline_plus(from, (struct duration){ns})
                   : deadline_minus(from, (struct duration){-ns});
}

static void to_raw(const struct record *record, struct raw *raw)
{
    *raw = (struct raw){
        .record = *record,
        .fence = record->fence,
        .ttl = record->ttl.ns,
        .expires = later(record->expires, -proc_boot_offset()).boot_ns,
        .hold = later(record->hold, -proc_boot_offset()).boot_ns,
        .remember = record->remember.ns,
        .since = record->holder.since_wall_ms,
        .pid = record->holder.pid,
        .start = record->holder.pid_start,
        .pid_space = record->holder.pid_space,
        .slots = record->slots,
        .slot = record->slot,
        .detached = record->detached,
        .released = record->released,
    };
    if (record->released)
        raw->record.holder.message[0] = '\0';
    text_copy(raw->mode, sizeof raw->mode, lock_mode_name(record->mode));
}

/* False if it makes no sense. A record without a mode is that of an exclusive lock. */
static bool from_raw(const struct raw *raw, struct record *record)
{
    *record = raw->record;
    if (record->token[0] == '\0' || raw->pid > INT32_MAX || raw->slots > INT32_MAX ||
        raw->slot > INT32_MAX ||
        (raw->mode[0] != '\0' && !lock_mode_parse(raw->mode, &record->mode)))
        return false;
    record->fence = raw->fence;
    record->ttl = (struct duration){raw->ttl};
    record->expires = later((struct deadline){raw->expires}, proc_boot_offset());
    record->hold = later((struct deadline){raw->hold}, proc_boot_offset());
    record->remember = (struct duration){raw->remember};
    record->slots = (int)raw->slots;
    record->slot = (int)raw->slot;
    record->detached = raw->detached != 0;
    record->released = raw->released != 0;
    record->holder.known = true;
    record->holder.shares = record->mode != MODE_EXCLUSIVE;
    record->holder.since_wall_ms = raw->since;
    record->holder.pid = (pid_t)raw->pid;
    record->holder.pid_start = raw->start;
    record->holder.pid_space = raw->pid_space;
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
    struct raw raw;
    to_raw(record, &raw);
    size_t used =
        (size_t)snprintf(text, LOCK_RECORD_MOST, "%s%" PRId64 "\n", first_word, record->format);
    for (size_t i = 0; i < TEXT_FIELDS && used < LOCK_RECORD_MOST; i++) {
        const char *value = (const char *)&raw + text_fields[i].offset;
        used += (size_t)snprintf(text + used, LOCK_RECORD_MOST - used, "%s ", text_fields[i].name);
        if (used < LOCK_RECORD_MOST)
            used += percent_encode(text + used, LOCK_RECORD_MOST - used, value, "");
        if (used < LOCK_RECORD_MOST)
            used += (size_t)snprintf(text + used, LOCK_RECORD_MOST - used, "\n");
    }
    for (size_t i = 0; i < NUMBER_FIELDS && used < LOCK_RECORD_MOST; i++)
        used += (size_t)snprintf(text + used, LOCK_RECORD_MOST - used, "%s %" PRId64 "\n",
                                 number_fields[i].name, *number_at(&raw, i));
    if (used < LOCK_RECORD_MOST)
        used += (size_t)snprintf(text + used, LOCK_RECORD_MOST - used, "%s", last_line);
    return used < LOCK_RECORD_MOST ? used : 0;
}

/* Parses one "field value" line of length bytes without its newline. */
static bool parse_line(struct raw *raw, const char *line, size_t length)
{
    const char *space = memchr(line, ' ', length);
    if (space == NULL)
        return false;
    size_t name_length = (size_t)(space - line);
    const char *value = space + 1;
    size_t value_length = length - name_length - 1;
    for (size_t i = 0; i < TEXT_FIELDS; i++)
        if (strlen(text_fields[i].name) == name_length &&
            memcmp(text_fields[i].name, line, name_length) == 0)
            return percent_decode((char *)raw + text_fields[i].offset, text_fields[i].size, value,
                                  value_length);
    for (size_t i = 0; i < NUMBER_FIELDS; i++) {
        char digits[24];
        if (strlen(number_fields[i].name) != name_length ||
            memcmp(number_fields[i].name, line, name_length) != 0)
            continue;
        if (value_length >= sizeof digits)
            return false;
        snprintf(digits, sizeof digits, "%.*s", (int)value_length, value);
        return number_parse(digits, -1, INT64_MAX, number_at(raw, i));
    }
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

bool record_parse(struct record *record, const char *text)
{
    struct raw raw = {.slot = -1};
    memset(record, 0, sizeof *record);
    text = read_first_line(text, &raw.record.format);
    record->format = raw.record.format;
    if (text == NULL || record_is_newer(record))
        return false;
    for (; strncmp(text, last_line, strlen(last_line)) != 0;) {
        const char *newline = strchr(text, '\n');
        if (newline == NULL || !parse_line(&raw, text, (size_t)(newline - text)))
            return false;
        text = newline + 1;
    }
    return from_raw(&raw, record);
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
    static const struct duration most = {INT64_C(86400) * LEASE_MOST_DAYS * NS_PER_S};
    const char *of = record->holder.boot_id;
    if (*of != '\0' && strcmp(of, boot_id) == 0)
        return true;
    if (is_of_kernel(of) && is_of_kernel(boot_id))
        return false;
    return !deadline_before(deadline_after(most), record->expires);
}
