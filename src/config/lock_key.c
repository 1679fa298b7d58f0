#include "config/lock_key.h"

#include "ui/report.h"
#include "util/fileutils.h"

#include <errno.h>

/* The secret stays in memory no longer than this call. */
static enum lock_result find_digest(char digest[LOCK_NAME_DIGEST_SIZE],
                                    const struct options *options, struct errmsg *why)
{
    enum { SECRET_LEAST = 16 };
    struct secret secret;
    char where[ORIGIN_TEXT_SIZE];
    if (options->hash == HASH_SHA256)
        return lock_name_digest(digest, options->name, NULL, why);
    enum lock_result result =
        secret_read(&secret, options->secret_file, why) ? LOCK_OK : secret_error_result(errno);
    if (result == LOCK_OK && secret.length < SECRET_LEAST) {
        errmsg_set(why, "%.300s: the secret has %zu bytes; it should have at least %d",
                   options->secret_file, secret.length, SECRET_LEAST);
        result = LOCK_INVALID;
    }
    if (result != LOCK_OK)
        errmsg_prefix(why, origin_format(OPT_SECRET_FILE, options->origins[OPT_SECRET_FILE], where,
                                         sizeof where));
    else
        result = lock_name_digest(digest, options->name, &secret, why);
    secret_wipe(&secret);
    return result;
}

enum lock_result lock_key_of(char key[LOCK_KEY_SIZE], const struct options *options,
                             struct errmsg *why)
{
    char digest[LOCK_NAME_DIGEST_SIZE];
    enum lock_result result =
        options->hash == HASH_NONE ? LOCK_OK : find_digest(digest, options, why);
    if (result == LOCK_OK)
        lock_key_make(key, options->prefix, options->hash == HASH_NONE ? options->name : digest);
    return result;
}

bool lock_key_find(char key[LOCK_KEY_SIZE], const struct options *options,
                   const struct messages *out, int *status)
{
    struct errmsg why = {""};
    enum lock_result result = lock_key_of(key, options, &why);
    if (result != LOCK_OK)
        *status = fail_result(out, result, &why);
    /* For files on this host names are no secret: ps(1) shows them. */
    else if (options->hash == HASH_SHA256 && options->redis != NULL &&
             options->backend != BACKEND_FILE)
        say_verbose(out, "anyone who reads the keys can guess names from a plain SHA-256; "
                         "--secret-file prevents that");
    return result == LOCK_OK;
}
