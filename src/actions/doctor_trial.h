/* --doctor: acquires a lock, watches it, hands it over and releases it, like a
 * run and a waiter do. */
#ifndef DLOCK_ACTIONS_DOCTOR_TRIAL_H
#define DLOCK_ACTIONS_DOCTOR_TRIAL_H

#include "store/backend.h"
#include "store/diagnostics.h"

/* Adds the section "trial". `holder` and `waiter` are two backends of the same
 * store; no other process uses the lock of the request. Nothing is left behind,
 * if the store allows that. */
void doctor_trial(struct backend *holder, struct backend *waiter,
                  const struct lock_request *request, struct diagnostics *findings,
                  struct bound bound);

#endif
