/* Looks at locks: --status, --ran-within, --list, --wait-free and --current. None of them
 * takes a lock or gets in another process's way. Each returns the exit status. */
#ifndef DLOCK_ACTIONS_INSPECT_H
#define DLOCK_ACTIONS_INSPECT_H

#include "config/options.h"
#include "util/message.h"

int action_status(const struct options *options, struct messages *out);
int action_list(const struct options *options, struct messages *out);
int action_ran_within(const struct options *options, struct messages *out);
int action_wait_free(const struct options *options, struct messages *out);
int action_current(const struct options *options, struct messages *out);

#endif
