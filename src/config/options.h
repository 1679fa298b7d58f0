/* The options of all sources, checked and merged: all that dlock should do. */
#ifndef DLOCK_CONFIG_OPTIONS_H
#define DLOCK_CONFIG_OPTIONS_H

#include "config/settings.h"
#include "lock/lease.h"
#include "util/clock.h"
#include "util/errmsg.h"

#include <stdbool.h>
#include <sys/types.h>

enum backend_choice { BACKEND_AUTO, BACKEND_REDIS, BACKEND_FILE };
enum name_hash { HASH_NONE, HASH_SHA256, HASH_HMAC_SHA256 };
enum on_degraded { DEGRADED_WARN, DEGRADED_WARN_THROTTLED, DEGRADED_PROCEED, DEGRADED_FAIL };
/* Those that are not ACTION_RUN have the ids of their options. */
enum option_action {
    ACTION_RUN = OPT_NONE,
    ACTION_ACQUIRE = OPT_ACQUIRE,
    ACTION_ATTACH = OPT_ATTACH,
    ACTION_EXTEND = OPT_EXTEND,
    ACTION_RELEASE = OPT_RELEASE,
    ACTION_FORCE_RELEASE = OPT_FORCE_RELEASE,
    ACTION_PAUSE = OPT_PAUSE,
    ACTION_RESUME = OPT_RESUME,
    ACTION_STATUS = OPT_STATUS,
    ACTION_WAIT_FREE = OPT_WAIT_FREE,
    ACTION_LIST = OPT_LIST,
    ACTION_RAN_WITHIN = OPT_RAN_WITHIN,
    ACTION_CURRENT = OPT_CURRENT,
    ACTION_DOCTOR = OPT_DOCTOR,
    ACTION_PRINT_CONFIG = OPT_PRINT_CONFIG,
    ACTION_VERSION = OPT_VERSION,
    ACTION_HELP = OPT_HELP,
    ACTION_USAGE = OPT_USAGE,
};

struct options {
    enum option_action action;
    pid_t attach_pid;          /* of ACTION_ATTACH; 0: our parent */
    const char *name;          /* NULL if the action needs none; of ACTION_LIST: the pattern */
    char **command;            /* NULL-terminated, from the given argv; NULL with -c */
    const char *shell_command; /* -c */
    enum lock_mode mode;
    int slots; /* of MODE_SLOTS */
    bool waits_forever;
    bool nonblock; /* -n; a later --wait overrides it */
    int conflict_status;
    struct duration wait; /* if it does not wait for ever; zero, or with nonblock: do not wait */
    struct duration ttl;
    struct duration hold_at_least; /* <= ttl */
    struct duration pause;         /* of ACTION_PAUSE */
    const char *message;           /* NULL: none */
    struct duration once_per;      /* 0: as often as it is asked for */
    struct duration remember;      /* 0: nothing */
    struct duration ran_within;    /* of ACTION_RAN_WITHIN */
    int exit_status;               /* of ACTION_RELEASE; -1: not known */
    bool all;                      /* of ACTION_LIST */
    const char *owner;             /* NULL: a fresh one, or that of the action's lock */
    const char *owner_file;        /* NULL: none */
    const char *prefix;
    enum name_hash hash;
    const char *secret_file;            /* NULL: none */
    const char *cacert, *cert, *key;    /* files of TLS; NULL: none */
    const char *password_file;          /* NULL: none */
    const char *sentinel_password_file; /* NULL: none */
    int wait_replicas;
    const char *redis; /* URL; NULL: none configured */
    const char *lock_dir, *lock_file;
    enum backend_choice backend;
    enum on_degraded on_degraded;
    struct duration connect_timeout, outage;
    struct duration grace; /* < ttl; negative: not given, lease_grace() */
    int stop_signal;
    bool fallback_to_file;
    bool warn_on_expire; /* --on-expire=warn */
    bool tree, heartbeat;
    const char *report; /* file for a line about the run; NULL: none */
    int verbosity;
    bool json;
    bool syslog;

    struct origin origins[OPTION_COUNT];
    bool unset[OPTION_COUNT]; /* --no-OPTION on the command line: no other source counts */
    struct settings settings; /* owns the texts that the above point to */
};

/* Reads command line, environment and configuration files into *options
 * (precedence in this order), and checks each value and those that
 * must agree. On failure *why says which setting, where it was made, its text
 * and what would be right. options_free() in every case. */
enum settings_result options_read(struct options *options, int argc, char **argv,
                                  struct errmsg *why);
void options_free(struct options *options);

/* The same options for a lock that this process runs under, in the store that its line of
 * DLOCK_HELD names in `length` bytes (config/held_store.h; 0: none): the command line, then
 * that, then the rest. options_under_free() in every case, and before the options. */
enum settings_result options_under(struct options **made, const struct options *options,
                                   const char *store, size_t length, struct errmsg *why);
void options_under_free(struct options **made);

#endif
