/* --print-config: each setting as it would apply to NAME, and its origin. */
#ifndef DLOCK_ACTIONS_CONFIG_H
#define DLOCK_ACTIONS_CONFIG_H

#include "config/options.h"
#include "util/message.h"

/* Prints them on stdout, as lines for dlock.conf(5) or as JSON; no password,
 * and no owner token. Asks no store. Returns the exit status. */
int action_print_config(const struct options *options, const struct messages *out);

#endif
