/* The main action: runs a command under the lock. */
#include "actions/actions_int.h"
#include "run/outer.h"
#include "run/supervise.h"
#include "run/watch.h"
#include "ui/report.h"
#include "ui/run_times.h"
#include "util/clock.h"
#include "util/text.h"
#include "util/thread.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct run {
    const struct options *options;
    struct messages *out;
    const char *shell_argv[4];
    const char *const *argv;
    struct acquisition lock;
    struct environment environment;    /* of the command */
    struct supervised_command command; /* with its watch thread and guard process */
    struct watchdog heartbeat;
    struct report report;
};

static void choose_command(struct run *run)
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
}

/* --- the end ------------------------------------------------------------- */

static const char *command_shown(const struct run *run)
{
    return run->argv[0][0] != '\0' ? run->argv[0] : "''";
}

static int cannot_run(const struct run *run, int error)
{
    struct errmsg why = {""};
    errmsg_set(&why, "cannot run %.300s: %s", command_shown(run), strerror(error));
    hints_not_a_command(run->options, &why);
    return fail(run->out, FAIL_ARGUMENT, (int)status_of_exec(error), "%s", why.text);
}

static int command_status(struct run *run, const struct outcome *outcome)
{
    if (outcome->exec_error == EXEC_UNSEEN)
        return fail(
            run->out, FAIL_SYSTEM, STATUS_SYSTEM,
            "cannot run %.300s: the command would run in a new pid namespace; use unshare -f",
            command_shown(run));
    if (outcome->exec_error != 0)
        return cannot_run(run, outcome->exec_error);
    run->lock.ended_by = outcome->signalled;
    if (WIFSIGNALED(outcome->status))
        return STATUS_SIGNAL_BASE + WTERMSIG(outcome->status);
    return WEXITSTATUS(outcome->status);
}

static void say_ended(const struct run *run, const struct outcome *outcome)
{
    char name[32];
    if (WIFSIGNALED(outcome->status))
        say_verbose(run->out, "the command was killed by %s",
                    signame_format(WTERMSIG(outcome->status), name, sizeof name));
    else
        say_verbose(run->out, "the command exited with status %d", WEXITSTATUS(outcome->status));
}

/* The exit status if the lease ended or was lost while the command ran. */
static int lease_over_status(struct run *run, const struct outcome *outcome, struct deadline end)
{
    char overrun[DURATION_TEXT_SIZE];
    if (!run->options->warn_on_expire) {
        fail_json(run->out, FAIL_LOST, "the lease ended or was lost, and the command was stopped");
        return STATUS_STOPPED;
    }
    say_error(run->out, "the command ran for %s without the lock",
              duration_rounded(deadline_gap(outcome->over_since, end), overrun, sizeof overrun));
    return command_status(run, outcome);
}

/* Returns how the run ended, in the form in which the store remembers it. */
static struct run_end run_end_of(const struct run *run, const struct outcome *outcome)
{
    struct run_end end = {RUN_STATUS, WEXITSTATUS(outcome->status), wall_now_ms()};
    if (!outcome->started)
        return (struct run_end){RUN_NONE, 0, 0};

    if (outcome->exec_error == EXEC_UNSEEN)
        end.code = STATUS_SYSTEM;
    else if (outcome->exec_error != 0)
        end.code = (int)status_of_exec(outcome->exec_error);
    else if (outcome->lease_over)
        end = (struct run_end){run->options->warn_on_expire ? RUN_LOST : RUN_STOPPED, 0,
                               end.ended_ms};
    else if (WIFSIGNALED(outcome->status))
        end = (struct run_end){RUN_SIGNAL, WTERMSIG(outcome->status), end.ended_ms};
    return end;
}

/* If the run used more than 80 % of its TTL, says which TTL would have been enough. Is silent if an
 * earlier run in the last 36 hours also used more than 80 %, because dlock gave the advice after
 * that run, and cron should not mail it every night. */
static NOT_INLINED void advise_ttl(struct run *run)
{
    static const int64_t silent_ms = INT64_C(36) * 60 * 60 * 1000;
    struct acquisition *lock = &run->lock;
    const struct lease *lease = &lock->lease;
    struct bound bound = {deadline_after(DURATION_S(1)), lock->signals.fd};
    const struct past_run this = {.length_ms = lease->end.ended_ms - lease->began_ms,
                                  .ttl_ms = lease->ttl.ns / NS_PER_MS};
    bool extended = deadline_gap(lease->taken, lease->deadline).ns > lease->ttl.ns;
    struct lock_state state;
    struct history history;
    struct errmsg ignored = {""};
    char advice[RUN_TIMES_SIZE], ttl[DURATION_TEXT_SIZE];

    if (extended || !past_run_is_tight(&this) || run->out->verbosity < 0 ||
        lock->backend->look(lock->backend, lock->key, &state, bound, &ignored) != LOCK_OK)
        return;
    history_read(&history, state.memory.history);
    lock_state_free(&state);

    for (size_t i = 0; i < history.count; i++) {
        const struct past_run *past = &history.runs[i];
        int64_t ago_ms = lease->end.ended_ms - past->began_ms - past->length_ms;
        if (past_run_is_tight(past) && ago_ms > 0 && ago_ms < silent_ms)
            return;
    }
    if (*ttl_advice_format(&history, advice) != '\0')
        say_notice(run->out, "the run used %d%% of its TTL of %s; %s",
                   (int)(this.length_ms * 100 / this.ttl_ms),
                   duration_format(lease->ttl, ttl, sizeof ttl), advice);
}

/* The release (compare-and-delete) is the last check of the lock. If the lock is gone, or held by
 * another owner, the lock may have been lost while the command ran, and dlock reports it as lost.
 * LOCK_ENDED is not reported as a loss, because the lease merely ran out before the release
 * arrived. */
static int finish(struct run *run, struct outcome *outcome)
{
    struct errmsg why = {""};
    bool ran = outcome->started && outcome->exec_error == 0;
    if (ran)
        say_ended(run, outcome);
    else
        run->lock.lease.hold = deadline_now(); /* no run, so --hold-at-least does not apply */

    run->lock.lease.lost = outcome->lease_over;
    run->lock.lease.end = run_end_of(run, outcome);
    enum lock_result result = acquisition_release(&run->lock, &why);
    struct deadline end = deadline_now();
    run->report.held = deadline_gap(run->lock.lease.taken, end);

    if (lock_is_lost(result) && ran && !outcome->lease_over && !outcome->released) {
        say_error(run->out, "the lock was lost before the command ended: %s", why.text);
        outcome->lease_over = true;
        outcome->over_since = end;
    } else {
        acquisition_say_released(&run->lock, result, &why);
    }
    run->report.lost = outcome->lease_over;
    if (ran && (result == LOCK_OK || result == LOCK_ENDED)) /* the lock was not lost */
        advise_ttl(run);

    if (!outcome->started && outcome->signalled != 0) {
        run->lock.ended_by = outcome->signalled;
        return STATUS_SIGNAL_BASE + outcome->signalled;
    }
    if (!outcome->started)
        return fail(run->out, outcome->lease_over ? FAIL_LOST : FAIL_SYSTEM,
                    outcome->lease_over ? STATUS_STOPPED : STATUS_SYSTEM,
                    "%s; the command was not run", outcome->error.text);
    return outcome->lease_over ? lease_over_status(run, outcome, end)
                               : command_status(run, outcome);
}

/* --- the report ---------------------------------------------------------- */

static void write_report(struct run *run, bool taken, int status)
{
    const struct acquisition *lock = &run->lock;
    struct report *report = &run->report;
    struct errmsg why = {""};
    report->name = run->options->name;
    report->key = lock->key;
    report->backend = lock->kind;
    report->self = &lock->request.self;
    report->lease = taken ? &lock->lease : NULL;
    report->waited = lock->waited;
    report->nested = lock->outer == OUTER_COVERS;
    report->status = status;
    if (!run_report_write(report, &why))
        say_warning(run->out, "%s", why.text);
}

/* --- the beginning ------------------------------------------------------- */

/* Opens the heartbeat socket, and tells the command the interval. If the command sends one
 * WATCHDOG=1 in each interval, the lease is extended before the stop signal is due. */
static bool open_heartbeat(struct run *run, struct errmsg *why)
{
    const struct options *options = run->options;
    struct duration interval = {options->ttl.ns - lease_grace(options->ttl, options->grace).ns};
    char id[TOKEN_SIZE]; /* the id is public, unlike the owner token */

    token_make(id);
    if (!watchdog_open(&run->heartbeat, id, why))
        return false;
    watchdog_export(&run->environment, &run->heartbeat, interval);
    return true;
}

/* Called if an ancestor already holds the lock. The ancestor watches and releases the lock, so
 * dlock only has to become the command. */
static int run_nested(struct run *run)
{
    say_verbose(run->out,
                "an enclosing dlock already holds the lock; nothing is acquired or released");
    write_report(run, false, STATUS_OK);
    run_report_close(&run->report);

    (void)acquisition_close(&run->lock, STATUS_OK);
    signals_forget_writes(&run->lock.signals);
    signals_restore(&run->lock.signals);
    execvp(run->argv[0], (char *const *)(uintptr_t)run->argv);
    return cannot_run(run, errno);
}

static int run_command(struct run *run)
{
    struct acquisition *lock = &run->lock;
    struct errmsg why = {""};
    struct outcome outcome;

    environment_copy(&run->environment);
    outer_export(&run->environment, &lock->lease, lock->kind,
                 lock->where != NULL ? lock->where : lock->kind);
    if (run->options->heartbeat && !open_heartbeat(run, &why))
        return acquisition_give_back(lock, FAIL_SYSTEM, STATUS_SYSTEM, why.text);
    if (run->environment.short_of_memory)
        return acquisition_give_back(lock, FAIL_SYSTEM, STATUS_SYSTEM, "out of memory");
    if (!signals_widen(&lock->signals, &why))
        return acquisition_give_back(lock, FAIL_SYSTEM, STATUS_SYSTEM, why.text);

    run->command = (struct supervised_command){
        .backend = lock->backend,
        .lease = &lock->lease,
        .command = {.argv = run->argv,
                    .environment = &run->environment,
                    .signals = &lock->signals,
                    .out = run->out,
                    .tree = run->options->tree},
        .end = plan_expiry(run->options),
        .heartbeat = &run->heartbeat,
    };
    supervise_command(&run->command, &outcome);
    int status = finish(run, &outcome);
    if (outcome.started)
        supervise_command_close(&run->command);
    watchdog_close(&run->heartbeat);
    return status;
}

int action_run(const struct options *options, struct messages *out)
{
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    struct run *run = plan_memory(sizeof *run, out, &status);
    if (run == NULL)
        return status;

    run->options = options;
    run->out = out;
    run->heartbeat.fd = -1;
    enum lock_result opened = run_report_open(&run->report, options->report, &why);
    if (opened != LOCK_OK) {
        free(run);
        return fail(out, failure_of(opened), (int)status_of(opened), "%s; the command was not run",
                    why.text);
    }
    out->code = &run->report.error;

    choose_command(run);
    if (hints_name_is_file(options))
        say_warning(out,
                    "this name is the path of a file; to lock that file, as flock(1) does, use "
                    "--lock-file=%s",
                    options->name);

    if (plan_acquisition(&run->lock, options, out, "the command was not run", run->argv[0], 0,
                         &status)) {
        bool taken = plan_take(&run->lock, options, &status);
        if (taken)
            status = run->lock.outer == OUTER_COVERS ? run_nested(run) : run_command(run);
        write_report(run, taken && run->lock.outer != OUTER_COVERS, status);
        status = acquisition_close(&run->lock, status);
    }

    run_report_close(&run->report);
    environment_free(&run->environment);
    out->code = NULL;
    free(run);
    return status;
}
