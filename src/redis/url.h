/* The URL, the login and the other settings of a Redis server. These URLs are valid:
 *
 *   redis://[user[:password]@]host[:port][/db]   one server (IANA's provisional registration)
 *   unix:///path[?db=N]                          one server on a Unix socket
 *   redis+sentinel://.../master[/db]             Sentinels, with commas between the hosts
 *   redis+cluster://...                          Cluster nodes, with commas between the hosts
 *
 * With TLS, the scheme is rediss, rediss+sentinel or rediss+cluster. The schemes valkey and valkeys
 * mean the same as redis and rediss. */
#ifndef DLOCK_REDIS_URL_H
#define DLOCK_REDIS_URL_H

#include "lock/result.h"
#include "util/clock.h"

#include <stdbool.h>
#include <stddef.h>

enum redis_topology { REDIS_ONE, REDIS_SENTINEL, REDIS_CLUSTER };

struct redis_endpoint {
    char host[256]; /* "" for a Unix socket; an IPv6 address has no brackets */
    char port[6];
    char path[108]; /* path of the Unix socket; as large as sun_path in unix(7) */
};

enum {
    REDIS_HOSTS_MOST = 16,
    REDIS_PASSWORD_SIZE = 4096, /* cloud providers' password tokens are several kilobytes long */
};

struct redis_url {
    enum redis_topology topology;
    bool tls;
    int host_count;
    struct redis_endpoint hosts[REDIS_HOSTS_MOST]; /* the server, Sentinels or Cluster nodes */
    char master[256];                              /* the name by which Sentinels know the master */
    char user[256];
    char password[REDIS_PASSWORD_SIZE];
    bool has_password;
    size_t login_length;       /* length of "user:password" in the URL's text */
    const char *password_from; /* for messages: where redis_login_find() found the password */
    bool is_of_sentinels;      /* the login is for the Sentinels, and is not in the URL */
    int database;
    char shown[384]; /* the URL without user and password, for messages */
};

/* All settings except the URL. The strings belong to the options, which must outlive this
 * struct. */
struct redis_settings {
    struct duration timeout;         /* for one attempt to connect, or for one call */
    const char *cacert, *cert, *key; /* files for TLS; NULL: none */
    struct redis_tls *tls;     /* made from these settings, owned by the backend; NULL: no TLS */
    const char *password_file; /* NULL: none */
    const char *sentinel_password_file; /* NULL: none */
    int wait_replicas;                  /* how many replicas must confirm an acquired lock */
    bool one_of_several; /* one server of a quorum: dlock asks all its servers at the same time */
};

/* Which setting cannot be used. The caller knows where each setting comes from. */
enum redis_fault {
    REDIS_FAULT_NONE,
    REDIS_FAULT_URL,
    REDIS_FAULT_CACERT,
    REDIS_FAULT_CERT,
    REDIS_FAULT_KEY
};

/* --- addresses of servers ------------------------------------------------ */

enum {
    ENDPOINT_TEXT_SIZE =
        sizeof((struct redis_endpoint *)0)->host + sizeof((struct redis_endpoint *)0)->port + 3
};

/* True if both have the same host, port and path. */
bool redis_endpoint_is(const struct redis_endpoint *a, const struct redis_endpoint *b);

/* Writes "host:port", with brackets around an IPv6 address. Returns text. */
const char *redis_endpoint_format(const struct redis_endpoint *at, char text[ENDPOINT_TEXT_SIZE]);

/* Puts "KIND HOST:PORT" before the text of *why. */
void redis_endpoint_blame(const struct redis_endpoint *at, const char *kind, struct errmsg *why);

/* --- parsing ------------------------------------------------------------- */

/* Parses the text of a URL, and percent-decodes user, password and path. Accepts a user without a
 * password, because redis_login_find() may find the password. False: *why is set, and quotes no
 * part of the text that may be a password. */
bool redis_url_parse(struct redis_url *url, const char *text, struct errmsg *why);

struct redis_urls {
    struct redis_url *list;
    int count;
};

/* Parses one URL, or several separated by white space. LOCK_OK; otherwise LOCK_INVALID or
 * LOCK_SYSTEM, with *why set as by redis_url_parse(). The caller calls redis_urls_free() in every
 * case. */
enum lock_result redis_urls_parse(struct redis_urls *urls, const char *text, struct errmsg *why);
void redis_urls_free(struct redis_urls *urls);

/* --- the login ----------------------------------------------------------- */

/* If the URL has no password, takes the password from the first of these that exists: the file of
 * --password-file, the service's credential "dlock.password", the variable REDISCLI_AUTH. If there
 * is a password, from any source, this process no longer leaves a core file. LOCK_OK, with or
 * without a password. LOCK_INVALID: *why names a file that cannot be used, or says that the URL
 * has a user but there is no password; in that case, *fault is REDIS_FAULT_URL. LOCK_REFUSED: *why
 * names a file that dlock has no permission to read. LOCK_SYSTEM. */
enum lock_result redis_login_find(struct redis_url *url, const struct redis_settings *settings,
                                  enum redis_fault *fault, struct errmsg *why);

/* Takes the user and the password from a file that contains USER:PASSWORD or PASSWORD. Returns
 * LOCK_OK; LOCK_INVALID or LOCK_REFUSED, as redis_login_find() does; or LOCK_SYSTEM if a system
 * call fails. */
enum lock_result redis_login_read_pair(struct redis_url *url, const char *path, struct errmsg *why);

/* Returns a hint for the end of a message about a missing password. Under another dlock, the hint
 * says that a password on the outer command line is not passed on. Otherwise the hint is "". */
const char *redis_login_hint(void);

/* --- hiding --------------------------------------------------------------
 *
 * These functions find the logins ("user:password@") in a text of URLs separated by white space. If
 * a word is not a URL and the text contains an "@", the functions treat the whole text as a
 * password and hide it, because it is better to hide too much than too little. */

/* True if the text contains a password. */
bool url_redact_has_password(const char *text);

/* Writes '*' over each login, and leaves the rest unchanged. */
void url_redact_logins(char *text);

/* Cuts out each password, which leaves "//user@host" or "//host". Fills the rest of the text with
 * NULs. */
void url_redact_passwords(char *text);

#endif
