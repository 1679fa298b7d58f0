/* URLs of Redis, and the logins in them. */
#include "unit.h"

#include "redis/url.h"

static struct redis_url url;
static struct errmsg why;

TEST(test_plain)
{
    static const struct {
        const char *text, *shown;
        bool tls;
        const char *host, *port, *path, *user, *password;
        int database;
    } rows[] = {
        {"redis://h", "redis://h:6379/0", false, "h", "6379", "", "", "", 0},
        {"valkey://h", "redis://h:6379/0", false, "h", "6379", "", "", "", 0},
        {"valkeys://h", "rediss://h:6379/0", true, "h", "6379", "", "", "", 0},
        {"redis://h/", "redis://h:6379/0", false, "h", "6379", "", "", "", 0},
        {"redis://h:7/2", "redis://h:7/2", false, "h", "7", "", "", "", 2},
        {"redis://h:65535/1000000", "redis://h:65535/1000000", false, "h", "65535", "", "", "",
         1000000},
        {"rediss://h", "rediss://h:6379/0", true, "h", "6379", "", "", "", 0},
        {"redis://127.0.0.1:1", "redis://127.0.0.1:1/0", false, "127.0.0.1", "1", "", "", "", 0},
        {"redis://[::1]", "redis://[::1]:6379/0", false, "::1", "6379", "", "", "", 0},
        {"redis://[::1]:7/3", "redis://[::1]:7/3", false, "::1", "7", "", "", "", 3},
        {"rediss://[fe80::1%eth0]", "rediss://[fe80::1%eth0]:6379/0", true, "fe80::1%eth0", "6379",
         "", "", "", 0},
        {"redis://bob@h", "redis://h:6379/0", false, "h", "6379", "", "bob", "", 0},
        {"redis://:pw@h", "redis://h:6379/0", false, "h", "6379", "", "", "pw", 0},
        {"redis://bob:pw@h:7/2", "redis://h:7/2", false, "h", "7", "", "bob", "pw", 2},
        {"redis://:@h", "redis://h:6379/0", false, "h", "6379", "", "", "", 0},
        {"redis://@h", "redis://h:6379/0", false, "h", "6379", "", "", "", 0},
        {"redis://b%3Ab:p%40s%2Fw@h", "redis://h:6379/0", false, "h", "6379", "", "b:b", "p@s/w",
         0},
        {"redis://bob:p@ss@h", "redis://h:6379/0", false, "h", "6379", "", "bob", "p@ss", 0},
        {"redis://bob:a:b@h", "redis://h:6379/0", false, "h", "6379", "", "bob", "a:b", 0},
        {"redis://bob:pw@[::1]:7", "redis://[::1]:7/0", false, "::1", "7", "", "bob", "pw", 0},
        {"unix:///s", "unix:///s?db=0", false, "", "", "/s", "", "", 0},
        {"unix:///run/a%20b?db=5", "unix:///run/a b?db=5", false, "", "", "/run/a b", "", "", 5},
        {"unix://bob:pw@/s", "unix:///s?db=0", false, "", "", "/s", "bob", "pw", 0},
        {"unix://:pw@/a@b", "unix:///a@b?db=0", false, "", "", "/a@b", "", "pw", 0},
        {"unix:///a@b/c", "unix:///a@b/c?db=0", false, "", "", "/a@b/c", "", "", 0},
    };
    FOR_ROWS(row, rows)
    {
        row_true(row->text, redis_url_parse(&url, row->text, &why));
        row_int(row->text, url.topology, REDIS_ONE);
        row_int(row->text, url.host_count, 1);
        row_text(row->text, url.shown, row->shown);
        row_int(row->text, url.tls, row->tls);
        row_text(row->text, url.hosts[0].host, row->host);
        row_text(row->text, url.hosts[0].port, row->port);
        row_text(row->text, url.hosts[0].path, row->path);
        row_text(row->text, url.user, row->user);
        row_text(row->text, url.password, row->password);
        row_int(row->text, url.has_password, row->password[0] != '\0');
        row_int(row->text, url.database, row->database);
    }
}

TEST(test_lists)
{
    static const struct {
        const char *text;
        enum redis_topology topology;
        bool tls;
        const char *shown, *hosts, *master;
    } rows[] = {
        {"redis+sentinel://a/m", REDIS_SENTINEL, false, "redis+sentinel://a:26379/m/0", "a:26379 ",
         "m"},
        {"redis+sentinel://a,b:7,[::1]:8/m/3", REDIS_SENTINEL, false,
         "redis+sentinel://a:26379,b:7,[::1]:8/m/3", "a:26379 b:7 ::1:8 ", "m"},
        {"redis+sentinel://a/my%20m", REDIS_SENTINEL, false, "redis+sentinel://a:26379/my m/0",
         "a:26379 ", "my m"},
        {"rediss+sentinel://bob:pw@a,b/m", REDIS_SENTINEL, true,
         "rediss+sentinel://a:26379,b:26379/m/0", "a:26379 b:26379 ", "m"},
        {"redis+cluster://a", REDIS_CLUSTER, false, "redis+cluster://a:6379", "a:6379 ", ""},
        {"redis+cluster://a,b:7/", REDIS_CLUSTER, false, "redis+cluster://a:6379,b:7",
         "a:6379 b:7 ", ""},
        {"redis+cluster://a,b/0", REDIS_CLUSTER, false, "redis+cluster://a:6379,b:6379",
         "a:6379 b:6379 ", ""},
        {"rediss+cluster://:pw@[::1],[::2]:7", REDIS_CLUSTER, true,
         "rediss+cluster://[::1]:6379,[::2]:7", "::1:6379 ::2:7 ", ""},
    };
    FOR_ROWS(row, rows)
    {
        char hosts[256] = "";
        row_true(row->text, redis_url_parse(&url, row->text, &why));
        for (int i = 0; i < url.host_count; i++) {
            size_t used = strlen(hosts);
            snprintf(hosts + used, sizeof hosts - used, "%s:%s ", url.hosts[i].host,
                     url.hosts[i].port);
        }
        row_int(row->text, url.topology, row->topology);
        row_int(row->text, url.tls, row->tls);
        row_text(row->text, url.shown, row->shown);
        row_text(row->text, hosts, row->hosts);
        row_text(row->text, url.master, row->master);
    }
}

TEST(test_wrong)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "unknown scheme"},
        {"localhost", "unknown scheme"},
        {"http://x", "http:// is an unknown scheme"},
        {"h:6379", "'h:6379' has an unknown scheme; did you mean redis://h:6379?"},
        {"[::1]", "did you mean redis://[::1]?"},
        {"a.b:secret", "unknown scheme"},
        {"secret", "unknown scheme"},
        {"REDIS://h", "unknown scheme"},
        {" redis://h", "unknown scheme"},
        {"redis+tls://a", "unknown scheme"},
        {"redis:/h", "unknown scheme"},
        {"redis://", "the host is empty"},
        {"rediss://", "the host is empty"},
        {"redis://:6379", "the host is empty"},
        {"redis://bob:secret@", "the host is empty"},
        {"redis://[]", "the host is empty"},
        {"redis://[::1", "the bracket of an IPv6 address is not closed"},
        {"redis://[::1]x", "the text after the host is not a port"},
        {"redis://h:", "the text after the host is not a port"},
        {"redis://h:123456", "the text after the host is not a port"},
        {"redis://h:0", "the port is not a number from 1 to 65535"},
        {"redis://h:65536", "the port is not a number from 1 to 65535"},
        {"redis://h:x", "the port is not a number from 1 to 65535"},
        {"redis://h:-1", "the port is not a number from 1 to 65535"},
        {"redis://::1", "the host is empty"},
        {"redis://h/x", "the database is not a whole number"},
        {"redis://h/-1", "the database is not a whole number"},
        {"redis://h/1000001", "the database is not a whole number"},
        {"redis://h/1/", "the database is not a whole number"},
        {"redis://h?db=1", "the text after the host is not a database"},
        {"redis://h#1", "the text after the host is not a database"},
        {"redis://bob:@h", "the password is empty"},
        {"redis://bob:s%zz@h", "the password is too long or wrongly encoded"},
        {"redis://bob:s%00@h", "the password is too long or wrongly encoded"},
        {"redis://%zz:secret@h", "the user name is too long or wrongly encoded"},
        {"redis://a,b", "there are several hosts"},
        {"redis+sentinel://a", "the name of the master is missing"},
        {"redis+sentinel://a/", "the name of the master is missing, too long or wrongly encoded"},
        {"redis+sentinel://bob:sec/ret@a/m", "the port is not a number"},
        {"redis+sentinel://a,/m", "the host is empty"},
        {"redis+sentinel://a/m/x", "the database is not a whole number"},
        {"redis+sentinel://a/m?db=1", "the text after the host"},
        {"redis+cluster://a/1", "a Cluster has only database 0"},
        {"redis+cluster://a,", "the host is empty"},
        {"redis+cluster://a,,b", "the host is empty"},
        {"unix://", "must begin with a slash"},
        {"unix://relative", "must begin with a slash"},
        {"unix:///x?y=1", "only db=N may follow"},
        {"unix:///x?db=", "the database is not a whole number"},
        {"unix:///x%zz", "the path of the Unix socket is too long or wrongly encoded"},
        {"unix:///s,redis://:secret@h", "contains another URL"},
        {"unix://bob:@/s", "the password is empty"},
    };
    FOR_ROWS(row, rows)
    {
        why.text[0] = '\0';
        row_false(row->text, redis_url_parse(&url, row->text, &why));
        row_has(row->text, why.text, row->why);
        row_has(row->text, why.text,
                "redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]"); /* the valid form */
        row_true(row->text, strstr(why.text, "sec") == NULL && strstr(why.text, "s%") == NULL);
    }
}

TEST(test_sizes)
{
    static const struct {
        const char *before;
        char letter;
        size_t most; /* how many of that letter are accepted */
        const char *after, *why;
    } rows[] = {
        {"redis://", 'h', 255, "", "the host is too long"},
        {"redis://", 'u', 255, ":p@h", "the user name is too long"},
        {"redis://:", 'p', 4095, "@h", "the password is too long"},
        {"redis+sentinel://h/", 'm', 255, "", "the name of the master is missing, too long"},
        {"unix:///", 'p', 106, "", "the path of the Unix socket is too long"},
    };
    static char text[8192], letters[8192];
    FOR_ROWS(row, rows)
    {
        for (size_t more = 0; more < 2; more++) {
            snprintf(text, sizeof text, "%s%s%s", row->before,
                     unit_repeat(letters, sizeof letters, row->letter, row->most + more),
                     row->after);
            row_int(row->why, redis_url_parse(&url, text, &why), more == 0);
        }
        row_has(row->why, why.text, row->why);
    }
    snprintf(text, sizeof text, "redis+cluster://1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16");
    row_true("sixteen hosts", redis_url_parse(&url, text, &why));
    row_int("sixteen hosts", url.host_count, REDIS_HOSTS_MOST);
    strcat(text, ",17");
    row_false("seventeen hosts", redis_url_parse(&url, text, &why));
    row_has("seventeen hosts", why.text, "too many hosts");
}

/* `cut` is the text without passwords, as in DLOCK_HELD; `blotted` is the text without logins, as
 * in ps(1). */
TEST(test_logins)
{
    static const struct {
        const char *text;
        bool has_password;
        const char *cut, *blotted;
    } rows[] = {
        {"", false, "", ""},
        {"h", false, "h", "h"},
        {"redis://h", false, "redis://h", "redis://h"},
        {"redis://bob@h", false, "redis://bob@h", "redis://***@h"},
        {"redis://:pw@h/1", true, "redis://h/1", "redis://***@h/1"},
        {"redis://bob:pw@h:7/1", true, "redis://bob@h:7/1", "redis://******@h:7/1"},
        {"redis://bob:@h", true, "**************", "**************"},
        {"redis://bob:p@s@h", true, "redis://bob@h", "redis://*******@h"},
        {"redis://bob:a/b@h", true, "*****************", "*****************"},
        {"redis+sentinel://u:pw@a,b/m", true, "redis+sentinel://u@a,b/m",
         "redis+sentinel://****@a,b/m"},
        {"unix://bob:pw@/run/s", true, "unix://bob@/run/s", "unix://******@/run/s"},
        {"unix://:pw@/a@b", true, "unix:///a@b", "unix://***@/a@b"},
        {"unix:///a@b", false, "unix:///a@b", "unix:///a@b"},
        {"unix:///a:b@c", false, "unix:///a:b@c", "unix:///a:b@c"},
        {"unix:///s,redis://:pw@h", true, "***********************", "***********************"},
        {"redis://:a@h redis://b:c@i", true, "redis://h redis://b@i", "redis://**@h redis://***@i"},
        {"redis://:a@h\tunix://x:y@/s", true, "redis://h\tunix://x@/s",
         "redis://**@h\tunix://***@/s"},
        {" redis://:a@h ", true, " redis://h ", " redis://**@h "},
        {"redis://bob:1 b@h", true, "************* ***", "************* ***"},
        {"redis://bob:a b@h", true, "************* ***", "************* ***"},
        {"bob:pw@h", true, "********", "********"},
        {"foo://bob:pw@h", true, "**************", "**************"},
    };
    char text[128];
    FOR_ROWS(row, rows)
    {
        row_int(row->text, url_redact_has_password(row->text), row->has_password);
        snprintf(text, sizeof text, "%s", row->text);
        url_redact_passwords(text);
        row_text(row->text, text, row->cut);
        row_false(row->text, url_redact_has_password(text));
        for (size_t i = strlen(text); i < strlen(row->text); i++)
            row_int(row->text, text[i], '\0'); /* no rest of the password after the end */
        snprintf(text, sizeof text, "%s", row->text);
        url_redact_logins(text);
        row_text(row->text, text, row->blotted);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("one server: host, port, socket, login, database, and how it is shown", test_plain),
        ENTRY("several: Sentinels with their master, nodes of a Cluster", test_lists),
        ENTRY("a wrong URL: what is wrong, what is right, and never the password", test_wrong),
        ENTRY("each part of a URL has a most, which is taken, and one more is refused", test_sizes),
        ENTRY("logins of one URL or several are cut out and blotted, and all of what is no URL",
              test_logins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
