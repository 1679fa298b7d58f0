/* Texts about a lock's holder, and about a wait for the lock. */
#ifndef DLOCK_UI_WAIT_TEXT_H
#define DLOCK_UI_WAIT_TEXT_H

#include "lock/lease.h"

#include <stdbool.h>
#include <stdint.h>

/* --- a holder, as part of a sentence; foreign text is not escaped --------- */

/* Enough for each text that the functions below return. */
enum { HOLDER_TEXT_SIZE = 768 };

/* A remark about the holder: "; acquired with --acquire", "; has ended", "; hidden by /proc", or
 * "" if there is none. */
const char *holder_life_text(const struct holder *holder, enum process_life life);

/* "ann@web3 (pid 12, backup; running)" if `life` is "; running". "another client" if the holder is
 * not known. */
const char *holder_format(const struct holder *holder, const char *life,
                          char text[HOLDER_TEXT_SIZE]);

/* Why the lock is refused: "held by ann@web3 (pid 12, backup) since 02:59:58 +0100", "2 of 2 slots
 * are taken, one by ...", "free, but others have waited longer". `slots` is the number of slots
 * that dlock requests, or 0 without --slots. `life` says whether the holder's process is alive. */
const char *holder_refusal_format(const struct holder *holder, int slots, enum process_life life,
                                  char text[HOLDER_TEXT_SIZE]);

/* " since 02:59:58 +0100"; "" if the holder or the time is not known, if the time is in the future
 * by this host's clock, or if only --hold-at-least still keeps the lock. */
const char *holder_since_format(const struct holder *holder, char text[HOLDER_TEXT_SIZE]);

/* "paused by ann@web3 until 14:00:00 +0100; message: why". */
const char *pause_format(const struct pause *pause, char text[HOLDER_TEXT_SIZE]);

/* --- a wait, in one line; foreign text is escaped -------------------------
 *
 * "waiting 12s for NAME: usually 12m, about 4m left; held by ann@host (pid 12, backup) since
 * 02:59:58, until 03:59:58 at the latest; 3rd in line; message: ...; to release the lock now:
 * ..." */

/* The lock that dlock waits for. */
struct awaited_lock {
    const char *name;
    int slots; /* the number of slots with MODE_SLOTS; otherwise 0 */
    /* The values of these options as given on the command line, to be repeated in the command that
     * dlock suggests. NULL: not given. */
    const char *scope, *prefix, *redis, *lock_dir;
};

struct wait_text {
    char line[2560];
};

/* Starts the line with how long the wait has lasted, and with the lock's name unless `name` is
 * NULL. */
void wait_text_begin(struct wait_text *text, struct duration waited, const char *name);

/* Adds how long the holder's run is expected to last, if that is known, after a progress bar of
 * `bar_columns` columns (0: no bar). */
void wait_text_estimate(struct wait_text *text, const struct holder *holder, int bar_columns);

/* Adds that the lock is held. `until_ms` is when the lease ends at the latest, by the wall clock of
 * this host, or 0 if it does not end by itself. If `life` says that the holder has ended, adds how
 * to remove the lock. */
void wait_text_holder(struct wait_text *text, const struct holder *holder, int64_t until_ms,
                      enum process_life life, const struct awaited_lock *lock);

/* Adds that the store cannot be reached, with the reason `why`, and that dlock retries for `left`. */
void wait_text_outage(struct wait_text *text, const char *why, struct duration left);

/* If the line is wider than `columns`, cuts it between two characters and ends it with '~'. */
void wait_text_fit(struct wait_text *text, int columns);

#endif
