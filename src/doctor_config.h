/* --doctor: the configuration in force, and where it comes from. */
#ifndef DLOCK_DOCTOR_CONFIG_H
#define DLOCK_DOCTOR_CONFIG_H

#include "findings.h"
#include "options.h"

/* Adds the section "configuration". A secret is never shown. */
void doctor_config(const struct options *options, struct findings *findings);

#endif
