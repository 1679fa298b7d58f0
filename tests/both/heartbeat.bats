#!/usr/bin/env bats
load backend

# beat.py SECONDS COUNT: sends COUNT heartbeats, one every SECONDS, then nothing more.
beats() {
    cat >"$T/beat.py" <<'E'
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\0" + os.environ["NOTIFY_SOCKET"][1:])
for i in range(int(sys.argv[2])):
    time.sleep(float(sys.argv[1]))
    s.send(b"X_STEP=1\nWATCHDOG=1\nSTATUS=%d" % i)
print("all sent", flush=True)
E
}

# bats test_tags=slow
@test "--heartbeat: the warning at 90 % is printed again for an extended lease" {
    cat >"$T/warned.py" <<'E'
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\0" + os.environ["NOTIFY_SOCKET"][1:])
for warnings in 1, 2:
    while open(os.environ["T"] + "/err").read().count("90% of the lease") < warnings:
        time.sleep(0.01)
    s.send(b"WATCHDOG=1")
E
    local status=0
    dlock --heartbeat -t 4s --grace=10ms job -- python3 "$T/warned.py" 2>"$T/err" || status=$?
    equals "$status" 0
    equals "$(grep -c '90% of the lease' "$T/err")" 2
}

# bats test_tags=slow
@test "--heartbeat: other processes see the extended lease" {
    beats
    dlock --heartbeat -t 4s --grace=200ms job -- python3 "$T/beat.py" 0.5 12 >/dev/null 2>&1 3>&- 4>&- &
    local dlock=$!
    wait_until 10 is_locked job
    sleep 4.5 # beyond the TTL
    is_locked job
    fails_with 75 'held by .*lease ends in ([0-3](\.[0-9])?s|[0-9]+ms|4s)' dlock -v -n job true
    wait "$dlock"
    is_clean job
}

# bats test_tags=slow
@test "--heartbeat: a command that hangs is stopped one TTL after its last sign of life" {
    beats
    local start
    start=$(now)
    run dlock --heartbeat -t 4s job -- sh -c "python3 $T/beat.py 0.5 3; sleep 600"
    equals "$status" 124
    grep -qE 'the lease of 4s ends in [0-9]+ms; .* \(no heartbeat for 3\.[0-9]s\)' <<<"$output"
    [[ $output != *--ttl* ]]
    [ $(($(now) - start)) -ge 5000 ]
    is_clean job
}

# bats test_tags=slow
@test "--heartbeat: a command that makes progress keeps its lock beyond the TTL" {
    beats
    run dlock --heartbeat -t 4s --grace=200ms job -- python3 "$T/beat.py" 0.5 10
    equals "$status" 0
    grep -qx 'all sent' <<<"$output"
    is_clean job
}

# bats test_tags=slow
@test "--heartbeat: after a loss with --on-expire=warn the command can still send, and does not hang" {
    beats
    dlock --heartbeat --on-expire=warn -t 500ms job -- python3 "$T/beat.py" 0.01 300 >"$T/out" 2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0
    wait_until 10 is_locked job
    steal job
    wait "$dlock" || status=$?
    equals "$status" 0
    grep -qx 'all sent' "$T/out"
    grep -q 'the lock is lost' "$T/err"
}

@test "--heartbeat: a command that never sends a sign of life has one TTL and no more" {
    run dlock --heartbeat -t 1s job sleep 600
    equals "$status" 124
}

@test "without --heartbeat nothing extends the lease" {
    run dlock -t 1s job -- sh -c 'test -z "${NOTIFY_SOCKET-}" || exit 3; sleep 600'
    equals "$status" 124
}

@test "--heartbeat: a sign of life does not win back a lost lock" {
    beats
    dlock --heartbeat -t 2s job -- python3 "$T/beat.py" 0.1 600 >/dev/null 2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0
    wait_until 10 is_locked job
    overwrite job
    wait "$dlock" || status=$?
    equals "$status" 124
    is_theirs job
}

@test "--heartbeat: a flood of signs of life neither hangs the command nor burdens the store" {
    beats
    local calls start=$EPOCHSECONDS
    run dlock --heartbeat -t 2s job -- python3 "$T/beat.py" 0 20000
    equals "$status" 0
    if [ "$BACKEND" = redis ]; then
        calls=$(redis info commandstats | awk -F'[=,]' '/^cmdstat_eval/ { calls += $2 } END { print calls }')
        echo "$calls calls in $((EPOCHSECONDS - start)) s" >&2
        [ "$calls" -lt $((300 + 30 * (EPOCHSECONDS - start))) ]
    fi
}

@test "--heartbeat: a sign of life sent in time counts, even if dlock was frozen when it came" {
    export STILL
    cat >"$T/late.py" <<'E'
import json, os, signal, socket, subprocess, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\0" + os.environ["NOTIFY_SOCKET"][1:])
dlock = os.getppid()
def left():
    told = subprocess.run(["dlock", "--status", "--json", "job"], stdout=subprocess.PIPE).stdout
    return json.loads(told)["ttl_remaining"]
def set_clock(seconds):
    still = int(os.environ["STILL"])
    subprocess.run(["bash", "-c", ". $TESTS/lib/common.bash; set_boot =$0", str(still + seconds)], check=True)
os.kill(dlock, signal.SIGSTOP)
s.send(b"WATCHDOG=1")
set_clock(5399) # the stop is due, but is sent only a second later
before = left()
os.kill(dlock, signal.SIGCONT)
while left() <= before:
    time.sleep(0.01)
set_clock(8000) # beyond the first lease
time.sleep(0.5)
E
    export TESTS
    timeless run timeout 60 dlock --heartbeat -t 2h --grace=30m job -- python3 "$T/late.py"
    equals "$status $output" '0 '
}
