/* Linked into a dlock that is built with --coverage. gcov writes its counters only in exit(3); this
 * writes them where the program ends otherwise. A process that is killed by SIGKILL leaves none.
 *
 * Until exec, the command's process counts in its parent's memory, and the parent writes that later. If the
 * child wrote too, its counts would be lost or counted twice; so the pid shows who may write. The
 * linker sends the wrapped calls here (--wrap), and the compiler must not replace execvp()
 * (-fno-builtin-execvp). */
#include <errno.h>
#include <gcov.h>
#include <pthread.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status) __attribute__((noreturn));
int __real_execvp(const char *file, char *const argv[]);
int __wrap_execvp(const char *file, char *const argv[]);
int __real_raise(int number);
int __wrap_raise(int number);

static pid_t owner; /* the process whose counters are in this memory */

static void own(void)
{
    owner = getpid();
}

__attribute__((constructor)) static void begin(void)
{
    own();
    (void)pthread_atfork(NULL, NULL, own);
}

/* Writes the counters and sets them to zero. */
static void write_out(void)
{
    int error = errno;
    if (owner == getpid()) {
        __gcov_dump();
        __gcov_reset();
    }
    errno = error;
}

void __wrap__exit(int status)
{
    write_out();
    __real__exit(status);
}

int __wrap_execvp(const char *file, char *const argv[])
{
    write_out();
    return __real_execvp(file, argv);
}

int __wrap_raise(int number)
{
    write_out();
    return __real_raise(number);
}
