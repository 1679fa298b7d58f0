/* --attach: a lock for the life of another process, the calling script. */
#ifndef DLOCK_ACTION_ATTACH_H
#define DLOCK_ACTION_ATTACH_H

#include "message.h"
#include "options.h"

/* Takes the lock and leaves a guard process that holds and watches it. Returns
 * the exit status. */
int action_attach(const struct options *options, struct messages *out);

#endif
