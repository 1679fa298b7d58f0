/* Helper threads, and small stacks (ulimit -s). */
#ifndef DLOCK_UTIL_THREAD_H
#define DLOCK_UTIL_THREAD_H

#include <pthread.h>

/* Starts a thread on a small stack, with every signal blocked: they are the main
 * thread's. 0 or an errno. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *data);

/* A function whose frame is large and that returns before its caller calls what goes deep:
 * if it were inlined, its frame would be on the stack all the time. */
#define NOT_INLINED __attribute__((noinline))

#endif
