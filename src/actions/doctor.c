#include "actions/actions.h"

#include "actions/doctor_trial.h"
#include "actions/open_backend.h"
#include "actions/plan.h"
#include "config/file.h"
#include "config/lock_key.h"
#include "lock/lock_name.h"
#include "process/signals.h"
#include "store/diagnostics.h"
#include "ui/failure.h"
#include "ui/holder_text.h"
#include "util/stack.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Longer than any step takes; yet short, so that the lock of a dlock that is
 * killed expires soon. */
static const struct duration trial_ttl = {30 * NS_PER_S};

/* The lock for the trial. Its name is random and unknown, so it cannot be a user's. */
struct doctor_scratch {
    char name[TOKEN_SIZE + sizeof "doctor:"];
    char key[LOCK_KEY_SIZE];
    struct lock_request request;
};

static void doctor_scratch_make(struct doctor_scratch *scratch, const struct options *options)
{
    char token[TOKEN_SIZE];
    token_make(token);
    snprintf(scratch->name, sizeof scratch->name, "doctor:%s", token);
    lock_key_make(scratch->key, options->prefix, scratch->name);
    scratch->request = (struct lock_request){
        .name = scratch->name,
        .key = scratch->key,
        .token = "",
        .take_id = "",
        .ttl = options->ttl,
    };
    holder_fill(&scratch->request.self, 0, "dlock --doctor");
}

static void add_unknown_variable(const char *name, const char *near, void *data)
{
    if (near != NULL)
        diagnostics_add(data, FINDING_WARN, name,
                        "variables are the long options in capitals; dlock(1) lists them",
                        "no such setting; did you mean %s?", near);
    else
        diagnostics_add(data, FINDING_NOTE, name,
                        "variables are the long options in capitals; dlock(1) lists them",
                        "no such setting");
}

static void add_doubts(const struct options *options, struct diagnostics *findings)
{
    if (options->fallback_to_file)
        diagnostics_add(findings, FINDING_WARN, "fallback",
                        "without --fallback, no command runs while Redis is down",
                        "while Redis is down, locks hold on this host only, and do not exclude "
                        "hosts that reach it");
    if (options->warn_on_expire)
        diagnostics_add(findings, FINDING_WARN, "on-expire", "--on-expire=stop",
                        "a command runs on without its lock when the lease ends or is lost");
}

/* The hash function must be available for any name. */
static void add_key(const struct options *options, struct diagnostics *findings)
{
    struct options tried = *options;
    struct errmsg why = {""};
    char key[LOCK_KEY_SIZE];
    if (options->name == NULL)
        tried.name = "doctor";
    enum lock_result result = lock_key_of(key, &tried, &why);
    if (result != LOCK_OK)
        diagnostics_fail(findings, (int)status_of(result), "key", NULL, "%s", why.text);
    else if (options->name != NULL)
        diagnostics_add(findings, FINDING_OK, "key", NULL, "%s", key);
}

static NOT_INLINED void add_config(const struct options *options, struct diagnostics *findings)
{
    diagnostics_section(findings, "configuration", NULL);
    config_unknown_variables(add_unknown_variable, findings);
    add_doubts(options, findings);
    add_key(options, findings);
}

/* Why this store was chosen. */
static void add_choice(const struct options *options, const struct backend *backend,
                       struct diagnostics *findings)
{
    static const char degraded[] = "no Redis is configured (%s): locks hold on this host only";
    static const char redis_or_file[] = "--redis=URL, or --backend=file if this is intended";
    char places[CONFIG_PLACES_SIZE];
    diagnostics_section(findings, "backend", NULL);
    if (strcmp(backend->kind, "redis") == 0)
        diagnostics_add(findings, FINDING_OK, "redis", NULL, "%s",
                        options->backend == BACKEND_REDIS ? "--backend=redis asks for it"
                                                          : "a URL is configured");
    else if (options->lock_file != NULL || options->backend == BACKEND_FILE)
        diagnostics_add(findings, FINDING_NOTE, "file", NULL,
                        "%s asks for it; a lock holds on this host alone",
                        options->lock_file != NULL ? "--lock-file" : "--backend=file");
    else if (options->on_degraded == DEGRADED_PROCEED)
        diagnostics_add(findings, FINDING_WARN, "file", redis_or_file, degraded,
                        config_places(&options->settings, OPT_REDIS, places));
    else
        diagnostics_fail(findings, FINDING_UNTRUSTED, "file", redis_or_file, degraded,
                         config_places(&options->settings, OPT_REDIS, places));
}

/* The waiter is another process elsewhere: it has a backend of its own. */
static void doctor_try_lock(const struct options *options, struct backend *holder,
                            struct doctor_scratch *scratch, struct diagnostics *findings,
                            struct bound bound)
{
    struct backend *waiter;
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    scratch->request.ttl = trial_ttl;
    if (backend_open(&waiter, options, NULL, &status, &why) != LOCK_OK) {
        diagnostics_fail(findings, status, "backend", NULL, "%s", why.text);
        return;
    }
    doctor_trial(holder, waiter, &scratch->request, findings, bound);
    waiter->close(waiter);
}

/* Not whether it is held: that changes all the time. */
static NOT_INLINED void add_pause(const struct options *options, struct backend *backend,
                                  struct diagnostics *findings, struct bound bound)
{
    char key[LOCK_KEY_SIZE], text[HOLDER_TEXT_SIZE];
    struct lock_state state;
    struct errmsg ignored = {""};
    if (options->name == NULL || lock_key_of(key, options, &ignored) != LOCK_OK ||
        backend->look(backend, key, &state, bound, &ignored) != LOCK_OK)
        return;
    if (state.pause.left.ns > 0)
        diagnostics_add(findings, FINDING_WARN, "pause", "dlock --resume NAME", "%s",
                        pause_format(&state.pause, text));
    lock_state_free(&state);
}

static void examine(const struct options *options, struct doctor_scratch *scratch,
                    struct diagnostics *findings, int cancel_fd)
{
    struct backend *backend;
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    /* Each call also has a limit of its own. */
    struct bound bound = {deadline_plus(deadline_after(options->outage), options->connect_timeout),
                          cancel_fd};
    doctor_scratch_make(scratch, options);
    add_config(options, findings);
    if (backend_open(&backend, options, NULL, &status, &why) != LOCK_OK) {
        diagnostics_section(findings, "backend", NULL);
        diagnostics_fail(findings, status, "store", NULL, "%s", why.text);
        return;
    }
    add_choice(options, backend, findings);
    add_pause(options, backend, findings, bound);
    if (backend->examine(backend, &scratch->request, findings, bound))
        doctor_try_lock(options, backend, scratch, findings, bound);
    backend->close(backend);
}

static int doctor_tell(const struct options *options, struct messages *out,
                       const struct diagnostics *findings)
{
    (void)setlocale(LC_CTYPE, "");
    if (findings->short_of_memory)
        return fail(out, FAIL_SYSTEM, STATUS_SYSTEM, "out of memory");
    if (options->json)
        diagnostics_print_json(findings);
    else
        diagnostics_print(findings, out->verbosity < 0);
    return flushed(out, diagnostics_status(findings));
}

int action_doctor(const struct options *options, struct messages *out)
{
    struct diagnostics findings = {0};
    struct signals signals;
    struct errmsg why = {""};
    int status = STATUS_INTERNAL;
    if (!signals_open(&signals, &why))
        return fail(out, FAIL_SYSTEM, STATUS_SYSTEM, "%s", why.text);
    struct doctor_scratch *scratch = plan_memory(sizeof *scratch, out, &status);
    if (scratch == NULL)
        return status;
    examine(options, scratch, &findings, signals.fd);
    free(scratch);
    int ended_by = signals_ended_by(&signals);
    status = ended_by != 0 ? STATUS_SIGNAL_BASE + ended_by : doctor_tell(options, out, &findings);
    diagnostics_free(&findings);
    return ended_by != 0 ? signals_die_by(ended_by) : status;
}
