/* A wait that only the kernel can do, and in which a thread stands still: for a
 * lock of fcntl(2) or flock(2). It is there only while others are waited for, and
 * has ended before any other thread begins. */
#ifndef DLOCK_STORE_FILE_BLOCKING_THREAD_H
#define DLOCK_STORE_FILE_BLOCKING_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* 0: what was waited for has happened; EINTR: it is to be called again; else it
 * cannot be waited for. */
typedef int blocking_thread_call(int fd, int64_t argument);

struct blocking_thread {
    bool running;
    int over_fd; /* where it runs: readable when the wait is over */
    pthread_t thread;
    struct sigaction old; /* of the signal that calls the thread back */
    /* The thread's: */
    blocking_thread_call *call;
    int fd;
    int64_t argument;
    atomic_bool cancelled;
    int error; /* once it has ended */
};

/* Starts waiting: call(fd, argument), in a thread. False: there is no thread to be
 * had. The descriptor must stay open until the wait is over or stopped. */
bool blocking_thread_start(struct blocking_thread *wait, blocking_thread_call *call, int fd,
                           int64_t argument);

/* Whether the thread has come to its end. */
bool blocking_thread_has_ended(const struct blocking_thread *wait);

/* Whether the wait is over; then it is as before the start, and *error tells how
 * it ended. */
bool blocking_thread_is_over(struct blocking_thread *wait, int *error);

/* Calls it off, if it runs. True: it was over before that, and had what it waited
 * for. */
bool blocking_thread_stop(struct blocking_thread *wait);

#endif
