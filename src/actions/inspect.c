/* Actions that look at locks: --wait-until-free, --list and --current. Actions that look at a
 * single lock once, such as --status, are in lock.c. */
#include "actions/actions_int.h"
#include "lock/history.h"
#include "process/signals.h"
#include "run/outer.h"
#include "run/retry.h"
#include "ui/lock_print.h"
#include "ui/progress.h"
#include "ui/report.h"
#include "util/clock.h"
#include "util/fileutils.h"
#include "util/json.h"
#include "util/text.h"
#include "util/thread.h"

#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NONE_STATUS = 1 };

/* --- wait-until-free ----------------------------------------------------- */

/* --wait-until-free gets no notifications, so it looks at the lock again after this time at the
 * latest. */
static const struct duration look_most = {1 * NS_PER_S};

/* Returns the first holder. If the lock has several, dlock shows only this one. */
static struct holder first_holder(const struct lock_state *state)
{
    const struct lock_owner *owner = &state->owners[0];
    struct holder holder = owner->holder;
    holder.shares = state->mode != MODE_EXCLUSIVE;
    holder.ahead = -1; /* dlock is not in the queue */
    history_typical_of(&holder.typical, state->memory.history);
    return holder;
}

/* Waits until the time `until`, and shows the wait in a line on the terminal. Catches signals
 * during that time, so that dlock erases the line before a signal ends dlock. */
static void pause_until(struct deadline until, const struct lock_state *state,
                        struct progress *view)
{
    struct holder holder = first_holder(state);
    struct signals signals = {.fd = -1};
    struct errmsg ignored = {""};
    (void)signals_open(&signals, &ignored); /* if that fails, signals end dlock at once */
    struct pollfd fd = {.fd = signals.fd, .events = POLLIN};
    while (!deadline_passed(until)) {
        struct deadline shown = progress_show(view, &holder, NULL, DEADLINE_NEVER);
        int ready = poll(&fd, 1, deadline_poll_ms(deadline_earlier(until, shown)));
        int ended_by = ready > 0 ? signals_ended_by(&signals) : 0;
        if (ended_by == 0)
            continue;
        progress_hide(view);
        exit(signals_die_by(ended_by)); /* returns only in pid 1, which the signal does not kill */
    }
    signals_restore(&signals);
    fd_close(&signals.fd);
}

/* Returns when dlock looks at the lock again: after about `interval`, or earlier if a lease of the
 * lock ends earlier. */
static struct deadline next_look(const struct lock_state *state, struct duration interval)
{
    struct deadline next = deadline_after(duration_jittered(interval));
    for (size_t i = 0; i < state->owner_count; i++)
        if (state->owners[i].holder.expires)
            next = deadline_earlier(
                next, deadline_plus(deadline_after(state->owners[i].holder.left), DURATION_MS(1)));
    return next;
}

static int still_held(const struct target *target, struct duration waited)
{
    char time[DURATION_TEXT_SIZE], who[LOCK_TEXT_SIZE];
    const struct options *options = target->options;
    bool waits = options->wait.ns > 0;
    struct typical typical;
    history_typical_of(&typical, target->state.memory.history);
    target->out->waited = waited;
    return fail(target->out, waits ? FAIL_TIMEOUT : FAIL_HELD, options->conflict_status,
                "%s%s%sheld by %s", waits ? "gave up after " : "",
                waits ? duration_rounded(waited, time, sizeof time) : "", waits ? ": " : "",
                lock_owner_format(&target->state.owners[0], &typical, who));
}

/* True if an ancestor holds the lock, so that the wait would never end. */
static bool held_by_ancestor(const struct target *target)
{
    const struct lock_state *state = &target->state;
    struct bound bound = {deadline_after(DURATION_S(1)), -1};
    struct lease outer = {0};
    struct holder self;
    holder_fill(&self, 0, "");
    for (size_t i = 0; i < state->owner_count; i++)
        if (outer_is_process(&state->owners[i].holder, &self))
            return true;
    return target->inside || outer_is_attached(target->backend, target->options->lock_dir,
                                               target->key, &outer, bound);
}

/* Reads the state of the lock. If the store does not answer, tries again until --retry-for is over
 * or the wait has ended. If the wait has less than a second left, the store still gets a full
 * second to answer, as when dlock acquires a lock. With -n, dlock tries only once, and only the
 * connection's own time limit applies. */
static enum lock_result look_within(struct target *target, struct deadline end, struct errmsg *why)
{
    const struct options *options = target->options;
    struct deadline second = deadline_after(DURATION_S(1));
    if (options->wait.ns > 0)
        target->until = deadline_before(end, second) ? second : end;
    return retry_action(target_look, target, duration_min(options->retry_for, deadline_left(end)),
                        -1, why);
}

int action_wait_until_free(const struct options *options, struct messages *out)
{
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    struct target *target = target_open(target_by_name, options, out, &status);
    if (target == NULL)
        return status;

    struct deadline start = deadline_now();
    struct deadline end =
        options->waits_forever ? DEADLINE_NEVER : deadline_plus(start, options->wait);
    struct duration interval = target->backend->poll_least;
    struct awaited_lock awaited = plan_awaited(options);
    struct progress view;
    progress_open(&view, &awaited, options->waits_forever || options->wait.ns > 0, out);

    for (bool done = false, asked = false; !done; asked = true) {
        bool last = deadline_passed(end);
        enum lock_result result = look_within(target, end, &why);
        done = result != LOCK_OK || !target->state.locked || last;
        if (done)
            progress_hide(&view);
        if (!done && !asked && held_by_ancestor(target)) {
            status = fail(out, FAIL_ARGUMENT, STATUS_USAGE,
                          "an enclosing dlock holds the lock; waiting would deadlock");
            lock_state_free(&target->state);
            break;
        }

        if (result != LOCK_OK)
            status = fail_result(out, result, &why);
        else if (!target->state.locked)
            status = STATUS_OK;
        else if (last)
            status = still_held(target, deadline_gap(start, deadline_now()));
        else
            pause_until(deadline_earlier(end, next_look(&target->state, interval)), &target->state,
                        &view);
        if (result == LOCK_OK)
            lock_state_free(&target->state);
        interval = duration_doubled(interval, look_most);
    }
    target_close(target);
    return status;
}

/* --- list ---------------------------------------------------------------- */

struct list {
    const struct target *target;
    struct table table;
    bool short_of_memory;
};

static bool list_one(void *data, const struct lock_state *state)
{
    struct list *list = data;
    const struct options *options = list->target->options;
    char name[LOCK_KEY_SIZE];
    lock_name_of(name, sizeof name, state->key, options->key_start);
    if (options->json)
        lock_state_json_print(state, name, options->scope, list->target->backend->kind);
    else
        list->short_of_memory = !list_table_add(&list->table, name, state, options->verbosity > 0);
    return !list->short_of_memory && ferror(stdout) == 0;
}

static enum lock_result list_all(void *data, struct bound bound, struct errmsg *why)
{
    struct list *list = data;
    const struct target *target = list->target;
    table_free(&list->table);
    const struct listing listing = {target->key, target->options->name, target->options->all,
                                    list_one, list};
    return target->backend->list(target->backend, &listing, bound, why);
}

/* Prints the list. If the list is empty, prints a sentence on a terminal, where a person might take
 * silence for a failure. A script gets no lines. */
static void print_list(const struct options *options, const struct table *table)
{
    int widths[TABLE_COLUMNS_MOST];
    bool terminal = isatty(STDOUT_FILENO) == 1;
    table_fit(table, terminal ? tty_line_columns(STDOUT_FILENO) : 0, 0, widths);
    table_print(stdout, table, widths);
    if (terminal && table->count == 0 && !options->json && options->verbosity >= 0)
        puts(options->name == NULL ? "no locks are held" : "no matching locks are held");
}

int action_list(const struct options *options, struct messages *out)
{
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    struct target *target = target_open(target_by_name, options, out, &status);
    if (target == NULL)
        return status;

    struct list list = {.target = target, .table = list_table(options->verbosity > 0)};
    out->name = out->key = NULL;
    (void)setlocale(LC_CTYPE, "");
    /* With --json there is only one attempt, because a second attempt could not take back what the
     * first one printed. */
    enum lock_result result = options->json
                                  ? list_all(&list, (struct bound){DEADLINE_NEVER, -1}, &why)
                                  : retry_action(list_all, &list, options->retry_for, -1, &why);
    if (result != LOCK_OK) {
        status = fail_result(out, result, &why);
    } else if (list.short_of_memory) {
        status = fail(out, FAIL_SYSTEM, STATUS_SYSTEM, "out of memory");
    } else {
        print_list(options, &list.table);
        status = flushed(out, STATUS_OK);
        if (target->backend->note != NULL)
            say_warning(out, "%s", target->backend->note);
    }
    table_free(&list.table);
    target_close(target);
    return status;
}

/* --- current ------------------------------------------------------------- */

static enum lock_result check(void *data, struct bound bound, struct errmsg *why)
{
    struct target *target = data;
    return target->backend->check(target->backend, &target->lease, bound, why);
}

static NOT_INLINED void print_current(const struct target *target)
{
    char name[LOCK_KEY_SIZE], escaped[LOCK_TEXT_SIZE], text[DURATION_TEXT_SIZE];
    const struct lease *lease = &target->lease;
    struct duration left = deadline_left(lease->deadline);
    bool ends = lease->deadline.boot_ns != 0; /* a --lock-file lease has no known end */
    lock_name_of(name, sizeof name, lease->key, target->options->key_start);
    if (!target->options->json) {
        printf("%s (%s)", text_escape(escaped, sizeof escaped, name), target->backend->kind);
        if (ends && left.ns <= 0)
            printf(", lease has ended");
        else if (ends)
            printf(", lease ends in %s", duration_rounded(left, text, sizeof text));
        putchar('\n');
        return;
    }
    struct json json = json_line_begin(stdout);
    json_text(&json, "key", name);
    json_text(&json, "full_key", lease->key);
    json_text(&json, "backend", target->backend->kind);
    json_text(&json, "owner", lease->token);
    json_text(&json, "mode", lock_mode_name(lease->mode));
    if (ends) {
        json_time(&json, "expires_at", wall_after_ms(left));
        json_seconds(&json, "ttl_remaining", left.ns / NS_PER_MS);
    } else {
        json_null(&json, "expires_at");
        json_null(&json, "ttl_remaining");
    }
    json_line_end(&json);
}

/* Prints the lock that `held` (a line of DLOCK_HELD) describes, if that lock is held. Returns
 * LOCK_OK if the lock is held, and LOCK_GONE if not. After any other result, the failure has been
 * reported, and *status is the exit status. */
static enum lock_result show_held(const struct options *options, struct messages *out,
                                  const struct held *held, int *status)
{
    struct errmsg why = {""};
    struct target *target = plan_memory(sizeof *target, out, status);
    if (target == NULL)
        return LOCK_SYSTEM;

    target->out = out;
    target->lease = (struct lease){.key = held->key,
                                   .token = held->token,
                                   .take_id = held->take_id,
                                   .outside = true,
                                   .slot = -1};
    enum lock_result result = options_of_held(&target->under, options, held, &why);
    target->options = target->under;
    bool named = result == LOCK_OK;
    bool opened =
        named && backend_of_kind(&target->backend, held->backend, target->under, out, status);
    if (opened)
        result = retry_action(check, target, options->retry_for, -1, &why);

    if (named && !opened)
        result = LOCK_INVALID; /* backend_of_kind() has reported the failure */
    else if (result == LOCK_OK)
        print_current(target);
    else if (lock_is_past(result))
        result = LOCK_GONE;
    else
        *status = fail_result(out, result, &why);
    target_close(target);
    return result;
}

int action_current(const struct options *options, struct messages *out)
{
    struct outer_locks list;
    int status = NONE_STATUS;
    enum lock_result result = LOCK_GONE;
    bool read = outer_read(&list, options->lock_dir), found = false;
    for (size_t i = 0; read && i < list.count && (result == LOCK_OK || result == LOCK_GONE); i++) {
        if (list.list[i].ended)
            continue;
        result = show_held(options, out, &list.list[i], &status);
        found = found || result == LOCK_OK;
    }
    outer_free(&list);
    if (!read)
        return fail(out, FAIL_SYSTEM, STATUS_SYSTEM, "out of memory");
    if (result != LOCK_OK && result != LOCK_GONE)
        return status;
    return flushed(out, found ? STATUS_OK : NONE_STATUS);
}
