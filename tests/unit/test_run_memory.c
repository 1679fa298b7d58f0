/* What a lock remembers of its runs. */
#include "lock/run_memory.h"

#include "unit.h"

static const struct end {
    const char *text;
    struct run_end end;
} ends[] = {
    {"status 0", {RUN_STATUS, 0, 0}}, {"status 255", {RUN_STATUS, 255, 0}},
    {"signal 9", {RUN_SIGNAL, 9, 0}}, {"stopped", {RUN_STOPPED, 0, 0}},
    {"ended", {RUN_ENDED, 0, 0}},     {"lost", {RUN_LOST, 0, 0}},
};

TEST(ends_are_written_and_read)
{
    char text[RUN_END_SIZE];
    struct run_end end;
    FOR_ROWS(row, ends)
    {
        row_text(row->text, run_end_write(&row->end, text), row->text);
        row_true(row->text, run_end_read(&end, row->text));
        row_int(row->text, end.how, row->end.how);
        row_int(row->text, end.code, row->end.code);
    }
}

TEST(what_is_no_end_is_none)
{
    static const char *const texts[] = {
        "",          "status", "status ", "status x", "status 256",
        "status -1", "signal", "lost 1",  "statuses", "Status 0",
    };
    FOR_ROWS(text, texts)
    {
        struct run_end end = {RUN_LOST, 1, 1};
        row_false(*text, run_end_read(&end, *text));
        row_int(*text, end.how, RUN_NONE);
    }
}

static const struct sequence {
    const char *ends;
    int failures, runs;
    bool success;
} sequences[] = {
    {"0", 0, 0, true},   {"7", 1, 1, false},   {"77", 2, 2, false}, {"770", 0, 0, true},
    {"07s", 2, 2, true}, {"7e7", 2, 3, false}, {"0el", 1, 2, true}, {"", 0, 0, false},
};

TEST(a_success_ends_a_row_of_failures)
{
    FOR_ROWS(row, sequences)
    {
        struct run_memory memory = {.skipped = 3};
        for (const char *c = row->ends; *c != '\0'; c++) {
            struct run_record run = {.end = {*c == 'e'   ? RUN_ENDED
                                             : *c == 'l' ? RUN_LOST
                                             : *c == 's' ? RUN_STOPPED
                                                         : RUN_STATUS,
                                             *c == '7' ? 7 : 0, 1}};
            run_memory_add(&memory, &run);
        }
        row_int(row->ends, memory.failures, row->failures);
        row_int(row->ends, memory.runs, row->runs);
        row_int(row->ends, run_is_success(&memory.success.end), row->success);
        row_int(row->ends, memory.skipped, row->success ? 0 : 3);
    }
}

TEST(the_success_that_began_last_counts)
{
    const struct run_record newer = {.began_ms = 2, .end = {RUN_STATUS, 0, 3}, .fence = 8},
                            failure = {.began_ms = 3, .end = {RUN_STATUS, 7, 4}, .fence = 9},
                            older = {.began_ms = 1, .end = {RUN_STATUS, 0, 5}, .fence = 7};
    struct run_memory memory = {.skipped = 3};
    run_memory_add(&memory, &newer);
    run_memory_add(&memory, &failure);
    memory.skipped = 2;
    run_memory_add(&memory, &older);
    row_int("last", memory.last.began_ms, 1);
    row_int("success", memory.success.began_ms, 2);
    row_int("failures", memory.failures, 0);
    row_int("runs", memory.runs, 2);
    row_int("skipped", memory.skipped, 2);
}

TEST(times_count_by_their_distance)
{
    static const struct {
        const char *name;
        int64_t ago_s;
        bool within;
    } rows[] = {{"now", 0, true},
                {"59 minutes", 3540, true},
                {"61 minutes", 3660, false},
                {"in a minute", -60, true},
                {"in a year", -31536000, false}};
    FOR_ROWS(row, rows)
    {
        struct run_memory memory = {.success = {.end = {RUN_STATUS, 0, 0}}};
        row_false(row->name, run_ended_within(&(struct run_memory){0}, DURATION_FOREVER));
        memory.success.began_ms = memory.success.end.ended_ms = wall_now_ms() - row->ago_s * 1000;
        row_int(row->name, run_ended_within(&memory, DURATION_S(3600)), row->within);
        row_int(row->name, run_began_within(&memory, DURATION_S(3600)), row->within);
    }
}

TEST(once_per_counts_from_the_start_and_ran_within_from_the_end)
{
    int64_t now_ms = wall_now_ms();
    struct run_memory memory = {
        .success = {.began_ms = now_ms - 7200 * 1000, .end = {RUN_STATUS, 0, now_ms}}};
    row_false("began", run_began_within(&memory, DURATION_S(3600)));
    row_int("ended", run_ended_within(&memory, DURATION_S(3600)), true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ENTRY("the end of a run is read as it was written", ends_are_written_and_read),
        ENTRY("what is no end of a run is none", what_is_no_end_is_none),
        ENTRY("a success ends a row of failures, and an unknown end does not",
              a_success_ends_a_row_of_failures),
        ENTRY("of several at once the success that began last counts",
              the_success_that_began_last_counts),
        ENTRY("times in the future count by their distance", times_count_by_their_distance),
        ENTRY("--once-per counts from the start of the success, --ran-within from its end",
              once_per_counts_from_the_start_and_ran_within_from_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
