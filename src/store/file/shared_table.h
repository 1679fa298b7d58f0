/* What is remembered of locks while their files come and go: one file for each directory
 * and user, which processes share as a map of atomics. There is no critical section that
 * a frozen or killed process could leave locked.
 *
 * It has room for 1,024 locks. When it is full, the entry that was unused for the longest
 * time is replaced, and its counts are forgotten; locks that remember a run go last, and
 * those never whose run once_per needs: then a new lock has no entry. Nothing that must be
 * right depends on it but the fence, which is common to all locks, and once_per. */
#ifndef DLOCK_STORE_FILE_SHARED_TABLE_H
#define DLOCK_STORE_FILE_SHARED_TABLE_H

#include "lock/lock_state.h"
#include "store/file/dir.h"
#include "store/file/run_slot.h"

#include <stdbool.h>
#include <stdint.h>

struct table_map;
struct shared_entry;

struct shared_table {
    struct table_map *map; /* NULL: not open */
    int fd;                /* if there is a map */
    bool writable;
    int64_t newer; /* the format of the table, if that is newer than ours; or 0 */
};

/* Opens the table of this directory: read-write, created if it is missing or is not a
 * valid table; or read-only. A table that is already open stays as it is if that is
 * sufficient, and one that has been cut short since is extended again: entries of it that
 * were found before stay valid. LOCK_OK; LOCK_GONE if there is none to read,
 * LOCK_INVALID if it has a newer format, LOCK_CANT_CREATE, LOCK_REFUSED, LOCK_SYSTEM, with
 * *why set. */
enum lock_result shared_table_open(struct shared_table *table, const struct lock_dir *dir,
                                   bool make, struct errmsg *why);

void shared_table_close(struct shared_table *table);

/* The next fence of the directory: max(last + 1, the wall clock in
 * microseconds). LOCK_OK; LOCK_CANT_CREATE with *why set. */
enum lock_result shared_table_next_fence(const struct shared_table *table, int64_t *fence,
                                         struct errmsg *why);

/* The entry of this key; `make` creates it if necessary. NULL if there is no entry, or no
 * room for one, or the table is not open or was cut short: all functions below accept that. Do not keep
 * it: using it after the file was cut short is a SIGBUS. */
struct shared_entry *shared_table_entry(const struct shared_table *table, const char *key,
                                        bool make);

/* What the lock of the entry remembers of its runs; `make` allocates the slot if
 * necessary. NULL if there is none, no entry, or the disk is full. As short-lived as an entry. */
struct run_slot *shared_table_slot(const struct shared_table *table,
                                   const struct shared_entry *entry, bool make);

/* The next key, from *number on (first 0), that remembers a run. False after the last. */
bool shared_table_next_run(const struct shared_table *table, size_t *number,
                           char key[LOCK_KEY_SIZE]);

/* A take after a wait of this length. */
void shared_entry_taken(struct shared_entry *entry, const char *token, int64_t fence,
                        struct duration waited);

/* The lock could not be acquired: at once, or by the end of a wait. */
void shared_entry_refused(struct shared_entry *entry, bool had_waited, struct duration waited);

/* Its holder found that it no longer had the lock. */
void shared_entry_lost(struct shared_entry *entry);

/* Released with its own token by the process that took it `held` ago. The last few
 * releases are remembered. */
void shared_entry_released(struct shared_entry *entry, const char *token, const char *take_id,
                           struct duration held);

/* "USER@HOST" is about to take this one away by force: remembered as releases are. */
void shared_entry_mark_forced(struct shared_entry *entry, const char *token, const char *take_id,
                              const char *by);

/* Released by force. */
void shared_entry_forced(struct shared_entry *entry);

/* True if this take, or any take with this token if its id is "", was taken away by
 * force; `by` says who last took this lock away. */
bool shared_entry_was_forced(const struct shared_entry *entry, const char *token,
                             const char *take_id, char by[FORCER_SIZE]);

/* True if this take, or any take with this token if its id is "", was released. */
bool shared_entry_was_released(const struct shared_entry *entry, const char *token,
                               const char *take_id);

/* The waiter whose turn it is: a word that store/file/ticket_queue.c reads and writes. 0:
 * nothing is known. */
uint64_t shared_entry_turn(const struct shared_entry *entry);

/* Sets it only if it is still `from`: false if it is not, or nothing can be stored. */
bool shared_entry_set_turn(struct shared_entry *entry, uint64_t from, uint64_t to);

/* Fills in the counts and what is known of the last take and release. */
void shared_entry_read(const struct shared_entry *entry, struct lock_state *state);

/* A number that represents the text (FNV-1a, never 0). */
uint64_t text_hash(const char *text);

#endif
