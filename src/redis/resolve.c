/* getaddrinfo(3) cannot be interrupted, and a resolver that hangs holds it for many
 * seconds. So a name (not a numeric address) is looked up by a thread of its own, and the
 * asking thread may abandon it. An abandoned one reads the environment whenever it likes, so
 * dlock never changes its own (util/environment.h).
 *
 * Ownership: struct lookup belongs to both threads, counted by `owners`. The thread
 * writes `error`, `system_error` and `list`, then `done_fd`; the asker reads them only
 * after it has read done_fd. They may leave in either order: the last one frees. So a thread
 * of this kind may be left while the command runs, and when this process ends. */
#include "redis/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct lookup {
    atomic_int owners;
    int done_fd;
    int error;        /* of getaddrinfo(3) */
    int system_error; /* errno, if `error` is EAI_SYSTEM */
    struct addrinfo *list;
    char host[256], port[8];
};

static void lookup_leave(struct lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->owners, 1) > 1)
        return;
    if (lookup->list != NULL)
        freeaddrinfo(lookup->list);
    close(lookup->done_fd);
    free(lookup);
}

static int get_addresses(const char *host, const char *port, int flags, struct addrinfo **list)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    return getaddrinfo(host, port, &hints, list);
}

static void *look_up_thread(void *data)
{
    struct lookup *lookup = data;
    lookup->error = get_addresses(lookup->host, lookup->port, AI_ADDRCONFIG, &lookup->list);
    lookup->system_error = errno;
    /* Adding 1 to a fresh eventfd cannot fail. */
    (void)!write(lookup->done_fd, &(uint64_t){1}, sizeof(uint64_t));
    lookup_leave(lookup);
    return NULL;
}

static enum lock_result start_thread(struct lookup *lookup, struct errmsg *why)
{
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all);
    atomic_fetch_add(&lookup->owners, 1);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&thread, NULL, look_up_thread, lookup);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error == 0) {
        pthread_detach(thread);
        return LOCK_OK;
    }
    atomic_fetch_sub(&lookup->owners, 1);
    return errmsg_fail(why, LOCK_SYSTEM, "cannot start a thread to look up the name: %s",
                       strerror(error));
}

static enum lock_result resolve_await(const struct lookup *lookup, struct bound bound,
                                      struct errmsg *why)
{
    struct pollfd fds[2] = {{.fd = lookup->done_fd, .events = POLLIN},
                            {.fd = bound.cancel_fd, .events = POLLIN}};
    int ready = deadline_poll(fds, 2, bound.until);
    uint64_t count;
    if (fds[0].revents != 0 && read(lookup->done_fd, &count, sizeof count) == (ssize_t)sizeof count)
        return LOCK_OK;
    if (ready > 0)
        return LOCK_CANCELLED;
    return errmsg_fail(why, LOCK_UNAVAILABLE, "the name %s was not resolved in time", lookup->host);
}

static void copy_addresses(struct addresses *found, const struct addrinfo *list)
{
    found->count = 0;
    for (const struct addrinfo *one = list; one != NULL && found->count < ADDRESSES_MOST;
         one = one->ai_next) {
        if (one->ai_addrlen > sizeof(struct sockaddr_storage))
            continue;
        struct address *address = &found->list[found->count++];
        memcpy(&address->at, one->ai_addr, one->ai_addrlen);
        address->size = one->ai_addrlen;
    }
}

static enum lock_result collect(struct addresses *found, const struct lookup *lookup,
                                struct errmsg *why)
{
    found->count = 0;
    if (lookup->error != 0)
        return errmsg_fail(why, LOCK_UNAVAILABLE, "the name %s cannot be resolved: %s",
                           lookup->host,
                           lookup->error == EAI_SYSTEM ? strerror(lookup->system_error)
                                                       : gai_strerror(lookup->error));
    copy_addresses(found, lookup->list);
    if (found->count > 0)
        return LOCK_OK;
    return errmsg_fail(why, LOCK_UNAVAILABLE, "the name %s has no address", lookup->host);
}

enum lock_result redis_resolve(struct addresses *found, const char *host, const char *port,
                               struct bound bound, struct errmsg *why)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (lookup == NULL || (lookup->done_fd = eventfd(0, EFD_CLOEXEC)) < 0) {
        errmsg_set(why, "cannot look up %s: %s", host, strerror(errno));
        free(lookup);
        return LOCK_SYSTEM;
    }
    lookup->owners = 1;
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    snprintf(lookup->port, sizeof lookup->port, "%s", port);
    lookup->error = get_addresses(host, port, AI_NUMERICHOST, &lookup->list);
    lookup->system_error = errno;
    enum lock_result result = LOCK_OK;
    if (lookup->error == EAI_NONAME) {
        result = start_thread(lookup, why);
        if (result == LOCK_OK)
            result = resolve_await(lookup, bound, why);
    }
    if (result == LOCK_OK)
        result = collect(found, lookup, why);
    lookup_leave(lookup);
    return result;
}
