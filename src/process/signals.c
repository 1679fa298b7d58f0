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

/* A signal that is ignored (nohup, a shell's background job) would still be
 * queued once it is blocked, and would end us. */
static bool is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static void signals_add(sigset_t *set, int number)
{
    if (!is_ignored(number))
        sigaddset(set, number);
}

static void add_all(sigset_t *set, const int *numbers)
{
    for (; *numbers != 0; numbers++)
        signals_add(set, *numbers);
}

static void add_ending(sigset_t *set)
{
    add_all(set, ending);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        signals_add(set, number);
}

static bool listen_to(struct signals *signals, const sigset_t *set, struct errmsg *why)
{
    int fd = signalfd(signals->fd, set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0 || sigprocmask(SIG_BLOCK, set, NULL) != 0) {
        errmsg_set(why, "cannot listen for signals: %s", strerror(errno));
        return false;
    }
    signals->fd = fd;
    return true;
}

bool signals_open(struct signals *signals, struct errmsg *why)
{
    sigset_t set;
    signals->fd = -1;
    sigemptyset(&set);
    add_all(&set, blocked_for_good);
    if (sigprocmask(SIG_BLOCK, &set, &signals->original) != 0) {
        errmsg_set(why, "cannot block signals: %s", strerror(errno));
        return false;
    }
    /* If SIGCHLD were ignored, the kernel would discard the command's status. */
    signals->chld_ignored = is_ignored(SIGCHLD);
    if (signals->chld_ignored)
        signal(SIGCHLD, SIG_DFL);
    sigemptyset(&set);
    add_ending(&set);
    return listen_to(signals, &set, why);
}

bool signals_widen(struct signals *signals, struct errmsg *why)
{
    sigset_t set, blocked;
    sigemptyset(&blocked);
    add_all(&blocked, blocked_beside_command);
    if (sigprocmask(SIG_BLOCK, &blocked, NULL) != 0) {
        errmsg_set(why, "cannot block signals: %s", strerror(errno));
        return false;
    }
    sigemptyset(&set);
    add_ending(&set);
    add_all(&set, passed_on);
    sigaddset(&set, SIGCHLD);
    return listen_to(signals, &set, why);
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
    if (signals->chld_ignored)
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
