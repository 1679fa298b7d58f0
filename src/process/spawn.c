#include "process/process_int.h"

#include "util/fileutils.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs in the child of vfork(2), in the memory of its parent, which is suspended. So this
 * function only calls what is async-signal-safe, and of that memory changes nothing but
 * errno and *exec_errno. */
__attribute__((noreturn)) static void become(const struct command *plan, int *exec_errno,
                                             pid_t parent)
{
    /* If the parent has died before prctl(2) took effect, the signal is never sent. A parent
     * outside of our pid namespace, which cannot be seen, cannot be seen to die either. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0) {
        errno = EXEC_UNSEEN;
        if (getppid() == parent) {
            signals_restore(plan->signals);
            /* POSIX: exec does not write to argv */
            execvpe(plan->argv[0], (char *const *)(uintptr_t)plan->argv, plan->environment->list);
        }
    }
    *exec_errno = errno;
    _exit((int)status_of_exec(errno));
}

/* Uses vfork(2), because copying the page tables for a child that soon calls exec takes a
 * tenth of the whole run of a short command. The parent is suspended until exec, which does
 * no harm: if exec hangs (a dead network file system), no command runs. exec_errno is in
 * shared memory, because sanitizers and valgrind turn vfork(2) into fork(2). */
pid_t spawn(const struct command *plan, int *exec_errno)
{
    pid_t parent = getpid();
    pid_t pid = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork) */

    if (pid == 0)
        become(plan, exec_errno, parent); /* NOLINT(clang-analyzer-unix.Vfork) */
    return pid;
}

bool process_is_reapable(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) != 0 || info.si_pid != 0;
}

void process_kill_child(pid_t pid)
{
    bool killed = kill(pid, SIGKILL) == 0;

    while (killed && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

/* --- leaving the caller's session ----------------------------------------- */

enum { FDS_MOST = 4096 }; /* how many to check if /proc does not list them */

/* All that dlock opens is close-on-exec, so dlock has any other descriptor from its caller. */
static void close_if_inherited(int fd)
{
    int flags = fd > STDERR_FILENO ? fcntl(fd, F_GETFD) : -1;

    if (flags >= 0 && (flags & FD_CLOEXEC) == 0)
        close(fd);
}

static void close_inherited(void)
{
    struct pids fds = {0};

    if (proc_list("/proc/self/fd", &fds) && !fds.short_of_memory)
        for (size_t i = 0; i < fds.count; i++)
            close_if_inherited(fds.list[i]);
    else
        for (int fd = 0; fd < FDS_MOST; fd++)
            close_if_inherited(fd);
    free(fds.list);
}

static const char *fd_path(pid_t pid, int fd, char path[64])
{
    snprintf(path, 64, "/proc/%ld/fd/%d", (long)pid, fd);
    return path;
}

static bool has_open(pid_t target, const struct stat *file)
{
    char path[64];
    struct stat other;

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (stat(fd_path(target, fd, path), &other) == 0 && other.st_dev == file->st_dev &&
            other.st_ino == file->st_ino)
            return true;
    return false;
}

/* True if a reader of our stderr would wait for this process. */
static bool is_waited_for(pid_t target)
{
    struct stat file;

    return fstat(STDERR_FILENO, &file) == 0 && (S_ISFIFO(file.st_mode) || S_ISSOCK(file.st_mode)) &&
           !has_open(target, &file);
}

static bool replace_standard_fds(pid_t target)
{
    char path[64];
    int others = -1;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    bool replaced = null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(null, STDOUT_FILENO) >= 0;

    if (replaced && is_waited_for(target)) {
        others = open(fd_path(target, STDERR_FILENO, path),
                      O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        replaced = dup2(others >= 0 ? others : null, STDERR_FILENO) >= 0;
    }
    fd_close(&others);
    if (null > STDERR_FILENO)
        close(null);
    return replaced;
}

bool daemonize(pid_t target, bool keep_directory)
{
    sigset_t all;

    sigfillset(&all);
    if (sigprocmask(SIG_SETMASK, &all, NULL) != 0 || setsid() < 0)
        return false;
    close_inherited();
    return replace_standard_fds(target) && (keep_directory || chdir("/") == 0);
}
