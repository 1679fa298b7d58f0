/* The options: their table (option_rows.h), the sources that set them, and the checked result. */
#ifndef DLOCK_CONFIG_OPTIONS_H
#define DLOCK_CONFIG_OPTIONS_H

#include "lock/lease.h"
#include "lock/lock_name.h"
#include "util/clock.h"
#include "util/errmsg.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* --- the table --------------------------------------------------------- */

enum option_id {
    OPT_NONE,
#define OPTION(ID, ...) OPT_##ID,
#define ACTION(ID, ...) OPT_##ID,
#include "config/option_rows.h"
#undef OPTION
#undef ACTION
    OPTION_COUNT
};

/* Each action has the id of its option. */
enum option_action {
    ACTION_RUN = OPT_NONE,
#define OPTION(ID, ...)
#define ACTION(ID, ...) ACTION_##ID = OPT_##ID,
#include "config/option_rows.h"
#undef OPTION
#undef ACTION
};

enum takes_name { NAME_REFUSED, NAME_OPTIONAL, NAME_NEEDED };

/* Circumstances of a lock. An option has an effect if one of the circumstances in its row holds. */
enum {
    ON_LOCK_FILE = 1, /* these four are the kinds of store */
    ON_LOCK_DIR = 1 << 1,
    ON_REDIS = 1 << 2,
    ON_QUORUM = 1 << 3,
    ON_AUTO = 1 << 4,        /* no option chooses between Redis and files */
    ON_DIR = 1 << 5,         /* the lock directory is used, even if the lock is elsewhere */
    ON_TLS = 1 << 6,         /* a Redis URL uses TLS */
    ON_SENTINEL = 1 << 7,    /* a Redis URL names Sentinels */
    ON_NO_PASSWORD = 1 << 8, /* a Redis URL has no password */
    ON_CERT = 1 << 9,        /* there is a client certificate */
    ON_CONFLICT = 1 << 10,   /* dlock may give up without the lock */
    ON_STOP = 1 << 11,       /* dlock stops the command when the lease ends */
    ON_END = 1 << 12,        /* the TTL of the lease is finite */
    ON_HEARTBEAT = 1 << 13,
    MUST = 1 << 14, /* not a circumstance: if the option has no effect, dlock always refuses it */
    ON_SERVERS = ON_REDIS | ON_QUORUM,
    ON_RECORDS = ON_SERVERS | ON_LOCK_DIR, /* stores that keep a record of the lock */
    ON_ANY = ON_RECORDS | ON_LOCK_FILE,
};

struct value; /* defined in values.c */

struct option_row {
    const char *name;
    char letter; /* 0: none */
    bool is_action, needs_record;
    enum takes_name takes_name;              /* only for an action */
    bool (*read)(const struct value *value); /* reads the value; NULL: the value is not kept */
    size_t place;                            /* offset of the option's value in struct options */
    const char *usual;    /* default; NULL: none, or it depends on other options */
    const char *argument; /* what the value is, or choices "a|b"; NULL: no value is needed */
    unsigned actions;     /* the actions that use the option: bits 1 << ACTION_... */
    unsigned when;        /* the circumstances in which the option has an effect */
    const char *help;     /* NULL: --help does not show it */
};

extern const struct option_row option_rows[OPTION_COUNT]; /* by id */

/* The option whose long name or alias is the first `length` bytes of `name`; OPT_NONE if there is
 * none. */
enum option_id option_by_name(const char *name, size_t length);

/* True if a configuration file or a variable can set the option. */
bool option_configurable(enum option_id id);

/* True if the option's value is yes or no; on the command line it needs no value. */
bool option_is_flag(enum option_id id);

/* --- the sources of settings ------------------------------------------------- */

enum origin_kind {
    ORIGIN_DEFAULT,
    ORIGIN_FILE,
    ORIGIN_ENVIRONMENT,
    ORIGIN_HELD, /* DLOCK_HELD: the store of a lock that this process runs under */
    ORIGIN_COMMAND_LINE
};

struct origin {
    enum origin_kind kind;
    const char *file;  /* for ORIGIN_FILE; lives as long as the settings */
    int line, section; /* for ORIGIN_FILE: lines of the setting and of its section (0: none) */
    bool behind_name;  /* for ORIGIN_COMMAND_LINE: the option follows NAME */
};

struct setting {
    struct setting *next;
    enum option_id id;
    struct origin origin;
    char text[]; /* for a flag: yes or no; for an action without a value: "" */
};

struct config_file {
    struct config_file *next;
    bool is_there;
    char path[]; /* the origin.file of the settings in this file points to it */
};

/* All settings, from the weakest source to the strongest, so the last setting of an option
 * counts. */
struct settings {
    struct setting *first;
    struct config_file *files; /* in the order in which they were read */
    const char *user_file;     /* path of the user's file; NULL: none */
    bool file_named;           /* user_file is the only file: --config or DLOCK_CONFIG names it */
};

enum settings_result { SETTINGS_OK, SETTINGS_BAD_USAGE, SETTINGS_BAD_CONFIG, SETTINGS_NO_MEMORY };

/* The result for a wrong setting: SETTINGS_BAD_USAGE if it is on the command line or is a default,
 * otherwise SETTINGS_BAD_CONFIG. */
enum settings_result origin_result(struct origin origin);

/* Writes where an option is set, such as "--ttl", "DLOCK_TTL" or "/etc/dlock.conf:3: ttl". Returns
 * text. */
char *origin_format(enum option_id id, struct origin origin, char *text, size_t size);
#define ORIGIN_TEXT_SIZE 320

/* Like origin_format(), but writes "default" if the option was not set. */
char *origin_place(enum option_id id, struct origin origin, char *text, size_t size);

/* The setting that counts; NULL if there is none. */
const struct setting *setting_in_force(const struct settings *settings, enum option_id id);

/* The configuration files for all users: first the host's own file, then those that packages and
 * configuration management install. */
#define CONFIG_SYSTEM_FILE SYSCONFDIR "/dlock.conf"
#define CONFIG_SYSTEM_GLOB CONFIG_SYSTEM_FILE ".d/*.conf"

/* Lists the places where this option can be set, the strongest first: its variable, the user's
 * file, and the files for all users (above). Returns text. */
#define CONFIG_PLACES_SIZE 1024
char *config_places(const struct settings *settings, enum option_id id,
                    char text[CONFIG_PLACES_SIZE]);

/* Calls visit for each DLOCK_* variable that dlock does not know. `near` names the variables that
 * may be meant, such as "DLOCK_WAIT", or is NULL if none resembles `name`. */
void config_unknown_variables(void (*visit)(const char *name, const char *near, void *data),
                              void *data);

/* --- all together ---------------------------------------------------------- */

enum backend_choice { BACKEND_AUTO, BACKEND_REDIS, BACKEND_FILE };
enum name_hash { HASH_NONE, HASH_SHA256, HASH_HMAC_SHA256 };
enum on_degraded { DEGRADED_WARN, DEGRADED_WARN_THROTTLED, DEGRADED_PROCEED, DEGRADED_FAIL };

struct options {
    enum option_action action;
    pid_t attach_pid;          /* for ACTION_ATTACH; 0: our parent process */
    const char *name;          /* NULL if the action needs none; for ACTION_LIST: the pattern */
    char **more_names;         /* further names for ACTION_STATUS, NULL-terminated; NULL: none */
    char **command;            /* NULL-terminated, from the given argv; NULL with -c */
    const char *shell_command; /* -c */
    enum lock_mode mode;
    int slots; /* for MODE_SLOTS */
    bool waits_forever;
    bool nonblock; /* -n; a later --wait overrides it */
    int conflict_status;
    struct duration wait; /* used unless waits_forever; 0 (as with nonblock): do not wait */
    struct duration ttl;
    struct duration hold_at_least; /* <= ttl */
    struct duration pause;         /* for ACTION_PAUSE */
    const char *message;           /* NULL: none */
    struct duration once_per;      /* 0: run as often as requested */
    struct duration remember;      /* 0: remember nothing */
    struct duration ran_within;    /* for ACTION_RAN_WITHIN */
    int exit_status;               /* for ACTION_RELEASE: how the run ended; -1: not known */
    bool all;                      /* for ACTION_LIST */
    const char *owner;             /* NULL: a fresh token, or the token of the lock that is found */
    const char *owner_file;        /* NULL: none */
    const char *scope;             /* NULL: none */
    const char *prefix;
    char key_start[LOCK_NAME_MAX + 1]; /* the prefix, and the scope with its colon */
    enum name_hash hash;
    const char *secret_file;                       /* NULL: none */
    const char *cacert, *client_cert, *client_key; /* TLS files; NULL: none */
    const char *password_file;                     /* NULL: none */
    const char *sentinel_password_file;            /* NULL: none */
    int wait_replicas;
    const char *redis; /* URLs, with spaces between them; NULL: none is configured */
    const char *lock_dir, *lock_file;
    enum backend_choice backend;
    enum on_degraded on_degraded;
    struct duration connect_timeout, retry_for;
    struct duration grace; /* < ttl; negative: not given (lease_grace() has the default) */
    int stop_signal;
    int fallback_to_file, warn_on_expire; /* 1 with --fallback=file; 1 with --on-expire=warn */
    bool tree, heartbeat;
    const char *report; /* file for a line about the run; NULL: none */
    int verbosity;
    bool json;
    bool syslog;

    struct origin origins[OPTION_COUNT];
    bool unset[OPTION_COUNT]; /* by --no-OPTION, which overrides all other sources */
    struct settings settings; /* owns the texts that the members above point to */
};

/* Reads the command line, the environment and the configuration files into *options. The command
 * line overrides the environment, which overrides the files. Checks each value, and checks that the
 * values agree. On failure, *why names the setting and its source, and says what would be valid.
 * Call options_free() in every case. */
enum settings_result options_read(struct options *options, int argc, char **argv,
                                  struct errmsg *why);
void options_free(struct options *options);

/* Makes the options for a lock that this process runs under. `store` (`length` bytes; 0: none)
 * contains the settings of the lock's store, from the lock's line in DLOCK_HELD
 * (config/held_store.c). Only the command line overrides them. Call options_under_free() in every
 * case, before options_free(). */
enum settings_result options_under(struct options **made, const struct options *options,
                                   const char *store, size_t length, struct errmsg *why);
void options_under_free(struct options **made);

/* Makes the options for one of options->more_names, because other sections of the configuration
 * files may match that name. Returns what options_read() returns. Call options_under_free() in
 * every case, before options_free(). */
enum settings_result options_of_name(struct options **made, const struct options *options,
                                     const char *name, struct errmsg *why);

/* --- what has no effect (unused.c) ------------------------------------------- */

/* The option that chooses the store: OPT_LOCK_FILE, OPT_BACKEND (a file) or OPT_REDIS. OPT_NONE:
 * the store is a file because no Redis is configured. */
enum option_id options_store_choice(const struct options *options);

/* Calls visit for each setting in a file or a variable that has no effect on the action's lock;
 * `why` is a whole sentence. `grave`: the setting shows that TLS was intended, but a password goes
 * over the network in plain text. */
void options_unused(const struct options *options,
                    void (*visit)(enum option_id id, const char *why, bool grave, void *data),
                    void *data);

/* --- the store of a held lock (held_store.c) --------------------------------- */

/* The variable DLOCK_HELD tells a command which locks it runs under. The first word of a lock's
 * line in DLOCK_HELD contains the settings that determine the lock's store and key, such as
 * "file?lock-dir=/run/lock/dlock" or "redis?redis=redis://a&prefix=p:". A byte that would end a
 * value is written as '%' and two hexadecimal digits. The word contains no passwords, and its paths
 * are absolute. A setting that is not in the word has its default. */

/* Returns the first word of a line in DLOCK_HELD for a lock in a store of this kind with these
 * settings. `lock_dir` is the lock directory in use, or NULL if there is none. The caller frees the
 * word. NULL: memory is short. */
char *held_store_format(const struct settings *settings, const char *kind, const char *lock_dir);

/* --- advice for users who mistype (hints.c) ---------------------------------- */

/* Called if the words after NAME cannot be run as a command: adds to *why what the user may have
 * meant. Adds nothing if there is no guess. */
void hints_not_a_command(const struct options *options, struct errmsg *why);

/* Called when *why says that an option with this origin is refused. If that option follows NAME on
 * the command line, adds to *why that the user may have meant NAME as the command. */
void hints_behind_name(const struct options *options, struct origin origin, struct errmsg *why);

/* True if NAME is the path of an existing file. flock(1) would lock that file, but dlock locks only
 * the name. */
bool hints_name_is_file(const struct options *options);

#endif
