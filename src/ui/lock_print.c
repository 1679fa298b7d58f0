#include "ui/lock_print.h"

#include "lock/fields.h"
#include "ui/run_times.h"
#include "ui/wait_text.h"
#include "util/clock.h"
#include "util/text.h"
#include "util/thread.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *lock_name_of(char *text, size_t size, const char *key, const char *prefix)
{
    size_t length = strlen(prefix);
    bool ours = strncmp(key, prefix, length) == 0 && key[length] != '\0';
    const char *name = ours ? key + length : key;
    const char *outer_key = getenv("DLOCK_HELD_KEY");
    const char *outer_name = getenv("DLOCK_NAME");

    /* If this process runs under the lock, it knows the lock's name, even if the key contains only
     * a digest of the name. */
    if (ours && lock_name_is_digest(name) && outer_key != NULL && strcmp(outer_key, key) == 0 &&
        outer_name != NULL)
        name = outer_name;
    return text_copy(text, size, name);
}

/* --- runs, for people ------------------------------------------------------ */

enum { TIME_SIZE = 40, SPAN_SIZE = 4 * TIME_SIZE };

static const char *end_of_run(const struct run_end *end, char text[TIME_SIZE])
{
    char name[32];
    switch (end->how) {
    case RUN_STATUS: snprintf(text, TIME_SIZE, "exit status %d", end->code); return text;
    case RUN_SIGNAL:
        snprintf(text, TIME_SIZE, "killed by %s", signame_format(end->code, name, sizeof name));
        return text;
    case RUN_STOPPED: return "stopped: its lease ended, or the lock was lost";
    case RUN_ENDED: return "exit status not known";
    case RUN_LOST: return end->ended_ms > 0 ? "lost its lock" : "its end was never recorded";
    case RUN_NONE: break;
    }
    return "";
}

/* "today 03:00:02 +0100 to 03:14:11 +0100 (14m9s)". The length is left out if the clock was set
 * back meanwhile. */
static char *span_format(const struct run_record *run, char text[SPAN_SIZE])
{
    char began[TIME_SIZE], ended[TIME_SIZE], length[DURATION_TEXT_SIZE];
    int64_t ms = run->end.ended_ms - run->began_ms;
    wall_format_day(run->began_ms, wall_now_ms(), began, sizeof began);
    wall_format_day(run->end.ended_ms, run->began_ms, ended, sizeof ended);
    const char *until = strncmp(ended, "today ", 6) == 0 ? ended + 6 : ended;

    if (run->end.ended_ms <= 0)
        text_copy(text, SPAN_SIZE, began);
    else if (ms < 0)
        snprintf(text, SPAN_SIZE, "%s to %s", began, until);
    else
        snprintf(text, SPAN_SIZE, "%s to %s (%s)", began, until,
                 duration_rounded(DURATION_MS(ms), length, sizeof length));
    return text;
}

/* "web3, today 03:00:02 +0100 to 03:14:11 +0100 (14m9s), exit status 0" */
static char *run_format(const struct run_record *run, char text[LOCK_TEXT_SIZE])
{
    char raw[LOCK_TEXT_SIZE / 2], span[SPAN_SIZE], end[TIME_SIZE];
    snprintf(raw, sizeof raw, "%s, %s, %s", run->host, span_format(run, span),
             end_of_run(&run->end, end));
    return text_escape(text, LOCK_TEXT_SIZE, raw);
}

/* Prints two lines about past runs, or nothing if no run is known. */
static void print_runs(const struct run_memory *memory)
{
    char text[LOCK_TEXT_SIZE], span[SPAN_SIZE];
    const struct run_record *success = &memory->success;
    if (memory->last.end.how == RUN_NONE)
        return;

    printf("  last run: %s\n", run_format(&memory->last, text));
    if (success->end.how != RUN_NONE)
        printf("  last success: %s, %s", text_escape(text, sizeof text, success->host),
               span_format(success, span));
    else
        printf("  last success: none known");
    if (memory->runs > 0 || memory->skipped > 0)
        printf("; %s%" PRId64 " run%s, %" PRId64 " skipped",
               success->end.how != RUN_NONE ? "since then " : "", memory->runs,
               memory->runs == 1 ? "" : "s", memory->skipped);
    if (memory->failures > 0)
        printf(", %" PRId64 " failed in a row", memory->failures);
    putchar('\n');
}

void run_within_print(const char *name, const struct run_memory *memory, bool within,
                      struct duration limit)
{
    char text[LOCK_TEXT_SIZE], when[TIME_SIZE], time[DURATION_TEXT_SIZE];
    const struct run_record *success = &memory->success;
    int64_t ago = wall_now_ms() - success->end.ended_ms;

    printf("%s: ", text_escape(text, sizeof text, name));
    if (!within)
        printf("no success within %s: ", duration_format(limit, time, sizeof time));
    if (success->end.how == RUN_NONE) {
        printf("no %s is known\n", memory->last.end.how == RUN_NONE ? "run" : "success");
        return;
    }
    wall_format_day(success->end.ended_ms, wall_now_ms(), when, sizeof when);
    printf("the last success ended %s on %s", when, text_escape(text, sizeof text, success->host));
    if (ago >= 0)
        printf(", %s ago", duration_rounded(DURATION_MS(ago), time, sizeof time));
    putchar('\n');
}

/* --- a lock, for people ---------------------------------------------------- */

static const char *life_text(const struct holder *holder)
{
    enum process_life life = holder_life(holder);
    return life == PROCESS_LIVES && !holder->detached ? "; running"
                                                      : holder_life_text(holder, life);
}

static const char *end_of_lease(const struct lock_owner *owner, char *text, size_t size)
{
    char left[DURATION_TEXT_SIZE], hold[DURATION_TEXT_SIZE];
    duration_rounded(owner->holder.left, left, sizeof left);
    duration_rounded(owner->hold_left, hold, sizeof hold);
    if (owner->holder.kept)
        snprintf(text, size, ", released, but kept for another %s (--hold-at-least)", left);
    else if (owner->holder.expires && owner->hold_left.ns > 0)
        snprintf(text, size, ", lease ends in %s, held for at least %s more", left, hold);
    else if (owner->holder.expires)
        snprintf(text, size, ", lease ends in %s", left);
    else
        snprintf(text, size, ", with no time limit");
    return text;
}

const char *lock_owner_format(const struct lock_owner *owner, const struct typical *typical,
                              char text[LOCK_TEXT_SIZE])
{
    const struct holder *holder = &owner->holder;
    const struct estimate estimate = holder_estimate(holder, typical);
    char raw[LOCK_TEXT_SIZE / 2], who[HOLDER_TEXT_SIZE], since[HOLDER_TEXT_SIZE], end[160],
        usual[RUN_TIMES_SIZE], slot[24] = "";
    end_of_lease(owner, end, sizeof end);
    estimate_format(&estimate, typical, 0, usual);
    if (owner->slot >= 0)
        snprintf(slot, sizeof slot, ", slot %d", owner->slot);
    if (holder->known)
        snprintf(raw, sizeof raw, "%s%s%s%s%s%s%s%s", holder_format(holder, life_text(holder), who),
                 holder_since_format(holder, since), slot, end, usual[0] != '\0' ? "; " : "", usual,
                 holder->message[0] != '\0' ? "; message: " : "", holder->message);
    else
        snprintf(raw, sizeof raw, "another client%s", end);
    return text_escape(text, LOCK_TEXT_SIZE, raw);
}

static void print_headline(const struct lock_state *state, const char *name)
{
    char text[LOCK_TEXT_SIZE], released[TIME_SIZE];
    printf("%s: ", text_escape(text, sizeof text, name));
    if (state->locked && state->mode == MODE_SLOTS) {
        printf("held, %zu of %d slots\n", state->owner_count, state->slots);
    } else if (state->locked && state->mode == MODE_SHARED) {
        printf("held, shared by %zu\n", state->owner_count);
    } else if (state->locked) {
        puts("held, exclusive");
    } else if (state->released_wall_ms > 0) {
        wall_format_local(state->released_wall_ms, released, sizeof released);
        printf("free, last released %s\n", released);
    } else {
        puts("free");
    }
}

static void print_owner(const struct lock_owner *owner, const struct typical *typical,
                        bool with_token)
{
    char text[LOCK_TEXT_SIZE];
    with_token = with_token && owner->token[0] != '\0';
    printf("  by %s\n", lock_owner_format(owner, typical, text));
    if (with_token)
        printf("  owner %s", text_escape(text, sizeof text, owner->token));
    if (owner->fence > 0)
        printf("%s fence %" PRId64, with_token ? "," : " ", owner->fence);
    if (with_token || owner->fence > 0)
        putchar('\n');
}

static void print_waiter(const struct lock_waiter *waiter, size_t place)
{
    char raw[HOLDER_TEXT_SIZE], text[LOCK_TEXT_SIZE], since[TIME_SIZE] = "", pid[32] = "";
    if (waiter->since_wall_ms > 0)
        wall_format_local(waiter->since_wall_ms, since, sizeof since);
    if (waiter->pid > 0)
        snprintf(pid, sizeof pid, " (pid %ld)", (long)waiter->pid);
    snprintf(raw, sizeof raw, "%s%s%s%s%s%s, %s%s%s", waiter->user,
             waiter->user[0] != '\0' ? "@" : "", waiter->host, pid,
             since[0] != '\0' ? " since " : "", since, lock_mode_name(waiter->mode),
             waiter->message[0] != '\0' ? "; message: " : "", waiter->message);
    printf("  %zu. %s\n", place, text_escape(text, sizeof text, raw));
}

static void print_counts(const struct lock_counts *counts)
{
    char waited[DURATION_TEXT_SIZE], held[DURATION_TEXT_SIZE];
    if (counts->takes == 0 && counts->conflicts == 0 && counts->timeouts == 0)
        return;
    duration_rounded(DURATION_MS(counts->waited_ms), waited, sizeof waited);
    duration_rounded(DURATION_MS(counts->held_ms), held, sizeof held);
    printf("  acquired %" PRId64 ", conflicts %" PRId64 ", timeouts %" PRId64 ", lost %" PRId64
           "; waited %s, held %s in total\n",
           counts->takes, counts->conflicts, counts->timeouts, counts->losses, waited, held);
}

void lock_state_print(const struct lock_state *state, const char *name, bool with_tokens)
{
    char text[LOCK_TEXT_SIZE], paused[HOLDER_TEXT_SIZE];
    struct typical typical;
    history_typical_of(&typical, state->memory.history);
    print_headline(state, name);
    for (size_t i = 0; i < state->owner_count; i++)
        print_owner(&state->owners[i], &typical, with_tokens);
    if (state->pause.left.ns > 0)
        printf("  %s\n", text_escape(text, sizeof text, pause_format(&state->pause, paused)));
    if (state->waiters > 0)
        printf("  %d waiting\n", state->waiters);
    for (size_t i = 0; with_tokens && i < state->queue_count; i++)
        print_waiter(&state->queue[i], i + 1);
    print_counts(&state->counts);
    print_runs(&state->memory);
}

/* --- for programs ---------------------------------------------------------- */

static void owner_members(struct json *json, const struct lock_owner *owner,
                          const struct typical *typical)
{
    const struct holder *holder = &owner->holder;
    enum process_life life = holder_life(holder);
    json_text(json, "owner", owner->token);
    fields_json(&holder_fields, holder, json);
    fields_json(&owner_fields, owner, json);
    if (holder->expires) {
        json_time(json, "expires_at", wall_after_ms(holder->left));
        json_seconds(json, "ttl_remaining", holder->left.ns / NS_PER_MS);
    } else {
        json_null(json, "expires_at");
        json_null(json, "ttl_remaining");
    }
    json_time(json, "expected_end", holder_estimate(holder, typical).end_ms);
    json_seconds(json, "hold_remaining", owner->hold_left.ns / NS_PER_MS);
    if (holder->detached || life <= PROCESS_HIDDEN)
        json_null(json, "alive");
    else
        json_bool(json, "alive", life == PROCESS_LIVES);
}

void lock_owners_json(struct json *json, const char *name, const struct lock_state *state)
{
    struct typical typical;
    history_typical_of(&typical, state->memory.history);
    json_begin(json, name, '[');
    for (size_t i = 0; i < state->owner_count; i++) {
        json_begin(json, NULL, '{');
        owner_members(json, &state->owners[i], &typical);
        json_end(json, '}');
    }
    json_end(json, ']');
}

static void queue_json(struct json *json, const struct lock_state *state)
{
    json_number_if(json, "waiters", state->waiters, state->waiters >= 0);
    if (state->waiters < 0) {
        json_null(json, "queue");
        return;
    }
    json_begin(json, "queue", '[');
    for (size_t i = 0; i < state->queue_count; i++) {
        json_begin(json, NULL, '{');
        fields_json(&waiter_fields, &state->queue[i], json);
        json_end(json, '}');
    }
    json_end(json, ']');
}

/* Prints the member "typical", and "expected_wait": how long a process that joined the queue now
 * would probably wait. */
static void wait_json(struct json *json, const struct lock_state *state,
                      const struct typical *typical)
{
    struct estimate estimate = {.wait_ms = -1};
    if (state->owner_count == 1 && state->mode == MODE_EXCLUSIVE && state->pause.left.ns == 0) {
        struct holder holder = state->owners[0].holder;
        holder.ahead = state->waiters;
        estimate = holder_estimate(&holder, typical);
    }
    typical_json(json, typical);
    json_seconds_if(json, "expected_wait", estimate.wait_ms, estimate.wait_ms >= 0);
}

static void pause_json(struct json *json, const struct pause *pause)
{
    if (pause->left.ns < NS_PER_MS) {
        json_null(json, "paused");
        return;
    }
    json_begin(json, "paused", '{');
    fields_json(&pause_fields, pause, json);
    json_time(json, "ends_at", wall_after_ms(pause->left));
    json_end(json, '}');
}

static void run_json(struct json *json, const char *name, const struct run_record *run)
{
    int64_t ms = run->end.ended_ms - run->began_ms;
    if (run->end.how == RUN_NONE) {
        json_null(json, name);
        return;
    }
    json_begin(json, name, '{');
    fields_json(&run_fields, run, json);
    if (run->end.ended_ms > 0 && ms >= 0)
        json_seconds(json, "duration", ms);
    else
        json_null(json, "duration");
    json_end(json, '}');
}

void run_memory_json(struct json *json, const struct run_memory *memory)
{
    run_json(json, "last_run", &memory->last);
    run_json(json, "last_success", &memory->success);
    fields_json(&memory_fields, memory, json);
}

/* The details of the only holder of an exclusive lock also appear at the top level of the JSON
 * object. */
void lock_state_json_print(const struct lock_state *state, const char *name, const char *scope,
                           const char *backend)
{
    static const struct lock_owner nobody = {.slot = -1};
    bool has_one = state->owner_count == 1 && state->mode == MODE_EXCLUSIVE;
    struct typical typical;
    struct json json = json_line_begin(stdout);
    json_text(&json, "key", name);
    json_text(&json, "scope", scope);
    json_text(&json, "full_key", state->key);
    json_text(&json, "backend", backend);
    if (state->newer > 0)
        json_null(&json, "locked");
    else
        json_bool(&json, "locked", state->locked);
    json_text(&json, "mode", state->locked ? lock_mode_name(state->mode) : "");
    json_number_if(&json, "slots", state->slots, state->mode == MODE_SLOTS);
    history_typical_of(&typical, state->memory.history);
    owner_members(&json, has_one ? &state->owners[0] : &nobody, &typical);
    lock_owners_json(&json, "holders", state);
    pause_json(&json, &state->pause);
    queue_json(&json, state);
    wait_json(&json, state, &typical);
    json_number_if(&json, "last_fence", state->last_fence, state->last_fence > 0);
    json_text(&json, "last_owner", state->last_owner);
    json_time(&json, "released_at", state->released_wall_ms);
    json_begin(&json, "counts", '{');
    fields_json(&counts_fields, &state->counts, &json);
    json_end(&json, '}');
    run_memory_json(&json, &state->memory);
    if (state->newer > 0)
        json_number(&json, "newer_format", state->newer);
    json_line_end(&json);
}

void lease_json_print(const struct lease *lease, const char *scope)
{
    struct json json = json_line_begin(stdout);
    json_text(&json, "key", lease->name);
    json_text(&json, "scope", scope);
    json_text(&json, "full_key", lease->key);
    json_bool(&json, "acquired", true);
    json_text(&json, "owner", lease->token);
    json_number_if(&json, "fence", lease->fence, lease->fence != 0);
    json_time(&json, "acquired_at", wall_at_ms(lease->taken));
    json_time(&json, "expires_at", wall_at_ms(lease->deadline));
    json_text(&json, "mode", lock_mode_name(lease->mode));
    if (lease->slot >= 0)
        json_number(&json, "slot", lease->slot);
    json_line_end(&json);
}

/* --- a table --------------------------------------------------------------- */

static NOT_INLINED bool add_name(struct table *table, const char *name)
{
    char text[4 * LOCK_KEY_SIZE];
    return table_add(table, text_escape(text, sizeof text, name));
}

/* The text of the HOLDER column, such as "ann@host (pid 12, backup)". */
static NOT_INLINED char *holder_cell(const struct lock_state *state, char text[LOCK_TEXT_SIZE])
{
    const struct holder *holder = state->owner_count > 0 ? &state->owners[0].holder : NULL;
    char raw[LOCK_TEXT_SIZE], who[HOLDER_TEXT_SIZE], count[48] = "";

    if (state->newer > 0) {
        snprintf(text, LOCK_TEXT_SIZE, "format %" PRId64 ", written by a newer dlock",
                 state->newer);
        return text;
    }
    if (state->pause.left.ns > 0)
        return text_escape(text, LOCK_TEXT_SIZE, pause_format(&state->pause, who));
    if (holder == NULL) {
        snprintf(text, LOCK_TEXT_SIZE, "last run: %s", run_format(&state->memory.last, raw));
        return text;
    }

    if (state->owner_count > 1)
        snprintf(count, sizeof count, "%zu holders%s", state->owner_count,
                 holder->known ? ", one is " : "");
    if (state->owner_count > 1 && !holder->known)
        return text_copy(text, LOCK_TEXT_SIZE, count);
    snprintf(raw, sizeof raw, "%s%s%s%s", count, holder_format(holder, "", who),
             holder->message[0] != '\0' ? "; message: " : "", holder->message);
    return text_escape(text, LOCK_TEXT_SIZE, raw);
}

struct table list_table(bool usual)
{
    enum { NAME_LEAST = 16 };
    struct table table = {.titles = {"NAME", "ENDS IN", "MODE"}, .least = NAME_LEAST};
    table.titles[3] = usual ? "USUALLY" : "HOLDER";
    table.titles[4] = usual ? "HOLDER" : NULL;
    return table;
}

bool list_table_add(struct table *table, const char *name, const struct lock_state *state,
                    bool usual)
{
    char holder[LOCK_TEXT_SIZE], slots[32];
    char left[DURATION_TEXT_SIZE] = "-", took[DURATION_TEXT_SIZE] = "-";
    const char *mode = lock_mode_name(state->mode);
    struct typical typical;

    if (state->locked && state->owners[0].holder.expires)
        duration_rounded(state->owners[0].holder.left, left, sizeof left);
    if (!state->locked)
        mode = state->newer > 0 ? "-" : "free";
    snprintf(slots, sizeof slots, "slots %zu/%d", state->owner_count, state->slots);
    if (state->locked && state->mode == MODE_SLOTS)
        mode = slots;
    history_typical_of(&typical, state->memory.history);
    if (typical.runs > 0)
        duration_about(DURATION_MS(typical.median_ms), took, sizeof took);

    return add_name(table, name) && table_add(table, left) && table_add(table, mode) &&
           (!usual || table_add(table, took)) && table_add(table, holder_cell(state, holder));
}
