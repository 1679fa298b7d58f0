/* The operations of a holder on its own lock file, which it has open and locked; and the operations
 * of a caller that knows another process's token, but does not have the lock file open. */
#include "store/file/file_int.h"

#include "lock/format.h"

#include <string.h>

void dir_let_go(struct dir_backend *backend)
{
    waiter_stop(&backend->waiter);
    if (backend->place >= 0)
        lock_file_unlock(&backend->file);
    lock_file_close(&backend->file);
    backend->place = -1;
    backend->watched = false;
}

/* True with *why set if the lease was taken away by force. */
static bool is_forced(struct store *store, const struct lease *lease, struct errmsg *why)
{
    char by[FORCER_SIZE];
    if (!entry_has_ended(store_entry(store, lease->key, false), lease->token, lease->take_id, by))
        return false;
    lock_forced(why, by);
    return true;
}

/* Called in the critical section of the lock file: sets the record's deadline to `ttl` from now.
 * Only EXTEND_EXACTLY may make the deadline earlier. LOCK_OK; LOCK_UNAVAILABLE if the record cannot
 * be written: its deadline is then unchanged. */
static enum lock_result set_deadline(const struct lock_file *file, int place, struct record *record,
                                     struct duration ttl, enum extend_how how, struct errmsg *why)
{
    struct deadline expires = deadline_after(ttl);
    if (how != EXTEND_EXACTLY && !deadline_before(record->expires, expires))
        return LOCK_OK;
    record->expires = expires;
    return lock_file_write(file, place, record, why) == LOCK_OK ? LOCK_OK : LOCK_UNAVAILABLE;
}

/* How long ago the lock was acquired. */
static struct duration age_of(const struct record *record)
{
    int64_t ms = wall_now_ms() - record->holder.since_wall_ms;
    return DURATION_MS(ms > 0 ? ms : 0);
}

/* --- another process's lease, by its token ---------------------------------- */

struct outside {
    struct lock_file file;
    struct lease_search found;
};

static enum lock_result search(struct store *store, const struct lease *lease, struct bound bound,
                               struct outside *outside, struct errmsg *why)
{
    struct lease_search *found = &outside->found;
    struct lock_place place = lock_file_places(bound, -1);

    while (found->result != LOCK_OK && found->newer == 0 &&
           lock_file_next_place(&outside->file, &place))
        search_add(found, &place, lease, store_boot_id(store));
    if (found->newer > 0)
        return format_newer(why, found->newer);
    if (found->result != LOCK_OK && found->unreadable)
        return errmsg_fail(why, LOCK_UNAVAILABLE, "cannot read the lock file %s",
                           outside->file.path);
    return errmsg_fail(why, found->result, "%s", found->why.text);
}

/* Finds the lease that another process acquired. LOCK_OK: the file is open and, unless it was
 * opened only for a look, we are in its critical section. */
static enum lock_result find_outside(struct store *store, const struct lease *lease,
                                     enum lock_file_use use, struct bound bound,
                                     struct outside *outside, struct errmsg *why)
{
    *outside = (struct outside){.found = {.result = LOCK_GONE}};
    enum lock_result result = store_open_file(store, &outside->file, lease->key, use, bound, why);
    if (result == LOCK_OK)
        result = search(store, lease, bound, outside, why);
    if (result != LOCK_OK)
        lock_file_close(&outside->file);
    if (result != LOCK_GONE || outside->found.known)
        return result;
    if (store_held_elsewhere(store, lease->key, bound, why))
        return LOCK_INVALID;
    return entry_outcome(store_entry(store, lease->key, false), lease, outside->found.others, why);
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

/* With LOCK_FILE_TO_CHANGE, extends the lease. With LOCK_FILE_TO_LOOK, only looks at the lease, and
 * ignores `how`. */
static enum lock_result ask_outside(struct store *store, struct lease *lease,
                                    enum lock_file_use use, enum extend_how how, struct bound bound,
                                    struct errmsg *why)
{
    struct outside outside;
    struct record *record = &outside.found.place.record;
    enum lock_result result = find_outside(store, lease, use, bound, &outside, why);
    /* A command that continues after its lease has ended (--on-expire=warn) still keeps others
     * out. */
    if (result == LOCK_GONE && use == LOCK_FILE_TO_LOOK && outside.found.known &&
        outside.found.place.locked != PLACE_UNLOCKED)
        result = LOCK_OK;
    if (result == LOCK_OK && use == LOCK_FILE_TO_CHANGE)
        result = set_deadline(&outside.file, outside.found.place.number, record,
                              lease->ttl.ns > 0 ? lease->ttl : record->ttl, how, why);
    if (result == LOCK_OK)
        fill_lease(lease, record);
    lock_file_close(&outside.file);
    return result;
}

/* Marks the record as released before the file is removed, because the removal wakes a holder that
 * still has the file open, and that holder must be able to tell a release from a loss. If the
 * holder still has its bytes of the file locked, it may be frozen, and waiters must not wait for
 * it. In that case the file is removed even if there are waiters, and they start again with a new
 * file. Otherwise the file stays for the waiters. */
static enum lock_result give_up(struct store *store, struct outside *outside, struct deadline hold,
                                struct bound bound, struct errmsg *why)
{
    struct lock_file *file = &outside->file;
    struct lock_place *place = &outside->found.place;

    record_release(&place->record, hold);
    bool marked = lock_file_write(file, place->number, &place->record, why) == LOCK_OK;
    bool wanted = !queue_is_empty(file) && place->locked == PLACE_UNLOCKED;
    bool removed = deadline_passed(hold) && !wanted &&
                   store_unheld(store, file, place->number, bound) && store_remove(file);
    return marked || removed ? LOCK_OK : LOCK_UNAVAILABLE;
}

/* If the caller acquired the lease itself, lease->hold may shorten the time for which
 * --hold-at-least keeps others out. Otherwise the time in the record applies. */
static enum lock_result release_outside(struct store *store, const struct lease *lease,
                                        struct bound bound, struct errmsg *why)
{
    struct outside outside;
    struct record *record = &outside.found.place.record;
    enum lock_result result = find_outside(store, lease, LOCK_FILE_TO_CHANGE, bound, &outside, why);
    if (result == LOCK_OK) {
        struct deadline hold =
            lease->outside ? record->hold : deadline_earlier(record->hold, lease->hold);
        store_add_run(store, record, &lease->end);
        result = give_up(store, &outside, hold, bound, why);
        if (result == LOCK_OK)
            entry_released(store_entry(store, lease->key, true), record->token,
                           record->holder.take_id, age_of(record));
    }
    lock_file_close(&outside.file);
    return result;
}

/* --- our own lease -------------------------------------------------------- */

/* LOCK_OK: the lock is ours; *known says whether *record is filled in. If the record cannot be
 * read, the kernel's lock shows that the lock is ours. LOCK_UNAVAILABLE: the file cannot be
 * examined, which does not mean that the lock is lost. */
static enum lock_result look_at_own(struct dir_backend *backend, const struct lease *lease,
                                    struct record *record, bool *known, struct errmsg *why)
{
    struct lock_file *file = &backend->file;
    (void)lock_file_drain_news(backend->waiter.news_fd);
    *known = lock_file_read(file, backend->place, record);
    bool ours = *known && strcmp(record->holder.take_id, lease->take_id) == 0;
    if (ours && record->holder.kept)
        return errmsg_fail(why, LOCK_RELEASED, "already released");

    enum lock_result result = lock_file_verify(file, why);
    if (result == LOCK_GONE)
        (void)is_forced(&backend->store, lease, why);
    if (result != LOCK_OK || !*known || ours)
        return result;
    return errmsg_fail(why, LOCK_FOREIGN, "the lock file %s is held under another owner token",
                       file->path);
}

/* Adopts the deadline in the record, which is on this host's clock. */
static void adopt(struct lease *lease, struct deadline expires)
{
    struct deadline now = deadline_now();
    lease_adopt(lease, now, now, deadline_gap(now, expires), expires.boot_ns / NS_PER_MS);
}

/* If another process has released our lock, unlocks and closes our lock file, because other
 * processes may now acquire the lock. */
static enum lock_result after_look(struct dir_backend *backend, enum lock_result result)
{
    if (result == LOCK_RELEASED)
        dir_let_go(backend);
    return result;
}

enum lock_result dir_check(struct backend *base, struct lease *lease, struct bound bound,
                           struct errmsg *why)
{
    struct dir_backend *backend = dir_backend_of(base);
    struct record record;
    bool known;
    if (backend->place < 0)
        return ask_outside(&backend->store, lease, LOCK_FILE_TO_LOOK, EXTEND_AT_LEAST, bound, why);

    enum lock_result result =
        after_look(backend, look_at_own(backend, lease, &record, &known, why));
    if (result == LOCK_OK && known)
        adopt(lease, record.expires);
    return result;
}

/* Enters the critical section of our lock file, so that no other process changes the file. Returns
 * LOCK_OK, LOCK_UNAVAILABLE or LOCK_CANCELLED. */
static enum lock_result enter_own(struct dir_backend *backend, struct bound bound,
                                  struct errmsg *why)
{
    enum lock_result result = lock_file_enter(&backend->file, bound, why);
    return result == LOCK_OK || result == LOCK_CANCELLED ? result : LOCK_UNAVAILABLE;
}

/* Extends the deadline in the record, because the kernel's lock has no deadline. */
enum lock_result dir_extend(struct backend *base, struct lease *lease, enum extend_how how,
                            struct bound bound, struct errmsg *why)
{
    struct dir_backend *backend = dir_backend_of(base);
    struct record record;
    bool known;
    if (backend->place < 0)
        return ask_outside(&backend->store, lease, LOCK_FILE_TO_CHANGE, how, bound, why);

    enum lock_result result = enter_own(backend, bound, why);
    if (result != LOCK_OK)
        return result;
    struct deadline now = deadline_now();
    result = look_at_own(backend, lease, &record, &known, why);
    if (!known)
        record.expires = deadline_plus(now, lease->ttl);
    else if (result == LOCK_OK)
        result = set_deadline(&backend->file, backend->place, &record, lease->ttl, how, why);
    lock_file_leave(&backend->file);
    if (after_look(backend, result) == LOCK_OK)
        adopt(lease, record.expires);
    return result;
}

/* Called in the critical section: records the run, and removes the file or marks our record as
 * released. `record` is NULL if it could not be read. Even if nothing can be written, the kernel
 * frees the lock when the file is closed. */
static void give_back(struct dir_backend *backend, const struct lease *lease, struct record *record,
                      struct bound bound)
{
    struct store *store = &backend->store;
    struct lock_file *file = &backend->file;
    struct survey *survey = &backend->survey;
    bool held_on = record != NULL && !deadline_passed(lease->hold);
    bool wanted = !queue_is_empty(file);

    if (record != NULL)
        store_add_run(store, record, &lease->end);
    if (!store_survey_one(store, file, backend->place, survey))
        store_survey(store, file, "", backend->place, bound, survey);
    if (!held_on && !wanted && survey->held == 0 && survey->pause.left.ns == 0) {
        (void)store_remove(file);
    } else if (record != NULL) {
        record_release(record, lease->hold);
        (void)lock_file_write(file, backend->place, record, NULL);
        store_note_place(file, backend->place, held_on);
    }

    struct memory_entry *entry = store_entry(store, lease->key, true);
    if (!held_on && wanted) /* queue_lets() is called only to record whose turn it is */
        (void)queue_lets(file, entry, &(struct ticket){0}, survey);
    entry_released(entry, lease->token, lease->take_id,
                   record != NULL ? age_of(record) : deadline_gap(lease->taken, deadline_now()));
    if (lease->lost)
        atomic_fetch_add(&entry->losses, 1);
}

/* The lock was lost, and our lock file is closed: records the run, unless a later run or this one is
 * already recorded. This run is already recorded if the next holder, or the process that took the
 * lock away by force, has recorded it as lost. The critical section of the lock file that is there
 * now (we create it if there is none) keeps the next holder from recording its run at the same
 * time. */
static void lose(struct dir_backend *backend, const struct lease *lease,
                 const struct record *record, struct bound bound)
{
    struct store *store = &backend->store;
    struct lock_file *standing = &backend->file;
    struct run_end end = lease->end;
    struct run_memory runs;

    atomic_fetch_add(&store_entry(store, lease->key, true)->losses, 1);
    if (record == NULL || strcmp(record->holder.take_id, lease->take_id) != 0 ||
        is_forced(store, lease, NULL))
        return;
    if (end.how != RUN_NONE && end.how != RUN_STOPPED)
        end = (struct run_end){RUN_LOST, 0, 0};
    bool empty =
        store_open_file(store, standing, lease->key, LOCK_FILE_TO_TAKE, bound, NULL) == LOCK_OK &&
        standing->size == 0;
    store_read_runs(store, lease->key, NULL, bound, &runs);
    if (runs.last.began_ms < record->holder.since_wall_ms)
        store_add_run(store, record, &end);
    if (empty)
        store_tidy(store, standing, bound);
    lock_file_close(standing);
}

static enum lock_result release_own(struct dir_backend *backend, const struct lease *lease,
                                    struct bound bound, struct errmsg *why)
{
    struct record record;
    bool known;
    enum lock_result result = enter_own(backend, bound, why);
    if (result != LOCK_OK)
        return result;

    result = look_at_own(backend, lease, &record, &known, why);
    if (result == LOCK_UNAVAILABLE) {
        lock_file_leave(&backend->file);
        return result;
    }
    if (result == LOCK_OK)
        give_back(backend, lease, known ? &record : NULL, bound);
    dir_let_go(backend);
    if (lock_is_lost(result))
        lose(backend, lease, known ? &record : NULL, bound);
    return result;
}

enum lock_result dir_release(struct backend *base, const struct lease *lease, struct bound bound,
                             struct errmsg *why)
{
    struct dir_backend *backend = dir_backend_of(base);
    backend->store.unrecorded = false;
    enum lock_result result = backend->place < 0
                                  ? release_outside(&backend->store, lease, bound, why)
                                  : release_own(backend, lease, bound, why);
    base->warning =
        backend->store.unrecorded ? "the lock directory has no room for another lock" : NULL;
    return result;
}
