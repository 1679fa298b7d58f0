#!/usr/bin/env bats
# bats file_tags=long
# What a failover can lose, because Redis replicates only after it has answered: the overlap
# is real, and the fence keeps the older write out.
load ../lib/common
load ../lib/replication

# The replica can no longer log in to the master, but everybody else can.
cut_off() {
    at_b config set masteruser nobody >/dev/null
    at_b config set masterauth nothing >/dev/null
    at_a client kill type replica >/dev/null
    wait_until 5 not has_synced
}

# A command that ignores the stop, writes its fence to $T/NAME and
# ends after a fenced write, once $T/NAME.end exists.
deaf() {
    printf '#!/bin/sh\ntrap "" TERM\necho "$DLOCK_FENCE" >"$T/%s.tmp" && mv "$T/%s.tmp" "$T/%s"\n' "$1" "$1" "$1"
    printf 'while [ ! -e "$T/%s.end" ]; do sleep 0.01; done\n' "$1"
    printf 'echo %s | "%s/../doc/examples/fenced-write" "$T/resource" 2>"$T/%s.refused"\n' "$1" "$TESTS" "$1"
    printf 'echo $? >"$T/%s.wrote"\n' "$1"
} >"$T/$1.sh"

# run_deaf NAME [DLOCK ARGUMENTS...]: runs it in the background; its pid is in $T/NAME.pid.
run_deaf() {
    local name=$1
    shift
    deaf "$name"
    dlock "$@" job -- sh "$T/$name.sh" 2>"$T/$name.err" 3>&- 4>&- &
    echo $! >"$T/$name.pid"
    wait_until 20 test -e "$T/$name"
}

ends_with() {
    local status=0
    wait "$(cat "$T/$2.pid")" || status=$?
    equals "$status" "$1"
}

@test "a failover without --wait-replicas loses a lock: two run at once for the grace, the first is stopped, and the fence refuses its writes" {
    start_pair
    # A replica that has been cut off for ten times as long could not take over.
    start_sentinel s 'sentinel down-after-milliseconds prime 60000'
    wait_until 10 sentinel_knows_replica "$PORT"
    export DLOCK_REDIS=redis+sentinel://127.0.0.1:$PORT/prime
    cut_off
    run_deaf first -t 5m --grace=1m
    wait_until 10 fails_over "$PORT"
    wait_until 20 has_switched s
    run_deaf second -w 20 -t 5m
    # The overlap: the first command still runs while the second one does.
    kill -0 "$(cat "$T/first.pid")"
    [ ! -e "$T/first.wrote" ]
    [ "$(cat "$T/second")" -gt "$(cat "$T/first")" ]
    touch "$T/second.end"
    ends_with 0 second
    touch "$T/first.end"
    ends_with 124 first
    equals "$(cat "$T/second.wrote") $(cat "$T/first.wrote") $(cat "$T/resource")" '0 3 second'
    grep -q "refused: fence $(cat "$T/first") is older than $(cat "$T/second")" "$T/first.refused"
    grep -qE 'the lock is lost: .*gone|the lock is lost: .*owner' "$T/first.err"
}

@test "a failover to a master whose clock is behind: without --wait-replicas the fence repeats, with it the fence rises" {
    start_pair
    local ahead=$(((EPOCHSECONDS + 3600) * 1000000)) first second
    export DLOCK_REDIS=unix://$T/a.sock
    # A fence left by a master whose clock was ahead.
    at_a hset '{dlock:job}:meta' fence "$ahead" >/dev/null
    at_a hset '{dlock:other}:meta' fence "$ahead" >/dev/null
    at_a wait 1 5000 >/dev/null
    first=$(dlock --wait-replicas=1 other -- sh -c 'echo "$DLOCK_FENCE"')
    cut_off
    run_deaf first -t 1m
    at_b replicaof no one >/dev/null
    run_deaf second -r "unix://$T/b.sock" -t 1m
    equals "$(cat "$T/first") $(cat "$T/second")" "$((ahead + 1)) $((ahead + 1))"
    second=$(dlock -r "unix://$T/b.sock" other -- sh -c 'echo "$DLOCK_FENCE"')
    equals "$first $second" "$((ahead + 1)) $((ahead + 2))"
    touch "$T/first.end" "$T/second.end"
    ends_with 0 first
    ends_with 0 second
}
