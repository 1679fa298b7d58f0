/* How text from others is shown to people and programs: lines of a name, a user, a host,
 * a command and a reason. The first byte is the number of columns, the second
 * one has flags. On a terminal the text keeps to its columns and has no control character but
 * ours; as JSON it reads as what it was. The terminal is simulated here (-Wl,--wrap). */
#include "fuzz.h"
#include "ui/progress.h"
#include "ui/wait_text.h"
#include "util/json.h"
#include "util/message.h"
#include "util/text.h"

#include <locale.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

static char screen[4096];
static size_t shown;
static bool looks_on; /* else it is the fuzzer that writes */
static int columns;

pid_t __wrap_tcgetpgrp(int fd);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __real_poll(struct pollfd *fds, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout);
ssize_t __real_write(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length);
ssize_t __real_splice(int in, off_t *in_at, int out, off_t *out_at, size_t length, unsigned flags);
ssize_t __wrap_splice(int in, off_t *in_at, int out, off_t *out_at, size_t length, unsigned flags);

pid_t __wrap_tcgetpgrp(int fd)
{
    (void)fd;
    return getpgrp();
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    (void)fd;
    fuzz_expect(request == TIOCGWINSZ);
    va_start(args, request);
    va_arg(args, struct winsize *)->ws_col = (unsigned short)columns;
    va_end(args);
    return 0;
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout)
{
    if (!looks_on)
        return __real_poll(fds, count, timeout);
    fds[0].revents = POLLOUT;
    return 1;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t length)
{
    if (!looks_on)
        return __real_write(fd, bytes, length);
    fuzz_expect(shown + length < sizeof screen);
    memcpy(screen + shown, bytes, length);
    shown += length;
    screen[shown] = '\0';
    return (ssize_t)length;
}

/* What was written is on the screen already: message.c writes to a pipe of its own
 * first, if stderr is one. */
ssize_t __wrap_splice(int in, off_t *in_at, int out, off_t *out_at, size_t length, unsigned flags)
{
    return looks_on ? (ssize_t)length : __real_splice(in, in_at, out, out_at, length, flags);
}

static void look_on(bool on)
{
    looks_on = on;
    if (on)
        shown = 0;
}

/* --- the terminal ---------------------------------------------------------- */

static void expect_line(struct wait_text *text, bool utf8)
{
    static const char before[] = "\r\033[?7l", after[] = "\033[K\033[?7h\r", cleared[] = "\r\033[K";
    struct tty_line line = {.ready = true};
    const char *fitting = text->line;
    int room = tty_line_room();
    wait_text_fit(text, room);
    fuzz_expect(mbwidth_of(fitting) <= room && fuzz_shows(fitting));
    for (const char *c = fitting; !utf8 && *c != '\0'; c++)
        fuzz_expect((unsigned char)*c < 0x80);
    look_on(true);
    tty_line_draw(&line, fitting);
    look_on(false);
    size_t length = strlen(fitting);
    fuzz_expect(shown == strlen(before) + length + strlen(after) &&
                memcmp(screen, before, strlen(before)) == 0 &&
                memcmp(screen + strlen(before), fitting, length) == 0 &&
                strcmp(screen + strlen(before) + length, after) == 0);
    look_on(true);
    tty_line_clear(&line);
    look_on(false);
    fuzz_expect(shown == 0 || strcmp(screen, cleared) == 0);
}

static void expect_wait(char *const lines[5], unsigned flags)
{
    static struct wait_text text;
    struct awaited_lock lock = {.name = lines[0], .prefix = lines[4], .lock_dir = lines[3]};
    struct holder holder = {
        .known = (flags & 1) != 0,
        .shares = (flags & 2) != 0,
        .detached = (flags & 4) != 0,
        .kept = (flags & 8) != 0,
        .refusal = (flags & 16) != 0 ? REFUSED_QUEUED : REFUSED_HELD,
        .ahead = (int)flags - 8,
        .pid = 4711,
    };
    text_copy(holder.user, sizeof holder.user, lines[1]);
    text_copy(holder.host, sizeof holder.host, lines[2]);
    text_copy(holder.command, sizeof holder.command, lines[3]);
    setenv("LC_ALL", (flags & 128) != 0 ? "C.UTF-8" : "C", 1);
    wait_text_begin(&text, DURATION_S(flags), lines[0]);
    if ((flags & 32) != 0)
        wait_text_outage(&text, lines[4], DURATION_S(2));
    else
        wait_text_holder(&text, &holder, (int64_t)flags * 1000,
                         (flags & 64) != 0 ? PROCESS_ENDED : PROCESS_HIDDEN, &lock);
    expect_line(&text, (flags & 128) != 0);
}

static void expect_message(const char *line, size_t size)
{
    const struct messages out = {.name = line, .notify = {.fd = -1}};
    char escaped[512];
    look_on(true);
    say_error(&out, "%s", line);
    look_on(false);
    fuzz_expect(shown >= 8 && screen[shown - 1] == '\n');
    screen[shown - 1] = '\0';
    fuzz_expect(strncmp(screen, "dlock: ", 7) == 0 && fuzz_shows(screen));
    text_escape(escaped, size < sizeof escaped ? size + 1 : sizeof escaped,
                line); /* cut anywhere */
    fuzz_expect(fuzz_shows(escaped));
}

/* --- JSON -------------------------------------------------------------------- */

static const char *expect_code(const char *at, uint32_t wanted)
{
    uint32_t code = 0;
    if (*at != '\\') {
        size_t length = fuzz_character((const unsigned char *)at, strlen(at), &code);
        fuzz_expect(length > 0 && code >= 0x20 && code != '"' && code == wanted);
        return at + length;
    }
    if (at[1] != 'u') {
        fuzz_expect(at[1] == '"' || at[1] == '\\');
        fuzz_expect((unsigned char)at[1] == wanted);
        return at + 2;
    }
    for (int i = 2; i < 6; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = at[i] != '\0' ? strchr(digits, at[i]) : NULL;
        fuzz_expect(digit != NULL);
        code = code << 4 | (uint32_t)(digit - digits);
    }
    fuzz_expect(code == wanted);
    return at + 6;
}

static const char *expect_string(const char *at, const char *text)
{
    uint32_t wanted;
    fuzz_expect(*at++ == '"');
    for (size_t left = strlen(text), length; left > 0; text += length, left -= length) {
        length = fuzz_character((const unsigned char *)text, left, &wanted);
        at = expect_code(at, length > 0 ? wanted : 0xFFFD);
        length = length > 0 ? length : 1;
    }
    fuzz_expect(*at == '"');
    return at + 1;
}

static const char *expect_seconds(const char *at, int64_t ms)
{
    long long whole;
    int part, length = 0;
    fuzz_expect(sscanf(at, "%lld.%3d%n", &whole, &part, &length) == 2 && whole == ms / 1000 &&
                part == ms % 1000);
    return at + length;
}

static void expect_json(const char *text, int64_t ms)
{
    char *made = NULL;
    size_t size;
    FILE *to = open_memstream(&made, &size);
    fuzz_expect(to != NULL);
    struct json json = {.to = to};
    json_begin(&json, NULL, '{');
    json_text(&json, text, text);
    json_seconds(&json, "ms", ms);
    json_end(&json, '}');
    fuzz_expect(fclose(to) == 0);
    const char *at = made;
    fuzz_expect(*at++ == '{');
    at = expect_string(at, text);
    fuzz_expect(*at++ == ':');
    if (*text != '\0')
        at = expect_string(at, text);
    else
        at += strlen("null");
    fuzz_expect(strncmp(at, ",\"ms\":", 6) == 0);
    fuzz_expect(strcmp(expect_seconds(at + 6, ms), "}") == 0);
    free(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool prepared;
    char *lines[5];
    if (size < 2)
        return 0;
    prepared = prepared || setlocale(LC_CTYPE, "C.UTF-8") != NULL;
    fuzz_expect(prepared);
    char *input = fuzz_text(data + 2, size - 2), *rest = input;
    columns = data[0] + 1;
    for (int i = 0; i < 5; i++)
        lines[i] = fuzz_line(&rest);
    expect_wait(lines, data[1]);
    for (int i = 0; i < 5; i++) {
        expect_message(lines[i], data[0]);
        expect_json(lines[i], data[1] * INT64_C(999));
    }
    free(input);
    return 0;
}
