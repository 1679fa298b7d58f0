/* The files of TLS: the trusted issuers, and our certificate. */
#ifndef DLOCK_REDIS_TLS_CERTS_H
#define DLOCK_REDIS_TLS_CERTS_H

#include "lock/result.h"
#include "redis/settings.h"
#include "util/dl_openssl.h"

/* Reads the files that the settings name. LOCK_OK; LOCK_INVALID: *fault says which
 * setting cannot be used; LOCK_REFUSED: a file may not be read; LOCK_SYSTEM. */
enum lock_result redis_tls_load_files(SSL_CTX *context, const struct redis_settings *settings,
                                      enum redis_fault *fault, struct errmsg *why);

#endif
