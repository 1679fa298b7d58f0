/* The text about a wait: "waiting 12s for NAME: held by ann@host, pid 12, backup:
 * a message, since 02:59:58, until 03:59:58 at the latest; 3rd in line; to clear it now: ..."
 * Foreign text in it is escaped. */
#ifndef DLOCK_UI_PROGRESS_TEXT_H
#define DLOCK_UI_PROGRESS_TEXT_H

#include "lock/lease.h"

#include <stdbool.h>
#include <stdint.h>

/* The lock that is waited for. */
struct awaited_lock {
    const char *name;
    int slots;                             /* of MODE_SLOTS; otherwise 0 */
    const char *prefix, *redis, *lock_dir; /* to repeat, as the command line gives them; or NULL */
};

struct progress_text {
    char line[2560];
};

/* Begins with how long the wait has lasted, and for what (NULL: left out). */
void progress_text_begin(struct progress_text *text, struct duration waited, const char *name);

/* Adds that the lock is held. until_ms is when it ends at the latest by the wall clock of
 * this host (0: it does not, by itself); `life`: of the holder: if that has ended, how the
 * lock can be removed is shown. */
void progress_text_holder(struct progress_text *text, const struct holder *holder, int64_t until_ms,
                          enum process_life life, const struct awaited_lock *lock);

/* Adds that the store cannot be reached, as `why` says, and is retried for that much longer. */
void progress_text_outage(struct progress_text *text, const char *why, struct duration left);

/* Cuts the line at a character to this many columns, and shows that with '~'. */
void progress_text_fit(struct progress_text *text, int columns);

#endif
