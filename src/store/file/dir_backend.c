/* Locks in a directory: which process does what to a lock file, and in which order.
 *
 * A lock is held if the kernel has it locked for a live process, or if a record without a
 * process (a detached lease, or --hold-at-least) has a deadline that has not passed. All
 * changes to records, places or the path are made in the file's section
 * (lock_file_enter()), by a process that has verified inside it that the path still leads
 * to the file. Looking needs no section.
 *
 * The last process to leave removes the file, so that files do not pile up. A process
 * that opened it before that has a file that no other process will ever find. A removes
 * (its release, or --release and --force-release from outside), B takes:
 *
 *   B opens before A removes and enters after -> the path differs -> B starts anew.
 *   B enters before A -> A finds B's place held when it checks for remaining holders -> A
 *     does not remove; with --force-release it does, and B's first check finds its file
 *     gone.
 *   B opens after A has removed -> B has a new file, which A does not touch. A's command
 *     has ended, or has given up the lock, or is being stopped by its watch.
 *
 * A is killed in the section -> the kernel opens the section. A's record may be there
 * with its place not locked: then it is not held. A detached lease is held from the
 * moment its record is complete.
 * A is frozen in the section -> others are refused after a second, and only
 * --force-release proceeds without it. A looks at the path once more before it leaves the
 * section, and starts anew if it differs. If A is frozen after that, it is a holder like
 * any other, and its watch finds the loss. If A is frozen between its very last look and
 * the removal of its own file, it removes another's file when it runs again, because no
 * call does both at once; the watch of that file's holder finds the loss.
 * A looks while B writes -> A reads the torn record again, and then treats it as that of
 * an unknown holder. B writes before it locks its place, so that no earlier holder's
 * record is taken for B's.
 *
 * A was released from outside -> its record says so before the file is removed, so that
 * A's check, which the removal wakes, can tell a release from a loss. Until that check,
 * at the latest, A keeps its place locked, and its slot is not given to others sooner.
 * Among others that share the lock A no longer counts. Once no other process holds the
 * lock, the next taker removes the file under A, which may be frozen.
 *
 * A waiter has a ticket in the file (store/file/ticket_queue.c), and the last holder to
 * leave keeps the file for it. With W waiting:
 *
 *   W joins after A has checked for waiters -> A removes the file -> W, which is watching
 *     the file by then, asks once more and starts anew with the new file.
 *   The file is removed under many waiters, by force or by hand -> the head is notified
 *     and starts anew. It drops its ticket in the old file only once it has its place in
 *     the new one -> the waiter behind it, which that wakes, comes after it.
 *   The directory is removed under many waiters, or something is mounted on it -> the
 *     head is notified, or finds that at its next look -> it makes the directory anew, or
 *     opens the one that is at the path now, its table as well.
 *   W gives up -> in the section it removes the file, if the lock has no holder and no
 *     other waiter. If A is still in the section, A sees W's ticket and keeps the file ->
 *     W then finds no holder. A process that joins after W has looked is woken when W's
 *     ticket goes, and starts anew. If W is killed at that moment it leaves the file
 *     behind, as a killed holder does, for the next process to take over.
 *   W is frozen before it enters the section to give up, and others take the lock -> W
 *     looks at the file anew in the section, and leaves theirs alone.
 *   A leaves -> it unlocks everything before it closes the file, which wakes the head.
 *   A leaves while the head is frozen -> A has noted that it is the head's turn. */
#include "store/file/dir_backend.h"

#include "lock/format.h"
#include "store/file/dir_int.h"
#include "store/file/proc_locks.h"
#include "store/file/runs.h"
#include "util/fileutils.h"
#include "util/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRIES_MOST = 100 };

/* How long a waiter that gives up tries to enter the section, to leave no file behind. */
static const struct duration tidy_limit = {100 * NS_PER_MS};

/* The file that we have open is gone, or its directory. */
static enum lock_result start_anew(struct file_backend *backend, struct errmsg *why)
{
    if (backend->waiter.ticket.number > 0 && backend->left_fd < 0) {
        backend->left_fd = backend->file.fd;
        backend->file.fd = -1;
    }
    lease_ops_let_go(backend);
    return store_renew(&backend->store, why);
}

/* --- take ---------------------------------------------------------------- */

/* The lock is free for us. LOCK_HELD: flock(1) has the file, or a holder has not yet
 * noticed that its lock was released. */
static enum lock_result settle(struct file_backend *backend, const struct lock_request *request,
                               int place, struct deadline before, struct lease *lease,
                               struct errmsg *why)
{
    struct lock_file *file = &backend->file;
    struct record record;
    int64_t fence;
    if (!lock_file_flock(file, request->mode))
        return errmsg_fail(why, errno == EWOULDBLOCK ? LOCK_HELD : LOCK_CANT_CREATE,
                           "cannot lock %s: %s", file->path, strerror(errno));
    enum lock_result result =
        shared_table_open(&backend->store.table, &backend->store.dir, true, why);
    if (result == LOCK_OK)
        result = shared_table_next_fence(&backend->store.table, &fence, why);
    if (result != LOCK_OK)
        return result;
    lease_begin(lease, request, before, fence);
    lease->slot = request->mode == MODE_SLOTS ? place : -1;
    record_fill(&record, request, lease);
    lease->end_ms = record.expires.boot_ns / NS_PER_MS;
    /* Records of earlier holders would only be read again and again. */
    if (request->mode == MODE_EXCLUSIVE && file->size > LOCK_RECORD_MOST)
        (void)!ftruncate(file->fd, LOCK_RECORD_MOST);
    result = lock_file_write(file, place, &record, why);
    if (result == LOCK_OK && !request->detached &&
        !lock_file_lock_place(file, request->mode, place))
        result =
            errmsg_fail(why, LOCK_CANT_CREATE, "cannot lock %s: %s", file->path, strerror(errno));
    if (result == LOCK_OK) {
        lock_file_note_place(file, place, true);
        backend->place = place;
    }
    return result;
}

static bool may_have_it(struct file_backend *backend, const struct lock_request *request,
                        const struct admission *survey, struct shared_entry *entry)
{
    bool admitted = admission_admits(survey, request);
    backend->reserved =
        admitted && !ticket_queue_lets(&backend->file, entry, &backend->waiter.ticket, survey);
    return admitted && !backend->reserved;
}

/* True if once_per refuses the request, whether or not the lock is held. */
static bool is_done(struct file_backend *backend, const struct lock_request *request,
                    struct bound bound)
{
    struct run_memory memory;
    if (request->once_per.ns <= 0)
        return false;
    runs_read(&backend->store, request->key, NULL, bound, &memory);
    if (run_began_within(&memory, request->once_per))
        backend->done = memory.success;
    return backend->done.end.how != RUN_NONE;
}

/* True if it is known without a look at all places that the request may join the holders.
 * A token that the user chose may be that of any of them. */
static bool may_join(const struct file_backend *backend, const struct lock_request *request,
                     struct admission *survey)
{
    return request->mode != MODE_EXCLUSIVE && request->once_per.ns <= 0 &&
           strcmp(request->token, request->take_id) == 0 &&
           lock_survey_one(&backend->file, backend->store.boot_id, -1, survey) &&
           admission_admits(survey, request);
}

/* True if any one holder is enough to refuse the request, and nothing of the others is
 * shown or waited for. */
static bool must_not_join(const struct file_backend *backend, const struct lock_request *request,
                          struct admission *survey)
{
    return !request->waits && !request->attended && request->once_per.ns <= 0 &&
           lock_survey_one(&backend->file, backend->store.boot_id, 0, survey) &&
           admission_conflicts(survey, request);
}

/* LOCK_OK: the lock is free for us; LOCK_HELD; LOCK_UNAVAILABLE. */
static enum lock_result survey_places(struct file_backend *backend,
                                      const struct lock_request *request,
                                      struct shared_entry *entry, struct admission *survey,
                                      bool in_section, struct bound bound, struct errmsg *why)
{
    struct lock_file *file = &backend->file;
    struct place_map map;
    if (!may_join(backend, request, survey) && !must_not_join(backend, request, survey)) {
        lock_survey(file, backend->store.boot_id, request->token, -1, bound, survey, &map);
        if (in_section && lock_file_has_many(file) && !survey->unreadable && survey->newer == 0)
            lock_file_write_map(file, &map);
    }
    if (survey->unreadable && bound_is_cancelled(bound))
        return LOCK_CANCELLED;
    if (survey->unreadable)
        return errmsg_fail(why, LOCK_UNAVAILABLE, "cannot read the lock file %s",
                           backend->file.path);
    if (survey->newer > 0)
        return format_newer(why, survey->newer);
    return !is_done(backend, request, bound) && may_have_it(backend, request, survey, entry)
               ? LOCK_OK
               : LOCK_HELD;
}

/* Releases what was just taken, since it is unknown in which file that was, or the lock is held
 * in another directory: two that take it in both look there after they have taken it. */
static void withdraw(struct file_backend *backend, int place)
{
    struct record record;
    if (lock_file_read(&backend->file, place, &record)) {
        record.released = true;
        record.hold = deadline_now();
        (void)lock_file_write(&backend->file, place, &record, NULL);
    }
}

/* True if the kernel's lock on the file, which refuses us, belongs only to such holders;
 * otherwise flock(1) may have it as well. */
static bool is_held_by_released(const struct lock_file *file, const struct admission *survey)
{
    enum { HOLDERS_MOST = 64 };
    struct flock_file open_file;
    struct flock_holder found[HOLDERS_MOST];
    if (survey->held > 0 || survey->released == 0 || survey->released >= HOLDERS_MOST)
        return false;
    return proc_locks_holders(file->fd, &open_file, found, HOLDERS_MOST) <=
           (size_t)survey->released;
}

static enum lock_result take_in_section(struct file_backend *backend,
                                        const struct lock_request *request,
                                        struct shared_entry *entry, struct admission *survey,
                                        struct deadline before, struct lease *lease,
                                        struct bound bound, struct errmsg *why)
{
    struct lock_file *file = &backend->file;
    enum lock_result result = lock_file_verify(file, why);
    if (result == LOCK_OK)
        result = survey_places(backend, request, entry, survey, true, bound, why);
    if (backend->done.end.how != RUN_NONE)
        store_tidy(&backend->store, file, bound);
    if (result != LOCK_OK)
        return result;
    if (survey->lost)
        runs_lose(&backend->store, file, false, bound);
    int place = request->mode == MODE_EXCLUSIVE ? 0 : survey->free_place;
    result = settle(backend, request, place, before, lease, why);
    if (result == LOCK_HELD && is_held_by_released(file, survey) && store_remove(file))
        return LOCK_GONE;
    /* We may have been frozen, and the lock taken away by force. */
    if (result == LOCK_OK) {
        result = lock_file_verify(file, why);
        if (result == LOCK_OK && store_held_elsewhere(&backend->store, request->key, bound, why))
            result = LOCK_INVALID;
        if (result == LOCK_UNAVAILABLE || result == LOCK_INVALID)
            withdraw(backend, place);
        if (result == LOCK_INVALID)
            store_tidy(&backend->store, file, bound);
        if (result != LOCK_OK)
            return result;
    }
    if (result != LOCK_OK && result != LOCK_HELD && survey->held == 0 &&
        survey->pause.left.ns == 0 && ticket_queue_is_empty(file))
        (void)store_remove(file);
    return result;
}

/* LOCK_GONE: the file, or its directory, was removed meanwhile, or before. */
static enum lock_result dir_backend_try_once(struct file_backend *backend,
                                             const struct lock_request *request,
                                             struct shared_entry *entry, struct admission *survey,
                                             struct lease *lease, struct bound bound,
                                             struct errmsg *why)
{
    struct lock_file *file = &backend->file;
    struct deadline before = deadline_now();
    *survey = (struct admission){0};
    backend->reserved = false;
    backend->done = (struct run_record){0};
    enum lock_result result =
        file->fd >= 0 ? lock_file_verify(file, why) : lock_file_open(file, LOCK_FILE_TO_TAKE, why);
    if (result == LOCK_CANT_CREATE && !lock_dir_stands(&backend->store.dir))
        return LOCK_GONE;
    /* A request that will be refused need not keep others out of the section. */
    if (result == LOCK_OK && file->size > 0)
        result = survey_places(backend, request, entry, survey, false, bound, why);
    if (result != LOCK_OK)
        return result;
    result = lock_file_enter(file, bound, why);
    if (result != LOCK_OK)
        return result == LOCK_UNAVAILABLE ? LOCK_HELD : result;
    result = take_in_section(backend, request, entry, survey, before, lease, bound, why);
    lock_file_leave(file);
    return result;
}

/* Stops waiting for the file. */
static void stop_waiting(struct file_backend *backend)
{
    struct lock_file *file = &backend->file;
    struct bound bound = {deadline_after(tidy_limit), -1};
    if (backend->waiter.ticket.number > 0 && lock_file_enter(file, bound, NULL) == LOCK_OK)
        store_tidy(&backend->store, file, bound); /* it may have been kept for us alone */
    lease_ops_let_go(backend);
    fd_close(&backend->left_fd);
}

static void dir_backend_refuse(struct file_backend *backend, const struct lock_request *request,
                               struct shared_entry *entry, const struct admission *survey,
                               struct holder *holder)
{
    const struct ticket *ticket = &backend->waiter.ticket;
    bool done = backend->done.end.how != RUN_NONE;
    bool gives_up = done || !request->waits || request->last, head = false;
    bool aside = survey->same_token && admission_has_room(survey, request->mode, request->slots);
    if (done) {
        *holder = (struct holder){.refusal = REFUSED_DONE, .since_wall_ms = backend->done.began_ms};
        text_copy(holder->host, sizeof holder->host, backend->done.host);
    } else if (backend->reserved)
        *holder = (struct holder){.refusal = REFUSED_QUEUED};
    else
        admission_holder(survey, request, holder);
    if (!gives_up && aside)
        file_waiter_wait_aside(&backend->waiter, &backend->file, holder_end(holder));
    else if (!gives_up)
        head =
            file_waiter_wait(&backend->waiter, &backend->file, entry, request, holder_end(holder));
    holder->ahead = head                ? 0
                    : request->attended ? ticket_queue_count(&backend->file, entry, ticket)
                                        : -1;
    fd_close(&backend->left_fd);
    if (gives_up) {
        if (!done)
            shared_entry_refused(entry, request->waits, request->waited);
        run_slot_skipped(shared_table_slot(&backend->store.table, entry, true),
                         text_hash(request->key));
        stop_waiting(backend);
    }
}

static void dir_backend_begin(struct file_backend *backend, const struct lock_request *request,
                              struct shared_entry *entry, const struct lease *lease)
{
    shared_entry_taken(entry, request->token, lease->fence, request->waited);
    if (backend->waiter.ticket.number > 0) {
        ticket_queue_leave(&backend->file, &backend->waiter.ticket);
        file_waiter_stop(&backend->waiter);
    }
    fd_close(&backend->left_fd);
    if (request->detached)
        lease_ops_let_go(backend);
}

static enum lock_result file_take(struct backend *base, const struct lock_request *request,
                                  struct lease *lease, struct holder *holder, struct bound bound,
                                  struct errmsg *why)
{
    struct file_backend *backend = file_of(base);
    struct admission *survey = &backend->survey;
    *holder = (struct holder){0};
    store_path(&backend->store, backend->file.path, request->key);
    text_copy(backend->store.boot_id, sizeof backend->store.boot_id, request->self.boot_id);
    struct shared_entry *entry = store_entry(&backend->store, request->key, true);
    file_waiter_ask(&backend->waiter, &backend->file, entry, request);
    enum lock_result result =
        dir_backend_try_once(backend, request, entry, survey, lease, bound, why);
    for (int tries = 1; result == LOCK_GONE && tries < TRIES_MOST; tries++) {
        result = start_anew(backend, why); /* the last holder has just removed it */
        entry = store_entry(&backend->store, request->key, true);
        if (result == LOCK_OK)
            result = dir_backend_try_once(backend, request, entry, survey, lease, bound, why);
    }
    if (result == LOCK_GONE)
        result = LOCK_HELD;
    if (result == LOCK_OK)
        dir_backend_begin(backend, request, entry, lease);
    else if (result == LOCK_HELD)
        dir_backend_refuse(backend, request, entry, survey, holder);
    else
        stop_waiting(backend);
    return result;
}

static struct call file_listen(struct backend *base)
{
    return file_waiter_listen(&file_of(base)->waiter);
}

/* --- the interface ---------------------------------------------------------------- */

/* Without inotify, more frequent checks find out. */
static struct news file_news(struct backend *base)
{
    struct file_backend *backend = file_of(base);
    struct file_waiter *waiter = &backend->waiter;
    if (!backend->watched && backend->place >= 0)
        waiter->news_fd = lock_file_news(waiter->news_fd, &backend->file, NEWS_FOR_HOLDER);
    backend->watched = waiter->news_fd >= 0;
    return lock_file_news_of(waiter->news_fd);
}

static void file_close(struct backend *base)
{
    struct file_backend *backend = file_of(base);
    stop_waiting(backend);
    fd_close(&backend->waiter.news_fd);
    store_close(&backend->store);
    free(backend);
}

enum lock_result dir_backend_open(struct backend **opened, const char *dir, struct errmsg *why)
{
    struct file_backend *backend = calloc(1, sizeof *backend);
    if (backend == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    backend->store.dir.fd = backend->waiter.news_fd = backend->left_fd = backend->file.fd =
        backend->place = -1;
    backend->base = (struct backend){
        .kind = "file",
        .lock_dir = backend->store.dir.path,
        .poll_least = DURATION_S(1),
        .take = file_take,
        .listen = file_listen,
        .check = file_check,
        .extend = file_extend,
        .release = file_release,
        .look = file_look,
        .force_release = file_force_release,
        .pause = file_pause,
        .list = file_list,
        .news = file_news,
        .close = file_close,
    };
    enum lock_result result = lock_dir_open(&backend->store.dir, dir, why);
    if (result == LOCK_OK)
        *opened = &backend->base;
    else
        file_close(&backend->base);
    return result;
}
