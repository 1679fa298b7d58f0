#include "process/signals.h"

#include "util/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

/* All that end a process by default, even the real-time signals; but not those
 * by which the kernel reports a fault in this process. */
static const int ending[] = {SIGTERM, SIGINT,    SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2, SIGABRT,
                             SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGIO,   SIGPWR,  0};
static const int passed_on[] = {SIGWINCH, SIGCONT, SIGTSTP, 0};
static const int blocked_beside_command[] = {SIGTTIN, SIGTTOU, 0};
static const int blocked_for_good[] = {SIGPIPE, SIGXFSZ, 0};
static const int of_terminal[] = {SIGINT, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT, SIGTSTP, 0};

/* An ignored signal (nohup, a shell's background job) would still be queued if it were
 * blocked, and would end dlock: so dlock blocks none of them. */
static void read_ignored(sigset_t *ignored)
{
    struct sigaction action;

    sigemptyset(ignored);
    for (int number = 1; number <= SIGRTMAX; number++)
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigaddset(ignored, number);
}

static void add_one(sigset_t *set, int number, const sigset_t *ignored)
{
    if (sigismember(ignored, number) == 0)
        sigaddset(set, number);
}

static void add_all(sigset_t *set, const int *numbers, const sigset_t *ignored)
{
    for (; *numbers != 0; numbers++)
        add_one(set, *numbers, ignored);
}

static void add_ending(sigset_t *set, const sigset_t *ignored)
{
    add_all(set, ending, ignored);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        add_one(set, number, ignored);
}

static bool block(const sigset_t *set, sigset_t *original, struct errmsg *why)
{
    if (sigprocmask(SIG_BLOCK, set, original) == 0)
        return true;
    errmsg_set(why, "cannot block signals: %s", strerror(errno));
    return false;
}

static bool listen_to(struct signals *signals, const sigset_t *set, struct errmsg *why)
{
    int fd = signalfd(signals->fd, set, SFD_CLOEXEC | SFD_NONBLOCK);

    if (fd < 0) {
        errmsg_set(why, "cannot listen for signals: %s", strerror(errno));
        return false;
    }
    signals->fd = fd;
    return block(set, NULL, why);
}

bool signals_open(struct signals *signals, struct errmsg *why)
{
    sigset_t set;

    signals->fd = -1;
    read_ignored(&signals->ignored);
    sigemptyset(&set);
    add_all(&set, blocked_for_good, &signals->ignored);
    if (!block(&set, &signals->original, why))
        return false;

    /* If SIGCHLD were ignored, the kernel would discard the command's status. */
    if (sigismember(&signals->ignored, SIGCHLD) == 1)
        signal(SIGCHLD, SIG_DFL);

    sigemptyset(&set);
    add_ending(&set, &signals->ignored);
    return listen_to(signals, &set, why);
}

bool signals_widen(struct signals *signals, struct errmsg *why)
{
    sigset_t set;

    sigemptyset(&set);
    add_all(&set, blocked_beside_command, &signals->ignored);
    if (!block(&set, NULL, why))
        return false;

    sigemptyset(&set);
    add_ending(&set, &signals->ignored);
    add_all(&set, passed_on, &signals->ignored);
    sigaddset(&set, SIGCHLD);
    return listen_to(signals, &set, why);
}

void signals_narrow(const struct signals *signals)
{
    sigset_t set;

    if (signals->fd < 0)
        return;
    sigemptyset(&set);
    add_ending(&set, &signals->ignored);
    (void)signalfd(signals->fd, &set, SFD_CLOEXEC | SFD_NONBLOCK); /* only changes the set */
}

static bool is_one_of(int number, const int *numbers)
{
    while (*numbers != 0 && *numbers != number)
        numbers++;
    return *numbers != 0;
}

bool signals_next(const struct signals *signals, struct signal_event *event)
{
    struct signalfd_siginfo info;
    ssize_t length;
    do
        length = read(signals->fd, &info, sizeof info);
    while (length < 0 && errno == EINTR);
    if (length != (ssize_t)sizeof info)
        return false;
    bool from_process =
        info.ssi_code == SI_USER || info.ssi_code == SI_TKILL || info.ssi_code == SI_QUEUE;
    *event = (struct signal_event){
        .number = (int)info.ssi_signo,
        .typed = !from_process && is_one_of((int)info.ssi_signo, of_terminal),
        .sender = from_process ? (pid_t)info.ssi_pid : 0,
    };
    return true;
}

static bool ends(int number)
{
    return is_one_of(number, ending) || (number >= SIGRTMIN && number <= SIGRTMAX);
}

int signals_ended_by(const struct signals *signals)
{
    struct signal_event event;
    struct drain drain = {0};
    int number = 0;
    while (drain_goes_on(&drain) && signals_next(signals, &event))
        if (number == 0 && ends(event.number))
            number = event.number;
    return number;
}

void signals_forget_writes(const struct signals *signals)
{
    sigset_t ours;
    struct drain drain = {0};
    sigemptyset(&ours);
    for (const int *number = blocked_for_good; *number != 0; number++)
        if (sigismember(&signals->original, *number) == 0)
            sigaddset(&ours, *number);
    while (drain_goes_on(&drain) && sigtimedwait(&ours, NULL, &(struct timespec){0}) > 0)
        continue;
}

void signals_restore(const struct signals *signals)
{
    if (sigismember(&signals->ignored, SIGCHLD) == 1)
        signal(SIGCHLD, SIG_IGN);
    sigprocmask(SIG_SETMASK, &signals->original, NULL);
}

void signals_stop_here(int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &set, NULL); /* stopped in here, until SIGCONT */
    sigprocmask(SIG_BLOCK, &set, NULL);
}

int signals_die_by(int number)
{
    sigset_t set;
    /* No core file for a program that did what it should. */
    if (prctl(PR_SET_DUMPABLE, 0) != 0)
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    signal(number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    return 128 + number;
}
