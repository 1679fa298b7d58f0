#include "actions/actions.h"

#include "config/file.h"
#include "redis/url.h"
#include "ui/failure.h"
#include "util/duration.h"
#include "util/json.h"
#include "util/text.h"

#include <stdio.h>
#include <string.h>

enum { ORIGIN_COLUMN = 48 };

struct row {
    const char *name;
    char value[2048];
    bool has_value;   /* false: not set, or it must not be shown */
    bool beyond_file; /* no line of a file can set this value */
    char from[ORIGIN_TEXT_SIZE];
    const char *note; /* NULL: none */
};

static const char *number_default(int number, char *text)
{
    snprintf(text, DURATION_TEXT_SIZE, "%d", number);
    return text;
}

/* The default of this option, in the form of dlock.conf(5); NULL: none. May use
 * `text`. */
static const char *config_default(const struct options *options, enum option_id id,
                                  char text[DURATION_TEXT_SIZE])
{
    const size_t size = DURATION_TEXT_SIZE;
    switch ((int)id) {
    case OPT_TTL: return duration_format(options->ttl, text, size);
    case OPT_HOLD_AT_LEAST: return duration_format(options->hold_at_least, text, size);
    case OPT_ONCE_PER: return duration_format(options->once_per, text, size);
    case OPT_REMEMBER: return duration_format(options->remember, text, size);
    case OPT_CONNECT_TIMEOUT: return duration_format(options->connect_timeout, text, size);
    case OPT_OUTAGE: return duration_format(options->outage, text, size);
    case OPT_GRACE: return duration_format(lease_grace(options->ttl, options->grace), text, size);
    case OPT_CONFLICT_EXIT_CODE: return number_default(options->conflict_status, text);
    case OPT_WAIT_REPLICAS: return number_default(options->wait_replicas, text);
    case OPT_PREFIX: return options->prefix;
    case OPT_HASH: return options->hash == HASH_HMAC_SHA256 ? "hmac-sha256" : "none";
    case OPT_BACKEND: return "auto";
    case OPT_WAIT: return options->nonblock ? "0" : "infinity";
    case OPT_FALLBACK: return "off";
    case OPT_ON_DEGRADED: return "warn";
    case OPT_ON_EXPIRE: return "stop";
    case OPT_STOP_SIGNAL: return "TERM";
    case OPT_EXCLUSIVE: return options->mode == MODE_EXCLUSIVE ? "yes" : "no";
    default: return option_has_value(option_by_id(id)) ? NULL : "no";
    }
}

/* The last setting of these options. */
static const struct setting *last_of(const struct options *options, enum option_id from,
                                     enum option_id to)
{
    const struct setting *found = NULL;
    for (const struct setting *setting = options->settings.first; setting != NULL;
         setting = setting->next)
        if (setting->id >= from && setting->id <= to)
            found = setting;
    return found;
}

/* The setting that decides this option, with its value in *text ("" for a flag
 * on the command line; NULL: none); NULL if it is not set. */
static const struct setting *config_in_force(const struct options *options, enum option_id id,
                                             const char **text)
{
    /* Options of which one counts. */
    const struct {
        enum option_id first, last, counts;
    } rivals[] = {
        {OPT_EXCLUSIVE, OPT_SLOTS,
         options->mode == MODE_SLOTS    ? OPT_SLOTS
         : options->mode == MODE_SHARED ? OPT_SHARED
                                        : OPT_EXCLUSIVE},
        {OPT_NONBLOCK, OPT_WAIT, options->nonblock ? OPT_NONBLOCK : OPT_WAIT},
        {OPT_VERBOSE, OPT_QUIET,
         options->verbosity > 0   ? OPT_VERBOSE
         : options->verbosity < 0 ? OPT_QUIET
                                  : OPT_NONE},
    };
    const struct setting *setting = setting_in_force(&options->settings, id);
    *text = setting != NULL ? setting->text : NULL;
    if (setting == NULL)
        return NULL;
    for (size_t i = 0; i < sizeof rivals / sizeof *rivals; i++) {
        if (id < rivals[i].first || id > rivals[i].last || id == rivals[i].counts)
            continue;
        *text = id == OPT_SLOTS ? NULL : id == OPT_WAIT ? "0" : "no";
        return last_of(options, rivals[i].first, rivals[i].last);
    }
    return setting;
}

/* The URLs without their logins. False if one cannot be read: a text that is no
 * URL may still contain a password. */
static bool show_urls(const char *text, char *shown, size_t size)
{
    struct redis_urls urls;
    struct errmsg ignored = {""};
    size_t used = 0;
    bool usable = redis_urls_parse(&urls, text, &ignored) == LOCK_OK;
    for (int i = 0; usable && i < urls.count; i++) {
        int length =
            snprintf(shown + used, size - used, "%s%s", i > 0 ? " " : "", urls.list[i].shown);
        used += length > 0 ? (size_t)length : 0;
        usable = used < size;
    }
    redis_urls_free(&urls);
    return usable;
}

/* inih strips white space, and ends a value at a semicolon behind it. Escapes are printed, but
 * not read. A relative path would be another lock in each directory. */
static bool fits_file(enum option_id id, const char *value)
{
    char shown[2 * sizeof(struct row)];
    size_t length = strlen(value);
    bool is_stripped = *value == ' ' || *value == ';' || strstr(value, " ;") != NULL ||
                       (length > 0 && value[length - 1] == ' ');
    bool is_place = id == OPT_LOCK_DIR || id == OPT_LOCK_FILE;
    return !is_stripped && strcmp(text_escape(shown, sizeof shown, value), value) == 0 &&
           (!is_place || *value == '/');
}

static void row_fill(struct row *row, const struct options *options, enum option_id id)
{
    const char *value;
    const struct setting *setting = config_in_force(options, id, &value);
    *row = (struct row){.name = option_by_id(id)->longName};
    if (id == OPT_CONFLICT_EXIT_CODE && options->conflict_status == STATUS_OK)
        row->note = "75 with --acquire, --attach and --wait-free";
    if (setting == NULL) {
        const char *text = config_default(options, id, row->value);
        row->has_value = text != NULL;
        text_copy(row->from, sizeof row->from, text != NULL ? "default" : "not set");
        if (text != NULL && text != row->value)
            text_copy(row->value, sizeof row->value, text);
        return;
    }
    origin_format(setting->id, setting->origin, row->from, sizeof row->from);
    if (value == NULL)
        return;
    bool is_flag = !option_has_value(option_by_id(id)) && *value == '\0';
    if (id == OPT_REDIS)
        row->has_value = show_urls(value, row->value, sizeof row->value);
    else if (id != OPT_OWNER) { /* anyone who knows it can release the lock */
        row->has_value = true;
        text_copy(row->value, sizeof row->value, is_flag ? "yes" : value);
    }
    row->beyond_file = !fits_file(id, row->value);
    if (row->beyond_file)
        row->note = "a file cannot set it";
}

static void config_print_row(const struct row *row)
{
    char value[2 * sizeof row->value], from[2 * ORIGIN_TEXT_SIZE];
    text_escape(value, sizeof value, row->value);
    text_escape(from, sizeof from, row->from);
    int used = printf("%s%s%s%s", row->has_value && !row->beyond_file ? "" : "; ", row->name,
                      row->has_value ? " = " : "", row->has_value ? value : "");
    printf("%*s ; %s%s%s\n", used < ORIGIN_COLUMN ? ORIGIN_COLUMN - used : 0, "", from,
           row->note != NULL ? "; " : "", row->note != NULL ? row->note : "");
}

static void print_file(const char *path, bool was_read)
{
    char text[1024];
    printf("; %s: %s\n", text_escape(text, sizeof text, path), was_read ? "read" : "not there");
}

static void row_json(struct json *json, const struct row *row)
{
    json_begin(json, NULL, '{');
    json_text(json, "name", row->name);
    json_text(json, "value", row->value);
    json_text(json, "origin", row->from);
    json_text(json, "note", row->note);
    json_end(json, '}');
}

int action_print_config(const struct options *options, struct messages *out)
{
    const struct settings *settings = &options->settings;
    struct json json = {.to = stdout};
    if (options->json) {
        json_begin(&json, NULL, '{');
        json_text(&json, "key", options->name);
        json_begin(&json, "settings", '[');
    } else {
        if (!settings->file_named)
            print_file(CONFIG_SYSTEM_FILE, settings->system_file_read);
        if (settings->user_file != NULL)
            print_file(settings->user_file, settings->user_file_read);
    }
    for (enum option_id id = OPT_FIRST_SETTING; id < OPTION_COUNT; id++) {
        struct row row;
        row_fill(&row, options, id);
        if (options->json)
            row_json(&json, &row);
        else
            config_print_row(&row);
    }
    if (options->json) {
        json_end(&json, ']');
        json_line_end(&json);
    }
    return flushed(out, STATUS_OK);
}
