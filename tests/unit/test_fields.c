/* The codec of records: a struct is read as it was written, in lines and in rows, and text that is
 * no record is refused. */
#include "lock/fields.h"
#include "lock/lock_state.h"

#include "unit.h"

#include <stdlib.h>

static struct holder a_holder(void)
{
    return (struct holder){
        .take_id = "take",
        .since_wall_ms = 1795230000000,
        .kept = true,
        .detached = true,
        .host = "host",
        .boot_id = "id",
        .pid = 4711,
        .pid_start = 99,
        .pid_space = 4026531836,
        .user = "bob",
        .command = "my\tprog 100%\nend\n",
        .message = "\x80 why",
    };
}

static void same(const char *row, const struct holder *a, const struct holder *b)
{
    row_text(row, a->take_id, b->take_id);
    row_int(row, a->since_wall_ms, b->since_wall_ms);
    row_int(row, a->kept, b->kept);
    row_int(row, a->detached, b->detached);
    row_text(row, a->host, b->host);
    row_text(row, a->boot_id, b->boot_id);
    row_int(row, a->pid, b->pid);
    row_int(row, a->pid_start, b->pid_start);
    row_int(row, a->pid_space, b->pid_space);
    row_text(row, a->user, b->user);
    row_text(row, a->command, b->command);
    row_text(row, a->message, b->message);
}

TEST(lines_are_read_as_written)
{
    const struct holder whole = a_holder(), empty = {.host = ""};
    struct holder again;
    char text[1024];
    size_t used = fields_write(&holder_fields, &whole, text, 0, sizeof text);
    row_int("all fields", used, strlen(text));
    row_text(
        "all fields", text,
        "take take\nsince 1795230000000\nreleased 1\ndetached 1\nhost host\nboot id\npid 4711\n"
        "start 99\npid_space 4026531836\nuser bob\ncommand my%09prog 100%25%0Aend%0A\n"
        "message \x80 why\n");
    row_true("all fields", fields_read(&holder_fields, &again, text));
    same("all fields", &again, &whole);
    row_int("no field", fields_write(&holder_fields, &empty, text, 0, sizeof text), 0);
    row_true("no field", fields_read(&holder_fields, &again, ""));
    same("no field", &again, &empty);
}

TEST(two_tables_share_a_text)
{
    const struct holder holder = a_holder();
    const struct lock_owner owner = {.fence = 7, .slot = 0, .ttl = DURATION_S(60)};
    struct lock_owner again;
    char text[1024];
    size_t used = fields_write(&holder_fields, &holder, text, 0, sizeof text);
    used = fields_write(&owner_fields, &owner, text, used, sizeof text);
    row_int("both", used, strlen(text));
    row_true("both", fields_read(&holder_fields, &again.holder, text));
    row_true("both", fields_read(&owner_fields, &again, text));
    same("both", &again.holder, &holder);
    row_int("both", again.fence, 7);
    row_int("both", again.slot, 0);
    row_int("both", again.ttl.ns, 60 * NS_PER_S);
}

TEST(too_little_room_is_reported)
{
    const struct holder holder = a_holder();
    char whole[1024], text[1024];
    size_t needed = fields_write(&holder_fields, &holder, whole, 0, sizeof whole);
    for (size_t size = 0; size <= needed; size++) {
        memset(text, 'x', sizeof text);
        row_int("lines", fields_write(&holder_fields, &holder, text, 0, size), needed);
        row_int("beyond the room", text[size], 'x');
    }
}

TEST(cut_lines_are_none)
{
    const struct holder holder = a_holder();
    struct holder again;
    char text[1024];
    size_t used = fields_write(&holder_fields, &holder, text, 0, sizeof text);
    while (used-- > 0) {
        bool whole_lines = used == 0 || text[used - 1] == '\n';
        text[used] = '\0';
        row_int(text, fields_read(&holder_fields, &again, text), whole_lines);
    }
}

TEST(lines_that_are_read)
{
    static const struct {
        const char *text;
        bool good;
        int64_t fence;
        int slot;
    } rows[] = {
        {"", true, 0, -1},
        {"fence 5\n", true, 5, -1},
        {"fence 5\nfence 6\n", true, 6, -1},
        {"fence 5\nfence \n", true, 0, -1},
        {"later 1\nfence 5\nfences 6\nfenc 7\n", true, 5, -1},
        {"slot 2\nend\nfence 5\nwhatever", true, 0, 2},
        {"slot -1\n", true, 0, -1},
        {"slot -2\n", false, 0, -1},
        {"slot 2147483647\n", true, 0, 2147483647},
        {"slot 2147483648\n", false, 0, -1},
        {"fence -1\n", false, 0, -1},
        {"fence x\n", false, 0, -1},
        {"fence 5", false, 0, -1},
        {"fence\n", false, 0, -1},
        {"fence 5\n\n", false, 5, -1},
        {"fence %35\n", true, 5, -1},
        {"fence %3\n", false, 0, -1},
        {"fence %00\n", false, 0, -1},
    };
    FOR_ROWS(row, rows)
    {
        struct lock_owner owner = {.fence = 77, .slot = 77};
        row_int(row->text, fields_read(&owner_fields, &owner, row->text), row->good);
        row_int(row->text, owner.fence, row->fence);
        row_int(row->text, owner.slot, row->slot);
    }
}

TEST(a_text_that_does_not_fit_is_none)
{
    char text[512];
    struct holder holder;
    snprintf(text, sizeof text, "host %0255d\n", 0);
    row_true("255 bytes", fields_read(&holder_fields, &holder, text));
    snprintf(text, sizeof text, "host %0256d\n", 0);
    row_false("256 bytes", fields_read(&holder_fields, &holder, text));
}

static const struct run_record a_run = {
    .began_ms = 1000,
    .end = {RUN_STATUS, 7, 2500},
    .pid = 12,
    .host = "web3",
    .user = "ann",
    .command = "make\tall  it",
};

TEST(a_row_is_read_as_written)
{
    static const char wanted[] = "1000\t2500\tstatus 7\t12\tann\tweb3\tmake%09all  it";
    struct run_record run = {0};
    char text[RUN_TEXT_SIZE];
    row_int("a run", fields_write_row(&run_fields, &a_run, text, sizeof text), strlen(wanted));
    row_text("a run", text, wanted);
    row_true("a run", fields_read_row(&run_fields, &run, text));
    row_int("a run", memcmp(&run, &a_run, sizeof run), 0);
    for (size_t size = 0; size < strlen(wanted); size++)
        row_int("too little room", fields_write_row(&run_fields, &a_run, text, size),
                strlen(wanted));
}

TEST(what_is_no_row_is_none)
{
    static const char *const texts[] = {
        "",
        "1000",
        "1000\t2500\tstatus 7\t12\tann\tweb3",
        "x\t2500\tstatus 7\t12\tann\tweb3\tmake",
        "-1\t2500\tstatus 7\t12\tann\tweb3\tmake",
        "1000\t2500\tstatus 7\t2147483648\tann\tweb3\tmake",
        "1000\t2500\tstatus 256\t12\tann\tweb3\tmake",
        "1000\t2500\twhat\t12\tann\tweb3\tmake",
        "1000\t2500\tstatus 7\t12\tann\tweb3\tmake%",
    };
    FOR_ROWS(text, texts)
    {
        struct run_record run = a_run;
        row_false(*text, fields_read_row(&run_fields, &run, *text));
        row_int(*text, run.end.how, RUN_NONE);
        row_text(*text, run.host, "");
    }
}

TEST(rows_that_are_read)
{
    struct run_record run;
    row_true("the least", fields_read_row(&run_fields, &run, "0\t\tlost\t\t\t\t"));
    row_int("the least", run.end.how, RUN_LOST);
    row_int("the least", run.end.ended_ms, 0);
    row_true("beyond all clocks",
             fields_read_row(&run_fields, &run, "0\t9223372036854775807\tstatus 0\t0\ta\tw\tm"));
    row_int("beyond all clocks", run.end.ended_ms, INT64_MAX / NS_PER_MS);
    row_true("a tab in the last value",
             fields_read_row(&run_fields, &run, "0\t0\tstatus 0\t0\ta\tw\tmake\tall"));
    row_text("a tab in the last value", run.command, "make\tall");
}

TEST(json_has_the_known_members)
{
    static const struct run_record unknown = {.host = ""};
    static const struct past_run past = {1000, 1500, 60000, {RUN_SIGNAL, 9, 0}, "web3"},
                                 lost = {1000, -1, 0, {RUN_LOST, 0, 0}, ""};
    static const struct lock_counts counts = {.takes = 2, .held_ms = 1500};
    static const struct {
        const char *name;
        const struct fields *fields;
        const void *object;
        const char *wanted;
    } rows[] = {
        {"a run", &run_fields, &a_run,
         "{\"began_at\":\"1970-01-01T00:00:01Z\",\"ended_at\":\"1970-01-01T00:00:02Z\","
         "\"outcome\":\"exited\",\"status\":7,\"signal\":null,\"pid\":12,\"user\":\"ann\","
         "\"host\":\"web3\",\"command\":\"make\\u0009all  it\"}\n"},
        {"no run", &run_fields, &unknown,
         "{\"began_at\":null,\"ended_at\":null,\"outcome\":null,\"status\":null,\"signal\":null,"
         "\"pid\":null,\"user\":null,\"host\":null,\"command\":null}\n"},
        {"a past run", &past_fields, &past,
         "{\"began_at\":\"1970-01-01T00:00:01Z\",\"duration\":1.500,\"outcome\":\"signal\","
         "\"status\":null,\"signal\":9,\"ttl\":60.000,\"host\":\"web3\"}\n"},
        {"a lost run", &past_fields, &lost,
         "{\"began_at\":\"1970-01-01T00:00:01Z\",\"duration\":null,\"outcome\":\"lost\","
         "\"status\":null,\"signal\":null,\"ttl\":null,\"host\":null}\n"},
        {"counts", &counts_fields, &counts,
         "{\"takes\":2,\"conflicts\":0,\"timeouts\":0,\"losses\":0,\"waited\":0.000,\"held\":1.500}"
         "\n"},
    };
    FOR_ROWS(row, rows)
    {
        char *text = NULL;
        size_t length;
        FILE *file = open_memstream(&text, &length);
        assert_non_null(file);
        struct json json = json_line_begin(file);
        fields_json(row->fields, row->object, &json);
        json_line_end(&json);
        fclose(file);
        row_text(row->name, text, row->wanted);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ENTRY("lines are read as they were written", lines_are_read_as_written),
        ENTRY("two tables can share one text", two_tables_share_a_text),
        ENTRY("too little room is reported, and nothing is written beyond",
              too_little_room_is_reported),
        ENTRY("lines that were cut off are none", cut_lines_are_none),
        ENTRY("unknown lines are skipped, and wrong values refused", lines_that_are_read),
        ENTRY("a text that does not fit is none", a_text_that_does_not_fit_is_none),
        ENTRY("a row is read as it was written", a_row_is_read_as_written),
        ENTRY("what is no row is none", what_is_no_row_is_none),
        ENTRY("a row may have empty values, and tabs in the last one", rows_that_are_read),
        ENTRY("JSON has the members that a table names", json_has_the_known_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
