/* --attach: a lock for the life of another process, the calling script. */
#ifndef DLOCK_ACTIONS_ATTACH_H
#define DLOCK_ACTIONS_ATTACH_H

#include "config/options.h"
#include "util/message.h"

/* Takes the lock and leaves a guard process that holds and watches it. Returns
 * the exit status. */
int action_attach(const struct options *options, struct messages *out);

#endif
