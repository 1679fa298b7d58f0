#include "ui/report.h"

#include "util/fileutils.h"
#include "util/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- failures ------------------------------------------------------------ */

static const struct {
    const char *code;
    bool retryable;
    enum message_kind kind;
} failures[] = {
    [FAIL_HELD] = {"LOCK_ACQUISITION_FAILED", true, MESSAGE_CONFLICT},
    [FAIL_PAUSED] = {"LOCK_PAUSED", true, MESSAGE_NOTICE},
    [FAIL_TIMEOUT] = {"LOCK_TIMEOUT", true, MESSAGE_NOTICE},
    [FAIL_DONE] = {"ALREADY_DONE", true, MESSAGE_CONFLICT},
    [FAIL_NOT_FOUND] = {"LOCK_NOT_FOUND", false, MESSAGE_ERROR},
    [FAIL_MISMATCH] = {"LOCK_OWNERSHIP_MISMATCH", false, MESSAGE_ERROR},
    [FAIL_RELEASED] = {"LOCK_ALREADY_RELEASED", false, MESSAGE_ERROR},
    [FAIL_LOST] = {"LOCK_LOST", false, MESSAGE_ERROR},
    [FAIL_UNAVAILABLE] = {"SERVICE_UNAVAILABLE", true, MESSAGE_ERROR},
    [FAIL_NOT_PERMITTED] = {"NOT_PERMITTED", false, MESSAGE_ERROR},
    [FAIL_ARGUMENT] = {"INVALID_ARGUMENT", false, MESSAGE_ERROR},
    [FAIL_CONFIG] = {"INVALID_CONFIG", false, MESSAGE_ERROR},
    [FAIL_SYSTEM] = {"SYSTEM_ERROR", false, MESSAGE_ERROR},
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
    json_text(&json, "scope", out->scope);
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
    enum message_kind kind = failures[failure].kind;
    if (kind == MESSAGE_NOTICE &&
        status == STATUS_OK) /* -E 0: the user regards the failure as a success */
        kind = MESSAGE_CONFLICT;
    say(out, kind, "%s", text);
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
    say_error(out, "cannot write to standard output");
    return STATUS_CANT_CREATE;
}

/* --- --report=FILE ------------------------------------------------------- */

/* In a directory that everyone can write to, another user may have created a link to a file that
 * only this user can write to. So dlock follows only links that this user or root owns, such as
 * /dev/stderr. */
static int open_report(const char *path)
{
    static const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    struct stat link;
    int fd = open(path, flags | O_NOFOLLOW, 0644);
    if (fd >= 0 || errno != ELOOP)
        return fd;
    if (lstat(path, &link) != 0 || (link.st_uid != 0 && link.st_uid != geteuid())) {
        errno = ELOOP;
        return -1;
    }
    return open(path, flags, 0644);
}

enum lock_result run_report_open(struct report *report, const char *path, struct errmsg *why)
{
    *report = (struct report){.fd = -1, .asked_wall_ms = wall_now_ms()};
    if (path == NULL)
        return LOCK_OK;
    report->fd = open_report(path);
    if (report->fd >= 0)
        return LOCK_OK;
    int error = errno;
    errmsg_set(why, "cannot open the report file %s: %s", path,
               error == ELOOP ? "the path is a symbolic link that another user created, or a loop "
                                "of links; name the file itself"
                              : strerror(error));
    return file_error_result(error);
}

static void print_run(FILE *to, const struct report *report)
{
    static const struct lease none = {.slot = -1};
    const struct lease *lease = report->lease != NULL ? report->lease : &none;
    struct json json = json_line_begin(to);
    json_time(&json, "asked_at", report->asked_wall_ms);
    json_time(&json, "ended_at", wall_now_ms());
    json_text(&json, "key", report->name);
    json_text(&json, "full_key", report->key);
    json_text(&json, "backend", report->backend);
    json_text(&json, "host", report->self->host);
    json_number(&json, "pid", report->self->pid);
    json_text(&json, "user", report->self->user);
    json_text(&json, "command", report->self->command);
    json_bool(&json, "acquired", report->lease != NULL);
    json_bool(&json, "nested", report->nested);
    json_text(&json, "mode", report->lease != NULL ? lock_mode_name(lease->mode) : "");
    json_number_if(&json, "fence", lease->fence, lease->fence > 0);
    json_number_if(&json, "slot", lease->slot, lease->slot >= 0);
    json_seconds(&json, "waited", report->waited.ns / NS_PER_MS);
    json_seconds(&json, "held", report->held.ns / NS_PER_MS);
    json_bool(&json, "lost", report->lost);
    json_number(&json, "status", report->status);
    json_text(&json, "error", report->error);
    json_line_end(&json);
}

/* Returns the line, which the caller frees, or NULL. A stream may fail to report that it ran out of
 * memory for its last bytes, so this function checks that the newline is there. */
static char *format_run(const struct report *report, size_t *length)
{
    char *line = NULL;
    FILE *memory = open_memstream(&line, length);
    if (memory == NULL)
        return NULL;
    print_run(memory, report);
    bool printed = ferror(memory) == 0;
    printed = fclose(memory) == 0 && printed;
    if (printed && line != NULL && *length > 0 && line[*length - 1] == '\n')
        return line;
    free(line);
    return NULL;
}

/* Writes all bytes, in one write unless the system splits it. Returns 0 or an errno. */
static int write_whole(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, bytes, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written < 0 ? errno : ENOSPC;
        bytes += written;
        length -= (size_t)written;
    }
    return 0;
}

bool run_report_write(const struct report *report, struct errmsg *why)
{
    size_t length = 0;
    if (report->fd < 0)
        return true;
    char *line = format_run(report, &length);
    int error = line == NULL ? ENOMEM : write_whole(report->fd, line, length);
    free(line);
    if (error != 0)
        errmsg_set(why, "cannot write the report: %s", strerror(error));
    return error == 0;
}

void run_report_close(struct report *report)
{
    fd_close(&report->fd);
}
