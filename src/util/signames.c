#include "util/signames.h"

#include "util/text.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <strings.h>

/* Only glibc has sigabbrev_np(3). Of several names of one signal the last one
 * is shown. */
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

/* "RTMIN", "RTMIN+1", "RTMAX", "RTMAX-1". */
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
