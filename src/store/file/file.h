/* One lock file: the kernel's locks on it, and the records in it.
 *
 * A lock has places. An exclusive holder has all of them and any other holder has one;
 * holders of slots have the place of their slot's number. The record of a place is at
 * place * LOCK_RECORD_SIZE; the exclusive holder's is at 0, and that of a pause at
 * LOCK_PAUSE_OFFSET. In addition flock(2) is held
 * on the file, exclusive or shared, so that flock(1) and lslocks(8) see what is going on.
 *
 * The locks beyond the end of the file are open file description locks (fcntl(2)): like
 * those of flock(2) they belong to the open file, survive a fork, and are freed by the
 * kernel. They can be inspected without taking any, so that looking blocks no other
 * process. */
#ifndef DLOCK_STORE_FILE_FILE_H
#define DLOCK_STORE_FILE_FILE_H

#include "lock/result.h"
#include "store/backend.h"
#include "store/file/dir.h"
#include "store/file/record.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { LOCK_PLACES_MOST = 1 << 20 };

#define LOCK_FILE_PATH_SIZE (sizeof((struct lock_dir *)0)->path + LOCK_FILE_NAME_SIZE)

struct lock_file {
    char path[LOCK_FILE_PATH_SIZE];
    bool follow; /* links are allowed in the path */
    int fd;      /* -1: not open */
    off_t size;  /* when the path was last known to lead to it */
};

enum lock_file_use { LOCK_FILE_TO_LOOK, LOCK_FILE_TO_CHANGE, LOCK_FILE_TO_TAKE };

/* Opens the file; to take the lock, it is created if it is missing. LOCK_OK; LOCK_GONE:
 * there is no file; LOCK_REFUSED, LOCK_SYSTEM, LOCK_CANT_CREATE with *why set. */
enum lock_result lock_file_open(struct lock_file *file, enum lock_file_use use, struct errmsg *why);

/* Releases all locks on it, too. */
void lock_file_close(struct lock_file *file);

/* LOCK_OK: the path still leads to the open file; LOCK_GONE; LOCK_UNAVAILABLE with errno: that
 * could not be found out. */
enum lock_result lock_file_standing(struct lock_file *file);

/* The same with *why set, unless it is LOCK_OK. */
enum lock_result lock_file_verify(struct lock_file *file, struct errmsg *why);

/* --- the section: exclusive access for changes to records, places or the path ---- */

/* LOCK_OK; LOCK_UNAVAILABLE with *why set if another process stays in the section for a
 * second; LOCK_CANCELLED; LOCK_CANT_CREATE if nothing can be locked. */
enum lock_result lock_file_enter(const struct lock_file *file, struct bound bound,
                                 struct errmsg *why);
void lock_file_leave(const struct lock_file *file);

/* --- locks of holders and waiters ------------------------------------------- */

/* flock(2) in this mode. False with errno, EWOULDBLOCK if another process has it. */
bool lock_file_flock(const struct lock_file *file, enum lock_mode mode);

/* Locks the place, or for MODE_EXCLUSIVE all places. False if another process has it. */
bool lock_file_lock_place(const struct lock_file *file, enum lock_mode mode, int place);

/* Unlocks everything, and leaves the section, before the file is closed: a process that
 * the close wakes finds the lock free. */
void lock_file_unlock(const struct lock_file *file);

/* Locks of waiters belong to store/file/ticket_queue.c: they begin at this byte. */
#define LOCK_FILE_QUEUE (INT64_C(1) << 61)

/* Locks these bytes (F_WRLCK), or unlocks them (F_UNLCK). False if another process has
 * some of them. */
bool lock_file_set(const struct lock_file *file, short type, int64_t start, int64_t length);

/* True if another process has a lock there that would keep out `type`: *lock is then one
 * of these locks. False with errno: 0 if there is none, otherwise the error that
 * prevented finding out. */
bool lock_file_find(const struct lock_file *file, short type, int64_t start, int64_t length,
                    struct flock *lock);

/* --- places ------------------------------------------------------------------ */

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

/* Where the record of a pause is, instead of a place's. */
enum { LOCK_FILE_PAUSE = -1 };

/* Reads the place's record. False with errno: 0 if there is none, otherwise the error that
 * prevented reading it, EBADMSG if it is cut or garbled behind its first word. */
bool lock_file_read(const struct lock_file *file, int place, struct record *record);

/* Writes it. LOCK_OK; LOCK_CANT_CREATE, LOCK_INVALID with *why set. */
enum lock_result lock_file_write(const struct lock_file *file, int place,
                                 const struct record *record, struct errmsg *why);

/* Iterates over the places that may have a holder, starting from lock_file_places(). If
 * the bound, or a few seconds, are over, the next place is unreadable, and is the last.
 * False after the last. */
struct lock_place lock_file_places(struct bound bound);
bool lock_file_next_place(const struct lock_file *file, struct lock_place *place);

/* A guess at the places that are taken: where there are many, most takes need not look at
 * all of them. */
enum { PLACES_MAPPED = 8 * (LOCK_RECORD_SIZE - LOCK_RECORD_MOST) };
struct place_map {
    unsigned char bits[PLACES_MAPPED / 8];
};
bool lock_file_has_many(const struct lock_file *file);
void place_map_set(struct place_map *map, int place, bool taken);

/* In the section: all of it; or of one place, if there are many. */
void lock_file_write_map(const struct lock_file *file, const struct place_map *map);
void lock_file_note_place(const struct lock_file *file, int place, bool taken);

/* A place that another process has locked by itself; false if there is none. */
bool lock_file_any_holder(const struct lock_file *file, struct lock_place *place);

/* A place that is neither locked nor held, the lowest one in the map. -1: all places must be
 * looked at. */
int lock_file_free_place(const struct lock_file *file, const char *boot_id);

/* True if the place is held: the deadlines in its record count only if they belong to
 * this boot. A record of a newer format counts as held. */
bool lock_place_held(const struct lock_place *place, const char *boot_id);

/* True if its holder is gone, or its lease is over, and it was not released. */
bool lock_place_lost(const struct lock_place *place, const char *boot_id);

/* The end of the hold on a place, as far as it can be known. */
struct deadline lock_place_end(const struct lock_place *place);

/* --- news --------------------------------------------------------------------- */

/* The events to report: the holder wants to know when the file is written, the waiter
 * when it is closed by a process; both when it is removed, moved or replaced, or its
 * directory moved. */
enum lock_file_news_for { NEWS_FOR_HOLDER, NEWS_FOR_WAITER };

/* A descriptor that becomes readable at these events (inotify(7)): news_fd, or a new one
 * if it is -1; -1 if this fails. */
int lock_file_news(int news_fd, const struct lock_file *file, enum lock_file_news_for use);

/* The news of the file for a process that watches the lock. */
struct news lock_file_news_of(int news_fd);

/* Whether there were any. */
bool lock_file_drain_news(int news_fd);

#endif
