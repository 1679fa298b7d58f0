/* How processes share the table: every process of the user changes it, word by word, with atomic
 * operations. So there is no lock that a frozen process could keep. (Text records under a byte lock
 * would take only a third of the time. But a process that is frozen with that lock would keep
 * others from recording releases, unless each record were stored twice.) Except for the count of
 * skipped runs, a process changes a lock's slot only in the critical section of the lock's file.
 *
 *   Processes A and B each request a fence -> each reads the last fence, computes the next one, and
 *     swaps it in only if the last one is unchanged; otherwise it reads again -> no fence is given
 *     out twice, and the later swap gets the higher one.
 *
 *   A and B begin an entry in the same place of the table -> the process that swaps its key in gets
 *     the place -> the other process uses this entry if both have the same key; otherwise it
 *     continues to search.
 *
 *   A replaces an entry after B has found it, and before B uses it -> B's counts go to the wrong
 *     lock or are lost, and waiters for B's lock may lose their order once. Nothing prevents this,
 *     because it is rare and does little harm: an entry is replaced only if the table is full and
 *     other entries were used later, and a waiter uses its entry every second.
 *
 *   A looks for a key while B begins an entry -> A's search ends at the first free place, and no
 *     place becomes free again -> A either finds the key, or stops at B's place, where the swap of
 *     the keys decides, as above. An older dlock looks at the first 16 places only, and begins a
 *     second entry for a key that is further away.
 *
 *   The file is not a valid table -> dlock replaces it with a new one -> processes that have mapped
 *     the old file still count in that file. The next fence comes from the clock.
 *
 *   A and B are the first to write to one page of the run slots -> both allocate the page, which
 *     changes nothing the second time. The page is marked as allocated, and used, only afterwards,
 *     because a store into a hole on a full disk raises SIGBUS.
 *
 *   A and B take a lock away by force (--force-release) -> each writes its name, and marks the
 *     leases as taken away -> the recorded name is the later process's, or a mixture of both
 *     names.
 *
 *   A reads a slot while B writes it, or the writer is killed -> the checksum does not match -> a
 *     reader tries again, and then finds nothing.
 *
 *   A's lock file is removed, B acquires the lock with a new file, and both runs end -> A closes the
 *     old file, and enters the section of the new one; if B has already removed the new one, A
 *     creates another -> A sees either no run of B, and B adds its run after A's; or B's run, and A
 *     does not record its own. If A cannot enter the section because B is frozen in it, A adds its
 *     run without it. If both then write at once, the checksum does not match.
 *
 *   A counts a skipped run while the holder records a run -> the slot stays valid, because the
 *     count is not part of the checksum. Only a success resets the count. A slot may contain such a
 *     count and nothing else.
 *
 *   A cuts the file short, which only a process of the same user can do -> each process that has
 *     mapped the file checks its size, in memory_open(), before each use of the map. If the file is
 *     cut in the microseconds between that check and the use, the process dies of SIGBUS.
 *
 *   The writer is killed after it has written the slot, but before it has written the history ->
 *     the slot has the run, and the history lacks it. In the other order, the history would contain
 *     the run twice.
 *
 * The file ends after the entries, or after one of the pages with run slots or histories. An entry,
 * its run slot and its history have the same number. Later formats can store more (such as a long
 * key) after all histories, in pages that are allocated like those of the slots. */
#include "store/file/file_int.h"

#include "lock/fields.h"
#include "lock/format.h"
#include "lock/history.h"
#include "util/fileutils.h"
#include "util/text.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    NEAR = 16,       /* most keys are at most this far from the place that their hash selects */
    RUN_PAGE = 4096, /* the unit in which slots for runs are allocated */
    RUN_PAGES = MEMORY_ENTRIES * sizeof(struct run_slot) / RUN_PAGE,
    PAGE_WORDS = (RUN_PAGES + MEMORY_ENTRIES) / 64,
};

struct memory_map {
    _Atomic uint64_t magic; /* 0: the file is new, and not yet a table */
    _Atomic int64_t fence;
    _Atomic uint64_t allocated[PAGE_WORDS]; /* a bit per page: first of runs, then of histories */
    uint64_t reserved[30 - PAGE_WORDS];
    struct memory_entry entries[MEMORY_ENTRIES];
    _Alignas(RUN_PAGE) struct run_slot runs[MEMORY_ENTRIES];
    struct history_slot histories[MEMORY_ENTRIES];
};
#define TABLE_SIZE (offsetof(struct memory_map, entries) + sizeof((struct memory_map *)0)->entries)
_Static_assert(sizeof(struct memory_entry) == 384 && sizeof(struct run_slot) == 1024 &&
                   TABLE_SIZE == 256 + 384UL * MEMORY_ENTRIES &&
                   offsetof(struct memory_map, runs) == 97UL * RUN_PAGE &&
                   sizeof(struct history_slot) == RUN_PAGE &&
                   sizeof((struct history_slot *)0)->text >= HISTORY_SIZE,
               "the format of the table must not change unseen");

/* "dltable" and, in the highest byte, the format in which the table was created (lock/format.h).
 * The table keeps that format, whatever version of dlock uses it. */
static const uint64_t magic = UINT64_C(0x00656C6261746C64);
enum { FORMAT_SHIFT = 56 };

#define FNV_START UINT64_C(14695981039346656037)
#define FNV_PRIME UINT64_C(1099511628211)

uint64_t text_hash(const char *text)
{
    uint64_t hash = FNV_START;
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * FNV_PRIME;
    return hash != 0 ? hash : 1;
}

/* --- the file ------------------------------------------------------------ */

/* The size of the file. If the size cannot be read, returns one that passes every check, because
 * dlock would regard the contents of a table that seems too short as lost. */
static off_t size_now(const struct memory *memory)
{
    struct stat status;
    return fstat(memory->fd, &status) == 0 ? status.st_size : INT64_MAX;
}

static bool is_whole(struct memory *memory)
{
    if (memory->map != NULL)
        memory->size = size_now(memory);
    return memory->map != NULL && memory->size >= (off_t)TABLE_SIZE;
}

/* Maps the file into memory; with `make`, enlarges the file first if necessary. Returns NULL with
 * errno on failure: ENODATA if the file is too short. */
static struct memory_map *map_file(int fd, bool make)
{
    struct stat status;
    off_t size = TABLE_SIZE;
    if (fstat(fd, &status) != 0)
        return NULL;

    /* The file must have real blocks, because a store into a hole on a full disk raises SIGBUS. */
    bool whole = status.st_size >= size && status.st_blocks * 512 >= size;
    errno = whole ? 0 : make ? posix_fallocate(fd, 0, size) : ENODATA;
    if (errno != 0)
        return NULL;
    void *map = mmap(NULL, sizeof(struct memory_map), make ? PROT_READ | PROT_WRITE : PROT_READ,
                     MAP_SHARED, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

/* Returns the format of the table, or 0 if the file is not a table. With `make`, a file that was
 * just created becomes a table. */
static int64_t format_of(struct memory_map *map, bool make)
{
    uint64_t found = 0;
    if (make && atomic_compare_exchange_strong(&map->magic, &found,
                                               magic | (uint64_t)STORE_FORMAT << FORMAT_SHIFT))
        return STORE_FORMAT;

    found = atomic_load(&map->magic);
    uint64_t format = found >> FORMAT_SHIFT;
    return (found ^ format << FORMAT_SHIFT) == magic ? (int64_t)format : 0;
}

static void remove_bad(const struct lock_dir *dir, int fd)
{
    char name[LOCK_DIR_OWN_SIZE];
    struct stat bad;
    struct stat there;

    lock_dir_own_name(name, "table");
    if (fstat(fd, &bad) == 0 && fstatat(dir->fd, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
        there.st_ino == bad.st_ino)
        (void)unlinkat(dir->fd, name, 0);
}

/* Tries to open the table. Sets errno on failure. LOCK_GONE: there is no table, or the file is not
 * a table (with `make`, the file was removed). LOCK_INVALID: the format is newer than ours, and
 * memory->newer is set. */
static enum lock_result try_open(struct memory *memory, const struct lock_dir *dir, bool make)
{
    int fd = lock_dir_open_own(dir, "table", make);
    if (fd < 0)
        return errno == ENOENT ? LOCK_GONE : file_error_result(errno);

    memory->map = map_file(fd, make);
    memory->fd = fd;
    memory->size = TABLE_SIZE; /* the file has at least this size */
    if (memory->map == NULL) {
        fd_close(&memory->fd);
        return errno == ENODATA ? LOCK_GONE : file_error_result(errno);
    }
    int64_t format = format_of(memory->map, make);
    if (format > 0 && format <= STORE_FORMAT)
        return LOCK_OK;

    memory->newer = format;
    if (make && format == 0)
        remove_bad(dir, fd);
    memory_close(memory);
    errno = EINVAL;
    return format > 0 ? LOCK_INVALID : LOCK_GONE;
}

enum lock_result memory_open(struct memory *memory, const struct lock_dir *dir, bool make,
                             struct errmsg *why)
{
    if ((memory->writable || !make) && is_whole(memory))
        return LOCK_OK;

    memory_close(memory);
    memory->writable = make;
    memory->newer = 0;
    enum lock_result result = try_open(memory, dir, make);
    if (result == LOCK_GONE && make)
        result = try_open(memory, dir, make);
    if (result == LOCK_OK)
        return LOCK_OK;

    if (result == LOCK_INVALID) {
        format_newer(why, memory->newer);
        errmsg_prefix(why, dir->path);
        return result;
    }
    return errmsg_fail(why, result == LOCK_GONE && make ? LOCK_CANT_CREATE : result,
                       "cannot %s in %s: %s", make ? "store the fence" : "read the recorded runs",
                       dir->path, strerror(errno));
}

void memory_close(struct memory *memory)
{
    if (memory->map != NULL) {
        munmap(memory->map, sizeof *memory->map);
        close(memory->fd);
    }
    memory->map = NULL;
}

/* --- fence and entries --------------------------------------------------- */

enum lock_result memory_next_fence(const struct memory *memory, int64_t *fence, struct errmsg *why)
{
    int64_t last = atomic_load(&memory->map->fence);
    int64_t now = wall_now_us();

    do
        *fence = last < now ? now : last + (last < INT64_MAX);
    while (last < INT64_MAX && !atomic_compare_exchange_weak(&memory->map->fence, &last, *fence));
    if (last < INT64_MAX)
        return LOCK_OK;
    return errmsg_fail(why, LOCK_CANT_CREATE,
                       "the fencing token in the lock directory has reached its maximum");
}

/* True if the page with this number, counted from the end of the entries, is allocated. With
 * `make`, allocates the page if needed. */
static bool has_page(const struct memory *memory, size_t page, bool make)
{
    off_t start = (off_t)(offsetof(struct memory_map, runs) + page * RUN_PAGE);
    _Atomic uint64_t *bits = &memory->map->allocated[page / 64];
    uint64_t bit = UINT64_C(1) << page % 64;

    /* Another process may have made the file longer meanwhile. */
    if ((atomic_load(bits) & bit) != 0 &&
        (memory->size >= start + RUN_PAGE || size_now(memory) >= start + RUN_PAGE))
        return true;
    if (!make || posix_fallocate(memory->fd, start, RUN_PAGE) != 0)
        return false;
    atomic_fetch_or(bits, bit);
    return true;
}

struct run_slot *memory_slot(const struct memory *memory, const struct memory_entry *entry,
                             bool make)
{
    if (entry == &memory->none)
        return NULL;

    size_t number = (size_t)(entry - memory->map->entries);
    struct run_slot *slot = &memory->map->runs[number];
    if (!has_page(memory, number * sizeof *slot / RUN_PAGE, make))
        return NULL;
    if (make) /* the first access must be a write: see find() */
        atomic_fetch_add(&slot->skipped, 0);
    return slot;
}

struct history_slot *memory_history(const struct memory *memory, const struct run_slot *slot,
                                    bool make)
{
    if (slot == NULL)
        return NULL;

    size_t number = (size_t)(slot - memory->map->runs);
    struct history_slot *history = &memory->map->histories[number];
    if (!has_page(memory, RUN_PAGES + number, make))
        return NULL;
    if (make)
        atomic_fetch_add(&history->sum, 0);
    return history;
}

/* How much an entry is worth. "In use" means used in the last 3 seconds; waiters use their entries
 * every second. */
enum worth { NOTHING_KNOWN, RUN_KNOWN, NEEDED_OR_IN_USE };

static enum worth worth_of(const struct memory *memory, const struct memory_entry *entry)
{
    enum { IN_USE_MS = 3000 };
    struct run_memory runs;
    int64_t now = wall_now_ms();
    bool known =
        run_slot_read(memory_slot(memory, entry, false), atomic_load(&entry->key), &runs, NULL);
    if (now - atomic_load(&entry->used) < IN_USE_MS || (known && runs.needed_until_ms > now))
        return NEEDED_OR_IN_USE;
    return known ? RUN_KNOWN : NOTHING_KNOWN;
}

/* The entry to replace if the table is full: the one that was unused for the longest time among the
 * entries that are worth least. NULL if all entries are needed. */
static struct memory_entry *least_needed(const struct memory *memory)
{
    struct memory_entry *least = NULL;
    enum worth least_worth = NEEDED_OR_IN_USE;

    for (size_t i = 0; i < MEMORY_ENTRIES; i++) {
        struct memory_entry *entry = &memory->map->entries[i];
        enum worth worth = worth_of(memory, entry);
        if (worth < least_worth || (worth == least_worth && least != NULL &&
                                    atomic_load(&entry->used) < atomic_load(&least->used))) {
            least = entry;
            least_worth = worth;
        }
    }
    return least;
}

/* Finds the entry of this key or, if there is none, the entry to use for the key (NULL: no entry
 * can be used). The first access to an entry that will be written is a write, because a read would
 * make the kernel map the 16 pages around the entry, too. */
static struct memory_entry *find(const struct memory *memory, uint64_t key, bool make, bool *there)
{
    for (size_t i = 0; i < MEMORY_ENTRIES; i++) {
        struct memory_entry *entry = &memory->map->entries[(key + i) % MEMORY_ENTRIES];
        uint64_t found =
            make && i < NEAR ? atomic_fetch_add(&entry->key, 0) : atomic_load(&entry->key);
        *there = found == key;
        if (*there || found == 0)
            return entry;
    }
    return make ? least_needed(memory) : NULL;
}

struct memory_entry *memory_entry(struct memory *memory, const char *key, bool make)
{
    uint64_t hash = text_hash(key);

    for (int tries = 0; tries < NEAR && memory->map != NULL; tries++) {
        bool there = false;
        struct memory_entry *entry = find(memory, hash, make, &there);
        if (there)
            return entry;
        if (!make || entry == NULL)
            break;

        uint64_t old = atomic_load(&entry->key);
        if (old != hash && atomic_compare_exchange_strong(&entry->key, &old, hash)) {
            atomic_store(&entry->used, wall_now_ms());
            memset((char *)entry + offsetof(struct memory_entry, takes), 0,
                   sizeof *entry - offsetof(struct memory_entry, takes));
            return entry;
        }
        /* Another process has meanwhile created an entry for this key, or has used this entry for a
         * different key. So the search is repeated. */
    }
    memset(&memory->none, 0, sizeof memory->none);
    return &memory->none;
}

bool memory_next_run(struct memory *memory, size_t *number, char key[LOCK_KEY_SIZE])
{
    struct run_memory runs;
    while (is_whole(memory) && *number < MEMORY_ENTRIES) {
        const struct memory_entry *entry = &memory->map->entries[(*number)++];
        uint64_t hash = atomic_load(&entry->key);
        if (hash != 0 && run_slot_read(memory_slot(memory, entry, false), hash, &runs, key) &&
            *key != '\0')
            return true;
    }
    return false;
}

/* --- the events of a lock ------------------------------------------------ */

static void add_ms(_Atomic int64_t *sum, struct duration more)
{
    atomic_fetch_add(sum, more.ns / NS_PER_MS);
}

/* The token is stored last, so that no process finds a release that is only half written. */
static void remember_end(struct memory_entry *entry, const char *token, const char *take_id,
                         bool forced)
{
    size_t place = atomic_fetch_add(&entry->releases, 1) % RELEASES_KEPT;
    atomic_store(&entry->released[place].token, 0);
    atomic_store(&entry->released[place].take, text_hash(take_id));
    atomic_store(&entry->released[place].forced, forced);
    atomic_store(&entry->released[place].token, text_hash(token));
    atomic_store(&entry->used, wall_now_ms());
}

/* If this token released the lock before, forgets that release, because the token holds the lock
 * again. */
void entry_taken(struct memory_entry *entry, const char *token, int64_t fence,
                 struct duration waited)
{
    uint64_t hash = text_hash(token);

    atomic_store(&entry->used, wall_now_ms());
    atomic_fetch_add(&entry->takes, 1);
    add_ms(&entry->waited_ms, waited);
    for (int64_t last = atomic_load(&entry->fence); last < fence;)
        if (atomic_compare_exchange_weak(&entry->fence, &last, fence))
            break;
    for (size_t i = 0; i < RELEASES_KEPT; i++)
        if (atomic_load(&entry->released[i].token) == hash)
            atomic_store(&entry->released[i].token, 0);
}

void entry_refused(struct memory_entry *entry, bool had_waited, struct duration waited)
{
    atomic_store(&entry->used, wall_now_ms());
    atomic_fetch_add(had_waited ? &entry->timeouts : &entry->conflicts, 1);
    add_ms(&entry->waited_ms, waited);
}

void entry_released(struct memory_entry *entry, const char *token, const char *take_id,
                    struct duration held)
{
    remember_end(entry, token, take_id, false);
    atomic_store(&entry->released_wall_ms, wall_now_ms());
    add_ms(&entry->held_ms, held);
    text_copy(entry->owner, sizeof entry->owner, strlen(token) < sizeof entry->owner ? token : "");
}

void entry_mark_forced(struct memory_entry *entry, const char *token, const char *take_id,
                       const char *by)
{
    text_copy(entry->forcer, sizeof entry->forcer, by);
    remember_end(entry, token, take_id, true);
}

bool entry_has_ended(const struct memory_entry *entry, const char *token, const char *take_id,
                     char by[FORCER_SIZE])
{
    uint64_t token_hash = text_hash(token);
    uint64_t take_hash = text_hash(take_id);
    bool ended = false;

    for (size_t i = 0; !ended && i < RELEASES_KEPT; i++)
        ended = atomic_load(&entry->released[i].token) == token_hash &&
                (atomic_load(&entry->released[i].forced) != 0) == (by != NULL) &&
                (*take_id == '\0' || atomic_load(&entry->released[i].take) == take_hash);
    if (ended && by != NULL)
        snprintf(by, FORCER_SIZE, "%.*s", (int)sizeof entry->forcer, entry->forcer);
    return ended;
}

enum lock_result entry_outcome(const struct memory_entry *entry, const struct lease *lease,
                               bool others, struct errmsg *why)
{
    char by[FORCER_SIZE];
    if (entry_has_ended(entry, lease->token, lease->take_id, NULL))
        return errmsg_fail(why, LOCK_RELEASED, "already released");
    if (entry_has_ended(entry, lease->token, lease->take_id, by))
        lock_forced(why, by);
    else
        errmsg_set(why, others ? "the lock is held under another owner token" : "the lock is free");
    return others ? LOCK_FOREIGN : LOCK_GONE;
}

bool entry_set_turn(struct memory_entry *entry, uint64_t from, uint64_t to)
{
    if (!atomic_compare_exchange_strong(&entry->turn, &from, to))
        return false;
    atomic_store(&entry->used, wall_now_ms());
    return true;
}

void entry_read(const struct memory_entry *entry, struct lock_state *state)
{
    snprintf(state->last_owner, sizeof state->last_owner, "%.*s", (int)sizeof entry->owner,
             entry->owner);
    state->last_fence = atomic_load(&entry->fence);
    state->released_wall_ms = clamped(atomic_load(&entry->released_wall_ms));
    state->counts = (struct lock_counts){
        .takes = clamped(atomic_load(&entry->takes)),
        .conflicts = clamped(atomic_load(&entry->conflicts)),
        .timeouts = clamped(atomic_load(&entry->timeouts)),
        .losses = clamped(atomic_load(&entry->losses)),
        .waited_ms = clamped(atomic_load(&entry->waited_ms)),
        .held_ms = clamped(atomic_load(&entry->held_ms)),
    };
}

/* --- the runs of a lock --------------------------------------------------- */

/* The texts of a run are cut to these sizes, so that a slot has room for two runs of MOST bytes
 * each and, in most cases, the key. */
enum { HOST_SIZE = 65, USER_SIZE = 33, COMMAND_SIZE = 97 };

/* Another process may be writing the data while it is copied. A checksum shows whether the copy is
 * torn. If so, the copy is repeated, up to this many tries. */
enum { TRIES = 3 };

static uint64_t sum_of(uint64_t start, const char *from, const char *end)
{
    uint64_t sum = start;
    uint64_t word;
    for (; from < end; from += sizeof word) {
        memcpy(&word, from, sizeof word);
        sum = (sum ^ word) * FNV_PRIME;
    }
    return sum != 0 ? sum : 1;
}

static uint64_t sum_of_slot(const struct run_slot *slot)
{
    return sum_of(FNV_START, (const char *)&slot->hash, (const char *)(slot + 1));
}

/* Copies a slot. False: the copy is torn, or the slot was never used. */
static bool load(const struct run_slot *slot, struct run_slot *copy)
{
    for (int tries = 0; tries < TRIES; tries++) {
        if (tries > 0)
            (void)poll(NULL, 0, 1);
        memcpy(copy, (const void *)slot, sizeof *copy);
        if (copy->sum == sum_of_slot(copy))
            return true;
        if (copy->sum == 0 && copy->hash == 0)
            break; /* the slot was never used */
    }
    return false;
}

bool run_slot_read(const struct run_slot *slot, uint64_t hash, struct run_memory *runs,
                   char key[LOCK_KEY_SIZE])
{
    enum { KEY, LAST, SUCCESS, FENCE, NEEDED, TEXTS };
    const char *text[TEXTS];
    struct run_slot copy;

    *runs = (struct run_memory){0};
    if (slot == NULL)
        return false;
    bool whole = load(slot, &copy);
    if (copy.hash == hash || copy.hash == 0)
        runs->skipped = clamped((int64_t)copy.skipped);
    if (!whole || copy.hash != hash || copy.kept_until < wall_now_ms())
        return false;

    copy.text[sizeof copy.text - 1] = '\0';
    const char *at = copy.text;
    const char *end = copy.text + sizeof copy.text - 1;
    for (int i = 0; i < TEXTS; i++) {
        text[i] = at;
        at += at < end ? strlen(at) + (at + strlen(at) < end) : 0;
    }
    if (!fields_read_row(&run_fields, &runs->last, text[LAST]))
        return false;
    if (fields_read_row(&run_fields, &runs->success, text[SUCCESS])) {
        (void)number_parse(text[FENCE], 0, INT64_MAX, &runs->success.fence);
        (void)number_parse(text[NEEDED], 0, INT64_MAX, &runs->needed_until_ms);
    }
    runs->failures = clamped(copy.failures);
    runs->runs = clamped(copy.runs);
    if (key != NULL)
        text_copy(key, LOCK_KEY_SIZE, text[KEY]);
    return true;
}

/* Writes the row of a run, cut to MOST bytes; "" if there is no run. */
static void write_run(const struct run_record *run, char text[RUN_TEXT_SIZE])
{
    enum { MOST = 440 };
    struct run_record cut = *run;

    *text = '\0';
    if (run->end.how == RUN_NONE)
        return;
    text_copy(cut.host, HOST_SIZE, run->host);
    text_copy(cut.user, USER_SIZE, run->user);
    text_copy(cut.command, COMMAND_SIZE, run->command);
    if (fields_write_row(&run_fields, &cut, text, RUN_TEXT_SIZE) <= MOST)
        return;
    cut.command[0] = '\0'; /* control characters make the encoded command too long */
    (void)fields_write_row(&run_fields, &cut, text, RUN_TEXT_SIZE);
}

void run_slot_write(struct run_slot *slot, uint64_t hash, const char *key,
                    const struct run_memory *runs, struct duration remember)
{
    char last[RUN_TEXT_SIZE];
    char success[RUN_TEXT_SIZE];
    struct run_slot next = {.hash = hash,
                            .kept_until = wall_now_ms() + remember.ns / NS_PER_MS,
                            .failures = runs->failures,
                            .runs = runs->runs};
    if (slot == NULL)
        return;

    write_run(&runs->last, last);
    write_run(&runs->success, success);
    /* If the text does not fit, it is written again without the key. */
    for (const char *name = key;; name = "") {
        int length =
            snprintf(next.text, sizeof next.text, "%s%c%s%c%s%c%" PRId64 "%c%" PRId64, name, '\0',
                     last, '\0', success, '\0', runs->success.fence, '\0', runs->needed_until_ms);
        if (length < (int)sizeof next.text || *name == '\0')
            break;
        memset(next.text, 0, sizeof next.text);
    }
    next.sum = sum_of_slot(&next);
    if (remember.ns <= 0)
        next = (struct run_slot){0};

    if (runs->skipped == 0)
        atomic_store(&slot->skipped, 0);
    memcpy(&slot->hash, &next.hash, sizeof *slot - offsetof(struct run_slot, hash));
    atomic_thread_fence(memory_order_seq_cst);
    slot->sum = next.sum;
}

void history_slot_read(const struct history_slot *slot, uint64_t hash, char text[HISTORY_SIZE])
{
    for (int tries = 0; slot != NULL && atomic_load(&slot->sum) != 0 && tries < TRIES; tries++) {
        if (tries > 0)
            (void)poll(NULL, 0, 1);
        memcpy(text, slot->text, HISTORY_SIZE);
        if (atomic_load(&slot->sum) == sum_of(hash, text, text + HISTORY_SIZE)) {
            text[HISTORY_SIZE - 1] = '\0';
            return;
        }
    }
    *text = '\0';
}

void history_slot_write(struct history_slot *slot, uint64_t hash, const char text[HISTORY_SIZE])
{
    if (slot == NULL)
        return;
    memcpy(slot->text, text, HISTORY_SIZE);
    atomic_store(&slot->sum, *text != '\0' ? sum_of(hash, text, text + HISTORY_SIZE) : 0);
}

void run_slot_skipped(struct run_slot *slot, uint64_t hash)
{
    if (slot != NULL && (slot->hash == hash || slot->hash == 0))
        atomic_fetch_add(&slot->skipped, 1);
}

void runs_take_in(struct run_memory *runs, const struct record *record, const struct run_end *end)
{
    struct run_record run = {.began_ms = record->holder.since_wall_ms,
                             .end = *end,
                             .fence = record->fence,
                             .pid = record->holder.pid};
    if (runs->last.began_ms == run.began_ms && runs->last.pid == run.pid)
        return;

    if (end->ended_ms == 0 && end->how != RUN_LOST)
        run.end.ended_ms = wall_now_ms();
    text_copy(run.host, sizeof run.host, record->holder.host);
    text_copy(run.user, sizeof run.user, record->holder.user);
    text_copy(run.command, sizeof run.command, record->holder.command);
    run_memory_add(runs, &run);
    history_add(runs->history, &run, record->ttl.ns / NS_PER_MS);
}
