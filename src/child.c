#include "child.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child of vfork(2), which runs on our memory while we stand still:
 * only what is async-signal-safe, and nothing of ours changes but the errno
 * in the shared page. */
__attribute__((noreturn)) static void become(int *exec_errno, const char *const *argv, const struct signals *signals,
                                             pid_t parent)
{
    /* dlock may have died before prctl(2) took effect: then nobody would send
     * the signal any more. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent) {
        signals_restore(signals);
        execvp(argv[0], (char *const *)(uintptr_t)argv); /* POSIX: it does not write there */
    }
    *exec_errno = errno;
    _exit(errno == ENOENT || errno == ENOTDIR ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE);
}

/* vfork(2), since copying the page tables of what is about to exec takes a
 * tenth of the whole run of a short command. That we stand still until exec is
 * no loss: where exec hangs (a dead network file system), no command runs.
 * The page is mapped as shared, so that the child may as well be a fork, as
 * sanitizers and valgrind make it. */
enum lock_result child_start(struct child *child, const char *const *argv, const struct signals *signals, struct why *why)
{
    pid_t parent = getpid();
    *child = (struct child){.pid = -1};
    void *page = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        why_set(why, "no memory to share with the command's process: %s", strerror(errno));
        return LOCK_SYSTEM;
    }
    child->exec_errno = page;
    process_tree_inherited(&child->except);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        why_set(why, "cannot become the reaper of the command's descendants: %s", strerror(errno));
        child_close(child);
        return LOCK_SYSTEM;
    }
    pid_t pid = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork) */
    if (pid == 0)
        become(child->exec_errno, argv, signals, parent); /* NOLINT(clang-analyzer-unix.Vfork) */
    child->pid = pid;
    if (pid > 0)
        return LOCK_OK;
    why_set(why, "cannot start a process for the command: %s", strerror(errno));
    child_close(child);
    return LOCK_SYSTEM;
}

void child_close(struct child *child)
{
    if (child->exec_errno != NULL)
        munmap(child->exec_errno, sizeof(int));
    child->exec_errno = NULL;
}

void child_reap(struct child *child)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0)
            return;
        if (pid == child->pid) {
            child->ended = true;
            child->status = status;
            child->exec_error = *child->exec_errno;
        }
    }
}

bool child_tree_left(const struct child *child)
{
    return process_tree_signal(getpid(), 0, &child->except) > 0;
}

void child_signal(const struct child *child, int number)
{
    /* Until it is reaped its pid cannot belong to another. */
    if (!child->ended)
        kill(child->pid, number);
}

void child_signal_tree(const struct child *child, int number)
{
    if (process_tree_signal(getpid(), number, &child->except) == 0)
        child_signal(child, number);
    /* What is stopped sees no other signal than KILL until it goes on. */
    if (number != SIGKILL)
        process_tree_signal(getpid(), SIGCONT, &child->except);
}
