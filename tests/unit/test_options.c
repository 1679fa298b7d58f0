/* Options: what a command line, the environment and a file mean together, and what dlock
 * refuses. */
#include "read_options.h"

#include "util/clock.h"
#include "util/text.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

static const char *const actions[] = {
    [ACTION_RUN] = "run",         [ACTION_ACQUIRE] = "acquire",
    [ACTION_ATTACH] = "attach",   [ACTION_EXTEND] = "extend",
    [ACTION_RELEASE] = "release", [ACTION_FORCE_RELEASE] = "force-release",
    [ACTION_STATUS] = "status",   [ACTION_WAIT_UNTIL_FREE] = "wait-until-free",
    [ACTION_LIST] = "list",       [ACTION_CURRENT] = "current",
    [ACTION_HISTORY] = "history", [ACTION_RAN_WITHIN] = "ran-within",
    [ACTION_DOCTOR] = "doctor",   [ACTION_PRINT_CONFIG] = "print-config",
    [ACTION_VERSION] = "version", [ACTION_HELP] = "help",
    [ACTION_USAGE] = "usage",
};

static char shown[2048];

__attribute__((format(printf, 1, 2))) static void add(const char *format, ...)
{
    size_t used = strlen(shown);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(shown + used, sizeof shown - used, format, arguments);
    va_end(arguments);
}

static void add_text(const char *name, const char *text, const char *usual)
{
    if (text != NULL && (usual == NULL || strcmp(text, usual) != 0))
        add(" %s=%s", name, text);
}

static void add_duration(const char *name, struct duration d, struct duration usual)
{
    char text[DURATION_TEXT_SIZE];
    if (d.ns != usual.ns)
        add(" %s=%s", name, duration_format(d, text, sizeof text));
}

static void add_number(const char *name, int number, int usual)
{
    if (number != usual)
        add(" %s=%d", name, number);
}

static void add_flag(const char *name, bool set)
{
    if (set)
        add(" %s", name);
}

/* Prints the action, and all options that differ from the defaults. */
static const char *show(const struct options *options)
{
    static const char *const hashes[] = {NULL, "sha256", "hmac-sha256"};
    static const char *const backends[] = {NULL, "redis", "file"};
    static const char *const degraded[] = {NULL, "warn-throttled", "proceed", "fail"};
    char text[32];
    snprintf(shown, sizeof shown, "%s", actions[options->action]);
    add_text("name", options->name, NULL);
    for (char **name = options->more_names; name != NULL && *name != NULL; name++)
        add(",%s", *name);
    for (char **word = options->command; word != NULL && *word != NULL; word++)
        add("%s%s", word == options->command ? " command=" : ",", *word);
    add_text("shell", options->shell_command, NULL);
    add_number("pid", options->attach_pid, 0);
    add_text("mode", lock_mode_name(options->mode), "exclusive");
    add_number("slots", options->slots, 0);
    if (!options->waits_forever)
        add_duration("wait", options->wait, (struct duration){-1});
    add_number("E", options->conflict_status, 75);
    add_duration("ttl", options->ttl, DURATION_S(3600));
    add_duration("hold-at-least", options->hold_at_least, DURATION_ZERO);
    add_duration("grace", options->grace, (struct duration){-1});
    add_duration("retry-for", options->retry_for, DURATION_S(10));
    add_duration("connect-timeout", options->connect_timeout, DURATION_S(3));
    add_text("owner", options->owner, NULL);
    add_text("owner-file", options->owner_file, NULL);
    add_text("scope", options->scope, NULL);
    add_text("prefix", options->prefix, "dlock:");
    add_text("hash", hashes[options->hash], NULL);
    add_text("secret-file", options->secret_file, NULL);
    add_text("redis", options->redis, NULL);
    add_text("backend", backends[options->backend], NULL);
    add_text("lock-dir", options->lock_dir, NULL);
    add_text("lock-file", options->lock_file, NULL);
    add_text("on-degraded", degraded[options->on_degraded], NULL);
    add_text("cacert", options->cacert, NULL);
    add_text("password-file", options->password_file, NULL);
    add_text("report", options->report, NULL);
    add_text("signal", signame_format(options->stop_signal, text, sizeof text), "SIGTERM");
    add_number("replicas", options->wait_replicas, 0);
    add_number("verbosity", options->verbosity, 0);
    add_flag("fallback", options->fallback_to_file);
    add_flag("warn", options->warn_on_expire);
    add_flag("tree", options->tree);
    add_flag("heartbeat", options->heartbeat);
    add_flag("json", options->json);
    add_flag("syslog", options->syslog);
    return shown;
}

static struct command_line line;

TEST(test_words)
{
    static const struct {
        const char *words, *shown;
    } rows[] = {
        {"job true", "run name=job command=true"},
        {"job -- true", "run name=job command=true"},
        {"-- job true", "run name=job command=true"},
        {"-- job -n", "run name=job command=-n"},
        {"job true -n --ttl=5", "run name=job command=true,-n,--ttl=5"},
        {"job -- -n", "run name=job command=-n"},
        {"-n job -t 5 true", "run name=job command=true wait=0 ttl=5s"},
        {"job echo --help", "run name=job command=echo,--help"},
        {"-c ls job", "run name=job shell=ls"},
        {"job -c ls%20-l", "run name=job shell=ls -l"},
        {"job --command=ls", "run name=job shell=ls"},
        {"-nxt5 job true", "run name=job command=true wait=0 ttl=5s"},
        {"-e job true", "run name=job command=true"},
        {"-o job true", "run name=job command=true"},
        {"-- -n true", "run name=-n command=true"},
        {"--owner --attach=5 job true", "run name=job command=true owner=--attach=5"},
        {"--prefix -shared job true", "run name=job command=true prefix=-shared"},
        {"--lock-file=/f true -n job", "run name=/f command=true,-n,job lock-file=/f"},
        {"--lock-file=/f -- true -- x", "run name=/f command=true,--,x lock-file=/f"},
        {"--lock-file=/f -n true", "run name=/f command=true wait=0 lock-file=/f"},
        {"--lock-file=/f --name=job true", "run name=job command=true lock-file=/f"},
        {"--name=job --lock-file=/f -c ls", "run name=job shell=ls lock-file=/f"},
        {"--lock-file=/f -t infinity true", "run name=/f command=true ttl=infinity lock-file=/f"},
        {"--lock-file=/f --no-lock-file job true", "run name=job command=true"},
        {"--lock-file=/f --attach", "attach name=/f lock-file=/f"},
        {"--status --lock-file=/f", "status name=/f lock-file=/f"},
        {"--status --lock-file=/f --name=job", "status name=job lock-file=/f"},
        {"--current --lock-file=/f", "current lock-file=/f"},
        {"--acquire job", "acquire name=job"},
        {"job --acquire", "acquire name=job"},
        {"--attach job", "attach name=job"},
        {"--attach=42 job", "attach name=job pid=42"},
        {"--extend", "extend"},
        {"--extend -t 1m job", "extend name=job ttl=1m"},
        {"--release --owner=x job", "release name=job owner=x"},
        {"--force-release job", "force-release name=job"},
        {"--status --json job", "status name=job json"},
        {"--status a b --json c", "status name=a,b,c json"},
        {"a --status b -- c --json", "status name=a,b,c,--json"},
        {"--status a -- b --json", "status name=a,b,--json"},
        {"--status -- a b --json", "status name=a,b,--json"},
        {"--wait-until-free -w 5 job", "wait-until-free name=job wait=5s"},
        {"--list", "list"},
        {"--list job*", "list name=job*"},
        {"--current", "current"},
        {"--doctor", "doctor"},
        {"--print-config job", "print-config name=job"},
        {"--version", "version"},
        {"-V", "version"},
        {"-h", "usage"},
        {"--usage", "usage"},
    };
    FOR_ROWS(row, rows)
    {
        read_options(&line, "", row->words);
        row_text(row->words, line.why.text, "");
        row_int(row->words, line.result, SETTINGS_OK);
        row_text(row->words, show(&line.options), row->shown);
        options_free(&line.options);
    }
    read_options(&line, "TTL=x", "--ttl=nonsense --help");
    row_int("help, whatever else is wrong", line.result, SETTINGS_OK);
    row_int("help, whatever else is wrong", line.options.action, ACTION_HELP);
    options_free(&line.options);
}

TEST(test_values)
{
    static const struct {
        const char *words, *shown; /* after "run name=job command=true" */
    } rows[] = {
        {"", ""},
        {"-s", " mode=shared"},
        {"-s -x", ""},
        {"--slots=3", " mode=slots slots=3"},
        {"--slots=10000", " mode=slots slots=10000"},
        {"-n", " wait=0"},
        {"--nb", " wait=0"},
        {"--nonblocking", " wait=0"},
        {"-w 0", " wait=0"},
        {"-w 90s", " wait=1m30s"},
        {"--timeout=5", " wait=5s"},
        {"-n -w 5", " wait=5s"}, /* the last one counts */
        {"-w 5 -n", " wait=0"},
        {"-n -E 3", " wait=0 E=3"},
        {"-n -E 0", " wait=0 E=0"},
        {"-n -E 255", " wait=0 E=255"},
        {"-t 100ms", " ttl=100ms"},
        {"-t 30d", " ttl=30d"},
        {"-t 1.0005s", " ttl=1s"},
        {"-t 1 -t 2", " ttl=2s"},
        {"--grace=9.9 -t 10", " ttl=10s grace=9.9s"},
        {"--grace=0", " grace=0"},
        {"--hold-at-least=10 -t 10", " ttl=10s hold-at-least=10s"},
        {"--retry-for=0", " retry-for=0"},
        {"--connect-timeout=1ms -r redis://h", " connect-timeout=1ms redis=redis://h"},
        {"--owner=a-b", " owner=a-b"},
        {"--prefix=", " prefix="},
        {"--scope=a:b", " scope=a:b"},
        {"--hash=sha256", " hash=sha256"},
        {"--hash=none", ""},
        {"--secret-file=/f", " hash=hmac-sha256 secret-file=/f"},
        {"--hash=hmac-sha256 --secret-file=/f", " hash=hmac-sha256 secret-file=/f"},
        {"-r redis://h", " redis=redis://h"},
        {"-r redis://a -r redis://b", " redis=redis://a redis://b"},
        {"--backend=file", " backend=file"},
        {"--backend=redis -r redis://h", " redis=redis://h backend=redis"},
        {"--lock-dir=/d", " lock-dir=/d"},
        {"--on-degraded=fail", " on-degraded=fail"},
        {"--on-degraded=warn-throttled", " on-degraded=warn-throttled"},
        {"--on-degraded=proceed", " on-degraded=proceed"},
        {"--fallback=file -r redis://h", " redis=redis://h fallback"},
        {"--cacert=/c --password-file=/p -r rediss://h",
         " redis=rediss://h cacert=/c password-file=/p"},
        {"--wait-replicas=2 -r redis://h", " redis=redis://h replicas=2"},
        {"--on-expire=warn", " warn"},
        {"--on-expire=stop", ""},
        {"--stop-signal=usr1", " signal=SIGUSR1"},
        {"--stop-signal=9", " signal=SIGKILL"},
        {"--tree --heartbeat", " tree heartbeat"},
        {"--report=/r --json", " report=/r json"},
        {"-v", " verbosity=1"},
        {"-vv", " verbosity=2"},
        {"-q", " verbosity=-1"},
        {"-q -v", " verbosity=1"},
        {"-v -q", " verbosity=-1"},
    };
    char words[256], wanted[256];
    FOR_ROWS(row, rows)
    {
        snprintf(words, sizeof words, "%s%sjob true", row->words, *row->words != '\0' ? " " : "");
        snprintf(wanted, sizeof wanted, "run name=job command=true%s", row->shown);
        read_options(&line, "", words);
        row_text(row->words, line.why.text, "");
        row_text(row->words, show(&line.options), wanted);
        options_free(&line.options);
    }
}

TEST(test_environment)
{
    static const struct {
        const char *variables, *words, *shown;
    } rows[] = {
        {"TTL=5", "job true", "run name=job command=true ttl=5s"},
        {"TTL= NOSUCH=1", "job true", "run name=job command=true"}, /* both are ignored */
        {"TTL=5", "-t 6 job true", "run name=job command=true ttl=6s"},
        {"SHARED=yes", "job true", "run name=job command=true mode=shared"},
        {"SHARED=on", "-x job true", "run name=job command=true"},
        {"SHARED=no", "-s job true", "run name=job command=true mode=shared"},
        {"SLOTS=3", "-s job true", "run name=job command=true mode=shared slots=3"},
        {"NONBLOCK=1", "-w 5 job true", "run name=job command=true wait=5s"},
        {"NONBLOCK=true", "job true", "run name=job command=true wait=0"},
        {"NONBLOCK=off", "job true", "run name=job command=true"},
        {"VERBOSE=yes", "-v job true", "run name=job command=true verbosity=2"},
        {"REDIS=redis://h", "job true", "run name=job command=true redis=redis://h"},
        {"REDIS=redis://h", "-r redis://i job true", "run name=job command=true redis=redis://i"},
        {"TREE=yes JSON=yes", "--status job", "status name=job tree json"}, /* meant for others */
        {"CONFLICT_EXIT_CODE=0", "job true", "run name=job command=true E=0"},
        {"CONFLICT_EXIT_CODE=0", "--acquire job", "acquire name=job"}, /* there 0 is success */
        {"HASH=sha256", "--hash=none job true", "run name=job command=true"},
        {"SECRET_FILE=/f", "--hash=none job true", "run name=job command=true secret-file=/f"},
        {"COMMAND=ls", "job true", "run name=job command=true"}, /* only for the command line */
        {"HELP=yes", "job true", "run name=job command=true"},
    };
    FOR_ROWS(row, rows)
    {
        read_options(&line, row->variables, row->words);
        row_text(row->variables, line.why.text, "");
        row_text(row->variables, show(&line.options), row->shown);
        options_free(&line.options);
    }
}

TEST(test_wrong_environment)
{
    static const struct {
        const char *variables, *words, *why;
    } rows[] = {
        {"TTL=x", "job true", "DLOCK_TTL: 'x': not a number"},
        {"SHARED=perhaps", "job true", "DLOCK_SHARED: 'perhaps': must be yes or no"},
        {"GRACE=1h", "-t 10 job true", "DLOCK_GRACE: must be shorter than the lease (--ttl)"},
        {"HASH=hmac-sha256", "job true", "DLOCK_HASH: hmac-sha256 needs a secret"},
        {"LOCK_FILE=/f SLOTS=2", "job true",
         "DLOCK_SLOTS: a --lock-file has no record of the lock"},
        {"STOP_SIGNAL=NOSUCH", "job true", "DLOCK_STOP_SIGNAL: 'NOSUCH': no such signal"},
    };
    FOR_ROWS(row, rows)
    {
        read_options(&line, row->variables, row->words);
        row_int(row->variables, line.result, SETTINGS_BAD_CONFIG);
        row_has(row->variables, line.why.text, row->why);
        options_free(&line.options);
    }
}

static char config_path[32];

/* Reads the words with a configuration file of this text. */
static void read_with_file(const char *text, const char *words)
{
    static int fd = -1;
    char variables[64];
    if (fd < 0)
        fd = memfd_create("config", MFD_CLOEXEC);
    assert_true(fd >= 0 && fchmod(fd, 0600) == 0 && ftruncate(fd, 0) == 0);
    assert_int_equal(pwrite(fd, text, strlen(text), 0), strlen(text));
    snprintf(config_path, sizeof config_path, "/proc/self/fd/%d", fd);
    snprintf(variables, sizeof variables, "CONFIG=%s", config_path);
    read_options(&line, variables, words);
}

TEST(test_files)
{
    static const struct {
        const char *text, *words, *shown;
    } rows[] = {
        {"", "job true", "run name=job command=true"},
        {"ttl = 5", "job true", "run name=job command=true ttl=5s"},
        {"ttl = 5", "-t 6 job true", "run name=job command=true ttl=6s"},
        {"ttl=5\nttl=6\n", "job true", "run name=job command=true ttl=6s"},
        {"# x\n; y\n\n   ttl   =   71   ; inline\n  \t stop-signal = USR1\n", "job true",
         "run name=job command=true ttl=1m11s signal=SIGUSR1"},
        {"\xEF\xBB\xBF[lock job]\nttl = 81\n", "job true", "run name=job command=true ttl=1m21s"},
        {"shared = yes\ntree = on\n", "job true", "run name=job command=true mode=shared tree"},
        {"tree = yes\n[lock job]\ntree = no\n", "job true", "run name=job command=true"},
        {"[lock cron:*]\nttl = 61\n[lock cron:n*]\nttl = 62\n", "cron:x true",
         "run name=cron:x command=true ttl=1m1s"},
        {"[lock cron:*]\nttl = 61\n[lock cron:n*]\nttl = 62\n", "cron:n true",
         "run name=cron:n command=true ttl=1m2s"},
        {"[lock cron:*]\nttl = 61\n", "other true", "run name=other command=true"},
        {"ttl = 1\n[lock job]\nttl = 2\n[lock other]\nttl=3\n", "job true",
         "run name=job command=true ttl=2s"},
        {"[lock j?b]\nttl = 2\n", "job true", "run name=job command=true ttl=2s"},
        {"[lock job[0-9]]\nttl = 2\n", "job7 true", "run name=job7 command=true ttl=2s"},
        {"[lock job[0-9]]\nttl = 2\n", "jobs true", "run name=jobs command=true"},
        {"[lock a]b] ; x\nttl = 2\n", "a]b true", "run name=a]b command=true ttl=2s"},
        {"[lock a-name-of-more-than-44-bytes-as-Kubernetes-makes-them-*]\nttl : 2\n",
         "a-name-of-more-than-44-bytes-as-Kubernetes-makes-them-x true",
         "run name=a-name-of-more-than-44-bytes-as-Kubernetes-makes-them-x command=true ttl=2s"},
        {"report =;=:;a b;# c\t; d\n", "job true", "run name=job command=true report=;=:;a b;# c"},
        {"ttl = 2\r\n\vttl = 3\r", "job true", "run name=job command=true ttl=3s"},
        {"nonblock = yes\nwait = 5\n", "job true", "run name=job command=true wait=5s"},
        {"wait = 5\nnonblock = yes\n", "job true", "run name=job command=true wait=0"},
        {"conflict-exit-code = 0\n", "--acquire job", "acquire name=job"},
        {"tree = yes\n", "--status job", "status name=job tree"}, /* meant for others */
    };
    FOR_ROWS(row, rows)
    {
        read_with_file(row->text, row->words);
        row_text(row->text, line.why.text, "");
        row_text(row->text, show(&line.options), row->shown);
        options_free(&line.options);
    }
}

TEST(test_wrong_files)
{
    static const struct {
        const char *text, *why; /* after the path */
    } rows[] = {
        {"nosuch = 1", "1: nosuch: unknown key; the keys"},
        {"\n\ntll = 5", "3: tll: unknown key; did you mean ttl?"},
        {"outage = 5s", "1: outage: unknown key; did you mean retry-for?"},
        {"wait-free = yes", "1: wait-free: unknown key; the keys"},
        {"lock_dri = x", "1: lock_dri: unknown key; did you mean lock-dir?"},
        {"statsu = 1", "1: statsu: unknown key; the keys"},
        {"help = yes", "1: help: unknown key"},
        {"command = rm", "1: command: unknown key"},
        {"t = 5", "1: t: unknown key"},
        {"ttl = soon", "1: ttl: 'soon': not a number"},
        {"ttl =", "1: ttl: '': empty"},
        {"ttl = 99ms", "1: ttl: '99ms': a lease must last from"},
        {"ttl = 5\ngrace = 6", "2: grace: must be shorter than the lease (--ttl)"},
        {"nonblock = perhaps", "1: nonblock: 'perhaps': must be yes or no"},
        {"stop-signal = NOSUCH", "1: stop-signal: 'NOSUCH': no such signal"},
        {"just words", "1: expected KEY = VALUE"},
        {"[lock]\nttl = 5", "1: [lock]: unknown section; only [lock GLOB]"},
        {"[lock ]\nttl = 5", "1: [lock ]: unknown section"},
        {"[other]\nttl = 5", "1: [other]: unknown section"},
        {"[lock zzz]\n\n[locks b]", "3: [locks b]: unknown section"},
        {" []\n[lock job]", "1: []: unknown section"},
        {"[lock x\nttl = 5", "1: expected KEY = VALUE"},
        {"[lock x] y\nttl = 5", "1: expected KEY = VALUE"},
        {"[lock x] # y\nttl = 5", "1: expected KEY = VALUE"}, /* # begins a comment only in front */
        {"[lock x=y\nttl = 5", "1: expected KEY = VALUE"},
        {"[lock x ;]\nttl = 5", "1: expected KEY = VALUE"},
        {"ttl = 2\nnonsense ; = 3", "2: expected KEY = VALUE"},
        {"[lock zzz]\nnosuch = 5", "2: nosuch: unknown key"}, /* although for another name */
        {"\xEF\xBB\xBF[locks b]\n", "1: [locks b]: unknown section"},
    };
    char wanted[256];
    FOR_ROWS(row, rows)
    {
        read_with_file(row->text, "job true");
        row_int(row->text, line.result, SETTINGS_BAD_CONFIG);
        snprintf(wanted, sizeof wanted, "%s:%s", config_path, row->why);
        row_has(row->text, line.why.text, wanted);
        options_free(&line.options);
    }
}

TEST(test_wrong_values)
{
    static const struct {
        const char *words, *why;
    } rows[] = {
        {"--ttl=", "--ttl: '': empty; a duration is needed"},
        {"--ttl=-1", "--ttl: '-1': a duration cannot be negative"},
        {"--ttl=1x", "--ttl: '1x': unknown unit"},
        {"--ttl=99ms", "--ttl: '99ms': a lease must last from 100ms to 30d"},
        {"--ttl=0", "a lease must last from 100ms to 30d"},
        {"--ttl=0.0999", "a lease must last from 100ms to 30d"},
        {"--ttl=30d1ms", "a lease must last from 100ms to 30d"},
        {"--ttl=31d", "a lease must last from 100ms to 30d"},
        {"--ttl=infinity", "--ttl: infinity needs --lock-file"},
        {"--ttl=99999999999d", "--ttl: '99999999999d': too large"},
        {"--wait=x", "--wait: 'x': not a number"},
        {"--timeout=x", "--wait: 'x': not a number"},
        {"--grace=x", "--grace: 'x'"},
        {"--retry-for=x", "--retry-for: 'x'"},
        {"--hold-at-least=x", "--hold-at-least: 'x'"},
        {"--connect-timeout=x", "--connect-timeout: 'x'"},
        {"--connect-timeout=0", "--connect-timeout: '0': must be at least 1ms"},
        {"--connect-timeout=0.5ms", "must be at least 1ms"},
        {"--ttl=10 --grace=10", "--grace: must be shorter than the lease (--ttl)"},
        {"--ttl=10 --grace=1h", "--grace: must be shorter than the lease (--ttl)"},
        {"--ttl=10 --hold-at-least=11",
         "--hold-at-least: must not be longer than the lease (--ttl)"},
        {"-E 256", "--conflict-exit-code: '256': must be a whole number from 0 to 255"},
        {"-E -1", "'-1': must be a whole number"},
        {"-E abc", "'abc': must be a whole number"},
        {"--conflict-exit-code=", "'': must be a whole number"},
        {"-E 1.5", "'1.5': must be a whole number"},
        {"-E 7x", "'7x': must be a whole number"},
        {"--slots=0", "--slots: '0': must be a whole number from 1 to 10000"},
        {"--slots=10001", "must be a whole number from 1 to 10000"},
        {"--slots=x", "must be a whole number from 1 to 10000"},
        {"--wait-replicas=101", "--wait-replicas: '101': must be a whole number from 0 to 100"},
        {"--wait-replicas=-1", "must be a whole number from 0 to 100"},
        {"--stop-signal=NOSUCH",
         "--stop-signal: 'NOSUCH': no such signal; use a form such as TERM, SIGTERM or 15"},
        {"--stop-signal=0", "no such signal"},
        {"--stop-signal=65", "no such signal"},
        {"--stop-signal=", "no such signal"},
        {"--backend=mysql", "--backend: 'mysql': must be auto|redis|file"},
        {"--backend=fil", "must be auto|redis|file"},
        {"--backend=", "must be auto|redis|file"},
        {"--backend=auto|redis", "must be auto|redis|file"},
        {"--on-expire=explode", "--on-expire: 'explode': must be stop|warn"},
        {"--on-degraded=", "--on-degraded: '': must be warn|warn-throttled|proceed|fail"},
        {"--fallback=redis", "--fallback: 'redis': must be off|file"},
        {"--hash=md5", "--hash: 'md5': must be none|sha256|hmac-sha256"},
        {"--hash=hmac-sha256", "--hash: hmac-sha256 needs a secret; use --secret-file=FILE"},
        {"--hash=sha256 --secret-file=/f", "--secret-file: only --hash=hmac-sha256 uses a secret"},
        {"--lock-dir=", "--lock-dir: '': the path is empty"},
        {"--lock-file=", "--lock-file: '': the path is empty"},
        {"--owner=", "--owner: 0 bytes long"},
        {"--owner=a%20b", "--owner: only printable ASCII"},
        {"--owner=dlock:shared", "--owner: this text is reserved for shared locks"},
        {"--scope=", "--scope: the scope is empty"},
        {"--prefix=%09", "--prefix: the prefix '\t' has a control character"},
        {"--lock-file=/f --backend=redis", "--lock-file: needs the file backend"},
        {"--lock-file=/f --slots=2", "--slots: a --lock-file has no record of the lock"},
        {"--lock-file=/f --message=x",
         "--message has no effect: a --lock-file has no record of the lock"},
        {"--lock-file=/f --remember=1h",
         "--remember has no effect: a --lock-file has no record of the lock"},
        {"--lock-file=/f --hold-at-least=1",
         "--hold-at-least: a --lock-file has no record of the lock"},
        {"--owner-file=/f", "--owner-file is only for --acquire, --extend and --release"},
        {"-c ls", "--command: STRING is the whole command; no arguments can follow"},
        {"-F", "--no-fork: dlock must keep running"},
        {"-u", "--unlock: dlock has no open file to unlock"},
        {"-r redis://a -r redis://b --slots=2",
         "--slots: a quorum cannot limit the number of holders"},
        {"-r redis://h --client-cert=/c",
         "--client-cert has no effect: the Redis URL does not use TLS"},
        {"-r rediss://h --client-key=/k",
         "--client-key has no effect: the key needs its certificate"},
        {"-r redis://h --backend=file", "--redis has no effect: the lock is a file (--backend)"},
        {"-r redis://h --lock-dir=/d", "--lock-dir has no effect: the lock is in Redis (--redis)"},
        {"--backend=file --on-degraded=fail",
         "--on-degraded has no effect: --backend already chooses"},
        {"-E 3", "--conflict-exit-code has no effect: dlock waits without a limit"},
        {"--retry-for=1", "--retry-for has no effect: no Redis is configured"},
        {"--quiet=loud", "--quiet: 'loud': must be yes or no"},
    };
    char words[256];
    FOR_ROWS(row, rows)
    {
        snprintf(words, sizeof words, "%s job true", row->words);
        read_options(&line, "", words);
        row_int(row->words, line.result, SETTINGS_BAD_USAGE);
        row_has(row->words, line.why.text, row->why);
        options_free(&line.options);
        if (row->words[1] != '-' || strstr(row->words, "--lock-file") != NULL ||
            strchr(row->words, ' ') != NULL || strstr(row->words, "quiet") != NULL)
            continue;
        snprintf(words, sizeof words, "job %s true", row->words); /* the same after NAME */
        read_options(&line, "", words);
        row_has(words, line.why.text, row->why);
        options_free(&line.options);
    }
}

TEST(test_wrong_words)
{
    static const struct {
        const char *words, *why;
    } rows[] = {
        {"", "no lock name given; usage: dlock [OPTIONS] NAME [--] COMMAND [ARG...], or dlock "
             "--lock-file=PATH [--] COMMAND [ARG...]; dlock -h shows more"},
        {"-n", "no lock name given; usage: dlock"},
        {"--", "no lock name given; usage: dlock"},
        {"-c ls", "no lock name given; usage: dlock [OPTIONS] NAME -c 'STRING', or dlock "
                  "--lock-file=PATH -c 'STRING'"},
        {"job", "no command given"},
        {"job --", "no command given"},
        {"job -n --", "no command given"},
        {"'' true", "the lock name is empty"},
        {"a%FF true", "the lock name 'a\xFF' is not valid UTF-8 at byte 2"},
        {"--ttl", "--ttl: needs a value"},
        {"job -t", "-t: needs a value"},
        {"job -c", "-c: needs a value"},
        {"--acquire", "no lock name given; usage: dlock --acquire [OPTIONS] NAME"},
        {"--status", "no lock name given; usage: dlock --status"},
        {"--acquire job true",
         "unexpected argument after the lock's name: --acquire runs no command"},
        {"--print-config job true", "--print-config runs no command"},
        {"--current job", "--current takes no lock name"},
        {"--list a%FF", "the pattern 'a\xFF' is not valid UTF-8"},
        {"--status --list", "--status and --list cannot be combined"},
        {"--acquire --release job", "--acquire and --release cannot be combined"},
        {"--attach=5x job", "--attach: '5x': must be the pid of a process"},
        {"--attach=0 job", "--attach: '0': must be the pid of a process"},
        {"--attach=parent job", "--attach: 'parent': must be the pid of a process"},
        {"--attach= job", "--attach: needs a value"},
        {"--list --all=no", "--all: takes no value"},
        {"--close=no job true", "--close: takes no value"},
        {"--status=yes job", "--status: takes no value"},
        {"--status -t 5 job", "--ttl has no effect with --status"},
        {"--release -w 5 job", "--wait has no effect with --release"},
        {"--acquire --tree job", "--tree has no effect with --acquire"},
        {"--wait-until-free --owner=x job", "--owner has no effect with --wait-until-free"},
        {"--extend --owner=x", "--owner: the lock's name is missing"},
        {"--release --owner-file=/f", "--owner-file: the lock's name is missing"},
        {"--release --owner-file=/f --owner=x job",
         "--owner-file: --owner already gives the token"},
        {"--acquire -E 0 job",
         "--conflict-exit-code: with --acquire, status 0 means that the lock was acquired"},
        {"--wait-until-free -E 0 job",
         "--conflict-exit-code: with --wait-until-free, status 0 means that the lock is free"},
        {"--lock-file=/f job -- true",
         "'job': --lock-file takes no NAME; use --name=job to name the lock in messages"},
        {"--lock-file=/f sh -- x", "; if sh is the command: dlock --lock-file=PATH -- sh"},
        {"job --lock-file=/f true", "'job': --lock-file takes no NAME"},
        {"--lock-file=/f --status job", "'job': --lock-file takes no NAME"},
        {"--status --lock-file=/f -- job", "'job': --lock-file takes no NAME"},
        {"--lock-file=/f", "no command given; usage: dlock [OPTIONS] --lock-file=PATH [--]"},
        {"--lock-file=/f --", "no command given; usage: dlock [OPTIONS] --lock-file=PATH [--]"},
        {"--lock-file=/f --name= true", "the lock name is empty"},
        {"--name=x job true",
         "--name has no effect: --lock-file is not given; give the lock's name as a word"},
        {"--name=x -- true", "--name has no effect: --lock-file is not given"},
        {"--name=x --status job", "--name has no effect: --lock-file is not given"},
        {"--lock-file=/f --name=x --current", "--name has no effect with --current"},
        {"--acquire --lock-file=/f", "--acquire needs a record of the lock, and dlock stores none"},
        {"--list --lock-file=/f", "--list needs a record of the lock, and dlock stores none"},
        {"--list --hash=sha256 a*",
         "--list: names are stored as hashes (--hash), so no pattern can match them"},
    };
    FOR_ROWS(row, rows)
    {
        read_options(&line, "", row->words);
        row_int(row->words, line.result, SETTINGS_BAD_USAGE);
        row_has(row->words, line.why.text, row->why);
        options_free(&line.options);
    }
}

TEST(test_logins)
{
    static const struct {
        const char *words, *left, *redis;
    } rows[] = {
        {"-r redis://bob:pw@h job true", "dlock -r redis://******@h job true", "redis://bob:pw@h"},
        {"--redis=redis://:pw@h job true", "dlock --redis=redis://***@h job true", "redis://:pw@h"},
        {"-rredis://:pw@h job true", "dlock -rredis://***@h job true", "redis://:pw@h"},
        {"job -r unix://:pw@/s true", "dlock job -r unix://***@/s true", "unix://:pw@/s"},
        {"-r redis://h job echo redis://:pw@h", "dlock -r redis://h job echo redis://:pw@h",
         "redis://h"},
    };
    FOR_ROWS(row, rows)
    {
        char left[256] = "";
        read_options(&line, "", row->words);
        for (int i = 0; i < line.count; i++)
            snprintf(left + strlen(left), sizeof left - strlen(left), "%s%s", i > 0 ? " " : "",
                     line.words[i]);
        row_text(row->words, left, row->left);
        row_text(row->words, line.options.redis, row->redis);
        options_free(&line.options);
    }
}

/* Each option with each action: refused if the table says that the action does not use it. */
TEST(test_table)
{
    for (enum option_id id = OPT_NONE + 1; id < OPTION_COUNT; id++) {
        const struct option_row *row = &option_rows[id];
        const char *given = row->argument == NULL                ? ""
                            : strcmp(row->argument, "N") == 0    ? "=1"
                            : strcmp(row->argument, "SIG") == 0  ? "=USR1"
                            : strchr(row->argument, '|') != NULL ? "="
                                                                 : "=5s";
        row_true(row->name, option_by_name(row->name, strlen(row->name)) == id);
        for (enum option_id other = OPT_NONE + 1; other < id; other++)
            row_true(row->name, row->letter == '\0' || row->letter != option_rows[other].letter);
        if (row->is_action || row->help == NULL)
            continue;
        for (enum option_id action = OPT_NONE; action <= OPT_PRINT_CONFIG; action++) {
            const struct option_row *of = &option_rows[action];
            bool needs_no_name = id == OPT_NAME || id == OPT_LOCK_FILE;
            char words[256];
            if (action != OPT_NONE && !of->is_action)
                continue;
            snprintf(
                words, sizeof words, "%s%s%s --%s%s%.*s%s%s%s", action != OPT_NONE ? "--" : "-n",
                of->name, of->argument != NULL ? "=5" : "", row->name, given,
                *given == '=' && given[1] == '\0' ? (int)strcspn(row->argument, "|") : 0,
                row->argument != NULL ? row->argument : "", id == OPT_NAME ? " --lock-file=/f" : "",
                of->takes_name == NAME_REFUSED || needs_no_name ? "" : " job",
                action == OPT_NONE && id != OPT_COMMAND ? " true" : "");
            read_options(&line, "", words);
            bool refused = strstr(line.why.text, "has no effect with --") != NULL ||
                           strstr(line.why.text, "is only for --") != NULL;
            row_int(words, refused, (row->actions & 1U << action) == 0);
            options_free(&line.options);
        }
    }
}

/* Each option in each circumstance: refused if the table says that it has no effect there. */
TEST(test_circumstances)
{
    static const struct {
        const char *words;
        unsigned when;
    } rows[] = {
        {"-n --backend=file", ON_LOCK_DIR | ON_CONFLICT | ON_STOP | ON_END},
        {"-w 5", ON_LOCK_DIR | ON_AUTO | ON_CONFLICT | ON_STOP | ON_END},
        {"-n --lock-file=/f", ON_LOCK_FILE | ON_CONFLICT | ON_STOP | ON_END},
        {"-n --lock-file=/f -t infinity", ON_LOCK_FILE | ON_CONFLICT | ON_STOP},
        {"-n -r redis://h", ON_REDIS | ON_NO_PASSWORD | ON_AUTO | ON_CONFLICT | ON_STOP | ON_END},
        {"-r redis://:pw@h", ON_REDIS | ON_AUTO | ON_STOP | ON_END},
        {"-r redis://h --on-expire=warn", ON_REDIS | ON_NO_PASSWORD | ON_AUTO | ON_END},
        {"-r redis://h --on-expire=warn --heartbeat",
         ON_REDIS | ON_NO_PASSWORD | ON_AUTO | ON_END | ON_HEARTBEAT},
        {"-r redis://h --fallback=file",
         ON_REDIS | ON_NO_PASSWORD | ON_AUTO | ON_DIR | ON_STOP | ON_END},
        {"-n --backend=redis -r rediss://h",
         ON_REDIS | ON_TLS | ON_NO_PASSWORD | ON_CONFLICT | ON_STOP | ON_END},
        {"--backend=redis -r rediss://h --client-cert=/c",
         ON_REDIS | ON_TLS | ON_CERT | ON_NO_PASSWORD | ON_STOP | ON_END},
        {"-r redis://a -r redis://b -r rediss://:pw@c",
         ON_QUORUM | ON_TLS | ON_NO_PASSWORD | ON_AUTO | ON_STOP | ON_END},
        {"-r redis+sentinel://a,b/m",
         ON_REDIS | ON_SENTINEL | ON_NO_PASSWORD | ON_AUTO | ON_STOP | ON_END},
    };
    FOR_ROWS(at, rows)
    {
        for (enum option_id id = OPT_NONE + 1; id < OPTION_COUNT; id++) {
            const struct option_row *row = &option_rows[id];
            const char *given = row->argument == NULL                    ? ""
                                : strcmp(row->argument, "N") == 0        ? "=1"
                                : strcmp(row->argument, "SIG") == 0      ? "=USR1"
                                : strcmp(row->argument, "DURATION") == 0 ? "=5s"
                                : id == OPT_BACKEND                      ? NULL
                                : id == OPT_REDIS                        ? "=redis://:pw@h"
                                : id == OPT_HASH                         ? "=sha256"
                                : strchr(row->argument, '|') != NULL ? strrchr(row->argument, '|')
                                                                     : "=/x";
            char words[256], option[64];
            if (row->is_action || row->help == NULL || given == NULL || id == OPT_CONFIG ||
                (row->actions & 1U << ACTION_RUN) == 0 || id == OPT_LOCK_FILE || id == OPT_FALLBACK)
                continue;
            snprintf(option, sizeof option, "--%s%s", row->name, given);
            if (*given == '|')
                option[2 + strlen(row->name)] = '=';
            if (strstr(at->words, option) != NULL || (id == OPT_REDIS && strstr(at->words, "-r")) ||
                (id == OPT_TTL && strstr(at->words, "-t")))
                continue;
            snprintf(words, sizeof words, "%s %s job%s", at->words, option,
                     id != OPT_COMMAND ? " true" : "");
            read_options(&line, "", words);
            unsigned own = id == OPT_WAIT || id == OPT_NONBLOCK || id == OPT_ONCE_PER ? ON_CONFLICT
                           : id == OPT_REDIS && (at->when & ON_AUTO) != 0             ? ON_REDIS
                                                                                      : 0;
            bool wanted = (row->when & (at->when | own)) == 0;
            snprintf(option, sizeof option, "--%s%s", row->name,
                     (row->when & MUST) != 0 ? ": a " : " has no effect: ");
            row_int(words, strncmp(line.why.text, option, strlen(option)) == 0, wanted);
            row_int(words, line.result, wanted ? SETTINGS_BAD_USAGE : line.result);
            options_free(&line.options);
        }
    }
}

/* In a file or a variable, what has no effect is only noted, unless the command would run without
 * what it asks for. */
static char noted[640];

static void note(enum option_id id, const char *why, bool grave, void *data)
{
    (void)data;
    (void)id;
    snprintf(noted, sizeof noted, "%s%s", grave ? "grave: " : "", why);
}

TEST(test_unused_variables)
{
    static const struct {
        const char *variables, *words, *noted;
    } rows[] = {
        {"", "job true", ""},
        {"CACERT=/c REDIS=redis://h", "job true",
         "DLOCK_CACERT has no effect: the Redis URL does not use TLS; use rediss://"},
        {"CACERT=/c REDIS=redis://:pw@h", "job true",
         "grave: DLOCK_CACERT has no effect: the Redis URL does not use TLS; use rediss://; the "
         "password is sent over the network in plain text"},
        {"CACERT=/c REDIS=unix://:pw@/s", "job true", "DLOCK_CACERT has no effect: "},
        {"CACERT=/c REDIS=rediss://:pw@h", "job true", ""},
        {"REDIS=redis://h BACKEND=file", "job true",
         "DLOCK_REDIS has no effect: the lock is a file (DLOCK_BACKEND)"},
        {"WAIT_REPLICAS=1", "job true",
         "DLOCK_WAIT_REPLICAS has no effect: no Redis is configured, so the lock is a file"},
        {"WAIT_REPLICAS=0", "job true", ""},
        {"WAIT_REPLICAS=1", "--status job", ""}, /* meant for others */
        {"LOCK_DIR=/d REDIS=redis://h", "job true",
         "DLOCK_LOCK_DIR has no effect: the lock is in Redis (DLOCK_REDIS)"},
        {"LOCK_DIR=/d REDIS=redis://h", "--attach job", ""}, /* records attached locks there */
        {"CACERT=/c REDIS=redis://h", "--print-config job", ""},
        {"SLOTS=2", "-x --lock-file=/f true", ""},          /* -x overrides it */
        {"HELD=x CACERT=/c", "--retry-for=1 job true", ""}, /* an outer lock may be in Redis */
        {"CACERT=/c", "--extend --retry-for=1", ""},        /* so may an attached one */
    };
    FOR_ROWS(row, rows)
    {
        read_options(&line, row->variables, row->words);
        row_text(row->variables, line.why.text, "");
        *noted = '\0';
        options_unused(&line.options, note, NULL);
        if (*row->noted == '\0')
            row_text(row->variables, noted, "");
        row_has(row->variables, noted, row->noted);
        options_free(&line.options);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("names and letters are unique; an action refuses what the table says it does not use",
              test_table),
        ENTRY("an option on the command line that has no effect on the lock is refused",
              test_circumstances),
        ENTRY("an option in a variable that has no effect is noted; a password in plain text, "
              "gravely",
              test_unused_variables),
        ENTRY("which words are options, the name, the command, and which action they ask for",
              test_words),
        ENTRY("the values of options, and which of two counts", test_values),
        ENTRY("the environment sets what the command line does not", test_environment),
        ENTRY("a wrong variable is named", test_wrong_environment),
        ENTRY("a file sets what neither does, by sections", test_files),
        ENTRY("a wrong line of a file is named", test_wrong_files),
        ENTRY("a wrong value: the option, the text, what is right; before NAME and behind it",
              test_wrong_values),
        ENTRY("words and options that are not for this action, or not together", test_wrong_words),
        ENTRY("logins are blotted where ps(1) would show them, the command's words stay",
              test_logins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
