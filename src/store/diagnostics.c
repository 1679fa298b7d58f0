#include "store/diagnostics.h"

#include "util/array.h"
#include "util/json.h"
#include "util/mbwidth.h"
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

void diagnostics_section(struct diagnostics *findings, const char *section, const char *subject)
{
    free(findings->subject);
    findings->section = section;
    findings->subject = subject != NULL ? strdup(subject) : NULL;
    findings->short_of_memory |= subject != NULL && findings->subject == NULL;
}

static void finding_free(struct finding *finding)
{
    free(finding->subject);
    free(finding->name);
    free(finding->found);
}

__attribute__((format(printf, 4, 0))) static void diagnostics_keep(struct diagnostics *findings,
                                                                   struct finding finding,
                                                                   const char *name,
                                                                   const char *format, va_list args)
{
    finding.section = findings->section;
    finding.subject = findings->subject != NULL ? strdup(findings->subject) : NULL;
    finding.name = strdup(name);
    if (vasprintf(&finding.found, format, args) < 0)
        finding.found = NULL;
    bool whole = finding.name != NULL && finding.found != NULL &&
                 (findings->subject == NULL || finding.subject != NULL);
    struct finding *row =
        whole ? array_add(&findings->list, &findings->count, &findings->room, sizeof *row) : NULL;
    if (row != NULL) {
        *row = finding;
    } else {
        finding_free(&finding);
        findings->short_of_memory = true;
    }
}

void diagnostics_add(struct diagnostics *findings, enum finding_result result, const char *name,
                     const char *advice, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    advice = result == FINDING_OK ? NULL : advice;
    diagnostics_keep(
        findings, (struct finding){.result = result, .status = FINDING_UNTRUSTED, .advice = advice},
        name, format, args);
    va_end(args);
}

void diagnostics_fail(struct diagnostics *findings, int status, const char *name,
                      const char *advice, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    diagnostics_keep(findings,
                     (struct finding){.result = FINDING_FAIL, .status = status, .advice = advice},
                     name, format, args);
    va_end(args);
}

bool diagnostics_failed(const struct diagnostics *findings, size_t from)
{
    for (size_t i = from; i < findings->count; i++)
        if (findings->list[i].result == FINDING_FAIL)
            return true;
    return false;
}

void diagnostics_excuse(struct diagnostics *findings, size_t from, size_t end)
{
    for (size_t i = from; i < end; i++)
        if (findings->list[i].result == FINDING_FAIL)
            findings->list[i].result = FINDING_WARN;
}

int diagnostics_status(const struct diagnostics *findings)
{
    int status = STATUS_OK;
    for (size_t i = 0; i < findings->count; i++) {
        const struct finding *finding = &findings->list[i];
        if (finding->result == FINDING_FAIL && (status == STATUS_OK || status == FINDING_UNTRUSTED))
            status = finding->status;
    }
    return status;
}

void diagnostics_free(struct diagnostics *findings)
{
    for (size_t i = 0; i < findings->count; i++)
        finding_free(&findings->list[i]);
    free(findings->list);
    free(findings->subject);
    *findings = (struct diagnostics){0};
}

char *diagnostics_time(struct duration time, char text[FINDINGS_TIME_SIZE])
{
    double ms = (double)time.ns / (double)NS_PER_MS;
    snprintf(text, FINDINGS_TIME_SIZE, "%.*f %s", ms < 1000 ? 2 : 1, ms < 1000 ? ms : ms / 1000,
             ms < 1000 ? "ms" : "s");
    return text;
}

/* --- for people ---------------------------------------------------------- */

static bool is_shown(const struct finding *finding, bool terse)
{
    return !terse || finding->result >= FINDING_WARN;
}

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void print_headline(const struct finding *finding, bool first, char text[CELL_SIZE])
{
    printf("%s%s%s%s\n", first ? "" : "\n", finding->section, finding->subject != NULL ? " " : "",
           finding->subject != NULL ? text_escape(text, CELL_SIZE, finding->subject) : "");
}

static void diagnostics_print_row(const struct finding *finding, int name_width,
                                  char text[CELL_SIZE])
{
    text_escape(text, CELL_SIZE, finding->name);
    printf("  %-4s  %s%*s", words[finding->result], text, name_width - mbwidth_of(text) + 2, "");
    puts(text_escape(text, CELL_SIZE, finding->found));
    if (finding->advice != NULL)
        printf("%*s-> %s\n", name_width + 10, "", finding->advice);
}

static size_t count_of(const struct diagnostics *findings, enum finding_result result)
{
    size_t count = 0;
    for (size_t i = 0; i < findings->count; i++)
        count += findings->list[i].result == result;
    return count;
}

static void print_verdict(const struct diagnostics *findings)
{
    size_t fails = count_of(findings, FINDING_FAIL), warnings = count_of(findings, FINDING_WARN);
    printf("\n%s: %zu failed, %zu warning%s, %zu note%s\n",
           fails == 0 ? "A lock can be trusted here" : "A lock can NOT be trusted here", fails,
           warnings, warnings == 1 ? "" : "s", count_of(findings, FINDING_NOTE),
           count_of(findings, FINDING_NOTE) == 1 ? "" : "s");
}

void diagnostics_print(const struct diagnostics *findings, bool terse)
{
    const struct finding *last = NULL;
    char text[CELL_SIZE];
    int width = 0;
    for (size_t i = 0; i < findings->count; i++) {
        int columns = mbwidth_of(text_escape(text, sizeof text, findings->list[i].name));
        width = columns > width && is_shown(&findings->list[i], terse) ? columns : width;
    }
    for (size_t i = 0; i < findings->count; i++) {
        const struct finding *finding = &findings->list[i];
        if (!is_shown(finding, terse))
            continue;
        if (last == NULL || last->section != finding->section ||
            !same_text(last->subject, finding->subject))
            print_headline(finding, last == NULL, text);
        diagnostics_print_row(finding, width, text);
        last = finding;
    }
    if (!terse)
        print_verdict(findings);
}

/* --- for programs -------------------------------------------------------- */

void diagnostics_print_json(const struct diagnostics *findings)
{
    struct json json = json_line_begin(stdout);
    json_bool(&json, "ok", diagnostics_status(findings) == STATUS_OK);
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
