/* Acquires and releases a lock, for running a command, --acquire and --attach. */
#ifndef DLOCK_RUN_ACQUISITION_H
#define DLOCK_RUN_ACQUISITION_H

#include "process/signals.h"
#include "store/backend.h"
#include "ui/progress.h"
#include "ui/report.h"
#include "util/message.h"

#include <stdbool.h>

/* The lock that an ancestor holds, and this request. */
enum outer_lock {
    OUTER_NONE,
    OUTER_COVERS,    /* nothing to acquire or release */
    OUTER_CONFLICTS, /* another mode: waiting would never end */
};

struct acquisition {
    /* Set by the caller: */
    struct messages *out;
    const char *undone; /* what did not happen if there is no lock: "the command was not run" */
    char key[LOCK_KEY_SIZE];
    struct lock_request request; /* but for what acquisition_open() makes */
    struct awaited_lock awaited;
    bool waits_forever;
    struct duration wait;   /* if not for ever; zero: at most for a guard of --attach */
    struct duration outage; /* how long a store that is down is tried, within `wait` */
    int conflict_status;
    const char *lock_dir; /* NULL: the default */
    /* Opens the store that replaces Redis if it is unreachable; NULL: none does. */
    enum lock_result (*open_fallback)(struct backend **, const char *lock_dir, struct errmsg *);
    struct backend *backend; /* for acquisition_take(), and closed here; NULL: not open */
    const char *kind;        /* of the store; NULL: it is not chosen yet */
    char *where; /* the store for DLOCK_HELD, freed here; NULL: its kind is all that is known */

    /* Its own: */
    struct signals signals;
    int cancel_fd; /* ends the wait: signals.fd, unless the caller sets another */
    char token[TOKEN_SIZE];
    char take_id[TOKEN_SIZE];
    struct lease lease;
    struct duration waited;
    enum outer_lock outer;
    bool searched;  /* for an ancestor that shares the lock, and for what is attached to one */
    bool gave_back; /* a take of ours that came too late, and may still be in force */
    int ended_by;   /* the signal; 0: none */
    struct progress view;
};

/* Opens the signals and completes the request: the token is `owner` (NULL: a
 * fresh one); the holder is `pid` (0: this process), its command `command` (NULL:
 * its own name). False: reported, and *status is the exit status. If it was
 * true, call acquisition_close(). */
bool acquisition_open(struct acquisition *lock, const char *owner, const char *command, pid_t pid,
                      int *status);

/* True if the environment and the lock directory, through which an outer dlock passes its
 * locks, describe our caller. False: the lock is for another process (--attach=PID). */
bool acquisition_is_for_us(const struct acquisition *lock);

/* An ancestor holds the lock in this mode: sets `outer`, by whether the mode covers the
 * requested one; an exclusive lock also covers a shared request. */
void acquisition_found_outer(struct acquisition *lock, enum lock_mode mode, int slots);

/* Takes the lock, waiting for it as the caller has set, or finds that an ancestor holds
 * it (`outer`), which the caller may know already. False: reported, and *status is the exit
 * status; or `ended_by` is the signal that ended the wait. If cancel_fd ended it and there is no
 * signal, the process that was to become the holder has ended. */
bool acquisition_take(struct acquisition *lock, int *status);

/* Tries for a few seconds. Returns LOCK_OK, LOCK_GONE, LOCK_FOREIGN,
 * LOCK_RELEASED, LOCK_ENDED, or LOCK_UNAVAILABLE or another error that prevented the
 * release: then the lock expires by itself. */
enum lock_result acquisition_release(struct acquisition *lock, struct errmsg *why);

/* Reports the result: with -v, or as a warning if the lock remains. */
void acquisition_say_released(const struct acquisition *lock, enum lock_result result,
                              const struct errmsg *why);

/* Releases without having done anything, and reports why. Returns `status`. */
int acquisition_give_back(struct acquisition *lock, enum failure failure, int status,
                          const char *text);

/* Closes what is open. Returns the status; does not return if a signal ended
 * the wait (`ended_by`), since this process then dies by it. */
int acquisition_close(struct acquisition *lock, int status);

#endif
