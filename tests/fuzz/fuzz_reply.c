/* What a Redis server sends, through the connection to the readers of all
 * replies.
 *
 * Input: a line of letters, the requests in order, then what the server sends after
 * each write, with a line "--" between the parts (LF; the protocol's own lines
 * end in CR LF):
 *   t take    w take, in the queue, and listen    c check   e extend   r release
 *   l look    f force-release    i list    n be notified of changes
 *   m messages that come unasked: the next part is there without a write
 * An S before them: the server is found by Sentinel; a C: it is a Cluster.
 * The system calls that move bytes are replaced (-Wl,--wrap): nothing
 * waits, and after the end of a part the server answers no more. No name is
 * looked up, because no thread for that can be started. */
#include "fuzz_print.h"
#include "store/redis/backend.h"
#include "store/redis/redis_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t *rest, *end; /* what the server has to say */
static const uint8_t *part_end;   /* up to here it has been asked for */
static bool spoke;                /* the part was begun */

static const uint8_t *find_part_end(const uint8_t *from)
{
    static const char mark[] = "\n--\n";
    const uint8_t *found = memmem(from, (size_t)(end - from), mark, strlen(mark));
    return found != NULL ? found + 1 : end;
}

/* The next part has arrived. */
static void next_part(void)
{
    if (part_end != NULL && rest < part_end)
        return; /* not all of the last one was read */
    if (part_end != NULL && rest < end && end - rest >= 3 && memcmp(rest, "--\n", 3) == 0)
        rest += 3;
    part_end = find_part_end(rest);
    spoke = true;
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout);

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size)
{
    (void)fd, (void)address, (void)size;
    return 0;
}

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
    (void)fd, (void)bytes, (void)flags;
    next_part();
    return (ssize_t)size;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    (void)fd, (void)flags;
    if (!spoke || rest >= part_end) {
        errno = EAGAIN;
        return -1;
    }
    size_t length = (size_t)(part_end - rest) < size ? (size_t)(part_end - rest) : size;
    memcpy(bytes, rest, length);
    rest += length;
    return (ssize_t)length;
}

/* The time is always up. */
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout)
{
    (void)fds, (void)count, (void)timeout;
    return 0;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *data);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *data)
{
    (void)thread, (void)attributes, (void)run, (void)data;
    return EAGAIN;
}

static bool visit(void *data, const struct lock_state *state)
{
    (void)data;
    fuzz_print(state);
    return true;
}

static const struct lock_request request = {
    .name = "job",
    .key = "dlock:job",
    .token = "0b8c9d1e-0000-4000-8000-000000000001",
    .take_id = "0b8c9d1e-0000-4000-8000-000000000002",
    .ttl = {60 * NS_PER_S},
    .mode = MODE_EXCLUSIVE,
};

static void act(struct backend *backend, struct lease *lease, char action)
{
    const struct bound bound = {deadline_after(DURATION_S(5)), -1};
    struct lock_request own = request;
    struct lock_state state = {0};
    struct holder holder = {0};
    struct errmsg why = {""};
    enum lock_result result = LOCK_OK;
    own.waits = action == 'w';
    switch (action) {
    case 'w':
    case 't': result = backend->take(backend, &own, lease, &holder, bound, &why); break;
    case 'c': result = backend->check(backend, lease, bound, &why); break;
    case 'e': result = backend->extend(backend, lease, EXTEND_AT_LEAST, bound, &why); break;
    case 'r': result = backend->release(backend, lease, bound, &why); break;
    case 'l': result = backend->look(backend, request.key, &state, bound, &why); break;
    case 'f': result = backend->force_release(backend, request.key, &state, bound, &why); break;
    case 'i':
        result = backend->list(backend, &(struct listing){"dlock:", NULL, false, visit, NULL},
                               bound, &why);
        break;
    case 'n': (void)backend->news(backend); break;
    case 'm': next_part(); break;
    default: break;
    }
    if (result == LOCK_OK && (action == 'l' || action == 'f')) {
        fuzz_print(&state);
        lock_state_free(&state);
    }
    if (action == 'w' || action == 'm')
        (void)backend->listen(backend);
    if (result != LOCK_OK && result != LOCK_HELD && result != LOCK_CANCELLED && why.text[0] == '\0')
        abort(); /* nobody would know why */
    if (result == LOCK_OK && (action == 't' || action == 'w') &&
        (lease->fence <= 0 || lease->slot < -1))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct redis_settings settings = {.timeout = DURATION_S(1)};
    struct backend *backend;
    struct lease lease;
    enum redis_fault fault;
    struct errmsg why = {""};
    const uint8_t *line = memchr(data, '\n', size);
    const char *text = "unix:///nowhere";
    if (line == NULL || line - data > 16)
        return 0;
    if (*data == 'S')
        text = "redis+sentinel://127.0.0.1:1,127.0.0.2:1/main";
    else if (*data == 'C')
        text = "redis+cluster://127.0.0.1:1";
    rest = line + 1;
    end = data + size;
    part_end = NULL;
    spoke = false;
    static struct redis_url url;
    if (!redis_url_parse(&url, text, &why) ||
        redis_backend_open(&backend, &url, &settings, &fault, &why) != LOCK_OK)
        abort();
    redis_of(backend)->conn.socket.is_crowded = true; /* it does not look for bytes for a moment */
    lease_begin(&lease, &request, deadline_now(), 0);
    for (const uint8_t *action = data; action < line; action++)
        act(backend, &lease, (char)*action);
    backend->close(backend);
    return 0;
}
