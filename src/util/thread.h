/* Helper threads, and small stacks (ulimit -s). */
#ifndef DLOCK_UTIL_THREAD_H
#define DLOCK_UTIL_THREAD_H

#include <pthread.h>

/* Starts a thread on a small stack, with every signal blocked: they are the main
 * thread's. 0 or an errno. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *data);

/* For a function with a large frame, if its caller later calls other functions that need much stack:
 * inlined, the frame would be there all the time. */
#define NOT_INLINED __attribute__((noinline))

#endif
