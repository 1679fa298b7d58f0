#include "ui/lock_print.h"

#include "ui/holder_text.h"
#include "ui/run_print.h"
#include "util/duration.h"
#include "util/json.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name of the lock that this runs under, if its key contains only a digest;
 * NULL: it is another one. */
static const char *hashed_name(const char *key, const char *rest)
{
    const char *outer_key = getenv("DLOCK_LOCK_KEY");
    bool is_outer = lock_name_is_digest(rest) && outer_key != NULL && strcmp(outer_key, key) == 0;
    return is_outer ? getenv("DLOCK_NAME") : NULL;
}

const char *lock_name_of(char *text, size_t size, const char *key, const char *prefix)
{
    size_t length = strlen(prefix);
    bool ours = strncmp(key, prefix, length) == 0 && key[length] != '\0';
    const char *name = ours ? hashed_name(key, key + length) : NULL;
    return text_copy(text, size, name != NULL ? name : ours ? key + length : key);
}

/* --- for people ---------------------------------------------------------- */

static const char *life_text(const struct lock_owner *owner)
{
    enum process_life life = holder_life(&owner->holder);
    if (owner->holder.detached)
        return " (acquired, not bound to a process)";
    return life == PROCESS_LIVES ? " (running)" : holder_life_text(life);
}

static const char *lock_print_end_text(const struct lock_owner *owner, char *text, size_t size)
{
    char left[DURATION_TEXT_SIZE], hold[DURATION_TEXT_SIZE];
    duration_rounded(owner->holder.left, left, sizeof left);
    duration_rounded(owner->hold_left, hold, sizeof hold);
    if (owner->holder.kept)
        snprintf(text, size, ", released and kept for another %s (--hold-at-least)", left);
    else if (owner->holder.expires && owner->hold_left.ns > 0)
        snprintf(text, size, ", lease ends in %s, kept for %s at least", left, hold);
    else if (owner->holder.expires)
        snprintf(text, size, ", lease ends in %s", left);
    else
        snprintf(text, size, ", without an end");
    return text;
}

const char *lock_owner_format(const struct lock_owner *owner, char text[LOCK_TEXT_SIZE])
{
    const struct holder *holder = &owner->holder;
    char raw[LOCK_TEXT_SIZE / 2], who[HOLDER_TEXT_SIZE], since[HOLDER_TEXT_SIZE], end[160],
        slot[24] = "";
    if (owner->slot >= 0)
        snprintf(slot, sizeof slot, ", slot %d", owner->slot);
    if (holder->known)
        snprintf(raw, sizeof raw, "%s%s%s%s%s%s", holder_format(holder, life_text(owner), who),
                 slot, holder_since_format(holder, since),
                 lock_print_end_text(owner, end, sizeof end),
                 holder->message[0] != '\0' ? ": " : "", holder->message);
    else
        snprintf(raw, sizeof raw, "another client%s", lock_print_end_text(owner, end, sizeof end));
    return text_escape(text, LOCK_TEXT_SIZE, raw);
}

static const char *mode_text(const struct lock_state *state, char *text, size_t size)
{
    if (state->mode == MODE_SLOTS)
        snprintf(text, size, "%zu of %d slots", state->owner_count, state->slots);
    else if (state->mode == MODE_SHARED)
        snprintf(text, size, "shared by %zu", state->owner_count);
    else
        snprintf(text, size, "exclusive");
    return text;
}

static void print_counts(const struct lock_state *state)
{
    const struct lock_counts *counts = &state->counts;
    char waited[DURATION_TEXT_SIZE], held[DURATION_TEXT_SIZE];
    duration_rounded((struct duration){counts->waited_ms * NS_PER_MS}, waited, sizeof waited);
    duration_rounded((struct duration){counts->held_ms * NS_PER_MS}, held, sizeof held);
    printf("  taken %" PRId64 ", conflicts %" PRId64 ", timeouts %" PRId64 ", lost %" PRId64
           "; waited %s, held %s in all\n",
           counts->takes, counts->conflicts, counts->timeouts, counts->losses, waited, held);
}

static void print_waiter(const struct lock_waiter *waiter, size_t place)
{
    char raw[HOLDER_TEXT_SIZE], text[LOCK_TEXT_SIZE], since[40] = "", pid[32] = "";
    if (waiter->since_wall_ms > 0)
        wall_format_local(waiter->since_wall_ms, since, sizeof since);
    if (waiter->pid > 0)
        snprintf(pid, sizeof pid, ", pid %ld", (long)waiter->pid);
    snprintf(raw, sizeof raw, "%s%s%s%s, %s%s%s%s%s", waiter->user,
             waiter->user[0] != '\0' ? "@" : "", waiter->host, pid, lock_mode_name(waiter->mode),
             since[0] != '\0' ? ", since " : "", since, waiter->message[0] != '\0' ? ": " : "",
             waiter->message);
    printf("  %zu. %s\n", place, text_escape(text, sizeof text, raw));
}

void lock_state_print(const struct lock_state *state, const char *name, bool with_tokens)
{
    char text[LOCK_TEXT_SIZE], mode[64], released[40], paused[HOLDER_TEXT_SIZE];
    text_escape(text, sizeof text, name);
    if (!state->locked) {
        wall_format_local(state->released_wall_ms, released, sizeof released);
        printf("%s: free%s%s\n", text, state->released_wall_ms > 0 ? ", released " : "",
               state->released_wall_ms > 0 ? released : "");
    } else {
        printf("%s: held, %s\n", text, mode_text(state, mode, sizeof mode));
    }
    for (size_t i = 0; i < state->owner_count; i++) {
        const struct lock_owner *owner = &state->owners[i];
        printf("  by %s\n", lock_owner_format(owner, text));
        bool with_token = with_tokens && owner->token[0] != '\0';
        if (with_token)
            printf("  owner %s", text_escape(text, sizeof text, owner->token));
        if (owner->fence > 0)
            printf("%s fence %" PRId64, with_token ? "," : " ", owner->fence);
        if (with_token || owner->fence > 0)
            putchar('\n');
    }
    if (state->pause.left.ns > 0)
        printf("  %s\n", text_escape(text, sizeof text, pause_format(&state->pause, paused)));
    if (state->waiters > 0)
        printf("  %d waiting\n", state->waiters);
    for (size_t i = 0; with_tokens && i < state->queue_count; i++)
        print_waiter(&state->queue[i], i + 1);
    if (state->counts.takes > 0 || state->counts.conflicts > 0 || state->counts.timeouts > 0)
        print_counts(state);
    run_memory_print(&state->memory);
}

/* --- for programs -------------------------------------------------------- */

static void owner_members(struct json *json, const struct lock_owner *owner)
{
    const struct holder *holder = &owner->holder;
    enum process_life life = holder_life(holder);
    int64_t left = holder->left.ns / NS_PER_MS;
    json_text(json, "owner", owner->token);
    json_time(json, "acquired_at", holder->since_wall_ms);
    if (holder->expires) {
        json_time(json, "expires_at", wall_after_ms(holder->left));
        json_seconds(json, "ttl_remaining", left);
    } else {
        json_null(json, "expires_at");
        json_null(json, "ttl_remaining");
    }
    json_seconds(json, "hold_remaining", owner->hold_left.ns / NS_PER_MS);
    json_bool(json, "released", owner->holder.kept);
    json_bool(json, "detached", owner->holder.detached);
    json_number_if(json, "fence", owner->fence, owner->fence > 0);
    json_number_if(json, "slot", owner->slot, owner->slot >= 0);
    json_text(json, "host", holder->host);
    json_number_if(json, "pid", holder->pid, holder->pid > 0);
    json_text(json, "user", holder->user);
    json_text(json, "command", holder->command);
    json_text(json, "message", holder->message);
    if (owner->holder.detached || life <= PROCESS_HIDDEN)
        json_null(json, "alive");
    else
        json_bool(json, "alive", life == PROCESS_LIVES);
}

void lock_owners_json(struct json *json, const char *name, const struct lock_state *state)
{
    json_begin(json, name, '[');
    for (size_t i = 0; i < state->owner_count; i++) {
        json_begin(json, NULL, '{');
        owner_members(json, &state->owners[i]);
        json_end(json, '}');
    }
    json_end(json, ']');
}

static void queue_members(struct json *json, const struct lock_state *state)
{
    if (state->waiters < 0) {
        json_null(json, "queue");
        return;
    }
    json_begin(json, "queue", '[');
    for (size_t i = 0; i < state->queue_count; i++) {
        const struct lock_waiter *waiter = &state->queue[i];
        json_begin(json, NULL, '{');
        json_text(json, "host", waiter->host);
        json_number_if(json, "pid", waiter->pid, waiter->pid > 0);
        json_text(json, "user", waiter->user);
        json_time(json, "since", waiter->since_wall_ms);
        json_text(json, "mode", lock_mode_name(waiter->mode));
        json_text(json, "message", waiter->message);
        json_end(json, '}');
    }
    json_end(json, ']');
}

static void pause_members(struct json *json, const struct pause *pause)
{
    int64_t left = pause->left.ns / NS_PER_MS;
    if (left <= 0) {
        json_null(json, "paused");
        return;
    }
    json_begin(json, "paused", '{');
    json_text(json, "by", pause->by);
    json_text(json, "message", pause->message);
    json_time(json, "ends_at", wall_now_ms() + left);
    json_seconds(json, "remaining", left);
    json_end(json, '}');
}

static void count_members(struct json *json, const struct lock_counts *counts)
{
    json_begin(json, "counts", '{');
    json_number(json, "takes", counts->takes);
    json_number(json, "conflicts", counts->conflicts);
    json_number(json, "timeouts", counts->timeouts);
    json_number(json, "losses", counts->losses);
    json_seconds(json, "waited", counts->waited_ms);
    json_seconds(json, "held", counts->held_ms);
    json_end(json, '}');
}

/* The details of the one holder of an exclusive lock also appear at the top level. */
void lock_state_json_print(const struct lock_state *state, const char *name, const char *backend)
{
    static const struct lock_owner nobody = {.slot = -1};
    struct json json = json_line_begin(stdout);
    json_text(&json, "key", name);
    json_text(&json, "full_key", state->key);
    json_text(&json, "backend", backend);
    if (state->newer > 0)
        json_null(&json, "locked");
    else
        json_bool(&json, "locked", state->locked);
    json_text(&json, "mode", state->locked ? lock_mode_name(state->mode) : "");
    json_number_if(&json, "slots", state->slots, state->mode == MODE_SLOTS);
    owner_members(&json, state->owner_count == 1 && state->mode == MODE_EXCLUSIVE
                             ? &state->owners[0]
                             : &nobody);
    lock_owners_json(&json, "holders", state);
    pause_members(&json, &state->pause);
    json_number_if(&json, "waiters", state->waiters, state->waiters >= 0);
    queue_members(&json, state);
    json_number_if(&json, "last_fence", state->last_fence, state->last_fence > 0);
    json_text(&json, "last_owner", state->last_owner);
    json_time(&json, "released_at", state->released_wall_ms);
    count_members(&json, &state->counts);
    run_memory_json(&json, &state->memory);
    if (state->newer > 0)
        json_number(&json, "newer_format", state->newer);
    json_line_end(&json);
}

void lease_json_print(const struct lease *lease)
{
    struct json json = json_line_begin(stdout);
    json_text(&json, "key", lease->name);
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
