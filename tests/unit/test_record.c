/* Lease records in lock files, and whether a place with a record counts as held. */
#include "unit.h"

#include "store/file/file_int.h"

#define HEAD "dlock 1\n"
#define END "end\n"

static struct record record, again;
static char text[LOCK_RECORD_SIZE];

static struct record a_record(void)
{
    return (struct record){
        .format = 1,
        .key = "dlock:job",
        .token = "tok",
        .mode = MODE_SLOTS,
        .slots = 3,
        .slot = 2,
        .fence = INT64_C(1795230000000000),
        .ttl = DURATION_S(60),
        .expires = {INT64_C(1234567890123)},
        .hold = {INT64_C(1234560000000)},
        .remember = DURATION_S(8640000),
        .holder = {.known = true,
                   .detached = true,
                   .kept = true,
                   .take_id = "take",
                   .shares = true,
                   .since_wall_ms = 1795230000000,
                   .pid = 4711,
                   .pid_start = 99,
                   .pid_space = 4026531836,
                   .host = "host",
                   .boot_id = "id",
                   .user = "bob",
                   .command = "sleep"},
    };
}

static void same(const char *row, const struct record *a, const struct record *b)
{
    row_int(row, a->format, b->format);
    row_text(row, a->key, b->key);
    row_text(row, a->token, b->token);
    row_text(row, a->holder.take_id, b->holder.take_id);
    row_int(row, a->mode, b->mode);
    row_int(row, a->slots, b->slots);
    row_int(row, a->slot, b->slot);
    row_int(row, a->fence, b->fence);
    row_int(row, a->ttl.ns, b->ttl.ns);
    row_int(row, a->expires.boot_ns, b->expires.boot_ns);
    row_int(row, a->hold.boot_ns, b->hold.boot_ns);
    row_int(row, a->remember.ns, b->remember.ns);
    row_int(row, a->holder.detached, b->holder.detached);
    row_int(row, a->holder.kept, b->holder.kept);
    row_int(row, a->holder.shares, b->holder.shares);
    row_int(row, a->holder.since_wall_ms, b->holder.since_wall_ms);
    row_int(row, a->holder.pid, b->holder.pid);
    row_int(row, a->holder.pid_start, b->holder.pid_start);
    row_int(row, a->holder.pid_space, b->holder.pid_space);
    row_text(row, a->holder.host, b->holder.host);
    row_text(row, a->holder.boot_id, b->holder.boot_id);
    row_text(row, a->holder.user, b->holder.user);
    row_text(row, a->holder.command, b->holder.command);
}

TEST(test_round)
{
    static const struct {
        const char *name, *key, *token, *user, *command;
        enum lock_mode mode;
        int slots, slot;
    } rows[] = {
        {"slots", "dlock:job", "tok", "bob", "sleep", MODE_SLOTS, 3, 2},
        {"exclusive", "dlock:job", "tok", "bob", "sleep", MODE_EXCLUSIVE, 0, -1},
        {"shared", "dlock:job", "tok", "bob", "sleep", MODE_SHARED, 0, -1},
        {"spaces and percents", "a b%20", "t%", "b b", "my prog", MODE_EXCLUSIVE, 0, -1},
        {"lines of its own", "a\nend\n", "t", "x\ntoken y", "end\n", MODE_EXCLUSIVE, 0, -1},
        {"not UTF-8", "a\xFF", "t", "\x80", "\x1B[2J", MODE_EXCLUSIVE, 0, -1},
        {"nothing known of the holder", "k", "t", "", "", MODE_EXCLUSIVE, 0, -1},
    };
    FOR_ROWS(row, rows)
    {
        record = a_record();
        snprintf(record.key, sizeof record.key, "%s", row->key);
        snprintf(record.token, sizeof record.token, "%s", row->token);
        snprintf(record.holder.user, sizeof record.holder.user, "%s", row->user);
        snprintf(record.holder.command, sizeof record.holder.command, "%s", row->command);
        record.mode = row->mode;
        record.slots = row->slots;
        record.slot = row->slot;
        record.holder.shares = row->mode != MODE_EXCLUSIVE;
        size_t length = record_format(&record, text);
        row_int(row->name, length, strlen(text));
        row_true(row->name, length > 0 && record_is_whole(text));
        row_true(row->name, record_parse(&again, text));
        row_true(row->name, again.holder.known);
        same(row->name, &again, &record);
    }
}

TEST(test_message)
{
    for (int released = 0; released <= 1; released++) {
        const char *row = released ? "released" : "held";
        record = a_record();
        snprintf(record.holder.message, sizeof record.holder.message, "since midnight");
        if (released)
            record_release(&record, (struct deadline){4711});
        (void)record_format(&record, text);
        row_true(row, record_parse(&again, text));
        row_text(row, again.holder.message, released ? "" : "since midnight");
        row_int(row, again.hold.boot_ns == 4711, released);
    }
}

TEST(test_cut_off)
{
    char name[48];
    record = a_record();
    size_t length = record_format(&record, text);
    for (size_t cut = 0; cut < length; cut++) {
        char kept = text[cut];
        text[cut] = '\0';
        snprintf(name, sizeof name, "cut at byte %zu", cut);
        row_false(name, record_parse(&again, text));
        row_false(name, record_is_whole(text));
        text[cut] = kept;
    }
    snprintf(text + length, sizeof text - length, "what was there before");
    row_true("more behind it", record_parse(&again, text));
    same("more behind it", &again, &record);
}

TEST(test_garbage)
{
    static const struct {
        const char *text;
        bool good;
    } rows[] = {
        {HEAD "token t\n" END, true},
        {HEAD "token t\nslot -1\n" END, true},
        {HEAD "token t\nmode shared\n" END, true},
        {HEAD "token t\nof-a-later-version 1 2 3\n" END, true},
        {HEAD "token t\ntoken u\n" END, true},
        {HEAD "token t\nmode \n" END, true}, /* none: exclusive */
        {HEAD "token t\npid 2147483647\n" END, true},
        {"", false},
        {HEAD, false},
        {HEAD END, false},
        {"dlock 3\ntoken t\n" END, false},
        {"dlock 1 \ntoken t\n" END, false},
        {"dlock 0\ntoken t\n" END, false},
        {"dlock \ntoken t\n" END, false},
        {"dlock 00000000000000000000000000000001\ntoken t\n" END, false},
        {" " HEAD "token t\n" END, false},
        {HEAD "token \n" END, false},
        {HEAD "token\n" END, false},
        {HEAD "\ntoken t\n" END, false},
        {HEAD "token t\n"
              "end",
         false},
        {HEAD "token t\n " END, false},
        {HEAD "token t\nmode strange\n" END, false},
        {HEAD "token t\nfence x\n" END, false},
        {HEAD "token t\nfence \n" END, true}, /* the fence is not known */
        {HEAD "token t\nfence 1 2\n" END, false},
        {HEAD "token t\nfence -2\n" END, false},
        {HEAD "token t\nfence 9223372036854775808\n" END, false},
        {HEAD "token t\nfence 000000000000000000000000001\n" END, true},
        {HEAD "token t\npid 2147483648\n" END, false},
        {HEAD "token t\nslots 2147483648\n" END, false},
        {HEAD "token t\nslot 2147483648\n" END, false},
        {HEAD "token %\n" END, false},
        {HEAD "token %00\n" END, false},
        {HEAD "token t\nboot 0123456789012345678901234567890123456789\n" END, false},
    };
    FOR_ROWS(row, rows)
    {
        row_int(row->text, record_parse(&again, row->text), row->good);
        if (row->good)
            row_int(row->text, again.holder.shares, again.mode != MODE_EXCLUSIVE);
    }
    static const struct {
        const char *text;
        bool newer;
    } formats[] = {
        {HEAD "token t\n" END, false},
        {"dlock 3\ntoken t\n" END, true},
        {"dlock 9223372036854775807\nwhatever", true},
        {"dlock 9223372036854775808\n", false},
        {"dlock 2", false},
        {"dlock two\n", false},
        {"dlocks 2\n", false},
    };
    FOR_ROWS(row, formats)
    {
        (void)record_parse(&again, row->text);
        row_int(row->text, record_is_newer(&again), row->newer);
    }
    row_true("a slot that is not told", record_parse(&again, HEAD "token t\n" END));
    row_int("a slot that is not told", again.slot, -1);
    row_int("no mode", again.mode, MODE_EXCLUSIVE);
}

TEST(test_fill)
{
    static const struct lock_request request = {.key = "k",
                                                .token = "t",
                                                .take_id = "i",
                                                .ttl = {10 * NS_PER_S},
                                                .mode = MODE_SLOTS,
                                                .slots = 5,
                                                .detached = true,
                                                .self = {.known = true, .pid = 7, .host = "h"}};
    static const struct lease lease = {
        .slot = 4, .fence = 9, .ttl = {10 * NS_PER_S}, .taken = {1000}, .hold = {2000}};
    record_fill(&record, &request, &lease);
    row_int("format", record.format, 2);
    row_text("request", record.key, "k");
    row_text("request", record.token, "t");
    row_text("request", record.holder.take_id, "i");
    row_int("request", record.mode, MODE_SLOTS);
    row_int("request", record.slots, 5);
    row_true("request", record.holder.detached);
    row_int("request", record.holder.pid, 7);
    row_int("lease", record.slot, 4);
    row_int("lease", record.fence, 9);
    row_int("lease", record.expires.boot_ns, 1000 + 10 * NS_PER_S);
    row_int("lease", record.hold.boot_ns, 2000);
    row_false("lease", record.holder.kept);
    row_true("now", record.holder.since_wall_ms > 0);
}

TEST(test_longest)
{
    record = a_record();
    unit_repeat(record.key, sizeof record.key, '%', sizeof record.key - 1);
    unit_repeat(record.token, sizeof record.token, '%', sizeof record.token - 1);
    unit_repeat(record.holder.take_id, sizeof record.holder.take_id, '%',
                sizeof record.holder.take_id - 1);
    unit_repeat(record.holder.host, sizeof record.holder.host, '\n', sizeof record.holder.host - 1);
    row_true("the longest of all", record_format(&record, text) > 0);
    row_true("the longest of all", record_parse(&again, text));
    same("the longest of all", &again, &record);
}

TEST(test_place)
{
    enum { PAST = 1, FUTURE = 2 }; /* a deadline that has passed, or has not; 0: none */
    static const struct {
        const char *name;
        enum place_lock locked;
        bool known, unreadable, detached, released;
        int expires, hold;
        bool held;
        int end; /* which of both ends the hold, if it is held: 1 expires, 2 hold */
    } rows[] = {
        {"locked, and a record", PLACE_LOCKED, true, false, false, false, FUTURE, 0, true, 1},
        {"locked, and a lease that is over", PLACE_LOCKED, true, false, false, false, PAST, 0, true,
         1},
        {"all of it locked", PLACE_ALL_LOCKED, true, false, false, false, FUTURE, 0, true, 1},
        {"locked, and no record", PLACE_LOCKED, false, false, false, false, 0, 0, true, 0},
        {"locked, and released from outside", PLACE_LOCKED, true, false, false, true, FUTURE, 0,
         false, 0},
        {"the same, and others are kept out", PLACE_LOCKED, true, false, false, true, FUTURE,
         FUTURE, true, 2},
        {"nobody's", PLACE_UNLOCKED, false, false, false, false, 0, 0, false, 0},
        {"left behind by one that was killed", PLACE_UNLOCKED, true, false, false, false, FUTURE, 0,
         false, 0},
        {"the same, and others are kept out", PLACE_UNLOCKED, true, false, false, false, FUTURE,
         FUTURE, true, 2},
        {"others were kept out", PLACE_UNLOCKED, true, false, false, false, FUTURE, PAST, false, 0},
        {"detached", PLACE_UNLOCKED, true, false, true, false, FUTURE, 0, true, 1},
        {"detached, and over", PLACE_UNLOCKED, true, false, true, false, PAST, 0, false, 0},
        {"detached, and released", PLACE_UNLOCKED, true, false, true, true, FUTURE, 0, false, 0},
        {"detached, over, and others are kept out", PLACE_UNLOCKED, true, false, true, false, PAST,
         FUTURE, true, 2},
        {"it cannot be read", PLACE_UNLOCKED, false, true, false, false, 0, 0, true, 0},
    };
    const struct deadline at[] = {{0}, {1}, deadline_after(DURATION_S(1000))};
    FOR_ROWS(row, rows)
    {
        static struct lock_place place;
        place = (struct lock_place){
            .locked = row->locked, .known = row->known, .unreadable = row->unreadable};
        place.record =
            (struct record){.expires = at[row->expires],
                            .hold = at[row->hold],
                            .holder = {.detached = row->detached, .kept = row->released}};
        row_int(row->name, place_is_held(&place, ""), row->held);
        if (row->held && row->end != 0)
            row_int(row->name, place_end(&place).boot_ns,
                    at[row->end == 1 ? row->expires : row->hold].boot_ns);
    }
}

TEST(test_boot)
{
    static const struct {
        const char *name, *record, *here;
        int64_t days; /* until the deadline */
        bool may_be;
    } rows[] = {
        {"the same id", "b", "b", 1, true},
        {"the same id, and any deadline", "b", "b", 1000, true},
        {"another one", "b", "c", 1, false},
        {"a container's own", "~c", "b", 29, true},
        {"a container's own, here", "b", "~c", 29, true},
        {"two containers'", "~c", "~d", 29, true},
        {"a container's own, and longer than a lease can last", "~c", "b", 31, false},
        {"the record has none", "", "b", 29, true},
        {"this host has none", "b", "", 29, true},
        {"neither has one", "", "", 29, true},
        {"neither, and longer than a lease can last", "", "", 31, false},
        {"neither, and over", "", "", -1, true},
    };
    FOR_ROWS(row, rows)
    {
        record = a_record();
        record.expires = (struct deadline){deadline_now().boot_ns + row->days * 86400 * NS_PER_S};
        snprintf(record.holder.boot_id, sizeof record.holder.boot_id, "%s", row->record);
        row_int(row->name, record_may_be_of(&record, row->here), row->may_be);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("a record is read as it was written", test_round),
        ENTRY("a message is that of a holder, and goes with the release", test_message),
        ENTRY("a record that is cut off anywhere is none", test_cut_off),
        ENTRY("garbage is no record, and what a later version adds is passed over", test_garbage),
        ENTRY("the record of a take", test_fill),
        ENTRY("the longest record has room", test_longest),
        ENTRY("whether a place is held, and until when", test_place),
        ENTRY("whether a record may be of this boot", test_boot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
