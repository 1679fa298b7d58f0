#include "config/lock_key.h"

#include "util/dl_openssl.h"
#include "util/error_code.h"
#include "util/secret_file.h"

#include <stdio.h>
#include <string.h>

/* For files on this host names are no secret: ps(1) shows them. */
static void say_guessable(const struct options *options, const struct messages *out)
{
    if (options->hash == HASH_SHA256 && options->redis != NULL && options->backend != BACKEND_FILE)
        say_verbose(out, "whoever reads the keys can guess names by a plain SHA-256; --secret-file "
                         "prevents that");
}

/* The secret stays in memory no longer than this call. */
static enum lock_result find_digest(char digest[NAME_DIGEST_SIZE], const struct options *options,
                                    struct errmsg *why)
{
    enum { SECRET_LEAST = 16 };
    struct secret secret;
    char where[ORIGIN_TEXT_SIZE];
    if (options->hash == HASH_SHA256)
        return name_digest(digest, options->name, NULL, why);
    enum lock_result result = secret_read(&secret, options->secret_file, why);
    if (result == LOCK_OK && secret.length < SECRET_LEAST) {
        errmsg_set(why, "%.300s: the secret has %zu bytes, and should have %d or more",
                   options->secret_file, secret.length, SECRET_LEAST);
        result = LOCK_INVALID;
    }
    if (result != LOCK_OK)
        errmsg_prefix(why, origin_format(OPT_SECRET_FILE, options->origins[OPT_SECRET_FILE], where,
                                         sizeof where));
    else
        result = name_digest(digest, options->name, &secret, why);
    secret_wipe(&secret);
    return result;
}

enum lock_result lock_key_of(char key[LOCK_KEY_SIZE], const struct options *options,
                             struct errmsg *why)
{
    char digest[NAME_DIGEST_SIZE];
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
    if (result == LOCK_OK)
        say_guessable(options, out);
    else
        *status = fail_result(out, result, &why);
    return result == LOCK_OK;
}

enum { DIGEST_BYTES = (NAME_DIGEST_SIZE - 1) / 2 };

static bool compute(unsigned char bytes[EVP_MAX_MD_SIZE], const char *name,
                    const struct secret *secret)
{
    const struct openssl *crypto = openssl();
    const EVP_MD *sha256 = crypto->EVP_sha256();
    unsigned length = 0;
    bool done;
    if (secret == NULL)
        done = crypto->EVP_Digest(name, strlen(name), bytes, &length, sha256, NULL) == 1;
    else
        done = crypto->HMAC(sha256, secret->bytes, (int)secret->length, (const unsigned char *)name,
                            strlen(name), bytes, &length) != NULL;
    return done && length == DIGEST_BYTES;
}

enum lock_result name_digest(char digest[NAME_DIGEST_SIZE], const char *name,
                             const struct secret *secret, struct errmsg *why)
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    enum lock_result result = openssl_open(OPENSSL_CRYPTO, why);
    if (result != LOCK_OK)
        return result;
    if (!compute(bytes, name, secret)) {
        errmsg_set(why, "OpenSSL gives no SHA-256");
        return LOCK_SYSTEM;
    }
    for (size_t i = 0; i < DIGEST_BYTES; i++)
        snprintf(digest + 2 * i, 3, "%02x", bytes[i]);
    return LOCK_OK;
}

bool name_is_digest(const char *text)
{
    return strlen(text) == NAME_DIGEST_SIZE - 1 &&
           strspn(text, "0123456789abcdef") == NAME_DIGEST_SIZE - 1;
}
