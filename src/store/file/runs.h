/* The memory of runs in a lock directory. A run is recorded in the shared table when its
 * lock is released. Until then all that is known of it is the record in the lock file:
 * one that nobody holds any more, and that was not released, is a run that was lost. It
 * is recorded before its record goes. */
#ifndef DLOCK_STORE_FILE_RUNS_H
#define DLOCK_STORE_FILE_RUNS_H

#include "store/file/store.h"

/* What the lock remembers, with the runs that were lost and whose records are in the file
 * (NULL: no file). */
void runs_read(struct store *store, const char *key, const struct lock_file *file,
               struct bound bound, struct run_memory *memory);

/* In the section, before the record goes: the run of this record has ended; RUN_NONE:
 * nothing has run. A run is recorded once; if there is no room, store->unrecorded. */
void runs_add(struct store *store, const struct shared_entry *entry, const struct record *record,
              const struct run_end *end);

/* In the section, before records in the file go: records the runs that were lost, or with
 * `all` loses those that have not ended, too. */
void runs_lose(struct store *store, const struct lock_file *file, bool all, struct bound bound);

#endif
