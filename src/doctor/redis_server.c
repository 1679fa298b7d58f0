/* The checks of one Redis server: the server in the URL, the master that Sentinels name, or a node
 * of a Cluster. */
#include "doctor/doctor_int.h"

#include "redis/socket.h"
#include "redis/tls.h"
#include "store/redis/backend.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOW_MS = 100, SLOW_NAME_MS = 500, PINGS = 10 };

static const char firewall[] =
    "check that the server is running and that no firewall blocks the connection";

/* --- names --------------------------------------------------------------- */

static bool is_number(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

static void format_addresses(const struct addresses *addresses, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < addresses->count && used < size; i++) {
        char host[INET6_ADDRSTRLEN + IF_NAMESIZE] = "?";
        const struct address *address = &addresses->list[i];
        (void)getnameinfo((const struct sockaddr *)&address->at, address->size, host, sizeof host,
                          NULL, 0, NI_NUMERICHOST);
        int length = snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", host);
        used += length > 0 ? (size_t)length : 0;
    }
}

/* If the URL has several hosts, a host whose name cannot be resolved causes only a warning. */
static bool check_name(const struct server *server, const struct redis_endpoint *host)
{
    static const char advice[] = "use a name that DNS or hosts(5) knows";
    struct findings *findings = server->findings;
    struct bound share = bound_within(server->bound, server->settings->timeout);
    struct addresses addresses = {0};
    struct errmsg why = {""};
    char time[FINDINGS_TIME_SIZE], list[512];

    struct deadline start = deadline_now();
    enum lock_result result = redis_resolve(&addresses, host->host, host->port, share, &why);
    struct duration took = deadline_gap(start, deadline_now());
    if (result != LOCK_OK && result != LOCK_CANCELLED && server->url->host_count > 1) {
        findings_warn(findings, advice, "%s", why.text);
        return true;
    }
    if (!findings_served(findings, result, advice, &why))
        return false;

    format_addresses(&addresses, list, sizeof list);
    findings_add(findings, took.ns > SLOW_NAME_MS * NS_PER_MS ? FINDING_WARN : FINDING_OK,
                 "each run waits this long", "%s is %s (%s)", host->host, list,
                 findings_time(took, time));
    return true;
}

static bool check_names(struct server *server)
{
    const struct redis_url *url = server->url;
    for (int i = 0; i < url->host_count; i++)
        if (url->hosts[i].path[0] == '\0' && !is_number(url->hosts[i].host) &&
            !check_name(server, &url->hosts[i]))
            return false;
    return true;
}

/* --- which server -------------------------------------------------------- */

/* If a Sentinel does not answer, that is only a warning, because others may answer. If two
 * Sentinels name different masters, that is a failure, because two clients could then hold the same
 * lock. */
static bool check_sentinels(struct server *server)
{
    const struct redis_url *url = server->url;
    struct findings *findings = server->findings;
    char agreed[ENDPOINT_TEXT_SIZE] = "", text[ENDPOINT_TEXT_SIZE], master[ENDPOINT_TEXT_SIZE];

    for (int i = 0; url->topology == REDIS_SENTINEL && i < url->host_count; i++) {
        struct bound share = bound_within(server->bound, server->settings->timeout);
        struct errmsg why = {""};
        bool refuses;
        (void)redis_endpoint_format(&url->hosts[i], text);
        enum lock_result result =
            redis_backend_ask_sentinel(server->store, i, master, &refuses, share, &why);
        if (result == LOCK_CANCELLED)
            return false;
        if (result != LOCK_OK) {
            findings_warn(findings, firewall, "%s: %s", text, why.text);
            continue;
        }
        if (agreed[0] == '\0')
            memcpy(agreed, master, sizeof agreed);
        if (strcmp(agreed, master) != 0)
            findings_fail(findings, FINDING_UNTRUSTED,
                          "make all Sentinels agree on one master, by the same name or address "
                          "(SENTINEL RESET)",
                          "%s says that the master is %s; another Sentinel says %s", text, master,
                          agreed);
        else if (refuses)
            findings_warn(
                findings, "grant +subscribe and &+switch-master to the user at the Sentinel",
                "%s: the master is %s, but the Sentinel does not allow dlock to subscribe", text,
                master);
        else
            findings_good(findings, "%s: the master is %s", text, master);
    }
    return true;
}

static bool find_server(struct server *server)
{
    static const char *const names[] = {"one server", "the master that Sentinels name",
                                        "the node of a Cluster that has the key"};
    struct redis_endpoint at = server->url->hosts[0];
    struct errmsg why = {""};
    if (server->url->topology != REDIS_ONE &&
        !findings_served(
            server->findings,
            redis_backend_find(server->store, server->request->key, &at, server->bound, &why), NULL,
            &why))
        return false;
    findings_good(server->findings, "%s: %s%s%s%s", names[server->url->topology], at.path, at.host,
                  at.path[0] != '\0' ? "" : ", port ", at.port);
    redis_conn_go_to(&server->conn, &at);
    return true;
}

/* --- connection and login ------------------------------------------------ */

static bool connect_to(struct server *server)
{
    struct redis_conn *conn = &server->conn;
    struct findings *findings = server->findings;
    struct bound share = bound_within(server->bound, server->settings->timeout);
    struct errmsg why = {""};
    char time[FINDINGS_TIME_SIZE];
    enum lock_result result = LOCK_OK;

    if (conn->at.path[0] == '\0') /* look up the name first, so that the lookup is not measured */
        result = redis_resolve(&conn->addresses, conn->at.host, conn->at.port, share, &why);
    conn->look_up = server->bound.until;
    struct deadline start = deadline_now();
    if (result == LOCK_OK)
        result = redis_conn_open(conn, server->bound, &why);
    struct duration took = deadline_gap(start, deadline_now());
    if (!findings_served(findings, result, result == LOCK_UNAVAILABLE ? firewall : NULL, &why))
        return false;

    findings_add(findings, took.ns > SLOW_MS * NS_PER_MS ? FINDING_WARN : FINDING_OK,
                 "each run waits this long", "%s", findings_time(took, time));
    return true;
}

/* True if the traffic leaves this host. */
static bool is_remote(const struct redis_conn *conn)
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } peer = {{0}};
    socklen_t size = sizeof peer;
    if (getpeername(conn->socket.fd, &peer.any, &size) != 0)
        return false;
    if (peer.any.sa_family == AF_INET)
        return ntohl(peer.four.sin_addr.s_addr) >> 24 != IN_LOOPBACKNET;
    return peer.any.sa_family == AF_INET6 && !IN6_IS_ADDR_LOOPBACK(&peer.six.sin6_addr);
}

static bool has_password(const struct server *server)
{
    return server->url->has_password || server->settings->password_file != NULL;
}

static bool check_tls(struct server *server)
{
    enum { SOON_DAYS = 14 };
    struct findings *findings = server->findings;
    struct redis_tls_facts facts;

    if (server->conn.socket.tls == NULL) {
        bool sends = has_password(server);
        if (!is_remote(&server->conn))
            findings_good(findings, "not used; the connection does not leave this host");
        else
            findings_add(findings, sends ? FINDING_WARN : FINDING_NOTE, "use a rediss:// URL",
                         "not used: %sowner tokens can be read on the network",
                         sends ? "password and " : "");
        return true;
    }

    redis_tls_facts(server->conn.socket.tls, &facts);
    findings_good(findings, "%s, %s", facts.protocol, facts.cipher);
    findings->check = "certificate";
    findings_add(findings, facts.days < SOON_DAYS ? FINDING_WARN : FINDING_OK,
                 "renew the server's certificate in time",
                 "%s, by %s (%d certificate%s); the first expires in %d day%s", facts.subject,
                 facts.issuer, facts.certificates, facts.certificates == 1 ? "" : "s", facts.days,
                 facts.days == 1 ? "" : "s");
    return true;
}

/* Sends the first command on the connection. Its result also shows whether the server accepted the
 * greeting (such as AUTH and CLIENT SETNAME), which is sent before the command. If a proxy closes
 * the connection in reply to the greeting, dlock connects again and repeats the command, without
 * setting the client's name. */
static bool log_in(struct server *server)
{
    const struct redis_command whoami = redis_words("ACL", "WHOAMI");
    struct redis_conn *conn = &server->conn;
    struct errmsg why = {""};
    redisReply *reply;
    enum lock_result result = redis_conn_call(conn, &whoami, 1, &reply, server->bound, &why);
    if (result == LOCK_UNAVAILABLE && conn->nameless) {
        result = redis_conn_open(conn, server->bound, &why);
        if (result == LOCK_OK)
            result = redis_conn_call(conn, &whoami, 1, &reply, server->bound, &why);
    }
    if (result == LOCK_OK && reply->type == REDIS_REPLY_ERROR &&
        strstr(reply->str, "NOAUTH") != NULL) {
        (void)redis_error_result(reply->str, &why);
        freeReplyObject(reply);
        result = LOCK_REFUSED;
    }

    if (result == LOCK_UNAVAILABLE)
        server->findings->check = "answer";
    if (!findings_served(server->findings, result,
                         result == LOCK_REFUSED ? "use the user and password that the server knows"
                                                : NULL,
                         &why))
        return false;

    const char *user = server->url->user[0] != '\0' ? server->url->user : "default";
    bool open = !has_password(server) && server->settings->cert == NULL && is_remote(conn);
    findings_add(
        server->findings, open ? FINDING_WARN : FINDING_OK,
        "set a user and a password for dlock (dlock-redis(7))", "user %.200s%s",
        reply->type == REDIS_REPLY_STRING ? reply->str : user,
        open ? ", without a password: anyone who reaches this server can take any lock away" : "");
    freeReplyObject(reply);
    return true;
}

/* --- latency ------------------------------------------------------------- */

static int compare_durations(const void *a, const void *b)
{
    const struct duration *first = a, *second = b;
    return (first->ns > second->ns) - (first->ns < second->ns);
}

static bool check_latency(struct server *server)
{
    const struct redis_command command = redis_words("TIME");
    struct duration took[PINGS] = {{0}}; /* the time of each call */
    struct deadline enough = deadline_after(DURATION_S(1));
    int count = 0;
    while (count < PINGS && (count == 0 || !deadline_passed(enough))) {
        redisReply *reply;
        struct deadline start = deadline_now();
        if (!server_ask(server, &command, &reply))
            return false;
        took[count++] = deadline_gap(start, deadline_now());
        freeReplyObject(reply);
    }

    qsort(took, (size_t)count, sizeof took[0], compare_durations);
    char least[FINDINGS_TIME_SIZE], median[FINDINGS_TIME_SIZE], most[FINDINGS_TIME_SIZE];
    struct duration middle = took[count / 2];
    bool slow = middle.ns > SLOW_MS * NS_PER_MS || middle.ns > server->request->ttl.ns / 100;
    findings_add(server->findings, slow ? FINDING_WARN : FINDING_OK,
                 "use a longer --ttl, or a server with less latency",
                 "min %s, median %s, max %s of %d", findings_time(took[0], least),
                 findings_time(middle, median), findings_time(took[count - 1], most), count);
    return true;
}

/* --- all of them --------------------------------------------------------- */

/* The checks, from the cheapest to those that write to the server. Each check runs only if the
 * check before it returned true. If a check returns false, a row says why it is pointless to
 * continue. */
static const struct {
    const char *name;
    bool (*check)(struct server *server);
} checks[] = {
    {"name", check_names},
    {"sentinel", check_sentinels},
    {"topology", find_server},
    {"connect", connect_to},
    {"tls", check_tls},
    {"login", log_in},
    {"server", server_check_info},
    {"latency", check_latency},
    {"commands", server_check_access},
};

bool doctor_redis(struct backend *store, const struct lock_request *request,
                  struct findings *findings, struct bound bound)
{
    struct server server = {
        .store = store, .request = request, .findings = findings, .bound = bound};
    bool usable = true;
    redis_backend_shows(store, &server.url, &server.settings);
    redis_conn_init(&server.conn, server.url, server.settings);
    findings_section(findings, "redis", server.url->shown);
    for (size_t i = 0; usable && i < sizeof checks / sizeof *checks; i++) {
        findings->check = checks[i].name;
        usable = checks[i].check(&server);
    }
    redis_conn_free(&server.conn);
    return usable;
}
