/* Which requests a lock file admits beside its holders: modes, slots, owner tokens; and which of its
 * leases is a token's. */
#include "unit.h"

#include "lock/format.h"
#include "store/file/file_int.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct bound unbounded = {{INT64_MAX}, -1};

enum { E = MODE_EXCLUSIVE, S = MODE_SHARED, N = MODE_SLOTS };

/* A lock as a survey finds it, and a request for the lock. */
static const struct {
    const char *name;
    int held, mode, slots; /* mode -1: a record that cannot be read */
    int free_place;
    bool same_token;
    int asked, asked_slots;
    bool admits, has_room, conflicts;
} cases[] = {
    {"free: exclusive", 0, 0, 0, 0, false, E, 0, true, true, false},
    {"free: shared", 0, 0, 0, 0, false, S, 0, true, true, false},
    {"free: slots", 0, 0, 0, 0, false, N, 3, true, true, false},
    {"exclusive and exclusive", 1, E, 0, 1, false, E, 0, false, false, false},
    {"exclusive and shared", 1, E, 0, 1, false, S, 0, false, false, false},
    {"exclusive and slots", 1, E, 0, 1, false, N, 3, false, false, false},
    {"shared and exclusive", 1, S, 0, 1, false, E, 0, false, false, true},
    {"shared and shared", 1, S, 0, 1, false, S, 0, true, true, false},
    {"shared by many", 1000, S, 0, 1000, false, S, 0, true, true, false},
    {"shared by as many as there are places", LOCK_PLACES_MOST, S, 0, LOCK_PLACES_MOST, false, S, 0,
     false, false, false},
    {"shared and slots", 1, S, 0, 1, false, N, 3, false, false, true},
    {"slots and exclusive", 1, N, 3, 1, false, E, 0, false, false, true},
    {"slots and shared", 1, N, 3, 1, false, S, 0, false, false, true},
    {"slots, one of them is free", 2, N, 3, 2, false, N, 3, true, true, false},
    {"slots, the first of them is free", 2, N, 3, 0, false, N, 3, true, true, false},
    {"slots, none of them is free", 3, N, 3, 3, false, N, 3, false, false, false},
    {"more slots than there are", 2, N, 3, 2, false, N, 5, false, false, true},
    {"fewer slots than there are", 1, N, 3, 1, false, N, 2, false, false, true},
    {"one slot, and it is free", 0, 0, 0, 0, false, N, 1, true, true, false},
    {"one slot, and it is held", 1, N, 1, 1, false, N, 1, false, false, false},
    {"a holder that is not known, and exclusive", 1, -1, 0, 1, false, E, 0, false, false, false},
    {"a holder that is not known, and shared", 1, -1, 0, 1, false, S, 0, false, false, false},
    {"a holder that is not known, and slots", 1, -1, 0, 1, false, N, 3, false, false, false},
    {"shared with the same owner token", 1, S, 0, 1, true, S, 0, false, true, false},
    {"a slot with the same owner token", 1, N, 3, 1, true, N, 3, false, true, false},
};

TEST(test_rules)
{
    FOR_ROWS(row, cases)
    {
        static struct survey survey;
        struct lock_request request = {.mode = (enum lock_mode)row->asked,
                                       .slots = row->asked_slots};
        survey = (struct survey){
            .held = row->held, .free_place = row->free_place, .same_token = row->same_token};
        survey.first.known = survey.last.known = row->held > 0 && row->mode >= 0;
        survey.first.record.mode = survey.last.record.mode =
            row->mode >= 0 ? (enum lock_mode)row->mode : MODE_EXCLUSIVE;
        survey.first.record.format = STORE_FORMAT;
        survey.first.record.slots = survey.last.record.slots = row->slots;
        row_int(row->name, survey_admits(&survey, &request), row->admits);
        row_int(row->name, survey_has_room(&survey, request.mode, request.slots), row->has_room);
        row_int(row->name, survey_conflicts(&survey, request.mode, request.slots), row->conflicts);
    }
}

static struct store store;

/* Surveys the file on the boot with this id. */
static void look_as(const char *boot_id, const struct lock_file *file, const char *token, int own,
                    struct survey *survey)
{
    snprintf(store.boot_id, sizeof store.boot_id, "%s", boot_id);
    store_survey(&store, file, token, own, unbounded, survey);
}

/* A lock file in memory. Its holders need no process, because their leases are detached. */
static struct lock_file a_file(void)
{
    struct lock_file file = {
        .path = "memory", .text = store.text, .fd = memfd_create("lock", MFD_CLOEXEC)};
    assert_true(file.fd >= 0);
    return file;
}

/* What put() writes in addition. */
static bool released;
static int format = STORE_FORMAT;

static void put(struct lock_file *file, int place, const char *token, int mode, int seconds)
{
    static struct record record;
    struct errmsg why;
    record = (struct record){.format = format,
                             .key = "k",
                             .mode = (enum lock_mode)mode,
                             .slots = mode == N ? 5 : 0,
                             .slot = place,
                             .expires = deadline_after(DURATION_S(seconds)),
                             .hold = deadline_after(DURATION_S(released ? seconds : 0)),
                             .holder = {.known = true,
                                        .detached = true,
                                        .kept = released,
                                        .boot_id = "boot",
                                        .pid = 100 + place}};
    snprintf(record.token, sizeof record.token, "%s", token);
    assert_int_equal(lock_file_write(file, place, &record, &why), LOCK_OK);
    file->size = lseek(file->fd, 0, SEEK_END);
}

TEST(test_survey)
{
    static const struct {
        const char *name;
        int places
            [4]; /* how many seconds the lease of each has left; 0: it has ended; -1: no lease */
        int own;
        const char *token; /* that of place N is "N" */
        int held, first, last, free_place;
        bool same_token;
    } rows[] = {
        {"nobody", {-1, -1, -1, -1}, -1, "x", 0, -1, -1, 0, false},
        {"one", {50, -1, -1, -1}, -1, "x", 1, 0, 0, 1, false},
        {"three: whose lease ends first, and last", {50, 20, 90, -1}, -1, "x", 3, 1, 2, 3, false},
        {"the lowest that is free", {50, 0, 90, -1}, -1, "x", 2, 0, 2, 1, false},
        {"the first is over", {0, 20, -1, -1}, -1, "x", 1, 1, 1, 0, false},
        {"all are over", {0, 0, 0, -1}, -1, "x", 0, -1, -1, 0, false},
        {"the own place counts as free", {50, 20, 90, -1}, 1, "x", 2, 0, 2, 1, false},
        {"only the own place", {50, -1, -1, -1}, 0, "x", 0, -1, -1, 0, false},
        {"one with this token", {50, 20, -1, -1}, -1, "1", 2, 1, 0, 2, true},
        {"with this token, and over", {50, 0, -1, -1}, -1, "1", 1, 0, 0, 1, false},
        {"with this token, in the own place", {50, 20, -1, -1}, 1, "1", 1, 0, 0, 1, false},
    };
    FOR_ROWS(row, rows)
    {
        static struct survey survey;
        char token[2] = "0";
        struct lock_file file = a_file();
        for (int place = 0; place < 4 && row->places[place] >= 0; place++) {
            token[0] = (char)('0' + place);
            put(&file, place, token, N, row->places[place]);
        }
        look_as("boot", &file, row->token, row->own, &survey);
        row_int(row->name, survey.held, row->held);
        row_int(row->name, survey.free_place, row->free_place);
        row_int(row->name, survey.same_token, row->same_token);
        row_false(row->name, survey.unreadable);
        if (row->held > 0) {
            row_int(row->name, survey.first.number, row->first);
            row_int(row->name, survey.last.number, row->last);
        }
        look_as("another boot", &file, row->token, row->own, &survey);
        row_int(row->name, survey.held, 0);
        close(file.fd);
    }
}

/* A token that has two places, each with the record of a detached lease. */
TEST(test_search)
{
    static const struct {
        const char *name;
        int seconds[2]; /* how many seconds each lease has left; 0: it has ended */
        int fences[2];
        bool released[2];
        enum lock_result result;
        int place;
    } rows[] = {
        {"held, and an earlier one", {50, 0}, {2, 1}, {false, true}, LOCK_OK, 0},
        {"an earlier one, and held", {0, 50}, {1, 2}, {true, false}, LOCK_OK, 1},
        {"held, whatever the fences", {0, 50}, {2, 1}, {true, false}, LOCK_OK, 1},
        {"the last one was released", {0, 0}, {1, 2}, {false, true}, LOCK_RELEASED, 1},
        {"the last one has ended", {0, 0}, {1, 2}, {true, false}, LOCK_GONE, 1},
        {"the last one comes first", {0, 0}, {2, 1}, {true, false}, LOCK_RELEASED, 0},
    };
    static const struct lease lease = {.token = "me", .take_id = ""};
    FOR_ROWS(row, rows)
    {
        static struct lease_search search;
        static struct lock_place place;

        search = (struct lease_search){.result = LOCK_GONE};
        for (int i = 0; i < 2; i++) {
            place = (struct lock_place){.number = i, .known = true};
            place.record = (struct record){
                .format = STORE_FORMAT,
                .token = "me",
                .fence = row->fences[i],
                .expires = deadline_after(DURATION_S(row->seconds[i])),
                .holder = {.detached = true, .kept = row->released[i], .boot_id = "boot"}};
            search_add(&search, &place, &lease, "boot");
        }
        row_int(row->name, search.result, row->result);
        row_int(row->name, search.place.number, row->place);
    }
}

/* The clock is looked at before place 63 is. */
TEST(test_no_time_to_look)
{
    static struct survey survey;
    const struct bound over = {deadline_now(), -1};
    struct lock_file file = a_file();

    put(&file, 63, "own", S, 50);
    look_as("boot", &file, "x", 63, &survey);
    assert_int_equal(survey.held, 0);
    put(&file, 64, "other", S, 50);
    store_survey(&store, &file, "x", 63, over, &survey);
    assert_true(survey.unreadable);
    assert_int_equal(survey.held, 1);
    assert_false(store_unheld(&store, &file, 63, over));
    close(file.fd);
}

/* Writes the record of a pause, or other bytes at its place. */
static void put_pause(struct lock_file *file, int64_t seconds, const char *bytes)
{
    static struct record record;
    struct errmsg why;
    record = (struct record){.format = STORE_FORMAT,
                             .key = "k",
                             .token = "pause",
                             .expires = deadline_after(DURATION_S(seconds)),
                             .holder = {.known = true,
                                        .detached = true,
                                        .boot_id = "boot",
                                        .user = "me",
                                        .host = "here",
                                        .message = "why"}};
    assert_int_equal(lock_file_write(file, LOCK_FILE_PAUSE, &record, &why), LOCK_OK);
    if (bytes != NULL)
        assert_int_equal(pwrite(file->fd, bytes, strlen(bytes), LOCK_PAUSE_OFFSET), strlen(bytes));
    file->size = lseek(file->fd, 0, SEEK_END);
}

TEST(test_pause)
{
    static const struct {
        const char *name;
        int seconds; /* -1: there is no record of a pause */
        const char *bytes, *boot;
        int least, most; /* what is left of it, s */
        const char *by, *message;
        int newer;
    } rows[] = {
        {"none", -1, NULL, "boot", 0, 0, "", "", 0},
        {"one", 100, NULL, "boot", 90, 100, "me@here", "why", 0},
        {"one that is over", 0, NULL, "boot", 0, 0, "", "", 0},
        {"one before a reboot", 100, NULL, "another", 0, 0, "", "", 0},
        {"another program's text", 100, "shell", "boot", 0, 0, "", "", 0},
        {"nothing", 100, "\n", "boot", 0, 0, "", "", 0},
        {"torn", 100, "dlock x", "boot", 1, 1, "unknown", "the record cannot be read", 0},
        {"of a newer format", 100, "dlock 7\n", "boot", 0, 1, NULL, NULL, 7},
    };
    FOR_ROWS(row, rows)
    {
        static struct survey survey;
        struct lock_file file = a_file();
        put(&file, 0, "0", N, 50);
        if (row->seconds >= 0)
            put_pause(&file, row->seconds, row->bytes);
        look_as(row->boot, &file, "x", -1, &survey);
        row_true(row->name, survey.pause.left.ns >= row->least * NS_PER_S &&
                                survey.pause.left.ns <= row->most * NS_PER_S);
        if (row->by != NULL)
            row_text(row->name, survey.pause.by, row->by);
        if (row->message != NULL)
            row_text(row->name, survey.pause.message, row->message);
        row_int(row->name, survey.newer, row->newer);
        close(file.fd);
    }
}

TEST(test_told_holder)
{
    struct lock_file file = a_file();
    struct lock_request shared = {.mode = MODE_SHARED}, slots = {.mode = MODE_SLOTS, .slots = 5};
    static struct survey survey;
    struct holder holder;
    snprintf(shared.self.boot_id, sizeof shared.self.boot_id, "boot");
    slots.self = shared.self;
    look_as("boot", &file, "x", -1, &survey);
    survey_holder(&survey, &slots, &holder);
    row_false("nobody", holder.known);
    row_int("nobody: not known how many come first", holder.ahead, -1);
    put(&file, 0, "a", N, 50);
    put(&file, 1, "b", N, 20);
    put(&file, 2, "c", N, 90);
    look_as("boot", &file, "x", -1, &survey);
    survey_holder(&survey, &slots, &holder);
    row_int("in the same mode: the one that ends first", holder.pid, 101);
    row_true("in the same mode: the one that ends first",
             holder.left.ns > 10 * NS_PER_S && holder.left.ns <= 20 * NS_PER_S);
    row_true("of this boot", holder.expires);
    row_true("a detached one", holder.detached && !holder.kept);
    row_int("how many come first", holder.ahead, -1);
    survey_holder(&survey, &shared, &holder);
    row_int("in another mode: the one that ends last", holder.pid, 102);
    row_int("how many slots are taken", holder.slots_taken, 3);
    row_int("of how many", holder.slots, 5);
    close(file.fd);
    file = a_file();
    put(&file, 0, "a", S, 50);
    look_as("boot", &file, "x", -1, &survey);
    survey_holder(&survey, &shared, &holder);
    row_int("shared: none", holder.slots, 0);
    close(file.fd);
    file = a_file();
    released = true;
    put(&file, 0, "a", S, 50);
    released = false;
    look_as("boot", &file, "x", -1, &survey);
    survey_holder(&survey, &shared, &holder);
    row_true("one that has released it, and has kept it for --hold-at-least", holder.kept);
    close(file.fd);
    file = a_file();
    put(&file, 0, "a", S, 50);
    format = 7;
    put(&file, 1, "b", S, 50);
    format = STORE_FORMAT;
    look_as("boot", &file, "x", -1, &survey);
    row_int("one of a newer format", survey.newer, 7);
    close(file.fd);
}

TEST(test_turns)
{
    enum { KNOWN = 7 }; /* the ticket that the word names */
    static const struct {
        const char *name;
        int place, head; /* the ticket's number */
        bool lost, known_room, room;
        int head_mode, next_mode, seconds;
        bool marked;
        enum turn_step step;
    } rows[] = {
        {"its turn lasts", 0, KNOWN, false, true, true, E, E, 1, false, TURN_LASTS},
        {"its turn is over", 0, KNOWN, false, true, true, E, E, 2, false, TURN_IS_OVER},
        {"a mark of the head's own does not count", 0, KNOWN, false, true, true, E, E, 2, true,
         TURN_IS_OVER},
        {"there is no room: it keeps others out for as long", 0, KNOWN, false, false, false, E, E,
         1, false, TURN_LASTS},
        {"there is room now", 0, KNOWN, false, false, true, E, E, 9, false, TURN_BEGINS},
        {"there is none any more", 0, KNOWN, false, true, false, E, E, 9, false, TURN_BEGINS},
        {"the one before it has lost its turn", 0, KNOWN + 1, true, false, true, E, E, 0, false,
         TURN_BEGINS},
        {"the one before it has left", 0, KNOWN + 1, false, true, true, E, E, 9, false,
         TURN_BEGINS},
        {"the second: not yet", 1, KNOWN, false, true, true, E, E, 2, false, TURN_LASTS},
        {"the second is frozen as well", 1, KNOWN, false, true, true, E, E, 3, false, TURN_IS_OVER},
        {"the second lives", 1, KNOWN, false, true, true, E, E, 3, true, TURN_BEGINS},
        {"the third lives", 2, KNOWN, false, true, true, E, E, 3, true, TURN_BEGINS},
        {"the second would share what the head would have alone", 1, KNOWN, false, true, true, E, S,
         3, false, TURN_IS_OVER},
        {"the second would share it as the head would", 1, KNOWN, false, true, true, S, S, 3, false,
         TURN_IS_OVER},
        {"the second would not share it", 1, KNOWN, false, true, true, S, E, 3, false, TURN_PASSES},
        {"the second wants slots", 1, KNOWN, false, true, true, S, N, 3, true, TURN_PASSES},
        {"there was no room for the head", 1, KNOWN, false, false, false, E, E, 3, false,
         TURN_PASSES},
    };
    FOR_ROWS(row, rows)
    {
        struct turn known = {
            .number = KNOWN, .lost = row->lost, .room = row->known_room, .ms = row->lost ? 0 : 1};
        struct ticket head = {row->head, (enum lock_mode)row->head_mode, 0};
        struct ticket next = {row->head + row->place, (enum lock_mode)row->next_mode, 0};
        struct waiter_seen seen = {.place = row->place,
                                   .head = &head,
                                   .next = row->place == 0 ? &head : &next,
                                   .room = row->room,
                                   .marked = row->marked,
                                   .since = DURATION_S(row->seconds)};
        row_int(row->name, turn_step(&known, &seen), row->step);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("whose turn it is", test_turns),
        ENTRY("exclusive excludes all, shared goes with shared, slots with as many slots, a token "
              "once",
              test_rules),
        ENTRY("a survey counts who holds places, of this boot, beside the own one", test_survey),
        ENTRY("without time to look at all places, others may hold the rest", test_no_time_to_look),
        ENTRY("of a token's places the held one counts, otherwise the last", test_search),
        ENTRY("a survey finds the pause, of this boot; one that cannot be read is a pause for now",
              test_pause),
        ENTRY("the holder that is told is the one to wait for", test_told_holder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
