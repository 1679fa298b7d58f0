#include "redis/url_redact.h"

#include "redis/url.h"

#include <stdlib.h>
#include <string.h>

static const char blanks[] = " \t\r\n\v\f";

/* The first URL of a text. */
struct url_login {
    size_t begin, length; /* of the login, without its "@"; of length 0: none */
    size_t end;           /* of the URL */
    bool has_password;
};

/* False if the first word is no URL. */
static bool url_login_read(const char *text, struct url_login *login)
{
    struct redis_url url = {0};
    struct errmsg ignored = {""};
    size_t blank = strspn(text, blanks), length = strcspn(text + blank, blanks);
    char *copy = strndup(text + blank, length);
    bool parsed = length == 0 || (copy != NULL && redis_url_parse(&url, copy, &ignored));
    *login = (struct url_login){.end = blank + length, .has_password = url.has_password};
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

/* True if a login may be anywhere in it: a word is no URL. */
static bool url_login_hides(const char *text)
{
    struct url_login login;
    for (const char *at = text; *at != '\0'; at += login.end)
        if (!url_login_read(at, &login))
            return strchr(text, '@') != NULL;
    return false;
}

bool url_redact_has_password(const char *text)
{
    struct url_login login;
    bool has = url_login_hides(text);
    for (const char *at = text; *at != '\0' && !has; at += login.end)
        has = url_login_read(at, &login) && login.has_password;
    return has;
}

static void blot_words(char *text)
{
    for (; *text != '\0'; text++)
        if (strchr(blanks, *text) == NULL)
            *text = '*';
}

void url_redact_logins(char *text)
{
    struct url_login login;
    if (url_login_hides(text))
        blot_words(text);
    for (char *at = text; *at != '\0'; at += login.end)
        if (url_login_read(at, &login))
            memset(at + login.begin, '*', login.length);
}

void url_redact_passwords(char *text)
{
    struct url_login login;
    if (url_login_hides(text))
        blot_words(text);
    for (char *at = text; *at != '\0'; at += login.end) {
        if (!url_login_read(at, &login) || !login.has_password)
            continue;
        char *from = memchr(at + login.begin, ':', login.length),
             *to = at + login.begin + login.length;
        to += from == at + login.begin; /* the "@" of no user */
        size_t rest = strlen(to), cut = (size_t)(to - from);
        memmove(from, to, rest + 1);
        memset(from + rest, 0, cut);
        login.end -= cut;
    }
}
