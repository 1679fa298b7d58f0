/* --doctor: the configuration in force, and its origin. */
#ifndef DLOCK_ACTIONS_DOCTOR_CONFIG_H
#define DLOCK_ACTIONS_DOCTOR_CONFIG_H

#include "config/options.h"
#include "store/diagnostics.h"
#include "util/duration.h"

/* The default of this option, in the form of dlock.conf(5); NULL: none. May use
 * `text`. */
const char *config_default(const struct options *options, enum option_id id,
                           char text[DURATION_TEXT_SIZE]);

/* Adds the section "configuration". A secret is never shown. */
void doctor_config(const struct options *options, struct diagnostics *findings);

/* The setting that decides this option, with its value in *text ("" for a flag
 * on the command line); NULL if it is not set. Of --nonblock and --wait the
 * last one counts, and determines the other. */
const struct setting *config_in_force(const struct options *options, enum option_id id,
                                      const char **text);

#endif
