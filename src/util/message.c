#include "util/message.h"

#include "util/text.h"

#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

/* How long to wait for a stderr that takes nothing: a pager, Ctrl-S, a logger
 * that hangs. The lease does not wait for them: this is less than the grace of
 * all but the shortest leases. */
enum { PATIENCE_MS = 20 };

/* One write(2) of less than PIPE_BUF, so that lines of many processes do not
 * mix, and so that it does not block once there is room. Where stderr is gone
 * or full there is nobody to tell, and the line is dropped. */
bool message_write(const char *bytes, size_t length)
{
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&fd, 1, PATIENCE_MS) == 1 && (fd.revents & POLLOUT) != 0 &&
           write(STDERR_FILENO, bytes, length) == (ssize_t)length;
}

/* $JOURNAL_STREAM is the device and inode of the stream that systemd gave the
 * service; a stderr that was redirected since is another one. systemd.exec(5) */
static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat status;
    char ours[64];
    if (stream == NULL || fstat(STDERR_FILENO, &status) != 0)
        return false;
    snprintf(ours, sizeof ours, "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
    return strcmp(stream, ours) == 0;
}

void messages_open(struct messages *out)
{
    out->terminal = isatty(STDERR_FILENO) == 1;
    out->journal = is_journal();
    notify_open(&out->notify);
}

/* sd-daemon(3) */
static const char *priority_text(const struct messages *out, int priority)
{
    static const char *const texts[] = {"<0>", "<1>", "<2>", "<3>", "<4>", "<5>", "<6>", "<7>"};
    return out->journal ? texts[priority] : "";
}

__attribute__((format(printf, 3, 0))) static void say(const struct messages *out, int priority, const char *format,
                                                      va_list args)
{
    char text[2048], escaped[3072], name[256], line[sizeof escaped + sizeof name + 16];
    _Static_assert(sizeof line <= PIPE_BUF, "a line must be written at once");
    if (vsnprintf(text, sizeof text, format, args) < 0)
        return;
    text_escape(escaped, sizeof escaped, text);
    text_escape(name, sizeof name, out->name != NULL ? out->name : "");
    int length = snprintf(line, sizeof line, "%sdlock: %s%s%s\n", priority_text(out, priority), name, *name != '\0' ? ": " : "", escaped);
    if (length > 0)
        (void)message_write(line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

#define SAY_IF(priority, condition)                                                                                              \
    do {                                                                                                               \
        if (condition) {                                                                                               \
            va_list args;                                                                                              \
            va_start(args, format);                                                                                    \
            say(out, priority, format, args);                                                                                    \
            va_end(args);                                                                                              \
        }                                                                                                              \
    } while (0)

void say_error(const struct messages *out, const char *format, ...)
{
    SAY_IF(LOG_ERR, true);
}

void say_warning(const struct messages *out, const char *format, ...)
{
    SAY_IF(LOG_WARNING, out->verbosity >= 0);
}

void say_conflict(const struct messages *out, const char *format, ...)
{
    SAY_IF(LOG_NOTICE, out->verbosity > 0 || (out->verbosity == 0 && out->terminal));
}

void say_verbose(const struct messages *out, const char *format, ...)
{
    SAY_IF(LOG_INFO, out->verbosity > 0);
}

void say_status(const struct messages *out, const char *format, ...)
{
    char text[1024], escaped[1536];
    va_list args;
    if (out->notify.fd < 0)
        return;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length > 0)
        notify_send(&out->notify, "STATUS=%s", text_escape(escaped, sizeof escaped, text));
}
