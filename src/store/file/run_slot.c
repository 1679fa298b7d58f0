/* Orders in which processes meet here:
 *
 *   One reads while another writes, or two write at once, since one of them has lost the
 *     lock -> the sum does not match -> the reader tries again, and then finds nothing.
 *   A writer is killed while it writes, which takes some hundred nanoseconds -> the sum is
 *     zero -> nothing is remembered.
 *   One counts a skip while the holder records a run -> the count is not part of the sum,
 *     and only a success sets it back. It may stand in a slot that is empty otherwise. */
#include "store/file/run_slot.h"

#include "util/text.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* The text: the key, the last run, the last success, the fence of that and until when it is
 * needed, each ending in NUL; "": an older dlock has written it. */
enum { SUM, SKIPPED, HASH, KEPT_UNTIL, FAILURES, RUNS, TEXT };
#define TEXT_SIZE ((RUN_SLOT_WORDS - TEXT) * sizeof(uint64_t))

/* Two runs and a key of some length fit: the text of a run is cut to this. */
enum { HOST_SIZE = 65, USER_SIZE = 33, COMMAND_SIZE = 97 };

typedef uint64_t slot_words[RUN_SLOT_WORDS];

static uint64_t sum_of(const slot_words words)
{
    uint64_t sum = UINT64_C(14695981039346656037);
    for (size_t i = HASH; i < RUN_SLOT_WORDS; i++)
        sum = (sum ^ words[i]) * UINT64_C(1099511628211);
    return sum != 0 ? sum : 1;
}

static bool load(const struct run_slot *slot, slot_words words)
{
    enum { TRIES = 3 };
    for (int tries = 0; tries < TRIES; tries++) {
        if (tries > 0)
            (void)poll(NULL, 0, 1);
        for (size_t i = 0; i < RUN_SLOT_WORDS; i++)
            words[i] = atomic_load(&slot->words[i]);
        if (words[SUM] == sum_of(words))
            return true;
        if (words[SUM] == 0 && words[HASH] == 0)
            return false; /* it was never used */
    }
    return false;
}

/* The text at *at, which then is behind it; NULL if it does not end. */
static const char *next_text(const char **at, const char *end)
{
    const char *text = *at, *nul = memchr(text, '\0', (size_t)(end - text));
    *at = nul != NULL ? nul + 1 : end;
    return nul != NULL ? text : NULL;
}

bool run_slot_read(const struct run_slot *slot, uint64_t hash, struct run_memory *memory,
                   char key[LOCK_KEY_SIZE])
{
    slot_words words;
    *memory = (struct run_memory){0};
    if (slot == NULL)
        return false;
    bool whole = load(slot, words);
    if (words[HASH] == hash || words[HASH] == 0)
        memory->skipped = clamped((int64_t)words[SKIPPED]);
    if (!whole || words[HASH] != hash || (int64_t)words[KEPT_UNTIL] < wall_now_ms())
        return false;
    const char *at = (const char *)&words[TEXT], *end = at + TEXT_SIZE;
    const char *name = next_text(&at, end), *last = next_text(&at, end),
               *success = next_text(&at, end), *fence = next_text(&at, end),
               *needed = next_text(&at, end);
    if (success == NULL || !run_record_read(&memory->last, last))
        return false;
    if (run_record_read(&memory->success, success) && needed != NULL) {
        (void)number_parse(fence, 0, INT64_MAX, &memory->success.fence);
        (void)number_parse(needed, 0, INT64_MAX, &memory->needed_until_ms);
    }
    memory->failures = clamped((int64_t)words[FAILURES]);
    memory->runs = clamped((int64_t)words[RUNS]);
    if (key != NULL)
        text_copy(key, LOCK_KEY_SIZE, name);
    return true;
}

static size_t put_text(char *to, size_t used, const char *text)
{
    size_t size = strlen(text) + 1;
    memcpy(to + used, text, size);
    return used + size;
}

static size_t put_run(char *to, size_t used, const struct run_record *run)
{
    struct run_record cut = *run;
    char text[RUN_TEXT_SIZE] = "";
    text_copy(cut.host, HOST_SIZE, run->host);
    text_copy(cut.user, USER_SIZE, run->user);
    text_copy(cut.command, COMMAND_SIZE, run->command);
    if (run->end.how != RUN_NONE)
        run_record_write(&cut, text);
    return put_text(to, used, text);
}

void run_slot_write(struct run_slot *slot, uint64_t hash, const char *key,
                    const struct run_memory *memory, struct duration remember)
{
    slot_words words = {0};
    char runs[2 * RUN_TEXT_SIZE], number[24], *text = (char *)&words[TEXT];
    if (slot == NULL)
        return;
    size_t size = put_run(runs, put_run(runs, 0, &memory->last), &memory->success);
    snprintf(number, sizeof number, "%" PRId64, memory->success.fence);
    size = put_text(runs, size, number);
    snprintf(number, sizeof number, "%" PRId64, memory->needed_until_ms);
    size = put_text(runs, size, number);
    size_t used = put_text(text, 0, strlen(key) + 1 + size <= TEXT_SIZE ? key : "");
    memcpy(text + used, runs, size);
    words[HASH] = hash;
    words[KEPT_UNTIL] = (uint64_t)(wall_now_ms() + remember.ns / NS_PER_MS);
    words[FAILURES] = (uint64_t)memory->failures;
    words[RUNS] = (uint64_t)memory->runs;
    atomic_store(&slot->words[SUM], 0);
    if (memory->skipped == 0)
        atomic_store(&slot->words[SKIPPED], 0);
    for (size_t i = HASH; i < RUN_SLOT_WORDS; i++)
        atomic_store_explicit(&slot->words[i], remember.ns > 0 ? words[i] : 0,
                              memory_order_relaxed);
    atomic_store(&slot->words[SUM], remember.ns > 0 ? sum_of(words) : 0);
}

void run_slot_skipped(struct run_slot *slot, uint64_t hash)
{
    uint64_t found = slot != NULL ? atomic_load(&slot->words[HASH]) : 0;
    if (slot != NULL && (found == hash || found == 0))
        atomic_fetch_add(&slot->words[SKIPPED], 1);
}
