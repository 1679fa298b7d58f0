#include "config/hints.h"

#include "config/settings.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- options of other programs ------------------------------------------- */

/* Without their dashes. An option that has the same name and meaning here is not listed. */
static const struct habit {
    const char *word, *advice;
} habits[] = {
    /* flock(1) */
    {"fcntl", "file locks are those of flock(2) here, which --fcntl would not meet"},
    /* consul lock */
    {"try", "the -try=TIME of consul lock is --wait=DURATION"},
    {"child-exit-code", "leave it out: the exit status is always the command's"},
    {"monitor-retry",
     "--outage=DURATION says how long Redis may be down when the lock is asked for"},
    {"pass-stdin", "leave it out: the command always has the standard input"},
    {"http-addr", "--redis=URL says where the locks are"},
    {"ca-file", "--cacert=FILE has the issuers to trust"},
    {"ca-path", "--cacert=FILE has the issuers to trust"},
    {"client-cert", "--cert=FILE has the certificate for a server that asks for one"},
    {"client-key", "--key=FILE has the private key of --cert"},
    {"tls-server-name",
     "the name in a certificate is compared with the host in --redis=rediss://HOST"},
    {"datacenter", "--redis=URL says where the locks are"},
    {"stale", "leave it out: a lock is only ever taken from the master"},
    {"token-file",
     "--password-file=FILE has the password for Redis, --owner-file=FILE the lock's owner token"},
    {"token",
     "--password-file=FILE has the password for Redis, --owner=TOKEN sets the lock's owner token"},
    /* etcdctl lock */
    {"endpoints", "--redis=URL says where the locks are"},
    {"dial-timeout", "--connect-timeout=DURATION limits one try to reach Redis"},
    {"command-timeout",
     "--wait=DURATION limits the wait for the lock, --outage=DURATION that for Redis"},
    {"user", "the user goes into --redis=redis://USER@HOST, the password in --password-file=FILE"},
    /* redis-cli(1) */
    {"p", "the port goes into --redis=redis://HOST:PORT"},
    {"a", "--password-file=FILE has the password for Redis"},
    {"pass", "--password-file=FILE has the password for Redis"},
    {"host", "--redis=redis://HOST:PORT says where the locks are"},
    {"port", "--redis=redis://HOST:PORT says where the locks are"},
    {"url", "--redis=URL says where the locks are"},
    {"tls", "with TLS the URL begins with rediss://"},
    {"insecure", "a certificate is always verified; --cacert=FILE has the issuers to trust"},
    /* timeout(1), sem(1) of GNU parallel, cronlock and others */
    {"k", "--grace=DURATION says how long before the end of the lease the first signal is sent"},
    {"kill-after",
     "--grace=DURATION says how long before the end of the lease the first signal is sent"},
    {"signal", "--stop-signal=SIG is the first signal to the command"},
    {"preserve-status",
     "leave it out: a command that ends within its lease has its own exit status"},
    {"foreground", "leave it out: the command has dlock's terminal and process group"},
    {"fg", "leave it out: dlock always waits for the command"},
    {"j", "--slots=N allows N holders"},
    {"jobs", "--slots=N allows N holders"},
    {"id", "the lock's name is a word of its own: dlock NAME -- COMMAND"},
    {"name", "the lock's name is a word of its own: dlock NAME -- COMMAND"},
    {"shell", "-c STRING runs a shell; dlock NAME -- COMMAND runs none"},
    {"expire", "--ttl=DURATION says how long the lock holds"},
    {"expires", "--ttl=DURATION says how long the lock holds"},
    {"lease", "--ttl=DURATION says how long the lock holds"},
    {"max-time", "--ttl=DURATION says how long the command may run"},
    {"renew",
     "nothing is renewed by itself; --heartbeat lets the command, and --extend is for scripts"},
    {"refresh",
     "nothing is renewed by itself; --heartbeat lets the command, and --extend is for scripts"},
    {"keepalive",
     "nothing is renewed by itself; --heartbeat lets the command, and --extend is for scripts"},
    {"retries",
     "--wait=DURATION says how long to wait; a waiter is called, and does not count tries"},
    {"debug", "-v says what is done"},
    {"?", "did you mean --help?"},
};

/* The word up to its value. */
static size_t name_length(const char *word)
{
    return strcspn(word, "=:");
}

static const char *habit_advice(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
        if (strlen(habits[i].word) == length && memcmp(habits[i].word, name, length) == 0)
            return habits[i].advice;
    return NULL;
}

static void unknown_option(const char *word, bool behind_name, struct errmsg *why)
{
    size_t dashes = strspn(word, "-"), length = name_length(word + dashes);
    const char *name = word + dashes;
    bool of_command = behind_name && length == 1 && isalpha((unsigned char)*name);
    const char *advice = of_command ? NULL : habit_advice(name, length);
    int shown = (int)(dashes + length < 100 ? dashes + length : 100);
    char near[NEAR_TEXT_SIZE];
    if (advice != NULL)
        errmsg_set(why, "%.*s: unknown option; %s", shown, word, advice);
    else if (dashes > 1 && hints_near(near, name, length, NEAR_ALL))
        errmsg_set(why, "%.*s: unknown option; did you mean %s?", shown, word, near);
    else
        errmsg_set(why, "%.*s: unknown option; dlock --help lists them all", shown, word);
}

static bool takes_yes_or_no(const char *word)
{
    const struct poptOption *option =
        strncmp(word, "--", 2) == 0 ? option_by_name(word + 2, name_length(word + 2)) : NULL;
    return option != NULL && option_configurable((enum option_id)option->val);
}

void hints_bad_option(const char *word, int fault, bool behind_name, struct errmsg *why)
{
    const char *text =
        fault == POPT_ERROR_NOARG ? "it needs a value"
        : fault == POPT_ERROR_UNWANTEDARG
            ? takes_yes_or_no(word) ? "it takes no value but yes or no" : "it takes no value"
            : poptStrerror(fault);
    if (fault == POPT_ERROR_BADOPT)
        unknown_option(word, behind_name, why);
    else
        errmsg_set(why, "%.*s: %s", (int)name_length(word), word, text);
}

/* --- one dash ------------------------------------------------------------- */

/* -help is read as -h, and has the intended effect. */
static bool one_dash_right(const char *word, struct errmsg *why)
{
    size_t length = name_length(word + 1);
    const char *name = word + 1;
    const char *advice = length > 1 ? habit_advice(name, length) : NULL;
    if (strncmp(word, "-n=", 3) == 0)
        errmsg_set(why, "-n: it takes no value; the -n=N of consul lock is --slots=N");
    else if (advice != NULL)
        errmsg_set(why, "-%.*s: unknown option; %s", (int)length, name, advice);
    else if (length > 2 && option_by_name(name, length) != NULL &&
             strncmp(name, "help", length) != 0)
        errmsg_set(why, "-%.*s: a long option has two dashes: --%.*s", (int)length, name,
                   (int)length, name);
    else
        return true;
    return false;
}

bool hints_dashes_right(int argc, char **argv, struct errmsg *why)
{
    for (int i = option_next(argc, argv, 0); i < argc; i = option_next(argc, argv, i))
        if (argv[i][1] != '-' && !one_dash_right(argv[i], why))
            return false;
    return true;
}

/* --- names and commands --------------------------------------------------- */

static const char blanks[] = " \t\n";

static bool is_program_file(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* As execvp(3) would find it. */
static bool is_program(const char *word)
{
    const char *path = getenv("PATH");
    if (strchr(word, '/') != NULL)
        return is_program_file(word);
    for (; path != NULL && *path != '\0'; path += *path == ':') {
        char file[1024];
        size_t length = strcspn(path, ":");
        int needed = snprintf(file, sizeof file, "%.*s/%s", (int)length, path, word);
        if (length > 0 && needed > 0 && (size_t)needed < sizeof file && is_program_file(file))
            return true;
        path += length;
    }
    return false;
}

/* The action, or --help or a similar option, that has this word as its name; NULL: none. */
static const char *verb(const char *word)
{
    const struct poptOption *option = option_by_name(word, strlen(word));
    bool is_verb = option != NULL && !option_has_value(option) &&
                   !option_configurable((enum option_id)option->val) &&
                   option->val != OPT_NO_FORK && option->val != OPT_UNLOCK;
    return is_verb ? option->longName : NULL;
}

static void add(struct errmsg *why, const char *hint)
{
    size_t used = strlen(why->text);
    snprintf(why->text + used, sizeof why->text - used, "; %s", hint);
}

void hints_no_command(const char *name, struct errmsg *why)
{
    static const char none[] = "no command given";
    if (verb(name) != NULL)
        errmsg_set(why,
                   "%s; did you mean dlock --%s? (with a lock of that name: dlock %s -- COMMAND)",
                   none, verb(name), name);
    else if (strpbrk(name, blanks) != NULL)
        errmsg_set(why,
                   "%s; '%.100s' is taken for the lock's name: dlock NAME -- COMMAND, or dlock "
                   "NAME -c 'STRING' for a shell",
                   none, name);
    else if (name[strspn(name, "0123456789")] == '\0')
        errmsg_set(why,
                   "%s; dlock locks no descriptor: dlock --attach NAME || exit holds a lock until "
                   "the script ends, "
                   "with --lock-file=FILE that of the file",
                   none);
    else if (is_program(name))
        errmsg_set(why,
                   "%s; if %.100s is the command, the lock's name is missing: dlock NAME -- %.100s",
                   none, name, name);
    else if (strchr(name, '/') != NULL)
        errmsg_set(why,
                   "%s; usage: dlock [OPTIONS] NAME -- COMMAND [ARG...]; --lock-file=%.200s locks "
                   "that file as flock(1) does",
                   none, name);
    else
        errmsg_set(why,
                   "%s; usage: dlock [OPTIONS] NAME [--] COMMAND [ARG...], or dlock --status NAME",
                   none);
}

void hints_name_is_command(const char *name, struct errmsg *why)
{
    char hint[256];
    if (!is_program(name))
        return;
    snprintf(hint, sizeof hint,
             "if %.80s is the command, the lock's name is missing: dlock NAME -- %.80s", name,
             name);
    add(why, hint);
}

void hints_behind_name(const struct options *options, struct origin origin, struct errmsg *why)
{
    if (origin.behind_name)
        hints_name_is_command(options->name, why);
}

void hints_not_a_command(const struct options *options, struct errmsg *why)
{
    char hint[256];
    if (options->command == NULL)
        return;
    const char *word = options->command[0];
    if (verb(options->name) != NULL && options->command[1] == NULL) {
        snprintf(hint, sizeof hint, "did you mean dlock --%s %.100s?", verb(options->name), word);
        add(why, hint);
    } else if (strpbrk(word, blanks) != NULL && options->command[1] == NULL) {
        add(why, "it is one word with spaces in it: -c 'STRING' gives it to a shell");
    } else {
        hints_name_is_command(options->name, why);
    }
}

bool hints_name_is_file(const struct options *options)
{
    struct stat status;
    return strchr(options->name, '/') != NULL && options->lock_file == NULL &&
           stat(options->name, &status) == 0 && S_ISREG(status.st_mode);
}

enum { NEAR_SIZE = 32, NEAR_MOST = 3, PREFIX_LEAST = 2 };

struct near {
    enum near_kind kind;
    char word[NEAR_SIZE]; /* as it would be in the table */
    const char *names[NEAR_MOST];
    int ids[NEAR_MOST];
    int count, distance;
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* How many letters have to be inserted, left out, changed, or swapped with the
 * next one to make b of a. F. J. Damerau, "A technique for computer detection
 * and correction of spelling errors", CACM 7 (1964); no letter is changed
 * twice. */
static int distance(const char *a, const char *b)
{
    int rows[3][NEAR_SIZE], *before = rows[0], *last = rows[1], *row = rows[2];
    int length = (int)strlen(b);
    for (int j = 0; j <= length; j++)
        before[j] = last[j] = j;
    for (int i = 1; a[i - 1] != '\0'; i++) {
        row[0] = i;
        for (int j = 1; j <= length; j++) {
            row[j] = least(least(last[j], row[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        int *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[length];
}

/* An abbreviation is nearest; then one letter in four may differ; then a word
 * may follow: redis-url. */
static int option_distance(const char *word, const char *name)
{
    size_t length = strlen(word);
    if (length >= PREFIX_LEAST && strncmp(word, name, length) == 0)
        return 0;
    int found = strlen(name) < NEAR_SIZE ? distance(word, name) : NEAR_SIZE;
    if (found <= ((int)length + 2) / 4)
        return found;
    return strncmp(word, name, strlen(name)) == 0 && word[strlen(name)] == '-' ? NEAR_SIZE - 1
                                                                               : NEAR_SIZE;
}

static bool note_near(const struct poptOption *option, const void *data)
{
    struct near *near = (struct near *)(uintptr_t)data;
    int found = option_distance(near->word, option->longName);
    if (found >= NEAR_SIZE || found > near->distance || option->val == OPT_ATTACH_PID)
        return false;
    if (near->kind != NEAR_ALL && !option_configurable((enum option_id)option->val))
        return false;
    if (found < near->distance)
        near->count = 0;
    near->distance = found;
    for (int i = 0; i < least(near->count, NEAR_MOST); i++)
        if (near->ids[i] == option->val)
            return false; /* an alias of it */
    if (near->count < NEAR_MOST) {
        near->names[near->count] = option->longName;
        near->ids[near->count] = option->val;
    }
    near->count++;
    return false;
}

/* A word that begins too many options, or is near too many, gives no hint. */
static bool find_near(const char *name, size_t length, struct near *near)
{
    near->distance = NEAR_SIZE - 1;
    if (length >= NEAR_SIZE)
        return false;
    for (size_t i = 0; i < length; i++)
        near->word[i] = name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
    (void)option_find(note_near, near);
    return near->count > 0 && near->count <= NEAR_MOST;
}

bool hints_near(char text[NEAR_TEXT_SIZE], const char *name, size_t length, enum near_kind kind)
{
    struct near near = {.kind = kind};
    if (!find_near(name, length, &near))
        return false;
    for (int i = 0, used = 0; i < near.count; i++) {
        char variable[ORIGIN_TEXT_SIZE];
        const char *shown = near.names[i];
        if (kind == NEAR_VARIABLES) /* aliases have none */
            shown = origin_format((enum option_id)near.ids[i],
                                  (struct origin){.kind = ORIGIN_ENVIRONMENT}, variable,
                                  sizeof variable);
        used += snprintf(text + used, (size_t)(NEAR_TEXT_SIZE - used), "%s%s%s",
                         i == 0               ? ""
                         : i + 1 < near.count ? ", "
                                              : " or ",
                         kind == NEAR_ALL ? "--" : "", shown);
    }
    return true;
}
