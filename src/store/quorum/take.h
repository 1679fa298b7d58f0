/* Taking a lock in a majority of the servers. */
#ifndef DLOCK_STORE_QUORUM_TAKE_H
#define DLOCK_STORE_QUORUM_TAKE_H

#include "store/quorum/quorum.h"

/* take() of store/backend.h. */
enum lock_result quorum_take(struct backend *backend, const struct lock_request *request,
                             struct lease *lease, struct holder *holder, struct bound bound,
                             struct errmsg *why);

/* Between two tries to have a server join, and before the first if it has lost the lock. */
extern const struct duration quorum_join_interval;

/* Makes a server without our lock take it as well, for the rest of the lease, which does
 * not become longer. Results as of check(), and LOCK_HELD. */
enum lock_result quorum_join(struct quorum *quorum, struct quorum_member *member,
                             struct bound bound);

/* Raises the fence of a server that has our lock to at least the lease's. Results as of
 * check(). */
enum lock_result quorum_raise_on(const struct quorum *quorum, struct quorum_member *member,
                                 struct bound bound);

/* Releases what an earlier take may have left on this server. Results as of release();
 * nothing is owed any more if the server knows what became of it. */
enum lock_result quorum_settle(struct quorum *quorum, struct quorum_member *member,
                               struct bound bound);

/* True if there is anything to settle. */
bool quorum_owes(const struct quorum *quorum, const struct quorum_member *member);

/* Called for the last take, if no earlier one is owed: it is owed from now on. */
void quorum_owe(const struct quorum *quorum, struct quorum_member *member);

#endif
