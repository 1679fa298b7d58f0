/* Durations as people write them, and as dlock shows them; times and their limits. */
#include "unit.h"

#include "util/clock.h"

static const struct {
    const char *text;
    int64_t ns;
} good[] = {
    {"5sec", 5 * NS_PER_S},
    {"1second", NS_PER_S},
    {"2min30sec", 150 * NS_PER_S},
    {"5minutes", 300 * NS_PER_S},
    {"2hr", 7200 * NS_PER_S},
    {"1hour", 3600 * NS_PER_S},
    {"2days", 172800 * NS_PER_S},
    {"1w", 604800 * NS_PER_S},
    {"2weeks", 1209600 * NS_PER_S},
    {"500msec", 500 * NS_PER_MS},
    {"0", 0},
    {"90", 90 * NS_PER_S},
    {"1.5s", 1500 * NS_PER_MS},
    {"100ms", 100 * NS_PER_MS},
    {".5", 500 * NS_PER_MS},
    {"1m", 60 * NS_PER_S},
    {"1h30m", 5400 * NS_PER_S},
    {"1h30", 3630 * NS_PER_S},
    {"1d", 86400 * NS_PER_S},
    {"30d", 30 * 86400 * NS_PER_S},
    {"0.5h", 1800 * NS_PER_S},
    {"1.0005s", 1000500000},
    {"0.0000000019", 1},
    {"0.00000000099999", 0},
    {"1s500ms", 1500 * NS_PER_MS},
    {"2h3m4s5ms", 7384005 * NS_PER_MS},
    {"5ms4s", 4005 * NS_PER_MS},
    {"1s1s", 2 * NS_PER_S},
    {"007s", 7 * NS_PER_S},
    {"0.5ms", 500 * NS_PER_US},
    {"9223372036", INT64_C(9223372036) * NS_PER_S},
    {"9223372036.854775807", INT64_MAX},
    {"106751d", INT64_C(106751) * 86400 * NS_PER_S},
};

static const struct {
    const char *text;
    enum duration_error error;
} bad[] = {
    {"", DURATION_EMPTY},
    {"-1", DURATION_NEGATIVE},
    {"-0", DURATION_NEGATIVE},
    {"-.5", DURATION_NEGATIVE},
    {"-", DURATION_NOT_A_NUMBER},
    {"--message=x", DURATION_NOT_A_NUMBER},
    {"abc", DURATION_NOT_A_NUMBER},
    {"nan", DURATION_NOT_A_NUMBER},
    {"inf", DURATION_NOT_A_NUMBER},
    {"s", DURATION_NOT_A_NUMBER},
    {"+5", DURATION_NOT_A_NUMBER},
    {" 5", DURATION_NOT_A_NUMBER},
    {"1s ", DURATION_NOT_A_NUMBER},
    {"1.", DURATION_NOT_A_NUMBER},
    {"1.s", DURATION_NOT_A_NUMBER},
    {"1..5", DURATION_NOT_A_NUMBER},
    {".", DURATION_NOT_A_NUMBER},
    {"1x", DURATION_UNKNOWN_UNIT},
    {"5secs", DURATION_UNKNOWN_UNIT},
    {"5M", DURATION_UNKNOWN_UNIT},
    {"2months", DURATION_UNKNOWN_UNIT},
    {"5S", DURATION_UNKNOWN_UNIT},
    {"1e3", DURATION_UNKNOWN_UNIT},
    {"1 s", DURATION_UNKNOWN_UNIT},
    {"0x10", DURATION_UNKNOWN_UNIT},
    {"1,5", DURATION_UNKNOWN_UNIT},
    {"1.5.5", DURATION_UNKNOWN_UNIT},
    {"1-1", DURATION_UNKNOWN_UNIT},
    {"99999999999999999999", DURATION_OVERFLOW},
    {"99999999999d", DURATION_OVERFLOW},
    {"106752d", DURATION_OVERFLOW},
    {"9223372036s9223372036s", DURATION_OVERFLOW},
    {"9223372036.854775808", DURATION_OVERFLOW},
};

TEST(test_good)
{
    FOR_ROWS(row, good)
    {
        struct duration d = {-1};
        row_int(row->text, duration_parse(row->text, &d), DURATION_OK);
        row_int(row->text, d.ns, row->ns);
    }
}

TEST(test_bad)
{
    FOR_ROWS(row, bad)
    {
        struct duration d = {-7};
        row_int(row->text, duration_parse(row->text, &d), row->error);
        row_int(row->text, d.ns, -7);
    }
}

TEST(test_error_texts)
{
    static const struct {
        enum duration_error error;
        const char *text;
    } rows[] = {
        {DURATION_OK, "fine"},
        {DURATION_EMPTY, "empty; a duration is needed"},
        {DURATION_NEGATIVE, "cannot be negative"},
        {DURATION_NOT_A_NUMBER, "not a number with a unit, such as 90, 1.5s"},
        {DURATION_UNKNOWN_UNIT, "ms, s, m, h, d or w"},
        {DURATION_OVERFLOW, "too large"},
        {(enum duration_error)99, "not a duration"},
    };
    FOR_ROWS(row, rows)
    row_has(row->text, duration_error_text(row->error), row->text);
}

TEST(test_format)
{
    static const struct {
        int64_t ns;
        const char *text;
    } rows[] = {
        {0, "0"},
        {999999, "0"},
        {NS_PER_MS, "1ms"},
        {250 * NS_PER_MS, "250ms"},
        {NS_PER_S, "1s"},
        {1500 * NS_PER_MS, "1.5s"},
        {10002 * NS_PER_MS, "10.002s"},
        {60010 * NS_PER_MS, "1m10ms"},
        {90 * NS_PER_S, "1m30s"},
        {3600 * NS_PER_S, "1h"},
        {5400 * NS_PER_S, "1h30m"},
        {86400 * NS_PER_S, "1d"},
        {90061 * NS_PER_S + NS_PER_MS, "1d1h1m1.001s"},
        {INT64_C(3155759999) * NS_PER_S, "36524d23h59m59s"},
    };
    char text[DURATION_TEXT_SIZE];
    FOR_ROWS(row, rows)
    {
        struct duration d, whole = {row->ns / NS_PER_MS * NS_PER_MS};
        row_text(row->text, duration_format((struct duration){row->ns}, text, sizeof text),
                 row->text);
        row_int(row->text, duration_parse(text, &d), DURATION_OK);
        row_int(row->text, d.ns, whole.ns);
    }
    row_text("never", duration_format(DURATION_FOREVER, text, sizeof text), "infinity");
    row_text("no room", duration_format(DURATION_S(5400), text, 3), "1h");
}

TEST(test_rounded)
{
    static const struct {
        int64_t ns;
        const char *text;
    } rows[] = {
        {0, "0"},
        {1, "less than 1ms"},
        {NS_PER_MS - 1, "less than 1ms"},
        {NS_PER_MS, "1ms"},
        {999 * NS_PER_MS, "999ms"},
        {NS_PER_S, "1s"},
        {1099 * NS_PER_MS, "1s"},
        {1100 * NS_PER_MS, "1.1s"},
        {9999 * NS_PER_MS, "9.9s"},
        {10002 * NS_PER_MS, "10s"},
        {3558900 * NS_PER_MS, "59m18s"},
        {3600 * NS_PER_S, "1h"},
        {5459 * NS_PER_S, "1h30m"},
        {86399 * NS_PER_S, "23h59m"},
        {(2 * 86400 + 5 * 3600 + 3599) * NS_PER_S, "2d5h"},
    };
    char text[DURATION_TEXT_SIZE];
    FOR_ROWS(row, rows)
    row_text(row->text, duration_rounded((struct duration){row->ns}, text, sizeof text), row->text);
}

TEST(test_deadlines)
{
    static const struct {
        const char *name;
        int64_t at, by, plus, minus;
    } rows[] = {
        {"plain", 100, 7, 107, 93},
        {"nothing", 100, 0, 100, 100},
        {"all of it", 100, 100, 200, 0},
        {"more than there is", 100, 101, 201, 0},
        {"to the end of time", INT64_MAX - 5, 5, INT64_MAX, INT64_MAX - 10},
        {"beyond it", INT64_MAX - 5, 6, INT64_MAX, INT64_MAX - 11},
        {"never", INT64_MAX, 1, INT64_MAX, INT64_MAX},
    };
    FOR_ROWS(row, rows)
    {
        struct deadline at = {row->at};
        row_int(row->name, deadline_plus(at, (struct duration){row->by}).boot_ns, row->plus);
        row_int(row->name, deadline_minus(at, (struct duration){row->by}).boot_ns, row->minus);
    }
}

TEST(test_gaps)
{
    static const struct {
        const char *name;
        int64_t earlier, later, gap;
    } rows[] = {
        {"later", 10, 25, 15},
        {"the same", 10, 10, 0},
        {"the wrong way round", 25, 10, 0},
        {"never", 0, INT64_MAX, INT64_MAX},
    };
    FOR_ROWS(row, rows)
    {
        struct deadline a = {row->earlier}, b = {row->later};
        row_int(row->name, deadline_gap(a, b).ns, row->gap);
        row_int(row->name, deadline_earlier(a, b).boot_ns,
                a.boot_ns < b.boot_ns ? a.boot_ns : b.boot_ns);
        row_int(row->name, deadline_before(a, b), a.boot_ns < b.boot_ns);
    }
    row_int("never", deadline_poll_ms(DEADLINE_NEVER), -1);
    row_int("passed", deadline_poll_ms((struct deadline){1}), 0);
    row_int("passed", deadline_left((struct deadline){1}).ns, 0);
    row_true("passed", deadline_passed((struct deadline){1}));
    row_false("never", deadline_passed(DEADLINE_NEVER));
}

TEST(test_jitter)
{
    static const int64_t rows[] = {0, 1, 2, NS_PER_MS, 3600 * NS_PER_S};
    char name[32];
    FOR_ROWS(row, rows)
    {
        for (int i = 0; i < 50; i++) {
            int64_t some = duration_jittered((struct duration){*row}).ns;
            snprintf(name, sizeof name, "%" PRId64, *row);
            row_true(name, some >= *row / 2 && some <= *row);
        }
    }
}

TEST(test_drain)
{
    struct drain drain = {0};
    int count = 0;
    row_true("the first", drain_goes_on(&drain));
    drain.end = DEADLINE_NEVER; /* the machine may stand still for 10 ms */
    for (count = 1; drain_goes_on(&drain); count++)
        continue;
    row_int("many", count, 64);
    drain = (struct drain){.events = 1, .end = deadline_now()};
    row_false("too late", drain_goes_on(&drain));
    drain = (struct drain){0};
    row_true("the next time", drain_goes_on(&drain));
    row_true("10 ms", deadline_left(drain.end).ns <= 10 * NS_PER_MS);
}

TEST(test_wall)
{
    static const struct {
        int64_t ms;
        const char *text;
    } rows[] = {
        {0, "1970-01-01T00:00:00Z"},
        {INT64_C(1795230000000), "2026-11-21T03:00:00Z"},
        {INT64_C(1795230000999), "2026-11-21T03:00:00Z"},
        {INT64_C(951782400000), "2000-02-29T00:00:00Z"},
        {INT64_MAX, "292278994-08-17T07:12:55Z"},
    };
    char text[40];
    FOR_ROWS(row, rows)
    {
        wall_format(row->ms, text, sizeof text);
        row_text(row->text, text, row->text);
    }
    wall_format(0, text, 5);
    row_text("no room", text, "");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("durations are read as people write them", test_good),
        ENTRY("a wrong duration: which fault it has, and nothing is set", test_bad),
        ENTRY("each fault of a duration has a text with what would be right", test_error_texts),
        ENTRY("a duration is shown in its shortest form, and reads back", test_format),
        ENTRY("what was measured is cut to what a person reads", test_rounded),
        ENTRY("sums of times end at 0 and at never", test_deadlines),
        ENTRY("gaps between times are never negative", test_gaps),
        ENTRY("a jittered pause is half to all of it", test_jitter),
        ENTRY("of a flood 64 events are read at once, or what comes in 10 ms", test_drain),
        ENTRY("the wall clock in ISO 8601, or nothing", test_wall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
