/* Finds options that have no effect, by the actions and circumstances in their rows
 * (option_rows.h). */
#include "config/config_int.h"
#include "redis/url.h"
#include "util/exit_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- by the action ------------------------------------------------------- */

bool option_used_by(enum option_id id, enum option_action action)
{
    return (option_rows[id].actions & (1u << action)) != 0;
}

/* Writes the actions that use the option, such as "--acquire, --extend and --release". Returns
 * text. */
static const char *name_users(enum option_id id, char *text, size_t size)
{
    const char *last = NULL;
    size_t used = 0;
    *text = '\0';
    for (enum option_id i = OPT_NONE + 1; i < OPT_PRINT_CONFIG; i++) {
        if (!option_rows[i].is_action || !option_used_by(id, (enum option_action)i))
            continue;
        if (last != NULL)
            used +=
                (size_t)snprintf(text + used, size - used, "%s--%s", used > 0 ? ", " : "", last);
        last = option_rows[i].name;
    }
    if (last != NULL)
        snprintf(text + used, size - used, "%s--%s", used > 0 ? " and " : "", last);
    return text;
}

enum settings_result unused_by_action(const struct options *options, struct errmsg *why)
{
    for (enum option_id id = OPT_NONE + 1; id < OPTION_COUNT; id++) {
        char users[256];
        if (options->origins[id].kind != ORIGIN_COMMAND_LINE || option_used_by(id, options->action))
            continue;
        if (options->action != ACTION_RUN)
            errmsg_set(why, "--%s has no effect with --%s", option_rows[id].name,
                       option_rows[options->action].name);
        else
            errmsg_set(why, "--%s is only for %s", option_rows[id].name,
                       name_users(id, users, sizeof users));
        hints_behind_name(options, options->origins[id], why);
        return SETTINGS_BAD_USAGE;
    }
    return SETTINGS_OK;
}

/* --- by the circumstances ------------------------------------------------ */

enum option_id options_store_choice(const struct options *options)
{
    if (options->lock_file != NULL)
        return OPT_LOCK_FILE;
    if (options->backend == BACKEND_FILE)
        return OPT_BACKEND;
    return options->backend == BACKEND_REDIS || options->redis != NULL ? OPT_REDIS : OPT_NONE;
}

static unsigned when_of_redis(const struct redis_urls *urls)
{
    unsigned when = urls->count > 1 ? ON_QUORUM : ON_REDIS;
    for (int i = 0; i < urls->count; i++) {
        const struct redis_url *url = &urls->list[i];
        when |= (url->tls ? ON_TLS : 0) | (url->topology == REDIS_SENTINEL ? ON_SENTINEL : 0) |
                (url->has_password ? 0 : ON_NO_PASSWORD);
    }
    return when;
}

/* Returns the circumstances that depend on the store. A URL that cannot be parsed is reported when
 * the store is opened. Until then, options for every kind of URL are accepted. */
static unsigned when_of_store(const struct options *options, enum option_id chosen_by)
{
    if (chosen_by != OPT_REDIS)
        return chosen_by == OPT_LOCK_FILE ? ON_LOCK_FILE : ON_LOCK_DIR;
    struct redis_urls urls;
    struct errmsg ignored;
    bool parsed =
        options->redis != NULL && redis_urls_parse(&urls, options->redis, &ignored) == LOCK_OK;
    unsigned when =
        parsed ? when_of_redis(&urls) : ON_SERVERS | ON_TLS | ON_SENTINEL | ON_NO_PASSWORD;
    if (options->redis != NULL)
        redis_urls_free(&urls);
    return when;
}

/* The records of attached locks are in the lock directory, even if the locks are in Redis. */
static bool uses_lock_dir(const struct options *options)
{
    return options->fallback_to_file || options->action == ACTION_ATTACH ||
           options->action == ACTION_EXTEND || options->action == ACTION_RELEASE;
}

static unsigned when_of(const struct options *options, enum option_id chosen_by)
{
    bool may_give_up = !options->waits_forever || options->once_per.ns > 0;
    bool is_auto =
        chosen_by == OPT_NONE || (chosen_by == OPT_REDIS && options->backend == BACKEND_AUTO);
    unsigned of_store = when_of_store(options, chosen_by);
    bool has_cert = (of_store & ON_TLS) != 0 && options->client_cert != NULL;
    return of_store | (has_cert ? ON_CERT : 0) | (uses_lock_dir(options) ? ON_DIR : 0) |
           (is_auto ? ON_AUTO : 0) | (may_give_up ? ON_CONFLICT : 0) |
           (options->warn_on_expire ? 0 : ON_STOP) |
           (options->ttl.ns < DURATION_FOREVER.ns ? ON_END : 0) |
           (options->heartbeat ? ON_HEARTBEAT : 0);
}

/* Returns why an option has no effect if none of the circumstances that it needs (`wanted`) holds.
 * NULL: the reason is the kind of store. */
static const char *reason(unsigned wanted)
{
    static const struct {
        unsigned wanted;
        const char *text;
    } reasons[] = {
        {ON_TLS, "the Redis URL does not use TLS; use rediss://"},
        {ON_CERT, "the key needs its certificate; add --client-cert=FILE"},
        {ON_SENTINEL, "the Redis URL names no Sentinel; use redis+sentinel://"},
        {ON_NO_PASSWORD, "the Redis URL already contains a password"},
        {ON_CONFLICT, "dlock waits without a limit; use -n or --wait"},
        {ON_STOP, "--on-expire=warn never stops the command"},
        {ON_STOP | ON_HEARTBEAT, "--on-expire=warn never stops the command"},
        {ON_END, "a lease with --ttl=infinity never ends"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].wanted == wanted)
            return reasons[i].text;
    return NULL;
}

/* Sets *why for an option that has no effect in this store. */
static void blame_store(const struct options *options, enum option_id id, enum option_id chosen_by,
                        unsigned when, struct errmsg *why)
{
    char by[ORIGIN_TEXT_SIZE];
    unsigned wanted = option_rows[id].when;
    if (chosen_by != OPT_NONE)
        origin_format(chosen_by, options->origins[chosen_by], by, sizeof by);
    if (wanted == ON_AUTO)
        errmsg_set(why, "%s already chooses the backend", by);
    else if ((when & ON_LOCK_FILE) != 0 && (wanted & ON_LOCK_DIR) != 0)
        errmsg_set(why, id == OPT_LOCK_DIR ? "--lock-file already names the lock"
                                           : "a --lock-file has no record of the lock");
    else if (chosen_by == OPT_NONE)
        errmsg_set(why, "no Redis is configured, so the lock is a file; use --redis=URL");
    else if (chosen_by != OPT_REDIS)
        errmsg_set(why, "the lock is a file (%s)", by);
    else if ((when & ON_QUORUM) != 0 && (wanted & ON_REDIS) != 0)
        errmsg_set(why, "a quorum cannot limit the number of holders: different majorities could "
                        "together admit too many; use one server");
    else
        errmsg_set(why, "the lock is in Redis (%s); use --backend=file for a file lock", by);
}

static bool means_off(const char *text)
{
    bool set = true;
    struct duration duration;
    return (flag_parse(text, &set) && !set) ||
           (duration_parse(text, &duration) == DURATION_OK && duration.ns == 0);
}

/* True if the setting requests nothing, as --wait-replicas=0 does. */
static bool is_off(enum option_id id, const char *text)
{
    const struct option_row *row = &option_rows[id];
    bool can_be = row->argument == NULL || strcmp(row->argument, "DURATION") == 0 ||
                  (row->usual != NULL && means_off(row->usual));
    return can_be && means_off(text);
}

/* True if the option can affect the action's lock. False if the action does not use the option.
 * Also false for --print-config and --current, which have no lock; for --extend and --release
 * without a name, which take the store from DLOCK_HELD; and for --slots if a later --shared or
 * --exclusive overrides it. */
static bool decides(const struct options *options, enum option_id id)
{
    bool by_held = options->name == NULL &&
                   (options->action == ACTION_EXTEND || options->action == ACTION_RELEASE);
    bool overridden = id == OPT_SLOTS && options->mode != MODE_SLOTS;
    return option_used_by(id, options->action) && options->action != ACTION_PRINT_CONFIG &&
           options->action != ACTION_CURRENT && !by_held && !overridden;
}

/* True if dlock runs under another lock. Then dlock may use that lock's store, which may be of any
 * kind. */
static bool is_under_lock(void)
{
    const char *held = getenv("DLOCK_HELD");
    return held != NULL && *held != '\0';
}

/* True, with a whole sentence in *why, if the option has no effect on the lock. */
static bool has_no_effect(const struct options *options, enum option_id id,
                          enum option_id chosen_by, unsigned when, struct errmsg *why)
{
    char where[ORIGIN_TEXT_SIZE], subject[ORIGIN_TEXT_SIZE + 16];
    const struct setting *setting = setting_in_force(&options->settings, id);
    unsigned wanted = option_rows[id].when;
    if ((wanted & MUST) == 0 && is_under_lock())
        when |= ON_SERVERS | ON_LOCK_DIR | ON_DIR | ON_TLS | ON_CERT | ON_SENTINEL | ON_NO_PASSWORD;
    if (setting == NULL || (wanted & when) != 0 || !decides(options, id) ||
        is_off(id, setting->text))
        return false;

    bool is_of_url = (wanted & (ON_TLS | ON_CERT | ON_SENTINEL | ON_NO_PASSWORD)) != 0;
    const char *text = reason(wanted == ON_CERT && options->client_cert != NULL ? ON_TLS : wanted);
    if (text != NULL && (!is_of_url || chosen_by == OPT_REDIS))
        errmsg_set(why, "%s", text);
    else
        blame_store(options, id, chosen_by, when, why);
    snprintf(subject, sizeof subject, "%s%s",
             origin_format(id, setting->origin, where, sizeof where),
             (wanted & MUST) == 0 ? " has no effect" : "");
    errmsg_prefix(why, subject);
    return true;
}

enum settings_result unused_by_lock(const struct options *options, struct errmsg *why)
{
    enum option_id chosen_by = options_store_choice(options);
    unsigned when = when_of(options, chosen_by);
    for (enum option_id id = OPT_NONE + 1; id < OPTION_COUNT; id++) {
        struct origin origin = options->origins[id];
        if ((origin.kind != ORIGIN_COMMAND_LINE && (option_rows[id].when & MUST) == 0) ||
            !has_no_effect(options, id, chosen_by, when, why))
            continue;
        hints_behind_name(options, origin, why);
        return origin_result(origin);
    }
    return SETTINGS_OK;
}

/* True if a password goes over the network unencrypted. */
static bool shows_password(const struct options *options)
{
    const struct redis_settings settings = {.password_file = options->password_file};
    struct redis_urls urls;
    struct errmsg ignored;
    enum redis_fault fault;
    bool shows = false;
    if (redis_urls_parse(&urls, options->redis, &ignored) == LOCK_OK)
        for (int i = 0; i < urls.count && !shows; i++)
            shows = !urls.list[i].tls && urls.list[i].hosts[0].path[0] == '\0' &&
                    redis_login_find(&urls.list[i], &settings, &fault, &ignored) == LOCK_OK &&
                    urls.list[i].has_password;
    redis_urls_free(&urls);
    return shows;
}

void options_unused(const struct options *options,
                    void (*visit)(enum option_id id, const char *why, bool grave, void *data),
                    void *data)
{
    struct errmsg why = {""}, text;
    enum option_id chosen_by = options_store_choice(options);
    unsigned when = when_of(options, chosen_by);
    for (enum option_id id = OPT_NONE + 1; id < OPTION_COUNT; id++) {
        if (!has_no_effect(options, id, chosen_by, when, &why))
            continue;
        bool grave =
            option_rows[id].when == ON_TLS && chosen_by == OPT_REDIS && shows_password(options);
        if (grave)
            errmsg_set(&text, "%s; the password is sent over the network in plain text", why.text);
        visit(id, grave ? text.text : why.text, grave, data);
    }
}
