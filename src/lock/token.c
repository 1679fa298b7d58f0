#include "lock/token.h"

#include <string.h>
#include <uuid/uuid.h>

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
        errmsg_set(why, "it is %zu bytes long; 1 to %d are allowed", length, TOKEN_SIZE - 1);
        return false;
    }
    for (const char *c = token; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~') {
            errmsg_set(why, "only printable ASCII characters without spaces are allowed");
            return false;
        }
    }
    /* The value of the plain key while several share the lock. */
    static const char shared[] = "dlock:shared";
    if (strncmp(token, shared, strlen(shared)) == 0) {
        errmsg_set(why, "this text marks a shared lock and cannot be an owner token");
        return false;
    }
    return true;
}
