/* What a holder does to its own lock file, which it has open and locked. Who has
 * another process's token, and not its file, comes through store/file/lease_ops.h. */
#ifndef DLOCK_STORE_FILE_LEASE_OPS_H
#define DLOCK_STORE_FILE_LEASE_OPS_H

#include "store/backend.h"
#include "store/file/dir_int.h"
#include "store/file/store.h"

/* Unlocks and closes the file that we hold, or wait for; what it says stays. */
void lease_ops_let_go(struct file_backend *backend);

/* As check(), extend() and release() of struct backend, with a place that is ours. */
enum lock_result lease_ops_check(struct file_backend *backend, struct lease *lease,
                                 struct errmsg *why);
enum lock_result lease_ops_extend(struct file_backend *backend, struct lease *lease,
                                  enum extend_how how, struct bound bound, struct errmsg *why);
enum lock_result lease_ops_release(struct file_backend *backend, const struct lease *lease,
                                   struct bound bound, struct errmsg *why);

/* A lease that another process took, by its token: check, extend, release as in
 * struct backend. */

enum lock_result lease_ops_outside_check(struct store *store, struct lease *lease,
                                         struct bound bound, struct errmsg *why);

enum lock_result lease_ops_outside_extend(struct store *store, struct lease *lease,
                                          enum extend_how how, struct bound bound,
                                          struct errmsg *why);

enum lock_result lease_ops_outside_release(struct store *store, const struct lease *lease,
                                           struct bound bound, struct errmsg *why);

#endif
