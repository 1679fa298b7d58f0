/* A lease that another process took, by its token: check, extend, release as in
 * struct backend. */
#ifndef DLOCK_STORE_FILE_OUTSIDE_H
#define DLOCK_STORE_FILE_OUTSIDE_H

#include "store/backend.h"
#include "store/file/store.h"

enum lock_result lock_outside_check(struct lock_store *store, struct lease *lease, struct bound bound, struct why *why);

enum lock_result lock_outside_extend(struct lock_store *store, struct lease *lease, enum extend_how how, struct bound bound,
                                     struct why *why);

enum lock_result lock_outside_release(struct lock_store *store, const struct lease *lease, struct bound bound, struct why *why);

#endif
