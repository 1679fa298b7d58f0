/* The command line, read by popt. This file does what popt cannot:
 *
 *   --no-NAME, --FLAG=yes, --attach=PID   Popt refuses the word; dlock handles it, and popt
 *                                         continues. (Popt is told that --attach has no value. If
 *                                         popt expected an optional value, it would take the next
 *                                         word, NAME, as the value.)
 *   -name                                 Popt would read "-tree" as -t ree; dlock refuses it.
 *   too little memory                     Popt loses words and values, or exits with status 1,
 *                                         which for --status means that the lock is free. dlock
 *                                         notices both.
 */
#include "config/config_int.h"
#include "redis/url.h"
#include "util/exit_status.h"

#include <popt.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* dlock adds this word at the end of the command line. If popt does not return it, popt has lost
 * words. */
static char end_of_words[] = "\001";

static bool in_popt;

static void exit_from_popt(void)
{
    if (in_popt)
        _exit(STATUS_SYSTEM);
}

static void fill_table(struct poptOption table[OPTION_NAMES + 1])
{
    for (int i = 0; i < OPTION_NAMES; i++) {
        struct option_name name = option_name(i);
        bool has_value = option_rows[name.id].argument != NULL;
        table[i] = (struct poptOption){
            .longName = name.text,
            .shortName = name.letter,
            .argInfo = has_value ? POPT_ARG_STRING : POPT_ARG_NONE,
            .val = (int)name.id,
        };
    }
    table[OPTION_NAMES] = (struct poptOption)POPT_TABLEEND;
}

/* What the functions below need for one call of argv_read(). */
struct words {
    struct options *options;
    struct origin origin;
    const char *last; /* the last word of the command line */
    struct errmsg *why;
};

static int no_memory(struct errmsg *why)
{
    errmsg_set(why, "out of memory");
    return WORDS_NO_MEMORY;
}

static int wrong(const struct words *words, const char *word, int error)
{
    const char *text = error == POPT_ERROR_NOARG         ? "needs a value"
                       : error == POPT_ERROR_UNWANTEDARG ? "takes no value"
                                                         : poptStrerror(error);
    if (hints_one_dash(word, words->why))
        return WORDS_WRONG;
    if (error == POPT_ERROR_BADOPT)
        hints_unknown_option(word, words->why);
    else /* do not show the value, which may be a URL with a password */
        errmsg_set(words->why, "%.*s: %s", (int)strcspn(word, "=:"), word, text);
    return WORDS_WRONG;
}

static int add(const struct words *words, enum option_id id, const char *text)
{
    bool added = settings_add(&words->options->settings, id, text, words->origin);
    return added ? 0 : no_memory(words->why);
}

/* Handles a word such as --FLAG=yes or --attach=PID, which has a value although popt was told that
 * the option has none. */
static int take_unwanted(const struct words *words, enum option_id id, const char *word,
                         const char *value)
{
    bool set;
    if (id == OPT_ATTACH && *value == '\0') /* as a setting, "" means --attach without "=PID" */
        return wrong(words, word, POPT_ERROR_NOARG);
    if (id == OPT_ATTACH)
        return add(words, id, value);
    if (!option_is_flag(id) || !option_configurable(id))
        return wrong(words, word, POPT_ERROR_UNWANTEDARG);
    if (flag_parse(value, &set)) /* apply_all() in read.c refuses any other value */
        value = set ? "yes" : "no";
    return add(words, id, value);
}

/* Handles a word that popt refuses with the given error. */
static int take_refused(const struct words *words, const char *word, int error)
{
    const char *name = strncmp(word, "--", 2) == 0 ? word + 2 : "";
    bool is_no = error == POPT_ERROR_BADOPT && strncmp(name, "no-", 3) == 0;
    if (is_no)
        name += 3;
    size_t length = strcspn(name, "=");
    enum option_id id = option_by_name(name, length);

    if (name[length] == '=' && error == POPT_ERROR_UNWANTEDARG)
        return take_unwanted(words, id, word, name + length + 1);
    if (!is_no || !option_configurable(id))
        return wrong(words, word, error);
    if (name[length] == '=')
        return wrong(words, word, POPT_ERROR_UNWANTEDARG);
    if (option_is_flag(id))
        return add(words, id, "no");
    settings_drop(&words->options->settings, id);
    words->options->unset[id] = true;
    return 0;
}

/* Overwrites the login of the URL at the end of the word, because ps(1) shows the command line to
 * every user. */
static void hide_login(const char *word, const char *value)
{
    size_t length = strlen(word), size = strlen(value);
    if (size <= length && strcmp(word + length - size, value) == 0)
        url_redact_logins((char *)(uintptr_t)word + length - size);
}

/* Handles an option; `word` is the last word that popt read for that option. */
static int take(const struct words *words, enum option_id id, const char *word, const char *value)
{
    bool is_value = value != NULL && strcmp(word, value) == 0;
    if (!is_value && hints_one_dash(word, words->why))
        return WORDS_WRONG;
    if (option_rows[id].argument == NULL)
        return add(words, id, option_is_flag(id) ? "yes" : "");
    if (value == NULL)
        return no_memory(words->why);
    if (word == end_of_words)
        return wrong(words, words->last, POPT_ERROR_NOARG);
    int result = add(words, id, value);
    if (id == OPT_REDIS)
        hide_login(word, value);
    return result;
}

/* Reads the options up to the first word that is not an option. Returns what argv_read()
 * returns. */
static int read_with_popt(const struct words *words, poptContext context, int argc)
{
    int id;
    while ((id = poptGetNextOpt(context)) != -1) {
        const char *word = poptBadOption(context, POPT_BADOPTION_NOALIAS);
        if (id == POPT_ERROR_MALLOC)
            return no_memory(words->why);
        char *value = id > 0 ? poptGetOptArg(context) : NULL;
        int result =
            id > 0 ? take(words, (enum option_id)id, word, value) : take_refused(words, word, id);
        if (value != NULL)
            explicit_bzero(value, strlen(value));
        free(value);
        if (result != 0)
            return result;
    }
    if (poptPeekArg(context) == NULL)
        return no_memory(words->why);
    int index = argc + 1;
    for (const char **rest = poptGetArgs(context); *rest != NULL; rest++)
        index--;
    return index;
}

int argv_read(struct options *options, int argc, char **argv, bool behind_name, struct errmsg *why)
{
    static bool told;
    if (!told && atexit(exit_from_popt) != 0)
        return no_memory(why);
    told = true;

    struct poptOption table[OPTION_NAMES + 1];
    struct words words = {
        .options = options,
        .origin = {.kind = ORIGIN_COMMAND_LINE, .behind_name = behind_name},
        .last = argv[argc - 1],
        .why = why,
    };
    int index;
    fill_table(table);
    in_popt = true;
    argv[argc] = end_of_words;
    poptContext context = poptGetContext(NULL, argc + 1, (const char **)(uintptr_t)argv, table,
                                         POPT_CONTEXT_POSIXMEHARDER);
    index = context != NULL ? read_with_popt(&words, context, argc) : no_memory(why);
    poptFreeContext(context);
    argv[argc] = NULL;
    in_popt = false;
    return index;
}
