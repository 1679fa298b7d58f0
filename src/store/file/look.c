/* Looks at locks from outside, without locking anything; removes and pauses locks. */
#include "store/file/file_int.h"

#include "lock/format.h"
#include "util/array.h"
#include "util/fileutils.h"
#include "util/text.h"
#include "util/thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- one lock ---------------------------------------------------------------- */

/* Describes a holder. The caller leaves out holders that were killed or have released the lock. */
static void fill_owner(struct lock_owner *owner, const struct lock_place *place,
                       const char *boot_id)
{
    const struct record *record = &place->record;
    if (!place->known)
        return;
    text_copy(owner->token, sizeof owner->token, record->token);
    place_holder(place, boot_id, &owner->holder);
    owner->fence = record->fence;
    owner->slot = record->slot;
    owner->ttl = record->ttl;
    owner->hold_left = owner->holder.expires ? deadline_left(record->hold) : DURATION_ZERO;
}

/* True if flock(1), or another program that is not dlock, has locked the file. */
static bool is_locked_by_others(const struct lock_file *file)
{
    struct flock_file open_file;
    struct flock_holder holder;
    return proc_locks_holders(file->fd, &open_file, &holder, 1) > 0;
}

/* Describes the holders, except those that acquired the lock after the holders were counted. */
static void fill_owners(const struct lock_file *file, const char *boot_id, struct bound bound,
                        struct lock_state *state)
{
    struct lock_place place = lock_file_places(bound, -1);
    size_t count = 0;
    while (count < state->owner_count && lock_file_next_place(file, &place)) {
        if (!place_is_held(&place, boot_id))
            continue;
        fill_owner(&state->owners[count++], &place, boot_id);
        if (place.known) {
            state->mode = place.record.mode;
            state->slots = place.record.slots;
        }
    }
    state->owner_count = count;
    state->locked = count > 0;
}

/* Fills in the mode and the slots of each waiter, and this host; nothing else is known about a
 * waiter. Returns false if memory is short. */
static bool fill_queue(const struct lock_file *file, struct lock_state *state)
{
    struct ticket tickets[WAITERS_SHOWN];
    struct holder self;
    size_t count = queue_list(file, tickets, WAITERS_SHOWN);
    state->queue = count > 0 ? calloc(count, sizeof *state->queue) : NULL;
    if (count == 0 || state->queue == NULL)
        return count == 0;

    holder_fill(&self, 0, "");
    for (size_t i = 0; i < count; i++) {
        state->queue[i] = (struct lock_waiter){.mode = tickets[i].mode, .slots = tickets[i].slots};
        text_copy(state->queue[i].host, sizeof state->queue[i].host, self.host);
    }
    state->queue_count = count;
    state->waiters = queue_count(file, NULL, &(struct ticket){0});
    return true;
}

/* If file->fd is -1, there is no lock file. */
static enum lock_result look_at(struct dir_backend *backend, const struct lock_file *file,
                                const char *key, struct lock_state *state, struct bound bound,
                                struct errmsg *why)
{
    struct store *store = &backend->store;
    struct survey *survey = &backend->survey;
    bool there = file->fd >= 0;

    *survey = (struct survey){0};
    enum lock_result result = memory_open(&store->memory, &store->dir, false, why);
    if (result != LOCK_OK && result != LOCK_GONE && result != LOCK_INVALID)
        return result;
    if (there)
        store_survey(store, file, "", -1, bound, survey);
    state->newer = survey->newer > 0 ? survey->newer : store->memory.newer;
    if (state->newer > 0)
        return format_newer(why, state->newer);

    size_t held = (size_t)survey->held;
    bool others = there && survey->released == 0 && held == 0 && is_locked_by_others(file);
    if (!lock_state_init(state, key, held + others) || (there && !fill_queue(file, state))) {
        lock_state_free(state);
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    }
    state->pause = survey->pause;
    if (held > 0)
        fill_owners(file, store_boot_id(store), bound, state);
    entry_read(store_entry(store, key, false), state);
    store_read_runs(store, key, there ? file : NULL, bound, &state->memory);
    return LOCK_OK;
}

/* Removes a file that an expired --hold-at-least or a killed holder has left behind; otherwise the
 * file would stay forever. An empty file is kept, because a process has just created it to acquire
 * the lock. The record of a detached lease is kept, because --extend and --release read in it what
 * became of the lease. */
static void remove_left(struct dir_backend *backend, struct lock_file *file,
                        const struct lock_state *state)
{
    struct store *store = &backend->store;
    struct bound bound = {deadline_after(DURATION_MS(100)), -1};
    if (file->fd < 0 || file->size == 0 || state->locked || state->owner_count > 0 ||
        state->waiters > 0 || state->pause.left.ns > 0 || backend->survey.acquired)
        return;
    lock_file_close(file); /* the file was open only for a look */
    if (store_open_file(store, file, state->key, LOCK_FILE_TO_CHANGE, bound, NULL) == LOCK_OK)
        store_tidy(store, file, bound);
}

static enum lock_result look_here(struct dir_backend *backend, const char *key,
                                  struct lock_state *state, struct bound bound, struct errmsg *why)
{
    struct store *store = &backend->store;
    struct lock_file file;
    enum lock_result result = store_open_file(store, &file, key, LOCK_FILE_TO_LOOK, bound, why);
    if (result == LOCK_OK || result == LOCK_GONE)
        result = look_at(backend, &file, key, state, bound, why);
    if (result == LOCK_OK)
        remove_left(backend, &file, state);
    lock_file_close(&file);
    return result;
}

/* If the lock is free in this directory, finds out whether it is held in another default directory,
 * because a request for the lock would then be refused. */
static enum lock_result look_elsewhere(struct dir_backend *backend, struct lock_state *state,
                                       struct bound bound, struct errmsg *why)
{
    if (state->locked || state->pause.left.ns > 0 ||
        !store_held_elsewhere(&backend->store, state->key, bound, why))
        return LOCK_OK;
    lock_state_free(state);
    return LOCK_INVALID;
}

enum lock_result dir_look(struct backend *base, const char *key, struct lock_state *state,
                          struct bound bound, struct errmsg *why)
{
    struct dir_backend *backend = dir_backend_of(base);
    enum lock_result result = look_here(backend, key, state, bound, why);
    return result == LOCK_OK ? look_elsewhere(backend, state, bound, why) : result;
}

/* --- removal ------------------------------------------------------------------- */

/* Records who is taking the lock away from all holders by force, and records their runs as lost.
 * Called before the file is removed, because the removal wakes the holders. */
static void mark_forced(struct store *store, const struct lock_file *file, const char *key,
                        struct bound bound)
{
    struct lock_place place = lock_file_places(bound, -1);
    char forcer[FORCER_SIZE];
    lock_forcer(forcer);
    while (lock_file_next_place(file, &place))
        if (place.known && !place.record.holder.kept && place_is_held(&place, store_boot_id(store)))
            entry_mark_forced(store_entry(store, key, true), place.record.token,
                              place.record.holder.take_id, forcer);
    store_lose_runs(store, file, true, bound);
}

/* Atomically replaces the lock file with one that contains only the pause. */
static NOT_INLINED bool leave_pause(struct store *store, struct lock_file *file)
{
    struct lock_file next = {.fd = -1, .text = store->text};
    struct record record;
    char id[TOKEN_SIZE]; /* random, so that another user cannot have made this file first */
    token_make(id);
    snprintf(next.path, sizeof next.path, "%s/.paused-%.40s", store->dir.path, id);
    if (lock_file_verify(file, NULL) != LOCK_OK ||
        !lock_file_read(file, LOCK_FILE_PAUSE, &record) ||
        lock_file_open(&next, LOCK_FILE_TO_TAKE, NULL) != LOCK_OK)
        return false;

    bool done = lock_file_write(&next, LOCK_FILE_PAUSE, &record, NULL) == LOCK_OK &&
                rename(next.path, file->path) == 0;
    if (!done)
        (void)unlink(next.path);
    lock_file_close(&next);
    return done;
}

/* Does not wait for a process that is frozen in the critical section of the lock file: that process
 * loses the lock that it was about to acquire. */
enum lock_result dir_force_release(struct backend *base, const char *key, struct lock_state *was,
                                   struct bound bound, struct errmsg *why)
{
    struct dir_backend *backend = dir_backend_of(base);
    struct store *store = &backend->store;
    struct lock_file file;
    enum lock_result result = store_open_file(store, &file, key, LOCK_FILE_TO_CHANGE, bound, why);
    bool there = result == LOCK_OK ||
                 (result == LOCK_UNAVAILABLE && lock_file_verify(&file, NULL) == LOCK_OK);

    if (there || result == LOCK_GONE)
        result = look_at(backend, &file, key, was, bound, why);
    if (result == LOCK_OK)
        result = look_elsewhere(backend, was, bound, why);
    if (result == LOCK_OK && there) {
        mark_forced(store, &file, key, bound);
        if (!(was->pause.left.ns > 0 ? leave_pause(store, &file) : store_remove(&file))) {
            result = errmsg_fail(why, LOCK_REFUSED, "cannot remove the lock file %s: %s", file.path,
                                 strerror(errno));
            lock_state_free(was);
        }
    }
    if (result == LOCK_OK && was->locked)
        atomic_store(&store_entry(store, key, true)->released_wall_ms, wall_now_ms());
    lock_file_close(&file);
    return result;
}

/* --- pausing ------------------------------------------------------------------- */

/* A pause, like a lease, ends when the host restarts. */
static void fill_pause(struct record *record, const char *key, const struct pause *pause)
{
    *record =
        (struct record){.format = STORE_FORMAT, .expires = deadline_after(pause->left), .slot = -1};
    holder_fill(&record->holder, 0, "");
    text_copy(record->key, sizeof record->key, key);
    text_copy(record->token, sizeof record->token, "pause");
    text_copy(record->holder.message, sizeof record->holder.message, pause->message);
}

/* Called in the critical section of the lock file: writes the record of a pause. LOCK_UNAVAILABLE:
 * the file was removed by force, perhaps while this process was frozen. */
static enum lock_result write_pause(struct lock_file *file, const struct record *record,
                                    struct errmsg *why)
{
    enum lock_result result = lock_file_write(file, LOCK_FILE_PAUSE, record, why);
    if (result == LOCK_OK && lock_file_verify(file, why) != LOCK_OK)
        return LOCK_UNAVAILABLE;
    return result;
}

/* Closes the file at the end, which wakes the first waiter, so that it sees the change. */
enum lock_result dir_pause(struct backend *base, const char *key, const struct pause *pause,
                           struct bound bound, struct errmsg *why)
{
    struct store *store = &dir_backend_of(base)->store;
    struct survey *survey = &dir_backend_of(base)->survey;
    bool ends = pause->left.ns == 0;
    struct lock_file file;
    struct record record;

    fill_pause(&record, key, pause);
    enum lock_result result = store_open_file(
        store, &file, key, ends ? LOCK_FILE_TO_CHANGE : LOCK_FILE_TO_TAKE, bound, why);
    bool in_section = result == LOCK_OK;
    if (in_section) {
        store_survey(store, &file, "", -1, bound, survey);
        if (survey->newer > 0)
            result = format_newer(why, survey->newer);
        else if (ends && survey->pause.left.ns == 0)
            result = LOCK_GONE;
    }
    if (result == LOCK_GONE && store_held_elsewhere(store, key, bound, why))
        result = LOCK_INVALID;
    else if (result == LOCK_GONE)
        errmsg_set(why, "the lock is not paused");
    if (result == LOCK_OK)
        result = write_pause(&file, &record, why);
    if (in_section)
        store_tidy(store, &file, bound);
    lock_file_close(&file);
    return result;
}

/* --- all locks ----------------------------------------------------------------- */

struct lister {
    struct dir_backend *backend;
    struct listing of;
    size_t visited;
    bool ended; /* visit() has returned false, which ends the listing */
};

static bool is_name_of(const char *name, const char *key)
{
    char right[LOCK_FILE_NAME_SIZE];
    lock_file_name(right, key);
    return strcmp(name, right) == 0;
}

static NOT_INLINED bool key_in_record(struct store *store, const char *name,
                                      char key[LOCK_KEY_SIZE])
{
    struct lock_file file = {.fd = -1, .text = store->text};
    struct lock_place place = lock_file_places((struct bound){DEADLINE_NEVER, -1}, -1);
    bool found = false;
    snprintf(file.path, sizeof file.path, "%s/%s", store->dir.path, name);
    if (lock_file_open(&file, LOCK_FILE_TO_LOOK, NULL) != LOCK_OK)
        return false;

    while (!found && lock_file_next_place(&file, &place))
        found = place.known && is_name_of(name, place.record.key);
    if (found)
        text_copy(key, LOCK_KEY_SIZE, place.record.key);
    lock_file_close(&file);
    return found;
}

/* Finds the key of the lock whose file has this name. If the key was too long for a file name, only
 * the record in the file contains it. A name that merely looks shortened is decoded like any other
 * name. */
static bool key_of(struct store *store, const char *name, char key[LOCK_KEY_SIZE])
{
    static const char suffix[] = ".lock";
    size_t length = strlen(name);
    size_t tail = strlen(suffix);
    if (length <= tail || length >= LOCK_FILE_NAME_SIZE ||
        strcmp(name + length - tail, suffix) != 0)
        return false;
    if (strchr(name, '~') != NULL && key_in_record(store, name, key))
        return true;
    return percent_decode(key, LOCK_KEY_SIZE, name, length - tail) && is_name_of(name, key);
}

/* Adds the key if the listing selects it. False if there is no memory. */
static bool add_key(const struct lister *lister, struct key_list *list, const char *key)
{
    size_t length = strlen(lister->of.prefix);
    bool asked_for =
        strncmp(key, lister->of.prefix, length) == 0 &&
        (lister->of.pattern == NULL || fnmatch(lister->of.pattern, key + length, 0) == 0);
    return !asked_for || key_list_add(list, key);
}

/* Adds the keys of the directory's lock files. Returns false with errno on failure. */
static bool add_files(const struct lister *lister, DIR *names, struct key_list *list)
{
    char key[LOCK_KEY_SIZE];
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(names);
        if (entry == NULL)
            return errno == 0;
        if (key_of(&lister->backend->store, entry->d_name, key) && !add_key(lister, list, key)) {
            errno = ENOMEM;
            return false;
        }
    }
}

/* Adds the keys of the locks that have a recorded run, whether or not they have a lock file.
 * Returns false with errno on failure. */
static bool add_remembered(const struct lister *lister, struct key_list *list)
{
    struct store *store = &lister->backend->store;
    char key[LOCK_KEY_SIZE];
    size_t number = 0;
    errno = ENOMEM;
    if (!lister->of.all || memory_open(&store->memory, &store->dir, false, NULL) != LOCK_OK)
        return true;
    while (memory_next_run(&store->memory, &number, key))
        if (!add_key(lister, list, key))
            return false;
    return true;
}

/* Lists the keys of the locks in the directory. On LOCK_OK, the caller must free *list. */
static NOT_INLINED enum lock_result find_keys(const struct lister *lister, struct key_list *list,
                                              struct errmsg *why)
{
    const struct lock_dir *dir = &lister->backend->store.dir;
    int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = fd >= 0 ? fdopendir(fd) : NULL;
    bool good = names != NULL && add_files(lister, names, list) && add_remembered(lister, list);
    int error = errno;

    if (names != NULL)
        closedir(names);
    else
        fd_close(&fd);
    if (good) {
        key_list_sort(list);
        return LOCK_OK;
    }
    key_list_free(list);
    return errmsg_fail(
        why, names == NULL || error == ENOMEM ? file_error_result(error) : LOCK_UNAVAILABLE,
        "cannot list the lock directory %s: %s", dir->path, strerror(error));
}

static enum lock_result list_here(struct lister *lister, struct bound bound, struct errmsg *why)
{
    struct key_list list = {0};
    enum lock_result result = find_keys(lister, &list, why);
    for (size_t i = 0; result == LOCK_OK && !lister->ended && i < list.count; i++) {
        struct lock_state state = {0};
        result = lock_state_of_list(&state, list.keys[i],
                                    look_here(lister->backend, list.keys[i], &state, bound, why));
        if (result == LOCK_REFUSED) {
            result = LOCK_OK; /* another user's lock file */
        } else if (result == LOCK_OK && lock_state_is_listed(&state, lister->of.all)) {
            lister->visited++;
            lister->ended = !lister->of.visit(lister->of.data, &state);
        }
        lock_state_free(&state);
    }
    key_list_free(&list);
    return result;
}

/* Lists the locks in the other default directories, because they can cause a request in this
 * directory to be refused. */
static enum lock_result list_others(struct lister *lister, struct bound bound, struct errmsg *why)
{
    const struct store *store = &lister->backend->store;
    struct lock_dir dir = LOCK_DIR_BEFORE_ALL;
    enum lock_result result = LOCK_OK;
    struct dir_backend *other = calloc(1, sizeof *other);
    if (other == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");

    lister->backend = other;
    lister->of.all = false;
    while (result == LOCK_OK && !lister->ended && store_next_other(store, &dir))
        if (lock_dir_open(&other->store.dir, dir.path, NULL) == LOCK_OK) {
            result = list_here(lister, bound, why);
            store_close(&other->store);
        }
    free(other);
    return result;
}

enum lock_result dir_list(struct backend *base, const struct listing *listing, struct bound bound,
                          struct errmsg *why)
{
    struct lister lister = {.backend = dir_backend_of(base), .of = *listing};
    enum lock_result result = list_here(&lister, bound, why);
    size_t here = lister.visited;
    if (result == LOCK_OK)
        result = list_others(&lister, bound, why);
    base->note = lister.visited > here ? "the last of these locks are in another default lock "
                                         "directory; --status NAME shows which"
                                       : NULL;
    return result;
}
