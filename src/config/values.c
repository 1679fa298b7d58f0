/* The table of options, the functions that read their values, and the settings of each source. */
#include "config/config_int.h"
#include "lock/lock_name.h"
#include "util/clock.h"
#include "util/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct value {
    struct options *options;
    const struct option_row *row;
    void *to;         /* the member of *options for this option */
    const char *text; /* lives as long as the options */
    bool set;         /* the value of a flag */
    struct errmsg *why;
};

/* Sets *why. Always returns false, so that the function that reads a value can return this
 * result. */
__attribute__((format(printf, 2, 3))) static bool refuse(const struct value *value,
                                                         const char *format, ...)
{
    struct errmsg what;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what.text, sizeof what.text, format, args);
    va_end(args);
    errmsg_set(value->why, "'%.100s': %s", value->text, what.text);
    return false;
}

/* --- flags --------------------------------------------------------------- */

bool flag_parse(const char *text, bool *set)
{
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i], text) == 0) {
            *set = i % 2 == 1;
            return true;
        }
    }
    return false;
}

static bool flag(const struct value *value)
{
    *(bool *)value->to = value->set;
    return true;
}

static bool shared(const struct value *value)
{
    enum lock_mode *mode = &value->options->mode;
    if (value->set)
        *mode = MODE_SHARED;
    else if (*mode == MODE_SHARED)
        *mode = MODE_EXCLUSIVE;
    return true;
}

static bool exclusive(const struct value *value)
{
    if (value->set)
        value->options->mode = MODE_EXCLUSIVE;
    return true;
}

/* Each --verbose adds one to the verbosity. Of --verbose and --quiet, the last one counts. */
static bool verbose(const struct value *value)
{
    int *verbosity = &value->options->verbosity;
    if (value->set)
        *verbosity = *verbosity < 0 ? 1 : *verbosity + 1;
    else if (*verbosity > 0)
        *verbosity = 0;
    return true;
}

static bool quiet(const struct value *value)
{
    int *verbosity = &value->options->verbosity;
    if (value->set)
        *verbosity = -1;
    else if (*verbosity < 0)
        *verbosity = 0;
    return true;
}

/* Refuses an option of flock(1), as unlock() below does, and says why dlock does not have that
 * option. */
static bool no_fork(const struct value *value)
{
    errmsg_set(value->why, "dlock must keep running to watch the lease, to stop the command when "
                           "the lease ends, and to release the lock");
    return false;
}

static bool unlock(const struct value *value)
{
    errmsg_set(value->why, "dlock has no open file to unlock; the lock is released when the "
                           "command ends, or by --release");
    return false;
}

/* --- durations ----------------------------------------------------------- */

enum { TTL_LEAST_MS = 100 };

static bool duration(const struct value *value)
{
    enum duration_error error = duration_parse(value->text, value->to);
    return error == DURATION_OK || refuse(value, "%s", duration_error_text(error));
}

static bool is_forever(const char *text)
{
    return strcmp(text, "infinity") == 0 || strcmp(text, "forever") == 0;
}

static bool ttl(const struct value *value)
{
    struct duration *ttl = value->to;
    if (is_forever(value->text)) {
        *ttl = DURATION_FOREVER; /* validate.c allows this only with --lock-file */
        return true;
    }
    if (!duration(value))
        return false;
    if (ttl->ns < TTL_LEAST_MS * NS_PER_MS || ttl->ns > LEASE_MOST.ns)
        return refuse(value, "a lease must last from %dms to %dd", TTL_LEAST_MS, LEASE_MOST_DAYS);
    ttl->ns -= ttl->ns % NS_PER_MS; /* the stores count whole milliseconds */
    return true;
}

static bool timeout(const struct value *value)
{
    const struct duration *timeout = value->to;
    return duration(value) && (timeout->ns >= NS_PER_MS || refuse(value, "must be at least 1ms"));
}

static bool pause_time(const struct value *value)
{
    const struct duration *pause = value->to;
    bool forever = is_forever(value->text);
    if (!forever && !duration(value))
        return false;
    return (!forever && pause->ns >= NS_PER_MS && pause->ns <= LEASE_MOST.ns) ||
           refuse(value, "a pause can last at most %dd", LEASE_MOST_DAYS);
}

/* Of --wait and --nonblock, the last one counts. */
static bool wait_limit(const struct value *value)
{
    value->options->nonblock = false;
    value->options->waits_forever = is_forever(value->text);
    return value->options->waits_forever || duration(value);
}

/* --- numbers ------------------------------------------------------------- */

static bool number(const struct value *value, int least, int most)
{
    int64_t parsed;
    if (!number_parse(value->text, least, most, &parsed))
        return refuse(value, "must be a whole number from %d to %d", least, most);
    *(int *)value->to = (int)parsed;
    return true;
}

static bool status(const struct value *value)
{
    return number(value, 0, 255);
}

static bool replicas(const struct value *value)
{
    return number(value, 0, 100);
}

static bool slots(const struct value *value)
{
    value->options->mode = MODE_SLOTS;
    return number(value, 1, 10000);
}

static bool attach_pid(const struct value *value)
{
    int64_t pid = 0; /* if there is no value: the parent process of dlock */
    if (*value->text != '\0' && !number_parse(value->text, 1, INT32_MAX, &pid))
        return refuse(value, "must be the pid of a process");
    value->options->attach_pid = (pid_t)pid;
    return true;
}

static bool stop_signal(const struct value *value)
{
    value->options->stop_signal = signame_parse(value->text);
    return value->options->stop_signal != 0 ||
           refuse(value, "no such signal; use a form such as TERM, SIGTERM or 15");
}

/* A choice is kept as its index in the option's list of choices. */
static bool choice(const struct value *value)
{
    size_t length = strlen(value->text), size;
    int *index = value->to;
    *index = 0;
    for (const char *word = value->row->argument;; word += size + 1, ++*index) {
        size = strcspn(word, "|");
        if (size == length && memcmp(word, value->text, size) == 0)
            return true;
        if (word[size] == '\0')
            return refuse(value, "must be %s", value->row->argument);
    }
}

/* --- texts --------------------------------------------------------------- */

static bool text(const struct value *value)
{
    *(const char **)value->to = value->text;
    return true;
}

static bool path(const struct value *value)
{
    return text(value) && (*value->text != '\0' || refuse(value, "the path is empty"));
}

/* An empty value means no report. */
static bool report(const struct value *value)
{
    value->options->report = *value->text != '\0' ? value->text : NULL;
    return true;
}

/* Control characters are accepted here, and escaped when the message is shown. */
static bool message(const struct value *value)
{
    size_t size = strlen(value->text);
    size_t length;
    if (size > MESSAGE_MOST) {
        errmsg_set(value->why, "too long: %zu bytes; at most %d are allowed", size, MESSAGE_MOST);
        return false;
    }
    for (size_t at = 0; at < size; at += length) {
        length = utf8_length(value->text + at, size - at);
        if (length == 0) {
            errmsg_set(value->why, "'%.200s' is not valid UTF-8 at byte %zu", value->text, at + 1);
            return false;
        }
    }
    return text(value);
}

static bool owner(const struct value *value)
{
    return text(value) && token_valid(value->text, value->why);
}

static bool scope(const struct value *value)
{
    return text(value) && lock_name_valid(value->text, "the scope", value->why);
}

static bool prefix(const struct value *value)
{
    return text(value) &&
           (*value->text == '\0' || lock_name_valid(value->text, "the prefix", value->why));
}

/* --- the table ----------------------------------------------------------- */

#define BY(ACTION) (1u << ACTION_##ACTION)
#define IN_FILES (1u << 31)
#define IN_HELD (1u << 30)
#define SHOWN (BY(PRINT_CONFIG) | IN_FILES)
#define WATCHING (BY(RUN) | BY(ATTACH) | BY(DOCTOR) | SHOWN)
#define TAKING (WATCHING | BY(ACQUIRE))
#define WAITING (TAKING | BY(WAIT_UNTIL_FREE))
#define ANY (~IN_HELD)
#define HELD (~0u)
#define AT(MEMBER) offsetof(struct options, MEMBER)
#define NOWHERE 0

/* Complete initializers need no parentheses. NOLINTBEGIN(bugprone-macro-parentheses) */
#define OPTION(ID, NAME, LETTER, READ, PLACE, USUAL, ARGUMENT, ACTIONS, WHEN, HELP) \
    [OPT_##ID] = {.name = NAME,                                                     \
                  .letter = LETTER,                                                 \
                  .read = READ,                                                     \
                  .place = PLACE,                                                   \
                  .usual = USUAL,                                                   \
                  .argument = ARGUMENT,                                             \
                  .actions = ACTIONS,                                               \
                  .when = WHEN,                                                     \
                  .help = HELP},
#define ACTION(ID, NAME, LETTER, READ, PLACE, ARGUMENT, TAKES_NAME, NEEDS_RECORD, HELP) \
    [OPT_##ID] = {.name = NAME,                                                         \
                  .letter = LETTER,                                                     \
                  .is_action = true,                                                    \
                  .needs_record = NEEDS_RECORD,                                         \
                  .takes_name = TAKES_NAME,                                             \
                  .read = READ,                                                         \
                  .place = PLACE,                                                       \
                  .argument = ARGUMENT,                                                 \
                  .actions = ANY & ~IN_FILES,                                           \
                  .when = ON_ANY,                                                       \
                  .help = HELP},
/* NOLINTEND(bugprone-macro-parentheses) */

_Static_assert((int)ACTION_PRINT_CONFIG < 30, "the actions fit into the bits of one number");

const struct option_row option_rows[OPTION_COUNT] = {
    [OPT_NONE] = {.name = "", .takes_name = NAME_NEEDED}, /* no action: dlock runs a command */
#include "config/option_rows.h"
};

struct option_name option_name(int index)
{
    static const struct option_name aliases[OPTION_ALIASES] = {
        {"nb", '\0', OPT_NONBLOCK},        {"nonblocking", '\0', OPT_NONBLOCK},
        {"no-wait", '\0', OPT_NONBLOCK},   {"timeout", '\0', OPT_WAIT},
        {"exclusive", 'e', OPT_EXCLUSIVE},
    };
    if (index >= OPTION_COUNT - 1)
        return aliases[index - (OPTION_COUNT - 1)];
    const struct option_row *row = &option_rows[index + 1];
    return (struct option_name){row->name, row->letter, (enum option_id)(index + 1)};
}

enum option_id option_by_name(const char *name, size_t length)
{
    for (int i = 0; i < OPTION_NAMES; i++) {
        struct option_name known = option_name(i);
        if (strlen(known.text) == length && memcmp(known.text, name, length) == 0)
            return known.id;
    }
    return OPT_NONE;
}

bool option_configurable(enum option_id id)
{
    return (option_rows[id].actions & IN_FILES) != 0;
}

bool option_in_held(enum option_id id)
{
    return (option_rows[id].actions & IN_HELD) != 0;
}

bool option_is_path(enum option_id id)
{
    return option_rows[id].read == path;
}

bool option_is_flag(enum option_id id)
{
    return id != OPT_NONE && option_rows[id].argument == NULL && !option_rows[id].is_action;
}

bool option_apply(struct options *options, enum option_id id, const char *text, struct errmsg *why)
{
    const struct option_row *row = &option_rows[id];
    struct value value = {.options = options,
                          .row = row,
                          .to = (char *)options + row->place,
                          .text = text,
                          .why = why};
    if (option_is_flag(id) && !flag_parse(text, &value.set))
        return refuse(&value, "must be yes or no");
    return row->read == NULL || row->read(&value);
}

void options_defaults(struct options *options)
{
    *options = (struct options){.exit_status = -1, .grace = {-1}};
    for (enum option_id id = OPT_NONE + 1; id < OPTION_COUNT; id++)
        if (option_rows[id].usual != NULL)
            (void)option_apply(options, id, option_rows[id].usual, NULL);
}

/* --- the settings of each source, before they are checked ------------------- */

/* Wipes the text, because it may contain a login. */
static void forget(struct setting *setting)
{
    explicit_bzero(setting->text, strlen(setting->text));
    free(setting);
}

static bool is_same_source(struct origin a, struct origin b)
{
    return a.kind == b.kind && a.file == b.file && a.section == b.section;
}

/* Returns the setting to which the text of a new setting from this origin is appended. NULL: the
 * new setting stays separate. */
static struct setting **joined(struct settings *settings, enum option_id id, struct origin origin)
{
    for (struct setting **at = &settings->first; id == OPT_REDIS && *at != NULL; at = &(*at)->next)
        if ((*at)->id == id && is_same_source((*at)->origin, origin))
            return at;
    return NULL;
}

bool settings_add(struct settings *settings, enum option_id id, const char *text,
                  struct origin origin)
{
    struct setting **at = joined(settings, id, origin);
    struct setting *old = at != NULL ? *at : NULL;
    size_t size = strlen(text) + (old != NULL ? strlen(old->text) + 1 : 0) + 1;
    struct setting *setting = malloc(sizeof *setting + size);
    if (setting == NULL)
        return false;

    if (old != NULL) {
        *setting = *old;
        snprintf(setting->text, size, "%s %s", old->text, text);
        forget(old);
        *at = setting;
        return true;
    }
    struct settings added = {.first = setting};
    *setting = (struct setting){.id = id, .origin = origin};
    memcpy(setting->text, text, size);
    settings_append(settings, &added);
    return true;
}

void settings_drop(struct settings *settings, enum option_id id)
{
    for (struct setting **at = &settings->first; *at != NULL;) {
        struct setting *setting = *at;
        if (setting->id != id) {
            at = &setting->next;
            continue;
        }
        *at = setting->next;
        forget(setting);
    }
}

void settings_append(struct settings *settings, struct settings *more)
{
    struct setting **end = &settings->first;
    while (*end != NULL)
        end = &(*end)->next;
    *end = more->first;
    more->first = NULL;
}

void options_free(struct options *options)
{
    struct settings *settings = &options->settings;
    while (settings->first != NULL) {
        struct setting *next = settings->first->next;
        forget(settings->first);
        settings->first = next;
    }
    while (settings->files != NULL) {
        struct config_file *next = settings->files->next;
        free(settings->files);
        settings->files = next;
    }
}

const struct setting *setting_in_force(const struct settings *settings, enum option_id id)
{
    const struct setting *found = NULL;
    for (const struct setting *setting = settings->first; setting != NULL; setting = setting->next)
        if (setting->id == id)
            found = setting;
    return found;
}

enum settings_result origin_result(struct origin origin)
{
    return origin.kind == ORIGIN_DEFAULT || origin.kind == ORIGIN_COMMAND_LINE
               ? SETTINGS_BAD_USAGE
               : SETTINGS_BAD_CONFIG;
}

char *origin_format(enum option_id id, struct origin origin, char *text, size_t size)
{
    const char *name = option_rows[id].name;
    switch (origin.kind) {
    case ORIGIN_FILE: snprintf(text, size, "%s:%d: %s", origin.file, origin.line, name); break;
    case ORIGIN_ENVIRONMENT:
        snprintf(text, size, "DLOCK_%s", name);
        for (char *c = text; *c != '\0'; c++)
            *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
        break;
    case ORIGIN_HELD: snprintf(text, size, "DLOCK_HELD: %s", name); break;
    case ORIGIN_DEFAULT:
    case ORIGIN_COMMAND_LINE: snprintf(text, size, "--%s", name); break;
    }
    return text;
}

char *origin_place(enum option_id id, struct origin origin, char *text, size_t size)
{
    if (origin.kind == ORIGIN_DEFAULT)
        snprintf(text, size, "default");
    else
        origin_format(id, origin, text, size);
    return text;
}
