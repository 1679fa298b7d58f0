/* Uses INFO and CONFIG GET to check a server that keeps locks. Providers may rename CONFIG, and an
 * ACL may forbid both commands, so an unknown value is not a failure. */
#include "doctor/doctor_int.h"

#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELD_SIZE = 384 }; /* enough for the field of a replica, which contains a host name */

static const char not_in_info[] = "unknown: not in INFO";

/* What the server has reported. */
struct facts {
    const char *info;
    const char *save, *fsync, *min_replicas; /* settings; NULL: not known */
    const struct redis_url *url;
    int wait_replicas;
};

/* --- fields -------------------------------------------------------------- */

/* Finds the value in the line "name:value". If there is no such line, sets the value to "" and
 * returns false. */
static bool field(const char *info, const char *name, char value[FIELD_SIZE])
{
    size_t length = strlen(name);
    value[0] = '\0';
    for (const char *line = info; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) != 0 || line[length] != ':')
            continue;
        line += length + 1;
        size_t size = strcspn(line, "\r\n");
        snprintf(value, FIELD_SIZE, "%.*s", (int)(size < FIELD_SIZE ? size : FIELD_SIZE - 1), line);
        return true;
    }
    return false;
}

static bool number_field(const char *info, const char *name, int64_t *number)
{
    char value[FIELD_SIZE];
    return field(info, name, value) && number_parse(value, 0, INT64_MAX, number);
}

/* --- the server's kind --------------------------------------------------- */

static void version(const struct facts *facts, struct findings *findings)
{
    static const struct {
        const char *field, *name;
        bool tried; /* dlock is tested with this server */
    } kinds[] = {
        {"valkey_version", "Valkey", true},
        {"dragonfly_version", "Dragonfly", false},
        {"mvcc_depth", "KeyDB", false},
        {"redis_version", "Redis", true},
    };
    static const char advice[] = "use Redis 6.0 or later, or Valkey";
    char claimed[FIELD_SIZE], own[FIELD_SIZE];

    /* Valkey and other servers report in this field the version of Redis with which they claim
     * to be compatible. */
    long major = field(facts->info, "redis_version", claimed) ? strtol(claimed, NULL, 10) : 0;
    if (major <= 0) {
        findings_note(findings, NULL, not_in_info);
        return;
    }

    size_t kind = 0;
    while (!field(facts->info, kinds[kind].field, own) && kind + 1 < sizeof kinds / sizeof *kinds)
        kind++;
    const char *name = kinds[kind].name;
    const char *shown = strcmp(name, "KeyDB") == 0 ? claimed : own;
    if (major < 5)
        findings_fail(findings, FINDING_UNTRUSTED, advice,
                      "%s %s: dlock's scripts need Redis 5.0 or later", name, shown);
    else if (major < 6)
        findings_warn(
            findings, advice,
            "%s %s cannot report changed keys, so dlock notices a loss only at its next check",
            name, shown);
    else if (kinds[kind].tried)
        findings_good(findings, "%s %s", name, shown);
    else
        findings_note(findings, NULL, "%s %s: dlock was not tested with this server", name, shown);
}

static void role(const struct facts *facts, struct findings *findings)
{
    char is[FIELD_SIZE], master[FIELD_SIZE];
    (void)field(facts->info, "role", is);
    if (strcmp(is, "slave") == 0 || strcmp(is, "replica") == 0) {
        bool told = field(facts->info, "master_host", master);
        findings_fail(findings, STATUS_UNAVAILABLE, MASTERS_URL,
                      "this server is a replica of %s, and replicas keep no locks",
                      told ? master : "another server");
    } else if (strcmp(is, "master") == 0) {
        findings_good(findings, "master");
    } else {
        findings_note(findings, NULL, not_in_info);
    }
}

static void mode(const struct facts *facts, struct findings *findings)
{
    char is[FIELD_SIZE];
    (void)field(facts->info, "redis_mode", is);
    if (strcmp(is, "sentinel") == 0)
        findings_fail(findings, STATUS_CONFIG, "use redis+sentinel://HOST,.../MASTER",
                      "this server is a Sentinel, and Sentinels keep no locks");
    else if (strcmp(is, "cluster") == 0 && facts->url->topology != REDIS_CLUSTER)
        findings_warn(findings, "use redis+cluster://",
                      "this server is one node of a Cluster, and refuses keys of the other nodes");
}

/* --- whether locks stay -------------------------------------------------- */

/* The volatile-* policies can evict locks, as the allkeys-* policies can, because every lock has an
 * expiry. */
static void eviction(const struct facts *facts, struct findings *findings)
{
    static const char advice[] =
        "set maxmemory-policy to noeviction, or use a server for locks only";
    char policy[FIELD_SIZE];
    int64_t most;
    if (!field(facts->info, "maxmemory_policy", policy))
        findings_note(findings, "ask the provider: the policy must be noeviction", not_in_info);
    else if (strcmp(policy, "noeviction") == 0)
        findings_good(findings, "noeviction");
    else if (strncmp(policy, "allkeys-", 8) != 0 && strncmp(policy, "volatile-", 9) != 0)
        findings_note(findings, NULL, "%s", policy);
    else if (number_field(facts->info, "maxmemory", &most) && most == 0)
        findings_warn(findings, advice, "%s: Redis may evict locks as soon as maxmemory is set",
                      policy);
    else
        findings_fail(findings, FINDING_UNTRUSTED, advice,
                      "%s: if memory runs short, Redis may evict a held lock, and another client "
                      "can acquire the lock",
                      policy);
}

static void memory(const struct facts *facts, struct findings *findings)
{
    char used_text[SIZE_TEXT_SIZE], most_text[SIZE_TEXT_SIZE];
    int64_t most, used;
    if (!number_field(facts->info, "maxmemory", &most) ||
        !number_field(facts->info, "used_memory", &used))
        return;
    size_rounded((uint64_t)used, used_text);
    if (most == 0)
        findings_good(findings, "%s used, no limit", used_text);
    else
        findings_add(findings, used >= most - most / 10 ? FINDING_WARN : FINDING_OK,
                     "make room: no lock can be acquired when the memory is full", "%s used of %s",
                     used_text, size_rounded((uint64_t)most, most_text));
}

static void persistence(const struct facts *facts, struct findings *findings)
{
    static const char advice[] = "set appendonly yes and appendfsync always";
    char aof[FIELD_SIZE];
    bool known = field(facts->info, "aof_enabled", aof);
    if (strcmp(aof, "1") == 0)
        findings_good(findings, "append-only file, fsync %.100s",
                      facts->fsync != NULL ? facts->fsync : "unknown");
    else if (facts->save != NULL && *facts->save != '\0')
        findings_note(findings, advice,
                      "snapshots only (%.100s): a crash loses all locks since the last snapshot",
                      facts->save);
    else if (!known)
        findings_note(findings, NULL, not_in_info);
    else if (facts->save == NULL)
        findings_note(findings, NULL,
                      "unknown: there is no append-only file, and Redis refuses CONFIG GET save");
    else
        findings_warn(findings, advice, "none: all locks are lost when Redis restarts%s",
                      facts->wait_replicas > 0 ? ", and the replicas then copy the empty data"
                                               : "");
}

/* The name of the check is also the name of the field in INFO. */
static void last_write(const struct facts *facts, struct findings *findings)
{
    char last[FIELD_SIZE];
    if (field(facts->info, findings->check, last) && strcmp(last, "ok") != 0)
        findings_warn(findings,
                      "check disk space and the server's log: the server may refuse to write", "%s",
                      last);
}

/* Counts the replicas that are online, from lines of INFO such as
 * "slave0:ip=...,port=...,state=online,...". */
static int online_replicas(const char *info)
{
    enum { REPLICAS_MOST = 100 };
    int count = 0;
    for (int i = 0; i < REPLICAS_MOST; i++) {
        char name[24], value[FIELD_SIZE];
        snprintf(name, sizeof name, "slave%d", i);
        if (!field(info, name, value))
            break;
        count += strstr(value, "state=online") != NULL;
    }
    return count;
}

static void replicas(const struct facts *facts, struct findings *findings)
{
    int wanted = facts->wait_replicas;
    int online = online_replicas(facts->info);
    int64_t connected;
    if (!number_field(facts->info, "connected_slaves", &connected))
        findings_note(findings, NULL, not_in_info);
    else if (online < wanted)
        findings_fail(findings, STATUS_UNAVAILABLE, "add replicas, or lower --wait-replicas",
                      "%d online, but --wait-replicas needs %d", online, wanted);
    else if (online > 0 && wanted == 0)
        findings_note(findings, "use --wait-replicas",
                      "%d online: a failover loses the locks that have not reached the replicas",
                      online);
    else
        findings_good(findings, "%d online", online);
}

static void min_replicas(const struct facts *facts, struct findings *findings)
{
    int64_t needed;
    if (facts->min_replicas != NULL && number_parse(facts->min_replicas, 1, INT32_MAX, &needed))
        findings_add(findings, online_replicas(facts->info) < needed ? FINDING_WARN : FINDING_OK,
                     "add replicas: the server accepts no locks now", "%" PRId64, needed);
}

/* --- asking -------------------------------------------------------------- */

bool server_ask(struct server *server, const struct redis_command *command, redisReply **reply)
{
    struct errmsg why = {""};
    enum lock_result result =
        redis_conn_call(&server->conn, command, 1, reply, server->bound, &why);
    return findings_served(server->findings, result, NULL, &why);
}

/* --- all of them --------------------------------------------------------- */

static const struct {
    const char *name;
    void (*judge)(const struct facts *facts, struct findings *findings);
} checks[] = {
    {"version", version},
    {"role", role},
    {"mode", mode},
    {"eviction", eviction},
    {"memory", memory},
    {"persistence", persistence},
    {"rdb_last_bgsave_status", last_write},
    {"aof_last_write_status", last_write},
    {"replicas", replicas},
    {"min-replicas-to-write", min_replicas},
};

/* The value in the reply to CONFIG GET; NULL if there is none. */
static const char *setting(const redisReply *reply)
{
    bool told = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                reply->element[1]->type == REDIS_REPLY_STRING;
    return told ? reply->element[1]->str : NULL;
}

/* Adds a row for a value that the server did not report: "unknown: NOPERM ...". */
static void add_unknown(const char *name, const redisReply *reply, struct findings *findings)
{
    findings->check = name;
    findings_note(findings, "grant the permissions for --doctor in dlock-redis(7)",
                  "unknown: %.300s",
                  reply->type == REDIS_REPLY_ERROR ? reply->str : "the answer is not understood");
}

static void judge_all(const struct facts *facts, struct findings *findings)
{
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        findings->check = checks[i].name;
        checks[i].judge(facts, findings);
    }
}

bool server_check_info(struct server *server)
{
    enum { SAVE, FSYNC, MIN_REPLICAS, SETTINGS };
    const struct redis_command info_command = redis_words("INFO");
    const struct redis_command commands[SETTINGS] = {
        [SAVE] = redis_words("CONFIG", "GET", "save"),
        [FSYNC] = redis_words("CONFIG", "GET", "appendfsync"),
        [MIN_REPLICAS] = redis_words("CONFIG", "GET", "min-replicas-to-write"),
    };
    struct findings *findings = server->findings;
    redisReply *info, *replies[SETTINGS];
    struct errmsg why = {""};
    if (!server_ask(server, &info_command, &info))
        return false;
    bool answered = info->type == REDIS_REPLY_STRING;
    if (!answered)
        add_unknown("server", info, findings);

    findings->check = "settings";
    enum lock_result result =
        redis_conn_call(&server->conn, commands, SETTINGS, replies, server->bound, &why);
    if (!findings_served(findings, result, NULL, &why)) {
        freeReplyObject(info);
        return false;
    }
    if (replies[SAVE]->type == REDIS_REPLY_ERROR)
        add_unknown("settings", replies[SAVE], findings);

    const struct facts facts = {
        .info = info->str,
        .save = setting(replies[SAVE]),
        .fsync = setting(replies[FSYNC]),
        .min_replicas = setting(replies[MIN_REPLICAS]),
        .url = server->url,
        .wait_replicas = server->settings->wait_replicas,
    };
    if (answered)
        judge_all(&facts, findings);
    for (int i = 0; i < SETTINGS; i++)
        freeReplyObject(replies[i]);
    freeReplyObject(info);
    return true;
}
