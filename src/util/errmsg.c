#include "util/errmsg.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 0))) static void errmsg_format(struct errmsg *why,
                                                                const char *format, va_list args)
{
    if (why != NULL && vsnprintf(why->text, sizeof why->text, format, args) < 0)
        why->text[0] = '\0';
}

void errmsg_set(struct errmsg *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    errmsg_format(why, format, args);
    va_end(args);
}

unsigned errmsg_fail(struct errmsg *why, unsigned result, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    errmsg_format(why, format, args);
    va_end(args);
    return result;
}

void errmsg_prefix(struct errmsg *why, const char *prefix)
{
    char old[sizeof why->text];
    if (why == NULL)
        return;
    memcpy(old, why->text, sizeof old);
    /* Cuts the end of a text that does not fit, because the beginning says the most. */
    size_t room = sizeof why->text;
    int length = snprintf(why->text, room, "%s: ", prefix);
    if (length > 0 && (size_t)length < room)
        snprintf(why->text + length, room - (size_t)length, "%.*s", (int)room - length - 1, old);
}

void errmsg_kind(struct errmsg *why, const char *kind)
{
    struct errmsg old = *why;
    errmsg_set(why, "%s %s", kind, old.text);
}
