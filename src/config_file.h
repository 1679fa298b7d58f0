/* The configuration files and the environment, as settings of the options.
 * (config.h is autoconf's.) */
#ifndef DLOCK_CONFIG_FILE_H
#define DLOCK_CONFIG_FILE_H

#include "options.h"

/* Adds what SYSCONFDIR/dlock.conf, $XDG_CONFIG_HOME/dlock/dlock.conf (or
 * ~/.config) and the DLOCK_* variables say, from the weakest to the strongest;
 * of the files' [lock GLOB] sections those that match options->name. A file
 * that is not there says nothing. */
enum options_result config_read(struct options *options, struct why *why);

#endif
