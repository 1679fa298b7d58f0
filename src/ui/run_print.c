#include "ui/run_print.h"

#include "util/duration.h"
#include "util/signames.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TIME_SIZE = 40 };

/* --- for people ---------------------------------------------------------- */

static const char *run_print_end_text(const struct run_end *end, char text[TIME_SIZE])
{
    char name[32];
    switch (end->how) {
    case RUN_STATUS: snprintf(text, TIME_SIZE, "exit status %d", end->code); return text;
    case RUN_SIGNAL:
        snprintf(text, TIME_SIZE, "ended by %s", signame_format(end->code, name, sizeof name));
        return text;
    case RUN_STOPPED: return "stopped, since its lease was over";
    case RUN_ENDED: return "exit status not known";
    case RUN_LOST: return end->ended_ms > 0 ? "lost its lock" : "lost: its end was never recorded";
    case RUN_NONE: break;
    }
    return "";
}

/* " (14m9s)"; "" if the clock was set back meanwhile. */
static const char *length_text(const struct run_record *run, char text[DURATION_TEXT_SIZE + 4])
{
    char length[DURATION_TEXT_SIZE];
    int64_t ms = run->end.ended_ms - run->began_ms;
    text[0] = '\0';
    if (ms >= 0)
        snprintf(text, DURATION_TEXT_SIZE + 4, " (%s)",
                 duration_rounded((struct duration){ms * NS_PER_MS}, length, sizeof length));
    return text;
}

/* "today 03:00:02 to 03:14:11 (14m9s)" */
enum { SPAN_SIZE = 4 * TIME_SIZE };

static char *span_format(const struct run_record *run, char text[SPAN_SIZE])
{
    char began[TIME_SIZE], ended[TIME_SIZE], length[DURATION_TEXT_SIZE + 4];
    wall_format_day(run->began_ms, wall_now_ms(), began, sizeof began);
    wall_format_day(run->end.ended_ms, run->began_ms, ended, sizeof ended);
    if (run->end.ended_ms > 0)
        snprintf(text, SPAN_SIZE, "%s to %s%s", began,
                 strncmp(ended, "today ", 6) == 0 ? ended + 6 : ended, length_text(run, length));
    else
        snprintf(text, SPAN_SIZE, "%s", began);
    return text;
}

char *run_format(const struct run_record *run, char text[RUN_LINE_SIZE])
{
    char raw[RUN_LINE_SIZE / 2], span[SPAN_SIZE], end[TIME_SIZE];
    snprintf(raw, sizeof raw, "%s, %s, %s", run->host, span_format(run, span),
             run_print_end_text(&run->end, end));
    return text_escape(text, RUN_LINE_SIZE, raw);
}

void run_memory_print(const struct run_memory *memory)
{
    char text[RUN_LINE_SIZE], host[RUN_LINE_SIZE], span[SPAN_SIZE];
    const struct run_record *success = &memory->success;
    if (memory->last.end.how == RUN_NONE)
        return;
    printf("  last run: %s\n", run_format(&memory->last, text));
    if (success->end.how != RUN_NONE)
        printf("  last success: %s, %s", text_escape(host, sizeof host, success->host),
               span_format(success, span));
    else
        printf("  last success: none is known");
    if (memory->runs > 0 || memory->skipped > 0)
        printf("; since then %" PRId64 " run%s, %" PRId64 " skipped", memory->runs,
               memory->runs == 1 ? "" : "s", memory->skipped);
    if (memory->failures > 0)
        printf(", %" PRId64 " failed in a row", memory->failures);
    putchar('\n');
}

void run_within_print(const char *name, const struct run_memory *memory, bool within,
                      struct duration limit)
{
    char text[RUN_LINE_SIZE], when[TIME_SIZE], time[DURATION_TEXT_SIZE];
    const struct run_record *success = &memory->success;
    int64_t ago = wall_now_ms() - success->end.ended_ms;
    printf("%s: ", text_escape(text, sizeof text, name));
    if (!within)
        printf("not within %s: ", duration_format(limit, time, sizeof time));
    if (success->end.how == RUN_NONE) {
        printf("no %s is known\n", memory->last.end.how == RUN_NONE ? "run" : "success");
        return;
    }
    wall_format_day(success->end.ended_ms, wall_now_ms(), when, sizeof when);
    printf("the last success ended %s on %s", when, text_escape(text, sizeof text, success->host));
    if (ago >= 0)
        printf(", %s ago", duration_rounded((struct duration){ago * NS_PER_MS}, time, sizeof time));
    putchar('\n');
}

/* --- for programs -------------------------------------------------------- */

static void run_json(struct json *json, const char *name, const struct run_record *run)
{
    static const char *const outcomes[] = {
        [RUN_NONE] = "",           [RUN_STATUS] = "exited",   [RUN_SIGNAL] = "signal",
        [RUN_STOPPED] = "stopped", [RUN_ENDED] = "not known", [RUN_LOST] = "lost"};
    const struct run_end *end = &run->end;
    int64_t ms = end->ended_ms - run->began_ms;
    if (end->how == RUN_NONE) {
        json_null(json, name);
        return;
    }
    json_begin(json, name, '{');
    json_time(json, "began_at", run->began_ms);
    json_time(json, "ended_at", end->ended_ms);
    if (end->ended_ms > 0 && ms >= 0)
        json_seconds(json, "duration", ms);
    else
        json_null(json, "duration");
    json_text(json, "outcome", outcomes[end->how]);
    json_number_if(json, "status", end->code, end->how == RUN_STATUS);
    json_number_if(json, "signal", end->code, end->how == RUN_SIGNAL);
    json_text(json, "host", run->host);
    json_number_if(json, "pid", run->pid, run->pid > 0);
    json_text(json, "user", run->user);
    json_text(json, "command", run->command);
    json_end(json, '}');
}

void run_memory_json(struct json *json, const struct run_memory *memory)
{
    run_json(json, "last_run", &memory->last);
    run_json(json, "last_success", &memory->success);
    json_number(json, "failures_in_a_row", memory->failures);
    json_number(json, "runs_since", memory->runs);
    json_number(json, "skipped_since", memory->skipped);
}
