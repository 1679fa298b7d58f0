/* Preloaded into dlock by the tests: makes one call of the C library fail, or do something that a
 * test can hardly cause otherwise. Built once for each FAULT_*. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
/* after sys/socket.h */
#include <linux/vm_sockets.h>

typedef int start(void *data);
typedef int clone_function(start *run, void *stack, int flags, void *data, ...);

#if defined FAULT_clone
/* No process can be started that shares memory: with $FAULT_ERRNO, because a sandbox refuses that,
 * otherwise because the user has as many processes as allowed. */
int clone(start *run, void *stack, int flags, void *data, ...)
{
    const char *error = getenv("FAULT_ERRNO");
    (void)run, (void)stack, (void)flags, (void)data;
    errno = error != NULL ? atoi(error) : EAGAIN;
    return -1;
}
#elif defined FAULT_no_openssl
/* This host has no OpenSSL. */
void *dlopen(const char *file, int mode)
{
    void *(*real)(const char *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    if (file != NULL && (strstr(file, "libssl") != NULL ||
                         (strstr(file, "libcrypto") != NULL && getenv("FAULT_NO_CRYPTO") != NULL)))
        file = "/nowhere/openssl";
    return real(file, mode);
}
#elif defined FAULT_broken_pipe
/* When the file $FAULT_AT exists, the next send to a stream socket fails as if the peer had closed
 * it: with EPIPE, and SIGPIPE unless MSG_NOSIGNAL is set. */
static int breaks(int fd)
{
    int type;
    socklen_t size = sizeof type;
    const char *at = getenv("FAULT_AT");
    return at != NULL && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           type == SOCK_STREAM && unlink(at) == 0;
}
ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    if (!breaks(fd))
        return syscall(SYS_sendto, fd, bytes, size, flags, NULL, 0);
    if ((flags & MSG_NOSIGNAL) == 0)
        raise(SIGPIPE);
    errno = EPIPE;
    return -1;
}
ssize_t write(int fd, const void *bytes, size_t size)
{
    if (!breaks(fd))
        return syscall(SYS_write, fd, bytes, size);
    raise(SIGPIPE);
    errno = EPIPE;
    return -1;
}
#elif defined FAULT_signal_before_fork
/* SIGTERM arrives after dlock has looked for signals for the last time, and before there is a
 * process for the command. */
int clone(start *run, void *stack, int flags, void *data, ...)
{
    clone_function *real;
    *(void **)&real = dlsym(RTLD_NEXT, "clone");
    raise(SIGTERM);
    return real(run, stack, flags, data);
}
#elif defined FAULT_signal_at_start || defined FAULT_parent_dies
/* Right after the command's process has started, it gets a signal; or dlock is killed, before its
 * child has asked for a signal at dlock's death. */
static start *real_run;
static int run_late(void *data)
{
#ifdef FAULT_signal_at_start
    kill(getpid(), SIGTERM);
#else
    pid_t parent = getppid();
    kill(parent, SIGKILL);
    while (getppid() == parent)
        usleep(1000);
#endif
    return real_run(data);
}
int clone(start *run, void *stack, int flags, void *data, ...)
{
    clone_function *real;
    *(void **)&real = dlsym(RTLD_NEXT, "clone");
    real_run = run;
    return real(run_late, stack, flags, data);
}
#elif defined FAULT_errno_kept
/* The command cannot be executed, and meanwhile dlock has an errno of its own. */
int clone(start *run, void *stack, int flags, void *data, ...)
{
    clone_function *real;
    siginfo_t info;
    *(void **)&real = dlsym(RTLD_NEXT, "clone");
    errno = EXDEV;
    int pid = real(run, stack, flags, data);
    if (pid < 0 || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) != 0 || errno != EXDEV)
        abort();
    return pid;
}
#elif defined FAULT_hold
/* A thread of dlock stands still at a call, and creates $T/holds, until $T/go_on exists: the watch
 * thread after poll(2) if $T/hold_woken exists, or before write(2) if $T/hold_write does; the main
 * thread after poll(2) if $T/hold_main exists. Creates $T/closed if another thread meanwhile closes
 * what the watch thread polls. */
enum { MOST = 8 };
static _Atomic int polled[MOST];
static pid_t first;
__attribute__((constructor)) static void note_first(void)
{
    for (int i = 0; i < MOST; i++)
        polled[i] = -1;
    first = getpid();
}
static const char *in_test(const char *name, char path[4096])
{
    snprintf(path, 4096, "%s/%s", getenv("T"), name);
    return path;
}
static void create(const char *name)
{
    char path[4096];
    int fd = open(in_test(name, path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    syscall(SYS_close, fd);
}
static void hold(const char *name)
{
    char path[4096];
    int before = errno;
    if (access(in_test(name, path), F_OK) == 0) {
        create("holds");
        while (access(in_test("go_on", path), F_OK) != 0)
            usleep(1000);
    }
    errno = before;
}
static bool is_watch(void)
{
    return getpid() == first && syscall(SYS_gettid) != first;
}
int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    struct timespec time = {timeout / 1000, timeout % 1000 * 1000000L};
    for (nfds_t i = 0; i < count && i < MOST && is_watch(); i++)
        polled[i] = fds[i].fd;
    int ready = (int)syscall(SYS_ppoll, fds, count, timeout < 0 ? NULL : &time, NULL, 0);
    if (getpid() == first && count > 1)
        hold(is_watch() ? "hold_woken" : "hold_main");
    for (int i = 0; i < MOST && is_watch(); i++)
        polled[i] = -1;
    return ready;
}
int close(int fd)
{
    for (int i = 0; i < MOST && fd >= 0 && !is_watch(); i++)
        if (polled[i] == fd)
            create("closed");
    return (int)syscall(SYS_close, fd);
}
ssize_t write(int fd, const void *bytes, size_t size)
{
    if (is_watch())
        hold("hold_write");
    return syscall(SYS_write, fd, bytes, size);
}
#elif defined FAULT_killed_at_end
/* dlock is killed after it has reaped the command if $FAULT_AT is "reaped"; if it is "dismissed",
 * after it has dismissed the guard beside the command. If it is "released", dlock stops before it
 * kills the guard. */
static pid_t first;
static bool reaped;
__attribute__((constructor)) static void note_first(void)
{
    first = getpid();
}
static void raise_at(const char *at, int number)
{
    if (getpid() == first && strcmp(getenv("FAULT_AT"), at) == 0)
        raise(number);
}
int kill(pid_t pid, int number)
{
    if (number == SIGKILL)
        raise_at("released", SIGSTOP);
    return (int)syscall(SYS_kill, pid, number);
}
pid_t waitpid(pid_t pid, int *status, int options)
{
    pid_t found = (pid_t)syscall(SYS_wait4, pid, status, options, NULL);
    reaped |= found > 0;
    if (found > 0)
        raise_at("reaped", SIGKILL);
    return found;
}
int signalfd(int fd, const sigset_t *set, int flags)
{
    if (reaped) /* the release begins */
        raise_at("dismissed", SIGKILL);
    return (int)syscall(SYS_signalfd4, fd, set, _NSIG / 8, flags);
}
#elif defined FAULT_killed_at_kill || defined FAULT_pidfd_open || defined FAULT_pidfd_send_signal
#ifdef FAULT_killed_at_kill
/* dlock itself, not a process that it has forked, is killed after it has stopped the processes that
 * it will kill, and before it kills the first. */
static pid_t dlock;
__attribute__((constructor)) static void remember(void)
{
    dlock = getpid();
}
#endif
long syscall(long number, ...)
{
    long (*real)(long, ...);
    long argument[6];
    va_list arguments;
    *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        argument[i] = va_arg(arguments, long);
    va_end(arguments);
#ifdef FAULT_killed_at_kill
    if (number == SYS_pidfd_send_signal && argument[1] == SIGKILL && getpid() == dlock)
        raise(SIGKILL);
#elif defined FAULT_pidfd_send_signal
    if (number == SYS_pidfd_send_signal) { /* as in a sandbox */
        errno = atoi(getenv("FAULT_ERRNO"));
        return -1;
    }
#else
    if (number == SYS_pidfd_open) { /* as in Linux before 5.3 */
        errno = ENOSYS;
        return -1;
    }
#endif
    return real(number, argument[0], argument[1], argument[2], argument[3], argument[4],
                argument[5]);
}
#elif defined FAULT_caller_ends
/* dlock's caller is killed when dlock asks for the caller's pid for the $FAULT_CALL-th time: if the
 * first time, after the answer, otherwise before it. */
pid_t getppid(void)
{
    static int calls;
    static pid_t killed;
    pid_t (*real)(void);
    *(void **)&real = dlsym(RTLD_NEXT, "getppid");
    pid_t parent = real();
    if (++calls != atoi(getenv("FAULT_CALL")) || killed != 0)
        return parent;
    killed = parent;
    kill(parent, SIGKILL);
    while (real() == parent)
        usleep(1000);
    return calls == 1 ? parent : real();
}
#elif defined FAULT_no_children
/* A kernel that does not list the children of a process. */
static bool is_list(const char *path)
{
    size_t length = strlen(path);
    return length > 9 && strcmp(path + length - 9, "/children") == 0;
}
#define WITHOUT_LISTS(name)                             \
    FILE *name(const char *path, const char *mode)      \
    {                                                   \
        FILE *(*real)(const char *, const char *);      \
        *(void **)&real = dlsym(RTLD_NEXT, #name);      \
        errno = ENOENT;                                 \
        return is_list(path) ? NULL : real(path, mode); \
    }
WITHOUT_LISTS(fopen)
#ifdef __GLIBC__
WITHOUT_LISTS(fopen64)
#endif
int access(const char *path, int mode)
{
    int (*real)(const char *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "access");
    if (is_list(path)) {
        errno = ENOENT;
        return -1;
    }
    return real(path, mode);
}
#elif defined FAULT_stderr_fills
/* Right after poll(2) has found room in stderr, another process fills it. */
static bool fill(int fd)
{
    char bytes[4096] = {0};
    while (write(fd, bytes, sizeof bytes) > 0)
        continue;
    while (write(fd, bytes, 1) > 0)
        continue;
    return close(fd) == 0;
}
int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    int (*real)(struct pollfd *, nfds_t, int);
    *(void **)&real = dlsym(RTLD_NEXT, "poll");
    int ready = real(fds, count, timeout);
    if (count == 1 && fds->fd == 2 && ready == 1 && (fds->revents & POLLOUT) != 0) {
        char bytes[4096] = {0};
        int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd >= 0)
            fill(fd);
        else
            while (send(2, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
                continue;
    }
    return ready;
}
#elif defined FAULT_recv
/* The first recv(2) of dlock's own process fails: the connection is reset. */
static pid_t first;
__attribute__((constructor)) static void note_first(void)
{
    first = getpid();
}
ssize_t recv(int fd, void *bytes, size_t size, int flags)
{
    static int calls;
    ssize_t (*real)(int, void *, size_t, int);
    *(void **)&real = dlsym(RTLD_NEXT, "recv");
    if (getpid() != first || calls++ > 0)
        return real(fd, bytes, size, flags);
    errno = ECONNRESET;
    return -1;
}
#elif defined FAULT_pthread_create || defined FAULT_fork
/* True while the user has as many processes as allowed: until the file $FAULT_UNTIL exists, if that
 * is set. */
static bool is_refused(void)
{
    const char *until = getenv("FAULT_UNTIL");
    return strcmp(program_invocation_short_name, "dlock") == 0 &&
           (until == NULL || access(until, F_OK) != 0);
}
#ifdef FAULT_fork
pid_t fork(void)
{
    pid_t (*real)(void);
    *(void **)&real = dlsym(RTLD_NEXT, "fork");
    if (!is_refused())
        return real();
    errno = EAGAIN;
    return -1;
}
#else
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *data)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return is_refused() ? EAGAIN : real(thread, attributes, start, data);
}
#endif
#elif defined FAULT_pthread_create_stops
/* The guard of --attach stands still before it watches. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *data)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    raise(SIGSTOP);
    return real(thread, attributes, start, data);
}
#elif defined FAULT_inotify
/* The user has as many inotify instances as allowed. */
int inotify_init1(int flags)
{
    (void)flags;
    errno = EMFILE;
    return -1;
}
#elif defined FAULT_inotify_close
/* Creates $T/closed if the last descriptor of inotify is closed, and no message has passed it on by
 * a socket that is still open. */
static int passed_on = -1, passed_by = -1;
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t (*real)(int, const struct msghdr *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "sendmsg");
    const struct cmsghdr *header = message->msg_control;
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
        memcpy(&passed_on, (const char *)header + header->cmsg_len - sizeof passed_on,
               sizeof passed_on);
        passed_by = fd;
    }
    return real(fd, message, flags);
}
static bool is_inotify(int fd)
{
    char path[64], target[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return readlink(path, target, sizeof target - 1) > 0 && strstr(target, "inotify") != NULL;
}
int close(int fd)
{
    enum { MOST_FDS = 64 };
    if (fd == passed_by)
        passed_on = -1;
    bool last = is_inotify(fd) && fd != passed_on;
    for (int other = 0; other < MOST_FDS && last; other++)
        last = other == fd || !is_inotify(other);
    if (last) {
        char path[4096];
        snprintf(path, sizeof path, "%s/closed", getenv("T"));
        int made = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        syscall(SYS_close, made);
    }
    return (int)syscall(SYS_close, fd);
}
#elif defined FAULT_pwrite
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    (void)fd, (void)bytes, (void)count, (void)offset;
    errno = ENOSPC;
    return -1;
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    return pwrite(fd, bytes, count, offset);
}
#elif defined FAULT_count_reads
/* Counts the calls of pread(2), and writes the number to the file $READS at the end. */
static atomic_int reads;
ssize_t pread(int fd, void *bytes, size_t count, off_t offset)
{
    ssize_t (*real)(int, void *, size_t, off_t);
    *(void **)&real = dlsym(RTLD_NEXT, "pread");
    reads++;
    return real(fd, bytes, count, offset);
}
ssize_t pread64(int fd, void *bytes, size_t count, off64_t offset)
{
    return pread(fd, bytes, count, offset);
}
__attribute__((destructor)) static void tell(void)
{
    FILE *file = getenv("READS") != NULL ? fopen(getenv("READS"), "w") : NULL;
    if (file != NULL) {
        fprintf(file, "%d\n", (int)reads);
        fclose(file);
    }
}
#elif defined FAULT_signal_at_pwrite
/* A signal arrives at the first write of a record: PWRITE_SIGNAL is its number, before the write,
 * or negative, after the write. */
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t);
    const char *text = getenv("PWRITE_SIGNAL");
    int number = text != NULL ? atoi(text) : 0;
    unsetenv("PWRITE_SIGNAL");
    *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    if (number > 0)
        raise(number);
    ssize_t written = real(fd, bytes, count, offset);
    if (number < 0)
        raise(-number);
    return written;
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    return pwrite(fd, bytes, count, offset);
}
#elif defined FAULT_stop_at
/* dlock stops itself, once for each of these files: $T/stop_at_section, before it enters the
 * section of a lock file; $T/stop_at_unlink, before it removes a file; $T/stop_at_unlocked, after
 * it has released a lock of flock(2); $T/stop_at_start, before it asks for the signals that it
 * passes on to the command, and starts the command. */
static void stop_if(const char *where)
{
    char path[4096];
    const char *test = getenv("T");
    snprintf(path, sizeof path, "%s/stop_at_%s", test != NULL ? test : "", where);
    if (syscall(SYS_unlinkat, AT_FDCWD, path, 0) == 0)
        raise(SIGSTOP);
}
int fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    const struct flock *lock = argument;
    if (command == F_OFD_SETLK && lock->l_type == F_WRLCK && lock->l_start == (off_t)1 << 60)
        stop_if("section");
    return (int)syscall(SYS_fcntl, fd, command, argument);
}
int fcntl64(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    return fcntl(fd, command, argument);
}
int flock(int fd, int operation)
{
    int result = (int)syscall(SYS_flock, fd, operation);
    if (operation == LOCK_UN)
        stop_if("unlocked");
    return result;
}
int signalfd(int fd, const sigset_t *set, int flags)
{
    if (fd >= 0)
        stop_if("start");
    return (int)syscall(SYS_signalfd4, fd, set, NSIG / 8, flags);
}
int unlink(const char *path)
{
    stop_if("unlink");
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
#elif defined FAULT_flock_as_on_nfs
/* On NFS an exclusive lock is a lock of fcntl(2), which needs a file that is open for writing. */
int flock(int fd, int operation)
{
    if ((operation & LOCK_EX) && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) {
        errno = EBADF;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}
#elif defined FAULT_fstatfs
/* Every file system is of the type $FAULT_TYPE. */
static int fill_type(int fd, struct statfs *status)
{
    int result = (int)syscall(SYS_fstatfs, fd, status);
    status->f_type = strtol(getenv("FAULT_TYPE"), NULL, 0);
    return result;
}
int fstatfs(int fd, struct statfs *status)
{
    return fill_type(fd, status);
}
int fstatfs64(int fd, struct statfs64 *status)
{
    return fill_type(fd, (struct statfs *)(void *)status); /* both structs are equal on 64 bits */
}
#elif defined FAULT_resolver
/* A resolver that hangs for a minute. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **list)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!(hints->ai_flags & AI_NUMERICHOST))
        sleep(60);
    return real(host, port, hints, list);
}
#elif defined FAULT_names
/* The name "primary" has the address in the file $T/names; without the file the resolver hangs. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **list)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    char path[4096], address[64] = "";
    if (strcmp(host, "primary") != 0 || (hints->ai_flags & AI_NUMERICHOST))
        return real(host, port, hints, list);
    snprintf(path, sizeof path, "%s/names", getenv("T"));
    FILE *names = fopen(path, "r");
    if (names == NULL || fscanf(names, "%63s", address) != 1)
        sleep(60);
    if (names != NULL)
        fclose(names);
    return real(address, port, hints, list);
}
#elif defined FAULT_resolver_again
/* A resolver that fails for the moment, three times. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **list)
{
    static atomic_int times;
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!(hints->ai_flags & AI_NUMERICHOST) && atomic_fetch_add(&times, 1) < 3)
        return EAI_AGAIN;
    return real(host, port, hints, list);
}
#elif defined FAULT_connect_denied
/* A firewall that refuses with an error. */
int connect(int fd, const struct sockaddr *address, socklen_t size)
{
    int (*real)(int, const struct sockaddr *, socklen_t);
    *(void **)&real = dlsym(RTLD_NEXT, "connect");
    if (address->sa_family != AF_INET)
        return real(fd, address, size);
    errno = EACCES;
    return -1;
}
#elif defined FAULT_two_addresses
/* Every name has two addresses, and the first one refuses connections. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **list)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (hints->ai_flags & AI_NUMERICHOST)
        return real(host, port, hints, list);
    struct addrinfo *second, own = *hints;
    own.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    int error = real("127.0.0.77", port, &own, list);
    if (error == 0 && (error = real("127.0.0.1", port, &own, &second)) == 0)
        (*list)->ai_next = second;
    return error;
}
#elif defined FAULT_system_conf
#ifndef __GLIBC__
#define glob64_t glob_t
#endif
/* $SYSTEM_CONF replaces the system's configuration file, and $SYSTEM_CONF.d the directory beside. */
int glob64(const char *pattern, int flags, int (*failed)(const char *, int), glob64_t *found)
{
    int (*real)(const char *, int, int (*)(const char *, int), glob64_t *);
    *(void **)&real = dlsym(RTLD_NEXT, "glob64");
    char path[4096];
    const char *there = getenv("SYSTEM_CONF");
    snprintf(path, sizeof path, "%s.d/*.conf", there != NULL ? there : "");
    return real(there != NULL ? path : pattern, flags, failed, found);
}

int openat64(int dir, const char *path, int flags, ...)
{
    int (*real)(int, const char *, int, ...);
    *(void **)&real = dlsym(RTLD_NEXT, "openat64");
    const char *there = getenv("SYSTEM_CONF"), *test = getenv("T");
    size_t length = strlen(path);
    va_list rest;
    va_start(rest, flags);
    unsigned mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0;
    va_end(rest);
    if (there != NULL && length > 11 && strcmp(path + length - 11, "/dlock.conf") == 0 &&
        (test == NULL || strncmp(path, test, strlen(test)) != 0))
        path = there;
    return real(dir, path, flags, mode);
}
#elif defined FAULT_vsock
/* A hypervisor has $VSOCK_TYPE alone, and the port is a path, $T/vsock.CID.PORT. With $VSOCK_SILENT
 * nobody answers there. */
int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    int (*real)(struct pollfd *, nfds_t, int);
    *(void **)&real = dlsym(RTLD_NEXT, "poll");
    if (getenv("VSOCK_SILENT") != NULL && count == 1 && fds->events == POLLOUT && fds->fd > 2)
        return real(NULL, 0, timeout);
    return real(fds, count, timeout);
}

int socket(int family, int type, int protocol)
{
    int (*real)(int, int, int);
    *(void **)&real = dlsym(RTLD_NEXT, "socket");
    enum { FLAGS = SOCK_CLOEXEC | SOCK_NONBLOCK };
    if (family == AF_VSOCK && (type & ~FLAGS) != atoi(getenv("VSOCK_TYPE")))
        return errno = ENODEV, -1;
    return real(family == AF_VSOCK ? AF_UNIX : family, type, protocol);
}

int connect(int fd, const struct sockaddr *to, socklen_t size)
{
    int (*real)(int, const struct sockaddr *, socklen_t);
    *(void **)&real = dlsym(RTLD_NEXT, "connect");
    struct sockaddr_vm vm;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (to->sa_family != AF_VSOCK)
        return real(fd, to, size);
    if (getenv("VSOCK_SILENT") != NULL)
        return errno = EINPROGRESS, -1;
    memcpy(&vm, to, sizeof vm);
    snprintf(at.sun_path, sizeof at.sun_path, "%s/vsock.%u.%u", getenv("T"), vm.svm_cid,
             vm.svm_port);
    return real(fd, (const struct sockaddr *)&at, sizeof at);
}
#elif defined FAULT_same_start
/* All processes have started in the same tick of the clock. With $FAULT_NO_SPACE, processes cannot
 * read which pid namespace they are in. */
static int same_start(int stat_fd)
{
    enum { FIELD_STATE = 3, FIELD_START = 22 };
    char text[2048];
    ssize_t length = read(stat_fd, text, sizeof text - 1);
    int fd = memfd_create("stat", MFD_CLOEXEC);
    close(stat_fd);
    text[length > 0 ? length : 0] = '\0';
    char *at = strrchr(text, ')');
    for (int field = FIELD_STATE; at != NULL && field <= FIELD_START; field++)
        at = strchr(at + 1, ' ');
    if (at != NULL)
        strcpy(at, " 7\n");
    if (at == NULL || write(fd, text, strlen(text)) < 0 || lseek(fd, 0, SEEK_SET) != 0)
        abort();
    return fd;
}
int open64(const char *path, int flags, ...)
{
    const char *name = strrchr(path, '/');
    va_list rest;
    va_start(rest, flags);
    unsigned mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0;
    va_end(rest);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    bool is_stat =
        fd >= 0 && strncmp(path, "/proc/", 6) == 0 && name != NULL && strcmp(name, "/stat") == 0;
    return is_stat ? same_start(fd) : fd;
}
ssize_t readlink(const char *restrict path, char *restrict target, size_t size)
{
    if (getenv("FAULT_NO_SPACE") != NULL && strcmp(path, "/proc/self/ns/pid") == 0) {
        errno = EACCES;
        return -1;
    }
    return readlinkat(AT_FDCWD, path, target, size);
}
#elif defined FAULT_protected_regular
/* open(2) with O_CREAT fails if the file exists, as with fs.protected_regular. A file of counts
 * (tests/coverage) is not refused. */
int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    unsigned mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0;
    va_end(rest);
    if ((flags & O_CREAT) != 0 && access(path, F_OK) == 0 && strstr(path, ".gcda") == NULL) {
        errno = EACCES;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    unsigned mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0;
    va_end(rest);
    return open64(path, flags, mode);
}
#elif defined FAULT_ancestor_ends
/* At the first check, the process $FAULT_PID is not in /proc, as if it had just ended. */
int open64(const char *path, int flags, ...)
{
    static atomic_bool looked;
    char stat[64];
    va_list rest;
    va_start(rest, flags);
    unsigned mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0;
    va_end(rest);
    snprintf(stat, sizeof stat, "/proc/%s/stat", getenv("FAULT_PID"));
    if (strcmp(path, stat) == 0 && !atomic_exchange(&looked, true)) {
        errno = ENOENT;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
#elif defined FAULT_other_device
/* stat(2) names another device than the kernel's lists of locks, as on btrfs. */
static int elsewhere(int result, struct stat64 *status)
{
    if (result == 0 && S_ISREG(status->st_mode))
        status->st_dev++;
    return result;
}
int stat64(const char *restrict path, struct stat64 *restrict status)
{
    return elsewhere(fstatat64(AT_FDCWD, path, status, 0), status);
}
int stat(const char *restrict path, struct stat *restrict status)
{
    return stat64(path, (struct stat64 *)(void *)status);
}
int lstat64(const char *restrict path, struct stat64 *restrict status)
{
    return elsewhere(fstatat64(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW), status);
}
int lstat(const char *restrict path, struct stat *restrict status)
{
    return lstat64(path, (struct stat64 *)(void *)status);
}
int fstat64(int fd, struct stat64 *status)
{
    return elsewhere(fstatat64(fd, "", status, AT_EMPTY_PATH), status);
}
int fstat(int fd, struct stat *status)
{
    return fstat64(fd, (struct stat64 *)(void *)status);
}
#elif defined FAULT_locks_read_late || defined FAULT_locks_omitted
#ifdef FAULT_locks_omitted
/* The first reading of the list of locks omits them all. */
static const char *path_to_read(const char *path)
{
    static int readings;
    return strcmp(path, "/proc/locks") == 0 && readings++ == 0 ? "/dev/null" : path;
}
#else
/* Before dlock reads the list of locks, it creates $T/late and waits until $T/go_on exists. */
static const char *path_to_read(const char *path)
{
    char late[4096], go_on[4096];
    const char *test = getenv("T");
    if (test == NULL || strcmp(path, "/proc/locks") != 0)
        return path;
    snprintf(late, sizeof late, "%s/late", test);
    snprintf(go_on, sizeof go_on, "%s/go_on", test);
    int fd = open(late, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (access(go_on, F_OK) != 0)
        usleep(10000);
    close(fd);
    return path;
}
#endif
FILE *fopen64(const char *restrict path, const char *restrict mode)
{
    FILE *(*real)(const char *, const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "fopen64");
    return real(path_to_read(path), mode);
}
FILE *fopen(const char *restrict path, const char *restrict mode)
{
    return fopen64(path, mode);
}
#elif defined FAULT_wall_clock || defined FAULT_boot_clock
#ifdef FAULT_wall_clock
#define CLOCK "wall_clock"
#else
#define CLOCK "boot_clock"
#endif
/* The clock is ahead by the seconds in the file $T/wall_clock or $T/boot_clock; after a "=", the
 * boot clock stands at these seconds. Calls the kernel directly, because a sanitizer calls this
 * before the sanitizer's own wrappers are ready. */
static _Thread_local bool stands;
static time_t ahead(void)
{
    char path[4096], text[32] = "";
    const char *test = getenv("T");
    int before = errno;
    snprintf(path, sizeof path, "%s/" CLOCK, test != NULL ? test : "");
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!syscall(SYS_read, fd, text, sizeof text - 1);
        syscall(SYS_close, fd);
    }
    errno = before; /* reading a clock does not change errno */
    stands = text[0] == '=';
    return (time_t)strtoll(text + stands, NULL, 10);
}
#ifdef FAULT_boot_clock
/* If these seconds grow, the host was suspended: after that, a timer on this clock has run out; a
 * timer on another clock, and the timeout of poll(2), have not. */
enum { MOST_FDS = 1024 };
static struct {
    bool on_boot_clock;
    struct timespec at;
} timers[MOST_FDS];
static pthread_mutex_t timers_mutex = PTHREAD_MUTEX_INITIALIZER;
static int set_timer(int fd)
{
    struct itimerspec time = {.it_value = timers[fd].at};
    bool is_set = time.it_value.tv_sec != 0 || time.it_value.tv_nsec != 0;
    if (is_set && (time.it_value.tv_sec -= ahead()) < 0)
        time.it_value = (struct timespec){0, 1}; /* long past */
    else if (is_set && stands)
        time.it_value = (struct timespec){0}; /* never */
    return (int)syscall(SYS_timerfd_settime, fd, TFD_TIMER_ABSTIME, &time, NULL);
}
static void set_timers_again(void)
{
    static time_t before;
    time_t now = ahead();
    pthread_mutex_lock(&timers_mutex);
    for (int fd = 0; fd < MOST_FDS && now != before; fd++)
        if (timers[fd].on_boot_clock && timers[fd].at.tv_sec != 0)
            set_timer(fd);
    before = now;
    pthread_mutex_unlock(&timers_mutex);
}
int timerfd_create(int clock, int flags)
{
    int fd = (int)syscall(SYS_timerfd_create, clock, flags);
    if (fd >= 0 && fd < MOST_FDS)
        timers[fd].on_boot_clock = clock == CLOCK_BOOTTIME, timers[fd].at = (struct timespec){0};
    return fd;
}
int clock_gettime(clockid_t id, struct timespec *ts)
{
    int result = (int)syscall(SYS_clock_gettime, id, ts);
    if (result == 0 && id == CLOCK_BOOTTIME) {
        time_t seconds = ahead();
        *ts = stands ? (struct timespec){seconds, 0}
                     : (struct timespec){ts->tv_sec + seconds, ts->tv_nsec};
    }
    return result;
}
int timerfd_settime(int fd, int flags, const struct itimerspec *given, struct itimerspec *old)
{
    if (fd >= MOST_FDS || !timers[fd].on_boot_clock || (flags & TFD_TIMER_ABSTIME) == 0)
        return (int)syscall(SYS_timerfd_settime, fd, flags, given, old);
    pthread_mutex_lock(&timers_mutex);
    timers[fd].at = given->it_value;
    int result = set_timer(fd);
    pthread_mutex_unlock(&timers_mutex);
    return result;
}
int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    enum { SLICE_MS = 20 };
    for (;;) {
        int slice = timeout < 0 || timeout > SLICE_MS ? SLICE_MS : timeout;
        set_timers_again();
        int ready =
            (int)syscall(SYS_ppoll, fds, count, &(struct timespec){0, slice * 1000000L}, NULL, 0);
        if (ready != 0 || slice == timeout)
            return ready;
        if (timeout > 0)
            timeout -= slice;
    }
}
#else
int clock_gettime(clockid_t id, struct timespec *ts)
{
    int result = (int)syscall(SYS_clock_gettime, id, ts);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        ts->tv_sec += ahead();
    return result;
}
int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec ts;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &ts);
    *tv = (struct timeval){ts.tv_sec, ts.tv_nsec / 1000};
    return 0;
}
/* The kernel waits by its own clock: without this, a wait until a time of a clock that was set back
 * ends at once, and a thread of a Redis server (jemalloc's) waits so again and again. */
int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    return real(condition, mutex, &(struct timespec){until->tv_sec - ahead(), until->tv_nsec});
}
time_t time(time_t *out)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (out != NULL)
        *out = ts.tv_sec;
    return ts.tv_sec;
}
#endif
#endif
#if defined FAULT_system_conf || defined FAULT_same_start || defined FAULT_ancestor_ends
int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    unsigned mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0;
    va_end(rest);
    return open64(path, flags, mode);
}
#endif
