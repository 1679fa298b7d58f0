/* Lock files: the interface between the files of this folder. From the bottom to the top:
 *
 *   record.c       the text of a record
 *   file.c         one lock file: the kernel's locks on it, its places and their records
 *   rules.c        pure functions: whether a record counts, admission to a lock, turns of waiters
 *   memory.c       the counts, fences and runs of locks, which outlive the lock files
 *   store.c        a lock directory: its lock files, its table, and runs that ended unreleased
 *   queue.c        the waiters of a lock file
 *   lease.c, look.c, dir_backend.c   the operations on locks in a directory
 *   exact.c, proc_locks.c            --lock-file */
#ifndef DLOCK_STORE_FILE_FILE_INT_H
#define DLOCK_STORE_FILE_FILE_INT_H

#include "store/file/backend.h"
#include "store/file/proc_locks_int.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/* --- record.c ----------------------------------------------------------------- */

/* A record describes a lease or a pause. It is text in a lock file: lines of the form "field value"
 * between a line "dlock FORMAT" and a line "end". A record without "end" is truncated. */
#define LOCK_RECORD_SIZE 16384 /* room for a record */
#define LOCK_RECORD_MOST 14336 /* maximum length of a record; the map of places (store.c) follows */

/* The record of a pause is at this offset. The record of place 0 always ends before it. */
#define LOCK_PAUSE_OFFSET 10240

struct record {
    int64_t format; /* lock/format.h; if it is newer than ours, the other members are unknown */
    char key[LOCK_KEY_SIZE];
    char token[TOKEN_SIZE];
    enum lock_mode mode;
    int slots; /* number of slots in MODE_SLOTS, otherwise 0 */
    int slot;  /* -1: none */
    int64_t fence;
    struct duration ttl;      /* the TTL that the holder requested */
    struct deadline expires;  /* end of the lease, on the clock of the boot holder.boot_id */
    struct deadline hold;     /* until then, --hold-at-least keeps others out (same clock) */
    struct duration remember; /* how long to remember the run; 0: not at all, or already recorded */
    struct duration once_per; /* the period requested with --once-per: how long a success of this
                               * run must be remembered */
    struct holder holder;     /* if holder.kept is set, the lock was released; only `hold` counts */
};

/* Fills in the record of a lock that is being acquired. */
void record_fill(struct record *record, const struct lock_request *request,
                 const struct lease *lease);

/* Marks the record as released. Others are kept out until `hold`. */
void record_release(struct record *record, struct deadline hold);

/* Writes the record as text. Returns its length, or 0 if the text does not fit. */
size_t record_format(const struct record *record, char text[LOCK_RECORD_MOST]);

/* Reads a record from its text, and ignores whatever follows the record. False if the record is
 * incomplete, is not dlock's, or has a newer format (record_is_newer()). */
bool record_parse(struct record *record, const char *text);

/* True if the text starts like a record. */
bool record_begins(const char *text);

/* True if the record that was read has a newer format than ours. */
bool record_is_newer(const struct record *record);

/* True if the text contains the end of a record. */
bool record_is_whole(const char *text);

/* True if the record's deadlines may belong to this boot. A boot id that could not be read (""), or
 * that is a container's own (proc_boot_id()), may belong to any boot, so that a held lock never
 * counts as free. But a deadline that is further away than a lease can last belongs to another
 * boot. Without this rule, a record from an earlier boot could block its lock until this boot had
 * lasted as long as the earlier one. */
bool record_may_be_of(const struct record *record, const char *boot_id);

/* --- file.c: one lock file ------------------------------------------------------ */

/* A lock has places. An exclusive holder has all of them; any other holder has one. The holder of a
 * slot has the place with the slot's number. The record of a place is at place * LOCK_RECORD_SIZE;
 * an exclusive holder's record is at 0, the record of a pause at LOCK_PAUSE_OFFSET. The holders
 * also hold a flock(2) lock on the file, exclusive or shared, so that flock(1) and lslocks(8) see
 * the lock.
 *
 * The places are bytes beyond the end of the file. Their locks are open file description locks
 * (fcntl(2)): like flock(2) locks, they belong to the open file, survive a fork, and are freed by
 * the kernel. A process can inspect the locks without acquiring any, so it blocks no other. */
enum { LOCK_PLACES_MOST = 1 << 20 };

#define LOCK_FILE_PATH_SIZE (sizeof((struct lock_dir *)0)->path + LOCK_FILE_NAME_SIZE)

struct lock_file {
    char path[LOCK_FILE_PATH_SIZE];
    bool follow; /* symbolic links are allowed in the path */
    int fd;      /* -1: not open */
    off_t size;  /* size of the file when the path was last known to lead to it */
    dev_t device;
    ino_t inode; /* with `device`: identifies the open file; 0 if not known yet */
    char *text;  /* buffer of LOCK_RECORD_MOST bytes for the text of a record */
};

enum lock_file_use { LOCK_FILE_TO_LOOK, LOCK_FILE_TO_CHANGE, LOCK_FILE_TO_TAKE };

/* Opens the file; LOCK_FILE_TO_TAKE creates it if it is missing. LOCK_OK; LOCK_GONE: there is no
 * file; LOCK_REFUSED, LOCK_SYSTEM, LOCK_CANT_CREATE with *why set. */
enum lock_result lock_file_open(struct lock_file *file, enum lock_file_use use, struct errmsg *why);

/* Closes the file, which releases all our locks on it. */
void lock_file_close(struct lock_file *file);

/* LOCK_OK: the path still leads to the open file. LOCK_GONE: it does not. LOCK_UNAVAILABLE with
 * errno: it is unknown whether it does. */
enum lock_result lock_file_verify(struct lock_file *file, struct errmsg *why);

/* Enters the critical section of the file, which gives exclusive access for changes to records,
 * places or the path. LOCK_OK; LOCK_UNAVAILABLE with *why set if another process stays in the
 * critical section for a second; LOCK_CANCELLED; LOCK_CANT_CREATE if the file cannot be locked. */
enum lock_result lock_file_enter(const struct lock_file *file, struct bound bound,
                                 struct errmsg *why);
void lock_file_leave(const struct lock_file *file);

/* Locks the file with flock(2). False with errno; EWOULDBLOCK: another process's lock conflicts. */
bool lock_file_flock(const struct lock_file *file, enum lock_mode mode);

/* Locks the place, or all places for MODE_EXCLUSIVE. False if another process has locked one of
 * them. */
bool lock_file_lock_place(const struct lock_file *file, enum lock_mode mode, int place);

/* Unlocks everything, leaves the critical section, and wakes the first waiter, which is notified
 * when a process closes the file. The command's guard may keep our open file open, so this function
 * opens and closes the file once more. */
void lock_file_unlock(const struct lock_file *file);

/* The locks of waiters, which belong to queue.c, start at this byte. */
#define LOCK_FILE_QUEUE (INT64_C(1) << 61)

/* Locks these bytes (F_WRLCK), or unlocks them (F_UNLCK). False if another process has locked some
 * of them. */
bool lock_file_set(const struct lock_file *file, short type, int64_t start, int64_t length);

/* True if another process has a lock on these bytes that conflicts with `type`; *lock is then one
 * such lock. False with errno: 0 if there is none, otherwise the error that prevented the check. */
bool lock_file_find(const struct lock_file *file, short type, int64_t start, int64_t length,
                    struct flock *lock);

enum place_lock { PLACE_UNLOCKED, PLACE_LOCKED, PLACE_ALL_LOCKED };

struct lock_place {
    int number;
    int own;                /* our own place, which an iteration does not read; -1: none */
    struct bound bound;     /* limits an iteration over places */
    enum place_lock locked; /* whether the place is locked through an open file other than ours */
    bool known;             /* the place has a record, and the record could be read */
    bool over;              /* out of time: the remaining places were not examined */
    bool unreadable;        /* it is unknown whether the place has a record or is locked */
    struct record record;
};

/* The place number of the record of a pause. */
enum { LOCK_FILE_PAUSE = -1 };

/* Reads the place's record. False with errno: 0 if there is no record, EBADMSG if the record is
 * truncated or garbled after its first word, otherwise the error that prevented reading it. */
bool lock_file_read(const struct lock_file *file, int place, struct record *record);

/* Writes the place's record. LOCK_OK; LOCK_CANT_CREATE, LOCK_INVALID with *why set. */
enum lock_result lock_file_write(const struct lock_file *file, int place,
                                 const struct record *record, struct errmsg *why);

/* Iterates over the places that may have a holder; lock_file_places() returns the start. The place
 * `own` (-1: none) is not read; it counts as unlocked and without a record. When the time is over
 * (a few seconds, or the bound), the next place is the last, and `unreadable`. False at the end. */
struct lock_place lock_file_places(struct bound bound, int own);
bool lock_file_next_place(const struct lock_file *file, struct lock_place *place);

/* Reads the record of one place, and finds out whether the place is locked. */
void lock_file_read_place(const struct lock_file *file, struct lock_place *place);

/* Finds a place that a process other than this one has locked as a shared holder or as the holder
 * of a slot. False if there is no such place. */
bool lock_file_any_holder(const struct lock_file *file, struct lock_place *place);

/* The number of places that may have a record. */
int lock_file_place_count(const struct lock_file *file);

/* Who the events are for. A holder is notified when the file is written, a waiter when any process
 * closes the file; both are notified when the file is removed, moved or replaced, or its directory
 * is moved. */
enum lock_file_news_for { NEWS_FOR_HOLDER, NEWS_FOR_WAITER };

/* Returns an inotify(7) descriptor that becomes readable when an event for `use` occurs: news_fd,
 * or a new descriptor if news_fd is -1. Returns -1 on failure. */
int lock_file_news(int news_fd, const struct lock_file *file, enum lock_file_news_for use);

/* Closes the inotify descriptor and sets *news_fd to -1. Since Linux 6.9, the kernel closes it in
 * the background, because that may take 20 ms. */
void lock_file_news_close(int *news_fd);

/* The struct news for a process that watches the lock through this descriptor. */
struct news lock_file_news_of(int news_fd);

/* Reads all events. True if there were any. */
bool lock_file_drain_news(int news_fd);

/* --- rules.c: pure functions of what was read ------------------------------------ */

/* True if the place is held. The deadlines in its record count only if they belong to this boot. A
 * place whose record has a newer format counts as held. */
bool place_is_held(const struct lock_place *place, const char *boot_id);

/* True if the run of the place's holder must be recorded as lost: before the holder released the
 * lock, the holder died, or its lease, which belongs to no process, expired. */
bool place_lost_run(const struct lock_place *place, const char *boot_id);

/* The end of the lease or --hold-at-least that keeps this place held, as far as it is known. */
struct deadline place_end(const struct lock_place *place);

/* Describes the holder of a place that has a record. */
void place_holder(const struct lock_place *place, const char *boot_id, struct holder *holder);

/* A search for another process's lease, by its token and, if known, its take id. If several records
 * have the token, the search finds the record of a held place or, if there is none, the latest
 * record, which shows what became of the lease. */
struct lease_search {
    enum lock_result result; /* initially LOCK_GONE; then LOCK_OK, LOCK_RELEASED or LOCK_GONE */
    struct errmsg why;
    struct lock_place place; /* the lease's place, if `known` */
    bool known;              /* the file has a record of the lease */
    bool others;             /* other holders were found */
    bool unreadable;         /* some places could not be read */
    int64_t newer;           /* the format of a record that is newer than ours, or 0 */
};

/* Adds one more place to the search. */
void search_add(struct lease_search *search, const struct lock_place *place,
                const struct lease *lease, const char *boot_id);

/* The rules that decide whether a request may join the holders of a lock file:
 *
 *   An exclusive request waits for all holders; any request waits for an exclusive holder.
 *   Shared requests join shared holders only. Requests for a slot join holders of slots only, and
 *     only if both specify the same number of slots.
 *   The holders set the mode of the lock. While the first waiter wants a different mode, no further
 *     holder is admitted, so that the lock eventually becomes free.
 *   An owner token holds a lock at most once.
 *   No process joins holders whose records have another format (lock/format.h). */
enum { PLACES_MAPPED = 8 * (LOCK_RECORD_SIZE - LOCK_RECORD_MOST) };
struct place_map {
    unsigned char bits[PLACES_MAPPED / 8]; /* a bit for each of the first PLACES_MAPPED places */
};
void place_map_set(struct place_map *map, int place, bool taken);

struct survey {
    int held;                      /* number of holders, not counting our own place */
    int released;                  /* places still locked although another process released them */
    struct lock_place first, last; /* the holders whose leases end first and last */
    struct place_map taken;        /* the places that are locked or held */
    bool acquired;                 /* there is a record of a detached lease */
    bool lost;                     /* there are records of lost runs (place_lost_run()) */
    bool unreadable;               /* for some places it is unknown whether they are held */
    bool same_token;               /* one of the holders has the token that was asked about */
    struct pause pause;            /* pause.left is 0 if the lock is not paused */
    int64_t newer;                 /* the format of a record that is newer than ours, or 0 */
    int free_place;                /* the lowest place that is neither locked nor held; -1: none */
};

/* Adds one more place to the survey. Places must be added in the order of their numbers. */
void survey_add(struct survey *survey, const struct lock_place *place, const char *boot_id,
                const char *token);

/* True if the holders share the lock in a mode that differs from the requested mode. */
bool survey_conflicts(const struct survey *survey, enum lock_mode mode, int slots);

/* True if the lock has no pause, and has room for a holder in this mode, whatever its token. */
bool survey_has_room(const struct survey *survey, enum lock_mode mode, int slots);

/* True if the request may be granted; other waiters are not considered. */
bool survey_admits(const struct survey *survey, const struct lock_request *request);

/* Describes the holder to wait for, assuming that all holders stay until their leases end. */
void survey_holder(const struct survey *survey, const struct lock_request *request,
                   struct holder *holder);

/* The waiters for a lock form a queue in order of arrival. Each has a ticket, whose number
 * determines which bytes of the lock file the waiter locks. A new number is higher than all numbers
 * in the queue. The waiter with the lowest number is the head.
 *
 * The head's turn gives it two seconds to act. An integer in the table (`turn` in struct
 * memory_entry), called "the word", describes this turn; each process that sees a change updates
 * the word. A head that has lost its turn rejoins at the end of the queue when it runs again. */
struct ticket {
    int64_t number; /* 0: none */
    enum lock_mode mode;
    int slots;
};

/* Whose turn it is, according to `turn` in struct memory_entry ("the word"). */
struct turn {
    uint64_t word;  /* the word as it was read */
    int64_t number; /* ticket number of the first waiter, the head */
    bool lost;      /* the first waiter has lost its turn */
    bool room;      /* the lock has room for the first waiter; if not, that waiter cannot acquire
                     * the lock yet, but keeps others out during its turn */
    uint32_t ms;    /* when the turn began, in milliseconds; 0 if the turn is lost */
};
#define TURN_MS_MASK ((UINT32_C(1) << 31) - 1)
struct turn turn_read(uint64_t word);
uint64_t turn_word(int64_t number, bool room, uint32_t ms);

/* The lowest ticket number whose waiter has not lost its turn. */
int64_t turn_floor(const struct turn *known);

/* How much time the waiter at position `place` (0: the first) has, counted from the start of the
 * first waiter's turn. Then it loses its turn, unless it is a later waiter that has looked at the
 * queue during this time. To show that it has looked, a waiter locks a byte (queue.c). */
enum { TURNS = 2 };
struct duration turn_length(int place);

/* What a process writes into `turn` of struct memory_entry when it has found that the waiter `next`
 * comes before it. */
enum turn_step {
    TURN_LASTS,   /* nothing, because it is the turn of `next` */
    TURN_BEGINS,  /* the turn of `next` begins now */
    TURN_PASSES,  /* all waiters before `next` have lost their turn */
    TURN_IS_OVER, /* undecided: the turn of `next` is over too, so look at the waiter after it */
};
struct waiter_seen {
    int place; /* position of `next` in the queue; 0: it is the first waiter */
    const struct ticket *head, *next;
    bool room;             /* the lock has room for the first waiter */
    bool marked;           /* `next` has looked at the queue during this turn: alive */
    struct duration since; /* how long the turn has lasted */
};
enum turn_step turn_step(const struct turn *known, const struct waiter_seen *seen);

/* --- memory.c: the table beside the lock files ----------------------------------------- */

/* The table contains what dlock remembers about locks. It is one file for each directory and user.
 * Processes map it into memory and change it with atomic operations, so there is no critical
 * section that a frozen or killed process could leave locked.
 *
 * The table has room for 1,024 locks. If it is full, a new lock replaces the entry that was unused
 * for the longest time, and the counts of that entry are forgotten. Entries that remember a run are
 * replaced last. An entry is never replaced if once_per needs its run, or if it was used in the
 * last 3 s; if only such entries are left, the new lock gets no entry. Correctness depends on the
 * table only for once_per and for the fence, which all locks share. */
enum { MEMORY_ENTRIES = 1024, RELEASES_KEPT = 6 };

/* Zero means that a field is not set, so a file of zeros is an empty table. */
struct memory_entry {
    _Atomic uint64_t key; /* hash of the lock's key; 0: the entry is free */
    _Atomic int64_t used; /* wall clock, ms */
    _Atomic int64_t takes, conflicts, timeouts, losses, waited_ms, held_ms;
    _Atomic int64_t fence, released_wall_ms;
    _Atomic uint64_t turn; /* see struct turn; 0: nothing is known */
    _Atomic uint64_t releases;
    char owner[64]; /* the last owner's token; "" if it is too long */
    struct {
        _Atomic uint64_t token, take, forced; /* forced: 1 if --force-release was used */
    } released[RELEASES_KEPT];                /* a ring buffer, indexed by `releases` */
    char forcer[80];                          /* who used --force-release last; may be truncated */
};

/* The runs of a lock. Only the holder writes them, in the critical section of the lock file; any
 * process may read them. A slot of zeros is empty. */
struct run_slot {
    uint64_t sum; /* checksum of all that follows `skipped` */
    _Atomic uint64_t skipped;
    uint64_t hash;      /* of the lock's key */
    int64_t kept_until; /* wall clock, ms */
    int64_t failures, runs;
    /* NUL-terminated strings: the key, the last run, the last success, its fencing token, and the
     * time until which once_per needs that success. A string is "" if it is unknown or not kept. */
    char text[976];
};

/* The history of one lock, which fills one page. */
struct history_slot {
    _Atomic uint64_t sum; /* checksum of the text and the hash of the lock's key; 0: unused */
    char text[4096 - sizeof(uint64_t)]; /* has room for a history */
};

struct memory_map;
struct memory {
    struct memory_map *map; /* NULL: not open */
    int fd;                 /* valid if there is a map */
    off_t size;             /* size of the file at the last memory_open() */
    bool writable;
    int64_t newer;            /* format of the table if it is newer than ours; otherwise 0 */
    struct memory_entry none; /* the empty entry that memory_entry() returns if it has no other */
};

/* Opens the table of this directory: read-only or, with `make`, read-write. `make` also creates a
 * table that is missing or not valid. If the table is already open as required, it stays open;
 * otherwise it is opened again, and pointers to its entries become invalid. LOCK_OK; LOCK_GONE:
 * there is no table; LOCK_INVALID: it has a newer format; LOCK_CANT_CREATE, LOCK_REFUSED,
 * LOCK_SYSTEM. *why is set. */
enum lock_result memory_open(struct memory *memory, const struct lock_dir *dir, bool make,
                             struct errmsg *why);

void memory_close(struct memory *memory);

/* The next fencing token of the directory: max(last + 1, the wall clock in microseconds). LOCK_OK;
 * LOCK_CANT_CREATE with *why set. */
enum lock_result memory_next_fence(const struct memory *memory, int64_t *fence, struct errmsg *why);

/* Returns the entry of this key; with `make`, creates it if necessary. If there is no entry or no
 * room, or the table is not open, returns an empty entry that no other process sees. The caller
 * must have just called memory_open(), and must not keep the entry: using it after the file was cut
 * short raises SIGBUS. */
struct memory_entry *memory_entry(struct memory *memory, const char *key, bool make);

/* Return the slot with the runs of the entry's lock, and the slot with that lock's history; `make`
 * allocates the slot if necessary. NULL if there is no such slot, or the disk is full. As with
 * memory_entry(), the caller must not keep the pointer. */
struct run_slot *memory_slot(const struct memory *memory, const struct memory_entry *entry,
                             bool make);
struct history_slot *memory_history(const struct memory *memory, const struct run_slot *slot,
                                    bool make);

/* Iterates over the keys of the locks that have a recorded run; *number must be 0 initially. False
 * after the last. */
bool memory_next_run(struct memory *memory, size_t *number, char key[LOCK_KEY_SIZE]);

/* Counts a request that was granted after a wait of this length. */
void entry_taken(struct memory_entry *entry, const char *token, int64_t fence,
                 struct duration waited);

/* Counts a request that was refused, at once or at the end of its wait. */
void entry_refused(struct memory_entry *entry, bool had_waited, struct duration waited);

/* Counts a release of the lock, which was held for `held`. Remembers which lease was released; only
 * the last few releases are remembered. */
void entry_released(struct memory_entry *entry, const char *token, const char *take_id,
                    struct duration held);

/* Remembers, as for a release, that `by` ("USER@HOST") is about to take the lease away by force. */
void entry_mark_forced(struct memory_entry *entry, const char *token, const char *take_id,
                       const char *by);

/* If `by` is NULL: true if the lease with this token and take id was released; with take id "", any
 * lease with this token counts. Otherwise: true if the lease was taken away by force; `by` is then
 * set to the last user who took this lock away. */
bool entry_has_ended(const struct memory_entry *entry, const char *token, const char *take_id,
                     char by[FORCER_SIZE]);

/* What became of a lease that has no record: LOCK_RELEASED; LOCK_FOREIGN if `others` hold the lock;
 * otherwise LOCK_GONE. *why is set. */
enum lock_result entry_outcome(const struct memory_entry *entry, const struct lease *lease,
                               bool others, struct errmsg *why);

/* Sets the turn if it is still `from`; otherwise returns false. */
bool entry_set_turn(struct memory_entry *entry, uint64_t from, uint64_t to);

/* Fills in the counts and what the entry knows about the last owner and release. */
void entry_read(const struct memory_entry *entry, struct lock_state *state);

/* Reads the runs of the lock whose key has this hash. False if the slot is empty, expired or torn,
 * or belongs to another key; *runs is then empty except for the number of skipped runs. `key` (may
 * be NULL) is set to "" if the key was too long to be kept. `slot` may be NULL here and below. */
bool run_slot_read(const struct run_slot *slot, uint64_t hash, struct run_memory *runs,
                   char key[LOCK_KEY_SIZE]);

/* Remembers the runs for the duration `remember`; if that is 0, empties the slot. */
void run_slot_write(struct run_slot *slot, uint64_t hash, const char *key,
                    const struct run_memory *runs, struct duration remember);

/* Read and write the history; "" if there is none. Writing "" empties the slot. */
void history_slot_read(const struct history_slot *slot, uint64_t hash, char text[HISTORY_SIZE]);
void history_slot_write(struct history_slot *slot, uint64_t hash, const char text[HISTORY_SIZE]);

/* Counts a run that was skipped. */
void run_slot_skipped(struct run_slot *slot, uint64_t hash);

/* Adds the run of this record, unless that run was the last one added. */
void runs_take_in(struct run_memory *runs, const struct record *record, const struct run_end *end);

/* A hash of the text (FNV-1a, never 0). */
uint64_t text_hash(const char *text);

/* --- store.c: a directory of locks --------------------------------------------------- */

struct store {
    struct lock_dir dir;
    struct memory memory;
    char boot_id[sizeof((struct holder *)0)->boot_id]; /* "": not read yet */
    bool unrecorded;                                   /* there was no room to record a run */
    char text[LOCK_RECORD_MOST];                       /* buffer for the text of a record */
};

void store_close(struct store *store);

/* If the path no longer leads to the open directory, opens the directory that is there now, or
 * creates it if it is missing. Results of lock_dir_open(). */
enum lock_result store_renew(struct store *store, struct errmsg *why);

/* Sets the path of *file to that of this lock's file. Does not open the file. */
void store_file(struct store *store, struct lock_file *file, const char *key);

/* The id of the current boot, to which new deadlines belong. */
const char *store_boot_id(struct store *store);

/* Returns the lock's entry in the table; with `make`, creates it if there is none. Never NULL. */
struct memory_entry *store_entry(struct store *store, const char *key, bool make);

/* Opens a lock's file and, unless `use` is LOCK_FILE_TO_LOOK, enters its critical section. Results
 * of lock_file_open() and lock_file_enter(). Even after a failure, the file may be open. */
enum lock_result store_open_file(struct store *store, struct lock_file *file, const char *key,
                                 enum lock_file_use use, struct bound bound, struct errmsg *why);

/* Looks at all places except `own` (-1: none), as far as the bound allows. */
void store_survey(struct store *store, const struct lock_file *file, const char *token, int own,
                  struct bound bound, struct survey *survey);

/* Called in the critical section. If there are many places, these functions record which of them
 * are locked or held, for store_survey_one(). */
void store_write_map(const struct lock_file *file, const struct survey *survey);
void store_note_place(const struct lock_file *file, int place, bool taken);

/* True if there are many places, and a holder of a single place was found. *survey then describes
 * only this holder; any other holders have the same mode. False: all places must be looked at. */
bool store_survey_one(struct store *store, const struct lock_file *file, int own,
                      struct survey *survey);

/* True if the lock is not paused, and nobody holds it except in the place `own` (-1: no place). */
bool store_unheld(struct store *store, const struct lock_file *file, int own, struct bound bound);

/* Iterates over the other default directories that exist and may be used; start with
 * LOCK_DIR_BEFORE_ALL. Locks may be held there, because /run/lock may have appeared or disappeared.
 * There are no others if the user gave the directory. False after the last. */
#define LOCK_DIR_BEFORE_ALL ((struct lock_dir){.fd = -1, .place = (enum lock_dir_place) - 1})
bool store_next_other(const struct store *store, struct lock_dir *other);

/* True with *why set if the lock has a holder or a pause in another default directory. */
bool store_held_elsewhere(struct store *store, const char *key, struct bound bound,
                          struct errmsg *why);

/* Called in the critical section: removes the file if the path still leads to it. False with errno
 * if that fails: the file then stays, and the next holder uses it. */
bool store_remove(struct lock_file *file);

/* Called in the critical section: removes the file if the lock has no holder, no pause and no
 * waiter, and no program has the file locked. */
void store_tidy(struct store *store, struct lock_file *file, struct bound bound);

/* Reads the remembered runs of the lock. Adds the runs that ended without a release of the lock, if
 * their records are still in `file` (may be NULL). */
void store_read_runs(struct store *store, const char *key, const struct lock_file *file,
                     struct bound bound, struct run_memory *runs);

/* Called in the critical section before the record is removed: stores in the table how the run
 * ended (RUN_NONE: nothing has run). A run is stored once. If there is no room, sets
 * store->unrecorded. */
void store_add_run(struct store *store, const struct record *record, const struct run_end *end);

/* Called in the critical section before records in the file are removed: stores in the table, as
 * lost, the runs that ended without a release; with `all`, also runs that have not ended. */
void store_lose_runs(struct store *store, const struct lock_file *file, bool all,
                     struct bound bound);

/* --- queue.c: waiters ------------------------------------------------------------------ */

/* A blocking fcntl(2) or flock(2) call, which runs in a helper thread. The thread exists only while
 * dlock waits for other processes, and ends before any other thread begins. The call returns 0 if
 * the wait has succeeded, EINTR if the call must be repeated, or another errno if waiting is
 * impossible. */
typedef int blocking_call(int fd, int64_t argument);

struct blocking {
    bool running;
    int over_fd; /* while the thread exists: becomes readable when the wait is over */
    pthread_t thread;
    struct sigaction old; /* earlier disposition of the signal that cancels the call */
    /* Members that the thread uses: */
    blocking_call *call;
    int fd;
    int64_t argument;
    atomic_bool cancelled;
    int error; /* result of the call, once the thread has ended */
};

/* Starts call(fd, argument) in a thread. False if no thread can be created. The descriptor must
 * stay open until the wait is over or stopped. */
bool blocking_start(struct blocking *wait, blocking_call *call, int fd, int64_t argument);

/* True if the thread has ended. */
bool blocking_has_ended(const struct blocking *wait);

/* True if the wait is over. *error is then the result of the call; *wait may be started again. */
bool blocking_is_over(struct blocking *wait, int *error);

/* Cancels the wait if it is running. True if the wait had already succeeded. */
bool blocking_stop(struct blocking *wait);

struct waiter {
    int news_fd; /* inotify; -1: none */
    bool hears;  /* news_fd reports events on the lock file that we wait for */
    struct ticket ticket;
    struct blocking behind; /* waits for the waiter before us to leave */
    int64_t behind_number;  /* ticket number of the waiter that `behind` waits for */
    int asked;              /* counts requests of the first waiter, starting at 1 whenever a process
                             * closes the file; 0: no process has closed the file yet */
    bool notified; /* a process has closed the file since the last refusal; first waiter only */
    struct deadline yields; /* until then, earlier waiters of a removed file go first; 0: unset */
    struct call call;       /* what waiter_listen() returns next, unless an event occurs first */
};

/* Called before a waiter with a ticket requests the lock again. `file` is the file that is now at
 * the path; entry->turn is about the queue of this file. A waiter that has lost its turn rejoins at
 * the end of the queue. */
void waiter_ask(struct waiter *waiter, const struct lock_file *file, struct memory_entry *entry,
                const struct lock_request *request);

/* After a refusal: joins the queue if necessary, and arranges that the waiter is woken. `ends` is
 * when the lock may become free. Returns true if this is the first waiter. */
bool waiter_wait(struct waiter *waiter, const struct lock_file *file, struct memory_entry *entry,
                 const struct lock_request *request, struct deadline ends);

/* After a request that was refused only because its own owner token holds the lock: the waiter
 * leaves the queue, so that it blocks no other waiter, and rejoins later. */
void waiter_wait_aside(struct waiter *waiter, const struct lock_file *file, struct deadline ends);

/* For a waiter whose file was removed. True if earlier waiters are still in the old file and must
 * move to the new file first. If one of them is frozen, this waiter waits for it only as long as a
 * turn lasts. */
bool waiter_yields(struct waiter *waiter, const struct lock_file *file,
                   const struct memory_entry *entry);

/* Implements listen() of struct backend. */
struct call waiter_listen(struct waiter *waiter);

/* Ends the wait. The waiter's ticket stays locked in the file until the file is closed, or until
 * queue_leave() frees it. */
void waiter_stop(struct waiter *waiter);

/* Frees the waiter's ticket, and the lock by which the waiter shows that it is alive (queue.c). */
void queue_leave(const struct lock_file *file, struct ticket *own);

/* True if no waiter comes before this process, whose ticket is `own` (number 0: it is not a waiter,
 * and all waiters come before it). The first waiter, the head, keeps this process out for at most
 * one turn of two seconds, even while the lock has no room for the head. When the turn ends, the
 * head loses it; one second later, so do the waiters right after the head that have not looked at
 * the queue during the turn. */
bool queue_lets(const struct lock_file *file, struct memory_entry *entry, const struct ticket *own,
                const struct survey *survey);

bool queue_is_empty(const struct lock_file *file);

/* Lists the first waiters, up to `most`. Returns how many are listed. */
size_t queue_list(const struct lock_file *file, struct ticket *tickets, size_t most);

/* Returns the number of waiters before `own`, or of all waiters if own->number is 0. */
int queue_count(const struct lock_file *file, const struct memory_entry *entry,
                const struct ticket *own);

/* --- locks in a directory: dir_backend.c, lease.c, look.c -------------------------------- */

struct dir_backend {
    struct backend base;
    struct store store;
    struct lock_file file; /* the file of the lock that we hold or wait for */
    int place;             /* our place in the file; -1: we hold no lock */
    struct waiter waiter;
    int left_fd; /* the removed file, open until we are in the queue of the new file; -1: none */
    struct run_record done; /* the last success, if it makes once_per refuse the request */
    struct survey survey;   /* used by the current call; its 9 kB are too much for the stack */
    bool reserved;          /* the request was refused only because others have waited longer */
    bool watched;           /* waiter.news_fd reports events on the file of the lock that we hold */
};

static inline struct dir_backend *dir_backend_of(struct backend *backend)
{
    return (struct dir_backend *)(void *)backend;
}

/* Implement struct backend for our own lock, or for another process's lease, found by its token. */
enum lock_result dir_check(struct backend *base, struct lease *lease, struct bound bound,
                           struct errmsg *why);
enum lock_result dir_extend(struct backend *base, struct lease *lease, enum extend_how how,
                            struct bound bound, struct errmsg *why);
enum lock_result dir_release(struct backend *base, const struct lease *lease, struct bound bound,
                             struct errmsg *why);

/* Unlocks and closes the file of the lock that we hold or wait for. The file keeps its contents. */
void dir_let_go(struct dir_backend *backend);

/* Implement struct backend for any lock, whoever holds it. dir_look() locks nothing. dir_list()
 * skips files that are not dlock's lock files or that belong to another user. */
enum lock_result dir_look(struct backend *base, const char *key, struct lock_state *state,
                          struct bound bound, struct errmsg *why);
enum lock_result dir_force_release(struct backend *base, const char *key, struct lock_state *was,
                                   struct bound bound, struct errmsg *why);
enum lock_result dir_pause(struct backend *base, const char *key, const struct pause *pause,
                           struct bound bound, struct errmsg *why);
enum lock_result dir_list(struct backend *base, const struct listing *listing, struct bound bound,
                          struct errmsg *why);

#endif
