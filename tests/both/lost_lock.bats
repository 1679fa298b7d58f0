#!/usr/bin/env bats
load backend

@test "a lock taken away while the command runs: stopped at once, told, exit 124" {
    hold_lock job
    sleep 0.5 # the first check is over, the next one comes after ten seconds
    local start=$(now) status=0
    steal job
    wait "$HOLDER" || status=$?
    equals "$status" 124
    within 2000 "$start"
    grep -qE 'the lock is lost: .*; stopping the command with SIGTERM' "$T/held.err"
    equals "$(grep -cE 'lost' "$T/held.err")" 1
    gone "$(cat "$T/held")"
}

@test "a lost lock stops grandchildren and daemons of the command too, deaf ones as well" {
    cat >"$T/family.sh" <<'E'
setsid sh -c 'trap "" TERM; echo $$ >$T/daemon; while :; do sleep 0.01; done' &
(sh -c 'echo $$ >$T/grandchild; exec sleep 600'; :)
E
    dlock -t 3600 --grace=300ms job -- sh "$T/family.sh" >/dev/null 2>&1 3>&- 4>&- &
    local dlock=$! status=0
    wait_until 10 test -s "$T/daemon"
    wait_until 10 test -s "$T/grandchild"
    steal job
    wait "$dlock" || status=$?
    equals "$status" 124
    gone "$(cat "$T/daemon")"
    gone "$(cat "$T/grandchild")"
}

@test "a lock overwritten by another client: stopped at once, and theirs is not touched" {
    hold_lock job
    sleep 0.5 # as above
    local start=$(now) status=0
    overwrite job
    wait "$HOLDER" || status=$?
    equals "$status" 124
    within 2000 "$start"
    is_theirs job
}

@test "a lock lost just before the command ends is reported: never 0" {
    fails_with 124 'the lock (was lost before the command ended|is lost)' \
        dlock job -- bash -c ". $BATS_TEST_DIRNAME/backend.bash; steal job"
}

@test "--on-expire=warn: after the loss dlock sleeps until the command ends" {
    hold_lock job -t 2s --on-expire=warn
    steal job
    wait_until 10 grep -q 'the lock is lost' "$T/held.err"
    sleep 2.5 # beyond the time of the warning at 90 %, and of the lease
    local fields
    read -ra fields < <(sed 's/.*) //' "/proc/$HOLDER/stat")
    # utime and stime, in hundredths of a second
    [ $((fields[11] + fields[12])) -lt 30 ]
    end_hold
    wait "$HOLDER"
    not grep -q '90 %' "$T/held.err"
}

@test "--on-expire=warn: a lost lock is reported, and the command's status counts" {
    hold_lock job -t 10s --on-expire=warn
    steal job
    wait_until 10 grep -q 'the lock is lost: .*; the command runs on' "$T/held.err"
    kill -0 "$(cat "$T/held")"
    local status=0
    end_hold
    wait "$HOLDER" || status=$?
    equals "$status" 0
    equals "$(grep -cE 'lost' "$T/held.err")" 1
    grep -qE 'the command ran on for .* without the lease' "$T/held.err"
}
