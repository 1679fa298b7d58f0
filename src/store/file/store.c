/* A directory of locks: its lock files, its table, and the steps that holding, releasing and
 * removing a lock have in common.
 *
 * A run is recorded in the table (memory.c) when its lock is released. Until then dlock knows of
 * the run only from the record in the lock file. If no process holds that record's place any more,
 * and the lock was not released, the run was lost. A lost run is recorded before its record is
 * removed. Orders of events:
 *
 *   A holder releases -> it records its run, removes its record or marks it as released, and then
 *     unlocks its place -> a request with once_per, which is granted only in the critical section
 *     of the lock file, takes the run into account.
 *   The holder is killed after it has recorded its run, but before its record is gone -> the record
 *     looks like that of a lost run -> this run is already the last one recorded, and is not
 *     recorded again.
 *   The holder is killed before it has recorded its run -> the record stays, but its place is no
 *     longer locked -> store_read_runs() counts the run as lost, and the next process that acquires
 *     the lock records it as lost.
 *   The lock is taken away by force (--force-release) -> the process that does so records the run
 *     as lost -> the holder, which learns of it, does not record the run again.
 *   The file is removed by hand -> the holder records the run when it gives up the lock, unless a
 *     later run has ended. The next holder may be writing at the same time; memory.c describes what
 *     happens then. */
#include "store/file/file_int.h"

#include "process/procfs.h"
#include "util/text.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TRIES_MOST = 100 };

/* --- the directory ----------------------------------------------------------- */

void store_close(struct store *store)
{
    memory_close(&store->memory);
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

const char *store_boot_id(struct store *store)
{
    if (store->boot_id[0] == '\0')
        proc_boot_id(store->boot_id, sizeof store->boot_id);
    return store->boot_id;
}

struct memory_entry *store_entry(struct store *store, const char *key, bool make)
{
    (void)memory_open(&store->memory, &store->dir, make, NULL);
    return memory_entry(&store->memory, key, make);
}

bool store_next_other(const struct store *store, struct lock_dir *other)
{
    struct stat status;
    int next = (int)other->place + 1;

    for (; store->dir.place != LOCK_DIR_GIVEN && next < LOCK_DIR_GIVEN; next++) {
        other->place = (enum lock_dir_place)next;
        lock_dir_default(other->place, other->path, sizeof other->path);
        if (other->place != store->dir.place && lstat(other->path, &status) == 0 &&
            S_ISDIR(status.st_mode) && lock_dir_may_use(&status))
            return true;
    }
    return false;
}

/* --- a file ------------------------------------------------------------------ */

static void name_file(struct store *store, const struct lock_dir *dir, struct lock_file *file,
                      const char *key)
{
    char name[LOCK_FILE_NAME_SIZE];
    lock_file_name(name, key);
    snprintf(file->path, sizeof file->path, "%s/%s", dir->path, name);
    file->text = store->text;
}

void store_file(struct store *store, struct lock_file *file, const char *key)
{
    name_file(store, &store->dir, file, key);
}

static enum lock_result open_file(struct lock_file *file, enum lock_file_use use,
                                  struct bound bound, struct errmsg *why)
{
    for (int tries = 0; tries < TRIES_MOST; tries++) {
        enum lock_result result = lock_file_open(file, use, why);
        if (result == LOCK_OK && use != LOCK_FILE_TO_LOOK)
            result = lock_file_enter(file, bound, why);
        if (result == LOCK_OK)
            result = lock_file_verify(file, why);
        if (result != LOCK_GONE || file->fd < 0)
            return result;
        lock_file_close(file); /* the file has just been removed */
    }
    return errmsg_fail(why, LOCK_UNAVAILABLE, "another process keeps removing the lock file %s",
                       file->path);
}

enum lock_result store_open_file(struct store *store, struct lock_file *file, const char *key,
                                 enum lock_file_use use, struct bound bound, struct errmsg *why)
{
    *file = (struct lock_file){.fd = -1};
    store_file(store, file, key);
    return open_file(file, use, bound, why);
}

/* Another process may be writing the record right now, so the read is repeated. */
static bool read_pause_record(const struct lock_file *file, struct record *record)
{
    enum { TRIES = 3 };
    bool read = lock_file_read(file, LOCK_FILE_PAUSE, record);
    for (int tries = 1; tries < TRIES && !read && errno != 0 && !record_is_newer(record); tries++) {
        (void)poll(NULL, 0, 1);
        read = lock_file_read(file, LOCK_FILE_PAUSE, record);
    }
    return read;
}

/* A pause whose record cannot be read may end at any time. It counts as lasting for another second,
 * so that no process acquires the lock or removes the file. */
static struct pause read_pause(const struct lock_file *file, const char *boot_id, int64_t *newer)
{
    struct pause pause = {.left = DURATION_ZERO};
    struct record record = {0};
    if (file->size <= LOCK_PAUSE_OFFSET)
        return pause;

    bool known = read_pause_record(file, &record);
    if (!known && errno != 0)
        pause = (struct pause){DURATION_S(1), "unknown", "the record cannot be read"};
    if (record_is_newer(&record))
        *newer = record.format;
    if (!known || !record_may_be_of(&record, boot_id) || deadline_passed(record.expires))
        return pause;

    pause.left = deadline_left(record.expires);
    snprintf(pause.by, sizeof pause.by, "%s@%s", record.holder.user, record.holder.host);
    text_copy(pause.message, sizeof pause.message, record.holder.message);
    return pause;
}

/* --- the map of places --------------------------------------------------------- */

/* Each holder has a place in the lock file: a record, and a byte that it locks. The map has a bit
 * for each place, which is set if the place was locked or held at the last look. The map is stored
 * after the record of place 0. As soon as there are many places, the map is written in the critical
 * section of the lock file, so that most requests for the lock need not look at all places. The map
 * is only a hint: locks and records decide.
 *
 *   A holder is killed -> its bit stays set -> the next look at all places finds that its place is
 *     free. Such a look takes place when the map shows no other free place, or when the number of
 *     places in the file would reach a power of two.
 *   An older dlock locks a place, or an exclusive holder overwrites the map -> a process that
 *     acquires the lock does not trust a bit that says "free", but reads that place -> after a few
 *     wrong bits, the process looks at all places, and writes the map again. */
#define MAP_AT LOCK_RECORD_MOST
_Static_assert(MAP_AT + sizeof(struct place_map) == LOCK_RECORD_SIZE, "the map fills the place");

static bool has_many(const struct lock_file *file)
{
    enum { MANY = 32 };
    return lock_file_place_count(file) > MANY;
}

static bool read_map(const struct lock_file *file, struct place_map *map)
{
    return pread(file->fd, map, sizeof *map, MAP_AT) == sizeof *map;
}

void store_write_map(const struct lock_file *file, const struct survey *survey)
{
    if (has_many(file) && !survey->unreadable && survey->newer == 0)
        (void)!pwrite(file->fd, &survey->taken, sizeof survey->taken, MAP_AT);
}

void store_note_place(const struct lock_file *file, int place, bool taken)
{
    struct place_map map;
    if (!has_many(file) || !read_map(file, &map))
        return;
    place_map_set(&map, place, taken);
    (void)!pwrite(file->fd, &map, sizeof map, MAP_AT);
}

/* The lowest place that the map shows as free, and that is really free; -1 if the caller must look
 * at all places. */
static int free_place(const struct lock_file *file, const char *boot_id)
{
    enum { TRIES = 4 };
    struct place_map map;
    int places = lock_file_place_count(file);
    int tries = 0;
    if (!read_map(file, &map))
        return -1;

    for (int number = 0; number < PLACES_MAPPED && tries < TRIES; number++) {
        if ((map.bits[number / 8] & 1U << number % 8) != 0)
            continue;
        if (number >= places && (number & (number - 1)) == 0)
            return -1;
        struct lock_place place = {.number = number};
        lock_file_read_place(file, &place);
        if (place.locked == PLACE_UNLOCKED && !place_is_held(&place, boot_id) &&
            !place_lost_run(&place, boot_id))
            return number;
        tries++;
    }
    return -1;
}

/* --- the holders ----------------------------------------------------------------- */

void store_survey(struct store *store, const struct lock_file *file, const char *token, int own,
                  struct bound bound, struct survey *survey)
{
    const char *boot_id = store_boot_id(store);
    struct lock_place place = lock_file_places(bound, own);

    *survey = (struct survey){.free_place = -1};
    survey->pause = read_pause(file, boot_id, &survey->newer);
    while (lock_file_next_place(file, &place))
        survey_add(survey, &place, boot_id, token);
    if (survey->free_place < 0)
        survey->free_place = place.number; /* the place after the last */
}

bool store_survey_one(struct store *store, const struct lock_file *file, int own,
                      struct survey *survey)
{
    const char *boot_id = store_boot_id(store);
    struct lock_place place;
    if (!has_many(file) || !lock_file_any_holder(file, &place) || !place.known ||
        place.record.mode == MODE_EXCLUSIVE || !place_is_held(&place, boot_id))
        return false;

    *survey = (struct survey){.held = 1, .free_place = own};
    survey->first = survey->last = place;
    survey->pause = read_pause(file, boot_id, &survey->newer);
    if (own < 0)
        survey->free_place = free_place(file, boot_id);
    return survey->free_place >= 0;
}

bool store_unheld(struct store *store, const struct lock_file *file, int own, struct bound bound)
{
    const char *boot_id = store_boot_id(store);
    struct lock_place place = lock_file_places(bound, own);
    int64_t newer;
    bool held = read_pause(file, boot_id, &newer).left.ns > 0;
    while (!held && lock_file_next_place(file, &place))
        held = place_is_held(&place, boot_id);
    return !held;
}

bool store_held_elsewhere(struct store *store, const char *key, struct bound bound,
                          struct errmsg *why)
{
    struct lock_dir other = LOCK_DIR_BEFORE_ALL;
    struct lock_file file = {.fd = -1};
    bool held = false;

    while (!held && store_next_other(store, &other)) {
        name_file(store, &other, &file, key);
        held = open_file(&file, LOCK_FILE_TO_LOOK, bound, NULL) == LOCK_OK &&
               !store_unheld(store, &file, -1, bound);
        lock_file_close(&file);
    }
    if (held)
        errmsg_set(
            why,
            "the lock is held in %.300s, which was the default lock directory until /run/lock "
            "or /run/dlock was mounted or changed; use the same --lock-dir everywhere",
            other.path);
    return held;
}

bool store_remove(struct lock_file *file)
{
    enum lock_result standing = lock_file_verify(file, NULL);
    if (standing != LOCK_OK)
        return standing == LOCK_GONE;
    return unlink(file->path) == 0 || errno == ENOENT;
}

/* Tries flock(2), because flock(1) may have locked the file. Verifies the file first, which also
 * updates file->size, because other processes may have written records beyond the size that we
 * knew. */
void store_tidy(struct store *store, struct lock_file *file, struct bound bound)
{
    if (lock_file_verify(file, NULL) == LOCK_OK && queue_is_empty(file) &&
        store_unheld(store, file, -1, bound) && lock_file_flock(file, MODE_EXCLUSIVE)) {
        store_lose_runs(store, file, false, bound);
        (void)store_remove(file);
    }
}

/* --- runs ---------------------------------------------------------------------- */

static const struct run_end lost = {RUN_LOST, 0, 0};

static void read_slots(const struct run_slot *slot, const struct history_slot *history,
                       uint64_t hash, struct run_memory *runs)
{
    if (run_slot_read(slot, hash, runs, NULL))
        history_slot_read(history, hash, runs->history);
}

void store_read_runs(struct store *store, const char *key, const struct lock_file *file,
                     struct bound bound, struct run_memory *runs)
{
    struct lock_place place = lock_file_places(bound, -1);
    const struct run_slot *slot =
        memory_slot(&store->memory, store_entry(store, key, false), false);

    read_slots(slot, memory_history(&store->memory, slot, false), text_hash(key), runs);
    while (file != NULL && lock_file_next_place(file, &place))
        if (place_lost_run(&place, store_boot_id(store)))
            runs_take_in(runs, &place.record, &lost);
}

void store_add_run(struct store *store, const struct record *record, const struct run_end *end)
{
    struct run_memory runs;
    uint64_t hash = text_hash(record->key);
    bool wanted = record->remember.ns > 0;
    if (end->how == RUN_NONE)
        return;

    struct run_slot *slot =
        memory_slot(&store->memory, store_entry(store, record->key, true), wanted);
    if (slot == NULL) {
        store->unrecorded |= wanted;
        return;
    }
    struct history_slot *history = memory_history(&store->memory, slot, wanted);
    read_slots(slot, history, hash, &runs);
    runs_take_in(&runs, record, end);
    int64_t needed_until_ms = record->holder.since_wall_ms + record->once_per.ns / NS_PER_MS;
    if (run_is_success(end) && needed_until_ms > runs.needed_until_ms)
        runs.needed_until_ms = needed_until_ms;
    if (!wanted)
        runs.history[0] = '\0';
    run_slot_write(slot, hash, record->key, &runs, record->remember);
    history_slot_write(history, hash, runs.history);
}

void store_lose_runs(struct store *store, const struct lock_file *file, bool all,
                     struct bound bound)
{
    struct lock_place place = lock_file_places(bound, -1);
    while (lock_file_next_place(file, &place)) {
        struct record *record = &place.record;
        bool held = all && place.known && !record->holder.kept && record->remember.ns > 0;
        if (!held && !place_lost_run(&place, store_boot_id(store)))
            continue;
        store_add_run(store, record, &lost);
        record->remember = DURATION_ZERO; /* so that the run is not recorded again */
        (void)lock_file_write(file, place.number, record, NULL);
    }
}
