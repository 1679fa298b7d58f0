/* If dlock is killed by what cannot be caught, the kernel kills the command
 * (PR_SET_PDEATHSIG), but not what the command has started. Init becomes its
 * parent, and its descent can no longer be seen. The guard knows it by two marks:
 *
 *   it was seen below dlock: the guard looks from time to time, and remembers.
 *   its DLOCK_HELD begins with the command's, in which our line is the last one, and
 *   it is no older than dlock.
 *
 * A process that has cleared its environment and was never seen escapes; so does
 * one that was started by a dlock that is killed before it has started its guard.
 * With --tree there is another guard, which misses nothing (tree_guard.c).
 * That one costs a run of `true` a third of its time; this one starts when the
 * command has run for 30 ms (run/supervise.c), and costs a short one nothing.
 *
 *   dlock is killed -> the kernel wakes the guard, which kills all of them until
 *       none is left. It shares the lock file, so a file lock stays held until then.
 *   dlock stops the command -> dlock kills the same processes; the guard waits.
 *   dlock is killed while it does that -> the guard kills those that it has stopped.
 *   the command ends -> dlock ends the guard before it releases the lock.
 *   the guard is killed -> dlock goes on without it. */
#include "process/orphan_guard.h"

#include "process/daemonize.h"
#include "process/procfs.h"
#include "util/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    WAKE_UP = SIGUSR1,
    LOOK_FIRST_MS = 100,
    LOOK_MOST_MS = 10000,
    KILL_FIRST_MS = 5,
    KILL_MOST_MS = 1000
};

struct orphan_guard {
    struct process_id dlock;
    struct process_family family; /* of dlock */
    const struct pids *except;    /* which do not belong to it */
    const char *held;             /* DLOCK_HELD of the command */
};

/* False once dlock has ended. */
static bool wait_for_end(const struct orphan_guard *guard, int timeout_ms)
{
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * NS_PER_MS};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, WAKE_UP);
    if (getppid() == guard->dlock.pid && sigtimedwait(&set, NULL, &timeout) < 0 &&
        errno != EAGAIN && errno != EINTR)
        (void)poll(NULL, 0, KILL_FIRST_MS);
    return getppid() == guard->dlock.pid;
}

static void add_marked(struct orphan_guard *guard)
{
    struct pids all = {0};
    struct proc_stat stat;
    proc_list(&all);
    for (size_t i = 0; i < all.count; i++) {
        pid_t pid = all.list[i];
        if (pid != getpid() && proc_stat_read(pid, &stat) && stat.start >= guard->dlock.start &&
            proc_environ_has(pid, "DLOCK_HELD", guard->held))
            (void)process_family_add(&guard->family, (struct process_id){pid, stat.start});
    }
    free(all.list);
}

/* Processes that were already seen go first: looking at all processes takes time. */
static void kill_orphans(struct orphan_guard *guard)
{
    (void)process_tree_kill(&guard->family, guard->except);
    for (int interval = KILL_FIRST_MS;;
         interval = interval * 2 < KILL_MOST_MS ? interval * 2 : KILL_MOST_MS) {
        add_marked(guard);
        if (process_tree_kill(&guard->family, guard->except).found == 0)
            return;
        (void)poll(NULL, 0, interval);
    }
}

__attribute__((noreturn)) static void guard_orphans(pid_t dlock, const char *held,
                                                    const struct pids *except)
{
    struct orphan_guard guard = {.dlock = {.pid = dlock}, .except = except, .held = held};
    struct proc_stat stat;
    (void)prctl(PR_SET_NAME, "dlock-guard");
    (void)daemonize(0, true);
    if (!proc_is_ours() || !proc_stat_read(dlock, &stat))
        _exit(0);
    guard.dlock.start = stat.start;
    if (prctl(PR_SET_PDEATHSIG, WAKE_UP) != 0 || !process_family_init(&guard.family, guard.dlock))
        _exit(0);
    int interval = LOOK_FIRST_MS;
    do {
        (void)process_tree_signal(&guard.family, except, 0, DEADLINE_NEVER);
        interval = interval * 2 < LOOK_MOST_MS ? interval * 2 : LOOK_MOST_MS;
    } while (wait_for_end(&guard, interval));
    kill_orphans(&guard);
    _exit(0);
}

pid_t orphan_guard_start(const char *held, const struct pids *except, struct process_spare *spare)
{
    pid_t dlock = getpid(), pid = fork();
    if (pid == 0) {
        process_spare_free(spare);
        guard_orphans(dlock, held, except);
    }
    return pid;
}
