/* What a lock remembers of its runs, as stored in the shared table of files. */
#include "unit.h"

#include "store/file/file_int.h"

#include <poll.h>
#include <signal.h>
#include <sys/time.h>

enum { OF_JOB = 4711, OF_OTHER = 4712, SKIPS = 1, WORDS = sizeof(struct run_slot) / 8 };

static struct run_slot slot;
static uint64_t whole_sum;
static struct run_memory memory;
static char key[LOCK_KEY_SIZE];

static const struct run_memory known = {
    .last = {.began_ms = 5000,
             .end = {RUN_SIGNAL, 9, 6000},
             .pid = 12,
             .host = "web3",
             .user = "ann",
             .command = "make\tall\nnow"},
    .success = {.began_ms = 1000,
                .end = {RUN_STATUS, 0, 2500},
                .fence = 1795720510402968,
                .pid = 11,
                .host = "web2",
                .user = "bob",
                .command = "make"},
    .failures = 3,
    .runs = 4,
    .needed_until_ms = 1795720510402,
};

static void begin(void)
{
    memset(&slot, 0, sizeof slot);
    run_slot_write(&slot, OF_JOB, "dlock:job", &known, DURATION_S(60));
}

static bool read_slot(uint64_t hash)
{
    return run_slot_read(&slot, hash, &memory, key);
}

static void same_run(const char *row, const struct run_record *a, const struct run_record *b)
{
    row_int(row, a->began_ms, b->began_ms);
    row_int(row, a->end.how, b->end.how);
    row_int(row, a->end.code, b->end.code);
    row_int(row, a->end.ended_ms, b->end.ended_ms);
    row_int(row, a->pid, b->pid);
    row_text(row, a->host, b->host);
    row_text(row, a->user, b->user);
    row_text(row, a->command, b->command);
}

TEST(what_is_written_is_read)
{
    begin();
    row_true("job", read_slot(OF_JOB));
    row_text("job", key, "dlock:job");
    same_run("last", &memory.last, &known.last);
    same_run("success", &memory.success, &known.success);
    row_int("success", memory.success.fence, known.success.fence);
    row_int("job", memory.failures, 3);
    row_int("job", memory.runs, 4);
    row_int("job", memory.needed_until_ms, known.needed_until_ms);
    row_int("job", memory.skipped, 0);
}

TEST(an_empty_slot_and_another_keys_have_nothing)
{
    memset(&slot, 0, sizeof slot);
    row_false("empty", read_slot(OF_JOB));
    row_false("none", run_slot_read(NULL, OF_JOB, &memory, key));
    begin();
    row_false("other", read_slot(OF_OTHER));
    row_int("other", memory.last.end.how, RUN_NONE);
    run_slot_write(&slot, OF_JOB, "dlock:job", &known, DURATION_ZERO);
    row_false("emptied", read_slot(OF_JOB));
}

TEST(what_is_over_is_forgotten)
{
    begin();
    run_slot_write(&slot, OF_JOB, "dlock:job", &known, DURATION_MS(1));
    (void)poll(NULL, 0, 5);
    row_false("over", read_slot(OF_JOB));
}

TEST(a_torn_slot_has_nothing)
{
    for (size_t i = 0; i < WORDS; i++) {
        char row[32];
        snprintf(row, sizeof row, "word %zu", i);
        begin();
        ((unsigned char *)&slot)[8 * i + 1] ^= 1;
        row_int(row, read_slot(OF_JOB), i == SKIPS);
        row_int(row, memory.last.end.how, i == SKIPS ? RUN_SIGNAL : RUN_NONE);
    }
}

/* Completes the slot a moment later, as the process that writes it would. */
static void write_sum(int number)
{
    (void)number;
    slot.sum = whole_sum;
}

TEST(a_slot_that_is_being_written_is_read_a_moment_later)
{
    static const struct itimerval moment = {.it_value = {.tv_usec = 200}};
    begin();
    whole_sum = slot.sum;
    slot.sum = 0;
    signal(SIGALRM, write_sum);
    row_int("timer", setitimer(ITIMER_REAL, &moment, NULL), 0);
    row_true("a moment later", read_slot(OF_JOB));
}

TEST(nothing_is_written_behind_a_slot)
{
    static struct run_slot two[2];
    memset(two, 0x5a, sizeof two);
    two[1].sum = 4711;
    run_slot_write(two, OF_JOB, "dlock:job", &known, DURATION_S(60));
    row_int("the next slot", (int64_t)two[1].sum, 4711);
    run_slot_write(two, OF_JOB, "dlock:job", &known, DURATION_ZERO);
    for (size_t i = 0; i < sizeof *two; i++)
        row_int("emptied", ((unsigned char *)two)[i], 0);
}

TEST(skips_are_counted_until_a_success)
{
    struct run_memory next;
    memset(&slot, 0, sizeof slot);
    run_slot_skipped(&slot, OF_JOB);
    row_false("before any run", read_slot(OF_JOB));
    row_int("before any run", memory.skipped, 1);
    next = known;
    next.skipped = memory.skipped;
    run_slot_write(&slot, OF_JOB, "dlock:job", &next, DURATION_S(60));
    run_slot_skipped(&slot, OF_JOB);
    run_slot_skipped(&slot, OF_OTHER);
    row_true("after a failure", read_slot(OF_JOB));
    row_int("after a failure", memory.skipped, 2);
    run_memory_add(&memory, &known.success);
    run_slot_write(&slot, OF_JOB, "dlock:job", &memory, DURATION_S(60));
    row_true("after a success", read_slot(OF_JOB));
    row_int("after a success", memory.skipped, 0);
    row_int("after a success", memory.runs, 0);
}

TEST(long_text_is_cut_and_a_key_that_does_not_fit_is_left_out)
{
    struct run_memory wide = known;
    static char name[LOCK_KEY_SIZE];
    memset(wide.last.host, 'h', sizeof wide.last.host - 1);
    memset(wide.last.user, 'u', sizeof wide.last.user - 1);
    memset(wide.last.command, 'c', sizeof wide.last.command - 1);
    wide.last.began_ms = wide.last.end.ended_ms = INT64_MAX;
    wide.success = wide.last;
    for (size_t length = 1; length < sizeof name; length++) {
        memset(name, 'n', length);
        memset(&slot, 0, sizeof slot);
        run_slot_write(&slot, OF_JOB, name, &wide, DURATION_S(60));
        row_true("wide", read_slot(OF_JOB));
        row_text("wide", key, length < 400 || *key != '\0' ? name : "");
        row_int("wide", strlen(memory.success.host), 64);
        row_int("wide", strlen(memory.last.command), 96);
        row_int("wide", memory.success.began_ms, INT64_MAX / NS_PER_MS); /* clamped() */
    }
    row_text("the longest", key, "");
    /* A line end takes more bytes when encoded. */
    memset(wide.last.user, '\n', sizeof wide.last.user - 1);
    memset(wide.last.command, '\n', sizeof wide.last.command - 1);
    run_slot_write(&slot, OF_JOB, "dlock:job", &wide, DURATION_S(60));
    row_true("line ends", read_slot(OF_JOB));
    row_int("line ends", strlen(memory.last.host), 64);
    row_text("line ends", memory.last.command, "");
}

/* The text ends with the slot's last byte. */
TEST(a_key_that_just_fits_is_kept)
{
    static char name[LOCK_KEY_SIZE];
    const char *end = (const char *)(&slot + 1);
    for (size_t length = 1; length < sizeof name; length++) {
        memset(name, 'n', length);
        memset(&slot, 0, sizeof slot);
        run_slot_write(&slot, OF_JOB, name, &known, DURATION_S(60));
        if (end[-2] != '\0') {
            row_true("it fits", read_slot(OF_JOB));
            row_text("it fits", key, name);
            name[length] = 'n';
            run_slot_write(&slot, OF_JOB, name, &known, DURATION_S(60));
            row_true("one more", read_slot(OF_JOB));
            row_text("one more", key, "");
            return;
        }
    }
    row_true("a key fills the slot", false);
}

/* --- histories ------------------------------------------------------------- */

static struct history_slot past;
static uint64_t whole_history_sum;
static const char rows[HISTORY_SIZE] = "5000\t7000\tstatus 0\t60000\tweb3\n";
static char history[HISTORY_SIZE];

TEST(a_history_is_read_as_written)
{
    memset(&past, 0, sizeof past);
    history_slot_read(&past, OF_JOB, history);
    row_text("empty", history, "");
    history_slot_read(NULL, OF_JOB, history);
    row_text("none", history, "");
    history_slot_write(NULL, OF_JOB, rows);
    history_slot_write(&past, OF_JOB, rows);
    history_slot_read(&past, OF_JOB, history);
    row_text("job", history, rows);
    history_slot_read(&past, OF_OTHER, history);
    row_text("another key's", history, "");
    history_slot_write(&past, OF_JOB, (const char[HISTORY_SIZE]){""});
    history_slot_read(&past, OF_JOB, history);
    row_text("emptied", history, "");
}

TEST(a_torn_history_is_none)
{
    for (size_t at = 0; at < offsetof(struct history_slot, text) + HISTORY_SIZE; at += 496) {
        memset(&past, 0, sizeof past);
        history_slot_write(&past, OF_JOB, rows);
        ((unsigned char *)&past)[at] ^= 1;
        history_slot_read(&past, OF_JOB, history);
        row_text("one wrong bit", history, "");
    }
}

static void write_history_sum(int number)
{
    (void)number;
    past.sum = whole_history_sum;
}

TEST(a_history_that_is_being_written_is_read_a_moment_later)
{
    static const struct itimerval moment = {.it_value = {.tv_usec = 200}};
    history_slot_write(&past, OF_JOB, rows);
    whole_history_sum = past.sum;
    past.sum = 1;
    signal(SIGALRM, write_history_sum);
    row_int("timer", setitimer(ITIMER_REAL, &moment, NULL), 0);
    history_slot_read(&past, OF_JOB, history);
    row_text("a moment later", history, rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ENTRY("what is written is read", what_is_written_is_read),
        ENTRY("an empty slot, and another key's, have nothing",
              an_empty_slot_and_another_keys_have_nothing),
        ENTRY("what is over is forgotten", what_is_over_is_forgotten),
        ENTRY("a torn slot has nothing", a_torn_slot_has_nothing),
        ENTRY("a slot that is being written is read a moment later",
              a_slot_that_is_being_written_is_read_a_moment_later),
        ENTRY("nothing is written behind a slot", nothing_is_written_behind_a_slot),
        ENTRY("skips are counted until a success", skips_are_counted_until_a_success),
        ENTRY("long text is cut, and a key that does not fit is left out",
              long_text_is_cut_and_a_key_that_does_not_fit_is_left_out),
        ENTRY("a key that just fits is kept", a_key_that_just_fits_is_kept),
        ENTRY("a history is read as it was written, by its own key", a_history_is_read_as_written),
        ENTRY("a torn history is none", a_torn_history_is_none),
        ENTRY("a history that is being written is read a moment later",
              a_history_that_is_being_written_is_read_a_moment_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
