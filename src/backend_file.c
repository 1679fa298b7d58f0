/* Removing a lock file without letting two processes hold the same lock.
 *
 * The holder removes the file at its release, so that none pile up. A process
 * that opened it before then has the lock of a file that nobody else will ever
 * find. Therefore whoever gets a lock looks whether the path still leads to
 * the file it has locked, and starts anew where it does not; and only a holder
 * removes. With A releasing and B taking:
 *
 *   B opens before A unlinks, locks after A closes: path differs, B starts anew.
 *   B opens after A unlinks: a new file, which A does not touch.
 *   B opens and locks between A's unlink and close: a new file; A's command
 *     has ended, so that there is nothing left to exclude.
 *
 * The kernel's lock is what counts; the record in the file is for people, for
 * --status, and for extending a lease. */
#include "backend_file.h"

#include "flock_holder.h"
#include "lock_dir.h"
#include "lock_record.h"
#include "proc.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES_MOST = 100 };

struct file_backend {
    struct backend base;
    bool exact; /* --lock-file: neither written nor removed */
    struct lock_dir dir;
    char path[4096 + LOCK_FILE_NAME_SIZE];
    int fd;      /* -1: not locked */
    off_t size;  /* of it, at the last path_is_ours() */
    int news_fd; /* inotify; -1: none */
};

static struct file_backend *file_of(struct backend *backend)
{
    return (struct file_backend *)(void *)backend;
}

static void let_go(struct file_backend *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

/* With --lock-file it is the path that was given. */
static void set_path(struct file_backend *file, const char *key)
{
    char name[LOCK_FILE_NAME_SIZE];
    if (file->exact)
        return;
    lock_file_name(name, key);
    snprintf(file->path, sizeof file->path, "%s/%s", file->dir.path, name);
}

/* --- take ---------------------------------------------------------------- */

static int open_exact(const char *path)
{
    int fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
    /* flock(1) takes directories too. */
    return fd < 0 && errno == EISDIR ? open(path, O_RDONLY | O_CLOEXEC) : fd;
}

static enum lock_result open_file(struct file_backend *file, struct why *why)
{
    struct stat status;
    file->fd = file->exact
                   ? open_exact(file->path)
                   : open(file->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (file->fd < 0) {
        why_set(why, "cannot open the lock file %s: %s", file->path, strerror(errno));
        return file_error_result(errno);
    }
    if (file->exact)
        return LOCK_OK;
    if (fstat(file->fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
        why_set(why, "the lock file %s is not a regular file of ours", file->path);
        let_go(file);
        return LOCK_REFUSED;
    }
    return LOCK_OK;
}

/* Whether the path still leads to the file that we have open. */
static bool path_is_ours(struct file_backend *file)
{
    struct stat ours, there;
    int found = file->exact ? stat(file->path, &there) : lstat(file->path, &there);
    if (found != 0 || fstat(file->fd, &ours) != 0)
        return false;
    file->size = ours.st_size;
    return ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

static bool read_record(const struct file_backend *file, struct lock_record *record)
{
    char text[LOCK_RECORD_SIZE];
    ssize_t length = file->exact ? -1 : pread(file->fd, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    return lock_record_parse(record, text);
}

/* There is no record in a file that is flock(1)'s as well; but the kernel knows
 * who has it. */
static void read_exact_holder(const struct file_backend *file, const struct holder *self, struct holder *holder)
{
    struct stat status;
    struct proc_stat process;
    char path[64];
    if (fstat(file->fd, &status) != 0 || !proc_is_ours())
        return;
    holder->pid = flock_holder(&status);
    if (holder->pid == 0 || !proc_stat_read(holder->pid, &process))
        return;
    holder->known = true;
    holder->pid_start = process.start;
    text_copy(holder->host, sizeof holder->host, self->host);
    text_copy(holder->boot_id, sizeof holder->boot_id, self->boot_id);
    snprintf(path, sizeof path, "/proc/%ld", (long)holder->pid);
    if (stat(path, &status) == 0)
        snprintf(holder->user, sizeof holder->user, "%ld", (long)status.st_uid);
    snprintf(path, sizeof path, "/proc/%ld/comm", (long)holder->pid);
    (void)proc_read_line(path, holder->command, sizeof holder->command);
}

/* Its holder may write the record at this very moment; then it is unknown. */
static void read_holder(const struct file_backend *file, const struct lock_request *request, struct holder *holder)
{
    struct lock_record record;
    *holder = (struct holder){0};
    if (file->exact)
        read_exact_holder(file, &request->self, holder);
    if (!read_record(file, &record))
        return;
    *holder = record.holder;
    holder->expires = strcmp(record.holder.boot_id, request->self.boot_id) == 0;
    holder->left = deadline_left(record.expires);
}

static enum lock_result write_record(struct file_backend *file, const struct lock_record *record, struct why *why)
{
    char text[LOCK_RECORD_SIZE];
    size_t length = lock_record_format(record, text);
    if (length == 0) {
        why_set(why, "the lease record of %s is too long", file->path);
        return LOCK_INVALID;
    }
    ssize_t written = pwrite(file->fd, text, length, 0);
    if (written == (ssize_t)length && (file->size <= written || ftruncate(file->fd, written) == 0))
        return LOCK_OK;
    int error = written < 0 || written == (ssize_t)length ? errno : ENOSPC;
    why_set(why, "cannot write the lock file %s: %s", file->path, strerror(error));
    return LOCK_CANT_CREATE;
}

static enum lock_result write_first_record(struct file_backend *file, const struct lock_request *request,
                                           const struct lease *lease, struct why *why)
{
    struct lock_record record = {
        .fence = lease->fence,
        .expires = deadline_plus(lease->taken, lease->ttl),
        .hold = lease->hold,
        .holder = request->self,
    };
    snprintf(record.key, sizeof record.key, "%s", request->key);
    snprintf(record.token, sizeof record.token, "%s", request->token);
    record.holder.since_wall_ms = wall_now_ms();
    return write_record(file, &record, why);
}

/* With the file locked: the fence and the record. Leaves no file behind where
 * one of them cannot be had. */
static enum lock_result begin_lease(struct file_backend *file, const struct lock_request *request, struct deadline before,
                                    struct lease *lease, struct why *why)
{
    int64_t fence = wall_now_us();
    enum lock_result result = file->exact ? LOCK_OK : lock_dir_next_fence(&file->dir, &fence, why);
    lease_begin(lease, request, before, fence);
    if (result == LOCK_OK && !file->exact)
        result = write_first_record(file, request, lease, why);
    if (result != LOCK_OK) {
        (void)!unlink(file->path);
        let_go(file);
    }
    return result;
}

/* Nobody has it locked, but its last holder, who may have crashed, has asked to
 * keep others out for longer. */
static bool is_held_on(const struct file_backend *file, const struct lock_request *request, struct holder *holder)
{
    struct lock_record record;
    if (file->size == 0 || !read_record(file, &record) || strcmp(record.holder.boot_id, request->self.boot_id) != 0 ||
        deadline_passed(record.hold))
        return false;
    *holder = record.holder;
    holder->expires = true;
    holder->left = deadline_left(record.hold);
    return true;
}

static enum lock_result file_take(struct backend *backend, const struct lock_request *request, struct lease *lease,
                                  struct holder *holder, struct bound bound, struct why *why)
{
    struct file_backend *file = file_of(backend);
    (void)bound; /* nothing here waits */
    *holder = (struct holder){0};
    set_path(file, request->key);
    for (int tries = 0; tries < TRIES_MOST; tries++) {
        struct deadline before = deadline_now();
        enum lock_result result = open_file(file, why);
        if (result != LOCK_OK)
            return result;
        if (flock(file->fd, LOCK_EX | LOCK_NB) != 0) {
            int error = errno;
            read_holder(file, request, holder);
            let_go(file);
            if (error == EWOULDBLOCK)
                return LOCK_HELD;
            why_set(why, "cannot lock %s: %s", file->path, strerror(error));
            return LOCK_CANT_CREATE;
        }
        bool ours = path_is_ours(file);
        if (ours && !is_held_on(file, request, holder))
            return begin_lease(file, request, before, lease, why);
        let_go(file);
        if (ours)
            return LOCK_HELD;
        /* Its holder has just removed it. */
    }
    return LOCK_HELD;
}

/* --- check and release --------------------------------------------------- */

static void drain_news(const struct file_backend *file)
{
    char events[4096];
    while (file->news_fd >= 0 && read(file->news_fd, events, sizeof events) > 0)
        continue;
}

static enum lock_result gone(const struct file_backend *file, struct why *why)
{
    why_set(why, "the lock file %s was removed or replaced", file->path);
    return LOCK_GONE;
}

/* LOCK_OK with *known telling whether *record is filled in. A record that
 * cannot be read changes nothing: the kernel's lock holds. */
static enum lock_result look_at_file(struct file_backend *file, const struct lease *lease, struct lock_record *record,
                                     bool *known, struct why *why)
{
    drain_news(file);
    if (!path_is_ours(file))
        return gone(file, why);
    *known = !file->exact && read_record(file, record);
    if (!*known || strcmp(record->token, lease->token) == 0)
        return LOCK_OK;
    why_set(why, "the lock file %s has another owner", file->path);
    return LOCK_GONE;
}

/* For a lock that another process holds: whether its record has our token, and
 * somebody has it locked. */
static enum lock_result check_from_outside(struct file_backend *file, const struct lease *lease, struct why *why)
{
    struct lock_record record;
    set_path(file, lease->key);
    file->fd = open(file->path, file->exact ? O_RDONLY | O_CLOEXEC : O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    /* The record first: to try the lock of a file that is not meant could be in
     * somebody's way for a moment. */
    bool held = file->fd >= 0 && read_record(file, &record) && strcmp(record.token, lease->token) == 0 &&
                flock(file->fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    let_go(file);
    return held ? LOCK_OK : gone(file, why);
}

static enum lock_result file_check(struct backend *backend, struct lease *lease, struct bound bound, struct why *why)
{
    struct lock_record record;
    bool known;
    (void)bound;
    if (file_of(backend)->fd < 0)
        return check_from_outside(file_of(backend), lease, why);
    enum lock_result result = look_at_file(file_of(backend), lease, &record, &known, why);
    if (result != LOCK_OK || !known)
        return result;
    struct deadline now = deadline_now();
    lease_adopt(lease, now, now, deadline_gap(now, record.expires));
    return LOCK_OK;
}

/* The kernel's lock has no end of its own: the deadline is that of the record,
 * and with --lock-file ours alone. */
static enum lock_result file_extend(struct backend *backend, struct lease *lease, enum extend_how how, struct bound bound, struct why *why)
{
    struct file_backend *file = file_of(backend);
    struct lock_record record;
    bool known;
    (void)bound, (void)how;
    enum lock_result result = look_at_file(file, lease, &record, &known, why);
    if (result != LOCK_OK)
        return result;
    struct deadline now = deadline_now(), expires = deadline_plus(now, lease->ttl);
    if (known && deadline_before(record.expires, expires)) {
        record.expires = expires;
        result = write_record(file, &record, why);
    } else if (known) {
        expires = record.expires;
    }
    if (result != LOCK_OK)
        return LOCK_UNAVAILABLE; /* a full disk: the lease stands as it was, and may be extended later */
    lease_adopt(lease, now, now, deadline_gap(now, expires));
    return LOCK_OK;
}

static enum lock_result file_release(struct backend *backend, const struct lease *lease, struct bound bound, struct why *why)
{
    struct file_backend *file = file_of(backend);
    struct lock_record record;
    enum lock_result result = LOCK_OK;
    (void)bound;
    if (file->fd < 0 || !path_is_ours(file)) {
        result = gone(file, why);
    } else if (!file->exact) {
        if (read_record(file, &record) && strcmp(record.token, lease->token) != 0) {
            why_set(why, "the lock file %s has another owner", file->path);
            result = LOCK_GONE;
        } else if (deadline_passed(lease->hold) && unlink(file->path) != 0 && errno != ENOENT) {
            /* It stays behind, unlocked: the next holder takes it over. */
            why_set(why, "cannot remove the lock file %s: %s", file->path, strerror(errno));
        }
    }
    let_go(file);
    return result;
}

/* Told of at once: the file removed or replaced (its link count changes),
 * moved, or its record written. Where inotify(7) is not to be had, the checks
 * at their intervals find out. */
static struct news file_news(struct backend *backend)
{
    struct file_backend *file = file_of(backend);
    char path[64];
    if (file->news_fd >= 0 || file->fd < 0)
        return (struct news){.fd = file->news_fd};
    snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
    file->news_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (file->news_fd >= 0 &&
        inotify_add_watch(file->news_fd, path, IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF | IN_MODIFY) < 0) {
        close(file->news_fd);
        file->news_fd = -1;
    }
    return (struct news){.fd = file->news_fd};
}

static void file_close(struct backend *backend)
{
    struct file_backend *file = file_of(backend);
    let_go(file);
    if (file->news_fd >= 0)
        close(file->news_fd);
    lock_dir_close(&file->dir);
    free(file);
}

static struct file_backend *file_new(struct why *why)
{
    struct file_backend *file = calloc(1, sizeof *file);
    if (file == NULL) {
        why_set(why, "out of memory");
        return NULL;
    }
    file->fd = file->news_fd = file->dir.fd = -1;
    file->base = (struct backend){
        .kind = "file",
        .poll_least = DURATION_MS(10),
        .poll_most = DURATION_MS(200),
        .take = file_take,
        .check = file_check,
        .extend = file_extend,
        .release = file_release,
        .news = file_news,
        .close = file_close,
    };
    return file;
}

enum lock_result backend_file_open(struct backend **backend, const char *dir, struct why *why)
{
    struct file_backend *file = file_new(why);
    if (file == NULL)
        return LOCK_SYSTEM;
    enum lock_result result = lock_dir_open(&file->dir, dir, why);
    if (result == LOCK_OK)
        *backend = &file->base;
    else
        file_close(&file->base);
    return result;
}

enum lock_result backend_exact_file_open(struct backend **backend, const char *path, struct why *why)
{
    struct file_backend *file = file_new(why);
    if (file == NULL)
        return LOCK_SYSTEM;
    file->exact = true;
    if ((size_t)snprintf(file->path, sizeof file->path, "%s", path) >= sizeof file->path) {
        why_set(why, "the path of the lock file is too long");
        file_close(&file->base);
        return LOCK_INVALID;
    }
    *backend = &file->base;
    return LOCK_OK;
}
