#!/usr/bin/env bats
# The server's clock is set: the end of a lease moves only if a client extends or
# shortens it.
load ../lib/common

setup() {
    common_setup
    set_wall 0
    LD_PRELOAD=$HELPERS/fault_wall_clock.so start_redis
    export DLOCK_REDIS=unix://$T/redis.sock
}

# runs NAME [DLOCK ARGUMENTS...]: starts a run of 600 s, which holds the lock when this returns.
runs() {
    local name=$1
    shift
    dlock "$@" "$name" -- sh -c 'echo $$ >"$T/$DLOCK_NAME.held"; exec sleep 600' 2>"$T/$name.err" 3>&- 4>&- &
    PIDS+=($!)
    wait_until 10 test -e "$T/$name.held"
}

# ends STATUS MILLISECONDS START: each of the runs must end with this status, and no later.
ends() {
    local pid status
    for pid in "${PIDS[@]}"; do
        status=0
        wait "$pid" || status=$?
        equals "$status" "$1"
    done
    within "$2" "$3"
}

# bats test_tags=slow
@test "the server's clock is set back: a new expiry or a heartbeat counts from the moment it arrives" {
    runs set -t 15s
    runs extended -t 15s
    runs shared -t 15s -s
    local begun
    begun=$(now)
    runs shortened -t 60s
    dlock --heartbeat -t 6s beats -- python3 -c 'import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for i in range(10):
    time.sleep(0.8)
    s.sendto(b"WATCHDOG=1", "\0" + os.environ["NOTIFY_SOCKET"][1:])' 3>&- 4>&- &
    local beats=$!
    wait_until 10 eval '[ "$(redis exists dlock:beats)" = 1 ]'
    set_wall -20
    redis pexpire dlock:set 60000
    local name
    for name in extended shared; do
        dlock --ttl=60s --extend --owner="$(dlock --json --status "$name" | python3 -c '
import json, sys
state = json.load(sys.stdin)
print(state.get("owner") or state["holders"][0]["owner"])')" "$name"
    done
    redis pexpire dlock:shortened 3000
    local status=0
    wait "${PIDS[3]}" || status=$?
    equals "$status" 124
    wait "$beats"
    wait_until 30 eval '(($(now) > begun + 17000))' # a lease that was not extended would not last as long
    kill -0 "${PIDS[@]:0:3}"
    kill "${PIDS[@]:0:3}"
}

# bats test_tags=slow
@test "the server's clock is set forward and back again: the run keeps its whole lease" {
    dlock -t 18s --grace=100ms job -- sleep 12 2>"$T/err" 3>&- 4>&- &
    local run=$!
    wait_until 10 eval '[ "$(redis exists dlock:job)" = 1 ]'
    set_wall 8 # so that the lease would end in ten seconds
    looks() { redis info commandstats | sed -nE 's/^cmdstat_evalsha:calls=([0-9]+),.*/\1/p'; }
    looked() { [ "$(looks)" -ge $((before + 2)) ]; }
    local before
    before=$(looks)
    wait_until 7 looked
    set_wall 0
    wait "$run"
    [ ! -s "$T/err" ]
}

# bats test_tags=slow
@test "the server's clock is set forward: the run is stopped before the server lets others acquire the lock" {
    runs job -t 30s --grace=2s
    set_wall 20
    dlock -w 60 job -- sh -c '! kill -0 "$(cat "$T/job.held")"' 2>/dev/null 3>&- 4>&- &
    local next=$!
    ends 124 22000 "$(now)"
    grep -q 'the lease of 30s ends' "$T/job.err"
    wait "$next"
}

# bats test_tags=slow
@test "the server's clock is set back: the run still ends with its lease, not later" {
    local start
    start=$(now)
    runs exclusive -t 6s
    runs shared -t 6s -s
    runs slots -t 6s --slots=2
    set_wall -20
    ends 124 12000 "$start"
}

@test "the server's clock is set forward beyond the lease: the lock is lost and the run is stopped at once" {
    runs job -t 1h --grace=1s
    sleep 0.5 # the first check is over, the next one comes after ten seconds
    set_wall 7200
    ends 124 2000 "$(now)"
    grep -q 'lost' "$T/job.err"
}

@test "the server's clock is set back: a dead holder's lock lasts that much longer, unless it is released by force" {
    runs job -t 2s
    kill -KILL "${PIDS[0]}"
    wait "${PIDS[0]}" || true
    set_wall -3600
    [ "$(redis pttl dlock:job)" -gt 3000000 ]
    fails_with 75 '' dlock -w 4s job true
    dlock -q --force-release job
    dlock -n job true
}
