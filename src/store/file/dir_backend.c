/* Locks in a directory: which process does what to a lock file, and in which order.
 *
 * A lock is held if the kernel has it locked for a live process, or if a record without a process
 * (a detached lease, or --hold-at-least) has a deadline that has not passed. A holder writes a
 * record into the file, and locks its place: one or more bytes beyond the end of the file. A
 * process changes records, places or the path only in the file's critical section
 * (lock_file_enter()), after it has verified in it that the path still leads to the file. A process
 * that only looks does not enter the critical section.
 *
 * The last process to leave removes the file, so that files do not pile up. A process that opened
 * the file before its removal has a file that no other process will ever find. Suppose that A
 * removes the file (when it releases the lock, or with --release or --force-release from outside),
 * and B acquires the lock:
 *
 *   B opens the file before A removes it, and enters the critical section after that -> the path no
 *     longer leads to B's file -> B starts again.
 *   B enters the critical section before A -> A finds B's place held when it checks for other
 *     holders -> A does not remove the file. With --force-release, A does remove it, and B's first
 *     check finds the file gone.
 *   B opens the file after A has removed it -> B has a new file, which A does not touch. A's
 *     command has ended, or has given up the lock, or is being stopped by A's watch (run/watch.c).
 *
 * A is killed in the critical section -> the kernel frees the critical section. If A's record is
 * there but its place is not locked, the lock is not held. A detached lease is held from the moment
 * its record is complete.
 * A is frozen in the critical section -> after a second, others are refused; only --force-release
 * proceeds without entering it. When A runs again, it looks at the path once more before it leaves
 * the critical section, and starts again if the path no longer leads to its file. If A is frozen
 * after that look, it is a holder like any other, and its watch finds the loss. If A is frozen
 * between its very last look and the removal of the file, it may remove another process's file
 * when it runs again, because no system call checks the path and removes the file in one step. The
 * watch of that file's holder finds the loss.
 * A looks while B writes -> A reads a torn record. It reads the record again and, if the record is
 * still torn, assumes an unknown holder. B writes before it locks its place, so that no earlier
 * holder's record is mistaken for B's.
 *
 * A's lock is released from outside -> A's record says so before the file is removed. The removal
 * makes A check its lock, and the record shows A that this is a release and not a loss. A then
 * unlocks its place, if it is still locked; until then no other process gets A's slot, but A no
 * longer counts as a holder. Once no other process holds the lock, the next process that requests
 * it removes the file, although A still has the file open, because A may be frozen. That process
 * then starts again with a new file.
 *
 * A waiter has a ticket in the file (queue.c), and the last holder to leave keeps the file for the
 * waiter. With W waiting:
 *
 *   W joins after A has checked for waiters -> A removes the file -> W, which is watching the file
 *     by then, requests the lock once more and starts again with the new file.
 *   The file is removed under many waiters, by force or by hand -> the head, which is the first
 *     waiter, is notified and starts again. It drops its ticket in the old file only when it has a
 *     ticket in the new file -> this wakes the next waiter, which comes after the head in the new
 *     file, too.
 *   A holder of the new file leaves before the head has its ticket there, and removes the new file
 *     -> the head starts again, but later waiters may have moved by then: the head loses its place.
 *   A later waiter finds that the file is gone, but the waiters before it have not moved yet -> it
 *     waits in the old file until they have moved, or until the turn of those that are
 *     frozen has ended.
 *   The directory is removed under many waiters, or something is mounted on it -> the head is
 *     notified, or finds out at its next request -> it creates the directory again, or opens the
 *     directory that is now at the path. From then on it uses the table of fences and turns
 *     (memory.c) in that directory.
 *   W gives up -> in the critical section, W removes the file if the lock has no holder and no
 *     other waiter. If A is still in the critical section, A sees W's ticket and keeps the file ->
 *     W then finds no holder. A process that joins the queue after W has looked for other waiters
 *     is woken when W's ticket is freed, and starts again. If W is killed at that moment, it leaves
 *     the file behind, as a killed holder does, for the next process.
 *   W is frozen before it enters the critical section to give up, and others acquire the lock -> W
 *     looks at the file again in the critical section, and leaves their file alone.
 *   A leaves -> it unlocks everything, and then opens and closes the file, which wakes the head.
 *   A leaves while the head is frozen -> A has recorded in the table that it is the head's turn ->
 *     when that turn has ended, the next waiter may go first. */
#include "store/file/file_int.h"

#include "lock/format.h"
#include "lock/history.h"
#include "process/procfs.h"
#include "util/fileutils.h"
#include "util/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRIES_MOST = 100 };

/* How long a waiter that gives up tries to enter the critical section, where it can remove a file
 * that is no longer needed. */
static const struct duration tidy_limit = {100 * NS_PER_MS};

/* One call of dir_take(), which tries to acquire the lock. */
struct take {
    struct dir_backend *backend;
    const struct lock_request *request;
    struct lease *lease;
    struct bound bound;
    struct errmsg *why;
    struct deadline before; /* the lease's TTL counts from this time */
};

static struct memory_entry *entry_of(const struct take *take)
{
    return store_entry(&take->backend->store, take->request->key, true);
}

static bool is_done(const struct dir_backend *backend)
{
    return backend->done.end.how != RUN_NONE;
}

/* --- is the request admitted? ------------------------------------------------ */

/* True if looking at one holder is enough to know that the request may join the holders. Always
 * false if the user chose the token, because any other holder may have the same token. */
static bool may_join(const struct take *take)
{
    const struct lock_request *request = take->request;
    struct dir_backend *backend = take->backend;
    return request->mode != MODE_EXCLUSIVE && request->once_per.ns <= 0 &&
           strcmp(request->token, request->take_id) == 0 &&
           store_survey_one(&backend->store, &backend->file, -1, &backend->survey) &&
           survey_admits(&backend->survey, request);
}

/* True if looking at one holder is enough to refuse the request: that holder conflicts with the
 * request, and dlock neither shows the other holders nor waits for them. */
static bool must_not_join(const struct take *take)
{
    const struct lock_request *request = take->request;
    struct dir_backend *backend = take->backend;
    return !request->waits && !request->attended && request->once_per.ns <= 0 &&
           store_survey_one(&backend->store, &backend->file, 0, &backend->survey) &&
           survey_conflicts(&backend->survey, request->mode, request->slots);
}

/* Finds out whether once_per refuses the request, which does not depend on whether the lock is
 * held. If once_per refuses the request, sets backend->done to the run that is the reason. Fails if
 * the table cannot be opened, because the table may contain such a run. */
static enum lock_result ask_once_per(const struct take *take)
{
    struct store *store = &take->backend->store;
    struct run_memory runs;
    if (take->request->once_per.ns <= 0)
        return LOCK_OK;

    enum lock_result result = memory_open(&store->memory, &store->dir, true, take->why);
    if (result != LOCK_OK)
        return result;
    store_read_runs(store, take->request->key, NULL, take->bound, &runs);
    if (run_began_within(&runs, take->request->once_per))
        take->backend->done = runs.success;
    return LOCK_OK;
}

/* Finds out whether the lock is free for this request. Returns LOCK_OK if it is, LOCK_HELD if it is
 * not, LOCK_CANCELLED, or another result with *why set. */
static enum lock_result survey_places(const struct take *take, bool in_section)
{
    struct dir_backend *backend = take->backend;
    struct lock_file *file = &backend->file;
    struct survey *survey = &backend->survey;

    if (!may_join(take) && !must_not_join(take)) {
        store_survey(&backend->store, file, take->request->token, -1, take->bound, survey);
        if (in_section)
            store_write_map(file, survey);
    }
    if (survey->unreadable && bound_is_cancelled(take->bound))
        return LOCK_CANCELLED;
    if (survey->unreadable)
        return errmsg_fail(take->why, LOCK_UNAVAILABLE, "cannot read the lock file %s", file->path);
    if (survey->newer > 0)
        return format_newer(take->why, survey->newer);

    enum lock_result result = ask_once_per(take);
    if (result != LOCK_OK)
        return result;
    if (is_done(backend) || !survey_admits(survey, take->request))
        return LOCK_HELD;
    backend->reserved = !queue_lets(file, entry_of(take), &backend->waiter.ticket, survey);
    return backend->reserved ? LOCK_HELD : LOCK_OK;
}

/* --- take ---------------------------------------------------------------- */

/* Prepares another attempt after the file that we have open, or its directory, was removed. */
static enum lock_result start_again(const struct take *take)
{
    struct dir_backend *backend = take->backend;
    if (backend->waiter.ticket.number > 0 && backend->left_fd < 0) {
        backend->left_fd = backend->file.fd;
        backend->file.fd = -1;
    }
    dir_let_go(backend);
    return store_renew(&backend->store, take->why);
}

/* For a waiter whose lock file was removed: true if it must not move to the new file yet, because
 * earlier waiters must move first. */
static bool yields(const struct take *take)
{
    struct dir_backend *backend = take->backend;
    backend->reserved = waiter_yields(&backend->waiter, &backend->file, entry_of(take));
    return backend->reserved;
}

/* Writes the record and locks the place. */
static enum lock_result occupy(const struct take *take, int place, int64_t fence)
{
    struct lock_file *file = &take->backend->file;
    const struct lock_request *request = take->request;
    struct record record;

    lease_begin(take->lease, request, take->before, fence);
    take->lease->slot = request->mode == MODE_SLOTS ? place : -1;
    record_fill(&record, request, take->lease);
    take->lease->end_ms = record.expires.boot_ns / NS_PER_MS;
    /* Cuts off the records of earlier holders, which would only be read again and again. */
    if (request->mode == MODE_EXCLUSIVE && file->size > LOCK_RECORD_MOST)
        (void)!ftruncate(file->fd, LOCK_RECORD_MOST);

    enum lock_result result = lock_file_write(file, place, &record, take->why);
    if (result != LOCK_OK)
        return result;
    if (!request->detached && !lock_file_lock_place(file, request->mode, place))
        return errmsg_fail(take->why, LOCK_CANT_CREATE, "cannot lock %s: %s", file->path,
                           strerror(errno));
    store_note_place(file, place, true);
    take->backend->place = place;
    return LOCK_OK;
}

/* Acquires the lock, which is free for this request. LOCK_HELD: flock(1) has locked the file, or a
 * holder has not yet noticed that its lock was released. */
static enum lock_result settle(const struct take *take, int place)
{
    struct store *store = &take->backend->store;
    struct lock_file *file = &take->backend->file;
    int64_t fence;

    if (!lock_file_flock(file, take->request->mode))
        return errmsg_fail(take->why, errno == EWOULDBLOCK ? LOCK_HELD : LOCK_CANT_CREATE,
                           "cannot lock %s: %s", file->path, strerror(errno));
    enum lock_result result = LOCK_OK;
    if (store->memory.map == NULL) /* entry_of() could not open the table */
        result = memory_open(&store->memory, &store->dir, true, take->why);
    if (result == LOCK_OK)
        result = memory_next_fence(&store->memory, &fence, take->why);
    return result == LOCK_OK ? occupy(take, place, fence) : result;
}

/* Checks that we still hold the lock: this process may have been frozen, and the lock taken away by
 * force. Also checks that the lock is not held in another default directory. Two processes may
 * acquire it in different directories at the same time, so each looks in the other directories
 * after it has acquired the lock, and releases its lock if it finds a holder there. */
static enum lock_result confirm(const struct take *take, int place)
{
    struct dir_backend *backend = take->backend;
    struct record record;

    enum lock_result result = lock_file_verify(&backend->file, take->why);
    if (result == LOCK_OK &&
        store_held_elsewhere(&backend->store, take->request->key, take->bound, take->why))
        result = LOCK_INVALID;
    if (result != LOCK_UNAVAILABLE && result != LOCK_INVALID)
        return result;

    if (lock_file_read(&backend->file, place, &record)) {
        record_release(&record, deadline_now());
        (void)lock_file_write(&backend->file, place, &record, NULL);
    }
    if (result == LOCK_INVALID)
        store_tidy(&backend->store, &backend->file, take->bound);
    return result;
}

/* True if all flock(2) locks that keep us out belong to processes that have not noticed yet that
 * another process released their lock. If false, flock(1) may have locked the file as well. If
 * other locks are released while /proc/locks is read, the kernel may omit a lock (in up to one
 * reading in 25), so several readings must agree. In a container, the result is always false: there
 * the kernel omits locks whose process is not visible or has ended. */
static bool is_held_by_released(const struct lock_file *file, const struct survey *survey)
{
    enum { HOLDERS_MOST = 64, READINGS = 5 };
    struct flock_file open_file;
    struct flock_holder found[HOLDERS_MOST];
    if (survey->held > 0 || survey->released == 0 || survey->released >= HOLDERS_MOST ||
        !proc_pid_space_is_first())
        return false;
    for (int i = 0; i < READINGS; i++)
        if (proc_locks_holders(file->fd, &open_file, found, HOLDERS_MOST) >
            (size_t)survey->released)
            return false;
    return true;
}

static enum lock_result take_in_section(const struct take *take)
{
    struct dir_backend *backend = take->backend;
    struct lock_file *file = &backend->file;
    const struct survey *survey = &backend->survey;

    enum lock_result result = lock_file_verify(file, take->why);
    if (result != LOCK_OK)
        return result;

    result = survey_places(take, true);
    bool failed =
        result != LOCK_OK && result != LOCK_HELD && !survey->unreadable && survey->newer == 0;
    if (is_done(backend) || failed)
        store_tidy(&backend->store, file, take->bound);
    if (result != LOCK_OK)
        return result;

    if (survey->lost)
        store_lose_runs(&backend->store, file, false, take->bound);
    int place = take->request->mode == MODE_EXCLUSIVE ? 0 : survey->free_place;
    result = settle(take, place);
    if (result == LOCK_OK)
        return confirm(take, place);
    if (result == LOCK_HELD)
        return is_held_by_released(file, survey) && store_remove(file) ? LOCK_GONE : LOCK_HELD;
    if (survey->held == 0 && survey->pause.left.ns == 0 && queue_is_empty(file))
        (void)store_remove(file);
    return result;
}

/* Tries once to acquire the lock. LOCK_GONE: the file or its directory was removed before or during
 * this attempt. */
static enum lock_result try_once(struct take *take)
{
    struct dir_backend *backend = take->backend;
    struct lock_file *file = &backend->file;

    take->before = deadline_now();
    backend->survey = (struct survey){0};
    backend->reserved = false;
    backend->done = (struct run_record){0};
    enum lock_result result = file->fd >= 0 ? lock_file_verify(file, take->why)
                                            : lock_file_open(file, LOCK_FILE_TO_TAKE, take->why);
    if (result == LOCK_CANT_CREATE && !lock_dir_stands(&backend->store.dir))
        return LOCK_GONE;
    if (result == LOCK_OK && backend->waiter.ticket.number > 0)
        waiter_ask(&backend->waiter, file, entry_of(take), take->request);
    /* Looks first without entering the critical section: a request that will be refused should not
     * keep other processes out. The first waiter skips this look when it was just notified, because
     * its request will most likely be granted. */
    if (result == LOCK_OK && file->size > 0 && !backend->waiter.notified)
        result = survey_places(take, false);
    if (result != LOCK_OK)
        return result;

    result = lock_file_enter(file, take->bound, take->why);
    if (result != LOCK_OK)
        return result == LOCK_UNAVAILABLE ? LOCK_HELD : result;
    result = take_in_section(take);
    lock_file_leave(file);
    return result;
}

static void stop_waiting(struct dir_backend *backend)
{
    struct lock_file *file = &backend->file;
    struct bound bound = {deadline_after(tidy_limit), -1};
    if (backend->waiter.ticket.number > 0 && lock_file_enter(file, bound, NULL) == LOCK_OK)
        store_tidy(&backend->store, file, bound); /* the file may have been kept only for us */
    dir_let_go(backend);
    fd_close(&backend->left_fd);
}

/* Describes what blocks the request: a holder, earlier waiters or once_per. */
static void describe_refusal(const struct take *take, struct holder *holder)
{
    struct dir_backend *backend = take->backend;
    struct run_memory runs;
    if (is_done(backend)) {
        *holder = (struct holder){.refusal = REFUSED_DONE, .since_wall_ms = backend->done.began_ms};
        text_copy(holder->host, sizeof holder->host, backend->done.host);
        return;
    }
    if (backend->reserved)
        *holder = (struct holder){.refusal = REFUSED_QUEUED};
    else
        survey_holder(&backend->survey, take->request, holder);
    store_read_runs(&backend->store, take->request->key, NULL, take->bound, &runs);
    history_typical_of(&holder->typical, runs.history);
}

static void refuse(const struct take *take, struct holder *holder)
{
    struct dir_backend *backend = take->backend;
    const struct lock_request *request = take->request;
    const struct survey *survey = &backend->survey;
    struct memory_entry *entry = entry_of(take);
    bool gives_up = is_done(backend) || !request->waits || request->last;
    bool head = false;

    describe_refusal(take, holder);
    struct deadline ends = holder_end(holder);
    if (!gives_up && survey->same_token && survey_has_room(survey, request->mode, request->slots))
        waiter_wait_aside(&backend->waiter, &backend->file, ends);
    else if (!gives_up)
        head = waiter_wait(&backend->waiter, &backend->file, entry, request, ends);
    holder->ahead = -1;
    if (head)
        holder->ahead = 0;
    else if (request->attended)
        holder->ahead = queue_count(&backend->file, entry, &backend->waiter.ticket);
    fd_close(&backend->left_fd);
    if (!gives_up)
        return;

    if (!is_done(backend))
        entry_refused(entry, request->waits, request->waited);
    run_slot_skipped(memory_slot(&backend->store.memory, entry, true), text_hash(request->key));
    stop_waiting(backend);
}

static void begin(const struct take *take)
{
    struct dir_backend *backend = take->backend;
    entry_taken(entry_of(take), take->request->token, take->lease->fence, take->request->waited);
    if (backend->waiter.ticket.number > 0) {
        queue_leave(&backend->file, &backend->waiter.ticket);
        waiter_stop(&backend->waiter);
    }
    fd_close(&backend->left_fd);
    if (take->request->detached)
        dir_let_go(backend);
}

static enum lock_result dir_take(struct backend *base, const struct lock_request *request,
                                 struct lease *lease, struct holder *holder, struct bound bound,
                                 struct errmsg *why)
{
    struct dir_backend *backend = dir_backend_of(base);
    struct take take = {backend, request, lease, bound, why, {0}};

    *holder = (struct holder){0};
    store_file(&backend->store, &backend->file, request->key);
    text_copy(backend->store.boot_id, sizeof backend->store.boot_id, request->self.boot_id);

    enum lock_result result = try_once(&take);
    for (int tries = 1; result == LOCK_GONE && tries < TRIES_MOST && !yields(&take); tries++) {
        result = start_again(&take); /* the last holder has just removed the file */
        if (result == LOCK_OK)
            result = try_once(&take);
    }
    if (result == LOCK_GONE)
        result = LOCK_HELD;
    if (result == LOCK_OK)
        begin(&take);
    else if (result == LOCK_HELD)
        refuse(&take, holder);
    else
        stop_waiting(backend);
    return result;
}

/* --- the interface ---------------------------------------------------------------- */

static struct call dir_listen(struct backend *base)
{
    return waiter_listen(&dir_backend_of(base)->waiter);
}

/* Without inotify, changes are found by checking more often. */
static struct news dir_news(struct backend *base)
{
    struct dir_backend *backend = dir_backend_of(base);
    struct waiter *waiter = &backend->waiter;
    if (!backend->watched && backend->place >= 0)
        waiter->news_fd = lock_file_news(waiter->news_fd, &backend->file, NEWS_FOR_HOLDER);
    backend->watched = waiter->news_fd >= 0;
    return lock_file_news_of(waiter->news_fd);
}

static void dir_close(struct backend *base)
{
    struct dir_backend *backend = dir_backend_of(base);
    stop_waiting(backend);
    lock_file_news_close(&backend->waiter.news_fd);
    store_close(&backend->store);
    free(backend);
}

enum lock_result dir_backend_open(struct backend **opened, const char *dir, struct errmsg *why)
{
    struct dir_backend *backend = calloc(1, sizeof *backend);
    if (backend == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");

    backend->store.dir.fd = backend->waiter.news_fd = backend->left_fd = backend->file.fd =
        backend->place = -1;
    backend->base = (struct backend){
        .kind = "file",
        .lock_dir = backend->store.dir.path,
        .poll_least = DURATION_S(1),
        .take = dir_take,
        .listen = dir_listen,
        .check = dir_check,
        .extend = dir_extend,
        .release = dir_release,
        .look = dir_look,
        .force_release = dir_force_release,
        .pause = dir_pause,
        .list = dir_list,
        .news = dir_news,
        .close = dir_close,
    };
    enum lock_result result = lock_dir_open(&backend->store.dir, dir, why);
    if (result == LOCK_OK)
        *opened = &backend->base;
    else
        dir_close(&backend->base);
    return result;
}
