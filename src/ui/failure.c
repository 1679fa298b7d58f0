#include "ui/failure.h"

#include "util/json.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *code;
    bool retryable;
} failures[] = {
    [FAIL_HELD] = {"LOCK_ACQUISITION_FAILED", true},
    [FAIL_PAUSED] = {"LOCK_PAUSED", true},
    [FAIL_TIMEOUT] = {"LOCK_TIMEOUT", true},
    [FAIL_DONE] = {"ALREADY_DONE", true},
    [FAIL_NOT_FOUND] = {"LOCK_NOT_FOUND", false},
    [FAIL_MISMATCH] = {"LOCK_OWNERSHIP_MISMATCH", false},
    [FAIL_RELEASED] = {"LOCK_ALREADY_RELEASED", false},
    [FAIL_LOST] = {"LOCK_LOST", false},
    [FAIL_UNAVAILABLE] = {"SERVICE_UNAVAILABLE", true},
    [FAIL_NOT_PERMITTED] = {"NOT_PERMITTED", false},
    [FAIL_ARGUMENT] = {"INVALID_ARGUMENT", false},
    [FAIL_CONFIG] = {"INVALID_CONFIG", false},
    [FAIL_SYSTEM] = {"SYSTEM_ERROR", false},
};

enum failure failure_of(enum lock_result result)
{
    switch (result) {
    case LOCK_HELD: return FAIL_HELD;
    case LOCK_GONE:
    case LOCK_ENDED: return FAIL_NOT_FOUND;
    case LOCK_FOREIGN: return FAIL_MISMATCH;
    case LOCK_RELEASED: return FAIL_RELEASED;
    case LOCK_UNAVAILABLE: return FAIL_UNAVAILABLE;
    case LOCK_REFUSED: return FAIL_NOT_PERMITTED;
    case LOCK_INVALID: return FAIL_CONFIG;
    case LOCK_OK:
    case LOCK_CANT_CREATE:
    case LOCK_CANCELLED:
    case LOCK_SYSTEM: break;
    }
    return FAIL_SYSTEM;
}

void fail_json(const struct messages *out, enum failure failure, const char *text)
{
    if (out->code != NULL)
        *out->code = failures[failure].code;
    if (!out->json)
        return;
    struct json json = json_line_begin(stdout);
    json_begin(&json, "error", '{');
    json_text(&json, "code", failures[failure].code);
    json_text(&json, "message", text);
    json_bool(&json, "retryable", failures[failure].retryable);
    json_begin(&json, "details", '{');
    json_text(&json, "key", out->name);
    json_text(&json, "full_key", out->key);
    if (out->waited.ns >= 0)
        json_seconds(&json, "waited", out->waited.ns / NS_PER_MS);
    json_end(&json, '}');
    json_end(&json, '}');
    json_line_end(&json);
    fflush(stdout);
}

int fail(const struct messages *out, enum failure failure, int status, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length < 0)
        return status;
    fail_json(out, failure, text);
    if (out->json)
        return status;
    bool is_told = failure == FAIL_TIMEOUT || failure == FAIL_PAUSED;
    if (is_told && status != STATUS_OK) /* with -E 0 it is meant to be a success */
        say_notice(out, "%s", text);
    else if (is_told || failure == FAIL_HELD || failure == FAIL_DONE)
        say_conflict(out, "%s", text);
    else
        say_error(out, "%s", text);
    return status;
}

int fail_result(const struct messages *out, enum lock_result result, const struct errmsg *why)
{
    return fail(out, failure_of(result), (int)status_of(result), "%s", why->text);
}

int flushed(const struct messages *out, int status)
{
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return status;
    say_error(out, "cannot write to the standard output");
    return STATUS_CANT_CREATE;
}
