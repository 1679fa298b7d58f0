/* The exit status, and the code of the failure, for each result of a store. */
#include "unit.h"

#include "lock/result.h"
#include "ui/report.h"

TEST(test_results)
{
    static const struct {
        const char *name;
        enum lock_result result;
        int status;
        enum failure failure;
        bool lost;
    } rows[] = {
        {"done", LOCK_OK, 0, FAIL_SYSTEM, false},
        {"held", LOCK_HELD, 75, FAIL_HELD, false},
        {"gone", LOCK_GONE, 124, FAIL_NOT_FOUND, true},
        {"another's", LOCK_FOREIGN, 124, FAIL_MISMATCH, true},
        {"released", LOCK_RELEASED, 0, FAIL_RELEASED, false},
        {"an outage", LOCK_UNAVAILABLE, 69, FAIL_UNAVAILABLE, false},
        {"refused", LOCK_REFUSED, 77, FAIL_NOT_PERMITTED, false},
        {"misconfigured", LOCK_INVALID, 78, FAIL_CONFIG, false},
        {"no file can be made", LOCK_CANT_CREATE, 73, FAIL_SYSTEM, false},
        {"the system", LOCK_SYSTEM, 71, FAIL_SYSTEM, false},
        {"cancelled, which nobody is told of", LOCK_CANCELLED, 70, FAIL_SYSTEM, false},
    };
    FOR_ROWS(row, rows)
    {
        row_int(row->name, status_of(row->result), row->status);
        row_int(row->name, failure_of(row->result), row->failure);
        row_int(row->name, lock_is_lost(row->result), row->lost);
    }
}

TEST(test_exec)
{
    static const struct {
        const char *name;
        int error, status;
    } rows[] = {
        {"not there", ENOENT, 127},     {"below a file", ENOTDIR, 127},
        {"not permitted", EACCES, 126}, {"no program", ENOEXEC, 126},
        {"too many words", E2BIG, 126}, {"short of memory", ENOMEM, 126},
    };
    FOR_ROWS(row, rows)
    row_int(row->name, status_of_exec(row->error), row->status);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("each result has its exit status and its failure's code", test_results),
        ENTRY("127 if there is no such command, 126 if it cannot be run", test_exec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
