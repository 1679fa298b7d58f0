#include "actions/doctor_config.h"

#include "config/file.h"
#include "config/lock_key.h"
#include "redis/url.h"
#include "util/duration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- values -------------------------------------------------------------- */

/* Options that are worth showing even if they are not set. */
static bool matters_by_default(enum option_id id)
{
    switch ((int)id) {
    case OPT_TTL:
    case OPT_WAIT:
    case OPT_REDIS:
    case OPT_BACKEND:
    case OPT_CONNECT_TIMEOUT:
    case OPT_OUTAGE: return true;
    default: return false;
    }
}

static const char *duration_default(struct duration duration, char *text)
{
    return duration_format(duration, text, DURATION_TEXT_SIZE);
}

static const char *number_default(int number, char *text)
{
    snprintf(text, DURATION_TEXT_SIZE, "%d", number);
    return text;
}

const char *config_default(const struct options *options, enum option_id id,
                           char text[DURATION_TEXT_SIZE])
{
    switch ((int)id) {
    case OPT_TTL: return duration_default(options->ttl, text);
    case OPT_HOLD_AT_LEAST: return duration_default(options->hold_at_least, text);
    case OPT_CONNECT_TIMEOUT: return duration_default(options->connect_timeout, text);
    case OPT_OUTAGE: return duration_default(options->outage, text);
    case OPT_GRACE: return duration_default(lease_grace(options->ttl, options->grace), text);
    case OPT_CONFLICT_EXIT_CODE: return number_default(options->conflict_status, text);
    case OPT_WAIT_REPLICAS: return number_default(options->wait_replicas, text);
    case OPT_PREFIX: return options->prefix;
    case OPT_HASH: return options->hash == HASH_HMAC_SHA256 ? "hmac-sha256" : "none";
    case OPT_BACKEND: return "auto";
    case OPT_WAIT: return "infinity";
    case OPT_FALLBACK: return "off";
    case OPT_ON_DEGRADED: return "warn";
    case OPT_ON_EXPIRE: return "stop";
    case OPT_STOP_SIGNAL: return "TERM";
    case OPT_EXCLUSIVE: return options->mode == MODE_EXCLUSIVE ? "yes" : "no";
    default: return option_has_value(option_by_id(id)) ? NULL : "no";
    }
}

/* The last one. */
static const struct setting *last_of(const struct options *options, enum option_id one,
                                     enum option_id other)
{
    const struct setting *found = NULL;
    for (const struct setting *setting = options->settings.first; setting != NULL;
         setting = setting->next)
        if (setting->id == one || setting->id == other)
            found = setting;
    return found;
}

const struct setting *config_in_force(const struct options *options, enum option_id id,
                                      const char **text)
{
    const struct setting *setting = setting_in_force(&options->settings, id);
    if (setting == NULL)
        return NULL;
    *text = setting->text;
    const struct setting *last = last_of(options, OPT_NONBLOCK, OPT_WAIT);
    bool passed_over = (id == OPT_NONBLOCK && last != NULL && last->id == OPT_WAIT) ||
                       (id == OPT_WAIT && options->nonblock);
    if (!passed_over)
        return setting;
    *text = id == OPT_WAIT ? "0" : "no";
    return last;
}

static const char *default_text(const struct options *options, enum option_id id,
                                char time[DURATION_TEXT_SIZE])
{
    const char *text = config_default(options, id, time);
    return text != NULL ? text : "none";
}

/* A URL without its login; a text that is no URL may still contain a password. */
static void add_url(const char *text, const char *where, struct diagnostics *findings)
{
    struct redis_url url;
    struct errmsg why = {""};
    if (redis_url_parse(&url, text, &why))
        diagnostics_add(findings, FINDING_OK, "redis", NULL, "%s%s (%s)", url.shown,
                        url.has_password ? ", with a password" : "", where);
    else
        diagnostics_add(findings, FINDING_OK, "redis", NULL, "not usable: %s (%s)", why.text,
                        where);
    explicit_bzero(&url, sizeof url);
}

/* Several servers have white space between them. */
static void add_urls(const char *text, const char *where, struct diagnostics *findings)
{
    size_t size = strlen(text) + 1;
    char *copy = strdup(text), *rest = copy;
    findings->short_of_memory |= copy == NULL;
    for (char *url; copy != NULL && (url = strsep(&rest, " \t\n")) != NULL;)
        if (*url != '\0')
            add_url(url, where, findings);
    if (copy != NULL)
        explicit_bzero(copy, size);
    free(copy);
}

static void add_option(const struct options *options, enum option_id id,
                       struct diagnostics *findings)
{
    const char *name = option_by_id(id)->longName;
    const char *value;
    const struct setting *setting = config_in_force(options, id, &value);
    char where[ORIGIN_TEXT_SIZE], text[512];
    bool flag = !option_has_value(option_by_id(id));
    if (setting == NULL) {
        char time[DURATION_TEXT_SIZE];
        if (matters_by_default(id) && !(id == OPT_WAIT && options->nonblock))
            diagnostics_add(findings, FINDING_OK, name, NULL, "%s (default)",
                            default_text(options, id, time));
        return;
    }
    origin_format(setting->id, setting->origin, where, sizeof where);
    if (id == OPT_REDIS) {
        add_urls(value, where, findings);
        return;
    }
    if (id == OPT_OWNER) /* anyone who knows it can release the lock */
        snprintf(text, sizeof text, "given");
    else
        snprintf(text, sizeof text, "%.500s", flag && *value == '\0' ? "yes" : value);
    diagnostics_add(findings, FINDING_OK, name, NULL, "%s (%s)", text, where);
}

/* --- sources ------------------------------------------------------------- */

static void add_file(struct diagnostics *findings, const char *path, bool was_read)
{
    diagnostics_add(findings, FINDING_OK, "file", NULL, "%s: %s", path,
                    was_read ? "read" : "not there");
}

static void add_unknown_variable(const char *name, const char *near, void *data)
{
    if (near != NULL)
        diagnostics_add(data, FINDING_WARN, name,
                        "variables are the long options in capitals; dlock(1) lists them",
                        "this variable is no setting; did you mean %s?", near);
    else
        diagnostics_add(data, FINDING_NOTE, name,
                        "variables are the long options in capitals; dlock(1) lists them",
                        "this variable is no setting");
}

/* --- conflicts ----------------------------------------------------------- */

static void add_doubts(const struct options *options, struct diagnostics *findings)
{
    char time[DURATION_TEXT_SIZE];
    if (options->fallback_to_file)
        diagnostics_add(findings, FINDING_WARN, "fallback",
                        "without --fallback no command runs while Redis is down",
                        "while Redis is down, locks hold on this host alone, and hosts that reach "
                        "it are not kept out");
    if (options->warn_on_expire)
        diagnostics_add(findings, FINDING_WARN, "on-expire", "--on-expire=stop",
                        "a command runs on without its lock when the lease ends or is lost");
    if (!options->waits_forever && options->wait.ns > 0 && options->wait.ns < options->outage.ns)
        diagnostics_add(findings, FINDING_NOTE, "outage", NULL, "it is cut to --wait, %s",
                        duration_format(options->wait, time, sizeof time));
}

/* The hash function must be available for any name. */
static void add_key(const struct options *options, struct diagnostics *findings)
{
    struct options tried = *options;
    struct errmsg why = {""};
    char key[LOCK_KEY_SIZE];
    if (options->name == NULL)
        tried.name = "doctor";
    enum lock_result result = lock_key_of(key, &tried, &why);
    if (result != LOCK_OK)
        diagnostics_fail(findings, (int)status_of(result), "key", NULL, "%s", why.text);
    else if (options->name != NULL)
        diagnostics_add(findings, FINDING_OK, "key", NULL, "%s", key);
}

void doctor_config(const struct options *options, struct diagnostics *findings)
{
    diagnostics_section(findings, "configuration", NULL);
    if (!options->settings.file_named)
        add_file(findings, CONFIG_SYSTEM_FILE, options->settings.system_file_read);
    if (options->settings.user_file != NULL)
        add_file(findings, options->settings.user_file, options->settings.user_file_read);
    for (enum option_id id = OPT_NONE + 1; id < OPTION_COUNT; id++)
        if (option_configurable(id))
            add_option(options, id, findings);
    config_unknown_variables(add_unknown_variable, findings);
    add_doubts(options, findings);
    add_key(options, findings);
}
