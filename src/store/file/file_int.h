/* Lock files: the interface between the files of this folder. From the bottom to the top:
 *
 *   record.c       the text of a record
 *   file.c         one lock file: the kernel's locks on it, its places and their records
 *   rules.c        pure functions: the worth of a record, admission to the lock, turns of waiters
 *   memory.c       the counts, fences and runs of locks, while their files come and go
 *   store.c        a directory: its files, its memory, and the runs that were lost
 *   queue.c        the waiters of a lock file
 *   lease.c, look.c, dir_backend.c   the operations on locks in a directory
 *   exact.c, proc_locks.c            --lock-file
 */
#ifndef DLOCK_STORE_FILE_FILE_INT_H
#define DLOCK_STORE_FILE_FILE_INT_H

#include "store/file/backend.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/* --- record.c ----------------------------------------------------------------- */

/* Lines of "field value", from "dlock FORMAT" to "end", so that a record that was cut is
 * recognized. */
#define LOCK_RECORD_SIZE 16384 /* room for a record */
#define LOCK_RECORD_MOST 14336 /* the longest record; the map of places follows it (file.c) */

/* The record of a pause follows that of place 0, which is shorter even with the longest key. */
#define LOCK_PAUSE_OFFSET 10240

struct record {
    int64_t format; /* lock/format.h; newer than ours: nothing else is known */
    char key[LOCK_KEY_SIZE];
    char token[TOKEN_SIZE];
    enum lock_mode mode;
    int slots; /* of MODE_SLOTS, otherwise 0 */
    int slot;  /* -1: none */
    int64_t fence;
    struct duration ttl;      /* with which it was taken */
    struct deadline expires;  /* on the boot clock of holder.boot_id */
    struct deadline hold;     /* likewise: others are kept out until then, process or not */
    struct duration remember; /* how long its run is remembered; 0: not at all, or it is recorded */
    struct duration once_per; /* as requested: its success is needed that long */
    struct holder holder;     /* kept: it has released the lock, and only `hold` counts */
};

/* The record of a lock that is taken now. */
void record_fill(struct record *record, const struct lock_request *request,
                 const struct lease *lease);

/* The record's lock is released; others are kept out until `hold`. */
void record_release(struct record *record, struct deadline hold);

/* Writes the record as text. Returns its length, 0 if it does not fit. */
size_t record_format(const struct record *record, char text[LOCK_RECORD_MOST]);

/* Reads it back, and ignores whatever follows it. False if it is not a complete record of
 * ours, or record_is_newer(). */
bool record_parse(struct record *record, const char *text);

/* True if the text begins as a record does. */
bool record_begins(const char *text);

/* True if the record that was read has a newer format. */
bool record_is_newer(const struct record *record);

/* True if the text contains the end of a record. */
bool record_is_whole(const char *text);

/* True if the deadlines in it may be of this boot. A boot id that could not be read, "",
 * or that is a container's own (proc_boot_id()), may be any boot's: otherwise a lock that
 * is held would count as free. But it is not this boot if the lease would then last
 * longer than a lease can: if there is no boot id, a lock is not kept for as long as the
 * host was once up. */
bool record_may_be_of(const struct record *record, const char *boot_id);

/* --- file.c: one lock file ------------------------------------------------------ */

/* A lock has places. An exclusive holder has all of them and any other holder has one;
 * holders of slots have the place of their slot's number. The record of a place is at
 * place * LOCK_RECORD_SIZE; the exclusive holder's is at 0, and that of a pause at
 * LOCK_PAUSE_OFFSET. In addition flock(2) is held on the file, exclusive or shared, so that
 * flock(1) and lslocks(8) see what is going on.
 *
 * The locks beyond the end of the file are open file description locks (fcntl(2)): like
 * those of flock(2) they belong to the open file, survive a fork, and are freed by the
 * kernel. They can be inspected without taking any, so that looking blocks no other
 * process. */
enum { LOCK_PLACES_MOST = 1 << 20 };

#define LOCK_FILE_PATH_SIZE (sizeof((struct lock_dir *)0)->path + LOCK_FILE_NAME_SIZE)

struct lock_file {
    char path[LOCK_FILE_PATH_SIZE];
    bool follow; /* links are allowed in the path */
    int fd;      /* -1: not open */
    off_t size;  /* when the path was last known to lead to it */
    char *text;  /* LOCK_RECORD_MOST bytes for the record that is read or written */
};

enum lock_file_use { LOCK_FILE_TO_LOOK, LOCK_FILE_TO_CHANGE, LOCK_FILE_TO_TAKE };

/* Opens the file; to take the lock, it is created if it is missing. LOCK_OK; LOCK_GONE:
 * there is no file; LOCK_REFUSED, LOCK_SYSTEM, LOCK_CANT_CREATE with *why set. */
enum lock_result lock_file_open(struct lock_file *file, enum lock_file_use use, struct errmsg *why);

/* Releases all locks on it, too. */
void lock_file_close(struct lock_file *file);

/* LOCK_OK: the path still leads to the open file; LOCK_GONE; LOCK_UNAVAILABLE with errno: that
 * could not be found out. */
enum lock_result lock_file_verify(struct lock_file *file, struct errmsg *why);

/* The section: exclusive access for changes to records, places or the path. LOCK_OK;
 * LOCK_UNAVAILABLE with *why set if another process stays in the section for a second;
 * LOCK_CANCELLED; LOCK_CANT_CREATE if nothing can be locked. */
enum lock_result lock_file_enter(const struct lock_file *file, struct bound bound,
                                 struct errmsg *why);
void lock_file_leave(const struct lock_file *file);

/* flock(2) in this mode. False with errno, EWOULDBLOCK if another process has it. */
bool lock_file_flock(const struct lock_file *file, enum lock_mode mode);

/* Locks the place, or for MODE_EXCLUSIVE all places. False if another process has it. */
bool lock_file_lock_place(const struct lock_file *file, enum lock_mode mode, int place);

/* Unlocks everything, and leaves the section, before the file is closed: a process that
 * the close wakes finds the lock free. */
void lock_file_unlock(const struct lock_file *file);

/* Locks of waiters belong to queue.c: they begin at this byte. */
#define LOCK_FILE_QUEUE (INT64_C(1) << 61)

/* Locks these bytes (F_WRLCK), or unlocks them (F_UNLCK). False if another process has
 * some of them. */
bool lock_file_set(const struct lock_file *file, short type, int64_t start, int64_t length);

/* True if another process has a lock there that would keep out `type`: *lock is then one
 * of these locks. False with errno: 0 if there is none, otherwise the error that
 * prevented finding out. */
bool lock_file_find(const struct lock_file *file, short type, int64_t start, int64_t length,
                    struct flock *lock);

enum place_lock { PLACE_UNLOCKED, PLACE_LOCKED, PLACE_ALL_LOCKED };

struct lock_place {
    int number;
    struct bound bound;     /* of going through them */
    enum place_lock locked; /* by another than this open file */
    bool known;             /* there is a record of it */
    bool over;              /* time was up: the other places were not looked at */
    bool unreadable; /* it is unknown whether there is a record, or whether its place is locked */
    struct record record;
};

/* Instead of a place: the record of a pause. */
enum { LOCK_FILE_PAUSE = -1 };

/* Reads the place's record. False with errno: 0 if there is none, otherwise the error that
 * prevented reading it, EBADMSG if it is cut or garbled after its first word. */
bool lock_file_read(const struct lock_file *file, int place, struct record *record);

/* Writes it. LOCK_OK; LOCK_CANT_CREATE, LOCK_INVALID with *why set. */
enum lock_result lock_file_write(const struct lock_file *file, int place,
                                 const struct record *record, struct errmsg *why);

/* Iterates over the places that may have a holder, starting from lock_file_places(). If
 * the bound, or a few seconds, are over, the next place is unreadable, and is the last.
 * False after the last. */
struct lock_place lock_file_places(struct bound bound);
bool lock_file_next_place(const struct lock_file *file, struct lock_place *place);

/* Reads one place, and whether it is locked. */
void lock_file_read_place(const struct lock_file *file, struct lock_place *place);

/* A place that another process has locked by itself; false if there is none. */
bool lock_file_any_holder(const struct lock_file *file, struct lock_place *place);

/* The number of places that may have a record. */
int lock_file_place_count(const struct lock_file *file);

/* The events to report: the holder wants to know when the file is written, the waiter
 * when it is closed by a process; both when it is removed, moved or replaced, or its
 * directory moved. */
enum lock_file_news_for { NEWS_FOR_HOLDER, NEWS_FOR_WAITER };

/* A descriptor that becomes readable at these events (inotify(7)): news_fd, or a new one
 * if it is -1; -1 if this fails. */
int lock_file_news(int news_fd, const struct lock_file *file, enum lock_file_news_for use);

/* The news of the file for a process that watches the lock. */
struct news lock_file_news_of(int news_fd);

/* Reads the news. Returns whether there was any. */
bool lock_file_drain_news(int news_fd);

/* --- rules.c: pure functions of what was read ------------------------------------ */

/* True if the place is held: the deadlines in its record count only if they belong to
 * this boot. A record of a newer format counts as held. */
bool place_is_held(const struct lock_place *place, const char *boot_id);

/* True if its holder is gone, or its lease is over, and it was not released. */
bool place_is_lost(const struct lock_place *place, const char *boot_id);

/* The same of one whose run must be remembered. */
bool place_lost_run(const struct lock_place *place, const char *boot_id);

/* The end of the hold on a place, as far as it can be known. */
struct deadline place_end(const struct lock_place *place);

/* Describes the holder of a place that has a record. */
void place_holder(const struct lock_place *place, const char *boot_id, struct holder *holder);

/* The lease of another process, by its token, and its take if that is known. The place that is
 * held has priority over those that the same token once had; of these the last one taken
 * says what became of the lease. */
struct lease_search {
    enum lock_result result; /* LOCK_GONE at first; LOCK_OK, LOCK_RELEASED */
    struct errmsg why;
    struct lock_place place; /* if it is known */
    bool known;              /* the lease's outcome is written in the file */
    bool others;             /* hold the lock */
    bool unreadable;         /* some of the places */
    int64_t newer;           /* the format of a record that is newer than ours; or 0 */
};

/* Takes in one more place. */
void search_add(struct lease_search *search, const struct lock_place *place,
                const struct lease *lease, const char *boot_id);

/* The holders of a lock file, and whether a request may join them: the rules of the
 * modes.
 *
 *   An exclusive request waits for all holders, and all requests wait for an exclusive
 *     holder. Shared goes with shared alone; slots go with slots, if both give the same
 *     total.
 *   The holders set the mode in force. While the first waiter wants another mode, no
 *     further holder is admitted, so that the last holder eventually leaves.
 *   An owner token holds a lock at most once.
 *   No process joins holders of another format (lock/format.h). */
enum { PLACES_MAPPED = 8 * (LOCK_RECORD_SIZE - LOCK_RECORD_MOST) };
struct place_map {
    unsigned char bits[PLACES_MAPPED / 8]; /* a bit for each of the first places */
};
void place_map_set(struct place_map *map, int place, bool taken);

struct survey {
    int held;                      /* the number of holders, not counting our own place */
    int released;                  /* released, but unaware of it: their places are still locked */
    struct lock_place first, last; /* those of them whose lease ends first and last */
    struct place_map taken;        /* the places that are locked or held */
    bool acquired;                 /* there is the record of a detached lease */
    bool lost;                     /* there are records of runs that were lost */
    bool unreadable;               /* of some it is not known whether they hold it */
    bool same_token;               /* one of them has the token that was asked about */
    struct pause pause;            /* left 0: none */
    int64_t newer;                 /* the format of a record that is newer than ours; or 0 */
    int free_place;                /* the lowest place that is neither locked nor held; -1: none */
};

/* Takes in one more place, in the order of their numbers. `own`: our own place, or -1. */
void survey_add(struct survey *survey, const struct lock_place *place, int own, const char *boot_id,
                const char *token);

/* True if the lock is held in a mode that several share, and that would have to end
 * before the request could be granted. */
bool survey_conflicts(const struct survey *survey, enum lock_mode mode, int slots);

/* True if there is room for one more in this mode, for any owner, and no pause. */
bool survey_has_room(const struct survey *survey, enum lock_mode mode, int slots);

/* True if the request may be granted; other waiters are not considered. */
bool survey_admits(const struct survey *survey, const struct lock_request *request);

/* Describes a holder that blocks the request: the one it has to wait for if no other
 * releases sooner. */
void survey_holder(const struct survey *survey, const struct lock_request *request,
                   struct holder *holder);

/* The waiters for a lock, in order of arrival. Each has a ticket: a number, higher than
 * those of all present waiters, under which it has bytes of the lock file locked. The
 * lowest number is the head.
 *
 * The head has two seconds to act. The memory has a word about it, which every process
 * updates when it sees something new; a head that has lost its turn
 * joins the end of the queue when it runs again. */
struct ticket {
    int64_t number; /* 0: none */
    enum lock_mode mode;
    int slots;
};

/* Whose turn it is, as the word says. */
struct turn {
    uint64_t word;  /* as it was read */
    int64_t number; /* the head's, which it is about */
    bool lost;      /* it has lost its turn */
    bool room;      /* there was room for it; if not, it keeps others out until there is */
    uint32_t ms;    /* since when; 0 if it is lost */
};
#define TURN_MS_MASK ((UINT32_C(1) << 31) - 1)
struct turn turn_read(uint64_t word);
uint64_t turn_word(int64_t number, bool room, uint32_t ms);

/* The lowest number that counts. */
int64_t turn_floor(const struct turn *known);

/* How long after its beginning a turn ends: of the head, and of the waiter `place` behind it
 * that has not marked it. Each waiter looks more often than that. */
enum { TURNS = 2 };
struct duration turn_length(int place);

/* The news for the memory's word if a process finds the waiter `next` before it, the place-th. */
enum turn_step {
    TURN_LASTS,   /* nothing: it is the turn of that one */
    TURN_BEGINS,  /* the turn of that one begins now */
    TURN_PASSES,  /* all before that one have lost their turn: its own begins with the next look */
    TURN_IS_OVER, /* nothing yet: the turn of that one is over, too, and the one behind it counts */
};
struct waiter_seen {
    int place; /* 0: the head */
    const struct ticket *head, *next;
    bool room;             /* there is room for the head */
    bool marked;           /* next has marked this turn: it lives */
    struct duration since; /* how long the turn has lasted */
};
enum turn_step turn_step(const struct turn *known, const struct waiter_seen *seen);

/* --- memory.c: the table beside the lock files ----------------------------------------- */

/* One file for each directory and user, which processes share as a map of atomics. There is
 * no critical section that a frozen or killed process could leave locked.
 *
 * It has room for 1,024 locks. When it is full, the entry that was unused for the longest
 * time is replaced, and its counts are forgotten; locks that remember a run go last, and
 * those never whose run once_per needs: then a new lock has no entry. Nothing that must be
 * right depends on it but the fence, which is common to all locks, and once_per. */
enum { MEMORY_ENTRIES = 1024, RELEASES_KEPT = 6 };

/* Zero is "not yet" in all of it, so that a file of zeros is an empty table. */
struct memory_entry {
    _Atomic uint64_t key; /* the hash of the lock's key; 0: a free place */
    _Atomic int64_t used; /* wall clock, ms */
    _Atomic int64_t takes, conflicts, timeouts, losses, waited_ms, held_ms;
    _Atomic int64_t fence, released_wall_ms;
    _Atomic uint64_t turn; /* struct turn; 0: nothing is known */
    _Atomic uint64_t releases;
    char owner[64]; /* the last owner's token, if it is short enough */
    struct {
        _Atomic uint64_t token, take, forced; /* forced: 1: by --force-release */
    } released[RELEASES_KEPT];                /* a ring: `releases` counts on */
    char forcer[80];                          /* of the last --force-release, cut */
};

/* The runs of a lock: one process writes them, the holder in the section of the
 * lock file, while any process may read them. Zeros are an empty slot. */
struct run_slot {
    uint64_t sum; /* of all that follows `skipped` */
    _Atomic uint64_t skipped;
    uint64_t hash;      /* of the lock's key */
    int64_t kept_until; /* wall clock, ms */
    int64_t failures, runs;
    char text[976]; /* key, last run, last success, its fence, until when it is needed; each ends
                       in NUL; "": not kept, or not known */
};

struct memory_map;
struct memory {
    struct memory_map *map; /* NULL: not open */
    int fd;                 /* if there is a map */
    bool writable;
    int64_t newer;            /* the format of the table, if that is newer than ours; or 0 */
    struct memory_entry none; /* instead of one for which there is no room */
};

/* Opens the table of this directory: read-write, created if it is missing or is not a
 * valid table; or read-only. A table that is open stays as it is if that is sufficient.
 * Entries that were found before are no longer valid. LOCK_OK; LOCK_GONE if there is none to
 * read, LOCK_INVALID if it has a newer format, LOCK_CANT_CREATE, LOCK_REFUSED, LOCK_SYSTEM,
 * with *why set. */
enum lock_result memory_open(struct memory *memory, const struct lock_dir *dir, bool make,
                             struct errmsg *why);

void memory_close(struct memory *memory);

/* The next fence of the directory: max(last + 1, the wall clock in microseconds). LOCK_OK;
 * LOCK_CANT_CREATE with *why set. */
enum lock_result memory_next_fence(const struct memory *memory, int64_t *fence, struct errmsg *why);

/* The entry of this key; `make` creates it if necessary. If there is none, no room for one,
 * or the table is not open or was cut short: an empty one that no other process sees. It must not be
 * kept: using it after the file was cut short is a SIGBUS. */
struct memory_entry *memory_entry(struct memory *memory, const char *key, bool make);

/* The slot with the runs of the entry's lock; `make` allocates the slot if
 * necessary. NULL if there is none, no entry, or the disk is full. As short-lived as an entry. */
struct run_slot *memory_slot(const struct memory *memory, const struct memory_entry *entry,
                             bool make);

/* The next key, from *number on (first 0), that remembers a run. False after the last. */
bool memory_next_run(const struct memory *memory, size_t *number, char key[LOCK_KEY_SIZE]);

/* A take after a wait of this length. */
void entry_taken(struct memory_entry *entry, const char *token, int64_t fence,
                 struct duration waited);

/* The lock could not be acquired: at once, or by the end of a wait. */
void entry_refused(struct memory_entry *entry, bool had_waited, struct duration waited);

/* Released with its own token by the process that took it `held` ago. The last few
 * releases are remembered. */
void entry_released(struct memory_entry *entry, const char *token, const char *take_id,
                    struct duration held);

/* "USER@HOST" is about to take this one away by force: remembered as releases are. */
void entry_mark_forced(struct memory_entry *entry, const char *token, const char *take_id,
                       const char *by);

/* True if this take, or any take with this token if its id is "", was released; or with
 * `by`, which says who last took this lock away, was taken away by force. */
bool entry_has_ended(const struct memory_entry *entry, const char *token, const char *take_id,
                     char by[FORCER_SIZE]);

/* What has become of a lease that no record knows: LOCK_RELEASED; LOCK_FOREIGN if `others` hold the
 * lock, LOCK_GONE; with *why set. */
enum lock_result entry_outcome(const struct memory_entry *entry, const struct lease *lease,
                               bool others, struct errmsg *why);

/* Sets the turn only if it is still `from`: false if it is not. */
bool entry_set_turn(struct memory_entry *entry, uint64_t from, uint64_t to);

/* Fills in the counts and what is known of the last take and release. */
void entry_read(const struct memory_entry *entry, struct lock_state *state);

/* The runs of the key with this hash. False, with *runs empty but for the
 * skips: nothing, or another key's, or its time is over, or it is torn. `key` (may be
 * NULL) is "" if it was too long to be kept. `slot` may be NULL everywhere: none. */
bool run_slot_read(const struct run_slot *slot, uint64_t hash, struct run_memory *runs,
                   char key[LOCK_KEY_SIZE]);

/* Remembers it for that long from now; 0: empties the slot. */
void run_slot_write(struct run_slot *slot, uint64_t hash, const char *key,
                    const struct run_memory *runs, struct duration remember);

/* Counts a run that was skipped. */
void run_slot_skipped(struct run_slot *slot, uint64_t hash);

/* Adds the run of this record, unless it was added last. */
void runs_take_in(struct run_memory *runs, const struct record *record, const struct run_end *end);

/* A number that represents the text (FNV-1a, never 0). */
uint64_t text_hash(const char *text);

/* --- store.c: a directory of locks --------------------------------------------------- */

struct store {
    struct lock_dir dir;
    struct memory memory;
    char boot_id[sizeof((struct holder *)0)->boot_id]; /* "": not read yet */
    bool unrecorded;                                   /* there was no room to record a run */
    char text[LOCK_RECORD_MOST];                       /* of its files: one at a time */
};

void store_close(struct store *store);

/* Opens the directory that is at the path now, if that is another one, or makes it. Results
 * of lock_dir_open(). */
enum lock_result store_renew(struct store *store, struct errmsg *why);

/* The file of this lock, not open. */
void store_file(struct store *store, struct lock_file *file, const char *key);

/* The boot that deadlines written now belong to. */
const char *store_boot_id(struct store *store);

/* The memory's entry of the lock; `make` starts an entry if there is none. Never NULL. */
struct memory_entry *store_entry(struct store *store, const char *key, bool make);

/* Opens a lock's file, to look at it, or to change it or make it: then in its section.
 * Results of lock_file_open() and lock_file_enter(); in any case the file may be open. */
enum lock_result store_open_file(struct store *store, struct lock_file *file, const char *key,
                                 enum lock_file_use use, struct bound bound, struct errmsg *why);

/* Looks at all places but `own` (-1: none), as far as the bound allows. */
void store_survey(struct store *store, const struct lock_file *file, const char *token, int own,
                  struct bound bound, struct survey *survey);

/* In the section: notes which places are taken, if there are many, for store_survey_one(). */
void store_write_map(const struct lock_file *file, const struct survey *survey);
void store_note_place(const struct lock_file *file, int place, bool taken);

/* If there are many places, and one holder with its own place is found: all have its mode,
 * and `held`, `first` and `last` are about this one alone. False: all places must be looked
 * at. */
bool store_survey_one(struct store *store, const struct lock_file *file, int own,
                      struct survey *survey);

/* In the section: true if the lock has no holder but the place `own` (-1: none), and no
 * pause. */
bool store_unheld(struct store *store, const struct lock_file *file, int own, struct bound bound);

/* Iterates over the other default directories that exist and may be used, from
 * LOCK_DIR_BEFORE_ALL on: /run/lock may have come or gone while locks were held there. None if
 * the directory was given. False after the last. */
#define LOCK_DIR_BEFORE_ALL ((struct lock_dir){.fd = -1, .place = (enum lock_dir_place) - 1})
bool store_next_other(const struct store *store, struct lock_dir *other);

/* True with *why set if the lock has a holder, or is paused, in one of them. */
bool store_held_elsewhere(struct store *store, const char *key, struct bound bound,
                          struct errmsg *why);

/* In the section: removes the file, if the path still leads to it. False with errno if
 * the directory is no longer writable: then the file stays behind, and the next holder
 * takes it over. */
bool store_remove(struct lock_file *file);

/* In the section: removes the file, if the lock has no holder and no waiter, and is not
 * locked. */
void store_tidy(struct store *store, struct lock_file *file, struct bound bound);

/* The runs that the lock remembers, with those that were lost and whose records are in the file
 * (NULL: no file). */
void store_read_runs(struct store *store, const char *key, const struct lock_file *file,
                     struct bound bound, struct run_memory *runs);

/* In the section, before the record goes: the run of this record has ended; RUN_NONE:
 * nothing has run. A run is recorded once; if there is no room, store->unrecorded. */
void store_add_run(struct store *store, const struct record *record, const struct run_end *end);

/* In the section, before records in the file go: records the runs that were lost, or with
 * `all` loses those that have not ended, too. */
void store_lose_runs(struct store *store, const struct lock_file *file, bool all,
                     struct bound bound);

/* --- queue.c: waiters ------------------------------------------------------------------ */

/* Runs a blocking fcntl(2) or flock(2) call in a helper thread, which exists only during a
 * wait for others, and has ended before any other thread begins. The call returns 0: the
 * wait has succeeded; EINTR: call again; any other errno: waiting is impossible. */
typedef int blocking_call(int fd, int64_t argument);

struct blocking {
    bool running;
    int over_fd; /* while the thread runs: readable when the wait is over */
    pthread_t thread;
    struct sigaction old; /* of the signal that cancels the thread's call */
    /* The thread's: */
    blocking_call *call;
    int fd;
    int64_t argument;
    atomic_bool cancelled;
    int error; /* once it has ended */
};

/* Starts waiting: call(fd, argument), in a thread. False: no thread can be created. The
 * descriptor must stay open until the wait is over or stopped. */
bool blocking_start(struct blocking *wait, blocking_call *call, int fd, int64_t argument);

/* True if the thread has come to its end. */
bool blocking_has_ended(const struct blocking *wait);

/* True if the wait is over; then *wait is as before the start, and *error is the call's
 * result. */
bool blocking_is_over(struct blocking *wait, int *error);

/* Cancels the wait, if it runs. True: it had already succeeded. */
bool blocking_stop(struct blocking *wait);

struct waiter {
    int news_fd; /* inotify; -1: none */
    bool hears;  /* it reports events of the file that is waited for */
    struct ticket ticket;
    struct blocking behind; /* waits for the one before us to leave */
    int64_t behind_number;  /* that is this one */
    int asked;        /* how often we have asked since a process closed the file; 0: that is over */
    struct call call; /* the next answer, except for later events */
};

/* Called before the lock is asked for again: a waiter that has lost its turn joins the
 * end of the queue. */
void waiter_ask(struct waiter *waiter, struct lock_file *file, struct memory_entry *entry,
                const struct lock_request *request);

/* The request was refused: finds its place in the queue, and makes sure that it is woken.
 * `ends`: when the lock may be free. Returns whether it is the head. */
bool waiter_wait(struct waiter *waiter, const struct lock_file *file, struct memory_entry *entry,
                 const struct lock_request *request, struct deadline ends);

/* The request was refused because its own owner token holds the lock, though there is
 * room for others: it waits without blocking others, and joins the queue later. */
void waiter_wait_aside(struct waiter *waiter, const struct lock_file *file, struct deadline ends);

/* As listen() of struct backend. */
struct call waiter_listen(struct waiter *waiter);

/* Stops waiting in this file; the ticket goes with the file, or by queue_leave(). */
void waiter_stop(struct waiter *waiter);

void queue_leave(const struct lock_file *file, struct ticket *own);

/* True if no earlier waiter that there is room for comes before this one (number 0: not a
 * waiter; then all come before it). Such an earlier waiter is noted for its two seconds,
 * and passed over once they are up; so are, a second later, those right behind it that
 * have not looked since. */
bool queue_lets(const struct lock_file *file, struct memory_entry *entry, const struct ticket *own,
                const struct survey *survey);

bool queue_is_empty(const struct lock_file *file);

/* The first waiters: at most so many. Returns how many these are. */
size_t queue_list(const struct lock_file *file, struct ticket *tickets, size_t most);

/* The number of waiters before this one (its number 0: of all). */
int queue_count(const struct lock_file *file, const struct memory_entry *entry,
                const struct ticket *own);

/* --- locks in a directory: dir_backend.c, lease.c, look.c -------------------------------- */

struct dir_backend {
    struct backend base;
    struct store store;
    struct lock_file file; /* the file that we hold, or wait for */
    int place;             /* our place in it; -1: we hold nothing */
    struct waiter waiter;
    int left_fd; /* the file that we waited for before: waiters behind us in it come after us; -1: none */
    struct run_record done; /* refused by once_per: the last success */
    struct survey survey;   /* of the call in progress: 9 kB, too much for a stack */
    bool reserved;          /* refused only because others have waited longer */
    bool watched;           /* the waiter's notifications are about the file that we hold */
};

static inline struct dir_backend *dir_backend_of(struct backend *backend)
{
    return (struct dir_backend *)(void *)backend;
}

/* As in struct backend, for the file that we hold, or for a lease that another process took,
 * by its token. */
enum lock_result dir_check(struct backend *base, struct lease *lease, struct bound bound,
                           struct errmsg *why);
enum lock_result dir_extend(struct backend *base, struct lease *lease, enum extend_how how,
                            struct bound bound, struct errmsg *why);
enum lock_result dir_release(struct backend *base, const struct lease *lease, struct bound bound,
                             struct errmsg *why);

/* Unlocks and closes the file that we hold, or wait for; its contents stay. */
void dir_let_go(struct dir_backend *backend);

/* As in struct backend, regardless of the holder. A look locks nothing; a list skips files
 * that are not lock files of dlock's, or are another user's. */
enum lock_result dir_look(struct backend *base, const char *key, struct lock_state *state,
                          struct bound bound, struct errmsg *why);
enum lock_result dir_force_release(struct backend *base, const char *key, struct lock_state *was,
                                   struct bound bound, struct errmsg *why);
enum lock_result dir_pause(struct backend *base, const char *key, const struct pause *pause,
                           struct bound bound, struct errmsg *why);
enum lock_result dir_list(struct backend *backend, const struct listing *listing,
                          struct bound bound, struct errmsg *why);

/* --- proc_locks.c: the holders of flock(2) locks on a file, from /proc/locks -------------- */

/* An open file as the kernel names it there. stat(2) may give another device (btrfs,
 * overlayfs), or another inode. */
struct flock_file {
    int fd;
    uint64_t device, inode;
    bool asked; /* the device is the kernel's, not stat(2)'s */
};

struct flock_holder {
    pid_t pid; /* the process that called flock(2): it may have ended, and its pid may be reused */
    bool shares; /* LOCK_SH */
};

/* The locks on the file behind an open descriptor, even one opened with O_PATH, which *file
 * is then. Each belongs to an open file, which other processes may have inherited, but is
 * listed under the process that took it. In a pid namespace other than the first, the kernel
 * omits those whose pid is not visible there. Returns the number of entries in `holders`. */
size_t proc_locks_holders(int fd, struct flock_file *file, struct flock_holder *holders,
                          size_t room);

/* True if the process of *holder has a lock on this file now, through any of its open files
 * but `except` (-1: none), also one that another process took; sets what kind it is. False
 * too if we may not look at them. */
bool proc_locks_is_held_by(struct flock_file *file, struct flock_holder *holder, int except);

#endif
