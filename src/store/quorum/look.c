/* Looking at locks that several servers keep, removing and pausing them. */
#include "store/quorum/quorum.h"

#include <stdio.h>
#include <string.h>

/* --- one lock ------------------------------------------------------------ */

static enum lock_result ask_look(struct quorum *quorum, struct quorum_member *member,
                                 struct bound bound)
{
    struct backend *store = member->store;
    if (quorum->looks_for == LOOK_REMOVE)
        return store->force_release(store, quorum->key, &member->state, bound, &member->why);
    return store->look(store, quorum->key, &member->state, bound, &member->why);
}

/* A server without the pause that is to end says so: LOCK_GONE. */
static struct duration judge_slow(const struct quorum *quorum)
{
    struct quorum_count count = quorum_count_round(quorum);
    return count.ok + count.lost >= quorum->need ? DURATION_S(1) : QUORUM_WAITS;
}

/* The standing of an owner over all servers. */
struct owner_count {
    const struct lock_owner *best; /* the most complete record */
    int count;
    int64_t left[QUORUM_MOST], fences[QUORUM_MOST];
};

static int64_t left_of(const struct lock_owner *owner)
{
    return owner->holder.expires ? owner->holder.left.ns : INT64_MAX;
}

/* A server that joined later has a shorter TTL. */
static bool knows_more(const struct lock_owner *a, const struct lock_owner *b)
{
    return a->holder.known != b->holder.known ? a->holder.known : a->ttl.ns > b->ttl.ns;
}

static struct owner_count count_owner(const struct quorum *quorum, const char *token)
{
    struct owner_count owner = {0};
    for (int i = 0; i < quorum->count; i++) {
        const struct lock_owner *found = lock_state_owner(&quorum->members[i].state, token);
        if (found == NULL)
            continue;
        if (owner.best == NULL || knows_more(found, owner.best))
            owner.best = found;
        owner.fences[owner.count] = found->fence;
        owner.left[owner.count++] = left_of(found);
    }
    return owner;
}

/* The values that a majority grants. The fence is the holder's: servers have what their
 * own clocks gave, lower ones from the take, higher ones if they joined later. */
static void quorum_look_add_owner(const struct quorum *quorum, struct lock_state *to,
                                  struct owner_count *owner)
{
    struct lock_owner *added = &to->owners[to->owner_count++];
    int64_t left = quorum_has(quorum, owner->left, owner->count);
    *added = *owner->best;
    added->holder.expires = left != INT64_MAX;
    added->holder.left.ns = added->holder.expires ? left : 0;
    added->fence = quorum_has(quorum, owner->fences, owner->count);
}

static int64_t quorum_look_larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t newest_ms(const struct run_record *run)
{
    return quorum_look_larger(run->began_ms, run->end.ended_ms);
}

/* A run begins on a majority. On fewer, a lost one is a take that was given back. */
static bool has_run(const struct quorum *quorum, const struct run_record *run)
{
    int same = 0;
    for (int i = 0; i < quorum->count; i++) {
        const struct run_record *other = &quorum->members[i].state.memory.last;
        same += other->end.how == RUN_LOST && other->pid == run->pid &&
                strcmp(other->host, run->host) == 0;
    }
    return run->end.how != RUN_LOST || same >= quorum->need;
}

/* A server that has missed a release takes that run for lost, which is not newer than its
 * end; and one that has missed a success counts on from an older one. */
static void merge_memory(const struct quorum *quorum, struct run_memory *to,
                         const struct run_memory *from)
{
    int64_t newer = from->success.began_ms - to->success.began_ms;
    if (newer > 0) {
        to->success = from->success;
        to->failures = to->runs = to->skipped = 0;
    }
    if (newer >= 0 && has_run(quorum, &from->last)) {
        to->failures = quorum_look_larger(to->failures, from->failures);
        to->runs = quorum_look_larger(to->runs, from->runs);
        to->skipped = quorum_look_larger(to->skipped, from->skipped);
    }
    if (newest_ms(&from->last) > newest_ms(&to->last) && has_run(quorum, &from->last))
        to->last = from->last;
    /* Behind a run by a clock that was behind. */
    if (newest_ms(&to->success) > newest_ms(&to->last))
        to->last = to->success;
}

/* A server that was down has missed some. */
static void merge_history(const struct quorum *quorum, struct lock_state *to,
                          const struct lock_state *from)
{
    struct lock_counts *counts = &to->counts;
    if (from->released_wall_ms >= to->released_wall_ms)
        memcpy(to->last_owner, from->last_owner, sizeof to->last_owner);
    to->released_wall_ms = quorum_look_larger(to->released_wall_ms, from->released_wall_ms);
    to->last_fence = quorum_look_larger(to->last_fence, from->last_fence);
    merge_memory(quorum, &to->memory, &from->memory);
    counts->takes = quorum_look_larger(counts->takes, from->counts.takes);
    counts->conflicts = quorum_look_larger(counts->conflicts, from->counts.conflicts);
    counts->timeouts = quorum_look_larger(counts->timeouts, from->counts.timeouts);
    counts->losses = quorum_look_larger(counts->losses, from->counts.losses);
    counts->waited_ms = quorum_look_larger(counts->waited_ms, from->counts.waited_ms);
    counts->held_ms = quorum_look_larger(counts->held_ms, from->counts.held_ms);
}

static void say_part(const struct quorum *quorum, const struct owner_count *owner,
                     const char *means, struct errmsg *why)
{
    char who[400] = "another client";
    if (owner->best != NULL && owner->best->holder.known) {
        const struct holder *holder = &owner->best->holder;
        snprintf(who, sizeof who, "%s@%s, pid %ld", holder->user, holder->host, (long)holder->pid);
    }
    errmsg_set(why, "on %d of %d servers %s holds it, which %s", owner->count, quorum->count, who,
               means);
}

/* For an owner on too few servers: LOCK_OK if it is no lock, whatever the servers that do
 * not answer would say. Otherwise this is unknown, and the lock must not be taken for
 * free. */
static enum lock_result judge_part(struct quorum *quorum, const struct owner_count *owner,
                                   struct errmsg *why)
{
    int unknown = quorum->count - quorum_count_all(quorum).ok;
    if (owner->count + unknown >= quorum->need) {
        char means[64];
        snprintf(means, sizeof means, "may be a lock: %d of %d servers cannot be reached", unknown,
                 quorum->count);
        say_part(quorum, owner, means, why);
        return LOCK_UNAVAILABLE;
    }
    say_part(quorum, owner, "is no lock", &quorum->note);
    quorum->base.note = quorum->note.text;
    return LOCK_OK;
}

/* The owners that hold it on `least` servers; in a list, possible holders too. */
static enum lock_result add_owners(struct quorum *quorum, int least, struct lock_state *to,
                                   struct errmsg *why)
{
    for (int i = 0; i < quorum->count; i++) {
        const struct lock_state *state = &quorum->members[i].state;
        for (size_t j = 0; j < state->owner_count; j++) {
            const char *token = state->owners[j].token;
            struct owner_count owner = count_owner(quorum, token);
            if (lock_state_owner(to, token) != NULL)
                continue;
            enum lock_result part = owner.count < least ? judge_part(quorum, &owner, why) : LOCK_OK;
            if (part != LOCK_OK && quorum->looks_for != LOOK_LIST)
                return part;
            if (part == LOCK_OK && owner.count < least)
                continue;
            to->mode = state->mode;
            to->slots = state->slots;
            quorum_look_add_owner(quorum, to, &owner);
        }
    }
    return LOCK_OK;
}

/* No owner has a majority, but they leave none to others. */
static bool is_split(struct quorum *quorum)
{
    int held = 0;
    for (int i = 0; i < quorum->count; i++)
        held += quorum->members[i].state.owner_count > 0;
    if (held <= quorum->count - quorum->need)
        return false;
    errmsg_set(&quorum->note, "on %d of %d servers others hold it, none of them on a majority",
               held, quorum->count);
    quorum->base.note = quorum->note.text;
    return true;
}

static enum lock_result merge(struct quorum *quorum, int least, struct lock_state *to,
                              struct errmsg *why)
{
    size_t room = 0;
    for (int i = 0; i < quorum->count; i++)
        room += quorum->members[i].state.owner_count;
    if (!lock_state_init(to, quorum->key, room))
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    to->owner_count = 0;
    to->waiters = -1;
    for (int i = 0; i < quorum->count; i++)
        merge_history(quorum, to, &quorum->members[i].state);
    enum lock_result result = add_owners(quorum, least, to, why);
    if (result == LOCK_OK && to->owner_count == 0 && is_split(quorum))
        result = add_owners(quorum, 1, to, why);
    if (result != LOCK_OK) {
        lock_state_free(to);
        return result;
    }
    const struct pause *pauses[QUORUM_MOST];
    for (int i = 0; i < quorum->count; i++)
        pauses[i] = &quorum->members[i].state.pause;
    to->pause = quorum_paused(quorum, pauses);
    to->locked = to->owner_count > 0;
    return LOCK_OK;
}

/* A server that hangs is not waited for at each key of a list. */
static bool has_answered(const struct quorum *quorum, const struct quorum_member *member)
{
    (void)quorum;
    return member->result == LOCK_OK || member->result == LOCK_INVALID;
}

static enum lock_result quorum_look_run_look(struct quorum *quorum, const char *key,
                                             enum look_for what, struct lock_state *state,
                                             struct bound bound, struct errmsg *why)
{
    quorum->key = key;
    quorum->looks_for = what;
    /* A removal is waited for on the slow ones, too. */
    bool cancelled = quorum_round(quorum, ask_look, what == LOOK_REMOVE ? judge_slow : quorum_judge,
                                  bound, what == LOOK_LIST ? has_answered : NULL);
    state->newer = 0;
    for (int i = 0; i < quorum->count; i++) {
        struct quorum_member *member = &quorum->members[i];
        state->newer = quorum_look_larger(state->newer, member->state.newer);
        if (member->result != LOCK_OK)
            member->state = (struct lock_state){0};
    }
    quorum->base.note = quorum->base.warning = NULL;
    enum lock_result result = quorum_answer(quorum, cancelled, why);
    if (result == LOCK_OK)
        result = merge(quorum, what == LOOK_REMOVE ? 1 : quorum->need, state, why);
    for (int i = 0; i < quorum->count; i++)
        lock_state_free(&quorum->members[i].state);
    return result;
}

enum lock_result quorum_look(struct backend *backend, const char *key, struct lock_state *state,
                             struct bound bound, struct errmsg *why)
{
    return quorum_look_run_look(quorum_of(backend), key, LOOK_AT, state, bound, why);
}

enum lock_result quorum_force_release(struct backend *backend, const char *key,
                                      struct lock_state *was, struct bound bound,
                                      struct errmsg *why)
{
    return quorum_look_run_look(quorum_of(backend), key, LOOK_REMOVE, was, bound, why);
}

static enum lock_result ask_pause(struct quorum *quorum, struct quorum_member *member,
                                  struct bound bound)
{
    return member->store->pause(member->store, quorum->key, quorum->pause, bound, &member->why);
}

/* A lock is paused if it is on a majority. What a resumption leaves on a minority keeps others out
 * if servers are down as well: so it has to reach all. */
enum lock_result quorum_pause(struct backend *backend, const char *key, const struct pause *pause,
                              struct bound bound, struct errmsg *why)
{
    struct quorum *quorum = quorum_of(backend);
    quorum->key = key;
    quorum->pause = pause;
    bool cancelled = quorum_round(quorum, ask_pause, judge_slow, bound, NULL);
    struct quorum_count count = quorum_count_all(quorum);
    quorum_note(quorum, true);
    if (count.ok + count.lost < quorum->need)
        return cancelled ? LOCK_CANCELLED : quorum_failure(quorum, why);
    if (pause->left.ns == 0 && quorum_note_unreached(quorum, "the end of the pause", "it may last"))
        return errmsg_fail(why, LOCK_UNAVAILABLE, "%s; repeat --resume", quorum->note.text);
    if (count.ok > 0)
        return LOCK_OK;
    return errmsg_fail(why, LOCK_GONE, "the lock is not paused");
}

/* --- all locks ----------------------------------------------------------- */

static bool copy_key(void *data, const struct lock_state *state)
{
    struct quorum_member *member = data;
    member->short_of_memory = !key_list_add(&member->keys, state->key);
    return !member->short_of_memory;
}

static enum lock_result ask_list(struct quorum *quorum, struct quorum_member *member,
                                 struct bound bound)
{
    member->short_of_memory = false;
    enum lock_result result =
        member->store->list(member->store, quorum->prefix, quorum->pattern, quorum->all, copy_key,
                            member, bound, &member->why);
    if (!member->short_of_memory)
        return result;
    return errmsg_fail(&member->why, LOCK_SYSTEM, "out of memory");
}

/* Visits all keys that a server has named; each one's holder is asked for anew. */
static enum lock_result visit_all(struct quorum *quorum, const struct key_list *keys, bool all,
                                  bool (*visit)(void *data, const struct lock_state *), void *data,
                                  struct bound bound, struct errmsg *why)
{
    bool more = true;
    for (size_t i = 0; more && i < keys->count; i++) {
        struct lock_state state = {0};
        const char *key = keys->keys[i];
        enum lock_result result = lock_state_of_list(
            &state, key, quorum_look_run_look(quorum, key, LOOK_LIST, &state, bound, why));
        if (result != LOCK_OK)
            return result;
        more = !lock_state_is_listed(&state, all) || visit(data, &state);
        lock_state_free(&state);
    }
    return LOCK_OK;
}

static bool join_lists(const struct quorum *quorum, struct key_list *all)
{
    for (int i = 0; i < quorum->count; i++) {
        const struct key_list *list = &quorum->members[i].keys;
        for (size_t k = 0; quorum->members[i].result == LOCK_OK && k < list->count; k++)
            if (!key_list_add(all, list->keys[k]))
                return false;
    }
    key_list_sort(all);
    return true;
}

enum lock_result quorum_list(struct backend *backend, const char *prefix, const char *pattern,
                             bool all, bool (*visit)(void *data, const struct lock_state *),
                             void *data, struct bound bound, struct errmsg *why)
{
    struct quorum *quorum = quorum_of(backend);
    struct key_list keys = {0};
    quorum->prefix = prefix;
    quorum->pattern = pattern;
    quorum->all = all;
    bool cancelled = quorum_round(quorum, ask_list, judge_slow, bound, NULL);
    enum lock_result result = quorum_answer(quorum, cancelled, why);
    if (result == LOCK_OK && !join_lists(quorum, &keys))
        result = errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    if (result == LOCK_OK)
        result = visit_all(quorum, &keys, all, visit, data, bound, why);
    for (int i = 0; i < quorum->count; i++)
        key_list_free(&quorum->members[i].keys);
    key_list_free(&keys);
    return result;
}
