/* Findings from INFO and CONFIG GET about a server that keeps locks. Providers rename
 * CONFIG, and an ACL may allow neither: an unknown value is no failure. */
#include "store/redis/doctor.h"

#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELD_SIZE = 384 }; /* a replica's has the name of its host */

/* --- fields -------------------------------------------------------------- */

/* The value of a line "field:value". False, and "", if there is none. */
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

/* The value of CONFIG GET; NULL if there is none. */
static const char *setting(const redisReply *reply)
{
    bool told = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                reply->element[1]->type == REDIS_REPLY_STRING;
    return told ? reply->element[1]->str : NULL;
}

/* --- the server's kind --------------------------------------------------- */

static void add_version(struct diagnostics *findings, const char *info)
{
    static const struct {
        const char *field, *name;
        bool tried; /* dlock is made for it */
    } kinds[] = {
        {"valkey_version", "Valkey", true},
        {"dragonfly_version", "Dragonfly", false},
        {"mvcc_depth", "KeyDB", false},
        {"redis_version", "Redis", true},
    };
    char version[FIELD_SIZE], own[FIELD_SIZE];
    /* The Redis version, with which other servers claim compatibility. */
    long major = field(info, "redis_version", version) ? strtol(version, NULL, 10) : 0;
    if (major <= 0) {
        diagnostics_add(findings, FINDING_NOTE, "version", NULL, "unknown: not in INFO");
        return;
    }
    size_t kind = 0;
    while (!field(info, kinds[kind].field, own) && kind + 1 < sizeof kinds / sizeof *kinds)
        kind++;
    if (strcmp(kinds[kind].name, "KeyDB") == 0)
        snprintf(own, sizeof own, "%s", version);
    if (major < 5)
        diagnostics_fail(findings, FINDING_UNTRUSTED, "version", "Redis 6.0 or later, or Valkey",
                         "%s %s: the scripts need 5.0", kinds[kind].name, own);
    else if (major < 6)
        diagnostics_add(
            findings, FINDING_WARN, "version", "Redis 6.0 or later, or Valkey",
            "%s %s: it cannot report changed keys, and a loss is noticed only at the next check",
            kinds[kind].name, own);
    else
        diagnostics_add(findings, kinds[kind].tried ? FINDING_OK : FINDING_NOTE, "version", NULL,
                        "%s %s%s", kinds[kind].name, own,
                        kinds[kind].tried ? "" : ", with which dlock was not tested");
}

static void add_role(struct diagnostics *findings, const char *info)
{
    char role[FIELD_SIZE], master[FIELD_SIZE];
    (void)field(info, "role", role);
    if (strcmp(role, "slave") == 0 || strcmp(role, "replica") == 0) {
        bool told = field(info, "master_host", master);
        diagnostics_fail(findings, STATUS_UNAVAILABLE, "role",
                         "the URL of the master, or redis+sentinel://",
                         "replica of %s: it takes no locks", told ? master : "another server");
    } else if (strcmp(role, "master") == 0) {
        diagnostics_add(findings, FINDING_OK, "role", NULL, "master");
    } else {
        diagnostics_add(findings, FINDING_NOTE, "role", NULL, "unknown: not in INFO");
    }
}

static void add_mode(struct diagnostics *findings, const char *info, const struct redis_url *url)
{
    char mode[FIELD_SIZE];
    (void)field(info, "redis_mode", mode);
    if (strcmp(mode, "sentinel") == 0)
        diagnostics_fail(findings, STATUS_CONFIG, "mode", "redis+sentinel://HOST,.../MASTER",
                         "it is a Sentinel, which keeps no locks");
    else if (strcmp(mode, "cluster") == 0 && url->topology != REDIS_CLUSTER)
        diagnostics_add(findings, FINDING_WARN, "mode", "redis+cluster://",
                        "one node of a Cluster: it refuses the keys that others have");
}

/* --- whether locks stay -------------------------------------------------- */

static bool evicts(const char *policy)
{
    return strncmp(policy, "allkeys-", 8) == 0 || strncmp(policy, "volatile-", 9) == 0;
}

/* volatile-* is no better: every lock has an expiry. */
static void add_eviction(struct diagnostics *findings, const char *info)
{
    char policy[FIELD_SIZE], used_text[SIZE_TEXT_SIZE], most_text[SIZE_TEXT_SIZE];
    int64_t most = 0, used;
    bool limit_known = number_field(info, "maxmemory", &most);
    static const char advice[] = "maxmemory-policy noeviction; or a server for locks alone";
    if (!field(info, "maxmemory_policy", policy))
        diagnostics_add(findings, FINDING_NOTE, "eviction",
                        "ask the provider; it must be noeviction", "unknown: not in INFO");
    else if (evicts(policy) && limit_known && most == 0)
        diagnostics_add(findings, FINDING_WARN, "eviction", advice,
                        "%s: locks are evicted as soon as there is a maxmemory", policy);
    else if (evicts(policy))
        diagnostics_fail(
            findings, FINDING_UNTRUSTED, "eviction", advice,
            "%s: if memory runs short, a held lock may be removed, and another client gets it",
            policy);
    else
        diagnostics_add(findings, strcmp(policy, "noeviction") == 0 ? FINDING_OK : FINDING_NOTE,
                        "eviction", NULL, "%s", policy);
    if (!limit_known || !number_field(info, "used_memory", &used))
        return;
    bool near = most > 0 && used >= most - most / 10;
    if (most == 0)
        diagnostics_add(findings, FINDING_OK, "memory", NULL, "%s used, no limit",
                        size_rounded((uint64_t)used, used_text));
    else
        diagnostics_add(findings, near ? FINDING_WARN : FINDING_OK, "memory",
                        "when it is full, no lock can be acquired", "%s used of %s",
                        size_rounded((uint64_t)used, used_text),
                        size_rounded((uint64_t)most, most_text));
}

static void add_persistence(const struct redis_patient *patient, const char *info, const char *save,
                            const char *fsync)
{
    struct diagnostics *findings = patient->findings;
    char aof[FIELD_SIZE], last[FIELD_SIZE];
    bool aof_known = field(info, "aof_enabled", aof),
         replicated = patient->settings->wait_replicas > 0;
    if (aof_known && strcmp(aof, "1") == 0)
        diagnostics_add(findings, FINDING_OK, "persistence", NULL, "append-only file, fsync %.100s",
                        fsync != NULL ? fsync : "unknown");
    else if (save != NULL && *save != '\0')
        diagnostics_add(findings, FINDING_NOTE, "persistence", "appendonly yes, appendfsync always",
                        "snapshots alone (%.100s): a crash loses later locks", save);
    else if (aof_known && save != NULL)
        diagnostics_add(findings, FINDING_WARN, "persistence", "appendonly yes, appendfsync always",
                        "none: a restart loses all locks%s",
                        replicated ? ", and replicas copy the empty server" : "");
    else
        diagnostics_add(findings, FINDING_NOTE, "persistence", NULL, "unknown: %s",
                        aof_known ? "no append-only file, and CONFIG GET save is not answered"
                                  : "not in INFO");
    static const char *const writes[] = {"rdb_last_bgsave_status", "aof_last_write_status"};
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++)
        if (field(info, writes[i], last) && strcmp(last, "ok") != 0)
            diagnostics_add(findings, FINDING_WARN, writes[i],
                            "disk space and the server's log; it may refuse to write", "%s", last);
}

/* slave0:ip=...,port=...,state=online,... */
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

static void add_replicas(const struct redis_patient *patient, const char *info, const char *least)
{
    struct diagnostics *findings = patient->findings;
    int wanted = patient->settings->wait_replicas, online = online_replicas(info);
    int64_t connected, needed = 0;
    if (!number_field(info, "connected_slaves", &connected))
        diagnostics_add(findings, FINDING_NOTE, "replicas", NULL, "unknown: not in INFO");
    else if (online < wanted)
        diagnostics_fail(findings, STATUS_UNAVAILABLE, "replicas",
                         "more replicas, or a lower --wait-replicas",
                         "%d online, and --wait-replicas asks for %d", online, wanted);
    else if (online > 0 && wanted == 0)
        diagnostics_add(findings, FINDING_NOTE, "replicas", "--wait-replicas",
                        "%d online: a failover loses what has not reached them", online);
    else
        diagnostics_add(findings, FINDING_OK, "replicas", NULL, "%d online", online);
    if (least != NULL && number_parse(least, 1, INT32_MAX, &needed))
        diagnostics_add(findings, online < needed ? FINDING_WARN : FINDING_OK,
                        "min-replicas-to-write", "more replicas; the server takes no locks now",
                        "%" PRId64, needed);
}

/* --- asking -------------------------------------------------------------- */

enum { SAVE, FSYNC, REPLICAS, QUESTIONS };

static bool ask_config(struct redis_patient *patient, redisReply *replies[QUESTIONS])
{
    static const char *const names[QUESTIONS] = {"save", "appendfsync", "min-replicas-to-write"};
    struct redis_command commands[QUESTIONS];
    struct errmsg why = {""};
    for (int i = 0; i < QUESTIONS; i++)
        commands[i] = redis_words("CONFIG", "GET", names[i]);
    enum lock_result result =
        redis_conn_call(&patient->conn, commands, QUESTIONS, replies, patient->bound, &why);
    if (result == LOCK_OK && replies[SAVE]->type == REDIS_REPLY_ERROR)
        redis_patient_unknown(patient, "settings", replies[SAVE]);
    return redis_patient_served(patient->findings, result, "settings", NULL, &why);
}

bool redis_doctor_info(struct redis_patient *patient)
{
    const struct redis_command command = redis_words("INFO");
    redisReply *info, *replies[QUESTIONS];
    if (!redis_patient_ask(patient, "server", &command, &info))
        return false;
    bool told = info->type == REDIS_REPLY_STRING, asked = ask_config(patient, replies);
    if (!told)
        redis_patient_unknown(patient, "server", info);
    if (asked && told) {
        add_version(patient->findings, info->str);
        add_role(patient->findings, info->str);
        add_mode(patient->findings, info->str, patient->url);
        add_eviction(patient->findings, info->str);
        add_persistence(patient, info->str, setting(replies[SAVE]), setting(replies[FSYNC]));
        add_replicas(patient, info->str, setting(replies[REPLICAS]));
    }
    for (int i = 0; asked && i < QUESTIONS; i++)
        freeReplyObject(replies[i]);
    freeReplyObject(info);
    return asked;
}
