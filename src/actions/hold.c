/* Actions that leave a lock held when they end: --acquire and --attach. */
#include "actions/actions_int.h"
#include "run/attach_daemon.h"
#include "ui/lock_print.h"
#include "ui/report.h"
#include "util/fileutils.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- a file for the owner token ------------------------------------------ */

/* The file of --owner-file. It is for the process that later extends or releases the lock, such as
 * the ExecStopPost= of a service. Until the lock is acquired, the file has a temporary name. */
struct token_file {
    const char *path;
    char temporary[4096];
};

static enum lock_result cannot(const char *path, int error, struct errmsg *why)
{
    errmsg_set(why, "cannot write the owner file %s: %s", path, strerror(error));
    return file_error_result(error);
}

static void token_file_drop(struct token_file *file)
{
    (void)!unlink(file->temporary);
}

/* Creates the file under its temporary name, in the directory of `path`. Only the file's owner can
 * read it. After LOCK_OK, call token_file_keep() or token_file_drop(). */
static enum lock_result token_file_make(struct token_file *file, const char *path,
                                        const char *token, struct errmsg *why)
{
    char line[TOKEN_SIZE + 1];
    struct stat status;
    *file = (struct token_file){.path = path};
    /* Refuse to replace a device, a pipe, or a link to either. */
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        errmsg_set(why, "cannot write the owner file %s: it is not a regular file", path);
        return LOCK_CANT_CREATE;
    }
    if ((size_t)snprintf(file->temporary, sizeof file->temporary, "%s.XXXXXX", path) >=
        sizeof file->temporary)
        return cannot(path, ENAMETOOLONG, why);

    int fd = mkostemp(file->temporary, O_CLOEXEC);
    if (fd < 0)
        return cannot(path, errno, why);
    (void)fchmod(fd, 0600); /* 0600 whatever the umask is */

    int length = snprintf(line, sizeof line, "%s\n", token);
    ssize_t written = write(fd, line, (size_t)length);
    int error = written == length ? 0 : written < 0 ? errno : ENOSPC;
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0)
        return LOCK_OK;
    token_file_drop(file);
    return cannot(path, error, why);
}

/* Renames the file to its final name, replacing any old file. On failure, removes the new file. */
static enum lock_result token_file_keep(struct token_file *file, struct errmsg *why)
{
    if (rename(file->temporary, file->path) == 0)
        return LOCK_OK;
    int error = errno;
    token_file_drop(file);
    return cannot(file->path, error, why);
}

/* --- acquire ------------------------------------------------------------- */

/* Gives the token to the caller. If that fails, releases the lock, because no process could release
 * it later without the token. */
static int hand_over(struct acquisition *lock, struct token_file *file)
{
    struct errmsg why = {""};
    if (file->path != NULL && token_file_keep(file, &why) != LOCK_OK)
        return acquisition_give_back(lock, FAIL_SYSTEM, STATUS_CANT_CREATE, why.text);
    if (lock->out->json)
        lease_json_print(&lock->lease, lock->out->scope);
    else if (file->path == NULL || lock->out->verbosity >= 0)
        puts(lock->token);

    int status = flushed(lock->out, STATUS_OK);
    if (status != STATUS_OK) {
        status = acquisition_give_back(lock, FAIL_SYSTEM, STATUS_CANT_CREATE,
                                       "cannot print the owner token");
        if (file->path != NULL)
            (void)!unlink(file->path);
    }
    return status;
}

static int acquire(struct acquisition *lock, const struct options *options, struct messages *out)
{
    struct token_file file = {0};
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    if (!plan_acquisition(lock, options, out, "the lock was not acquired", NULL, 0, &status))
        return status;
    if (options->owner_file != NULL) {
        enum lock_result made = token_file_make(&file, options->owner_file, lock->token, &why);
        if (made != LOCK_OK)
            return acquisition_close(lock, fail(out, failure_of(made), (int)status_of(made),
                                                "%s; %s", why.text, lock->undone));
    }

    bool taken = plan_take(lock, options, &status);
    if (file.path != NULL && (!taken || lock->outer == OUTER_COVERS))
        token_file_drop(&file);
    if (taken && lock->outer == OUTER_COVERS)
        status = fail(out, FAIL_ARGUMENT, STATUS_USAGE,
                      "an enclosing dlock already holds the lock; %s; use --extend or --release",
                      lock->undone);
    else if (taken)
        status = hand_over(lock, &file);
    return acquisition_close(lock, status);
}

int action_acquire(const struct options *options, struct messages *out)
{
    int status = STATUS_INTERNAL;
    struct acquisition *lock = plan_memory(sizeof *lock, out, &status);
    if (lock != NULL)
        status = acquire(lock, options, out);
    free(lock);
    return status;
}

/* --- attach -------------------------------------------------------------- */

struct attach {
    const struct options *options;
    struct messages *out;
    struct attach_target target;
    struct acquisition lock;
    int cancel_fd; /* -1: not open */
};

/* Arranges that the wait for the lock ends when a signal arrives, or when the process to which
 * the lock is to be attached (--attach) ends. */
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
        lease_json_print(lease, attach->options->scope);
    return flushed(attach->out, STATUS_OK);
}

/* Called if the process to which the lock is to be attached (--attach) already runs under the lock.
 * There is nothing to acquire or to guard. */
static int leave_to_outer(const struct attach *attach)
{
    const struct lock_request *request = &attach->lock.request;
    struct lease unknown = {
        .name = request->name, .key = request->key, .token = "", .mode = request->mode, .slot = -1};
    say_verbose(attach->out, "%s is already running under the lock; nothing was acquired",
                attach->target.name);
    return print_lease(attach, &unknown);
}

static void say_attached(const struct attach *attach)
{
    char until[40];
    wall_format_local(wall_at_ms(attach->lock.lease.deadline), until, sizeof until);
    say_status(attach->out, "holding the lock %s for %s until %s", attach->options->name,
               attach->target.name, until);
    say_verbose(attach->out, "attached to %s; dlock releases the lock when the process ends",
                attach->target.name);
    /* dlock could not kill pid 1 when the lease ends, because the kernel protects the first process
     * of a pid namespace from signals of the processes inside. */
    if (attach->target.id.pid == 1 && !attach->options->warn_on_expire)
        say_warning(attach->out,
                    "dlock cannot kill %s: at the end of the lease, that process stops only if it "
                    "handles the stop signal; start the container with an init process, or give "
                    "--on-expire=warn",
                    attach->target.name);
}

static bool paths_are_relative(const struct options *options)
{
    const char *const paths[] = {options->lock_dir, options->lock_file, options->cacert,
                                 options->client_cert, options->client_key};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i] != NULL && paths[i][0] != '/')
            return true;
    return false;
}

/* Hands the acquired lock over to a guard process. The calling process then exits without cleaning
 * up, because the guard process still uses the lock. */
static int attach_to(struct attach *attach)
{
    struct acquisition *lock = &attach->lock;
    struct attach_plan plan = {plan_expiry(attach->options), paths_are_relative(attach->options)};
    int status;
    if (attach_target_has_ended(&attach->target))
        return acquisition_give_back(lock, FAIL_ARGUMENT, STATUS_USAGE,
                                     "the process to attach to has ended");
    if (lease_as_good_as_over(&lock->lease))
        return acquisition_give_back(lock, FAIL_SYSTEM, STATUS_SYSTEM,
                                     "the lease ended before the lock could be attached");
    if (print_lease(attach, &lock->lease) != STATUS_OK)
        return acquisition_give_back(lock, FAIL_SYSTEM, STATUS_CANT_CREATE,
                                     "cannot print the acquired lock");
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
            status =
                attach->lock.outer == OUTER_COVERS ? leave_to_outer(attach) : attach_to(attach);
        status = acquisition_close(&attach->lock, status);
    }
    fd_close(&attach->cancel_fd);
    attach_target_close(&attach->target);
    free(attach);
    return status;
}
