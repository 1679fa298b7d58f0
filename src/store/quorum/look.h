/* Looking at locks that several servers keep, and removing them. */
#ifndef DLOCK_STORE_QUORUM_LOOK_H
#define DLOCK_STORE_QUORUM_LOOK_H

#include "store/backend.h"

/* look(), force_release() and list() of store/backend.h. A lock on a minority is no lock:
 * look() reports it in base.note, force_release() removes it too. */
enum lock_result quorum_look(struct backend *backend, const char *key, struct lock_state *state,
                             struct bound bound, struct errmsg *why);
enum lock_result quorum_force_release(struct backend *backend, const char *key,
                                      struct lock_state *was, struct bound bound,
                                      struct errmsg *why);
enum lock_result quorum_list(struct backend *backend, const char *prefix, const char *pattern,
                             bool all, bool (*visit)(void *data, const struct lock_state *),
                             void *data, struct bound bound, struct errmsg *why);

/* examine() and forget() of store/backend.h. */
bool quorum_examine(struct backend *backend, const struct lock_request *request,
                    struct diagnostics *findings, struct bound bound);
void quorum_forget(struct backend *backend, const char *key, struct bound bound);

#endif
