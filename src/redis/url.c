#include "redis/url.h"

#include "util/fileutils.h"
#include "util/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- addresses of servers ------------------------------------------------ */

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

/* --- parsing ------------------------------------------------------------- */

static bool refuse(struct errmsg *why, const char *text)
{
    errmsg_set(why,
               "%s; expected redis://[USER[:PASSWORD]@]HOST[:PORT][/DB], rediss:// (TLS), "
               "redis+sentinel://HOST,HOST/MASTER[/DB], "
               "redis+cluster://HOST,HOST or unix:///PATH[?db=N]",
               text);
    return false;
}

static bool parse_database(struct redis_url *url, const char *text, struct errmsg *why)
{
    int64_t number;
    if (!number_parse(text, 0, 1000000, &number))
        return refuse(why, "the database is not a whole number");
    url->database = (int)number;
    return true;
}

/* Parses "user", ":password" or "user:password". As in redis-cli, a single word is a password if a
 * ':' precedes it, and otherwise a user. */
static bool parse_login(struct redis_url *url, const char *text, size_t length, struct errmsg *why)
{
    const char *colon = memchr(text, ':', length);
    size_t user_length = colon != NULL ? (size_t)(colon - text) : length;
    url->login_length = length;
    if (!percent_decode(url->user, sizeof url->user, text, user_length))
        return refuse(why, "the user name is too long or wrongly encoded");
    if (colon == NULL)
        return true;
    if (!percent_decode(url->password, sizeof url->password, colon + 1, length - user_length - 1))
        return refuse(why, "the password is too long or wrongly encoded");
    url->has_password = url->password[0] != '\0';
    return url->has_password || *url->user == '\0' || refuse(why, "the password is empty");
}

/* Parses "host", "host:port", "[::1]" or "[::1]:port". */
static bool parse_host(struct redis_endpoint *at, const char *port, const char *text, size_t length,
                       struct errmsg *why)
{
    const char *end = text + length;
    bool bracket = length > 0 && *text == '[';
    const char *host = bracket ? text + 1 : text;
    const char *host_end = memchr(host, bracket ? ']' : ':', (size_t)(end - host));
    if (host_end == NULL && bracket)
        return refuse(why, "the bracket of an IPv6 address is not closed");
    if (host_end == NULL)
        host_end = end;

    size_t host_length = (size_t)(host_end - host);
    if (host_length == 0 || host_length >= sizeof at->host)
        return refuse(why, host_length == 0 ? "the host is empty" : "the host is too long");
    snprintf(at->host, sizeof at->host, "%.*s", (int)host_length, host);
    snprintf(at->port, sizeof at->port, "%s", port);

    const char *after = bracket ? host_end + 1 : host_end;
    if (after == end)
        return true;
    size_t port_length = (size_t)(end - after - 1);
    int64_t number;
    if (*after != ':' || port_length == 0 || port_length >= sizeof at->port)
        return refuse(why, "the text after the host is not a port");
    snprintf(at->port, sizeof at->port, "%.*s", (int)port_length, after + 1);
    return number_parse(at->port, 1, 65535, &number) ||
           refuse(why, "the port is not a number from 1 to 65535");
}

/* Parses "host,host:port". Only some topologies allow several hosts. */
static bool parse_hosts(struct redis_url *url, const char *text, const char *end,
                        struct errmsg *why)
{
    const char *port = url->topology == REDIS_SENTINEL ? "26379" : "6379";
    const char *comma;
    do {
        comma = memchr(text, ',', (size_t)(end - text));
        if (comma != NULL && url->topology == REDIS_ONE)
            return refuse(why, "there are several hosts (for a quorum, repeat --redis)");
        if (url->host_count == REDIS_HOSTS_MOST)
            return refuse(why, "there are too many hosts");
        const char *stop = comma != NULL ? comma : end;
        if (!parse_host(&url->hosts[url->host_count], port, text, (size_t)(stop - text), why))
            return false;
        url->host_count++;
        text = stop + 1;
    } while (comma != NULL);
    return true;
}

/* Parses "/master" in "/master[/db]", and moves *tail to the end of the name. */
static bool parse_master(struct redis_url *url, const char **tail, struct errmsg *why)
{
    if (**tail != '/')
        return refuse(why, "the name of the master is missing");
    /* An '@' here means that the URL's login contains an unescaped '/', which is an error. */
    size_t length = strcspn(*tail + 1, "/?#@");
    if (length == 0 || (*tail)[1 + length] == '@' ||
        !percent_decode(url->master, sizeof url->master, *tail + 1, length))
        return refuse(why, "the name of the master is missing, too long or wrongly encoded");
    *tail += 1 + length;
    return true;
}

static void show(struct redis_url *url)
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
    const char *tail = rest + length;
    const char *at = memrchr(rest, '@', length);
    if (at != NULL && !parse_login(url, rest, (size_t)(at - rest), why))
        return false;
    if (!parse_hosts(url, at != NULL ? at + 1 : rest, tail, why))
        return false;
    if (url->topology == REDIS_SENTINEL && !parse_master(url, &tail, why))
        return false;
    if (*tail == '/' && tail[1] != '\0' && !parse_database(url, tail + 1, why))
        return false;
    if (url->topology == REDIS_CLUSTER && url->database != 0)
        return refuse(why, "a Cluster has only database 0");
    if (*tail == '?' || *tail == '#')
        return refuse(why, "the text after the host is not a database");

    show(url);
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
        return refuse(why, "the path of the Unix socket must begin with a slash");
    if (strstr(rest, "://") != NULL) /* a login in that URL must not get into `shown` */
        return refuse(why,
                      "the path of the Unix socket contains another URL; separate URLs by blanks");

    char *path = url->hosts[0].path;
    url->host_count = 1;
    if (!percent_decode(path, sizeof url->hosts[0].path, rest, length))
        return refuse(why, "the path of the Unix socket is too long or wrongly encoded");
    const char *query = rest + length;
    if (*query != '\0') {
        if (strncmp(query, "?db=", 4) != 0)
            return refuse(why, "only db=N may follow the '?'");
        if (!parse_database(url, query + 4, why))
            return false;
    }
    snprintf(url->shown, sizeof url->shown, "unix://%s?db=%d", path, url->database);
    return true;
}

/* True for "host", "host:port" or "[::1]:port". Such a text contains no password. A text with an
 * '@', or with a word after the colon, may contain one. */
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

/* Sets *why for a text that does not begin with a known scheme. Quotes no part of the text that may
 * be a password. Suggests what the user may have meant. */
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
        snprintf(named, sizeof named, "unknown scheme");
    return refuse(why, named);
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

static const char blanks[] = " \t\r\n\v\f";

static enum lock_result parse_words(struct redis_urls *urls, char *text, struct errmsg *why)
{
    char *rest, *word = strtok_r(text, blanks, &rest);
    do {
        if (!redis_url_parse(&urls->list[urls->count++], word != NULL ? word : "", why))
            return LOCK_INVALID;
    } while (word != NULL && (word = strtok_r(NULL, blanks, &rest)) != NULL);
    return LOCK_OK;
}

enum lock_result redis_urls_parse(struct redis_urls *urls, const char *text, struct errmsg *why)
{
    size_t most = 1;
    char *copy = strdup(text), place[48];
    enum lock_result result = LOCK_SYSTEM;
    for (const char *at = text; (at = strpbrk(at, blanks)) != NULL; at++)
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

/* --- the login ----------------------------------------------------------- */

static const char credential[] = "dlock.password", variable[] = "REDISCLI_AUTH";

static enum lock_result read_password(struct redis_url *url, const char *path, struct errmsg *why)
{
    struct secret secret;
    enum lock_result result =
        secret_read(&secret, path, why) ? LOCK_OK : secret_error_result(errno);
    if (result == LOCK_OK && memchr(secret.bytes, '\0', secret.length) != NULL)
        result = errmsg_fail(why, LOCK_INVALID, "%.300s: the password contains a NUL byte", path);
    else if (result == LOCK_OK && secret.length >= sizeof url->password)
        result = errmsg_fail(why, LOCK_INVALID, "%.300s: the password is too long", path);

    if (result == LOCK_OK) /* redis_url_parse() has filled the rest of url->password with NULs */
        memcpy(url->password, secret.bytes, secret.length);
    else
        errmsg_kind(why, "the password file");
    url->has_password = result == LOCK_OK;
    secret_wipe(&secret);
    return result;
}

/* See LoadCredential= in systemd.exec(5). */
static enum lock_result read_credential(struct redis_url *url, struct errmsg *why)
{
    char path[4096];
    const char *directory = getenv("CREDENTIALS_DIRECTORY");
    if (directory == NULL || *directory != '/')
        return LOCK_OK;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, credential) >= sizeof path ||
        access(path, F_OK) != 0)
        return LOCK_OK; /* the service has no such credential */
    url->password_from = "the credential dlock.password";
    return read_password(url, path, why);
}

static enum lock_result read_variable(struct redis_url *url, struct errmsg *why)
{
    const char *text = getenv(variable);
    if (text == NULL || *text == '\0')
        return LOCK_OK;
    if (strlen(text) >= sizeof url->password)
        return errmsg_fail(why, LOCK_INVALID, "%s: the password is too long", variable);
    text_copy(url->password, sizeof url->password, text);
    url->password_from = variable;
    url->has_password = true;
    return LOCK_OK;
}

const char *redis_login_hint(void)
{
    return getenv("DLOCK_HELD") != NULL
               ? " (a password on the command line of the dlock around it is not passed on)"
               : "";
}

enum lock_result redis_login_find(struct redis_url *url, const struct redis_settings *settings,
                                  enum redis_fault *fault, struct errmsg *why)
{
    enum lock_result result = LOCK_OK;
    *fault = REDIS_FAULT_NONE;
    url->password_from = "the URL";
    if (!url->has_password && settings->password_file != NULL) {
        url->password_from = settings->password_file;
        result = read_password(url, settings->password_file, why);
    } else if (!url->has_password) {
        result = read_credential(url, why);
        if (result == LOCK_OK && !url->has_password)
            result = read_variable(url, why);
    }
    if (result != LOCK_OK)
        return result;

    *fault = REDIS_FAULT_URL;
    if (!url->has_password && *url->user != '\0')
        return errmsg_fail(why, LOCK_INVALID,
                           "the URL has a user, but no password; use redis://USER:PASSWORD@HOST, "
                           "--password-file, the systemd credential %s or the variable %s%s",
                           credential, variable, redis_login_hint());
    return !url->has_password || secret_leave_no_core(why) ? LOCK_OK : LOCK_SYSTEM;
}

/* The text before the first colon is the user. So if the password contains a colon, the file must
 * have a user, or a colon before the password. */
enum lock_result redis_login_read_pair(struct redis_url *url, const char *path, struct errmsg *why)
{
    enum lock_result result = read_password(url, path, why);
    if (result != LOCK_OK)
        return result;
    url->password_from = path;

    const char *colon = strchr(url->password, ':');
    if (colon != NULL) {
        size_t length = (size_t)(colon - url->password), rest = strlen(colon + 1);
        if (length >= sizeof url->user || rest == 0)
            return errmsg_fail(why, LOCK_INVALID, "the password file %.300s: %s", path,
                               rest == 0 ? "the password is empty" : "the user is too long");
        memcpy(url->user, url->password, length);
        url->user[length] = '\0';
        memmove(url->password, colon + 1, rest);
        explicit_bzero(url->password + rest, length + 1);
    }
    return secret_leave_no_core(why) ? LOCK_OK : LOCK_SYSTEM;
}

/* --- hiding -------------------------------------------------------------- */

/* The position of the first URL in a text, and of its login. */
struct login {
    size_t begin, length; /* of the login, without its "@"; length 0: no login */
    size_t end;           /* of the URL */
    bool has_password;
};

/* Finds the login in the first word of the text. False if that word is not a URL. */
static bool read_login(const char *text, struct login *login)
{
    struct redis_url url = {0};
    struct errmsg ignored = {""};
    size_t blank = strspn(text, blanks), length = strcspn(text + blank, blanks);
    char *copy = strndup(text + blank, length);
    bool parsed = length == 0 || (copy != NULL && redis_url_parse(&url, copy, &ignored));
    *login = (struct login){.end = blank + length, .has_password = url.has_password};
    if (parsed && length > 0) {
        login->begin = (size_t)(strstr(text, "//") - text) + 2;
        login->length = url.login_length;
    }
    if (copy != NULL)
        explicit_bzero(copy, length);
    explicit_bzero(&url, sizeof url);
    free(copy);
    return parsed;
}

/* True if a word is not a URL and the text contains an "@", so that a login may be anywhere in the
 * text. */
static bool is_unclear(const char *text)
{
    struct login login;
    for (const char *at = text; *at != '\0'; at += login.end)
        if (!read_login(at, &login))
            return strchr(text, '@') != NULL;
    return false;
}

bool url_redact_has_password(const char *text)
{
    struct login login;
    bool has = is_unclear(text);
    for (const char *at = text; *at != '\0' && !has; at += login.end)
        has = read_login(at, &login) && login.has_password;
    return has;
}

static void blot_unclear(char *text)
{
    if (!is_unclear(text))
        return;
    for (; *text != '\0'; text++)
        if (strchr(blanks, *text) == NULL)
            *text = '*';
}

void url_redact_logins(char *text)
{
    struct login login;
    blot_unclear(text);
    for (char *at = text; *at != '\0'; at += login.end)
        if (read_login(at, &login))
            memset(at + login.begin, '*', login.length);
}

void url_redact_passwords(char *text)
{
    struct login login;
    blot_unclear(text);
    for (char *at = text; *at != '\0'; at += login.end) {
        if (!read_login(at, &login) || !login.has_password)
            continue;
        char *from = memchr(at + login.begin, ':', login.length);
        char *to = at + login.begin + login.length;
        if (from == at + login.begin)
            to++; /* without a user, the "@" is removed too */
        size_t rest = strlen(to), cut = (size_t)(to - from);
        memmove(from, to, rest + 1);
        memset(from + rest, 0, cut);
        login.end -= cut;
    }
}
