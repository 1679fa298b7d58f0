/* Asking a store again while it is down: for --outage, as a wait for a lock does. */
#ifndef DLOCK_INSIST_H
#define DLOCK_INSIST_H

#include "clock.h"
#include "message.h"
#include "status.h"
#include "why.h"

/* Calls attempt() until it returns something else than LOCK_UNAVAILABLE, or
 * `outage` is over: then *why says how often that was. */
enum lock_result insist(enum lock_result (*attempt)(void *data, struct bound, struct why *), void *data,
                        struct duration outage, struct why *why);

#endif
