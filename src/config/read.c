#include "config/config_int.h"
#include "redis/url.h"

#include <stdlib.h>
#include <string.h>

/* --- values ------------------------------------------------------------- */

/* Refuses a relative path of a lock if a file or a variable sets it. Such a setting applies in many
 * working directories, and the path would name a different lock in each of them. */
static bool is_one_place(const struct setting *setting, struct errmsg *why)
{
    bool is_place = setting->id == OPT_LOCK_DIR || setting->id == OPT_LOCK_FILE;
    bool told_here = setting->origin.kind == ORIGIN_COMMAND_LINE;
    if (told_here || !is_place || *setting->text == '/' || *setting->text == '\0')
        return true;
    errmsg_set(why,
               "'%.200s': a relative path would be a different lock in each directory; use an "
               "absolute path",
               setting->text);
    return false;
}

static enum settings_result apply_all(struct options *options, struct errmsg *why)
{
    for (const struct setting *setting = options->settings.first; setting != NULL;
         setting = setting->next) {
        options->origins[setting->id] = setting->origin;
        if (is_one_place(setting, why) && option_apply(options, setting->id, setting->text, why))
            continue;

        char where[ORIGIN_TEXT_SIZE];
        if (setting->id != OPT_REDIS && strstr(setting->text, "://") != NULL &&
            url_redact_has_password(setting->text))
            errmsg_set(why, "the value is a URL with a password; only --redis may contain one");
        errmsg_prefix(why, origin_format(setting->id, setting->origin, where, sizeof where));
        hints_behind_name(options, setting->origin, why);
        return origin_result(setting->origin);
    }
    return SETTINGS_OK;
}

/* --- the command line --------------------------------------------------- */

static bool has_lock_file(const struct settings *settings)
{
    return setting_in_force(settings, OPT_LOCK_FILE) != NULL;
}

/* The lock's name with --lock-file: the value of --name or, without one, the path. NULL: neither is
 * given. */
static const char *name_of_lock_file(const struct settings *settings)
{
    const struct setting *name = setting_in_force(settings, OPT_NAME);
    const struct setting *file = setting_in_force(settings, OPT_LOCK_FILE);
    if (name != NULL)
        return name->text;
    return file != NULL && *file->text != '\0' ? file->text : NULL;
}

static bool has_action(const struct settings *settings)
{
    for (const struct setting *setting = settings->first; setting != NULL; setting = setting->next)
        if (option_rows[setting->id].is_action)
            return true;
    return false;
}

static enum settings_result wrong_words(int index)
{
    return index == WORDS_NO_MEMORY ? SETTINGS_NO_MEMORY : SETTINGS_BAD_USAGE;
}

/* Reads the further names of --status, which start at argv[at], and moves them next to each other.
 * Options may stand between names, but not after a "--". `is_over`: a "--" precedes argv[at]. */
static enum settings_result read_more_names(struct options *options, int argc, char **argv, int at,
                                            bool is_over, struct errmsg *why)
{
    char **end = options->more_names = argv + at;
    while (at < argc) {
        *end++ = argv[at];
        int words = is_over ? 1 : argv_read(options, argc - at, argv + at, true, why);
        if (words < 0)
            return wrong_words(words);
        at += words;
        is_over = is_over || strcmp(argv[at - 1], "--") == 0;
    }
    *end = NULL;
    return SETTINGS_OK;
}

/* Refuses NAME on a command line with --lock-file. */
static enum settings_result refuse_name(struct options *options, const char *name,
                                        struct errmsg *why)
{
    options->name = NULL;
    hints_no_name(name, !has_action(&options->settings), why);
    return SETTINGS_BAD_USAGE;
}

/* Reads [OPTIONS] --lock-file=PATH [--] COMMAND..., where argv[word] is the first word after the
 * options. `is_over`: a "--" precedes that word. */
static enum settings_result read_words_of_lock_file(struct options *options, int word, char **argv,
                                                    bool is_over, struct errmsg *why)
{
    bool is_name = !is_over && argv[word + 1] != NULL && strcmp(argv[word + 1], "--") == 0;
    if (is_name || has_action(&options->settings))
        return refuse_name(options, argv[word], why);
    options->command = argv + word;
    return SETTINGS_OK;
}

/* Reads [OPTIONS] NAME [OPTIONS] [--] COMMAND..., which has options before and after NAME. If a
 * "--" precedes NAME, no options follow. */
static enum settings_result read_words(struct options *options, int argc, char **argv,
                                       struct errmsg *why)
{
    int name = argv_read(options, argc, argv, false, why);
    if (name < 0)
        return wrong_words(name);
    if (name == argc)
        return SETTINGS_OK;

    bool is_over = strcmp(argv[name - 1], "--") == 0;
    if (has_lock_file(&options->settings))
        return read_words_of_lock_file(options, name, argv, is_over, why);
    int command = name + 1;
    options->name = argv[name];
    if (!is_over) {
        int words = argv_read(options, argc - name, argv + name, true, why);
        if (words == WORDS_WRONG)
            hints_name_is_command(options->name, why);
        if (words < 0)
            return wrong_words(words);
        if (has_lock_file(&options->settings))
            return refuse_name(options, argv[name], why);
        command = name + words;
        is_over = strcmp(argv[command - 1], "--") == 0;
    }
    if (setting_in_force(&options->settings, OPT_STATUS) != NULL) {
        enum settings_result result = read_more_names(options, argc, argv, command, is_over, why);
        bool refused = result == SETTINGS_OK && has_lock_file(&options->settings);
        return refused ? refuse_name(options, argv[name], why) : result;
    }
    if (command < argc)
        options->command = argv + command;
    return SETTINGS_OK;
}

static bool only_prints(enum option_action action)
{
    return action == ACTION_VERSION || action == ACTION_HELP || action == ACTION_USAGE;
}

/* Sets options->action; only the command line can name an action. --help, --usage and --version
 * must work even if something else is wrong. */
static enum settings_result choose_action(struct options *options, struct errmsg *why)
{
    const struct setting *chosen = NULL;
    enum settings_result result = SETTINGS_OK;
    for (const struct setting *setting = options->settings.first; setting != NULL;
         setting = setting->next) {
        if (setting->id == OPT_JSON)
            (void)flag_parse(setting->text, &options->json);
        if (!option_rows[setting->id].is_action)
            continue;
        options->action = (enum option_action)setting->id;
        if (only_prints(options->action))
            return SETTINGS_OK;
        if (chosen == NULL)
            chosen = setting;
        if (chosen->id == setting->id || result != SETTINGS_OK)
            continue;
        errmsg_set(why, "--%s and --%s cannot be combined", option_rows[chosen->id].name,
                   option_rows[setting->id].name);
        hints_behind_name(options, chosen->origin, why);
        result = SETTINGS_BAD_USAGE;
    }
    return result;
}

/* True if the words request JSON; used for a command line that could not be read to its end. */
static bool asks_for_json(char **argv)
{
    for (char **word = argv + 1; *word != NULL && strcmp(*word, "--") != 0; word++)
        if (strcmp(*word, "--json") == 0)
            return true;
    return false;
}

static enum settings_result read_command_line(struct options *options, int argc, char **argv,
                                              struct errmsg *why)
{
    struct errmsg action_why = {""};
    enum settings_result result = read_words(options, argc, argv, why);
    enum settings_result action_result = choose_action(options, &action_why);
    if (only_prints(options->action))
        return SETTINGS_OK;
    if (options->name == NULL && options->action != ACTION_LIST &&
        options->action != ACTION_CURRENT)
        options->name = name_of_lock_file(&options->settings);
    if (result != SETTINGS_OK) {
        options->json = options->json || asks_for_json(argv);
        return result;
    }
    if (action_result != SETTINGS_OK) {
        *why = action_why;
        return action_result;
    }
    return validate_words(options, why);
}

/* --- all sources --------------------------------------------------------- */

/* Reads the files and the variables. The command line has been read first, because NAME chooses the
 * sections of the files. But its settings are added last, because the last setting of an option
 * counts. */
static enum settings_result read_the_rest(struct options *options, struct errmsg *why)
{
    struct settings command_line = options->settings;
    options->settings = (struct settings){0};
    enum settings_result result =
        config_read(&options->settings, options->name != NULL ? options->name : "",
                    setting_in_force(&command_line, OPT_CONFIG), why);
    for (enum option_id id = OPT_NONE; id < OPTION_COUNT; id++)
        if (options->unset[id])
            settings_drop(&options->settings, id);
    settings_append(&options->settings, &command_line);
    return result;
}

static enum settings_result apply_and_validate(struct options *options, struct errmsg *why)
{
    enum settings_result result = apply_all(options, why);
    return result == SETTINGS_OK ? validate_options(options, why) : result;
}

/* A failure is reported in the form that DLOCK_JSON requests, even if it occurs before dlock reads
 * the environment. */
enum settings_result options_read(struct options *options, int argc, char **argv,
                                  struct errmsg *why)
{
    options_defaults(options);
    enum settings_result result = read_command_line(options, argc, argv, why);
    if (only_prints(options->action))
        return SETTINGS_OK;
    if (result == SETTINGS_OK)
        result = read_the_rest(options, why);
    if (result == SETTINGS_OK)
        result = apply_and_validate(options, why);
    if (result == SETTINGS_OK)
        result = unused_by_lock(options, why);

    const char *json = getenv("DLOCK_JSON");
    bool set = false;
    if (result != SETTINGS_OK && json != NULL && flag_parse(json, &set))
        options->json = options->json || set;
    return result;
}

/* The command line overrides DLOCK_HELD, which overrides the other sources. */
static enum settings_result add_settings_under(struct settings *under,
                                               const struct options *options, const char *store,
                                               size_t length)
{
    bool told = options->origins[OPT_REDIS].kind == ORIGIN_COMMAND_LINE, added = true;
    enum settings_result result = SETTINGS_OK;
    if (length > 0)
        result = held_store_read(under, store, length, told ? NULL : options->redis);
    if (result != SETTINGS_OK)
        return result;
    for (enum option_id id = OPT_NONE; id < OPTION_COUNT; id++)
        if (options->unset[id])
            settings_drop(under, id);
    for (const struct setting *setting = options->settings.first; setting != NULL && added;
         setting = setting->next)
        if (length == 0 || setting->origin.kind == ORIGIN_COMMAND_LINE ||
            !option_in_held(setting->id))
            added = settings_add(under, setting->id, setting->text, setting->origin);
    return added ? SETTINGS_OK : SETTINGS_NO_MEMORY;
}

/* Makes options with default values, but with the action, the command and the --no-OPTION words of
 * `options`. NULL with *why set: memory is short. */
static struct options *make_options(const struct options *options, const char *name,
                                    struct errmsg *why)
{
    struct options *made = malloc(sizeof *made);
    errmsg_set(why, "out of memory");
    if (made == NULL)
        return NULL;
    options_defaults(made);
    made->action = options->action;
    made->name = name;
    made->command = options->command;
    memcpy(made->unset, options->unset, sizeof made->unset);
    return made;
}

enum settings_result options_under(struct options **made, const struct options *options,
                                   const char *store, size_t length, struct errmsg *why)
{
    struct options *under = *made = make_options(options, options->name, why);
    if (under == NULL)
        return SETTINGS_NO_MEMORY;
    enum settings_result result = add_settings_under(&under->settings, options, store, length);
    if (result == SETTINGS_BAD_CONFIG)
        errmsg_set(why,
                   "the variable DLOCK_HELD, which the outer dlock sets, names an invalid backend");
    return result == SETTINGS_OK ? apply_and_validate(under, why) : result;
}

enum settings_result options_of_name(struct options **made, const struct options *options,
                                     const char *name, struct errmsg *why)
{
    struct options *other = *made = make_options(options, name, why);
    bool added = other != NULL;
    for (const struct setting *setting = options->settings.first; setting != NULL && added;
         setting = setting->next)
        if (setting->origin.kind == ORIGIN_COMMAND_LINE)
            added = settings_add(&other->settings, setting->id, setting->text, setting->origin);
    enum settings_result result = added ? read_the_rest(other, why) : SETTINGS_NO_MEMORY;
    return result == SETTINGS_OK ? apply_and_validate(other, why) : result;
}

void options_under_free(struct options **made)
{
    if (*made != NULL)
        options_free(*made);
    free(*made);
    *made = NULL;
}
