/* The operations of a holder on its own lock file, which it has open and locked; and those
 * of a caller that has the token of another process, but not its file. */
#include "lock/format.h"
#include "store/file/dir_int.h"
#include "store/file/runs.h"

#include <string.h>

void lease_ops_let_go(struct file_backend *backend)
{
    file_waiter_stop(&backend->waiter);
    if (backend->place >= 0)
        lock_file_unlock(&backend->file);
    lock_file_close(&backend->file);
    backend->place = -1;
    backend->watched = false;
}

/* Whether it was taken away by force, and *why says by whom. */
static bool is_forced(struct store *store, const struct lease *lease, struct errmsg *why)
{
    char by[FORCER_SIZE];
    if (!shared_entry_was_forced(store_entry(store, lease->key, false), lease->token,
                                 lease->take_id, by))
        return false;
    lock_forced(why, by);
    return true;
}

/* --- by its token ---------------------------------------------------------- */

struct outside {
    struct lock_file file;
    struct lock_place place;
    bool known;      /* the lease's outcome is written in the file */
    bool others;     /* hold the lock */
    bool unreadable; /* some of the places */
};

static bool is_meant(const struct lock_place *place, const struct lease *lease)
{
    return place->known && strcmp(place->record.token, lease->token) == 0 &&
           (lease->take_id[0] == '\0' || strcmp(place->record.take_id, lease->take_id) == 0);
}

/* The result that the record gives for its lease. */
static enum lock_result lease_ops_judge(struct store *store, const struct lock_place *place,
                                        struct errmsg *why)
{
    const struct record *record = &place->record;
    bool same_boot = record_may_be_of(record, store_boot_id(store));
    if (record->released)
        return errmsg_fail(why, LOCK_RELEASED, "it was released already");
    if (!same_boot || deadline_passed(record->expires))
        return errmsg_fail(why, LOCK_GONE, "its lease has ended");
    if (place->locked != PLACE_UNLOCKED || record->detached)
        return LOCK_OK;
    return errmsg_fail(why, LOCK_GONE, "the process that held it has ended");
}

/* The place that is held has priority over those that the same token once had; of these
 * the last one taken says what became of the lease. */
static enum lock_result search(struct store *store, const struct lease *lease, struct bound bound,
                               struct outside *outside, struct errmsg *why)
{
    struct lock_place place = lock_file_places(bound);
    enum lock_result result = LOCK_GONE;
    while (result != LOCK_OK && lock_file_next_place(&outside->file, &place)) {
        struct errmsg reason = {""};
        outside->unreadable |= place.unreadable;
        if (!place.unreadable && record_is_newer(&place.record))
            return format_newer(why, place.record.format);
        if (!is_meant(&place, lease)) {
            outside->others |= lock_place_held(&place, store_boot_id(store));
            continue;
        }
        enum lock_result judged = lease_ops_judge(store, &place, &reason);
        if (judged == LOCK_OK || !outside->known ||
            place.record.fence > outside->place.record.fence) {
            result = judged;
            *why = reason;
            outside->place = place;
        }
        outside->known = true;
    }
    if (result != LOCK_OK && outside->unreadable)
        return errmsg_fail(why, LOCK_UNAVAILABLE, "cannot read the lock file %s",
                           outside->file.path);
    return result;
}

static enum lock_result not_found(struct store *store, const struct lease *lease, bool others,
                                  struct errmsg *why)
{
    const struct shared_entry *entry = store_entry(store, lease->key, false);
    if (shared_entry_was_released(entry, lease->token, lease->take_id))
        return errmsg_fail(why, LOCK_RELEASED, "it was released already");
    if (!is_forced(store, lease, why))
        errmsg_set(why, others ? "it is held under another token" : "it is free");
    return others ? LOCK_FOREIGN : LOCK_GONE;
}

/* Finds the lease that another process took. LOCK_OK: the file is open, and for a change
 * we are in its section. */
static enum lock_result lease_ops_find(struct store *store, const struct lease *lease,
                                       enum lock_file_use use, struct bound bound,
                                       struct outside *outside, struct errmsg *why)
{
    *outside = (struct outside){.known = false};
    enum lock_result result = store_open_file(store, &outside->file, lease->key, use, bound, why);
    if (result == LOCK_OK)
        result = search(store, lease, bound, outside, why);
    if (result != LOCK_OK)
        lock_file_close(&outside->file);
    if (result == LOCK_GONE && !outside->known)
        result = store_held_elsewhere(store, lease->key, bound, why)
                     ? LOCK_INVALID
                     : not_found(store, lease, outside->others, why);
    return result;
}

static void fill_lease(struct lease *lease, const struct record *record)
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

static enum lock_result check_outside(struct store *store, struct lease *lease, struct bound bound,
                                      struct errmsg *why)
{
    struct outside outside;
    enum lock_result result = lease_ops_find(store, lease, LOCK_FILE_TO_LOOK, bound, &outside, why);
    /* A command that runs on without the lease (--on-expire=warn) still keeps others out. */
    if (result == LOCK_GONE && outside.known && outside.place.locked != PLACE_UNLOCKED)
        result = LOCK_OK;
    if (result == LOCK_OK)
        fill_lease(lease, &outside.place.record);
    lock_file_close(&outside.file);
    return result;
}

static enum lock_result extend_outside(struct store *store, struct lease *lease,
                                       enum extend_how how, struct bound bound, struct errmsg *why)
{
    struct outside outside;
    struct record *record = &outside.place.record;
    enum lock_result result =
        lease_ops_find(store, lease, LOCK_FILE_TO_CHANGE, bound, &outside, why);
    if (result == LOCK_OK)
        result =
            store_extend(&outside.file, outside.place.number, record,
                         lease->ttl.ns > 0 ? lease->ttl : record->ttl, how == EXTEND_EXACTLY, why);
    if (result == LOCK_OK)
        fill_lease(lease, record);
    lock_file_close(&outside.file);
    return result;
}

/* The record says so before the file goes: a holder that still has the file open is woken
 * by the removal, and can tell a release from a loss. That holder may be frozen, and
 * waiters must not wait for it: then the file is removed under them, and they start anew.
 * Otherwise the file stays for the waiters. */
static enum lock_result lease_ops_give_up(struct store *store, struct outside *outside,
                                          struct record *record, struct bound bound,
                                          struct errmsg *why)
{
    struct lock_file *file = &outside->file;
    record->released = true;
    bool marked = lock_file_write(file, outside->place.number, record, why) == LOCK_OK;
    bool wanted = !ticket_queue_is_empty(file) && outside->place.locked == PLACE_UNLOCKED;
    bool removed = deadline_passed(record->hold) && !wanted &&
                   store_unheld(store, file, outside->place.number, bound) && store_remove(file);
    return marked || removed ? LOCK_OK : LOCK_UNAVAILABLE;
}

/* For a take of its own the caller says how long others are kept out; otherwise the value
 * that the taker asked for is used. */
static enum lock_result release_outside(struct store *store, const struct lease *lease,
                                        struct bound bound, struct errmsg *why)
{
    struct outside outside;
    struct record *record = &outside.place.record;
    enum lock_result result =
        lease_ops_find(store, lease, LOCK_FILE_TO_CHANGE, bound, &outside, why);
    if (result == LOCK_OK) {
        if (!lease->outside)
            record->hold = deadline_earlier(record->hold, lease->hold);
        struct shared_entry *entry = store_entry(store, lease->key, true);
        runs_add(store, entry, record, &lease->end);
        result = lease_ops_give_up(store, &outside, record, bound, why);
        if (result == LOCK_OK)
            shared_entry_released(entry, record->token, record->take_id, record_age(record));
    }
    lock_file_close(&outside.file);
    return result;
}

/* --- our own -------------------------------------------------------------- */

/* LOCK_OK; *known says whether *record is filled in. A record that cannot be read changes
 * nothing: the kernel's lock holds. LOCK_UNAVAILABLE if the file cannot be looked at:
 * that is no loss. */
static enum lock_result look_at_own(struct file_backend *backend, const struct lease *lease,
                                    struct record *record, bool *known, struct errmsg *why)
{
    struct lock_file *file = &backend->file;
    (void)lock_file_drain_news(backend->waiter.news_fd);
    *known = lock_file_read(file, backend->place, record);
    bool ours = *known && strcmp(record->take_id, lease->take_id) == 0;
    if (ours && record->released)
        return errmsg_fail(why, LOCK_RELEASED, "it was released with its own token");
    enum lock_result result = lock_file_verify(file, why);
    if (result == LOCK_GONE)
        (void)is_forced(&backend->store, lease, why);
    if (result != LOCK_OK || !*known || ours)
        return result;
    return errmsg_fail(why, LOCK_FOREIGN, "the lock file %s is held under another token",
                       file->path);
}

/* The clock of the record is our own. */
static void adopt(struct lease *lease, struct deadline expires)
{
    struct deadline now = deadline_now();
    lease_adopt(lease, now, now, deadline_gap(now, expires), expires.boot_ns / NS_PER_MS);
}

enum lock_result file_check(struct backend *base, struct lease *lease, struct bound bound,
                            struct errmsg *why)
{
    struct file_backend *backend = file_of(base);
    struct record record;
    bool known;
    if (backend->place < 0)
        return check_outside(&backend->store, lease, bound, why);
    enum lock_result result = look_at_own(backend, lease, &record, &known, why);
    /* The place is free for others from now on: that is what the release was for. */
    if (result == LOCK_RELEASED)
        lease_ops_let_go(backend);
    if (result != LOCK_OK || !known)
        return result;
    adopt(lease, record.expires);
    return LOCK_OK;
}

/* The kernel's lock has no end of its own: the deadline is that of the record. */
enum lock_result file_extend(struct backend *base, struct lease *lease, enum extend_how how,
                             struct bound bound, struct errmsg *why)
{
    struct file_backend *backend = file_of(base);
    struct record record;
    bool known;
    if (backend->place < 0)
        return extend_outside(&backend->store, lease, how, bound, why);
    enum lock_result result = lock_file_enter(&backend->file, bound, why);
    if (result != LOCK_OK)
        return result == LOCK_CANCELLED ? result : LOCK_UNAVAILABLE;
    struct deadline now = deadline_now();
    result = look_at_own(backend, lease, &record, &known, why);
    if (!known)
        record.expires = deadline_plus(now, lease->ttl);
    else if (result == LOCK_OK)
        result = store_extend(&backend->file, backend->place, &record, lease->ttl,
                              how == EXTEND_EXACTLY, why);
    lock_file_leave(&backend->file);
    if (result == LOCK_RELEASED)
        lease_ops_let_go(backend);
    if (result == LOCK_OK)
        adopt(lease, record.expires);
    return result;
}

/* In the section. Whatever becomes of the record, the kernel's lock ends with
 * the file. */
static void lease_ops_give_back(struct file_backend *backend, const struct lease *lease,
                                struct record *record, bool known, struct shared_entry *entry,
                                struct bound bound)
{
    struct lock_file *file = &backend->file;
    struct admission *survey = &backend->survey;
    bool held_on = known && !deadline_passed(lease->hold), wanted = !ticket_queue_is_empty(file);
    if (known)
        runs_add(&backend->store, entry, record, &lease->end);
    if (!lock_survey_one(file, store_boot_id(&backend->store), backend->place, survey))
        lock_survey(file, store_boot_id(&backend->store), "", backend->place, bound, survey, NULL);
    if (!held_on && !wanted && survey->held == 0 && survey->pause.left.ns == 0) {
        (void)store_remove(file);
    } else if (known) {
        record->released = true;
        record->hold = lease->hold;
        (void)lock_file_write(file, backend->place, record, NULL);
        lock_file_note_place(file, backend->place, held_on);
    }
    if (!held_on && wanted) /* it is noted whose turn it is */
        (void)ticket_queue_lets(file, entry, &(struct ticket){0}, survey);
    shared_entry_released(entry, lease->token, lease->take_id,
                          known ? record_age(record) : deadline_gap(lease->taken, deadline_now()));
    if (lease->lost)
        shared_entry_lost(entry);
}

/* The run is recorded, unless a later one is, or it is already: then the next holder, or
 * the one that took the lock away by force, has found it to be lost. */
static void lose(struct file_backend *backend, const struct lease *lease,
                 const struct record *record, struct shared_entry *entry, struct bound bound)
{
    struct run_end end = lease->end;
    struct run_memory memory;
    shared_entry_lost(entry);
    if (end.how != RUN_NONE && end.how != RUN_STOPPED)
        end = (struct run_end){RUN_LOST, 0, 0};
    runs_read(&backend->store, lease->key, NULL, bound, &memory);
    if (record != NULL && strcmp(record->take_id, lease->take_id) == 0 &&
        memory.last.began_ms < record->holder.since_wall_ms &&
        !is_forced(&backend->store, lease, NULL))
        runs_add(&backend->store, entry, record, &end);
}

static enum lock_result lease_ops_release(struct file_backend *backend, const struct lease *lease,
                                          struct bound bound, struct errmsg *why)
{
    struct record record;
    bool known;
    enum lock_result result = lock_file_enter(&backend->file, bound, why);
    if (result != LOCK_OK)
        return result == LOCK_CANCELLED ? result : LOCK_UNAVAILABLE;
    struct shared_entry *entry = store_entry(&backend->store, lease->key, true);
    result = look_at_own(backend, lease, &record, &known, why);
    if (result == LOCK_UNAVAILABLE) {
        lock_file_leave(&backend->file);
        return result;
    }
    if (result == LOCK_OK)
        lease_ops_give_back(backend, lease, &record, known, entry, bound);
    else if (lock_is_lost(result))
        lose(backend, lease, known ? &record : NULL, entry, bound);
    lease_ops_let_go(backend);
    return result;
}

enum lock_result file_release(struct backend *base, const struct lease *lease, struct bound bound,
                              struct errmsg *why)
{
    struct file_backend *backend = file_of(base);
    backend->store.unrecorded = false;
    enum lock_result result = backend->place < 0
                                  ? release_outside(&backend->store, lease, bound, why)
                                  : lease_ops_release(backend, lease, bound, why);
    base->warning = backend->store.unrecorded ? "there is no room for it in the lock directory's "
                                                "table"
                                              : NULL;
    return result;
}
