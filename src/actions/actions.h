/* The actions. Each returns the exit status (util/exit_status.h). */
#ifndef DLOCK_ACTIONS_ACTIONS_H
#define DLOCK_ACTIONS_ACTIONS_H

#include "config/options.h"
#include "util/message.h"

/* dlock NAME COMMAND, the main job: takes the lock, runs the command under it, releases.
 * Does not return if a signal ended the wait: this process dies by it. */
int action_run(const struct options *options, struct messages *out);

/* A lock's life without a command. */
int action_acquire(const struct options *options, struct messages *out);
int action_extend(const struct options *options, struct messages *out);
int action_release(const struct options *options, struct messages *out);
int action_force_release(const struct options *options, struct messages *out);
int action_pause(const struct options *options, struct messages *out); /* --resume, too */

/* A lock for the life of another process, the calling script: leaves a guard process that
 * holds and watches it. */
int action_attach(const struct options *options, struct messages *out);

/* Looks at locks. None of them takes a lock or gets in another process's way. */
int action_status(const struct options *options, struct messages *out);
int action_list(const struct options *options, struct messages *out);
int action_ran_within(const struct options *options, struct messages *out);
int action_wait_free(const struct options *options, struct messages *out);
int action_current(const struct options *options, struct messages *out);

/* Whether a lock can be trusted here, and if not, why. */
int action_doctor(const struct options *options, struct messages *out);

/* Each setting as it would apply to NAME, and its origin, as lines for dlock.conf(5) or as
 * JSON; no password, and no owner token. Asks no store. */
int action_print_config(const struct options *options, struct messages *out);

/* --help, --usage and --version. */
int action_help(enum option_action action);

#endif
