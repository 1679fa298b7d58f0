/* The file is DIR/.attached-PID-ID-TRY, 0600, one line "START SPACE TIME OUTSIDE BACKEND?STORE
 * TOKEN TAKE KEY": the start time of the process and its pid namespace (containers may
 * share the directory), when this was written, on the boot clock, and how many locks
 * DLOCK_HELD had then.
 *
 * A guard keeps its file locked (flock(2)) for as long as it lives, so a file that
 * can be locked has no owner. It stays while the process lives to which the lock was attached:
 * there, --release without a name means the lock that has ended, and no lock around it. Then
 * the process that finds the file removes it:
 *   found between the guard's open() and its flock() -> the guard finds its file
 *                    without a name, or locked by the finder, and makes another
 *   found before the line is written, or half of it -> it has no complete line: it is not
 *                    reported, and if it is not locked, it is removed
 *   found by two at once -> both may lock it (LOCK_SH), both unlink; the name is
 *                    not used again, so neither removes another file
 *   the guard has released its lock, and the process lives on -> the guard leaves the file, and
 *                    removes what earlier guards of this process have left
 *   left in another pid namespace -> this process cannot see whether that one lives: removed
 *                    after a day
 */
#include "run/attach_record.h"

#include "process/procfs.h"
#include "store/file/dir.h"
#include "util/clock.h"
#include "util/fileutils.h"
#include "util/thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX ".attached-"

enum {
    FOUND_MOST = 1024,
    TRIES_MOST = 20,
    WHERE_MOST = 4096,
    LINE_SIZE = 96 + WHERE_MOST + sizeof(struct held)
};

static const struct duration left_most = {INT64_C(86400) * NS_PER_S};

/* --- the guard's own record ---------------------------------------------- */

/* True if the file was created and locked, and still exists. */
static bool make_file(struct attach_record *attached, pid_t pid)
{
    struct stat status;
    char id[TOKEN_SIZE]; /* the file's name is public, so this is not the owner token */
    token_make(id);
    for (int tries = 0; tries < TRIES_MOST; tries++) {
        snprintf(attached->name, sizeof attached->name, PREFIX "%ld-%.40s-%d", (long)pid, id,
                 tries);
        attached->fd = file_open(attached->dir_fd, attached->name,
                                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, &status);
        if (attached->fd < 0)
            return false;
        if (flock(attached->fd, LOCK_EX | LOCK_NB) == 0 && fstat(attached->fd, &status) == 0 &&
            status.st_nlink > 0)
            return true;
        (void)!unlinkat(attached->dir_fd, attached->name, 0);
        fd_close(&attached->fd);
    }
    errno = EBUSY;
    return false;
}

static NOT_INLINED bool write_line(const struct attach_record *attached, struct process_id target,
                                   const char *where, const struct lease *lease)
{
    char line[LINE_SIZE];
    struct held other;
    int outside = 0;
    for (const char *at = getenv("DLOCK_HELD"); at != NULL;)
        outside += held_next(&at, &other);
    /* A store that does not fit is left out: then the configuration must lead to it. */
    int where_length = (int)(strlen(where) <= WHERE_MOST ? strlen(where) : strcspn(where, "?"));
    int length =
        snprintf(line, sizeof line, "%" PRId64 " %" PRId64 " %" PRId64 " %d %.*s %s %s %s\n",
                 target.start, proc_pid_space(), deadline_now().boot_ns, outside, where_length,
                 where, lease->token, lease->take_id, lease->key);
    ssize_t written = write(attached->fd, line, (size_t)length);
    if (written >= 0 && written < length)
        errno = ENOSPC;
    return written == length;
}

bool attach_record_add(struct attach_record *attached, const char *lock_dir,
                       struct process_id target, const char *where, const struct lease *lease,
                       struct errmsg *why)
{
    struct lock_dir dir;
    *attached = (struct attach_record){.dir_fd = -1, .fd = -1};
    if (lock_dir_open(&dir, lock_dir, why) != LOCK_OK)
        return false;
    attached->dir_fd = dir.fd;
    if (make_file(attached, target.pid) && write_line(attached, target, where, lease))
        return true;
    errmsg_set(why, "cannot write %s/%s: %s", dir.path, attached->name, strerror(errno));
    attach_record_close(attached, false);
    return false;
}

/* One file is enough to remember that a lock of this process has ended. */
static void remove_earlier(const struct attach_record *attached)
{
    size_t same = strcspn(attached->name + strlen(PREFIX), "-") + strlen(PREFIX) + 1;
    int dir_fd = fcntl(attached->dir_fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = dir_fd >= 0 ? fdopendir(dir_fd) : NULL;
    struct stat status;
    if (dir == NULL) {
        fd_close(&dir_fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, attached->name, same) != 0 ||
            strcmp(entry->d_name, attached->name) == 0)
            continue;
        int fd = file_open(dir_fd, entry->d_name, O_RDONLY | O_NOFOLLOW, &status);
        if (fd >= 0 && status.st_uid == geteuid() && flock(fd, LOCK_SH | LOCK_NB) == 0)
            (void)!unlinkat(dir_fd, entry->d_name, 0);
        fd_close(&fd);
    }
    closedir(dir);
}

void attach_record_close(struct attach_record *attached, bool leave)
{
    if (attached->fd >= 0 && leave)
        remove_earlier(attached);
    else if (attached->fd >= 0) /* the file may have been removed with its directory */
        (void)!unlinkat(attached->dir_fd, attached->name, 0);
    fd_close(&attached->fd);
    fd_close(&attached->dir_fd);
}

/* --- looking for it ------------------------------------------------------ */

static bool parse(char *line, struct process_id *target, int64_t *pid_space, struct held *found)
{
    char *end = NULL;
    line[strcspn(line, "\n")] = '\0';
    target->start = strtoll(line, &end, 10);
    *pid_space = strtoll(end, &end, 10);
    found->boot_ns = strtoll(end, &end, 10);
    found->depth = 2 * strtoul(end, &end, 10);
    const char *rest = end + strspn(end, " ");
    return held_next(&rest, found);
}

/* False if the record is for no living process: then the caller removes the file. */
static bool add_record(struct held_locks *list, int fd, pid_t pid, bool ended)
{
    char line[LINE_SIZE];
    struct process_id target = {.pid = pid};
    int64_t space, our_space = proc_pid_space();
    struct held found = {.ended = ended, .attached_to = pid};
    ssize_t length = read(fd, line, LINE_SIZE - 1);
    line[length > 0 ? length : 0] = '\0';
    /* Only a complete line ends in a newline. */
    if (strchr(line, '\n') == NULL || !parse(line, &target, &space, &found))
        return false;
    if (our_space == 0 || space != our_space)
        return duration_min(deadline_gap((struct deadline){found.boot_ns}, deadline_now()),
                            left_most)
                   .ns < left_most.ns;
    if (list->count < FOUND_MOST &&
        proc_descends_from(getpid(), target)) /* the script may have become this process */
        held_locks_add(list, &found);
    return proc_life(target) != PROCESS_ENDED;
}

/* Only a record of our own user counts. */
static void attach_record_look_at(struct held_locks *list, int dir_fd, const char *name)
{
    struct stat status;
    int fd = file_open(dir_fd, name, O_RDONLY | O_NOFOLLOW, &status);
    if (fd < 0)
        return;
    if (S_ISREG(status.st_mode) && status.st_uid == geteuid()) {
        bool ended = flock(fd, LOCK_SH | LOCK_NB) == 0;
        pid_t pid = (pid_t)strtol(name + strlen(PREFIX), NULL, 10);
        if (!add_record(list, fd, pid, ended) && ended)
            (void)!unlinkat(dir_fd, name, 0);
    }
    close(fd);
}

/* Another user's may have any number of files. */
static void search_dir(struct held_locks *list, const char *path)
{
    struct stat status;
    int fd = file_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, &status);
    DIR *dir = fd >= 0 && lock_dir_may_use(&status) ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        fd_close(&fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0)
            attach_record_look_at(list, fd, entry->d_name);
    closedir(dir);
}

void attach_record_find(struct held_locks *list, const char *lock_dir)
{
    char path[64];
    if (lock_dir != NULL)
        search_dir(list, lock_dir);
    /* Which of the defaults was used may have changed since. */
    for (enum lock_dir_place place = 0; lock_dir == NULL && place < LOCK_DIR_GIVEN; place++) {
        lock_dir_default(place, path, sizeof path);
        search_dir(list, path);
    }
}
