/* Helper threads. */
#ifndef DLOCK_UTIL_THREAD_H
#define DLOCK_UTIL_THREAD_H

#include <pthread.h>

/* Starts a thread on a small stack, with every signal blocked: they are the main
 * thread's. 0 or an errno. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *data);

#endif
