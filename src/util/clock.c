#include "util/clock.h"

#include "util/exit_status.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* For CLOCK_BOOTTIME and CLOCK_REALTIME, clock_gettime(2) fails only if a system call filter blocks
 * it. A process that does not know when its lease ends must not hold a lease. So dlock exits: the
 * command is killed with dlock, and the lock expires by itself. */
__attribute__((noreturn)) static void end_without_clock(void)
{
    static const char text[] =
        "dlock: cannot read the clock, without which no lease can be watched\n";
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

struct bound bound_again(struct bound bound, struct duration each)
{
    bound.until = deadline_after(each);
    return bound;
}

struct bound bound_share(struct bound bound, int shares)
{
    return bound_again(bound, (struct duration){deadline_left(bound.until).ns / shares});
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

/* Does not use gmtime(3), whose first call reads the file of the local time zone. In this
 * calculation the year begins in March, so that the leap day is the last day of the year. */
void wall_format(int64_t wall_ms, char *text, size_t size)
{
    enum { DAY = 86400, DAYS_OF_400_YEARS = 146097, DAYS_BEFORE_1970 = 719468 };
    int64_t second = wall_ms / 1000 % DAY;
    int64_t day = wall_ms / 1000 / DAY + DAYS_BEFORE_1970;
    int64_t year = day / DAYS_OF_400_YEARS * 400;
    day %= DAYS_OF_400_YEARS;
    int64_t of_400 = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    day -= 365 * of_400 + of_400 / 4 - of_400 / 100;
    int month = (int)(5 * day + 2) / 153;
    int mday = (int)day - (153 * month + 2) / 5 + 1;
    year += of_400 + (month >= 10);

    int length = snprintf(text, size, "%04" PRId64 "-%02d-%02dT%02d:%02d:%02dZ", year,
                          month < 10 ? month + 3 : month - 9, mday, (int)(second / 3600),
                          (int)(second / 60 % 60), (int)(second % 60));
    if (size > 0 && (wall_ms < 0 || length < 0 || (size_t)length >= size))
        text[0] = '\0';
}

/* Writes wall_ms in local time. If it is on the same day as today_ms, writes `today` in place of
 * the date. */
static void format_local(int64_t wall_ms, int64_t today_ms, const char *today, char *text,
                         size_t size)
{
    time_t seconds = (time_t)(wall_ms / 1000), now = (time_t)(today_ms / 1000);
    struct tm local, date;
    char time[40];
    if (size == 0)
        return;
    text[0] = '\0';
    if (localtime_r(&seconds, &local) == NULL || localtime_r(&now, &date) == NULL)
        return;
    bool is_today = local.tm_year == date.tm_year && local.tm_yday == date.tm_yday;
    if (strftime(time, sizeof time, is_today ? "%H:%M:%S %z" : "%Y-%m-%d %H:%M:%S %z", &local) == 0)
        return;
    int length = snprintf(text, size, "%s%s", is_today ? today : "", time);
    if (length < 0 || (size_t)length >= size)
        text[0] = '\0';
}

void wall_format_local(int64_t wall_ms, char *text, size_t size)
{
    format_local(wall_ms, wall_now_ms(), "", text, size);
}

void wall_format_day(int64_t wall_ms, int64_t today_ms, char *text, size_t size)
{
    format_local(wall_ms, today_ms, "today ", text, size);
}

struct duration duration_jittered(struct duration d)
{
    uint64_t random = 0;
    /* Without random numbers, every waiter waits for the longest time, which is slower but never
     * wrong. */
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
        return d;
    uint64_t half = (uint64_t)d.ns / 2;
    return (struct duration){d.ns - (int64_t)(random % (half + 1))};
}

/* --- durations as text ---------------------------------------------------- */

struct unit {
    const char *name;
    int64_t ms;
};

/* duration_format() writes only the first UNITS_WRITTEN of these units; duration_parse() reads all
 * of them. As in systemd.time(7), "m" means minutes, not months. */
enum { UNITS_WRITTEN = 5 };

static const struct unit units[] = {
    {"ms", 1},          {"s", 1000},       {"m", 60000},        {"h", 3600000},
    {"d", 86400000},    {"msec", 1},       {"sec", 1000},       {"second", 1000},
    {"seconds", 1000},  {"min", 60000},    {"minute", 60000},   {"minutes", 60000},
    {"hr", 3600000},    {"hour", 3600000}, {"hours", 3600000},  {"day", 86400000},
    {"days", 86400000}, {"w", 604800000},  {"week", 604800000}, {"weeks", 604800000},
};

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A decimal number as two integers, because a binary fraction would round what the user wrote. */
struct decimal {
    int64_t whole;
    int64_t billionths;
};

static enum duration_error read_decimal(const char **at, struct decimal *out)
{
    const char *p = *at;
    if (!digit(*p) && !(*p == '.' && digit(p[1])))
        return DURATION_NOT_A_NUMBER;
    *out = (struct decimal){0, 0};
    for (; digit(*p); p++)
        if (__builtin_mul_overflow(out->whole, 10, &out->whole) ||
            __builtin_add_overflow(out->whole, *p - '0', &out->whole))
            return DURATION_OVERFLOW;
    if (*p == '.') {
        int64_t place = NS_PER_S / 10;
        if (!digit(*++p))
            return DURATION_NOT_A_NUMBER;
        for (; digit(*p); p++, place /= 10)
            out->billionths += place * (*p - '0');
    }
    *at = p;
    return DURATION_OK;
}

static enum duration_error read_unit(const char **at, int64_t *unit_ms)
{
    const char *text = *at;
    size_t length = 0;
    while (isalpha((unsigned char)text[length]))
        length++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strlen(units[i].name) == length && memcmp(text, units[i].name, length) == 0) {
            *at += length;
            *unit_ms = units[i].ms;
            return DURATION_OK;
        }
    }
    *unit_ms = 1000;
    return *text == '\0' ? DURATION_OK : DURATION_UNKNOWN_UNIT;
}

static enum duration_error scale(struct decimal number, int64_t unit_ms, int64_t *ns)
{
    int64_t whole;
    if (__builtin_mul_overflow(number.whole, unit_ms * NS_PER_MS, &whole))
        return DURATION_OVERFLOW;
    /* billionths * unit_ms * 1e6 / 1e9, reduced so that the product is below 1e9 * 6.05e8 and
     * cannot overflow. */
    int64_t part = number.billionths * unit_ms / 1000;
    return __builtin_add_overflow(whole, part, ns) ? DURATION_OVERFLOW : DURATION_OK;
}

enum duration_error duration_parse(const char *text, struct duration *out)
{
    int64_t sum = 0;
    if (*text == '\0')
        return DURATION_EMPTY;
    if (text[0] == '-' && (text[1] == '.' || isdigit((unsigned char)text[1])))
        return DURATION_NEGATIVE;
    while (*text != '\0') {
        struct decimal number;
        int64_t unit_ms, ns;
        enum duration_error error = read_decimal(&text, &number);
        if (error == DURATION_OK)
            error = read_unit(&text, &unit_ms);
        if (error == DURATION_OK)
            error = scale(number, unit_ms, &ns);
        if (error != DURATION_OK)
            return error;
        if (__builtin_add_overflow(sum, ns, &sum))
            return DURATION_OVERFLOW;
    }
    *out = (struct duration){sum};
    return DURATION_OK;
}

const char *duration_error_text(enum duration_error error)
{
    switch (error) {
    case DURATION_OK: return "fine";
    case DURATION_EMPTY: return "empty; a duration is needed, such as 90, 1.5s, 250ms or 1h30m";
    case DURATION_NEGATIVE: return "a duration cannot be negative";
    case DURATION_NOT_A_NUMBER: return "not a number with a unit, such as 90, 1.5s, 250ms or 1h30m";
    case DURATION_UNKNOWN_UNIT: return "unknown unit; use ms, s, m, h, d or w";
    case DURATION_OVERFLOW: return "too large";
    }
    return "not a duration";
}

/* Writes "1.5s" or "10.002s". Returns what snprintf() returns. */
static int seconds_format(int64_t s, int ms, char *text, size_t size)
{
    int digits = 3;
    for (; ms % 10 == 0; ms /= 10)
        digits--;
    return snprintf(text, size, "%lld.%0*ds", (long long)s, digits, ms);
}

char *duration_format(struct duration d, char *text, size_t size)
{
    int64_t ms = d.ns / NS_PER_MS;
    size_t used = 0;
    text[0] = '\0';
    if (d.ns >= DURATION_FOREVER.ns) {
        snprintf(text, size, "infinity");
        return text;
    }
    for (size_t i = UNITS_WRITTEN; i-- > 0 && used < size;) {
        int64_t count = ms / units[i].ms;
        int64_t rest = ms - count * units[i].ms;
        int written;
        if (count == 0)
            continue;
        if (units[i].ms == 1000 && rest > 0) {
            written = seconds_format(count, (int)rest, text + used, size - used);
            rest = 0;
        } else {
            written = snprintf(text + used, size - used, "%lld%s", (long long)count, units[i].name);
        }
        used += written > 0 ? (size_t)written : 0;
        ms = rest;
    }
    if (used == 0)
        snprintf(text, size, "0");
    return text;
}

char *duration_rounded(struct duration d, char *text, size_t size)
{
    static const int64_t s = NS_PER_S, h = INT64_C(3600) * NS_PER_S,
                         day = INT64_C(86400) * NS_PER_S;
    int64_t step = d.ns < s        ? NS_PER_MS
                   : d.ns < 10 * s ? s / 10
                   : d.ns < h      ? s
                   : d.ns < day    ? 60 * s
                                   : h;
    if (d.ns > 0 && d.ns < NS_PER_MS)
        snprintf(text, size, "less than 1ms");
    else
        duration_format((struct duration){d.ns - d.ns % step}, text, size);
    return text;
}

char *duration_about(struct duration d, char *text, size_t size)
{
    static const int64_t s = NS_PER_S, m = 60 * NS_PER_S;
    int64_t step = d.ns < m ? NS_PER_MS : d.ns < 10 * m ? 10 * s : m;
    return duration_rounded((struct duration){d.ns - d.ns % step}, text, size);
}
