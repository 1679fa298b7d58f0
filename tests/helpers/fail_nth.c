/* Preloaded into dlock by tests/faults/fault_walk.py: makes the N-th call of a function
 * of the C library fail, and counts the calls of all of them.
 *
 * FAIL_PAGE   a file of FAIL_PAGE_SIZE bytes, shared by all processes of dlock
 *             (its guards too): what is counted, and what has come of FAIL_AT
 * FAIL_CALL   the function; none: all calls are only counted
 * FAIL_AT     the number of the call, from 1 on, over all of these processes
 * FAIL_ERRNO  the errno, or what a function returns that returns an error
 * FAIL_KIND   error; rest: that call and all later ones; short: at most one byte
 *             is moved; ahead, back: the clock that FAIL_ERRNO numbers has been
 *             set by an hour from that call on
 *
 * The variables are removed before main() starts: the command does not see them. Calls of a process
 * after fork(2) count too, until it executes another program. A function that frees something
 * (close, munmap, fclose) frees it even if the call fails, as the kernel does.
 *
 * Processes and threads share the page, and change it only by atomic additions. */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 160
enum { NAME_SIZE = 32, FAIL_PAGE_SIZE = 8192 };

struct page {
    _Atomic uint64_t reached; /* how many calls have failed */
    _Atomic uint64_t caller;  /* address of the first one's caller, from the program's start */
    struct slot {
        char name[NAME_SIZE];
        _Atomic uint64_t calls;
    } slots[SLOTS];
};
_Static_assert(sizeof(struct page) <= FAIL_PAGE_SIZE, "the walker makes a page of this size");

enum { HOUR = 3600 };

enum kind { KIND_ERROR, KIND_REST, KIND_SHORT, KIND_AHEAD, KIND_BACK };

static struct page *page;
static char failing[NAME_SIZE];
static uint64_t failing_at;
static int failing_errno;
static enum kind kind;
static uintptr_t program; /* its address in memory */

static void *real_of(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL)
        abort();
    return found;
}

/* Calls the kernel directly, without the wrappers of this file. */
static long syscall_plain(long number, long a, long b, long c, long d, long e)
{
    static long (*_Atomic real)(long, ...);
    if (real == NULL)
        real = (long (*)(long, ...))(uintptr_t)real_of("syscall");
    return real(number, a, b, c, d, e);
}

/* Counts a call. True if the call must fail; errno is set. */
static bool fails(int slot, const char *name, const void *caller)
{
    if (page == NULL)
        return false;
    uint64_t number = atomic_fetch_add(&page->slots[slot].calls, 1) + 1;
    if (page->slots[slot].name[0] == '\0')
        memcpy(page->slots[slot].name, name,
               strnlen(name, NAME_SIZE - 1)); /* every process writes the same name */
    if (strcmp(name, failing) != 0 ||
        (kind == KIND_REST || kind >= KIND_AHEAD ? number < failing_at : number != failing_at))
        return false;
    if (atomic_fetch_add(&page->reached, 1) == 0)
        atomic_store(&page->caller, (uintptr_t)caller - program);
    if (kind == KIND_ERROR || kind == KIND_REST)
        errno = failing_errno;
    return true;
}

/* Defines `name`, which fails in the call that must fail. */
#define WRAP(name, type, failed, parameters, arguments)           \
    type name parameters                                          \
    {                                                             \
        enum { SLOT = __COUNTER__ };                              \
        _Static_assert(SLOT < SLOTS, "too few slots");            \
        static type(*_Atomic real) parameters;                    \
        if (fails(SLOT, #name, __builtin_return_address(0)))      \
            return failed;                                        \
        if (real == NULL)                                         \
            real = (type(*) parameters)(uintptr_t)real_of(#name); \
        return real arguments;                                    \
    }

/* As WRAP, for a function that moves up to `size` bytes. A call that has nothing to move yet is not
 * counted, because dlock repeats such calls for some microseconds. */
#define WRAP_MOVE(name, parameters, arguments, events)                                    \
    ssize_t name parameters                                                               \
    {                                                                                     \
        enum { SLOT = __COUNTER__ };                                                      \
        _Static_assert(SLOT < SLOTS, "too few slots");                                    \
        static ssize_t(*_Atomic real) parameters;                                         \
        bool now = is_due(fd, events) && fails(SLOT, #name, __builtin_return_address(0)); \
        if (now && kind != KIND_SHORT)                                                    \
            return broken(fd);                                                            \
        if (now && size > 1 && is_stream(fd))                                             \
            size = 1;                                                                     \
        if (real == NULL)                                                                 \
            real = (ssize_t(*) parameters)(uintptr_t)real_of(#name);                      \
        return real arguments;                                                            \
    }

/* Ends the connection if the error says that it was reset or closed by the peer, because later
 * calls must fail too. Returns -1. */
static ssize_t broken(int fd)
{
    int error = errno;
    if (error == ECONNRESET || error == EPIPE)
        (void)syscall_plain(SYS_shutdown, fd, SHUT_RDWR, 0, 0, 0);
    errno = error;
    return -1;
}

/* True if a read or write has an effect now, or would wait for one. */
static bool is_due(int fd, short events)
{
    struct pollfd at = {.fd = fd, .events = events};
    struct timespec none = {0};
    int error = errno;
    long flags = syscall_plain(SYS_fcntl, fd, F_GETFL, 0, 0, 0);
    bool due = flags < 0 || (flags & O_NONBLOCK) == 0 ||
               syscall_plain(SYS_ppoll, (long)&at, 1, (long)&none, 0, 0) != 0;
    errno = error;
    return due;
}

/* True for a file, a pipe or a stream: the kernel may move only a part of the bytes. */
static bool is_stream(int fd)
{
    int type = 0, error = errno;
    socklen_t size = sizeof type;
    struct stat64 status;
    bool stream =
        syscall_plain(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, (long)&type, (long)&size) == 0
            ? type == SOCK_STREAM
            : syscall_plain(SYS_fstat, fd, (long)&status, 0, 0, 0) == 0 &&
                  (S_ISREG(status.st_mode) || S_ISFIFO(status.st_mode));
    errno = error;
    return stream;
}

/* As WRAP, for a function that has its effect even if it fails. */
#define WRAP_DONE(name, failed, parameters, arguments)              \
    int name parameters                                             \
    {                                                               \
        enum { SLOT = __COUNTER__ };                                \
        _Static_assert(SLOT < SLOTS, "too few slots");              \
        static int(*_Atomic real) parameters;                       \
        bool now = fails(SLOT, #name, __builtin_return_address(0)); \
        if (real == NULL)                                           \
            real = (int(*) parameters)(uintptr_t)real_of(#name);    \
        int result = real arguments;                                \
        if (!now)                                                   \
            return result;                                          \
        errno = failing_errno;                                      \
        return failed;                                              \
    }

/* --- memory -------------------------------------------------------------- */

WRAP(malloc, void *, NULL, (size_t size), (size))
WRAP(calloc, void *, NULL, (size_t count, size_t size), (count, size))
WRAP(realloc, void *, NULL, (void *old, size_t size), (old, size))
WRAP(reallocarray, void *, NULL, (void *old, size_t count, size_t size), (old, count, size))
WRAP(mmap64, void *, MAP_FAILED,
     (void *at, size_t size, int access, int flags, int fd, off64_t offset),
     (at, size, access, flags, fd, offset))
WRAP_DONE(munmap, -1, (void *at, size_t size), (at, size))

/* --- files --------------------------------------------------------------- */

WRAP_DONE(close, -1, (int fd), (fd))
WRAP_DONE(fclose, EOF, (FILE * file), (file))
WRAP_DONE(closedir, -1, (DIR * directory), (directory))
WRAP(fflush, int, EOF, (FILE * file), (file))
WRAP(fopen64, FILE *, NULL, (const char *path, const char *mode), (path, mode))
WRAP(fdopen, FILE *, NULL, (int fd, const char *mode), (fd, mode))
WRAP(open_memstream, FILE *, NULL, (char **text, size_t *size), (text, size))
/* Sets the stream's error flag, which callers check at its end. */
static void set_error(FILE *file)
{
    file->_flags |= _IO_ERR_SEEN;
}
WRAP(fgets, char *, (set_error(file), NULL), (char *line, int size, FILE *file), (line, size, file))
WRAP(getdelim, ssize_t, (set_error(file), -1), (char **line, size_t *size, int end, FILE *file),
     (line, size, end, file))
WRAP(__getdelim, ssize_t, (set_error(file), -1), (char **line, size_t *size, int end, FILE *file),
     (line, size, end, file))
WRAP(opendir, DIR *, NULL, (const char *path), (path))
WRAP(fdopendir, DIR *, NULL, (int fd), (fd))
WRAP(readdir64, struct dirent64 *, NULL, (DIR * directory), (directory))
WRAP(rename, int, -1, (const char *from, const char *to), (from, to))
WRAP(renameat, int, -1, (int at, const char *from, int to_at, const char *to),
     (at, from, to_at, to))
WRAP(unlink, int, -1, (const char *path), (path))
WRAP(unlinkat, int, -1, (int at, const char *path, int flags), (at, path, flags))
WRAP(mkdir, int, -1, (const char *path, mode_t mode), (path, mode))
WRAP(fchmod, int, -1, (int fd, mode_t mode), (fd, mode))
WRAP(getcwd, char *, NULL, (char *path, size_t size), (path, size))
WRAP(mkostemp64, int, -1, (char *template, int flags), (template, flags))
WRAP(chdir, int, -1, (const char *path), (path))
WRAP(access, int, -1, (const char *path, int mode), (path, mode))
WRAP(readlink, ssize_t, -1, (const char *path, char *target, size_t size), (path, target, size))
WRAP(__realpath_chk, char *, NULL, (const char *path, char *whole, size_t size),
     (path, whole, size))
WRAP(fstat64, int, -1, (int fd, struct stat64 *status), (fd, status))
WRAP(stat64, int, -1, (const char *path, struct stat64 *status), (path, status))
WRAP(lstat64, int, -1, (const char *path, struct stat64 *status), (path, status))
WRAP(fstatat64, int, -1, (int at, const char *path, struct stat64 *status, int flags),
     (at, path, status, flags))
WRAP(lseek64, off64_t, -1, (int fd, off64_t offset, int whence), (fd, offset, whence))
WRAP(statfs64, int, -1, (const char *path, struct statfs64 *status), (path, status))
WRAP(fstatfs64, int, -1, (int fd, struct statfs64 *status), (fd, status))
WRAP(ftruncate, int, -1, (int fd, off_t size), (fd, size))
WRAP(ftruncate64, int, -1, (int fd, off64_t size), (fd, size))
WRAP(posix_fallocate64, int, failing_errno, (int fd, off64_t at, off64_t size), (fd, at, size))
WRAP(flock, int, -1, (int fd, int operation), (fd, operation))
WRAP(dup2, int, -1, (int from, int to), (from, to))
WRAP(dup3, int, -1, (int from, int to, int flags), (from, to, flags))
WRAP(pipe2, int, -1, (int ends[2], int flags), (ends, flags))
WRAP(splice, ssize_t, -1,
     (int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags),
     (from, from_at, to, to_at, size, flags))
WRAP(isatty, int, 0, (int fd), (fd))
WRAP(tcgetpgrp, pid_t, -1, (int fd), (fd))
WRAP_MOVE(read, (int fd, void *bytes, size_t size), (fd, bytes, size), POLLIN)
WRAP_MOVE(write, (int fd, const void *bytes, size_t size), (fd, bytes, size), POLLOUT)
WRAP_MOVE(pread64, (int fd, void *bytes, size_t size, off64_t at), (fd, bytes, size, at), POLLIN)
WRAP_MOVE(pwrite64, (int fd, const void *bytes, size_t size, off64_t at), (fd, bytes, size, at),
          POLLOUT)
WRAP(inotify_init1, int, -1, (int flags), (flags))
WRAP(inotify_add_watch, int, -1, (int fd, const char *path, uint32_t mask), (fd, path, mask))

/* For functions with an optional last argument: an int, a long or a pointer, which are passed alike
 * on all platforms of Linux. */
#define WRAP_LAST(name, head, arguments, last)               \
    int name head                                            \
    {                                                        \
        enum { SLOT = __COUNTER__ };                         \
        static int(*_Atomic real) head;                      \
        va_list list;                                        \
        va_start(list, last);                                \
        void *argument = va_arg(list, void *);               \
        va_end(list);                                        \
        if (fails(SLOT, #name, __builtin_return_address(0))) \
            return -1;                                       \
        if (real == NULL)                                    \
            real = (int(*) head)(uintptr_t)real_of(#name);   \
        return real arguments;                               \
    }
WRAP_LAST(open, (const char *path, int flags, ...), (path, flags, argument), flags)
WRAP_LAST(open64, (const char *path, int flags, ...), (path, flags, argument), flags)
WRAP_LAST(openat64, (int at, const char *path, int flags, ...), (at, path, flags, argument), flags)
WRAP(__open64_2, int, -1, (const char *path, int flags), (path, flags))
WRAP_LAST(fcntl, (int fd, int command, ...), (fd, command, argument), command)
WRAP_LAST(fcntl64, (int fd, int command, ...), (fd, command, argument), command)
WRAP_LAST(ioctl, (int fd, unsigned long command, ...), (fd, command, argument), command)

/* --- sockets and waits --------------------------------------------------- */

WRAP(socket, int, -1, (int family, int type, int protocol), (family, type, protocol))
WRAP(socketpair, int, -1, (int family, int type, int protocol, int ends[2]),
     (family, type, protocol, ends))
WRAP(bind, int, -1, (int fd, const struct sockaddr *address, socklen_t size), (fd, address, size))
WRAP(listen, int, -1, (int fd, int most), (fd, most))
WRAP(accept4, int, -1, (int fd, struct sockaddr *address, socklen_t *size, int flags),
     (fd, address, size, flags))
WRAP(shutdown, int, -1, (int fd, int how), (fd, how))
WRAP(connect, int, -1, (int fd, const struct sockaddr *address, socklen_t size),
     (fd, address, size))
WRAP(setsockopt, int, -1, (int fd, int level, int option, const void *value, socklen_t size),
     (fd, level, option, value, size))
WRAP(getsockopt, int, -1, (int fd, int level, int option, void *value, socklen_t *size),
     (fd, level, option, value, size))
WRAP(getpeername, int, -1, (int fd, struct sockaddr *address, socklen_t *size), (fd, address, size))
WRAP(getaddrinfo, int, failing_errno,
     (const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list),
     (host, port, hints, list))
WRAP(getnameinfo, int, failing_errno,
     (const struct sockaddr *address, socklen_t length, char *host, socklen_t host_size, char *port,
      socklen_t port_size, int flags),
     (address, length, host, host_size, port, port_size, flags))
WRAP_MOVE(send, (int fd, const void *bytes, size_t size, int flags), (fd, bytes, size, flags),
          POLLOUT)
WRAP_MOVE(recv, (int fd, void *bytes, size_t size, int flags), (fd, bytes, size, flags), POLLIN)
WRAP(sendmsg, ssize_t, -1, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
WRAP(recvmsg, ssize_t, -1, (int fd, struct msghdr *message, int flags), (fd, message, flags))
WRAP(poll, int, -1, (struct pollfd * fds, nfds_t count, int timeout), (fds, count, timeout))
WRAP(ppoll, int, -1,
     (struct pollfd * fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask),
     (fds, count, timeout, mask))
WRAP(epoll_create1, int, -1, (int flags), (flags))
WRAP(epoll_ctl, int, -1, (int fd, int operation, int other, struct epoll_event *event),
     (fd, operation, other, event))
WRAP(eventfd, int, -1, (unsigned count, int flags), (count, flags))
WRAP(signalfd, int, -1, (int fd, const sigset_t *mask, int flags), (fd, mask, flags))
WRAP(timerfd_create, int, -1, (clockid_t clock, int flags), (clock, flags))

/* The kernel's clock was not set, so a time on the clock that was set must become a time on the
 * kernel's. */
int timerfd_settime(int fd, int flags, const struct itimerspec *when, struct itimerspec *old)
{
    enum { SLOT = __COUNTER__ };
    static int (*_Atomic real)(int, int, const struct itimerspec *, struct itimerspec *);
    struct itimerspec kernel = *when;
    if (fails(SLOT, "timerfd_settime", __builtin_return_address(0)))
        return -1;
    if (real == NULL)
        real = (int (*)(int, int, const struct itimerspec *, struct itimerspec *))(
            uintptr_t)real_of("timerfd_settime");
    if (kind == KIND_AHEAD && failing_errno == CLOCK_BOOTTIME && atomic_load(&page->reached) > 0 &&
        (flags & TFD_TIMER_ABSTIME) != 0 && kernel.it_value.tv_sec > HOUR)
        kernel.it_value.tv_sec -= HOUR;
    return real(fd, flags, &kernel, old);
}

/* --- processes, threads, signals ----------------------------------------- */

WRAP(fork, pid_t, -1, (void), ())
WRAP(getpgid, pid_t, -1, (pid_t pid), (pid))
WRAP(setsid, pid_t, -1, (void), ())
WRAP(waitpid, pid_t, -1, (pid_t pid, int *status, int options), (pid, status, options))
WRAP(waitid, int, -1, (idtype_t type, id_t id, siginfo_t *info, int options),
     (type, id, info, options))
WRAP(kill, int, -1, (pid_t pid, int number), (pid, number))
WRAP(execvp, int, -1, (const char *file, char *const *argv), (file, argv))
WRAP(execvpe, int, -1, (const char *file, char *const *argv, char *const *envp), (file, argv, envp))
WRAP(setrlimit, int, -1, (__rlimit_resource_t which, const struct rlimit *limit), (which, limit))
WRAP(setrlimit64, int, -1, (__rlimit_resource_t which, const struct rlimit64 *limit),
     (which, limit))
WRAP(sigaction, int, -1, (int number, const struct sigaction *action, struct sigaction *old),
     (number, action, old))
WRAP(sigprocmask, int, -1, (int how, const sigset_t *set, sigset_t *old), (how, set, old))
WRAP(sigpending, int, -1, (sigset_t * set), (set))
WRAP(pthread_create, int, failing_errno,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *), void *data),
     (thread, attributes, start, data))
WRAP(pthread_attr_init, int, failing_errno, (pthread_attr_t * attributes), (attributes))
WRAP(pthread_attr_setstacksize, int, failing_errno, (pthread_attr_t * attributes, size_t size),
     (attributes, size))
WRAP(pthread_mutex_init, int, failing_errno,
     (pthread_mutex_t * mutex, const pthread_mutexattr_t *attributes), (mutex, attributes))
WRAP(pthread_sigmask, int, failing_errno, (int how, const sigset_t *set, sigset_t *old),
     (how, set, old))
WRAP(pthread_kill, int, failing_errno, (pthread_t thread, int number), (thread, number))

/* The process shares dlock's memory, and so the page and its counters. */
int clone(int (*run)(void *), void *stack, int flags, void *data, ...)
{
    enum { SLOT = __COUNTER__ };
    static int (*_Atomic real)(int (*)(void *), void *, int, void *, ...);
    if (fails(SLOT, "clone", __builtin_return_address(0)))
        return -1;
    if (real == NULL)
        real = (int (*)(int (*)(void *), void *, int, void *, ...))(uintptr_t)real_of("clone");
    return real(run, stack, flags, data);
}

static unsigned long last_of(va_list list)
{
    return va_arg(list, unsigned long);
}

int prctl(int option, ...)
{
    enum { SLOT = __COUNTER__ };
    unsigned long more[4];
    va_list list;
    va_start(list, option);
    for (int i = 0; i < 4; i++)
        more[i] = last_of(list);
    va_end(list);
    if (fails(SLOT, "prctl", __builtin_return_address(0)))
        return -1;
    return (int)syscall_plain(SYS_prctl, option, (long)more[0], (long)more[1], (long)more[2],
                              (long)more[3]);
}

long syscall(long number, ...)
{
    enum { SLOT = __COUNTER__ };
    static long (*_Atomic real)(long, ...);
    unsigned long more[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        more[i] = last_of(list);
    va_end(list);
    if (real == NULL)
        real = (long (*)(long, ...))(uintptr_t)real_of("syscall");
    if (fails(SLOT, "syscall", __builtin_return_address(0)))
        return -1;
    return real(number, more[0], more[1], more[2], more[3], more[4], more[5]);
}

/* --- the rest ------------------------------------------------------------ */

WRAP(gettimeofday, int, -1, (struct timeval *restrict now, void *restrict zone), (now, zone))
WRAP(nanosleep, int, -1, (const struct timespec *time, struct timespec *left), (time, left))
WRAP(getrandom, ssize_t, -1, (void *bytes, size_t size, unsigned flags), (bytes, size, flags))
WRAP(gethostname, int, -1, (char *name, size_t size), (name, size))
WRAP(getpwuid, struct passwd *, NULL, (uid_t user), (user))
WRAP(dlopen, void *, NULL, (const char *file, int mode), (file, mode))
WRAP(setenv, int, -1, (const char *name, const char *value, int replace), (name, value, replace))
WRAP(localtime_r, struct tm *, NULL, (const time_t *time, struct tm *parts), (time, parts))
WRAP(gmtime_r, struct tm *, NULL, (const time_t *time, struct tm *parts), (time, parts))

int clock_gettime(clockid_t clock, struct timespec *now)
{
    enum { SLOT = __COUNTER__ };
    static int (*_Atomic real)(clockid_t, struct timespec *);
    bool set = fails(SLOT, "clock_gettime", __builtin_return_address(0));
    if (set && kind < KIND_AHEAD)
        return -1;
    if (real == NULL)
        real = (int (*)(clockid_t, struct timespec *))(uintptr_t)real_of("clock_gettime");
    int result = real(clock, now);
    if (set && clock == failing_errno)
        now->tv_sec += kind == KIND_AHEAD ? HOUR : -HOUR;
    return result;
}

static bool is_set(const char *text, const char *name)
{
    return text != NULL && strcmp(text, name) == 0;
}

/* The program's address in memory, to which the callers' addresses are relative. */
static uintptr_t program_base(void)
{
    Dl_info info;
    void *entry = (void *)(uintptr_t)getauxval(AT_ENTRY); /* NOLINT(performance-no-int-to-ptr) */
    return dladdr(entry, &info) != 0 ? (uintptr_t)info.dli_fbase : 0;
}

__attribute__((constructor)) static void begin(void)
{
    static const char *const variables[] = {"FAIL_PAGE",  "FAIL_CALL", "FAIL_AT",
                                            "FAIL_ERRNO", "FAIL_KIND", "LD_PRELOAD"};
    const char *path = getenv("FAIL_PAGE"), *call = getenv("FAIL_CALL"), *at = getenv("FAIL_AT");
    const char *error = getenv("FAIL_ERRNO"), *how = getenv("FAIL_KIND");
    if (path == NULL)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *shared = fd >= 0 ? mmap64(NULL, FAIL_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                           : MAP_FAILED;
    if (shared == MAP_FAILED)
        abort();
    close(fd);
    program = program_base();
    strncpy(failing, call != NULL ? call : "", sizeof failing - 1);
    failing_at = at != NULL ? strtoull(at, NULL, 10) : 0;
    failing_errno = error != NULL ? atoi(error) : 0;
    kind = is_set(how, "rest")    ? KIND_REST
           : is_set(how, "short") ? KIND_SHORT
           : is_set(how, "ahead") ? KIND_AHEAD
           : is_set(how, "back")  ? KIND_BACK
                                  : KIND_ERROR;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    page = shared;
}
