#include "ui/tty_line.h"

#include "util/mbwidth.h"
#include "util/message.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS_UNKNOWN = 80, BYTES_MOST = 3072 };

/* ECMA-48's EL and ED, from the cursor on; and DEC's DECAWM, so that a
 * character that this terminal shows wider than the C library reports is cut
 * off at the margin and makes no second line. */
#define ERASE_LINE "\033[K"
#define ERASE_BELOW "\033[J"
#define WRAP_OFF "\033[?7l"
#define WRAP_ON "\033[?7h"

bool tty_line_possible(void)
{
    const char *terminal = getenv("TERM");
    return terminal != NULL && *terminal != '\0' && strcmp(terminal, "dumb") != 0;
}

bool tty_line_is_ours(void)
{
    return tcgetpgrp(STDERR_FILENO) == getpgrp();
}

void tty_line_prepare(struct tty_line *line)
{
    if (!line->ready)
        (void)setlocale(LC_CTYPE, "");
    line->ready = true;
}

int tty_line_columns(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS_UNKNOWN;
}

/* Not the last one: there the cursor waits beside the line or below it,
 * depending on the terminal. */
int tty_line_room(void)
{
    return tty_line_columns(STDERR_FILENO) - 1;
}

/* SIGTTOU is blocked: a Ctrl-Z and bg may come between the check for the
 * foreground and the write, and `stty tostop` would stop us for it. */
static bool write_in_foreground(const char *bytes, size_t length)
{
    sigset_t stop, before;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTTOU);
    if (sigprocmask(SIG_BLOCK, &stop, &before) != 0)
        return false;
    bool written = tty_line_is_ours() && message_write(bytes, length);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return written;
}

static const char *erase_old(const struct tty_line *line)
{
    return line->drawn > tty_line_columns(STDERR_FILENO) ? "\r" ERASE_BELOW : "\r";
}

void tty_line_draw(struct tty_line *line, const char *text)
{
    char bytes[BYTES_MOST];
    int length = snprintf(bytes, sizeof bytes, "%s" WRAP_OFF "%s" ERASE_LINE WRAP_ON "\r",
                          erase_old(line), text);
    if (length > 0 && (size_t)length < sizeof bytes && write_in_foreground(bytes, (size_t)length))
        line->drawn = mbwidth_of(text);
}

void tty_line_clear(struct tty_line *line)
{
    char bytes[32];
    if (line->drawn == 0)
        return;
    int length = snprintf(bytes, sizeof bytes, "%s" ERASE_LINE, erase_old(line));
    if (length > 0)
        (void)write_in_foreground(bytes, (size_t)length);
    line->drawn = 0;
}
