/* Each call asks all servers at once and goes by what a majority says; the server's own
 * backend does the work there. store/quorum/fanout.c says who owns what when,
 * store/quorum/take.c lists every order of events of a take.
 *
 * While the lock is held:
 *   a minority says that it is gone, is down or lies -> a majority still grants it, and
 *     no other client can have one -> the check asks that minority to take the lock
 *     again, for the rest of the lease
 *   so many say that it is gone that those that have granted it, and have not lost it,
 *     are no majority -> lost, at once: the others may grant it to another, though we
 *     cannot ask them
 *   it was released on so many, with its own token -> the command runs on, if most of the
 *     servers that end the majority say so; servers that a release reached earlier do not
 *     count
 *   so many are down that neither is certain -> the deadline that a majority gave stays
 *     in force
 *   its fence is on a bare majority since the take, or a server has lost it -> the first
 *     check there raises it
 *   it was extended on some -> the lease ends when a majority no longer has it
 *   it is released on a majority -> done; the others are given a moment, and clear by
 *     themselves when the lease ends, which -v reports: they block no client as long as a
 *     majority of the servers is free */
#include "store/quorum/backend.h"

#include "store/quorum/quorum.h"
#include "store/redis/backend.h"
#include "util/fileutils.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

/* --- check, extend ------------------------------------------------------- */

static enum lock_result ask_check(struct quorum *quorum, struct quorum_member *member,
                                  struct bound bound)
{
    if (quorum->lease.outside || member->lease.fence >= quorum->lease.fence)
        return member->store->check(member->store, &member->lease, bound, &member->why);
    return quorum_raise_on(quorum, member, bound);
}

static enum lock_result ask_extend(struct quorum *quorum, struct quorum_member *member,
                                   struct bound bound)
{
    member->lease.ttl = quorum->lease.ttl;
    return member->store->extend(member->store, &member->lease, quorum->how, bound, &member->why);
}

/* False if it was released: the release may be on its way to the others. */
static bool lacks_lock(const struct quorum_member *member)
{
    return member->standing == MEMBER_WITHOUT || member->standing == MEMBER_OWES;
}

static bool wants_join(const struct quorum *quorum, const struct quorum_member *member)
{
    (void)quorum;
    return lacks_lock(member) && deadline_passed(member->joins);
}

/* If one more server forgets the lock, another client may get it: so this does not wait
 * for the next check, which may be 10 s away. A server that stays down is asked ever more
 * rarely, until there is another. */
static void plan_join(struct quorum *quorum)
{
    struct duration next =
        duration_max(quorum_join_interval, (struct duration){2 * quorum->join_pause.ns});
    int lacking = 0;
    for (int i = 0; i < quorum->count; i++)
        lacking += lacks_lock(&quorum->members[i]);
    next = lacking > quorum->lacking ? quorum_join_interval : duration_min(next, DURATION_S(10));
    quorum->join_pause = lacking > 0 ? next : DURATION_ZERO;
    quorum->lacking = lacking;
}

/* A lease of another process is known only by its token. */
static bool may_hold(const struct quorum *quorum, const struct quorum_member *member)
{
    return quorum_grants(quorum, member) || quorum->lease.outside;
}

/* Not needed for the answer that the caller waits for. Connect, take, raise. */
static struct duration judge_join(const struct quorum *quorum)
{
    return quorum_rounds(quorum, 6, DURATION_MS(200));
}

/* The parts of the lease that go by a majority of the servers that have it. */
static void take_in(const struct quorum *quorum, struct lease *lease)
{
    for (int i = 0; i < quorum->count; i++) {
        const struct quorum_member *member = &quorum->members[i];
        if (member->result != LOCK_OK)
            continue;
        lease->mode = member->lease.mode;
        lease->slots = member->lease.slots;
        lease->slot = member->lease.slot;
        break;
    }
    lease->deadline = quorum_deadline(quorum);
    for (int i = 0; i < quorum->count; i++)
        if (quorum->members[i].lease.deadline.boot_ns == lease->deadline.boot_ns)
            lease->set = quorum->members[i].lease.set;
}

static void quorum_backend_prepare(struct quorum *quorum, const struct lease *lease)
{
    quorum->lease = *lease;
    for (int i = 0; lease->outside && i < quorum->count; i++)
        quorum->members[i].lease = *lease;
}

/* No server grants anything to those that it has forgotten, or never knew. A client that
 * removes the lock everywhere does not reach all servers at the same moment: a server
 * that has just lost the lock is not asked to take it again at once, or the lock would
 * never be lost. */
static void forget_lost(struct quorum *quorum)
{
    for (int i = 0; i < quorum->count; i++) {
        struct quorum_member *member = &quorum->members[i];
        if (quorum_grants(quorum, member) && lock_is_past(member->result)) {
            member->standing = member->result == LOCK_RELEASED ? MEMBER_RELEASED : MEMBER_WITHOUT;
            member->joins = deadline_after(quorum_join_interval);
        }
        if (lock_is_past(member->result) || (quorum->lease.outside && member->result != LOCK_OK))
            lease_cut(&member->lease, (struct deadline){0});
    }
}

static enum lock_result ask_lease(struct quorum *quorum, quorum_ask *ask, struct lease *lease,
                                  struct bound bound, struct errmsg *why)
{
    quorum_backend_prepare(quorum, lease);
    bool cancelled = quorum_round(quorum, ask, quorum_judge, bound, may_hold);
    quorum_learn_pace(quorum);
    quorum_note(quorum, false); /* including a member that must still join */
    enum lock_result result = quorum_verdict(quorum, may_hold, cancelled, why);
    forget_lost(quorum);
    if (result == LOCK_OK)
        quorum->lease.deadline = quorum_deadline(quorum);
    if (!lease->outside && (result == LOCK_OK || result == LOCK_UNAVAILABLE)) {
        cancelled = quorum_round(quorum, quorum_join, judge_join, bound, wants_join);
        result = quorum_verdict(quorum, may_hold, cancelled, why);
        plan_join(quorum);
    }
    if (result == LOCK_OK)
        take_in(quorum, lease);
    return result;
}

static enum lock_result quorum_check(struct backend *backend, struct lease *lease,
                                     struct bound bound, struct errmsg *why)
{
    return ask_lease(quorum_of(backend), ask_check, lease, bound, why);
}

/* A request for what the holder has: the same, for whom it is taken on one more server. */
static void request_as(struct quorum *quorum, const struct lock_owner *owner, char *take_id,
                       const struct lease *lease)
{
    token_make(take_id); /* the take of that name may have been given up there */
    quorum->request = (struct lock_request){
        .name = lease->name,
        .key = lease->key,
        .token = lease->token,
        .take_id = take_id,
        .remember = lease->remember,
        .mode = lease->mode,
        .slots = lease->slots,
        .detached = true,
        .self = owner->holder,
    };
    quorum->lease = *lease;
    quorum->lease.fence = owner->fence;
    quorum->lease.hold = deadline_after(owner->hold_left);
    quorum->lease.began_ms = owner->holder.since_wall_ms;
}

static bool is_chosen(const struct quorum *quorum, const struct quorum_member *member)
{
    (void)quorum;
    return member->chosen;
}

/* Nobody checks a lock that no process holds: whoever extends it gives it to the servers that
 * have come back without it. Those that another client holds, or that a release has reached, are
 * left alone. */
static void give_detached(struct quorum *quorum, const struct lease *lease, struct bound bound)
{
    struct lock_state state;
    struct errmsg ignored;
    char take_id[TOKEN_SIZE];
    int lacking = 0;
    for (int i = 0; i < quorum->count; i++) {
        struct quorum_member *member = &quorum->members[i];
        member->chosen = member->result == LOCK_GONE;
        lacking += member->chosen;
    }
    if (lacking == 0 || quorum_look(&quorum->base, lease->key, &state, bound, &ignored) != LOCK_OK)
        return;
    const struct lock_owner *owner = lock_state_owner(&state, lease->token);
    if (owner != NULL && owner->holder.detached) {
        request_as(quorum, owner, take_id, lease);
        (void)quorum_round(quorum, quorum_join, judge_join, bound, is_chosen);
        quorum->request.take_id = "";
    }
    lock_state_free(&state);
}

static enum lock_result quorum_extend(struct backend *backend, struct lease *lease,
                                      enum extend_how how, struct bound bound, struct errmsg *why)
{
    struct quorum *quorum = quorum_of(backend);
    /* A minority that still has a lost lock would keep it for longer. */
    enum lock_result result = quorum_check(backend, lease, bound, why);
    if (result != LOCK_OK)
        return result;
    quorum->how = how;
    result = ask_lease(quorum, ask_extend, lease, bound, why);
    if (result == LOCK_OK && lease->outside)
        give_detached(quorum, lease, bound);
    return result;
}

/* --- release ------------------------------------------------------------- */

/* Releases our lock if the server has it or may have it. */
static enum lock_result release_own(struct quorum *quorum, struct quorum_member *member,
                                    struct bound bound)
{
    struct lease lease = quorum->lease;
    if (!quorum_grants(quorum, member) && member->store->uncertain)
        quorum_owe(quorum, member);
    enum lock_result result = LOCK_GONE;
    errmsg_set(&member->why, "%s: it did not hold the lock", member->url);
    if (quorum_owes(quorum, member))
        result = quorum_settle(quorum, member, bound);
    if (!quorum_grants(quorum, member))
        return result;
    lease.take_id = quorum->take_id;
    lease.end_ms = member->lease.end_ms;
    return member->store->release(member->store, &lease, bound, &member->why);
}

static enum lock_result ask_release(struct quorum *quorum, struct quorum_member *member,
                                    struct bound bound)
{
    if (!quorum->lease.outside)
        return release_own(quorum, member, bound);
    return member->store->release(member->store, &quorum->lease, bound, &member->why);
}

static bool not_released(const struct quorum *quorum, const struct quorum_member *member)
{
    (void)quorum;
    return member->standing != MEMBER_RELEASED;
}

static struct duration judge_release(const struct quorum *quorum)
{
    struct quorum_count count = quorum_count_round(quorum);
    struct duration most = DURATION_ZERO;
    if (count.ok < quorum->need && count.lost <= quorum->count - quorum->need)
        return QUORUM_WAITS;
    for (int i = 0; i < quorum->count; i++)
        if (quorum->members[i].asked && !quorum->members[i].done)
            most = duration_max(most, quorum->members[i].worth);
    return most;
}

static bool may_have(const struct quorum *quorum, const struct quorum_member *member)
{
    return may_hold(quorum, member) || quorum_owes(quorum, member);
}

/* A server that has the lock would keep it to the end of the lease: it is worth some
 * time; one that may have it is worth a little. */
static void prepare_release(struct quorum *quorum, const struct lease *lease)
{
    struct duration a_little = quorum_rounds(quorum, 2, DURATION_MS(50));
    quorum->lease = *lease;
    for (int i = 0; i < quorum->count; i++) {
        struct quorum_member *member = &quorum->members[i];
        bool owes = member->store->uncertain || quorum_owes(quorum, member);
        member->worth = may_hold(quorum, member) ? DURATION_S(1) : owes ? a_little : DURATION_ZERO;
    }
}

static enum lock_result quorum_release(struct backend *backend, const struct lease *lease,
                                       struct bound bound, struct errmsg *why)
{
    struct quorum *quorum = quorum_of(backend);
    prepare_release(quorum, lease);
    bool cancelled = quorum_round(quorum, ask_release, judge_release, bound, not_released);
    quorum_note_left(quorum);
    enum lock_result result = quorum_verdict(quorum, may_have, cancelled, why);
    forget_lost(quorum);
    quorum->base.uncertain = false;
    int remembered = 0;
    const char *unwritten = NULL;
    for (int i = 0; i < quorum->count; i++) {
        struct quorum_member *member = &quorum->members[i];
        if (member->result == LOCK_OK) {
            member->standing = MEMBER_RELEASED;
            remembered += member->store->warning == NULL;
            if (member->store->warning != NULL)
                unwritten = member->store->warning;
        }
        quorum->base.uncertain |= quorum_grants(quorum, member) || quorum_owes(quorum, member);
    }
    if (result == LOCK_OK)
        quorum->base.warning = remembered < quorum->need ? unwritten : NULL;
    return result;
}

/* --- news, calls, life --------------------------------------------------- */

/* 0 is no time at all. */
static struct deadline sooner(struct deadline a, struct deadline b)
{
    return a.boot_ns == 0 || (b.boot_ns > 0 && deadline_before(b, a)) ? b : a;
}

/* News of a single member is enough to ask all. */
static struct news quorum_news(struct backend *backend)
{
    struct quorum *quorum = quorum_of(backend);
    struct news all = {.fd = -1};
    fd_close(&quorum->news_fd); /* the members may have other descriptors by now */
    quorum->news_fd = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < quorum->count; i++) {
        struct news news = quorum->members[i].store->news(quorum->members[i].store);
        struct epoll_event event = {.events = EPOLLIN};
        all.due |= news.due;
        all.by = sooner(all.by, news.by);
        all.cannot = all.cannot != NULL ? all.cannot : news.cannot;
        if (news.fd >= 0 && quorum->news_fd >= 0 &&
            epoll_ctl(quorum->news_fd, EPOLL_CTL_ADD, news.fd, &event) == 0)
            all.fd = quorum->news_fd;
    }
    if (quorum->join_pause.ns > 0)
        all.by = sooner(all.by, deadline_after(quorum->join_pause));
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

static void quorum_close(struct backend *backend)
{
    struct quorum *quorum = quorum_of(backend);
    for (int i = 0; i < quorum->count; i++)
        quorum->members[i].store->close(quorum->members[i].store);
    fd_close(&quorum->news_fd);
    fd_close(&quorum->cut_fd);
    fd_close(&quorum->cancel_fd);
    pthread_mutex_destroy(&quorum->mutex);
    free(quorum);
}

/* --- opening ------------------------------------------------------------- */

static bool is_same_endpoint(const struct redis_endpoint *a, const struct redis_endpoint *b)
{
    return strcasecmp(a->host, b->host) == 0 && strcmp(a->port, b->port) == 0 &&
           strcmp(a->path, b->path) == 0;
}

/* Databases of one server live and die together. A server with two names is not
 * recognized here: the second take on it finds the key of the first. */
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
                return errmsg_fail(
                    why, LOCK_INVALID,
                    "URL %d: %s is the server of URL %d again, and would count twice", i + 1,
                    list[i].shown, j + 1);
    return LOCK_OK;
}

static enum lock_result add_member(struct quorum *quorum, const struct redis_url *url,
                                   const struct redis_settings *settings, enum redis_fault *fault,
                                   struct errmsg *why)
{
    struct quorum_member *member = &quorum->members[quorum->count];
    enum lock_result result = redis_backend_open(&member->store, url, settings, fault, why);
    char place[48];
    member->quorum = quorum;
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
    struct quorum *quorum = calloc(1, sizeof *quorum);
    if (quorum == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    *fault = REDIS_FAULT_URL;
    pthread_mutex_init(&quorum->mutex, NULL); /* glibc: never fails with these attributes */
    quorum->news_fd = quorum->cut_fd = quorum->cancel_fd = -1;
    struct redis_settings shared = *settings;
    shared.one_of_several = true;
    enum lock_result result = check_urls(urls, why);
    if (result == LOCK_OK)
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
