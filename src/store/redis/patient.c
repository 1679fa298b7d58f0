#include "store/redis/patient.h"

bool redis_patient_ask(struct redis_patient *patient, const char *name, const struct redis_command *command,
                       redisReply **reply)
{
    struct why why = {""};
    enum lock_result result = redis_conn_call(&patient->conn, command, 1, reply, patient->bound, &why);
    if (result != LOCK_OK && result != LOCK_CANCELLED)
        findings_fail(patient->findings, (int)status_of(result), name, NULL, "%s", why.text);
    return result == LOCK_OK;
}

void redis_patient_unknown(struct redis_patient *patient, const char *name, const redisReply *reply)
{
    findings_add(patient->findings, FINDING_NOTE, name, "the permissions for --doctor in dlock(1)", "unknown: %.300s",
                 reply->type == REDIS_REPLY_ERROR ? reply->str : "the answer makes no sense");
}
