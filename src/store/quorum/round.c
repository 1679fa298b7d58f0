/* Asks the members of a quorum, and judges by a majority of the answers.
 *
 * Ownership:
 *
 *   member i, its backend    the thread that asks the member, until the thread ends; the
 *                            caller before and after the round.
 *   done, result, cut,
 *   decided                  under the mutex during a round.
 *   the rest of struct
 *   quorum                   written by the caller before it starts a thread.
 *   cut_fd                   set under the mutex; disarmed by the caller when no round is
 *                            running. Every wait of a member ends once cut_fd or the caller's
 *                            own cancel descriptor is readable.
 *
 * Orders of events:
 *   all answer -> each thread ends after its answer -> the caller joins them.
 *   enough members answer -> the thread that got the last of these answers limits the time of the
 *     other members (`patience`) -> the time passes -> the waits of the others end, and each thread
 *     reports what it knows, so no thread outlives its round. An answer that comes after the
 *     verdict still counts as that member's result.
 *   the bound passes -> each thread ends by itself, because it has the same bound.
 *   the caller is cancelled -> all waits end at the same moment -> each thread ends.
 *   a thread cannot be started -> the caller asks that server too, after its own: even at the
 *     user's limit of processes, no lock must be left on a server.
 *
 * All threads are joined before a round returns, so that no other thread exists when dlock forks
 * the command or a guard. */
#include "store/quorum/quorum_int.h"

#include "util/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

/* --- the round ----------------------------------------------------------- */

member_set quorum_missing(const struct quorum *quorum)
{
    member_set missing = 0;
    FOR_MEMBERS (member, quorum)
        if (member->asked && !member->done)
            missing |= member->bit;
    return missing;
}

/* Shortens the wait to what the question's patience allows. The caller holds the mutex. */
static void set_cut(struct quorum *quorum)
{
    const struct quorum_question *question = quorum->question;
    if (question->patience == NULL)
        return;

    struct duration more = question->patience(quorum);
    struct deadline cut = deadline_after(more);
    if (more.ns == QUORUM_WAITS.ns || !deadline_before(cut, quorum->cut))
        return;

    quorum->cut = cut;
    quorum->decided = deadline_earlier(quorum->decided, deadline_now());
    (void)deadline_set_timer(quorum->cut_fd, cut);
}

static void *ask_member(void *data)
{
    struct quorum_member *member = data;
    struct quorum *quorum = member->quorum;
    const struct quorum_question *question = quorum->question;
    enum lock_result result = question->ask(member, question->about, quorum->bound);
    if (result == LOCK_CANCELLED)
        errmsg_set(&member->why, "%s: slower than the other servers", member->url);
    else if (result == LOCK_HELD)
        errmsg_set(&member->why, "%s: another client holds the lock there", member->url);

    pthread_mutex_lock(&quorum->mutex);
    member->result = result;
    member->done = true;
    if (quorum_missing(quorum) != 0)
        set_cut(quorum);
    pthread_mutex_unlock(&quorum->mutex);
    return NULL;
}

enum lock_result quorum_prepare_rounds(struct quorum *quorum, struct errmsg *why)
{
    struct epoll_event event = {.events = EPOLLIN};
    quorum->cut_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
    quorum->cancel_fd = epoll_create1(EPOLL_CLOEXEC);
    if (quorum->cut_fd >= 0 && quorum->cancel_fd >= 0 &&
        epoll_ctl(quorum->cancel_fd, EPOLL_CTL_ADD, quorum->cut_fd, &event) == 0)
        return LOCK_OK;
    return errmsg_fail(why, LOCK_SYSTEM, "cannot create file descriptors for the servers: %s",
                       strerror(errno));
}

/* Returns the member that the caller's thread asks, which is the last one, or NULL if no member is
 * asked. */
static struct quorum_member *begin_round(struct quorum *quorum,
                                         const struct quorum_question *question, struct bound bound)
{
    struct quorum_member *last = NULL;
    quorum->start = deadline_now();
    quorum->question = question;
    quorum->bound = (struct bound){bound.until, quorum->cancel_fd};
    quorum->cut = quorum->decided = DEADLINE_NEVER;
    FOR_MEMBERS (member, quorum) {
        member->asked = (question->who & member->bit) != 0;
        member->done = member->started = false;
        member->pause.left = DURATION_ZERO;
        last = member->asked ? member : last;
    }
    return last;
}

bool quorum_round(struct quorum *quorum, const struct quorum_question *question, struct bound bound)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct quorum_member *own = begin_round(quorum, question, bound);
    if (own == NULL)
        return bound_is_cancelled(bound);

    if (bound.cancel_fd >= 0)
        (void)epoll_ctl(quorum->cancel_fd, EPOLL_CTL_ADD, bound.cancel_fd, &event);
    pthread_mutex_lock(&quorum->mutex);
    set_cut(quorum);
    pthread_mutex_unlock(&quorum->mutex);

    for (struct quorum_member *member = quorum->members; member < own; member++)
        member->started = member->asked && thread_start(&member->thread, ask_member, member) == 0;
    (void)ask_member(own);
    for (struct quorum_member *member = quorum->members; member < own; member++)
        if (member->asked && !member->started)
            (void)ask_member(member);
    for (const struct quorum_member *member = quorum->members; member < own; member++)
        if (member->started)
            pthread_join(member->thread, NULL);

    (void)deadline_set_timer(quorum->cut_fd, DEADLINE_NEVER);
    if (bound.cancel_fd >= 0)
        (void)epoll_ctl(quorum->cancel_fd, EPOLL_CTL_DEL, bound.cancel_fd, &event);
    return bound_is_cancelled(bound);
}

struct duration quorum_rounds(const struct quorum *quorum, int rounds, struct duration least)
{
    struct duration time = {rounds * duration_min(quorum->pace, DURATION_S(1)).ns};
    return duration_min(duration_max(time, least), DURATION_S(1));
}

void quorum_learn_pace(struct quorum *quorum)
{
    /* If no majority has answered, the round mostly waited for servers that are down, so its length
     * says nothing about the pace. */
    if (quorum_count(quorum, RESULT_OK | RESULT_HELD) >= quorum->need)
        quorum->pace =
            deadline_gap(quorum->start, deadline_earlier(quorum->decided, deadline_now()));
}

/* How many round trips a member needs if it must connect again: for the connection, perhaps for
 * TLS, and for CLIENT TRACKING. */
enum { CONNECTED_ROUNDS = 5 };

struct duration quorum_judge(const struct quorum *quorum)
{
    if (quorum_count_round(quorum, RESULT_OK) >= quorum->need)
        return quorum_rounds(quorum, CONNECTED_ROUNDS, DURATION_MS(200));
    bool lost = quorum_count_round(quorum, RESULT_PAST) > quorum->count - quorum->need;
    return lost ? DURATION_ZERO : QUORUM_WAITS;
}

/* --- counting ------------------------------------------------------------ */

member_set quorum_members(const struct quorum *quorum, unsigned standings)
{
    member_set members = 0;
    FOR_MEMBERS (member, quorum)
        if ((member->standing & standings) != 0)
            members |= member->bit;
    return members;
}

static bool is_one_of(enum lock_result result, unsigned results)
{
    return (results >> result & 1) != 0;
}

member_set quorum_answered(const struct quorum *quorum, unsigned results)
{
    member_set members = 0;
    FOR_MEMBERS (member, quorum)
        if (is_one_of(member->result, results))
            members |= member->bit;
    return members;
}

int quorum_count(const struct quorum *quorum, unsigned results)
{
    return __builtin_popcount(quorum_answered(quorum, results));
}

int quorum_count_round(const struct quorum *quorum, unsigned results)
{
    int count = 0;
    FOR_MEMBERS (member, quorum) {
        if (member->done || (!member->asked && member->standing == MEMBER_RELEASED))
            count += is_one_of(member->result, results);
        else if (!member->asked)
            count += is_one_of(LOCK_GONE, results);
    }
    return count;
}

static int higher_first(const void *a, const void *b)
{
    const int64_t *left = a, *right = b;
    return *left > *right ? -1 : *left < *right;
}

int64_t quorum_has(const struct quorum *quorum, int64_t *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, higher_first);
    return values[(count < quorum->need ? count : quorum->need) - 1];
}

struct pause quorum_paused(const struct quorum *quorum)
{
    int64_t left[QUORUM_MOST] = {0};
    int count = 0;
    FOR_MEMBERS (member, quorum)
        left[count++] = member->pause.left.ns;
    int64_t least = quorum_has(quorum, left, count);
    FOR_MEMBERS (member, quorum)
        if (least > 0 && member->pause.left.ns == least)
            return member->pause;
    return (struct pause){.left = DURATION_ZERO};
}

struct deadline quorum_deadline(const struct quorum *quorum)
{
    int64_t ends[QUORUM_MOST] = {0};
    int count = 0;
    FOR_MEMBERS (member, quorum)
        ends[count++] = member->lease.deadline.boot_ns;
    return (struct deadline){quorum_has(quorum, ends, count)};
}

/* --- texts --------------------------------------------------------------- */

static void add_text(struct errmsg *why, const char *before, const char *text)
{
    size_t used = strlen(why->text);
    snprintf(why->text + used, sizeof why->text - used, "%s%.200s%s", before, text,
             strlen(text) > 200 ? "..." : "");
}

/* Appends "URL: why; URL: why" for the members with one of these results. */
static void add_members(const struct quorum *quorum, unsigned results, const char *before,
                        struct errmsg *why)
{
    FOR_MEMBERS (member, quorum) {
        if (!is_one_of(member->result, results))
            continue;
        add_text(why, before, member->why.text);
        before = "; ";
    }
}

/* A problem that no retry solves is always a warning. A minority that is down, or has lost its
 * keys, is only reported with -v, because a quorum is meant to tolerate that. The note stays the
 * same as long as it is about the same members, whatever they answer. */
void quorum_note(struct quorum *quorum, bool taken)
{
    member_set others = quorum_answered(quorum, ~(unsigned)RESULT_OK);
    quorum->base.note = quorum->base.warning = NULL;
    if (taken || others != quorum->noted) {
        unsigned named =
            taken ? ~(unsigned)(RESULT_OK | RESULT_MISCONFIGURED) : ~(unsigned)RESULT_OK;
        errmsg_set(&quorum->note, "on %d of %d servers", quorum_count(quorum, RESULT_OK),
                   quorum->count);
        add_members(quorum, named, "; ", &quorum->note);
        quorum->noted = others;
    }
    if (taken || others != 0)
        quorum->base.note = quorum->note.text;

    quorum->warning.text[0] = '\0';
    add_members(quorum, RESULT_MISCONFIGURED, "", &quorum->warning);
    if (quorum->warning.text[0] != '\0')
        quorum->base.warning = quorum->warning.text;
}

bool quorum_note_unreached(struct quorum *quorum, const char *what, const char *there)
{
    int failed = quorum_count(quorum, RESULT_FAILED);
    quorum->base.note = quorum->base.warning = NULL;
    if (failed == 0)
        return false;
    errmsg_set(&quorum->note, "%s did not reach %d of %d servers; there, %s", what, failed,
               quorum->count, there);
    add_members(quorum, RESULT_FAILED, ": ", &quorum->note);
    quorum->base.note = quorum->note.text;
    return true;
}

/* Warns only if a majority may still have the lock: a minority that has it blocks other clients
 * only if other servers are down, too. */
void quorum_note_left(struct quorum *quorum)
{
    int left = 0;
    if (!quorum_note_unreached(quorum, "the release", "the lock is held until its lease ends"))
        return;
    FOR_MEMBERS (member, quorum) {
        bool has = member->standing == MEMBER_GRANTS ||
                   (member->standing == MEMBER_OWES && !deadline_passed(member->until));
        left += has && is_one_of(member->result, RESULT_FAILED);
    }
    if (left >= quorum->need)
        quorum->base.warning = quorum->note.text;
}

/* --- verdicts ------------------------------------------------------------ */

enum lock_result quorum_failure(const struct quorum *quorum, struct errmsg *why)
{
    errmsg_set(why, "%d of %d servers cannot be reached, and %d are needed",
               quorum_count(quorum, RESULT_FAILED), quorum->count, quorum->need);
    add_members(quorum, RESULT_FAILED, ": ", why);
    if (quorum->count - quorum_count(quorum, RESULT_BAD) >= quorum->need)
        return LOCK_UNAVAILABLE;
    if (quorum_count(quorum, 1 << LOCK_REFUSED) > 0)
        return LOCK_REFUSED;
    return quorum_count(quorum, 1 << LOCK_INVALID) > 0 ? LOCK_INVALID : LOCK_SYSTEM;
}

enum lock_result quorum_answer(const struct quorum *quorum, bool cancelled, struct errmsg *why)
{
    if (quorum_count(quorum, RESULT_OK) >= quorum->need)
        return LOCK_OK;
    return cancelled ? LOCK_CANCELLED : quorum_failure(quorum, why);
}

/* If the lease was released with its own token, the command keeps running. So most of the servers
 * that had the lease until now, and no longer have it, must say that it was released. One server is
 * not enough: the release may have reached only that one or, if the others have lost their keys,
 * may be an old one. A server that answers LOCK_ENDED had the lease until the lease ran out. If
 * such servers complete a majority, the lease was not lost but has ended. Another client may have
 * deleted the key before that, while the servers were unreachable, but after the end of a lease no
 * server can tell. */
static enum lock_result loss(const struct quorum *quorum, member_set may_have, int missing,
                             struct errmsg *why)
{
    int foreign = 0;
    int released = 0;
    int ended = 0;
    int past = 0;
    const char *before = ": ";
    errmsg_set(why, "%d of %d servers did not grant the lock", missing, quorum->count);
    FOR_MEMBERS (member, quorum) {
        bool had = (may_have & member->bit) != 0;
        if (member->result == LOCK_OK || (had && !lock_is_past(member->result)))
            continue;
        past += had;
        foreign += had && member->result == LOCK_FOREIGN;
        released += had && member->result == LOCK_RELEASED;
        ended += had && member->result == LOCK_ENDED;
        add_text(why, before, member->why.text);
        before = "; ";
    }
    if (released > past - released)
        return LOCK_RELEASED;
    if (quorum->count - missing + ended >= quorum->need)
        return LOCK_ENDED;
    return foreign > 0 ? LOCK_FOREIGN : LOCK_GONE;
}

/* A server that cannot be asked may still have the lease; a server that never granted the lease
 * keeps no client out. */
enum lock_result quorum_verdict(const struct quorum *quorum, member_set may_have, bool cancelled,
                                struct errmsg *why)
{
    int may = 0;
    FOR_MEMBERS (member, quorum) {
        bool had = (may_have & member->bit) != 0;
        may += member->result == LOCK_OK || (had && !lock_is_past(member->result));
    }
    return may < quorum->need ? loss(quorum, may_have, quorum->count - may, why)
                              : quorum_answer(quorum, cancelled, why);
}
