/* --doctor: the configuration in force, and where it comes from. */
#ifndef DLOCK_DOCTOR_CONFIG_H
#define DLOCK_DOCTOR_CONFIG_H

#include "duration.h"
#include "findings.h"
#include "options.h"

/* What counts where nobody has set this option, as dlock.conf(5) would have it;
 * NULL: nothing. May use `text`. */
const char *config_default(const struct options *options, enum option_id id, char text[DURATION_TEXT_SIZE]);

/* Adds the section "configuration". A secret is never shown. */
void doctor_config(const struct options *options, struct findings *findings);

#endif
