/* Acquires, keeps and releases a lock on several servers.
 *
 * Every order of events of a take. `need` servers are a majority.
 *
 *   A majority grants the lock -> the slow servers get as long again as the others took, and are
 *     then cut short -> each check asks the servers that do not have the lock to join, that is, to
 *     grant it, too (join()), so that the lock does not remain on a bare majority for long.
 *   A majority grants the lock, but one of these servers was so slow that the lease, which counts
 *     from before each server was asked, is nearly over -> the waiter gives the lease back
 *     (run/acquisition.c).
 *   A majority answers the same fence, which is the highest -> the next holder's majority includes
 *     one of these servers, and that server then gives a higher fence, whatever its clock shows.
 *   The fences differ, because a clock is off, or a server has missed a take or knows no fence ->
 *     before the take counts, the highest fence is written to the others. (For the same reason, a
 *     read of a register that a majority keeps writes back what it has read: Attiya, Bar-Noy and
 *     Dolev, 1995.) If the fence does not reach a majority, the lock is not acquired.
 *   A server has lost its data -> it takes the fence from its clock. No server has accepted a
 *     proposed fence above its own clock, so the new fence is higher than the last one, even if no
 *     other server knows the last one.
 *   A server is asked to join -> it adopts the fence of the lease and makes no new one, so the next
 *     take finds the same fence everywhere.
 *   The lock is removed after the take, but before the fence is written -> if enough servers can be
 *     asked, the lock counts as held by another client; otherwise the take fails as in an outage.
 *   Another client has a majority -> the take is refused -> the same call releases the lock on the
 *     servers that granted it to this client, so that a minority never keeps others out.
 *   Several clients ask at once, and each gets only some servers (a split) -> all release -> each
 *     asks again after a random time, which is longer after each split in a row. The servers keep
 *     no queues, because their orders would differ, and the first waiter on one server could block
 *     the first waiter on two others forever.
 *   A client has the lock on some servers, and other servers have not answered: they may still
 *     complete its majority, or they may be down -> these servers get as long again as the others
 *     took, but at least 100 ms, and then the client releases the lock. So a server that hangs
 *     does not hold up all contenders. Every eighth time in a row, and if the client asks only
 *     once, these servers get at least a second, so that a distant server can answer.
 *   A minority is down -> the lock counts as not granted there. A majority is down -> the lock is
 *     released wherever it was granted, and an outage is reported.
 *   A take got no answer, or was cut short -> the server may have carried it out, or may still do
 *     so -> the take is "owed": dlock must release it, at once, before the next take on that
 *     server, or when it gives up the wait. Each take has its own id, so an old take that arrives
 *     late never passes for the next take.
 *   The caller is cancelled -> all takes are owed -> the caller's release() releases them.
 *
 * While the lock is held:
 *
 *   A minority is down, says that the lock is gone, or answers wrongly -> a majority still grants
 *     the lock, so no other client can have a majority -> the check asks that minority to grant the
 *     lock again, for the rest of the lease.
 *   So many servers have lost the lock that those that still have it are no majority -> the lock is
 *     lost at once. The other servers may grant it to another client, even if this process cannot
 *     ask them.
 *   The servers that still have the lock are no majority, but most of the servers that had it until
 *     now say that it was released with its own token -> the command keeps running. Servers that a
 *     release reached earlier do not count.
 *   So many servers are down that the lock is neither certainly held nor certainly lost -> the
 *     deadline that a majority gave stays in force.
 *   Since the take only a bare majority has the fence, or a server has lost the fence -> the first
 *     check on a server without the fence writes it there.
 *   The lease was extended on some servers only -> it lasts as long as a majority has it.
 *   No process checks the lock (--acquire), and a server comes back without the lock -> the next
 *     extension gives the lock to that server.
 *   The lock is released on a majority -> the release has succeeded, and the other servers get a
 *     moment to answer. If they do not, the lock stays there until the lease ends, which -v
 *     reports. These servers block no client as long as a majority of the servers is free. */
#include "store/quorum/quorum_int.h"

#include "util/text.h"

#include <stdio.h>
#include <string.h>

/* The pause between two attempts to make a server grant the lock again, and before the first
 * attempt after the server has lost the lock. */
static const struct duration join_interval = {1 * NS_PER_S};

/* --- owed takes ---------------------------------------------------------- */

/* Records that the last request for the lock on this server must be released, unless an earlier
 * request already has to be released. */
static void owe(struct quorum_member *member)
{
    if (member->standing != MEMBER_OWES) {
        text_copy(member->owed, sizeof member->owed, member->quorum->take_id);
        member->until = member->lease.deadline;
    }
    member->standing = MEMBER_OWES;
}

/* True if this result of a release means that the server no longer holds this client's lock. */
static bool is_settled(enum lock_result result)
{
    return result == LOCK_OK || lock_is_past(result);
}

/* Releases the lock that an earlier take (member->owed) may have acquired on this server. Once the
 * server says that the lock is no longer there, nothing has to be released. */
static enum lock_result settle(struct quorum_member *member, void *about, struct bound bound)
{
    (void)about;
    struct lease maybe;
    lease_begin(&maybe, &member->quorum->request, deadline_now(), 0);
    maybe.take_id = member->owed;
    maybe.hold = deadline_now();
    enum lock_result result = member->store->release(member->store, &maybe, bound, &member->why);
    if (is_settled(result)) {
        member->store->uncertain = false;
        member->standing = MEMBER_WITHOUT;
    }
    return result;
}

static struct duration judge_settle(const struct quorum *quorum)
{
    return quorum_rounds(quorum, 2, DURATION_MS(100));
}

/* Releases the lock on every server where this client may have it, or where a request for it may
 * still arrive. */
static void give_up(struct quorum *quorum, struct bound bound, bool cancelled)
{
    FOR_MEMBERS (member, quorum) {
        if (member->standing == MEMBER_GRANTS || member->store->uncertain)
            owe(member);
    }
    member_set owing = quorum_members(quorum, MEMBER_OWES);
    if (owing != 0 && !cancelled)
        (void)quorum_round(quorum, &(struct quorum_question){settle, NULL, judge_settle, owing},
                           bound);
    quorum->base.uncertain = quorum_members(quorum, MEMBER_OWES) != 0;
}

/* --- asking for the lock ------------------------------------------------- */

/* Requests the lock from one server. If an earlier take may have acquired the lock there, releases
 * that lock first. */
static enum lock_result take_on(struct quorum_member *member, const struct lock_request *request,
                                struct lease *lease, struct holder *holder, struct bound bound)
{
    enum lock_result result =
        member->standing == MEMBER_OWES ? settle(member, NULL, bound) : LOCK_OK;
    if (is_settled(result))
        result = member->store->take(member->store, request, lease, holder, bound, &member->why);
    if (result == LOCK_OK)
        member->standing = MEMBER_GRANTS;
    return result;
}

/* If the lock is held, the holder's take id shows whether a request of this backend acquired it. If
 * an earlier request arrived late and acquired it, clears the holder, which must not pass for an
 * ancestor of this process. If the current request acquired it, two URLs lead to the same server.
 * (A lock that this process has held from before, with --attach or because dlock has executed
 * another dlock, has a different take id.) */
static enum lock_result ask_take(struct quorum_member *member, void *about, struct bound bound)
{
    (void)about;
    const struct quorum *quorum = member->quorum;
    struct holder *holder = &member->holder;
    enum lock_result result = take_on(member, &quorum->request, &member->lease, holder, bound);
    if (result != LOCK_HELD)
        return result;
    member->pause = holder->pause;
    if (strncmp(holder->take_id, quorum->first_id, strlen(quorum->first_id)) != 0)
        return LOCK_HELD;

    if (strcmp(holder->take_id, quorum->take_id) == 0)
        return errmsg_fail(&member->why, LOCK_INVALID,
                           "%s: this URL leads to the same server as another URL of the quorum",
                           member->url);
    *holder = (struct holder){.expires = holder->expires, .left = holder->left};
    return LOCK_HELD;
}

/* How much more time the slow members get: as long as the others took, within these limits. */
static struct duration grace(const struct quorum *quorum, struct duration least,
                             struct duration most)
{
    return duration_min(duration_max(deadline_gap(quorum->start, deadline_now()), least), most);
}

/* How long to wait for the slow servers if no client has a majority yet. The servers that have
 * granted the lock to this client block other clients meanwhile, so the time is short compared with
 * the random time until clients ask again: if two clients each kept a part of the servers for most
 * of the time, neither would ever have a majority. Every eighth time, and for a client that asks
 * only once, the time is longer, because the near servers may be split for hours, and only a
 * distant server can decide. */
static struct duration split_grace(const struct quorum *quorum)
{
    enum { FAR_EVERY = 8 };
    bool asks_once = quorum->takes == 1 && quorum->request.last;
    bool far = asks_once || quorum->splits % FAR_EVERY == FAR_EVERY - 1;
    return grace(quorum, far ? DURATION_S(1) : DURATION_MS(100), DURATION_S(5));
}

static struct duration judge_take(const struct quorum *quorum)
{
    int spare = quorum->count - quorum->need;
    int ok = quorum_count_round(quorum, RESULT_OK);
    int held = quorum_count_round(quorum, RESULT_HELD);
    /* Unless the lock is detached (no process watches it), the slow servers get hardly any time,
     * because this process can ask them later to grant the lock, too. */
    if (ok >= quorum->need)
        return grace(quorum, quorum->request.detached ? DURATION_MS(50) : DURATION_MS(1),
                     DURATION_MS(100));
    if (held > spare || quorum_count_round(quorum, RESULT_FAILED) > spare)
        return grace(quorum, DURATION_MS(20), DURATION_MS(100));
    if (held > 0 && ok + held >= quorum->need)
        return split_grace(quorum);
    return QUORUM_WAITS;
}

/* --- the fence ----------------------------------------------------------- */

/* Checks the lease on a server that has it, and raises that server's fence to the lease's fence. */
static enum lock_result ask_check(struct quorum_member *member, void *about, struct bound bound)
{
    const struct lease *lease = about;
    struct backend *store = member->store;
    if (lease->outside || member->lease.fence >= lease->fence)
        return store->check(store, &member->lease, bound, &member->why);

    struct lease raised = member->lease;
    raised.fence = lease->fence;
    enum lock_result result = store->raise_fence(store, &raised, bound, &member->why);
    if (result == LOCK_OK)
        member->lease = raised;
    return result;
}

/* The fence that the client proposes: the time half a second ago. A server accepts a time within
 * the last second by its own clock (next_fence() in take.lua), so either clock may be half a second
 * ahead. */
static int64_t proposed_fence(void)
{
    return wall_now_us() - DURATION_MS(500).ns / NS_PER_US;
}

/* The members that grant the lease and have its fence. */
static member_set with_fence(const struct quorum *quorum, const struct lease *lease)
{
    member_set with = 0;
    FOR_MEMBERS (member, quorum)
        if (member->standing == MEMBER_GRANTS && member->result == LOCK_OK &&
            member->lease.fence == lease->fence)
            with |= member->bit;
    return with;
}

/* How long to wait for the servers that are asked to store the fence; the other servers already
 * have it. Once a majority has the fence, the rest get only a little time to store it, so that they
 * answer the same fence next time. */
static struct duration judge_raise(const struct quorum *quorum)
{
    member_set asked = quorum->question->who;
    int have = __builtin_popcount(quorum_members(quorum, MEMBER_GRANTS) & ~asked);
    bool enough = have + quorum_count_round(quorum, RESULT_OK) >= quorum->need;
    return enough ? quorum_rounds(quorum, 2, DURATION_MS(20)) : QUORUM_WAITS;
}

/* Makes sure that a majority has the highest fence, which it usually has already. LOCK_OK: a
 * majority has it. LOCK_HELD: the lock was removed after this client had acquired it. */
static enum lock_result raise_fences(struct quorum *quorum, struct lease *lease, struct bound bound,
                                     struct errmsg *why)
{
    *lease = (struct lease){.fence = 0};
    FOR_MEMBERS (member, quorum)
        if (member->standing == MEMBER_GRANTS && member->lease.fence > lease->fence)
            lease->fence = member->lease.fence;

    member_set with = with_fence(quorum, lease);
    if (__builtin_popcount(with) < quorum->need) {
        member_set without = quorum_members(quorum, MEMBER_GRANTS) & ~with;
        struct quorum_question question = {ask_check, lease, judge_raise, without};
        if (quorum_round(quorum, &question, bound))
            return LOCK_CANCELLED;
        with = with_fence(quorum, lease);
    }

    if (__builtin_popcount(with) >= quorum->need)
        return LOCK_OK;
    if (quorum_count(quorum, RESULT_PAST) > 0 &&
        quorum->count - quorum_count(quorum, RESULT_FAILED) >= quorum->need)
        return LOCK_HELD;
    enum lock_result result =
        quorum_verdict(quorum, quorum_members(quorum, MEMBER_GRANTS), false, why);
    return is_settled(result) ? LOCK_UNAVAILABLE : result;
}

/* --- refused takes ------------------------------------------------------- */

static int count_same(const struct quorum *quorum, const struct holder *holder)
{
    int same = 0;
    FOR_MEMBERS (member, quorum) {
        same += member->result == LOCK_HELD && holder_is_same(&member->holder, holder);
    }
    return same;
}

/* Finds the holder to wait for: the owner that has a majority. Of the owner's leases, the one that
 * ends first counts. An owner without a majority is only another contender. It must not be named
 * and, above all, must not pass for an ancestor of this process that holds the lock. One server
 * that reports a successful run (REFUSED_DONE) is enough, because every majority includes a server
 * that knows of the run. */
static void find_holder(struct quorum *quorum, struct holder *holder)
{
    int most = 0;
    FOR_MEMBERS (member, quorum) {
        if (member->result != LOCK_HELD)
            continue;
        int same = count_same(quorum, &member->holder);
        if (member->holder.refusal == REFUSED_DONE || same > most ||
            (same == most && deadline_before(holder_end(&member->holder), holder_end(holder))))
            *holder = member->holder;
        if (holder->refusal == REFUSED_DONE)
            return;
        most = same > most ? same : most;
    }
    if (most < quorum->need)
        *holder = (struct holder){.shares = holder->shares && most > 0};
    FOR_MEMBERS (member, quorum) { /* a server that was down knows of fewer runs */
        if (member->result == LOCK_HELD && member->holder.typical.runs > holder->typical.runs)
            holder->typical = member->holder.typical;
    }
    holder->ahead = -1;
    holder->pause = quorum_paused(quorum);
    quorum->splits = most < quorum->need && holder->pause.left.ns == 0 ? quorum->splits + 1 : 0;
}

/* All waiters know when the holder's lease ends, but they must not all ask at that moment. The time
 * doubles with each consecutive refusal in which no client had a majority, up to a limit. */
static struct deadline time_to_ask(const struct quorum *quorum, const struct holder *holder)
{
    enum { DOUBLED_MOST = 5 };
    int doubled = quorum->splits < DOUBLED_MOST ? quorum->splits : DOUBLED_MOST;
    struct duration most = {(quorum->splits > 0 ? 20 * NS_PER_MS : 50 * NS_PER_MS) << doubled};
    struct duration from_none = {2 * duration_jittered(most).ns - most.ns};
    if (quorum->splits > 0)
        return deadline_after(from_none);
    return deadline_plus(holder_end(holder), from_none);
}

/* --- take ---------------------------------------------------------------- */

/* The servers of a quorum keep no queue, so only a client's last request says that the client has
 * waited. If the release of an earlier lease got no answer, that lease may still exist, so it must
 * be released again. */
static void begin_take(struct quorum *quorum, const struct lock_request *request)
{
    FOR_MEMBERS (member, quorum) {
        if (member->standing == MEMBER_GRANTS)
            owe(member);
        else if (member->standing == MEMBER_RELEASED)
            member->standing = MEMBER_WITHOUT;
        member->lease = (struct lease){0};
    }
    if (quorum->takes == 0)
        text_copy(quorum->first_id, sizeof quorum->first_id, request->take_id);
    snprintf(quorum->take_id, sizeof quorum->take_id, quorum->takes > 0 ? "%.200s+%d" : "%.200s",
             quorum->first_id, quorum->takes);
    quorum->takes++;
    quorum->join_at = (struct deadline){0};
    quorum->join_pause = DURATION_ZERO;
    quorum->request = *request;
    quorum->request.take_id = quorum->take_id;
    quorum->request.fence = proposed_fence();
    quorum->request.waits = request->waits && request->last;
    quorum->base.note = quorum->base.warning = NULL;
}

enum lock_result quorum_take(struct backend *backend, const struct lock_request *request,
                             struct lease *lease, struct holder *holder, struct bound bound,
                             struct errmsg *why)
{
    struct quorum *quorum = quorum_of(backend);
    begin_take(quorum, request);
    struct deadline before = deadline_now();
    struct quorum_question question = {ask_take, NULL, judge_take, QUORUM_ALL};
    bool cancelled = quorum_round(quorum, &question, bound);
    quorum_learn_pace(quorum);

    enum lock_result result = LOCK_HELD;
    if (cancelled) {
        result = LOCK_CANCELLED;
    } else if (quorum_count(quorum, RESULT_OK) >= quorum->need) {
        quorum_note(quorum, true);
        result = raise_fences(quorum, lease, bound, why);
    } else if (quorum_count(quorum, RESULT_OK | RESULT_HELD) < quorum->need) {
        result = quorum_failure(quorum, why);
    }

    if (result == LOCK_OK) {
        lease_begin(lease, &quorum->request, before, lease->fence);
        FOR_MEMBERS (member, quorum) /* no lease may last longer than its TTL after `before` */
            lease_cut(&member->lease, lease->deadline);
        lease->deadline = quorum_deadline(quorum);
        return LOCK_OK;
    }
    if (result == LOCK_HELD) {
        find_holder(quorum, holder);
        quorum->again = time_to_ask(quorum, holder);
    }
    give_up(quorum, bound, result == LOCK_CANCELLED);
    return result;
}

/* --- joining ------------------------------------------------------------- */

/* Asks a server that does not have the lock to grant it, too. If the answer to an earlier attempt
 * was lost, the server recognizes the take id. The lease must end on this server when it ends on
 * the others, however long it takes to connect or to release an earlier request. Otherwise the
 * lease would grow each time a server forgets it. */
static enum lock_result join(struct quorum_member *member, void *about, struct bound bound)
{
    enum { LEFT_LEAST_MS = 100 };
    const struct lease *lease = about;
    struct lock_request request = member->quorum->request;
    struct duration left = deadline_left(lease->deadline);
    struct lease taken;
    struct holder holder;
    if (left.ns < LEFT_LEAST_MS * NS_PER_MS)
        return member->result;

    request.ttl.ns = left.ns - left.ns % NS_PER_MS;
    request.end = lease->deadline;
    request.fence = lease->fence;
    request.hold_at_least = deadline_left(lease->hold);
    request.self.since_wall_ms = lease->began_ms;
    request.last = request.waits = false;
    request.once_per = DURATION_ZERO;
    enum lock_result result = take_on(member, &request, &taken, &holder, bound);
    if (result != LOCK_OK)
        return result;

    member->lease = taken;
    lease_cut(&member->lease, lease->deadline);
    member->lease.ttl = lease->ttl; /* the TTL for a later extension */
    member->lease.set = lease->set; /* as on the other servers, although only the rest of the lease
                                     * was requested */
    return LOCK_OK;
}

/* How long to wait for servers that are asked to grant a lease that other servers already grant:
 * only the time to connect, to release an earlier request, and to carry out the new one. The
 * caller's result does not depend on these servers. */
static struct duration judge_join(const struct quorum *quorum)
{
    return quorum_rounds(quorum, 6, DURATION_MS(200));
}

/* Asks these members to grant the lease, too. Returns whether the caller was cancelled. */
static bool have_join(struct quorum *quorum, member_set who, struct lease *lease,
                      struct bound bound)
{
    return quorum_round(quorum, &(struct quorum_question){join, lease, judge_join, who}, bound);
}

/* When it is time (join_at), asks the servers that do not have the lock to grant it too. After a
 * failed attempt, the next attempt does not wait for the next check, which may be 10 s away
 * (quorum_news()): if one more server forgot the lock meanwhile, another client could acquire the
 * lock. A server that stays down is asked ever more rarely, until another server loses the lock. A
 * server on which the lock was released is not asked, because the release may be on its way to the
 * others. */
static bool join_when_due(struct quorum *quorum, struct lease *lease, struct bound bound)
{
    member_set lacking = quorum_members(quorum, MEMBER_LACKS);
    if (lacking == 0 || !deadline_passed(quorum->join_at))
        return false;
    bool cancelled = have_join(quorum, lacking, lease, bound);
    quorum->join_pause =
        duration_max(join_interval, duration_doubled(quorum->join_pause, DURATION_S(10)));
    quorum->join_at = deadline_after(quorum->join_pause);
    return cancelled;
}

/* --- check, extend ------------------------------------------------------- */

/* Of another process's lease only the token is known, so any server may have the lease. */
static void adopt(struct quorum *quorum, const struct lease *lease)
{
    if (!lease->outside)
        return;
    FOR_MEMBERS (member, quorum) {
        if (member->standing == MEMBER_WITHOUT)
            member->standing = MEMBER_GRANTS;
        member->lease = *lease;
    }
}

/* Records which servers have lost the lease, and ends the lease there. A client that removes the
 * lock everywhere does not reach all servers at the same moment. So a server that has just lost the
 * lock is not asked at once to grant it again: otherwise the lock could never be removed. */
static void forget_lost(struct quorum *quorum, const struct lease *lease)
{
    FOR_MEMBERS (member, quorum) {
        if (member->standing == MEMBER_GRANTS && lock_is_past(member->result)) {
            member->standing = member->result == LOCK_RELEASED ? MEMBER_RELEASED : MEMBER_WITHOUT;
            quorum->join_pause = join_interval;
            quorum->join_at = deadline_after(join_interval);
        }
        if (lock_is_past(member->result) || (lease->outside && member->result != LOCK_OK))
            lease_cut(&member->lease, (struct deadline){0});
    }
}

/* Adopts the lease that a majority has: of the majority's leases, the one that ends first. */
static void take_in(const struct quorum *quorum, struct lease *lease)
{
    lease->deadline = quorum_deadline(quorum);
    FOR_MEMBERS (member, quorum) {
        const struct lease *own = &member->lease;
        if (own->deadline.boot_ns != lease->deadline.boot_ns ||
            (lease->outside && member->result != LOCK_OK))
            continue;
        lease->set = own->set;
        lease->mode = own->mode;
        lease->slots = own->slots;
        lease->slot = own->slot;
    }
}

static enum lock_result ask_lease(struct quorum *quorum, struct quorum_question question,
                                  struct lease *lease, struct bound bound, struct errmsg *why)
{
    adopt(quorum, lease);
    question.who = quorum_members(quorum, MEMBER_GRANTS);
    bool cancelled = quorum_round(quorum, &question, bound);
    quorum_learn_pace(quorum);
    quorum_note(quorum, false); /* also notes servers that have not granted the lease again yet */

    enum lock_result result = quorum_verdict(quorum, question.who, cancelled, why);
    forget_lost(quorum, lease);
    if (!lease->outside && (result == LOCK_OK || result == LOCK_UNAVAILABLE)) {
        struct lease rest = *lease;
        if (result == LOCK_OK)
            rest.deadline = quorum_deadline(quorum);
        cancelled = join_when_due(quorum, &rest, bound);
        result = quorum_verdict(quorum, quorum_members(quorum, MEMBER_GRANTS), cancelled, why);
    }
    if (result == LOCK_OK)
        take_in(quorum, lease);
    return result;
}

enum lock_result quorum_check(struct backend *backend, struct lease *lease, struct bound bound,
                              struct errmsg *why)
{
    struct quorum_question question = {ask_check, lease, quorum_judge, 0};
    return ask_lease(quorum_of(backend), question, lease, bound, why);
}

struct extension {
    const struct lease *lease;
    enum extend_how how;
};

static enum lock_result ask_extend(struct quorum_member *member, void *about, struct bound bound)
{
    const struct extension *extension = about;
    struct backend *store = member->store;
    member->lease.ttl = extension->lease->ttl;
    return store->extend(store, &member->lease, extension->how, bound, &member->why);
}

/* No process checks a lock of --acquire. So an extension also gives the lock to servers that have
 * come back without it, with what the other servers know about the holder. Nothing changes on a
 * server where another client holds the lock, or where the lock has been released. */
static void give_detached(struct quorum *quorum, struct lease lease, struct bound bound)
{
    struct lock_state state;
    struct errmsg ignored;
    member_set lacking = quorum_members(quorum, MEMBER_WITHOUT);
    if (lacking == 0 ||
        quorum->base.look(&quorum->base, lease.key, &state, bound, &ignored) != LOCK_OK)
        return;

    const struct lock_owner *owner = lock_state_owner(&state, lease.token);
    if (owner != NULL && owner->holder.detached) {
        token_make(quorum->take_id); /* a new id, because a server may refuse the original request
                                      * as withdrawn */
        quorum->request = (struct lock_request){
            .name = lease.name,
            .key = lease.key,
            .token = lease.token,
            .take_id = quorum->take_id,
            .remember = lease.remember,
            .mode = lease.mode,
            .slots = lease.slots,
            .detached = true,
            .self = owner->holder,
        };
        lease.outside = false;
        lease.fence = owner->fence;
        lease.hold = deadline_after(owner->hold_left);
        lease.began_ms = owner->holder.since_wall_ms;
        (void)have_join(quorum, lacking, &lease, bound);
    }
    lock_state_free(&state);
}

enum lock_result quorum_extend(struct backend *backend, struct lease *lease, enum extend_how how,
                               struct bound bound, struct errmsg *why)
{
    struct quorum *quorum = quorum_of(backend);
    struct extension extension = {lease, how};
    /* Check first: if the lock is lost, a minority that still has it must not keep it for
     * longer. */
    enum lock_result result = quorum_check(backend, lease, bound, why);
    if (result != LOCK_OK)
        return result;

    struct quorum_question question = {ask_extend, &extension, quorum_judge, 0};
    result = ask_lease(quorum, question, lease, bound, why);
    if (result == LOCK_OK && lease->outside)
        give_detached(quorum, *lease, bound);
    return result;
}

/* --- release ------------------------------------------------------------- */

struct release {
    const struct lease *lease;
    member_set granted; /* the members that are known to have the lock; others may have it too */
};

/* Releases the lock if the server has it or may have it. */
static enum lock_result ask_release(struct quorum_member *member, void *about, struct bound bound)
{
    const struct release *release = about;
    struct lease lease = *release->lease;
    struct backend *store = member->store;
    if (lease.outside)
        return store->release(store, &lease, bound, &member->why);

    if (member->standing != MEMBER_GRANTS && store->uncertain)
        owe(member);
    if (member->standing == MEMBER_OWES)
        return settle(member, NULL, bound);
    if (member->standing != MEMBER_GRANTS)
        return errmsg_fail(&member->why, LOCK_GONE, "%s: the lock was not held there", member->url);
    lease.take_id = member->quorum->take_id;
    lease.end_ms = member->lease.end_ms;
    return store->release(store, &lease, bound, &member->why);
}

/* A server that the release does not reach keeps the lock until the lease ends. So even when the
 * result is clear, a server that is known to have the lock gets a second more to answer, and a
 * server that may have the lock gets less. */
static struct duration judge_release(const struct quorum *quorum)
{
    const struct release *release = quorum->question->about;
    if (quorum_count_round(quorum, RESULT_OK) < quorum->need &&
        quorum_count_round(quorum, RESULT_PAST) <= quorum->count - quorum->need)
        return QUORUM_WAITS;
    return (quorum_missing(quorum) & release->granted) != 0
               ? DURATION_S(1)
               : quorum_rounds(quorum, 2, DURATION_MS(50));
}

/* Notes which servers have released the lock. Returns NULL if a majority remembers the run;
 * otherwise the reason why one server does not. */
static const char *note_released(struct quorum *quorum)
{
    int remembered = 0;
    const char *unwritten = NULL;
    FOR_MEMBERS (member, quorum) {
        if (member->result != LOCK_OK)
            continue;
        member->standing = MEMBER_RELEASED;
        remembered += member->store->warning == NULL;
        if (member->store->warning != NULL)
            unwritten = member->store->warning;
    }
    return remembered < quorum->need ? unwritten : NULL;
}

enum lock_result quorum_release(struct backend *backend, const struct lease *lease,
                                struct bound bound, struct errmsg *why)
{
    struct quorum *quorum = quorum_of(backend);
    adopt(quorum, lease);
    struct release release = {lease, quorum_members(quorum, MEMBER_GRANTS)};
    struct quorum_question question = {ask_release, &release, judge_release,
                                       ~quorum_members(quorum, MEMBER_RELEASED)};
    bool cancelled = quorum_round(quorum, &question, bound);

    quorum_note_left(quorum);
    enum lock_result result =
        quorum_verdict(quorum, quorum_members(quorum, MEMBER_GRANTS | MEMBER_OWES), cancelled, why);
    forget_lost(quorum, lease);
    const char *unwritten = note_released(quorum);
    if (result == LOCK_OK)
        quorum->base.warning = unwritten;
    quorum->base.uncertain = quorum_members(quorum, MEMBER_GRANTS | MEMBER_OWES) != 0;
    return result;
}
