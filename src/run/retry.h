/* Retries calls to a store that is down. */
#ifndef DLOCK_RUN_RETRY_H
#define DLOCK_RUN_RETRY_H

#include "lock/result.h"
#include "ui/progress.h"
#include "util/clock.h"
#include "util/errmsg.h"

/* Repeated tries to reach a store that may be down. */
struct retries {
    /* Set by the caller: */
    struct duration retry_for; /* how long dlock keeps trying; 0: only one try */
    struct deadline end;       /* no try starts after this time */
    struct deadline limit;     /* a try ends by then, but gets at least a second; NEVER: no limit */
    int cancel_fd;             /* when readable, ends a try or a pause; -1: none */
    struct duration pause, pause_most; /* the first and the longest pause between tries; each
                                        * pause is twice the previous one, with jitter */
    struct progress *view;             /* shows the outage; NULL: it is not shown */
    int timer_fd;                      /* the timer for the pauses; -1: there was no pause yet */
    /* Results, of the last retry(): */
    struct deadline since; /* when the first try started; ask() may change it */
    int count;
};

/* Waits until `until`, or until news_fd (-1: none) is readable. Uses a timer on the boot clock,
 * because the timeout of poll(2) stops while the system is suspended: after a suspend, dlock would
 * wait for the rest of the timeout, even if the lock had become free. Returns LOCK_OK, or
 * LOCK_CANCELLED if tries->cancel_fd is readable. */
enum lock_result retries_sleep(struct retries *tries, int news_fd, struct deadline until);

/* Returns settings with the usual pauses and with no limit except `retry_for`. */
struct retries retries_for(struct duration retry_for, int cancel_fd);
void retries_close(struct retries *tries);

/* Makes one try, which must end within `bound`. Returns LOCK_UNAVAILABLE with *why set if the store
 * is down. */
typedef enum lock_result attempt(void *data, struct bound bound, struct errmsg *why);

/* Calls ask() until it returns something other than LOCK_UNAVAILABLE, and returns that result.
 * LOCK_UNAVAILABLE: there was no time for another attempt. LOCK_CANCELLED: cancel_fd ended a
 * pause. */
enum lock_result retry(struct retries *tries, attempt *ask, void *data, struct errmsg *why);

/* Like retry(), but with the settings of retries_for(). *why also says how often dlock tried. */
enum lock_result retry_action(attempt *ask, void *data, struct duration retry_for, int cancel_fd,
                              struct errmsg *why);

/* Writes how often dlock has tried so far: "tried 3 times in 1.2s" or "tried once". Returns
 * text. */
#define TRIED_TEXT_SIZE 96
char *tried_format(const struct retries *tries, char text[TRIED_TEXT_SIZE]);

#endif
