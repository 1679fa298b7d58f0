/* Actions that send one request about one lock: to look at, extend, release or pause it. */
#include "actions/actions_int.h"
#include "run/outer.h"
#include "run/retry.h"
#include "ui/lock_print.h"
#include "ui/progress.h"
#include "ui/report.h"
#include "ui/run_times.h"
#include "util/clock.h"
#include "util/fileutils.h"
#include "util/json.h"
#include "util/text.h"
#include "util/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the lock and its store ---------------------------------------------- */

bool target_by_name(struct target *target, int *status)
{
    const struct options *options = target->options;
    struct lease outer = {0};
    struct errmsg why = {""};
    enum lock_result result = LOCK_GONE;
    target->out->scope = options->scope;
    if (options->action == ACTION_LIST)
        lock_key_make(target->key, options->key_start, "");
    else if (!lock_key_find(target->key, options, target->out, status))
        return false;
    target->out->key = target->key;
    if (options->action != ACTION_LIST)
        result = backend_of_held(&target->backend, &target->under, options, target->key, &outer, -1,
                                 target->out, &why);
    target->inside = result == LOCK_OK;
    if (result == LOCK_UNAVAILABLE)
        *status = fail_result(target->out, result, &why);
    return target->inside ||
           (result == LOCK_GONE && backend_choose(&target->backend, options, target->out, status));
}

struct target *target_open(bool (*find)(struct target *, int *status),
                           const struct options *options, struct messages *out, int *status)
{
    struct target *target = plan_memory(sizeof *target, out, status);
    if (target == NULL)
        return NULL;
    target->options = options;
    target->out = out;
    target->until = DEADLINE_NEVER;
    if (find(target, status))
        return target;
    target_close(target);
    return NULL;
}

void target_close(struct target *target)
{
    if (target->backend != NULL)
        target->backend->close(target->backend);
    options_under_free(&target->under);
    target->out->scope = target->out->key = NULL;
    free(target);
}

enum lock_result target_look(void *data, struct bound bound, struct errmsg *why)
{
    struct target *target = data;
    struct backend *backend = target->backend;
    bound.until = deadline_earlier(bound.until, target->until);
    enum lock_result result = backend->look(backend, target->key, &target->state, bound, why);
    if (result == LOCK_OK && !target->state.locked && backend->probe != NULL)
        result = backend->probe(backend, target->key, &target->state, why);
    return result;
}

static int failed(const struct target *target, enum lock_result result, const struct errmsg *why)
{
    int status = result == LOCK_GONE || result == LOCK_RELEASED ? 1
                 : result == LOCK_FOREIGN                       ? 2
                                                                : (int)status_of(result);
    return fail(target->out, failure_of(result), status, "%s", why->text);
}

/* Finds the lock with `find`, repeats `call` until the store answers, and prints the result with
 * `show`, which returns the exit status. */
static int act(const struct options *options, struct messages *out,
               bool (*find)(struct target *, int *status),
               enum lock_result (*call)(void *data, struct bound, struct errmsg *),
               int (*show)(const struct target *))
{
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    struct target *target = target_open(find, options, out, &status);
    if (target == NULL)
        return status;

    enum lock_result result = retry_action(call, target, options->retry_for, -1, &why);
    status = result == LOCK_OK ? show(target) : failed(target, result, &why);
    if (result == LOCK_OK)
        lock_state_free(&target->state);
    target_close(target);
    return status;
}

/* Starts a JSON object with the members that several actions print, and adds a member whose name is
 * `answer` and whose value is `value`. */
static struct json json_begin_answer(const struct target *target, const char *answer, bool value)
{
    struct json json = json_line_begin(stdout);
    json_text(&json, "key", target->out->name);
    json_text(&json, "full_key", target->key);
    json_bool(&json, answer, value);
    return json;
}

/* --- status -------------------------------------------------------------- */

enum { FREE_STATUS = 1, NEVER_RAN_STATUS = 1, NOT_WITHIN_STATUS = 1, NOT_FOUND_STATUS = 1 };

static int show_status(const struct target *target)
{
    const struct options *options = target->options;
    const struct lock_state *state = &target->state;
    if (options->json)
        lock_state_json_print(state, options->name, options->scope, target->backend->kind);
    else if (options->verbosity >= 0)
        lock_state_print(state, options->name, options->verbosity > 0);
    int status = flushed(target->out, state->locked ? STATUS_OK : FREE_STATUS);
    if (target->backend->note != NULL)
        say_warning(target->out, "%s", target->backend->note);
    return status;
}

static int status_of_one(const struct options *options, struct messages *out)
{
    return act(options, out, target_by_name, target_look, show_status);
}

/* Combines the exit statuses of two locks. A failure outweighs a free lock, because after a failure
 * dlock does not know whether all locks are held. Of several failures, the first one counts. */
static int status_of_both(int first, int second)
{
    return second == STATUS_OK || first > FREE_STATUS ? first : second;
}

int action_status(const struct options *options, struct messages *out)
{
    int status = status_of_one(options, out);
    for (char **name = options->more_names; name != NULL && *name != NULL; name++) {
        struct options *other;
        struct errmsg why = {""};
        out->name = *name;
        enum settings_result result = options_of_name(&other, options, *name, &why);
        status = status_of_both(status, result == SETTINGS_OK ? status_of_one(other, out)
                                                              : settings_refuse(out, result, &why));
        options_under_free(&other);
    }
    return status;
}

/* --- history ------------------------------------------------------------- */

static void history_json_print(const struct target *target, const struct history *history)
{
    struct json json = json_line_begin(stdout);
    json_text(&json, "key", target->options->name);
    json_text(&json, "full_key", target->key);
    json_text(&json, "backend", target->backend->kind);
    history_json(&json, history, target->options->ttl);
    json_line_end(&json);
}

static NOT_INLINED int show_history(const struct target *target)
{
    const struct options *options = target->options;
    struct history history;
    char name[LOCK_TEXT_SIZE];

    (void)setlocale(LC_CTYPE, "");
    history_read(&history, target->state.memory.history);
    if (options->json)
        history_json_print(target, &history);
    else if (options->verbosity >= 0 && history.count == 0)
        printf("%s: no run is known\n", text_escape(name, sizeof name, options->name));
    else if (options->verbosity >= 0 &&
             !history_print(stdout, &history, options->ttl, tty_line_columns(STDOUT_FILENO)))
        return fail(target->out, FAIL_SYSTEM, STATUS_SYSTEM, "out of memory");
    return flushed(target->out, history.count > 0 ? STATUS_OK : NEVER_RAN_STATUS);
}

int action_history(const struct options *options, struct messages *out)
{
    return act(options, out, target_by_name, target_look, show_history);
}

/* --- ran-within ---------------------------------------------------------- */

static int show_ran(const struct target *target)
{
    const struct options *options = target->options;
    const struct run_memory *memory = &target->state.memory;
    bool within = run_ended_within(memory, options->ran_within);
    if (options->json) {
        struct json json = json_line_begin(stdout);
        json_text(&json, "key", options->name);
        json_text(&json, "full_key", target->key);
        json_text(&json, "backend", target->backend->kind);
        json_bool(&json, "ran_within", within);
        json_seconds(&json, "within", options->ran_within.ns / NS_PER_MS);
        run_memory_json(&json, memory);
        json_line_end(&json);
    } else if (options->verbosity >= 0) {
        run_within_print(options->name, memory, within, options->ran_within);
    }
    return flushed(target->out, within ? STATUS_OK : NOT_WITHIN_STATUS);
}

int action_ran_within(const struct options *options, struct messages *out)
{
    return act(options, out, target_by_name, target_look, show_ran);
}

/* --- force-release ------------------------------------------------------- */

static enum lock_result force_release(void *data, struct bound bound, struct errmsg *why)
{
    struct target *target = data;
    return target->backend->force_release(target->backend, target->key, &target->state, bound, why);
}

static int show_forced(const struct target *target)
{
    static const struct typical unknown;
    char text[LOCK_TEXT_SIZE], name[LOCK_TEXT_SIZE];
    const struct lock_state *was = &target->state;
    if (!was->locked)
        return fail(target->out, FAIL_NOT_FOUND, NOT_FOUND_STATUS, "the lock is free");
    if (target->options->json) {
        struct json json = json_begin_answer(target, "released", true);
        lock_owners_json(&json, "was", was);
        json_line_end(&json);
    }
    for (size_t i = 0; i < was->owner_count && !target->options->json; i++)
        printf("released %s, held by %s\n", text_escape(name, sizeof name, target->options->name),
               lock_owner_format(&was->owners[i], &unknown, text));
    return flushed(target->out, STATUS_OK);
}

int action_force_release(const struct options *options, struct messages *out)
{
    return act(options, out, target_by_name, force_release, show_forced);
}

/* --- pause and resume ---------------------------------------------------- */

static enum lock_result pause_lock(void *data, struct bound bound, struct errmsg *why)
{
    struct target *target = data;
    const struct options *options = target->options;
    target->pause.left = options->pause;
    lock_forcer(target->pause.by);
    if (options->action == ACTION_PAUSE)
        text_copy(target->pause.message, sizeof target->pause.message, options->message);
    return target->backend->pause(target->backend, target->key, &target->pause, bound, why);
}

static NOT_INLINED void print_pause(const struct target *target, int64_t ends_ms)
{
    char name[LOCK_TEXT_SIZE], until[40], length[DURATION_TEXT_SIZE], why[LOCK_TEXT_SIZE];
    text_escape(name, sizeof name, target->options->name);
    wall_format_local(ends_ms, until, sizeof until);
    if (target->options->action == ACTION_RESUME)
        printf("resumed %s\n", name);
    else
        printf("paused %s until %s (%s): %s\n", name, until,
               duration_format(target->pause.left, length, sizeof length),
               text_escape(why, sizeof why, target->pause.message));
}

static int show_pause(const struct target *target)
{
    bool paused = target->options->action == ACTION_PAUSE;
    int64_t ends_ms = wall_after_ms(target->pause.left);
    if (target->options->json) {
        struct json json = json_begin_answer(target, "paused", paused);
        json_time(&json, "ends_at", paused ? ends_ms : 0);
        json_line_end(&json);
    } else if (target->options->verbosity >= 0) {
        print_pause(target, ends_ms);
    }
    if (target->backend->warning != NULL)
        say_warning(target->out, "%s", target->backend->warning);
    else if (target->backend->note != NULL)
        say_verbose(target->out, "%s", target->backend->note);
    return flushed(target->out, STATUS_OK);
}

int action_pause(const struct options *options, struct messages *out)
{
    return act(options, out, target_by_name, pause_lock, show_pause);
}

/* --- which lease --------------------------------------------------------- */

/* True if both a token and a name are given. Then the lock of that name must have that token.
 * Without a name, dlock uses the token of the lock that it finds. */
static bool names_owner(const struct target *target)
{
    return target->token[0] != '\0' && target->options->name != NULL;
}

/* Returns the innermost lock that this process runs under and that has the given name and token, or
 * NULL if there is none. If that lock was attached to a process (--attach) and has ended, looks for
 * another such lock that is attached to the same process and has not ended. If there is none,
 * returns the ended lock. A lock of another process is never returned instead, because then a
 * repeated --release would release the lock of that process. */
static const struct held *innermost(struct target *target, const struct outer_locks *list,
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

static bool open_held(struct target *target, const struct held *held, int *status)
{
    if (!names_owner(target))
        text_copy(target->take_id, sizeof target->take_id, held->take_id);
    target->options = target->under;
    text_copy(target->key, sizeof target->key, held->key);
    text_copy(target->token, sizeof target->token, held->token);
    return backend_of_kind(&target->backend, held->backend, target->under, target->out, status);
}

/* Looks for the lock among the locks that this process runs under. If a name is given, and none of
 * those locks has that name, opens the store that the options choose. */
static bool find_held(struct target *target, int *status)
{
    const struct options *options = target->options;
    struct outer_locks list;
    struct errmsg why = {""};
    enum lock_result result = LOCK_GONE;
    bool opened = false;
    bool read = outer_read(&list, options->lock_dir);
    const struct held *found = innermost(target, &list, &result, &why);

    if (!read)
        *status = fail(target->out, FAIL_SYSTEM, STATUS_SYSTEM, "out of memory");
    else if (found == NULL && options->name == NULL && result == LOCK_GONE)
        *status = fail(target->out, FAIL_NOT_FOUND, NOT_FOUND_STATUS,
                       "this process is not running under a lock; give NAME and --owner");
    else if (found == NULL && options->name == NULL)
        *status = fail_result(target->out, result, &why);
    else if (found != NULL)
        opened = open_held(target, found, status);
    else
        opened = backend_choose(&target->backend, options, target->out, status);
    outer_free(&list);
    return opened;
}

enum lock_result token_file_read(const char *path, char token[TOKEN_SIZE], struct errmsg *why)
{
    char line[TOKEN_SIZE + 2];
    struct stat status;
    struct errmsg reason = {""};
    int fd = file_open(AT_FDCWD, path, O_RDONLY, &status);
    ssize_t length = fd < 0 || !S_ISREG(status.st_mode) ? -1 : read(fd, line, sizeof line - 1);
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (fd < 0 || length < 0) {
        errmsg_set(why, "cannot read the owner file %s: %s", path,
                   fd < 0 ? strerror(error) : "not a regular file");
        return fd < 0 && error == EACCES ? LOCK_REFUSED : LOCK_INVALID;
    }
    line[length] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (!token_valid(line, &reason)) {
        errmsg_set(why, "the owner file %s has no token in its first line: %s", path, reason.text);
        return LOCK_INVALID;
    }
    snprintf(token, TOKEN_SIZE, "%.*s", TOKEN_SIZE - 1, line);
    return LOCK_OK;
}

static bool read_token(struct target *target, int *status)
{
    const struct options *options = target->options;
    struct errmsg why = {""};
    if (options->owner != NULL)
        text_copy(target->token, sizeof target->token, options->owner);
    if (options->owner_file == NULL)
        return true;
    enum lock_result result = token_file_read(options->owner_file, target->token, &why);
    if (result == LOCK_REFUSED)
        *status = fail(target->out, FAIL_NOT_PERMITTED, STATUS_NOT_PERMITTED, "%s", why.text);
    else if (result != LOCK_OK)
        *status = fail(target->out, FAIL_ARGUMENT, STATUS_USAGE, "%s", why.text);
    return result == LOCK_OK;
}

/* Finds out which lock is meant, in which store, with which token. False: the failure has been
 * reported. */
static bool find_lease(struct target *target, int *status)
{
    const struct options *options = target->options;
    struct messages *out = target->out;
    if (options->name != NULL && !lock_key_find(target->key, options, out, status))
        return false;
    if (!read_token(target, status) || !find_held(target, status))
        return false;
    if (options->name == NULL)
        out->name = lock_name_of(target->name, sizeof target->name, target->key,
                                 target->options->key_start);
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

/* Reads from the store what is not yet known about the lock: its token (unless one was given), its
 * original TTL, its fencing token, the end of its lease, and the time that is left of
 * --hold-at-least. */
static enum lock_result look_up(void *data, struct bound bound, struct errmsg *why)
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
        if (outer_is_process(&state.owners[i].holder, &self))
            text_copy(target->token, sizeof target->token, state.owners[i].token);
    const struct lock_owner *owner = lock_state_owner(&state, target->token);
    if (owner != NULL) {
        target->lease.ttl = owner->ttl.ns > 0 ? owner->ttl : target->lease.ttl;
        target->lease.fence = owner->fence;
        target->hold_left = owner->hold_left;
        if (owner->holder.expires)
            target->ended_at = deadline_after(owner->holder.left);
    }
    lock_state_free(&state);
    return LOCK_OK;
}

static bool find_owner(struct target *target, int *status)
{
    struct errmsg why = {""};
    enum lock_result result = retry_action(look_up, target, target->options->retry_for, -1, &why);
    if (result != LOCK_OK)
        *status = failed(target, result, &why);
    else if (target->token[0] == '\0' && target->unusable.text[0] != '\0')
        *status = fail_result(target->out, LOCK_INVALID, &target->unusable);
    else if (target->token[0] == '\0')
        *status = fail(target->out, FAIL_ARGUMENT, STATUS_USAGE,
                       "this process is not running under the lock; give the lock's token with "
                       "--owner or --owner-file");
    return result == LOCK_OK && target->token[0] != '\0';
}

/* --- extend -------------------------------------------------------------- */

/* Finds the lock, and the TTL that its lease gets: the --ttl of the command line or, without one,
 * the TTL with which the lock was acquired. --ttl may shorten the lease, but not to less than
 * the time that is left of --hold-at-least. */
static bool find_extension(struct target *target, int *status)
{
    char hold[DURATION_TEXT_SIZE];
    if (!find_lease(target, status) || !find_owner(target, status))
        return false;
    const struct options *options = target->options;
    bool told = options->origins[OPT_TTL].kind == ORIGIN_COMMAND_LINE;
    target->how = told ? EXTEND_EXACTLY : EXTEND_AT_LEAST;
    if (!told)
        return true;
    target->lease.ttl = options->ttl;
    if (options->ttl.ns >= target->hold_left.ns)
        return true;
    *status = fail(target->out, FAIL_ARGUMENT, STATUS_USAGE,
                   "--ttl: must be at least the time that is left of --hold-at-least, %s",
                   duration_rounded(target->hold_left, hold, sizeof hold));
    return false;
}

static enum lock_result extend(void *data, struct bound bound, struct errmsg *why)
{
    struct target *target = data;
    return target->backend->extend(target->backend, &target->lease, target->how, bound, why);
}

/* Warns if the lease now ends earlier than before. --ttl counts from now, but the user may have
 * meant an addition to the time that was left. */
static void tell_if_shorter(const struct target *target)
{
    char left[DURATION_TEXT_SIZE], cut[DURATION_TEXT_SIZE];
    struct deadline now_ends = target->lease.deadline;
    struct duration shorter = deadline_gap(now_ends, target->ended_at);
    if (shorter.ns >= NS_PER_S)
        say_warning(target->out,
                    "the lease now ends in %s, %s earlier than before: --ttl counts "
                    "from now",
                    duration_rounded(deadline_left(now_ends), left, sizeof left),
                    duration_rounded(shorter, cut, sizeof cut));
}

static int show_extended(const struct target *target)
{
    struct duration left = deadline_left(target->lease.deadline);
    if (target->options->json) {
        struct json json = json_begin_answer(target, "extended", true);
        json_text(&json, "owner", target->token);
        json_number_if(&json, "fence", target->lease.fence, target->lease.fence > 0);
        json_time(&json, "expires_at", wall_after_ms(left));
        json_seconds(&json, "ttl_remaining", left.ns / NS_PER_MS);
        json_line_end(&json);
    }
    say_verbose(target->out, "extended");
    tell_if_shorter(target);
    return flushed(target->out, STATUS_OK);
}

int action_extend(const struct options *options, struct messages *out)
{
    return act(options, out, find_extension, extend, show_extended);
}

/* --- release ------------------------------------------------------------- */

static bool find_release(struct target *target, int *status)
{
    return find_lease(target, status) && (target->token[0] != '\0' || find_owner(target, status));
}

static enum lock_result release(void *data, struct bound bound, struct errmsg *why)
{
    struct target *target = data;
    return target->backend->release(target->backend, &target->lease, bound, why);
}

static int show_released(const struct target *target)
{
    if (target->options->json) {
        struct json json = json_begin_answer(target, "released", true);
        json_text(&json, "owner", target->token);
        json_line_end(&json);
    }
    int status = flushed(target->out, STATUS_OK);
    say_verbose(target->out, "released");
    if (target->backend->warning != NULL)
        say_warning(target->out, "the run was not recorded: %s", target->backend->warning);
    if (target->backend->note != NULL)
        say_verbose(target->out, "%s", target->backend->note);
    return status;
}

int action_release(const struct options *options, struct messages *out)
{
    return act(options, out, find_release, release, show_released);
}
