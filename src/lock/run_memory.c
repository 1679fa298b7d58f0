#include "lock/run_memory.h"

#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool run_is_success(const struct run_end *end)
{
    return end->how == RUN_STATUS && end->code == 0;
}

void run_memory_add(struct run_memory *memory, const struct run_record *run)
{
    memory->last = *run;
    memory->runs++;
    if (run_is_success(&run->end)) {
        memory->failures = 0;
        if (run->fence < memory->success.fence)
            return;
        memory->success = *run;
        memory->runs = memory->skipped = 0;
    } else if (run->end.how != RUN_ENDED) {
        memory->failures++;
    }
}

static bool is_within(const struct run_memory *memory, int64_t when_ms, struct duration within)
{
    int64_t ago = wall_now_ms() - when_ms;
    return memory->success.end.how != RUN_NONE && (ago < 0 ? -ago : ago) < within.ns / NS_PER_MS;
}

bool run_began_within(const struct run_memory *memory, struct duration within)
{
    return is_within(memory, memory->success.began_ms, within);
}

bool run_ended_within(const struct run_memory *memory, struct duration within)
{
    return is_within(memory, memory->success.end.ended_ms, within);
}

/* --- text forms ---------------------------------------------------------- */

static const char *const names[] = {
    [RUN_NONE] = "",           [RUN_STATUS] = "status", [RUN_SIGNAL] = "signal",
    [RUN_STOPPED] = "stopped", [RUN_ENDED] = "ended",   [RUN_LOST] = "lost",
};

static bool run_memory_has_code(enum run_how how)
{
    return how == RUN_STATUS || how == RUN_SIGNAL;
}

char *run_end_write(const struct run_end *end, char text[RUN_END_SIZE])
{
    if (run_memory_has_code(end->how))
        snprintf(text, RUN_END_SIZE, "%s %d", names[end->how], end->code);
    else
        snprintf(text, RUN_END_SIZE, "%s", names[end->how]);
    return text;
}

bool run_end_read(struct run_end *end, const char *text)
{
    *end = (struct run_end){RUN_NONE, 0, 0};
    for (enum run_how how = RUN_STATUS; how <= RUN_LOST; how++) {
        size_t length = strlen(names[how]);
        int64_t code = 0;
        if (strncmp(text, names[how], length) != 0 ||
            (run_memory_has_code(how)
                 ? text[length] != ' ' || !number_parse(text + length + 1, 0, 255, &code)
                 : text[length] != '\0'))
            continue;
        *end = (struct run_end){how, (int)code, 0};
        return true;
    }
    return false;
}

char *run_record_write(const struct run_record *run, char text[RUN_TEXT_SIZE])
{
    char how[RUN_END_SIZE];
    snprintf(text, RUN_TEXT_SIZE, "%" PRId64 "\t%" PRId64 "\t%s\t%ld\t%s\t%s\t%s", run->began_ms,
             run->end.ended_ms, run_end_write(&run->end, how), (long)run->pid, run->user, run->host,
             run->command);
    return text;
}

/* Copies what stands before the next tab; the last field goes to the end. */
static const char *next_field(const char *at, char *field, size_t size, bool is_last)
{
    size_t length = is_last ? strlen(at) : strcspn(at, "\t");
    if (at[length] == '\0' && !is_last)
        return NULL;
    snprintf(field, size, "%.*s", (int)length, at);
    return at + length + !is_last;
}

bool run_record_read(struct run_record *run, const char *text)
{
    enum { BEGAN, ENDED, HOW, PID, NUMBERS };
    char fields[NUMBERS][RUN_END_SIZE];
    int64_t pid = 0, began = 0, ended = 0;
    *run = (struct run_record){0};
    for (int i = 0; text != NULL && i < NUMBERS; i++)
        text = next_field(text, fields[i], sizeof fields[i], false);
    if (text == NULL || !number_parse(fields[BEGAN], 0, INT64_MAX, &began) ||
        !number_parse(fields[ENDED], 0, INT64_MAX, &ended) ||
        !number_parse(fields[PID], 0, INT32_MAX, &pid))
        return false;
    text = next_field(text, run->user, sizeof run->user, false);
    if (text != NULL)
        text = next_field(text, run->host, sizeof run->host, false);
    if (text != NULL)
        text = next_field(text, run->command, sizeof run->command, true);
    if (text == NULL || !run_end_read(&run->end, fields[HOW])) {
        *run = (struct run_record){0};
        return false;
    }
    run->began_ms = clamped(began);
    run->end.ended_ms = clamped(ended);
    run->pid = (pid_t)pid;
    return true;
}
