/* For all unit tests: tables with one case a row, and failures that name their row. */
#ifndef DLOCK_UNIT_H
#define DLOCK_UNIT_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* dlock has functions with these names. */
#undef fail
#undef skip

#define COUNT(table) (sizeof(table) / sizeof *(table))
#define FOR_ROWS(row, table) \
    for (const __typeof__(*(table)) *row = (table); row < (table) + COUNT(table); row++)

/* A test function, and its entry in the list of main(): a sentence that says what the test
 * shows. */
#define TEST(function) static void function(void **state __attribute__((unused)))
#define ENTRY(sentence, function)            \
    {                                        \
        sentence, function, NULL, NULL, NULL \
    }

/* Each fails with the text `row` if `got` is wrong. */
#define row_int(row, got, wanted) \
    unit_int(__FILE__, __LINE__, row, #got, (int64_t)(got), (int64_t)(wanted))
#define row_text(row, got, wanted) unit_text(__FILE__, __LINE__, row, #got, got, wanted)
#define row_has(row, got, part) unit_has(__FILE__, __LINE__, row, #got, got, part)
#define row_true(row, holds) unit_true(__FILE__, __LINE__, row, #holds, holds)
#define row_false(row, holds) unit_true(__FILE__, __LINE__, row, "not " #holds, !(holds))

__attribute__((format(printf, 3, 4))) static inline void unit_fail(const char *file, int line,
                                                                   const char *format, ...)
{
    char text[1024];
    static char shown[4 * sizeof text];
    size_t used = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (const char *c = text; *c != '\0'; c++)
        used += (size_t)snprintf(shown + used, sizeof shown - used,
                                 *c >= ' ' && *c <= '~' ? "%c" : "\\x%02X", (unsigned char)*c);
    _assert_true(0, shown, file, line);
}

static inline void unit_int(const char *file, int line, const char *row, const char *what,
                            int64_t got, int64_t wanted)
{
    if (got != wanted)
        unit_fail(file, line, "'%s': %s is %" PRId64 ", not %" PRId64, row, what, got, wanted);
}

static inline void unit_text(const char *file, int line, const char *row, const char *what,
                             const char *got, const char *wanted)
{
    if (got == NULL || wanted == NULL ? got != wanted : strcmp(got, wanted) != 0)
        unit_fail(file, line, "'%s': %s is '%s', not '%s'", row, what, got != NULL ? got : "(null)",
                  wanted != NULL ? wanted : "(null)");
}

static inline void unit_has(const char *file, int line, const char *row, const char *what,
                            const char *got, const char *part)
{
    if (strstr(got, part) == NULL)
        unit_fail(file, line, "'%s': %s is '%s', without '%s'", row, what, got, part);
}

static inline void unit_true(const char *file, int line, const char *row, const char *what,
                             bool holds)
{
    if (!holds)
        unit_fail(file, line, "'%s': not so: %s", row, what);
}

/* Repeats a letter. */
static inline char *unit_repeat(char *text, size_t size, char letter, size_t count)
{
    if (count >= size)
        unit_fail(__FILE__, __LINE__, "no room for %zu letters", count);
    memset(text, letter, count);
    text[count] = '\0';
    return text;
}

#endif
