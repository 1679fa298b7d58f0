/* Every order of events of a take. N servers, of which `need` are a majority.
 *
 *   A majority grants it -> the slow ones are waited for as long again as the others
 *     took, then cut short -> each check asks those that do not have the lock to join
 *     (quorum_join()), so that it does not remain on a bare majority for long.
 *   A majority grants it, but one of these was so slow that the lease is nearly over ->
 *     the lease counts from before each was asked -> the waiter gives such a lease back
 *     (run/wait.c).
 *   The fences differ, as they do since each comes from a clock -> the highest is written
 *     to as many others as make a majority before the take counts -> the next holder's
 *     majority has a server in common with these, which then gives a higher one, whatever
 *     its clock shows. (A read of a register kept by a majority writes back what it has
 *     read for the same reason: Attiya, Bar-Noy and Dolev, 1995.) If it does not reach a
 *     majority: not taken.
 *   It is taken away between the take and the fence -> as if another had got a part, as
 *     long as enough servers can be asked.
 *   One holder has a majority -> refused -> what we got of the others is released within
 *     the same call, so that a minority never keeps others out.
 *   Several ask at once and each gets a part -> all release -> each asks again after a
 *     random time, which is longer each time in a row. No order of arrival is kept: the
 *     servers' queues would have different ones, and the first waiter on one server could
 *     block the first on two others for ever. Those that have not answered by then may be
 *     just those that are missing, or down -> they are given as long again as the others
 *     took, and longer each time in a row, so that a hanging server does not hold up all
 *     contenders, and a distant one is still heard; at least a second if this is the last
 *     time.
 *   A minority is down -> it counts as not granted. A majority is down -> the lock is
 *     released wherever it was granted, and an outage is reported.
 *   A take got no answer, or was cut short -> it may have been carried out, or may be
 *     still -> it is "owed": released at once, before the next take on that server, or
 *     when the wait is given up; and each take has an id of its own, so that an old one
 *     that is late is never taken for the next.
 *   The caller is cancelled -> all is owed -> its release() settles it. */
#include "store/quorum/quorum.h"

#include "util/text.h"

#include <stdio.h>
#include <string.h>

/* How long giving back a partial take may take, before that is left for later. */
static const struct duration settle_least = {100 * NS_PER_MS};

const struct duration quorum_join_interval = {1 * NS_PER_S};

bool quorum_owes(const struct quorum *quorum, const struct quorum_member *member)
{
    (void)quorum;
    return member->standing == MEMBER_OWES;
}

void quorum_owe(const struct quorum *quorum, struct quorum_member *member)
{
    if (!quorum_owes(quorum, member)) {
        text_copy(member->owed, sizeof member->owed, quorum->take_id);
        member->until = member->lease.deadline;
    }
    member->standing = MEMBER_OWES;
}

/* No lock of ours is there any more. */
static bool is_settled(enum lock_result result)
{
    return result == LOCK_OK || lock_is_past(result);
}

enum lock_result quorum_settle(struct quorum *quorum, struct quorum_member *member,
                               struct bound bound)
{
    struct lease maybe;
    struct lock_request request = quorum->request;
    request.take_id = member->owed;
    lease_begin(&maybe, &request, deadline_now(), 0);
    maybe.hold = deadline_now();
    enum lock_result result = member->store->release(member->store, &maybe, bound, &member->why);
    if (is_settled(result)) {
        member->store->uncertain = false;
        member->standing = MEMBER_WITHOUT;
    }
    return result;
}

/* A take on a server that owes us nothing. */
static enum lock_result take_on(struct quorum *quorum, struct quorum_member *member,
                                const struct lock_request *request, struct lease *lease,
                                struct holder *holder, struct bound bound)
{
    enum lock_result result =
        quorum_owes(quorum, member) ? quorum_settle(quorum, member, bound) : LOCK_OK;
    if (is_settled(result))
        result = member->store->take(member->store, request, lease, holder, bound, &member->why);
    if (result == LOCK_OK)
        member->standing = MEMBER_GRANTS;
    return result;
}

/* --- the rounds ---------------------------------------------------------- */

/* By its id: this process may hold the lock from before, with --attach, or because dlock
 * has executed another dlock. */
static bool is_own_take(const struct quorum *quorum, const struct holder *holder)
{
    return strncmp(holder->take_id, quorum->first_id, strlen(quorum->first_id)) == 0;
}

/* The lock on the server is our own take. Either an earlier one came late, which must not
 * pass for an ancestor of ours that holds the lock; or this server is asked under another
 * name as well. */
static enum lock_result refuse_self(const struct quorum *quorum, struct quorum_member *member)
{
    struct holder *holder = &member->holder;
    bool is_this = strcmp(holder->take_id, quorum->take_id) == 0;
    *holder = (struct holder){.expires = holder->expires, .left = holder->left, .ahead = -1};
    if (!is_this)
        return LOCK_HELD;
    return errmsg_fail(&member->why, LOCK_INVALID,
                       "%s: it is the server of another URL under another name", member->url);
}

static enum lock_result ask_take(struct quorum *quorum, struct quorum_member *member,
                                 struct bound bound)
{
    enum lock_result result =
        take_on(quorum, member, &quorum->request, &member->lease, &member->holder, bound);
    return result == LOCK_HELD && is_own_take(quorum, &member->holder) ? refuse_self(quorum, member)
                                                                       : result;
}

/* The partial take blocks others as long as this lasts. A request that asks only once must
 * not be denied the lock just because a server is far away. */
static struct duration split_grace(const struct quorum *quorum)
{
    enum { DOUBLED_MOST = 5 };
    if (quorum->takes == 1 && quorum->request.last)
        return quorum_grace(quorum->start, DURATION_S(1), DURATION_S(5));
    int doubled = quorum->splits < DOUBLED_MOST ? quorum->splits : DOUBLED_MOST;
    return quorum_grace(quorum->start, (struct duration){(100 * NS_PER_MS) << doubled},
                        DURATION_S(5));
}

static struct duration judge_take(const struct quorum *quorum)
{
    struct quorum_count count = quorum_count_round(quorum);
    int spare = quorum->count - quorum->need;
    /* A holder that stays can have a slow server join later. */
    struct duration least = quorum->request.detached ? DURATION_MS(50) : DURATION_MS(1);
    if (count.ok >= quorum->need)
        return quorum_grace(quorum->start, least, DURATION_MS(100));
    if (count.held > spare || count.bad + count.silent > spare)
        return quorum_grace(quorum->start, DURATION_MS(20), DURATION_MS(100));
    if (count.held > 0 && count.ok + count.held >= quorum->need)
        return split_grace(quorum);
    return QUORUM_WAITS;
}

static struct duration judge_settle(const struct quorum *quorum)
{
    return quorum_rounds(quorum, 2, settle_least);
}

enum lock_result quorum_raise_on(struct quorum *quorum, struct quorum_member *member,
                                 struct bound bound)
{
    struct lease lease = member->lease;
    lease.fence = quorum->lease.fence;
    enum lock_result result =
        member->store->raise_fence(member->store, &lease, bound, &member->why);
    if (result == LOCK_OK)
        member->lease = lease;
    return result;
}

static bool has_fence(const struct quorum *quorum, const struct quorum_member *member)
{
    return quorum_grants(quorum, member) && member->result == LOCK_OK &&
           member->lease.fence == quorum->lease.fence;
}

static int count_fences(const struct quorum *quorum)
{
    int count = 0;
    for (int i = 0; i < quorum->count; i++)
        count += has_fence(quorum, &quorum->members[i]);
    return count;
}

static bool wants_raise(const struct quorum *quorum, const struct quorum_member *member)
{
    (void)quorum;
    return member->chosen;
}

/* The first ones that need it, so many; one that was cut short may do it yet. How
 * many there are. */
static int quorum_take_choose(struct quorum *quorum, int most)
{
    int chosen = 0;
    for (int i = 0; i < quorum->count; i++) {
        struct quorum_member *member = &quorum->members[i];
        bool fit = member->result == LOCK_OK || member->result == LOCK_CANCELLED;
        member->chosen =
            chosen < most && quorum_grants(quorum, member) && fit && !has_fence(quorum, member);
        chosen += member->chosen;
    }
    return chosen;
}

/* Those that are just enough may be slow, if there are others. */
static struct duration judge_raise(const struct quorum *quorum)
{
    return quorum->has_others ? quorum_rounds(quorum, 2, DURATION_MS(20)) : QUORUM_WAITS;
}

/* A majority is enough, and at first only a majority is asked. Returns whether the caller
 * was cancelled. */
static bool raise_fences(struct quorum *quorum, struct bound bound)
{
    bool cancelled = false;
    quorum->lease.fence = 0;
    for (int i = 0; i < quorum->count; i++) {
        const struct quorum_member *member = &quorum->members[i];
        if (quorum_grants(quorum, member) && member->lease.fence > quorum->lease.fence)
            quorum->lease.fence = member->lease.fence;
    }
    quorum->has_others = quorum_count_all(quorum).ok > quorum->need;
    if (quorum_take_choose(quorum, quorum->need - count_fences(quorum)) > 0)
        cancelled = quorum_round(quorum, quorum_raise_on, judge_raise, bound, wants_raise);
    quorum->has_others = false;
    if (!cancelled && count_fences(quorum) < quorum->need &&
        quorum_take_choose(quorum, quorum->count) > 0)
        cancelled = quorum_round(quorum, quorum_raise_on, judge_raise, bound, wants_raise);
    return cancelled;
}

/* Releases wherever our lock may be, or may still arrive. */
static void quorum_take_give_up(struct quorum *quorum, struct bound bound, bool cancelled)
{
    quorum->base.uncertain = false;
    for (int i = 0; i < quorum->count; i++) {
        struct quorum_member *member = &quorum->members[i];
        if (quorum_grants(quorum, member) || member->store->uncertain)
            quorum_owe(quorum, member);
        quorum->base.uncertain |= quorum_owes(quorum, member);
    }
    if (cancelled || !quorum->base.uncertain)
        return;
    quorum_round(quorum, quorum_settle, judge_settle, bound, quorum_owes);
    quorum->base.uncertain = false;
    for (int i = 0; i < quorum->count; i++)
        quorum->base.uncertain |= quorum_owes(quorum, &quorum->members[i]);
}

/* --- refused ------------------------------------------------------------- */

/* How many servers have the same holder as this one, which is reported with what is left
 * of its lease on a majority. */
static int count_same_holder(const struct quorum *quorum, const struct quorum_member *member,
                             struct holder *holder)
{
    int64_t left[QUORUM_MOST];
    int same = 0;
    for (int i = 0; i < quorum->count; i++) {
        const struct quorum_member *other = &quorum->members[i];
        if (other->result != LOCK_HELD || !holder_is_same(&other->holder, &member->holder))
            continue;
        left[same++] = other->holder.expires ? other->holder.left.ns : INT64_MAX;
    }
    *holder = member->holder;
    holder->left.ns = quorum_has(quorum, left, same);
    holder->expires = holder->left.ns != INT64_MAX;
    return same;
}

/* A success that a majority knows is known to one of any majority; so one that says so is
 * enough. */
static const struct holder *find_done(const struct quorum *quorum)
{
    for (int i = 0; i < quorum->count; i++)
        if (quorum->members[i].result == LOCK_HELD &&
            quorum->members[i].holder.refusal == REFUSED_DONE)
            return &quorum->members[i].holder;
    return NULL;
}

static struct pause find_pause(const struct quorum *quorum)
{
    static const struct pause none;
    const struct pause *pauses[QUORUM_MOST];
    for (int i = 0; i < quorum->count; i++) {
        const struct quorum_member *member = &quorum->members[i];
        pauses[i] = member->result == LOCK_HELD ? &member->holder.pause : &none;
    }
    return quorum_paused(quorum, pauses);
}

/* The holder we wait for: the one with a majority. An owner that has less is just another
 * contender: it must not be named, and above all not be taken for an ancestor of ours
 * that holds the lock. */
static void quorum_take_find_holder(struct quorum *quorum, struct holder *holder)
{
    int most = 0;
    const struct holder *done = find_done(quorum);
    if (done != NULL) {
        *holder = *done;
        return;
    }
    for (int i = 0; i < quorum->count; i++) {
        struct holder one;
        if (quorum->members[i].result != LOCK_HELD)
            continue;
        int same = count_same_holder(quorum, &quorum->members[i], &one);
        if (same > most)
            *holder = one;
        most = same > most ? same : most;
    }
    if (most < quorum->need)
        *holder = (struct holder){.shares = holder->shares && most > 0};
    holder->ahead = -1;
    holder->pause = find_pause(quorum);
    quorum->splits = most < quorum->need && holder->pause.left.ns == 0 ? quorum->splits + 1 : 0;
}

/* All waiters know the end of the holder's lease, and should not come at the same moment. */
static struct deadline time_to_ask(const struct quorum *quorum, const struct holder *holder)
{
    enum { DOUBLED_MOST = 5 };
    int doubled = quorum->splits < DOUBLED_MOST ? quorum->splits : DOUBLED_MOST;
    struct duration most = {(quorum->splits > 0 ? 20 * NS_PER_MS : 50 * NS_PER_MS) << doubled};
    struct duration random = duration_jittered(most);
    struct duration from_none = {2 * random.ns - most.ns};
    if (quorum->splits > 0)
        return deadline_after(from_none);
    return deadline_plus(holder_end(holder), from_none);
}

/* --- all of it ----------------------------------------------------------- */

/* No server keeps a place in a queue for us. An earlier lease that was given back may
 * still exist if the release got no answer. */
static void quorum_take_begin(struct quorum *quorum, const struct lock_request *request)
{
    for (int i = 0; i < quorum->count; i++) {
        struct quorum_member *member = &quorum->members[i];
        if (quorum_grants(quorum, member))
            quorum_owe(quorum, member);
        else if (!quorum_owes(quorum, member))
            member->standing = MEMBER_WITHOUT;
        member->lease = (struct lease){0};
    }
    if (quorum->takes == 0)
        text_copy(quorum->first_id, sizeof quorum->first_id, request->take_id);
    snprintf(quorum->take_id, sizeof quorum->take_id, quorum->takes > 0 ? "%.200s+%d" : "%.200s",
             quorum->first_id, quorum->takes);
    quorum->takes++;
    quorum->request = *request;
    quorum->request.take_id = quorum->take_id;
    quorum->request.waits = request->waits && request->last;
}

/* LOCK_OK: a majority has the highest fence. LOCK_HELD: the lock has been taken away
 * since. */
static enum lock_result raise_all(struct quorum *quorum, struct bound bound, bool *cancelled,
                                  struct errmsg *why)
{
    *cancelled = raise_fences(quorum, bound);
    if (*cancelled)
        return LOCK_CANCELLED;
    if (count_fences(quorum) >= quorum->need)
        return LOCK_OK;
    struct quorum_count count = quorum_count_all(quorum);
    if (count.lost > 0 && quorum->count - count.bad - count.silent >= quorum->need)
        return LOCK_HELD;
    enum lock_result result = quorum_verdict(quorum, quorum_grants, false, why);
    return is_settled(result) ? LOCK_UNAVAILABLE : result;
}

/* A member's own lease is no longer than the one that counts from the beginning. */
static void begin_lease(struct quorum *quorum, struct deadline before)
{
    lease_begin(&quorum->lease, &quorum->request, before, quorum->lease.fence);
    for (int i = 0; i < quorum->count; i++)
        lease_cut(&quorum->members[i].lease, quorum->lease.deadline);
    quorum->lease.deadline = quorum_deadline(quorum);
}

static enum lock_result quorum_take_refuse(struct quorum *quorum, struct holder *holder)
{
    quorum_take_find_holder(quorum, holder);
    quorum->again = time_to_ask(quorum, holder);
    return LOCK_HELD;
}

static enum lock_result ask_all(struct quorum *quorum, struct holder *holder, struct bound bound,
                                bool *cancelled, struct errmsg *why)
{
    struct deadline before = deadline_now();
    *cancelled = quorum_round(quorum, ask_take, judge_take, bound, NULL);
    quorum_learn_pace(quorum);
    struct quorum_count count = quorum_count_all(quorum);
    if (*cancelled)
        return LOCK_CANCELLED;
    if (count.ok >= quorum->need) {
        quorum_note(quorum, true);
        enum lock_result result = raise_all(quorum, bound, cancelled, why);
        if (result == LOCK_OK)
            begin_lease(quorum, before);
        return result == LOCK_HELD ? quorum_take_refuse(quorum, holder) : result;
    }
    if (count.ok + count.held < quorum->need)
        return quorum_failure(quorum, why);
    return quorum_take_refuse(quorum, holder);
}

enum lock_result quorum_take(struct backend *backend, const struct lock_request *request,
                             struct lease *lease, struct holder *holder, struct bound bound,
                             struct errmsg *why)
{
    struct quorum *quorum = quorum_of(backend);
    bool cancelled = false;
    quorum->base.note = quorum->base.warning = NULL;
    quorum_take_begin(quorum, request);
    enum lock_result result = ask_all(quorum, holder, bound, &cancelled, why);
    if (result == LOCK_OK)
        *lease = quorum->lease;
    else
        quorum_take_give_up(quorum, bound, cancelled);
    return result;
}

/* If the answer to an earlier try was lost, the server knows its id. The lease ends when
 * it ends on the others: the time to settle and to connect does not make it longer, or it
 * would creep on if one server after the other forgets it. */
enum lock_result quorum_join(struct quorum *quorum, struct quorum_member *member,
                             struct bound bound)
{
    enum { LEFT_LEAST_MS = 100 };
    struct lock_request request = quorum->request;
    struct duration left = deadline_left(quorum->lease.deadline);
    struct lease lease;
    struct holder holder;
    if (left.ns < LEFT_LEAST_MS * NS_PER_MS)
        return member->result;
    member->joins = deadline_after(quorum_join_interval);
    request.ttl.ns = left.ns - left.ns % NS_PER_MS;
    request.end = quorum->lease.deadline;
    request.hold_at_least = deadline_left(quorum->lease.hold);
    request.self.since_wall_ms = quorum->lease.began_ms;
    request.last = request.waits = false;
    request.once_per = DURATION_ZERO;
    enum lock_result result = take_on(quorum, member, &request, &lease, &holder, bound);
    if (result == LOCK_OK) {
        member->lease = lease;
        lease_cut(&member->lease, quorum->lease.deadline);
        member->lease.ttl = quorum->lease.ttl; /* the base for the length of a later extension */
        member->lease.set = quorum->lease.set; /* it was taken for the rest of the lease */
        result = quorum_raise_on(quorum, member, bound);
    }
    return result;
}
