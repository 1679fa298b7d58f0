/* Looking at locks from outside, whoever has them: that locks nothing. And taking
 * them away. */
#ifndef DLOCK_LOCK_LOOK_H
#define DLOCK_LOCK_LOOK_H

#include "lock_store.h"

/* As look() of struct backend. */
enum lock_result lock_look(struct lock_store *store, const char *key, struct lock_state *state, struct bound bound,
                           struct why *why);

/* As force_release() of struct backend. */
enum lock_result lock_force(struct lock_store *store, const char *key, struct lock_state *was, struct bound bound,
                            struct why *why);

struct key_list {
    char **keys; /* in their order */
    size_t count;
};

/* The keys of the lock files that begin with `prefix` and go on with what matches
 * `pattern` (NULL: anything). What is no lock file of dlock's is passed over.
 * LOCK_OK with *list to be freed; LOCK_SYSTEM, LOCK_REFUSED, LOCK_UNAVAILABLE
 * with *why set. */
enum lock_result lock_list(const struct lock_store *store, const char *prefix, const char *pattern, struct key_list *list,
                           struct why *why);
void key_list_free(struct key_list *list);

#endif
