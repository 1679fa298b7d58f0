/* Asking a store again while it is down: for --outage, as a wait for a lock does. */
#ifndef DLOCK_RUN_RETRY_H
#define DLOCK_RUN_RETRY_H

#include "util/clock.h"
#include "util/errmsg.h"
#include "util/exit_status.h"
#include "util/message.h"

/* The shortest and the longest pause between tries of a store that is down. */
#define RETRY_LEAST DURATION_MS(100)
#define RETRY_MOST DURATION_S(2)

/* Calls attempt() until it returns something other than LOCK_UNAVAILABLE, or
 * `outage` is over: then *why says how many tries there were. */
enum lock_result retry(enum lock_result (*attempt)(void *data, struct bound, struct errmsg *),
                       void *data, struct duration outage, struct errmsg *why);

/* "tried 3 times in 1.2s". Returns text. */
#define TRIED_TEXT_SIZE 96
char *tried_format(int tries, struct duration time, char text[TRIED_TEXT_SIZE]);

#endif
