#include "run/command_env.h"

#include "redis/url_redact.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whole seconds where they are whole, else down to the millisecond. */
static void format_seconds(struct duration d, char *text, size_t size)
{
    int64_t ms = d.ns / NS_PER_MS;
    if (ms % 1000 == 0)
        snprintf(text, size, "%" PRId64, ms / 1000);
    else
        snprintf(text, size, "%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
}

/* The innermost lock stands last. */
static bool add_held(const struct lease *lease, const char *backend)
{
    const char *outer = getenv("DLOCK_HELD");
    if (outer == NULL)
        outer = "";
    size_t size = strlen(outer) + strlen(backend) + strlen(lease->token) + strlen(lease->take_id) + strlen(lease->key) + 5;
    char *held = malloc(size);
    if (held == NULL)
        return false;
    snprintf(held, size, "%s%s%s %s %s %s", outer, *outer != '\0' ? "\n" : "", backend, lease->token, lease->take_id,
             lease->key);
    bool set = setenv("DLOCK_HELD", held, 1) == 0;
    free(held);
    return set;
}

/* Sets DLOCK_NAME to value; and since it may be an option too, notes what it was
 * for a dlock inside the command (config/file.c). */
static bool set_option_variable(const char *name, const char *value, const char *given)
{
    char variable[64], told_name[64], *told;
    snprintf(variable, sizeof variable, "DLOCK_%s", name);
    snprintf(told_name, sizeof told_name, "DLOCK_TOLD_%s", name);
    if (asprintf(&told, "%s%s%s", value, given != NULL ? " " : "", given != NULL ? given : "") < 0)
        return false;
    bool set = setenv(variable, value, 1) == 0 && setenv(told_name, told, 1) == 0;
    free(told);
    return set;
}

/* An outer lock's slot is none of this one. */
static bool set_slot(int slot)
{
    char text[16];
    snprintf(text, sizeof text, "%d", slot);
    return slot >= 0 ? setenv("DLOCK_SLOT", text, 1) == 0 : unsetenv("DLOCK_SLOT") == 0;
}

static bool set_without_password(const char *variable, const char *url)
{
    char *copy = strdup(url);
    if (copy == NULL)
        return false;
    url_cut_passwords(copy);
    bool set = setenv(variable, copy, 1) == 0;
    free(copy); /* the password is not in it any more */
    return set;
}

/* What the command line or a [lock GLOB] section said of the store does not
 * reach the command otherwise. */
static bool set_place(const char *backend, const struct options *options)
{
    static const char variable[] = "DLOCK_HELD_AT";
    char directory[PATH_MAX];
    const char *place = NULL;
    if (strcmp(backend, "redis") == 0)
        return set_without_password(variable, options->redis);
    if (options->lock_file == NULL && options->lock_dir != NULL)
        place = realpath(options->lock_dir, directory);
    return place != NULL ? setenv(variable, place, 1) == 0 : unsetenv(variable) == 0;
}

/* These go with the URL: the command may be in another directory. */
static bool set_file(const char *variable, const char *path)
{
    char whole[PATH_MAX];
    const char *found = path != NULL ? realpath(path, whole) : NULL;
    return found != NULL ? setenv(variable, found, 1) == 0 : unsetenv(variable) == 0;
}

static bool set_files(const char *backend, const struct options *options)
{
    bool redis = strcmp(backend, "redis") == 0;
    return set_file("DLOCK_HELD_CACERT", redis ? options->cacert : NULL) && set_file("DLOCK_HELD_CERT", redis ? options->cert : NULL) &&
           set_file("DLOCK_HELD_KEY", redis ? options->key : NULL) &&
           set_file("DLOCK_HELD_PASSWORD_FILE", redis ? options->password_file : NULL) &&
           set_file("DLOCK_HELD_SENTINEL_PASSWORD_FILE", redis ? options->sentinel_password_file : NULL);
}

bool command_env_set(const struct lease *lease, const char *backend, const struct options *options)
{
    const struct settings *settings = &options->settings;
    char fence[24], ttl[32], expires[32];
    snprintf(fence, sizeof fence, "%" PRId64, lease->fence);
    format_seconds(lease->ttl, ttl, sizeof ttl);
    wall_format(wall_now_ms() + deadline_left(lease->deadline).ns / NS_PER_MS, expires, sizeof expires);
    return setenv("DLOCK_NAME", lease->name, 1) == 0 &&
           set_option_variable("KEY", lease->key, settings_from_environment(settings, OPT_KEY)) &&
           set_option_variable("OWNER", lease->token, settings_from_environment(settings, OPT_OWNER)) &&
           setenv("DLOCK_FENCE", fence, 1) == 0 &&
           set_option_variable("TTL", ttl, settings_from_environment(settings, OPT_TTL)) &&
           setenv("DLOCK_EXPIRES_AT", expires, 1) == 0 &&
           set_option_variable("BACKEND", backend, settings_from_environment(settings, OPT_BACKEND)) &&
           set_place(backend, options) && set_files(backend, options) &&
           set_slot(lease->slot) && add_held(lease, backend);
}
