#include "store/quorum/look.h"

#include "store/quorum/quorum.h"
#include "util/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- one lock ------------------------------------------------------------ */

/* A round that looks: the states belong to the worker threads until it is over. */
struct look {
    struct quorum *quorum;
    const char *key;
    bool removes, lists;
    struct lock_state states[QUORUM_MOST];
};

static enum lock_result ask_look(void *data, int number, struct bound bound)
{
    struct look *look = data;
    struct quorum_member *member = &look->quorum->members[number];
    struct backend *store = member->store;
    struct lock_state *state = &look->states[number];
    return look->removes ? store->force_release(store, look->key, state, bound, &member->why)
                         : store->look(store, look->key, state, bound, &member->why);
}

static struct duration judge_look(const void *data, const struct fanout *crew)
{
    const struct look *look = data;
    struct quorum_count count = quorum_count_fanout(look->quorum, crew);
    if (look->removes) /* of the slow ones, too */
        return count.ok >= look->quorum->need ? DURATION_S(1) : CREW_WAITS;
    return quorum_judge(look->quorum, crew);
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

static struct owner_count count_owner(const struct look *look, const char *token)
{
    struct owner_count owner = {0};
    for (int i = 0; i < look->quorum->count; i++) {
        const struct lock_owner *found = lock_state_owner(&look->states[i], token);
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
static bool has_run(const struct look *look, const struct run_record *run)
{
    int same = 0;
    for (int i = 0; i < look->quorum->count; i++) {
        const struct run_record *other = &look->states[i].memory.last;
        same += other->end.how == RUN_LOST && other->pid == run->pid &&
                strcmp(other->host, run->host) == 0;
    }
    return run->end.how != RUN_LOST || same >= look->quorum->need;
}

/* A server that has missed a release takes that run for lost, which is not newer than its
 * end; and one that has missed a success counts on from an older one. */
static void merge_memory(const struct look *look, struct run_memory *to,
                         const struct run_memory *from)
{
    int64_t newer = from->success.end.ended_ms - to->success.end.ended_ms;
    if (newer > 0) {
        to->success = from->success;
        to->failures = to->runs = to->skipped = 0;
    }
    if (newer >= 0 && has_run(look, &from->last)) {
        to->failures = quorum_look_larger(to->failures, from->failures);
        to->runs = quorum_look_larger(to->runs, from->runs);
        to->skipped = quorum_look_larger(to->skipped, from->skipped);
    }
    if (newest_ms(&from->last) > newest_ms(&to->last) && has_run(look, &from->last))
        to->last = from->last;
}

/* A server that was down has missed some. */
static void merge_history(const struct look *look, struct lock_state *to,
                          const struct lock_state *from)
{
    struct lock_counts *counts = &to->counts;
    if (from->released_wall_ms >= to->released_wall_ms)
        memcpy(to->last_owner, from->last_owner, sizeof to->last_owner);
    to->released_wall_ms = quorum_look_larger(to->released_wall_ms, from->released_wall_ms);
    to->last_fence = quorum_look_larger(to->last_fence, from->last_fence);
    merge_memory(look, &to->memory, &from->memory);
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
static enum lock_result merge(const struct look *look, int least, struct lock_state *to,
                              struct errmsg *why)
{
    struct quorum *quorum = look->quorum;
    size_t room = 0;
    for (int i = 0; i < quorum->count; i++)
        room += look->states[i].owner_count;
    if (!lock_state_init(to, look->key, room)) {
        errmsg_set(why, "out of memory");
        return LOCK_SYSTEM;
    }
    to->owner_count = 0;
    to->waiters = -1;
    for (int i = 0; i < quorum->count; i++)
        merge_history(look, to, &look->states[i]);
    for (int i = 0; i < quorum->count; i++) {
        const struct lock_state *state = &look->states[i];
        for (size_t j = 0; j < state->owner_count; j++) {
            const char *token = state->owners[j].token;
            struct owner_count owner = count_owner(look, token);
            if (lock_state_owner(to, token) != NULL)
                continue;
            enum lock_result part = owner.count < least ? judge_part(quorum, &owner, why) : LOCK_OK;
            if (part != LOCK_OK && !look->lists) {
                lock_state_free(to);
                return part;
            }
            if (part == LOCK_OK && owner.count < least)
                continue;
            to->mode = state->mode;
            to->slots = state->slots;
            quorum_look_add_owner(quorum, to, &owner);
        }
    }
    const struct pause *pauses[QUORUM_MOST];
    for (int i = 0; i < quorum->count; i++)
        pauses[i] = &look->states[i].pause;
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

enum look_for { LOOK_AT, LOOK_LIST, LOOK_REMOVE };

static enum lock_result quorum_look_run_look(struct backend *backend, const char *key,
                                             enum look_for what, struct lock_state *state,
                                             struct bound bound, struct errmsg *why)
{
    struct quorum *quorum = quorum_of(backend);
    struct look *look = calloc(1, sizeof *look);
    struct fanout crew;
    if (look == NULL || fanout_open(&crew, quorum->count, look) != LOCK_OK) {
        errmsg_set(why, "no memory or no descriptors to ask the servers with");
        free(look);
        return LOCK_SYSTEM;
    }
    *look = (struct look){
        .quorum = quorum, .key = key, .removes = what == LOOK_REMOVE, .lists = what == LOOK_LIST};
    bool cancelled =
        quorum_round(quorum, &crew, ask_look, judge_look, bound, look->lists ? has_answered : NULL);
    fanout_close(&crew);
    state->newer = 0;
    for (int i = 0; i < quorum->count; i++) {
        state->newer = quorum_look_larger(state->newer, look->states[i].newer);
        if (quorum->members[i].result != LOCK_OK)
            look->states[i] = (struct lock_state){0};
    }
    quorum->base.note = quorum->base.warning = NULL;
    enum lock_result result = quorum_answer(quorum, cancelled, why);
    if (result == LOCK_OK)
        result = merge(look, look->removes ? 1 : quorum->need, state, why);
    for (int i = 0; i < quorum->count; i++)
        lock_state_free(&look->states[i]);
    free(look);
    return result;
}

enum lock_result quorum_look(struct backend *backend, const char *key, struct lock_state *state,
                             struct bound bound, struct errmsg *why)
{
    return quorum_look_run_look(backend, key, LOOK_AT, state, bound, why);
}

enum lock_result quorum_force_release(struct backend *backend, const char *key,
                                      struct lock_state *was, struct bound bound,
                                      struct errmsg *why)
{
    return quorum_look_run_look(backend, key, LOOK_REMOVE, was, bound, why);
}

/* --- all locks ----------------------------------------------------------- */

/* The keys of one server; while it is asked, they belong to its worker. */
struct found {
    struct key_list list;
    bool short_of_memory;
};

struct quorum_look_search {
    struct quorum *quorum;
    const char *prefix, *pattern;
    bool all;
    struct found found[QUORUM_MOST];
};

static bool copy_key(void *data, const struct lock_state *state)
{
    struct found *found = data;
    found->short_of_memory = !key_list_add(&found->list, state->key);
    return !found->short_of_memory;
}

static enum lock_result ask_list(void *data, int number, struct bound bound)
{
    struct quorum_look_search *search = data;
    struct quorum_member *member = &search->quorum->members[number];
    struct found *found = &search->found[number];
    enum lock_result result =
        member->store->list(member->store, search->prefix, search->pattern, search->all, copy_key,
                            found, bound, &member->why);
    if (!found->short_of_memory)
        return result;
    errmsg_set(&member->why, "out of memory");
    return LOCK_SYSTEM;
}

static struct duration judge_list(const void *data, const struct fanout *crew)
{
    const struct quorum_look_search *search = data;
    return quorum_count_fanout(search->quorum, crew).ok >= search->quorum->need ? DURATION_S(1)
                                                                                : CREW_WAITS;
}

/* Visits all keys that a server has named; each one's holder is asked for anew. */
static enum lock_result visit_all(struct backend *backend, const struct key_list *keys, bool all,
                                  bool (*visit)(void *data, const struct lock_state *), void *data,
                                  struct bound bound, struct errmsg *why)
{
    bool more = true;
    for (size_t i = 0; more && i < keys->count; i++) {
        struct lock_state state = {0};
        const char *key = keys->keys[i];
        enum lock_result result = lock_state_of_list(
            &state, key, quorum_look_run_look(backend, key, LOOK_LIST, &state, bound, why));
        if (result != LOCK_OK)
            return result;
        more = !lock_state_is_listed(&state, all) || visit(data, &state);
        lock_state_free(&state);
    }
    return LOCK_OK;
}

static bool join_lists(const struct quorum *quorum, const struct quorum_look_search *search,
                       struct key_list *all)
{
    for (int i = 0; i < quorum->count; i++) {
        const struct key_list *list = &search->found[i].list;
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
    struct quorum_look_search search = {
        .quorum = quorum, .prefix = prefix, .pattern = pattern, .all = all};
    struct key_list keys = {0};
    struct fanout crew;
    if (fanout_open(&crew, quorum->count, &search) != LOCK_OK) {
        errmsg_set(why, "no descriptors to ask the servers with");
        return LOCK_SYSTEM;
    }
    bool cancelled = quorum_round(quorum, &crew, ask_list, judge_list, bound, NULL);
    fanout_close(&crew);
    enum lock_result result = quorum_answer(quorum, cancelled, why);
    if (result == LOCK_OK && !join_lists(quorum, &search, &keys)) {
        errmsg_set(why, "out of memory");
        result = LOCK_SYSTEM;
    }
    if (result == LOCK_OK)
        result = visit_all(backend, &keys, all, visit, data, bound, why);
    for (int i = 0; i < quorum->count; i++)
        key_list_free(&search.found[i].list);
    key_list_free(&keys);
    return result;
}

/* --- the doctor ---------------------------------------------------------- */

/* One after the other, so that the rows keep their order. A problem of a minority is only
 * a warning. */
bool quorum_examine(struct backend *backend, const struct lock_request *request,
                    struct diagnostics *findings, struct bound bound)
{
    const struct quorum *quorum = quorum_of(backend);
    size_t from[QUORUM_MOST + 1];
    int good = 0;
    for (int i = 0; i < quorum->count; i++) {
        struct backend *store = quorum->members[i].store;
        from[i] = findings->count;
        bool fit = store->examine(store, request, findings, bound);
        good += fit && !diagnostics_failed(findings, from[i]);
    }
    from[quorum->count] = findings->count;
    diagnostics_section(findings, "quorum", NULL);
    if (good < quorum->need) {
        diagnostics_fail(findings, FINDING_UNTRUSTED, "majority", "see the servers above",
                         "%d of %d servers can be trusted; %d are needed", good, quorum->count,
                         quorum->need);
        return false;
    }
    for (int i = 0; i < quorum->count; i++)
        diagnostics_excuse(findings, from[i], from[i + 1]);
    diagnostics_add(findings, good < quorum->count ? FINDING_WARN : FINDING_OK, "majority",
                    "see the servers above", "%d of %d servers can be trusted; %d are needed", good,
                    quorum->count, quorum->need);
    return true;
}

void quorum_forget(struct backend *backend, const char *key, struct bound bound)
{
    const struct quorum *quorum = quorum_of(backend);
    for (int i = 0; i < quorum->count; i++)
        quorum->members[i].store->forget(quorum->members[i].store, key, bound);
}
