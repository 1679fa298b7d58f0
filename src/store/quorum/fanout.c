/* Ownership:
 *
 *   member i, its backend    the thread that asks it, while it lives; the caller before
 *                            the round and after it.
 *   done, result, cut,
 *   decided                  under the mutex during a round.
 *   the rest of struct
 *   fanout                   written by the caller before it starts a thread.
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
#include "store/quorum/fanout.h"

#include "util/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Under the mutex. */
static bool all_done(const struct fanout *crew)
{
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].wanted && !crew->workers[i].done)
            return false;
    return true;
}

/* Under the mutex. */
static void cut_by(struct fanout *crew, struct duration more)
{
    struct deadline cut = deadline_after(more);
    if (more.ns == CREW_WAITS.ns || !deadline_before(cut, crew->cut))
        return;
    crew->cut = cut;
    crew->decided = deadline_earlier(crew->decided, deadline_now());
    more = duration_max(more, (struct duration){1}); /* 0 would disarm it */
    struct itimerspec time = {
        .it_value = {(time_t)(more.ns / NS_PER_S), (long)(more.ns % NS_PER_S)}};
    (void)timerfd_settime(crew->cut_fd, 0, &time, NULL);
}

static void end_with(struct fanout_worker *worker, enum lock_result result)
{
    struct fanout *crew = worker->crew;
    pthread_mutex_lock(&crew->mutex);
    worker->result = result;
    worker->done = true;
    if (!all_done(crew))
        cut_by(crew, crew->judge(crew->data, crew));
    pthread_mutex_unlock(&crew->mutex);
}

static void *work(void *data)
{
    struct fanout_worker *worker = data;
    const struct fanout *crew = worker->crew;
    end_with(worker, crew->ask(crew->data, worker->number, crew->bound));
    return NULL;
}

enum lock_result fanout_open(struct fanout *crew, int count, void *data)
{
    struct epoll_event event = {.events = EPOLLIN};
    *crew = (struct fanout){.count = count, .data = data};
    crew->cut_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
    crew->cancel_fd = epoll_create1(EPOLL_CLOEXEC);
    if (crew->cut_fd < 0 || crew->cancel_fd < 0 ||
        epoll_ctl(crew->cancel_fd, EPOLL_CTL_ADD, crew->cut_fd, &event) != 0) {
        int error = errno;
        if (crew->cut_fd >= 0)
            close(crew->cut_fd);
        if (crew->cancel_fd >= 0)
            close(crew->cancel_fd);
        errno = error;
        return LOCK_SYSTEM;
    }
    pthread_mutex_init(&crew->mutex, NULL); /* glibc: never fails with these attributes */
    for (int i = 0; i < count; i++)
        crew->workers[i] = (struct fanout_worker){.crew = crew, .number = i};
    return LOCK_OK;
}

void fanout_want(struct fanout *crew, int number)
{
    crew->workers[number].wanted = true;
}

static struct fanout_worker *last_wanted(struct fanout *crew)
{
    struct fanout_worker *last = NULL;
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].wanted)
            last = &crew->workers[i];
    return last;
}

static bool is_readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return fd >= 0 && poll(&poll_fd, 1, 0) > 0;
}

bool fanout_run(struct fanout *crew, fanout_ask *ask, fanout_judge *judge, struct bound bound)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct fanout_worker *own = last_wanted(crew);
    if (own == NULL)
        return is_readable(bound.cancel_fd);
    if (bound.cancel_fd >= 0)
        (void)epoll_ctl(crew->cancel_fd, EPOLL_CTL_ADD, bound.cancel_fd,
                        &event); /* it may be there from another round */
    crew->ask = ask;
    crew->judge = judge;
    crew->bound = (struct bound){bound.until, crew->cancel_fd};
    crew->cut = crew->decided = DEADLINE_NEVER;
    for (int i = 0; i < crew->count; i++)
        crew->workers[i].done = crew->workers[i].started = false;
    pthread_mutex_lock(&crew->mutex);
    cut_by(crew, judge(crew->data, crew));
    pthread_mutex_unlock(&crew->mutex);
    for (struct fanout_worker *worker = crew->workers; worker < own; worker++)
        worker->started = worker->wanted && thread_start(&worker->thread, work, worker) == 0;
    (void)work(own);
    for (struct fanout_worker *worker = crew->workers; worker < own; worker++)
        if (worker->wanted && !worker->started)
            (void)work(worker);
    for (const struct fanout_worker *worker = crew->workers; worker < own; worker++)
        if (worker->started)
            pthread_join(worker->thread, NULL);
    for (struct fanout_worker *worker = crew->workers; worker <= own; worker++)
        worker->wanted = false;
    (void)timerfd_settime(crew->cut_fd, 0, &(struct itimerspec){{0, 0}, {0, 0}}, NULL);
    return is_readable(bound.cancel_fd);
}

void fanout_close(struct fanout *crew)
{
    pthread_mutex_destroy(&crew->mutex);
    close(crew->cut_fd);
    close(crew->cancel_fd);
}
