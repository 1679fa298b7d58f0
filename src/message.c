#include "message.h"

#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One write(2), so that lines of many processes do not mix. Where stderr is
 * gone there is nobody to tell, so a failure is not looked at. */
static void write_line(const char *line, size_t length)
{
    while (length > 0) {
        ssize_t written = write(STDERR_FILENO, line, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        line += written;
        length -= (size_t)written;
    }
}

__attribute__((format(printf, 2, 0))) static void say(const struct messages *out, const char *format, va_list args)
{
    char text[2048], escaped[3072], name[256], line[sizeof escaped + sizeof name + 16];
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
