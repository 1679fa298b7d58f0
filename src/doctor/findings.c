#include "doctor/doctor_int.h"

#include "util/array.h"
#include "util/json.h"
#include "util/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELL_SIZE = 8192 };

static const char *const words[] = {
    [FINDING_OK] = "ok",
    [FINDING_NOTE] = "note",
    [FINDING_WARN] = "warn",
    [FINDING_FAIL] = "fail",
};

/* --- collecting ---------------------------------------------------------- */

void findings_section(struct findings *findings, const char *section, const char *subject)
{
    findings->section = section;
    findings->subject = subject;
}

static void keep(struct findings *findings, struct finding finding, const char *format,
                 va_list args) __attribute__((format(printf, 3, 0)));

static void keep(struct findings *findings, struct finding finding, const char *format,
                 va_list args)
{
    struct finding *row =
        array_add(&findings->list, &findings->count, &findings->room, sizeof *row);
    if (row == NULL) {
        findings->short_of_memory = true;
        return;
    }
    *row = finding;
    row->section = findings->section;
    row->subject = strdup(findings->subject != NULL ? findings->subject : "");
    row->name = strdup(findings->check);
    if (vasprintf(&row->found, format, args) < 0)
        row->found = NULL;
    if (row->subject == NULL || row->name == NULL || row->found == NULL)
        findings->short_of_memory = true;
}

void findings_add(struct findings *findings, enum finding_result result, const char *advice,
                  const char *format, ...)
{
    va_list args;
    va_start(args, format);
    keep(findings,
         (struct finding){.result = result,
                          .status = FINDING_UNTRUSTED,
                          .advice = result == FINDING_OK ? NULL : advice},
         format, args);
    va_end(args);
}

void findings_fail(struct findings *findings, int status, const char *advice, const char *format,
                   ...)
{
    va_list args;
    va_start(args, format);
    keep(findings, (struct finding){.result = FINDING_FAIL, .status = status, .advice = advice},
         format, args);
    va_end(args);
}

bool findings_served(struct findings *findings, enum lock_result result, const char *advice,
                     const struct errmsg *why)
{
    if (result != LOCK_OK && result != LOCK_CANCELLED)
        findings_fail(findings, (int)status_of(result), advice, "%s", why->text);
    return result == LOCK_OK;
}

int findings_status(const struct findings *findings)
{
    int status = STATUS_OK;
    for (size_t i = 0; i < findings->count; i++) {
        const struct finding *finding = &findings->list[i];
        if (finding->result == FINDING_FAIL && (status == STATUS_OK || status == FINDING_UNTRUSTED))
            status = finding->status;
    }
    return status;
}

void findings_free(struct findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        free(findings->list[i].subject);
        free(findings->list[i].name);
        free(findings->list[i].found);
    }
    free(findings->list);
    *findings = (struct findings){0};
}

char *findings_time(struct duration time, char text[FINDINGS_TIME_SIZE])
{
    double ms = (double)time.ns / (double)NS_PER_MS;
    if (ms < 1000)
        snprintf(text, FINDINGS_TIME_SIZE, "%.2f ms", ms);
    else
        snprintf(text, FINDINGS_TIME_SIZE, "%.1f s", ms / 1000);
    return text;
}

/* --- for people ---------------------------------------------------------- */

static bool is_shown(const struct finding *finding, bool terse)
{
    return !terse || finding->result >= FINDING_WARN;
}

static void print_headline(const struct finding *finding, bool first, char text[CELL_SIZE])
{
    printf("%s%s%s%s\n", first ? "" : "\n", finding->section, *finding->subject != '\0' ? " " : "",
           text_escape(text, CELL_SIZE, finding->subject));
}

static void print_row(const struct finding *finding, int name_width, char text[CELL_SIZE])
{
    text_escape(text, CELL_SIZE, finding->name);
    printf("  %-4s  %s%*s", words[finding->result], text, name_width - mbwidth_of(text) + 2, "");
    puts(text_escape(text, CELL_SIZE, finding->found));
    if (finding->advice != NULL)
        printf("%*s-> %s\n", name_width + 10, "", finding->advice);
}

static void print_verdict(const struct findings *findings)
{
    size_t count[FINDING_FAIL + 1] = {0};
    for (size_t i = 0; i < findings->count; i++)
        count[findings->list[i].result]++;
    printf("\nA lock can %sbe trusted here: %zu failed, %zu warning%s, %zu note%s\n",
           count[FINDING_FAIL] == 0 ? "" : "NOT ", count[FINDING_FAIL], count[FINDING_WARN],
           count[FINDING_WARN] == 1 ? "" : "s", count[FINDING_NOTE],
           count[FINDING_NOTE] == 1 ? "" : "s");
}

void findings_print(const struct findings *findings, bool terse)
{
    const struct finding *last = NULL;
    char text[CELL_SIZE];
    int width = 0;

    for (size_t i = 0; i < findings->count; i++) {
        int columns = mbwidth_of(text_escape(text, sizeof text, findings->list[i].name));
        if (columns > width && is_shown(&findings->list[i], terse))
            width = columns;
    }

    for (size_t i = 0; i < findings->count; i++) {
        const struct finding *finding = &findings->list[i];
        if (!is_shown(finding, terse))
            continue;
        if (last == NULL || last->section != finding->section ||
            strcmp(last->subject, finding->subject) != 0)
            print_headline(finding, last == NULL, text);
        print_row(finding, width, text);
        last = finding;
    }

    if (!terse)
        print_verdict(findings);
}

/* --- for programs -------------------------------------------------------- */

void findings_print_json(const struct findings *findings)
{
    struct json json = json_line_begin(stdout);
    json_bool(&json, "ok", findings_status(findings) == STATUS_OK);
    json_begin(&json, "checks", '[');
    for (size_t i = 0; i < findings->count; i++) {
        const struct finding *finding = &findings->list[i];
        json_begin(&json, NULL, '{');
        json_text(&json, "section", finding->section);
        json_text(&json, "subject", finding->subject);
        json_text(&json, "name", finding->name);
        json_text(&json, "result", words[finding->result]);
        json_text(&json, "found", finding->found);
        json_text(&json, "advice", finding->advice);
        json_end(&json, '}');
    }
    json_end(&json, ']');
    json_line_end(&json);
}
