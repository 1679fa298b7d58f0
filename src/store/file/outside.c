#include "store/file/outside.h"

#include "store/file/ticket_queue.h"

#include <string.h>

struct outside {
    char path[LOCK_FILE_PATH_SIZE];
    struct lock_file file;
    struct lock_place place;
    bool known; /* what became of the lease is written in the file */
    bool others; /* hold the lock */
    bool unreadable; /* some of the places */
};

static bool is_meant(const struct lock_place *place, const struct lease *lease)
{
    return place->known && strcmp(place->record.token, lease->token) == 0 &&
           (lease->take_id[0] == '\0' || strcmp(place->record.take_id, lease->take_id) == 0);
}

/* What the record says of the lease that it is about. */
static enum lock_result judge(struct lock_store *store, const struct lock_place *place, struct why *why)
{
    const struct lock_record *record = &place->record;
    bool same_boot = lock_record_may_be_of(record, lock_store_boot_id(store));
    if (record->released) {
        why_set(why, "it was released already");
        return LOCK_RELEASED;
    }
    if (!same_boot || deadline_passed(record->expires)) {
        why_set(why, "its lease has ended");
        return LOCK_GONE;
    }
    if (place->locked != PLACE_UNLOCKED || record->detached)
        return LOCK_OK;
    why_set(why, "the process that held it has ended");
    return LOCK_GONE;
}

/* The place that is held comes before those that the same token once had; of
 * these the last one taken tells what became of it. */
static enum lock_result search(struct lock_store *store, const struct lease *lease, struct bound bound,
                               struct outside *outside, struct why *why)
{
    struct lock_place place = lock_file_places(bound);
    enum lock_result result = LOCK_GONE;
    while (result != LOCK_OK && lock_file_next_place(&outside->file, &place)) {
        struct why reason = {""};
        outside->unreadable |= place.unreadable;
        if (!is_meant(&place, lease)) {
            outside->others |= lock_place_held(&place, lock_store_boot_id(store));
            continue;
        }
        enum lock_result judged = judge(store, &place, &reason);
        if (judged == LOCK_OK || !outside->known || place.record.fence > outside->place.record.fence) {
            result = judged;
            *why = reason;
            outside->place = place;
        }
        outside->known = true;
    }
    if (result != LOCK_OK && outside->unreadable) {
        why_set(why, "cannot read the lock file %s", outside->path);
        return LOCK_UNAVAILABLE;
    }
    return result;
}

static enum lock_result not_found(struct lock_store *store, const struct lease *lease, bool others, struct why *why)
{
    const struct lock_entry *entry = lock_store_entry(store, lease->key, false);
    if (lock_entry_was_released(entry, lease->token, lease->take_id)) {
        why_set(why, "it was released already");
        return LOCK_RELEASED;
    }
    why_set(why, others ? "it is held under another token" : "nobody holds it");
    return others ? LOCK_FOREIGN : LOCK_GONE;
}

/* Finds the lease that another process took. LOCK_OK: the file is open, and to
 * change it we are in its section. */
static enum lock_result find(struct lock_store *store, const struct lease *lease, enum lock_file_use use,
                             struct bound bound, struct outside *outside, struct why *why)
{
    *outside = (struct outside){.file = {.path = outside->path, .fd = -1}};
    lock_store_path(store, outside->path, lease->key);
    enum lock_result result = lock_store_open_file(&outside->file, use, bound, why);
    if (result == LOCK_OK)
        result = search(store, lease, bound, outside, why);
    if (result != LOCK_OK)
        lock_file_close(&outside->file);
    if (result == LOCK_GONE && !outside->known)
        result = not_found(store, lease, outside->others, why);
    return result;
}

static void fill_lease(struct lease *lease, const struct lock_record *record)
{
    lease->mode = record->mode;
    lease->slots = record->slots;
    lease->slot = record->slot;
    lease->fence = record->fence;
    if (lease->ttl.ns == 0)
        lease->ttl = record->ttl;
    lease->hold = record->hold;
    lease->deadline = deadline_minus(record->expires, lease_drift(lease->ttl));
}

enum lock_result lock_outside_check(struct lock_store *store, struct lease *lease, struct bound bound, struct why *why)
{
    struct outside outside;
    enum lock_result result = find(store, lease, LOCK_FILE_TO_LOOK, bound, &outside, why);
    if (result == LOCK_OK)
        fill_lease(lease, &outside.place.record);
    lock_file_close(&outside.file);
    return result;
}

enum lock_result lock_outside_extend(struct lock_store *store, struct lease *lease, enum extend_how how, struct bound bound,
                                     struct why *why)
{
    struct outside outside;
    struct lock_record *record = &outside.place.record;
    enum lock_result result = find(store, lease, LOCK_FILE_TO_CHANGE, bound, &outside, why);
    if (result == LOCK_OK)
        result = lock_store_extend(&outside.file, outside.place.number, record,
                                   lease->ttl.ns > 0 ? lease->ttl : record->ttl,
                                   how == EXTEND_EXACTLY, why);
    if (result == LOCK_OK)
        fill_lease(lease, record);
    lock_file_close(&outside.file);
    return result;
}

/* Its record says so from before the file goes: a holder that has the file open
 * still is woken by that, and tells a release from a loss. It may be frozen, and
 * those who wait are not to wait for it: the file goes under them, and they start
 * anew. Else it stays for them. */
static enum lock_result give_up(struct lock_store *store, struct outside *outside, struct lock_record *record,
                                struct bound bound, struct why *why)
{
    struct lock_file *file = &outside->file;
    record->released = true;
    bool marked = lock_file_write(file, outside->place.number, record, why) == LOCK_OK;
    bool wanted = !lock_queue_is_empty(file) && outside->place.locked == PLACE_UNLOCKED;
    bool removed = deadline_passed(record->hold) && !wanted && lock_store_unheld(store, file, outside->place.number, bound) &&
                   lock_store_remove(file);
    return marked || removed ? LOCK_OK : LOCK_UNAVAILABLE;
}

/* The caller says of a take of its own how long others are kept out; otherwise it is
 * what the taker asked for. */
enum lock_result lock_outside_release(struct lock_store *store, const struct lease *lease, struct bound bound, struct why *why)
{
    struct outside outside;
    struct lock_record *record = &outside.place.record;
    enum lock_result result = find(store, lease, LOCK_FILE_TO_CHANGE, bound, &outside, why);
    if (result == LOCK_OK) {
        if (!lease->outside)
            record->hold = deadline_earlier(record->hold, lease->hold);
        result = give_up(store, &outside, record, bound, why);
        if (result == LOCK_OK)
            lock_entry_released(lock_store_entry(store, lease->key, true), record->token, record->take_id, lock_record_age(record));
    }
    lock_file_close(&outside.file);
    return result;
}
