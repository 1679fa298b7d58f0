#!/usr/bin/env bats
load backend

# without CALL COMMAND...: dlock cannot start a thread or a process until $T/allowed exists.
without() { LD_PRELOAD=$HELPERS/fault_$1.so FAULT_UNTIL=$T/allowed "${@:2}"; }

# bats test_tags=slow
@test "no thread can be started: the command runs on, and a loss, an extension, heartbeats and the lease's end still count" {
    local no_thread='dlock: job: cannot start the thread that watches the lease: Resource temporarily unavailable; retrying'
    run without pthread_create dlock job sleep 1.5
    equals "$status $output" "0 $no_thread"
    is_clean job
    without pthread_create hold_lock job -t 60s
    steal job
    wait "$HOLDER" || status=$?
    equals "$status" 124
    grep -q 'the lock is lost' "$T/held.err"
    run without pthread_create dlock -t 3s job sh -c 'sleep 1.5; dlock --extend -t 60s job; sleep 2; touch "$T/extended"'
    equals "$status $output" "0 $no_thread"
    [ -e "$T/extended" ]
    run without pthread_create dlock --heartbeat -t 5s job python3 -c '
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\0" + os.environ["NOTIFY_SOCKET"][1:])
for i in range(14):
    time.sleep(0.5)
    s.send(b"WATCHDOG=1")'
    equals "$status $output" "0 $no_thread"
    fails_with 124 'the lease of 2s ends in [0-9]+ms; stopping the command' without pthread_create dlock -t 2s job sleep 30
    is_clean job
}

@test "a thread and a guard that cannot be started are started as soon as possible, with a warning until then" {
    local call pid
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    for call in fork pthread_create; do
        rm -f "$T/allowed" "$T/child" "$T/err"
        LD_PRELOAD=$HELPERS/fault_$call.so FAULT_UNTIL=$T/allowed \
            dlock -t 60s job -- sh -c '(sleep 600; :) & echo $! >"$T/child"; wait' 2>"$T/err" 3>&- 4>&- &
        pid=$!
        wait_until 10 grep -q 'cannot start the .*: Resource temporarily unavailable; retrying' "$T/err"
        equals "$(ls "/proc/$pid/task")" "$pid"
        touch "$T/allowed"
        is_threaded() { [ "$(ls "/proc/$pid/task" | wc -l)" = 2 ]; }
        wait_until 10 is_threaded
        pgrep -P "$pid" -x dlock-guard
        equals "$(wc -l <"$T/err")" 1
        kill -KILL "$pid"
        wait_until 10 gone "$(cat "$T/child")"
        steal job || true
    done
}

@test "a lock removed while the command runs: the command is stopped at once, with a message, exit 124" {
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

@test "a lost lock also stops the command's grandchildren and daemons, even those that ignore TERM" {
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

@test "a lock overwritten by another client: the command is stopped at once, and the new lock is not touched" {
    hold_lock job
    sleep 0.5 # as above
    local start=$(now) status=0
    overwrite job
    wait "$HOLDER" || status=$?
    equals "$status" 124
    within 2000 "$start"
    is_theirs job
}

@test "a lock lost just before the command ends is reported: never exit 0" {
    fails_with 124 'the lock (was lost before the command ended|is lost)' \
        dlock job -- bash -c ". $BATS_TEST_DIRNAME/backend.bash; steal job"
}

@test "--on-expire=warn: after a loss dlock sleeps until the command ends" {
    hold_lock job -t 2s --on-expire=warn
    steal job
    wait_until 10 grep -q 'the lock is lost' "$T/held.err"
    sleep 2.5 # longer than the lease, and than the time of the warning at 90 %
    local fields
    read -ra fields < <(sed 's/.*) //' "/proc/$HOLDER/stat")
    # Prints utime and stime, in hundredths of a second.
    [ $((fields[11] + fields[12])) -lt 30 ]
    end_hold
    wait "$HOLDER"
    not grep -q '90%' "$T/held.err"
}

@test "--on-expire=warn: a lost lock is reported, and the command's status is returned" {
    hold_lock job -t 10s --on-expire=warn
    steal job
    wait_until 10 grep -q 'the lock is lost: .*; the command keeps running' "$T/held.err"
    kill -0 "$(cat "$T/held")"
    local status=0
    end_hold
    wait "$HOLDER" || status=$?
    equals "$status" 0
    equals "$(grep -cE 'lost' "$T/held.err")" 1
    grep -qE 'the command ran for .* without the lock' "$T/held.err"
}
