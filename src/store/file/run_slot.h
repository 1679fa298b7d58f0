/* What a lock remembers of its runs, in the form that it has in the shared table: a
 * checksum, numbers and text in a fixed number of words. One process writes it, the
 * holder in the section of the lock file, while any process may read it. */
#ifndef DLOCK_STORE_FILE_RUN_SLOT_H
#define DLOCK_STORE_FILE_RUN_SLOT_H

#include "lock/lock_name.h"
#include "lock/run_memory.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RUN_SLOT_WORDS = 128 };

/* Zeros are an empty slot. */
struct run_slot {
    _Atomic uint64_t words[RUN_SLOT_WORDS];
};

/* What is remembered for the key with this hash. False, with *memory empty but for the
 * skips: nothing, or another key's, or its time is over, or it is torn. `key` (may be
 * NULL) is "" if it was too long to be kept. `slot` may be NULL everywhere: none. */
bool run_slot_read(const struct run_slot *slot, uint64_t hash, struct run_memory *memory,
                   char key[LOCK_KEY_SIZE]);

/* Remembers it for that long from now; 0: empties the slot. */
void run_slot_write(struct run_slot *slot, uint64_t hash, const char *key,
                    const struct run_memory *memory, struct duration remember);

/* Counts a run that was skipped. */
void run_slot_skipped(struct run_slot *slot, uint64_t hash);

#endif
