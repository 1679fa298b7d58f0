/* Errors are recognized by the code, and by the words right after "ERR"; never by text
 * further on, which includes names of keys and hosts. */
#include "redis/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "0123456789";

static const char place[] = "@user_script:";

/* Past "@user_script:3: " or "@user_script: 3: "; NULL: it does not begin so. */
static const char *skip_place(const char *text)
{
    if (strncmp(text, place, strlen(place)) != 0)
        return NULL;
    text += strlen(place);
    text += strspn(text, " ");
    size_t length = strspn(text, digits);
    return length > 0 && text[length] == ':' && text[length + 1] == ' ' ? text + length + 2 : NULL;
}

/* Past all but the last "ERR " of an error that a script has passed on. */
static const char *skip_repeated(const char *text)
{
    static const char twice[] = "ERR ERR ";
    while (strncmp(text, twice, strlen(twice)) == 0)
        text += strlen("ERR ");
    return text;
}

/* Redis 5 and 6 prefix the error of a call inside a script with its place, once or twice,
 * and leave the '-' of the protocol there:
 * "ERR Error running script (call to f_SHA1): @user_script:3: @user_script: 3: -READONLY
 * You can't ...".
 * An error that the script returns has only "@user_script: 3: " before it.
 * Redis 7 and Valkey append it: "READONLY You can't ... script: SHA1, on @user_script:3." */
static const char *unwrapped(const char *error)
{
    static const char wrapper[] = "ERR Error running script";
    static const char discarded[] = "EXECABORT Transaction discarded because of: ";
    if (strncmp(error, discarded, strlen(discarded)) == 0)
        return error + strlen(discarded);
    const char *text =
        strncmp(error, wrapper, strlen(wrapper)) == 0 ? strstr(error, ": @user_script:") : NULL;
    text = text != NULL ? text + 2 : error;
    if (strncmp(text, place, strlen(place)) != 0)
        return skip_repeated(text);
    for (const char *next = skip_place(text); next != NULL; next = skip_place(text))
        text = next;
    return skip_repeated(text + strspn(text, "@-"));
}

/* How long the text is without " script: SHA1, on @user_script:3." at its end. */
static size_t length_without_place(const char *text)
{
    static const char begin[] = " script: ", end[] = ", on @user_script:";
    for (const char *at = text; (at = strstr(at, begin)) != NULL; at++) {
        const char *sha1 = at + strlen(begin);
        if (strncmp(sha1 + strspn(sha1, "0123456789abcdef"), end, strlen(end)) == 0)
            return (size_t)(at - text);
    }
    return strlen(text);
}

void redis_error_text(const char *error, char *text, size_t size)
{
    error = unwrapped(error);
    snprintf(text, size, "%.*s", (int)length_without_place(error), error);
}

/* Servers before Redis 7.2 do not say which command of a script they refuse, and no
 * server says which command it does not know; they only name the line, "@user_script:31". */
bool redis_error_command(const char *error, const char *script, char *command, size_t size)
{
    const char *mark = NULL, *line = script, *call;
    for (const char *at = error; (at = strstr(at, place)) != NULL; at++)
        mark = at + strlen(place);
    if (mark == NULL)
        return false;
    for (long number = strtol(mark, NULL, 10); number > 1 && line != NULL; number--) {
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    call = line != NULL ? strstr(line, "call('") : NULL;
    if (call == NULL || memchr(line, '\n', (size_t)(call - line)) != NULL)
        return false;
    call += strlen("call('");
    snprintf(command, size, "%.*s", (int)strcspn(call, "'"), call);
    return true;
}

/* How long the code is that text begins with; 0: there is none. */
static size_t code_length(const char *text)
{
    size_t length = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return length > 1 && (text[length] == ' ' || text[length] == '\0') ? length : 0;
}

static bool error_has_code(const char *text, const char *code)
{
    size_t length = code_length(text);
    return length == strlen(code) && strncmp(text, code, length) == 0;
}

bool redis_error_is(const char *error, const char *code)
{
    return error_has_code(unwrapped(error), code);
}

bool redis_error_has_code(const char *error)
{
    const char *text = unwrapped(error);
    return code_length(text) > 0 && !error_has_code(text, "ERR");
}

static const char no_scripts[] = "it runs no scripts; if it is a Sentinel, use redis+sentinel://; ";
static const char of_cluster[] = "it is a node of a Cluster; use redis+cluster://; ";
static const char in_move[] = "the slot of the key is being moved; ";

/* The errors that are no passing trouble, or need a word for people: by their code, or by the words
 * that they begin with, if they have no code, or only "ERR". */
static const struct {
    enum lock_result result;
    bool is_code;
    const char *begin, *advice;
} meanings[] = {
    {LOCK_REFUSED, true, "NOAUTH", ""},
    {LOCK_REFUSED, true, "WRONGPASS", ""},
    {LOCK_REFUSED, true, "NOPERM", ""},
    {LOCK_REFUSED, true, "DENIED", ""},
    {LOCK_REFUSED, false, "invalid password", ""}, /* WRONGPASS before Redis 6 */
    {LOCK_REFUSED, false, "Client sent AUTH, but no password is set", ""}, /* Redis 5 */
    {LOCK_REFUSED, false, "AUTH <password> called without any password configured", ""},
    {LOCK_REFUSED, false, "The user executing the script can't", ""}, /* NOPERM inside a script */
    {LOCK_REFUSED, false, "ACL failure in script", ""},               /* the same since Redis 7.2 */
    /* Redis 5, which has no users. */
    {LOCK_REFUSED, false, "wrong number of arguments for 'auth'", ""},
    {LOCK_INVALID, true, "MOVED", of_cluster},
    {LOCK_INVALID, true, "ASK", of_cluster},
    {LOCK_INVALID, true, "CROSSSLOT", of_cluster},
    {LOCK_UNAVAILABLE, true, "TRYAGAIN", in_move},
    {LOCK_INVALID, false, "DB index is out of range", ""},
    {LOCK_INVALID, false, "invalid DB index", ""},
    {LOCK_INVALID, false, "SELECT is not allowed in cluster mode", ""},
    {LOCK_INVALID, false, "unknown command 'EVALSHA'", no_scripts},
    {LOCK_INVALID, false, "unknown command `EVALSHA`", no_scripts},
    {LOCK_INVALID, false, "unknown command", ""},
    {LOCK_INVALID, false, "unsupported command", ""},               /* Envoy */
    {LOCK_INVALID, false, "Unknown Redis command called from", ""}, /* the same inside a script */
    {LOCK_INVALID, false, "Unknown command called from", ""},       /* Valkey */
};

static bool begins_with(const char *text, const char *begin)
{
    return text != NULL && strncmp(text, begin, strlen(begin)) == 0;
}

enum lock_result redis_error_result(const char *error, struct errmsg *why)
{
    const char *text = unwrapped(error), *words = redis_error_has_code(error) ? NULL : text;
    if (error_has_code(text, "ERR"))
        words = text + strlen("ERR") + strspn(text + strlen("ERR"), " ");
    /* Before a login it accepts no command as long as ours, and has a different error for
     * that. */
    if (begins_with(words, "Protocol error: unauthenticated"))
        return errmsg_fail(why, LOCK_REFUSED,
                           "it requires a user and a password: NOAUTH Authentication required");
    size_t i = 0;
    while (i < sizeof meanings / sizeof *meanings &&
           !(meanings[i].is_code ? error_has_code(text, meanings[i].begin)
                                 : begins_with(words, meanings[i].begin)))
        i++;
    bool known = i < sizeof meanings / sizeof *meanings;
    errmsg_set(why, "%sit answered: %.400s", known ? meanings[i].advice : "",
               *error != '\0' ? skip_repeated(error) : "an error without a text");
    return known ? meanings[i].result : LOCK_UNAVAILABLE;
}
