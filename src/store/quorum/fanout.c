/* Ownership:
 *
 *   member i, its backend    the thread that asks it, while it lives; the caller before
 *                            the round and after it.
 *   done, result, cut,
 *   decided                  under the mutex during a round.
 *   the rest of struct
 *   quorum                   written by the caller before it starts a thread.
 *   cut_fd                   set under the mutex; disarmed by the caller when no round is
 *                            on. Every wait of a member is over once it is readable, or
 *                            the caller's own cancel descriptor.
 *
 * Orders of events:
 *   all answer -> each thread ends when it has -> the caller joins them.
 *   enough answer -> the last of these sets the time that the judge gives the others ->
 *     it passes -> all their waits end, and each reports what it knows, so that no thread
 *     is ever left behind in a round. Answers too late for the verdict count all the
 *     same.
 *   the bound passes -> each thread keeps to it by itself.
 *   the caller is cancelled -> all are, at the same moment.
 *   no thread can be started -> the caller asks that server after its own: reaching the
 *     user's limit of processes is no reason to leave a lock behind.
 *
 * All are joined before a round returns: the fork of the command, or of a guard, finds no
 * thread but its own. */
#include "store/quorum/quorum.h"
#include "util/thread.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

/* Under the mutex. */
static bool all_done(const struct quorum *quorum)
{
    for (int i = 0; i < quorum->count; i++)
        if (quorum->members[i].asked && !quorum->members[i].done)
            return false;
    return true;
}

/* Under the mutex. */
static void cut_by(struct quorum *quorum, struct duration more)
{
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
    enum lock_result result = quorum->ask(quorum, member, quorum->bound);
    if (result == LOCK_CANCELLED)
        errmsg_set(&member->why, "%s: it was slower than the others", member->url);
    else if (result == LOCK_HELD)
        errmsg_set(&member->why, "%s: another client holds it there", member->url);
    pthread_mutex_lock(&quorum->mutex);
    member->result = result;
    member->done = true;
    if (!all_done(quorum))
        cut_by(quorum, quorum->patience(quorum));
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
    return errmsg_fail(why, LOCK_SYSTEM, "no descriptors to ask the servers with: %s",
                       strerror(errno));
}

bool quorum_round(struct quorum *quorum, quorum_ask *ask, quorum_patience *patience,
                  struct bound bound, quorum_wanted *wanted)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct quorum_member *own = NULL;
    quorum->start = deadline_now();
    quorum->ask = ask;
    quorum->patience = patience;
    quorum->bound = (struct bound){bound.until, quorum->cancel_fd};
    quorum->cut = quorum->decided = DEADLINE_NEVER;
    for (int i = 0; i < quorum->count; i++) {
        struct quorum_member *member = &quorum->members[i];
        member->asked = wanted == NULL || wanted(quorum, member);
        member->done = member->started = false;
        own = member->asked ? member : own;
    }
    if (own == NULL)
        return bound_is_cancelled(bound);
    if (bound.cancel_fd >= 0)
        (void)epoll_ctl(quorum->cancel_fd, EPOLL_CTL_ADD, bound.cancel_fd, &event);
    pthread_mutex_lock(&quorum->mutex);
    cut_by(quorum, patience(quorum));
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
