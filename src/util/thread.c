#include "util/thread.h"

#include <malloc.h>
#include <signal.h>

enum { STACK_BYTES = 256 * 1024 };

int thread_start(pthread_t *thread, void *(*run)(void *), void *data)
{
    pthread_attr_t attributes;
    sigset_t all, old;
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        return error;
#ifdef M_ARENA_MAX /* Without this, glibc gives each thread its own heap. */
    (void)mallopt(M_ARENA_MAX, 1);
#endif
    sigfillset(&all);
    error = pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (error == 0)
        error = pthread_sigmask(SIG_SETMASK, &all, &old);
    if (error == 0) {
        error = pthread_create(thread, &attributes, run, data);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    pthread_attr_destroy(&attributes);
    return error;
}
