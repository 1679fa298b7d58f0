#include "config/options.h"

#include "config/argv.h"
#include "config/file.h"
#include "config/held_store.h"
#include "config/hints.h"
#include "config/validate.h"
#include "lock/lock_name.h"
#include "lock/token.h"
#include "redis/url.h"
#include "util/duration.h"
#include "util/exit_status.h"
#include "util/signames.h"
#include "util/text.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { TTL_LEAST_MS = 100, SLOTS_MOST = 10000 };

static const struct options defaults = {
    .waits_forever = true,
    .conflict_status = STATUS_CONFLICT,
    .ttl = {3600 * NS_PER_S},
    .remember = {INT64_C(100) * 86400 * NS_PER_S},
    .exit_status = -1,
    .prefix = "dlock:",
    .connect_timeout = {3 * NS_PER_S},
    .outage = {10 * NS_PER_S},
    .stop_signal = SIGTERM,
    .grace = {-1},
};

void options_free(struct options *options)
{
    settings_free(&options->settings);
}

/* --- values ------------------------------------------------------------- */

static bool apply_duration(struct duration *out, const char *text, struct errmsg *why)
{
    enum duration_error error = duration_parse(text, out);
    if (error != DURATION_OK)
        errmsg_set(why, "'%.100s': %s", text, duration_error_text(error));
    return error == DURATION_OK;
}

static bool is_forever(const char *text)
{
    return strcmp(text, "infinity") == 0 || strcmp(text, "forever") == 0;
}

static bool apply_ttl(struct duration *ttl, const char *text, struct errmsg *why)
{
    if (is_forever(text)) {
        *ttl = DURATION_FOREVER; /* validate.c allows it for a --lock-file */
        return true;
    }
    if (!apply_duration(ttl, text, why))
        return false;
    bool fits = ttl->ns >= TTL_LEAST_MS * NS_PER_MS && ttl->ns <= LEASE_MOST.ns;
    /* The stores count whole milliseconds. */
    ttl->ns -= ttl->ns % NS_PER_MS;
    if (!fits)
        errmsg_set(why, "'%.100s': a lease lasts from %dms to %dd", text, TTL_LEAST_MS,
                   LEASE_MOST_DAYS);
    return fits;
}

static bool apply_connect_timeout(struct duration *timeout, const char *text, struct errmsg *why)
{
    if (!apply_duration(timeout, text, why))
        return false;
    if (timeout->ns < NS_PER_MS)
        errmsg_set(why, "'%.100s': it must be at least 1ms", text);
    return timeout->ns >= NS_PER_MS;
}

static bool apply_pause(struct duration *pause, const char *text, struct errmsg *why)
{
    bool parsed = !is_forever(text) && apply_duration(pause, text, why);
    if (parsed && pause->ns >= NS_PER_MS && pause->ns <= LEASE_MOST.ns)
        return true;
    if (parsed || is_forever(text))
        errmsg_set(why, "'%.100s': a pause has an end, at most %dd away", text, LEASE_MOST_DAYS);
    return false;
}

/* Of --wait and --nonblock the last one counts. */
static bool apply_wait(struct options *options, const char *text, struct errmsg *why)
{
    options->nonblock = false;
    options->waits_forever = is_forever(text);
    return options->waits_forever || apply_duration(&options->wait, text, why);
}

enum { REPLICAS_MOST = 100 };

static bool apply_number(int *to, int least, int most, const char *text, struct errmsg *why)
{
    int64_t number;
    if (!number_parse(text, least, most, &number)) {
        errmsg_set(why, "'%.100s': it must be a whole number from %d to %d", text, least, most);
        return false;
    }
    *to = (int)number;
    return true;
}

static bool apply_pid(struct options *options, const char *text, struct errmsg *why)
{
    int64_t number;
    if (!number_parse(text, 1, INT32_MAX, &number)) {
        errmsg_set(why, "'%.100s': it must be the pid of a process", text);
        return false;
    }
    options->action = ACTION_ATTACH;
    options->attach_pid = (pid_t)number;
    return true;
}

static bool apply_signal(struct options *options, const char *text, struct errmsg *why)
{
    options->stop_signal = signame_parse(text);
    if (options->stop_signal == 0)
        errmsg_set(why, "'%.100s': no such signal; TERM, SIGTERM or 15 are ways to name one", text);
    return options->stop_signal != 0;
}

/* The words are those of the option's help, "auto|redis|file"; *index is which one matched. */
static bool apply_choice(enum option_id id, int *index, const char *text, struct errmsg *why)
{
    const char *words = option_by_id(id)->argDescrip;
    size_t length = strlen(text);
    *index = 0;
    for (const char *word = words; word != NULL; (*index)++) {
        const char *bar = strchr(word, '|');
        size_t word_length = bar != NULL ? (size_t)(bar - word) : strlen(word);
        if (word_length == length && memcmp(word, text, length) == 0)
            return true;
        word = bar != NULL ? bar + 1 : NULL;
    }
    errmsg_set(why, "'%.100s': it must be %s", text, words);
    return false;
}

static bool apply_path(const char **path, const char *text, struct errmsg *why)
{
    *path = text;
    if (*text == '\0')
        errmsg_set(why, "'': the path is empty");
    return *text != '\0';
}

/* Control characters are escaped when it is shown. */
static bool apply_message(const char **message, const char *text, struct errmsg *why)
{
    size_t size = strlen(text), length = 1;
    *message = text;
    if (size > MESSAGE_MOST) {
        errmsg_set(why, "it is %zu bytes long; at most %d are allowed", size, MESSAGE_MOST);
        return false;
    }
    for (size_t at = 0; at < size; at += length) {
        length = utf8_length(text + at, size - at);
        if (length == 0) {
            errmsg_set(why, "'%.200s' is not valid UTF-8 at byte %zu", text, at + 1);
            return false;
        }
    }
    return true;
}

/* Options with a word out of a list. */
static bool apply_listed(struct options *options, enum option_id id, const char *text,
                         struct errmsg *why)
{
    int choice = 0;
    if (!apply_choice(id, &choice, text, why))
        return false;
    switch ((int)id) {
    case OPT_HASH: options->hash = (enum name_hash)choice; break;
    case OPT_BACKEND: options->backend = (enum backend_choice)choice; break;
    case OPT_ON_DEGRADED: options->on_degraded = (enum on_degraded)choice; break;
    case OPT_FALLBACK: options->fallback_to_file = choice == 1; break;
    default: options->warn_on_expire = choice == 1; break; /* OPT_ON_EXPIRE */
    }
    return true;
}

/* The text outlives the options: it belongs to the setting. */
static bool apply_value(struct options *options, enum option_id id, const char *text,
                        struct errmsg *why)
{
    switch ((int)id) {
    case OPT_WAIT: return apply_wait(options, text, why);
    case OPT_CONFLICT_EXIT_CODE: return apply_number(&options->conflict_status, 0, 255, text, why);
    case OPT_TTL: return apply_ttl(&options->ttl, text, why);
    case OPT_HOLD_AT_LEAST: return apply_duration(&options->hold_at_least, text, why);
    case OPT_ONCE_PER: return apply_duration(&options->once_per, text, why);
    case OPT_REMEMBER: return apply_duration(&options->remember, text, why);
    case OPT_RAN_WITHIN: return apply_duration(&options->ran_within, text, why);
    case OPT_EXIT_STATUS: return apply_number(&options->exit_status, 0, 255, text, why);
    case OPT_PAUSE: return apply_pause(&options->pause, text, why);
    case OPT_SLOTS:
        options->mode = MODE_SLOTS;
        return apply_number(&options->slots, 1, SLOTS_MOST, text, why);
    case OPT_ATTACH_PID: return apply_pid(options, text, why);
    case OPT_OWNER_FILE: return apply_path(&options->owner_file, text, why);
    case OPT_REPORT: options->report = *text != '\0' ? text : NULL; return true;
    case OPT_MESSAGE: return apply_message(&options->message, text, why);
    case OPT_OWNER: options->owner = text; return token_valid(text, why);
    case OPT_PREFIX:
        options->prefix = text;
        return *text == '\0' || lock_name_valid(text, "the prefix", why);
    case OPT_REDIS: options->redis = text; return true; /* redis/url.c checks it */
    case OPT_CACERT: return apply_path(&options->cacert, text, why);
    case OPT_CERT: return apply_path(&options->cert, text, why);
    case OPT_KEY: return apply_path(&options->key, text, why);
    case OPT_PASSWORD_FILE: return apply_path(&options->password_file, text, why);
    case OPT_SENTINEL_PASSWORD_FILE: return apply_path(&options->sentinel_password_file, text, why);
    case OPT_SECRET_FILE: return apply_path(&options->secret_file, text, why);
    case OPT_WAIT_REPLICAS:
        return apply_number(&options->wait_replicas, 0, REPLICAS_MOST, text, why);
    case OPT_HASH:
    case OPT_BACKEND:
    case OPT_ON_DEGRADED:
    case OPT_FALLBACK:
    case OPT_ON_EXPIRE: return apply_listed(options, id, text, why);
    case OPT_LOCK_DIR: return apply_path(&options->lock_dir, text, why);
    case OPT_LOCK_FILE: return apply_path(&options->lock_file, text, why);
    case OPT_CONNECT_TIMEOUT: return apply_connect_timeout(&options->connect_timeout, text, why);
    case OPT_OUTAGE: return apply_duration(&options->outage, text, why);
    case OPT_STOP_SIGNAL: return apply_signal(options, text, why);
    case OPT_GRACE: return apply_duration(&options->grace, text, why);
    case OPT_CONFIG: return true; /* it has been read */
    case OPT_COMMAND: options->shell_command = text; return true;
    default: errmsg_set(why, "this option is not known here"); return false;
    }
}

/* On the command line a flag has no text, or a no that overrides a yes of a weaker source. */
static bool flag_is_set(const struct setting *setting, bool *set, struct errmsg *why)
{
    *set = true;
    if ((*setting->text == '\0' && setting->origin.kind == ORIGIN_COMMAND_LINE) ||
        flag_parse(setting->text, set))
        return true;
    errmsg_set(why, "'%.100s': it must be yes or no", setting->text);
    return false;
}

/* ACTION_RUN if it is not an action. */
static enum option_action action_of(enum option_id id)
{
    return id <= OPT_USAGE ? (enum option_action)id : ACTION_RUN;
}

static bool apply_flag(struct options *options, const struct setting *setting, struct errmsg *why)
{
    bool set;
    if (!flag_is_set(setting, &set, why))
        return false;
    int verbosity = options->verbosity;
    switch ((int)setting->id) {
    case OPT_NONBLOCK: options->nonblock = set; break;
    case OPT_VERBOSE:
        options->verbosity =
            set ? (verbosity < 0 ? 1 : verbosity + 1) : (verbosity > 0 ? 0 : verbosity);
        break;
    case OPT_QUIET: options->verbosity = set ? -1 : (verbosity < 0 ? 0 : verbosity); break;
    case OPT_TREE: options->tree = set; break;
    case OPT_HEARTBEAT: options->heartbeat = set; break;
    case OPT_NO_FORK:
        errmsg_set(why, "dlock stays beside the command, to watch the lease, to stop the command "
                        "when it ends, and to release the lock");
        return false;
    case OPT_UNLOCK:
        errmsg_set(why,
                   "there is no open file to unlock; the lock is released when the command ends");
        return false;
    case OPT_EXCLUSIVE: options->mode = set ? MODE_EXCLUSIVE : options->mode; break;
    case OPT_SHARED:
        options->mode = set                            ? MODE_SHARED
                        : options->mode == MODE_SHARED ? MODE_EXCLUSIVE
                                                       : options->mode;
        break;
    case OPT_JSON: options->json = set; break;
    case OPT_ALL: options->all = set; break;
    case OPT_SYSLOG: options->syslog = set; break;
    default: break; /* OPT_CLOSE: always in effect; actions */
    }
    return true;
}

/* A relative path in a file or a variable, which many read, would lock something else in
 * each directory. */
static bool is_one_place(const struct setting *setting, struct errmsg *why)
{
    bool told_here = setting->origin.kind == ORIGIN_COMMAND_LINE;
    bool place = setting->id == OPT_LOCK_DIR || setting->id == OPT_LOCK_FILE;
    if (told_here || !place || *setting->text == '/' || *setting->text == '\0')
        return true;
    errmsg_set(why,
               "'%.200s': a path that does not begin with / would be another lock in each "
               "directory",
               setting->text);
    return false;
}

static enum settings_result apply_all(struct options *options, struct errmsg *why)
{
    for (const struct setting *setting = options->settings.first; setting != NULL;
         setting = setting->next) {
        bool value = option_has_value(option_by_id(setting->id));
        struct origin *origin = &options->origins[setting->id];
        struct errmsg fault = {""};
        bool good = !value ? apply_flag(options, setting, &fault)
                           : is_one_place(setting, &fault) &&
                                 apply_value(options, setting->id, setting->text, &fault);
        *origin = setting->origin;
        if (!good) {
            char where[ORIGIN_TEXT_SIZE];
            bool secret = setting->id != OPT_REDIS && url_redact_has_password(setting->text) &&
                          strstr(setting->text, "://") != NULL;
            errmsg_set(why, "%s", secret ? "a URL with a password is no value of it" : fault.text);
            errmsg_prefix(why,
                          origin_format(setting->id == OPT_ATTACH_PID ? OPT_ATTACH : setting->id,
                                        setting->origin, where, sizeof where));
            hints_behind_name(options, setting->origin, why);
            return origin_result(setting->origin);
        }
    }
    return SETTINGS_OK;
}

/* --- the command line --------------------------------------------------- */

static enum settings_result wrong_words(int index)
{
    return index == WORDS_NO_MEMORY ? SETTINGS_NO_MEMORY : SETTINGS_BAD_USAGE;
}

/* The path of --lock-file, which replaces a missing NAME; NULL if there is none. */
static const char *name_of_lock_file(const struct settings *settings)
{
    const struct setting *file = setting_in_force(settings, OPT_LOCK_FILE);
    return file != NULL && !file->unset && *file->text != '\0' ? file->text : NULL;
}

static bool has_action(const struct settings *settings)
{
    for (const struct setting *setting = settings->first; setting != NULL; setting = setting->next)
        if (setting->id == OPT_ATTACH_PID || action_of(setting->id) != ACTION_RUN)
            return true;
    return false;
}

/* [OPTIONS] NAME [OPTIONS] [--] COMMAND... : two runs of options, with NAME
 * between them. A "--" before NAME ends the options for good; after a
 * --lock-file it precedes the command. */
static enum settings_result read_command_line(struct options *options, int argc, char **argv,
                                              struct errmsg *why)
{
    int name = argv_read(&options->settings, argc, argv, false, why);
    if (name < 0)
        return wrong_words(name);
    bool is_over = strcmp(argv[name - 1], "--") == 0,
         needs_name =
             name_of_lock_file(&options->settings) == NULL || has_action(&options->settings);
    if (name == argc)
        return SETTINGS_OK;
    int command = is_over && !needs_name ? name : name + 1;
    options->name = command > name ? argv[name] : NULL;
    if (!is_over) {
        int words = argv_read(&options->settings, argc - name, argv + name, true, why);
        if (words == WORDS_WRONG)
            hints_name_is_command(options->name, why);
        if (words < 0)
            return wrong_words(words);
        command = name + words;
    }
    if (command < argc)
        options->command = argv + command;
    return SETTINGS_OK;
}

static bool only_prints(enum option_action action)
{
    return action == ACTION_VERSION || action == ACTION_HELP || action == ACTION_USAGE;
}

/* Only the command line can name an action. --help and the like must work even
 * if something else is wrong. */
static enum settings_result choose_action(struct options *options, struct errmsg *why)
{
    enum option_id chosen = OPT_NONE;
    struct origin first = {0};
    bool twice = false;
    for (const struct setting *setting = options->settings.first; setting != NULL;
         setting = setting->next) {
        enum option_id id = setting->id == OPT_ATTACH_PID ? OPT_ATTACH : setting->id;
        enum option_action action = action_of(id);
        options->json = id == OPT_JSON ? *setting->text == '\0' : options->json;
        if (action == ACTION_RUN)
            continue;
        if (only_prints(action)) {
            options->action = action;
            return SETTINGS_OK;
        }
        if (chosen != OPT_NONE && chosen != id && !twice) {
            errmsg_set(why, "--%s and --%s: only one of them can be done",
                       option_by_id(chosen)->longName, option_by_id(id)->longName);
            hints_behind_name(options, first, why);
            twice = true;
        }
        if (chosen == OPT_NONE)
            first = setting->origin;
        chosen = id;
        options->action = action;
    }
    return twice ? SETTINGS_BAD_USAGE : SETTINGS_OK;
}

/* For a command line that could not be read to its end. */
static bool asks_for_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

static enum settings_result options_read_all(struct options *options, int argc, char **argv,
                                             struct errmsg *why)
{
    *options = defaults;
    enum settings_result result = read_command_line(options, argc, argv, why);
    struct errmsg action_why = {""};
    enum settings_result action_result = choose_action(options, &action_why);
    if (only_prints(options->action))
        return SETTINGS_OK;
    if (result != SETTINGS_OK)
        options->json = options->json || asks_for_json(argc, argv);
    if (result == SETTINGS_OK && action_result != SETTINGS_OK) {
        *why = action_why;
        result = action_result;
    }
    if (options->name == NULL && options->action != ACTION_LIST &&
        options->action != ACTION_CURRENT)
        options->name = name_of_lock_file(&options->settings);
    if (result == SETTINGS_OK)
        result = validate_words(options, why);
    if (result != SETTINGS_OK)
        return result;
    /* The command line is read first, for the name that chooses the sections
     * of the files, and applied last. */
    struct settings command_line = options->settings;
    options->settings = (struct settings){0};
    for (const struct setting *setting = command_line.first; setting != NULL;
         setting = setting->next)
        options->unset[setting->id] |= setting->unset;
    result = config_read(&options->settings, options->name != NULL ? options->name : "",
                         setting_in_force(&command_line, OPT_CONFIG), why);
    settings_append(&options->settings, &command_line);
    settings_drop_unset(&options->settings);
    /* Each --redis, and each line of a file, adds one more server. */
    if (!settings_join(&options->settings, OPT_REDIS)) {
        errmsg_set(why, "out of memory");
        result = SETTINGS_NO_MEMORY;
    }
    if (result == SETTINGS_OK)
        result = apply_all(options, why);
    return result == SETTINGS_OK ? validate_options(options, why) : result;
}

/* The command line, then DLOCK_HELD, then the rest. */
static bool add_settings_under(struct settings *under, const struct options *options,
                               const char *store, size_t length)
{
    bool told = options->origins[OPT_REDIS].kind == ORIGIN_COMMAND_LINE;
    bool added = length == 0 || held_store_read(under, store, length, told ? NULL : options->redis);
    for (int id = 0; id < OPTION_COUNT && added; id++)
        added =
            !options->unset[id] || settings_add_no(under, (enum option_id)id, (struct origin){0});
    settings_drop_unset(under);
    for (const struct setting *setting = options->settings.first; setting != NULL && added;
         setting = setting->next)
        if (length == 0 || setting->origin.kind == ORIGIN_COMMAND_LINE ||
            !held_store_has(setting->id))
            added = settings_add(under, setting->id, setting->text, setting->origin);
    return added;
}

enum settings_result options_under(struct options **made, const struct options *options,
                                   const char *store, size_t length, struct errmsg *why)
{
    struct options *under = *made = malloc(sizeof *under);
    errmsg_set(why, "DLOCK_HELD names no store of a lock, or memory is short");
    if (under == NULL)
        return SETTINGS_NO_MEMORY;
    *under = defaults;
    under->action = options->action;
    under->name = options->name;
    under->command = options->command;
    if (!add_settings_under(&under->settings, options, store, length))
        return SETTINGS_BAD_CONFIG;
    enum settings_result result = apply_all(under, why);
    return result == SETTINGS_OK ? validate_options(under, why) : result;
}

void options_under_free(struct options **made)
{
    if (*made != NULL)
        options_free(*made);
    free(*made);
    *made = NULL;
}

/* A failure is reported as the environment asks, even if the environment is not applied yet. */
enum settings_result options_read(struct options *options, int argc, char **argv,
                                  struct errmsg *why)
{
    const char *json = getenv("DLOCK_JSON");
    enum settings_result result = options_read_all(options, argc, argv, why);
    bool set = false;
    if (result != SETTINGS_OK && json != NULL && flag_parse(json, &set))
        options->json = options->json || set;
    return result;
}
