/* The options: one popt table (option_table.c) that the command line, the
 * environment, the configuration files, --help and the tests all go by. */
#ifndef DLOCK_OPTIONS_H
#define DLOCK_OPTIONS_H

#include "clock.h"
#include "why.h"

#include <popt.h>
#include <stdbool.h>
#include <stddef.h>

/* popt's `val` of each option. */
enum option_id {
    OPT_NONE,
    OPT_EXCLUSIVE,
    OPT_NONBLOCK,
    OPT_WAIT,
    OPT_CONFLICT_EXIT_CODE,
    OPT_TTL,
    OPT_OWNER,
    OPT_SCOPE,
    OPT_PREFIX,
    OPT_REDIS,
    OPT_BACKEND,
    OPT_LOCK_DIR,
    OPT_LOCK_FILE,
    OPT_ON_DEGRADED,
    OPT_FALLBACK,
    OPT_CONNECT_TIMEOUT,
    OPT_OUTAGE,
    OPT_ON_EXPIRE,
    OPT_STOP_SIGNAL,
    OPT_GRACE,
    OPT_COMMAND,
    OPT_VERBOSE,
    OPT_QUIET,
    OPT_VERSION,
    OPT_HELP,
    OPT_USAGE,
    OPTION_COUNT,
};

extern const struct poptOption option_table[];

/* The entry with this long name (`length` bytes of it); NULL where there is
 * none. Finds aliases too. */
const struct poptOption *option_by_name(const char *name, size_t length);

/* The entry that is shown in --help for this id. */
const struct poptOption *option_by_id(enum option_id id);

/* Calls visit for every entry of the table and its groups, in order, until it
 * returns true; returns that entry, else NULL. */
const struct poptOption *option_find(bool (*visit)(const struct poptOption *, const void *), const void *data);

/* Whether it takes a value. */
bool option_has_value(const struct poptOption *option);

/* Whether it may stand in a configuration file or the environment. */
bool option_configurable(enum option_id id);

enum origin_kind { ORIGIN_DEFAULT, ORIGIN_FILE, ORIGIN_ENVIRONMENT, ORIGIN_COMMAND_LINE };

/* Where a setting was made. */
struct origin {
    enum origin_kind kind;
    const char *file; /* of ORIGIN_FILE; owned by the options */
    int line;
};

enum backend_choice { BACKEND_AUTO, BACKEND_REDIS, BACKEND_FILE };
enum on_degraded { DEGRADED_WARN, DEGRADED_WARN_THROTTLED, DEGRADED_PROCEED, DEGRADED_FAIL };
enum option_action { ACTION_RUN, ACTION_VERSION, ACTION_HELP, ACTION_USAGE };

struct setting;

struct options {
    enum option_action action;
    const char *name;
    char **command;            /* NULL-terminated, from the given argv; NULL with -c */
    const char *shell_command; /* -c */
    bool waits_forever;
    bool nonblock; /* -n; --wait after it undoes it */
    struct duration wait; /* where it does not wait for ever; zero, also with nonblock: do not wait */
    int conflict_status;
    struct duration ttl;
    const char *owner; /* NULL: a fresh one */
    const char *scope; /* NULL: none */
    const char *prefix;
    const char *redis; /* URL; NULL: none configured */
    enum backend_choice backend;
    const char *lock_dir, *lock_file;
    enum on_degraded on_degraded;
    bool fallback_to_file;
    struct duration connect_timeout, outage;
    bool warn_on_expire; /* --on-expire=warn */
    int stop_signal;
    struct duration grace; /* < ttl */
    int verbosity;

    struct origin origins[OPTION_COUNT];
    struct setting *settings; /* owns the texts that the above point to */
    char *user_config;        /* path, for origins to point to */
};

enum options_result { OPTIONS_OK, OPTIONS_BAD_USAGE, OPTIONS_BAD_CONFIG, OPTIONS_NO_MEMORY };

/* Reads command line, environment and configuration files into *options
 * (precedence in this order; config.h), and checks each value and those that
 * must agree. On failure *why says which setting, where it was made, its text
 * and what would be right. options_free() in every case. */
enum options_result options_read(struct options *options, int argc, char **argv, struct why *why);
void options_free(struct options *options);

/* Keeps one setting for options_read() to use. `text` (NULL for a flag) is
 * copied. False where memory is short. */
bool options_add(struct options *options, enum option_id id, const char *text, struct origin origin);

/* OPTIONS_BAD_USAGE or OPTIONS_BAD_CONFIG, by where the setting was made. */
enum options_result origin_result(struct origin origin);

/* "--ttl", "DLOCK_TTL" or "/etc/dlock.conf:3: ttl". Returns text. */
char *origin_format(enum option_id id, struct origin origin, char *text, size_t size);
#define ORIGIN_TEXT_SIZE 320

#endif
