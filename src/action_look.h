/* Looking at locks: --status, --list, --wait-free and --current. None of them
 * takes a lock or is in anybody's way. Each returns the exit status. */
#ifndef DLOCK_ACTION_LOOK_H
#define DLOCK_ACTION_LOOK_H

#include "message.h"
#include "options.h"

int action_status(const struct options *options, struct messages *out);
int action_list(const struct options *options, struct messages *out);
int action_wait_free(const struct options *options, struct messages *out);
int action_current(const struct options *options, struct messages *out);

#endif
