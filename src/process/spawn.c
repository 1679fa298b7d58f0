#include "process/spawn.h"

#include "util/exit_status.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

/* In the child of vfork(2), which runs on our memory while we are suspended:
 * only what is async-signal-safe, and nothing of ours changes but the errno in
 * the shared page. */
__attribute__((noreturn)) static void become(int *exec_errno, const char *const *argv,
                                             const struct environment *environment,
                                             const struct signals *signals, pid_t parent)
{
    /* The parent may have died before prctl(2) took effect: then the signal would
     * never be sent. If the parent cannot be seen, nor can that. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0) {
        errno = SPAWN_UNSEEN;
        if (getppid() == parent) {
            signals_restore(signals);
            execvpe(argv[0], (char *const *)(uintptr_t)argv, /* POSIX: it does not write there */
                    environment->list);
        }
    }
    *exec_errno = errno;
    _exit((int)status_of_exec(errno));
}

/* vfork(2), since copying the page tables of what is about to exec takes a
 * tenth of the whole run of a short command. That we are suspended until exec
 * is no loss: if exec hangs (a dead network file system), no command runs.
 * exec_errno is in shared memory, so that the child may as well be a fork, as
 * sanitizers and valgrind make it. */
pid_t spawn(const char *const *argv, const struct environment *environment,
            const struct signals *signals, int *exec_errno)
{
    pid_t parent = getpid();
    pid_t pid = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork) */
    if (pid == 0)
        /* NOLINTNEXTLINE(clang-analyzer-unix.Vfork) */
        become(exec_errno, argv, environment, signals, parent);
    return pid;
}
