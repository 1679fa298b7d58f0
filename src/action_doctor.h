/* --doctor: whether a lock can be trusted here, and if not, why. */
#ifndef DLOCK_ACTION_DOCTOR_H
#define DLOCK_ACTION_DOCTOR_H

#include "message.h"
#include "options.h"

/* Returns the exit status. */
int action_doctor(const struct options *options, struct messages *out);

#endif
