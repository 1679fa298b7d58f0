/* What the errors of Redis servers mean, in the words of each version. */
#include "unit.h"

#include "redis/reply.h"

#define SCRIPT_5 "ERR Error running script (call to f_01): @user_script:3: @user_script: 3: "
#define SCRIPT_7 " script: 01, on @user_script:3."

static const struct {
    enum lock_result result;
    const char *error;
} errors[] = {
    /* A server in trouble; a later try, or another server, may succeed. */
    {LOCK_UNAVAILABLE, "LOADING Redis is loading the dataset in memory"},
    {LOCK_UNAVAILABLE, "LOADING Valkey is loading the dataset in memory"},
    {LOCK_UNAVAILABLE, "READONLY You can't write against a read only replica."},
    {LOCK_UNAVAILABLE, "READONLY You can't write against a read only replica." SCRIPT_7},
    {LOCK_UNAVAILABLE, SCRIPT_5 "-READONLY You can't write against a read only slave."},
    {LOCK_UNAVAILABLE, "ERR Error running script: @user_script:3: -READONLY You cannot"},
    {LOCK_UNAVAILABLE,
     "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."},
    {LOCK_UNAVAILABLE, "CLUSTERDOWN The cluster is down"},
    {LOCK_UNAVAILABLE, "CLUSTERDOWN Hash slot not served"},
    {LOCK_UNAVAILABLE, "TRYAGAIN Multiple keys request during rehashing of slot"},
    {LOCK_UNAVAILABLE,
     "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."},
    {LOCK_UNAVAILABLE,
     "BUSY Valkey is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."},
    {LOCK_UNAVAILABLE, "OOM command not allowed when used memory > 'maxmemory'."},
    {LOCK_UNAVAILABLE, "OOM command not allowed when used memory > 'maxmemory'." SCRIPT_7},
    {LOCK_UNAVAILABLE, SCRIPT_5 "-OOM command not allowed when used memory > 'maxmemory'."},
    {LOCK_UNAVAILABLE, "@user_script: 3: -OOM command not allowed when used memory > 'maxmemory'."},
    {LOCK_UNAVAILABLE, "MISCONF Redis is configured to save RDB snapshots, but it's currently "
                       "unable to persist to disk."},
    {LOCK_UNAVAILABLE, "NOREPLICAS Not enough good replicas to write."},
    {LOCK_UNAVAILABLE, "ERR Error running script (call to f_01): @user_script:12: NOREPLICAS Not "
                       "enough good replicas to write."},
    {LOCK_UNAVAILABLE, "NOSCRIPT No matching script. Please use EVAL."},
    {LOCK_UNAVAILABLE,
     "UNKILLABLE Sorry the script already executed write commands against the dataset."},
    {LOCK_UNAVAILABLE, "ERR max number of clients reached"},
    {LOCK_UNAVAILABLE, "ERR max number of clients + cluster connections reached"},
    {LOCK_UNAVAILABLE, "FAILOVER something"},
    {LOCK_UNAVAILABLE, "upstream failure: no password is set"},

    /* Names of keys and hosts that are codes elsewhere. */
    {LOCK_UNAVAILABLE,
     "WRONGTYPE Operation against the key NOPERM of NOAUTH holding the wrong kind of value"},
    {LOCK_UNAVAILABLE, "ERR the key DENIED has MOVED 1 unknown command"},
    {LOCK_UNAVAILABLE, "LOADING Redis is loading the dataset of NOAUTH in memory"},
    {LOCK_UNAVAILABLE, "MASTERDOWN Link with ASK 1 is down"},
    {LOCK_UNAVAILABLE, "CLUSTERDOWN MOVED 1 h:1"},
    {LOCK_UNAVAILABLE, "NOPERMISSION at all"},
    {LOCK_UNAVAILABLE, "noperm in small letters"},

    /* Nonsense. */
    {LOCK_UNAVAILABLE, ""},
    {LOCK_UNAVAILABLE, "ERR"},
    {LOCK_UNAVAILABLE, "X"},
    {LOCK_UNAVAILABLE, "ERR Error running script (call to f_01): @user_script:"},
    {LOCK_UNAVAILABLE, "ERR Error running script (call to f_01): @user_script:3"},
    {LOCK_UNAVAILABLE, "@user_script: 3: Unknown"},
    {LOCK_UNAVAILABLE, "@user_script:x: NOPERM"},

    /* The login. */
    {LOCK_REFUSED, "NOAUTH Authentication required."},
    {LOCK_REFUSED, "NOAUTH HELLO must be called with the client already authenticated"},
    {LOCK_REFUSED, "WRONGPASS invalid username-password pair or user is disabled."},
    {LOCK_REFUSED, "ERR invalid password"},
    {LOCK_REFUSED, "ERR Client sent AUTH, but no password is set"},
    {LOCK_REFUSED, "ERR AUTH <password> called without any password configured for the default "
                   "user. Are you sure?"},
    {LOCK_REFUSED, "ERR wrong number of arguments for 'auth' command"},
    {LOCK_REFUSED, "ERR Protocol error: unauthenticated multibulk length"},
    {LOCK_REFUSED, "ERR Protocol error: unauthenticated bulk length"},
    {LOCK_REFUSED, "DENIED Redis is running in protected mode because protected mode is enabled"},

    /* Permissions: Redis 6, 7.0, 7.2 and 8, Valkey 8; of a call, and in a script. */
    {LOCK_REFUSED,
     "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand"},
    {LOCK_REFUSED,
     "NOPERM this user has no permissions to access one of the keys used as arguments"},
    {LOCK_REFUSED,
     SCRIPT_5 "-NOPERM The user executing the script can't run this command or subcommand"},
    {LOCK_REFUSED, SCRIPT_5 "The user executing the script can't run this command or subcommand"},
    {LOCK_REFUSED, "ERR Error running script (call to f_01): @user_script:3: NOPERM this user has "
                   "no permissions to access one"},
    {LOCK_REFUSED, "NOPERM this user has no permissions to run the 'evalsha' command"},
    {LOCK_REFUSED,
     "ERR The user executing the script can't run this command or subcommand" SCRIPT_7},
    {LOCK_REFUSED, "ERR The user executing the script can't access at least one of the keys "
                   "mentioned in the command" SCRIPT_7},
    {LOCK_REFUSED,
     "@user_script: 3: The user executing the script can't run this command or subcommand (HMGET)"},
    {LOCK_REFUSED, "NOPERM User locker has no permissions to run the 'evalsha' command"},
    {LOCK_REFUSED, "NOPERM No permissions to access a key"},
    {LOCK_REFUSED, "NOPERM No permissions to access a channel"},
    {LOCK_REFUSED, "ERR ACL failure in script: User locker has no permissions to run the 'hset' "
                   "command" SCRIPT_7},
    {LOCK_REFUSED, "NOPERM ACL failure in script: User locker has no permissions to run the 'hset' "
                   "command" SCRIPT_7},
    {LOCK_REFUSED, "ERR ACL failure in script: No permissions to access a key (GET)"},
    {LOCK_REFUSED,
     "ERR ERR ACL failure in script: No permissions to access a key (ZRANGE)" SCRIPT_7},

    /* No retry mends these. */
    {LOCK_INVALID, "ERR unknown command `EVALSHA`, with args beginning with: `01`, `3`, `NOPERM`,"},
    {LOCK_INVALID, "ERR unknown command 'EVALSHA', with args beginning with: '01' '3'"},
    {LOCK_INVALID, "ERR unknown command 'HSET'"},
    {LOCK_INVALID, SCRIPT_5 "Unknown Redis command called from Lua script"},
    {LOCK_INVALID, "ERR Unknown Redis command called from script" SCRIPT_7},
    {LOCK_INVALID, "@user_script: 3: Unknown Redis command called from Lua script (HMGET)"},
    {LOCK_INVALID, "ERR Unknown command called from script" SCRIPT_7},
    {LOCK_INVALID, "ERR Unknown command called from script (HMGET)"},
    {LOCK_INVALID, "ERR ERR Unknown command called from script (ZRANGE)" SCRIPT_7},
    {LOCK_INVALID, "unsupported command 'evalsha'"},
    {LOCK_INVALID, "ERR DB index is out of range"},
    {LOCK_INVALID, "ERR invalid DB index"},
    {LOCK_INVALID, "ERR SELECT is not allowed in cluster mode"},
    {LOCK_INVALID, "MOVED 3999 127.0.0.1:6381"},
    {LOCK_INVALID, "ASK 3999 127.0.0.1:6381"},
    {LOCK_INVALID, "CROSSSLOT Keys in request don't hash to the same slot"},
};

TEST(test_results)
{
    FOR_ROWS(row, errors)
    {
        struct errmsg why = {""};
        row_int(row->error, redis_error_result(row->error, &why), row->result);
        row_true(row->error, why.text[0] != '\0');
    }
}

TEST(test_texts)
{
    static const struct {
        const char *error, *why;
    } rows[] = {
        {"LOADING Redis is loading", "the server answered: LOADING Redis is loading"},
        {"ERR ERR x", "the server answered: ERR x"},
        {"", "the server answered: an error without a text"},
        {"ERR Protocol error: unauthenticated bulk length",
         "the server requires a user and a password: NOAUTH Authentication required"},
        {"ERR unknown command 'EVALSHA'",
         "the server answered: ERR unknown command 'EVALSHA'; the server runs no scripts; for a "
         "Sentinel, use redis+sentinel://"},
        {"ERR unknown command 'HSET'", "the server answered: ERR unknown command 'HSET'"},
        {"MOVED 1 h:1", "the server answered: MOVED 1 h:1; the server is a node of a Cluster; use "
                        "redis+cluster://"},
        {"TRYAGAIN Multiple keys request during rehashing of slot",
         "; the slot of the key is being moved"},
    };
    FOR_ROWS(row, rows)
    {
        struct errmsg why = {""};
        (void)redis_error_result(row->error, &why);
        row_has(row->error, why.text, row->why);
    }
}

TEST(test_place)
{
    static const struct {
        const char *error, *text;
    } rows[] = {
        {"LOADING x", "LOADING x"},
        {SCRIPT_5 "-OOM x", "OOM x"},
        {"OOM x" SCRIPT_7, "OOM x"},
        {"ERR ERR x (GET)" SCRIPT_7, "ERR x (GET)"},
        {"@user_script: 12: x", "x"},
        {"ERR Error running script (call to f_01): x",
         "ERR Error running script (call to f_01): x"},
        {"ERR a script: of one's own, on @user_script:3.",
         "ERR a script: of one's own, on @user_script:3."},
        {"ERR a script: 01, off" SCRIPT_7, "ERR a script: 01, off"},
    };
    char text[128];
    FOR_ROWS(row, rows)
    {
        redis_error_text(row->error, text, sizeof text);
        row_text(row->error, text, row->text);
    }
    redis_error_text("LOADING x", text, 5);
    row_text("no room", text, "LOAD");
}

TEST(test_codes)
{
    static const struct {
        const char *error, *code;
        bool is, has;
    } rows[] = {
        {"READONLY x", "READONLY", true, true},
        {"READONLY", "READONLY", true, true},
        {SCRIPT_5 "-READONLY x", "READONLY", true, true},
        {"READONLYX x", "READONLY", false, true},
        {"READ x", "READONLY", false, true},
        {"the READONLY", "READONLY", false, false},
        {"ERR READONLY", "READONLY", false, false},
        {"ERR x", "ERR", true, false},
        {"X y", "X", false, false},
        {"", "READONLY", false, false},
        {"Readonly x", "READONLY", false, false},
    };
    FOR_ROWS(row, rows)
    {
        row_int(row->error, redis_error_is(row->error, row->code), row->is);
        row_int(row->error, redis_error_has_code(row->error), row->has);
    }
}

TEST(test_command)
{
    static const char script[] =
        "local a = 1\nredis.call('GET', a)\nreturn redis.pcall('HSET',\n 'x')\n";
    static const struct {
        const char *error, *command; /* NULL: not known */
    } rows[] = {
        {"ERR x script: 01, on @user_script:2.", "GET"},
        {"ERR x script: 01, on @user_script:3.", "HSET"},
        {"ERR (call to f_01): @user_script:2: @user_script: 3: x", "HSET"},
        {"ERR x script: 01, on @user_script:1.", NULL},
        {"ERR x script: 01, on @user_script:4.", NULL},
        {"ERR x script: 01, on @user_script:99.", NULL},
        {"ERR x", NULL},
    };
    char command[16];
    FOR_ROWS(row, rows)
    {
        bool known = redis_error_command(row->error, script, command, sizeof command);
        row_int(row->error, known, row->command != NULL);
        if (known)
            row_text(row->error, command, row->command);
    }
}

TEST(test_logins)
{
    static const struct {
        const char *user, *error, *why;
    } rows[] = {
        {"bob", "ERR wrong number of arguments for 'auth' command",
         "the server does not support users (Redis before 6.0): ERR wrong number of arguments for "
         "'auth' "
         "command; remove the user bob from the URL"},
        {"", "ERR Client sent AUTH, but no password is set",
         "the server requires no password, but the URL has one"},
        {"", "ERR AUTH <password> called without any password configured",
         "the server requires no password"},
        {"", "ERR invalid password",
         "the server refuses the user default with the password from the URL"},
        {"bob", "WRONGPASS invalid",
         "the server refuses the user bob with the password from the URL: WRONGPASS invalid"},
        {"", "NOAUTH Authentication required.",
         "the server requires a password, but none is configured"},
        {"", "ERR Protocol error: unauthenticated bulk length",
         "the server requires a password, but none is configured"},
        {"bob", "NOPERM No permissions to access a key",
         "the server refuses the user bob (missing: the keys dlock:job and {dlock:job}:*): NOPERM "
         "No"},
        {"bob", "ERR The user executing the script can't run this command" SCRIPT_7,
         "the server refuses the user bob (missing: the command DEL): ERR The user executing the "
         "script can't run this "
         "command; dlock-redis(7)"},
        {"bob", "NOPERM User bob has no permissions to run the 'get' command",
         "the server refuses the user bob: NOPERM User bob has no permissions to run "
         "the "
         "'get' command; dlock-redis(7)"},
    };
    static const char script[] = "\n\nredis.call('DEL', KEYS[1])\n";
    static struct redis_url url;
    FOR_ROWS(row, rows)
    {
        struct errmsg why = {""};
        snprintf(url.user, sizeof url.user, "%s", row->user);
        url.password_from = "the URL";
        redis_error_explain(&url, script, "dlock:job and {dlock:job}:*", row->error, &why);
        row_has(row->error, why.text, row->why);
    }
}

TEST(test_repeated)
{
    static const struct {
        const char *error, *shown;
    } rows[] = {
        {"ERR unknown command 'AUTH', with args beginning with: 'hunter2'",
         "ERR unknown command 'AUTH'"},
        {"ERR no hunter2 here, and hunter2", "ERR no ******* here, and *******"},
        {"WRONGPASS invalid", "WRONGPASS invalid"},
    };
    static struct redis_url url = {.has_password = true, .password = "hunter2"};
    char text[128];
    FOR_ROWS(row, rows)
    {
        snprintf(text, sizeof text, "%s", row->error);
        redis_error_hide_login(&url, text);
        row_text(row->error, text, row->shown);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("outages, refusals and what is unusable, in the words of Redis 5 to 8 and Valkey 8",
              test_results),
        ENTRY("the sentence about an error", test_texts),
        ENTRY("people read an error without the place in the script", test_place),
        ENTRY("a code is the word in capitals at the beginning, and nothing else", test_codes),
        ENTRY("the command of a script that an error is about", test_command),
        ENTRY("a refusal: who was refused what, and what helps", test_logins),
        ENTRY("a password that a server repeats is not shown", test_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
