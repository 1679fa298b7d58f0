/* Acquires and releases a lock, for running a command, --acquire and --attach. */
#ifndef DLOCK_RUN_ACQUISITION_H
#define DLOCK_RUN_ACQUISITION_H

#include "process/procfs.h"
#include "process/signals.h"
#include "store/backend.h"
#include "ui/progress.h"
#include "ui/report.h"
#include "util/message.h"

#include <stdbool.h>

/* Whether an ancestor already holds the lock, and how its mode relates to this request. */
enum outer_lock {
    OUTER_NONE,
    OUTER_COVERS,    /* the ancestor's lock is enough: nothing to acquire or release */
    OUTER_CONFLICTS, /* held in another mode: a wait would never end */
};

struct acquisition {
    /* Set by the caller: */
    struct messages *out;
    const char *undone; /* what did not happen if there is no lock: "the command was not run" */
    char key[LOCK_KEY_SIZE];
    struct lock_request request; /* except for what acquisition_open() sets */
    struct awaited_lock awaited;
    bool waits_forever;
    struct duration wait; /* unless waits_forever; zero: waits at most for a guard of --attach */
    struct duration retry_for; /* how long dlock retries a store that is down, within `wait` */
    int conflict_status;
    const char *lock_dir; /* NULL: the default */
    /* Opens the store that replaces an unreachable Redis; NULL: there is none. */
    enum lock_result (*open_fallback)(struct backend **, const char *lock_dir, struct errmsg *);
    struct backend *backend; /* for acquisition_take(); acquisition_close() closes it; NULL: none */
    const char *kind;        /* of the store; NULL: not chosen yet */
    char *where; /* the store as in DLOCK_HELD; acquisition_close() frees it; NULL: use `kind` */

    /* Set by run/acquisition.c: */
    struct signals signals;
    int cancel_fd; /* ends the wait: signals.fd, unless the caller sets another */
    char token[TOKEN_SIZE];
    char take_id[TOKEN_SIZE];
    struct lease lease;
    struct duration waited;
    enum outer_lock outer;
    struct pids ancestors; /* of the process that the lock is for, listed at the first refusal */
    bool searched;         /* dlock has searched for shares of ancestors and for attached locks */
    bool gave_back; /* dlock released a take that came too late; the take may still be in force */
    int ended_by;   /* the signal that ended the wait; 0: none */
    struct progress view;
};

/* Opens lock->signals and completes the request: the token is `owner` (NULL: a fresh one); the
 * holder is the process `pid` (0: this process), and its command is `command` (NULL: the process's
 * own name). False: reported, and *status is the exit status. After true, call
 * acquisition_close(). */
bool acquisition_open(struct acquisition *lock, const char *owner, const char *command, pid_t pid,
                      int *status);

/* True if the lock is for this process or its caller. Then the environment and the lock directory
 * tell which outer locks that process runs under. False: the lock is for another process
 * (--attach=PID). */
bool acquisition_is_for_us(const struct acquisition *lock);

/* Call this if an ancestor holds the lock in this mode. Sets `outer` by whether that mode covers
 * the requested one; an exclusive lock also covers a shared request. */
void acquisition_found_outer(struct acquisition *lock, enum lock_mode mode, int slots);

/* Acquires the lock, waiting as the caller has set, or finds that an ancestor holds the lock
 * (`outer`, unless acquisition_found_outer() has already set it). False: reported, and *status is
 * the exit status; or `ended_by` is the signal that ended the wait. If cancel_fd ended the wait
 * without a signal, the process to attach to has ended. */
bool acquisition_take(struct acquisition *lock, int *status);

/* Tries to release the lock for a few seconds. Returns LOCK_OK, LOCK_GONE, LOCK_FOREIGN,
 * LOCK_RELEASED, LOCK_ENDED; or LOCK_UNAVAILABLE or another error that prevented the
 * release: then the lock expires by itself. */
enum lock_result acquisition_release(struct acquisition *lock, struct errmsg *why);

/* Reports the result of the release: with -v, or as a warning if the lock remains. */
void acquisition_say_released(const struct acquisition *lock, enum lock_result result,
                              const struct errmsg *why);

/* Releases the lock before anything was done under it, and reports why. Returns `status`. */
int acquisition_give_back(struct acquisition *lock, enum failure failure, int status,
                          const char *text);

/* Closes what is open. Returns the status; does not return if a signal ended
 * the wait (`ended_by`), because this process then dies by that signal. */
int acquisition_close(struct acquisition *lock, int status);

#endif
