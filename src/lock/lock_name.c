#include "lock/lock_name.h"

#include "util/dl_openssl.h"
#include "util/text.h"

#include <stdio.h>
#include <string.h>
#include <uuid/uuid.h>

bool lock_name_valid(const char *name, const char *what, struct errmsg *why)
{
    size_t size = strlen(name);

    if (size == 0) {
        errmsg_set(why, "%s is empty", what);
        return false;
    }
    if (size > LOCK_NAME_MAX) {
        errmsg_set(why, "%s is %zu bytes long; at most %d are allowed", what, size, LOCK_NAME_MAX);
        return false;
    }
    for (size_t at = 0; at < size;) {
        size_t length = utf8_length(name + at, size - at);
        if (length == 0) {
            errmsg_set(why, "%s '%.200s' is not valid UTF-8 at byte %zu", what, name, at + 1);
            return false;
        }
        if (utf8_is_control(name + at, length)) {
            errmsg_set(why, "%s '%.200s' has a control character at byte %zu", what, name, at + 1);
            return false;
        }
        at += length;
    }
    return true;
}

void lock_key_make(char key[LOCK_KEY_SIZE], const char *prefix, const char *name)
{
    snprintf(key, LOCK_KEY_SIZE, "%s%s", prefix, name);
}

/* Finds the hash tag: the first '{', the next '}', and the text between them, from which Redis
 * Cluster computes the slot. Returns the length with the braces, or 0 if there is no tag or the tag
 * is empty. */
static size_t hash_tag(const char *key, const char **tag)
{
    const char *open = strchr(key, '{'), *close = open != NULL ? strchr(open, '}') : NULL;
    *tag = open;
    return close != NULL && close > open + 1 ? (size_t)(close - open) + 1 : 0;
}

void lock_key_companion(char *companion, size_t size, const char *key, const char *part)
{
    const char *tag;
    size_t length = hash_tag(key, &tag);

    if (length > 0)
        snprintf(companion, size, "%.*s%s:%s", (int)length, tag, key, part);
    else
        snprintf(companion, size, "{%s}:%s", key, part);
}

void lock_file_name(char name[LOCK_FILE_NAME_SIZE], const char *key)
{
    static const char suffix[] = ".lock";
    /* A leading dot is encoded, so that no lock's name collides with dlock's own files. */
    const char *dot = *key == '.' ? "%2E" : "";
    char coded[3 * LOCK_KEY_SIZE];
    size_t length = percent_encode(coded, sizeof coded, key + (*dot != '\0'), "/");
    if (strlen(dot) + length + sizeof suffix <= LOCK_FILE_NAME_SIZE) {
        snprintf(name, LOCK_FILE_NAME_SIZE, "%s%.*s%s", dot, (int)length, coded, suffix);
        return;
    }
    uuid_t digest;
    char digest_text[UUID_STR_LEN];
    uuid_generate_sha1(digest, *uuid_get_template("oid"), key, strlen(key));
    uuid_unparse_lower(digest, digest_text);
    /* Cuts only between characters, so that the name stays valid UTF-8, and never within an escape
     * (%XX). */
    size_t head = LOCK_FILE_NAME_SIZE - sizeof suffix - UUID_STR_LEN - strlen(dot);
    while (head > 0 && ((unsigned char)coded[head] & 0xC0) == 0x80)
        head--;
    if (head > 2 && coded[head - 1] == '%')
        head--;
    else if (head > 2 && coded[head - 2] == '%')
        head -= 2;
    snprintf(name, LOCK_FILE_NAME_SIZE, "%s%.*s~%s%s", dot, (int)head, coded, digest_text, suffix);
}

enum { DIGEST_BYTES = (LOCK_NAME_DIGEST_SIZE - 1) / 2 };

static bool compute_digest(unsigned char bytes[EVP_MAX_MD_SIZE], const char *name,
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

enum lock_result lock_name_digest(char digest[LOCK_NAME_DIGEST_SIZE], const char *name,
                                  const struct secret *secret, struct errmsg *why)
{
    unsigned char bytes[EVP_MAX_MD_SIZE];

    if (!openssl_open(OPENSSL_CRYPTO, why))
        return LOCK_INVALID;
    if (!compute_digest(bytes, name, secret)) {
        errmsg_set(why, "OpenSSL provides no SHA-256");
        return LOCK_SYSTEM;
    }
    for (size_t i = 0; i < DIGEST_BYTES; i++)
        snprintf(digest + 2 * i, 3, "%02x", bytes[i]);
    return LOCK_OK;
}

bool lock_name_is_digest(const char *text)
{
    return strlen(text) == LOCK_NAME_DIGEST_SIZE - 1 &&
           strspn(text, "0123456789abcdef") == LOCK_NAME_DIGEST_SIZE - 1;
}

/* --- owner tokens ---------------------------------------------------------- */

void token_make(char token[TOKEN_SIZE])
{
    uuid_t uuid;
    uuid_generate_random(uuid);
    uuid_unparse_lower(uuid, token);
}

bool token_valid(const char *token, struct errmsg *why)
{
    size_t length = strlen(token);

    if (length == 0 || length >= TOKEN_SIZE) {
        errmsg_set(why, "%zu bytes long; 1 to %d are allowed", length, TOKEN_SIZE - 1);
        return false;
    }
    for (const char *c = token; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~') {
            errmsg_set(why, "only printable ASCII characters other than spaces are allowed");
            return false;
        }
    }
    /* In Redis, the value of a shared lock's key begins with this text, so no token may begin with
     * it. */
    static const char shared[] = "dlock:shared";
    if (strncmp(token, shared, strlen(shared)) == 0) {
        errmsg_set(why, "this text is reserved for shared locks and cannot be an owner token");
        return false;
    }
    return true;
}
