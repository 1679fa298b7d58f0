/* Taking a lock and giving it back: what running a command, --acquire and
 * --attach have in common. */
#ifndef DLOCK_RUN_ACQUISITION_H
#define DLOCK_RUN_ACQUISITION_H

#include "config/options.h"
#include "process/signals.h"
#include "store/backend.h"
#include "ui/progress.h"
#include "util/message.h"

#include <stdbool.h>

struct acquisition {
    const struct options *options;
    struct messages *out;
    const char *undone; /* what did not happen where there is no lock: "the command was not run" */
    struct signals signals;
    int cancel_fd; /* ends the wait: signals.fd, where the caller sets no other */
    char key[LOCK_KEY_SIZE];
    char token[TOKEN_SIZE];
    char take_id[TOKEN_SIZE];
    struct lock_request request;
    struct backend *backend; /* NULL: not open */
    struct lease lease;
    struct duration waited;
    bool nested;    /* an ancestor holds the lock: nothing to take, nothing to release */
    bool upgrade;   /* it does, in another mode: waiting for it would never end */
    bool looked;    /* whether one of several who share it is an ancestor */
    bool searched;  /* the lock directory, for a lock that is attached to one */
    bool gave_back; /* a take of ours that came too late, and may still stand */
    int ended_by;   /* the signal; 0: none */
    struct progress view;
};

/* Opens the signals and makes up the request: key, token and take id; the
 * holder is `pid` (0: this process), its command `command` (NULL: its own
 * name). False: told, and *status is the exit status.
 * acquisition_close() if it was true. */
bool acquisition_open(struct acquisition *acquisition, const struct options *options,
                      struct messages *out, const char *undone, const char *command, pid_t pid,
                      int *status);

/* Takes the lock, waiting as the options say, or finds that it is held by an
 * ancestor (`nested`). False: told, and *status is the exit status; or
 * `ended_by` is the signal that ended the wait. Where cancel_fd ended it and
 * there is no signal, the holder-to-be has ended. */
bool acquisition_take(struct acquisition *acquisition, int *status);

/* LOCK_OK, LOCK_GONE, LOCK_FOREIGN, LOCK_RELEASED, or what kept us from it:
 * then the lock clears by itself. Tries for a few seconds. */
enum lock_result acquisition_release(struct acquisition *acquisition, struct errmsg *why);

/* Says what came of it: with -v, or as a warning where the lock stays. */
void acquisition_say_released(const struct acquisition *acquisition, enum lock_result result,
                              const struct errmsg *why);

/* Releases without having done anything, and says why. Returns the exit status. */
int acquisition_give_back(struct acquisition *acquisition, const char *text);

/* Closes what is open. Returns the status, or does not: where a signal was to
 * end dlock (`ended_by`), this process dies by it. */
int acquisition_close(struct acquisition *acquisition, int status);

#endif
