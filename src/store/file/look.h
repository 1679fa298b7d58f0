/* Looking at locks from outside, whoever has them: that locks nothing. And taking
 * them away. */
#ifndef DLOCK_STORE_FILE_LOOK_H
#define DLOCK_STORE_FILE_LOOK_H

#include "store/file/store.h"

/* As look() of struct backend. */
enum lock_result look_read(struct store *store, const char *key, struct lock_state *state,
                           struct bound bound, struct errmsg *why);

/* As force_release() of struct backend. */
enum lock_result look_force(struct store *store, const char *key, struct lock_state *was,
                            struct bound bound, struct errmsg *why);

/* As list() of struct backend. What is no lock file of dlock's, or another user's, is
 * passed over. */
enum lock_result look_list(struct store *store, const char *prefix, const char *pattern,
                           bool (*visit)(void *data, const struct lock_state *), void *data,
                           struct bound bound, struct errmsg *why);

#endif
