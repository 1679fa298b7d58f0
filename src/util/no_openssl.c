/* Replaces util/dl_openssl.c in a static build, which cannot load a library. */
#include "util/dl_openssl.h"

const struct openssl *openssl(void)
{
    static const struct openssl none;
    return &none;
}

bool openssl_open(enum openssl_part part, struct errmsg *why)
{
    errmsg_set(
        why,
        "%s needs OpenSSL, which this static build of dlock (--enable-static-binary) cannot load; "
        "a build with shared libraries can",
        part == OPENSSL_TLS ? "TLS" : "a hashed name");
    return false;
}
