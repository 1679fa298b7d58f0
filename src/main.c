/* dlock: flock(1) for a fleet of hosts. main() reads the options, then performs one action. */
#include "actions/actions.h"
#include "config/options.h"
#include "ui/report.h"
#include "util/exit_status.h"
#include "util/message.h"
#include "util/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Prints the usage, because dlock was started without arguments. */
static int print_short_usage(void)
{
    fputs("Usage: dlock [OPTIONS] NAME -- COMMAND [ARG...]   run COMMAND while the lock NAME is "
          "held\n"
          "       dlock --status NAME                        who holds it; also --list, --doctor\n"
          "       dlock -h                                   what is used daily; --help: all "
          "options\n",
          stderr);
    return STATUS_USAGE;
}

/* Opens /dev/null in place of each closed standard descriptor. Otherwise the next file or socket
 * that dlock opens would get that number, and receive output that is meant for stdout or stderr.
 * The replacement permits no more than a closed descriptor does: dlock cannot read stdin, and
 * cannot write to stdout or stderr. It is close-on-exec, so the command finds the descriptor
 * closed, as before. */
static bool fill_standard_fds(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC) != fd)
            return false;
    return true;
}

static void warn_of_variable(const char *name, const char *near, void *out)
{
    if (near != NULL)
        say_warning(out, "%s: unknown variable; did you mean %s?", name, near);
}

static void tell_of_unused(enum option_id id, const char *why, bool grave, void *out)
{
    (void)id;
    if (grave)
        say_warning(out, "%s", why);
    else
        say_verbose(out, "%s", why);
}

static bool takes_lock(enum option_action action)
{
    return action == ACTION_RUN || action == ACTION_ACQUIRE || action == ACTION_ATTACH;
}

static NOT_INLINED int main_act(const struct options *options, struct messages *out)
{
    /* With SIGXFSZ ignored, exceeding the limit on file sizes is an ordinary error. But a command
     * would inherit an ignored signal. So an action that takes a lock blocks SIGXFSZ instead
     * (process/signals.c), and restores the signal mask for the command. */
    if (!takes_lock(options->action))
        (void)signal(SIGXFSZ, SIG_IGN);
    /* A dlock that runs under another lock leaves these warnings to the outer dlock, so that they
     * are printed only once. --doctor shows them in its table. */
    if (options->action != ACTION_DOCTOR && getenv("DLOCK_HELD") == NULL) {
        config_unknown_variables(warn_of_variable, out);
        options_unused(options, tell_of_unused, out);
    }
    switch (options->action) {
    case ACTION_RUN: return action_run(options, out);
    case ACTION_ACQUIRE: return action_acquire(options, out);
    case ACTION_ATTACH: return action_attach(options, out);
    case ACTION_EXTEND: return action_extend(options, out);
    case ACTION_RELEASE: return action_release(options, out);
    case ACTION_FORCE_RELEASE: return action_force_release(options, out);
    case ACTION_PAUSE:
    case ACTION_RESUME: return action_pause(options, out);
    case ACTION_STATUS: return action_status(options, out);
    case ACTION_HISTORY: return action_history(options, out);
    case ACTION_RAN_WITHIN: return action_ran_within(options, out);
    case ACTION_WAIT_UNTIL_FREE: return action_wait_until_free(options, out);
    case ACTION_LIST: return action_list(options, out);
    case ACTION_CURRENT: return action_current(options, out);
    case ACTION_DOCTOR: return action_doctor(options, out);
    case ACTION_PRINT_CONFIG: return action_print_config(options, out);
    case ACTION_VERSION:
    case ACTION_HELP:
    case ACTION_USAGE: break;
    }
    return action_help(options);
}

/* True if file capabilities may have given dlock extra rights. AT_SECURE alone does not prove that:
 * the kernel also sets it for a service that SELinux starts in a separate domain, which gives the
 * service no extra rights. If AT_SECURE is set and the file's capabilities cannot be read because
 * /proc is missing, assumes that the file has capabilities. */
static bool may_have_file_capabilities(void)
{
    return getauxval(AT_SECURE) != 0 &&
           (getxattr("/proc/self/exe", "security.capability", NULL, 0) > 0 ||
            (errno != ENODATA && errno != ENOTSUP));
}

/* True with *why set if this process has rights that its caller does not have, or if dlock cannot
 * tell. dlock runs any command, and it reads and writes files that the environment names. So it
 * would give such rights to every user of the host. */
static bool has_borrowed_rights(struct errmsg *why)
{
    uid_t user, effective_user, saved_user;
    gid_t group, effective_group, saved_group;
    if (getresuid(&user, &effective_user, &saved_user) != 0 ||
        getresgid(&group, &effective_group, &saved_group) != 0) {
        errmsg_set(why, "cannot determine the privileges of this process: %s", strerror(errno));
        return true;
    }
    if (user == effective_user && user == saved_user && group == effective_group &&
        group == saved_group && !may_have_file_capabilities())
        return false;
    errmsg_set(
        why, "dlock has more privileges than its caller (set-user-ID, set-group-ID or file "
             "capabilities) "
             "and would pass them on to any command; nothing was done; use chmod ug-s or setcap -r "
             "on the dlock file, and sudo(8) to run a command as another user");
    return true;
}

int main(int argc, char **argv)
{
    if (!fill_standard_fds()) {
        say_error(&(struct messages){0},
                  "cannot open /dev/null in place of a closed standard descriptor: %s",
                  strerror(errno));
        return STATUS_SYSTEM;
    }
    if (argc < 2)
        return print_short_usage();

    struct options options;
    struct errmsg why = {""};
    if (has_borrowed_rights(&why)) { /* checked before dlock reads any input from its caller */
        const struct messages plain = {.notify = {.fd = -1}, .waited = {-1}};
        return fail(&plain, FAIL_NOT_PERMITTED, STATUS_NOT_PERMITTED, "%s", why.text);
    }

    enum settings_result result = options_read(&options, argc, argv, &why);
    struct messages out = {
        .name = options.name,
        .scope = options.scope,
        .verbosity = options.verbosity,
        .json = options.json,
        .syslog = options.syslog,
        .waited = {-1},
    };
    messages_open(&out);

    int status =
        result == SETTINGS_OK ? main_act(&options, &out) : settings_refuse(&out, result, &why);
    options_free(&options);
    return status;
}
