/* A directory of locks: the files, what is remembered beside them, and the steps that
 * holding, releasing and removing a lock have in common. */
#ifndef DLOCK_STORE_FILE_STORE_H
#define DLOCK_STORE_FILE_STORE_H

#include "store/file/admission.h"
#include "store/file/shared_table.h"

struct store {
    struct lock_dir dir;
    struct shared_table table;
    char boot_id[sizeof((struct holder *)0)->boot_id]; /* "": not read yet */
    bool unrecorded;                                   /* there was no room to record a run */
};

void store_close(struct store *store);

/* Opens the directory that is at the path now, if that is another one, or makes it. Entries
 * found before are no longer valid then. Results of lock_dir_open(). */
enum lock_result store_renew(struct store *store, struct errmsg *why);

void store_path(const struct store *store, char path[LOCK_FILE_PATH_SIZE], const char *key);

/* The boot that deadlines written now belong to. */
const char *store_boot_id(struct store *store);

/* What is remembered of the lock; `make` starts an entry if there is none. NULL: nothing. */
struct shared_entry *store_entry(struct store *store, const char *key, bool make);

/* Opens a lock's file, to look at it, or to change it or make it: then in its section.
 * Results of lock_file_open() and lock_file_enter(); in any case the file may be open. */
enum lock_result store_open_file(const struct store *store, struct lock_file *file, const char *key,
                                 enum lock_file_use use, struct bound bound, struct errmsg *why);

/* In the section: true if the lock has no holder but the place `own` (-1: none), and no
 * pause. */
bool store_unheld(struct store *store, const struct lock_file *file, int own, struct bound bound);

/* Iterates over the other default directories that exist and may be used, from
 * LOCK_DIR_BEFORE_ALL on: /run/lock may have come or gone while locks were held there. None if the
 * directory was given. False after the last. */
#define LOCK_DIR_BEFORE_ALL ((struct lock_dir){.fd = -1, .place = (enum lock_dir_place) - 1})
bool store_next_other(const struct store *store, struct lock_dir *other);

/* True with *why set if the lock has a holder, or is paused, in one of them. */
bool store_held_elsewhere(const struct store *store, const char *key, struct bound bound,
                          struct errmsg *why);

/* In the section: removes the file, if the path still leads to it. False with errno if
 * the directory is no longer writable: then the file stays behind, and the next holder
 * takes it over. */
bool store_remove(struct lock_file *file);

/* In the section: removes the file, if the lock has no holder and no waiter, and is not
 * locked. */
void store_tidy(struct store *store, struct lock_file *file, struct bound bound);

/* In the section: sets the record's deadline to `ttl` from now; earlier than it was only
 * if that is allowed. LOCK_OK; LOCK_UNAVAILABLE if it cannot be written: the deadline is
 * unchanged. */
enum lock_result store_extend(const struct lock_file *file, int place, struct record *record,
                              struct duration ttl, bool may_shorten, struct errmsg *why);

/* How long ago the lock was taken. */
struct duration record_age(const struct record *record);

#endif
