#include "redis/url.h"

#include "util/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool url_fail(struct errmsg *why, const char *text)
{
    errmsg_set(why,
               "%s; redis://[USER[:PASSWORD]@]HOST[:PORT][/DB], rediss:// (TLS), "
               "redis+sentinel://HOST,HOST/MASTER[/DB], "
               "redis+cluster://HOST,HOST or unix:///PATH[?db=N] is expected",
               text);
    return false;
}

static bool parse_database(struct redis_url *url, const char *text, struct errmsg *why)
{
    int64_t number;
    if (!number_parse(text, 0, 1000000, &number))
        return url_fail(why, "the database is not a whole number");
    url->database = (int)number;
    return true;
}

/* "password@", ":password@" or "user:password@", as redis-cli reads them: a lone word is
 * a password if ':' precedes it, otherwise a user. */
static bool parse_login(struct redis_url *url, const char *text, size_t length, struct errmsg *why)
{
    const char *colon = memchr(text, ':', length);
    size_t user_length = colon != NULL ? (size_t)(colon - text) : length;
    url->login_length = length;
    if (!percent_decode(url->user, sizeof url->user, text, user_length))
        return url_fail(why, "the user name is too long or wrongly encoded");
    if (colon == NULL)
        return true;
    if (!percent_decode(url->password, sizeof url->password, colon + 1, length - user_length - 1))
        return url_fail(why, "the password is too long or wrongly encoded");
    url->has_password = url->password[0] != '\0';
    return url->has_password || *url->user == '\0' || url_fail(why, "the password is empty");
}

/* "host", "host:port", "[::1]" or "[::1]:port". */
static bool parse_host(struct redis_endpoint *at, const char *port, const char *text, size_t length,
                       struct errmsg *why)
{
    const char *end = text + length, *host = text, *host_end, *after;
    if (length > 0 && *text == '[') {
        host = text + 1;
        host_end = memchr(host, ']', (size_t)(end - host));
        if (host_end == NULL)
            return url_fail(why, "the bracket of an IPv6 address is not closed");
        after = host_end + 1;
    } else {
        host_end = memchr(text, ':', length);
        if (host_end == NULL)
            host_end = end;
        after = host_end;
    }
    size_t host_length = (size_t)(host_end - host);
    if (host_length == 0 || host_length >= sizeof at->host)
        return url_fail(why, host_length == 0 ? "the host is empty" : "the host is too long");
    snprintf(at->host, sizeof at->host, "%.*s", (int)host_length, host);
    snprintf(at->port, sizeof at->port, "%s", port);
    if (after == end)
        return true;
    size_t port_length = (size_t)(end - after - 1);
    int64_t number;
    if (*after != ':' || port_length == 0 || port_length >= sizeof at->port)
        return url_fail(why, "the text after the host is not a port");
    snprintf(at->port, sizeof at->port, "%.*s", (int)port_length, after + 1);
    return number_parse(at->port, 1, 65535, &number) ||
           url_fail(why, "the port is not a number from 1 to 65535");
}

/* "host,host:port": several only if the topology allows it. */
static bool parse_hosts(struct redis_url *url, const char *text, const char *end,
                        struct errmsg *why)
{
    const char *port = url->topology == REDIS_SENTINEL ? "26379" : "6379";
    if (url->topology == REDIS_ONE && memchr(text, ',', (size_t)(end - text)) != NULL)
        return url_fail(why, "there are several hosts");
    for (;;) {
        const char *comma =
            url->topology == REDIS_ONE ? NULL : memchr(text, ',', (size_t)(end - text));
        const char *stop = comma != NULL ? comma : end;
        if (url->host_count == REDIS_HOSTS_MOST)
            return url_fail(why, "there are too many hosts");
        if (!parse_host(&url->hosts[url->host_count], port, text, (size_t)(stop - text), why))
            return false;
        url->host_count++;
        if (comma == NULL)
            return true;
        text = comma + 1;
    }
}

/* "/master[/db]"; the remaining tail is the database. */
static bool parse_master(struct redis_url *url, const char **tail, struct errmsg *why)
{
    if (**tail != '/')
        return url_fail(why, "the name of the master is missing");
    size_t length =
        strcspn(*tail + 1, "/?#@"); /* '@': a login with a slash in it, which is an error */
    if (length == 0 || (*tail)[1 + length] == '@' ||
        !percent_decode(url->master, sizeof url->master, *tail + 1, length))
        return url_fail(why, "the name of the master is missing, too long or wrongly encoded");
    *tail += 1 + length;
    return true;
}

const char *redis_endpoint_format(const struct redis_endpoint *at, char text[ENDPOINT_TEXT_SIZE])
{
    bool brackets = strchr(at->host, ':') != NULL;
    snprintf(text, ENDPOINT_TEXT_SIZE, "%s%s%s:%s", brackets ? "[" : "", at->host,
             brackets ? "]" : "", at->port);
    return text;
}

bool redis_endpoint_is(const struct redis_endpoint *a, const struct redis_endpoint *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->port, b->port) == 0 &&
           strcmp(a->path, b->path) == 0;
}

void redis_endpoint_blame(const struct redis_endpoint *at, const char *kind, struct errmsg *why)
{
    char text[ENDPOINT_TEXT_SIZE];
    errmsg_prefix(why, redis_endpoint_format(at, text));
    errmsg_kind(why, kind);
}

static void url_show(struct redis_url *url)
{
    char host[ENDPOINT_TEXT_SIZE];
    static const char *const kinds[] = {"", "+sentinel", "+cluster"};
    int used = snprintf(url->shown, sizeof url->shown, "redis%s%s://", url->tls ? "s" : "",
                        kinds[url->topology]);
    for (int i = 0; i < url->host_count && used < (int)sizeof url->shown; i++) {
        used += snprintf(url->shown + used, sizeof url->shown - (size_t)used, "%s%s",
                         i > 0 ? "," : "", redis_endpoint_format(&url->hosts[i], host));
    }
    if (url->topology != REDIS_CLUSTER && used < (int)sizeof url->shown)
        snprintf(url->shown + used, sizeof url->shown - (size_t)used, "%s%s/%d",
                 *url->master != '\0' ? "/" : "", url->master, url->database);
}

static bool parse_tcp(struct redis_url *url, const char *rest, struct errmsg *why)
{
    size_t length = strcspn(rest, "/?#");
    const char *tail = rest + length, *at = NULL;
    for (const char *c = rest; c < tail; c++)
        if (*c == '@')
            at = c;
    if (at != NULL && !parse_login(url, rest, (size_t)(at - rest), why))
        return false;
    const char *host = at != NULL ? at + 1 : rest;
    if (!parse_hosts(url, host, tail, why))
        return false;
    if (url->topology == REDIS_SENTINEL && !parse_master(url, &tail, why))
        return false;
    if (*tail == '/' && tail[1] != '\0' && !parse_database(url, tail + 1, why))
        return false;
    if (url->topology == REDIS_CLUSTER && url->database != 0)
        return url_fail(why, "a Cluster has only database 0");
    if (*tail == '?' || *tail == '#')
        return url_fail(why, "the text after the host is not a database");
    url_show(url);
    return true;
}

static bool parse_unix(struct redis_url *url, const char *rest, struct errmsg *why)
{
    const char *at = strchr(rest, '@'), *slash = strchr(rest, '/');
    if (at != NULL && (slash == NULL || at < slash)) {
        if (!parse_login(url, rest, (size_t)(at - rest), why))
            return false;
        rest = at + 1;
    }
    size_t length = strcspn(rest, "?");
    if (*rest != '/')
        return url_fail(why, "the path of the Unix socket must begin with a slash");
    if (strstr(rest, "://") != NULL) /* perhaps with a login, which must not get into `shown` */
        return url_fail(
            why, "the path of the Unix socket contains another URL; separate URLs by blanks");
    char *path = url->hosts[0].path;
    url->host_count = 1;
    if (!percent_decode(path, sizeof url->hosts[0].path, rest, length))
        return url_fail(why, "the path of the Unix socket is too long or wrongly encoded");
    const char *query = rest + length;
    if (*query != '\0') {
        if (strncmp(query, "?db=", 4) != 0)
            return url_fail(why, "only db=N may follow the '?'");
        if (!parse_database(url, query + 4, why))
            return false;
    }
    snprintf(url->shown, sizeof url->shown, "unix://%s?db=%d", path, url->database);
    return true;
}

/* "host", "host:port" or "[::1]:port": nothing that could be a password, as an '@' or a
 * word after the colon might be. */
static bool is_place(const char *text)
{
    static const char host[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    const char *bracket = *text == '[' ? strchr(text, ']') : NULL;
    const char *end = bracket != NULL ? bracket + 1 : text + strspn(text, host);
    size_t digits = *end == ':' ? strspn(end + 1, "0123456789") : 0;
    bool is_host = end != text && (digits > 0 || bracket != NULL ||
                                   memchr(text, '.', (size_t)(end - text)) != NULL ||
                                   strcmp(text, "localhost") == 0);
    return is_host && end[digits > 0 ? 1 + digits : 0] == '\0';
}

/* Names what was found, if it cannot be a password, and what may be meant. */
static bool no_scheme(const char *text, struct errmsg *why)
{
    char named[512];
    size_t scheme =
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    if (is_place(text))
        snprintf(named, sizeof named,
                 "'%.200s' has an unknown scheme; did you mean redis://%.200s?", text, text);
    else if (*text == '/' && strpbrk(text, "@:") == NULL)
        snprintf(named, sizeof named, "'%.200s' has an unknown scheme; did you mean unix://%.200s?",
                 text, text);
    else if (scheme > 0 && strncmp(text + scheme, "://", 3) == 0)
        snprintf(named, sizeof named, "%.*s:// is an unknown scheme",
                 (int)(scheme < 100 ? scheme : 100), text);
    else
        snprintf(named, sizeof named, "it has an unknown scheme");
    return url_fail(why, named);
}

bool redis_url_parse(struct redis_url *url, const char *text, struct errmsg *why)
{
    static const struct {
        const char *text;
        enum redis_topology topology;
        bool tls;
    } schemes[] = {
        {"redis://", REDIS_ONE, false},
        {"rediss://", REDIS_ONE, true},
        {"valkey://", REDIS_ONE, false},
        {"valkeys://", REDIS_ONE, true},
        {"redis+sentinel://", REDIS_SENTINEL, false},
        {"rediss+sentinel://", REDIS_SENTINEL, true},
        {"redis+cluster://", REDIS_CLUSTER, false},
        {"rediss+cluster://", REDIS_CLUSTER, true},
    };
    *url = (struct redis_url){0};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t length = strlen(schemes[i].text);
        if (strncmp(text, schemes[i].text, length) != 0)
            continue;
        url->topology = schemes[i].topology;
        url->tls = schemes[i].tls;
        return parse_tcp(url, text + length, why);
    }
    if (strncmp(text, "unix://", 7) == 0)
        return parse_unix(url, text + 7, why);
    return no_scheme(text, why);
}

static const char blank[] = " \t\r\n\v\f";

static enum lock_result parse_words(struct redis_urls *urls, char *text, struct errmsg *why)
{
    char *rest, *word = strtok_r(text, blank, &rest);
    do {
        if (!redis_url_parse(&urls->list[urls->count++], word != NULL ? word : "", why))
            return LOCK_INVALID;
    } while (word != NULL && (word = strtok_r(NULL, blank, &rest)) != NULL);
    return LOCK_OK;
}

enum lock_result redis_urls_parse(struct redis_urls *urls, const char *text, struct errmsg *why)
{
    size_t most = 1;
    char *copy = strdup(text), place[48];
    enum lock_result result = LOCK_SYSTEM;
    for (const char *at = text; (at = strpbrk(at, blank)) != NULL; at++)
        most++;
    *urls = (struct redis_urls){.list = calloc(most, sizeof *urls->list)};
    if (copy != NULL && urls->list != NULL)
        result = parse_words(urls, copy, why);
    else
        errmsg_set(why, "out of memory");
    if (result == LOCK_INVALID && most > 1) {
        snprintf(place, sizeof place, "URL %d", urls->count);
        errmsg_prefix(why, place);
    }
    if (copy != NULL)
        explicit_bzero(copy, strlen(text));
    free(copy);
    return result;
}

void redis_urls_free(struct redis_urls *urls)
{
    if (urls->list != NULL)
        explicit_bzero(urls->list, (size_t)urls->count * sizeof *urls->list);
    free(urls->list);
}
