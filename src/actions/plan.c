/* Turns the options of an acquisition into what run/ needs. */
#include "actions/actions_int.h"
#include "util/clock.h"
#include "util/text.h"

#include <stdlib.h>
#include <string.h>

static const char *if_told(const struct options *options, enum option_id id, const char *value)
{
    return options->origins[id].kind == ORIGIN_COMMAND_LINE ? value : NULL;
}

void *plan_memory(size_t size, const struct messages *out, int *status)
{
    void *memory = calloc(1, size);
    if (memory == NULL)
        *status = fail(out, FAIL_SYSTEM, STATUS_SYSTEM, "out of memory; nothing was done");
    return memory;
}

struct awaited_lock plan_awaited(const struct options *options)
{
    return (struct awaited_lock){
        .name = options->name,
        .slots = options->mode == MODE_SLOTS ? options->slots : 0,
        .scope = if_told(options, OPT_SCOPE, options->scope),
        .prefix = if_told(options, OPT_PREFIX, options->prefix),
        .redis = if_told(options, OPT_REDIS, "..."), /* the URL may contain a password */
        .lock_dir = if_told(options, OPT_LOCK_DIR, options->lock_dir),
    };
}

struct expiry_plan plan_expiry(const struct options *options)
{
    return (struct expiry_plan){
        .grace = options->grace,
        .stop_signal = options->stop_signal,
        .warn_only = options->warn_on_expire,
    };
}

bool plan_acquisition(struct acquisition *lock, const struct options *options, struct messages *out,
                      const char *undone, const char *command, pid_t pid, int *status)
{
    *lock = (struct acquisition){
        .out = out,
        .undone = undone,
        .request = {.name = options->name,
                    .ttl = options->ttl,
                    .hold_at_least = options->hold_at_least,
                    .once_per = options->once_per,
                    .remember = options->remember,
                    .mode = options->mode,
                    .slots = options->mode == MODE_SLOTS ? options->slots : 0,
                    .detached = options->action == ACTION_ACQUIRE},
        .awaited = plan_awaited(options),
        .waits_forever = options->waits_forever,
        .wait = options->wait,
        .retry_for = options->retry_for,
        .conflict_status = options->conflict_status,
        .lock_dir = options->lock_dir,
        .open_fallback = options->fallback_to_file ? backend_open_fallback : NULL,
    };
    if (!lock_key_find(lock->key, options, out, status) ||
        !acquisition_open(lock, options->owner, command, pid, status))
        return false;
    if (options->message != NULL)
        text_copy(lock->request.self.message, sizeof lock->request.self.message, options->message);
    return true;
}

/* Reports which lock is requested, and which settings chose the store and the TTL. */
static void say_asked(const struct acquisition *lock, const struct options *options)
{
    enum option_id chosen_by = options_store_choice(options);
    if (lock->out->verbosity < 1) /* building the text would waste time */
        return;
    char ttl[DURATION_TEXT_SIZE], backend_from[ORIGIN_TEXT_SIZE], ttl_from[ORIGIN_TEXT_SIZE];
    say_verbose(
        lock->out, "requesting %s: %s backend (%s), TTL %s (%s)", lock->key, lock->backend->kind,
        origin_place(chosen_by, options->origins[chosen_by], backend_from, sizeof backend_from),
        duration_format(options->ttl, ttl, sizeof ttl),
        origin_place(OPT_TTL, options->origins[OPT_TTL], ttl_from, sizeof ttl_from));
}

/* If an ancestor holds the lock, sets lock->outer. The store that was opened to check this is
 * closed again. Returns false if the store did not answer: the failure has been reported, and
 * *status is the exit status. */
static bool look_for_outer(struct acquisition *lock, const struct options *options, int *status)
{
    struct options *under;
    struct backend *backend;
    struct lease outer = {0};
    struct errmsg why = {""};
    enum lock_result result = LOCK_GONE;

    if (acquisition_is_for_us(lock))
        result = backend_of_held(&backend, &under, options, lock->key, &outer, lock->cancel_fd,
                                 lock->out, &why);
    if (result == LOCK_UNAVAILABLE)
        *status =
            fail(lock->out, FAIL_UNAVAILABLE, STATUS_UNAVAILABLE, "%s; %s", why.text, lock->undone);
    if (result != LOCK_OK)
        return result != LOCK_UNAVAILABLE;
    acquisition_found_outer(lock, outer.mode, outer.slots);
    lock->kind = backend->kind;
    backend->close(backend);
    options_under_free(&under);
    return true;
}

bool plan_take(struct acquisition *lock, const struct options *options, int *status)
{
    if (!look_for_outer(lock, options, status))
        return false;
    if (lock->outer != OUTER_NONE)
        return acquisition_take(lock, status);
    if (!backend_choose(&lock->backend, options, lock->out, status))
        return false;
    lock->kind = lock->backend->kind;
    say_asked(lock, options);
    bool taken = acquisition_take(lock, status);
    if (taken && lock->outer == OUTER_NONE)
        lock->where = held_store_format(&options->settings, lock->kind, lock->backend->lock_dir);
    return taken;
}
