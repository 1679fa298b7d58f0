/* Runs a blocking fcntl(2) or flock(2) call in a helper thread. The thread exists only
 * during a wait for others, and has ended before any other thread begins. */
#ifndef DLOCK_STORE_FILE_BLOCKING_THREAD_H
#define DLOCK_STORE_FILE_BLOCKING_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* 0: the wait has succeeded; EINTR: call again; any other errno: waiting is impossible. */
typedef int blocking_thread_call(int fd, int64_t argument);

struct blocking_thread {
    bool running;
    int over_fd; /* while the thread runs: readable when the wait is over */
    pthread_t thread;
    struct sigaction old; /* of the signal that cancels the thread's call */
    /* The thread's: */
    blocking_thread_call *call;
    int fd;
    int64_t argument;
    atomic_bool cancelled;
    int error; /* once it has ended */
};

/* Starts waiting: call(fd, argument), in a thread. False: no thread can be created. The
 * descriptor must stay open until the wait is over or stopped. */
bool blocking_thread_start(struct blocking_thread *wait, blocking_thread_call *call, int fd,
                           int64_t argument);

/* True if the thread has come to its end. */
bool blocking_thread_has_ended(const struct blocking_thread *wait);

/* True if the wait is over; then *wait is as before the start, and *error is the call's
 * result. */
bool blocking_thread_is_over(struct blocking_thread *wait, int *error);

/* Cancels the wait, if it runs. True: it had already succeeded. */
bool blocking_thread_stop(struct blocking_thread *wait);

#endif
