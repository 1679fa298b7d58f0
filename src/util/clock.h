/* Time inside dlock: nanoseconds of CLOCK_BOOTTIME, which continues while the system is suspended
 * and is never set. The wall clock is only for display. */
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

/* A point in time on the boot clock. */
struct deadline {
    int64_t boot_ns;
};

#define DEADLINE_NEVER ((struct deadline){INT64_MAX})

/* Limits a number of milliseconds or events from an untrusted source. Neither the sum nor the
 * difference of two such numbers overflows, even in nanoseconds. */
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

/* The same bound, but `each` from now: for the next of several calls. */
struct bound bound_again(struct bound bound, struct duration each);

/* One of `shares` equal shares of the time that is left. */
struct bound bound_share(struct bound bound, int shares);

/* The same bound, but at most `most` from now. */
struct bound bound_within(struct bound bound, struct duration most);

struct deadline deadline_now(void);

/* Limits how much of a source (signals, messages, events, children) is read before the reader looks
 * at the clock again, because a source that is filled without pause must not delay the end of a
 * lease. Zero at the start. */
struct drain {
    int events;
    struct deadline end;
};

/* True if one more event may be read: at most 64, for at most 10 ms. */
bool drain_goes_on(struct drain *drain);

/* Saturate at DEADLINE_NEVER and at 0. */
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

/* The time left until d, zero once it has passed. */
struct duration deadline_left(struct deadline d);

/* later - earlier, zero if that is negative. */
struct duration deadline_gap(struct deadline earlier, struct deadline later);

/* Calls poll(2) until the deadline; a caught signal does not end the wait. */
struct pollfd;
int deadline_poll(struct pollfd *fds, size_t count, struct deadline until);

/* The timeout for poll(2): what remains, rounded up; -1 for DEADLINE_NEVER. */
int deadline_poll_ms(struct deadline d);

/* Sets a timer of timerfd_create(2) on the boot clock; DEADLINE_NEVER stops the timer. Returns the
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

/* The wall clock since the epoch. */
int64_t wall_now_ms(void);
int64_t wall_now_us(void);

static inline int64_t wall_after_ms(struct duration from_now)
{
    return wall_now_ms() + from_now.ns / NS_PER_MS;
}

/* The deadline on the wall clock, which people read; leases are counted on the boot clock. 0 if d
 * was never set. */
static inline int64_t wall_at_ms(struct deadline d)
{
    return d.boot_ns == 0 ? 0 : wall_now_ms() + (d.boot_ns - deadline_now().boot_ns) / NS_PER_MS;
}

/* Writes wall_ms as ISO 8601 in UTC ("2026-11-21T03:00:00Z"); "" before
 * 1970, or if the buffer cannot hold it. */
void wall_format(int64_t wall_ms, char *text, size_t size);

/* Writes wall_ms in the local time of this host: "03:59:58 +0100", and with the
 * date before it if that is not today's; "" if the buffer or the calendar cannot
 * hold it. Its first call reads the file of the time zone. */
void wall_format_local(int64_t wall_ms, char *text, size_t size);

/* Like wall_format_local(), but in the form "today 03:59:58 +0100"; today is the day of
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

/* Reads decimal terms and adds them up. Each has an optional unit: ms, s, m, h, d or w, or a longer
 * name such as sec, min, hr or days. Only the last term can omit its unit, if it is seconds.
 * Digits below a nanosecond are cut. *out is set only on DURATION_OK. */
enum duration_error duration_parse(const char *text, struct duration *out);

/* What is wrong, and the valid form, for a message. */
const char *duration_error_text(enum duration_error error);

/* Writes d as duration_parse() reads it, in the shortest form: "1h30m", "1.5s", "250ms"; "infinity"
 * from DURATION_FOREVER on; "0" below a millisecond. Returns text. */
char *duration_format(struct duration d, char *text, size_t size);

/* Like duration_format(), for a measured duration: rounded down to what a person reads: "250ms",
 * "1.2s", "59m18s", "1h30m", "2d5h". */
char *duration_rounded(struct duration d, char *text, size_t size);

/* Like duration_rounded(), for an estimate: without seconds from ten minutes on, below that in
 * steps of ten seconds. */
char *duration_about(struct duration d, char *text, size_t size);

/* Enough for the text of each of these functions. */
#define DURATION_TEXT_SIZE 48

#endif
