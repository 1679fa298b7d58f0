/* The main thread starts the helper thread, and joins it before it does anything else
 * that matters: take the lock, give up, run a command. The descriptor is the main
 * thread's; the helper touches it with its one call only.
 *
 * Cancelling: the helper's call ends with EINTR when a signal arrives. Orders:
 *   the helper is in the call -> EINTR -> it sees that it was cancelled.
 *   it has not yet checked for cancellation -> it sees it -> it makes no call.
 *   it has checked, and is not in the call yet -> the signal is lost -> another is sent
 *     every millisecond until the helper says that it is ending.
 *   it already has what it waited for -> it ends by itself -> the caller learns that the
 *     wait succeeded.
 *
 * The signal is SIGURG, so that losing one to dlock harms no other use. While the helper
 * exists the signal has a handler that does nothing; the old disposition is back before a
 * command starts. */
#include "store/file/blocking_thread.h"

#include "util/thread.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { CALL_BACK = SIGURG, AGAIN_MS = 1 };

static void do_nothing(int number)
{
    (void)number;
}

static void *wait_thread(void *data)
{
    struct blocking_thread *wait = data;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, CALL_BACK);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    wait->error = EINTR;
    while (wait->error == EINTR && !atomic_load(&wait->cancelled))
        wait->error = wait->call(wait->fd, wait->argument);
    (void)!write(wait->over_fd, &(uint64_t){1}, sizeof(uint64_t)); /* cannot fail: it is fresh */
    return NULL;
}

bool blocking_thread_start(struct blocking_thread *wait, blocking_thread_call *call, int fd,
                           int64_t argument)
{
    struct sigaction action = {.sa_handler = do_nothing};
    sigemptyset(&action.sa_mask);
    wait->over_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wait->over_fd < 0)
        return false;
    wait->call = call;
    wait->fd = fd;
    wait->argument = argument;
    atomic_store(&wait->cancelled, false);
    wait->running = sigaction(CALL_BACK, &action, &wait->old) == 0;
    if (wait->running && thread_start(&wait->thread, wait_thread, wait) != 0) {
        (void)sigaction(CALL_BACK, &wait->old, NULL);
        wait->running = false;
    }
    if (!wait->running)
        close(wait->over_fd);
    return wait->running;
}

static bool ends_within(const struct blocking_thread *wait, int timeout_ms)
{
    struct pollfd over = {.fd = wait->over_fd, .events = POLLIN};
    return poll(&over, 1, timeout_ms) > 0;
}

bool blocking_thread_has_ended(const struct blocking_thread *wait)
{
    return ends_within(wait, 0);
}

static int blocking_thread_finish(struct blocking_thread *wait)
{
    pthread_join(wait->thread, NULL);
    (void)sigaction(CALL_BACK, &wait->old, NULL);
    close(wait->over_fd);
    wait->running = false;
    return wait->error;
}

bool blocking_thread_is_over(struct blocking_thread *wait, int *error)
{
    if (!wait->running || !ends_within(wait, 0))
        return false;
    *error = blocking_thread_finish(wait);
    return true;
}

bool blocking_thread_stop(struct blocking_thread *wait)
{
    if (!wait->running)
        return false;
    atomic_store(&wait->cancelled, true);
    while (!ends_within(wait, 0)) {
        (void)pthread_kill(wait->thread, CALL_BACK);
        (void)ends_within(wait, AGAIN_MS);
    }
    return blocking_thread_finish(wait) == 0;
}
