#include "store/file/store.h"

#include "process/procfs.h"
#include "store/file/runs.h"
#include "store/file/ticket_queue.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { TRIES_MOST = 100 };

void store_close(struct store *store)
{
    shared_table_close(&store->table);
    lock_dir_close(&store->dir);
}

enum lock_result store_renew(struct store *store, struct errmsg *why)
{
    struct lock_dir dir;
    if (lock_dir_stands(&store->dir))
        return LOCK_OK;
    enum lock_result result = lock_dir_open(&dir, store->dir.path, why);
    if (result != LOCK_OK)
        return result;
    store_close(store);
    store->dir = dir;
    return LOCK_OK;
}

void store_path(const struct store *store, char path[LOCK_FILE_PATH_SIZE], const char *key)
{
    char name[LOCK_FILE_NAME_SIZE];
    lock_file_name(name, key);
    snprintf(path, LOCK_FILE_PATH_SIZE, "%s/%s", store->dir.path, name);
}

const char *store_boot_id(struct store *store)
{
    if (store->boot_id[0] == '\0')
        proc_boot_id(store->boot_id, sizeof store->boot_id);
    return store->boot_id;
}

struct shared_entry *store_entry(struct store *store, const char *key, bool make)
{
    if (shared_table_open(&store->table, &store->dir, make, NULL) != LOCK_OK)
        return NULL;
    return shared_table_entry(&store->table, key, make);
}

enum lock_result store_open_file(const struct store *store, struct lock_file *file, const char *key,
                                 enum lock_file_use use, struct bound bound, struct errmsg *why)
{
    *file = (struct lock_file){.fd = -1};
    store_path(store, file->path, key);
    for (int tries = 0; tries < TRIES_MOST; tries++) {
        enum lock_result result = lock_file_open(file, use, why);
        if (result == LOCK_OK && use != LOCK_FILE_TO_LOOK)
            result = lock_file_enter(file, bound, why);
        if (result == LOCK_OK)
            result = lock_file_verify(file, why);
        if (result != LOCK_GONE || file->fd < 0)
            return result;
        lock_file_close(file); /* it has just been removed */
    }
    return errmsg_fail(why, LOCK_UNAVAILABLE,
                       "the lock file %s is repeatedly removed as it is opened", file->path);
}

bool store_unheld(struct store *store, const struct lock_file *file, int own, struct bound bound)
{
    struct lock_place place = lock_file_places(bound);
    bool held = lock_is_paused(file, store_boot_id(store));
    while (!held && lock_file_next_place(file, &place))
        held = place.number != own && lock_place_held(&place, store_boot_id(store));
    return !held;
}

bool store_next_other(const struct store *store, struct lock_dir *other)
{
    struct stat status;
    bool found = false;
    for (int next = (int)other->place + 1;
         store->dir.place != LOCK_DIR_GIVEN && !found && next < LOCK_DIR_GIVEN; next++) {
        other->place = (enum lock_dir_place)next;
        lock_dir_default(other->place, other->path, sizeof other->path);
        found = other->place != store->dir.place && lstat(other->path, &status) == 0 &&
                S_ISDIR(status.st_mode) && lock_dir_may_use(&status);
    }
    return found;
}

bool store_held_elsewhere(const struct store *store, const char *key, struct bound bound,
                          struct errmsg *why)
{
    struct store other = {.dir = LOCK_DIR_BEFORE_ALL};
    struct lock_file file = {.fd = -1};
    bool held = false;
    while (!held && store_next_other(store, &other.dir)) {
        held = store_open_file(&other, &file, key, LOCK_FILE_TO_LOOK, bound, NULL) == LOCK_OK &&
               !store_unheld(&other, &file, -1, bound);
        lock_file_close(&file);
    }
    if (held)
        errmsg_set(why,
                   "the lock is held in %.300s, the default lock directory before /run/lock or "
                   "/run/dlock was mounted or changed; use the same --lock-dir for all",
                   other.dir.path);
    return held;
}

bool store_remove(struct lock_file *file)
{
    enum lock_result standing = lock_file_standing(file);
    if (standing != LOCK_OK)
        return standing == LOCK_GONE;
    return unlink(file->path) == 0 || errno == ENOENT;
}

/* flock(1) may have it. Others may have written records past the end that we knew. */
void store_tidy(struct store *store, struct lock_file *file, struct bound bound)
{
    if (lock_file_standing(file) == LOCK_OK && ticket_queue_is_empty(file) &&
        store_unheld(store, file, -1, bound) && lock_file_flock(file, MODE_EXCLUSIVE)) {
        runs_lose(store, file, false, bound);
        (void)store_remove(file);
    }
}

enum lock_result store_extend(const struct lock_file *file, int place, struct record *record,
                              struct duration ttl, bool may_shorten, struct errmsg *why)
{
    struct deadline expires = deadline_after(ttl);
    if (!may_shorten && !deadline_before(record->expires, expires))
        return LOCK_OK;
    record->expires = expires;
    return lock_file_write(file, place, record, why) == LOCK_OK ? LOCK_OK : LOCK_UNAVAILABLE;
}

struct duration record_age(const struct record *record)
{
    int64_t ms = wall_now_ms() - record->holder.since_wall_ms;
    return DURATION_MS(ms > 0 ? ms : 0);
}
