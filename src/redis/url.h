/* The address of Redis: redis://[user[:password]@]host[:port][/db] or unix:///path[?db=N]
 * (IANA's provisional registration of "redis"); several hosts with commas between them in
 * redis+sentinel://.../master[/db] and redis+cluster://; with TLS rediss://,
 * rediss+sentinel:// and rediss+cluster://. */
#ifndef DLOCK_REDIS_URL_H
#define DLOCK_REDIS_URL_H

#include "lock/result.h"

#include <stdbool.h>
#include <stddef.h>

enum redis_topology { REDIS_ONE, REDIS_SENTINEL, REDIS_CLUSTER };

struct redis_endpoint {
    char host[256]; /* "" with a Unix socket; an IPv6 address without its brackets */
    char port[6];
    char path[108]; /* of the Unix socket; as sun_path of unix(7) */
};

enum {
    REDIS_HOSTS_MOST = 16,
    REDIS_PASSWORD_SIZE = 4096, /* cloud providers' password tokens have several kilobytes */
};

struct redis_url {
    enum redis_topology topology;
    bool tls;
    int host_count;
    struct redis_endpoint hosts[REDIS_HOSTS_MOST]; /* server, Sentinels, or first Cluster nodes */
    char master[256];                              /* the master's name, known to the Sentinels */
    char user[256];
    char password[REDIS_PASSWORD_SIZE];
    bool has_password;
    size_t login_length;       /* of "user:password" in the text, behind its "//" */
    const char *password_from; /* for messages; redis_login_find() sets it */
    bool is_of_sentinels;      /* their login, which is not in the URL */
    int database;
    char shown[384]; /* for messages: without user and password */
};

enum {
    ENDPOINT_TEXT_SIZE =
        sizeof((struct redis_endpoint *)0)->host + sizeof((struct redis_endpoint *)0)->port + 3
};

/* True if both are the same place. */
bool redis_endpoint_is(const struct redis_endpoint *a, const struct redis_endpoint *b);

/* "host:port", with brackets around an IPv6 address. Returns text. */
const char *redis_endpoint_format(const struct redis_endpoint *at, char text[ENDPOINT_TEXT_SIZE]);

/* Puts "KIND HOST:PORT" before the text. */
void redis_endpoint_blame(const struct redis_endpoint *at, const char *kind, struct errmsg *why);

/* Parses text; user, password and path are percent-decoded. redis_login_find() judges a
 * user without a password. False with *why set, which never contains the text itself: it
 * may include a password. */
bool redis_url_parse(struct redis_url *url, const char *text, struct errmsg *why);

struct redis_urls {
    struct redis_url *list;
    int count;
};

/* Parses one URL, or several with white space between them. LOCK_OK; LOCK_INVALID,
 * LOCK_SYSTEM with *why set as above. redis_urls_free() in every case. */
enum lock_result redis_urls_parse(struct redis_urls *urls, const char *text, struct errmsg *why);
void redis_urls_free(struct redis_urls *urls);

#endif
