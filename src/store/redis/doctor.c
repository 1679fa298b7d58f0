#include "store/redis/doctor.h"

#include "redis/socket.h"
#include "redis/tls.h"
#include "store/redis/scripts.h"
#include "store/redis/sentinel.h"
#include "store/redis/topology.h"
#include "util/text.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOW_MS = 100, SLOW_NAME_MS = 500, PINGS = 10 };

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

/* Of several hosts one may be down. */
static bool examine_name(const struct redis_endpoint *host, bool only, struct diagnostics *findings,
                         struct bound bound)
{
    struct addresses addresses = {0};
    struct errmsg why = {""};
    char time[FINDINGS_TIME_SIZE], list[512];
    struct deadline start = deadline_now();
    enum lock_result result = redis_resolve(&addresses, host->host, host->port, bound, &why);
    struct duration took = deadline_gap(start, deadline_now());
    static const char advice[] = "a name that DNS or hosts(5) knows";
    if (result != LOCK_OK && (only || result == LOCK_CANCELLED))
        return redis_patient_served(findings, result, "name", advice, &why);
    if (result != LOCK_OK) {
        diagnostics_add(findings, FINDING_WARN, "name", advice, "%s", why.text);
        return true;
    }
    format_addresses(&addresses, list, sizeof list);
    bool slow = took.ns > SLOW_NAME_MS * NS_PER_MS;
    diagnostics_add(findings, slow ? FINDING_WARN : FINDING_OK, "name", "each run waits for this",
                    "%s is %s (%s)", host->host, list, diagnostics_time(took, time));
    return true;
}

static bool examine_names(const struct redis_backend *redis, struct diagnostics *findings,
                          struct bound bound)
{
    const struct redis_url *url = &redis->url;
    for (int i = 0; i < url->host_count; i++) {
        struct bound share = bound_within(bound, redis->settings.timeout);
        if (url->hosts[i].path[0] == '\0' && !is_number(url->hosts[i].host) &&
            !examine_name(&url->hosts[i], url->host_count == 1, findings, share))
            return false;
    }
    return true;
}

/* --- connection and login ------------------------------------------------ */

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

static bool examine_connection(struct redis_patient *patient)
{
    struct errmsg why = {""};
    char time[FINDINGS_TIME_SIZE];
    struct redis_conn *conn = &patient->conn;
    struct diagnostics *findings = patient->findings;
    struct bound share = bound_within(patient->bound, patient->settings->timeout);
    enum lock_result result = LOCK_OK;
    if (conn->at.path[0] == '\0') /* separate, so that it is not counted */
        result = redis_resolve(&conn->addresses, conn->at.host, conn->at.port, share, &why);
    conn->look_up = patient->bound.until;
    struct deadline start = deadline_now();
    if (result == LOCK_OK)
        result = redis_conn_open(conn, patient->bound, &why);
    struct duration took = deadline_gap(start, deadline_now());
    if (!redis_patient_served(findings, result, "connect",
                              result == LOCK_UNAVAILABLE
                                  ? "is it running, and does a firewall allow the connection?"
                                  : NULL,
                              &why))
        return false;
    bool slow = took.ns > SLOW_MS * NS_PER_MS;
    diagnostics_add(findings, slow ? FINDING_WARN : FINDING_OK, "connect",
                    "each run waits for this", "%s", diagnostics_time(took, time));
    return true;
}

static void add_tls(struct diagnostics *findings, const struct redis_tls_session *session)
{
    enum { SOON_DAYS = 14 };
    struct redis_tls_facts facts;
    redis_tls_facts(session, &facts);
    diagnostics_add(findings, FINDING_OK, "tls", NULL, "%s, %s", facts.protocol, facts.cipher);
    diagnostics_add(findings, facts.days < SOON_DAYS ? FINDING_WARN : FINDING_OK, "certificate",
                    "a new certificate at the server, in time",
                    "%s, by %s (%d certificate%s); the first expires in %d day%s", facts.subject,
                    facts.issuer, facts.certificates, facts.certificates == 1 ? "" : "s",
                    facts.days, facts.days == 1 ? "" : "s");
}

static void examine_tls(struct redis_patient *patient)
{
    bool sends_password = patient->url->has_password || patient->settings->password_file != NULL;
    if (patient->conn.socket.tls != NULL)
        add_tls(patient->findings, patient->conn.socket.tls);
    else if (!is_remote(&patient->conn))
        diagnostics_add(patient->findings, FINDING_OK, "tls", NULL,
                        "not used; nothing leaves this host");
    else
        diagnostics_add(patient->findings, sends_password ? FINDING_WARN : FINDING_NOTE, "tls",
                        "a rediss:// URL", "not used: %sowner tokens can be read on the way",
                        sends_password ? "password and " : "");
}

/* The first call of the connection: it judges the greeting as well. A proxy may hang up at that:
 * then it is made once more. */
static bool examine_login(struct redis_patient *patient)
{
    const struct redis_command whoami = redis_words("ACL", "WHOAMI");
    struct diagnostics *findings = patient->findings;
    struct errmsg why = {""};
    redisReply *reply;
    enum lock_result result =
        redis_conn_call(&patient->conn, &whoami, 1, &reply, patient->bound, &why);
    if (result == LOCK_UNAVAILABLE && patient->conn.nameless) {
        result = redis_conn_open(&patient->conn, patient->bound, &why);
        if (result == LOCK_OK)
            result = redis_conn_call(&patient->conn, &whoami, 1, &reply, patient->bound, &why);
    }
    if (result == LOCK_OK && reply->type == REDIS_REPLY_ERROR &&
        strstr(reply->str, "NOAUTH") != NULL) {
        (void)redis_error_result(reply->str, &why);
        freeReplyObject(reply);
        result = LOCK_REFUSED;
    }
    if (!redis_patient_served(
            findings, result, result == LOCK_UNAVAILABLE ? "answer" : "login",
            result == LOCK_REFUSED ? "user and password as the server has them" : NULL, &why))
        return false;
    const char *user = patient->url->user[0] != '\0' ? patient->url->user : "default";
    bool known = reply->type == REDIS_REPLY_STRING;
    bool proven = patient->url->has_password || patient->settings->password_file != NULL ||
                  patient->settings->cert != NULL;
    bool open = !proven && is_remote(&patient->conn);
    diagnostics_add(
        findings, open ? FINDING_WARN : FINDING_OK, "login",
        "a user and a password for dlock (dlock-redis(7))", "user %.200s%s",
        known ? reply->str : user,
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

static bool examine_latency(struct redis_patient *patient)
{
    const struct redis_command command = redis_words("TIME");
    struct duration took[PINGS] = {{0}}; /* by each call */
    int count = 0;
    struct deadline enough = deadline_after(DURATION_S(1));
    while (count < PINGS && (count == 0 || !deadline_passed(enough))) {
        redisReply *reply;
        struct deadline start = deadline_now();
        if (!redis_patient_ask(patient, "latency", &command, &reply))
            return false;
        took[count++] = deadline_gap(start, deadline_now());
        freeReplyObject(reply);
    }
    qsort(took, (size_t)count, sizeof took[0], compare_durations);
    char least[FINDINGS_TIME_SIZE], median[FINDINGS_TIME_SIZE], most[FINDINGS_TIME_SIZE];
    struct duration middle = took[count / 2];
    bool slow = middle.ns > SLOW_MS * NS_PER_MS || middle.ns > patient->request->ttl.ns / 100;
    diagnostics_add(patient->findings, slow ? FINDING_WARN : FINDING_OK, "latency",
                    "a longer --ttl, or a server that is nearer", "min %s, median %s, max %s of %d",
                    diagnostics_time(took[0], least), diagnostics_time(middle, median),
                    diagnostics_time(took[count - 1], most), count);
    return true;
}

/* --- all of it ----------------------------------------------------------- */

/* Asks for the key, and follows redirections. A server that refuses to answer is assumed
 * to be the right one: the next rows report its refusals. */
static enum lock_result follow_key(struct redis_backend *redis, const char *key, struct bound bound,
                                   struct errmsg *why)
{
    const struct redis_command command = redis_words("GET", key);
    struct redis_detour detour = {.start = deadline_now()};
    enum lock_result result;
    bool led;
    do {
        redisReply *reply;
        led = false;
        result = redis_topology_open(redis, key, bound, why);
        if (result == LOCK_OK && redis->url.topology == REDIS_CLUSTER) {
            result = redis_conn_call(&redis->conn, &command, 1, &reply, bound, why);
            if (result != LOCK_OK)
                return redis->conn.greeting_failed ? LOCK_OK : result;
            led = reply->type == REDIS_REPLY_ERROR;
            if (led)
                result = redis_topology_judge(redis, key, reply->str, &detour, bound, why);
            freeReplyObject(reply);
        }
    } while (led && result == LOCK_OK);
    return led && (result == LOCK_REFUSED || result == LOCK_INVALID) ? LOCK_OK : result;
}

/* Finds the server that has the key. False: a row says why. */
static bool find_server(struct redis_backend *redis, const char *key, struct redis_endpoint *at,
                        struct diagnostics *findings, struct bound bound)
{
    static const char *const names[] = {"one server", "the master that Sentinels name",
                                        "the node of a Cluster that has the key"};
    struct errmsg why = {""};
    *at = redis->url.hosts[0];
    if (redis->url.topology != REDIS_ONE) {
        enum lock_result result = follow_key(redis, key, bound, &why);
        *at = redis->conn.at;
        if (redis->conn.greeting_failed)
            redis_conn_close(&redis->conn);
        if (!redis_patient_served(findings, result, "topology", NULL, &why))
            return false;
    }
    diagnostics_add(findings, FINDING_OK, "topology", NULL, "%s: %s%s%s%s",
                    names[redis->url.topology], at->path, at->host,
                    at->path[0] != '\0' ? "" : ", port ", at->port);
    return true;
}

/* From the cheapest to those that change something: each needs the one before. */
static bool examine_server(struct redis_patient *patient)
{
    if (!examine_connection(patient))
        return false;
    examine_tls(patient);
    if (!examine_login(patient) || !redis_doctor_info(patient) || !examine_latency(patient))
        return false;
    diagnostics_section(patient->findings, "permissions", NULL);
    return redis_doctor_access(patient);
}

bool redis_examine(struct backend *backend, const struct lock_request *request,
                   struct diagnostics *findings, struct bound bound)
{
    struct redis_backend *redis = redis_of(backend);
    struct redis_patient patient = {.url = &redis->url,
                                    .settings = &redis->settings,
                                    .request = request,
                                    .findings = findings,
                                    .bound = bound};
    struct redis_endpoint at;
    diagnostics_section(findings, "redis", redis->url.shown);
    if (!examine_names(redis, findings, bound))
        return false;
    redis_sentinel_examine(redis, findings, bound);
    if (!find_server(redis, request->key, &at, findings, bound))
        return false;
    redis_conn_init(&patient.conn, &redis->url, &redis->settings);
    redis_conn_go_to(&patient.conn, &at);
    bool usable = examine_server(&patient);
    redis_conn_free(&patient.conn);
    return usable;
}

void redis_forget(struct backend *backend, const char *key, struct bound bound)
{
    struct redis_backend *redis = redis_of(backend);
    struct redis_command command = redis_words("DEL");
    char(*companions)[COMPANION_SIZE] = redis->call->companions;
    struct errmsg ignored = {""};
    redisReply *reply;
    for (size_t i = 0; i < REDIS_COMPANIONS; i++) {
        redis_companion(companions[i], key, (int)i, "doctor");
        redis_command_add(&command, companions[i]);
    }
    if (redis_topology_open(redis, key, bound, &ignored) == LOCK_OK &&
        redis_subscribe_call(&redis->conn, &command, (struct redis_channels){0}, &reply, bound,
                             &ignored) == LOCK_OK)
        freeReplyObject(reply);
}

bool redis_patient_served(struct diagnostics *findings, enum lock_result result, const char *name,
                          const char *advice, const struct errmsg *why)
{
    if (result != LOCK_OK && result != LOCK_CANCELLED)
        diagnostics_fail(findings, (int)status_of(result), name, advice, "%s", why->text);
    return result == LOCK_OK;
}

bool redis_patient_ask(struct redis_patient *patient, const char *name,
                       const struct redis_command *command, redisReply **reply)
{
    struct errmsg why = {""};
    enum lock_result result =
        redis_conn_call(&patient->conn, command, 1, reply, patient->bound, &why);
    return redis_patient_served(patient->findings, result, name, NULL, &why);
}

void redis_patient_unknown(struct redis_patient *patient, const char *name, const redisReply *reply)
{
    diagnostics_add(patient->findings, FINDING_NOTE, name,
                    "the permissions for --doctor in dlock-redis(7)", "unknown: %.300s",
                    reply->type == REDIS_REPLY_ERROR ? reply->str : "the answer is not understood");
}
