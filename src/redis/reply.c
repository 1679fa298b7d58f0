#include "redis/reply.h"

#include "util/clock.h"
#include "util/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No expected reply reaches these limits. A reply with ten thousand holders has 170,000 elements,
 * and its arrays are nested three deep. */
enum {
    REPLY_MOST_ELEMENTS = 1 << 18, /* an element takes a few bytes in a reply, but 100 in memory */
    /* This is the limit of hiredis 0.14. hiredis 1.x has no limit, although it frees replies by
     * recursion. */
    REPLY_MOST_DEPTH = 7,
};

static int depth(const redisReadTask *task)
{
    int depth = 0;
    for (; task != NULL && depth <= REPLY_MOST_DEPTH; task = task->parent)
        depth++;
    return depth;
}

/* hiredis 0.14 would allocate as many elements as a reply claims to have. The limit is for all
 * arrays of a reply together, because each element may be another huge array. */
#if HIREDIS_MAJOR >= 1
static void *create_array(const redisReadTask *task, size_t elements)
#else
static void *create_array(const redisReadTask *task, int elements)
#endif
{
    struct redis_limits *limits = task->privdata;
    if (task->parent == NULL)
        limits->elements = 0;
    if ((size_t)elements > REPLY_MOST_ELEMENTS - limits->elements || depth(task) > REPLY_MOST_DEPTH)
        return NULL;
    limits->elements += (size_t)elements;
    return limits->hiredis_functions->createArray(task, elements);
}

redisReader *redis_reader_create(struct redis_limits *limits)
{
    redisReader *reader = redisReaderCreate();
    if (reader == NULL)
        return NULL;
    limits->hiredis_functions = reader->fn;
    limits->functions = *reader->fn;
    limits->functions.createArray = create_array;
    reader->fn = &limits->functions;
    reader->privdata = limits;
    return reader;
}

bool redis_reader_next(redisReader *reader, redisReply **reply)
{
    void *parsed = NULL;
    bool good = redisReaderGetReply(reader, &parsed) == REDIS_OK;
    *reply = parsed;
    return good;
}

bool redis_reader_has_only_messages(const redisReader *reader)
{
    static const char beginning[] = "*3\r\n$7\r\nmessage\r\n";
    size_t left = redis_reader_left(reader);
    size_t length = left < strlen(beginning) ? left : strlen(beginning);
    return length == 0 || memcmp(reader->buf + reader->pos, beginning, length) == 0;
}

bool redis_reply_is_message(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
           strcmp(redis_reply_text(reply->element[0]), "message") == 0 &&
           reply->element[1]->type == REDIS_REPLY_STRING;
}

bool redis_reply_is(const redisReply *reply, const char *word, size_t elements)
{
    return reply->elements == elements && reply->element[0]->len == strlen(word) &&
           strcmp(reply->element[0]->str, word) == 0;
}

/* Scripts send the fencing token, and other numbers that may not fit into an integer reply, as
 * text. */
bool redis_reply_number(const redisReply *element, int64_t least, int64_t most, int64_t *out)
{
    if (element->type == REDIS_REPLY_INTEGER) {
        *out = element->integer;
        return *out >= least && *out <= most;
    }
    *out = 0;
    return element->type == REDIS_REPLY_STRING &&
           (element->len == 0 ||
            (strlen(element->str) == element->len && number_parse(element->str, least, most, out)));
}

const char *redis_reply_text(const redisReply *element)
{
    return element->type == REDIS_REPLY_STRING ? element->str : "";
}

/* --- errors --------------------------------------------------------------
 *
 * Errors are recognized by the code, or by the words right after "ERR". Any text after that is
 * ignored, because it includes names of keys and hosts. */

static const char place[] = "@user_script:";

static bool begins(const char *text, const char *begin)
{
    return strncmp(text, begin, strlen(begin)) == 0;
}

/* Skips "@user_script:3: " or "@user_script: 3: "; NULL: the text does not begin with either. */
static const char *skip_place(const char *text)
{
    if (!begins(text, place))
        return NULL;
    text += strlen(place);
    text += strspn(text, " ");
    size_t length = strspn(text, "0123456789");
    return length > 0 && begins(text + length, ": ") ? text + length + 2 : NULL;
}

/* An error that a script has passed on may begin with several "ERR ". Skips all but the last. */
static const char *skip_repeated(const char *text)
{
    while (begins(text, "ERR ERR "))
        text += strlen("ERR ");
    return text;
}

/* Skips the position in a script ("@user_script:3") before an error. Redis 5 and 6 put the position
 * before the error of a call inside a script, once or twice, and keep the '-' of the protocol:
 * "ERR Error running script (call to f_SHA1): @user_script:3: @user_script: 3: -READONLY
 * You can't ...".
 * If the script itself returns the error, only "@user_script: 3: " precedes the error.
 * Redis 7 and Valkey append the position:
 * "READONLY You can't ... script: SHA1, on @user_script:3." */
static const char *unwrapped(const char *error)
{
    static const char discarded[] = "EXECABORT Transaction discarded because of: ";
    if (begins(error, discarded))
        return error + strlen(discarded);

    const char *text = error;
    const char *in_script = strstr(error, ": @user_script:");
    if (begins(error, "ERR Error running script") && in_script != NULL)
        text = in_script + strlen(": ");
    if (!begins(text, place))
        return skip_repeated(text);
    for (const char *next = skip_place(text); next != NULL; next = skip_place(text))
        text = next;
    return skip_repeated(text + strspn(text, "@-"));
}

/* The length of the text without " script: SHA1, on @user_script:3." at its end. */
static size_t length_without_place(const char *text)
{
    static const char begin[] = " script: ", end[] = ", on @user_script:";
    for (const char *at = text; (at = strstr(at, begin)) != NULL; at++) {
        const char *sha1 = at + strlen(begin);
        if (begins(sha1 + strspn(sha1, "0123456789abcdef"), end))
            return (size_t)(at - text);
    }
    return strlen(text);
}

void redis_error_text(const char *error, char *text, size_t size)
{
    error = unwrapped(error);
    snprintf(text, size, "%.*s", (int)length_without_place(error), error);
}

/* If a script calls a command that the server refuses or does not know, the error often names only
 * the line of the script, as "@user_script:31". (Redis 7.2 and later do name a command that they
 * refuse.) So the command is read from that line. */
bool redis_error_command(const char *error, const char *script, char *command, size_t size)
{
    const char *mark = NULL;
    for (const char *at = error; (at = strstr(at, place)) != NULL; at++)
        mark = at + strlen(place);
    if (mark == NULL)
        return false;

    const char *line = script;
    for (long number = strtol(mark, NULL, 10); number > 1 && line != NULL; number--) {
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    const char *call = line != NULL ? strstr(line, "call('") : NULL;
    if (call == NULL || memchr(line, '\n', (size_t)(call - line)) != NULL)
        return false;
    call += strlen("call('");
    snprintf(command, size, "%.*s", (int)strcspn(call, "'"), call);
    return true;
}

/* The length of the code at the beginning of the text; 0: there is none. */
static size_t code_length(const char *text)
{
    size_t length = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return length > 1 && (text[length] == ' ' || text[length] == '\0') ? length : 0;
}

static bool has_code(const char *text, const char *code)
{
    return code_length(text) == strlen(code) && begins(text, code);
}

bool redis_error_is(const char *error, const char *code)
{
    return has_code(unwrapped(error), code);
}

bool redis_error_has_code(const char *error)
{
    const char *text = unwrapped(error);
    return code_length(text) > 0 && !has_code(text, "ERR");
}

static const char no_scripts[] =
    "; the server runs no scripts; for a Sentinel, use redis+sentinel://";
static const char of_cluster[] = "; the server is a node of a Cluster; use redis+cluster://";
static const char in_move[] = "; the slot of the key is being moved";

/* The errors that a retry cannot fix, or that need advice for people. An error is recognized by its
 * code or, if it has no code or only "ERR", by its first words. */
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
    {LOCK_REFUSED, false, "ACL failure in script", ""}, /* NOPERM in a script, Redis 7.2 */
    /* Redis 5 has no users, so it refuses AUTH with a user and a password. */
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
    {LOCK_INVALID, false, "Unknown Redis command called from", ""}, /* a command in a script */
    {LOCK_INVALID, false, "Unknown command called from", ""},       /* Valkey */
};

enum lock_result redis_error_result(const char *error, struct errmsg *why)
{
    const char *text = unwrapped(error);
    const char *words = redis_error_has_code(error) ? "" : text;
    if (has_code(text, "ERR"))
        words = text + strlen("ERR") + strspn(text + strlen("ERR"), " ");
    /* Before the login, the server accepts only short commands, and answers a longer one with this
     * error. */
    if (begins(words, "Protocol error: unauthenticated"))
        return errmsg_fail(
            why, LOCK_REFUSED,
            "the server requires a user and a password: NOAUTH Authentication required");

    enum lock_result result = LOCK_UNAVAILABLE;
    const char *advice = "";
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        const char *begin = meanings[i].begin;
        if (meanings[i].is_code ? has_code(text, begin) : begins(words, begin)) {
            result = meanings[i].result;
            advice = meanings[i].advice;
            break;
        }
    }
    return errmsg_fail(why, result, "the server answered: %.400s%s",
                       *error != '\0' ? skip_repeated(error) : "an error without a text", advice);
}

/* --- explaining a refusal ------------------------------------------------ */

static bool says(const char *error, const char *words)
{
    return strstr(error, words) != NULL;
}

/* Drops all arguments in "ERR unknown command 'AUTH', with args beginning with: 'user' 'password'",
 * because the server may have truncated the password. In other errors, hides only the complete
 * password. A very short password is not hidden, because it could be part of a word such as
 * "unknown". */
void redis_error_hide_login(const struct redis_url *url, char *error)
{
    enum { PASSWORD_LEAST = 4 };
    struct errmsg ignored = {""};
    size_t length = strlen(url->password);
    char *words = strstr(error, ", with args beginning with");
    if (words != NULL)
        *words = '\0';
    if (length < PASSWORD_LEAST || redis_error_result(error, &ignored) == LOCK_REFUSED)
        return;
    for (char *at = error + strcspn(error, " "); (at = strstr(at, url->password)) != NULL;
         at += length)
        memset(at, '*', length);
}

static void explain_permission(const char *user, const char *script, const char *keys,
                               const char *error, struct errmsg *why)
{
    char what[512] = "", command[32], answer[250];
    if (keys != NULL && (says(error, " a key") || says(error, " the keys")))
        snprintf(what, sizeof what, " (missing: the keys %s)", keys);
    else if (script != NULL && !says(error, "' command") &&
             redis_error_command(error, script, command, sizeof command))
        snprintf(what, sizeof what, " (missing: the command %s)", command);
    redis_error_text(error, answer, sizeof answer);
    errmsg_set(why,
               "the server refuses the user %.60s%.200s: %s; dlock-redis(7) lists the permissions "
               "that dlock needs",
               user, what, answer);
}

void redis_error_explain(const struct redis_url *url, const char *script, const char *keys,
                         const char *error, struct errmsg *why)
{
    const char *user = *url->user != '\0' ? url->user : "default";
    bool wants_login = says(error, "NOAUTH") || says(error, "unauthenticated");
    if (says(error, "wrong number of arguments for 'auth'"))
        errmsg_set(why,
                   "the server does not support users (Redis before 6.0): %.200s; remove the user "
                   "%.60s from "
                   "the URL",
                   error, user);
    else if (says(error, "no password is set") || says(error, "without any password"))
        errmsg_set(why, "the server requires no password, but %.200s has one: %.300s",
                   url->password_from, error);
    else if (says(error, "WRONGPASS") || says(error, "invalid password"))
        errmsg_set(why, "the server refuses the user %.60s with the password from %.200s: %.300s",
                   user, url->password_from, error);
    else if (wants_login && url->is_of_sentinels && !url->has_password)
        errmsg_set(why, "the Sentinel requires its own password: NOAUTH Authentication "
                        "required; use --sentinel-password-file");
    else if (wants_login)
        errmsg_set(why,
                   "the server requires a password, but none is configured: NOAUTH Authentication "
                   "required; set the password in the URL, --password-file, the systemd credential "
                   "dlock.password or the variable REDISCLI_AUTH%s",
                   redis_login_hint());
    else
        explain_permission(user, script, keys, error, why);
}

enum lock_result redis_error_judge(const struct redis_url *url, const char *error,
                                   struct errmsg *why)
{
    enum lock_result result = redis_error_result(error, why);
    if (result == LOCK_REFUSED)
        redis_error_explain(url, NULL, NULL, error, why);
    return result;
}
