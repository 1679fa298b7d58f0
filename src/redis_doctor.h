/* --doctor for Redis. */
#ifndef DLOCK_REDIS_DOCTOR_H
#define DLOCK_REDIS_DOCTOR_H

#include "backend.h"

/* examine() and forget() of backend.h. */
bool redis_examine(struct backend *backend, const struct lock_request *request, struct findings *findings,
                   struct bound bound);
void redis_forget(struct backend *backend, const char *key, struct bound bound);

#endif
