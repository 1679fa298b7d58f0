/* Finds errors that arise only from a combination of options. */
#include "config/config_int.h"
#include "lock/lock_name.h"
#include "util/exit_status.h"

#include <stdio.h>
#include <string.h>

/* --- actions and words --------------------------------------------------- */

static const char *action_name(const struct options *options)
{
    return option_rows[options->action].name;
}

static void runs_no_command(const struct options *options, struct errmsg *why)
{
    const struct setting *action =
        setting_in_force(&options->settings, (enum option_id)options->action);
    errmsg_set(why, "unexpected argument after the lock's name: --%s runs no command",
               action_name(options));
    if (action != NULL)
        hints_behind_name(options, action->origin, why);
}

enum settings_result validate_words(const struct options *options, struct errmsg *why)
{
    static const char usage[] = "usage: dlock [OPTIONS] NAME [--] COMMAND [ARG...], or dlock "
                                "--lock-file=PATH [--] COMMAND [ARG...]; dlock -h shows more";
    enum takes_name takes_name = option_rows[options->action].takes_name;
    bool has_file = setting_in_force(&options->settings, OPT_LOCK_FILE) != NULL;
    bool has_name = options->name != NULL || has_file; /* an empty path is refused later */
    for (char **name = options->more_names; name != NULL && *name != NULL; name++)
        if (!lock_name_valid(*name, "the lock name", why))
            return SETTINGS_BAD_USAGE;
    if (!has_file && setting_in_force(&options->settings, OPT_NAME) != NULL)
        errmsg_set(why, "--name has no effect: --lock-file is not given; give the lock's name as a "
                        "word: dlock NAME -- COMMAND");
    else if (options->action != ACTION_RUN && options->command != NULL)
        runs_no_command(options, why);
    else if (!has_name && options->action == ACTION_RUN &&
             setting_in_force(&options->settings, OPT_COMMAND) != NULL)
        errmsg_set(why, "no lock name given; usage: dlock [OPTIONS] NAME -c 'STRING', or dlock "
                        "--lock-file=PATH -c 'STRING'");
    else if (!has_name && options->action == ACTION_RUN)
        errmsg_set(why, "no lock name given; %s", usage);
    else if (!has_name && takes_name == NAME_NEEDED)
        errmsg_set(why, "no lock name given; usage: dlock --%s [OPTIONS] NAME",
                   action_name(options));
    else if (options->name != NULL && takes_name == NAME_REFUSED)
        errmsg_set(why, "--%s takes no lock name", action_name(options));
    else if (options->name == NULL ||
             lock_name_valid(options->name,
                             options->action == ACTION_LIST ? "the pattern" : "the lock name", why))
        return SETTINGS_OK;
    return SETTINGS_BAD_USAGE;
}

/* Reports that options contradict each other; `id` is the option that must change. */
static enum settings_result disagree(const struct options *options, enum option_id id,
                                     const char *text, struct errmsg *why)
{
    char where[ORIGIN_TEXT_SIZE];
    errmsg_set(why, "%s: %s", origin_format(id, options->origins[id], where, sizeof where), text);
    hints_behind_name(options, options->origins[id], why);
    return origin_result(options->origins[id]);
}

/* --- rules --------------------------------------------------------------- */

static enum settings_result check_lock_file(const struct options *options, struct errmsg *why)
{
    if (options->lock_file == NULL)
        return SETTINGS_OK;
    if (options->backend == BACKEND_REDIS)
        return disagree(options, OPT_LOCK_FILE,
                        "needs the file backend, but --backend=redis is set", why);
    if (option_rows[options->action].needs_record) {
        errmsg_set(why, "--%s needs a record of the lock, and dlock stores none in a --lock-file",
                   action_name(options));
        return origin_result(options->origins[OPT_LOCK_FILE]);
    }
    return SETTINGS_OK;
}

/* True if a secret is configured, but --hash keeps dlock from using it, so that names that the user
 * wants to hide could be guessed. False if --hash comes from a stronger source than the secret,
 * which is intentional. Also false if both come from files, because a section may turn off the
 * secret for some locks on purpose. */
static bool passes_over_secret(const struct options *options)
{
    enum origin_kind secret = options->origins[OPT_SECRET_FILE].kind;
    enum origin_kind hash = options->origins[OPT_HASH].kind;
    return options->secret_file != NULL && options->hash != HASH_HMAC_SHA256 && secret >= hash &&
           secret != ORIGIN_FILE;
}

/* Refuses --conflict-exit-code=0 for the actions whose status 0 means that the lock was acquired
 * (or is free), because a script would continue after a conflict. A 0 in a file or a variable is
 * meant for dlock NAME COMMAND, so these actions use the default instead. */
static enum settings_result check_conflict_status(struct options *options, struct errmsg *why)
{
    bool is_answer = options->action == ACTION_ACQUIRE || options->action == ACTION_ATTACH ||
                     options->action == ACTION_WAIT_UNTIL_FREE;
    if (!is_answer || options->conflict_status != STATUS_OK)
        return SETTINGS_OK;
    if (options->origins[OPT_CONFLICT_EXIT_CODE].kind != ORIGIN_COMMAND_LINE) {
        options->conflict_status = STATUS_CONFLICT;
        return SETTINGS_OK;
    }
    errmsg_set(
        why,
        "--conflict-exit-code: with --%s, status 0 means that the lock %s, so a script would "
        "continue after a conflict; choose another status",
        action_name(options),
        options->action == ACTION_WAIT_UNTIL_FREE ? "is free" : "was acquired");
    return SETTINGS_BAD_USAGE;
}

static enum settings_result check_rules(const struct options *options, struct errmsg *why)
{
    static const char no_name[] = "the lock's name is missing";
    bool by_token = options->action == ACTION_EXTEND || options->action == ACTION_RELEASE;
    bool owner_told = options->origins[OPT_OWNER].kind == ORIGIN_COMMAND_LINE;
    const struct {
        bool broken;
        enum option_id id; /* the option that must change */
        const char *text;
    } rules[] = {
        {by_token && options->name == NULL && options->owner_file != NULL, OPT_OWNER_FILE, no_name},
        {by_token && options->name == NULL && owner_told, OPT_OWNER, no_name},
        {options->owner != NULL && options->owner_file != NULL && options->action != ACTION_ACQUIRE,
         OPT_OWNER_FILE, "--owner already gives the token"},
        {options->hash == HASH_HMAC_SHA256 && options->secret_file == NULL, OPT_HASH,
         "hmac-sha256 needs a secret; use --secret-file=FILE"},
        {passes_over_secret(options), OPT_SECRET_FILE, "only --hash=hmac-sha256 uses a secret"},
        {options->ttl.ns >= DURATION_FOREVER.ns && options->lock_file == NULL, OPT_TTL,
         "infinity needs --lock-file; any other lease lasts at most 30d"},
        {options->hold_at_least.ns > options->ttl.ns, OPT_HOLD_AT_LEAST,
         "must not be longer than the lease (--ttl)"},
        {options->once_per.ns > options->remember.ns, OPT_ONCE_PER,
         "must not be longer than --remember"},
        {options->grace.ns >= options->ttl.ns, OPT_GRACE, "must be shorter than the lease (--ttl)"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].broken)
            return disagree(options, rules[i].id, rules[i].text, why);

    bool pauses = options->action == ACTION_PAUSE || options->action == ACTION_RESUME;
    if (pauses && strpbrk(options->name, "*?[") != NULL)
        errmsg_set(why,
                   "--%s: names are exact; for many locks use a gate, a lock that all their "
                   "commands share",
                   option_rows[options->action].name);
    else if (options->action == ACTION_PAUSE &&
             (options->message == NULL || *options->message == '\0'))
        errmsg_set(why, "--pause needs --message=TEXT, which tells others why");
    else if (options->action == ACTION_LIST && options->hash != HASH_NONE && options->name != NULL)
        errmsg_set(why, "--list: names are stored as hashes (--hash), so no pattern can match "
                        "them; with --hash=none, patterns match the stored keys");
    else
        return SETTINGS_OK;
    return SETTINGS_BAD_USAGE;
}

static enum settings_result check_command(const struct options *options, struct errmsg *why)
{
    if (options->action != ACTION_RUN)
        return SETTINGS_OK;
    if (options->shell_command != NULL && options->command != NULL)
        return disagree(options, OPT_COMMAND,
                        "STRING is the whole command; no arguments can follow", why);
    if (options->shell_command != NULL || options->command != NULL)
        return SETTINGS_OK;
    hints_no_command(options, why);
    return SETTINGS_BAD_USAGE;
}

static enum settings_result make_key_start(struct options *options, struct errmsg *why)
{
    const char *scope = options->scope;
    int length = snprintf(options->key_start, sizeof options->key_start, "%s%s%s", options->prefix,
                          scope != NULL ? scope : "", scope != NULL ? ":" : "");
    if (length < (int)sizeof options->key_start)
        return SETTINGS_OK;
    return disagree(options, OPT_SCOPE,
                    "too long: prefix, scope and colon together can have at most 1024 bytes", why);
}

enum settings_result validate_options(struct options *options, struct errmsg *why)
{
    if (options->secret_file != NULL && options->origins[OPT_HASH].kind == ORIGIN_DEFAULT)
        options->hash = HASH_HMAC_SHA256;
    if (options->nonblock) {
        options->waits_forever = false;
        options->wait = DURATION_ZERO;
    }
    enum settings_result result = check_command(options, why);
    if (result == SETTINGS_OK)
        result = unused_by_action(options, why);
    if (result == SETTINGS_OK)
        result = check_conflict_status(options, why);
    if (result == SETTINGS_OK)
        result = check_lock_file(options, why);
    if (result == SETTINGS_OK)
        result = check_rules(options, why);
    return result == SETTINGS_OK ? make_key_start(options, why) : result;
}
