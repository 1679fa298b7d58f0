/* --doctor: whether a lock can be trusted here, and if not, why. */
#ifndef DLOCK_ACTIONS_DOCTOR_H
#define DLOCK_ACTIONS_DOCTOR_H

#include "config/options.h"
#include "util/message.h"

/* Returns the exit status. */
int action_doctor(const struct options *options, struct messages *out);

#endif
