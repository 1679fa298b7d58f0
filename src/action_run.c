#include "action_run.h"

#include "backend_choice.h"
#include "command_env.h"
#include "duration.h"
#include "heartbeat.h"
#include "nesting.h"
#include "signals.h"
#include "supervise.h"
#include "wait.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long to ask whether an outer lock holds; where there is no answer it is
 * asked for like any other. */
static const struct duration nesting_limit = {3 * NS_PER_S};

/* How long a release is tried; after that the lease clears by itself. */
static const struct duration release_limit = {5 * NS_PER_S}, release_interval = {200 * NS_PER_MS};

struct run {
    const struct options *options;
    const struct messages *out;
    struct signals signals;
    char key[LOCK_KEY_SIZE];
    char token[TOKEN_SIZE];
    char take_id[TOKEN_SIZE];
    const char *shell_argv[4];
    const char *const *argv;
    struct lock_request request;
    struct backend *backend;
    struct lease lease;
    struct heartbeat heartbeat;
    bool nested; /* an ancestor holds the lock: nothing to take, nothing to release */
    struct deadline next_status; /* when the service manager is told of the wait again */
};

static void prepare(struct run *run)
{
    const struct options *options = run->options;
    run->argv = (const char *const *)options->command;
    if (options->shell_command != NULL) {
        const char *shell = getenv("SHELL");
        run->shell_argv[0] = shell != NULL && *shell != '\0' ? shell : "/bin/sh";
        run->shell_argv[1] = "-c";
        run->shell_argv[2] = options->shell_command;
        run->argv = run->shell_argv;
    }
    lock_key_make(run->key, options->prefix, options->scope, options->name);
    token_make(run->take_id);
    snprintf(run->token, sizeof run->token, "%s", options->owner != NULL ? options->owner : run->take_id);
    run->request = (struct lock_request){
        .name = options->name,
        .key = run->key,
        .token = run->token,
        .take_id = run->take_id,
        .ttl = options->ttl,
        .hold_at_least = options->hold_at_least,
    };
    holder_self(&run->request.self, run->argv[0]);
}

/* --- taking -------------------------------------------------------------- */

enum { HOLDER_TEXT_SIZE = 640 };

/* "ann@host, pid 12, backup, whose lease ends in 5m". Returns text. */
static const char *holder_format(const struct holder *holder, char text[HOLDER_TEXT_SIZE])
{
    char left[DURATION_TEXT_SIZE], lease[DURATION_TEXT_SIZE + 32] = "";
    if (holder->expires)
        snprintf(lease, sizeof lease, ", whose lease ends in %s", duration_format(holder->left, left, sizeof left));
    if (holder->known)
        snprintf(text, HOLDER_TEXT_SIZE, "%s@%s, pid %ld, %s%s", holder->user, holder->host, (long)holder->pid,
                 holder->command, lease);
    else
        snprintf(text, HOLDER_TEXT_SIZE, "another client%s", lease);
    return text;
}

static void say_held(const struct run *run, const struct holder *holder, const struct waited *waited)
{
    char time[DURATION_TEXT_SIZE], who[HOLDER_TEXT_SIZE];
    say_conflict(run->out, "held by %s; not taken after %s", holder_format(holder, who),
                 duration_format(waited->time, time, sizeof time));
}

/* A unit that waits for its lock is starting: systemd's TimeoutStartSec is put
 * off, by more than the longest pause between two tries. */
static void tell_manager(void *data, const struct holder *holder, const struct why *why)
{
    struct run *run = data;
    char who[HOLDER_TEXT_SIZE];
    if (!deadline_passed(run->next_status))
        return;
    run->next_status = deadline_after(DURATION_S(2));
    if (holder != NULL)
        say_status(run->out, "waiting for the lock %s, held by %s", run->request.name, holder_format(holder, who));
    else
        say_status(run->out, "waiting for the lock %s: %s", run->request.name, why->text);
    notify_send(&run->out->notify, "EXTEND_TIMEOUT_USEC=%d", 30 * 1000 * 1000);
}

static int not_taken(const struct run *run, enum lock_result result, const struct holder *holder,
                     const struct waited *waited, const struct why *why)
{
    char time[DURATION_TEXT_SIZE];
    if (result == LOCK_HELD) {
        say_held(run, holder, waited);
        return run->options->conflict_status;
    }
    if (result == LOCK_CANCELLED) {
        struct signal_event event;
        return signals_next(&run->signals, &event) ? signals_die_by(event.number) : STATUS_INTERNAL;
    }
    if (result == LOCK_UNAVAILABLE)
        say_error(run->out, "%s; tried %d time%s in %s; the command was not run", why->text, waited->takes,
                  waited->takes == 1 ? "" : "s", duration_format(waited->time, time, sizeof time));
    else
        say_error(run->out, "%s; the command was not run", why->text);
    return (int)status_of(result);
}

static bool held_by_ancestor(void *data, const struct holder *holder)
{
    struct run *run = data;
    run->nested = run->nested || nested_by_ancestry(holder, &run->request.self);
    return run->nested;
}

/* Waits for what is left of --wait after `already`. */
static enum lock_result wait_on(struct run *run, struct duration already, struct holder *holder, struct waited *waited,
                                struct why *why)
{
    const struct options *options = run->options;
    struct patience patience = {
        .forever = options->waits_forever,
        .wait = {options->wait.ns > already.ns ? options->wait.ns - already.ns : 0},
        .outage = options->outage,
        .pausing = run->out->notify.fd >= 0 ? tell_manager : NULL,
        .is_own = held_by_ancestor,
        .data = run,
    };
    return wait_for_lock(run->backend, &run->request, &patience, run->signals.fd, &run->lease, holder, waited, why);
}

static enum lock_result fall_back(struct run *run, enum exit_status *status, struct why *why)
{
    struct why outage = *why;
    run->backend->close(run->backend);
    run->backend = NULL;
    return backend_fall_back(&run->backend, run->options, run->out, status, &outage, why);
}

/* True with the lock taken, else *status is the exit status. */
static bool take(struct run *run, int *status)
{
    struct holder holder = {0};
    struct waited waited = {0};
    struct why why = {""};
    enum exit_status failed;
    if (backend_choose(&run->backend, run->options, run->out, &failed, &why) != LOCK_OK) {
        say_error(run->out, "%s", why.text);
        *status = (int)failed;
        return false;
    }
    run->nested = nested_by_environment(run->backend, run->key, (struct bound){deadline_after(nesting_limit), run->signals.fd});
    if (run->nested)
        return true;
    enum lock_result result = wait_on(run, DURATION_ZERO, &holder, &waited, &why);
    if (result == LOCK_UNAVAILABLE && run->options->fallback_to_file) {
        if (fall_back(run, &failed, &why) != LOCK_OK) {
            say_error(run->out, "%s", why.text);
            *status = (int)failed;
            return false;
        }
        result = wait_on(run, waited.time, &holder, &waited, &why);
    }
    char time[DURATION_TEXT_SIZE];
    if (run->nested)
        return true;
    if (result == LOCK_OK)
        say_verbose(run->out, "taken (%s, fence %" PRId64 ") after %s", run->backend->kind, run->lease.fence,
                    duration_format(waited.time, time, sizeof time));
    else
        *status = not_taken(run, result, &holder, &waited, &why);
    return result == LOCK_OK;
}

/* --- releasing ----------------------------------------------------------- */

/* Waits for `until`. False where a signal has come that would end a program. */
static bool pause_release(const struct run *run, struct deadline until)
{
    struct pollfd fd = {.fd = run->signals.fd, .events = POLLIN};
    while (!deadline_passed(until))
        if (poll(&fd, 1, deadline_poll_ms(until)) > 0 && signals_ended_by(&run->signals) != 0)
            return false;
    return true;
}

/* LOCK_OK, LOCK_GONE, or what kept us from it. Who sends a signal meanwhile
 * does not want to wait for a store that is down: no further try is made.
 * Signals from before were for the command. A lock that is gone when the first
 * try got no answer and the lease has ended since has cleared by itself: that
 * is told as LOCK_UNAVAILABLE. */
static enum lock_result release(struct run *run, struct why *why)
{
    struct deadline limit = deadline_after(release_limit);
    bool retried = false;
    (void)signals_ended_by(&run->signals);
    for (;;) {
        enum lock_result result = run->backend->release(run->backend, &run->lease, (struct bound){limit, -1}, why);
        if (result == LOCK_GONE && retried && deadline_passed(run->lease.deadline)) {
            why_set(why, "the store did not answer in time");
            return LOCK_UNAVAILABLE;
        }
        if (result != LOCK_UNAVAILABLE || deadline_passed(limit))
            return result;
        retried = true;
        if (!pause_release(run, deadline_after(duration_jittered(release_interval))))
            return result;
    }
}

static int cannot_run(const struct run *run, int error)
{
    say_error(run->out, "cannot run %s: %s", run->argv[0], strerror(error));
    return (int)status_of_exec(error);
}

static int command_status(const struct run *run, const struct outcome *outcome)
{
    if (outcome->exec_error != 0)
        return cannot_run(run, outcome->exec_error);
    if (WIFSIGNALED(outcome->status))
        return STATUS_SIGNAL_BASE + WTERMSIG(outcome->status);
    return WEXITSTATUS(outcome->status);
}

/* The compare-and-delete is the last look at the lock: where it is not ours,
 * it was lost before the command ended, or there is no telling that it was
 * not. */
static int finish(struct run *run, struct outcome *outcome)
{
    struct why why = {""};
    char overrun[DURATION_TEXT_SIZE], rest[DURATION_TEXT_SIZE];
    if (!outcome->started || outcome->exec_error != 0)
        run->lease.hold = deadline_now(); /* nothing has run */
    enum lock_result result = release(run, &why);
    struct deadline end = deadline_now();
    if (result == LOCK_GONE && outcome->started && !outcome->lease_over && outcome->exec_error == 0) {
        say_error(run->out, "the lock was lost before the command ended: %s", why.text);
        outcome->lease_over = true;
        outcome->over_since = end;
    } else if (result != LOCK_OK && result != LOCK_GONE) {
        say_warning(run->out, "the lock could not be released: %s; it clears when its lease ends", why.text);
    } else if (result == LOCK_OK && deadline_before(end, run->lease.hold)) {
        say_verbose(run->out, "released; others are kept out for another %s (--hold-at-least)",
                    duration_format(deadline_gap(end, run->lease.hold), rest, sizeof rest));
    } else {
        say_verbose(run->out, result == LOCK_OK ? "released" : "nothing to release: %s", why.text);
    }
    if (outcome->signalled != 0)
        return signals_die_by(outcome->signalled);
    if (!outcome->started) {
        say_error(run->out, "%s; the command was not run", outcome->error.text);
        return outcome->lease_over ? STATUS_STOPPED : STATUS_SYSTEM;
    }
    if (outcome->unwatched) {
        say_error(run->out, "%s; the command was stopped", outcome->error.text);
        return STATUS_SYSTEM;
    }
    if (outcome->lease_over && run->options->warn_on_expire)
        say_error(run->out, "the command ran on for %s without the lease",
                  duration_format(deadline_gap(outcome->over_since, end), overrun, sizeof overrun));
    return outcome->lease_over && !run->options->warn_on_expire ? STATUS_STOPPED : command_status(run, outcome);
}

/* Releases without having run anything. */
static int give_back(struct run *run, const char *text)
{
    struct why ignored;
    run->lease.hold = deadline_now();
    (void)release(run, &ignored);
    say_error(run->out, "%s; the command was not run", text);
    return STATUS_SYSTEM;
}

/* The command is to be heard of before the stop signal is due. */
static bool open_heartbeat(struct run *run, struct why *why)
{
    struct duration interval = {run->options->ttl.ns - run->options->grace.ns};
    char id[TOKEN_SIZE]; /* everybody sees it: not the owner token */
    token_make(id);
    if (!heartbeat_open(&run->heartbeat, id, why))
        return false;
    bool set = heartbeat_env_set(&run->heartbeat, interval);
    if (!set)
        why_set(why, "out of memory");
    return set;
}

/* An ancestor has the lock, watches it and releases it: there is nothing left
 * to do but to become the command. */
static int run_nested(struct run *run)
{
    say_verbose(run->out, "held already by the command that this runs in; nothing is taken or released");
    run->backend->close(run->backend);
    run->backend = NULL;
    signals_restore(&run->signals);
    execvp(run->argv[0], (char *const *)(uintptr_t)run->argv);
    return cannot_run(run, errno);
}

static int run_command(struct run *run)
{
    struct why why = {""};
    struct outcome outcome;
    if (!command_env_set(&run->lease, run->backend->kind, &run->options->settings))
        return give_back(run, "out of memory");
    if (run->options->heartbeat && !open_heartbeat(run, &why))
        return give_back(run, why.text);
    if (!signals_widen(&run->signals, &why))
        return give_back(run, why.text);
    struct supervision plan = {
        .backend = run->backend,
        .lease = &run->lease,
        .signals = &run->signals,
        .out = run->out,
        .argv = run->argv,
        .grace = run->options->grace,
        .stop_signal = run->options->stop_signal,
        .warn_only = run->options->warn_on_expire,
        .tree = run->options->tree,
        .heartbeat = &run->heartbeat,
    };
    supervise(&plan, &outcome);
    heartbeat_close(&run->heartbeat);
    return finish(run, &outcome);
}

int action_run(const struct options *options, const struct messages *out)
{
    struct run run = {.options = options, .out = out, .heartbeat.fd = -1};
    struct why why = {""};
    int status = STATUS_INTERNAL;
    if (!signals_open(&run.signals, &why)) {
        say_error(out, "%s; the command was not run", why.text);
        return STATUS_SYSTEM;
    }
    prepare(&run);
    if (take(&run, &status))
        status = run.nested ? run_nested(&run) : run_command(&run);
    if (run.backend != NULL)
        run.backend->close(run.backend);
    return status;
}
