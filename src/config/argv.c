#include "config/argv.h"

#include "config/hints.h"
#include "config/option_table.h"
#include "redis/url.h"
#include "util/exit_status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Blots out the login of each URL in argv, which ps(1) shows to every user. The
 * command's own words are left alone. */
static void hide_logins(const struct settings *settings, int argc, char **argv)
{
    for (const struct setting *setting = settings->first; setting != NULL;
         setting = setting->next) {
        for (int i = 1; setting->id == OPT_REDIS && *setting->text != '\0' && i < argc; i++) {
            char *here = strstr(argv[i], setting->text);
            if (here == NULL)
                continue;
            char *end = here + strlen(setting->text), after = *end;
            *end = '\0';
            url_redact_logins(here);
            *end = after;
        }
    }
}

/* A marker behind all words, which is no name, option or value. If popt gets no
 * memory, it silently loses values and words, and a lock of another name would
 * be taken. */
static const char after_all[] = "\001";

/* --no-NAME for each option of the table that a file or a variable can set. */
enum { NO_OPTION = 1000, NO_NAME_SIZE = 40 };
static char no_names[OPTION_COUNT][NO_NAME_SIZE];
static struct poptOption no_options[OPTION_COUNT + 1], all_options[3];

static bool add_no(const struct poptOption *option, const void *data)
{
    struct poptOption **to = (struct poptOption **)(uintptr_t)data;
    enum option_id id = (enum option_id)option->val;
    if (!option_configurable(id) || (option->argInfo & POPT_ARGFLAG_DOC_HIDDEN))
        return false;
    snprintf(no_names[id], NO_NAME_SIZE, "no-%s", option->longName);
    *(*to)++ = (struct poptOption){.longName = no_names[id],
                                   .argInfo = POPT_ARG_NONE | POPT_ARGFLAG_DOC_HIDDEN,
                                   .val = NO_OPTION + (int)id};
    return false;
}

static bool has_no_option(const char *const *words)
{
    for (; *words != NULL; words++)
        if (strncmp(*words, "--", 2) == 0 && strncmp(*words + 2, "no-", 3) == 0)
            return true;
    return false;
}

/* What popt needs for these words: most runs have no --no-OPTION. */
static const struct poptOption *options_for(const char *const *words)
{
    struct poptOption *to = no_options;
    if (!has_no_option(words))
        return option_table;
    (void)option_find(add_no, &to);
    all_options[0] = (struct poptOption){.argInfo = POPT_ARG_INCLUDE_TABLE,
                                         .arg = (void *)(uintptr_t)option_table};
    all_options[1] = (struct poptOption){.argInfo = POPT_ARG_INCLUDE_TABLE, .arg = no_options};
    return all_options;
}

/* popt cannot handle an option whose value may be missing: it would take the
 * next word for it, the lock's name. So --attach=PID is --attach-pid=PID to
 * popt, and --tree=no is --no-tree. False if the word is neither. */
enum { SPELLED_OUT_SIZE = 64 };
static bool spell_out(const char *word, char text[SPELLED_OUT_SIZE])
{
    static const char attach[] = "--attach=";
    bool set;
    size_t length = strcspn(word, "=");
    if (strncmp(word, attach, sizeof attach - 1) == 0)
        return snprintf(text, SPELLED_OUT_SIZE, "--attach-pid=%.31s", word + sizeof attach - 1) > 0;
    const struct poptOption *option = strncmp(word, "--", 2) == 0 && word[length] == '='
                                          ? option_by_name(word + 2, length - 2)
                                          : NULL;
    if (option == NULL || option_has_value(option) ||
        !option_configurable((enum option_id)option->val) || !flag_parse(word + length + 1, &set))
        return false;
    return snprintf(text, SPELLED_OUT_SIZE, "--%s%s", set ? "" : "no-",
                    option_by_id((enum option_id)option->val)->longName) > 0;
}

/* Returns a copy of argv, which the caller frees, that points into it, with
 * after_all behind the last word; NULL if memory is short. */
static const char **words_for_popt(int argc, char **argv)
{
    char text[SPELLED_OUT_SIZE];
    size_t count = (size_t)argc + 2, spelled_out = 0;
    for (int i = option_next(argc, argv, 0); i < argc; i = option_next(argc, argv, i))
        spelled_out += spell_out(argv[i], text);
    const char **words = calloc(1, count * sizeof *words + spelled_out * SPELLED_OUT_SIZE);
    if (words == NULL)
        return NULL;
    memcpy(words, argv, (size_t)argc * sizeof *words);
    words[argc] = after_all;
    char *word = (char *)(words + count);
    for (int i = option_next(argc, argv, 0); i < argc; i = option_next(argc, argv, i)) {
        if (!spell_out(argv[i], word))
            continue;
        words[i] = word;
        word += SPELLED_OUT_SIZE;
    }
    return words;
}

/* True while popt is running. */
static bool in_popt;

/* If popt gets no memory it prints that and ends the program with status 1,
 * which for --status would mean that the lock is free. */
static void exit_from_popt(void)
{
    if (in_popt)
        _exit(STATUS_SYSTEM);
}

static int no_memory(struct errmsg *why)
{
    errmsg_set(why, "out of memory");
    return WORDS_NO_MEMORY;
}

static int wrong_word(const char *word, int fault, struct errmsg *why)
{
    hints_bad_option(word, fault, why);
    return WORDS_WRONG;
}

/* Reads options from argv[1] on, up to the first word that is none. Returns its
 * index (argc if there is none), or the error. */
static int read_with_popt(struct settings *settings, poptContext context, int argc,
                          const char *const *words, bool behind_name, struct errmsg *why)
{
    const struct origin origin = {.kind = ORIGIN_COMMAND_LINE, .behind_name = behind_name};
    int id;
    while ((id = poptGetNextOpt(context)) > 0) {
        if (id >= NO_OPTION) {
            if (!settings_add_no(settings, (enum option_id)(id - NO_OPTION), origin))
                return no_memory(why);
            continue;
        }
        char *text = poptGetOptArg(context);
        if (text != NULL && strcmp(text, after_all) == 0) {
            free(text);
            return wrong_word(words[argc - 1], POPT_ERROR_NOARG, why);
        }
        bool complete = text != NULL || !option_has_value(option_by_id((enum option_id)id));
        bool added = complete && settings_add(settings, (enum option_id)id, text, origin);
        if (text != NULL && id == OPT_REDIS)
            explicit_bzero(text, strlen(text));
        free(text);
        if (!added)
            return no_memory(why);
    }
    if (id == POPT_ERROR_MALLOC || (id >= -1 && poptPeekArg(context) == NULL))
        return no_memory(why);
    if (id < -1)
        return wrong_word(poptBadOption(context, POPT_BADOPTION_NOALIAS), id, why);
    int index = argc + 1;
    for (const char **rest = poptGetArgs(context); *rest != NULL; rest++)
        index--;
    return index;
}

int argv_read(struct settings *settings, int argc, char **argv, bool behind_name,
              struct errmsg *why)
{
    static bool told;
    if (!hints_dashes_right(argc, argv, why))
        return WORDS_WRONG;
    if (!told && atexit(exit_from_popt) != 0)
        return no_memory(why);
    told = true;
    const char **words = words_for_popt(argc, argv);
    int index = WORDS_NO_MEMORY;
    in_popt = true;
    poptContext context = words == NULL ? NULL
                                        : poptGetContext(NULL, argc + 1, words, options_for(words),
                                                         POPT_CONTEXT_POSIXMEHARDER);
    if (context != NULL)
        index = read_with_popt(settings, context, argc, words, behind_name, why);
    else
        (void)no_memory(why);
    poptFreeContext(context);
    in_popt = false;
    free(words);
    hide_logins(settings, index < 0 ? argc : index, argv);
    return index;
}
