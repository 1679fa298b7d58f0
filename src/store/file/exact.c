/* --lock-file: dlock uses nothing but the kernel's lock, which ends with its holder. Other
 * processes learn about the lock only from /proc/locks, or when they are refused. The queue is the
 * kernel's, too, and flock(1) waits in it as dlock does. A thread of dlock waits there with the
 * descriptor that later holds the lock.
 *
 * Orders of events:
 *   The path leads to another file during the wait -> the thread continues to wait, and may or may
 *     not lock the old file -> each attempt checks the path, and starts again with the new file.
 *   The wait times out at the moment when the kernel grants the lock -> dlock holds the lock,
 *     because it checks after the end of the thread whether the thread got the lock. If dlock looks
 *     for the current holder before that check, the kernel may name dlock itself; dlock ignores the
 *     lock of its helper thread.
 *
 * Claims: a holder's claim shows its descendants that the holder still has the lock. The claim
 * exists from before the command starts until the file is closed. /proc/locks alone is not enough:
 * it does not show the holder to another pid namespace, and does not contain the take id. A claim
 * is a socket that listens under an abstract name, unix(7), made of the file, the take id and the
 * mode. The kernel frees the name with the socket, and then any user can listen under that name, so
 * dlock checks who listens. A descendant only connects, and sends nothing. Its connection stays in
 * the socket's queue until the holder empties the queue. A descendant that finds the queue full for
 * a second, or cannot see the claim from another network namespace, waits for the lock as if the
 * holder were not its ancestor.
 *
 *   The holder releases the lock -> it shuts the socket down, even for processes that share the
 *     socket -> it unlocks the file, so that no claim outlasts its lock.
 *   The holder is killed, with all processes that share its files -> the kernel closes their
 *     descriptors in order, and the claim's descriptor comes before the lock file's -> here, too,
 *     the claim ends before the lock. */
#include "store/file/file_int.h"

#include "process/procfs.h"
#include "util/fileutils.h"
#include "util/message.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TRIES_MOST = 100, HOLDERS_MOST = 1024 };

struct exact_backend {
    struct backend base;
    struct lock_file file; /* the file that we hold or wait for */
    struct blocking queued;
    struct holder holder; /* the holder that we wait for, as last found */
    int news_fd;          /* inotify; -1: none */
    int claim_fd;         /* the socket of our claim, while we hold the lock; -1: none */
};

/* How often to request the lock again and check the path. The first interval applies while a thread
 * waits in the kernel's queue, the second one when there is no such thread. */
static const struct duration look_interval = {1 * NS_PER_S}, poll_alone = {200 * NS_PER_MS};

static struct exact_backend *exact_of(struct backend *backend)
{
    return (struct exact_backend *)(void *)backend;
}

static enum lock_result invalid(const char *text, struct errmsg *why)
{
    return errmsg_fail(why, LOCK_INVALID, "a --lock-file %s", text);
}

/* --- claims -------------------------------------------------------------- */

typedef int attach_call(int fd, const struct sockaddr *address, socklen_t size);

/* Opens a Unix socket and, by calling `attach`, binds or connects it to an abstract name made of
 * the file, the take id and the mode. Returns -1 on failure. */
static int open_socket(attach_call *attach, int file_fd, const char *take_id, enum lock_mode mode)
{
    char name[100];
    struct sockaddr_un address;
    socklen_t size;
    struct stat file;
    if (fstat(file_fd, &file) != 0)
        return -1;
    snprintf(name, sizeof name, "@dlock-claim %jx %jx %" PRIx64 " %s", (uintmax_t)file.st_dev,
             (uintmax_t)file.st_ino, text_hash(take_id), lock_mode_name(mode));
    if (!sd_notify_address(&address, &size, name))
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && attach(fd, (const struct sockaddr *)&address, size) != 0)
        fd_close(&fd);
    return fd;
}

/* Makes the claim: a listening socket by which the descendants of this process can see that it
 * holds the lock. Returns the socket, or -1 if that fails. If necessary, moves the file's
 * descriptor to a higher number than the socket's, so that the kernel closes the socket first when
 * the process dies. The claim lasts until claim_end() or the death of the process. */
static int claim_make(int *file_fd, const char *take_id, enum lock_mode mode)
{
    int fd = open_socket(bind, *file_fd, take_id, mode);
    int above = fd > *file_fd ? fcntl(*file_fd, F_DUPFD_CLOEXEC, fd) : *file_fd;
    if (fd < 0 || above < 0 || listen(fd, SOMAXCONN) != 0)
        fd_close(&fd);
    if (above >= 0 && above != *file_fd) {
        close(*file_fd); /* both descriptors share the open file, which has the lock */
        *file_fd = above;
    }
    return fd;
}

/* Accepts and closes the connections in the socket's queue, to make room for those of other
 * processes. */
static void claim_tidy(int fd)
{
    struct deadline end = deadline_after(DURATION_MS(10));
    for (int found = 0; found >= 0 && !deadline_passed(end);) {
        found = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        fd_close(&(int){found});
    }
}

static void claim_end(int *fd)
{
    if (*fd >= 0)
        (void)shutdown(*fd, SHUT_RDWR);
    fd_close(fd);
}

/* True if the listener is an ancestor of this process. The ancestor may run as another user,
 * because sudo(8) may run us under the lock. But if the listener has ended, an ancestor may have
 * reused its pid, so the process with that pid must run as the listener's user. */
static bool is_ancestor(const struct ucred *listener)
{
    struct proc_ancestry at = {.next = getpid()};
    char path[64];
    struct stat status;

    snprintf(path, sizeof path, "/proc/%ld", (long)listener->pid);
    while (proc_next_ancestor(&at))
        if (at.pid == listener->pid)
            return stat(path, &status) == 0 && status.st_uid == listener->uid;
    return false;
}

static bool may_claim(int fd)
{
    struct ucred listener;
    socklen_t size = sizeof listener;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &size) == 0 &&
           (listener.uid == geteuid() || listener.uid == 0 || is_ancestor(&listener));
}

/* LOCK_OK: a holder of the open file claims the lock under this take id; *mode is the holder's
 * mode. The claim of another user's process counts only if that user is root or the process is our
 * ancestor. LOCK_GONE: there is no claim. LOCK_UNAVAILABLE: other processes have kept the holder's
 * queue of connections full for a second; the holder empties that queue at its checks. */
static enum lock_result claim_find(int file_fd, const char *take_id, enum lock_mode *mode,
                                   struct bound bound, struct errmsg *why)
{
    struct deadline end = deadline_earlier(bound.until, deadline_after(DURATION_S(1)));
    struct pollfd cancel = {.fd = bound.cancel_fd, .events = POLLIN};
    for (;;) {
        bool full = false;
        for (*mode = MODE_EXCLUSIVE; *mode <= MODE_SHARED; (*mode)++) {
            int fd = open_socket(connect, file_fd, take_id, *mode);
            full = full || (fd < 0 && errno == EAGAIN);
            bool found = fd >= 0 && may_claim(fd);
            fd_close(&fd);
            if (found)
                return LOCK_OK;
        }
        if (!full)
            return errmsg_fail(why, LOCK_GONE, "no ancestor of this process holds the lock file");
        if (deadline_passed(end) || bound_is_cancelled(bound))
            return errmsg_fail(why, LOCK_UNAVAILABLE,
                               "too many processes are connecting to the holder of the lock file");
        (void)deadline_poll(&cancel, 1, deadline_earlier(end, deadline_after(DURATION_MS(20))));
    }
}

/* --- take ---------------------------------------------------------------- */

static enum lock_result open_exact(struct lock_file *file, struct errmsg *why)
{
    file->fd = open(file->path, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
    /* O_CREAT fails for a directory, which dlock can lock as flock(1) does, and for another user's
     * file in a sticky directory (fs.protected_regular). */
    if (file->fd < 0 && (errno == EISDIR || errno == EACCES)) {
        int error = errno;
        file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (errno == ENOENT)
            errno = error; /* the file is missing, and we may not create it */
    }
    if (file->fd >= 0)
        return LOCK_OK;
    return errmsg_fail(why, file_error_result(errno), "cannot open the lock file %s: %s",
                       file->path, strerror(errno));
}

/* True if the process that acquired the lock still holds it. Its start time must be the same before
 * and after the check, because that process may have ended and left the lock to others that have
 * the file open, and its pid may have been reused, even for this process. The holder may also be
 * this process, if it acquired the lock before it executed dlock; a lock that our thread has just
 * acquired through own_fd does not count. */
static bool find_process(int own_fd, struct flock_file *file, struct flock_holder *found,
                         struct proc_stat *process)
{
    pid_t pid = found->pid;
    struct proc_stat later;
    return pid > 0 && proc_is_ours() && proc_stat_read(pid, process) &&
           proc_locks_is_held_by(file, found, pid == getpid() ? own_fd : -1) &&
           proc_stat_read(pid, &later) && later.start == process->start;
}

static void fill_holder(struct holder *holder, int own_fd, struct flock_file *file,
                        struct flock_holder *found)
{
    struct proc_stat process;
    struct stat status;
    char path[64];
    bool there = find_process(own_fd, file, found, &process);
    *holder = (struct holder){.shares = found->shares, .ahead = -1};
    if (!there)
        return;
    holder->known = true;
    holder->pid = found->pid;
    holder->pid_start = process.start;
    if (gethostname(holder->host, sizeof holder->host - 1) != 0)
        holder->host[0] = '\0';
    holder_fill_place(holder); /* the pid is from our namespace, like all pids in /proc/locks */
    snprintf(path, sizeof path, "/proc/%ld", (long)found->pid);
    if (stat(path, &status) == 0)
        (void)user_name_local(status.st_uid, holder->user, sizeof holder->user);
    snprintf(holder->command, sizeof holder->command, "%s", process.name);
}

/* Describes one holder of the lock. Looks first at this process, because a script (exec 9>FILE;
 * flock 9) may have passed us an open file that is still locked, although the flock(1) process has
 * ended. */
static void find_holder(const struct lock_file *file, struct holder *holder)
{
    struct flock_file open_file;
    struct flock_holder found = {0}, own = {.pid = getpid()};
    size_t count = proc_locks_holders(file->fd, &open_file, &found, 1);
    fill_holder(holder, file->fd, &open_file, &own);
    if (!holder->known && count > 0)
        fill_holder(holder, file->fd, &open_file, &found);
}

/* Opens the file again, for writing, as flock(1) does. */
static bool reopen_to_write(struct lock_file *file)
{
    int fd = open(file->path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return false;
    lock_file_close(file);
    file->fd = fd;
    return true;
}

/* Tries once to lock the file. Returns 0 or an errno. On NFS the kernel turns an exclusive flock(2)
 * lock into an fcntl(2) lock, which requires the file to be open for writing. */
static int lock_now(struct lock_file *file, enum lock_mode mode)
{
    if (lock_file_flock(file, mode))
        return 0;
    int error = errno;
    if ((error != EBADF && error != EIO) || !reopen_to_write(file))
        return error;
    return lock_file_flock(file, mode) ? 0 : errno;
}

static int wait_in_kernel(int fd, int64_t operation)
{
    return flock(fd, (int)operation) == 0 ? 0 : errno;
}

static void let_go(struct exact_backend *backend)
{
    (void)blocking_stop(&backend->queued);
    claim_end(&backend->claim_fd);
    /* Unlocks the file explicitly, because the command's guard process may keep the file open for a
     * little longer, even if the guard was killed a moment ago. */
    if (backend->file.fd >= 0)
        (void)flock(backend->file.fd, LOCK_UN);
    lock_file_close(&backend->file);
}

/* Requests the lock or, if a thread waits for it, finds out whether that thread got it. Returns
 * LOCK_OK, or LOCK_HELD or LOCK_CANT_CREATE with *why set. */
static enum lock_result try_lock(struct exact_backend *backend, const struct lock_request *request,
                                 struct errmsg *why)
{
    struct lock_file *file = &backend->file;
    int error = EWOULDBLOCK;
    bool over = blocking_is_over(&backend->queued, &error);
    bool called_off = !over && backend->queued.running && request->last;
    if (called_off && blocking_stop(&backend->queued))
        error = 0;
    else if (!called_off && !over && !backend->queued.running)
        error = lock_now(file, request->mode);
    if (error == 0)
        return LOCK_OK;
    return errmsg_fail(why, error == EWOULDBLOCK ? LOCK_HELD : LOCK_CANT_CREATE,
                       "cannot lock %s: %s", file->path, strerror(error));
}

/* Tries once to acquire the lock. LOCK_GONE: the path leads to another file or to none.
 * LOCK_UNAVAILABLE: it is unknown where the path leads. */
static enum lock_result try_once(struct exact_backend *backend, const struct lock_request *request,
                                 struct errmsg *why)
{
    struct lock_file *file = &backend->file;
    enum lock_result result = file->fd >= 0 ? lock_file_verify(file, why) : open_exact(file, why);
    if (result == LOCK_OK)
        result = try_lock(backend, request, why);
    return result == LOCK_OK ? lock_file_verify(file, why) : result;
}

/* A waiter in the queue does not look for the holder at each attempt: otherwise many waiters would
 * read the list of all locks again and again. */
static void refuse(struct exact_backend *backend, const struct lock_request *request,
                   struct holder *holder)
{
    bool waits = request->waits && !request->last, waited = backend->queued.running;
    if (waits && !waited)
        (void)blocking_start(&backend->queued, wait_in_kernel, backend->file.fd,
                             request->mode == MODE_EXCLUSIVE ? LOCK_EX : LOCK_SH);
    if (!waited || request->attended || request->last)
        find_holder(&backend->file, &backend->holder);
    *holder = backend->holder;
    if (!waits)
        let_go(backend);
}

static enum lock_result exact_take(struct backend *base, const struct lock_request *request,
                                   struct lease *lease, struct holder *holder, struct bound bound,
                                   struct errmsg *why)
{
    struct exact_backend *backend = exact_of(base);
    struct deadline before = deadline_now();
    enum lock_result result = LOCK_GONE;
    (void)bound; /* needs no time limit, because nothing here waits */
    *holder = (struct holder){.ahead = -1};
    if (request->mode == MODE_SLOTS || request->detached)
        return invalid(request->detached ? "needs a process that holds the lock" : "has no slots",
                       why);
    for (int tries = 0; result == LOCK_GONE && tries < TRIES_MOST; tries++) {
        before = deadline_now();
        result = try_once(backend, request, why);
        if (result == LOCK_GONE)
            let_go(backend); /* another process has just removed or replaced the file */
    }
    if (result == LOCK_OK) {
        lease_begin(lease, request, before, wall_now_us());
        backend->claim_fd = claim_make(&backend->file.fd, request->take_id, request->mode);
    } else if (result == LOCK_HELD)
        refuse(backend, request, holder);
    else if (result != LOCK_GONE)
        let_go(backend);
    return result == LOCK_GONE ? LOCK_HELD : result;
}

static struct call exact_listen(struct backend *base)
{
    struct exact_backend *backend = exact_of(base);
    struct call call = {.fd = -1, .by = DEADLINE_NEVER, .poll_most = poll_alone};
    if (!backend->queued.running)
        return call;
    call.fd = backend->queued.over_fd;
    call.now = blocking_has_ended(&backend->queued);
    call.poll_most = look_interval;
    return call;
}

/* --- check, extend, release ------------------------------------------------ */

/* Opens the file to look at its locks; does not create it. If the user may not read the file, opens
 * it with O_PATH: the kernel still reports its locks. LOCK_GONE: there is no file. */
static enum lock_result open_to_look(const struct exact_backend *backend, struct lock_file *file,
                                     struct errmsg *why)
{
    *file = backend->file;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int error = errno;
    if (file->fd < 0 && error == EACCES)
        file->fd = open(file->path, O_PATH | O_CLOEXEC);
    if (file->fd >= 0)
        return LOCK_OK;
    return errmsg_fail(why, error == ENOENT ? LOCK_GONE : file_error_result(error),
                       "cannot open the lock file %s: %s", file->path, strerror(error));
}

static enum lock_result check_own(struct exact_backend *backend, struct errmsg *why)
{
    if (backend->file.fd < 0)
        return invalid("has no record of its owner's token", why);
    claim_tidy(backend->claim_fd);
    (void)lock_file_drain_news(backend->news_fd);
    return lock_file_verify(&backend->file, why);
}

/* Finds out whether the lock is still held under the take id of the lease, and in which mode. The
 * end of the lease remains unknown. */
static enum lock_result check_claim(struct exact_backend *backend, struct lease *lease,
                                    struct bound bound, struct errmsg *why)
{
    struct lock_file file;
    enum lock_result result = open_to_look(backend, &file, why);
    if (result == LOCK_OK)
        result = claim_find(file.fd, lease->take_id, &lease->mode, bound, why);
    lock_file_close(&file);
    return result;
}

static enum lock_result exact_check(struct backend *base, struct lease *lease, struct bound bound,
                                    struct errmsg *why)
{
    struct exact_backend *backend = exact_of(base);
    return lease->outside ? check_claim(backend, lease, bound, why) : check_own(backend, why);
}

/* Changes the deadline in *lease only, because a --lock-file contains no deadline. */
static enum lock_result exact_extend(struct backend *base, struct lease *lease, enum extend_how how,
                                     struct bound bound, struct errmsg *why)
{
    enum lock_result result = check_own(exact_of(base), why);
    (void)bound;
    struct deadline now = deadline_now(), ends = deadline_plus(now, lease->ttl);
    if (result == LOCK_OK && (how == EXTEND_EXACTLY || deadline_before(lease->deadline, ends)))
        lease_adopt(lease, now, now, lease->ttl, ends.boot_ns / NS_PER_MS);
    return result;
}

/* Unlocks and closes the file. But if the path cannot be examined, the file stays open, so that
 * another attempt can find out whether the lock was lost. In any case the lock ends with the
 * process. */
static enum lock_result exact_release(struct backend *base, const struct lease *lease,
                                      struct bound bound, struct errmsg *why)
{
    struct exact_backend *backend = exact_of(base);
    enum lock_result result = check_own(backend, why);
    (void)lease, (void)bound;
    if (result != LOCK_UNAVAILABLE)
        let_go(backend);
    return result;
}

/* --- looking ----------------------------------------------------------------- */

static enum lock_result fill_state(struct lock_state *state, const char *key, int own_fd,
                                   struct flock_file *file, struct flock_holder *found,
                                   size_t count, struct errmsg *why)
{
    if (!lock_state_init(state, key, count))
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    state->waiters = -1;
    for (size_t i = 0; i < count; i++) {
        fill_holder(&state->owners[i].holder, own_fd, file, &found[i]);
        state->mode = found[i].shares ? MODE_SHARED : MODE_EXCLUSIVE;
    }
    return LOCK_OK;
}

static enum lock_result exact_look(struct backend *base, const char *key, struct lock_state *state,
                                   struct bound bound, struct errmsg *why)
{
    struct lock_file file;
    struct flock_file open_file = {0};
    struct flock_holder *found = calloc(HOLDERS_MOST, sizeof *found);
    size_t count = 0;
    (void)bound;
    if (found == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    enum lock_result result = open_to_look(exact_of(base), &file, why);
    if (result == LOCK_OK)
        count = proc_locks_holders(file.fd, &open_file, found, HOLDERS_MOST);
    if (result == LOCK_OK || result == LOCK_GONE)
        result = fill_state(state, key, exact_of(base)->file.fd, &open_file, found, count, why);
    lock_file_close(&file);
    free(found);
    return result;
}

/* /proc/locks lists only holders on this host whose pid is visible in our pid namespace. So this
 * function requests the lock, which fails if there is any other holder. If the request succeeds, it
 * keeps other processes out for a moment. */
static enum lock_result exact_probe(struct backend *base, const char *key, struct lock_state *state,
                                    struct errmsg *why)
{
    struct lock_file file;
    struct flock_holder unseen = {0};
    enum lock_result result = open_to_look(exact_of(base), &file, why);
    int error = result == LOCK_OK ? lock_now(&file, MODE_EXCLUSIVE) : 0;
    if (error == EBADF)
        error = EACCES; /* the file could be opened only with O_PATH */
    if (error == EWOULDBLOCK)
        unseen.shares = lock_now(&file, MODE_SHARED) == 0;
    lock_file_close(&file);
    if (result == LOCK_GONE)
        return LOCK_OK;
    if (error == EWOULDBLOCK)
        return fill_state(state, key, -1, NULL, &unseen, 1, why);
    if (error == 0)
        return result;
    return errmsg_fail(why, LOCK_REFUSED, "cannot find out whether the lock file %s is locked: %s",
                       file.path, strerror(error));
}

/* --- the interface ------------------------------------------------------------- */

static struct news exact_news(struct backend *base)
{
    struct exact_backend *backend = exact_of(base);
    if (backend->news_fd < 0 && backend->file.fd >= 0)
        backend->news_fd = lock_file_news(-1, &backend->file, NEWS_FOR_HOLDER);
    return lock_file_news_of(backend->news_fd);
}

static void exact_close(struct backend *base)
{
    struct exact_backend *backend = exact_of(base);
    let_go(backend);
    lock_file_news_close(&backend->news_fd);
    free(backend);
}

enum lock_result flock_backend_open(struct backend **opened, const char *path, struct errmsg *why)
{
    struct exact_backend *backend = calloc(1, sizeof *backend);
    if (backend == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    if ((size_t)snprintf(backend->file.path, PATH_MAX, "%s", path) >= PATH_MAX) {
        free(backend);
        return invalid("has a path that is too long", why);
    }
    backend->file.follow = true;
    backend->file.fd = backend->news_fd = backend->claim_fd = -1;
    backend->base = (struct backend){
        .kind = "file",
        .lock_file = backend->file.path,
        .poll_least = DURATION_S(1),
        .take = exact_take,
        .listen = exact_listen,
        .check = exact_check,
        .extend = exact_extend,
        .release = exact_release,
        .look = exact_look,
        .probe = exact_probe,
        .news = exact_news,
        .close = exact_close,
    };
    *opened = &backend->base;
    return LOCK_OK;
}
