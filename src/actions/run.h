/* dlock NAME COMMAND: the main job. */
#ifndef DLOCK_ACTIONS_RUN_H
#define DLOCK_ACTIONS_RUN_H

#include "config/options.h"
#include "util/message.h"

/* Takes the lock, runs the command under it, releases. Returns the exit status
 * (util/exit_status.h). Does not return if a signal ended the wait: this
 * process dies by it. */
int action_run(const struct options *options, struct messages *out);

#endif
