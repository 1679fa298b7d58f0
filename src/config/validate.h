/* Errors that only a combination of options makes. */
#ifndef DLOCK_CONFIG_VALIDATE_H
#define DLOCK_CONFIG_VALIDATE_H

#include "config/options.h"

/* Checks that the words of the command line are what the action needs: a lock's
 * name, a command, neither. */
enum settings_result validate_words(const struct options *options, struct errmsg *why);

/* Checks that the options agree with each other and with the action; fills in what
 * follows from others. Called once all are read. */
enum settings_result validate_options(struct options *options, struct errmsg *why);

#endif
