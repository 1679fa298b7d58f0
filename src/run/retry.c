#include "run/retry.h"

#include "util/clock.h"
#include "util/fileutils.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>

/* The shortest and the longest pause between tries to reach a store that is down. */
static const struct duration retry_least = {100 * NS_PER_MS}, retry_most = {2 * NS_PER_S};

struct retries retries_for(struct duration retry_for, int cancel_fd)
{
    return (struct retries){
        .retry_for = retry_for,
        .end = DEADLINE_NEVER,
        .limit = DEADLINE_NEVER,
        .cancel_fd = cancel_fd,
        .pause = retry_least,
        .pause_most = retry_most,
        .timer_fd = -1,
    };
}

void retries_close(struct retries *tries)
{
    fd_close(&tries->timer_fd);
}

enum lock_result retries_sleep(struct retries *tries, int news_fd, struct deadline until)
{
    if (tries->timer_fd < 0)
        tries->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    struct pollfd fds[3] = {
        {.fd = tries->cancel_fd, .events = POLLIN},
        {.fd = news_fd, .events = POLLIN},
        {.fd = tries->timer_fd, .events = POLLIN},
    };
    while (!deadline_passed(until)) {
        int ready = poll(fds, 3, deadline_set_timer(tries->timer_fd, until));
        if (ready > 0 && fds[0].revents != 0)
            return LOCK_CANCELLED;
        if (ready > 0 && fds[1].revents != 0)
            return LOCK_OK;
        if (ready < 0 && errno != EINTR)
            break;
    }
    return LOCK_OK;
}

/* The time limit of one attempt; the connection has its own limit as well. An attempt should end
 * when the wait ends (tries->limit) or when `retry_for` is over. But each attempt gets at least a
 * second: otherwise the last attempt, or the only one with a short --wait, could be too short, and
 * dlock would report a working store as unreachable. If `retry_for` is 0, dlock makes one attempt,
 * and `retry_for` does not limit the time of that attempt. */
static struct bound try_bound(const struct retries *tries)
{
    struct deadline second = deadline_after(DURATION_S(1)), until = tries->limit;

    if (tries->retry_for.ns > 0)
        until = deadline_earlier(until, deadline_plus(tries->since, tries->retry_for));
    return (struct bound){deadline_before(until, second) ? second : until, tries->cancel_fd};
}

enum lock_result retry(struct retries *tries, attempt *ask, void *data, struct errmsg *why)
{
    struct duration pause = tries->pause;

    tries->since = deadline_now();
    for (tries->count = 1;; tries->count++) {
        enum lock_result result = ask(data, try_bound(tries), why);
        struct deadline end =
            deadline_earlier(deadline_plus(tries->since, tries->retry_for), tries->end);
        if (result != LOCK_UNAVAILABLE || deadline_passed(end))
            return result;

        struct deadline next = deadline_earlier(deadline_after(duration_jittered(pause)), end);
        pause = duration_doubled(pause, tries->pause_most);
        while (!deadline_passed(next)) {
            struct deadline wake = next;
            if (tries->view != NULL)
                wake = deadline_earlier(next, progress_show(tries->view, NULL, why, end));
            if (retries_sleep(tries, -1, wake) != LOCK_OK)
                return LOCK_CANCELLED;
        }
    }
}

char *tried_format(const struct retries *tries, char text[TRIED_TEXT_SIZE])
{
    char in[DURATION_TEXT_SIZE];
    struct duration time = deadline_gap(tries->since, deadline_now());

    duration_rounded(time, in, sizeof in);
    if (tries->count == 1)
        snprintf(text, TRIED_TEXT_SIZE, "tried once%s%s", time.ns < NS_PER_S ? "" : ", for ",
                 time.ns < NS_PER_S ? "" : in);
    else
        snprintf(text, TRIED_TEXT_SIZE, "tried %d times in %s", tries->count, in);
    return text;
}

enum lock_result retry_action(attempt *ask, void *data, struct duration retry_for, int cancel_fd,
                              struct errmsg *why)
{
    struct retries tries = retries_for(retry_for, cancel_fd);
    char tried[TRIED_TEXT_SIZE];

    enum lock_result result = retry(&tries, ask, data, why);
    retries_close(&tries);
    if (result == LOCK_UNAVAILABLE) {
        size_t used = strlen(why->text);
        snprintf(why->text + used, sizeof why->text - used, "; %s", tried_format(&tries, tried));
    }
    return result;
}
