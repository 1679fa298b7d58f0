#include "lock/fields.h"

#include "lock/lock_state.h"
#include "process/procfs.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- the tables ---------------------------------------------------------- */

#define HOLDER(name, json, kind, member) FIELD(holder, name, json, kind, 0, member)
static const struct field of_holder[] = {
    HOLDER("take", NULL, FIELD_TEXT, take_id),
    HOLDER("since", "acquired_at", FIELD_TIME, since_wall_ms),
    HOLDER("released", "released", FIELD_FLAG, kept),
    HOLDER("detached", "detached", FIELD_FLAG, detached),
    HOLDER("host", "host", FIELD_TEXT, host),
    HOLDER("boot", NULL, FIELD_TEXT, boot_id),
    HOLDER("pid", "pid", FIELD_INT, pid),
    HOLDER("start", NULL, FIELD_NUMBER, pid_start),
    HOLDER("pid_space", NULL, FIELD_NUMBER, pid_space),
    HOLDER("user", "user", FIELD_TEXT, user),
    HOLDER("command", "command", FIELD_TEXT, command),
    HOLDER("message", "message", FIELD_TEXT, message),
};
const struct fields holder_fields = FIELDS(of_holder);

static const struct field of_owner[] = {
    FIELD(lock_owner, "fence", "fence", FIELD_NUMBER, 0, fence),
    FIELD(lock_owner, "slot", "slot", FIELD_INT, -1, slot),
    FIELD(lock_owner, "ttl", NULL, FIELD_DURATION, 0, ttl),
};
const struct fields owner_fields = FIELDS(of_owner);

#define WAITER(name, json, kind, member) FIELD(lock_waiter, name, json, kind, 0, member)
static const struct field of_waiter[] = {
    WAITER("host", "host", FIELD_TEXT, host),
    WAITER("pid", "pid", FIELD_INT, pid),
    WAITER("user", "user", FIELD_TEXT, user),
    WAITER("came", "since", FIELD_TIME, since_wall_ms),
    WAITER("mode", "mode", FIELD_MODE, mode),
    WAITER("slots", NULL, FIELD_INT, slots),
    WAITER("message", "message", FIELD_TEXT, message),
};
const struct fields waiter_fields = FIELDS(of_waiter);

#define COUNT(name, member) FIELD(lock_counts, name, name, FIELD_COUNT, 0, member)
static const struct field of_counts[] = {
    COUNT("takes", takes),
    COUNT("conflicts", conflicts),
    COUNT("timeouts", timeouts),
    COUNT("losses", losses),
    FIELD(lock_counts, "waited", "waited", FIELD_MS, 0, waited_ms),
    FIELD(lock_counts, "held", "held", FIELD_MS, 0, held_ms),
};
const struct fields counts_fields = FIELDS(of_counts);

static const struct field of_memory[] = {
    FIELD(run_memory, "failures", "failures_in_a_row", FIELD_COUNT, 0, failures),
    FIELD(run_memory, "runs", "runs_since", FIELD_COUNT, 0, runs),
    FIELD(run_memory, "skips", "skipped_since", FIELD_COUNT, 0, skipped),
};
const struct fields memory_fields = FIELDS(of_memory);

static const struct field of_pause[] = {
    FIELD(pause, "left", "remaining", FIELD_DURATION, 0, left),
    FIELD(pause, "by", "by", FIELD_TEXT, 0, by),
    FIELD(pause, "message", "message", FIELD_TEXT, 0, message),
};
const struct fields pause_fields = FIELDS(of_pause);

#define RUN(name, json, kind, member) FIELD(run_record, name, json, kind, 0, member)
static const struct field of_run[] = {
    RUN("since", "began_at", FIELD_TIME, began_ms),
    RUN("ended", "ended_at", FIELD_TIME, end.ended_ms),
    RUN("how", "outcome", FIELD_END, end),
    RUN("pid", "pid", FIELD_INT, pid),
    RUN("user", "user", FIELD_TEXT, user),
    RUN("host", "host", FIELD_TEXT, host),
    RUN("command", "command", FIELD_TEXT, command),
};
const struct fields run_fields = FIELDS(of_run);

static const struct field of_past[] = {
    FIELD(past_run, "since", "began_at", FIELD_TIME, 0, began_ms),
    FIELD(past_run, "length", "duration", FIELD_LENGTH, -1, length_ms),
    FIELD(past_run, "how", "outcome", FIELD_END, 0, end),
    FIELD(past_run, "ttl", "ttl", FIELD_LENGTH, 0, ttl_ms),
    FIELD(past_run, "host", "host", FIELD_TEXT, 0, host),
};
const struct fields past_fields = FIELDS(of_past);

/* --- one value ----------------------------------------------------------- */

static int64_t number_in(const struct field *field, const void *at)
{
    if (field->kind == FIELD_FLAG)
        return *(const bool *)at;
    if (field->kind == FIELD_INT)
        return *(const int *)at;
    if (field->kind == FIELD_DURATION)
        return ((const struct duration *)at)->ns / NS_PER_MS;
    if (field->kind == FIELD_DEADLINE)
        return ((const struct deadline *)at)->boot_ns;
    return *(const int64_t *)at;
}

static void set_number(const struct field *field, void *at, int64_t number)
{
    if (field->kind == FIELD_FLAG)
        *(bool *)at = number != 0;
    else if (field->kind == FIELD_INT)
        *(int *)at = (int)number;
    else if (field->kind == FIELD_DURATION)
        ((struct duration *)at)->ns = number * NS_PER_MS;
    else if (field->kind == FIELD_DEADLINE)
        ((struct deadline *)at)->boot_ns = number;
    else
        *(int64_t *)at = number;
}

static struct deadline shifted(struct deadline from, int64_t ns)
{
    return ns >= 0 ? deadline_plus(from, (struct duration){ns})
                   : deadline_minus(from, (struct duration){-ns});
}

static void clear(const struct field *field, void *at)
{
    if (field->kind == FIELD_TEXT)
        *(char *)at = '\0';
    else if (field->kind == FIELD_MODE)
        *(enum lock_mode *)at = MODE_EXCLUSIVE;
    else if (field->kind == FIELD_END)
        ((struct run_end *)at)->how = RUN_NONE;
    else
        set_number(field, at, field->none);
}

/* Limits the values of times: another program may have written them, and the sum of two times must
 * not overflow. */
static bool parse_number(const struct field *field, void *at, const char *value)
{
    const int64_t century_ms = DURATION_FOREVER.ns / NS_PER_MS;
    int64_t most = field->kind == FIELD_INT ? INT32_MAX : INT64_MAX;
    int64_t number;

    if (!number_parse(value, field->none, most, &number))
        return false;

    if (field->kind == FIELD_DEADLINE)
        number = shifted((struct deadline){number}, proc_boot_offset()).boot_ns;
    else if (field->kind == FIELD_MS || field->kind == FIELD_LENGTH ||
             field->kind == FIELD_DURATION)
        number = number < century_ms ? number : century_ms;
    else if (field->kind >= FIELD_COUNT)
        number = number > 0 ? clamped(number) : number;
    set_number(field, at, number);
    return true;
}

/* Does not change end->ended_ms, which is a separate field. */
static bool parse_end(struct run_end *end, const char *value)
{
    int64_t ended_ms = end->ended_ms;
    bool good = run_end_read(end, value);

    end->ended_ms = ended_ms;
    return good;
}

bool field_set(const struct field *field, void *object, const char *value)
{
    void *at = (char *)object + field->offset;

    if (*value == '\0') {
        clear(field, at);
        return true;
    }
    if (field->kind == FIELD_MODE)
        return lock_mode_parse(value, at);
    if (field->kind == FIELD_END)
        return parse_end(at, value);
    if (field->kind != FIELD_TEXT)
        return parse_number(field, at, value);
    text_copy(at, field->size, value);
    return true;
}

/* Returns the value as text, which may be stored in `room`; "" if the field has no value. */
static const char *value_of(const struct field *field, const void *object, char room[RUN_END_SIZE])
{
    const void *at = (const char *)object + field->offset;

    if (field->kind == FIELD_TEXT)
        return at;
    if (field->kind == FIELD_MODE)
        return lock_mode_name(*(const enum lock_mode *)at);
    if (field->kind == FIELD_END)
        return run_end_write(at, room);

    int64_t number = number_in(field, at);
    if (number == field->none)
        return "";
    if (field->kind == FIELD_DEADLINE)
        number = shifted((struct deadline){number}, -proc_boot_offset()).boot_ns;
    snprintf(room, RUN_END_SIZE, "%" PRId64, number);
    return room;
}

void fields_clear(const struct fields *fields, void *object)
{
    for (size_t i = 0; i < fields->count; i++)
        clear(&fields->list[i], (char *)object + fields->list[i].offset);
}

/* --- lines --------------------------------------------------------------- */

static size_t append(char *text, size_t used, size_t size, const char *value)
{
    return used + percent_encode(text + (used < size ? used : 0), used < size ? size - used : 0,
                                 value, "");
}

static size_t append_mark(char *text, size_t used, size_t size, char mark)
{
    if (used + 1 < size) {
        text[used] = mark;
        text[used + 1] = '\0';
    }
    return used + 1;
}

size_t fields_write(const struct fields *fields, const void *object, char *text, size_t used,
                    size_t size)
{
    for (size_t i = 0; i < fields->count; i++) {
        char room[RUN_END_SIZE];
        const char *value = value_of(&fields->list[i], object, room);

        if (*value == '\0')
            continue;
        used = append(text, used, size, fields->list[i].name);
        used = append_mark(text, used, size, ' ');
        used = append(text, used, size, value);
        used = append_mark(text, used, size, '\n');
    }
    return used;
}

static const struct field *named(const struct fields *fields, const char *name, size_t length)
{
    for (size_t i = 0; i < fields->count; i++) {
        const char *known = fields->list[i].name;
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return &fields->list[i];
    }
    return NULL;
}

/* Reads a percent-encoded value of `length` bytes. Unlike field_set(), rejects a string that is too
 * long, because a truncated token or key would be a different one. */
static bool read_value(const struct field *field, void *object, const char *value, size_t length)
{
    char text[FIELD_TEXT_SIZE];
    bool is_text = field->kind == FIELD_TEXT;
    size_t size = is_text && field->size < sizeof text ? field->size : sizeof text;

    return percent_decode(text, size, value, length) && field_set(field, object, text);
}

bool fields_read(const struct fields *fields, void *object, const char *text)
{
    static const char last_line[] = "end\n";

    fields_clear(fields, object);
    while (*text != '\0' && strncmp(text, last_line, strlen(last_line)) != 0) {
        const char *newline = strchr(text, '\n');
        const char *space = newline != NULL ? memchr(text, ' ', (size_t)(newline - text)) : NULL;
        if (space == NULL)
            return false;

        const struct field *field = named(fields, text, (size_t)(space - text));
        if (field != NULL && !read_value(field, object, space + 1, (size_t)(newline - space) - 1))
            return false;
        text = newline + 1;
    }
    return true;
}

/* --- rows ---------------------------------------------------------------- */

size_t fields_write_row(const struct fields *fields, const void *object, char *text, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < fields->count; i++) {
        char room[RUN_END_SIZE];

        if (i > 0)
            used = append_mark(text, used, size, '\t');
        used = append(text, used, size, value_of(&fields->list[i], object, room));
    }
    return used;
}

bool fields_read_row(const struct fields *fields, void *object, const char *text)
{
    bool good = true;

    for (size_t i = 0; good && i < fields->count; i++) {
        bool last = i + 1 == fields->count;
        size_t length = strcspn(text, last ? "\n" : "\t\n");

        good = read_value(&fields->list[i], object, text, length) && (last || text[length] == '\t');
        text += length + !last;
    }
    if (!good)
        fields_clear(fields, object);
    return good;
}

/* --- JSON ---------------------------------------------------------------- */

static void end_json(struct json *json, const char *name, const struct run_end *end)
{
    static const char *const outcomes[] = {
        [RUN_NONE] = "",           [RUN_STATUS] = "exited",   [RUN_SIGNAL] = "signal",
        [RUN_STOPPED] = "stopped", [RUN_ENDED] = "not known", [RUN_LOST] = "lost"};

    json_text(json, name, outcomes[end->how]);
    json_number_if(json, "status", end->code, end->how == RUN_STATUS);
    json_number_if(json, "signal", end->code, end->how == RUN_SIGNAL);
}

static void value_json(const struct field *field, const void *at, struct json *json)
{
    int64_t number = 0;

    switch (field->kind) {
    case FIELD_TEXT: json_text(json, field->json, at); break;
    case FIELD_MODE:
        json_text(json, field->json, lock_mode_name(*(const enum lock_mode *)at));
        break;
    case FIELD_END: end_json(json, field->json, at); break;
    case FIELD_FLAG: json_bool(json, field->json, *(const bool *)at); break;
    case FIELD_COUNT: json_number(json, field->json, *(const int64_t *)at); break;
    case FIELD_TIME: json_time(json, field->json, *(const int64_t *)at); break;
    case FIELD_MS:
    case FIELD_DURATION: json_seconds(json, field->json, number_in(field, at)); break;
    case FIELD_LENGTH:
        number = number_in(field, at);
        if (number != field->none)
            json_seconds(json, field->json, number);
        else
            json_null(json, field->json);
        break;
    case FIELD_INT:
    case FIELD_NUMBER:
    case FIELD_DEADLINE:
        number = number_in(field, at);
        json_number_if(json, field->json, number, number != field->none);
        break;
    }
}

void fields_json(const struct fields *fields, const void *object, struct json *json)
{
    for (size_t i = 0; i < fields->count; i++)
        if (fields->list[i].json != NULL)
            value_json(&fields->list[i], (const char *)object + fields->list[i].offset, json);
}
