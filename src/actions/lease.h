/* A lock's life without a command: --acquire, --extend, --release,
 * --force-release, --pause and --resume. Each returns the exit status. */
#ifndef DLOCK_ACTIONS_LEASE_H
#define DLOCK_ACTIONS_LEASE_H

#include "config/options.h"
#include "util/message.h"

int action_acquire(const struct options *options, struct messages *out);
int action_extend(const struct options *options, struct messages *out);
int action_release(const struct options *options, struct messages *out);
/* --pause and --resume. */
int action_pause(const struct options *options, struct messages *out);
int action_force_release(const struct options *options, struct messages *out);

#endif
