#include "redis/login.h"

#include "lock/lock_name.h"
#include "redis/error.h"
#include "util/secret_file.h"
#include "util/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char credential[] = "dlock.password", variable[] = "REDISCLI_AUTH";

/* --- finding the password ------------------------------------------------ */

static enum lock_result read_password(struct redis_url *url, const char *path, struct errmsg *why)
{
    struct secret secret;
    enum lock_result result =
        secret_read(&secret, path, why) ? LOCK_OK : secret_error_result(errno);
    if (result == LOCK_OK && memchr(secret.bytes, '\0', secret.length) != NULL) {
        result = errmsg_fail(why, LOCK_INVALID, "%.300s: there is a NUL in it", path);
    } else if (result == LOCK_OK && secret.length >= sizeof url->password) {
        result = errmsg_fail(why, LOCK_INVALID, "%.300s: it is too long for a password", path);
    }
    if (result == LOCK_OK)
        memcpy(url->password, secret.bytes,
               secret.length); /* the rest is NULs: redis_url_parse() */
    else
        errmsg_kind(why, "the password file");
    url->has_password = result == LOCK_OK;
    secret_wipe(&secret);
    return result;
}

/* systemd.exec(5), LoadCredential= */
static enum lock_result read_credential(struct redis_url *url, struct errmsg *why)
{
    char path[4096];
    const char *directory = getenv("CREDENTIALS_DIRECTORY");
    if (directory == NULL || *directory != '/')
        return LOCK_OK;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, credential) >= sizeof path ||
        access(path, F_OK) != 0)
        return LOCK_OK; /* the service has others */
    url->password_from = "the credential dlock.password";
    return read_password(url, path, why);
}

static enum lock_result login_read_variable(struct redis_url *url, struct errmsg *why)
{
    const char *text = getenv(variable);
    if (text == NULL || *text == '\0')
        return LOCK_OK;
    if (strlen(text) >= sizeof url->password)
        return errmsg_fail(why, LOCK_INVALID, "%s: it is too long for a password", variable);
    text_copy(url->password, sizeof url->password, text);
    url->password_from = variable;
    url->has_password = true;
    return LOCK_OK;
}

static enum lock_result login_find(struct redis_url *url, const struct redis_settings *settings,
                                   struct errmsg *why)
{
    enum lock_result result;
    url->password_from = "the URL";
    if (url->has_password)
        return LOCK_OK;
    if (settings->password_file != NULL) {
        url->password_from = settings->password_file;
        return read_password(url, settings->password_file, why);
    }
    result = read_credential(url, why);
    if (result == LOCK_OK && !url->has_password)
        result = login_read_variable(url, why);
    return result;
}

/* For a nested dlock: its user may wonder why the same works outside. */
static const char *hint(void)
{
    return getenv("DLOCK_HELD") != NULL
               ? " (a password on the command line of the dlock around it is not passed on)"
               : "";
}

/* A password with a colon in it needs a user, or a colon before it. */
enum lock_result redis_login_read_pair(struct redis_url *url, const char *path, struct errmsg *why)
{
    char user[sizeof url->user] = "";
    enum lock_result result = read_password(url, path, why);
    char *colon = strchr(url->password, ':');
    if (result != LOCK_OK)
        return result;
    url->password_from = path;
    if (colon == NULL)
        return secret_leave_no_core(why) ? LOCK_OK : LOCK_SYSTEM;
    size_t length = (size_t)(colon - url->password), rest = strlen(colon + 1);
    if (length >= sizeof user || rest == 0)
        return errmsg_fail(why, LOCK_INVALID, "the password file %.300s: %s", path,
                           rest == 0 ? "the password is empty" : "the user is too long");
    memcpy(user, url->password, length);
    memcpy(url->user, user, sizeof user);
    memmove(url->password, colon + 1, rest);
    explicit_bzero(url->password + rest, length + 1);
    return secret_leave_no_core(why) ? LOCK_OK : LOCK_SYSTEM;
}

enum lock_result redis_login_find(struct redis_url *url, const struct redis_settings *settings,
                                  enum redis_fault *fault, struct errmsg *why)
{
    *fault = REDIS_FAULT_NONE;
    enum lock_result result = login_find(url, settings, why);
    if (result != LOCK_OK)
        return result;
    *fault = REDIS_FAULT_URL;
    if (!url->has_password && *url->user != '\0')
        return errmsg_fail(
            why, LOCK_INVALID,
            "there is a user but no password: redis://USER:PASSWORD@HOST, --password-file, "
            "the credential %s or %s can set one%s",
            credential, variable, hint());
    return !url->has_password || secret_leave_no_core(why) ? LOCK_OK : LOCK_SYSTEM;
}

/* --- explaining a refusal ------------------------------------------------ */

static bool says(const char *error, const char *words)
{
    return strstr(error, words) != NULL;
}

/* "ERR unknown command 'AUTH', with args beginning with: 'user' 'password'", in which a
 * long password is cut short. Other errors are searched only for a complete password; one
 * of few bytes is found in any text, and may be a part of "unknown". */
void redis_login_hide(const struct redis_url *url, char *error)
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

static void explain_permission(const char *user, const char *script, const char *key,
                               const char *error, struct errmsg *why)
{
    static const char advice[] = "; dlock-redis(7) lists the permissions";
    char what[2 * LOCK_KEY_SIZE] = "", command[32], companions[2 * LOCK_KEY_SIZE], answer[250];
    if (key != NULL && (says(error, " a key") || says(error, " the keys"))) {
        lock_key_companion(companions, sizeof companions, key, "*");
        snprintf(what, sizeof what, ", which needs the keys %.80s and %.80s", key, companions);
    } else if (script != NULL && !says(error, "' command") &&
               redis_error_command(error, script, command, sizeof command)) {
        snprintf(what, sizeof what, ", which needs the command %s", command);
    }
    redis_error_text(error, answer, sizeof answer);
    errmsg_set(why, "it refuses the user %.60s%s: it answered: %s%s", user, what, answer, advice);
}

void redis_login_explain(const struct redis_url *url, const char *script, const char *key,
                         const char *error, struct errmsg *why)
{
    const char *user = *url->user != '\0' ? url->user : "default";
    if (says(error, "wrong number of arguments for 'auth'")) {
        errmsg_set(why,
                   "it knows no users (Redis before 6.0); leave the user %.60s out of the URL; "
                   "it answered: %.200s",
                   user, error);
    } else if (says(error, "no password is set") || says(error, "without any password")) {
        errmsg_set(why, "it requires no password, but %.200s has one: it answered: %.300s",
                   url->password_from, error);
    } else if (says(error, "WRONGPASS") || says(error, "invalid password")) {
        errmsg_set(why,
                   "it refuses the user %.60s with the password of %.200s: it answered: %.300s",
                   user, url->password_from, error);
    } else if (url->is_of_sentinels && !url->has_password &&
               (says(error, "NOAUTH") || says(error, "unauthenticated"))) {
        errmsg_set(why, "it requires its own password: it answered: NOAUTH Authentication "
                        "required; use --sentinel-password-file");
    } else if (says(error, "NOAUTH") || says(error, "unauthenticated")) {
        errmsg_set(
            why,
            "it requires a password, and none is configured: it answered: NOAUTH Authentication "
            "required; set it in the URL, --password-file, the credential %s or %s%s",
            credential, variable, hint());
    } else {
        explain_permission(user, script, key, error, why);
    }
}

enum lock_result redis_login_error(const struct redis_url *url, const char *error,
                                   struct errmsg *why)
{
    enum lock_result result = redis_error_result(error, why);
    if (result == LOCK_REFUSED)
        redis_login_explain(url, NULL, NULL, error, why);
    return result;
}
