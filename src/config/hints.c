#include "config/hints.h"

#include "config/settings.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The word up to its value. */
static size_t name_length(const char *word)
{
    return strcspn(word, "=:");
}

static void unknown_option(const char *word, struct errmsg *why)
{
    size_t dashes = strspn(word, "-"), length = name_length(word + dashes);
    const char *name = word + dashes;
    int shown = (int)(dashes + length < 100 ? dashes + length : 100);
    char near[NEAR_TEXT_SIZE];
    if (strncmp(word, "--fcntl", (size_t)shown) == 0 && length == strlen("fcntl"))
        errmsg_set(why, "--fcntl: unknown option; file locks are those of flock(2) here, which "
                        "--fcntl would not meet");
    else if (dashes > 1 && hints_near(near, name, length, NEAR_ALL))
        errmsg_set(why, "%.*s: unknown option; did you mean %s?", shown, word, near);
    else
        errmsg_set(why, "%.*s: unknown option; dlock --help lists them all", shown, word);
}

static bool takes_yes_or_no(const char *word)
{
    const struct poptOption *option =
        strncmp(word, "--", 2) == 0 ? option_by_name(word + 2, name_length(word + 2)) : NULL;
    return option != NULL && option_configurable((enum option_id)option->val);
}

void hints_bad_option(const char *word, int fault, struct errmsg *why)
{
    const char *text =
        fault == POPT_ERROR_NOARG ? "it needs a value"
        : fault == POPT_ERROR_UNWANTEDARG
            ? takes_yes_or_no(word) ? "its only values are yes and no" : "it takes no value"
            : poptStrerror(fault);
    if (fault == POPT_ERROR_BADOPT)
        unknown_option(word, why);
    else
        errmsg_set(why, "%.*s: %s", (int)name_length(word), word, text);
}

/* --- one dash ------------------------------------------------------------- */

/* -help is read as -h, and has the intended effect. */
static bool one_dash_right(const char *word, struct errmsg *why)
{
    size_t length = name_length(word + 1);
    const char *name = word + 1;
    if (length <= 2 || option_by_name(name, length) == NULL || strncmp(name, "help", length) == 0)
        return true;
    errmsg_set(why, "-%.*s: a long option has two dashes: --%.*s", (int)length, name, (int)length,
               name);
    return false;
}

bool hints_dashes_right(int argc, char **argv, struct errmsg *why)
{
    for (int i = option_next(argc, argv, 0); i < argc; i = option_next(argc, argv, i))
        if (argv[i][1] != '-' && !one_dash_right(argv[i], why))
            return false;
    return true;
}

/* --- names and commands --------------------------------------------------- */

static const char blanks[] = " \t\n";

static bool is_program_file(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* As execvp(3) would find it. */
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

/* The action, or --help or a similar option, that has this word as its name; NULL: none. */
static const char *verb(const char *word)
{
    const struct poptOption *option = option_by_name(word, strlen(word));
    bool is_verb = option != NULL && !option_has_value(option) &&
                   !option_configurable((enum option_id)option->val) &&
                   option->val != OPT_NO_FORK && option->val != OPT_UNLOCK;
    return is_verb ? option->longName : NULL;
}

static void hints_add(struct errmsg *why, const char *hint)
{
    size_t used = strlen(why->text);
    snprintf(why->text + used, sizeof why->text - used, "; %s", hint);
}

void hints_no_command(const char *name, struct errmsg *why)
{
    static const char none[] = "no command given";
    if (verb(name) != NULL)
        errmsg_set(why,
                   "%s; did you mean dlock --%s? (with a lock of that name: dlock %s -- COMMAND)",
                   none, verb(name), name);
    else if (strpbrk(name, blanks) != NULL)
        errmsg_set(why,
                   "%s; '%.100s' is read as the lock's name: dlock NAME -- COMMAND, or dlock "
                   "NAME -c 'STRING' for a shell",
                   none, name);
    else if (name[strspn(name, "0123456789")] == '\0')
        errmsg_set(why,
                   "%s; dlock locks no descriptors; dlock --attach NAME || exit holds a lock until "
                   "the script ends (with --lock-file=FILE, the lock on that file)",
                   none);
    else if (is_program(name))
        errmsg_set(why,
                   "%s; if %.100s is the command, the lock's name is missing: dlock NAME -- %.100s",
                   none, name, name);
    else if (strchr(name, '/') != NULL)
        errmsg_set(why,
                   "%s; usage: dlock [OPTIONS] NAME -- COMMAND [ARG...]; --lock-file=%.200s locks "
                   "that file as flock(1) does",
                   none, name);
    else
        errmsg_set(why,
                   "%s; usage: dlock [OPTIONS] NAME [--] COMMAND [ARG...], or dlock --status NAME",
                   none);
}

void hints_name_is_command(const char *name, struct errmsg *why)
{
    char hint[256];
    if (!is_program(name))
        return;
    snprintf(hint, sizeof hint,
             "if %.80s is the command, the lock's name is missing: dlock NAME -- %.80s", name,
             name);
    hints_add(why, hint);
}

void hints_behind_name(const struct options *options, struct origin origin, struct errmsg *why)
{
    if (origin.behind_name)
        hints_name_is_command(options->name, why);
}

void hints_not_a_command(const struct options *options, struct errmsg *why)
{
    char hint[256];
    if (options->command == NULL)
        return;
    const char *word = options->command[0];
    if (verb(options->name) != NULL && options->command[1] == NULL) {
        snprintf(hint, sizeof hint, "did you mean dlock --%s %.100s?", verb(options->name), word);
        hints_add(why, hint);
    } else if (strpbrk(word, blanks) != NULL && options->command[1] == NULL) {
        hints_add(why, "it is one word with spaces in it: -c 'STRING' gives it to a shell");
    } else {
        hints_name_is_command(options->name, why);
    }
}

bool hints_name_is_file(const struct options *options)
{
    struct stat status;
    return strchr(options->name, '/') != NULL && options->lock_file == NULL &&
           stat(options->name, &status) == 0 && S_ISREG(status.st_mode);
}

enum { NEAR_SIZE = 32, NEAR_MOST = 3, PREFIX_LEAST = 2 };

struct near {
    enum near_kind kind;
    char word[NEAR_SIZE]; /* as it would be in the table */
    const char *names[NEAR_MOST];
    int ids[NEAR_MOST];
    int count, distance;
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* How many letters have to be inserted, left out, changed, or swapped with the
 * next one to make b of a. F. J. Damerau, "A technique for computer detection
 * and correction of spelling errors", CACM 7 (1964); no letter is changed
 * twice. */
static int distance(const char *a, const char *b)
{
    int rows[3][NEAR_SIZE], *before = rows[0], *last = rows[1], *row = rows[2];
    int length = (int)strlen(b);
    for (int j = 0; j <= length; j++)
        before[j] = last[j] = j;
    for (int i = 1; a[i - 1] != '\0'; i++) {
        row[0] = i;
        for (int j = 1; j <= length; j++) {
            row[j] = least(least(last[j], row[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        int *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[length];
}

/* An abbreviation is nearest; then one letter in four may differ; then a word
 * may follow: redis-url. */
static int option_distance(const char *word, const char *name)
{
    size_t length = strlen(word);
    if (length >= PREFIX_LEAST && strncmp(word, name, length) == 0)
        return 0;
    int found = strlen(name) < NEAR_SIZE ? distance(word, name) : NEAR_SIZE;
    if (found <= ((int)length + 2) / 4)
        return found;
    return strncmp(word, name, strlen(name)) == 0 && word[strlen(name)] == '-' ? NEAR_SIZE - 1
                                                                               : NEAR_SIZE;
}

static bool note_near(const struct poptOption *option, const void *data)
{
    struct near *near = (struct near *)(uintptr_t)data;
    int found = option_distance(near->word, option->longName);
    if (found >= NEAR_SIZE || found > near->distance || option->val == OPT_ATTACH_PID)
        return false;
    if (near->kind != NEAR_ALL && !option_configurable((enum option_id)option->val))
        return false;
    if (found < near->distance)
        near->count = 0;
    near->distance = found;
    for (int i = 0; i < least(near->count, NEAR_MOST); i++)
        if (near->ids[i] == option->val)
            return false; /* an alias of it */
    if (near->count < NEAR_MOST) {
        near->names[near->count] = option->longName;
        near->ids[near->count] = option->val;
    }
    near->count++;
    return false;
}

/* A word that begins too many options, or is near too many, gives no hint. */
bool hints_near(char text[NEAR_TEXT_SIZE], const char *name, size_t length, enum near_kind kind)
{
    struct near near = {.kind = kind, .distance = NEAR_SIZE - 1};
    if (length >= NEAR_SIZE)
        return false;
    for (size_t i = 0; i < length; i++)
        near.word[i] = name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
    (void)option_find(note_near, &near);
    if (near.count == 0 || near.count > NEAR_MOST)
        return false;
    for (int i = 0, used = 0; i < near.count; i++) {
        char variable[ORIGIN_TEXT_SIZE];
        const char *shown = near.names[i];
        if (kind == NEAR_VARIABLES) /* aliases have none */
            shown = origin_format((enum option_id)near.ids[i],
                                  (struct origin){.kind = ORIGIN_ENVIRONMENT}, variable,
                                  sizeof variable);
        used += snprintf(text + used, (size_t)(NEAR_TEXT_SIZE - used), "%s%s%s",
                         i == 0               ? ""
                         : i + 1 < near.count ? ", "
                                              : " or ",
                         kind == NEAR_ALL ? "--" : "", shown);
    }
    return true;
}
