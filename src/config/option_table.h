/* The options: one popt table that the command line, the environment, the
 * configuration files, --help and the tests all use. */
#ifndef DLOCK_CONFIG_OPTION_TABLE_H
#define DLOCK_CONFIG_OPTION_TABLE_H

#include <popt.h>
#include <stdbool.h>
#include <stddef.h>

/* popt's `val` of each option. */
enum option_id {
    OPT_NONE,
    /* Actions: */
    OPT_ACQUIRE,
    OPT_ATTACH,
    OPT_EXTEND,
    OPT_RELEASE,
    OPT_FORCE_RELEASE,
    OPT_PAUSE,
    OPT_RESUME,
    OPT_STATUS,
    OPT_WAIT_FREE,
    OPT_LIST,
    OPT_RAN_WITHIN,
    OPT_CURRENT,
    OPT_DOCTOR,
    OPT_PRINT_CONFIG,
    OPT_VERSION,
    OPT_HELP,
    OPT_USAGE,
    /* Others that only the command line can give; --config has a variable, too: */
    OPT_ATTACH_PID,
    OPT_EXIT_STATUS,
    OPT_ALL,
    OPT_COMMAND,
    OPT_CLOSE,
    OPT_NO_FORK,
    OPT_UNLOCK,
    OPT_CONFIG,
    /* Settings: */
    OPT_FIRST_SETTING,
    OPT_EXCLUSIVE = OPT_FIRST_SETTING,
    OPT_SHARED,
    OPT_SLOTS,
    OPT_NONBLOCK,
    OPT_WAIT,
    OPT_CONFLICT_EXIT_CODE,
    OPT_TTL,
    OPT_HOLD_AT_LEAST,
    OPT_MESSAGE,
    OPT_ONCE_PER,
    OPT_REMEMBER,
    OPT_OWNER,
    OPT_OWNER_FILE,
    OPT_HASH,
    OPT_SECRET_FILE,
    OPT_PREFIX,
    OPT_REDIS,
    OPT_BACKEND,
    OPT_LOCK_DIR,
    OPT_LOCK_FILE,
    OPT_ON_DEGRADED,
    OPT_FALLBACK,
    OPT_CACERT,
    OPT_CERT,
    OPT_KEY,
    OPT_PASSWORD_FILE,
    OPT_SENTINEL_PASSWORD_FILE,
    OPT_WAIT_REPLICAS,
    OPT_CONNECT_TIMEOUT,
    OPT_OUTAGE,
    OPT_ON_EXPIRE,
    OPT_STOP_SIGNAL,
    OPT_GRACE,
    OPT_TREE,
    OPT_HEARTBEAT,
    OPT_VERBOSE,
    OPT_QUIET,
    OPT_JSON,
    OPT_SYSLOG,
    OPT_REPORT,
    OPTION_COUNT,
};

extern const struct poptOption option_table[];

/* The entry with this long name (`length` bytes of it); NULL if there is none.
 * Finds aliases too. */
const struct poptOption *option_by_name(const char *name, size_t length);

/* The entry that is shown in --help for this id, which must be an option's. */
const struct poptOption *option_by_id(enum option_id id);

/* Calls visit for every entry of the table and its groups, in order, until it
 * returns true; returns that entry, otherwise NULL. */
const struct poptOption *option_find(bool (*visit)(const struct poptOption *, const void *),
                                     const void *data);

/* True if it takes a value. */
bool option_has_value(const struct poptOption *option);

/* The index of the next option in argv after the one at `index` (0: after
 * none), whose value may be a word of its own; argc if there are no more
 * options. */
int option_next(int argc, char *const *argv, int index);

/* True if it is allowed in a configuration file or the environment. */
static inline bool option_configurable(enum option_id id)
{
    return id >= OPT_FIRST_SETTING;
}

#endif
