/* The hints for users who mistype, or who know flock(1). */
#include "read_options.h"

#include "config/config_int.h"

static struct command_line line;

static void told(const char *words, const char *why)
{
    read_options(&line, "", words);
    row_int(words, line.result, SETTINGS_BAD_USAGE);
    row_has(words, line.why.text, why);
    row_true(words, strchr(line.why.text, '\n') == NULL);
    options_free(&line.options);
}

TEST(test_near)
{
    static const struct {
        const char *word, *options, *keys; /* NULL: none */
    } rows[] = {
        {"ttl", "--ttl", "ttl"},
        {"TTL", "--ttl", "ttl"},
        {"helpp", "--help", NULL},
        {"hlep", "--help", NULL},
        {"hepl", "--help", NULL},
        {"stat", "--status", NULL},
        {"no-block", "--nonblock", "nonblock"},
        {"lock_file", "--lock-file", "lock-file"},
        {"time", "--timeout", "timeout"},
        {"conect-timeout", "--connect-timeout", "connect-timeout"},
        {"realese", "--release", NULL},
        {"redsi", "--redis", "redis"},
        {"rel", "--release", NULL},
        {"lock", "--lock-dir or --lock-file", "lock-dir or lock-file"},
        {"own", "--owner or --owner-file", "owner or owner-file"},
        {"owner", "--owner or --owner-file", "owner or owner-file"},
        {"nonb", "--nonblock", "nonblock"}, /* not its aliases too */
        {"graec", "--grace", "grace"},
        {"gracex", "--grace", "grace"},
        {"waet", "--wait", "wait"},
        {"wxyt", NULL, NULL}, /* one letter in four */
        {"xyzzy", NULL, NULL},
        {"h", NULL, NULL},
        {"s", NULL, NULL},
        {"", NULL, NULL},
        {"o", NULL, NULL},
        {"attach-pid", "--attach", NULL},
        {"nosuchoption", NULL, NULL},
        {"0123456789012345678901234567890123456789", NULL, NULL},
    };
    FOR_ROWS(row, rows)
    {
        char text[NEAR_TEXT_SIZE] = "";
        row_int(row->word, hints_near(text, row->word, strlen(row->word), NEAR_ALL),
                row->options != NULL);
        row_text(row->word, text, row->options != NULL ? row->options : "");
        text[0] = '\0';
        row_int(row->word, hints_near(text, row->word, strlen(row->word), NEAR_KEYS),
                row->keys != NULL);
        row_text(row->word, text, row->keys != NULL ? row->keys : "");
    }
    char text[NEAR_TEXT_SIZE];
    row_true("only so many bytes of it", hints_near(text, "ttl=5", 3, NEAR_ALL));
}

TEST(test_unknown)
{
    static const struct {
        const char *words, *why;
    } rows[] = {
        {"--helpp job true", "--helpp: unknown option; did you mean --help?"},
        {"job --helpp true", "--helpp: unknown option; did you mean --help?"},
        {"--TTL job true", "--TTL: unknown option; did you mean --ttl?"},
        {"--ow job true", "--ow: unknown option; did you mean --owner or --owner-file?"},
        {"--lock=x job true", "--lock: unknown option; did you mean --lock-dir or --lock-file?"},
        {"--wait-free job", "--wait-free: unknown option; did you mean --wait-until-free?"},
        {"--outage=1s job true", "--outage: unknown option; did you mean --retry-for?"},
        {"--cert=f --key=f job true", "--cert: unknown option; did you mean --client-cert?"},
        {"--key=f job true", "--key: unknown option; did you mean --client-key?"},
        {"--signal=INT job true", "--signal: unknown option; did you mean --stop-signal?"},
        {"--kill-after=5 job true", "--kill-after: unknown option; did you mean --grace?"},
        {"--endpoints=h job true", "--endpoints: unknown option; did you mean --redis?"},
        {"--monitor-retry=3 job true", "--monitor-retry: unknown option; did you mean --retry-for"},
        {"--unlock job",
         "--unlock: dlock has no open file to unlock; the lock is released when the "
         "command ends, or by --release"},
        {"--xyzzy job true", "--xyzzy: unknown option; dlock --help lists all options"},
        {"--h job true", "--h: unknown option; dlock --help lists all options"},
        {"-Z job true", "-Z: unknown option; dlock --help lists all options"},
        {"-? job true", "-?: unknown option; dlock --help lists all options"},
        {"--quiet=loud job true", "--quiet: 'loud': must be yes or no"},
        {"-w", "-w: needs a value"},
        {"--redsi=redis://bob:s3cret@h job true", "--redsi: unknown option; did you mean --redis?"},
        {"-redis=redis://bob:s3cret@h job true", "-redis: a long option needs two dashes: --redis"},
    };
    FOR_ROWS(row, rows)
    {
        told(row->words, row->why);
        row_true(row->words, strstr(line.why.text, "s3cret") == NULL);
    }
    char letters[512], words[600], why[600];
    snprintf(words, sizeof words, "--%s job true", unit_repeat(letters, sizeof letters, 'x', 400));
    snprintf(why, sizeof why, "--%s: unknown option; dlock --help",
             unit_repeat(letters, sizeof letters, 'x', 98));
    told(words, why); /* the message shows its beginning */
}

TEST(test_one_dash)
{
    static const char *const rows[] = {"shared",  "tree", "ttl",    "timeout", "close",
                                       "command", "wait", "status", "version", "json"};
    char words[64], why[64];
    FOR_ROWS(row, rows)
    {
        snprintf(why, sizeof why, "-%s: a long option needs two dashes: --%s", *row, *row);
        snprintf(words, sizeof words, "-%s job touch ran", *row);
        told(words, why);
        snprintf(words, sizeof words, "job -n -%s touch ran", *row);
        told(words, why);
    }
    static const struct {
        const char *words, *name;
    } good[] = {
        {"--prefix -shared -w 5 job echo -tree", "job"}, /* a value, and the command's own option */
        {"-nx job true", "job"},
        {"-help", NULL},
        {"job echo -n --helpp -shared", "job"},
        {"-w 5 -c echo%20-tree job", "job"},
    };
    FOR_ROWS(row, good)
    {
        read_options(&line, "", row->words);
        row_int(row->words, line.result, SETTINGS_OK);
        row_text(row->words, line.options.name, row->name);
        options_free(&line.options);
    }
}

TEST(test_flock)
{
    static const struct {
        const char *words, *why;
    } rows[] = {
        {"--fcntl job true", "--fcntl: unknown option; dlock uses flock(2)"},
        {"-F job true", "--no-fork: dlock must keep running"},
        {"-u 9", "--unlock: dlock has no open file to unlock"},
    };
    FOR_ROWS(row, rows)
    told(row->words, row->why);
}

/* "sh" is a program. */
TEST(test_missing_name)
{
    static const struct {
        const char *words, *why;
        bool hint; /* ...; if sh is the command, the lock's name is missing */
    } rows[] = {
        {"sh",
         "no command given; if sh is the command, the lock's name is missing: dlock NAME -- sh",
         true},
        {"/bin/sh", "no command given; if /bin/sh is the command, the lock's name is missing",
         false},
        {"sh -a x y", "-a: unknown option; dlock --help lists all options", true},
        {"sh -t dir x", "--ttl: 'dir': not a number", true},
        {"sh -p dir", "-p: unknown option; dlock --help lists all options", true},
        {"sh -cf x.tar y", "--command: STRING is the whole command; no arguments can follow", true},
        {"sh -u nobody ls", "--unlock: dlock has no open file", true},
        {"sh -E ls", "--conflict-exit-code: 'ls': must be a whole number", true},
        {"sh --list x", "--list runs no command", true},
        {"sh --status --list x", "--status and --list cannot be combined", true},
        {"sh --owner-file=x y", "--owner-file is only for --acquire", true},
        {"sh -name x", "-name: a long option needs two dashes: --name", true},
        {"sh -al", "-al: unknown option", true},
        {"-t dir sh x", "--ttl: 'dir': not a number", false}, /* it is before the name */
        {"--status sh --list", "--status and --list cannot be combined", false},
        {"nosuch -t dir sh x", "--ttl: 'dir': not a number", false}, /* no program */
        {"nosuch -a x", "-a: unknown option", false},
    };
    FOR_ROWS(row, rows)
    {
        told(row->words, row->why);
        row_int(row->words,
                strstr(line.why.text,
                       "if sh is the command, the lock's name is missing: dlock NAME -- sh, or "
                       "dlock --lock-file=PATH sh") != NULL,
                row->hint);
    }
}

TEST(test_missing_command)
{
    static const struct {
        const char *words, *why;
    } rows[] = {
        {"job", "no command given; usage: dlock [OPTIONS] NAME [--] COMMAND [ARG...], or dlock "
                "--status NAME; dlock -h shows more"},
        {"help", "no command given; did you mean dlock --help?"},
        {"version", "did you mean dlock --version?"},
        {"list", "did you mean dlock --list?"},
        {"status",
         "did you mean dlock --status? (for a lock of that name: dlock status -- COMMAND)"},
        {"touch%20ran",
         "no command given; 'touch ran' was taken as the lock's name; use dlock NAME -- "
         "COMMAND, or dlock NAME -c"},
        {"9", "dlock cannot lock file descriptors; in a script, use dlock --attach NAME || exit"},
        {"-n 200", "dlock cannot lock file descriptors"},
        {"/var/lock/foo", "--lock-file=/var/lock/foo locks that file as flock(1) does"},
        {"ttl", "no command given; usage:"}, /* not an action */
        {"unlock", "did you mean dlock --release? (for a lock of that name: dlock unlock -- "},
        {"wait-free", "did you mean dlock --wait-until-free?"},
        {"signal", "no command given; usage:"}, /* means an option, but not an action */
    };
    FOR_ROWS(row, rows)
    told(row->words, row->why);
}

/* The hints if the command could not be run. */
TEST(test_not_a_command)
{
    static const struct {
        const char *words, *hint;
    } rows[] = {
        {"status job", "; did you mean dlock --status job?"},
        {"unlock job", "; did you mean dlock --release job?"},
        {"job touch%20ran",
         "; the command is one word with spaces; use -c 'STRING' to run it in a shell"},
        {"sh /tmp", "; if sh is the command, the lock's name is missing: dlock NAME -- sh, or "
                    "dlock --lock-file=PATH sh"},
        {"job nosuchcommand", ""},
        {"--lock-file=/bin/sh nosuchcommand", ""},
        {"--lock-file=/f job true", "; --lock-file takes no NAME; use --name=job to name the "
                                    "lock in messages"},
        {"status job x", ""},
        {"job -c nosuchcommand", ""},
    };
    FOR_ROWS(row, rows)
    {
        struct errmsg why = {"cannot run"};
        char wanted[256];
        read_options(&line, "", row->words);
        row_int(row->words, line.result, SETTINGS_OK);
        hints_not_a_command(&line.options, &why);
        snprintf(wanted, sizeof wanted, "cannot run%s", row->hint);
        row_text(row->words, why.text, wanted);
        options_free(&line.options);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("what is near a word: mistyped, abbreviated, and not too many", test_near),
        ENTRY("an unknown option: what is near it, and never its value", test_unknown),
        ENTRY("a long option with one dash is no row of letters", test_one_dash),
        ENTRY("options of flock that have no place here: why", test_flock),
        ENTRY("a forgotten name is told of, if what stands there is a program", test_missing_name),
        ENTRY("a name alone: what may be meant", test_missing_command),
        ENTRY("a command that cannot be run: what may be meant", test_not_a_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
