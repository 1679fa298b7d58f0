/* The URL, the login and the other settings of a Redis server.
 *
 * redis://[user[:password]@]host[:port][/db] or unix:///path[?db=N] (IANA's provisional
 * registration of "redis"); several hosts with commas between them in
 * redis+sentinel://.../master[/db] and redis+cluster://; with TLS rediss://,
 * rediss+sentinel:// and rediss+cluster://. */
#ifndef DLOCK_REDIS_URL_H
#define DLOCK_REDIS_URL_H

#include "lock/result.h"
#include "util/clock.h"

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
    REDIS_PASSWORD_SIZE = 4096, /* cloud providers' password tokens are several kilobytes long */
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
    size_t login_length;       /* of "user:password" in the text, after its "//" */
    const char *password_from; /* for messages: where redis_login_find() found it */
    bool is_of_sentinels;      /* the Sentinels' login, which is not in the URL */
    int database;
    char shown[384]; /* for messages: without user and password */
};

/* The settings other than the URL. The texts belong to the options, and live as long. */
struct redis_settings {
    struct duration timeout;         /* of one try: connecting, or one call */
    const char *cacert, *cert, *key; /* files of TLS; NULL: none */
    struct redis_tls *tls;     /* made from these settings; the backend owns it; NULL: no TLS */
    const char *password_file; /* NULL: none */
    const char *sentinel_password_file; /* NULL: none */
    int wait_replicas;                  /* how many replicas must confirm a take */
    bool one_of_several; /* a server of a quorum: dlock asks the others at the same time */
};

/* Which setting cannot be used. The caller knows where each setting comes from. */
enum redis_fault {
    REDIS_FAULT_NONE,
    REDIS_FAULT_URL,
    REDIS_FAULT_CACERT,
    REDIS_FAULT_CERT,
    REDIS_FAULT_KEY
};

/* --- places -------------------------------------------------------------- */

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

/* --- parsing ------------------------------------------------------------- */

/* Parses text; user, password and path are percent-decoded. A user without a password is accepted:
 * redis_login_find() judges it. False with *why set, which quotes no part of the text that may be a
 * password. */
bool redis_url_parse(struct redis_url *url, const char *text, struct errmsg *why);

struct redis_urls {
    struct redis_url *list;
    int count;
};

/* Parses one URL, or several with white space between them. LOCK_OK; LOCK_INVALID, LOCK_SYSTEM with
 * *why set as above. The caller calls redis_urls_free() in every case. */
enum lock_result redis_urls_parse(struct redis_urls *urls, const char *text, struct errmsg *why);
void redis_urls_free(struct redis_urls *urls);

/* --- the login ----------------------------------------------------------- */

/* If the URL has no password, takes the first available of: the file of --password-file, the
 * service's credential "dlock.password", REDISCLI_AUTH. Once there is a password, from any source,
 * this process no longer leaves a core file. LOCK_OK, with or without a password; LOCK_INVALID:
 * *why names a file that cannot be used, or *fault is REDIS_FAULT_URL: a user without a password;
 * LOCK_REFUSED: *why names a file that dlock has no permission to read; LOCK_SYSTEM. */
enum lock_result redis_login_find(struct redis_url *url, const struct redis_settings *settings,
                                  enum redis_fault *fault, struct errmsg *why);

/* Takes user and password from a file that holds USER:PASSWORD or PASSWORD.
 * LOCK_OK; LOCK_INVALID, LOCK_REFUSED as above. */
enum lock_result redis_login_read_pair(struct redis_url *url, const char *path, struct errmsg *why);

/* Returns the end of a message about a missing password. Inside another dlock, where the user may
 * wonder why the same command works outside, that end says that a password on the outer command
 * line is not passed on. Elsewhere it is "". */
const char *redis_login_hint(void);

/* --- hiding --------------------------------------------------------------
 *
 * These functions find the logins, "user:password@", in a text of URLs with white space between
 * them. If a word is no URL and the text has an "@", the whole text is hidden, and counts as a
 * password: it is better to hide too much than too little. */

/* True if the text contains a password. */
bool url_redact_has_password(const char *text);

/* Writes '*' over each login, and leaves the rest unchanged. */
void url_redact_logins(char *text);

/* Cuts each password out, leaving "//user@host" or "//host". Fills the rest of the text with
 * NULs. */
void url_redact_passwords(char *text);

#endif
