#include "url_login.h"

#include <stddef.h>
#include <string.h>

struct login {
    size_t begin, colon, end; /* the first bytes of the user, ":password" and "@" */
};

static const char blanks[] = " \t\r\n";

static const char *last_of(const char *begin, const char *end, const char *text)
{
    size_t length = strlen(text);
    for (size_t left = (size_t)(end - begin); left >= length; left--)
        if (memcmp(begin + left - length, text, length) == 0)
            return begin + left - length;
    return NULL;
}

/* The login in the first word of text, which ends at `stop`. An '@' may be the
 * password's own, where somebody has not coded it; one in the path of a
 * Unix socket is none. */
static bool find(const char *text, const char *stop, struct login *login)
{
    const char *slashes = memmem(text, (size_t)(stop - text), "//", 2), *at = NULL;
    const char *begin = slashes != NULL ? slashes + 2 : text;
    bool is_unix = strncmp(text, "unix:", 5) == 0;
    if (is_unix && begin < stop && *begin == '/')
        return false;
    if (is_unix)
        at = last_of(begin, stop, "@/");
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

static const char *word_end(const char *word)
{
    return word + strcspn(word, blanks);
}

bool url_has_password(const char *text)
{
    struct login login;
    for (const char *word = text; *word != '\0'; word = word_end(word)) {
        word += strspn(word, blanks);
        if (find(word, word_end(word), &login) && login.colon + 1 < login.end)
            return true;
    }
    return false;
}

void url_blot_logins(char *text)
{
    struct login login;
    for (char *word = text; *word != '\0'; word += strcspn(word, blanks)) {
        word += strspn(word, blanks);
        if (find(word, word_end(word), &login))
            memset(word + login.begin, '*', login.end - login.begin);
    }
}

void url_cut_passwords(char *text)
{
    struct login login;
    for (char *word = text; *word != '\0'; word += strcspn(word, blanks)) {
        word += strspn(word, blanks);
        if (!find(word, word_end(word), &login) || login.colon == login.end)
            continue;
        size_t rest = login.colon > login.begin ? login.end : login.end + 1, length = strlen(word);
        memmove(word + login.colon, word + rest, length - rest);
        memset(word + length - (rest - login.colon), 0, rest - login.colon);
    }
}
