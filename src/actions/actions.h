/* The actions. Each returns the exit status (util/exit_status.h). */
#ifndef DLOCK_ACTIONS_ACTIONS_H
#define DLOCK_ACTIONS_ACTIONS_H

#include "config/options.h"
#include "util/message.h"

/* dlock NAME COMMAND, the main job: takes the lock, runs the command under it, and releases the
 * lock. If a signal ends the wait, this process dies by that signal instead of returning. */
int action_run(const struct options *options, struct messages *out);

/* These actions work on a lock without running a command. */
int action_acquire(const struct options *options, struct messages *out);
int action_extend(const struct options *options, struct messages *out);
int action_release(const struct options *options, struct messages *out);
int action_force_release(const struct options *options, struct messages *out);
int action_pause(const struct options *options, struct messages *out); /* also does --resume */

/* Acquires a lock until another process ends, by default the calling script. After dlock has
 * exited, a guard process holds the lock and watches its lease. */
int action_attach(const struct options *options, struct messages *out);

/* Actions that only look at locks. They take no lock and do not disturb other processes. */
int action_status(const struct options *options, struct messages *out);
int action_list(const struct options *options, struct messages *out);
int action_history(const struct options *options, struct messages *out);
int action_ran_within(const struct options *options, struct messages *out);
int action_wait_until_free(const struct options *options, struct messages *out);
int action_current(const struct options *options, struct messages *out);

/* Reports whether a lock can be trusted here, and if not, why. */
int action_doctor(const struct options *options, struct messages *out);

/* Prints each setting as it would apply to NAME, and its origin, as lines for dlock.conf(5) or as
 * JSON. Prints no password and no owner token. Contacts no store. */
int action_print_config(const struct options *options, struct messages *out);

/* Reports settings that options_read() has refused, and returns the exit status. */
int settings_refuse(const struct messages *out, enum settings_result result,
                    const struct errmsg *why);

/* --help, -h and --version. */
int action_help(const struct options *options);

#endif
