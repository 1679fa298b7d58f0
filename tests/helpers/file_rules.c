/* Runs the rules of lock files on a lock that the input describes, for tests/file/rules.py, which
 * has the rows of the Lua scripts. Each line of the input is a fact or a question. A question
 * prints a line, and forgets all facts.
 *
 *   place NUMBER TOKEN TAKE MODE SLOTS SLOT FORMAT LEFT KEPT   a lease without a process (ms; KEPT: it was released)
 *   pause LEFT
 *   ended TOKEN TAKE, forced TOKEN TAKE BY                     what the memory knows of leases that are gone
 *   waiter MODE SLOTS SINCE                                    before the request; SINCE: of its turn (ms), -1: none
 *   last ROW, success ROW, counts FAILURES RUNS FENCE          what is remembered of runs
 *   history ROW|ROW|
 *   take TOKEN MODE SLOTS   -> taken SLOT, reserved, held TAKE LEFT SLOTS TAKEN PAUSE
 *   check TOKEN TAKE        -> ours LEFT MODE SLOTS SLOT, released, other BY, gone BY
 *   release FENCE BEGAN ENDED TTL HOW   -> FAILURES RUNS, the last run, the last success and the history
 */
#include "store/file/file_int.h"

#include "lock/fields.h"
#include "lock/format.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES_MOST = 64, WORDS_MOST = 16 };

static struct lock_place places[PLACES_MOST];
static int count;
static struct pause paused;
static struct memory_entry entry;
static struct ticket waiter;
static int64_t turn_ms;
static struct run_memory runs;

static int64_t number(const char *word)
{
    return strtoll(word, NULL, 10);
}

static const char *text(const char *word)
{
    return strcmp(word, "-") == 0 ? "" : word;
}

static enum lock_mode mode_of(const char *word)
{
    enum lock_mode mode;
    if (!lock_mode_parse(word, &mode))
        abort();
    return mode;
}

static struct deadline from_now(int64_t ms)
{
    struct duration length = DURATION_MS(ms < 0 ? -ms : ms);
    return ms < 0 ? deadline_minus(deadline_now(), length) : deadline_after(length);
}

static int64_t left_ms(struct duration left)
{
    return (left.ns + NS_PER_MS / 2) / NS_PER_MS;
}

static void add_place(char *word[])
{
    struct lock_place *place = &places[count++];
    bool kept = number(word[9]) != 0;
    *place = (struct lock_place){.number = (int)number(word[1]), .known = true};
    place->record =
        (struct record){.mode = mode_of(word[4]),
                        .slots = (int)number(word[5]),
                        .slot = (int)number(word[6]),
                        .format = number(word[7]),
                        .expires = from_now(number(word[8])),
                        .hold = from_now(kept ? number(word[8]) : -1),
                        .holder = {.known = true, .detached = true, .kept = kept, .boot_id = "b"}};
    snprintf(place->record.token, TOKEN_SIZE, "%s", word[2]);
    snprintf(place->record.holder.take_id, TOKEN_SIZE, "%s", word[3]);
}

static void take(char *word[])
{
    static struct survey survey;
    struct lock_request request = {
        .mode = mode_of(word[2]), .slots = (int)number(word[3]), .self = {.boot_id = "b"}};
    struct holder holder;

    survey = (struct survey){.free_place = -1, .pause = paused};
    for (int i = 0; i < count; i++)
        survey_add(&survey, &places[i], "b", word[1]);
    for (int next = 0; survey.free_place < 0; next++) {
        survey.free_place = next;
        for (int i = 0; i < count; i++)
            if (places[i].number == next)
                survey.free_place = -1;
    }

    if (!survey_admits(&survey, &request)) {
        survey_holder(&survey, &request, &holder);
        printf("held %s %" PRId64 " %d %d %" PRId64 "\n",
               holder.take_id[0] != '\0' ? holder.take_id : "-", left_ms(holder.left), holder.slots,
               holder.slots_taken, left_ms(holder.pause.left));
        return;
    }
    bool room = survey_has_room(&survey, waiter.mode, waiter.slots);
    uint64_t word_of_turn = turn_ms >= 0 ? turn_word(1, room, 1) : 0;
    struct turn known = turn_read(word_of_turn);
    struct waiter_seen seen = {
        .head = &waiter, .next = &waiter, .room = room, .since = DURATION_MS(turn_ms)};
    if (waiter.number > 0 && turn_step(&known, &seen) != TURN_IS_OVER)
        printf("reserved\n");
    else
        printf("taken %d\n", request.mode == MODE_SLOTS ? survey.free_place : -1);
}

static void check(char *word[])
{
    static struct lease_search search;
    struct lease lease = {.token = word[1], .take_id = text(word[2])};
    struct errmsg why = {""};
    char by[FORCER_SIZE] = "";

    search = (struct lease_search){.result = LOCK_GONE};
    for (int i = 0; i < count && search.result != LOCK_OK; i++)
        search_add(&search, &places[i], &lease, "b");
    const struct record *record = &search.place.record;
    enum lock_result result = search.result;
    if (result == LOCK_GONE && !search.known)
        result = entry_outcome(&entry, &lease, search.others, &why);
    (void)entry_has_ended(&entry, lease.token, lease.take_id, by);
    if (result == LOCK_OK)
        printf("ours %" PRId64 " %s %d %d\n", left_ms(deadline_left(record->expires)),
               lock_mode_name(record->mode), record->slots, record->slot);
    else
        printf("%s %s\n",
               result == LOCK_RELEASED ? "released"
               : result == LOCK_GONE   ? "gone"
                                       : "other",
               result != LOCK_RELEASED && by[0] != '\0' ? by : "-");
}

static void print_run(const char *name, const struct run_record *run)
{
    char row[1024] = "";
    if (run->end.how != RUN_NONE)
        (void)fields_write_row(&run_fields, run, row, sizeof row);
    printf("%s %s\n", name, row);
}

/* The text with another character in place of `from`. */
static char *translated(char *text, char from, char to)
{
    for (char *at = text; (at = strchr(at, from)) != NULL;)
        *at = to;
    return text;
}

static void release(char *word[])
{
    struct run_end end = {RUN_NONE, 0, 0};
    struct record record = {
        .fence = number(word[1]),
        .ttl = DURATION_MS(number(word[4])),
        .holder = {
            .since_wall_ms = number(word[2]), .pid = 7, .host = "h", .user = "u", .command = "c"}};
    if (!run_end_read(&end, word[5]))
        abort();
    end.ended_ms = number(word[3]);
    runs_take_in(&runs, &record, &end);
    printf("%" PRId64 " %" PRId64 "\n", runs.failures, runs.runs);
    print_run("last", &runs.last);
    print_run("success", &runs.success);
    printf("history %s\n", translated(runs.history, '\n', '|'));
}

/* `rest` is the line after its first word. */
static void obey(char *word[], const char *rest)
{
    bool asks = true;
    if (strcmp(word[0], "take") == 0)
        take(word);
    else if (strcmp(word[0], "check") == 0)
        check(word);
    else if (strcmp(word[0], "release") == 0)
        release(word);
    else
        asks = false;

    if (strcmp(word[0], "place") == 0)
        add_place(word);
    else if (strcmp(word[0], "pause") == 0)
        paused.left = DURATION_MS(number(word[1]));
    else if (strcmp(word[0], "ended") == 0)
        entry_released(&entry, word[1], word[2], DURATION_ZERO);
    else if (strcmp(word[0], "forced") == 0)
        entry_mark_forced(&entry, word[1], word[2], word[3]);
    else if (strcmp(word[0], "waiter") == 0) {
        waiter = (struct ticket){1, mode_of(word[1]), (int)number(word[2])};
        turn_ms = number(word[3]);
    } else if (strcmp(word[0], "last") == 0)
        (void)fields_read_row(&run_fields, &runs.last, rest);
    else if (strcmp(word[0], "success") == 0)
        (void)fields_read_row(&run_fields, &runs.success, rest);
    else if (strcmp(word[0], "history") == 0)
        translated(text_copy(runs.history, sizeof runs.history, rest), '|', '\n');
    else if (strcmp(word[0], "counts") == 0) {
        runs.failures = number(word[1]);
        runs.runs = number(word[2]);
        runs.success.fence = number(word[3]);
    }

    if (asks) {
        count = 0;
        paused = (struct pause){.left = DURATION_ZERO};
        memset(&entry, 0, sizeof entry);
        waiter = (struct ticket){0};
        runs = (struct run_memory){0};
        fflush(stdout);
    }
}

int main(void)
{
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stdin) > 0) {
        char *word[WORDS_MOST] = {NULL};
        line[strcspn(line, "\n")] = '\0';
        char *rest = strdup(line);
        size_t found = 0;
        for (char *at = line; found < WORDS_MOST && (word[found] = strsep(&at, " ")) != NULL;)
            found++;
        /* HOW contains a space. */
        if (strcmp(word[0], "release") == 0 && found > 5)
            word[5] = strstr(rest, word[5]);
        obey(word, strchr(rest, ' ') != NULL ? strchr(rest, ' ') + 1 : "");
        free(rest);
    }
    free(line);
    return 0;
}
