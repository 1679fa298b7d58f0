#include "store/file/lease_ops.h"

#include <string.h>

void lock_own_let_go(struct file_backend *backend)
{
    file_waiter_stop(&backend->waiter);
    if (backend->place >= 0)
        lock_file_unlock(&backend->file);
    lock_file_close(&backend->file);
    backend->place = -1;
    backend->watched = false;
}

/* LOCK_OK with *known telling whether *record is filled in. A record that cannot
 * be read changes nothing: the kernel's lock holds. LOCK_UNAVAILABLE where the file
 * cannot be looked at: that is no loss. */
static enum lock_result look_at_own(struct file_backend *backend, const struct lease *lease, struct lock_record *record,
                                    bool *known, struct why *why)
{
    struct lock_file *file = &backend->file;
    (void)lock_file_drain_news(backend->waiter.news_fd);
    *known = lock_file_read(file, backend->place, record);
    bool ours = *known && strcmp(record->take_id, lease->take_id) == 0;
    if (ours && record->released) {
        why_set(why, "it was released with its own token");
        return LOCK_RELEASED;
    }
    enum lock_result result = lock_file_verify(file, why);
    if (result != LOCK_OK || !*known || ours)
        return result;
    why_set(why, "the lock file %s is held under another token", file->path);
    return LOCK_FOREIGN;
}

/* The clock of the record is our own. */
static void adopt(struct lease *lease, struct deadline expires)
{
    struct deadline now = deadline_now();
    lease_adopt(lease, now, now, deadline_gap(now, expires), expires.boot_ns / NS_PER_MS);
}

enum lock_result lock_own_check(struct file_backend *backend, struct lease *lease, struct why *why)
{
    struct lock_record record;
    bool known;
    enum lock_result result = look_at_own(backend, lease, &record, &known, why);
    /* The place is for others from now on: whoever released it meant that. */
    if (result == LOCK_RELEASED)
        lock_own_let_go(backend);
    if (result != LOCK_OK || !known)
        return result;
    adopt(lease, record.expires);
    return LOCK_OK;
}

/* The kernel's lock has no end of its own: the deadline is that of the record. */
enum lock_result lock_own_extend(struct file_backend *backend, struct lease *lease, enum extend_how how, struct bound bound,
                                 struct why *why)
{
    struct lock_record record;
    bool known;
    enum lock_result result = lock_file_enter(&backend->file, bound, why);
    if (result != LOCK_OK)
        return result == LOCK_CANCELLED ? result : LOCK_UNAVAILABLE;
    struct deadline now = deadline_now();
    result = look_at_own(backend, lease, &record, &known, why);
    if (!known)
        record.expires = deadline_plus(now, lease->ttl);
    else if (result == LOCK_OK)
        result = lock_store_extend(&backend->file, backend->place, &record, lease->ttl, how == EXTEND_EXACTLY, why);
    lock_file_leave(&backend->file);
    if (result == LOCK_RELEASED)
        lock_own_let_go(backend);
    if (result == LOCK_OK)
        adopt(lease, record.expires);
    return result;
}

/* In the section. Whatever becomes of the record, the kernel's lock ends with
 * the file. */
static void give_back(struct file_backend *backend, const struct lease *lease, struct lock_record *record, bool known,
                      struct lock_entry *entry, struct bound bound)
{
    struct lock_file *file = &backend->file;
    struct why ignored = {""};
    struct lock_survey survey;
    bool held_on = known && !deadline_passed(lease->hold), wanted = !lock_queue_is_empty(file);
    lock_survey(file, lock_store_boot_id(&backend->store), "", backend->place, bound, &survey);
    if (!held_on && !wanted && survey.held == 0) {
        (void)lock_store_remove(file);
    } else if (known) {
        record->released = true;
        record->hold = lease->hold;
        (void)lock_file_write(file, backend->place, record, &ignored);
    }
    if (!held_on && wanted) /* it is noted whose turn it is */
        (void)lock_queue_lets(file, entry, &(struct ticket){0}, &survey);
    lock_entry_released(entry, lease->token, lease->take_id,
                        known ? lock_record_age(record) : deadline_gap(lease->taken, deadline_now()));
    if (lease->lost)
        lock_entry_lost(entry);
}

enum lock_result lock_own_release(struct file_backend *backend, const struct lease *lease, struct bound bound, struct why *why)
{
    struct lock_record record;
    bool known;
    enum lock_result result = lock_file_enter(&backend->file, bound, why);
    if (result != LOCK_OK)
        return result == LOCK_CANCELLED ? result : LOCK_UNAVAILABLE;
    struct lock_entry *entry = lock_table_entry(&backend->store.table, lease->key, false);
    result = look_at_own(backend, lease, &record, &known, why);
    if (result == LOCK_UNAVAILABLE) {
        lock_file_leave(&backend->file);
        return result;
    }
    if (result == LOCK_OK)
        give_back(backend, lease, &record, known, entry, bound);
    else if (lock_is_lost(result))
        lock_entry_lost(entry);
    lock_own_let_go(backend);
    return result;
}
