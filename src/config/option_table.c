/* The table of options, the single source of their names, arguments and help.
 * A hidden entry is an alias of the entry before it, or an option of flock(1)
 * that is refused with the reason. */
#include "config/option_table.h"

#include <stdlib.h>
#include <string.h>

#define OPTION(long_name, short_name, info, arg, id, help, argument) \
    {                                                                \
        long_name, short_name, info, arg, id, help, argument         \
    }
#define FLAG(long_name, short_name, id, help) \
    OPTION(long_name, short_name, POPT_ARG_NONE, NULL, id, help, NULL)
#define VALUE(long_name, short_name, id, help, argument) \
    OPTION(long_name, short_name, POPT_ARG_STRING, NULL, id, help, argument)
#define HIDDEN_FLAG(long_name, short_name, id) \
    OPTION(long_name, short_name, POPT_ARG_NONE | POPT_ARGFLAG_DOC_HIDDEN, NULL, id, NULL, NULL)
#define HIDDEN_VALUE(long_name, id) \
    OPTION(long_name, '\0', POPT_ARG_STRING | POPT_ARGFLAG_DOC_HIDDEN, NULL, id, NULL, NULL)
#define GROUP(table, title) OPTION(NULL, '\0', POPT_ARG_INCLUDE_TABLE, table, 0, title, NULL)

static struct poptOption daily[] = {
    FLAG("nonblock", 'n', OPT_NONBLOCK, "do not wait for the lock"),
    HIDDEN_FLAG("nb", '\0', OPT_NONBLOCK),
    HIDDEN_FLAG("nonblocking", '\0', OPT_NONBLOCK),
    HIDDEN_FLAG("no-wait", '\0', OPT_NONBLOCK),
    VALUE("wait", 'w', OPT_WAIT, "wait at most this long; 0 is the same as -n (default: infinity)",
          "DURATION"),
    HIDDEN_VALUE("timeout", OPT_WAIT),
    VALUE("ttl", 't', OPT_TTL,
          "how long the lock holds, at most 30d; the command is killed at its end (default: 1h)",
          "DURATION"),
    VALUE("conflict-exit-code", 'E', OPT_CONFLICT_EXIT_CODE,
          "exit status if another holds the lock (default: 75)", "N"),
    FLAG("shared", 's', OPT_SHARED, "any number of shared holders, and no exclusive one"),
    VALUE("command", 'c', OPT_COMMAND, "run this with $SHELL -c instead of COMMAND", "STRING"),
    POPT_TABLEEND,
};

static struct poptOption acting[] = {
    FLAG("acquire", '\0', OPT_ACQUIRE,
         "acquire the lock, print its owner token, and leave it held"),
    FLAG("attach", '\0', OPT_ATTACH,
         "hold it for the life of the calling script (--attach=PID: of that process)"),
    HIDDEN_VALUE("attach-pid", OPT_ATTACH_PID),
    FLAG("extend", '\0', OPT_EXTEND,
         "extend the lease; without NAME, that of the innermost lock around the caller"),
    FLAG("release", '\0', OPT_RELEASE,
         "release the lock if the owner token matches; NAME as for --extend"),
    VALUE("exit-status", '\0', OPT_EXIT_STATUS, "with --release: how what ran under the lock ended",
          "N"),
    FLAG("force-release", '\0', OPT_FORCE_RELEASE,
         "take the lock away from its holder, and print the holder"),
    VALUE("pause", '\0', OPT_PAUSE,
          "refuse the lock to all requests for this long; holders keep it; --message says why",
          "DURATION"),
    FLAG("resume", '\0', OPT_RESUME, "end the pause of the lock"),
    FLAG("status", '\0', OPT_STATUS, "show who holds the lock; exit status 1 if it is free"),
    FLAG("wait-free", '\0', OPT_WAIT_FREE, "wait until the lock is free, without acquiring it"),
    FLAG("list", '\0', OPT_LIST, "list the held locks, or those whose name matches GLOB"),
    FLAG("all", '\0', OPT_ALL, "with --list: free locks that are paused or remember a run, too"),
    VALUE("ran-within", '\0', OPT_RAN_WITHIN,
          "exit status 0: the last success ended within that time; 1: it did not, or none is known",
          "DURATION"),
    FLAG("current", '\0', OPT_CURRENT,
         "list the locks that this process runs under; exit status 1: none"),
    FLAG("doctor", '\0', OPT_DOCTOR, "check whether a lock can be trusted here, and if not, why"),
    FLAG("print-config", '\0', OPT_PRINT_CONFIG,
         "print each setting as it applies to NAME, and its source"),
    POPT_TABLEEND,
};

static struct poptOption taking[] = {
    FLAG("exclusive", 'x', OPT_EXCLUSIVE, "one holder at a time (default)"),
    HIDDEN_FLAG("exclusive", 'e', OPT_EXCLUSIVE),
    VALUE("slots", '\0', OPT_SLOTS,
          "at most N holders, each with a DLOCK_SLOT of its own, 0 to N-1", "N"),
    VALUE("hold-at-least", '\0', OPT_HOLD_AT_LEAST,
          "hold the lock at least this long, even if the command ends earlier (default: 0)",
          "DURATION"),
    VALUE("message", '\0', OPT_MESSAGE,
          "why, at most 256 bytes: shown to waiters, by --status and by --list", "TEXT"),
    VALUE("once-per", '\0', OPT_ONCE_PER,
          "do not run if the last success began less than that ago (default: 0)", "DURATION"),
    VALUE("remember", '\0', OPT_REMEMBER, "how long the lock remembers its runs (default: 100d)",
          "DURATION"),
    VALUE("owner", '\0', OPT_OWNER, "owner token (default: a fresh UUID v4)", "TOKEN"),
    VALUE("owner-file", '\0', OPT_OWNER_FILE,
          "file for the owner token: written by --acquire, read by --extend and --release", "FILE"),
    VALUE("hash", '\0', OPT_HASH, "hash NAME in the key (default: none; hmac-sha256 with a secret)",
          "none|sha256|hmac-sha256"),
    VALUE("secret-file", '\0', OPT_SECRET_FILE,
          "file with the secret of hmac-sha256, 16 bytes or more", "FILE"),
    VALUE("prefix", '\0', OPT_PREFIX, "prefix of keys (default: dlock:)", "TEXT"),
    POPT_TABLEEND,
};

static struct poptOption where[] = {
    VALUE("redis", 'r', OPT_REDIS, "the Redis server, see below; three or more of them: a quorum",
          "URL"),
    VALUE(
        "backend", '\0', OPT_BACKEND,
        "auto: Redis if one is configured, else file, for this host and user only (default: auto)",
        "auto|redis|file"),
    VALUE("lock-dir", '\0', OPT_LOCK_DIR,
          "directory of lock files, one for each user (default: /run/lock/dlock for root)", "DIR"),
    VALUE("lock-file", '\0', OPT_LOCK_FILE,
          "lock exactly this file, as flock(1) does; NAME is then optional before --", "PATH"),
    VALUE("on-degraded", '\0', OPT_ON_DEGRADED,
          "what to do if no Redis is configured (default: warn)",
          "warn|warn-throttled|proceed|fail"),
    VALUE("fallback", '\0', OPT_FALLBACK, "when Redis is down, take a file lock (default: off)",
          "off|file"),
    VALUE("cacert", '\0', OPT_CACERT,
          "trusted issuers of a TLS server's certificate (default: the system's)", "FILE"),
    VALUE("cert", '\0', OPT_CERT, "client certificate for a TLS server that asks for one", "FILE"),
    VALUE("key", '\0', OPT_KEY, "its private key (default: in the file of --cert)", "FILE"),
    VALUE("password-file", '\0', OPT_PASSWORD_FILE,
          "file with the password for Redis; the user is in the URL", "FILE"),
    VALUE("sentinel-password-file", '\0', OPT_SENTINEL_PASSWORD_FILE,
          "file with PASSWORD or USER:PASSWORD for the Sentinels", "FILE"),
    VALUE("wait-replicas", '\0', OPT_WAIT_REPLICAS,
          "replicas that must have the lock before it counts (default: 0)", "N"),
    VALUE("connect-timeout", '\0', OPT_CONNECT_TIMEOUT,
          "limit of one attempt to reach Redis (default: 3s)", "DURATION"),
    VALUE("outage", '\0', OPT_OUTAGE,
          "how long to retry an unreachable Redis before exit 69 (default: 10s)", "DURATION"),
    POPT_TABLEEND,
};

static struct poptOption running[] = {
    VALUE("on-expire", '\0', OPT_ON_EXPIRE,
          "what to do with the command when the lease ends or is lost (default: stop)",
          "stop|warn"),
    VALUE("stop-signal", '\0', OPT_STOP_SIGNAL,
          "first signal to the command when the lease ends (default: TERM)", "SIG"),
    VALUE("grace", '\0', OPT_GRACE,
          "how long before the end to send it; KILL at the end (default: min(10s, ttl/10))",
          "DURATION"),
    FLAG("tree", '\0', OPT_TREE, "keep the lock until every descendant of the command has ended"),
    FLAG("heartbeat", '\0', OPT_HEARTBEAT,
         "each WATCHDOG=1 from the command (sd_notify) extends the lease by --ttl"),
    HIDDEN_FLAG("close", 'o', OPT_CLOSE),
    HIDDEN_FLAG("no-fork", 'F', OPT_NO_FORK),
    HIDDEN_FLAG("unlock", 'u', OPT_UNLOCK),
    POPT_TABLEEND,
};

static struct poptOption saying[] = {
    FLAG("verbose", 'v', OPT_VERBOSE, "print what is done; may be repeated"),
    FLAG("quiet", 'q', OPT_QUIET,
         "only errors, the stop of the command, and the warning that no Redis is configured"),
    FLAG("json", '\0', OPT_JSON, "print results and failures as JSON"),
    FLAG("syslog", '\0', OPT_SYSLOG,
         "also send messages to syslog(3), for crontabs whose mail goes nowhere"),
    VALUE("report", '\0', OPT_REPORT, "append one line of JSON about the run to this file", "FILE"),
    VALUE("config", '\0', OPT_CONFIG, "read this file instead of the user's and the system's",
          "FILE"),
    FLAG("version", 'V', OPT_VERSION, "print the version"),
    FLAG("help", 'h', OPT_HELP, "print this help"),
    HIDDEN_FLAG("usage", '\0', OPT_USAGE),
    POPT_TABLEEND,
};

const struct poptOption option_table[] = {
    GROUP(daily, "Used most:"),
    GROUP(acting, "Without a command:"),
    GROUP(taking, "Taking the lock:"),
    GROUP(where, "Lock store:"),
    GROUP(running, "While the command runs:"),
    GROUP(saying, "Messages:"),
    POPT_TABLEEND,
};

const struct poptOption *option_find(bool (*visit)(const struct poptOption *, const void *),
                                     const void *data)
{
    for (const struct poptOption *group = option_table; group->arg != NULL; group++)
        for (const struct poptOption *option = group->arg; option->longName != NULL; option++)
            if (visit(option, data))
                return option;
    return NULL;
}

struct name {
    const char *text;
    size_t length;
};

static bool has_name(const struct poptOption *option, const void *data)
{
    const struct name *name = data;
    return strlen(option->longName) == name->length &&
           memcmp(option->longName, name->text, name->length) == 0;
}

const struct poptOption *option_by_name(const char *name, size_t length)
{
    return option_find(has_name, &(struct name){name, length});
}

static bool option_table_has_id(const struct poptOption *option, const void *data)
{
    return option->val == *(const int *)data;
}

const struct poptOption *option_by_id(enum option_id id)
{
    const struct poptOption *option = option_find(option_table_has_id, &(int){(int)id});
    if (option == NULL)
        abort(); /* a mistake in this program */
    return option;
}

bool option_has_value(const struct poptOption *option)
{
    return (option->argInfo & POPT_ARG_MASK) == POPT_ARG_STRING;
}

static bool has_letter(const struct poptOption *option, const void *data)
{
    return option->shortName != '\0' && option->shortName == *(const char *)data;
}

/* True if the next word is the value of this one. */
static bool takes_next(const char *word)
{
    if (word[1] == '-') {
        const struct poptOption *option = option_by_name(word + 2, strlen(word + 2));
        return option != NULL && option_has_value(option);
    }
    for (const char *letter = word + 1; *letter != '\0'; letter++) {
        const struct poptOption *option = option_find(has_letter, letter);
        if (option == NULL)
            return false;
        if (option_has_value(option))
            return letter[1] == '\0';
    }
    return false;
}

int option_next(int argc, char *const *argv, int index)
{
    index += index > 0 && takes_next(argv[index]) ? 2 : 1;
    bool is_option = index < argc && argv[index][0] == '-' && argv[index][1] != '\0' &&
                     strcmp(argv[index], "--") != 0;
    return is_option ? index : argc;
}
