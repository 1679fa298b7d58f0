/* Looking at locks from outside, regardless of their holder, which locks nothing; and
 * removing them. */
#ifndef DLOCK_STORE_FILE_LOOK_H
#define DLOCK_STORE_FILE_LOOK_H

#include "store/file/store.h"

/* As look() of struct backend. */
enum lock_result look_read(struct store *store, const char *key, struct lock_state *state,
                           struct bound bound, struct errmsg *why);

/* As force_release() of struct backend. */
enum lock_result look_force(struct store *store, const char *key, struct lock_state *was,
                            struct bound bound, struct errmsg *why);

/* As pause() of struct backend. */
enum lock_result look_pause(struct store *store, const char *key, const struct pause *pause,
                            struct bound bound, struct errmsg *why);

/* As list() of struct backend. Skips files that are not lock files of dlock's, or are
 * another user's. */
enum lock_result look_list(struct store *store, const char *prefix, const char *pattern, bool all,
                           bool (*visit)(void *data, const struct lock_state *), void *data,
                           struct bound bound, struct errmsg *why);

#endif
