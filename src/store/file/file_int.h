/* Lock files: the interface between the files of this folder. From the bottom to the top:
 *
 *   record.c       the text of a record
 *   file.c         one lock file: the kernel's locks on it, its places and their records
 *   rules.c        pure functions: what a record is worth, admission to the lock, turns of waiters
 *   memory.c       the counts, fences and runs of locks, which outlive the lock files
 *   store.c        a directory: its files, its memory, and the runs that were lost
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

/* A record describes a lease or a pause. It is text in a lock file: lines "field value" between the
 * lines "dlock FORMAT" and "end". A record without "end" is recognized as truncated. */
#define LOCK_RECORD_SIZE 16384 /* room for a record */
#define LOCK_RECORD_MOST 14336 /* the longest record; the map of places follows it (store.c) */

/* The offset of the record of a pause. The record of place 0 comes before it, and ends before this
 * offset even with the longest key. */
#define LOCK_PAUSE_OFFSET 10240

struct record {
    int64_t format; /* lock/format.h; if it is newer than ours, nothing else is known */
    char key[LOCK_KEY_SIZE];
    char token[TOKEN_SIZE];
    enum lock_mode mode;
    int slots; /* of MODE_SLOTS, otherwise 0 */
    int slot;  /* -1: none */
    int64_t fence;
    struct duration ttl;      /* TTL of the take */
    struct deadline expires;  /* on the clock of the boot with the id holder.boot_id */
    struct deadline hold;     /* likewise: others are kept out until then, even without a process */
    struct duration remember; /* how long the run is remembered; 0: not, or already recorded */
    struct duration once_per; /* as requested: how long once_per needs the success of this run */
    struct holder holder;     /* with `kept` set, the lock was released, and only `hold` counts */
};

/* Fills in the record of a lock that is being acquired. */
void record_fill(struct record *record, const struct lock_request *request,
                 const struct lease *lease);

/* Marks the record as released. Others are kept out until `hold`. */
void record_release(struct record *record, struct deadline hold);

/* Writes the record as text. Returns its length; 0: it does not fit. */
size_t record_format(const struct record *record, char text[LOCK_RECORD_MOST]);

/* Reads the text back, and ignores whatever follows the record. False if the record is incomplete,
 * not dlock's, or newer (record_is_newer()). */
bool record_parse(struct record *record, const char *text);

/* True if the text starts like a record. */
bool record_begins(const char *text);

/* True if the record that was read has a newer format than ours. */
bool record_is_newer(const struct record *record);

/* True if the text contains the end of a record. */
bool record_is_whole(const char *text);

/* True if the record's deadlines may belong to this boot. A boot id that could not be read (""), or
 * that is a container's own (proc_boot_id()), may be any boot's: otherwise a held lock would count
 * as free. But a deadline that is further away than a lease can last belongs to another boot:
 * otherwise, without a boot id, a record from an earlier boot could keep its lock until this boot
 * has lasted as long as that one. */
bool record_may_be_of(const struct record *record, const char *boot_id);

/* --- file.c: one lock file ------------------------------------------------------ */

/* A lock has places. An exclusive holder has all of them, any other holder has one; a holder of a
 * slot has the place with the slot's number. The record of a place is at place * LOCK_RECORD_SIZE;
 * an exclusive holder's record is at 0, the record of a pause at LOCK_PAUSE_OFFSET. The holders
 * also have flock(2) on the file, exclusive or shared, so that flock(1) and lslocks(8) see the
 * lock.
 *
 * The byte locks beyond the end of the file are open file description locks (fcntl(2)). Like
 * flock(2) locks, they belong to the open file, survive a fork, and are freed by the kernel. A
 * process can inspect them without acquiring any, so that a look blocks no other process. */
enum { LOCK_PLACES_MOST = 1 << 20 };

#define LOCK_FILE_PATH_SIZE (sizeof((struct lock_dir *)0)->path + LOCK_FILE_NAME_SIZE)

struct lock_file {
    char path[LOCK_FILE_PATH_SIZE];
    bool follow; /* links are allowed in the path */
    int fd;      /* -1: not open */
    off_t size;  /* of the file, when the path was last known to lead to it */
    dev_t device;
    ino_t inode; /* of the open file; 0: not known yet */
    char *text;  /* LOCK_RECORD_MOST bytes for the record that is read or written */
};

enum lock_file_use { LOCK_FILE_TO_LOOK, LOCK_FILE_TO_CHANGE, LOCK_FILE_TO_TAKE };

/* Opens the file; LOCK_FILE_TO_TAKE creates a missing one. LOCK_OK; LOCK_GONE: there is no file;
 * LOCK_REFUSED, LOCK_SYSTEM, LOCK_CANT_CREATE with *why set. */
enum lock_result lock_file_open(struct lock_file *file, enum lock_file_use use, struct errmsg *why);

/* Closes the file, which releases all our locks on it. */
void lock_file_close(struct lock_file *file);

/* LOCK_OK: the path still leads to the open file. LOCK_GONE: it does not. LOCK_UNAVAILABLE with
 * errno: unknown. */
enum lock_result lock_file_verify(struct lock_file *file, struct errmsg *why);

/* Enters the critical section of the file, which gives exclusive access for changes to records,
 * places or the path. LOCK_OK; LOCK_UNAVAILABLE with *why set if another process stays in the
 * critical section for a second; LOCK_CANCELLED; LOCK_CANT_CREATE if the file cannot be locked. */
enum lock_result lock_file_enter(const struct lock_file *file, struct bound bound,
                                 struct errmsg *why);
void lock_file_leave(const struct lock_file *file);

/* Acquires flock(2) in this mode. False with errno; EWOULDBLOCK: another process holds it. */
bool lock_file_flock(const struct lock_file *file, enum lock_mode mode);

/* Locks the place, or for MODE_EXCLUSIVE all places. False if another process has locked one of
 * them. */
bool lock_file_lock_place(const struct lock_file *file, enum lock_mode mode, int place);

/* Unlocks everything, leaves the critical section, and wakes the first waiter, which is notified
 * when a process closes the file: this function opens and closes the file once more, because the
 * command's guard may still have it open. */
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
    enum place_lock locked; /* whether it is locked through another open file than ours */
    bool known;             /* it has a record, which could be read */
    bool over;              /* out of time: the remaining places were not examined */
    bool unreadable;        /* it is unknown whether it has a record, or whether it is locked */
    struct record record;
};

/* Used instead of a place's number: the record of a pause. */
enum { LOCK_FILE_PAUSE = -1 };

/* Reads the place's record. False with errno: 0 if there is none, EBADMSG if it is truncated or
 * garbled after its first word, otherwise the error that prevented reading it. */
bool lock_file_read(const struct lock_file *file, int place, struct record *record);

/* Writes the place's record. LOCK_OK; LOCK_CANT_CREATE, LOCK_INVALID with *why set. */
enum lock_result lock_file_write(const struct lock_file *file, int place,
                                 const struct record *record, struct errmsg *why);

/* Iterates over the places that may have a holder, starting from lock_file_places(); the place
 * `own` (-1: none) is not read, and counts as unlocked and without a record. Once the bound, or a
 * few seconds, are over, the next place is `unreadable` and is the last. False after the last. */
struct lock_place lock_file_places(struct bound bound, int own);
bool lock_file_next_place(const struct lock_file *file, struct lock_place *place);

/* Reads the record of one place, and whether the place is locked. */
void lock_file_read_place(const struct lock_file *file, struct lock_place *place);

/* Finds a place that another process has locked as a single one, not together with all places.
 * False if there is none. */
bool lock_file_any_holder(const struct lock_file *file, struct lock_place *place);

/* The number of places that may have a record. */
int lock_file_place_count(const struct lock_file *file);

/* Who the events are for. A holder is notified when the file is written, a waiter when any process
 * closes it; both are notified when the file is removed, moved or replaced, or its directory is
 * moved. */
enum lock_file_news_for { NEWS_FOR_HOLDER, NEWS_FOR_WAITER };

/* Returns a descriptor that becomes readable at these events (inotify(7)): news_fd, or a new one if
 * news_fd is -1; -1 if this fails. */
int lock_file_news(int news_fd, const struct lock_file *file, enum lock_file_news_for use);

/* Closes the descriptor without waiting for the kernel, and sets it to -1. */
void lock_file_news_close(int *news_fd);

/* The struct news for a process that watches the lock through this descriptor. */
struct news lock_file_news_of(int news_fd);

/* Reads all events. True if there was one. */
bool lock_file_drain_news(int news_fd);

/* --- rules.c: pure functions of what was read ------------------------------------ */

/* True if the place is held. The deadlines in its record count only if they belong to this boot. A
 * record of a newer format counts as held. */
bool place_is_held(const struct lock_place *place, const char *boot_id);

/* True if the run of the place's holder was lost and must be remembered: the holder has died, or a
 * lease without a process has ended, and the lock was not released. */
bool place_lost_run(const struct lock_place *place, const char *boot_id);

/* When the lease or the hold on a place ends, as far as that is known. */
struct deadline place_end(const struct lock_place *place);

/* Describes the holder of a place that has a record. */
void place_holder(const struct lock_place *place, const char *boot_id, struct holder *holder);

/* A search for another process's lease, by its token and, if known, its take id. If the token has
 * several places, a held one counts; otherwise the place that was acquired last, which shows what
 * became of the lease. */
struct lease_search {
    enum lock_result result; /* LOCK_GONE at first; then LOCK_OK, LOCK_RELEASED or LOCK_GONE */
    struct errmsg why;
    struct lock_place place; /* the lease's place, if `known` */
    bool known;              /* the file has a record of the lease */
    bool others;             /* other holders were found */
    bool unreadable;         /* some places could not be read */
    int64_t newer;           /* the format of a record that is newer than ours; or 0 */
};

/* Adds one more place to the search. */
void search_add(struct lease_search *search, const struct lock_place *place,
                const struct lease *lease, const char *boot_id);

/* The holders of a lock file, and whether a request may join them: the rules of the modes.
 *
 *   An exclusive request waits for all holders; any request waits for an exclusive holder.
 *   Shared requests join shared holders only. Slots join slots if both give the same total.
 *   The holders set the mode in force. While the first waiter wants another mode, no further
 *     holder is admitted, so that the last holder eventually leaves.
 *   An owner token holds a lock at most once.
 *   No process joins holders of another format (lock/format.h). */
enum { PLACES_MAPPED = 8 * (LOCK_RECORD_SIZE - LOCK_RECORD_MOST) };
struct place_map {
    unsigned char bits[PLACES_MAPPED / 8]; /* a bit for each of the first PLACES_MAPPED places */
};
void place_map_set(struct place_map *map, int place, bool taken);

struct survey {
    int held;                      /* number of holders, without our own place */
    int released;                  /* released by others, and still locked by their holders */
    struct lock_place first, last; /* the holders whose leases end first and last */
    struct place_map taken;        /* the places that are locked or held */
    bool acquired;                 /* there is a record of a detached lease */
    bool lost;                     /* there are records of runs that were lost */
    bool unreadable;               /* for some places it is unknown whether they are held */
    bool same_token;               /* one of the holders has the token that was asked about */
    struct pause pause;            /* `left` is 0 if there is none */
    int64_t newer;                 /* the format of a record that is newer than ours; or 0 */
    int free_place;                /* the lowest place that is neither locked nor held; -1: none */
};

/* Adds one more place; places come in the order of their numbers. */
void survey_add(struct survey *survey, const struct lock_place *place, const char *boot_id,
                const char *token);

/* True if the lock is held in a mode for several holders which differs from the requested mode. */
bool survey_conflicts(const struct survey *survey, enum lock_mode mode, int slots);

/* True if there is room for one more holder in this mode, whatever its token, and no pause. */
bool survey_has_room(const struct survey *survey, enum lock_mode mode, int slots);

/* True if the request may be granted; other waiters are not considered. */
bool survey_admits(const struct survey *survey, const struct lock_request *request);

/* Describes a holder that blocks the request: the one that the request must wait for if no other
 * holder releases sooner. */
void survey_holder(const struct survey *survey, const struct lock_request *request,
                   struct holder *holder);

/* The waiters for a lock, in order of arrival. Each has a ticket: a number, higher than that of any
 * waiter present, that determines which bytes of the lock file the waiter has locked. The lowest
 * number is the head's.
 *
 * The head has two seconds to act. An integer in the table (`turn` in struct memory_entry), called
 * "the word", describes this turn; each process that sees a change updates the word. A head that
 * has lost its turn joins the end of the queue when it runs again. */
struct ticket {
    int64_t number; /* 0: none */
    enum lock_mode mode;
    int slots;
};

/* Whose turn it is, according to the word. */
struct turn {
    uint64_t word;  /* as it was read */
    int64_t number; /* the head's number */
    bool lost;      /* the head has lost its turn */
    bool room;      /* there was room for the head; if not, it keeps others out until there is */
    uint32_t ms;    /* when the turn began; 0: it is lost */
};
#define TURN_MS_MASK ((UINT32_C(1) << 31) - 1)
struct turn turn_read(uint64_t word);
uint64_t turn_word(int64_t number, bool room, uint32_t ms);

/* The lowest number whose waiter has not lost its turn. */
int64_t turn_floor(const struct turn *known);

/* How long the turn lasts: for the head (place 0), or for the waiter that is `place` waiters behind
 * the head. A waiter behind the head is passed over at the end only if it has not marked the turn.
 * Each waiter looks at the queue more often than that. */
enum { TURNS = 2 };
struct duration turn_length(int place);

/* What a process writes into the word when it finds that the waiter `next`, at `place` in the
 * queue, comes before it. */
enum turn_step {
    TURN_LASTS,   /* nothing: `next` has its turn */
    TURN_BEGINS,  /* the turn of `next` begins now */
    TURN_PASSES,  /* all before `next` have lost their turn; its own begins at the next look */
    TURN_IS_OVER, /* nothing yet: the turn of `next` is over, too; the waiter after it decides */
};
struct waiter_seen {
    int place; /* 0: the head */
    const struct ticket *head, *next;
    bool room;             /* there is room for the head */
    bool marked;           /* `next` has marked this turn: it is alive */
    struct duration since; /* how long the turn has lasted */
};
enum turn_step turn_step(const struct turn *known, const struct waiter_seen *seen);

/* --- memory.c: the table beside the lock files ----------------------------------------- */

/* The table contains what is remembered of the locks: one file for each directory and user, which
 * processes map into memory and change with atomic operations. There is no critical section that a
 * frozen or killed process could leave locked.
 *
 * The table has room for 1,024 locks. If it is full, a new lock replaces the entry that was unused
 * for the longest time, whose counts are forgotten. Locks that remember a run are replaced last. An
 * entry is never replaced if once_per needs its run, or if it was used in the last 3 s; if there is
 * no other entry, the new lock gets none. Correctness depends on the table only for the fence,
 * which all locks share, and for once_per. */
enum { MEMORY_ENTRIES = 1024, RELEASES_KEPT = 6 };

/* In every field, zero means "not yet", so that a file of zeros is an empty table. */
struct memory_entry {
    _Atomic uint64_t key; /* the hash of the lock's key; 0: a free place */
    _Atomic int64_t used; /* wall clock, ms */
    _Atomic int64_t takes, conflicts, timeouts, losses, waited_ms, held_ms;
    _Atomic int64_t fence, released_wall_ms;
    _Atomic uint64_t turn; /* struct turn; 0: nothing is known */
    _Atomic uint64_t releases;
    char owner[64]; /* the last owner's token; "" if it is too long */
    struct {
        _Atomic uint64_t token, take, forced; /* forced: 1 if by --force-release */
    } released[RELEASES_KEPT];                /* a ring, indexed by `releases` */
    char forcer[80];                          /* who called --force-release last; may be cut off */
};

/* The runs of a lock. Only the holder writes them, in the critical section of the lock file; any
 * process may read them. Zeros are an empty slot. */
struct run_slot {
    uint64_t sum; /* checksum of all that follows `skipped` */
    _Atomic uint64_t skipped;
    uint64_t hash;      /* of the lock's key */
    int64_t kept_until; /* wall clock, ms */
    int64_t failures, runs;
    char text[976]; /* the key, the last run, the last success, its fence, and until when once_per
                     * needs it; each ends in NUL; "": not kept, or unknown */
};

/* The history of an entry's lock, in its own page. */
struct history_slot {
    _Atomic uint64_t sum; /* checksum of the text and the hash of the lock's key; 0: unused */
    char text[4096 - sizeof(uint64_t)]; /* has room for a history */
};

struct memory_map;
struct memory {
    struct memory_map *map; /* NULL: not open */
    int fd;                 /* valid if there is a map */
    off_t size;             /* of the file, at the last memory_open() */
    bool writable;
    int64_t newer;            /* format of the table if it is newer than ours; otherwise 0 */
    struct memory_entry none; /* used if there is no room for an entry */
};

/* Opens the table of this directory. With `make`, read-write, and the table is created if it is
 * missing or not valid; otherwise read-only. A table that is already open, and not read-only where
 * `make` needs more, stays open. Otherwise it is opened again, and pointers to its entries become
 * invalid. LOCK_OK; LOCK_GONE: there is none to read; LOCK_INVALID: it has a newer format;
 * LOCK_CANT_CREATE, LOCK_REFUSED, LOCK_SYSTEM. *why is set. */
enum lock_result memory_open(struct memory *memory, const struct lock_dir *dir, bool make,
                             struct errmsg *why);

void memory_close(struct memory *memory);

/* The next fence of the directory: max(last + 1, the wall clock in microseconds). LOCK_OK;
 * LOCK_CANT_CREATE with *why set. */
enum lock_result memory_next_fence(const struct memory *memory, int64_t *fence, struct errmsg *why);

/* The entry of this key; `make` creates it if necessary. If there is no entry or no room, or the
 * table is not open: an empty entry that no other process sees. The caller has just called
 * memory_open(), and must not keep the entry: using it after the file was cut short raises
 * SIGBUS. */
struct memory_entry *memory_entry(struct memory *memory, const char *key, bool make);

/* The slot with the runs of the entry's lock, and the slot with its history; `make` allocates each
 * if necessary. NULL if there is no such slot, or the disk is full. The pointers are valid only as
 * long as a pointer to an entry. */
struct run_slot *memory_slot(const struct memory *memory, const struct memory_entry *entry,
                             bool make);
struct history_slot *memory_history(const struct memory *memory, const struct run_slot *slot,
                                    bool make);

/* Finds the next key that remembers a run, starting from entry *number (initially 0). False after
 * the last. */
bool memory_next_run(struct memory *memory, size_t *number, char key[LOCK_KEY_SIZE]);

/* Counts a take that was granted after a wait of this length. */
void entry_taken(struct memory_entry *entry, const char *token, int64_t fence,
                 struct duration waited);

/* Counts a request that was refused, at once or at the end of its wait. */
void entry_refused(struct memory_entry *entry, bool had_waited, struct duration waited);

/* Counts and remembers a release, with the lease's own token, of a lock that was acquired `held`
 * ago. The last few releases are remembered. */
void entry_released(struct memory_entry *entry, const char *token, const char *take_id,
                    struct duration held);

/* Remembers, like a release, that `by` ("USER@HOST") is about to take this lease away by force. */
void entry_mark_forced(struct memory_entry *entry, const char *token, const char *take_id,
                       const char *by);

/* True if this take was released (if its id is "": any take with this token). With `by` not
 * NULL: true if it was taken away by force; `by` is then set to the user who last did that to
 * this lock. */
bool entry_has_ended(const struct memory_entry *entry, const char *token, const char *take_id,
                     char by[FORCER_SIZE]);

/* What became of a lease of which there is no record: LOCK_RELEASED; LOCK_FOREIGN if `others` hold
 * the lock; LOCK_GONE. *why is set. */
enum lock_result entry_outcome(const struct memory_entry *entry, const struct lease *lease,
                               bool others, struct errmsg *why);

/* Sets the turn only if it is still `from`; otherwise false. */
bool entry_set_turn(struct memory_entry *entry, uint64_t from, uint64_t to);

/* Fills in the counts and what the entry knows of the last take and release. */
void entry_read(const struct memory_entry *entry, struct lock_state *state);

/* Reads the runs of the key with this hash. False, with *runs empty except for the number of
 * skipped runs: the slot is empty, expired, torn, or belongs to another key. `key` (may be NULL) is
 * "" if the key was too long to be kept. In all these functions `slot` may be NULL: no slot. */
bool run_slot_read(const struct run_slot *slot, uint64_t hash, struct run_memory *runs,
                   char key[LOCK_KEY_SIZE]);

/* Remembers the runs for `remember` from now on; 0: empties the slot. */
void run_slot_write(struct run_slot *slot, uint64_t hash, const char *key,
                    const struct run_memory *runs, struct duration remember);

/* Like run_slot_read() and run_slot_write(), for the history: "" for none. Writing "" empties the
 * slot. */
void history_slot_read(const struct history_slot *slot, uint64_t hash, char text[HISTORY_SIZE]);
void history_slot_write(struct history_slot *slot, uint64_t hash, const char text[HISTORY_SIZE]);

/* Counts a run that was skipped. */
void run_slot_skipped(struct run_slot *slot, uint64_t hash);

/* Adds this record's run, unless it is the one that was added last. */
void runs_take_in(struct run_memory *runs, const struct record *record, const struct run_end *end);

/* A hash of the text (FNV-1a, never 0). */
uint64_t text_hash(const char *text);

/* --- store.c: a directory of locks --------------------------------------------------- */

struct store {
    struct lock_dir dir;
    struct memory memory;
    char boot_id[sizeof((struct holder *)0)->boot_id]; /* "": not read yet */
    bool unrecorded;                                   /* there was no room to record a run */
    char text[LOCK_RECORD_MOST];                       /* a record of the file that is in use */
};

void store_close(struct store *store);

/* If the path no longer leads to the open directory, opens the one that is there now; creates a
 * missing one. Results of lock_dir_open(). */
enum lock_result store_renew(struct store *store, struct errmsg *why);

/* Sets the path of *file to that of this lock's file. Does not open the file. */
void store_file(struct store *store, struct lock_file *file, const char *key);

/* The id of the boot that deadlines written now belong to. */
const char *store_boot_id(struct store *store);

/* The lock's entry in the table; `make` begins an entry if there is none. Never NULL. */
struct memory_entry *store_entry(struct store *store, const char *key, bool make);

/* Opens a lock's file. Unless the file is opened only for a look, also enters its critical section.
 * Results of lock_file_open() and lock_file_enter(). Whatever the result, the file may be open. */
enum lock_result store_open_file(struct store *store, struct lock_file *file, const char *key,
                                 enum lock_file_use use, struct bound bound, struct errmsg *why);

/* Looks at all places but `own` (-1: none), as far as the bound allows. */
void store_survey(struct store *store, const struct lock_file *file, const char *token, int own,
                  struct bound bound, struct survey *survey);

/* In the critical section: if there are many places, records for store_survey_one() which of them
 * are taken. */
void store_write_map(const struct lock_file *file, const struct survey *survey);
void store_note_place(const struct lock_file *file, int place, bool taken);

/* True if there are many places, and a holder of a single place was found. *survey then describes
 * this holder: all other holders have the same mode, but `held`, `first` and `last` do not count
 * them. False: all places must be looked at. */
bool store_survey_one(struct store *store, const struct lock_file *file, int own,
                      struct survey *survey);

/* In the critical section: true if the lock has no pause, and no holder except in the place `own`
 * (-1: none). */
bool store_unheld(struct store *store, const struct lock_file *file, int own, struct bound bound);

/* Iterates over the other default directories that exist and may be used, starting from
 * LOCK_DIR_BEFORE_ALL: /run/lock may have appeared or disappeared while locks were held there.
 * There are none if the user gave the directory. False after the last. */
#define LOCK_DIR_BEFORE_ALL ((struct lock_dir){.fd = -1, .place = (enum lock_dir_place) - 1})
bool store_next_other(const struct store *store, struct lock_dir *other);

/* True with *why set if the lock has a holder or a pause in one of the other default
 * directories. */
bool store_held_elsewhere(struct store *store, const char *key, struct bound bound,
                          struct errmsg *why);

/* In the critical section: removes the file, if the path still leads to it. False with errno if the
 * directory is no longer writable: the file then stays, and the next holder uses it. */
bool store_remove(struct lock_file *file);

/* In the critical section: removes the file if the lock has no holder, no pause and no waiter, and
 * no program has the file locked. */
void store_tidy(struct store *store, struct lock_file *file, struct bound bound);

/* Reads the runs that the lock remembers, and adds the lost runs, whose records are still in the
 * file (NULL: no file). */
void store_read_runs(struct store *store, const char *key, const struct lock_file *file,
                     struct bound bound, struct run_memory *runs);

/* In the critical section, before the record is removed: records that its run has ended; RUN_NONE:
 * nothing has run. A run is recorded once. If there is no room, sets store->unrecorded. */
void store_add_run(struct store *store, const struct record *record, const struct run_end *end);

/* In the critical section, before records in the file are removed: records the runs that were lost;
 * with `all`, also records as lost the runs that have not ended. */
void store_lose_runs(struct store *store, const struct lock_file *file, bool all,
                     struct bound bound);

/* --- queue.c: waiters ------------------------------------------------------------------ */

/* Runs a blocking fcntl(2) or flock(2) call in a helper thread, which exists only during a wait for
 * other processes, and ends before any other thread begins. The call returns 0 if the wait has
 * succeeded, EINTR if it must be repeated; with any other errno, waiting is impossible. */
typedef int blocking_call(int fd, int64_t argument);

struct blocking {
    bool running;
    int over_fd; /* while the thread runs: readable when the wait is over */
    pthread_t thread;
    struct sigaction old; /* disposition of the signal that cancels the call */
    /* Members that the thread uses: */
    blocking_call *call;
    int fd;
    int64_t argument;
    atomic_bool cancelled;
    int error; /* result of the call, once the thread has ended */
};

/* Starts call(fd, argument) in a thread. False: no thread can be created. The descriptor must stay
 * open until the wait is over or stopped. */
bool blocking_start(struct blocking *wait, blocking_call *call, int fd, int64_t argument);

/* True if the thread has ended. */
bool blocking_has_ended(const struct blocking *wait);

/* True if the wait is over; then *wait is as before the start, and *error is the result of the
 * call. */
bool blocking_is_over(struct blocking *wait, int *error);

/* Cancels the wait, if one is running. True: the wait had already succeeded. */
bool blocking_stop(struct blocking *wait);

struct waiter {
    int news_fd; /* inotify; -1: none */
    bool hears;  /* news_fd reports events of the file that we wait for */
    struct ticket ticket;
    struct blocking behind; /* waits for the waiter before us to leave */
    int64_t behind_number;  /* the number of that waiter */
    int asked;     /* how often the head has made a request since the file was last closed; 0: it
                    * was not closed */
    bool notified; /* of the head: a process has closed the file since the last refusal */
    struct deadline yields; /* if the file was removed: until when earlier waiters go first; or 0 */
    struct call call;       /* what waiter_listen() returns next, apart from later events */
};

/* Call this before a waiter with a ticket requests the lock again. `file` is the file that is now
 * at the path; the word in `entry` is about the queue of this file. A waiter that has lost its turn
 * joins the end of the queue. */
void waiter_ask(struct waiter *waiter, const struct lock_file *file, struct memory_entry *entry,
                const struct lock_request *request);

/* The request was refused: joins the queue if necessary, and makes sure that the waiter is woken.
 * `ends`: when the lock may become free. True if the waiter is the head. */
bool waiter_wait(struct waiter *waiter, const struct lock_file *file, struct memory_entry *entry,
                 const struct lock_request *request, struct deadline ends);

/* The request was refused only because its own owner token holds the lock: the waiter leaves the
 * queue, so that it blocks no other waiter, and rejoins later. */
void waiter_wait_aside(struct waiter *waiter, const struct lock_file *file, struct deadline ends);

/* For a waiter whose file was removed. True if earlier waiters are still in the old file: they move
 * to the new file first. If one of them is frozen, this waiter waits for it only as long as a turn
 * lasts. */
bool waiter_yields(struct waiter *waiter, const struct lock_file *file,
                   const struct memory_entry *entry);

/* Implements listen() of struct backend. */
struct call waiter_listen(struct waiter *waiter);

/* Stops waiting in this file. The ticket itself is freed when the file is closed, or by
 * queue_leave(). */
void waiter_stop(struct waiter *waiter);

/* Frees the waiter's ticket and its mark. */
void queue_leave(const struct lock_file *file, struct ticket *own);

/* True if no earlier waiter comes before this one (number 0: not a waiter; all waiters come before
 * it). The head, which is the first of all, keeps this one out for a turn of two seconds, even if
 * there is no room for the head; then the head is passed over. A second later, the waiters right
 * after the head that have not looked at the queue during the turn are passed over, too. */
bool queue_lets(const struct lock_file *file, struct memory_entry *entry, const struct ticket *own,
                const struct survey *survey);

bool queue_is_empty(const struct lock_file *file);

/* Lists the first waiters, at most `most`. Returns their number. */
size_t queue_list(const struct lock_file *file, struct ticket *tickets, size_t most);

/* The number of waiters before this one (number 0: of all waiters). */
int queue_count(const struct lock_file *file, const struct memory_entry *entry,
                const struct ticket *own);

/* --- locks in a directory: dir_backend.c, lease.c, look.c -------------------------------- */

struct dir_backend {
    struct backend base;
    struct store store;
    struct lock_file file; /* the file that we have locked, or wait for */
    int place;             /* our place in it; -1: we hold nothing */
    struct waiter waiter;
    int left_fd; /* the old file, kept open until we are in the queue of the new one; -1: none */
    struct run_record done; /* the last success, if once_per refuses the request because of it */
    struct survey survey;   /* of the call in progress; its 9 kB are too much for the stack */
    bool reserved;          /* the request was refused only because others have waited longer */
    bool watched;           /* the waiter's news_fd reports events of the file that we hold */
};

static inline struct dir_backend *dir_backend_of(struct backend *backend)
{
    return (struct dir_backend *)(void *)backend;
}

/* Implement struct backend: for the file that we hold or, by its token, for a lease that another
 * process acquired. */
enum lock_result dir_check(struct backend *base, struct lease *lease, struct bound bound,
                           struct errmsg *why);
enum lock_result dir_extend(struct backend *base, struct lease *lease, enum extend_how how,
                            struct bound bound, struct errmsg *why);
enum lock_result dir_release(struct backend *base, const struct lease *lease, struct bound bound,
                             struct errmsg *why);

/* Unlocks and closes the file that we hold or wait for. Its contents stay. */
void dir_let_go(struct dir_backend *backend);

/* Implement struct backend, whoever holds the lock. A look locks nothing. A list skips files that
 * are not dlock's lock files, or are another user's. */
enum lock_result dir_look(struct backend *base, const char *key, struct lock_state *state,
                          struct bound bound, struct errmsg *why);
enum lock_result dir_force_release(struct backend *base, const char *key, struct lock_state *was,
                                   struct bound bound, struct errmsg *why);
enum lock_result dir_pause(struct backend *base, const char *key, const struct pause *pause,
                           struct bound bound, struct errmsg *why);
enum lock_result dir_list(struct backend *base, const struct listing *listing, struct bound bound,
                          struct errmsg *why);

#endif
