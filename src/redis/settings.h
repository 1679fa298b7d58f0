/* The settings for Redis beside the URL. */
#ifndef DLOCK_REDIS_SETTINGS_H
#define DLOCK_REDIS_SETTINGS_H

#include "util/clock.h"

#include <stdbool.h>

/* The texts are the options', and live as long. */
struct redis_settings {
    struct duration timeout;         /* of one try: connecting, or one call */
    const char *cacert, *cert, *key; /* files of TLS; NULL: none */
    struct redis_tls *tls;     /* the result of these settings, the backend's own; NULL: no TLS */
    const char *password_file; /* NULL: none */
    const char *sentinel_password_file; /* NULL: none */
    int wait_replicas;                  /* how many must have a take */
    bool one_of_several;                /* others are asked at the same time */
};

/* The setting that cannot be used, for a caller that knows its source. */
enum redis_fault {
    REDIS_FAULT_NONE,
    REDIS_FAULT_URL,
    REDIS_FAULT_CACERT,
    REDIS_FAULT_CERT,
    REDIS_FAULT_KEY
};

#endif
