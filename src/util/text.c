#include "util/text.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <wchar.h>

/* --- text ----------------------------------------------------------------- */

char *text_copy(char *target, size_t size, const char *source)
{
    snprintf(target, size, "%s", source);
    return target;
}

/* RFC 3629, section 4: the second byte's range depends on the first one. */
size_t utf8_length(const char *text, size_t left)
{
    const unsigned char *b = (const unsigned char *)text;
    unsigned char low = 0x80, high = 0xBF;
    size_t length;
    if (left == 0)
        return 0;
    if (b[0] < 0x80)
        return 1;
    if (b[0] >= 0xC2 && b[0] <= 0xDF)
        length = 2;
    else if (b[0] >= 0xE0 && b[0] <= 0xEF)
        length = 3;
    else if (b[0] >= 0xF0 && b[0] <= 0xF4)
        length = 4;
    else
        return 0;

    if (b[0] == 0xE0)
        low = 0xA0; /* a smaller second byte would make an overlong form */
    else if (b[0] == 0xED)
        high = 0x9F; /* a larger second byte would make a surrogate */
    else if (b[0] == 0xF0)
        low = 0x90; /* a smaller second byte would make an overlong form */
    else if (b[0] == 0xF4)
        high = 0x8F; /* a larger second byte would make a code point above U+10FFFF */

    if (left < length || b[1] < low || b[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if (b[i] < 0x80 || b[i] > 0xBF)
            return 0;
    return length;
}

bool utf8_is_control(const char *text, size_t length)
{
    const unsigned char *b = (const unsigned char *)text;
    if (length == 1)
        return b[0] < 0x20 || b[0] == 0x7F;
    /* U+0080 to U+009F, which some terminals interpret. */
    return length == 2 && b[0] == 0xC2 && b[1] < 0xA0;
}

/* Marks, embeddings, overrides and isolates of writing direction (Unicode's Bidi_Control), and the
 * separators of lines and paragraphs: U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to
 * U+2069. */
bool utf8_reorders(const char *text, size_t length)
{
    const unsigned char *b = (const unsigned char *)text;
    if (length == 2)
        return b[0] == 0xD8 && b[1] == 0x9C;
    if (length != 3 || b[0] != 0xE2)
        return false;
    return (b[1] == 0x80 && (b[2] == 0x8E || b[2] == 0x8F || (b[2] >= 0xA8 && b[2] <= 0xAE))) ||
           (b[1] == 0x81 && b[2] >= 0xA6 && b[2] <= 0xA9);
}

/* Judges by the locale's name, because setlocale(3) takes longer than the rest of the start. If no
 * locale is set, as in systemd units and cron jobs, dlock assumes UTF-8, as systemd does. */
static bool locale_is_utf8(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *name = getenv(variables[i]);
        if (name != NULL && *name != '\0')
            return strcasestr(name, "UTF-8") != NULL || strcasestr(name, "UTF8") != NULL;
    }
    return true;
}

char *text_escape(char *target, size_t size, const char *source)
{
    size_t used = 0, left = strlen(source);
    bool utf8 = locale_is_utf8();
    while (left > 0) {
        size_t length = utf8_length(source, left);
        bool plain = length > 0 && (length == 1 || utf8) && !utf8_is_control(source, length) &&
                     !utf8_reorders(source, length);
        if (length == 0)
            length = 1;
        if (used + (plain ? length : 4 * length) >= size)
            break;
        if (plain) {
            memcpy(target + used, source, length);
            used += length;
        } else {
            for (size_t i = 0; i < length; i++, used += 4)
                snprintf(target + used, 5, "\\x%02X", (unsigned)(unsigned char)source[i]);
        }
        source += length;
        left -= length;
    }
    target[used] = '\0';
    return target;
}

size_t percent_encode(char *target, size_t size, const char *source, const char *also)
{
    size_t needed = 0;
    for (; *source != '\0'; source++) {
        unsigned char c = (unsigned char)*source;
        bool code = c < 0x20 || c == 0x7F || c == '%' || strchr(also, c) != NULL;
        size_t length = code ? 3 : 1;
        if (needed + length < size) {
            if (code)
                snprintf(target + needed, 4, "%%%02X", (unsigned)c);
            else
                target[needed] = (char)c;
            target[needed + length] = '\0';
        }
        needed += length;
    }
    if (needed == 0 && size > 0)
        target[0] = '\0';
    return needed;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool percent_decode(char *target, size_t size, const char *source, size_t length)
{
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        int value = (unsigned char)source[i];
        if (source[i] == '%') {
            int high = i + 2 < length ? hex_value(source[i + 1]) : -1;
            int low = i + 2 < length ? hex_value(source[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            value = high * 16 + low;
            i += 2;
        }
        if (value == 0 || used + 1 >= size)
            return false;
        target[used++] = (char)value;
    }
    if (size == 0)
        return false;
    target[used] = '\0';
    return true;
}

bool number_parse(const char *text, int64_t least, int64_t most, int64_t *out)
{
    char *end;
    if (!((*text >= '0' && *text <= '9') || (*text == '-' && text[1] >= '0' && text[1] <= '9')))
        return false;
    errno = 0;
    intmax_t value = strtoimax(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < least || value > most)
        return false;
    *out = (int64_t)value;
    return true;
}

char *size_rounded(uint64_t bytes, char text[SIZE_TEXT_SIZE])
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
    unsigned tenths = 0;
    size_t i = 0;
    for (; bytes >= 1000; i++) {
        tenths = (unsigned)(bytes % 1000 / 100);
        bytes /= 1000;
    }
    unsigned whole = (unsigned)bytes;
    if (whole < 10 && tenths > 0)
        snprintf(text, SIZE_TEXT_SIZE, "%u.%u %s", whole, tenths, units[i]);
    else
        snprintf(text, SIZE_TEXT_SIZE, "%u %s", whole, units[i]);
    return text;
}

/* --- columns -------------------------------------------------------------- */

/* The length of the next character. Sets *columns to the character's width, or to 2, the largest
 * width, if the C library does not know the character. */
static size_t next_character(const char *text, size_t left, int *columns)
{
    wchar_t wide;
    mbstate_t state = {0};
    size_t length = utf8_length(text, left);
    if (length <= 1)
        *columns = 1;
    else if (mbrtowc(&wide, text, left, &state) != length)
        *columns = 2;
    else
        *columns = wcwidth(wide) >= 0 ? wcwidth(wide) : 1;
    return length > 0 ? length : 1;
}

int mbwidth_of(const char *text)
{
    int width = 0, columns;
    for (size_t left = strlen(text); left > 0;) {
        size_t length = next_character(text, left, &columns);
        width += columns;
        text += length;
        left -= length;
    }
    return width;
}

size_t mbwidth_fit(const char *text, int columns, int *used)
{
    size_t fits = 0;
    int more;
    *used = 0;
    for (size_t left = strlen(text); left > 0;) {
        size_t length = next_character(text + fits, left, &more);
        if (*used + more > columns)
            break;
        *used += more;
        fits += length;
        left -= length;
    }
    return fits;
}

/* --- signals -------------------------------------------------------------- */

/* A table, because only glibc has sigabbrev_np(3). If a signal has several names, dlock shows the
 * last one in the table. */
static const struct named_signal {
    const char *name;
    int number;
} named_signals[] = {
    {"IOT", SIGABRT},      {"CLD", SIGCHLD},      {"POLL", SIGIO},
#ifdef SIGSTKFLT
    {"STKFLT", SIGSTKFLT},
#endif
    {"HUP", SIGHUP},       {"INT", SIGINT},       {"QUIT", SIGQUIT},   {"ILL", SIGILL},
    {"TRAP", SIGTRAP},     {"ABRT", SIGABRT},     {"BUS", SIGBUS},     {"FPE", SIGFPE},
    {"KILL", SIGKILL},     {"USR1", SIGUSR1},     {"SEGV", SIGSEGV},   {"USR2", SIGUSR2},
    {"PIPE", SIGPIPE},     {"ALRM", SIGALRM},     {"TERM", SIGTERM},   {"CHLD", SIGCHLD},
    {"CONT", SIGCONT},     {"STOP", SIGSTOP},     {"TSTP", SIGTSTP},   {"TTIN", SIGTTIN},
    {"TTOU", SIGTTOU},     {"URG", SIGURG},       {"XCPU", SIGXCPU},   {"XFSZ", SIGXFSZ},
    {"PROF", SIGPROF},     {"VTALRM", SIGVTALRM}, {"WINCH", SIGWINCH}, {"IO", SIGIO},
    {"PWR", SIGPWR},       {"SYS", SIGSYS},
};

/* Reads "RTMIN", "RTMIN+1", "RTMAX" or "RTMAX-1". */
static int parse_real_time(const char *text)
{
    int64_t steps = 0;
    bool from_end = strncasecmp(text, "RTMAX", 5) == 0;
    if (!from_end && strncasecmp(text, "RTMIN", 5) != 0)
        return 0;
    text += 5;
    if (*text != '\0' && (*text != (from_end ? '-' : '+') ||
                          !number_parse(text + 1, 0, SIGRTMAX - SIGRTMIN, &steps)))
        return 0;
    return from_end ? SIGRTMAX - (int)steps : SIGRTMIN + (int)steps;
}

int signame_parse(const char *text)
{
    int64_t number;
    if (number_parse(text, 1, SIGRTMAX, &number))
        return (int)number;
    if (strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    for (size_t i = 0; i < sizeof named_signals / sizeof *named_signals; i++)
        if (strcasecmp(text, named_signals[i].name) == 0)
            return named_signals[i].number;
    return parse_real_time(text);
}

char *signame_format(int signal, char *text, size_t size)
{
    snprintf(text, size, "signal %d", signal);
    for (size_t i = 0; i < sizeof named_signals / sizeof *named_signals; i++)
        if (named_signals[i].number == signal)
            snprintf(text, size, "SIG%s", named_signals[i].name);
    return text;
}
