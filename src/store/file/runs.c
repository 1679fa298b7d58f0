/* Orders:
 *
 *   A holder releases -> it records its run, marks or removes its record, and then unlocks
 *     its place -> a taker with once_per, which decides in the section, knows of it.
 *   It is killed before its record is gone -> the run is found once more, as a lost one: it
 *     is the last one already, and is not recorded again.
 *   It is killed before that -> the record stays, unlocked -> runs_read() counts it as lost,
 *     the next taker records it so.
 *   The lock is taken away by force -> that records the run as lost -> its holder, which
 *     learns of it, does not record it again.
 *   The file is removed by hand -> the holder records the run when it gives up the lock,
 *     unless a later one has ended; the next holder may be writing at that time
 *     (store/file/run_slot.c). */
#include "store/file/runs.h"

#include "util/text.h"

static struct run_record run_of(const struct record *record, const struct run_end *end)
{
    struct run_record run = {.began_ms = record->holder.since_wall_ms,
                             .end = *end,
                             .fence = record->fence,
                             .pid = record->holder.pid};
    if (end->ended_ms == 0 && end->how != RUN_LOST)
        run.end.ended_ms = wall_now_ms();
    text_copy(run.host, sizeof run.host, record->holder.host);
    text_copy(run.user, sizeof run.user, record->holder.user);
    text_copy(run.command, sizeof run.command, record->holder.command);
    return run;
}

static void file_runs_add(struct run_memory *memory, const struct record *record,
                          const struct run_end *end)
{
    struct run_record run = run_of(record, end);
    if (memory->last.began_ms != run.began_ms || memory->last.pid != run.pid)
        run_memory_add(memory, &run);
}

void runs_read(struct store *store, const char *key, const struct lock_file *file,
               struct bound bound, struct run_memory *memory)
{
    const struct shared_entry *entry = store_entry(store, key, false);
    struct lock_place place = lock_file_places(bound);
    (void)run_slot_read(shared_table_slot(&store->table, entry, false), text_hash(key), memory,
                        NULL);
    while (file != NULL && lock_file_next_place(file, &place))
        if (lock_place_lost(&place, store_boot_id(store)) && place.record.remember.ns > 0)
            file_runs_add(memory, &place.record, &(struct run_end){RUN_LOST, 0, 0});
}

void runs_add(struct store *store, const struct shared_entry *entry, const struct record *record,
              const struct run_end *end)
{
    struct run_memory memory;
    uint64_t hash = text_hash(record->key);
    struct run_slot *slot = end->how != RUN_NONE
                                ? shared_table_slot(&store->table, entry, record->remember.ns > 0)
                                : NULL;
    store->unrecorded |= slot == NULL && end->how != RUN_NONE && record->remember.ns > 0;
    if (slot == NULL)
        return;
    (void)run_slot_read(slot, hash, &memory, NULL);
    file_runs_add(&memory, record, end);
    int64_t needed_until_ms = record->holder.since_wall_ms + record->once_per.ns / NS_PER_MS;
    if (run_is_success(end) && needed_until_ms > memory.needed_until_ms)
        memory.needed_until_ms = needed_until_ms;
    run_slot_write(slot, hash, record->key, &memory, record->remember);
}

void runs_lose(struct store *store, const struct lock_file *file, bool all, struct bound bound)
{
    struct lock_place place = lock_file_places(bound);
    while (lock_file_next_place(file, &place)) {
        struct record *record = &place.record;
        bool held = all && place.known && !record->released;
        if (record->remember.ns == 0 || (!held && !lock_place_lost(&place, store_boot_id(store))))
            continue;
        runs_add(store, store_entry(store, record->key, true), record,
                 &(struct run_end){RUN_LOST, 0, 0});
        record->remember = DURATION_ZERO; /* it is not recorded again */
        (void)lock_file_write(file, place.number, record, NULL);
    }
}
