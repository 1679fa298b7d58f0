/* One lock file: what the kernel locks in it, and the records that it holds.
 *
 * A lock has places, of which an exclusive holder has all and any other holder
 * one; those who share a lock in slots have the place of their slot's number.
 * The record of a place stands at place * LOCK_RECORD_SIZE; the exclusive one's
 * at 0. Besides there is flock(2) on the file, exclusive or shared, so that
 * flock(1) and lslocks(8) see what is going on.
 *
 * What is locked beyond the end of the file are open file description locks
 * (fcntl(2)): like those of flock(2) they belong to the open file, outlive a
 * fork, and are freed by the kernel. And they can be looked at without taking
 * any, so that who looks is in nobody's way. */
#ifndef DLOCK_STORE_FILE_FILE_H
#define DLOCK_STORE_FILE_FILE_H

#include "store/backend.h"
#include "store/file/record.h"
#include "util/errmsg.h"
#include "util/exit_status.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { LOCK_PLACES_MOST = 1 << 20 };

struct lock_file {
    const char *path; /* the caller's */
    bool follow;      /* links may stand in the path */
    int fd;           /* -1: not open */
    off_t size;       /* when it was last opened or found to stand */
};

enum lock_file_use { LOCK_FILE_TO_LOOK, LOCK_FILE_TO_CHANGE, LOCK_FILE_TO_TAKE };

/* Opens it; to take it, it is made where it is not there. LOCK_OK; LOCK_GONE:
 * there is none; LOCK_REFUSED, LOCK_SYSTEM, LOCK_CANT_CREATE with *why set. */
enum lock_result lock_file_open(struct lock_file *file, enum lock_file_use use, struct errmsg *why);

/* Lets go of all that is locked in it, too. */
void lock_file_close(struct lock_file *file);

/* Whether the path still leads to the file that is open. */
enum lock_file_standing {
    LOCK_FILE_STANDS,
    LOCK_FILE_GONE,
    LOCK_FILE_UNKNOWN, /* could not be found out: errno */
};
enum lock_file_standing lock_file_standing(struct lock_file *file);

/* The same as a result: LOCK_OK; LOCK_GONE or LOCK_UNAVAILABLE with *why set. */
enum lock_result lock_file_verify(struct lock_file *file, struct errmsg *why);

/* --- the section: who changes records, places or the path is alone in it ---- */

/* LOCK_OK; LOCK_UNAVAILABLE with *why set where somebody stays in it for a
 * second; LOCK_CANCELLED; LOCK_CANT_CREATE where nothing can be locked. */
enum lock_result lock_file_enter(const struct lock_file *file, struct bound bound,
                                 struct errmsg *why);
void lock_file_leave(const struct lock_file *file);

/* --- locks of holders and waiters ------------------------------------------- */

/* flock(2) in this mode. False with errno, EWOULDBLOCK where another has it. */
bool lock_file_flock(const struct lock_file *file, enum lock_mode mode);

/* Locks the place, or for MODE_EXCLUSIVE all. False where another has it. */
bool lock_file_lock_place(const struct lock_file *file, enum lock_mode mode, int place);

/* Unlocks all of it, and leaves the section, before the file is closed: who is
 * woken by that finds the lock free. */
void lock_file_unlock(const struct lock_file *file);

/* What those who wait have locked is store/file/ticket_queue.c's: it begins at this byte. */
#define LOCK_FILE_QUEUE (INT64_C(1) << 61)

/* Locks these bytes (F_WRLCK), or unlocks them (F_UNLCK). False where another
 * has some of them. */
bool lock_file_set(const struct lock_file *file, short type, int64_t start, int64_t length);

/* Whether another has something locked there that would keep out `type`: *lock is
 * then one of the locks. False with errno: 0 where nobody has, else it could not
 * be found out. */
bool lock_file_find(const struct lock_file *file, short type, int64_t start, int64_t length,
                    struct flock *lock);

/* --- places ------------------------------------------------------------------ */

enum place_lock { PLACE_UNLOCKED, PLACE_LOCKED, PLACE_ALL_LOCKED };

struct lock_place {
    int number;
    struct bound bound;     /* of going through them */
    enum place_lock locked; /* by another than this open file */
    bool known;             /* there is a record of it */
    bool over;              /* time was up: the others were not looked at */
    bool unreadable;        /* nobody knows whether there is one, or whether it is locked */
    struct record record;
};

/* Reads the place's record. False where there is none, a garbled one, or one that
 * cannot be read. */
bool lock_file_read(const struct lock_file *file, int place, struct record *record);

/* Writes it. LOCK_OK; LOCK_CANT_CREATE, LOCK_INVALID with *why set. */
enum lock_result lock_file_write(const struct lock_file *file, int place,
                                 const struct record *record, struct errmsg *why);

/* Goes through the places that may have a holder, from lock_file_places(). Where the
 * bound, or a few seconds, are over, the next place is unreadable, and the last. False
 * after the last. */
struct lock_place lock_file_places(struct bound bound);
bool lock_file_next_place(const struct lock_file *file, struct lock_place *place);

/* Whether the place is held: the boot that the deadlines in its record belong
 * to has to be this one. */
bool lock_place_held(const struct lock_place *place, const char *boot_id);

/* Until when a place that is held is, as far as can be known. */
struct deadline lock_place_end(const struct lock_place *place);

/* --- news --------------------------------------------------------------------- */

/* What is to be told of: who holds the lock wants to know when the file is
 * written, who waits for it when somebody closes it; both when it is removed,
 * moved or replaced, or its directory moved. */
enum lock_file_news_for { NEWS_FOR_HOLDER, NEWS_FOR_WAITER };

/* A descriptor that becomes readable then (inotify(7)), or news_fd (-1: none)
 * made such a one; -1 where that is not to be had. */
int lock_file_news(int news_fd, const struct lock_file *file, enum lock_file_news_for use);

/* What there is to say of it to who watches the lock. */
struct news lock_file_news_of(int news_fd);

/* Whether there were any. */
bool lock_file_drain_news(int news_fd);

#endif
