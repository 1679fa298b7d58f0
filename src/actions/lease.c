#include "actions/actions.h"

#include "actions/open_backend.h"
#include "actions/plan.h"
#include "actions/token_file.h"
#include "config/lock_key.h"
#include "run/held_locks.h"
#include "run/nesting.h"
#include "run/wait.h"
#include "ui/lock_print.h"
#include "ui/report.h"
#include "util/clock.h"
#include "util/json.h"
#include "util/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- acquire ------------------------------------------------------------- */

/* If the token could not be printed, the lock could never be released. */
static int lease_action_hand_over(struct acquisition *lock, struct token_file *file)
{
    struct errmsg why = {""};
    if (file->path != NULL && token_file_keep(file, &why) != LOCK_OK)
        return acquisition_give_back(lock, FAIL_SYSTEM, STATUS_CANT_CREATE, why.text);
    if (lock->out->json)
        lease_json_print(&lock->lease);
    else if (file->path == NULL || lock->out->verbosity >= 0)
        puts(lock->token);
    int status = flushed(lock->out, STATUS_OK);
    if (status != STATUS_OK) {
        status = acquisition_give_back(lock, FAIL_SYSTEM, STATUS_CANT_CREATE,
                                       "the owner token could not be printed");
        if (file->path != NULL)
            (void)!unlink(file->path);
    }
    return status;
}

static int refuse_nested(const struct acquisition *lock)
{
    return fail(lock->out, FAIL_ARGUMENT, STATUS_USAGE,
                "the command that this runs in holds the lock already; %s (--extend and --release "
                "work on it)",
                lock->undone);
}

static int acquire(struct acquisition *lock, const struct options *options, struct messages *out)
{
    struct token_file file = {0};
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    if (!plan_acquisition(lock, options, out, "the lock was not acquired", NULL, 0, &status))
        return status;
    if (options->owner_file != NULL) {
        enum lock_result made = token_file_make(&file, options->owner_file, lock->token, &why);
        if (made != LOCK_OK)
            return acquisition_close(lock, fail(out, failure_of(made), (int)status_of(made),
                                                "%s; %s", why.text, lock->undone));
    }
    bool taken = plan_take(lock, options, &status);
    if (file.path != NULL && (!taken || lock->outer == OUTER_COVERS))
        token_file_drop(&file);
    if (taken)
        status =
            lock->outer == OUTER_COVERS ? refuse_nested(lock) : lease_action_hand_over(lock, &file);
    return acquisition_close(lock, status);
}

int action_acquire(const struct options *options, struct messages *out)
{
    int status = STATUS_INTERNAL;
    struct acquisition *lock = plan_memory(sizeof *lock, out, &status);
    if (lock != NULL)
        status = acquire(lock, options, out);
    free(lock);
    return status;
}

/* --- the lock of another process ----------------------------------------- */

struct target {
    const struct options *options;
    struct options *under; /* of the store of a lock that this process runs under; NULL: none */
    struct messages *out;
    struct backend *backend;
    char key[LOCK_KEY_SIZE];
    char name[LOCK_KEY_SIZE]; /* used if no name is given */
    char token[TOKEN_SIZE];   /* "": to look up in the store */
    char take_id[TOKEN_SIZE]; /* "": not known */
    struct lease lease;
    struct duration hold_left; /* of --hold-at-least */
    enum extend_how how;
    struct lock_state was;  /* before --force-release */
    struct pause pause;     /* for --pause and --resume */
    struct errmsg unusable; /* why a lock of this name around this process cannot be used */
};

/* In this store, with this key. False: reported. */
static bool target_by_name(struct target *target, const struct options *options,
                           struct messages *out, int *status)
{
    *target = (struct target){.options = options, .out = out};
    if (!lock_key_find(target->key, options, out, status))
        return false;
    struct lease outer;
    out->key = target->key;
    return backend_of_held(&target->backend, &target->under, options, target->key, &outer, -1,
                           out) ||
           backend_choose(&target->backend, options, out, status);
}

/* NULL: reported. */
static struct target *target_open(bool (*find)(struct target *, const struct options *,
                                               struct messages *, int *),
                                  const struct options *options, struct messages *out, int *status)
{
    struct target *target = plan_memory(sizeof *target, out, status);
    if (target != NULL && find(target, options, out, status))
        return target;
    free(target);
    return NULL;
}

static void target_close(struct target *target)
{
    target->backend->close(target->backend);
    options_under_free(&target->under);
    target->out->key = NULL;
    free(target);
}

/* Begins what --json prints, with the answer. */
static struct json target_json(const struct target *target, const char *answer, bool value)
{
    struct json json = json_line_begin(stdout);
    json_text(&json, "key", target->out->name);
    json_text(&json, "full_key", target->key);
    json_bool(&json, answer, value);
    return json;
}

static int target_failed(const struct target *target, enum lock_result result,
                         const struct errmsg *why)
{
    int status = result == LOCK_GONE || result == LOCK_RELEASED ? 1
                 : result == LOCK_FOREIGN                       ? 2
                                                                : (int)status_of(result);
    return fail(target->out, failure_of(result), status, "%s", why->text);
}

/* Without a name the token is that of the lock that is found. */
static bool names_owner(const struct target *target)
{
    return target->token[0] != '\0' && target->options->name != NULL;
}

/* The innermost lock, or that of the name and the token, if it is given; NULL: none. An
 * attached lock that has ended comes after the others that are attached to its process, and
 * before all that are around it: those are not meant by a second --release. */
static const struct held *innermost(struct target *target, const struct held_locks *list,
                                    enum lock_result *result, struct errmsg *why)
{
    const struct held *ended = NULL;
    for (size_t i = 0; i < list->count; i++) {
        const struct held *held = &list->list[i];
        if (names_owner(target) && strcmp(held->token, target->token) != 0)
            continue;
        if (ended != NULL && held->attached_to != ended->attached_to)
            break;
        *result = options_of_held(&target->under, target->options, held, why);
        if (*result == LOCK_OK && !held->ended)
            return held;
        options_under_free(&target->under);
        if (*result == LOCK_OK)
            ended = ended != NULL ? ended : held;
        else if (*result != LOCK_GONE && target->options->name == NULL)
            return NULL;
        else if (*result != LOCK_GONE && strcmp(held->key, target->key) == 0)
            target->unusable = *why;
    }
    if (ended != NULL)
        *result = options_of_held(&target->under, target->options, ended, why);
    return ended != NULL && *result == LOCK_OK ? ended : NULL;
}

/* The innermost lock, or that of the name, among those that this runs under. */
static bool find_held(struct target *target, int *status)
{
    const struct options *options = target->options;
    struct held_locks list;
    struct errmsg why = {""};
    enum lock_result result = LOCK_GONE;
    bool opened = false, read = held_locks_read(&list, options->lock_dir);
    const struct held *found = innermost(target, &list, &result, &why);
    if (found == NULL && options->name == NULL && result == LOCK_GONE) {
        *status = fail(target->out, FAIL_NOT_FOUND, 1,
                       "this process runs under no lock; give a name and --owner");
    } else if (found == NULL && options->name == NULL) {
        *status = fail_result(target->out, result, &why);
    } else if (!read) {
        *status = fail(target->out, FAIL_SYSTEM, STATUS_SYSTEM, "out of memory");
    } else if (found != NULL) {
        if (!names_owner(target))
            snprintf(target->take_id, sizeof target->take_id, "%s", found->take_id);
        target->options = target->under;
        snprintf(target->key, sizeof target->key, "%s", found->key);
        snprintf(target->token, sizeof target->token, "%s", found->token);
        opened =
            backend_of_kind(&target->backend, found->backend, target->under, target->out, status);
    } else {
        opened = backend_choose(&target->backend, options, target->out, status);
    }
    if (!opened)
        options_under_free(&target->under);
    held_locks_free(&list);
    return opened;
}

static bool read_token(struct target *target, int *status)
{
    const struct options *options = target->options;
    struct errmsg why = {""};
    if (options->owner_file != NULL) {
        enum lock_result result = token_file_read(options->owner_file, target->token, &why);
        if (result != LOCK_OK) {
            *status =
                fail(target->out, result == LOCK_REFUSED ? FAIL_NOT_PERMITTED : FAIL_ARGUMENT,
                     result == LOCK_REFUSED ? STATUS_NOT_PERMITTED : STATUS_USAGE, "%s", why.text);
            return false;
        }
    } else if (options->owner != NULL) {
        snprintf(target->token, sizeof target->token, "%s", options->owner);
    }
    return true;
}

/* Which lock, in which store, with which token. False: reported. */
static bool target_by_token(struct target *target, const struct options *options,
                            struct messages *out, int *status)
{
    *target = (struct target){.options = options, .out = out};
    if (options->name != NULL && !lock_key_find(target->key, options, out, status))
        return false;
    if (!read_token(target, status) || !find_held(target, status))
        return false;
    if (options->name == NULL)
        out->name =
            lock_name_of(target->name, sizeof target->name, target->key, target->options->prefix);
    out->key = target->key;
    target->lease = (struct lease){
        .name = out->name,
        .key = target->key,
        .token = target->token,
        .take_id = target->take_id,
        .outside = true,
        .slot = -1,
        .ttl = options->ttl,
        .remember = options->remember,
        .end = {options->exit_status >= 0 ? RUN_STATUS : RUN_ENDED,
                options->exit_status >= 0 ? options->exit_status : 0, wall_now_ms()},
    };
    return true;
}

/* The lock as the store knows it: its owner, unless it was given, and the TTL
 * with which it was taken. */
static enum lock_result lease_action_look(void *data, struct bound bound, struct errmsg *why)
{
    struct target *target = data;
    struct lock_state state;
    struct holder self;
    enum lock_result result =
        target->backend->look(target->backend, target->key, &state, bound, why);
    if (result != LOCK_OK)
        return result;
    holder_fill(&self, 0, "");
    for (size_t i = 0; target->token[0] == '\0' && i < state.owner_count; i++)
        if (nested_by_ancestry(&state.owners[i].holder, &self))
            snprintf(target->token, sizeof target->token, "%s", state.owners[i].token);
    const struct lock_owner *owner = lock_state_owner(&state, target->token);
    if (owner != NULL) {
        target->lease.ttl = owner->ttl.ns > 0 ? owner->ttl : target->lease.ttl;
        target->lease.fence = owner->fence;
        target->hold_left = owner->hold_left;
    }
    lock_state_free(&state);
    return LOCK_OK;
}

/* False: reported. */
static bool find_owner(struct target *target, int *status)
{
    struct errmsg why = {""};
    enum lock_result result = retry(lease_action_look, target, target->options->outage, &why);
    if (result != LOCK_OK)
        *status = target_failed(target, result, &why);
    else if (target->token[0] == '\0' && target->unusable.text[0] != '\0')
        *status = fail_result(target->out, LOCK_INVALID, &target->unusable);
    else if (target->token[0] == '\0')
        *status = fail(target->out, FAIL_ARGUMENT, STATUS_USAGE,
                       "this process does not run under that lock; give its token with --owner or "
                       "--owner-file");
    return result == LOCK_OK && target->token[0] != '\0';
}

/* --- extend -------------------------------------------------------------- */

static enum lock_result lease_action_extend(void *data, struct bound bound, struct errmsg *why)
{
    struct target *target = data;
    return target->backend->extend(target->backend, &target->lease, target->how, bound, why);
}

static void print_extended(const struct target *target)
{
    struct duration left = deadline_left(target->lease.deadline);
    struct json json = target_json(target, "extended", true);
    json_text(&json, "owner", target->token);
    json_number_if(&json, "fence", target->lease.fence, target->lease.fence > 0);
    json_time(&json, "expires_at", wall_after_ms(left));
    json_seconds(&json, "ttl_remaining", left.ns / NS_PER_MS);
    json_line_end(&json);
}

/* --hold-at-least keeps others out for that long; a lease is never shorter. */
static int refuse_shorter_than_hold(const struct target *target)
{
    char hold[DURATION_TEXT_SIZE];
    return fail(target->out, FAIL_ARGUMENT, STATUS_USAGE,
                "--ttl: it must not be shorter than what is left of --hold-at-least, %s",
                duration_rounded(target->hold_left, hold, sizeof hold));
}

/* By the --ttl of the command line, which may shorten it; otherwise by the TTL
 * with which it was taken. */
static int extend_target(struct target *target)
{
    const struct options *options = target->options;
    struct errmsg why = {""};
    bool told = options->origins[OPT_TTL].kind == ORIGIN_COMMAND_LINE;
    if (told && options->ttl.ns < target->hold_left.ns)
        return refuse_shorter_than_hold(target);
    if (told)
        target->lease.ttl = options->ttl;
    target->how = told ? EXTEND_EXACTLY : EXTEND_AT_LEAST;
    enum lock_result result = retry(lease_action_extend, target, options->outage, &why);
    if (result != LOCK_OK)
        return target_failed(target, result, &why);
    if (options->json)
        print_extended(target);
    say_verbose(target->out, "extended");
    return flushed(target->out, STATUS_OK);
}

int action_extend(const struct options *options, struct messages *out)
{
    int status = STATUS_INTERNAL;
    struct target *target = target_open(target_by_token, options, out, &status);
    if (target == NULL)
        return status;
    if (find_owner(target, &status))
        status = extend_target(target);
    target_close(target);
    return status;
}

/* --- release ------------------------------------------------------------- */

static enum lock_result lease_action_release(void *data, struct bound bound, struct errmsg *why)
{
    struct target *target = data;
    return target->backend->release(target->backend, &target->lease, bound, why);
}

static void print_released(const struct target *target)
{
    struct json json = target_json(target, "released", true);
    json_text(&json, "owner", target->token);
    json_line_end(&json);
}

int action_release(const struct options *options, struct messages *out)
{
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    struct target *target = target_open(target_by_token, options, out, &status);
    if (target == NULL)
        return status;
    if (target->token[0] != '\0' || find_owner(target, &status)) {
        enum lock_result result = retry(lease_action_release, target, options->outage, &why);
        if (result != LOCK_OK) {
            status = target_failed(target, result, &why);
        } else {
            if (options->json)
                print_released(target);
            status = flushed(out, STATUS_OK);
            say_verbose(out, "released");
            if (target->backend->warning != NULL)
                say_warning(out, "its run is not remembered: %s", target->backend->warning);
            if (target->backend->note != NULL)
                say_verbose(out, "%s", target->backend->note);
        }
    }
    target_close(target);
    return status;
}

/* --- force-release ------------------------------------------------------- */

static enum lock_result lease_action_force(void *data, struct bound bound, struct errmsg *why)
{
    struct target *target = data;
    return target->backend->force_release(target->backend, target->key, &target->was, bound, why);
}

static void print_forced(const struct target *target)
{
    char text[LOCK_TEXT_SIZE], name[LOCK_TEXT_SIZE];
    const struct lock_state *was = &target->was;
    if (!target->options->json) {
        for (size_t i = 0; i < was->owner_count; i++)
            printf("released %s, held by %s\n",
                   text_escape(name, sizeof name, target->options->name),
                   lock_owner_format(&was->owners[i], text));
        return;
    }
    struct json json = target_json(target, "released", true);
    lock_owners_json(&json, "was", was);
    json_line_end(&json);
}

int action_force_release(const struct options *options, struct messages *out)
{
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    struct target *target = target_open(target_by_name, options, out, &status);
    if (target == NULL)
        return status;
    enum lock_result result = retry(lease_action_force, target, options->outage, &why);
    if (result != LOCK_OK) {
        status = fail_result(out, result, &why);
    } else if (!target->was.locked) {
        status = fail(out, FAIL_NOT_FOUND, 1, "the lock is free");
    } else {
        print_forced(target);
        status = flushed(out, STATUS_OK);
    }
    if (result == LOCK_OK)
        lock_state_free(&target->was);
    target_close(target);
    return status;
}

/* --- pause and resume ---------------------------------------------------- */

static enum lock_result pause_lock(void *data, struct bound bound, struct errmsg *why)
{
    struct target *target = data;
    return target->backend->pause(target->backend, target->key, &target->pause, bound, why);
}

static int print_pause(const struct target *target)
{
    char until[40];
    bool paused = target->options->action == ACTION_PAUSE;
    int64_t ends_ms = wall_after_ms(target->pause.left);
    wall_format_local(ends_ms, until, sizeof until);
    if (target->options->json) {
        struct json json = target_json(target, "paused", paused);
        json_time(&json, "ends_at", paused ? ends_ms : 0);
        json_line_end(&json);
    }
    if (paused)
        say_verbose(target->out, "paused until %s", until);
    else
        say_verbose(target->out, "resumed");
    if (target->backend->warning != NULL)
        say_warning(target->out, "%s", target->backend->warning);
    else if (target->backend->note != NULL)
        say_verbose(target->out, "%s", target->backend->note);
    return flushed(target->out, STATUS_OK);
}

int action_pause(const struct options *options, struct messages *out)
{
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    struct target *target = target_open(target_by_name, options, out, &status);
    if (target == NULL)
        return status;
    target->pause.left = options->pause;
    lock_forcer(target->pause.by);
    if (options->action == ACTION_PAUSE)
        text_copy(target->pause.message, sizeof target->pause.message, options->message);
    enum lock_result result = retry(pause_lock, target, options->outage, &why);
    status = result == LOCK_OK ? print_pause(target) : target_failed(target, result, &why);
    target_close(target);
    return status;
}
