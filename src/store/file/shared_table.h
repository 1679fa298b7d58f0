/* What is remembered of locks while their files come and go: one file for each
 * directory and user, which processes share as a map of atomics. There is no
 * critical section for a frozen or killed process to leave locked.
 *
 * It has room for about a thousand locks. When it is full, the one that was not
 * used for the longest time makes way, and its counts are forgotten. Nothing
 * that must be right depends on it but the fence, which belongs to all. */
#ifndef DLOCK_STORE_FILE_SHARED_TABLE_H
#define DLOCK_STORE_FILE_SHARED_TABLE_H

#include "lock/lock_state.h"
#include "store/file/dir.h"

#include <stdbool.h>
#include <stdint.h>

struct table_map;
struct shared_entry;

struct shared_table {
    struct table_map *map; /* NULL: not open */
    int fd;                /* where there is a map */
    bool writable;
};

/* Opens the table of this directory: to be written, and made where it is not
 * there or is no such table; or only to be read. One that is open already stays
 * as it is where that will do, and one that has been cut short since is made whole:
 * entries of it that were found before stay good. LOCK_OK; LOCK_CANT_CREATE, LOCK_REFUSED, LOCK_SYSTEM with *why set. */
enum lock_result shared_table_open(struct shared_table *table, const struct lock_dir *dir,
                                   bool make, struct errmsg *why);

void shared_table_close(struct shared_table *table);

/* The next fence of the directory: max(last + 1, the wall clock in
 * microseconds). LOCK_OK; LOCK_CANT_CREATE with *why set. */
enum lock_result shared_table_next_fence(const struct shared_table *table, int64_t *fence,
                                         struct errmsg *why);

/* What it knows of this key; with `make` that begins now, if it must. NULL
 * where it knows nothing, is not open or was cut short: all that follows takes
 * that. Not to be kept: to use it after the file was cut short is a SIGBUS. */
struct shared_entry *shared_table_entry(const struct shared_table *table, const char *key,
                                        bool make);

/* A take after so long a wait. */
void shared_entry_taken(struct shared_entry *entry, const char *token, int64_t fence,
                        struct duration waited);

/* It was not to be had: at once, or until a wait was over. */
void shared_entry_refused(struct shared_entry *entry, bool had_waited, struct duration waited);

/* Its holder found that it was not its own any more. */
void shared_entry_lost(struct shared_entry *entry);

/* Released with its own token, and by whom it had been taken that long ago. The
 * last few are remembered. */
void shared_entry_released(struct shared_entry *entry, const char *token, const char *take_id,
                           struct duration held);

/* Released by force. */
void shared_entry_forced(struct shared_entry *entry);

/* Whether this take, or where its id is "" any with this token, was released. */
bool shared_entry_was_released(const struct shared_entry *entry, const char *token,
                               const char *take_id);

/* Whose turn it is of those who wait: a word that store/file/ticket_queue.c reads and writes.
 * 0: nothing is known. */
uint64_t shared_entry_turn(const struct shared_entry *entry);

/* Only if it is `from` still: false where it is not, or nothing can be kept. */
bool shared_entry_set_turn(struct shared_entry *entry, uint64_t from, uint64_t to);

/* Fills in the counts and what is known of the last take and release. */
void shared_entry_read(const struct shared_entry *entry, struct lock_state *state);

/* A number that stands for the text (FNV-1a, never 0). */
uint64_t text_hash(const char *text);

#endif
