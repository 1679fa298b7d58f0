#!/usr/bin/env bats
# With a lease of an hour, a holder checks every ten seconds: anything it notices
# within one second, the server has reported.
load ../lib/common
setup() { common_setup; URL=unix://$T/redis.sock FAKE=unix://$T/fake.sock; }

# Prints the id of the holder's connection once the server can notify it.
armed_id() { redis client list | grep -E 'name=dlock .* sub=1 ' | grep -oE '^id=[0-9]+'; }

armed_holders() { [ "$(armed_id | wc -l)" = "$1" ]; }

hold_armed() {
    rm -f "$T/held"
    hold_lock job "$@"
    wait_until 10 armed_id
}

# calls COMMAND: prints how often the server has carried it out.
calls() { redis info commandstats | sed -nE "s/^cmdstat_$1:calls=([0-9]+),.*/\1/p" | grep . || echo 0; }

more_calls() { [ "$(calls "$1")" -gt "$2" ]; }

# ended_within MILLISECONDS START: the holder's command is stopped in time, with 124.
ended_within() {
    local status=0
    wait "$HOLDER" || status=$?
    within "$1" "$2"
    equals "$status" 124
    gone "$(cat "$T/held")"
}

# stops_it COMMAND...: it costs the holder the lock, which is noticed at once.
stops_it() {
    local start
    start=$(now)
    "$@" >/dev/null
    ended_within 0 "$start"
}

is_free() { [ "$(redis exists dlock:job)" = 0 ]; }

# bats test_tags=slow
@test "a user without CLIENT TRACKING or without its channel: the lock is polled, -v says so, and tracking is tried only once" {
    start_redis
    redis acl setuser bob on '>pw' '~*' '&*' +@all '-client|tracking'
    checks_instead "unix://bob:pw@$T/redis.sock" 'CLIENT TRACKING: NOPERM'
    equals "$(refused 'client\|tracking')" 1
    redis acl setuser carol on '>pw' '~*' resetchannels +@all
    checks_instead "unix://carol:pw@$T/redis.sock" 'SUBSCRIBE: NOPERM'
    redis acl setuser dave on '>pw' '~*' '&*' +@all -unsubscribe
    checks_instead "unix://dave:pw@$T/redis.sock" 'UNSUBSCRIBE: NOPERM'
    equals "$(refused unsubscribe)" 1
    local word
    for word in multi exec; do
        redis acl setuser erin reset on '>pw' '~*' '&*' +@all "-$word"
        checks_instead "unix://erin:pw@$T/redis.sock" "${word^^}: .*NOPERM"
    done
}

# bats test_tags=slow
@test "an extension by another client moves the deadline at once" {
    start_redis
    # It checks once more five seconds after the lock is acquired; the server is gone by then.
    hold_armed -r "$URL" -t 100s --grace=94s
    local before=$(calls evalsha) over=$(($(now) + 9000))
    redis pexpire dlock:job 200000
    wait_until 1 more_calls evalsha "$before"
    stop_redis
    wait_until 20 eval '(($(now) > over))'
    kill -0 "$(cat "$T/held")"
    end_hold
    wait "$HOLDER"
}

# bats test_tags=slow
@test "a server that starts to send only nonsense: the command is stopped before the lease ends" {
    start_redis
    local mode modes=(garbage huge endless cut nonsense close mute) fakes=() holders=() status
    for mode in "${modes[@]}"; do
        fake_redis "spoilt=$mode" "$T/redis.sock"
        fakes+=("$(cat "$T/fake.pid")")
        mv "$T/fake.pid" "$T/fake-$mode.pid"
        mv "$T/fake.sock" "$T/$mode.sock"
        hold "$mode"
    done
    for mode in "${modes[@]}"; do
        dlock -r "unix://$T/$mode.sock" -t 8s --connect-timeout=300ms "$mode" -- "$T/$mode.sh" \
            >/dev/null 2>"$T/$mode.err" 3>&- 4>&- &
        holders+=($!)
    done
    wait_until 7 armed_holders ${#modes[@]}
    kill -USR1 "${fakes[@]}"
    for mode in "${modes[@]}"; do
        status=0
        wait "${holders[0]}" || status=$?
        equals "$mode $status" "$mode 124"
        holders=("${holders[@]:1}")
        grep -q 'the lease of 8s ends in ' "$T/$mode.err"
        gone "$(cat "$T/$mode")"
    done
}

# bats test_tags=slow
@test "a server with renamed commands: the lock is polled, and -v says so" {
    start_redis redis --rename-command CLIENT ''
    checks_instead "$URL" 'CLIENT ID: ERR unknown command'
    stop_redis
    start_redis redis --rename-command EXEC ''
    checks_instead "$URL" 'EXEC: ERR unknown command'
    stop_redis
    start_redis redis --rename-command SUBSCRIBE ''
    checks_instead "$URL" 'SUBSCRIBE: ERR unknown command'
}

# bats test_tags=slow
@test "a server that goes away: the holder sleeps, and the command is stopped before the lease ends" {
    start_redis
    hold_armed -r "$URL" -t 4s
    stop_redis
    local fields status=0
    wait_until 8 gone "$(cat "$T/held")"
    read -ra fields < <(sed 's/.*) //' "/proc/$HOLDER/stat")
    # Prints utime and stime, in hundredths of a second.
    [ $((fields[11] + fields[12])) -lt 30 ]
    wait "$HOLDER" || status=$?
    equals "$status" 124
    grep -q 'the lease of 4s ends in .*stopping the command' "$T/held.err"
}

# bats test_tags=slow
@test "--heartbeat: a key whose expiry another client removed gets one again, and the lease is extended" {
    start_redis
    cat >"$T/persist.py" <<'E'
import os, socket, subprocess, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\0" + os.environ["NOTIFY_SOCKET"][1:])
cli = ["redis-cli", "-s", os.environ["T"] + "/redis.sock"]
subprocess.run(cli + ["persist", "dlock:job"], stdout=subprocess.DEVNULL)
for i in range(6):
    time.sleep(0.8)
    s.send(b"WATCHDOG=1")
assert int(subprocess.check_output(cli + ["pttl", "dlock:job"])) > 0
E
    run dlock -r "unix://$T/redis.sock" --heartbeat -t 4s --grace=100ms job -- python3 "$T/persist.py"
    equals "$status $output" '0 '
}

# bats test_tags=slow
@test "a proxy that closes the connection on CLIENT TRACKING: the lock is polled, and -v says so" {
    start_redis
    fake_redis closing=TRACKING "$T/redis.sock"
    checks_instead "$FAKE" 'the connection ended during CLIENT TRACKING'
}

# --- what others do to the key -----------------------------------------------

@test "a key that is deleted, overwritten, renamed or flushed stops the command at once" {
    start_redis
    local command
    for command in 'del dlock:job' 'unlink dlock:job' 'set dlock:job other' 'getset dlock:job other' \
        'rename dlock:job elsewhere' 'flushall' 'flushdb'; do
        redis flushall
        hold_armed -r "$URL"
        # shellcheck disable=SC2086
        stops_it redis $command
        grep -q 'the lock is lost: .*the key dlock:job \(is gone\|is held under another owner token\); stopping' "$T/held.err"
    done
}

@test "a key that is made to expire early stops the command at once" {
    start_redis
    hold_armed -r "$URL"
    stops_it redis pexpire dlock:job 1
}

@test "a key that is evicted stops the command at once" {
    start_redis redis --maxmemory-policy allkeys-random
    hold_armed -r "$URL"
    stops_it redis config set maxmemory 1
    grep -q 'the lock is lost: .*the key dlock:job is gone' "$T/held.err"
}

@test "a key that is deleted right after the start stops the command at once" {
    start_redis
    local start=$(now)
    fails_with 124 'the lock is lost: .*the key dlock:job is gone' \
        dlock -r "$URL" job -- sh -c 'redis-cli -s "$T/redis.sock" del dlock:job; exec sleep 30'
    within 0 "$start"
}

@test "messages about a lease that another client has shortened do not show the original --ttl" {
    start_redis
    hold_armed -r "$URL" -t 1h
    local start=$(now) status=0
    redis pexpire dlock:job 1500
    wait "$HOLDER" || status=$?
    equals "$status" 124
    [ $(($(now) - start)) -ge 1000 ]
    grep -qE 'the lease, last set to 1\.[0-9]s, ends in [0-9]+ms; stopping the command with SIGTERM$' "$T/held.err"
}

@test "a client that keeps touching the key neither takes the lock nor keeps the holder busy" {
    start_redis
    hold_armed -r "$URL"
    local before=$(calls evalsha) start=$(now) looks
    timeout 2 redis-cli -s "$T/redis.sock" -r 1000000 pexpire dlock:job 3600000 >/dev/null || [ $? -eq 124 ]
    local took=$(($(now) - start))
    looks=$(($(calls evalsha) - before))
    echo "$looks looks in $took ms" >&2
    [ "$looks" -ge 1 ]
    [ "$looks" -le $((took / 10 + 5)) ]
    kill -0 "$(cat "$T/held")"
    stops_it redis del dlock:job
}

@test "a notification that arrives with the reply that starts the watch is not overlooked" {
    start_redis
    hold_armed -r "$URL" # so that the scripts are known
    end_hold
    wait "$HOLDER"
    rm "$T/held.end"
    fake_redis behind "$T/redis.sock" DEL dlock:job
    hold held
    local start=$(now)
    dlock -r "$FAKE" job -- "$T/held.sh" 2>"$T/held.err" 3>&- 4>&- &
    HOLDER=$!
    echo "$HOLDER" >"$T/holder.pid"
    ended_within 0 "$start"
    grep -q 'the key dlock:job is gone' "$T/held.err"
}

@test "a key that is overwritten while a request arrives in two halves stops the command at once" {
    start_redis
    hold_armed -r "$URL" # so that the scripts are known
    end_hold
    wait "$HOLDER"
    rm "$T/held.end"
    fake_redis halves "$T/redis.sock" SET dlock:job other
    hold held
    local start=$(now)
    dlock -r "$FAKE" job -- "$T/held.sh" 2>"$T/held.err" 3>&- 4>&- &
    HOLDER=$!
    echo "$HOLDER" >"$T/holder.pid"
    ended_within 0 "$start"
    grep -q 'the key dlock:job is held under another owner token' "$T/held.err"
}

# --- a lock that nobody touches ----------------------------------------------

@test "after an uneventful watch the lock is released without a message" {
    start_redis
    hold_armed -r "$URL"
    end_hold
    wait "$HOLDER"
    equals "$(cat "$T/held.err")" ''
    is_free
}

@test "a very short command costs no calls except acquire and release" {
    start_redis
    dlock -r "$URL" job true
    redis config resetstat
    dlock -r "$URL" job true
    equals "$(calls evalsha) $(calls subscribe) $(calls 'client\|tracking')" '2 0 0'
}

@test "an idle holder starts its watch with few commands, and then sends none for seconds" {
    start_redis
    hold_armed -r "$URL"
    end_hold
    wait "$HOLDER"
    rm "$T/held.end"
    redis config resetstat
    hold_armed -r "$URL"
    local command sent=''
    sleep 3
    for command in 'client\|setname' 'client\|id' 'client\|tracking' 'client\|caching' multi evalsha subscribe exec unsubscribe; do
        sent+="$(calls "$command") "
    done
    equals "$sent" '1 1 1 0 1 2 1 1 0 '
}

@test "SCRIPT FLUSH while the lock is watched: checks, notifications and the release still work" {
    start_redis
    hold_armed -r "$URL"
    local before=$(calls eval)
    redis script flush
    redis pexpire dlock:job 3600000
    wait_until 5 more_calls eval "$before"
    wait_until 5 armed_id
    stops_it redis del dlock:job
    hold_armed -r "$URL"
    redis script flush
    end_hold
    wait "$HOLDER"
    is_free
}

# --- connections and servers that go -----------------------------------------

is_armed_anew() { local id; id=$(armed_id) && [ "$id" != "$1" ]; }

@test "a killed connection loses no lock: dlock reconnects at once, and the watch continues" {
    start_redis
    hold_armed -r "$URL"
    local id
    id=$(armed_id)
    redis client kill type pubsub
    wait_until 1 is_armed_anew "$id"
    kill -0 "$(cat "$T/held")"
    stops_it redis del dlock:job
}

@test "a server that restarts empty: the lost lock is reported as soon as the server is back" {
    start_redis
    hold_armed -r "$URL"
    stop_redis
    kill -0 "$(cat "$T/held")"
    rm -f "$T/redis.sock"
    start_redis
    ended_within 0 "$(now)"
    grep -q 'the lock is lost: .*the key dlock:job is gone' "$T/held.err"
}

@test "a failover to a server that lacks the lock stops the command at once" {
    start_redis
    start_redis other
    fake_redis switch "$T/redis.sock" "$T/other.sock"
    hold_armed -r "$FAKE"
    stops_it kill -USR1 "$(cat "$T/fake.pid")"
    grep -q 'the lock is lost: .*the key dlock:job is gone' "$T/held.err"
}

@test "a server that sends nonsense costs the holder the connection, not the lock" {
    local mode id
    start_redis
    for mode in garbage huge endless cut nonsense close messages; do
        fake_redis "spoil=$mode" "$T/redis.sock"
        hold_armed -r "$FAKE"
        id=$(armed_id)
        local before=$(calls evalsha)
        kill -USR1 "$(cat "$T/fake.pid")"
        wait_until 5 more_calls evalsha "$before"
        [ $mode = messages ] || wait_until 5 is_armed_anew "$id"
        wait_until 5 armed_id
        kill -0 "$(cat "$T/held")"
        stops_it redis del dlock:job
        kill "$(cat "$T/fake.pid")"
    done
}

# --- servers that cannot tell ------------------------------------------------

# checks_instead URL REASON: the lock is polled every second, and a message says so.
checks_instead() {
    rm -f "$T/held"
    redis flushall
    hold_lock job -v -r "$1" -t 10s
    wait_until 10 grep -qE "the backend cannot report changes to the lock \($2.*\); dlock checks the lock every 1s" "$T/held.err"
    local before
    before=$(calls evalsha)
    wait_until 10 more_calls evalsha $((before + 1))
    kill -0 "$(cat "$T/held")"
    local start=$(now)
    redis del dlock:job
    ended_within 1000 "$start"
    [ "$(grep -c 'cannot report' "$T/held.err")" = 1 ]
    grep -q 'the key dlock:job is gone' "$T/held.err"
}

refused() { redis info commandstats | tr -d '\r' | sed -nE "s/^cmdstat_$1:.*rejected_calls=([0-9]+),.*/\1/p"; }

@test "the permissions in the manual are enough for immediate notification" {
    start_redis
    manual_user
    hold_armed -v -r "unix://locker:secret@$T/redis.sock"
    stops_it redis del dlock:job
    not grep -q 'cannot report' "$T/held.err"
}

@test "a proxy that closes the connection on CLIENT SETNAME or any CLIENT: the lock is acquired, waited for and released" {
    start_redis
    redis acl setuser bob on '>pw' '~*' '&*' +@all
    local text start waiter
    for text in SETNAME CLIENT; do
        fake_redis closing=$text "$T/redis.sock"
        start=$(now)
        hold_lock job -r "unix://bob:pw@$T/fake.sock" -t 1m
        dlock -r "$FAKE" job -- touch "$T/ran" 2>"$T/waiter.err" 3>&- 4>&- &
        waiter=$!
        wait_until 10 redis exists '{dlock:job}:queue'
        end_hold
        wait "$HOLDER"
        wait "$waiter"
        rm "$T/ran"
        within 9000 "$start"
        equals "$(cat "$T/held.err")" ''
        is_free
    done
    fake_redis closing=SETNAME "$T/redis.sock"
    dlock -n --retry-for=0 -r "$FAKE" job true
    fails_with 0 'ok +login' dlock -r "$FAKE" --doctor job
}

@test "a user who loses the right to unsubscribe keeps the lock, which is polled" {
    start_redis
    redis acl setuser bob on '>pw' '~*' '&*' +@all
    hold_lock job -v -r "unix://bob:pw@$T/redis.sock" -t 10s
    wait_until 10 armed_id
    redis acl setuser bob -unsubscribe
    wait_until 10 grep -q 'cannot report changes to the lock (UNSUBSCRIBE: NOPERM' "$T/held.err"
    kill -0 "$(cat "$T/held")"
    end_hold
    wait "$HOLDER"
    is_free
}

waiter_listens() { redis pubsub channels '*wake*' | grep .; }
refused_again() { [ "$(refused multi)" -gt "$1" ]; }

@test "MULTI refused for a moment: a holder, a heartbeat and a called waiter go on, and no lock is left" {
    start_redis
    # The holder checks because another client changes the key.
    hold_armed -r "$URL" -t 1m
    redis acl setuser default -multi
    redis pexpire dlock:job 50000
    wait_until 10 refused_again 0
    redis acl setuser default +multi
    end_hold
    wait "$HOLDER"
    equals "$(cat "$T/held.err")" ''
    is_free
    # The waiter has become the first, and subscribes to changes.
    hold_armed -r "$URL" -t 1m
    dlock -r "$URL" -t 1m job -- touch "$T/ran" 2>"$T/waiter.err" 3>&- 4>&- &
    local waiter=$!
    wait_until 10 waiter_listens
    redis config resetstat
    redis acl setuser default -multi
    wait_until 10 refused_again 0
    redis acl setuser default +multi
    end_hold
    wait "$HOLDER"
    wait "$waiter"
    [ -e "$T/ran" ]
    is_free
    equals "$(cat "$T/held.err" "$T/waiter.err")" ''
    cat >"$T/beat.py" <<'E'
import os, socket, subprocess, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\0" + os.environ["NOTIFY_SOCKET"][1:])
for i in range(45):
    if i in (2, 40): # otherwise the lease would end meanwhile
        subprocess.run(["redis-cli", "-s", os.environ["T"] + "/redis.sock", "acl", "setuser", "default",
                        "-multi" if i == 2 else "+multi"], stdout=subprocess.DEVNULL)
    time.sleep(0.1)
    s.send(b"WATCHDOG=1")
E
    redis config resetstat
    run dlock -r "$URL" --heartbeat -t 3s job -- python3 "$T/beat.py"
    equals "$status $output" '0 '
    refused_again 0
    is_free
}
