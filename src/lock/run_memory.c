#include "lock/run_memory.h"

#include "util/text.h"

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

static const char *const names[] = {
    [RUN_NONE] = "",           [RUN_STATUS] = "status", [RUN_SIGNAL] = "signal",
    [RUN_STOPPED] = "stopped", [RUN_ENDED] = "ended",   [RUN_LOST] = "lost",
};

static bool has_code(enum run_how how)
{
    return how == RUN_STATUS || how == RUN_SIGNAL;
}

char *run_end_write(const struct run_end *end, char text[RUN_END_SIZE])
{
    if (has_code(end->how))
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
            (has_code(how) ? text[length] != ' ' || !number_parse(text + length + 1, 0, 255, &code)
                           : text[length] != '\0'))
            continue;
        *end = (struct run_end){how, (int)code, 0};
        return true;
    }
    return false;
}
