/* Linked into a dlock that is built with --coverage: writes what has run where
 * the program ends without exit(3), which is when gcov does so. Whoever is
 * killed by SIGKILL leaves nothing.
 *
 * The child of vfork(2) counts in the memory of its parent, who writes that
 * later: what it would write itself would be lost or counted twice. So it is
 * told apart by its pid. The linker sends these calls here (--wrap), and the
 * compiler is told to leave execvp() as it is (-fno-builtin-execvp). */
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

static pid_t owner; /* of the counters in this memory */

static void own(void)
{
    owner = getpid();
}

__attribute__((constructor)) static void begin(void)
{
    own();
    (void)pthread_atfork(NULL, NULL, own);
}

/* Counts on from zero. */
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
