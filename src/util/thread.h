/* Helper threads, and help with small stacks (ulimit -s). */
#ifndef DLOCK_UTIL_THREAD_H
#define DLOCK_UTIL_THREAD_H

#include <pthread.h>

/* Starts a thread on a small stack, with every signal blocked, because signals are for the main
 * thread. Returns 0 or an errno. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *data);

/* For a function with a large frame whose caller later calls functions that need much stack. If the
 * function were inlined, its frame would also occupy the stack during those calls. */
#define NOT_INLINED __attribute__((noinline))

#endif
