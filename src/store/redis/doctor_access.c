/* Checks that the user may do what the scripts do. ACL DRYRUN would report that, but is
 * for administrators; so each command is sent on keys that are otherwise unused, and that
 * expire by themselves if they cannot be deleted. The error then names the refused
 * command, which an error inside a script does not. */
#include "store/redis/doctor.h"

#include "store/redis/scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The purposes of the commands: the worst that is missing for a purpose is one row. */
enum purpose { TAKING, SHARING, QUEUEING, COUNTING, CALLING, TRACKING, LISTING, PURPOSES };

static const char denied[] = "the permissions in dlock-redis(7)"; /* only helps if refused */
static const char blocked[] = "the permissions in dlock-redis(7); a proxy may be in the way";

static const struct {
    const char *name, *lost, *advice;
    enum finding_result result; /* if it is refused */
} purposes[PURPOSES] = {
    [TAKING] = {"take, release", "no lock can be taken", denied, FINDING_FAIL},
    [SHARING] = {"shared, slots", "--shared and --slots fail", denied, FINDING_WARN},
    [QUEUEING] = {"queue", "waiters poll, in no order", denied, FINDING_WARN},
    [COUNTING] = {"counters", "conflicts are not counted", NULL, FINDING_NOTE},
    [CALLING] = {"wake channel", "waiters are not notified, and poll", blocked, FINDING_WARN},
    [TRACKING] = {"tracking", "a loss is noticed only at the next check", blocked, FINDING_WARN},
    [LISTING] = {"--list", "--list fails", NULL, FINDING_NOTE},
};

/* 1 to 11 (octal) are the keys, as the scripts are given them, and a channel. An
 * unknown script is reported as missing, which counts as an answer. PX and PEXPIRE make
 * sure that nothing remains for long. */
static const struct {
    enum purpose purpose;
    const char *words[10]; /* up to NULL */
} trials[] = {
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
    {CALLING, {"PUBLISH", "\11", "doctor"}}, /* LISTENING begins here */
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
enum { TRIALS = sizeof trials / sizeof *trials, LISTENING = TRIALS - 13 };

/* The permissions missing for a purpose: the first error, and how many. */
struct verdict {
    char first[400];
    int refused;
    bool replica; /* that first error is one of a replica */
    enum lock_result result;
};

static void redis_doctor_access_judge(struct verdict *verdict, const char *command,
                                      const redisReply *reply)
{
    struct errmsg ignored = {""};
    if (reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, "NOSCRIPT", 8) == 0 ||
        verdict->refused++ > 0)
        return;
    verdict->result = redis_error_result(reply->str, &ignored);
    verdict->replica = redis_error_is(reply->str, "READONLY");
    snprintf(verdict->first, sizeof verdict->first, "%s: %.300s", command, reply->str);
}

static void add_verdict(struct diagnostics *findings, enum purpose purpose,
                        const struct verdict *verdict)
{
    const char *name = purposes[purpose].name, *lost = purposes[purpose].lost,
               *advice = purposes[purpose].advice;
    char more[32] = "";
    if (advice == denied && verdict->replica)
        advice = "the URL of the master, or redis+sentinel://";
    else if (advice == denied && verdict->result != LOCK_REFUSED)
        advice = NULL;
    if (verdict->refused > 1)
        snprintf(more, sizeof more, ", and %d more", verdict->refused - 1);
    if (verdict->refused == 0)
        diagnostics_add(findings, FINDING_OK, name, NULL, "allowed");
    else if (purposes[purpose].result == FINDING_FAIL)
        diagnostics_fail(findings, (int)status_of(verdict->result), name, advice, "%s: %s%s", lost,
                         verdict->first, more);
    else
        diagnostics_add(findings, purposes[purpose].result, name, advice, "%s: %s%s", lost,
                        verdict->first, more);
}

/* Sends the commands from `first` up to `end`, and judges the answers. */
static enum lock_result try_commands(struct redis_patient *patient, size_t first, size_t end,
                                     struct verdict *verdicts, struct errmsg *why)
{
    const char *key = patient->request->key, *places[REDIS_COMPANIONS + 3] = {NULL, key};
    struct {
        char companions[REDIS_COMPANIONS + 1][COMPANION_SIZE]; /* and a channel */
        struct redis_command commands[TRIALS];
    } *trial = calloc(1, sizeof *trial); /* too much for a stack */
    redisReply *replies[TRIALS];
    if (trial == NULL)
        return errmsg_fail(why, LOCK_SYSTEM, "out of memory");
    for (int i = 0; i < REDIS_COMPANIONS; i++)
        redis_companion(trial->companions[i], key, i, "doctor");
    lock_key_companion(trial->companions[REDIS_COMPANIONS], COMPANION_SIZE, key, "wake:doctor");
    for (int i = 0; i <= REDIS_COMPANIONS; i++)
        places[2 + i] = trial->companions[i];
    for (size_t i = first; i < end; i++)
        for (const char *const *word = trials[i].words; *word != NULL; word++) {
            size_t place = (unsigned char)**word;
            bool is_key = place < sizeof places / sizeof *places && places[place] != NULL;
            redis_command_add(&trial->commands[i], is_key ? places[place] : *word);
        }
    enum lock_result result =
        redis_conn_call(&patient->conn, trial->commands + first, (int)(end - first),
                        replies + first, patient->bound, why);
    for (size_t i = first; result == LOCK_OK && i < end; i++) {
        redis_doctor_access_judge(&verdicts[trials[i].purpose], trials[i].words[0], replies[i]);
        freeReplyObject(replies[i]);
    }
    free(trial);
    return result;
}

/* A proxy may close the connection instead of refusing: a lock can still be acquired. */
static bool try_listening(struct redis_patient *patient, struct verdict *verdicts)
{
    struct errmsg why = {""};
    enum lock_result result = try_commands(patient, LISTENING, TRIALS, verdicts, &why);
    if (result == LOCK_OK || result == LOCK_CANCELLED)
        return result == LOCK_OK;
    const enum purpose lost[] = {CALLING, TRACKING};
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        verdicts[lost[i]] = (struct verdict){.refused = 1, .result = result};
        snprintf(verdicts[lost[i]].first, sizeof verdicts->first, "SUBSCRIBE and the like: %.300s",
                 why.text);
    }
    return true;
}

/* The commands that --list sends to a Cluster, and that other servers do not know. */
static bool try_slots(struct redis_patient *patient, struct verdict *verdicts)
{
    const struct redis_command command = redis_words("CLUSTER", "SLOTS");
    redisReply *reply;
    if (patient->url->topology != REDIS_CLUSTER)
        return true;
    if (!redis_patient_ask(patient, "commands", &command, &reply))
        return false;
    redis_doctor_access_judge(&verdicts[LISTING], "CLUSTER SLOTS", reply);
    freeReplyObject(reply);
    return true;
}

bool redis_doctor_access(struct redis_patient *patient)
{
    struct verdict verdicts[PURPOSES] = {0};
    struct errmsg why = {""};
    enum lock_result result = try_commands(patient, 0, LISTENING, verdicts, &why);
    if (!redis_patient_served(patient->findings, result, "commands", NULL, &why) ||
        !try_slots(patient, verdicts) || !try_listening(patient, verdicts))
        return false;
    for (enum purpose purpose = 0; purpose < PURPOSES; purpose++)
        add_verdict(patient->findings, purpose, &verdicts[purpose]);
    return verdicts[TAKING].refused == 0;
}
