/* Signals by name and number. */
#include "unit.h"

#include "util/text.h"

#include <signal.h>

TEST(test_parse)
{
    const struct {
        const char *text;
        int number; /* 0: none */
    } rows[] = {
        {"TERM", SIGTERM},
        {"SIGTERM", SIGTERM},
        {"term", SIGTERM},
        {"SigTerm", SIGTERM},
        {"15", 15},
        {"015", 15},
        {"1", 1},
        {"64", 64},
        {"HUP", SIGHUP},
        {"INT", SIGINT},
        {"QUIT", SIGQUIT},
        {"KILL", SIGKILL},
        {"USR1", SIGUSR1},
        {"USR2", SIGUSR2},
        {"ALRM", SIGALRM},
        {"CHLD", SIGCHLD},
        {"CONT", SIGCONT},
        {"STOP", SIGSTOP},
        {"TSTP", SIGTSTP},
        {"WINCH", SIGWINCH},
        {"IO", SIGIO},
        {"RTMIN", SIGRTMIN},
        {"sigrtmin", SIGRTMIN},
        {"RTMIN+0", SIGRTMIN},
        {"RTMIN+1", SIGRTMIN + 1},
        {"rtmin+30", SIGRTMIN + 30},
        {"RTMAX", SIGRTMAX},
        {"SIGRTMAX-1", SIGRTMAX - 1},
        {"rtmax-30", SIGRTMIN},
        {"IOT", SIGABRT},
        {"CLD", SIGCHLD},
        {"POLL", SIGIO},
        {"STKFLT", SIGSTKFLT},
        {"", 0},
        {"0", 0},
        {"65", 0},
        {"-9", 0},
        {"+9", 0},
        {" 9", 0},
        {"9 ", 0},
        {"SIG", 0},
        {"SIGSIGTERM", 0},
        {"SIG15", 0},
        {"NOSUCH", 0},
        {"TERMX", 0},
        {"TER", 0},
        {"RTMIN+", 0},
        {"RTMIN+99", 0},
        {"RTMIN-1", 0},
        {"RTMIN+-1", 0},
        {"RTMAX+1", 0},
        {"RTMAX-31", 0},
        {"RTMAX1", 0},
    };
    FOR_ROWS(row, rows)
    row_int(row->text, signame_parse(row->text), row->number);
}

TEST(test_format)
{
    const struct {
        int number;
        const char *text;
    } rows[] = {
        {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"},   {SIGABRT, "SIGABRT"},
        {SIGIO, "SIGIO"},     {SIGKILL, "SIGKILL"}, {SIGVTALRM, "SIGVTALRM"},
        {SIGSYS, "SIGSYS"},   {40, "signal 40"},    {0, "signal 0"},
    };
    char text[32];
    FOR_ROWS(row, rows)
    row_text(row->text, signame_format(row->number, text, sizeof text), row->text);
    for (int number = 1; number < 32; number++) {
        signame_format(number, text, sizeof text);
        row_int(text, signame_parse(text), number);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("a signal is read by name or number, in whatever case", test_parse),
        ENTRY("a signal is shown by name, and the name is read back", test_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
