#include "util/clock.h"

#include "util/exit_status.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* It cannot fail for the two clocks that we ask for, unless a filter blocks
 * system calls. A process that cannot tell when a lease ends may not hold one:
 * the command is killed with us, and the lock expires by itself. */
__attribute__((noreturn)) static void end_without_clock(void)
{
    static const char text[] = "dlock: the clock cannot be read, so no lease can be kept\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(STATUS_SYSTEM);
}

static int64_t read_clock(clockid_t id)
{
    struct timespec ts;
    if (clock_gettime(id, &ts) != 0)
        end_without_clock();
    return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

bool bound_is_cancelled(struct bound bound)
{
    struct pollfd fd = {.fd = bound.cancel_fd, .events = POLLIN};
    return bound.cancel_fd >= 0 && poll(&fd, 1, 0) > 0;
}

struct bound bound_share(struct bound bound, int shares)
{
    bound.until = deadline_after((struct duration){deadline_left(bound.until).ns / shares});
    return bound;
}

struct bound bound_within(struct bound bound, struct duration most)
{
    bound.until = deadline_earlier(bound.until, deadline_after(most));
    return bound;
}

struct deadline deadline_now(void)
{
    return (struct deadline){read_clock(CLOCK_BOOTTIME)};
}

bool drain_goes_on(struct drain *drain)
{
    enum { EVENTS_MOST = 64 };
    if (drain->events++ == 0)
        drain->end = deadline_after(DURATION_MS(10));
    return drain->events <= EVENTS_MOST && !deadline_passed(drain->end);
}

struct deadline deadline_plus(struct deadline from, struct duration later)
{
    struct deadline sum;
    if (__builtin_add_overflow(from.boot_ns, later.ns, &sum.boot_ns))
        return DEADLINE_NEVER;
    return sum;
}

struct deadline deadline_minus(struct deadline from, struct duration earlier)
{
    int64_t ns;
    if (from.boot_ns == INT64_MAX)
        return from;
    if (__builtin_sub_overflow(from.boot_ns, earlier.ns, &ns) || ns < 0)
        ns = 0;
    return (struct deadline){ns};
}

struct duration deadline_gap(struct deadline earlier, struct deadline later)
{
    int64_t ns = later.boot_ns - earlier.boot_ns; /* both are >= 0: no overflow */
    return (struct duration){ns > 0 ? ns : 0};
}

struct duration deadline_left(struct deadline d)
{
    return deadline_gap(deadline_now(), d);
}

int deadline_poll_ms(struct deadline d)
{
    if (d.boot_ns == INT64_MAX)
        return -1;
    struct duration left = deadline_left(d);
    int64_t ms = left.ns / NS_PER_MS + (left.ns % NS_PER_MS != 0);
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

int deadline_poll(struct pollfd *fds, size_t count, struct deadline until)
{
    int ready;
    do
        ready = poll(fds, count, deadline_poll_ms(until));
    while (ready < 0 && errno == EINTR);
    return ready;
}

int deadline_set_timer(int timer_fd, struct deadline d)
{
    struct itimerspec when = {
        .it_value = {(time_t)(d.boot_ns / NS_PER_S), (long)(d.boot_ns % NS_PER_S)}};
    if (d.boot_ns == INT64_MAX)
        when = (struct itimerspec){0};
    return timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, NULL) == 0 ? -1
                                                                          : deadline_poll_ms(d);
}

int64_t wall_now_ms(void)
{
    return read_clock(CLOCK_REALTIME) / NS_PER_MS;
}

int64_t wall_now_us(void)
{
    return read_clock(CLOCK_REALTIME) / NS_PER_US;
}

/* Not gmtime(3), whose first call reads the file of the local time zone. The year of this
 * calculation begins in March, so that the leap day is its last. */
void wall_format(int64_t wall_ms, char *text, size_t size)
{
    enum { DAY = 86400, DAYS_OF_400_YEARS = 146097, DAYS_BEFORE_1970 = 719468 };
    int64_t second = wall_ms / 1000 % DAY, day = wall_ms / 1000 / DAY + DAYS_BEFORE_1970;
    int64_t year = day / DAYS_OF_400_YEARS * 400;
    day %= DAYS_OF_400_YEARS;
    int64_t of_400 = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    day -= 365 * of_400 + of_400 / 4 - of_400 / 100;
    int month = (int)(5 * day + 2) / 153, mday = (int)day - (153 * month + 2) / 5 + 1;
    year += of_400 + (month >= 10);
    int length = snprintf(text, size, "%04" PRId64 "-%02d-%02dT%02d:%02d:%02dZ", year,
                          month < 10 ? month + 3 : month - 9, mday, (int)(second / 3600),
                          (int)(second / 60 % 60), (int)(second % 60));
    if (size > 0 && (wall_ms < 0 || length < 0 || (size_t)length >= size))
        text[0] = '\0';
}

/* Without the date if it is on the day of today_ms. */
static void format_local(int64_t wall_ms, int64_t today_ms, bool with_zone, char *text, size_t size)
{
    time_t seconds = (time_t)(wall_ms / 1000), now = (time_t)(today_ms / 1000);
    struct tm local, today;
    if (size == 0)
        return;
    text[0] = '\0';
    if (localtime_r(&seconds, &local) == NULL || localtime_r(&now, &today) == NULL)
        return;
    bool is_today = local.tm_year == today.tm_year && local.tm_yday == today.tm_yday;
    if ((with_zone ? strftime(text, size, is_today ? "%H:%M:%S %z" : "%Y-%m-%d %H:%M:%S %z", &local)
                   : strftime(text, size, is_today ? "today %H:%M:%S" : "%Y-%m-%d %H:%M:%S",
                              &local)) == 0)
        text[0] = '\0';
}

void wall_format_local(int64_t wall_ms, char *text, size_t size)
{
    format_local(wall_ms, wall_now_ms(), true, text, size);
}

void wall_format_day(int64_t wall_ms, int64_t today_ms, char *text, size_t size)
{
    format_local(wall_ms, today_ms, false, text, size);
}

struct duration duration_jittered(struct duration d)
{
    uint64_t random = 0;
    /* Without entropy every waiter waits the longest: late, never wrong. */
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
        return d;
    uint64_t half = (uint64_t)d.ns / 2;
    return (struct duration){d.ns - (int64_t)(random % (half + 1))};
}
