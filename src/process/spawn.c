/* Starts the command's process. Also turns a forked process into a daemon (daemonize()).
 *
 * A virus scanner (fanotify) or a file system that hangs can keep the command's process in exec(3)
 * for any length of time. dlock does not wait for exec, so the deadline and signals can end the
 * process before the command runs. Until exec the process shares dlock's memory, because copying
 * the page tables takes a tenth of the whole run of a short command. (vfork(2) also shares the
 * memory, but suspends dlock.) Who owns which part of that memory until exec has ended:
 *   the process   its stack and page->exec_errno. The process writes nothing else.
 *   dlock         the rest. dlock does not change what the process reads: the plan, PATH.
 *                 errno is dlock's too, so the process uses raw() for calls that can fail.
 *
 * Only the command's process keeps the write end of a pipe, and exec closes that end. So the pipe
 * ends when exec has succeeded, or when the process has ended in any way. child->exec_fd is the
 * read end, which dlock closes once the pipe has ended. Orders of events:
 *
 *   exec succeeds -> the pipe ends -> dlock reports the start (READY=1).
 *   exec succeeds, and the command ends before dlock has seen the pipe end -> dlock reports the
 *       start, then the end.
 *   exec fails -> page->exec_errno is written, the process exits, the pipe ends -> dlock
 *       reports no start, and exits with 126 or 127.
 *   the lease ends or is lost during exec -> dlock stops the process as it would stop the command.
 *       A stop signal that the command would ignore has no effect, but SIGKILL follows at the
 *       deadline.
 *   a signal comes to dlock during exec -> dlock passes it on. During exec the process has the
 *       signal mask that dlock was started with. An earlier signal stays pending until the process
 *       restores that mask, and then takes effect at once.
 *   a signal ends the process before dlock has seen the end of exec -> dlock reports no start,
 *       because the command has hardly run, if at all.
 *   dlock is killed during exec -> the kernel kills the process (PR_SET_PDEATHSIG).
 *   dlock is killed before the process has requested PR_SET_PDEATHSIG -> the process sees a
 *       different parent, and exits. A process that cannot see its parent, because it is in a new
 *       pid namespace, exits too.
 *   the guard of --tree has started the process -> the same orders of events. dlock has the read
 *       end of the pipe. If the guard is killed, the kernel kills the process.
 *   the killed process hangs in the kernel -> dlock gives up, as it does for a command. The process
 *       never returns to its stack, so dlock may unmap the stack. */
#include "process/process_int.h"

#include "util/fileutils.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- the command's process until exec --------------------------------------- */

/* raw() makes a system call, and returns -errno if the call fails. The versions for x86-64 and
 * AArch64 do not change errno, which the process shares with dlock. The last version, for other
 * processors and for sanitizers (which keep more state for each thread), changes errno. That is
 * harmless, because a process created by fork(2) has its own errno, and the last version is only
 * used with fork(2). */
#if defined __x86_64__ && defined __LP64__ && !defined SANITIZED
enum { CAN_SHARE = true };
static long raw(long number, long a, long b, long c)
{
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory", "cc");
    return number;
}
#elif defined __aarch64__ && defined __LP64__ && !defined SANITIZED
enum { CAN_SHARE = true };
static long raw(long number, long a, long b, long c)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;

    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory", "cc");
    return x0;
}
#else
enum { CAN_SHARE = false };
static long raw(long number, long a, long b, long c)
{
    long result = syscall(number, a, b, c);
    return result < 0 ? -errno : result;
}
#endif

static int raw_execve(const char *path, const char *const *argv, char *const *environment)
{
    return (int)-raw(SYS_execve, (long)(intptr_t)path, (long)(intptr_t)argv,
                     (long)(intptr_t)environment);
}

/* Returns only if the file could not be executed; the result is the errno. Like execvpe(3), lets
 * the shell execute a script that names no interpreter. */
static int execute_file(const char *path, struct guard_page *page)
{
    const char *const *argv = page->plan->argv;
    char *const *environment = page->plan->environment->list;
    int error = raw_execve(path, argv, environment);

    if (error != ENOEXEC)
        return error;
    page->script_argv[0] = "/bin/sh";
    page->script_argv[1] = path;
    for (size_t i = 1; argv[i - 1] != NULL; i++)
        page->script_argv[i + 1] = argv[i];
    return raw_execve("/bin/sh", page->script_argv, environment);
}

static bool may_be_elsewhere(int error)
{
    return error == ENOENT || error == ENOTDIR || error == EACCES || error == ESTALE ||
           error == ENODEV || error == ETIMEDOUT;
}

/* Tries the folders of PATH in turn, as execvpe(3) does; an empty name means the current folder.
 * Returns only if the command could not be executed; the result is the errno. */
static int execute(struct guard_page *page)
{
    const char *name = page->plan->argv[0];
    size_t length = strlen(name);
    const char *folder = getenv("PATH");
    char *path = page->path;
    bool refused = false;
    int error = ENOENT;

    if (length == 0)
        return ENOENT;
    if (strchr(name, '/') != NULL)
        return execute_file(name, page);
    if (length > NAME_MAX)
        return ENAMETOOLONG;
    if (folder == NULL)
        folder = "/bin:/usr/bin";

    for (const char *end; folder != NULL; folder = *end == ':' ? end + 1 : NULL) {
        end = strchrnul(folder, ':');
        size_t size = (size_t)(end - folder);
        if (size > PATH_MAX)
            continue;
        memcpy(path, folder, size);
        if (size > 0)
            path[size++] = '/';
        memcpy(path + size, name, length + 1);
        error = execute_file(path, page);
        if (!may_be_elsewhere(error))
            return error;
        refused |= error == EACCES;
    }
    return refused ? EACCES : error;
}

__attribute__((noreturn)) static int become(void *data)
{
    struct guard_page *page = data;
    int error = (int)-raw(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0);

    if (error == 0 && getppid() != page->parent)
        error = EXEC_UNSEEN;
    if (error == 0) {
        signals_restore(page->plan->signals);
        error = execute(page);
    }
    atomic_store(&page->exec_errno, error);
    _exit((int)status_of_exec(error));
}

/* Falls back to fork(2) if memory cannot be shared, which some sandboxes forbid and valgrind does
 * not support. */
pid_t spawn(const struct command *plan, struct guard_page *page)
{
    pid_t pid = -1;

    page->plan = plan;
    page->parent = getpid();
    errno = ENOSYS;
    if (CAN_SHARE)
        pid = clone(become, page->stack + sizeof page->stack, CLONE_VM | SIGCHLD, page);
    if (pid < 0 && errno != EAGAIN && (pid = fork()) == 0)
        become(page);
    return pid;
}

/* --- ended processes -------------------------------------------------------- */

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

enum { FDS_MOST = 4096 }; /* how many descriptors to check if /proc does not list them */

/* Everything that dlock opens is close-on-exec, so any other descriptor comes from its caller. */
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

/* True if our stderr is a pipe or socket that the target does not have open, so that its reader
 * would wait until this process ends. */
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
