/* Locks in a directory: declarations that the files of this store share. */
#ifndef DLOCK_STORE_FILE_DIR_INT_H
#define DLOCK_STORE_FILE_DIR_INT_H

#include "store/backend.h"
#include "store/file/store.h"
#include "store/file/waiter.h"

struct file_backend {
    struct backend base;
    struct store store;
    struct lock_file file; /* the file that we hold, or wait for */
    int place;             /* our place in it; -1: we hold nothing */
    struct file_waiter waiter;
    int left_fd; /* the file that we waited for before: waiters behind us in it come after us; -1: none */
    struct run_record done;  /* refused by once_per: the last success */
    struct admission survey; /* of the call in progress: 9 kB, too much for a stack */
    bool reserved;           /* refused only because others have waited longer */
    bool watched;            /* the waiter's notifications are about the file that we hold */
};

static inline struct file_backend *file_of(struct backend *backend)
{
    return (struct file_backend *)(void *)backend;
}

/* store/file/lease_ops.c: as in struct backend, for the file that we hold, or for a lease
 * that another process took, by its token. */
enum lock_result file_check(struct backend *base, struct lease *lease, struct bound bound,
                            struct errmsg *why);
enum lock_result file_extend(struct backend *base, struct lease *lease, enum extend_how how,
                             struct bound bound, struct errmsg *why);
enum lock_result file_release(struct backend *base, const struct lease *lease, struct bound bound,
                              struct errmsg *why);

/* Unlocks and closes the file that we hold, or wait for; its contents stay. */
void lease_ops_let_go(struct file_backend *backend);

/* store/file/look.c: as in struct backend, regardless of the holder. A look locks nothing;
 * a list skips files that are not lock files of dlock's, or are another user's. */
enum lock_result file_look(struct backend *base, const char *key, struct lock_state *state,
                           struct bound bound, struct errmsg *why);
enum lock_result file_force_release(struct backend *base, const char *key, struct lock_state *was,
                                    struct bound bound, struct errmsg *why);
enum lock_result file_pause(struct backend *base, const char *key, const struct pause *pause,
                            struct bound bound, struct errmsg *why);
enum lock_result file_list(struct backend *base, const char *prefix, const char *pattern, bool all,
                           bool (*visit)(void *data, const struct lock_state *), void *data,
                           struct bound bound, struct errmsg *why);

#endif
