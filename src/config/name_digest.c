#include "config/name_digest.h"

#include "util/dl_openssl.h"

#include <stdio.h>
#include <string.h>

enum { DIGEST_BYTES = (NAME_DIGEST_SIZE - 1) / 2 };

static bool compute(unsigned char bytes[EVP_MAX_MD_SIZE], const char *name, const struct secret *secret)
{
    const struct openssl *crypto = openssl();
    const EVP_MD *sha256 = crypto->EVP_sha256();
    unsigned length = 0;
    bool done;
    if (secret == NULL)
        done = crypto->EVP_Digest(name, strlen(name), bytes, &length, sha256, NULL) == 1;
    else
        done = crypto->HMAC(sha256, secret->bytes, (int)secret->length, (const unsigned char *)name, strlen(name), bytes,
                            &length) != NULL;
    return done && length == DIGEST_BYTES;
}

enum lock_result name_digest(char digest[NAME_DIGEST_SIZE], const char *name, const struct secret *secret, struct why *why)
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    enum lock_result result = openssl_open(OPENSSL_CRYPTO, why);
    if (result != LOCK_OK)
        return result;
    if (!compute(bytes, name, secret)) {
        why_set(why, "OpenSSL gives no SHA-256");
        return LOCK_SYSTEM;
    }
    for (size_t i = 0; i < DIGEST_BYTES; i++)
        snprintf(digest + 2 * i, 3, "%02x", bytes[i]);
    return LOCK_OK;
}

bool name_is_digest(const char *text)
{
    return strlen(text) == NAME_DIGEST_SIZE - 1 && strspn(text, "0123456789abcdef") == NAME_DIGEST_SIZE - 1;
}
