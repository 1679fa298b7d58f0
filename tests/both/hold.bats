#!/usr/bin/env bats
# --hold-at-least: of a crontab line on many hosts, one host runs each time.
load backend

@test "--hold-at-least: after a shorter command others are refused until that time is over, and no longer" {
    local start
    start=$(now)
    run dlock --hold-at-least=60s -t 60s third echo ran
    equals "$status $output" '0 ran'
    within 0 "$start" # dlock itself does not wait for the end of the hold
    start=$(now)
    run dlock --hold-at-least=2s -t 60s job echo ran
    equals "$status $output" '0 ran'
    fails_with 75 'released by .*, but kept for another ([0-9]+ms|1(\.[0-9])?s) \(--hold-at-least\)' dlock -v -n job echo wrong
    # The command's status is returned, and -v shows how long the lock stays held.
    row_holds 3 'released after .*, but kept for another 2.*\(--hold-at-least\)' \
        dlock -v --hold-at-least=30s -t 60s other -- sh -c 'exit 3'
    run dlock -w 20 job echo next
    equals "$status $output" '0 next'
    [ $(($(now) - start)) -ge 1900 ]
    within 3000 "$start"
    is_clean job
}

@test "--hold-at-least: of hosts that start one after the other within that time, one runs the command" {
    local i
    for i in {1..8}; do
        dlock -n -E 0 --hold-at-least=5s job -- sh -c 'echo ran >>"$T/runs"'
    done
    equals "$(wc -l <"$T/runs")" 1
}

# start_stalled ARGUMENT...: starts a dlock whose request takes 2.2 s to reach the store.
start_stalled() {
    local pid
    case $BACKEND in
        file)
            touch "$T/stop_at_section"
            LD_PRELOAD=$HELPERS/fault_stop_at.so dlock "$@" 3>&- 4>&- &
            STALLED=$! pid=$!
            wait_until 10 is_stopped "$pid"
            ;;
        redis)
            pid=$(cat "$T/redis.pid")
            kill -STOP "$pid"
            dlock "$@" 3>&- 4>&- &
            STALLED=$!
            ;;
    esac
    sleep 2.2
    TAKEN=$(date +%s)
    kill -CONT "$pid"
}
is_stopped() { grep -q '^State:.*stopped' "/proc/$1/status"; }
began() { date +%s -d "$(dlock --status --json "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["last_success"]["began_at"])')"; }

@test "a request delayed on its way: --hold-at-least and --once-per count from the moment when the lock was granted" {
    dlock before true
    start_stalled --hold-at-least=2s -t 60s job true
    wait "$STALLED"
    fails_with 75 'but kept for another' dlock -n -v job echo wrong
    [ "$(began job)" -ge "$TAKEN" ]
}

@test "--hold-at-least counts even if dlock is killed" {
    hold held
    dlock --hold-at-least=3s -t 4s job -- "$T/held.sh" >/dev/null 2>&1 3>&- 4>&- &
    local dlock=$! start
    start=$(now)
    wait_until 10 test -e "$T/held"
    kill -KILL "$dlock"
    wait_until 10 gone "$(cat "$T/held")"
    fails_with 75 '' dlock -n job echo wrong
    run dlock -w 20 job echo next
    equals "$output" next
    [ $(($(now) - start)) -ge 2800 ]
}

@test "--hold-at-least adds nothing for a command that took longer, could not be run or lost the lock" {
    row_holds 0 '' dlock --hold-at-least=300ms -t 60s job sleep 0.5
    is_clean job
    row_holds 0 '^next$' dlock -n job echo next
    row_holds 127 '' dlock --hold-at-least=60s -t 60s job "$T/nosuch"
    is_clean job
    if [ -z "${SANITIZER:-}" ]; then
        LD_PRELOAD=$HELPERS/fault_clone.so row_holds 71 '' dlock --hold-at-least=60s -t 60s job true
        is_clean job
    fi
    row_holds 124 'the lock is lost' dlock --hold-at-least=60s -t 60s job -- bash -c ". $BATS_TEST_DIRNAME/backend.bash; steal job; sleep 60"
    fails_with 0 '^next$' dlock -n -v job echo next
}

@test "--hold-at-least: processes that the command leaves behind are no longer inside the lock" {
    dlock --hold-at-least=60s -t 60s job -- sh -c '(until [ -e "$T/go" ]; do sleep 0.01; done
        dlock -v -n job echo inside >"$T/out" 2>&1; echo $? >"$T/status.tmp"; mv "$T/status.tmp" "$T/status") >/dev/null 2>&1 &' 3>&- 4>&-
    touch "$T/go"
    wait_until 10 test -e "$T/status"
    equals "$(cat "$T/status")" 75
}
