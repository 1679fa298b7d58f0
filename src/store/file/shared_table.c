/* Orders in which processes meet here:
 *
 *   Two takes get a fence -> each reads the last one, computes, and swaps only if the
 *     last one is still what it read; otherwise it reads again -> no two get the same,
 *     and the later swap gets the higher fence.
 *
 *   Two begin an entry -> the place in the table belongs to the process that swaps its
 *     key in -> the other one finds that key there, or goes on searching.
 *
 *   One replaces the entry that another has just found -> the other one's counts go to
 *     the wrong lock, or are lost, and waiters for that lock may lose their order once.
 *     That is so rare, and so small a harm, that no order is kept: an entry is replaced
 *     only if the table is full, and others were used later; a waiter uses it every second.
 *
 *   One looks for a key while another begins an entry -> a search ends at the first place
 *     that is free, and no place becomes free again -> it is found, or the search ends at
 *     its place, and the swap decides. An older dlock looks at the first 16
 *     places alone, and begins another entry for a key that is further off.
 *
 *   A file is not a valid table -> it is replaced by a new one -> processes that have the
 *     old one mapped still count there. The fence goes on from the clock.
 *
 *   Two write to the same page of the slots for runs first -> both allocate it, which
 *     changes nothing the second time. It is marked once it is there: a store into a hole
 *     of a full disk would be a SIGBUS.
 *
 *   Two take a lock away by force -> each writes its name and marks the leases -> what is
 *     said of both is the later name, or parts of both.
 *
 *   One cuts the file short, which only its own user can -> each process that has it
 *     mapped checks its size before each use of the map. Between that check and the use
 *     the process still dies of a SIGBUS: a window of microseconds, unless it waits for
 *     the section of a lock file in between. */
#include "store/file/shared_table.h"

#include "lock/format.h"
#include "util/fileutils.h"
#include "util/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ENTRIES = 1024,
    NEAR = 16,         /* most keys have one of so many places from the one that their hash names */
    RELEASED_KEPT = 6, /* releases that are remembered for each lock */
    OWNER_WORDS = 8,
    FORCER_WORDS = 10,
    TEXT_WORDS = FORCER_WORDS, /* the longer of them */
    RUN_PAGE = 4096,           /* the unit in which slots for runs are allocated */
    RUN_PAGES = ENTRIES * sizeof(struct run_slot) / RUN_PAGE,
};

/* Zero is "not yet" in all of it, so that a file of zeros is an empty table. */
struct shared_entry {
    _Atomic uint64_t key; /* the hash of the lock's key; 0: a free place */
    _Atomic int64_t used; /* wall clock, ms */
    _Atomic int64_t takes, conflicts, timeouts, losses, waited_ms, held_ms;
    _Atomic int64_t fence, released_wall_ms;
    _Atomic uint64_t turn; /* store/file/ticket_queue.c */
    _Atomic uint64_t releases;
    _Atomic uint64_t owner[OWNER_WORDS]; /* the last owner's token, if it is short enough */
    struct {
        _Atomic uint64_t token, take, forced; /* forced: 1: by --force-release */
    } released[RELEASED_KEPT];                /* a ring: `releases` counts on */
    _Atomic uint64_t forcer[FORCER_WORDS];    /* of the last --force-release, cut */
};

/* The file ends after the entries, or after one of the pages with slots for runs: a lock
 * has the slot with the number of its entry. */
struct table_map {
    _Atomic uint64_t magic; /* 0: just made */
    _Atomic int64_t fence;
    _Atomic uint64_t run_pages[RUN_PAGES / 64]; /* a bit for each page that is allocated */
    uint64_t reserved[30 - RUN_PAGES / 64];
    struct shared_entry entries[ENTRIES];
    _Alignas(RUN_PAGE) struct run_slot runs[ENTRIES];
};
#define TABLE_SIZE (offsetof(struct table_map, entries) + ENTRIES * sizeof(struct shared_entry))
_Static_assert(sizeof(struct shared_entry) == 384 && TABLE_SIZE == 256 + 384UL * ENTRIES &&
                   offsetof(struct table_map, runs) == 97UL * RUN_PAGE,
               "the format of the table must not change unseen");

/* "dltable" and, in the highest byte, the format in which the table was made
 * (lock/format.h). It has that as long as it is there, whatever uses it. */
static const uint64_t magic = UINT64_C(0x00656C6261746C64);
enum { FORMAT_SHIFT = 56 };

uint64_t text_hash(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash != 0 ? hash : 1;
}

/* --- the file ------------------------------------------------------------ */

/* A size that cannot be read says nothing: what is remembered must not be taken for
 * nothing. */
static bool is_cut(const struct shared_table *table, off_t size)
{
    struct stat status;
    return fstat(table->fd, &status) == 0 && status.st_size < size;
}

static bool is_whole(const struct shared_table *table)
{
    return table->map != NULL && !is_cut(table, TABLE_SIZE);
}

/* Sets errno. */
static bool make_whole(int fd, bool make)
{
    struct stat status;
    off_t size = TABLE_SIZE;
    if (fstat(fd, &status) != 0)
        return false;
    bool whole = status.st_size >= size && status.st_blocks * 512 >= size;
    /* Real blocks: a store into a hole of a full disk would be a SIGBUS. */
    int error = whole ? 0 : make ? posix_fallocate(fd, 0, size) : ENODATA;
    errno = error;
    return error == 0;
}

/* Sets errno. */
static struct table_map *map_file(int fd, bool make)
{
    if (!make_whole(fd, make))
        return NULL;
    void *map = mmap(NULL, sizeof(struct table_map), make ? PROT_READ | PROT_WRITE : PROT_READ,
                     MAP_SHARED, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

/* The format of the table, which a file that was just made becomes; 0: it is none. */
static int64_t format_of(struct table_map *map, bool make)
{
    uint64_t found = 0, ours = magic | (uint64_t)STORE_FORMAT << FORMAT_SHIFT;
    if (make && atomic_compare_exchange_strong(&map->magic, &found, ours))
        return STORE_FORMAT;
    found = atomic_load(&map->magic);
    uint64_t format = found >> FORMAT_SHIFT;
    return (found ^ format << FORMAT_SHIFT) == magic ? (int64_t)format : 0;
}

/* A table that was cut short under us becomes an empty table again, at the same address.
 * Sets errno. */
static enum lock_result restore(const struct shared_table *table)
{
    if (!make_whole(table->fd, true))
        return file_error_result(errno);
    (void)format_of(table->map, true);
    return LOCK_OK;
}

/* Sets errno. LOCK_GONE: there is none, or it is no table; LOCK_INVALID: table->newer. */
static enum lock_result try_open(struct shared_table *table, const struct lock_dir *dir, bool make,
                                 struct stat *status)
{
    int fd = lock_dir_open_own(dir, "table", make);
    if (fd < 0)
        return errno == ENOENT ? LOCK_GONE : file_error_result(errno);
    bool known = fstat(fd, status) == 0;
    table->map = known ? map_file(fd, make) : NULL;
    table->fd = fd;
    if (table->map == NULL) {
        fd_close(&table->fd);
        return errno == ENODATA ? LOCK_GONE : file_error_result(errno);
    }
    int64_t format = format_of(table->map, make);
    if (format > 0 && format <= STORE_FORMAT)
        return LOCK_OK;
    shared_table_close(table);
    table->newer = format;
    if (format > 0)
        return LOCK_INVALID;
    errno = EINVAL;
    return LOCK_GONE;
}

static void remove_other(const struct lock_dir *dir, const struct stat *bad)
{
    char name[LOCK_DIR_OWN_SIZE];
    struct stat there;
    lock_dir_own_name(name, "table");
    if (fstatat(dir->fd, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_ino == bad->st_ino)
        (void)unlinkat(dir->fd, name, 0);
}

enum lock_result shared_table_open(struct shared_table *table, const struct lock_dir *dir,
                                   bool make, struct errmsg *why)
{
    struct stat status = {0};
    enum lock_result result;
    if ((table->writable || !make) && is_whole(table))
        return LOCK_OK;
    if (table->map != NULL && table->writable) {
        result = restore(table);
    } else {
        shared_table_close(table);
        table->writable = make;
        table->newer = 0;
        result = try_open(table, dir, make, &status);
    }
    if (result == LOCK_GONE && make) {
        remove_other(dir, &status);
        result = try_open(table, dir, make, &status);
    }
    if (result == LOCK_OK)
        return LOCK_OK;
    if (result == LOCK_INVALID) {
        format_newer(why, table->newer);
        errmsg_prefix(why, dir->path);
        return result;
    }
    return errmsg_fail(why, result == LOCK_GONE && make ? LOCK_CANT_CREATE : result,
                       "cannot %s in %s: %s", make ? "keep the fence" : "read what is remembered",
                       dir->path, strerror(errno));
}

void shared_table_close(struct shared_table *table)
{
    if (table->map != NULL) {
        munmap(table->map, sizeof *table->map);
        close(table->fd);
    }
    table->map = NULL;
}

/* --- fence and entries --------------------------------------------------- */

enum lock_result shared_table_next_fence(const struct shared_table *table, int64_t *fence,
                                         struct errmsg *why)
{
    int64_t last = atomic_load(&table->map->fence), now = wall_now_us();
    do
        *fence = last < now ? now : last + (last < INT64_MAX);
    while (last < INT64_MAX && !atomic_compare_exchange_weak(&table->map->fence, &last, *fence));
    if (last < INT64_MAX)
        return LOCK_OK;
    return errmsg_fail(why, LOCK_CANT_CREATE,
                       "the fence in the lock directory has reached its maximum");
}

struct run_slot *shared_table_slot(const struct shared_table *table,
                                   const struct shared_entry *entry, bool make)
{
    if (entry == NULL || is_cut(table, TABLE_SIZE))
        return NULL;
    size_t number = (size_t)(entry - table->map->entries);
    size_t page = number * sizeof(struct run_slot) / RUN_PAGE;
    off_t start = (off_t)(offsetof(struct table_map, runs) + page * RUN_PAGE);
    _Atomic uint64_t *bits = &table->map->run_pages[page / 64];
    uint64_t bit = UINT64_C(1) << page % 64;
    bool there = (atomic_load(bits) & bit) != 0 && !is_cut(table, start + RUN_PAGE);
    if (!there && (!make || posix_fallocate(table->fd, start, RUN_PAGE) != 0))
        return NULL;
    if (!there)
        atomic_fetch_or(bits, bit);
    if (make) /* as in shared_table_find() */
        atomic_fetch_add(&table->map->runs[number].words[0], 0);
    return &table->map->runs[number];
}

/* In use: as by waiters every second. */
enum worth { NOTHING_KNOWN, RUN_KNOWN, NEEDED_OR_IN_USE };

static enum worth worth_of(const struct shared_table *table, const struct shared_entry *entry)
{
    enum { IN_USE_MS = 3000 };
    struct run_memory memory;
    int64_t now = wall_now_ms();
    bool known = run_slot_read(shared_table_slot(table, entry, false), atomic_load(&entry->key),
                               &memory, NULL);
    if (now - atomic_load(&entry->used) < IN_USE_MS || (known && memory.needed_until_ms > now))
        return NEEDED_OR_IN_USE;
    return known ? RUN_KNOWN : NOTHING_KNOWN;
}

/* The one to replace if the table is full: of those worth least, the one that was unused for
 * the longest time. NULL: all are needed. */
static struct shared_entry *least_needed(const struct shared_table *table)
{
    struct shared_entry *least = NULL;
    enum worth least_worth = NEEDED_OR_IN_USE;
    for (size_t i = 0; i < ENTRIES; i++) {
        struct shared_entry *entry = &table->map->entries[i];
        enum worth worth = worth_of(table, entry);
        if (worth < least_worth || (worth == least_worth && least != NULL &&
                                    atomic_load(&entry->used) < atomic_load(&least->used))) {
            least = entry;
            least_worth = worth;
        }
    }
    return least;
}

/* The place with this key, otherwise the place to use for it (NULL: none). An entry that will
 * be written is first touched by a write: a read would make the kernel map the 16 pages
 * around it, too. */
static struct shared_entry *shared_table_find(const struct shared_table *table, uint64_t key,
                                              bool make, bool *there)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        struct shared_entry *entry = &table->map->entries[(key + i) % ENTRIES];
        uint64_t found =
            make && i < NEAR ? atomic_fetch_add(&entry->key, 0) : atomic_load(&entry->key);
        *there = found == key;
        if (*there || found == 0)
            return entry;
    }
    return make ? least_needed(table) : NULL;
}

/* All but its key and its last use: it is words alone. */
static void clear(struct shared_entry *entry)
{
    _Atomic uint64_t *words = (_Atomic uint64_t *)(void *)entry;
    for (size_t i = offsetof(struct shared_entry, takes) / sizeof *words;
         i < sizeof *entry / sizeof *words; i++)
        atomic_store(&words[i], 0);
}

struct shared_entry *shared_table_entry(const struct shared_table *table, const char *key,
                                        bool make)
{
    uint64_t hash = text_hash(key);
    bool there = false;
    if (!is_whole(table))
        return NULL;
    for (int tries = 0; tries < NEAR; tries++) {
        struct shared_entry *entry = shared_table_find(table, hash, make, &there);
        if (there || !make || entry == NULL)
            return there ? entry : NULL;
        uint64_t old = atomic_load(&entry->key);
        if (old != hash && atomic_compare_exchange_strong(&entry->key, &old, hash)) {
            atomic_store(&entry->used, wall_now_ms());
            clear(entry);
            return entry;
        }
    }
    return NULL; /* others fill it as fast as we look */
}

bool shared_table_next_run(const struct shared_table *table, size_t *number,
                           char key[LOCK_KEY_SIZE])
{
    struct run_memory memory;
    while (is_whole(table) && *number < ENTRIES) {
        const struct shared_entry *entry = &table->map->entries[(*number)++];
        uint64_t hash = atomic_load(&entry->key);
        if (hash != 0 &&
            run_slot_read(shared_table_slot(table, entry, false), hash, &memory, key) &&
            *key != '\0')
            return true;
    }
    return false;
}

/* --- recording events of a lock ------------------------------------------ */

static void add_ms(_Atomic int64_t *sum, struct duration more)
{
    atomic_fetch_add(sum, more.ns / NS_PER_MS);
}

static void store_text(_Atomic uint64_t *to, size_t count, const char *text)
{
    uint64_t words[TEXT_WORDS] = {0};
    memcpy(words, text, strnlen(text, count * sizeof *words));
    for (size_t i = 0; i < count; i++)
        atomic_store(&to[i], words[i]);
}

/* The text ends in NUL. */
static void load_text(const _Atomic uint64_t *from, size_t count, uint64_t words[TEXT_WORDS + 1])
{
    memset(words, 0, (TEXT_WORDS + 1) * sizeof *words);
    for (size_t i = 0; i < count; i++)
        words[i] = atomic_load(&from[i]);
}

static void store_owner(struct shared_entry *entry, const char *token)
{
    store_text(entry->owner, OWNER_WORDS,
               strlen(token) < OWNER_WORDS * sizeof(uint64_t) ? token : "");
}

/* Until the token is there, nobody finds it. */
static void remember_end(struct shared_entry *entry, const char *token, const char *take_id,
                         bool forced)
{
    size_t place = atomic_fetch_add(&entry->releases, 1) % RELEASED_KEPT;
    atomic_store(&entry->released[place].token, 0);
    atomic_store(&entry->released[place].take, text_hash(take_id));
    atomic_store(&entry->released[place].forced, forced);
    atomic_store(&entry->released[place].token, text_hash(token));
    atomic_store(&entry->used, wall_now_ms());
}

static bool shared_table_has_ended(const struct shared_entry *entry, const char *token,
                                   const char *take_id, bool forced)
{
    uint64_t token_hash = text_hash(token), take_hash = text_hash(take_id);
    for (size_t i = 0; entry != NULL && i < RELEASED_KEPT; i++)
        if (atomic_load(&entry->released[i].token) == token_hash &&
            (atomic_load(&entry->released[i].forced) != 0) == forced &&
            (*take_id == '\0' || atomic_load(&entry->released[i].take) == take_hash))
            return true;
    return false;
}

/* A token that was used before is held anew. */
void shared_entry_taken(struct shared_entry *entry, const char *token, int64_t fence,
                        struct duration waited)
{
    if (entry == NULL)
        return;
    uint64_t hash = text_hash(token);
    atomic_store(&entry->used, wall_now_ms());
    atomic_fetch_add(&entry->takes, 1);
    add_ms(&entry->waited_ms, waited);
    for (int64_t last = atomic_load(&entry->fence); last < fence;)
        if (atomic_compare_exchange_weak(&entry->fence, &last, fence))
            break;
    for (size_t i = 0; i < RELEASED_KEPT; i++)
        if (atomic_load(&entry->released[i].token) == hash)
            atomic_store(&entry->released[i].token, 0);
}

void shared_entry_refused(struct shared_entry *entry, bool had_waited, struct duration waited)
{
    if (entry == NULL)
        return;
    atomic_store(&entry->used, wall_now_ms());
    atomic_fetch_add(had_waited ? &entry->timeouts : &entry->conflicts, 1);
    add_ms(&entry->waited_ms, waited);
}

void shared_entry_lost(struct shared_entry *entry)
{
    if (entry != NULL)
        atomic_fetch_add(&entry->losses, 1);
}

void shared_entry_released(struct shared_entry *entry, const char *token, const char *take_id,
                           struct duration held)
{
    if (entry == NULL)
        return;
    remember_end(entry, token, take_id, false);
    atomic_store(&entry->released_wall_ms, wall_now_ms());
    add_ms(&entry->held_ms, held);
    store_owner(entry, token);
}

void shared_entry_mark_forced(struct shared_entry *entry, const char *token, const char *take_id,
                              const char *by)
{
    if (entry == NULL)
        return;
    store_text(entry->forcer, FORCER_WORDS, by);
    remember_end(entry, token, take_id, true);
}

void shared_entry_forced(struct shared_entry *entry)
{
    if (entry != NULL)
        atomic_store(&entry->released_wall_ms, wall_now_ms());
}

bool shared_entry_was_released(const struct shared_entry *entry, const char *token,
                               const char *take_id)
{
    return shared_table_has_ended(entry, token, take_id, false);
}

bool shared_entry_was_forced(const struct shared_entry *entry, const char *token,
                             const char *take_id, char by[FORCER_SIZE])
{
    uint64_t forcer[TEXT_WORDS + 1];
    if (!shared_table_has_ended(entry, token, take_id, true))
        return false;
    load_text(entry->forcer, FORCER_WORDS, forcer);
    text_copy(by, FORCER_SIZE, (const char *)forcer);
    return true;
}

uint64_t shared_entry_turn(const struct shared_entry *entry)
{
    return entry != NULL ? atomic_load(&entry->turn) : 0;
}

bool shared_entry_set_turn(struct shared_entry *entry, uint64_t from, uint64_t to)
{
    if (entry == NULL || !atomic_compare_exchange_strong(&entry->turn, &from, to))
        return false;
    atomic_store(&entry->used, wall_now_ms());
    return true;
}

void shared_entry_read(const struct shared_entry *entry, struct lock_state *state)
{
    uint64_t owner[TEXT_WORDS + 1];
    if (entry == NULL)
        return;
    load_text(entry->owner, OWNER_WORDS, owner);
    text_copy(state->last_owner, sizeof state->last_owner, (const char *)owner);
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
