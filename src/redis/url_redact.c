#include "redis/url_redact.h"

#include <stddef.h>
#include <string.h>

struct login {
    size_t begin, colon, end; /* the first bytes of the user, ":password" and "@" */
};

static const char blanks[] = " \t\r\n\v\f";

static const char *last_of(const char *begin, const char *end, const char *text)
{
    size_t length = strlen(text);
    for (size_t left = (size_t)(end - begin); left >= length; left--)
        if (memcmp(begin + left - length, text, length) == 0)
            return begin + left - length;
    return NULL;
}

/* The login in the URL that text begins with, which ends at `stop`. An '@' may be the
 * password's own, if it was not percent-encoded; one in the path of a Unix socket is
 * none. A "@/" may be in either: with `most` it is taken as part of the password;
 * without, as redis/url.c reads it. */
static bool find(const char *text, const char *stop, bool most, struct login *login)
{
    const char *slashes = memmem(text, (size_t)(stop - text), "//", 2), *at = NULL;
    const char *begin = slashes != NULL ? slashes + 2 : text;
    bool is_unix = strncmp(text, "unix:", 5) == 0;
    if (is_unix && begin < stop && *begin == '/') {
        /* Another URL after its path, if the blank between them is missing. */
        const char *another = most ? memmem(begin, (size_t)(stop - begin), "://", 3) : NULL;
        if (another == NULL)
            return false;
        begin = another + 3;
        is_unix = false;
    }
    if (is_unix)
        at = most ? last_of(begin, stop, "@/") : memmem(begin, (size_t)(stop - begin), "@/", 2);
    if (at == NULL)
        at = last_of(begin, stop, "@");
    if (at == NULL)
        return false;
    const char *colon = memchr(begin, ':', (size_t)(at - begin));
    login->begin = (size_t)(begin - text);
    login->end = (size_t)(at - text);
    login->colon = colon != NULL ? (size_t)(colon - text) : login->end;
    return true;
}

/* A word that does not begin like a URL belongs to the one before it: a password may
 * contain a blank. */
static const char *url_end(const char *url)
{
    const char *end = url + strcspn(url, blanks);
    for (const char *next; *(next = end + strspn(end, blanks)) != '\0';) {
        const char *stop = next + strcspn(next, blanks);
        if (memmem(next, (size_t)(stop - next), "://", 3) != NULL)
            break;
        end = stop;
    }
    return end;
}

bool url_redact_has_password(const char *text)
{
    struct login login;
    for (const char *url = text; *url != '\0'; url = url_end(url)) {
        url += strspn(url, blanks);
        if (find(url, url_end(url), false, &login) && login.colon + 1 < login.end)
            return true;
    }
    return false;
}

void url_redact_logins(char *text)
{
    struct login login;
    for (char *url = text; *url != '\0'; url += url_end(url) - url) {
        url += strspn(url, blanks);
        if (find(url, url_end(url), true, &login))
            memset(url + login.begin, '*', login.end - login.begin);
    }
}

static bool cut_passwords(char *text)
{
    bool any = false;
    struct login login;
    for (char *url = text; *url != '\0'; url += url_end(url) - url) {
        url += strspn(url, blanks);
        if (!find(url, url_end(url), false, &login) || login.colon == login.end)
            continue;
        size_t rest = login.colon > login.begin ? login.end : login.end + 1, length = strlen(url);
        memmove(url + login.colon, url + rest, length - rest);
        memset(url + length - (rest - login.colon), 0, rest - login.colon);
        any = true;
    }
    return any;
}

/* The remains of one URL may belong to the one before it, and then have another end. */
void url_redact_passwords(char *text)
{
    while (cut_passwords(text))
        continue;
}
