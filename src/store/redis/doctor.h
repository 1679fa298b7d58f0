/* --doctor for Redis. */
#ifndef DLOCK_STORE_REDIS_DOCTOR_H
#define DLOCK_STORE_REDIS_DOCTOR_H

#include "store/backend.h"

/* examine() and forget() of store/backend.h. */
bool redis_examine(struct backend *backend, const struct lock_request *request, struct findings *findings,
                   struct bound bound);
void redis_forget(struct backend *backend, const char *key, struct bound bound);

#endif
