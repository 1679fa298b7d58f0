/* How past runs, estimates and advice look, at each width and in each locale. */
#include "ui/run_times.h"

#include "util/text.h"

#include "unit.h"

#include <locale.h>
#include <stdlib.h>
#include <time.h>

#define M (INT64_C(60) * 1000)
#define H (60 * M)
#define DAY (24 * H)
#define AT (INT64_C(20000) * DAY + 3 * H) /* 2024-10-04 03:00:00 UTC */

static void use_locale(const char *name)
{
    setenv("LC_ALL", name, 1);
    setenv("TZ", "UTC0", 1);
    row_true(name, setlocale(LC_CTYPE, "") != NULL);
}

/* What history_print() prints. The caller frees it. */
static char *printed(const struct history *history, int64_t ttl_ms, int columns)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    row_true("memory", to != NULL && history_print(to, history, DURATION_MS(ttl_ms), columns));
    fclose(to);
    return text;
}

static struct past_run run_of(int64_t began_ms, int64_t length_ms, enum run_how how, int code)
{
    return (struct past_run){.began_ms = began_ms,
                             .length_ms = length_ms,
                             .ttl_ms = H,
                             .end = {how, code, 0},
                             .host = "web3"};
}

static struct history three_runs(void)
{
    return (struct history){.runs = {run_of(AT + 2 * DAY, 12 * M, RUN_STATUS, 0),
                                     run_of(AT + DAY, -1, RUN_LOST, 0),
                                     run_of(AT, 30 * M + 5000, RUN_SIGNAL, 9)},
                            .count = 3};
}

TEST(a_stopped_run_is_cut_short)
{
    struct history history = three_runs();
    history.runs[2].end.how = RUN_STOPPED;
    use_locale("C");
    char *text = printed(&history, H, 80);
    row_has(
        "stopped", text,
        "; usually 12m, longest 30m, when dlock stopped it\n"
        "the longest of the last 3 runs was stopped after 30m; recommended TTL: at least 1h30m\n");
    free(text);
}

TEST(a_lost_lock_is_no_reason_for_a_longer_ttl)
{
    char text[RUN_TIMES_SIZE];
    struct history history = three_runs();
    history.runs[2].end.how = RUN_STOPPED;
    history.runs[2].ttl_ms = 3 * H;
    row_int("length of the advice", (long)strlen(ttl_advice_format(&history, text)), 0);
}

TEST(runs_are_a_table)
{
    struct history history = three_runs();
    use_locale("C");
    char *text = printed(&history, H, 80);
    row_text("80 columns", text,
             "START +0000          HOST  END       LENGTH  TTL USED\n"
             "2024-10-06 03:00:00  web3  status 0  12m     #######............................\n"
             "2024-10-05 03:00:00  web3  lost      -\n"
             "2024-10-04 03:00:00  web3  signal 9  30m5s   ##################.................\n"
             "3 runs in 2 days, 1 succeeded; usually 12m, longest 30m; "
             "with --ttl=1h, 29m was left\n"
             "the longest of the last 3 runs took 30m; recommended TTL: 1h30m\n");
    free(text);
    use_locale("C.UTF-8");
    text = printed(&history, H, 50);
    row_has("50 columns", text, "\n2024-10-06 03:00:00  web3  status 0  12m     █░░░░\n2024-10-05");
    free(text);
}

/* The heading has today's offset, so one of a winter's and a summer's run needs its own. */
TEST(a_start_with_another_offset_shows_it)
{
    struct history history = three_runs();
    history.runs[0].began_ms = AT + 300 * DAY;
    history.runs[1].began_ms = AT + 100 * DAY;
    use_locale("C");
    setenv("TZ", "WWW-1SSS,M3.5.0,M10.5.0/3", 1);
    tzset();
    char *text = printed(&history, H, 80);
    bool summer = strncmp(text, "START +0200", 11) == 0;
    row_true("heading", summer || strncmp(text, "START +0100", 11) == 0);
    row_has("summer", text, summer ? "\n2025-07-31 05:00:00  " : "\n2025-07-31 05:00:00 +0200  ");
    row_has("winter", text, summer ? "\n2025-01-12 04:00:00 +0100  " : "\n2025-01-12 04:00:00  ");
    free(text);
    use_locale("C");
    tzset();
}

static const struct {
    const char *name, *host;
    int columns;
    bool has_bar;
} widths[] = {
    {"40", "web3", 40, false},
    {"40, long host", "ip-10-0-23-117.eu-central-1.compute.internal", 40, false},
    {"80", "web3", 80, true},
    {"80, long host", "ip-10-0-23-117.eu-central-1.compute.internal", 80, true},
    {"80, wide host", "\346\227\245\346\234\254\350\252\236\346\227\245\346\234\254\350\252\236",
     80, true},
    {"200", "web3", 200, true},
};

TEST(lines_fit_the_terminal)
{
    static const char *const locales[] = {"C", "C.UTF-8"};
    FOR_ROWS(locale, locales)
    {
        use_locale(*locale);
        FOR_ROWS(row, widths)
        {
            struct history history = three_runs();
            const char *bar = strcmp(*locale, "C") == 0 ? "#." : "\u2588\u2591";
            history.runs[0].end.code = 127;
            history.runs[1].length_ms = 59 * M + 18000;
            for (size_t i = 0; i < history.count; i++)
                text_copy(history.runs[i].host, sizeof history.runs[i].host, row->host);
            char *text = printed(&history, H, row->columns), *rest = text;
            for (size_t i = 0; i <= history.count; i++) {
                const char *line = strsep(&rest, "\n");
                row_true(row->name, mbwidth_of(line) <= row->columns);
                row_true(row->name, strlen(line) > 30);
                row_int(row->name, i > 0 && i < 2 && strstr(line, bar) != NULL,
                        i > 0 && i < 2 && row->has_bar);
            }
            free(text);
        }
    }
}

TEST(foreign_text_is_escaped)
{
    struct history history = three_runs();
    use_locale("C.UTF-8");
    text_copy(history.runs[0].host, sizeof history.runs[0].host, "a\033[2Jb\n");
    char *text = printed(&history, H, 200);
    row_has("host", text, " a\\x1B[2Jb\\x0A ");
    free(text);
}

TEST(a_line_sums_up)
{
    struct history history = {.count = HISTORY_MOST};
    use_locale("C");
    for (int i = 0; i < HISTORY_MOST; i++)
        history.runs[i] = run_of(AT + (31 - i) * DAY - i, (i % 3 + 11) * M, RUN_STATUS, i == 7);
    history.runs[9].length_ms = 41 * M;
    history.runs[3].end = (struct run_end){RUN_STOPPED, 0, 0};
    char *text = printed(&history, H, 80);
    row_has("32", text,
            "\n32 runs in 31 days, 30 succeeded; usually 12m (half of them between 11m and 13m), "
            "longest 41m; with --ttl=1h, 19m was left\n"
            "the longest of the last 32 runs took 41m; recommended TTL: 1h30m\n");
    free(text);
    text = printed(&history, 30 * M, 80);
    row_has("too short", text, ", longest 41m; --ttl=30m is too short for the longest run\n");
    free(text);

    history.count = 1;
    text = printed(&history, H, 80);
    row_has("one", text, "\n1 run, 1 succeeded; usually 11m, longest 11m; with");
    free(text);
    history.runs[0] = run_of(AT, -1, RUN_LOST, 0);
    text = printed(&history, H, 80);
    row_has("length unknown", text, "\n1 run, 0 succeeded\n");
    free(text);
}

TEST(an_extended_run_says_nothing_of_the_ttl)
{
    struct history history = three_runs();
    char text[RUN_TIMES_SIZE];
    history.runs[0].length_ms = 5 * H;
    row_text("extended", ttl_advice_format(&history, text), "");
}

TEST(bars_show_a_share)
{
    static const struct {
        const char *bar;
        int columns, part, whole;
    } rows[] = {
        {"..........", 10, 0, 60},
        {"#####.....", 10, 30, 60},
        {"##########", 10, 60, 60},
        {"##########", 10, 90, 60},
        {"###", 3, 0, 0},
        {"", 0, 1, 2},
        {"", -1, 1, 2},
    };
    char text[BAR_SIZE];
    use_locale("C");
    FOR_ROWS(row, rows)
    row_text(row->bar, bar_format(row->columns, row->part, row->whole, text), row->bar);
    use_locale("C.UTF-8");
    row_text("UTF-8", bar_format(4, 1, 2, text), "██░░");
    row_int("most", mbwidth_of(bar_format(1000, 1, 2, text)), BAR_MOST);
    row_true("half of most", strstr(bar_format(1000, 1, 2, text), "█░") == text + 29 * strlen("█"));
}

/* Of runs of 12 minutes, of which a tenth takes more than 20. */
static const struct {
    const char *text;
    int64_t since_ms; /* ago; negative: in the future */
    int ahead;
    bool shares, kept;
    int runs;
} estimates[] = {
    {"usually 12m, about 4m left", 8 * M, 0, false, false, 5},
    {"usually 12m, about 4m left, about 28m until your turn", 8 * M, 2, false, false, 5},
    {"usually 12m, about 4m left", 8 * M, 2, true, false, 5},
    {"usually 12m, about 4m left", 8 * M, -1, false, false, 5},
    {"usually 12m, about 5m left", 15 * M, 0, false, false, 5},
    {"longer than usual (usually 12m)", 21 * M, 2, false, false, 5},
    {"usually 12m", -M, 0, false, false, 5},
    {"", 8 * M, 0, false, false, 4},
    {"", 8 * M, 0, false, true, 5},
};

TEST(an_estimate_is_a_text)
{
    char text[RUN_TIMES_SIZE];
    FOR_ROWS(row, estimates)
    {
        struct typical typical = {.median_ms = 12 * M, .p90_ms = 20 * M, .runs = row->runs};
        struct holder holder = {.known = true,
                                .shares = row->shares,
                                .kept = row->kept,
                                .ahead = row->ahead,
                                .since_wall_ms = wall_now_ms() - row->since_ms + 500};
        struct estimate estimate = holder_estimate(&holder, &typical);
        row_text(row->text, estimate_format(&estimate, &typical, row->ahead, text), row->text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ENTRY("past runs are a table, with bars that show the length against the TTL",
              runs_are_a_table),
        ENTRY("a start with another offset from UTC than today's shows its offset",
              a_start_with_another_offset_shows_it),
        ENTRY("how long a stopped run would have taken is unknown", a_stopped_run_is_cut_short),
        ENTRY("a run whose lock was lost early is no reason to advise a longer TTL",
              a_lost_lock_is_no_reason_for_a_longer_ttl),
        ENTRY("at 40, 80 and 200 columns, in ASCII and UTF-8, every row fits",
              lines_fit_the_terminal),
        ENTRY("a host's name cannot disturb the terminal", foreign_text_is_escaped),
        ENTRY("a line below sums up the runs, and compares them with a TTL", a_line_sums_up),
        ENTRY("if the longest run had its lease extended, there is no advice on the TTL",
              an_extended_run_says_nothing_of_the_ttl),
        ENTRY("a bar is full at its whole, and never longer", bars_show_a_share),
        ENTRY("an estimate says how long the holder usually takes, and until when the wait lasts",
              an_estimate_is_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
