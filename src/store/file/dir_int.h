/* Locks in a directory: declarations that the files of this store share. */
#ifndef DLOCK_STORE_FILE_DIR_INT_H
#define DLOCK_STORE_FILE_DIR_INT_H

#include "store/backend.h"
#include "store/file/store.h"
#include "store/file/waiter.h"

struct file_backend {
    struct backend base;
    struct store store;
    char path[LOCK_FILE_PATH_SIZE];
    struct lock_file file; /* the file that we hold, or wait for */
    int place;             /* our place in it; -1: we hold nothing */
    struct file_waiter waiter;
    int left_fd; /* the file that we waited for before: waiters behind us in it come after us; -1: none */
    struct run_record done; /* refused by once_per: the last success */
    bool reserved;          /* refused only because others have waited longer */
    bool watched;           /* the waiter's notifications are about the file that we hold */
};

#endif
