/* dlock measures time in nanoseconds of CLOCK_BOOTTIME, which continues while the system is
 * suspended and is never set. The wall clock is only for display. */
#ifndef DLOCK_UTIL_CLOCK_H
#define DLOCK_UTIL_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NS_PER_US INT64_C(1000)
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

struct duration {
    int64_t ns; /* never negative */
};

/* A point in time on the boot clock (CLOCK_BOOTTIME). */
struct deadline {
    int64_t boot_ns;
};

#define DEADLINE_NEVER ((struct deadline){INT64_MAX})

/* Limits a number of milliseconds or events from an untrusted source. After that, no overflow can
 * occur when milliseconds are converted to nanoseconds, or when two such numbers are added or
 * subtracted. */
static inline int64_t clamped(int64_t number)
{
    const int64_t most = INT64_MAX / NS_PER_MS;
    return number < 0 ? 0 : number < most ? number : most;
}

/* 100 years: practically without end, and far from any overflow. */
#define DURATION_FOREVER DURATION_S(3155760000)
#define DURATION_ZERO ((struct duration){0})
#define DURATION_MS(n) ((struct duration){(n)*NS_PER_MS})
#define DURATION_S(n) ((struct duration){(n)*NS_PER_S})

/* How long a call may take: until `until`, or until cancel_fd (-1: none) becomes readable. Every
 * wait in dlock has a bound. */
struct bound {
    struct deadline until;
    int cancel_fd;
};

/* True if cancel_fd is readable. */
bool bound_is_cancelled(struct bound bound);

/* Returns a bound for the next of several calls: it ends `each` from now, and has the same
 * cancel_fd. */
struct bound bound_again(struct bound bound, struct duration each);

/* Returns the same bound, shortened to one of `shares` equal parts of the remaining time. */
struct bound bound_share(struct bound bound, int shares);

/* Returns the same bound, but it ends no later than `most` from now. */
struct bound bound_within(struct bound bound, struct duration most);

struct deadline deadline_now(void);

/* Limits how much of a source (signals, messages, events, children) is read before the reader
 * checks the clock again. Otherwise a source that never runs empty could keep dlock from acting
 * when a lease ends. Starts as zero. */
struct drain {
    int events;
    struct deadline end;
};

/* True if one more event may be read: at most 64, for at most 10 ms. */
bool drain_goes_on(struct drain *drain);

/* These saturate at DEADLINE_NEVER and at 0. */
struct deadline deadline_plus(struct deadline from, struct duration later);
struct deadline deadline_minus(struct deadline from, struct duration earlier);

static inline struct deadline deadline_after(struct duration from_now)
{
    return deadline_plus(deadline_now(), from_now);
}

static inline bool deadline_before(struct deadline a, struct deadline b)
{
    return a.boot_ns < b.boot_ns;
}

static inline struct deadline deadline_earlier(struct deadline a, struct deadline b)
{
    return deadline_before(a, b) ? a : b;
}

static inline bool deadline_passed(struct deadline d)
{
    return !deadline_before(deadline_now(), d);
}

/* The time left until d, or zero once d has passed. */
struct duration deadline_left(struct deadline d);

/* later - earlier, or zero if that is negative. */
struct duration deadline_gap(struct deadline earlier, struct deadline later);

/* Like poll(2), but waits until the deadline, even if a signal is caught. */
struct pollfd;
int deadline_poll(struct pollfd *fds, size_t count, struct deadline until);

/* The timeout in milliseconds for poll(2): the remaining time, rounded up, or -1 for
 * DEADLINE_NEVER. */
int deadline_poll_ms(struct deadline d);

/* Sets a timerfd on the boot clock to the deadline; DEADLINE_NEVER stops the timer. Returns the
 * timeout for the poll(2) that waits for the timer: -1 or, if the timer cannot be set,
 * deadline_poll_ms(). */
int deadline_set_timer(int timer_fd, struct deadline d);

static inline struct duration duration_min(struct duration a, struct duration b)
{
    return a.ns < b.ns ? a : b;
}

static inline struct duration duration_max(struct duration a, struct duration b)
{
    return a.ns > b.ns ? a : b;
}

static inline struct duration duration_doubled(struct duration d, struct duration most)
{
    return duration_min((struct duration){2 * d.ns}, most);
}

/* The time on the wall clock, since the epoch. */
int64_t wall_now_ms(void);
int64_t wall_now_us(void);

static inline int64_t wall_after_ms(struct duration from_now)
{
    return wall_now_ms() + from_now.ns / NS_PER_MS;
}

/* Converts the deadline to the wall clock, for people to read. 0 if d was never set. */
static inline int64_t wall_at_ms(struct deadline d)
{
    return d.boot_ns == 0 ? 0 : wall_now_ms() + (d.boot_ns - deadline_now().boot_ns) / NS_PER_MS;
}

/* Writes wall_ms as ISO 8601 in UTC ("2026-11-21T03:00:00Z"), or "" if the time is before 1970 or
 * the buffer is too small. */
void wall_format(int64_t wall_ms, char *text, size_t size);

/* Writes wall_ms in the local time of this host: "03:59:58 +0100", preceded by the date if the
 * date is not today's. Writes "" if the buffer is too small or the calendar cannot represent the
 * time. The first call reads the time zone file. */
void wall_format_local(int64_t wall_ms, char *text, size_t size);

/* Like wall_format_local(), but writes "today 03:59:58 +0100" if wall_ms is on the same day as
 * today_ms. */
void wall_format_day(int64_t wall_ms, int64_t today_ms, char *text, size_t size);

/* A random duration from d / 2 to d, so that many waiters do not ask at the same time. */
struct duration duration_jittered(struct duration d);

/* --- durations as people write them: "90", "1.5s", "1h30m", "250ms" --------- */

enum duration_error {
    DURATION_OK,
    DURATION_EMPTY,
    DURATION_NEGATIVE,
    DURATION_NOT_A_NUMBER,
    DURATION_UNKNOWN_UNIT,
    DURATION_OVERFLOW,
};

/* Reads decimal numbers with units and adds them up. The units are ms, s, m, h, d and w, and longer
 * names such as sec, min, hr or days. Only the last number may lack a unit, and is then in seconds.
 * Digits below a nanosecond are cut off. *out is set only on DURATION_OK. */
enum duration_error duration_parse(const char *text, struct duration *out);

/* Says what is wrong and which form is valid, for a message. */
const char *duration_error_text(enum duration_error error);

/* Writes d in the shortest form that duration_parse() reads: "1h30m", "1.5s", "250ms"; "infinity"
 * for DURATION_FOREVER or more; "0" for less than a millisecond. Returns text. */
char *duration_format(struct duration d, char *text, size_t size);

/* Like duration_format(), but for a measured duration, which is rounded down to the precision that
 * a person needs: "250ms", "1.2s", "59m18s", "1h30m", "2d5h". */
char *duration_rounded(struct duration d, char *text, size_t size);

/* Like duration_rounded(), but for an estimate: in steps of ten seconds from one minute on, and in
 * whole minutes from ten minutes on. */
char *duration_about(struct duration d, char *text, size_t size);

/* A buffer of this size is large enough for each function that writes a duration. */
#define DURATION_TEXT_SIZE 48

#endif
