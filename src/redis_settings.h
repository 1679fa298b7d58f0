/* What is configured of Redis beside the URL. */
#ifndef DLOCK_REDIS_SETTINGS_H
#define DLOCK_REDIS_SETTINGS_H

#include "clock.h"

/* The texts are the options', and live as long. */
struct redis_settings {
    struct duration timeout;         /* of one try: connecting, or one call */
    const char *cacert, *cert, *key; /* files of TLS; NULL: none */
    const char *password_file;       /* NULL: none */
    int wait_replicas;               /* how many must have a take */
};

#endif
