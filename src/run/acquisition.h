/* Acquires and releases a lock for a command, --acquire or --attach. */
#ifndef DLOCK_RUN_ACQUISITION_H
#define DLOCK_RUN_ACQUISITION_H

#include "process/procfs.h"
#include "process/signals.h"
#include "store/backend.h"
#include "ui/progress.h"
#include "ui/report.h"
#include "util/message.h"

#include <stdbool.h>

/* Whether an ancestor already holds the lock, and whether the ancestor's mode is enough for this
 * request. */
enum outer_lock {
    OUTER_NONE,
    OUTER_COVERS,    /* the ancestor's lock is enough: nothing to acquire or release */
    OUTER_CONFLICTS, /* the ancestor's mode differs, so a wait would never end */
};

struct acquisition {
    /* Set by the caller: */
    struct messages *out;
    const char *undone; /* says in failure messages what was not done: "the command was not run" */
    char key[LOCK_KEY_SIZE];
    struct lock_request request; /* acquisition_open() sets key, token, take_id and self */
    struct awaited_lock awaited;
    bool waits_forever;
    struct duration wait;      /* the longest wait; 0 (-n): dlock waits only for a guard of
                                * --attach, and only briefly */
    struct duration retry_for; /* how long to try to reach a store that is down, within `wait` */
    int conflict_status;
    const char *lock_dir; /* NULL: the default */
    /* Opens the store that replaces an unreachable Redis; NULL: there is no such store. */
    enum lock_result (*open_fallback)(struct backend **, const char *lock_dir, struct errmsg *);
    struct backend *backend; /* used by acquisition_take(), closed by acquisition_close(); NULL: not
                              * open */
    const char *kind;        /* the kind of store; NULL: not chosen yet */
    char *where; /* the store as DLOCK_HELD names it, freed by acquisition_close(); NULL: `kind` is
                  * used instead */

    /* Set by run/acquisition.c: */
    struct signals signals;
    int cancel_fd; /* ends the wait when readable: signals.fd, unless the caller sets another one */
    char token[TOKEN_SIZE];
    char take_id[TOKEN_SIZE];
    struct lease lease;
    struct duration waited;
    enum outer_lock outer;
    struct pids ancestors; /* the ancestors of the process that the lock is for; empty until dlock
                            * lists them */
    bool searched;         /* dlock has already looked for attached locks, and for an ancestor that
                            * shares the lock */
    bool gave_back; /* dlock gave back a lock that was granted too late; the store may not have
                     * received the release, so the lock may still be held */
    int ended_by;   /* the signal that ended the wait, or 0 */
    struct progress view;
};

/* Opens lock->signals, and sets the owner token and the holder in lock->request. The owner token is
 * `owner`, or a new one if `owner` is NULL. The holder is the process `pid` (0: this process), and
 * its command is shown as `command` (NULL: the name of that process). Returns false if this failed:
 * the failure has been reported, and *status is the exit status. After true, call
 * acquisition_close(). */
bool acquisition_open(struct acquisition *lock, const char *owner, const char *command, pid_t pid,
                      int *status);

/* True if the lock is for this process or its parent. In that case, the environment and the lock
 * directory show which locks of its ancestors (outer locks) this process runs under. False: the
 * lock is for another process (--attach=PID). */
bool acquisition_is_for_us(const struct acquisition *lock);

/* Call this if an ancestor holds the lock in this mode. Sets `outer` to OUTER_COVERS if that mode
 * is enough for the request, otherwise to OUTER_CONFLICTS. An exclusive lock is also enough for a
 * shared request. */
void acquisition_found_outer(struct acquisition *lock, enum lock_mode mode, int slots);

/* Acquires the lock, and waits for it as long as `wait` and `waits_forever` allow. If an ancestor
 * holds the lock, only sets `outer`. False: the failure has been reported and *status is the exit
 * status, or `ended_by` is the signal that ended the wait. If cancel_fd ended the wait without a
 * signal, the process that the lock was to be attached to has ended. */
bool acquisition_take(struct acquisition *lock, int *status);

/* Releases the lock, with retries for a few seconds. Returns LOCK_OK, LOCK_GONE, LOCK_FOREIGN,
 * LOCK_RELEASED or LOCK_ENDED. Any other result, such as LOCK_UNAVAILABLE, is the error that
 * prevented the release. In that case, the lock expires by itself. */
enum lock_result acquisition_release(struct acquisition *lock, struct errmsg *why);

/* Reports the result of the release: as a warning if the lock could not be released, otherwise only
 * with -v. */
void acquisition_say_released(const struct acquisition *lock, enum lock_result result,
                              const struct errmsg *why);

/* Releases a lock under which nothing was run, and reports `text` as the failure. Returns
 * `status`. */
int acquisition_give_back(struct acquisition *lock, enum failure failure, int status,
                          const char *text);

/* Closes everything that is open, and returns `status`. If a signal ended the wait (`ended_by`),
 * does not return: this process dies by that signal. */
int acquisition_close(struct acquisition *lock, int status);

#endif
