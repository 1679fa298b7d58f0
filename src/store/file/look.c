/* Looking at locks from outside, which locks nothing; removing and pausing them. */
#include "lock/format.h"
#include "store/file/dir_int.h"
#include "store/file/proc_locks.h"
#include "store/file/runs.h"
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

static void fill_owner(struct lock_owner *owner, const struct lock_place *place,
                       const char *boot_id)
{
    const struct record *record = &place->record;
    if (!place->known)
        return;
    bool same_boot = record_may_be_of(record, boot_id);
    text_copy(owner->token, sizeof owner->token, record->token);
    owner->holder = record->holder;
    owner->holder.expires = same_boot;
    owner->holder.left = deadline_left(lock_place_end(place));
    owner->fence = record->fence;
    owner->slot = record->slot;
    owner->ttl = record->ttl;
    owner->holder.detached = record->detached;
    /* A holder that was killed is not reported any more either. */
    owner->holder.kept = record->released || (place->locked == PLACE_UNLOCKED && !record->detached);
    owner->hold_left = same_boot ? deadline_left(record->hold) : DURATION_ZERO;
}

/* flock(1) or another program that is not dlock has it locked. */
static bool is_locked_by_others(const struct lock_file *file)
{
    struct flock_file open_file;
    struct flock_holder holder;
    return proc_locks_holders(file->fd, &open_file, &holder, 1) > 0;
}

/* Holders that came after the count are left out. */
static void fill_owners(const struct lock_file *file, const char *boot_id, struct bound bound,
                        struct lock_state *state)
{
    struct lock_place place = lock_file_places(bound);
    size_t count = 0;
    while (count < state->owner_count && lock_file_next_place(file, &place)) {
        if (!lock_place_held(&place, boot_id))
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

/* Nothing more is known of them. */
static bool fill_queue(const struct lock_file *file, struct lock_state *state)
{
    struct ticket tickets[WAITERS_SHOWN];
    struct holder self;
    size_t count = ticket_queue_list(file, tickets, WAITERS_SHOWN);
    state->queue = count > 0 ? calloc(count, sizeof *state->queue) : NULL;
    if (count == 0 || state->queue == NULL)
        return count == 0;
    holder_fill(&self, 0, "");
    for (size_t i = 0; i < count; i++) {
        state->queue[i] = (struct lock_waiter){.mode = tickets[i].mode, .slots = tickets[i].slots};
        text_copy(state->queue[i].host, sizeof state->queue[i].host, self.host);
    }
    state->queue_count = count;
    return true;
}

static enum lock_result file_look_look_at(struct file_backend *backend,
                                          const struct lock_file *file, const char *key,
                                          struct lock_state *state, struct bound bound,
                                          struct errmsg *why)
{
    struct store *store = &backend->store;
    const char *boot_id = store_boot_id(store);
    bool there = file->fd >= 0;
    struct admission *survey = &backend->survey;
    *survey = (struct admission){0};
    enum lock_result result = shared_table_open(&store->table, &store->dir, false, why);
    if (result != LOCK_OK && result != LOCK_GONE && result != LOCK_INVALID)
        return result;
    const struct shared_entry *entry = store_entry(store, key, false);
    if (there)
        lock_survey(file, boot_id, "", -1, bound, survey, NULL);
    state->newer = survey->newer > 0 ? survey->newer : store->table.newer;
    if (state->newer > 0)
        return format_newer(why, state->newer);
    size_t held = (size_t)survey->held;
    bool others = there && survey->released == 0 && held == 0 && is_locked_by_others(file);
    if (!lock_state_init(state, key, held + others) || (there && !fill_queue(file, state))) {
        lock_state_free(state);
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    }
    state->pause = survey->pause;
    if (there)
        state->waiters = ticket_queue_count(file, NULL, &(struct ticket){0});
    if (held > 0)
        fill_owners(file, boot_id, bound, state);
    shared_entry_read(entry, state);
    runs_read(store, key, there ? file : NULL, bound, &state->memory);
    return LOCK_OK;
}

/* The record tells --extend and --release what became of the lease. */
static NOT_INLINED bool has_acquired_lease(const struct lock_file *file, struct bound bound)
{
    struct lock_place place = lock_file_places(bound);
    bool found = false;
    while (!found && lock_file_next_place(file, &place))
        found = place.known && place.record.detached && !place.record.released;
    return found;
}

/* Left by an expired --hold-at-least or by a killed holder: it would otherwise stay for
 * ever. An empty file is one that is just being taken. */
static void remove_left(struct store *store, struct lock_file *file, const struct lock_state *state)
{
    struct bound bound = {deadline_after(DURATION_MS(100)), -1};
    if (file->fd < 0 || file->size == 0 || state->locked || state->owner_count > 0 ||
        state->waiters > 0 || state->pause.left.ns > 0 || has_acquired_lease(file, bound))
        return;
    lock_file_close(file); /* it was open for a look */
    if (store_open_file(store, file, state->key, LOCK_FILE_TO_CHANGE, bound, NULL) == LOCK_OK)
        store_tidy(store, file, bound);
}

static enum lock_result look_here(struct file_backend *backend, const char *key,
                                  struct lock_state *state, struct bound bound, struct errmsg *why)
{
    struct lock_file file;
    enum lock_result result =
        store_open_file(&backend->store, &file, key, LOCK_FILE_TO_LOOK, bound, why);
    if (result == LOCK_OK || result == LOCK_GONE)
        result = file_look_look_at(backend, &file, key, state, bound, why);
    if (result == LOCK_OK)
        remove_left(&backend->store, &file, state);
    lock_file_close(&file);
    return result;
}

/* A lock that is free here may be held in another default directory: then a take is refused. */
static enum lock_result also_elsewhere(struct file_backend *backend, struct lock_state *state,
                                       struct bound bound, struct errmsg *why)
{
    if (state->locked || state->pause.left.ns > 0 ||
        !store_held_elsewhere(&backend->store, state->key, bound, why))
        return LOCK_OK;
    lock_state_free(state);
    return LOCK_INVALID;
}

enum lock_result file_look(struct backend *base, const char *key, struct lock_state *state,
                           struct bound bound, struct errmsg *why)
{
    enum lock_result result = look_here(file_of(base), key, state, bound, why);
    return result == LOCK_OK ? also_elsewhere(file_of(base), state, bound, why) : result;
}

/* Said before the file goes, which wakes those who hold it. */
static void mark_forced(struct store *store, const struct lock_file *file, const char *key,
                        struct bound bound)
{
    struct lock_place place = lock_file_places(bound);
    char forcer[FORCER_SIZE];
    lock_forcer(forcer);
    while (lock_file_next_place(file, &place))
        if (place.known && !place.record.released && lock_place_held(&place, store_boot_id(store)))
            shared_entry_mark_forced(store_entry(store, key, true), place.record.token,
                                     place.record.take_id, forcer);
    runs_lose(store, file, true, bound);
}

/* The lock file goes, and in the same step one comes that has nothing but the pause. */
static NOT_INLINED bool leave_pause(const struct store *store, struct lock_file *file)
{
    struct lock_file next = {.fd = -1};
    struct record record;
    char id[TOKEN_SIZE]; /* another user cannot have made a file of this name first */
    token_make(id);
    snprintf(next.path, sizeof next.path, "%s/.paused-%.40s", store->dir.path, id);
    if (lock_file_standing(file) != LOCK_OK || !lock_file_read(file, LOCK_FILE_PAUSE, &record) ||
        lock_file_open(&next, LOCK_FILE_TO_TAKE, NULL) != LOCK_OK)
        return false;
    bool done = lock_file_write(&next, LOCK_FILE_PAUSE, &record, NULL) == LOCK_OK &&
                rename(next.path, file->path) == 0;
    if (!done)
        (void)unlink(next.path);
    lock_file_close(&next);
    return done;
}

/* A process that is frozen in the section is not waited for: it loses the lock that it
 * was about to take. */
enum lock_result file_force_release(struct backend *base, const char *key, struct lock_state *was,
                                    struct bound bound, struct errmsg *why)
{
    struct store *store = &file_of(base)->store;
    struct lock_file file;
    enum lock_result result = store_open_file(store, &file, key, LOCK_FILE_TO_CHANGE, bound, why);
    bool there =
        result == LOCK_OK || (result == LOCK_UNAVAILABLE && lock_file_standing(&file) == LOCK_OK);
    if (there || result == LOCK_GONE)
        result = file_look_look_at(file_of(base), &file, key, was, bound, why);
    if (result == LOCK_OK)
        result = also_elsewhere(file_of(base), was, bound, why);
    if (there && result == LOCK_OK)
        mark_forced(store, &file, key, bound);
    if (there && result == LOCK_OK &&
        !(was->pause.left.ns > 0 ? leave_pause(store, &file) : store_remove(&file))) {
        result = errmsg_fail(why, LOCK_REFUSED, "cannot remove the lock file %s: %s", file.path,
                             strerror(errno));
        lock_state_free(was);
    }
    if (result == LOCK_OK && was->locked)
        shared_entry_forced(store_entry(store, key, true));
    lock_file_close(&file);
    return result;
}

/* --- pausing ------------------------------------------------------------------- */

/* It ends with a restart of the host, like a lease. */
static void fill_pause(struct record *record, const char *key, struct duration left,
                       const char *message)
{
    *record = (struct record){.format = STORE_FORMAT, .expires = deadline_after(left), .slot = -1};
    holder_fill(&record->holder, 0, "");
    text_copy(record->key, sizeof record->key, key);
    text_copy(record->token, sizeof record->token, "pause");
    text_copy(record->holder.message, sizeof record->holder.message, message);
}

/* Its last close wakes the first waiter. */
enum lock_result file_pause(struct backend *base, const char *key, const struct pause *pause,
                            struct bound bound, struct errmsg *why)
{
    struct lock_file file;
    struct record record;
    bool ends = pause->left.ns == 0;
    struct store *store = &file_of(base)->store;
    struct admission *survey = &file_of(base)->survey;
    fill_pause(&record, key, pause->left, pause->message);
    enum lock_result result = store_open_file(
        store, &file, key, ends ? LOCK_FILE_TO_CHANGE : LOCK_FILE_TO_TAKE, bound, why);
    if (result == LOCK_OK) {
        lock_survey(&file, store_boot_id(store), "", -1, bound, survey, NULL);
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
        result = lock_file_write(&file, LOCK_FILE_PAUSE, &record, why);
    if (file.fd >= 0)
        store_tidy(store, &file, bound);
    lock_file_close(&file);
    return result;
}

/* --- all of them --------------------------------------------------------------- */

static bool is_name_of(const char *name, const char *key)
{
    char right[LOCK_FILE_NAME_SIZE];
    lock_file_name(right, key);
    return strcmp(name, right) == 0;
}

static NOT_INLINED bool key_in_record(const struct store *store, const char *name,
                                      char key[LOCK_KEY_SIZE])
{
    struct lock_file file = {.fd = -1};
    struct lock_place place = lock_file_places((struct bound){DEADLINE_NEVER, -1});
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

/* The key that a file's name represents. A key that was too long for a name is written
 * only in the file; a name that merely looks like that is decoded too. */
static bool key_of(const struct store *store, const char *name, char key[LOCK_KEY_SIZE])
{
    static const char suffix[] = ".lock";
    size_t length = strlen(name), tail = strlen(suffix);
    if (length <= tail || length >= LOCK_FILE_NAME_SIZE ||
        strcmp(name + length - tail, suffix) != 0)
        return false;
    if (strchr(name, '~') != NULL && key_in_record(store, name, key))
        return true;
    return percent_decode(key, LOCK_KEY_SIZE, name, length - tail) && is_name_of(name, key);
}

static bool is_asked_for(const char *key, const char *prefix, const char *pattern)
{
    size_t length = strlen(prefix);
    return strncmp(key, prefix, length) == 0 &&
           (pattern == NULL || fnmatch(pattern, key + length, 0) == 0);
}

static enum lock_result cannot_list(const struct store *store, enum lock_result result, int error,
                                    struct errmsg *why)
{
    return errmsg_fail(why, result, "cannot list the lock directory %s: %s", store->dir.path,
                       strerror(error));
}

/* Those that remember a run, whether or not there is a lock file. */
static bool add_remembered(struct store *store, const char *prefix, const char *pattern,
                           struct key_list *list)
{
    char key[LOCK_KEY_SIZE];
    size_t number = 0;
    if (shared_table_open(&store->table, &store->dir, false, NULL) != LOCK_OK)
        return true;
    while (shared_table_next_run(&store->table, &number, key))
        if (is_asked_for(key, prefix, pattern) && !key_list_add(list, key))
            return false;
    return true;
}

static enum lock_result read_keys(const struct store *store, DIR *names, const char *prefix,
                                  const char *pattern, struct key_list *list, struct errmsg *why)
{
    char key[LOCK_KEY_SIZE];
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(names);
        if (entry == NULL)
            return errno == 0 ? LOCK_OK : cannot_list(store, LOCK_UNAVAILABLE, errno, why);
        if (key_of(store, entry->d_name, key) && is_asked_for(key, prefix, pattern) &&
            !key_list_add(list, key))
            return cannot_list(store, LOCK_SYSTEM, ENOMEM, why);
    }
}

/* LOCK_OK with *list to be freed. */
static NOT_INLINED enum lock_result file_look_find_keys(struct store *store, const char *prefix,
                                                        const char *pattern, bool all,
                                                        struct key_list *list, struct errmsg *why)
{
    *list = (struct key_list){0};
    int fd = openat(store->dir.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = fd >= 0 ? fdopendir(fd) : NULL;
    if (names == NULL) {
        fd_close(&fd);
        return cannot_list(store, file_error_result(errno), errno, why);
    }
    enum lock_result result = read_keys(store, names, prefix, pattern, list, why);
    closedir(names);
    if (result == LOCK_OK && all && !add_remembered(store, prefix, pattern, list))
        result = cannot_list(store, LOCK_SYSTEM, ENOMEM, why);
    if (result != LOCK_OK)
        key_list_free(list);
    else
        key_list_sort(list);
    return result;
}

struct lister {
    const char *prefix, *pattern;
    bool all;
    bool (*visit)(void *data, const struct lock_state *);
    void *data;
    size_t visited;
    bool ended; /* by visit() */
};

static enum lock_result list_here(struct file_backend *backend, struct lister *lister,
                                  struct bound bound, struct errmsg *why)
{
    struct key_list list;
    enum lock_result result = file_look_find_keys(&backend->store, lister->prefix, lister->pattern,
                                                  lister->all, &list, why);
    for (size_t i = 0; result == LOCK_OK && !lister->ended && i < list.count; i++) {
        struct lock_state state = {0};
        result = lock_state_of_list(&state, list.keys[i],
                                    look_here(backend, list.keys[i], &state, bound, why));
        if (result == LOCK_REFUSED)
            result = LOCK_OK; /* another user's */
        else if (result == LOCK_OK && lock_state_is_listed(&state, lister->all)) {
            lister->visited++;
            lister->ended = !lister->visit(lister->data, &state);
        }
        lock_state_free(&state);
    }
    key_list_free(&list);
    return result;
}

/* The locks in the other default directories, which a take refuses. */
static enum lock_result list_others(struct file_backend *backend, struct lister *lister,
                                    struct bound bound, struct errmsg *why)
{
    struct lock_dir dir = LOCK_DIR_BEFORE_ALL;
    enum lock_result result = LOCK_OK;
    lister->all = false;
    struct file_backend *other = calloc(1, sizeof *other);
    if (other == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    while (result == LOCK_OK && !lister->ended && store_next_other(&backend->store, &dir))
        if (lock_dir_open(&other->store.dir, dir.path, NULL) == LOCK_OK) {
            result = list_here(other, lister, bound, why);
            store_close(&other->store);
        }
    free(other);
    return result;
}

enum lock_result file_list(struct backend *base, const char *prefix, const char *pattern, bool all,
                           bool (*visit)(void *data, const struct lock_state *), void *data,
                           struct bound bound, struct errmsg *why)
{
    struct lister lister = {prefix, pattern, all, visit, data, 0, false};
    enum lock_result result = list_here(file_of(base), &lister, bound, why);
    size_t here = lister.visited;
    if (result == LOCK_OK)
        result = list_others(file_of(base), &lister, bound, why);
    base->note = lister.visited > here ? "the last of these locks are in another default lock "
                                         "directory, which --status NAME names"
                                       : NULL;
    return result;
}
