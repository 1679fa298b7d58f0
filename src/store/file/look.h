/* Looking at locks from outside, whoever has them: that locks nothing. And taking
 * them away. */
#ifndef DLOCK_STORE_FILE_LOOK_H
#define DLOCK_STORE_FILE_LOOK_H

#include "store/file/store.h"

/* As look() of struct backend. */
enum lock_result lock_look(struct lock_store *store, const char *key, struct lock_state *state, struct bound bound,
                           struct why *why);

/* As force_release() of struct backend. */
enum lock_result lock_force(struct lock_store *store, const char *key, struct lock_state *was, struct bound bound,
                            struct why *why);

/* As list() of struct backend. What is no lock file of dlock's, or another user's, is
 * passed over. */
enum lock_result lock_list(struct lock_store *store, const char *prefix, const char *pattern,
                           bool (*visit)(void *data, const struct lock_state *), void *data, struct bound bound,
                           struct why *why);

#endif
