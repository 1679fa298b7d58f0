#!/usr/bin/env bats
# A process never waits for a lock that it runs under.
load backend

@test "a lock inside the same lock: the inner command runs at once, and the outer one keeps the lock" {
    run timeout 20 dlock -t 60 --owner=outer job -- dlock job -- sh -c 'echo "$DLOCK_HELD_OWNER"; echo "$DLOCK_HELD"'
    equals "$status" 0
    equals "${lines[0]}" outer
    [[ ${lines[1]} =~ ^$BACKEND\?[^\ ]*\ outer\ [0-9a-f-]{36}\ dlock:job$ ]]
    is_clean job
    # The lock is still held after the inner command has ended.
    run timeout 20 dlock job -- env BACKEND="$BACKEND" bash -c "dlock job true; dlock -v -n job true; . $BATS_TEST_DIRNAME/backend.bash; is_locked job && echo held"
    [[ $output == *'an enclosing dlock already holds the lock'* && $output == *held ]]
}

@test "a lock inside the same lock returns the inner command's status, whatever -n, -w and locks between; another prefix is another lock" {
    table <<'ROWS'
9   '^$'    timeout 20 dlock job dlock job -- sh -c 'exit 9'
127 'cannot run nosuchcommand: No such file' timeout 20 dlock job dlock job nosuchcommand
126 'cannot run /: Permission denied'        timeout 20 dlock job dlock job /
143 '^$'    timeout 20 dlock job dlock job -- sh -c 'kill -TERM $$'
0   '^ok$'  timeout 20 dlock a dlock b dlock -n a dlock -w 1 b echo ok
0   ': acquired \(.*: acquired \(' timeout 20 dlock job -- dlock -v --prefix=p: job -- dlock -v other true
ROWS
    equals "$(grep -c ': acquired (' <<<"$output")" 2
}

@test "with a scrubbed environment the enclosing dlock is found by its process" {
    run timeout 20 dlock job -- env -i PATH="$PATH" T="$T" ${DLOCK_REDIS:+DLOCK_REDIS="$DLOCK_REDIS"} \
        ${DLOCK_LOCK_DIR:+DLOCK_LOCK_DIR="$DLOCK_LOCK_DIR" DLOCK_BACKEND=file} sh -c 'env | grep -q DLOCK_HELD || { dlock job echo ok; dlock -n job echo ok; }'
    equals "$output" 'ok
ok'
    is_clean job
}

@test "an ancestor that ends while dlock lists its ancestors does not hide those above it" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    run timeout 20 dlock job -- env -i PATH="$PATH" T="$T" HELPERS="$HELPERS" ${DLOCK_REDIS:+DLOCK_REDIS="$DLOCK_REDIS"} \
        ${DLOCK_LOCK_DIR:+DLOCK_LOCK_DIR="$DLOCK_LOCK_DIR" DLOCK_BACKEND=file} \
        sh -c 'FAULT_PID=$PPID LD_PRELOAD=$HELPERS/fault_ancestor_ends.so dlock -w 5 job echo ok'
    equals "$status $output" '0 ok'
}

@test "a child that outlives the outer command is no longer inside its lock" {
    dlock job -- sh -c '(until [ -e "$T/go" ]; do sleep 0.01; done; dlock -n job echo taken anew >"$T/out" 2>&1; touch "$T/done") >/dev/null 2>&1 &' 3>&- 4>&-
    hold_lock job -t 60s
    touch "$T/go"
    wait_until 10 test -e "$T/done"
    [ ! -s "$T/out" ] # held by another process: not inside
    end_hold
    wait "$HOLDER"
}

@test "processes left by an ended run are not inside the next run with the same --owner, and do not release its lock" {
    local mode
    for mode in '' -s --slots=2; do
        rm -f "$T/go" "$T/done" "$T/held" "$T/held.end"
        MODE=$mode dlock --owner=ci $mode job -- sh -c '( {
            until [ -e "$T/go" ]; do sleep 0.01; done
            dlock -v -n $MODE job true 2>&1 | grep -c "already holds the lock"
            dlock --current; echo $?
            dlock --extend; echo $?
            dlock --release; echo $?; } >"$T/said" 2>"$T/err"; touch "$T/done") >/dev/null 2>&1 &' 3>&- 4>&-
        hold_lock job --owner=ci $mode -t 60s
        touch "$T/go"
        wait_until 10 test -e "$T/done"
        [[ $(cat "$T/said") == $'0\n1\n'[12]$'\n'[12] ]]
        is_locked job
        end_hold
        wait "$HOLDER"
    done
}

@test "a stale or foreign entry in DLOCK_HELD is ignored" {
    hold_lock job -t 60s
    DLOCK_HELD="$BACKEND stale take dlock:job" run dlock -n job echo wrong
    equals "$status $output" '75 '
    local entry
    for entry in "$BACKEND" "$BACKEND x" "$BACKEND  dlock:job" ' ' "other x y dlock:job" "$BACKEND x y dlock:jobs" "$BACKEND x y " "$BACKEND x  dlock:job" "$(printf '%05000d' 0)"; do
        DLOCK_HELD=$entry run dlock -n job echo wrong
        equals "$status" 75
    done
    end_hold
    wait "$HOLDER"
    DLOCK_HELD="$BACKEND stale take dlock:job" run dlock -v job echo ok
    [[ $output == *acquired* ]]
}
