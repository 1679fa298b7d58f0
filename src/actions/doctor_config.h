/* --doctor: the configuration in force, and where it comes from. */
#ifndef DLOCK_ACTIONS_DOCTOR_CONFIG_H
#define DLOCK_ACTIONS_DOCTOR_CONFIG_H

#include "config/options.h"
#include "store/diagnostics.h"
#include "util/duration.h"

/* What counts where nobody has set this option, as dlock.conf(5) would have it;
 * NULL: nothing. May use `text`. */
const char *config_default(const struct options *options, enum option_id id,
                           char text[DURATION_TEXT_SIZE]);

/* Adds the section "configuration". A secret is never shown. */
void doctor_config(const struct options *options, struct diagnostics *findings);

/* The setting that makes this option what it is, with its value in *text ("" for a
 * flag on the command line); NULL where nobody has set it. Of --nonblock and
 * --wait the last one counts, and says what the other is. */
const struct setting *config_in_force(const struct options *options, enum option_id id,
                                      const char **text);

#endif
