#include "actions/actions_int.h"

#include "doctor/doctor.h"
#include "lock/lock_name.h"
#include "process/signals.h"
#include "ui/report.h"
#include "ui/run_times.h"
#include "ui/wait_text.h"
#include "util/thread.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The TTL of the trial lock. It is longer than any step of the trial, but so short that the lock
 * soon expires if dlock is killed. */
static const struct duration trial_ttl = {30 * NS_PER_S};

struct doctor {
    const struct options *options;
    struct findings findings;
    struct bound bound; /* limits the whole action; each request has its own limit as well */
    /* The lock for the trial. Its name is random, so no user has a lock of that name. */
    char name[TOKEN_SIZE + sizeof "doctor:"];
    char key[LOCK_KEY_SIZE];
    struct lock_request request;
};

static void make_request(struct doctor *doctor)
{
    char token[TOKEN_SIZE];
    token_make(token);
    snprintf(doctor->name, sizeof doctor->name, "doctor:%s", token);
    lock_key_make(doctor->key, doctor->options->key_start, doctor->name);
    doctor->request = (struct lock_request){
        .name = doctor->name,
        .key = doctor->key,
        .token = "",
        .take_id = "",
        .ttl = doctor->options->ttl,
    };
    holder_fill(&doctor->request.self, 0, "dlock --doctor");
}

/* --- configuration ------------------------------------------------------- */

static void add_unknown_variable(const char *name, const char *near, void *data)
{
    static const char advice[] = "variables are the long options in capitals; dlock(1) lists them";
    struct findings *findings = data;
    findings->check = name;
    if (near != NULL)
        findings_warn(findings, advice, "no such setting; did you mean %s?", near);
    else
        findings_note(findings, advice, "no such setting");
}

static void add_unused(enum option_id id, const char *why, bool grave, void *data)
{
    struct findings *findings = data;
    findings->check = option_rows[id].name;
    if (grave)
        findings_warn(findings, "use rediss://, or remove the setting", "%s", why);
    else
        findings_note(findings, NULL, "%s", why);
}

/* Checks that the lock's key can be made. If no name is given, makes a key from a sample name, to
 * find out whether the hash function is missing. */
static void check_key(const struct options *options, struct findings *findings)
{
    struct options tried = *options;
    struct errmsg why = {""};
    char key[LOCK_KEY_SIZE];
    if (options->name == NULL)
        tried.name = "doctor";
    findings->check = "key";
    if (findings_served(findings, lock_key_of(key, &tried, &why), NULL, &why) &&
        options->name != NULL)
        findings_good(findings, "%s", key);
}

static NOT_INLINED void check_configuration(const struct options *options,
                                            struct findings *findings)
{
    findings_section(findings, "configuration", NULL);
    findings->check = "read";
    for (const struct config_file *file = options->settings.files; file != NULL; file = file->next)
        if (file->is_there)
            findings_good(findings, "%s", file->path);
    config_unknown_variables(add_unknown_variable, findings);
    options_unused(options, add_unused, findings);
    if (options->fallback_to_file) {
        findings->check = "fallback";
        findings_warn(findings, "remove --fallback to run no command while Redis is down",
                      "while Redis is down, a lock holds on this host only, and hosts that reach "
                      "Redis are not excluded");
    }
    if (options->warn_on_expire) {
        findings->check = "on-expire";
        findings_warn(findings, "use --on-expire=stop",
                      "the command keeps running without the lock after the lease ends or is lost");
    }
    check_key(options, findings);
}

/* --- the store ----------------------------------------------------------- */

/* Reports why this store was chosen. */
static void check_choice(const struct options *options, const struct backend *backend,
                         struct findings *findings)
{
    static const char degraded[] = "no Redis is configured (%s): locks hold on this host only";
    static const char redis_or_file[] = "use --redis=URL, or --backend=file if this is intended";
    char places[CONFIG_PLACES_SIZE];
    findings->check = backend->kind;
    if (strcmp(backend->kind, "redis") == 0)
        findings_good(findings, "%s",
                      options->backend == BACKEND_REDIS
                          ? "chosen by --backend=redis"
                          : "chosen because a Redis URL is configured");
    else if (options->lock_file != NULL || options->backend == BACKEND_FILE)
        findings_note(findings, NULL, "chosen by %s; a lock holds on this host only",
                      options->lock_file != NULL ? "--lock-file" : "--backend=file");
    else if (options->on_degraded == DEGRADED_PROCEED)
        findings_warn(findings, redis_or_file, degraded,
                      config_places(&options->settings, OPT_REDIS, places));
    else
        findings_fail(findings, FINDING_UNTRUSTED, redis_or_file, degraded,
                      config_places(&options->settings, OPT_REDIS, places));
}

/* Compares the TTL with the lock's past runs. */
static void check_ttl(const struct options *options, const struct lock_state *state,
                      struct findings *findings)
{
    static const char found[] = "%s; %s";
    struct history history;
    char ttl[DURATION_TEXT_SIZE], advice[RUN_TIMES_SIZE];

    history_read(&history, state->memory.history);
    const struct past_run *past = history_longest(&history);
    if (past == NULL || *ttl_advice_format(&history, advice) == '\0')
        return;
    struct past_run longest = *past;
    longest.ttl_ms = options->ttl.ns / NS_PER_MS;
    duration_format(options->ttl, ttl, sizeof ttl);
    findings->check = "ttl";
    if (past_run_is_tight(&longest))
        findings_warn(findings, "use a longer --ttl: the command is killed when the TTL is over",
                      found, ttl, advice);
    else if (longest.length_ms < longest.ttl_ms / 10 &&
             history_ttl(longest.length_ms).ns < options->ttl.ns)
        findings_note(
            findings,
            "use a shorter --ttl: if this host dies, the lock stays held until the TTL is over",
            found, ttl, advice);
    else
        findings_good(findings, found, ttl, advice);
}

/* Warns if the lock is paused, and reports whether the TTL suits the past runs. Does not report
 * whether the lock is held, because that changes all the time. */
static NOT_INLINED void check_lock(struct doctor *doctor, struct backend *backend)
{
    const struct options *options = doctor->options;
    char key[LOCK_KEY_SIZE], text[HOLDER_TEXT_SIZE];
    struct lock_state state;
    struct errmsg ignored = {""};
    if (options->name == NULL || lock_key_of(key, options, &ignored) != LOCK_OK ||
        backend->look(backend, key, &state, doctor->bound, &ignored) != LOCK_OK)
        return;
    doctor->findings.check = "pause";
    if (state.pause.left.ns > 0)
        findings_warn(&doctor->findings, "to end the pause: dlock --resume NAME", "%s",
                      pause_format(&state.pause, text));
    check_ttl(options, &state, &doctor->findings);
    lock_state_free(&state);
}

/* Opens the store. On failure, adds the reason to the report and returns false. */
static bool open_store(struct doctor *doctor, struct backend **backend, const char *check)
{
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    if (backend_open(backend, doctor->options, NULL, &status, &why) == LOCK_OK)
        return true;
    doctor->findings.check = check;
    findings_fail(&doctor->findings, status, NULL, "%s", why.text);
    return false;
}

static void examine(struct doctor *doctor)
{
    struct findings *findings = &doctor->findings;
    struct backend *backend, *waiter;

    make_request(doctor);
    check_configuration(doctor->options, findings);
    findings_section(findings, "backend", NULL);
    if (!open_store(doctor, &backend, "store"))
        return;
    check_choice(doctor->options, backend, findings);
    check_lock(doctor, backend);

    /* The waiter plays the part of another process, so it has its own backend. */
    if (doctor_examine(backend, &doctor->request, findings, doctor->bound) &&
        open_store(doctor, &waiter, "backend")) {
        doctor->request.ttl = trial_ttl;
        doctor_trial(backend, waiter, &doctor->request, findings, doctor->bound);
        waiter->close(waiter);
    }
    backend->close(backend);
}

static int report(const struct options *options, struct messages *out,
                  const struct findings *findings)
{
    (void)setlocale(LC_CTYPE, "");
    if (findings->short_of_memory)
        return fail(out, FAIL_SYSTEM, STATUS_SYSTEM, "out of memory");
    if (options->json)
        findings_print_json(findings);
    else
        findings_print(findings, out->verbosity < 0);
    return flushed(out, findings_status(findings));
}

int action_doctor(const struct options *options, struct messages *out)
{
    struct signals signals;
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    if (!signals_open(&signals, &why))
        return fail(out, FAIL_SYSTEM, STATUS_SYSTEM, "%s", why.text);
    struct doctor *doctor = plan_memory(sizeof *doctor, out, &status);
    if (doctor == NULL)
        return status;

    doctor->options = options;
    doctor->bound = (struct bound){
        deadline_plus(deadline_after(options->retry_for), options->connect_timeout), signals.fd};
    examine(doctor);
    int ended_by = signals_ended_by(&signals);
    status =
        ended_by != 0 ? STATUS_SIGNAL_BASE + ended_by : report(options, out, &doctor->findings);
    findings_free(&doctor->findings);
    free(doctor);
    return ended_by != 0 ? signals_die_by(ended_by) : status;
}
