#include "util/signames.h"

#include "util/text.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* sigabbrev_np(3) is glibc's alone. */
static const struct named_signal {
    const char *name;
    int number;
} named_signals[] = {
    {"HUP", SIGHUP},   {"INT", SIGINT},       {"QUIT", SIGQUIT}, {"ILL", SIGILL},   {"TRAP", SIGTRAP}, {"ABRT", SIGABRT},
    {"BUS", SIGBUS},   {"FPE", SIGFPE},       {"KILL", SIGKILL}, {"USR1", SIGUSR1}, {"SEGV", SIGSEGV}, {"USR2", SIGUSR2},
    {"PIPE", SIGPIPE}, {"ALRM", SIGALRM},     {"TERM", SIGTERM}, {"CHLD", SIGCHLD}, {"CONT", SIGCONT}, {"STOP", SIGSTOP},
    {"TSTP", SIGTSTP}, {"TTIN", SIGTTIN},     {"TTOU", SIGTTOU}, {"URG", SIGURG},   {"XCPU", SIGXCPU}, {"XFSZ", SIGXFSZ},
    {"PROF", SIGPROF}, {"VTALRM", SIGVTALRM}, {"WINCH", SIGWINCH}, {"IO", SIGIO},   {"PWR", SIGPWR},   {"SYS", SIGSYS},
};

int signal_parse(const char *text)
{
    int64_t number;
    if (number_parse(text, 1, SIGRTMAX, &number))
        return (int)number;
    if (strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    for (size_t i = 0; i < sizeof named_signals / sizeof *named_signals; i++)
        if (strcasecmp(text, named_signals[i].name) == 0)
            return named_signals[i].number;
    if (strcasecmp(text, "RTMIN") == 0)
        return SIGRTMIN;
    if (strncasecmp(text, "RTMIN+", 6) == 0 && number_parse(text + 6, 0, SIGRTMAX - SIGRTMIN, &number))
        return SIGRTMIN + (int)number;
    return 0;
}

char *signal_format(int signal, char *text, size_t size)
{
    snprintf(text, size, "signal %d", signal);
    for (size_t i = 0; i < sizeof named_signals / sizeof *named_signals; i++)
        if (named_signals[i].number == signal)
            snprintf(text, size, "SIG%s", named_signals[i].name);
    return text;
}
