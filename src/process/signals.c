#include "process/signals.h"

#include "util/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

/* The signals that end a process by default, except those by which the kernel reports a fault in
 * this process. signals_open() adds the real-time signals. */
static const int ending[] = {SIGTERM, SIGINT,    SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2, SIGABRT,
                             SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGIO,   SIGPWR,  0};
static const int passed_on[] = {SIGWINCH, SIGCONT, SIGTSTP, 0};
static const int blocked_beside_command[] = {SIGTTIN, SIGTTOU, 0};
static const int blocked_for_good[] = {SIGPIPE, SIGXFSZ, 0};

/* dlock does not block ignored signals (nohup, a shell's background job), because the kernel queues
 * a blocked signal even if it is ignored, and the signal would then end dlock. */
static void read_ignored(sigset_t *ignored)
{
    struct sigaction action;

    sigemptyset(ignored);
    for (int number = 1; number <= SIGRTMAX; number++)
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigaddset(ignored, number);
}

static void add(sigset_t *set, const int *numbers, const sigset_t *ignored)
{
    for (; *numbers != 0; numbers++)
        if (sigismember(ignored, *numbers) == 0)
            sigaddset(set, *numbers);
}

/* Blocks the signals in `set`, which the descriptor then reports, and those in `others`, which are
 * not reported. Stores the previous mask in *original unless that is NULL. */
static bool listen_to(struct signals *signals, sigset_t *set, const int *others, sigset_t *original,
                      struct errmsg *why)
{
    int fd = signalfd(signals->fd, set, SFD_CLOEXEC | SFD_NONBLOCK);

    if (fd < 0)
        return errmsg_fail(why, false, "cannot listen for signals: %s", strerror(errno));
    signals->fd = fd;
    add(set, others, &signals->ignored);
    return sigprocmask(SIG_BLOCK, set, original) == 0 ||
           errmsg_fail(why, false, "cannot block signals: %s", strerror(errno));
}

bool signals_open(struct signals *signals, struct errmsg *why)
{
    sigset_t *ignored = &signals->ignored;
    sigset_t set;

    signals->fd = -1;
    read_ignored(ignored);
    /* If dlock ignored SIGCHLD, the kernel would discard the command's status. */
    if (sigismember(ignored, SIGCHLD) == 1)
        signal(SIGCHLD, SIG_DFL);

    sigemptyset(&signals->ending);
    add(&signals->ending, ending, ignored);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        add(&signals->ending, (int[]){number, 0}, ignored);
    set = signals->ending;
    return listen_to(signals, &set, blocked_for_good, &signals->original, why);
}

bool signals_widen(struct signals *signals, struct errmsg *why)
{
    sigset_t set = signals->ending;

    add(&set, passed_on, &signals->ignored);
    sigaddset(&set, SIGCHLD);
    return listen_to(signals, &set, blocked_beside_command, NULL, why);
}

void signals_narrow(const struct signals *signals)
{
    if (signals->fd >= 0) /* only changes which signals the descriptor reports */
        (void)signalfd(signals->fd, &signals->ending, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool is_of_terminal(int number)
{
    return number == SIGINT || number == SIGHUP || number == SIGQUIT || number == SIGWINCH ||
           number == SIGCONT || number == SIGTSTP;
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
        .typed = !from_process && is_of_terminal((int)info.ssi_signo),
        .sender = from_process ? (pid_t)info.ssi_pid : 0,
    };
    return true;
}

int signals_ended_by(const struct signals *signals)
{
    struct signal_event event;
    struct drain drain = {0};
    int number = 0;
    while (drain_goes_on(&drain) && signals_next(signals, &event))
        if (number == 0 && sigismember(&signals->ending, event.number) == 1)
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

/* Delivers a signal to this process even if the signal is blocked. */
static void deliver(int number, sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, set, NULL);
}

void signals_stop_here(int number)
{
    sigset_t set;

    deliver(number, &set); /* returns after SIGCONT */
    sigprocmask(SIG_BLOCK, &set, NULL);
}

int signals_die_by(int number)
{
    sigset_t set;

    /* dlock has worked correctly, so it must not leave a core file. */
    if (prctl(PR_SET_DUMPABLE, 0) != 0)
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    signal(number, SIG_DFL);
    deliver(number, &set);
    return 128 + number;
}
