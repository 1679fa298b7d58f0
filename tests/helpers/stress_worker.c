/* The command that tests/torture runs under a lock.
 *
 *   stress_worker DIR LOG RUN [ms=N] [exit=N] [deaf] [die] [stop=N] [daemon=N] [hydra=N] [extend=N] [beats=N] [steady]
 *
 * It proves whether it runs alone. DIR has one file for each run of this lock. All processes of the
 * run, even daemons, share one open file description, with a flock(2) that the kernel releases when
 * the last of them has ended. A file gets its name after it is locked, so of two runs at the same
 * time at least the later one finds the other. The worker logs start, end and events, with their
 * times on CLOCK_BOOTTIME, one write(2) a line. It keeps the last time at which it was alive in its
 * file, and also logs if the machine wakes it late.
 *
 *   ms      how long it works                 exit    its status at the end
 *   deaf    ignores TERM                      die     ends by SIGKILL from itself
 *   stop    stops itself (SIGSTOP) after N ms
 *   daemon  leaves a daemon, deaf to TERM, that works for N ms
 *   hydra   leaves that daemon on TERM, and ends
 *   extend  runs `$TORTURE_DLOCK --extend` after N ms
 *   beats   sends WATCHDOG=1 to $NOTIFY_SOCKET every N ms
 *   steady  ignores the real-time signals
 *
 * In a time namespace whose boot clock is $TORTURE_AHEAD seconds ahead, it subtracts them from the
 * times that it logs.
 *
 * It raises its soft limits and sets an umask, because those of dlock must not limit the worker. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS INT64_C(1000000)

enum { BEAT_MS = 5, LATE_MS = 3, BROKEN = 99 };

static const char *run;
static int log_fd;
static int64_t ahead;
static _Atomic int64_t *beat;
static volatile sig_atomic_t term_seen;
extern char **environ;

/* When each action during the work is next due; INT64_MAX: never. */
struct due {
    int64_t stop, extend, beat, beat_interval;
};

static int64_t now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 * NS_PER_MS + ts.tv_nsec - ahead;
}

__attribute__((format(printf, 2, 3))) static void tell(int64_t at, const char *format, ...)
{
    char line[512];
    va_list arguments;
    int length = snprintf(line, sizeof line, "%.6f ", (double)at / 1e9);
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length, format, arguments);
    va_end(arguments);
    length += snprintf(line + length, sizeof line - (size_t)length, " run=%s pid=%ld\n", run,
                       (long)getpid());
    if (write(log_fd, line, (size_t)length) != length)
        _exit(BROKEN);
}

__attribute__((noreturn)) static void broken(const char *what)
{
    tell(now(), "broken what=%s errno=%d", what, errno);
    _exit(BROKEN);
}

static void on_term(int number)
{
    (void)number;
    term_seen = 1;
}

static void show_life(const char *dir)
{
    char hidden[4096], path[4096];
    snprintf(hidden, sizeof hidden, "%s/.%s", dir, run);
    snprintf(path, sizeof path, "%s/%s", dir, run);
    int fd = open(hidden, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 || ftruncate(fd, sizeof *beat) != 0)
        broken("alive");
    beat = mmap(NULL, sizeof *beat, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (beat == MAP_FAILED)
        broken("mmap");
    atomic_store(beat, now());
    if (rename(hidden, path) != 0)
        broken("rename");
}

static void look_for_others(const char *dir)
{
    char path[4096];
    DIR *runs = opendir(dir);
    if (runs == NULL)
        broken("opendir");
    for (const struct dirent *other; (other = readdir(runs)) != NULL;) {
        if (other->d_name[0] == '.' || strcmp(other->d_name, run) == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, other->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue; /* that run has ended, and its file was removed */
        /* The time before the check, because the other run may end right after it. */
        int64_t at = now();
        if (flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
            tell(at, "overlap with=%s", other->d_name);
        close(fd);
    }
    closedir(runs);
}

/* A macro, because the type of a resource is an enum in glibc and an int in musl. */
#define RAISE_LIMIT(resource)                     \
    do {                                          \
        struct rlimit limit;                      \
        if (getrlimit((resource), &limit) == 0) { \
            limit.rlim_cur = limit.rlim_max;      \
            (void)setrlimit((resource), &limit);  \
        }                                         \
    } while (0)

static void raise_limits(void)
{
    RAISE_LIMIT(RLIMIT_NOFILE);
    RAISE_LIMIT(RLIMIT_AS);
    RAISE_LIMIT(RLIMIT_NPROC);
    RAISE_LIMIT(RLIMIT_STACK);
    RAISE_LIMIT(RLIMIT_DATA);
}

/* Runs another dlock, which extends the lease. dlock counts the new lease from before its request,
 * so the lease ends no later than if counted from the time logged here. */
static void extend(void)
{
    char *dlock = getenv("TORTURE_DLOCK");
    char *argv[] = {dlock, (char[]){"--extend"}, (char[]){"-q"}, NULL};
    pid_t pid;
    int status;
    if (dlock == NULL)
        broken("extend");
    if (posix_spawn(&pid, dlock, NULL, NULL, argv, environ) != 0)
        return; /* a filter that refuses calls to dlock refuses them to its command, too */
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            broken("extend");
    tell(now(), "extended status=%d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void show_heartbeat(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path != NULL ? strlen(path) : 0;
    if (length == 0 || length >= sizeof address.sun_path)
        broken("beats");
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        broken("beats");
    /* Fails if dlock was killed. */
    if (sendto(fd, "WATCHDOG=1", 10, MSG_NOSIGNAL, (struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) == 10)
        tell(now(), "beat");
    close(fd);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Works until `end`; a SIGTERM that is not ignored ends the work sooner. */
static void work(int64_t end, struct due *due)
{
    while (!term_seen) {
        int64_t at = now();
        atomic_store(beat, at);
        if (at >= end)
            return;
        if (at >= due->stop) {
            due->stop = INT64_MAX;
            tell(at, "stops");
            raise(SIGSTOP);
            continue;
        }
        if (at >= due->extend) {
            due->extend = INT64_MAX;
            extend();
            continue;
        }
        if (at >= due->beat) {
            due->beat = at + due->beat_interval;
            show_heartbeat();
        }
        int64_t next = at + BEAT_MS * NS_PER_MS;
        next = least(next, end);
        struct timespec ts = {(time_t)((next + ahead) / (1000 * NS_PER_MS)),
                              (long)((next + ahead) % (1000 * NS_PER_MS))};
        clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &ts, NULL);
        at = now();
        if (at - next >= LATE_MS * NS_PER_MS)
            tell(at, "late by=%.6f", (double)(at - next) / 1e9);
    }
}

static void leave_daemon(int64_t life)
{
    pid_t middle = fork();
    if (middle < 0)
        broken("fork");
    if (middle > 0) {
        while (waitpid(middle, NULL, 0) < 0 && errno == EINTR)
            continue;
        return;
    }
    signal(SIGTERM, SIG_IGN);
    term_seen = 0;
    setsid();
    pid_t daemon = fork();
    if (daemon != 0)
        _exit(daemon < 0);
    tell(now(), "daemon");
    work(now() + life, &(struct due){INT64_MAX, INT64_MAX, INT64_MAX, 0});
    tell(now(), "daemon_end");
    _exit(0);
}

/* True if the word is KEY=N; sets *value to N times `unit`, for example to convert ms to ns. */
static int is_number(const char *word, const char *key, int64_t unit, int64_t *value)
{
    size_t length = strlen(key);
    if (strncmp(word, key, length) != 0 || word[length] != '=')
        return 0;
    *value = (int64_t)(strtod(word + length + 1, NULL) * (double)unit);
    return 1;
}

int main(int argc, char **argv)
{
    const char *shift = getenv("TORTURE_AHEAD");
    ahead = shift != NULL ? strtoll(shift, NULL, 10) * 1000 * NS_PER_MS : 0;
    int64_t begin = now(), length = 0, status = 0, stop = -1, daemon = -1, hydra = -1,
            extension = -1, beats = -1;
    int deaf = 0, die = 0, steady = 0;
    if (argc < 4)
        return BROKEN;
    run = argv[3];
    log_fd = open(argv[2], O_WRONLY | O_APPEND | O_CLOEXEC);
    for (int i = 4; i < argc; i++) {
        deaf |= strcmp(argv[i], "deaf") == 0;
        die |= strcmp(argv[i], "die") == 0;
        steady |= strcmp(argv[i], "steady") == 0;
        (void)(is_number(argv[i], "ms", NS_PER_MS, &length) ||
               is_number(argv[i], "exit", 1, &status) ||
               is_number(argv[i], "stop", NS_PER_MS, &stop) ||
               is_number(argv[i], "daemon", NS_PER_MS, &daemon) ||
               is_number(argv[i], "hydra", NS_PER_MS, &hydra) ||
               is_number(argv[i], "extend", NS_PER_MS, &extension) ||
               is_number(argv[i], "beats", NS_PER_MS, &beats));
    }
    raise_limits();
    umask(0);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = deaf ? SIG_IGN : on_term}, NULL);
    for (int number = SIGRTMIN; steady && number <= SIGRTMAX; number++)
        signal(number, SIG_IGN);
    show_life(argv[1]);
    const char *fence = getenv("DLOCK_FENCE");
    const char *slot = getenv("DLOCK_SLOT");
    tell(begin, "start fence=%s%s%s", fence != NULL ? fence : "0", slot != NULL ? " slot=" : "",
         slot != NULL ? slot : "");
    look_for_others(argv[1]);
    if (daemon >= 0)
        leave_daemon(daemon);
    work(begin + length, &(struct due){.stop = stop >= 0 ? begin + stop : INT64_MAX,
                                       .extend = extension >= 0 ? begin + extension : INT64_MAX,
                                       .beat = beats >= 0 ? begin : INT64_MAX,
                                       .beat_interval = beats});
    if (term_seen) {
        tell(now(), "term");
        if (hydra >= 0)
            leave_daemon(hydra);
    }
    tell(now(), "%s status=%d", die ? "die" : "end", (int)status);
    if (die)
        raise(SIGKILL);
    _exit((int)status);
}
