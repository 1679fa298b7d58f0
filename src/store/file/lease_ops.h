/* The operations of a holder on its own lock file, which it has open and locked. A caller
 * that has the token of another process, but not its file, uses lease_ops_outside_*(). */
#ifndef DLOCK_STORE_FILE_LEASE_OPS_H
#define DLOCK_STORE_FILE_LEASE_OPS_H

#include "store/backend.h"
#include "store/file/dir_int.h"
#include "store/file/store.h"

/* Unlocks and closes the file that we hold, or wait for; its contents stay. */
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
