/* A lock's life without a command: --acquire, --extend, --release and
 * --force-release. Each returns the exit status. */
#ifndef DLOCK_ACTIONS_LEASE_H
#define DLOCK_ACTIONS_LEASE_H

#include "config/options.h"
#include "util/message.h"

int action_acquire(const struct options *options, struct messages *out);
int action_extend(const struct options *options, struct messages *out);
int action_release(const struct options *options, struct messages *out);
int action_force_release(const struct options *options, struct messages *out);

#endif
