#include "store/file/file_int.h"

#include "util/fileutils.h"
#include "util/message.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The bytes that processes lock: one for the critical section of the file, then one for each place.
 * Nothing is ever written at these offsets. */
#define SECTION_BYTE (INT64_C(1) << 60)
#define FIRST_PLACE (SECTION_BYTE + (INT64_C(1) << 32))
_Static_assert(sizeof(off_t) == sizeof(int64_t), "bytes so far from the beginning can be locked");

/* How long others wait for a process in the critical section of the lock file. The work there takes
 * far less than a millisecond, unless the process is frozen. */
static const struct duration section_limit = {1 * NS_PER_S};

static const struct duration places_limit = {3 * NS_PER_S};

/* --- opening --------------------------------------------------------------- */

/* If a regular file belongs to another user, describes that user in `into`; otherwise sets `into`
 * to "". Returns `into`. */
static const char *whose(const struct stat *status, char *into, size_t size)
{
    char name[USER_NAME_SIZE];
    *into = '\0';
    if (S_ISREG(status->st_mode) && status->st_uid != geteuid())
        snprintf(into, size,
                 "; the file belongs to user %.100s; use --lock-file=PATH or Redis for locks of "
                 "several users",
                 user_name(status->st_uid, name, sizeof name));
    return into;
}

/* Reports who owns the file, because lock files have mode 0600, and in a sticky directory the
 * kernel may refuse to open another user's file even for root (fs.protected_regular). */
static enum lock_result cannot_open(const char *path, int error, struct errmsg *why)
{
    struct stat status = {0};
    char owner[256];
    if (error != EACCES || lstat(path, &status) != 0)
        status = (struct stat){0};
    return errmsg_fail(why, file_error_result(error), "cannot open the lock file %.300s: %s%s",
                       path, strerror(error), whose(&status, owner, sizeof owner));
}

enum lock_result lock_file_open(struct lock_file *file, enum lock_file_use use, struct errmsg *why)
{
    static const int flags[] = {
        [LOCK_FILE_TO_LOOK] = O_RDONLY,
        [LOCK_FILE_TO_CHANGE] = O_RDWR,
        [LOCK_FILE_TO_TAKE] = O_RDWR | O_CREAT,
    };
    struct stat status = {0};
    char owner[256];
    file->fd = file_open(AT_FDCWD, file->path, flags[use] | O_NOFOLLOW, &status);
    if (file->fd < 0) {
        int error = errno;
        enum lock_result result = cannot_open(file->path, error, why);
        return error == ENOENT && use != LOCK_FILE_TO_TAKE ? LOCK_GONE : result;
    }
    if (!lock_dir_may_write(&status)) {
        errmsg_set(why, "the lock file %.300s is not a regular file of this user%s%s", file->path,
                   status.st_nlink > 1 ? ", or has several names (hard links)" : "",
                   whose(&status, owner, sizeof owner));
        lock_file_close(file);
        return LOCK_REFUSED;
    }
    file->device = status.st_dev;
    file->inode = status.st_ino;
    file->size = status.st_size;
    return LOCK_OK;
}

void lock_file_close(struct lock_file *file)
{
    fd_close(&file->fd);
    file->inode = 0;
}

enum lock_result lock_file_verify(struct lock_file *file, struct errmsg *why)
{
    struct stat ours = {.st_dev = file->device, .st_ino = file->inode};
    struct stat there;
    int found = file->follow ? stat(file->path, &there) : lstat(file->path, &there);
    bool gone =
        found != 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EACCES);

    if (!gone && (found != 0 || (ours.st_ino == 0 && fstat(file->fd, &ours) != 0)))
        return errmsg_fail(why, LOCK_UNAVAILABLE, "cannot examine the lock file %s: %s", file->path,
                           strerror(errno));
    if (gone || ours.st_dev != there.st_dev || ours.st_ino != there.st_ino)
        return errmsg_fail(why, LOCK_GONE, "the lock file %s was removed or replaced", file->path);
    file->device = ours.st_dev;
    file->inode = ours.st_ino;
    file->size = there.st_size;
    return LOCK_OK;
}

/* --- kernel locks ------------------------------------------------------------ */

bool lock_file_set(const struct lock_file *file, short type, int64_t start, int64_t length)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    return fcntl(file->fd, F_OFD_SETLK, &lock) == 0;
}

bool lock_file_find(const struct lock_file *file, short type, int64_t start, int64_t length,
                    struct flock *lock)
{
    *lock = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    errno = 0;
    return fcntl(file->fd, F_OFD_GETLK, lock) == 0 && lock->l_type != F_UNLCK;
}

enum lock_result lock_file_enter(const struct lock_file *file, struct bound bound,
                                 struct errmsg *why)
{
    struct deadline until = deadline_earlier(deadline_after(section_limit), bound.until);
    struct pollfd cancel = {.fd = bound.cancel_fd, .events = POLLIN};
    struct timespec pause = {.tv_nsec = 50 * NS_PER_US};
    while (!lock_file_set(file, F_WRLCK, SECTION_BYTE, 1)) {
        if (errno != EAGAIN && errno != EACCES)
            return errmsg_fail(why, LOCK_CANT_CREATE, "cannot lock %s: %s", file->path,
                               strerror(errno));
        if (deadline_passed(until))
            return errmsg_fail(
                why, LOCK_UNAVAILABLE,
                "another process began to change the lock file %s and has not finished",
                file->path);
        if (ppoll(&cancel, 1, &pause, NULL) > 0)
            return LOCK_CANCELLED;
        if (pause.tv_nsec < 5 * NS_PER_MS)
            pause.tv_nsec *= 2;
    }
    return LOCK_OK;
}

void lock_file_leave(const struct lock_file *file)
{
    /* Cannot fail: unlocking needs memory only if it splits a lock, and this does not. */
    (void)lock_file_set(file, F_UNLCK, SECTION_BYTE, 1);
}

bool lock_file_flock(const struct lock_file *file, enum lock_mode mode)
{
    return flock(file->fd, (mode == MODE_EXCLUSIVE ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0;
}

bool lock_file_lock_place(const struct lock_file *file, enum lock_mode mode, int place)
{
    if (mode == MODE_EXCLUSIVE)
        return lock_file_set(file, F_WRLCK, FIRST_PLACE, LOCK_PLACES_MOST);
    return lock_file_set(file, F_WRLCK, FIRST_PLACE + place, 1);
}

void lock_file_unlock(const struct lock_file *file)
{
    /* The places are unlocked before the flock(2) lock: the next process acquires flock(2), writes
     * its record and then locks its place, which must be unlocked by then. */
    (void)lock_file_set(file, F_UNLCK, FIRST_PLACE, 0); /* all bytes from FIRST_PLACE on */
    (void)flock(file->fd, LOCK_UN);
    lock_file_leave(file);
    int again = open(file->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    fd_close(&again);
}

/* --- records and places ------------------------------------------------------- */

static off_t offset_of(int place)
{
    return place == LOCK_FILE_PAUSE ? LOCK_PAUSE_OFFSET : (off_t)place * LOCK_RECORD_SIZE;
}

/* Reads up to the end of the record, the file or the buffer, whichever comes first. False with
 * errno if the file cannot be read. */
static bool read_text(const struct lock_file *file, int place)
{
    size_t used = 0;
    size_t size = 1024; /* most records are shorter */
    ssize_t length;

    do {
        length = pread(file->fd, file->text + used, size - used, offset_of(place) + (off_t)used);
        used += length > 0 ? (size_t)length : 0;
        file->text[used] = '\0';
        size = LOCK_RECORD_MOST - 1;
    } while (length > 0 && used < LOCK_RECORD_MOST - 1 && !record_is_whole(file->text));
    return length >= 0;
}

bool lock_file_read(const struct lock_file *file, int place, struct record *record)
{
    if (!read_text(file, place))
        return false;

    bool parsed = record_parse(record, file->text);
    errno = !parsed && record_begins(file->text) ? EBADMSG : 0;
    return parsed;
}

enum lock_result lock_file_write(const struct lock_file *file, int place,
                                 const struct record *record, struct errmsg *why)
{
    size_t length = record_format(record, file->text);
    if (length == 0 || (place == LOCK_FILE_PAUSE && length > LOCK_RECORD_MOST - LOCK_PAUSE_OFFSET))
        return errmsg_fail(why, LOCK_INVALID, "the lease record of %s is too long", file->path);

    ssize_t written = pwrite(file->fd, file->text, length, offset_of(place));
    if (written == (ssize_t)length)
        return LOCK_OK;
    return errmsg_fail(why, LOCK_CANT_CREATE, "cannot write the lock file %s: %s", file->path,
                       strerror(written < 0 ? errno : ENOSPC));
}

/* False if the kernel does not say whether the place is locked; then the place counts as locked. */
static bool find_lock(const struct lock_file *file, struct lock_place *place)
{
    struct flock lock;
    if (lock_file_find(file, F_WRLCK, FIRST_PLACE + place->number, 1, &lock))
        place->locked = lock.l_len == 1 ? PLACE_LOCKED : PLACE_ALL_LOCKED;
    else
        place->locked = errno == 0 ? PLACE_UNLOCKED : PLACE_LOCKED;
    return place->locked != PLACE_LOCKED || errno == 0;
}

/* A holder writes its record before it locks its place, and this function looks at the lock before
 * it reads the record. So the record belongs to the process that has locked the place, or to a
 * later one. The read is repeated, because a process may be writing the record at the same time. If
 * the record cannot be read, or the kernel does not say whether the place is locked, the place is
 * `unreadable`. */
void lock_file_read_place(const struct lock_file *file, struct lock_place *place)
{
    enum { TRIES = 3 };
    for (int tries = 0; tries < TRIES; tries++) {
        if (tries > 0)
            (void)poll(NULL, 0, 1);
        bool found = find_lock(file, place), read = read_text(file, place->number);
        place->unreadable = !found || !read;
        place->known = read && record_parse(&place->record, file->text);
        if (!place->unreadable &&
            (place->known || record_is_newer(&place->record) || place->locked == PLACE_UNLOCKED))
            return;
    }
}

int lock_file_place_count(const struct lock_file *file)
{
    off_t most = (file->size + LOCK_RECORD_SIZE - 1) / LOCK_RECORD_SIZE;
    return most < LOCK_PLACES_MOST ? (int)most : LOCK_PLACES_MOST;
}

struct lock_place lock_file_places(struct bound bound, int own)
{
    return (struct lock_place){
        .number = -1,
        .own = own,
        .bound = {deadline_earlier(deadline_after(places_limit), bound.until), bound.cancel_fd}};
}

/* Returns the first place after the hole in the file that begins at place `number`, or `number`
 * itself if there is no hole or if places in the hole are locked. A hole contains no records, but
 * may be gigabytes long. */
static int after_hole(const struct lock_file *file, int number, int places)
{
    struct flock lock;
    off_t data = lseek(file->fd, (off_t)number * LOCK_RECORD_SIZE, SEEK_DATA);
    off_t next = data >= 0 ? data / LOCK_RECORD_SIZE : errno == ENXIO ? places : number;
    int after = next < places ? (int)next : places;
    bool empty = after > number &&
                 !lock_file_find(file, F_WRLCK, FIRST_PLACE + number, after - number, &lock) &&
                 errno == 0;
    return empty ? after : number;
}

bool lock_file_next_place(const struct lock_file *file, struct lock_place *place)
{
    enum { LOOK_UP = 64 }; /* check the clock after this many places */
    int places = lock_file_place_count(file);
    bool first = place->number < 0, over = place->over;
    if (over || (!first && place->locked == PLACE_ALL_LOCKED))
        return false; /* the records that follow are from earlier holders */
    place->number++;
    if (!first && place->number < places && place->locked == PLACE_UNLOCKED && !place->known)
        place->number = after_hole(file, place->number, places);
    if (!first && place->number >= places)
        return false;
    place->over = place->number % LOOK_UP == LOOK_UP - 1 &&
                  (deadline_passed(place->bound.until) || bound_is_cancelled(place->bound));
    if (place->over) {
        place->number = places; /* *place represents all remaining places */
        place->unreadable = true;
        place->known = false;
    } else if (place->number == place->own) {
        place->locked = PLACE_UNLOCKED;
        place->unreadable = place->known = false;
        place->record.format = 0;
    } else {
        lock_file_read_place(file, place);
    }
    return true;
}

bool lock_file_any_holder(const struct lock_file *file, struct lock_place *place)
{
    struct flock lock;
    if (!lock_file_find(file, F_WRLCK, FIRST_PLACE, LOCK_PLACES_MOST, &lock) || lock.l_len != 1)
        return false;
    *place = (struct lock_place){.number = (int)(lock.l_start - FIRST_PLACE)};
    lock_file_read_place(file, place);
    return true;
}

/* --- news ----------------------------------------------------------------------- */

/* If the directory is moved, the path no longer leads to the file, but an inotify watch on the file
 * does not report that. The regular checks find what this watch misses: a move of a directory
 * further up, or of a directory that cannot be watched. */
static void watch_directory(int fd, const char *path)
{
    char *copy = strdup(path);
    if (copy == NULL)
        return;
    /* IN_MASK_ADD keeps the events of an existing watch: the locked path may be this directory
     * itself ("/"). */
    (void)!inotify_add_watch(fd, dirname(copy), IN_MOVE_SELF | IN_DELETE_SELF | IN_MASK_ADD);
    free(copy);
}

int lock_file_news(int news_fd, const struct lock_file *file, enum lock_file_news_for use)
{
    char path[64];
    uint32_t change = use == NEWS_FOR_HOLDER ? IN_MODIFY : IN_CLOSE;
    int fd = news_fd >= 0 ? news_fd : inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
    if (fd >= 0 &&
        inotify_add_watch(fd, path, IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF | change) < 0)
        fd_close(&fd);
    if (fd >= 0)
        watch_directory(fd, file->path);
    return fd;
}

/* When an inotify instance is closed for the last time, close(2) waits for up to 20 ms until no
 * processor can see its watches any more. To avoid that wait, dlock puts the instance into the
 * queue of a socket, together with the socket itself. Since Linux 6.9, a kernel thread collects
 * such sockets and closes the instance, too; before Linux 6.9, close(2) waits. If a helper process
 * closed the instance instead, the process could outlive dlock, and would remain as a zombie where
 * pid 1 does not reap.
 *
 * dlock closes its own descriptor before the sockets. If the sockets were closed first, the kernel
 * thread could collect them at once. dlock's descriptor would then be the last one, and dlock would
 * wait. */
void lock_file_news_close(int *news_fd)
{
    int ends[2];
    if (*news_fd >= 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, PF_UNSPEC, ends) == 0) {
        /* Needs no address, because the two sockets are connected. */
        struct notify holder = {.fd = ends[0], .type = SOCK_DGRAM, .to.any.sa_family = AF_UNIX};
        sd_notify_forward(&holder, "", 1, (int[]){ends[1], *news_fd}, 2);
        fd_close(news_fd);
        close(ends[1]);
        close(ends[0]);
    }
    fd_close(news_fd);
}

struct news lock_file_news_of(int news_fd)
{
    if (news_fd >= 0)
        return (struct news){.fd = news_fd};
    return (struct news){
        .fd = -1, .cannot = "no inotify(7) instance or watch is left", .every = DURATION_S(1)};
}

bool lock_file_drain_news(int news_fd)
{
    enum { EVENT_MOST = sizeof(struct inotify_event) + NAME_MAX + 1 };
    char events[2 * EVENT_MOST];
    struct drain drain = {0};
    ssize_t length;
    bool any = false;
    if (news_fd < 0)
        return false;
    do {
        length = read(news_fd, events, sizeof events);
        any |= length > 0;
        /* A read that fills at most half of the buffer has left no event unread. */
    } while (length > EVENT_MOST && drain_goes_on(&drain));
    return any;
}
