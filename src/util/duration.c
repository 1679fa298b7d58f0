#include "util/duration.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    int64_t ms;
};

/* Those that duration_format() writes come first; systemd.time(7), which calls no month
 * "m", reads the others as well. */
enum { UNITS_WRITTEN = 5 };

static const struct unit units[] = {
    {"ms", 1},          {"s", 1000},       {"m", 60000},        {"h", 3600000},
    {"d", 86400000},    {"msec", 1},       {"sec", 1000},       {"second", 1000},
    {"seconds", 1000},  {"min", 60000},    {"minute", 60000},   {"minutes", 60000},
    {"hr", 3600000},    {"hour", 3600000}, {"hours", 3600000},  {"day", 86400000},
    {"days", 86400000}, {"w", 604800000},  {"week", 604800000}, {"weeks", 604800000},
};

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A decimal number as a whole part and billionths, so that no binary fraction
 * rounds what the user wrote. */
struct decimal {
    int64_t whole;
    int64_t billionths;
};

static enum duration_error read_decimal(const char **at, struct decimal *out)
{
    const char *p = *at;
    if (!digit(*p) && !(*p == '.' && digit(p[1])))
        return DURATION_NOT_A_NUMBER;
    *out = (struct decimal){0, 0};
    for (; digit(*p); p++)
        if (__builtin_mul_overflow(out->whole, 10, &out->whole) ||
            __builtin_add_overflow(out->whole, *p - '0', &out->whole))
            return DURATION_OVERFLOW;
    if (*p == '.') {
        int64_t place = NS_PER_S / 10;
        if (!digit(*++p))
            return DURATION_NOT_A_NUMBER;
        for (; digit(*p); p++, place /= 10)
            out->billionths += place * (*p - '0');
    }
    *at = p;
    return DURATION_OK;
}

static enum duration_error read_unit(const char **at, int64_t *unit_ms)
{
    const char *text = *at;
    size_t length = 0;
    while (isalpha((unsigned char)text[length]))
        length++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strlen(units[i].name) == length && memcmp(text, units[i].name, length) == 0) {
            *at += length;
            *unit_ms = units[i].ms;
            return DURATION_OK;
        }
    }
    *unit_ms = 1000;
    return *text == '\0' ? DURATION_OK : DURATION_UNKNOWN_UNIT;
}

static enum duration_error scale(struct decimal number, int64_t unit_ms, int64_t *ns)
{
    int64_t whole;
    if (__builtin_mul_overflow(number.whole, unit_ms * NS_PER_MS, &whole))
        return DURATION_OVERFLOW;
    /* billionths * unit / 1e9, ordered so that it cannot overflow: below 1e9 * 6.05e8. */
    int64_t part = number.billionths * unit_ms / 1000;
    return __builtin_add_overflow(whole, part, ns) ? DURATION_OVERFLOW : DURATION_OK;
}

enum duration_error duration_parse(const char *text, struct duration *out)
{
    int64_t sum = 0;
    if (*text == '\0')
        return DURATION_EMPTY;
    if (text[0] == '-' && (text[1] == '.' || isdigit((unsigned char)text[1])))
        return DURATION_NEGATIVE;
    while (*text != '\0') {
        struct decimal number;
        int64_t unit_ms, ns;
        enum duration_error error = read_decimal(&text, &number);
        if (error == DURATION_OK)
            error = read_unit(&text, &unit_ms);
        if (error == DURATION_OK)
            error = scale(number, unit_ms, &ns);
        if (error != DURATION_OK)
            return error;
        if (__builtin_add_overflow(sum, ns, &sum))
            return DURATION_OVERFLOW;
    }
    *out = (struct duration){sum};
    return DURATION_OK;
}

const char *duration_error_text(enum duration_error error)
{
    switch (error) {
    case DURATION_OK: return "fine";
    case DURATION_EMPTY:
        return "it is empty; a duration is needed, such as 90, 1.5s, 250ms or 1h30m";
    case DURATION_NEGATIVE: return "a duration cannot be negative";
    case DURATION_NOT_A_NUMBER:
        return "it is not a number with a unit, such as 90, 1.5s, 250ms or 1h30m";
    case DURATION_UNKNOWN_UNIT: return "the unit is unknown; ms, s, m, h, d and w are known";
    case DURATION_OVERFLOW: return "it is too large";
    }
    return "it is not a duration";
}

/* "1.5s", "10.002s". Returns what snprintf() returns. */
static int seconds_format(int64_t s, int ms, char *text, size_t size)
{
    int digits = 3;
    for (; ms % 10 == 0; ms /= 10)
        digits--;
    return snprintf(text, size, "%lld.%0*ds", (long long)s, digits, ms);
}

char *duration_format(struct duration d, char *text, size_t size)
{
    int64_t ms = d.ns / NS_PER_MS;
    size_t used = 0;
    text[0] = '\0';
    if (d.ns >= DURATION_FOREVER.ns) {
        snprintf(text, size, "infinity");
        return text;
    }
    for (size_t i = UNITS_WRITTEN; i-- > 0 && used < size;) {
        int64_t count = ms / units[i].ms, rest = ms - count * units[i].ms;
        int written;
        if (count == 0)
            continue;
        if (units[i].ms == 1000 && rest > 0) {
            written = seconds_format(count, (int)rest, text + used, size - used);
            rest = 0;
        } else {
            written = snprintf(text + used, size - used, "%lld%s", (long long)count, units[i].name);
        }
        used += written > 0 ? (size_t)written : 0;
        ms = rest;
    }
    if (used == 0)
        snprintf(text, size, "0");
    return text;
}

char *duration_rounded(struct duration d, char *text, size_t size)
{
    static const int64_t s = NS_PER_S, h = INT64_C(3600) * NS_PER_S,
                         day = INT64_C(86400) * NS_PER_S;
    int64_t step = d.ns < s        ? NS_PER_MS
                   : d.ns < 10 * s ? s / 10
                   : d.ns < h      ? s
                   : d.ns < day    ? 60 * s
                                   : h;
    if (d.ns > 0 && d.ns < NS_PER_MS)
        snprintf(text, size, "less than 1ms");
    else
        duration_format((struct duration){d.ns - d.ns % step}, text, size);
    return text;
}
