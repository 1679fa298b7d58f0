#include "message.h"

#include "text.h"

#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How long to wait for a stderr that takes nothing: a pager, Ctrl-S, a logger
 * that hangs. The lease does not wait for them: this is less than the grace of
 * all but the shortest leases. */
enum { PATIENCE_MS = 20 };

/* One write(2) of less than PIPE_BUF, so that lines of many processes do not
 * mix, and so that it does not block once there is room. Where stderr is gone
 * or full there is nobody to tell, and the line is dropped. */
static void write_line(const char *line, size_t length)
{
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&fd, 1, PATIENCE_MS) == 1 && (fd.revents & POLLOUT) != 0)
        (void)!write(STDERR_FILENO, line, length);
}

__attribute__((format(printf, 2, 0))) static void say(const struct messages *out, const char *format, va_list args)
{
    char text[2048], escaped[3072], name[256], line[sizeof escaped + sizeof name + 16];
    _Static_assert(sizeof line <= PIPE_BUF, "a line must be written at once");
    if (vsnprintf(text, sizeof text, format, args) < 0)
        return;
    text_escape(escaped, sizeof escaped, text);
    text_escape(name, sizeof name, out->name != NULL ? out->name : "");
    int length = snprintf(line, sizeof line, "dlock: %s%s%s\n", name, *name != '\0' ? ": " : "", escaped);
    if (length > 0)
        write_line(line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

#define SAY_IF(condition)                                                                                              \
    do {                                                                                                               \
        if (condition) {                                                                                               \
            va_list args;                                                                                              \
            va_start(args, format);                                                                                    \
            say(out, format, args);                                                                                    \
            va_end(args);                                                                                              \
        }                                                                                                              \
    } while (0)

void say_error(const struct messages *out, const char *format, ...)
{
    SAY_IF(true);
}

void say_warning(const struct messages *out, const char *format, ...)
{
    SAY_IF(out->verbosity >= 0);
}

void say_conflict(const struct messages *out, const char *format, ...)
{
    SAY_IF(out->verbosity > 0 || (out->verbosity == 0 && out->terminal));
}

void say_verbose(const struct messages *out, const char *format, ...)
{
    SAY_IF(out->verbosity > 0);
}
