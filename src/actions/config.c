/* --print-config, --help, -h (--usage) and --version. */
#include "config.h"
#include "actions/actions.h"
#include "actions/embedded.h"
#include "redis/url.h"
#include "ui/report.h"
#include "util/clock.h"
#include "util/json.h"
#include "util/text.h"

#include <hiredis.h>
#include <openssl/opensslv.h>
#include <stdio.h>
#include <string.h>

enum { ORIGIN_COLUMN = 48 };

struct row {
    const char *name;
    const char *value; /* NULL if it is not set or must not be shown */
    const char *note;  /* NULL: none */
    bool beyond_file;  /* no line of a file can set this value */
    char from[ORIGIN_TEXT_SIZE];
    char text[2048]; /* holds the value if dlock has to format it */
};

/* Returns the option's default in the form of dlock.conf(5), or NULL if there is none. May write to
 * `text`. */
static const char *default_of(const struct options *options, enum option_id id,
                              char text[DURATION_TEXT_SIZE])
{
    switch ((int)id) { /* defaults that depend on other options */
    case OPT_GRACE:
        return duration_format(lease_grace(options->ttl, options->grace), text, DURATION_TEXT_SIZE);
    case OPT_HASH: return options->hash == HASH_HMAC_SHA256 ? "hmac-sha256" : "none";
    case OPT_WAIT: return options->nonblock ? "0" : "infinity";
    case OPT_EXCLUSIVE: return options->mode == MODE_EXCLUSIVE ? "yes" : "no";
    default: return option_is_flag(id) ? "no" : option_rows[id].usual;
    }
}

/* Groups of options that override each other: only one option of a group counts. */
enum rivals { NO_RIVALS, MODES, WAITS, VERBOSITIES };

static enum rivals rivals_of(const struct options *options, enum option_id id, bool *counts)
{
    switch ((int)id) {
    case OPT_EXCLUSIVE: *counts = options->mode == MODE_EXCLUSIVE; return MODES;
    case OPT_SHARED: *counts = options->mode == MODE_SHARED; return MODES;
    case OPT_SLOTS: *counts = options->mode == MODE_SLOTS; return MODES;
    case OPT_NONBLOCK: *counts = options->nonblock; return WAITS;
    case OPT_WAIT: *counts = !options->nonblock; return WAITS;
    case OPT_VERBOSE: *counts = options->verbosity > 0; return VERBOSITIES;
    case OPT_QUIET: *counts = options->verbosity < 0; return VERBOSITIES;
    default: *counts = true; return NO_RIVALS;
    }
}

/* Returns the setting that decides this option, or NULL if the option is not set. *text is the
 * option's value, or NULL if there is none. In a group of options that override each other, the
 * last setting decides for the whole group. */
static const struct setting *deciding(const struct options *options, enum option_id id,
                                      const char **text)
{
    bool counts;
    enum rivals rivals = rivals_of(options, id, &counts);
    const struct setting *found = setting_in_force(&options->settings, id);
    *text = found != NULL ? found->text : NULL;
    if (found == NULL || counts)
        return found;
    *text = id == OPT_SLOTS ? NULL : id == OPT_WAIT ? "0" : "no";
    for (const struct setting *at = options->settings.first; at != NULL; at = at->next)
        if (rivals_of(options, at->id, &counts) == rivals)
            found = at;
    return found;
}

/* Returns the URLs without their logins. Returns NULL if a URL cannot be parsed, because a text
 * that is not a URL may still contain a password. */
static const char *urls_shown(const char *text, char *shown, size_t size)
{
    struct redis_urls urls;
    struct errmsg ignored = {""};
    size_t used = 0;
    bool usable = redis_urls_parse(&urls, text, &ignored) == LOCK_OK;
    for (int i = 0; i < urls.count && usable; i++) {
        used += (size_t)snprintf(shown + used, size - used, "%s%s", i > 0 ? " " : "",
                                 urls.list[i].shown);
        usable = used < size;
    }
    redis_urls_free(&urls);
    return usable ? shown : NULL;
}

/* True if a line of dlock.conf(5) can set the value. In a file, dlock strips white space around a
 * value, and a semicolon after white space begins a comment. dlock prints control characters as
 * escapes, but does not read escapes. In a file, dlock refuses a relative path of a lock, because
 * the path would name a different lock in each directory. */
static bool fits_file(enum option_id id, const char *value)
{
    char shown[2 * sizeof(struct row)];
    size_t length = strlen(value);
    bool is_stripped = *value == ' ' || *value == ';' || strstr(value, " ;") != NULL ||
                       (length > 0 && value[length - 1] == ' ');
    bool is_place = id == OPT_LOCK_DIR || id == OPT_LOCK_FILE;
    return !is_stripped && strcmp(text_escape(shown, sizeof shown, value), value) == 0 &&
           (!is_place || *value == '/');
}

static void fill(struct row *row, const struct options *options, enum option_id id)
{
    const char *value;
    const struct setting *setting = deciding(options, id, &value);
    *row = (struct row){.name = option_rows[id].name};
    if (id == OPT_CONFLICT_EXIT_CODE && options->conflict_status == STATUS_OK)
        row->note = "75 with --acquire, --attach and --wait-until-free";
    if (setting == NULL) {
        row->value = default_of(options, id, row->text);
        text_copy(row->from, sizeof row->from, row->value != NULL ? "default" : "not set");
        return;
    }

    origin_format(setting->id, setting->origin, row->from, sizeof row->from);
    row->value = value;
    if (id == OPT_OWNER) /* secret: whoever knows the token can release the lock */
        row->value = NULL;
    else if (id == OPT_REDIS)
        row->value = urls_shown(value, row->text, sizeof row->text);
    row->beyond_file = row->value != NULL && !fits_file(id, row->value);
    if (row->beyond_file)
        row->note = "cannot be set in a file";
}

static void print_row(const struct row *row)
{
    char value[2 * sizeof row->text], from[2 * ORIGIN_TEXT_SIZE];
    bool has_value = row->value != NULL;
    text_escape(value, sizeof value, has_value ? row->value : "");
    text_escape(from, sizeof from, row->from);
    int used = printf("%s%s%s%s", has_value && !row->beyond_file ? "" : "; ", row->name,
                      has_value ? " = " : "", value);
    printf("%*s ; %s%s%s\n", used < ORIGIN_COLUMN ? ORIGIN_COLUMN - used : 0, "", from,
           row->note != NULL ? "; " : "", row->note != NULL ? row->note : "");
}

static void print_file(const char *path, bool was_read)
{
    char text[1024];
    printf("; %s: %s\n", text_escape(text, sizeof text, path), was_read ? "read" : "not found");
}

static void print_json(struct json *json, const struct row *row)
{
    json_begin(json, NULL, '{');
    json_text(json, "name", row->name);
    json_text(json, "value", row->value);
    json_text(json, "origin", row->from);
    json_text(json, "note", row->note);
    json_end(json, '}');
}

int action_print_config(const struct options *options, struct messages *out)
{
    const struct settings *settings = &options->settings;
    struct json json = {.to = stdout};
    if (options->json) {
        json_begin(&json, NULL, '{');
        json_text(&json, "key", options->name);
        json_begin(&json, "settings", '[');
    } else {
        for (const struct config_file *file = settings->files; file != NULL; file = file->next)
            print_file(file->path, file->is_there);
    }
    for (enum option_id id = OPT_NONE + 1; id < OPTION_COUNT; id++) {
        struct row row;
        if (!option_configurable(id))
            continue;
        fill(&row, options, id);
        if (options->json)
            print_json(&json, &row);
        else
            print_row(&row);
    }
    if (options->json) {
        json_end(&json, ']');
        json_line_end(&json);
    }
    return flushed(out, STATUS_OK);
}

/* --- --help, -h, --version ------------------------------------------------ */

/* Help texts start in this column. If an option is too long, its help text starts on the next
 * line. */
enum { TEXT_COLUMN = 30, WIDTH = 80 };

/* Prints the help text of an option, in lines of at most WIDTH columns. The cursor must be at
 * TEXT_COLUMN. */
static void print_text(const char *text)
{
    int column = TEXT_COLUMN;
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (column > TEXT_COLUMN && column + 1 + length > WIDTH) {
            printf("\n%*s", TEXT_COLUMN, "");
            column = TEXT_COLUMN;
        } else if (column > TEXT_COLUMN) {
            column += printf(" ");
        }
        column += printf("%.*s", length, text);
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

static void print_option(const struct option_row *row)
{
    char text[256];
    const char letter[] = {'-', row->letter, ',', '\0'};
    int used = printf("  %3s --%s%s%s", row->letter != '\0' ? letter : "", row->name,
                      row->argument != NULL ? "=" : "", row->argument != NULL ? row->argument : "");
    if (used + 2 > TEXT_COLUMN)
        used = printf("\n") - 1;
    printf("%*s", TEXT_COLUMN - used, "");
    snprintf(text, sizeof text, row->usual != NULL ? "%s (default: %s)" : "%s", row->help,
             row->usual);
    print_text(text);
}

static const struct {
    enum option_id first; /* the option that the title precedes */
    const char *text;
} titles[] = {
    {OPT_NONBLOCK, "Used daily:"},
    {OPT_ACQUIRE, "Without a command:"},
    {OPT_EXCLUSIVE, "Taking the lock:"},
    {OPT_REDIS, "Lock store:"},
    {OPT_ON_EXPIRE, "While the command runs:"},
    {OPT_VERBOSE, "Messages:"},
    {OPT_REMEMBER, "Rarely needed:"},
};

/* Prints the options before `end`, in groups. */
static void print_options(enum option_id end)
{
    for (enum option_id id = OPT_NONE + 1; id < end; id++) {
        for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
            if (titles[i].first == id)
                printf("\n%s\n", titles[i].text);
        if (option_rows[id].help != NULL)
            print_option(&option_rows[id]);
    }
}

/* The text fits on a terminal of 24 lines, and leaves a line for the prompt. */
static void print_usage(void)
{
    puts("Usage: dlock [OPTIONS] NAME [--] COMMAND [ARG...]\n"
         "       dlock --status|--history [OPTIONS] NAME\n"
         "       dlock --list [OPTIONS] [GLOB]");
    print_options(titles[1].first);
    puts("\ncron, all hosts:  0 3 * * * dlock -n -E 0 --hold-at-least=60s nightly -- rollup\n"
         "with Redis:       dlock -r redis://locks.example -w 10m deploy -- ./deploy\n"
         "dlock --help lists all options, as --acquire and --once-per; manual: dlock(1).");
}

static void print_help(void)
{
    puts("Usage: dlock [OPTIONS] NAME [OPTIONS] [--] COMMAND [ARG...]\n"
         "       dlock [OPTIONS] --lock-file=PATH [--] COMMAND [ARG...]\n"
         "       dlock --attach [OPTIONS] NAME|--lock-file=PATH\n"
         "       dlock --acquire|--extend|--release [OPTIONS] NAME\n"
         "       dlock --status [OPTIONS] NAME...\n"
         "       dlock --history|--ran-within=DURATION|--wait-until-free [OPTIONS] NAME\n"
         "       dlock --pause=DURATION --message=TEXT|--resume [OPTIONS] NAME\n"
         "       dlock --force-release [OPTIONS] NAME\n"
         "       dlock --extend|--release|--current [OPTIONS]\n"
         "       dlock --list [OPTIONS] [GLOB]\n"
         "       dlock --doctor|--print-config [OPTIONS] [NAME]");
    print_options(OPTION_COUNT);
    puts("\nURL: redis://[USER[:PASSWORD]@]HOST[:PORT][/DB], unix:///PATH[?db=N],\n"
         "redis+sentinel://HOST[:PORT],.../MASTER[/DB], redis+cluster://HOST[:PORT],...;\n"
         "with TLS rediss://, rediss+sentinel://, rediss+cluster://;\n"
         "valkey:// and valkeys:// are redis:// and rediss://.\n"
         "DURATION: 90, 1.5s, 250ms, 1h30m, 10min, 2w.\n"
         "Exit status: the command's own; 124 the lease ended or was lost; 75 held by\n"
         "another; 69 Redis not reachable; 77 not permitted; 64 wrong usage; 78 wrong\n"
         "configuration. Without a command: 0; 1 there is no such lock, it is free, or\n"
         "--doctor finds that no lock can be trusted; 2 held under another owner token.\n"
         "The manual, dlock(1), has the rest.");
}

#ifdef __GLIBC__
#define LIBC "glibc"
#else
#define LIBC "musl"
#endif
#ifdef STATIC_BINARY
enum { IS_STATIC = true };
#else
enum { IS_STATIC = false };
#endif
#define HIREDIS_VERSION NUMBER(HIREDIS_MAJOR) "." NUMBER(HIREDIS_MINOR) "." NUMBER(HIREDIS_PATCH)
#define NUMBER(macro) TEXT(macro)
#define TEXT(token) #token

static void print_version(bool in_json, bool in_full)
{
    if (in_json) {
        struct json json = json_line_begin(stdout);
        json_text(&json, "version", PACKAGE_VERSION);
        json_bool(&json, "static", IS_STATIC);
        json_text(&json, "libc", LIBC);
        json_text(&json, "openssl", IS_STATIC ? OPENSSL_VERSION_STR : NULL);
        json_text(&json, "hiredis", HIREDIS_VERSION);
        json_line_end(&json);
        return;
    }
    printf("dlock %s (%s" LIBC "; %s; hiredis " HIREDIS_VERSION ")\n", PACKAGE_VERSION,
           IS_STATIC ? "static, " : "",
           IS_STATIC ? "OpenSSL " OPENSSL_VERSION_STR : "OpenSSL 3 if needed");
    if (in_full)
        (void)fwrite(notices, 1, sizeof notices, stdout);
}

int settings_refuse(const struct messages *out, enum settings_result result,
                    const struct errmsg *why)
{
    switch (result) {
    case SETTINGS_BAD_USAGE: return fail(out, FAIL_ARGUMENT, STATUS_USAGE, "%s", why->text);
    case SETTINGS_BAD_CONFIG: return fail(out, FAIL_CONFIG, STATUS_CONFIG, "%s", why->text);
    case SETTINGS_OK:
    case SETTINGS_NO_MEMORY: break;
    }
    return fail(out, FAIL_SYSTEM, STATUS_SYSTEM, "%s", why->text);
}

int action_help(const struct options *options)
{
    const struct settings *settings = &options->settings;
    if (options->action == ACTION_VERSION)
        print_version(setting_in_force(settings, OPT_JSON) != NULL,
                      setting_in_force(settings, OPT_VERBOSE) != NULL);
    else if (options->action == ACTION_USAGE)
        print_usage();
    else
        print_help();
    return fflush(stdout) == 0 && ferror(stdout) == 0 ? STATUS_OK : STATUS_CANT_CREATE;
}
