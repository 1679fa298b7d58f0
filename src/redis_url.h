/* Where a Redis server is: redis://[user[:password]@]host[:port][/db] or
 * unix:///path[?db=N]. (IANA's provisional registration of "redis".) */
#ifndef DLOCK_REDIS_URL_H
#define DLOCK_REDIS_URL_H

#include "why.h"

#include <stdbool.h>

struct redis_url {
    char host[256]; /* "" with a Unix socket; an IPv6 address without its brackets */
    char port[6];
    char path[108]; /* of the Unix socket; as sun_path of unix(7) */
    char user[256];
    char password[512];
    bool has_password;
    int database;
    char shown[384]; /* for messages: without user and password */
};

/* Parses text; user, password and path are percent-decoded. False with *why
 * set, which never holds the text itself: a password may stand in it. */
bool redis_url_parse(struct redis_url *url, const char *text, struct why *why);

#endif
