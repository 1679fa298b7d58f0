/* The file is DIR/.attached-PID-ID-TRY, 0600, one line "START SPACE TIME BACKEND TOKEN
 * TAKE KEY": the start time of the process and its pid namespace (containers may share the
 * directory), and when this was written, on the boot clock.
 *
 * A guard keeps its file locked (flock(2)) for as long as it lives, so a file that
 * can be locked has no owner. A process that finds such a file removes it:
 *   found between the guard's open() and its flock() -> the guard finds its file
 *                    without a name, or locked by the finder, and makes another
 *   found before the line is written, or half of it -> it is locked and has no
 *                    complete line: it is not reported
 *   found by two at once -> both may lock it (LOCK_SH), both unlink; the name is
 *                    not used again, so neither removes another file
 */
#include "run/attach_record.h"

#include "process/procfs.h"
#include "store/file/dir.h"
#include "util/array.h"
#include "util/clock.h"

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
    ANCESTORS_MOST = 1024,
    FOUND_MOST = 1024,
    TRIES_MOST = 20,
    LINE_SIZE = 96 + sizeof(struct held)
};

/* --- the guard's own record ---------------------------------------------- */

/* True if the file was created and locked, and still exists. */
static bool make_file(struct attach_record *attached, pid_t pid, const char *id)
{
    struct stat status;
    for (int tries = 0; tries < TRIES_MOST; tries++) {
        snprintf(attached->name, sizeof attached->name, PREFIX "%ld-%.40s-%d", (long)pid, id,
                 tries);
        attached->fd = openat(attached->dir_fd, attached->name,
                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (attached->fd < 0)
            return false;
        if (flock(attached->fd, LOCK_EX | LOCK_NB) == 0 && fstat(attached->fd, &status) == 0 &&
            status.st_nlink > 0)
            return true;
        (void)!unlinkat(attached->dir_fd, attached->name, 0);
        close(attached->fd);
    }
    attached->fd = -1;
    errno = EBUSY;
    return false;
}

static bool write_line(const struct attach_record *attached, struct process_id target,
                       const struct held *held)
{
    char line[LINE_SIZE];
    int length = snprintf(line, sizeof line, "%" PRId64 " %" PRId64 " %" PRId64 " %s %s %s %s\n",
                          target.start, proc_pid_space(), deadline_now().boot_ns, held->backend,
                          held->token, held->take_id, held->key);
    ssize_t written = write(attached->fd, line, (size_t)length);
    if (written >= 0 && written < length)
        errno = ENOSPC;
    return written == length;
}

bool attach_record_add(struct attach_record *attached, const char *lock_dir,
                       struct process_id target, const char *id, const struct held *held,
                       struct errmsg *why)
{
    struct lock_dir dir;
    *attached = (struct attach_record){.dir_fd = -1, .fd = -1};
    if (lock_dir_open(&dir, lock_dir, why) != LOCK_OK)
        return false;
    attached->dir_fd = dir.fd;
    if (make_file(attached, target.pid, id) && write_line(attached, target, held))
        return true;
    errmsg_set(why, "cannot write %s/%s: %s", dir.path, attached->name, strerror(errno));
    attach_record_remove(attached);
    return false;
}

void attach_record_remove(struct attach_record *attached)
{
    if (attached->fd >= 0) {
        (void)!unlinkat(attached->dir_fd, attached->name,
                        0); /* it may have been removed with its directory */
        close(attached->fd);
    }
    if (attached->dir_fd >= 0)
        close(attached->dir_fd);
    attached->fd = attached->dir_fd = -1;
}

/* --- looking for it ------------------------------------------------------ */

struct ancestor {
    struct process_id id;
    uid_t uid;
};

struct found {
    int depth; /* our own is 0 */
    int64_t start, pid_space, boot_ns;
    struct held held;
};

struct search {
    struct ancestor ancestors[ANCESTORS_MOST];
    int ancestor_count;
    int64_t pid_space; /* of all of them */
    struct found *found;
    size_t found_count, found_room;
};

static void find_ancestors(struct search *search)
{
    struct proc_stat process;
    struct stat status;
    pid_t pid = proc_is_ours() ? getpid() : 0; /* which the script may have become */
    search->pid_space = proc_pid_space();
    while (pid > 0 && search->ancestor_count < ANCESTORS_MOST && proc_stat_read(pid, &process)) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%ld", (long)pid);
        struct ancestor *ancestor = &search->ancestors[search->ancestor_count++];
        ancestor->id = (struct process_id){pid, process.start};
        ancestor->uid = stat(path, &status) == 0 ? status.st_uid : (uid_t)-1;
        pid = process.parent;
    }
}

static int depth_of(const struct search *search, const char *name)
{
    long pid = strtol(name + strlen(PREFIX), NULL, 10);
    for (int depth = 0; depth < search->ancestor_count; depth++)
        if (search->ancestors[depth].id.pid == pid)
            return depth;
    return -1;
}

static bool parse(char *line, struct found *found)
{
    char *end = NULL;
    line[strcspn(line, "\n")] = '\0';
    found->start = strtoll(line, &end, 10);
    found->pid_space = strtoll(end, &end, 10);
    found->boot_ns = strtoll(end, &end, 10);
    const char *rest = end + strspn(end, " ");
    return held_next(&rest, &found->held);
}

/* Only a complete line ends in a newline. */
static bool read_line(int fd, char line[LINE_SIZE])
{
    ssize_t length = read(fd, line, LINE_SIZE - 1);
    line[length > 0 ? length : 0] = '\0';
    return strchr(line, '\n') != NULL;
}

static void add_found(struct search *search, const struct found *found)
{
    struct found *all =
        list_with_room(search->found, search->found_count, &search->found_room, sizeof *all);
    if (all == NULL)
        return;
    search->found = all;
    all[search->found_count++] = *found;
}

/* As holder_is_process(). */
static bool is_of(const struct found *found, const struct search *search)
{
    return found->start == search->ancestors[found->depth].id.start &&
           found->pid_space == search->pid_space && search->pid_space != 0;
}

/* Adds the record if it is ours or the ancestor's own, and a guard has it locked. */
static void look_at(struct search *search, int dir_fd, const char *name)
{
    struct found found = {.depth = depth_of(search, name)};
    struct stat status;
    char line[LINE_SIZE];
    int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return;
    const struct ancestor *ancestor = found.depth >= 0 ? &search->ancestors[found.depth] : NULL;
    bool ours = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid();
    bool trusted =
        ours || (ancestor != NULL && S_ISREG(status.st_mode) && status.st_uid == ancestor->uid);
    bool stale = trusted && flock(fd, LOCK_SH | LOCK_NB) == 0;
    if (stale && ours)
        (void)!unlinkat(dir_fd, name, 0);
    if (trusted && !stale && ancestor != NULL && search->found_count < FOUND_MOST &&
        read_line(fd, line) && parse(line, &found) && is_of(&found, search))
        add_found(search, &found);
    close(fd);
}

static void search_dir(struct search *search, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0)
            look_at(search, fd, entry->d_name);
    closedir(dir);
}

/* Both defaults of store/file/dir.h: which of them was used may have changed since. */
static void search_dirs_of(struct search *search, uid_t uid)
{
    static const char *const parents[] = {"/run/lock", "/tmp"};
    for (size_t i = 0; i < sizeof parents / sizeof *parents; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/dlock-%lu", parents[i], (unsigned long)uid);
        search_dir(search, uid == 0 && i == 0 ? "/run/lock/dlock" : path);
    }
}

static bool is_first_of_user(const struct search *search, int depth)
{
    for (int i = 0; i < depth; i++)
        if (search->ancestors[i].uid == search->ancestors[depth].uid)
            return false;
    return search->ancestors[depth].uid != geteuid();
}

static int innermost_first(const void *a, const void *b)
{
    const struct found *left = a, *right = b;
    if (left->depth != right->depth)
        return left->depth < right->depth ? -1 : 1;
    return left->boot_ns > right->boot_ns ? -1 : left->boot_ns < right->boot_ns;
}

static void find_all(struct search *search, const char *lock_dir)
{
    find_ancestors(search);
    if (lock_dir != NULL) {
        search_dir(search, lock_dir);
    } else {
        search_dirs_of(search, geteuid());
        for (int depth = 0; depth < search->ancestor_count; depth++)
            if (is_first_of_user(search, depth))
                search_dirs_of(search, search->ancestors[depth].uid);
    }
    if (search->found_count > 1)
        qsort(search->found, search->found_count, sizeof *search->found, innermost_first);
}

bool attach_record_visit_ancestors(const char *lock_dir,
                                   bool (*visit)(void *data, pid_t pid, const struct held *held),
                                   void *data)
{
    bool done = false;
    struct search *search = calloc(1, sizeof *search);
    if (search == NULL)
        return false;
    find_all(search, lock_dir);
    for (size_t i = 0; i < search->found_count && !done; i++)
        done =
            visit(data, search->ancestors[search->found[i].depth].id.pid, &search->found[i].held);
    free(search->found);
    free(search);
    return done;
}
