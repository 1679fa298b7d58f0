/* The last runs of a lock, and what they say about the next one. All wanted values were computed by
 * hand. */
#include "lock/history.h"

#include "util/text.h"

#include "unit.h"

enum { S = 1000, M = 60 * S, H = 60 * M };

static const struct run_record a_run = {
    .began_ms = 5 * S, .end = {RUN_STATUS, 0, 12 * S}, .host = "web3"};

static const struct added {
    const char *name;
    int64_t began_ms;
    struct run_end end;
    const char *host;
    int64_t ttl_ms;
    const char *row;
} rows_added[] = {
    {"a success",
     5000,
     {RUN_STATUS, 0, 12000},
     "web3",
     60000,
     "5000\t7000\tstatus 0\t60000\tweb3\n"},
    {"a failure", 5000, {RUN_STATUS, 7, 5001}, "web3", 60000, "5000\t1\tstatus 7\t60000\tweb3\n"},
    {"killed", 5000, {RUN_SIGNAL, 9, 5000}, "web3", 60000, "5000\t0\tsignal 9\t60000\tweb3\n"},
    {"stopped", 5000, {RUN_STOPPED, 0, 12000}, "web3", 7000, "5000\t7000\tstopped\t7000\tweb3\n"},
    {"an unknown end",
     5000,
     {RUN_ENDED, 0, 12000},
     "web3",
     7000,
     "5000\t7000\tended\t7000\tweb3\n"},
    {"a lost run has no length",
     5000,
     {RUN_LOST, 0, 12000},
     "web3",
     7000,
     "5000\t\tlost\t7000\tweb3\n"},
    {"the clock was set back",
     5000,
     {RUN_STATUS, 0, 4999},
     "web3",
     7000,
     "5000\t\tstatus 0\t7000\tweb3\n"},
    {"no end is known", 5000, {RUN_STATUS, 0, 0}, "web3", 7000, "5000\t\tstatus 0\t7000\tweb3\n"},
    {"no start is known", 0, {RUN_STATUS, 0, 12000}, "web3", 7000, "\t\tstatus 0\t7000\tweb3\n"},
    {"no TTL is known", 5000, {RUN_STATUS, 0, 12000}, "web3", 0, "5000\t7000\tstatus 0\t\tweb3\n"},
    {"a host that would end the row",
     5000,
     {RUN_STATUS, 0, 12000},
     "a\tb\nc%",
     0,
     "5000\t7000\tstatus 0\t\ta%09b%0Ac%25\n"},
    {"no host", 5000, {RUN_STATUS, 0, 12000}, "", 0, "5000\t7000\tstatus 0\t\t\n"},
};

TEST(runs_are_written_and_read)
{
    FOR_ROWS(row, rows_added)
    {
        char text[HISTORY_SIZE] = "";
        struct history history;
        struct run_record run = {.began_ms = row->began_ms, .end = row->end};
        text_copy(run.host, sizeof run.host, row->host);
        history_add(text, &run, row->ttl_ms);
        row_text(row->name, text, row->row);
        history_read(&history, text);
        row_int(row->name, history.count, 1);
        row_int(row->name, history.runs[0].began_ms, row->began_ms);
        row_int(row->name, history.runs[0].end.how, row->end.how);
        row_int(row->name, history.runs[0].end.code, row->end.code);
        row_int(row->name, history.runs[0].ttl_ms, row->ttl_ms);
        row_text(row->name, history.runs[0].host, row->host);
    }
}

TEST(a_long_host_is_cut)
{
    char text[HISTORY_SIZE] = "", cut[65];
    struct run_record run = a_run;
    struct history history;
    unit_repeat(run.host, sizeof run.host, 'h', 255);
    history_add(text, &run, 0);
    history_read(&history, text);
    row_text("255 letters", history.runs[0].host, unit_repeat(cut, sizeof cut, 'h', 64));
}

/* Adds `count` runs with these hosts, the first of which lasts 1 ms, and each of the others 1 ms
 * longer. */
static void add_runs(char text[HISTORY_SIZE], int count, const char *host)
{
    struct run_record run = a_run;
    text_copy(run.host, sizeof run.host, host);
    for (int i = 1; i <= count; i++) {
        run.end.ended_ms = run.began_ms + i;
        history_add(text, &run, INT64_MAX);
    }
}

TEST(the_last_32_are_kept_newest_first)
{
    static const struct {
        const char *name;
        int added, kept;
    } rows[] = {{"none", 0, 0}, {"one", 1, 1},  {"31", 31, 31},
                {"32", 32, 32}, {"33", 33, 32}, {"100", 100, 32}};
    FOR_ROWS(row, rows)
    {
        char text[HISTORY_SIZE] = "", host[65];
        struct history history;
        add_runs(text, row->added, unit_repeat(host, sizeof host, 'h', 64));
        history_read(&history, text);
        row_int(row->name, history.count, row->kept);
        for (int i = 0; i < row->kept; i++)
            row_int(row->name, history.runs[i].length_ms, row->added - i);
    }
}

TEST(what_does_not_fit_gives_way_in_whole_rows)
{
    /* Encoded, a host of 64 tabs has 192 bytes, and each row 234: 16 fit into 3839. */
    char text[HISTORY_SIZE] = "", host[65];
    struct history history;
    add_runs(text, 40, unit_repeat(host, sizeof host, '\t', 64));
    history_read(&history, text);
    row_int("tabs", history.count, 16);
    row_int("tabs", history.runs[0].length_ms, 40);
    row_int("tabs", history.runs[15].length_ms, 25);
    row_int("tabs", text[strlen(text) - 1], '\n');
}

#define GOOD "5000\t7000\tstatus 0\t60000\tweb3\n"

TEST(rows_that_cannot_be_read_are_left_out)
{
    static const struct {
        const char *text;
        int count;
    } rows[] = {
        {"", 0},
        {"\n", 0},
        {"what\n", 0},
        {GOOD GOOD, 2},
        {GOOD "what\n" GOOD, 2},
        {"\n\n" GOOD "\n" GOOD, 2},
        {GOOD "5000\t7000\tstatus 0\t60000\n" GOOD, 2},
        {GOOD "5000\t7000\tstatus 0\t60000\tweb3", 2},
        {GOOD "5000\t7000\tstat", 1},
        {"x\t7000\tstatus 0\t60000\tweb3\n" GOOD, 1},
        {"-1\t7000\tstatus 0\t60000\tweb3\n" GOOD, 1},
        {"5000\t-2\tstatus 0\t60000\tweb3\n" GOOD, 1},
        {"5000\t7000\tstatus 256\t60000\tweb3\n" GOOD, 1},
        {"5000\t7000\t\t60000\tweb3\n" GOOD, 1},
        {"5000\t7000\tstatus 0\t1h\tweb3\n" GOOD, 1},
        {"5000\t7000\tstatus 0\t60000\tweb%3\n" GOOD, 1},
        {"5000\t7000\tstatus 0\t60000\tweb%00\n" GOOD, 1},
        {"5000\t7000\tstatus 0\t60000\t"
         "hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh\n" GOOD,
         1},
    };
    FOR_ROWS(row, rows)
    {
        char text[HISTORY_SIZE];
        struct history history;
        history_read(&history, row->text);
        row_int(row->text, history.count, row->count);
        for (int i = 0; i < row->count; i++)
            row_int(row->text, history.runs[i].length_ms, 7000);

        text_copy(text, sizeof text, row->text);
        history_add(text, &a_run, 60000);
        history_read(&history, text);
        row_true(row->text, history.count > 0 && history.runs[0].length_ms == 7000);
    }
}

TEST(no_more_than_32_are_read)
{
    char text[64 * sizeof GOOD] = "";
    struct history history;
    for (int i = 0; i < 64; i++)
        memcpy(text + (size_t)i * strlen(GOOD), GOOD, sizeof GOOD);
    history_read(&history, text);
    row_int("64 rows", history.count, HISTORY_MOST);
}

TEST(a_length_that_others_wrote_is_cut_to_a_century)
{
    struct history history;
    history_read(&history,
                 "9223372036854775807\t9223372036854775807\tstatus 0\t9223372036854775807\tw\n");
    row_int("beyond all clocks", history.count, 1);
    row_int("beyond all clocks", history.runs[0].length_ms, INT64_C(3155760000000));
    row_int("beyond all clocks", history.runs[0].ttl_ms, INT64_C(3155760000000));
}

/* --- what is usual ------------------------------------------------------- */

/* A history of runs with these lengths; -1 ends the list. */
static struct history history_of(const int *lengths, enum run_how how, int code)
{
    struct history history = {.count = 0};
    for (; *lengths >= 0; lengths++)
        history.runs[history.count++] =
            (struct past_run){.length_ms = *lengths, .end = {how, code, 0}};
    return history;
}

static const struct usual {
    const char *name;
    int lengths[33];
    struct typical typical;
} usuals[] = {
    {"none", {-1}, {0, 0, 0, 0, 0, 0}},
    {"one", {7, -1}, {7, 7, 7, 7, 7, 1}},
    {"one of no length", {0, -1}, {0, 0, 0, 0, 0, 1}},
    {"two", {9, 4, -1}, {6, 4, 9, 9, 9, 2}},
    {"three", {30, 10, 20, -1}, {20, 10, 30, 30, 30, 3}},
    {"four", {40, 10, 30, 20, -1}, {25, 10, 30, 40, 40, 4}},
    {"five", {50, 40, 30, 20, 10, -1}, {30, 20, 40, 50, 50, 5}},
    {"nine", {1, 2, 3, 4, 5, 6, 7, 8, 9, -1}, {5, 3, 7, 9, 9, 9}},
    {"ten", {10, 9, 8, 7, 6, 5, 4, 3, 2, 1, -1}, {5, 3, 8, 9, 10, 10}},
    {"eleven", {11, 1, 10, 2, 9, 3, 8, 4, 7, 5, 6, -1}, {6, 3, 9, 10, 11, 11}},
    {"ties", {5, 5, 5, 5, 9, -1}, {5, 5, 5, 9, 9, 5}},
    {"all alike", {12, 12, 12, 12, 12, 12, -1}, {12, 12, 12, 12, 12, 6}},
    {"32",
     {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17,
      18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, -1},
     {16, 8, 24, 29, 32, 32}},
};

TEST(what_is_usual)
{
    FOR_ROWS(row, usuals)
    {
        struct history history = history_of(row->lengths, RUN_STATUS, 0);
        struct typical typical;
        history_typical(&history, &typical);
        row_int(row->name, typical.median_ms, row->typical.median_ms);
        row_int(row->name, typical.quarter_ms, row->typical.quarter_ms);
        row_int(row->name, typical.three_quarters_ms, row->typical.three_quarters_ms);
        row_int(row->name, typical.p90_ms, row->typical.p90_ms);
        row_int(row->name, typical.longest_ms, row->typical.longest_ms);
        row_int(row->name, typical.runs, row->typical.runs);
    }
}

TEST(only_successes_of_known_length_count)
{
    struct history history = {.runs = {{.length_ms = 9, .end = {RUN_STATUS, 1, 0}},
                                       {.length_ms = 8, .end = {RUN_SIGNAL, 15, 0}},
                                       {.length_ms = 7, .end = {RUN_STOPPED, 0, 0}},
                                       {.length_ms = -1, .end = {RUN_LOST, 0, 0}},
                                       {.length_ms = 6, .end = {RUN_ENDED, 0, 0}},
                                       {.length_ms = -1, .end = {RUN_STATUS, 0, 0}},
                                       {.length_ms = 4, .end = {RUN_STATUS, 0, 0}}},
                              .count = 7};
    struct typical typical = {.runs = 77};
    history_typical(&history, &typical);
    row_int("each end", typical.runs, 1);
    row_int("each end", typical.longest_ms, 4);
    history.count = 6;
    history_typical(&history, &typical);
    row_int("no success", typical.runs, 0);
    row_int("no success", typical.longest_ms, 0);
}

/* --- estimates ------------------------------------------------------------- */

#define USUAL                                      \
    {                                              \
        12 * M, 11 * M, 13 * M, 20 * M, 41 * M, 30 \
    }
static const struct guess {
    const char *name;
    struct typical typical;
    int64_t since_ms, now_ms;
    int ahead;
    struct estimate wanted;
} guesses[] = {
    {"four runs",
     {12 * M, 11 * M, 13 * M, 20 * M, 41 * M, 4},
     H,
     H + M,
     0,
     {false, false, -1, 0, -1}},
    {"five runs",
     {12 * M, 11 * M, 13 * M, 20 * M, 41 * M, 5},
     H,
     H + M,
     0,
     {true, false, 11 * M, H + 12 * M, 11 * M}},
    {"just begun", USUAL, H, H, -1, {true, false, 12 * M, H + 12 * M, -1}},
    {"two waiters in front", USUAL, H, H + 8 * M, 2, {true, false, 4 * M, H + 12 * M, 28 * M}},
    {"as long as the median", USUAL, H, H + 12 * M, 1, {true, false, 0, H + 12 * M, 12 * M}},
    {"longer than the median",
     USUAL,
     H,
     H + 12 * M + 1,
     1,
     {true, false, 8 * M - 1, H + 20 * M, 20 * M - 1}},
    {"as long as 90 %", USUAL, H, H + 20 * M, 0, {true, false, 0, H + 20 * M, 0}},
    {"longer than 90 %", USUAL, H, H + 20 * M + 1, 2, {true, true, -1, 0, -1}},
    {"it begins in the future, by our clock", USUAL, H, H - 1, 2, {true, false, -1, 0, -1}},
    {"its start is unknown", USUAL, 0, H, 2, {true, false, -1, 0, -1}},
    {"more waiters than time",
     {INT64_C(1) << 40, 1, 1, INT64_C(1) << 41, INT64_C(1) << 41, 30},
     H,
     H + M,
     INT32_MAX,
     {true, false, (INT64_C(1) << 40) - M, H + (INT64_C(1) << 40), -1}},
};

TEST(estimates)
{
    FOR_ROWS(row, guesses)
    {
        struct estimate got =
            history_estimate(&row->typical, row->since_ms, row->now_ms, row->ahead);
        row_int(row->name, got.known, row->wanted.known);
        row_int(row->name, got.longer, row->wanted.longer);
        row_int(row->name, got.left_ms, row->wanted.left_ms);
        row_int(row->name, got.end_ms, row->wanted.end_ms);
        row_int(row->name, got.wait_ms, row->wanted.wait_ms);
    }
}

/* --- the TTL --------------------------------------------------------------- */

/* In seconds. */
static const int64_t usual_ttls[] = {10,     15,     30,     60,      120,    300,    600,
                                     900,    1800,   2700,   3600,    5400,   7200,   10800,
                                     14400,  21600,  28800,  43200,   86400,  172800, 259200,
                                     432000, 604800, 864000, 1209600, 2592000};

TEST(advice_on_the_ttl)
{
    enum { LAST = sizeof usual_ttls / sizeof *usual_ttls - 1 };

    row_int("nothing", history_ttl(0).ns, 10 * NS_PER_S);
    for (size_t i = 0; i < LAST; i++) {
        int64_t half_ms = usual_ttls[i] * 500;
        row_int("half of it", history_ttl(half_ms).ns, usual_ttls[i] * NS_PER_S);
        row_int("just over half", history_ttl(half_ms + 1).ns, usual_ttls[i + 1] * NS_PER_S);
    }
    row_int("a century", history_ttl(INT64_C(3155760000000)).ns, usual_ttls[LAST] * NS_PER_S);
}

TEST(runs_that_used_most_of_their_ttl)
{
    static const struct {
        const char *name;
        struct past_run run;
        bool tight;
    } rows[] = {
        {"80 %", {.length_ms = 80, .ttl_ms = 100}, false},
        {"81 %", {.length_ms = 81, .ttl_ms = 100}, true},
        {"all", {.length_ms = 100, .ttl_ms = 100}, true},
        {"an unknown TTL", {.length_ms = 100}, false},
        {"an unknown length", {.length_ms = -1, .ttl_ms = 100}, false},
    };
    FOR_ROWS(row, rows)
    row_int(row->name, past_run_is_tight(&row->run), row->tight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ENTRY("a run is read as it was written, whatever its end", runs_are_written_and_read),
        ENTRY("a long host is cut", a_long_host_is_cut),
        ENTRY("the last 32 runs are kept, newest first", the_last_32_are_kept_newest_first),
        ENTRY("what does not fit gives way in whole rows",
              what_does_not_fit_gives_way_in_whole_rows),
        ENTRY("rows that cannot be read are left out", rows_that_cannot_be_read_are_left_out),
        ENTRY("no more than 32 rows are read", no_more_than_32_are_read),
        ENTRY("a length that others wrote is cut to a century",
              a_length_that_others_wrote_is_cut_to_a_century),
        ENTRY("median, quarters, ninth decile and longest", what_is_usual),
        ENTRY("only successes of known length count", only_successes_of_known_length_count),
        ENTRY("when a run will end, and when it is a waiter's turn", estimates),
        ENTRY("the TTL is twice the longest run, rounded up to a usual figure", advice_on_the_ttl),
        ENTRY("a run is tight if it used more than 80 % of its TTL",
              runs_that_used_most_of_their_ttl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
