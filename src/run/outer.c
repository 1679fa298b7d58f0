/* A dlock that runs under a lock finds that lock in one of three ways (run/outer.h), and then asks
 * the store whether the lock is held. These cases must keep working:
 *
 *   case                               found by
 *   a command of dlock                 DLOCK_HELD
 *   another pid namespace              DLOCK_HELD alone: processes outside of the namespace,
 *                                      such as the holder, cannot be seen from there
 *   sudo, env -i                       the holder's process, which is an ancestor; /proc/locks or
 *                                      the holder's claim (store/file/exact.c) shows the holder
 *                                      of a --lock-file
 *   --attach in a script               the record (see below), or the holder's process, which is
 *                                      the script
 *   --attach=PID, dlock under PID      the same
 *   a stale DLOCK_HELD (a tmux server) nothing: the store does not know the take id any more
 *   the same, but the store is down    nothing, unless an ancestor dlock has added the line
 *
 * A record describes a lock of --attach. It is the file DIR/.attached-PID-ID in the lock directory,
 * mode 0600, with one line "START SPACE TIME OUTSIDE BACKEND?STORE TOKEN TAKE KEY". The part from
 * BACKEND on is a line of DLOCK_HELD (struct held). PID is the target, the process that the lock is
 * attached to. START and SPACE are the target's start time and pid namespace (containers may share
 * the directory). TIME is when the guard wrote the line, on the boot clock, and OUTSIDE is how many
 * locks DLOCK_HELD listed at that time.
 *
 * A guard, the process that holds the lock of --attach, keeps its file locked (flock(2)) for as
 * long as the guard lives, and gives the file this name only when the line is complete. So if
 * another process can lock the file, the guard has ended. The file stays as long as the target
 * lives, even if the lock has ended earlier: when the target runs dlock --release without a name,
 * the file shows that this lock is meant, and not an outer lock. After the end of the target, the
 * next process that finds the file removes it:
 *   two processes find the file at once -> both may lock it (LOCK_SH), and both unlink it; its
 *                    name is not used again, so neither removes another file
 *   the lock was released, and the target lives on -> the guard leaves the file; if several
 *                    guards have left files, a search keeps only one of them
 *   the target is in another pid namespace -> this process cannot see whether the target
 *                    lives, and removes the file after a day
 */
#include "run/outer.h"

#include "store/file/backend.h"
#include "util/array.h"
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

enum { FOUND_MOST = 1024, WHERE_MOST = 4096, LINE_SIZE = 96 + WHERE_MOST + sizeof(struct held) };

static const struct duration left_most = {INT64_C(86400) * NS_PER_S};

/* --- a line --------------------------------------------------------------- */

/* Copies the word at *at, and moves *at to the next one. */
static bool copy_word(char *target, size_t size, const char **at)
{
    const char *word = *at;
    size_t length = strcspn(word, " \n");

    if (word[length] != ' ' || length == 0 || length >= size)
        return false;
    memcpy(target, word, length);
    target[length] = '\0';
    *at = word + length + 1;
    return true;
}

/* The key comes last, because it may contain spaces. */
bool held_next(const char **at, struct held *held)
{
    const char *line = *at, *end = line + strcspn(line, "\n");
    size_t kind = strcspn(line, "? \n"), word = strcspn(line, " \n");

    *at = *end == '\n' ? end + 1 : NULL;
    if (kind == 0 || kind >= sizeof held->backend)
        return false;
    memcpy(held->backend, line, kind);
    held->backend[kind] = '\0';
    held->store = line + kind + (kind < word);
    held->store_length = (size_t)(line + word - held->store);

    line += word;
    if (*line++ != ' ' || !copy_word(held->token, sizeof held->token, &line) ||
        !copy_word(held->take_id, sizeof held->take_id, &line))
        return false;
    size_t length = (size_t)(end - line);
    if (length == 0 || length >= sizeof held->key)
        return false;
    memcpy(held->key, line, length);
    held->key[length] = '\0';
    return true;
}

/* Moves on to the next ancestor that is a dlock. An ancestor counts as a dlock if its program has
 * the same name as this process, or a name that begins with "dlock" (such as another build). */
static bool next_dlock(struct proc_ancestry *at, const struct proc_stat *self)
{
    while (proc_next_ancestor(at))
        if (at->pid != getpid() && (strncmp(at->stat.name, "dlock", strlen("dlock")) == 0 ||
                                    strcmp(at->stat.name, self->name) == 0))
            return true;
    return false;
}

bool outer_has_dlock(pid_t self)
{
    struct proc_ancestry at = {.next = self};
    struct proc_stat own;

    return !proc_stat_read(0, &own) || next_dlock(&at, &own);
}

/* The environment of a dlock contains the lines that this dlock has inherited, but not the line
 * that it adds for its command. So an ancestor dlock has added the line in question if some
 * ancestor dlock lacks `lines`, the lines up to and including that one. */
bool held_added_by_ancestor(const char *end)
{
    struct proc_ancestry at = {.next = getpid()};
    struct proc_stat own;
    const char *held = getenv("DLOCK_HELD");
    bool found = false;

    if (held == NULL || !proc_stat_read(0, &own))
        return false;
    char *lines = end != NULL ? strndup(held, (size_t)(end - held) - 1) : strdup(held);
    while (!found && lines != NULL && next_dlock(&at, &own))
        found = !proc_environ_has(at.pid, "DLOCK_HELD", lines);
    found = found || lines == NULL;
    free(lines);
    return found;
}

/* --- the list ------------------------------------------------------------- */

static void add(struct outer_locks *locks, const struct held *held)
{
    char *store = strndup(held->store, held->store_length);
    struct held *added = NULL;

    if (store != NULL)
        added = array_add(&locks->list, &locks->count, &locks->room, sizeof *added);
    if (added == NULL) {
        locks->short_of_memory = true;
        free(store);
        return;
    }
    *added = *held;
    added->store = store;
}

static int innermost_first(const void *a, const void *b)
{
    const struct held *left = a, *right = b;

    if (left->depth != right->depth)
        return left->depth > right->depth ? -1 : 1;
    return left->boot_ns > right->boot_ns ? -1 : left->boot_ns < right->boot_ns;
}

/* The innermost lock comes last in DLOCK_HELD. A lock that is attached to a script lies inside the
 * locks that the script already had in DLOCK_HELD, and outside of the locks that are added later.
 * So line N, counted from 0, has the depth 2 N + 1, and a lock that was attached when there were N
 * lines has the depth 2 N. */
bool outer_read(struct outer_locks *locks, const char *lock_dir)
{
    struct held held = {.depth = 1};

    *locks = (struct outer_locks){0};
    for (const char *at = getenv("DLOCK_HELD"); at != NULL;) {
        if (held_next(&at, &held)) {
            add(locks, &held);
            held.depth += 2;
        }
    }
    outer_read_attached(locks, lock_dir);
    if (locks->count > 1)
        qsort(locks->list, locks->count, sizeof *locks->list, innermost_first);
    return !locks->short_of_memory;
}

void outer_free(struct outer_locks *locks)
{
    for (size_t i = 0; i < locks->count; i++)
        free((void *)(uintptr_t)locks->list[i].store);
    free(locks->list);
    *locks = (struct outer_locks){0};
}

/* --- records -------------------------------------------------------------- */

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

/* True if the list already has a lock that was attached to the process `pid` and has ended. The
 * list needs only one such lock for each process. */
static bool has_ended_one(const struct outer_locks *locks, pid_t pid)
{
    for (size_t i = 0; i < locks->count; i++)
        if (locks->list[i].ended && locks->list[i].attached_to == pid)
            return true;
    return false;
}

/* Adds the record if its target is this process or an ancestor. False if the record is no longer
 * needed: the caller then removes its file if the guard has ended. */
static bool add_record(struct outer_locks *locks, int fd, pid_t pid, bool ended)
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

    if (our_space == 0 || space != our_space) {
        struct duration age = deadline_gap((struct deadline){found.boot_ns}, deadline_now());
        return age.ns < left_most.ns;
    }
    if (ended && has_ended_one(locks, pid))
        return false;
    if (locks->count < FOUND_MOST &&
        proc_descends_from(getpid(), target)) /* also true if this process is the target,
                                               * because a script can replace itself with dlock
                                               * (exec dlock) */
        add(locks, &found);
    bool over = proc_life(target) == PROCESS_ENDED;
    locks->ending |= over && !ended;
    return !over;
}

/* Adds the lock of this record if the lock is attached to this process or an ancestor.
 * Removes the file of a record that is no longer needed. Ignores the records of other users. */
static void look_at_record(struct outer_locks *locks, int dir_fd, const char *name)
{
    struct stat status;
    int fd = file_open(dir_fd, name, O_RDONLY | O_NOFOLLOW, &status);

    if (fd < 0)
        return;
    if (S_ISREG(status.st_mode) && status.st_uid == geteuid()) {
        bool ended = flock(fd, LOCK_SH | LOCK_NB) == 0;
        pid_t pid = (pid_t)strtol(name + strlen(PREFIX), NULL, 10);
        if (!add_record(locks, fd, pid, ended) && ended)
            (void)!unlinkat(dir_fd, name, 0);
    }
    close(fd);
}

/* Looks at all records in a directory. Skips a directory that belongs to another user, because it
 * may have any number of files. */
static void search_dir(struct outer_locks *locks, const char *path)
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
            look_at_record(locks, fd, entry->d_name);
    closedir(dir);
}

void outer_read_attached(struct outer_locks *locks, const char *lock_dir)
{
    char path[64];

    if (lock_dir != NULL)
        search_dir(locks, lock_dir);
    /* Searches all default directories, because the guard may have used a different one than dlock
     * would use now. */
    for (enum lock_dir_place place = 0; lock_dir == NULL && place < LOCK_DIR_GIVEN; place++) {
        lock_dir_default(place, path, sizeof path);
        search_dir(locks, path);
    }
}

bool outer_is_ending(const char *lock_dir)
{
    struct outer_locks locks = {0};

    outer_read_attached(&locks, lock_dir);
    bool ending = locks.ending;
    outer_free(&locks);
    return ending;
}

/* --- in the store --------------------------------------------------------- */

enum lock_result outer_check(struct backend *backend, const char *key, const struct held *held,
                             struct lease *lease, struct bound bound, struct errmsg *why)
{
    bool is_key = backend->lock_file != NULL || strcmp(held->key, key) == 0;
    if (strcmp(held->backend, backend->kind) != 0 || !is_key)
        return LOCK_GONE;
    *lease =
        (struct lease){.key = key, .token = held->token, .take_id = held->take_id, .outside = true};
    enum lock_result result = backend->check(backend, lease, bound, why);
    lease->token = lease->take_id = ""; /* they pointed into *held */
    return result;
}

bool outer_is_attached(struct backend *backend, const char *lock_dir, const char *key,
                       struct lease *lease, struct bound bound)
{
    struct outer_locks attached = {0};
    struct errmsg ignored = {""};
    bool holds = false;

    outer_read_attached(&attached, lock_dir);
    for (size_t i = 0; i < attached.count && !holds; i++)
        holds = !attached.list[i].ended &&
                outer_check(backend, key, &attached.list[i], lease, bound, &ignored) == LOCK_OK;
    outer_free(&attached);
    return holds;
}

bool outer_is_process(const struct holder *holder, const struct holder *self)
{
    return holder_is_near(holder, self) && !holder->kept && !holder->detached &&
           proc_descends_from(self->pid, (struct process_id){holder->pid, holder->pid_start});
}

/* --- for processes under the lock: the environment ------------------------- */

/* Writes whole seconds if possible, otherwise seconds with three decimals. */
static void format_seconds(struct duration d, char *text, size_t size)
{
    int64_t ms = d.ns / NS_PER_MS;

    if (ms % 1000 == 0)
        snprintf(text, size, "%" PRId64, ms / 1000);
    else
        snprintf(text, size, "%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
}

/* Adds this lock at the end of DLOCK_HELD, because the innermost lock comes last. */
static void export_held(struct environment *environment, const struct lease *lease,
                        const char *where)
{
    const char *outer = environment_get(environment, "DLOCK_HELD");
    char *held = NULL;

    if (outer == NULL)
        outer = "";
    if (asprintf(&held, "%s%s%s %s %s %s", outer, *outer != '\0' ? "\n" : "", where, lease->token,
                 lease->take_id, lease->key) < 0) {
        environment->short_of_memory = true;
        return;
    }
    environment_set(environment, "DLOCK_HELD", held);
    free(held);
}

void outer_export(struct environment *environment, const struct lease *lease, const char *backend,
                  const char *where)
{
    char number[24], ttl[32], expires[32];

    environment_set(environment, "DLOCK_NAME", lease->name);
    environment_set(environment, "DLOCK_HELD_KEY", lease->key);
    environment_set(environment, "DLOCK_HELD_OWNER", lease->token);
    format_seconds(lease->ttl, ttl, sizeof ttl);
    environment_set(environment, "DLOCK_HELD_TTL", ttl);
    environment_set(environment, "DLOCK_HELD_BACKEND", backend);
    snprintf(number, sizeof number, "%" PRId64, lease->fence);
    environment_set(environment, "DLOCK_FENCE", number);
    wall_format(wall_at_ms(lease->deadline), expires, sizeof expires);
    environment_set(environment, "DLOCK_EXPIRES_AT", expires);
    snprintf(number, sizeof number, "%d", lease->slot);
    /* If this lock has no slot, removes DLOCK_SLOT, which may be the slot of an outer lock. */
    environment_set(environment, "DLOCK_SLOT", lease->slot >= 0 ? number : NULL);
    export_held(environment, lease, where);
}

/* --- for processes under the lock: the guard's record ---------------------- */

static NOT_INLINED bool write_line(const struct attach_record *attached, struct process_id target,
                                   const char *where, const struct lease *lease)
{
    char line[LINE_SIZE];
    struct held other;
    int outside = 0;

    for (const char *at = getenv("DLOCK_HELD"); at != NULL;)
        outside += held_next(&at, &other);
    /* If the name of the store does not fit into the line, it is left out. A dlock that reads the
     * line can then find the store only if its own configuration names that store. */
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

/* Gives the file its final name only when the file is locked and complete. Until then, the file has
 * a name that no process looks for. */
static bool make_file(struct attach_record *attached, struct process_id target, const char *where,
                      const struct lease *lease)
{
    char id[TOKEN_SIZE], name[sizeof attached->name]; /* other users can see both names, so the id
                                                       * is not the owner token */
    struct stat status;

    token_make(id);
    snprintf(attached->name, sizeof attached->name, PREFIX "%ld-%.40s", (long)target.pid, id);
    snprintf(name, sizeof name, ".attaching-%.40s", id);
    attached->fd =
        file_open(attached->dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, &status);
    if (attached->fd < 0)
        return false;
    if (flock(attached->fd, LOCK_EX | LOCK_NB) == 0 && write_line(attached, target, where, lease) &&
        renameat(attached->dir_fd, name, attached->dir_fd, attached->name) == 0)
        return true;
    int error = errno;
    (void)!unlinkat(attached->dir_fd, name, 0);
    fd_close(&attached->fd);
    errno = error;
    return false;
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
    if (make_file(attached, target, where, lease))
        return true;
    errmsg_set(why, "cannot write %s/%s: %s", dir.path, attached->name, strerror(errno));
    attach_record_close(attached, false);
    return false;
}

void attach_record_close(struct attach_record *attached, bool leave)
{
    if (attached->fd >= 0 && !leave) /* the removal fails if the whole directory was removed */
        (void)!unlinkat(attached->dir_fd, attached->name, 0);
    fd_close(&attached->fd);
    fd_close(&attached->dir_fd);
}
