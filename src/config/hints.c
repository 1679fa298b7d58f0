#include "config/config_int.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Appends "; " and the text. */
__attribute__((format(printf, 2, 3))) static void add(struct errmsg *why, const char *format, ...)
{
    size_t used = strlen(why->text);
    va_list args;
    va_start(args, format);
    (void)snprintf(why->text + used, sizeof why->text - used, "; ");
    used = strlen(why->text);
    (void)vsnprintf(why->text + used, sizeof why->text - used, format, args);
    va_end(args);
}

/* --- names that other programs use ---------------------------------------- */

/* Returns the option that has this name in another program, or had it in an earlier dlock. */
static enum option_id meant_by(const char *name)
{
    static const struct {
        const char *name;
        enum option_id id;
    } elsewhere[] = {
        /* timeout(1) */
        {"signal", OPT_STOP_SIGNAL},
        {"kill-after", OPT_GRACE},
        /* consul lock, etcdctl, redis-cli */
        {"try", OPT_WAIT},
        {"monitor-retry", OPT_RETRY_FOR},
        {"endpoints", OPT_REDIS},
        {"dial-timeout", OPT_CONNECT_TIMEOUT},
        {"cert", OPT_CLIENT_CERT},
        {"key", OPT_CLIENT_KEY},
        /* libraries */
        {"lease", OPT_TTL},
        {"expire", OPT_TTL},
        {"token", OPT_OWNER},
        {"limit", OPT_SLOTS},
        {"reason", OPT_MESSAGE},
        {"unlock", OPT_RELEASE},
        {"renew", OPT_EXTEND},
        {"namespace", OPT_PREFIX},
        {"check", OPT_STATUS},
        {"break", OPT_FORCE_RELEASE},
        /* earlier versions of dlock */
        {"outage", OPT_RETRY_FOR},
        {"wait-free", OPT_WAIT_UNTIL_FREE},
    };
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strcmp(name, elsewhere[i].name) == 0)
            return elsewhere[i].id;
    return OPT_NONE;
}

/* --- options -------------------------------------------------------------- */

void hints_unknown_option(const char *word, struct errmsg *why)
{
    char near[NEAR_TEXT_SIZE];
    size_t dashes = strspn(word, "-"), length = strcspn(word, "=:");
    int shown = length < 100 ? (int)length : 100;
    errmsg_set(why, "%.*s: unknown option", shown, word);
    if (strcmp(why->text, "--fcntl: unknown option") == 0)
        add(why, "dlock uses flock(2), and fcntl(2) locks do not exclude flock(2) locks");
    else if (dashes > 1 && hints_near(near, word + dashes, length - dashes, NEAR_ALL))
        add(why, "did you mean %s?", near);
    else
        add(why, "dlock --help lists all options");
}

/* -help needs no hint: popt reads it as -h, which prints help as well. */
bool hints_one_dash(const char *word, struct errmsg *why)
{
    const char *name = word + 1;
    size_t length = strcspn(name, "=:");
    if (*word != '-' || length <= 2 || option_by_name(name, length) == OPT_NONE ||
        strncmp(name, "help", length) == 0)
        return false;
    errmsg_set(why, "-%.*s: a long option needs two dashes: --%.*s", (int)length, name, (int)length,
               name);
    return true;
}

/* --- names and commands --------------------------------------------------- */

static const char blanks[] = " \t\n";

static bool is_program_file(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* True if execvp(3) would find a program of this name. */
static bool is_program(const char *word)
{
    const char *path = getenv("PATH");
    if (strchr(word, '/') != NULL)
        return is_program_file(word);
    for (; path != NULL && *path != '\0'; path += *path == ':') {
        char file[1024];
        size_t length = strcspn(path, ":");
        int needed = snprintf(file, sizeof file, "%.*s/%s", (int)length, path, word);
        if (length > 0 && needed > 0 && (size_t)needed < sizeof file && is_program_file(file))
            return true;
        path += length;
    }
    return false;
}

/* Returns the name of the action that the user may mean by `word`, which has no dashes. NULL: there
 * is no such action, or the action needs a value. */
static const char *verb(const char *word)
{
    enum option_id id = meant_by(word);
    const struct option_row *row =
        &option_rows[id != OPT_NONE ? id : option_by_name(word, strlen(word))];
    return row->is_action && row->argument == NULL ? row->name : NULL;
}

/* True if the command line has --lock-file, and so no NAME. */
static bool locks_file(const struct options *options)
{
    return options->origins[OPT_LOCK_FILE].kind == ORIGIN_COMMAND_LINE;
}

void hints_no_command(const struct options *options, struct errmsg *why)
{
    const char *name = options->name;
    errmsg_set(why, "no command given");
    if (locks_file(options))
        add(why, "usage: dlock [OPTIONS] --lock-file=PATH [--] COMMAND [ARG...]");
    else if (verb(name) != NULL)
        add(why, "did you mean dlock --%s? (for a lock of that name: dlock %s -- COMMAND)",
            verb(name), name);
    else if (strpbrk(name, blanks) != NULL)
        add(why,
            "'%.100s' was taken as the lock's name; use dlock NAME -- COMMAND, or dlock NAME -c "
            "'STRING' for a shell",
            name);
    else if (name[strspn(name, "0123456789")] == '\0')
        add(why, "dlock cannot lock file descriptors; in a script, use dlock --attach NAME || "
                 "exit, or dlock --attach --lock-file=FILE || exit");
    else if (is_program(name))
        hints_name_is_command(name, why);
    else if (strchr(name, '/') != NULL)
        add(why,
            "usage: dlock [OPTIONS] NAME -- COMMAND [ARG...]; --lock-file=%.200s locks that file "
            "as flock(1) does",
            name);
    else
        add(why, "usage: dlock [OPTIONS] NAME [--] COMMAND [ARG...], or dlock --status NAME; "
                 "dlock -h shows more");
}

void hints_name_is_command(const char *name, struct errmsg *why)
{
    if (is_program(name))
        add(why,
            "if %.80s is the command, the lock's name is missing: dlock NAME -- %.80s, or "
            "dlock --lock-file=PATH %.80s",
            name, name, name);
}

void hints_no_name(const char *word, bool runs, struct errmsg *why)
{
    errmsg_set(why,
               "'%.80s': --lock-file takes no NAME; use --name=%.80s to name the lock in messages",
               word, word);
    if (runs && is_program(word))
        add(why, "if %.80s is the command: dlock --lock-file=PATH -- %.80s", word, word);
}

void hints_behind_name(const struct options *options, struct origin origin, struct errmsg *why)
{
    if (origin.behind_name)
        hints_name_is_command(options->name, why);
}

void hints_not_a_command(const struct options *options, struct errmsg *why)
{
    if (options->command == NULL)
        return;
    const char *word = options->command[0];
    bool alone = options->command[1] == NULL;
    if (alone && strpbrk(word, blanks) != NULL)
        add(why, "the command is one word with spaces; use -c 'STRING' to run it in a shell");
    else if (!alone && locks_file(options))
        add(why, "--lock-file takes no NAME; use --name=%.80s to name the lock in messages", word);
    else if (locks_file(options))
        return; /* there is no NAME that might be the command */
    else if (alone && verb(options->name) != NULL)
        add(why, "did you mean dlock --%s %.100s?", verb(options->name), word);
    else
        hints_name_is_command(options->name, why);
}

bool hints_name_is_file(const struct options *options)
{
    struct stat status;
    return strchr(options->name, '/') != NULL && options->lock_file == NULL &&
           stat(options->name, &status) == 0 && S_ISREG(status.st_mode);
}

/* --- which option may be meant --------------------------------------------- */

enum { NEAR_MOST = 3, PREFIX_LEAST = 2, EDITS_MOST = 4, FAR = EDITS_MOST + 2 };

/* True if at most `edits` steps turn a into b. A step inserts, omits or changes a letter, or swaps
 * two neighbours. */
static bool within(const char *a, const char *b, int edits)
{
    for (; *a != '\0' && *a == *b; b++)
        a++;
    if (*a == *b)
        return true;
    if (edits == 0)
        return false;
    bool both = *a != '\0' && *b != '\0';
    return (*a != '\0' && within(a + 1, b, edits - 1)) ||
           (*b != '\0' && within(a, b + 1, edits - 1)) ||
           (both && within(a + 1, b + 1, edits - 1)) ||
           (both && a[0] == b[1] && a[1] == b[0] && within(a + 2, b + 2, edits - 1));
}

/* How far `word`, which the user typed, is from the name of an option; FAR: too far for a hint. An
 * abbreviation of the name is nearest. Next come words in which at most one letter in four differs,
 * then words that begin with the whole name, such as redis-url for redis. */
static int distance(const char *word, const char *name)
{
    size_t length = strlen(word), size = strlen(name);
    if (length >= PREFIX_LEAST && strncmp(word, name, length) == 0)
        return 0;
    for (int edits = 1; edits <= EDITS_MOST && (size_t)edits <= (length + 2) / 4; edits++)
        if (within(word, name, edits))
            return edits;
    return strncmp(word, name, size) == 0 && word[size] == '-' ? FAR - 1 : FAR;
}

struct near {
    const char *names[NEAR_MOST];
    enum option_id ids[NEAR_MOST];
    int count, distance;
};

static void note(struct near *near, const char *word, const char *name, enum option_id id)
{
    int found = distance(word, name);
    if (found == FAR || found > near->distance)
        return;
    if (found < near->distance)
        near->count = 0;
    near->distance = found;
    for (int i = 0; i < near->count && i < NEAR_MOST; i++)
        if (near->ids[i] == id)
            return; /* another name of this option is already in the list */
    if (near->count < NEAR_MOST) {
        near->names[near->count] = name;
        near->ids[near->count] = id;
    }
    near->count++;
}

/* Gives no hint if too many options begin with the word or resemble it. */
bool hints_near(char text[NEAR_TEXT_SIZE], const char *name, size_t length, enum near_kind kind)
{
    char word[32] = "", variable[ORIGIN_TEXT_SIZE];
    struct near near = {.distance = FAR};
    if (length >= sizeof word)
        return false;
    for (size_t i = 0; i < length; i++)
        word[i] = name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
    enum option_id meant = meant_by(word);
    if (meant != OPT_NONE && (kind == NEAR_ALL || option_configurable(meant)))
        near = (struct near){{option_rows[meant].name}, {meant}, 1, 0};
    for (int i = 0; meant == OPT_NONE && i < OPTION_NAMES; i++) {
        struct option_name known = option_name(i);
        if (kind == NEAR_ALL || option_configurable(known.id))
            note(&near, word, known.text, known.id);
    }
    if (near.count == 0 || near.count > NEAR_MOST)
        return false;

    for (int i = 0, used = 0; i < near.count; i++) {
        const char *before = i == 0 ? "" : i + 1 < near.count ? ", " : " or ";
        const char *shown = near.names[i];
        if (kind == NEAR_VARIABLES) /* an alias has no variable */
            shown = origin_format(near.ids[i], (struct origin){.kind = ORIGIN_ENVIRONMENT},
                                  variable, sizeof variable);
        used += snprintf(text + used, (size_t)(NEAR_TEXT_SIZE - used), "%s%s%s", before,
                         kind == NEAR_ALL ? "--" : "", shown);
    }
    return true;
}
