#include "actions/actions.h"

#include "actions/plan.h"
#include "run/attach_daemon.h"
#include "ui/lock_print.h"
#include "ui/report.h"
#include "util/fileutils.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

struct attach {
    const struct options *options;
    struct messages *out;
    struct attach_target target;
    struct acquisition lock;
    int cancel_fd; /* -1: not open */
};

/* The wait ends with a signal, as always, and with the process that the lock is
 * for. */
static bool cancel_with_target(struct attach *attach, int *status)
{
    struct acquisition *lock = &attach->lock;
    struct epoll_event any = {.events = EPOLLIN};
    attach->cancel_fd = lock->cancel_fd = epoll_create1(EPOLL_CLOEXEC);
    if (attach->cancel_fd >= 0 &&
        epoll_ctl(attach->cancel_fd, EPOLL_CTL_ADD, lock->signals.fd, &any) == 0 &&
        epoll_ctl(attach->cancel_fd, EPOLL_CTL_ADD, attach->target.fd, &any) == 0)
        return true;
    *status = fail(attach->out, FAIL_SYSTEM, STATUS_SYSTEM,
                   "cannot wait for signals: %s; nothing is locked", strerror(errno));
    return false;
}

static int print_lease(const struct attach *attach, const struct lease *lease)
{
    if (attach->options->json)
        lease_json_print(lease);
    return flushed(attach->out, STATUS_OK);
}

/* Nothing to acquire, and nothing to guard. */
static int attach_nested(const struct attach *attach)
{
    const struct lock_request *request = &attach->lock.request;
    struct lease unknown = {
        .name = request->name, .key = request->key, .token = "", .mode = request->mode, .slot = -1};
    say_verbose(attach->out, "%s, or what it runs in, already holds the lock; nothing was acquired",
                attach->target.name);
    return print_lease(attach, &unknown);
}

static void say_attached(const struct attach *attach)
{
    char until[40];
    wall_format_local(wall_at_ms(attach->lock.lease.deadline), until, sizeof until);
    say_status(attach->out, "holding the lock %s until %s for %s", attach->options->name, until,
               attach->target.name);
    say_verbose(attach->out, "attached to %s, released when it ends", attach->target.name);
}

static bool paths_are_relative(const struct options *options)
{
    const char *const paths[] = {options->lock_dir, options->lock_file, options->cacert,
                                 options->cert, options->key};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i] != NULL && paths[i][0] != '/')
            return true;
    return false;
}

/* The lock is taken, and belongs to the guard from here on. This process ends
 * without closing its own copies. */
static int attach_hand_over(struct attach *attach)
{
    struct acquisition *lock = &attach->lock;
    struct attach_plan plan = {plan_expiry(attach->options), paths_are_relative(attach->options)};
    int status;
    if (attach_target_has_ended(&attach->target))
        return acquisition_give_back(lock, FAIL_ARGUMENT, STATUS_USAGE,
                                     "the process that the lock was for has ended");
    if (lease_as_good_as_over(&lock->lease))
        return acquisition_give_back(lock, FAIL_SYSTEM, STATUS_SYSTEM,
                                     "the lease ended before the lock could be attached");
    if (print_lease(attach, &lock->lease) != STATUS_OK)
        return acquisition_give_back(lock, FAIL_SYSTEM, STATUS_CANT_CREATE,
                                     "the acquired lock could not be printed");
    if (!attach_daemon_start(lock, &attach->target, &plan, &status))
        return status;
    say_attached(attach);
    _exit(STATUS_OK);
}

int action_attach(const struct options *options, struct messages *out)
{
    int status = STATUS_INTERNAL;
    struct attach *attach = plan_memory(sizeof *attach, out, &status);
    if (attach == NULL)
        return status;
    attach->options = options;
    attach->out = out;
    attach->cancel_fd = -1;
    status = attach_target_open(&attach->target, options->attach_pid, out);
    if (status == STATUS_OK && plan_acquisition(&attach->lock, options, out, "nothing is locked",
                                                NULL, attach->target.id.pid, &status)) {
        if (cancel_with_target(attach, &status) && plan_take(&attach->lock, options, &status))
            status = attach->lock.outer == OUTER_COVERS ? attach_nested(attach)
                                                        : attach_hand_over(attach);
        status = acquisition_close(&attach->lock, status);
    }
    fd_close(&attach->cancel_fd);
    attach_target_close(&attach->target);
    free(attach);
    return status;
}
