/* A backend that combines several Redis backends, one for each server. Each call asks all servers
 * at once, and a majority decides. store/quorum/round.c says which thread owns what.
 * store/quorum/lease.c lists every order of events in the life of a lease. */
#include "store/quorum/backend.h"

#include "store/quorum/quorum_int.h"
#include "store/redis/backend.h"
#include "util/fileutils.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

/* --- news and calls ------------------------------------------------------ */

/* The earlier of two times; 0 means that there is no time. */
static struct deadline sooner(struct deadline a, struct deadline b)
{
    return a.boot_ns == 0 || (b.boot_ns > 0 && deadline_before(b, a)) ? b : a;
}

/* News from a single member is reason enough to check all members. */
static struct news quorum_news(struct backend *backend)
{
    struct quorum *quorum = quorum_of(backend);
    struct news all = {.fd = -1};
    fd_close(&quorum->news_fd); /* the members may have other descriptors by now */
    quorum->news_fd = epoll_create1(EPOLL_CLOEXEC);
    FOR_MEMBERS (member, quorum) {
        struct news news = member->store->news(member->store);
        struct epoll_event event = {.events = EPOLLIN};
        all.due |= news.due;
        all.by = sooner(all.by, news.by);
        all.cannot = all.cannot != NULL ? all.cannot : news.cannot;
        if (news.fd >= 0 && quorum->news_fd >= 0 &&
            epoll_ctl(quorum->news_fd, EPOLL_CTL_ADD, news.fd, &event) == 0)
            all.fd = quorum->news_fd;
    }
    if (quorum_members(quorum, MEMBER_LACKS) != 0)
        all.by = sooner(all.by, quorum->join_at);
    return all;
}

static struct call quorum_listen(struct backend *backend)
{
    const struct quorum *quorum = quorum_of(backend);
    return (struct call){
        .fd = -1,
        .by = quorum->again,
        .poll_most = DURATION_MS(500),
        .cannot = "a quorum has no queue",
    };
}

/* --- looking at one lock ------------------------------------------------- */

enum purpose { LOOK_AT, LOOK_LIST, LOOK_REMOVE };

/* How long to wait for the slow servers, if a request should reach all servers. LOCK_GONE also
 * counts as an answer: it means that the server has no pause to end. */
static struct duration judge_slow(const struct quorum *quorum)
{
    int answers = quorum_count_round(quorum, RESULT_OK | RESULT_PAST);
    return answers >= quorum->need ? DURATION_S(1) : QUORUM_WAITS;
}

/* Returns the number of servers on which the owner has the lock. Also sets the owner's fence and
 * TTL from all of these servers, because the values on a single server may be wrong: the fence may
 * be too low (not raised yet) or too high (left from before the server granted the lock), and the
 * TTL is too short if the server granted the lock later than the others. */
static int fill_owner(const struct quorum *quorum, struct lock_owner *owner)
{
    int64_t fences[QUORUM_MOST];
    int count = 0;
    FOR_MEMBERS (member, quorum) {
        const struct lock_owner *found = lock_state_owner(&member->state, owner->token);
        if (found == NULL)
            continue;
        fences[count++] = found->fence;
        owner->ttl = duration_max(owner->ttl, found->ttl);
    }
    owner->fence = quorum_has(quorum, fences, count);
    return count;
}

/* Counts the owners in this state that have the lock on at least `least` servers. */
static int64_t count_owners(const struct quorum *quorum, const struct lock_state *state, int least)
{
    int64_t count = 0;
    for (size_t i = 0; i < state->owner_count; i++) {
        struct lock_owner owner = state->owners[i];
        count += fill_owner(quorum, &owner) >= least;
    }
    return count;
}

static bool has_owner(const struct quorum *quorum, int least)
{
    FOR_MEMBERS (member, quorum)
        if (count_owners(quorum, &member->state, least) > 0)
            return true;
    return false;
}

/* An owner is shown if it has the lock on at least *least servers. Lowers *least if no owner has
 * that many servers, but the lock must not be reported as free. Returns LOCK_UNAVAILABLE if an
 * owner may complete its majority with servers that do not answer. */
static enum lock_result judge_owners(struct quorum *quorum, enum purpose purpose, int *least,
                                     struct errmsg *why)
{
    int unknown = quorum->count - quorum_count(quorum, RESULT_OK);
    int most = *least; /* the most servers on which one client has the lock */
    while (most > 0 && !has_owner(quorum, most))
        most--;
    if (most == 0 || most == *least)
        return LOCK_OK;

    int held = 0;
    FOR_MEMBERS (member, quorum)
        held += member->state.owner_count > 0;
    quorum->base.note = quorum->note.text;
    if (most + unknown >= quorum->need) {
        *least = most;
        errmsg_set(&quorum->note,
                   "another client holds the lock on %d of %d servers, and perhaps on a "
                   "majority, because %d of %d servers cannot be reached",
                   most, quorum->count, unknown, quorum->count);
        errmsg_set(why, "%s", quorum->note.text);
        return purpose == LOOK_LIST ? LOCK_OK : LOCK_UNAVAILABLE;
    }
    if (held > quorum->count - quorum->need) {
        *least = 1;
        errmsg_set(&quorum->note,
                   "other clients hold the lock on %d of %d servers, but none has a majority", held,
                   quorum->count);
    } else {
        errmsg_set(&quorum->note,
                   "another client holds the lock on %d of %d servers, which is not a majority",
                   most, quorum->count);
    }
    return LOCK_OK;
}

static int64_t newest_ms(const struct run_record *run)
{
    return run->began_ms > run->end.ended_ms ? run->began_ms : run->end.ended_ms;
}

/* True if the run took place. A run begins only after a majority has granted the lock. So if only a
 * minority knows of a run that ended without a release, the run never began: these servers granted
 * the lock, and the client gave it back. */
static bool has_run(const struct quorum *quorum, const struct run_record *run)
{
    int same = 0;
    FOR_MEMBERS (member, quorum) {
        const struct run_record *other = &member->state.memory.last;
        same += other->end.how == RUN_LOST && other->pid == run->pid &&
                strcmp(other->host, run->host) == 0;
    }
    return run->end.how != RUN_LOST || same >= quorum->need;
}

/* A server that was down has missed some runs, so all servers are compared. The last success is the
 * one that began last, of those that any server knows. Its counts come from the server that knows
 * of the most runs since then. The last run is the newest one by the hosts' clocks. The history is
 * the longest one among the servers that know of this run. */
static struct run_memory find_memory(const struct quorum *quorum)
{
    struct run_memory newest = {.runs = 0};
    const struct run_memory *last = NULL;
    FOR_MEMBERS (member, quorum) {
        const struct run_memory *memory = &member->state.memory;
        int64_t newer = memory->success.began_ms - newest.success.began_ms;
        int64_t more = memory->runs + memory->skipped - newest.runs - newest.skipped;
        if (!has_run(quorum, &memory->last))
            continue;
        int64_t later = last != NULL ? newest_ms(&memory->last) - newest_ms(&last->last) : 1;
        if (later > 0 || (later == 0 && strlen(memory->history) > strlen(last->history)))
            last = memory;
        if (newer > 0 || (newer == 0 && more > 0))
            newest = *memory;
    }
    if (last != NULL) {
        newest.last = last->last;
        memcpy(newest.history, last->history, sizeof newest.history);
    }
    /* If a host's clock was slow, the last run may seem older than the last success. In that case,
     * the success counts as the last run. A lost run is older for another reason: its lease has
     * ended after the success did, but only the run's beginning is known. */
    if (newest.last.end.how != RUN_LOST && newest_ms(&newest.success) > newest_ms(&newest.last))
        newest.last = newest.success;
    return newest;
}

/* Returns the state from the server that knows the most owners who have the lock on at least
 * `least` servers. Of several such servers, chooses the one with the highest fence. */
static struct lock_state *best_informed(struct quorum *quorum, int least)
{
    struct lock_state *best = &quorum->members[0].state;
    int64_t most = -1;
    FOR_MEMBERS (member, quorum) {
        struct lock_state *state = &member->state;
        int64_t count = count_owners(quorum, state, least);
        if (member->result == LOCK_OK &&
            (count > most || (count == most && state->last_fence > best->last_fence))) {
            best = state;
            most = count;
        }
    }
    return best;
}

/* Moves the state of the best informed server to *to. The runs, the owners and the pause are taken
 * from all servers together. */
static void show(struct quorum *quorum, int least, struct lock_state *to)
{
    struct lock_state *best = best_informed(quorum, least);
    best->memory = find_memory(quorum);

    size_t kept = 0;
    for (size_t i = 0; i < best->owner_count; i++)
        if (fill_owner(quorum, &best->owners[i]) >= least)
            best->owners[kept++] = best->owners[i];
    free(best->queue);
    best->queue = NULL;
    best->queue_count = 0;
    best->waiters = -1;
    best->owner_count = kept;
    best->locked = kept > 0;
    if (kept == 0) {
        best->mode = MODE_EXCLUSIVE;
        best->slots = 0;
    }
    best->pause = quorum_paused(quorum);
    *to = *best;
    *best = (struct lock_state){0};
}

static enum lock_result ask_look(struct quorum_member *member, void *about, struct bound bound)
{
    const char *const *key = about;
    return member->store->look(member->store, *key, &member->state, bound, &member->why);
}

static enum lock_result ask_remove(struct quorum_member *member, void *about, struct bound bound)
{
    const char *const *key = about;
    return member->store->force_release(member->store, *key, &member->state, bound, &member->why);
}

/* LOOK_REMOVE shows every owner, even one that has the lock on only one server. LOOK_LIST is for
 * each key of a list, and asks only the servers that have answered so far, so that a server that
 * hangs does not delay every key. */
static enum lock_result look(struct quorum *quorum, const char *key, enum purpose purpose,
                             struct lock_state *to, struct bound bound, struct errmsg *why)
{
    struct quorum_question question = {ask_look, &key, quorum_judge, QUORUM_ALL};
    int least = quorum->need;
    if (purpose == LOOK_REMOVE) {
        question = (struct quorum_question){ask_remove, &key, judge_slow, QUORUM_ALL};
        least = 1;
    } else if (purpose == LOOK_LIST) {
        question.who = quorum_answered(quorum, RESULT_OK | 1 << LOCK_INVALID);
    }
    bool cancelled = quorum_round(quorum, &question, bound);

    to->newer = 0;
    FOR_MEMBERS (member, quorum) {
        if (member->state.newer > to->newer)
            to->newer = member->state.newer;
        if (member->result != LOCK_OK)
            member->state = (struct lock_state){0};
        member->pause = member->state.pause;
    }
    quorum->base.note = quorum->base.warning = NULL;
    enum lock_result result = quorum_answer(quorum, cancelled, why);
    if (result == LOCK_OK)
        result = judge_owners(quorum, purpose, &least, why);
    if (result == LOCK_OK)
        show(quorum, least, to);
    FOR_MEMBERS (member, quorum)
        lock_state_free(&member->state);
    return result;
}

/* A lock that is held only on a minority does not count as held, but base.note reports it. */
static enum lock_result quorum_look(struct backend *backend, const char *key,
                                    struct lock_state *state, struct bound bound,
                                    struct errmsg *why)
{
    return look(quorum_of(backend), key, LOOK_AT, state, bound, why);
}

static enum lock_result quorum_force_release(struct backend *backend, const char *key,
                                             struct lock_state *was, struct bound bound,
                                             struct errmsg *why)
{
    return look(quorum_of(backend), key, LOOK_REMOVE, was, bound, why);
}

/* --- pausing ------------------------------------------------------------- */

struct pausing {
    const char *key;
    const struct pause *pause;
};

static enum lock_result ask_pause(struct quorum_member *member, void *about, struct bound bound)
{
    const struct pausing *pausing = about;
    struct backend *store = member->store;
    return store->pause(store, pausing->key, pausing->pause, bound, &member->why);
}

/* A lock is paused if it is paused on a majority. The end of a pause must reach all servers,
 * because a pause that remains on a minority keeps clients out if other servers are down as
 * well. */
static enum lock_result quorum_pause(struct backend *backend, const char *key,
                                     const struct pause *pause, struct bound bound,
                                     struct errmsg *why)
{
    struct quorum *quorum = quorum_of(backend);
    struct pausing pausing = {key, pause};
    struct quorum_question question = {ask_pause, &pausing, judge_slow, QUORUM_ALL};
    bool cancelled = quorum_round(quorum, &question, bound);

    quorum_note(quorum, true);
    if (quorum_count(quorum, RESULT_OK | RESULT_PAST) < quorum->need)
        return cancelled ? LOCK_CANCELLED : quorum_failure(quorum, why);
    if (pause->left.ns == 0 &&
        quorum_note_unreached(quorum, "the end of the pause", "the pause may continue"))
        return errmsg_fail(why, LOCK_UNAVAILABLE, "%s; repeat --resume", quorum->note.text);
    if (quorum_count(quorum, RESULT_OK) > 0)
        return LOCK_OK;
    return errmsg_fail(why, LOCK_GONE, "the lock is not paused");
}

/* --- all locks ----------------------------------------------------------- */

/* The keys that at least one server lists. The threads of the round add keys under the quorum's
 * mutex. */
struct found_keys {
    struct listing listing; /* what each server is asked to list */
    pthread_mutex_t *mutex;
    struct key_list list;
    bool short_of_memory;
};

static bool add_key(void *data, const struct lock_state *state)
{
    struct found_keys *keys = data;
    pthread_mutex_lock(keys->mutex);
    bool added = key_list_add(&keys->list, state->key);
    keys->short_of_memory |= !added;
    pthread_mutex_unlock(keys->mutex);
    return added;
}

static enum lock_result ask_list(struct quorum_member *member, void *about, struct bound bound)
{
    const struct found_keys *keys = about;
    return member->store->list(member->store, &keys->listing, bound, &member->why);
}

static enum lock_result quorum_list(struct backend *backend, const struct listing *listing,
                                    struct bound bound, struct errmsg *why)
{
    struct quorum *quorum = quorum_of(backend);
    struct found_keys keys = {.listing = *listing, .mutex = &quorum->mutex};
    const struct duration each = deadline_left(bound.until);
    keys.listing.visit = add_key;
    keys.listing.data = &keys;
    struct quorum_question question = {ask_list, &keys, judge_slow, QUORUM_ALL};
    bool cancelled = quorum_round(quorum, &question, bound);
    enum lock_result result = quorum_answer(quorum, cancelled, why);
    if (result == LOCK_OK && keys.short_of_memory)
        result = errmsg_fail(why, LOCK_SYSTEM, "out of memory");

    key_list_sort(&keys.list);
    bool more = true;
    for (size_t i = 0; result == LOCK_OK && more && i < keys.list.count; i++) {
        const char *key = keys.list.keys[i];
        struct lock_state state = {0};
        result = lock_state_of_list(
            &state, key, look(quorum, key, LOOK_LIST, &state, bound_again(bound, each), why));
        if (result != LOCK_OK)
            break;
        more = !lock_state_is_listed(&state, listing->all) || listing->visit(listing->data, &state);
        lock_state_free(&state);
    }
    key_list_free(&keys.list);
    return result;
}

/* --- opening ------------------------------------------------------------- */

static bool is_same_endpoint(const struct redis_endpoint *a, const struct redis_endpoint *b)
{
    return strcasecmp(a->host, b->host) == 0 && strcmp(a->port, b->port) == 0 &&
           strcmp(a->path, b->path) == 0;
}

/* Two databases of one server count as one server, because they fail together. Two names of one
 * server are noticed only when the lock is requested: the request under the second name finds the
 * key that the request under the first name has set. */
static bool is_same_server(const struct redis_url *a, const struct redis_url *b)
{
    for (int i = 0; i < a->host_count; i++)
        for (int j = 0; j < b->host_count; j++)
            if (is_same_endpoint(&a->hosts[i], &b->hosts[j]) && strcmp(a->master, b->master) == 0)
                return true;
    return false;
}

static enum lock_result check_urls(const struct redis_urls *urls, struct errmsg *why)
{
    const struct redis_url *list = urls->list;
    if (urls->count > QUORUM_MOST)
        return errmsg_fail(why, LOCK_INVALID, "more than %d servers; use three or five",
                           QUORUM_MOST);
    if (urls->count < QUORUM_LEAST)
        return errmsg_fail(why, LOCK_INVALID, "a quorum needs at least 3 servers, not %d",
                           urls->count);
    for (int i = 0; i < urls->count; i++)
        for (int j = 0; j < i; j++)
            if (is_same_server(&list[i], &list[j]))
                return errmsg_fail(why, LOCK_INVALID,
                                   "URL %d: %s is the same server as URL %d and would count twice",
                                   i + 1, list[i].shown, j + 1);
    return LOCK_OK;
}

static void quorum_close(struct backend *backend)
{
    struct quorum *quorum = quorum_of(backend);
    FOR_MEMBERS (member, quorum)
        member->store->close(member->store);
    fd_close(&quorum->news_fd);
    fd_close(&quorum->cut_fd);
    fd_close(&quorum->cancel_fd);
    pthread_mutex_destroy(&quorum->mutex);
    free(quorum);
}

static enum lock_result add_member(struct quorum *quorum, const struct redis_url *url,
                                   const struct redis_settings *settings, enum redis_fault *fault,
                                   struct errmsg *why)
{
    struct quorum_member *member = &quorum->members[quorum->count];
    enum lock_result result = redis_backend_open(&member->store, url, settings, fault, why);
    char place[48];
    member->quorum = quorum;
    member->bit = 1U << quorum->count;
    member->standing = MEMBER_WITHOUT;
    snprintf(member->url, sizeof member->url, "%s", url->shown);
    snprintf(place, sizeof place, "URL %d", quorum->count + 1);
    if (result == LOCK_OK)
        quorum->count++;
    else
        errmsg_prefix(why, place);
    return result;
}

enum lock_result quorum_backend_open(struct backend **backend, const struct redis_urls *urls,
                                     const struct redis_settings *settings, enum redis_fault *fault,
                                     struct errmsg *why)
{
    *fault = REDIS_FAULT_URL;
    enum lock_result result = check_urls(urls, why);
    if (result != LOCK_OK)
        return result;

    size_t members = (size_t)urls->count * sizeof(struct quorum_member);
    struct quorum *quorum = calloc(1, sizeof *quorum + members);
    if (quorum == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    pthread_mutex_init(&quorum->mutex, NULL); /* glibc: never fails with these attributes */
    quorum->news_fd = quorum->cut_fd = quorum->cancel_fd = -1;
    struct redis_settings shared = *settings;
    shared.one_of_several = true;
    result = quorum_prepare_rounds(quorum, why);
    while (result == LOCK_OK && quorum->count < urls->count)
        result = add_member(quorum, &urls->list[quorum->count], &shared, fault, why);
    if (result != LOCK_OK) {
        quorum_close(&quorum->base);
        return result;
    }
    quorum->need = quorum->count / 2 + 1;
    quorum->again = DEADLINE_NEVER;
    quorum->base = (struct backend){
        .kind = "redis",
        .never_calls = true,
        .poll_least = DURATION_MS(50),
        .take = quorum_take,
        .listen = quorum_listen,
        .check = quorum_check,
        .extend = quorum_extend,
        .release = quorum_release,
        .look = quorum_look,
        .force_release = quorum_force_release,
        .pause = quorum_pause,
        .list = quorum_list,
        .news = quorum_news,
        .close = quorum_close,
    };
    *backend = &quorum->base;
    return LOCK_OK;
}

struct backend *quorum_backend_member(struct backend *backend, int i)
{
    struct quorum *quorum = quorum_of(backend);
    return backend->take == quorum_take && i < quorum->count ? quorum->members[i].store : NULL;
}
