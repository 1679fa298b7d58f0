/* What the answers of the servers mean for a quorum. */
#include "unit.h"

#include "store/quorum/quorum_int.h"

#include <stdlib.h>

static struct quorum *quorum;

/* One letter a server: Ok, Held, Gone, Foreign, reLeased, Unavailable, Refused, Invalid,
 * System, Cancelled, Ended. */
static enum lock_result result_of(char letter)
{
    static const char letters[] = "OHGFLURISCE";
    static const enum lock_result results[] = {
        LOCK_OK,      LOCK_HELD,    LOCK_GONE,   LOCK_FOREIGN,   LOCK_RELEASED, LOCK_UNAVAILABLE,
        LOCK_REFUSED, LOCK_INVALID, LOCK_SYSTEM, LOCK_CANCELLED, LOCK_ENDED};
    const char *at = strchr(letters, letter);
    assert_non_null(at);
    return results[at - letters];
}

/* `had`: + for each server that granted our take. */
static void say(const char *results, const char *had)
{
    size_t count = strlen(results);
    free(quorum);
    quorum = calloc(1, sizeof *quorum + count * sizeof *quorum->members);
    assert_non_null(quorum);
    quorum->count = (int)count;
    quorum->need = quorum->count / 2 + 1;
    for (int i = 0; i < quorum->count; i++) {
        struct quorum_member *member = &quorum->members[i];
        member->bit = 1U << i;
        member->result = result_of(results[i]);
        member->standing = had == NULL || had[i] == '+' ? MEMBER_GRANTS : MEMBER_WITHOUT;
        errmsg_set(&member->why, "server %d", i + 1);
    }
}

TEST(test_counts)
{
    static const struct {
        const char *results;
        int ok, held, past, bad, silent;
    } rows[] = {
        {"OOO", .ok = 3},
        {"OHG", .ok = 1, .held = 1, .past = 1},
        {"GFLE", .past = 4},
        {"RIS", .bad = 3},
        {"UCO", .ok = 1, .silent = 2},
        {"OOHHUURRG", .ok = 2, .held = 2, .silent = 2, .bad = 2, .past = 1},
    };
    FOR_ROWS(row, rows)
    {
        say(row->results, NULL);
        row_int(row->results, quorum_count(quorum, RESULT_OK), row->ok);
        row_int(row->results, quorum_count(quorum, RESULT_HELD), row->held);
        row_int(row->results, quorum_count(quorum, RESULT_PAST), row->past);
        row_int(row->results, quorum_count(quorum, RESULT_BAD), row->bad);
        row_int(row->results, quorum_count(quorum, RESULT_SILENT), row->silent);
    }
}

TEST(test_answer)
{
    static const struct {
        const char *results;
        bool cancelled;
        enum lock_result answer;
        const char *why;
    } rows[] = {
        {"OOO", false, LOCK_OK, ""},
        {"OOU", false, LOCK_OK, ""},
        {"OOUUO", false, LOCK_OK, ""},
        {"OOO", true, LOCK_OK, ""},
        {"OUU", false, LOCK_UNAVAILABLE,
         "2 of 3 servers cannot be reached, and 2 are needed: server 2; server 3"},
        {"UUU", false, LOCK_UNAVAILABLE, "3 of 3 servers"},
        {"OUU", true, LOCK_CANCELLED, ""},
        {"OOUUU", false, LOCK_UNAVAILABLE, "3 of 5 servers cannot be reached, and 3 are needed"},
        {"RUU", false, LOCK_UNAVAILABLE, "server 1; server 2; server 3"},
        {"ORR", false, LOCK_REFUSED, "2 of 3 servers"},
        {"RRR", false, LOCK_REFUSED, "3 of 3 servers"},
        {"OII", false, LOCK_INVALID, "2 of 3 servers"},
        {"RII", false, LOCK_REFUSED, "3 of 3 servers"},
        {"OSS", false, LOCK_SYSTEM, "2 of 3 servers"},
        {"OOIIR", false, LOCK_REFUSED, "3 of 5 servers"},
        {"OOIIU", false, LOCK_UNAVAILABLE, "3 of 5 servers"},
        {"OHU", false, LOCK_UNAVAILABLE,
         "1 of 3 servers cannot be reached, and 2 are needed: server 3"},
    };
    FOR_ROWS(row, rows)
    {
        struct errmsg why = {""};
        say(row->results, NULL);
        row_int(row->results, quorum_answer(quorum, row->cancelled, &why), row->answer);
        row_has(row->results, why.text, row->why);
    }
}

TEST(test_verdict)
{
    static const struct {
        const char *name, *results, *had;
        bool cancelled;
        enum lock_result verdict;
        const char *why;
    } rows[] = {
        {"all have it", "OOO", "+++", false, LOCK_OK, ""},
        {"one has lost it", "OOG", "+++", false, LOCK_OK, ""},
        {"one does not answer", "OOU", "+++", false, LOCK_OK, ""},
        {"two do not answer: they may have it", "OUU", "+++", false, LOCK_UNAVAILABLE,
         "2 of 3 servers cannot be reached"},
        {"none answers", "UUU", "+++", false, LOCK_UNAVAILABLE, "3 of 3"},
        {"the same, cut short by the caller", "OUU", "+++", true, LOCK_CANCELLED, ""},
        {"two have lost it", "OGG", "+++", false, LOCK_GONE,
         "2 of 3 servers did not grant the lock: server 2; server 3"},
        {"all have lost it", "GGG", "+++", false, LOCK_GONE, "3 of 3"},
        {"one is another's", "OGF", "+++", false, LOCK_FOREIGN, "2 of 3"},
        {"two are others'", "OFF", "+++", false, LOCK_FOREIGN, "2 of 3"},
        {"one has lost it, one does not answer", "OGU", "+++", false, LOCK_UNAVAILABLE,
         "1 of 3 servers cannot be reached"},
        {"one of a bare majority has lost it, the third never had it", "OGU", "++-", false,
         LOCK_GONE, "2 of 3"},
        {"the third never had it, and says nothing", "OOU", "++-", false, LOCK_OK, ""},
        {"one of a bare majority does not answer", "OUU", "++-", false, LOCK_UNAVAILABLE, "2 of 3"},
        {"a server that never granted it does now", "OGO", "++-", false, LOCK_OK, ""},
        {"released on all", "LLL", "+++", false, LOCK_RELEASED, "3 of 3"},
        {"released on two", "OLL", "+++", false, LOCK_RELEASED, "2 of 3"},
        {"released on one, lost on another", "OLG", "+++", false, LOCK_GONE, "2 of 3"},
        {"released on two, lost on the third", "LLG", "+++", false, LOCK_RELEASED, "3 of 3"},
        {"released on one, another's on another", "OLF", "+++", false, LOCK_FOREIGN, "2 of 3"},
        {"released on one alone, lost on another later", "OLG", "+-+", false, LOCK_GONE, "2 of 3"},
        {"released long ago on one, and now on another", "OLL", "+-+", false, LOCK_RELEASED,
         "2 of 3"},
        {"released on one, and one does not answer", "OLU", "+++", false, LOCK_UNAVAILABLE,
         "1 of 3"},
        {"released on one, ended on another of a bare majority", "OEU", "++-", false, LOCK_ENDED,
         "2 of 3"},
        {"ended on all", "EEE", "+++", false, LOCK_ENDED, "3 of 3"},
        {"released on one, ended on one, lost on one", "OEG", "+++", false, LOCK_ENDED, "2 of 3"},
        {"lost on one, ended on two", "EEG", "+++", false, LOCK_ENDED, "3 of 3"},
        {"ended on one, lost on two", "EGG", "+++", false, LOCK_GONE, "3 of 3"},
        {"ended where it was never granted", "OGE", "++-", false, LOCK_GONE, "2 of 3"},
        {"released with its own token on one, ended on two", "LEE", "+++", false, LOCK_ENDED,
         "3 of 3"},
        {"five: three have it", "OOOGG", "+++++", false, LOCK_OK, ""},
        {"five: two have it", "OOGGG", "+++++", false, LOCK_GONE, "3 of 5"},
        {"five: two have it, one does not answer", "OOGGU", "+++++", false, LOCK_UNAVAILABLE,
         "1 of 5"},
        {"five: two have it, one never had it and is down", "OOGGU", "++++-", false, LOCK_GONE,
         "3 of 5"},
        {"a login that is refused may have it", "ORR", "+++", false, LOCK_REFUSED, "2 of 3"},
        {"held by another where it was never granted", "OOH", "++-", false, LOCK_OK, ""},
    };
    FOR_ROWS(row, rows)
    {
        struct errmsg why = {""};
        say(row->results, row->had);
        member_set had = quorum_members(quorum, MEMBER_GRANTS);
        row_int(row->name, quorum_verdict(quorum, had, row->cancelled, &why), row->verdict);
        row_has(row->name, why.text, row->why);
    }
}

TEST(test_majority_has)
{
    static const struct {
        const char *name;
        int64_t values[5];
        int servers, count;
        int64_t has;
    } rows[] = {
        {"all the same", {7, 7, 7}, 3, 3, 7},
        {"one is higher", {7, 9, 7}, 3, 3, 7},
        {"one is lower", {9, 9, 7}, 3, 3, 9},
        {"one has nothing", {0, 8, 9}, 3, 3, 8},
        {"two have nothing", {0, 0, 9}, 3, 3, 0},
        {"five", {1, 5, 3, 2, 4}, 5, 5, 3},
        {"three of five were asked", {1, 5, 3}, 5, 3, 1},
        {"two of five were asked: the least of them", {5, 3}, 5, 2, 3},
        {"one of three was asked", {5}, 3, 1, 5},
        {"never", {INT64_MAX, 1, INT64_MAX}, 3, 3, INT64_MAX},
    };
    FOR_ROWS(row, rows)
    {
        int64_t values[5];
        memcpy(values, row->values, sizeof values);
        say(row->servers == 5 ? "OOOOO" : "OOO", NULL);
        row_int(row->name, quorum_has(quorum, values, row->count), row->has);
        if (row->count != row->servers)
            continue;
        for (int i = 0; i < row->count; i++)
            quorum->members[i].lease.deadline.boot_ns = row->values[i];
        row_int(row->name, quorum_deadline(quorum).boot_ns, row->has);
    }
}

TEST(test_notes)
{
    static const struct {
        const char *results;
        bool taken;
        const char *note, *warning, *left; /* NULL: none */
    } rows[] = {
        {"OOO", false, NULL, NULL, NULL},
        {"OOO", true, "on 3 of 3 servers", NULL, NULL},
        {"OOU", true, "on 2 of 3 servers; server 3", NULL,
         "the release did not reach 1 of 3 servers; there, the lock is held until its lease ends: "
         "server 3"},
        {"OOU", false, "on 2 of 3 servers; server 3", NULL,
         "the release did not reach 1 of 3 servers; there, the lock is held until its lease ends: "
         "server 3"},
        {"OOG", false, "on 2 of 3 servers; server 3", NULL, NULL},
        {"OOR", true, "on 2 of 3 servers", "server 3",
         "the release did not reach 1 of 3 servers; there, the lock is held until its lease ends: "
         "server 3"},
        {"OOR", false, "on 2 of 3 servers; server 3", "server 3",
         "the release did not reach 1 of 3 servers; there, the lock is held until its lease ends: "
         "server 3"},
        {"OOIRU", true, "on 2 of 5 servers; server 5", "server 3; server 4",
         "the release did not reach 3 of 5 servers; there, the lock is held until its lease ends: "
         "server 3; server 4; "
         "server 5"},
    };
    FOR_ROWS(row, rows)
    {
        say(row->results, NULL);
        quorum_note(quorum, row->taken);
        row_text(row->results, quorum->base.note, row->note);
        row_text(row->results, quorum->base.warning, row->warning);
        quorum_note_left(quorum);
        row_text(row->results, quorum->base.note, row->left);
    }
}

TEST(test_same_note)
{
    say("OOU", NULL);
    quorum_note(quorum, false);
    quorum->members[2].result = LOCK_GONE;
    errmsg_set(&quorum->members[2].why, "another answer");
    quorum_note(quorum, false);
    row_text("the same server lacks it", quorum->base.note, "on 2 of 3 servers; server 3");
    quorum->members[1].result = LOCK_GONE;
    quorum_note(quorum, false);
    row_text("one more", quorum->base.note, "on 1 of 3 servers; server 2; another answer");
    quorum->members[1].result = quorum->members[2].result = LOCK_OK;
    quorum_note(quorum, false);
    row_text("all have it again", quorum->base.note, NULL);
    say("OOR", NULL);
    quorum_note(quorum, false);
    quorum_note(quorum, false);
    row_text("a server that refuses is warned of, not once more each time", quorum->base.warning,
             "server 3");
    quorum->members[2].result = LOCK_OK;
    quorum_note(quorum, false);
    row_text("it does not refuse any more", quorum->base.warning, NULL);
}

/* During a round: ? for a server that has not answered, . for a server that is not asked. */
TEST(test_judge)
{
    static const struct {
        const char *name, *results;
        int64_t least_ms, most_ms; /* how much longer dlock waits; -1: until all have answered */
    } rows[] = {
        {"nobody has answered", "???", -1, -1},
        {"one has", "O??", -1, -1},
        {"a majority has it: the slow one has a while", "OO?", 1, 1000},
        {"a minority has lost it", "G??", -1, -1},
        {"a majority has lost it: nothing more to learn", "GG?", 0, 0},
        {"of five, three have lost it", "GFL??", 0, 0},
        {"of five, two have", "GF???", -1, -1},
        {"two do not answer", "UU?", -1, -1},
        {"one is not asked, since it has nothing of ours", "O?.", -1, -1},
        {"two are not asked", "?..", 0, 0},
    };
    FOR_ROWS(row, rows)
    {
        say("OOOOO", NULL);
        quorum->count = (int)strlen(row->results);
        quorum->need = quorum->count / 2 + 1;
        for (int i = 0; i < quorum->count; i++) {
            char letter = row->results[i];
            struct quorum_member *member = &quorum->members[i];
            member->asked = letter != '.';
            member->done = letter != '?' && letter != '.';
            if (member->done)
                member->result = result_of(letter);
        }
        int64_t waits = quorum_judge(quorum).ns;
        if (row->least_ms < 0)
            row_int(row->name, waits, QUORUM_WAITS.ns);
        else
            row_true(row->name,
                     waits >= row->least_ms * NS_PER_MS && waits <= row->most_ms * NS_PER_MS);
    }
}

TEST(test_rounds)
{
    static const struct {
        const char *name;
        int64_t pace;
        int rounds;
        int64_t least, time;
    } rows[] = {
        {"near servers: the least", NS_PER_MS, 5, 200 * NS_PER_MS, 200 * NS_PER_MS},
        {"far servers: so many rounds", 100 * NS_PER_MS, 5, 200 * NS_PER_MS, 500 * NS_PER_MS},
        {"at most 1s", 900 * NS_PER_MS, 5, 200 * NS_PER_MS, NS_PER_S},
        {"a pace that makes no sense", INT64_MAX, 5, 200 * NS_PER_MS, NS_PER_S},
        {"nothing known", 0, 5, 200 * NS_PER_MS, 200 * NS_PER_MS},
    };
    FOR_ROWS(row, rows)
    {
        quorum->pace = (struct duration){row->pace};
        row_int(row->name, quorum_rounds(quorum, row->rounds, (struct duration){row->least}).ns,
                row->time);
    }
}

/* In seconds; 0: not paused there. */
TEST(test_paused)
{
    static const struct {
        const char *name;
        int left[3], paused;
    } rows[] = {
        {"on none", {0, 0, 0}, 0},
        {"on a minority", {0, 9, 0}, 0},
        {"on a majority", {9, 0, 8}, 8},
        {"on all: as long as on a majority", {5, 9, 7}, 7},
        {"the first is the one of the majority that ends first", {7, 9, 0}, 7},
        {"on all for as long", {6, 6, 6}, 6},
    };
    FOR_ROWS(row, rows)
    {
        say("OOO", NULL);
        for (int i = 0; i < 3; i++) {
            struct pause *pause = &quorum->members[i].pause;
            pause->left = DURATION_S(row->left[i]);
            snprintf(pause->by, sizeof pause->by, "%ds", row->left[i]);
        }
        struct pause paused = quorum_paused(quorum);
        row_int(row->name, paused.left.ns, row->paused * NS_PER_S);
        row_int(row->name, row->paused > 0 ? atoi(paused.by) : 0, row->paused);
    }
}

/* The answers of a majority show how far away the servers are; a wait for servers that are down
 * does not. */
TEST(test_pace)
{
    say("OHU", NULL);
    quorum->pace = DURATION_ZERO;
    quorum->start = deadline_minus(deadline_now(), DURATION_S(9));
    quorum->decided = deadline_plus(quorum->start, DURATION_MS(40));
    quorum_learn_pace(quorum);
    row_int("a majority has answered", quorum->pace.ns, 40 * NS_PER_MS);
    say("OUU", NULL);
    quorum->pace = DURATION_S(5);
    quorum_learn_pace(quorum);
    row_int("a minority has", quorum->pace.ns, 5 * NS_PER_S);
    say("OOU", NULL);
    quorum_note(quorum, false);
    quorum->members[2].result = LOCK_OK;
    quorum_note(quorum, false);
    row_text("no warning is left", quorum->warning.text, "");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("answers are counted by what they mean", test_counts),
        ENTRY("a majority does it, or why not: an outage unless the others would not do either",
              test_answer),
        ENTRY("a lease is lost once those that may have it are no majority, and not before",
              test_verdict),
        ENTRY("of a deadline or a fence a majority has no less", test_majority_has),
        ENTRY("what -v notes of a minority, and what is warned of", test_notes),
        ENTRY("a note stays as long as it is about the same servers", test_same_note),
        ENTRY("a round waits until there is a verdict", test_judge),
        ENTRY("a lock is paused for as long as on a majority", test_paused),
        ENTRY("how far the servers are is measured on a majority", test_pace),
        ENTRY("far servers have time for so many rounds", test_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
