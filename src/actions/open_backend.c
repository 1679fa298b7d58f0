/* The key and the store of the lock that the options name. */
#include "actions/actions_int.h"
#include "redis/url.h"
#include "run/outer.h"
#include "run/retry.h"
#include "store/file/backend.h"
#include "store/quorum/backend.h"
#include "store/redis/backend.h"
#include "ui/report.h"
#include "util/fileutils.h"
#include "util/text.h"
#include "util/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the key ------------------------------------------------------------- */

/* Reads the secret from --secret-file. The caller must wipe the secret, even after a failure. */
static enum lock_result read_secret(struct secret *secret, const struct options *options,
                                    struct errmsg *why)
{
    enum { SECRET_LEAST = 16 };
    char where[ORIGIN_TEXT_SIZE];
    enum lock_result result =
        secret_read(secret, options->secret_file, why) ? LOCK_OK : secret_error_result(errno);
    if (result == LOCK_OK && secret->length < SECRET_LEAST) {
        errmsg_set(why, "%.300s: the secret has %zu bytes, but should have at least %d",
                   options->secret_file, secret->length, SECRET_LEAST);
        result = LOCK_INVALID;
    }
    if (result != LOCK_OK)
        errmsg_prefix(why, origin_format(OPT_SECRET_FILE, options->origins[OPT_SECRET_FILE], where,
                                         sizeof where));
    return result;
}

/* The secret is in memory only during this call. */
enum lock_result lock_key_of(char key[LOCK_KEY_SIZE], const struct options *options,
                             struct errmsg *why)
{
    char digest[LOCK_NAME_DIGEST_SIZE];
    struct secret secret;
    bool has_secret = options->hash == HASH_HMAC_SHA256;
    if (options->hash == HASH_NONE) {
        lock_key_make(key, options->key_start, options->name);
        return LOCK_OK;
    }

    enum lock_result result = has_secret ? read_secret(&secret, options, why) : LOCK_OK;
    if (result == LOCK_OK)
        result = lock_name_digest(digest, options->name, has_secret ? &secret : NULL, why);
    secret_wipe(&secret);
    if (result == LOCK_OK)
        lock_key_make(key, options->key_start, digest);
    return result;
}

bool lock_key_find(char key[LOCK_KEY_SIZE], const struct options *options,
                   const struct messages *out, int *status)
{
    struct errmsg why = {""};
    enum lock_result result = lock_key_of(key, options, &why);
    if (result != LOCK_OK)
        *status = fail_result(out, result, &why);
    /* Names of file locks on this host are no secret, because ps(1) shows them. */
    else if (options->hash == HASH_SHA256 && options->redis != NULL &&
             options->backend != BACKEND_FILE)
        say_verbose(out,
                    "names can be guessed from their SHA-256; use --secret-file to prevent this");
    return result == LOCK_OK;
}

/* --- the store ----------------------------------------------------------- */

/* The shortest interval between two warnings of --on-degraded=warn-throttled. */
static const struct duration throttle = {3600 * NS_PER_S};

static enum lock_result configured_wrongly(const struct options *options, enum option_id id,
                                           int *status, struct errmsg *why)
{
    char where[ORIGIN_TEXT_SIZE];
    struct origin origin = options->origins[id];
    errmsg_prefix(why, origin_format(id, origin, where, sizeof where));
    hints_behind_name(options, origin, why);
    *status = origin_result(origin) == SETTINGS_BAD_USAGE ? STATUS_USAGE : STATUS_CONFIG;
    return LOCK_INVALID;
}

/* Adds the name of the wrong setting to *why, and sets *status. If a file cannot be used, *status
 * is STATUS_CONFIG, even if the command line names the file, because the file must be repaired on
 * this host. */
static void blame(const struct options *options, enum redis_fault fault, int *status,
                  struct errmsg *why)
{
    static const enum option_id ids[] = {
        [REDIS_FAULT_NONE] = OPT_NONE,      [REDIS_FAULT_URL] = OPT_REDIS,
        [REDIS_FAULT_CACERT] = OPT_CACERT,  [REDIS_FAULT_CERT] = OPT_CLIENT_CERT,
        [REDIS_FAULT_KEY] = OPT_CLIENT_KEY,
    };
    if (ids[fault] != OPT_NONE)
        (void)configured_wrongly(options, ids[fault], status, why);
    if (fault != REDIS_FAULT_URL)
        *status = STATUS_CONFIG;
}

/* Fails because no Redis is configured. *status is STATUS_CONFIG, because the command line is
 * right, but relies on a configuration that this host lacks. */
static NOT_INLINED enum lock_result no_redis(const struct options *options, int *status,
                                             struct errmsg *why)
{
    char places[CONFIG_PLACES_SIZE];
    (void)config_places(&options->settings, OPT_REDIS, places);
    if (options->backend == BACKEND_REDIS) {
        errmsg_set(why, "Redis is requested, but no Redis is configured (%s); use --redis=URL",
                   places);
        (void)configured_wrongly(options, OPT_BACKEND, status, why);
    } else {
        errmsg_set(why,
                   "no Redis is configured (%s), and --on-degraded=fail forbids a file lock; use "
                   "--redis=URL",
                   places);
    }
    *status = STATUS_CONFIG;
    return LOCK_INVALID;
}

static enum lock_result open_redis(struct backend **backend, const struct options *options,
                                   int *status, struct errmsg *why)
{
    if (options->redis == NULL)
        return no_redis(options, status, why);
    const struct redis_settings settings = {
        .timeout = options->connect_timeout,
        .cacert = options->cacert,
        .cert = options->client_cert,
        .key = options->client_key,
        .password_file = options->password_file,
        .sentinel_password_file = options->sentinel_password_file,
        .wait_replicas = options->wait_replicas,
    };
    struct redis_urls urls;
    enum redis_fault fault = REDIS_FAULT_URL;
    enum lock_result result = redis_urls_parse(&urls, options->redis, why);
    if (result == LOCK_OK)
        result = urls.count > 1 ? quorum_backend_open(backend, &urls, &settings, &fault, why)
                                : redis_backend_open(backend, urls.list, &settings, &fault, why);
    redis_urls_free(&urls);
    *status = (int)status_of(result);
    if (result == LOCK_INVALID)
        blame(options, fault, status, why);
    return result;
}

/* Opens a store of lock files. If a Redis URL with a password is configured nevertheless, first
 * makes sure that this process leaves no core file, which would contain the password. */
static enum lock_result open_file(struct backend **backend, const struct options *options,
                                  int *status, struct errmsg *why)
{
    bool has_secret = options->redis != NULL && url_redact_has_password(options->redis);
    enum lock_result result = !has_secret || secret_leave_no_core(why) ? LOCK_OK : LOCK_SYSTEM;
    if (result == LOCK_OK)
        result = options->lock_file != NULL ? flock_backend_open(backend, options->lock_file, why)
                                            : dir_backend_open(backend, options->lock_dir, why);
    *status = (int)status_of(result);
    return result;
}

/* Warns that the store is a file because no Redis is configured. Warns even with -q, because a file
 * lock does not exclude other hosts. Warns only once, even if --status has many names. */
static void warn_degraded(const struct options *options, const struct messages *out)
{
    static bool warned;
    struct lock_dir dir;
    struct errmsg ignored;
    char places[CONFIG_PLACES_SIZE];
    if (warned)
        return;
    bool opened = lock_dir_open(&dir, options->lock_dir, &ignored) == LOCK_OK;
    bool shared = opened && lock_dir_is_shared(&dir);
    bool due =
        options->on_degraded == DEGRADED_WARN || !opened || lock_dir_stamp_due(&dir, throttle);
    lock_dir_close(&dir);

    warned = due;
    if (due)
        say_error(out,
                  "no Redis is configured (%s); this lock holds on this host%s only; use "
                  "--backend=file if this is intended",
                  config_places(&options->settings, OPT_REDIS, places),
                  shared ? "" : " and for this user");
}

/* True if dlock runs under a file lock. In that case, the outer dlock has already warned that the
 * lock is a file, or the user chose a file. */
static bool inside_file_lock(void)
{
    const char *held = getenv("DLOCK_HELD"), *backend = getenv("DLOCK_HELD_BACKEND");
    return held != NULL && *held != '\0' && backend != NULL && strcmp(backend, "file") == 0;
}

static bool opened(enum lock_result result, const struct messages *out, int status,
                   const struct errmsg *why)
{
    if (result != LOCK_OK)
        (void)fail(out, status == STATUS_USAGE ? FAIL_ARGUMENT : failure_of(result), status, "%s",
                   why->text);
    return result == LOCK_OK;
}

/* If no option chooses the store (OPT_NONE), dlock uses a file because no Redis is configured, and
 * --on-degraded applies. With --backend=file, the file was intended, and --on-degraded does not
 * apply. */
enum lock_result backend_open(struct backend **backend, const struct options *options,
                              const struct messages *out, int *status, struct errmsg *why)
{
    enum option_id chosen_by = options_store_choice(options);
    bool chosen = chosen_by != OPT_NONE;
    if (chosen_by == OPT_REDIS)
        return open_redis(backend, options, status, why);
    if (!chosen && options->on_degraded == DEGRADED_FAIL)
        return no_redis(options, status, why);

    enum lock_result result = open_file(backend, options, status, why);
    if (result == LOCK_OK && !chosen && out != NULL && options->on_degraded != DEGRADED_PROCEED &&
        !inside_file_lock())
        warn_degraded(options, out);
    return result;
}

enum lock_result backend_open_fallback(struct backend **backend, const char *lock_dir,
                                       struct errmsg *why)
{
    return dir_backend_open(backend, lock_dir, why);
}

bool backend_choose(struct backend **backend, const struct options *options,
                    const struct messages *out, int *status)
{
    struct errmsg why = {""};
    enum lock_result result = backend_open(backend, options, out, status, &why);
    return opened(result, out, *status, &why);
}

bool backend_of_kind(struct backend **backend, const char *kind, const struct options *options,
                     const struct messages *out, int *status)
{
    struct errmsg why = {""};
    enum lock_result result = LOCK_INVALID;
    if (strcmp(kind, "redis") != 0) {
        result = open_file(backend, options, status, &why);
    } else if (options->redis != NULL) {
        result = open_redis(backend, options, status, &why);
    } else {
        errmsg_set(&why,
                   "the lock is in Redis, but no Redis is configured here; repeat the --redis of "
                   "the outer dlock, or set DLOCK_REDIS for both");
        *status = STATUS_CONFIG;
    }
    return opened(result, out, *status, &why);
}

/* --- the store of a lock that this process runs under ---------------------- */

/* Returns the kind of store that the command line alone requests, or NULL if it requests none. */
static const char *kind_told(const struct options *options)
{
    bool file = options->origins[OPT_LOCK_FILE].kind == ORIGIN_COMMAND_LINE,
         redis = options->origins[OPT_REDIS].kind == ORIGIN_COMMAND_LINE,
         backend = options->origins[OPT_BACKEND].kind == ORIGIN_COMMAND_LINE;
    if (file || (backend && options->backend == BACKEND_FILE))
        return "file";
    return redis || (backend && options->backend == BACKEND_REDIS) ? "redis" : NULL;
}

enum lock_result options_of_held(struct options **under, const struct options *options,
                                 const struct held *held, struct errmsg *why)
{
    char key[LOCK_KEY_SIZE];
    const char *kind = kind_told(options);
    struct options *found = NULL;

    *under = NULL;
    if (kind != NULL && strcmp(kind, held->backend) != 0)
        return LOCK_GONE;
    enum settings_result read =
        options_under(&found, options, held->store, held->store_length, why);
    *under = found;
    if (read != SETTINGS_OK)
        return read == SETTINGS_NO_MEMORY ? LOCK_SYSTEM : LOCK_INVALID;
    if (options->name == NULL)
        return LOCK_OK;
    enum lock_result result = lock_key_of(key, found, why);
    return result == LOCK_OK && strcmp(key, held->key) != 0 ? LOCK_GONE : result;
}

/* True if `held`, a lock that dlock already runs under, may count as the requested lock, so that
 * dlock need not acquire the requested one. A file lock cannot count as a lock that should be in
 * Redis. A lock of --lock-file and a named lock cannot count as each other (see also ask_held()),
 * because with --lock-file the file itself is the lock. */
static bool may_stand_in(const struct options *options, const struct held *held)
{
    bool in_file = strcmp(held->backend, "redis") != 0;
    if (options->lock_file != NULL || options->backend == BACKEND_FILE)
        return in_file || options->lock_file == NULL;
    return !in_file || (options->backend == BACKEND_AUTO && options->redis == NULL);
}

/* False if the options name no store, or if the lock directory is missing. In the latter case, the
 * lock has ended, and dlock must not open the store, which would create the directory again. */
static bool names_store(const struct options *under, const struct held *held)
{
    if (strcmp(held->backend, "redis") == 0)
        return under->redis != NULL;
    if (under->lock_dir == NULL)
        return under->lock_file != NULL || held->store_length == 0;
    return under->lock_file != NULL || access(under->lock_dir, F_OK) == 0;
}

struct question {
    struct backend **backend;
    struct options **under;
    const struct options *options;
    const struct held *held;
    struct lease *outer;
};

static enum lock_result ask_held(void *data, struct bound bound, struct errmsg *why)
{
    const struct question *question = data;
    const struct options *options = question->options, *under;
    const struct held *held = question->held;
    struct held as_configured = *held;
    int ignored;

    as_configured.store_length = 0;
    options_under_free(question->under);
    if (!may_stand_in(options, held))
        return LOCK_GONE;
    enum lock_result result = options_of_held(
        question->under, options, options->lock_file != NULL ? &as_configured : held, why);
    under = *question->under;
    if (result != LOCK_OK)
        return result;
    if (!names_store(under, held) || (under->lock_file != NULL && options->lock_file == NULL))
        return LOCK_GONE;

    result = strcmp(held->backend, "redis") == 0
                 ? open_redis(question->backend, under, &ignored, why)
                 : open_file(question->backend, under, &ignored, why);
    if (result != LOCK_OK)
        return result;
    result = outer_check(*question->backend, held->key, held, question->outer, bound, why);
    if (result != LOCK_OK) {
        (*question->backend)->close(*question->backend);
        *question->backend = NULL;
    }
    return result;
}

enum lock_result backend_of_held(struct backend **backend, struct options **under,
                                 const struct options *options, char key[LOCK_KEY_SIZE],
                                 struct lease *outer, int cancel_fd, const struct messages *out,
                                 struct errmsg *why)
{
    static const char cannot[] = "cannot check the lock that dlock runs under";
    struct held held;
    struct question question = {backend, under, options, &held, outer};
    struct bound bound = {deadline_after(OUTER_LIMIT), cancel_fd};

    *under = NULL;
    for (const char *at = getenv("DLOCK_HELD"); at != NULL;) {
        if (!held_next(&at, &held))
            continue;
        enum lock_result result = ask_held(&question, bound, why);
        /* With --lock-file, the file itself is the lock, so dlock cannot acquire the same lock in a
         * different store by mistake, and need not wait until the store answers. */
        bool silent =
            result == LOCK_UNAVAILABLE && options->lock_file == NULL && held_added_by_ancestor(at);
        if (silent) {
            struct duration retry_for = options->retry_for;
            if (!options->waits_forever)
                retry_for = duration_min(retry_for, options->wait);
            result = retry_action(ask_held, &question, retry_for, cancel_fd, why);
        }
        if (result == LOCK_OK) {
            text_copy(key, LOCK_KEY_SIZE, held.key);
            outer->key = key;
            return LOCK_OK;
        }
        options_under_free(under);
        if (silent && result == LOCK_UNAVAILABLE) {
            errmsg_prefix(why, cannot);
            return LOCK_UNAVAILABLE;
        }
        if (result == LOCK_REFUSED || result == LOCK_INVALID)
            say_warning(out, "%s: %s", cannot, why->text);
        else if (!lock_is_past(result) && result != LOCK_CANCELLED)
            say_verbose(out, "%s: %s", cannot, why->text);
    }
    return LOCK_GONE;
}
