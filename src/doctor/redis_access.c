/* Checks that the user of the connection may run the commands of dlock's scripts. ACL DRYRUN could
 * report that, but only administrators may use it. So dlock sends each command separately, on keys
 * that nothing else uses and that expire if dlock cannot delete them. An error then names the
 * refused command; an error inside a script would not. */
#include "doctor/doctor_int.h"

#include "store/redis/redis_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the commands are for. All commands with the same purpose share one row. */
enum purpose { TAKING, SHARING, QUEUEING, COUNTING, CALLING, TRACKING, LISTING, PURPOSES };

/* The advice for a command that the server has refused. */
static const char denied[] = "grant the permissions in dlock-redis(7)";
static const char blocked[] =
    "grant the permissions in dlock-redis(7), or connect without the proxy that may be in between";

static const struct {
    const char *name, *lost, *advice;
    enum finding_result result; /* the result if one of the commands is refused */
} purposes[PURPOSES] = {
    [TAKING] = {"acquire, release", "no lock can be acquired", denied, FINDING_FAIL},
    [SHARING] = {"shared, slots", "--shared and --slots fail", denied, FINDING_WARN},
    [QUEUEING] = {"queue", "waiters poll and have no order", denied, FINDING_WARN},
    [COUNTING] = {"counters", "conflicts are not counted", NULL, FINDING_NOTE},
    [CALLING] = {"wake channel", "waiters poll, because Redis cannot notify them", blocked,
                 FINDING_WARN},
    [TRACKING] = {"tracking", "dlock notices a loss only at its next check", blocked, FINDING_WARN},
    [LISTING] = {"--list", "--list fails", NULL, FINDING_NOTE},
};

/* dlock replaces the words \1 to \10 (octal) by the keys, in the order in which scripts get them,
 * and \11 by a channel. EVALSHA names a script that does not exist, so the expected answer is
 * NOSCRIPT. Because of PX and PEXPIRE, all keys soon expire. */
struct
try {
    enum purpose purpose;
    const char *words[10]; /* NULL after the last one */
};

static const struct try acting[] = {
    {TAKING, {"EVALSHA", "0000000000000000000000000000000000000000", "1", "\1"}},
    {TAKING, {"EVAL", "return 1", "1", "\1"}},
    {TAKING, {"TIME"}},
    {TAKING, {"SET", "\1", "doctor", "PX", "1000"}},
    {TAKING, {"GET", "\1"}},
    {TAKING, {"PTTL", "\1"}},
    {TAKING, {"HSET", "\2", "doctor", "1"}},
    {TAKING, {"PEXPIRE", "\2", "1000"}},
    {TAKING, {"HMGET", "\2", "doctor"}},
    {SHARING, {"HDEL", "\2", "other"}},
    {SHARING, {"SET", "\3", "doctor", "PX", "1000"}},
    {SHARING, {"GET", "\3"}},
    {SHARING, {"ZADD", "\4", "1", "doctor"}},
    {SHARING, {"PEXPIRE", "\4", "1000"}},
    {SHARING, {"ZRANGE", "\4", "0", "-1"}},
    {SHARING, {"ZRANGEBYSCORE", "\4", "0", "1"}},
    {SHARING, {"ZSCORE", "\4", "doctor"}},
    {SHARING, {"ZCARD", "\4"}},
    {SHARING, {"ZCOUNT", "\4", "0", "1"}},
    {SHARING, {"ZREM", "\4", "doctor"}},
    {SHARING, {"SETBIT", "\5", "0", "1"}},
    {SHARING, {"PEXPIRE", "\5", "1000"}},
    {SHARING, {"BITCOUNT", "\5"}},
    {SHARING, {"BITPOS", "\5", "0"}},
    {SHARING, {"UNLINK", "\4", "\5"}},
    {COUNTING, {"HINCRBY", "\6", "doctor", "1"}},
    {COUNTING, {"PEXPIRE", "\6", "1000"}},
    {QUEUEING, {"ZADD", "\7", "1", "doctor"}},
    {QUEUEING, {"PEXPIRE", "\7", "1000"}},
    {QUEUEING, {"ZRANK", "\7", "doctor"}},
    {QUEUEING, {"ZCARD", "\7"}},
    {QUEUEING, {"ZREM", "\7", "doctor"}},
    {QUEUEING, {"HSET", "\10", "doctor", "1"}},
    {QUEUEING, {"PEXPIRE", "\10", "1000"}},
    {QUEUEING, {"HGET", "\10", "doctor"}},
    {QUEUEING, {"HDEL", "\10", "doctor"}},
    {LISTING, {"SCAN", "0", "COUNT", "1"}},
    {TAKING, {"DEL", "\1", "\2", "\3", "\4", "\5", "\6", "\7", "\10"}},
};

/* A proxy may close the connection instead of refusing one of these commands. */
static const struct try listening[] = {
    {CALLING, {"PUBLISH", "\11", "doctor"}},
    {CALLING, {"PUBSUB", "NUMSUB", "\11"}},
    {TRACKING, {"CLIENT", "ID"}},
    {TRACKING, {"CLIENT", "TRACKING", "ON", "OPTOUT"}},
    {TRACKING, {"CLIENT", "CACHING", "NO"}},
    {TRACKING, {"SUBSCRIBE", REDIS_INVALIDATE}},
    {TRACKING, {"UNSUBSCRIBE", REDIS_INVALIDATE}},
    {CALLING, {"SUBSCRIBE", "\11"}},
    {CALLING, {"UNSUBSCRIBE", "\11"}},
    {CALLING, {"MULTI"}},
    {CALLING, {"EXEC"}},
    {TRACKING, {"MULTI"}},
    {TRACKING, {"EXEC"}},
};
enum { LISTENING = sizeof listening / sizeof *listening, TRIES = sizeof acting / sizeof *acting };

/* What was refused for a purpose: the first error, and the number of refused commands. */
struct verdict {
    char first[400];
    int refused;
    bool replica; /* the first error came from a replica */
    enum lock_result result;
};

/* Allocated on the heap, because it is too large for a small stack. */
struct tries {
    char keys[REDIS_COMPANIONS + 2][COMPANION_SIZE]; /* the last one is the channel */
    struct redis_command commands[TRIES];
    redisReply *replies[TRIES];
    struct verdict verdicts[PURPOSES];
};

static void judge(struct verdict *verdict, const char *command, const redisReply *reply)
{
    struct errmsg ignored = {""};
    if (reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, "NOSCRIPT", 8) == 0 ||
        verdict->refused++ > 0)
        return;
    verdict->result = redis_error_result(reply->str, &ignored);
    verdict->replica = redis_error_is(reply->str, "READONLY");
    snprintf(verdict->first, sizeof verdict->first, "%s: %.300s", command, reply->str);
}

static void add_verdict(struct findings *findings, enum purpose purpose,
                        const struct verdict *verdict)
{
    const char *lost = purposes[purpose].lost;
    const char *advice = purposes[purpose].advice;
    char more[32] = "";
    findings->check = purposes[purpose].name;
    if (verdict->refused == 0) {
        findings_good(findings, "allowed");
        return;
    }
    if (advice == denied && verdict->result != LOCK_REFUSED)
        advice = verdict->replica ? MASTERS_URL : NULL;
    if (verdict->refused > 1)
        snprintf(more, sizeof more, ", and %d more", verdict->refused - 1);
    if (purposes[purpose].result == FINDING_FAIL)
        findings_fail(findings, (int)status_of(verdict->result), advice, "%s: %s%s", lost,
                      verdict->first, more);
    else
        findings_add(findings, purposes[purpose].result, advice, "%s: %s%s", lost, verdict->first,
                     more);
}

static void name_keys(struct tries *tries, const char *key)
{
    snprintf(tries->keys[0], COMPANION_SIZE, "%s", key);
    for (int i = 0; i < REDIS_COMPANIONS; i++)
        redis_companion(tries->keys[1 + i], key, i, "doctor");
    lock_key_companion(tries->keys[1 + REDIS_COMPANIONS], COMPANION_SIZE, key, "wake:doctor");
}

/* Sends the commands in one write, and judges the answers. */
static enum lock_result send_all(struct server *server, struct tries *tries, const struct try *list,
                                 int count, struct errmsg *why)
{
    for (int i = 0; i < count; i++) {
        tries->commands[i].count = 0;
        for (const char *const *word = list[i].words; *word != NULL; word++)
            redis_command_add(&tries->commands[i],
                              **word <= REDIS_COMPANIONS + 2 ? tries->keys[**word - 1] : *word);
    }
    enum lock_result result =
        redis_conn_call(&server->conn, tries->commands, count, tries->replies, server->bound, why);
    for (int i = 0; result == LOCK_OK && i < count; i++) {
        judge(&tries->verdicts[list[i].purpose], list[i].words[0], tries->replies[i]);
        freeReplyObject(tries->replies[i]);
    }
    return result;
}

static bool try_acting(struct server *server, struct tries *tries)
{
    struct errmsg why = {""};
    enum lock_result result = send_all(server, tries, acting, TRIES, &why);
    return findings_served(server->findings, result, NULL, &why);
}

/* Tries CLUSTER SLOTS, which --list sends to a Cluster. Other servers do not know this command. */
static bool try_slots(struct server *server, struct tries *tries)
{
    const struct redis_command command = redis_words("CLUSTER", "SLOTS");
    redisReply *reply;
    if (server->url->topology != REDIS_CLUSTER)
        return true;
    if (!server_ask(server, &command, &reply))
        return false;
    judge(&tries->verdicts[LISTING], "CLUSTER SLOTS", reply);
    freeReplyObject(reply);
    return true;
}

/* Sends the commands of `listening`. If the connection breaks, they count as refused. A lock can
 * still be acquired without them. */
static bool try_listening(struct server *server, struct tries *tries)
{
    static const enum purpose lost[] = {CALLING, TRACKING};
    struct errmsg why = {""};
    enum lock_result result = send_all(server, tries, listening, LISTENING, &why);
    if (result == LOCK_OK || result == LOCK_CANCELLED)
        return result == LOCK_OK;
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        struct verdict *verdict = &tries->verdicts[lost[i]];
        *verdict = (struct verdict){.refused = 1, .result = result};
        snprintf(verdict->first, sizeof verdict->first, "SUBSCRIBE or CLIENT TRACKING: %.300s",
                 why.text);
    }
    return true;
}

bool server_check_access(struct server *server)
{
    struct tries *tries = calloc(1, sizeof *tries);
    findings_section(server->findings, "permissions", NULL);
    if (tries == NULL) {
        findings_fail(server->findings, STATUS_SYSTEM, NULL, "out of memory");
        return false;
    }
    name_keys(tries, server->request->key);
    bool usable =
        try_acting(server, tries) && try_slots(server, tries) && try_listening(server, tries);
    for (enum purpose purpose = 0; usable && purpose < PURPOSES; purpose++)
        add_verdict(server->findings, purpose, &tries->verdicts[purpose]);
    usable = usable && tries->verdicts[TAKING].refused == 0;
    free(tries);
    return usable;
}
