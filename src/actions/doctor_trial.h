/* --doctor: a lock is taken, watched, handed over and released, as a run and one
 * that waits for it do. */
#ifndef DLOCK_ACTIONS_DOCTOR_TRIAL_H
#define DLOCK_ACTIONS_DOCTOR_TRIAL_H

#include "store/backend.h"
#include "store/diagnostics.h"

/* Adds the section "trial". `holder` and `waiter` are two backends of the same
 * store; nobody else uses the lock of the request. Nothing stays behind, where
 * the store allows that. */
void doctor_trial(struct backend *holder, struct backend *waiter,
                  const struct lock_request *request, struct diagnostics *findings,
                  struct bound bound);

#endif
