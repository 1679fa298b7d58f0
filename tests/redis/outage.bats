#!/usr/bin/env bats
# A server in trouble is an outage, which is retried for as long as requested and then
# reported; it neither acquires nor loses a lock.
load ../lib/common
setup() { common_setup; URL=unix://$T/redis.sock; }

is_free() { [ "$(redis exists dlock:job)" = 0 ]; }
answers() { redis ping | grep -q "$1"; }

# Acquires the lock during an outage that COMMAND ends.
taken_after() { # taken_after ERROR COMMAND...
    local error=$1
    shift
    fails_with 69 "the server answered: $error.*; tried [2-9] times in ([3-9]..ms|[0-9.]+s); the command was not run" \
        dlock -r "$URL" --retry-for=300ms -w 10 job touch "$T/ran"
    [ ! -e "$T/ran" ]
    dlock -r "$URL" --retry-for=20 job touch "$T/ran" 2>"$T/err" 3>&- 4>&- &
    local dlock=$!
    wait_until 10 sh -c "tr '\0' ' ' </proc/$dlock/cmdline | grep -q retry-for=20"
    "$@"
    wait "$dlock"
    [ -e "$T/ran" ]
    rm "$T/ran"
    is_free
}

# bats test_tags=slow
@test "each try ends when --retry-for is over, even the first, although one try may take longer" {
    fake_redis mute
    local start=$(now)
    fails_with 69 'tried (once, for|2 times in) [0-9]' dlock -r "unix://$T/fake.sock" --connect-timeout=20s --retry-for=1s job touch "$T/ran"
    [ $(($(now) - start)) -ge 1000 ]
    # dlock may need one more second to give back a lock that it may have acquired.
    within 5000 "$start"
    [ ! -e "$T/ran" ]
    local action
    for action in --status --wait-until-free '--release --owner=x' '--extend --owner=x' --force-release; do
        start=$(now)
        # shellcheck disable=SC2086
        fails_with 69 'tried (once, for|2 times in) [0-9]' dlock -r "unix://$T/fake.sock" --connect-timeout=20s --retry-for=1s $action job
        within 5000 "$start"
    done
}

# bats test_tags=slow
@test "a check that hangs until the stop signal is due is followed by one more, which finds an extended lease" {
    start_redis
    torture_proxy redis
    local run status=0
    dlock -r "unix://$T/redis.proxy" --connect-timeout=20s -t 5s --grace=900ms --owner=me job -- \
        sh -c 'touch "$T/held"; sleep 5.5' 2>"$T/err" 3>&- 4>&- &
    run=$!
    wait_until 10 test -e "$T/held"
    ask_proxy redis hang
    dlock -r "$URL" --extend --owner=me -t 60s job
    wait "$run" || status=$?
    equals "$status $(cat "$T/err")" '0 '
    is_free
}

# bats test_tags=slow
@test "if the store of the enclosing lock does not answer, a dlock inside does not acquire the lock elsewhere" {
    start_redis
    export DLOCK_LOCK_DIR=$T/locks
    # shellcheck disable=SC2016
    fails_with 69 'cannot check the lock that dlock runs under: .*; tried [2-9] times? in [0-9.]+m?s; the command was not run' \
        dlock -r "$URL" job -- sh -c 'mv "$T/redis.sock" "$T/away"; dlock --retry-for=1s job touch "$T/ran"; echo $? >"$T/status"
            dlock --status --retry-for=0 job; echo $? >>"$T/status"
            dlock -w 0.2 --retry-for=600s job touch "$T/ran"; echo $? >>"$T/status"; mv "$T/away" "$T/redis.sock"; exit "$(head -n 1 "$T/status")"'
    equals "$(cat "$T/status")" $'69\n69\n69'
    [ ! -e "$T/ran" ]
    # The store answers within --retry-for.
    # shellcheck disable=SC2016
    fails_with 0 'already holds the lock' dlock -r "$URL" job -- sh -c 'mv "$T/redis.sock" "$T/away"; dlock -v --retry-for=20s job touch "$T/ran" &
        sleep 0.5; mv "$T/away" "$T/redis.sock"; wait $!'
    [ -e "$T/ran" ]
    # An entry of DLOCK_HELD that no ancestor has added may be an old one.
    # shellcheck disable=SC2016
    dlock -r "$URL" job -- sh -c 'echo "$DLOCK_HELD" >"$T/held_by"'
    mv "$T/redis.sock" "$T/away"
    DLOCK_HELD=$(cat "$T/held_by") dlock other -- dlock job true
    mv "$T/away" "$T/redis.sock"
}

# bats test_tags=slow
@test "requests that many processes have given up, and that arrive late, leave no lock" {
    start_redis
    dlock -r "$URL" job true
    torture_proxy redis
    ask_proxy redis hold 40
    redis config resetstat
    local i
    for i in {1..40}; do
        dlock -r "unix://$T/redis.proxy" --retry-for=0 --connect-timeout=5s job touch "$T/ran" 2>/dev/null 3>&- 4>&- &
        echo $! >"$T/given-up-$i.pid"
    done
    for i in {1..40}; do wait "$(cat "$T/given-up-$i.pid")" || equals $? 69; done
    wait_until 5 has_run 40
    ask_proxy redis heal
    wait_until 10 has_run 80
    is_free
    [ ! -e "$T/ran" ]
}

@test "an outage after a long wait: the message counts the tries of the outage, not those of the wait" {
    start_redis
    redis set dlock:job other >/dev/null
    local start=$(now) waiter waited tried
    dlock -r "$URL" -w 600 --retry-for=300ms job touch "$T/ran" 2>"$T/err" 3>&- 4>&- &
    waiter=$!
    wait_until 10 sh -c "redis-cli -s '$T/redis.sock' hlen '{dlock:job}:waiters' | grep -q 1"
    local i since=$(now)
    for i in {1..10}; do redis expire dlock:job 1000 >/dev/null; sleep 0.3; done # the first waiter asks each time
    waited=$(($(now) - since))
    stop_redis
    local status=0
    wait "$waiter" || status=$?
    equals "$status" 69
    tried=$(sed -nE 's/.*; tried ([0-9]+) times? in ([0-9]+)ms; .*/\2/p; s/.*; tried ([0-9]+) times? in ([0-9]+)(\.([0-9]))?s; .*/\2\400/p' "$T/err")
    [ "${tried:-0}" -ge 300 ]
    [ $((tried + waited)) -le $(($(now) - start)) ]
    [ ! -e "$T/ran" ]
}

@test "--heartbeat: signs of life sent while the server hung are not reported as missing" {
    start_redis
    cat >"$T/beat.py" <<'E'
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\0" + os.environ["NOTIFY_SOCKET"][1:])
while True:
    s.send(b"WATCHDOG=1")
    open(os.environ["T"] + "/beaten", "w")
    time.sleep(0.2)
E
    dlock -r "$URL" --heartbeat -t 4s job -- python3 "$T/beat.py" 2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0
    wait_until 10 test -e "$T/beaten"
    kill -STOP "$(cat "$T/redis.pid")"
    wait_until 20 grep -q 'the lease of 4s ends in' "$T/err"
    kill -CONT "$(cat "$T/redis.pid")" # for the release
    wait "$dlock" || status=$?
    equals "$status" 124
    not grep -q 'no heartbeat' "$T/err"
}

@test "no thread can be started and the server hangs: signals still reach the command, which ends with its lease" {
    start_redis
    cat >"$T/job" <<'E'
#!/bin/bash
trap 'touch "$T/got"' TERM
trap '' INT
echo $$ >"$T/command"
while :; do sleep 0.01; done
E
    chmod +x "$T/job"
    local start dlock status=0
    start=$(now)
    LD_PRELOAD=$HELPERS/fault_pthread_create.so dlock -r "$URL" -t 5s --stop-signal=INT job "$T/job" 2>"$T/err" 3>&- 4>&- &
    dlock=$!
    wait_until 10 grep -q 'thread that watches the lease' "$T/err"
    kill -STOP "$(cat "$T/redis.pid")"
    sleep 0.5 # a check starts and hangs
    kill -TERM "$dlock"
    wait_until 3 test -e "$T/got"
    wait_until 10 gone "$(cat "$T/command")"
    within 7000 "$start"
    kill -CONT "$(cat "$T/redis.pid")"
    wait "$dlock" || status=$?
    equals "$status" 124
}

@test "a server that has reached its limit of clients is retried, and the message says so" {
    start_redis redis --maxclients 1
    hold_lock other -r "$URL"
    fails_with 69 "the server answered: ERR max number of clients( \+ cluster connections)? reached; tried [2-9] times" \
        dlock -r "$URL" --retry-for=300ms job touch "$T/ran"
    [ ! -e "$T/ran" ]
    dlock -r "$URL" --retry-for=20 job touch "$T/ran" 3>&- 4>&- &
    local dlock=$!
    end_hold
    wait "$HOLDER"
    wait "$dlock"
    [ -e "$T/ran" ]
}

@test "a server that rejects the connection before the first command: its reason is reported" {
    fake_redis 'dismiss=ERR max number of clients reached'
    fails_with 69 'the server answered: ERR max number of clients reached; tried once' \
        dlock -r "unix://$T/fake.sock" --retry-for=0 job touch "$T/ran"
    kill "$(cat "$T/fake.pid")"
    fake_redis 'dismiss=DENIED Redis is running in protected mode because ...'
    fails_with 77 'DENIED Redis is running in protected mode' dlock -r "unix://$T/fake.sock" job touch "$T/ran"
    fails_with 77 'DENIED Redis is running in protected mode' dlock -r "unix://u:p@$T/fake.sock?db=1" job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "a server out of memory: no lock is acquired, a held one is checked, extended and released" {
    start_redis
    hold_lock job -r "$URL" -t 60
    local owner
    owner=$(redis get dlock:job)
    redis config set maxmemory 1
    run dlock -r "$URL" --extend --owner="$owner" -t 90 job
    equals "$status" 0
    run dlock -r "$URL" --status job
    equals "$status" 0
    run dlock -r "$URL" -n job touch "$T/ran"
    equals "$status" 75
    end_hold
    wait "$HOLDER"
    is_free
    taken_after 'OOM command not allowed' redis config set maxmemory 0
}

@test "a server that cannot save, or lacks its replicas: no lock is acquired, and a release is retried" {
    start_redis
    redis config set min-replicas-to-write 1
    taken_after 'NOREPLICAS' redis config set min-replicas-to-write 0
    # A save fails because its file is a folder.
    mkdir -p "$T/dump.rdb/x"
    hold_lock job -r "$URL"
    redis config set save '1 1000000'
    redis bgsave
    wait_until 10 sh -c "redis-cli -s '$T/redis.sock' info persistence | grep -q 'rdb_last_bgsave_status:err'"
    end_hold
    # Its command has ended: it tries to release.
    wait_until 10 not has_command "$HOLDER"
    redis config set stop-writes-on-bgsave-error no
    wait "$HOLDER"
    is_free
    equals "$(cat "$T/held.err")" ''
    redis config set stop-writes-on-bgsave-error yes
    taken_after 'MISCONF' redis config set stop-writes-on-bgsave-error no
}

rejected() { redis info errorstats | sed -n 's/^errorstat_MASTERDOWN:count=\([0-9]*\).*/\1/p'; }
has_rejected_more_than() { [ "$(rejected)" -gt "$1" ]; }

@test "a replica: no lock can be acquired there, and none is lost if the server becomes one for a while" {
    start_redis
    hold_lock job -r "$URL" -t 10
    redis replicaof 127.0.0.1 1
    fails_with 69 'READONLY' dlock -r "$URL" --retry-for=0 other touch "$T/ran"
    redis config set replica-serve-stale-data no
    fails_with 69 'MASTERDOWN' dlock -r "$URL" --retry-for=0 other touch "$T/ran"
    fails_with 69 'MASTERDOWN' dlock -r "$URL" --retry-for=0 --status other
    [ ! -e "$T/ran" ]
    # The holder checks, and is told that the server is busy.
    wait_until 10 has_rejected_more_than "$(rejected)"
    redis replicaof no one
    kill -0 "$(cat "$T/held")"
    end_hold
    wait "$HOLDER"
    is_free
}

@test "a Cluster node without slots: no lock is acquired" {
    start_redis redis --cluster-enabled yes --cluster-config-file nodes.conf --port "$(free_port)" --cluster-port "$(free_port)"
    fails_with 69 'CLUSTERDOWN' dlock -r "$URL" --retry-for=0 job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "another client's long-running script: a held lock stays held, and is released after the script" {
    start_redis redis --busy-reply-threshold 10
    hold_lock job -r "$URL" -t 10
    redis eval 'while true do end' 0 >/dev/null 2>&1 3>&- 4>&- &
    wait_until 10 answers BUSY
    fails_with 69 'BUSY' dlock -r "$URL" --retry-for=0 --status job
    fails_with 69 'BUSY' dlock -r "$URL" --retry-for=0 other touch "$T/ran"
    end_hold
    wait_until 10 not has_command "$HOLDER"
    redis script kill
    wait "$HOLDER"
    equals "$(cat "$T/held.err")" ''
    is_free
    [ ! -e "$T/ran" ]
}

@test "a server that is still loading its data is waited for" {
    start_redis redis
    redis eval 'for i = 1, 3000 do redis.call("SET", "key" .. i, string.rep("x", 100)) end' 0
    redis save
    stop_redis
    rm "$T/redis.sock"
    start_redis redis --key-load-delay 500 --loading-process-events-interval-bytes 1024
    fails_with 69 'LOADING' dlock -r "$URL" --retry-for=0 --status job
    run dlock -v -r "$URL" --retry-for=20 job echo ran
    equals "$status" 0
    grep -q 'waiting: .*LOADING' <<<"$output"
    grep -qx ran <<<"$output"
}

@test "a server that is stopped: the try is given up, and its late execution leaves no lock" {
    start_redis
    # The server knows the script that acquires, but not the one that releases.
    run dlock -r "$URL" --acquire -t 60 job
    redis del dlock:job
    kill -STOP "$(cat "$T/redis.pid")"
    fails_with 69 'no answer in time; tried once' \
        dlock -r "$URL" --retry-for=0 --connect-timeout=300ms job touch "$T/ran"
    kill -CONT "$(cat "$T/redis.pid")"
    wait_until 10 answers PONG
    wait_until 5 sh -c "redis-cli -s '$T/redis.sock' info commandstats | grep -q 'cmdstat_eval:calls=[2-9]'"
    is_free
    [ ! -e "$T/ran" ]
}

@test "a request delayed on the network and overtaken by its own release leaves no lock" {
    start_redis
    dlock -r "$URL" job true # the server knows the scripts
    torture_proxy redis
    ask_proxy redis hold 1
    redis config resetstat
    fails_with 69 'no answer in time; tried once' \
        dlock -r "unix://$T/redis.proxy" --retry-for=0 --connect-timeout=300ms --owner=me job touch "$T/ran"
    wait_until 5 has_run 1
    ask_proxy redis heal
    wait_until 5 has_run 2
    is_free
    [ ! -e "$T/ran" ]
    # The next dlock with that token acquires it.
    run dlock -r "$URL" --owner=me job echo ran
    equals "$status $output" '0 ran'
}

@test "a delayed copy of a request that arrives after its release and later runs leaves no lock" {
    start_redis
    dlock -r "$URL" job true
    torture_proxy redis
    ask_proxy redis hold 1
    fails_with 0 '' dlock -r "unix://$T/redis.proxy" --retry-for=20 --connect-timeout=300ms job true
    local i
    for i in {1..9}; do dlock -r "$URL" job true; done
    redis config resetstat
    ask_proxy redis heal
    wait_until 5 has_run 1
    is_free
}

@test "a request that is given up leaves another client's key unchanged, even one with the name of a dlock key" {
    start_redis
    redis set '{dlock:job}:meta' another
    torture_proxy redis
    ask_proxy redis hold 1
    redis config resetstat
    fails_with 69 'no answer in time' \
        dlock -r "unix://$T/redis.proxy" --retry-for=0 --connect-timeout=300ms job touch "$T/ran"
    wait_until 5 has_run 1
    equals "$(redis get '{dlock:job}:meta') $(redis pttl '{dlock:job}:meta')" 'another -1'
    [ ! -e "$T/ran" ]
}
# has_run NUMBER: the server has run this many scripts.
has_run() { [ "$(redis info commandstats | sed -nE 's/^cmdstat_eval(sha)?:calls=([0-9]+).*/\2/p' | awk '{ n += $1 } END { print n + 0 }')" -ge "$1" ]; }

@test "a server that is stopped and continued: the lock is still held, and nothing is reported" {
    start_redis
    hold_lock job -r "$URL" -t 10 --connect-timeout=300ms
    kill -STOP "$(cat "$T/redis.pid")"
    sleep 2 # several checks without a reply
    kill -CONT "$(cat "$T/redis.pid")"
    wait_until 10 answers PONG
    end_hold
    wait "$HOLDER"
    is_free
    equals "$(cat "$T/held.err")" ''
}

@test "a server that pauses its clients: nobody acquires a lock meanwhile, none is lost, each is acquired once" {
    start_redis
    hold_lock job -r "$URL" -t 20 --connect-timeout=300ms
    local start
    start=$(now)
    redis client pause 1500 all >/dev/null
    fails_with 69 'no answer in time' dlock -n -r "$URL" --connect-timeout=300ms other -- touch "$T/early"
    [ ! -e "$T/early" ]
    dlock -r "$URL" --connect-timeout=300ms --retry-for=20 other -- sh -c "echo x >>'$T/ran'"
    [ $(($(now) - start)) -ge 1400 ]
    equals "$(cat "$T/ran")" x
    equals "$(redis exists dlock:other)" 0
    end_hold
    wait "$HOLDER"
    is_free
    equals "$(cat "$T/held.err")" ''
}

@test "--wait-until-free retries a server that is down no longer than --wait, and tries once with -n" {
    local start=$(now) socket=$T/none.sock
    fails_with 69 'tried once' dlock -r "unix://$socket" --wait-until-free -n job
    fails_with 69 'tried [2-9] times' dlock -r "unix://$socket" --wait-until-free -w 300ms job
    within 300 "$start"
    fake_redis mute
    start=$(now)
    fails_with 69 'no answer in time; tried once' dlock -r "unix://$T/fake.sock" --wait-until-free -w 300ms job
    within 300 "$start"
}

@test "a resolver that fails temporarily is asked again" {
    local port
    port=$(free_port)
    start_redis redis --port "$port" --bind '127.0.0.1 -::1'
    LD_PRELOAD=$HELPERS/fault_resolver_again.so run dlock -v -r "redis://localhost:$port" job echo ran
    equals "$status" 0
    grep -q 'the host name localhost cannot be resolved: Temporary failure' <<<"$output"
    grep -qx ran <<<"$output"
    is_free
    LD_PRELOAD=$HELPERS/fault_resolver_again.so fails_with 69 'cannot be resolved: Temporary failure.*; tried once' \
        dlock -r "redis://localhost:$port" --retry-for=0 --status job
}

@test "a dlock frozen for longer than -w or --retry-for reads a reply that has arrived before it checks the clock" {
    start_redis
    dlock -r "$URL" job true # so that the scripts are known
    local holder taker looker
    for holder in {1..40}; do dlock -r "$URL" --acquire -s many >/dev/null; done
    dlock -r "$URL" --status many >/dev/null
    fake_redis delay=1000 "$T/redis.sock"
    dlock -r "unix://$T/fake.sock" -w 1500ms --retry-for=1500ms job -- touch "$T/ran" 2>"$T/err" 3>&- 4>&- &
    taker=$!
    # A reply that is read in many pieces.
    dlock -r "unix://$T/fake.sock" --retry-for=1500ms --status --json many >"$T/state" 2>>"$T/err" 3>&- 4>&- &
    looker=$!
    wait_until 10 is_held
    wait_until 10 eval '[ "$(grep -c connection "$T/fake.log")" = 2 ]'
    kill -STOP "$taker" "$looker"
    sleep 2.5 # beyond -w; the replies arrive after one second
    kill -CONT "$taker" "$looker"
    wait "$taker"
    wait "$looker"
    [ -e "$T/ran" ]
    [ "$(grep -o '"owner":"' "$T/state" | wc -l)" -ge 40 ]
    equals "$(cat "$T/err")" ''
}
is_held() { [ "$(redis exists dlock:job)" = 1 ]; }

# Starts two servers on one port; the name "primary" resolves to the first, and the second is its replica.
start_named() {
    PORT=$(free_port)
    local number
    for number in 2 3; do start_redis $number --port "$PORT" --bind 127.0.0.$number --repl-diskless-sync no; done
    at 3 replicaof 127.0.0.2 "$PORT"
    wait_until 10 has_synced
    name_is 127.0.0.2
}
at() { redis-cli -s "$T/$1.sock" "${@:2}"; }
has_synced() { at 3 info replication | grep -q 'master_link_status:up'; }
name_is() { echo "$1" >"$T/names.new" && mv "$T/names.new" "$T/names"; }
named() { LD_PRELOAD=$HELPERS/fault_names.so exec dlock -r "redis://primary:$PORT" "$@"; }
is_extended() { [ "$(at 3 pttl dlock:leader)" -gt 4300 ]; }
replicas_hold() { [ "$(at 3 exists "$@")" = $# ]; }

@test "the server behind a host name fails over: leases are extended and locks released on the new one, and a waiter runs at once" {
    start_named
    cat >"$T/beat.py" <<'E'
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("\0" + os.environ["NOTIFY_SOCKET"][1:])
while not os.path.exists(os.environ["T"] + "/beats.end"):
    s.send(b"WATCHDOG=1")
    time.sleep(0.1)
E
    hold held
    named -t 1m job -- "$T/held.sh" 2>"$T/held.err" 3>&- 4>&- &
    local holder=$! leader waiter start
    named -t 5s --heartbeat leader -- python3 "$T/beat.py" 2>"$T/leader.err" 3>&- 4>&- &
    leader=$!
    wait_until 10 test -e "$T/held"
    named job -- touch "$T/ran" 2>"$T/waiter.err" 3>&- 4>&- &
    waiter=$!
    wait_until 10 replicas_hold dlock:job dlock:leader '{dlock:job}:queue'
    at 3 replicaof no one
    at 2 replicaof 127.0.0.3 "$PORT"
    name_is 127.0.0.3
    at 3 pexpire dlock:leader 4000
    wait_until 10 is_extended
    kill -0 "$leader"
    touch "$T/beats.end"
    wait "$leader"
    start=$(now)
    end_hold
    wait "$holder"
    wait "$waiter"
    within 2500 "$start"
    [ -e "$T/ran" ]
    equals "$(cat "$T/held.err" "$T/leader.err" "$T/waiter.err")" ''
    not replicas_hold dlock:job && not replicas_hold dlock:leader
}

@test "the server behind a host name is replaced: the lock is checked on the new one" {
    start_named
    hold held
    named -t 1m job -- "$T/held.sh" 2>"$T/held.err" 3>&- 4>&- &
    local holder=$! status=0 start
    wait_until 10 replicas_hold dlock:job
    at 3 replicaof no one
    name_is 127.0.0.3
    stop_redis 2
    wait_until 10 sh -c "redis-cli -s '$T/3.sock' client list | grep -q name=dlock"
    start=$(now)
    at 3 del dlock:job
    wait "$holder" || status=$?
    equals "$status" 124
    within 3000 "$start"
    grep -q 'the lock is lost: .* the key dlock:job is gone' "$T/held.err"
}

@test "a resolver that hangs while the lock is held: dlock uses the known addresses" {
    start_named
    hold held
    named -t 1m job -- "$T/held.sh" 2>"$T/held.err" 3>&- 4>&- &
    local holder=$! start
    wait_until 10 test -e "$T/held"
    rm "$T/names"
    at 2 client kill type normal
    at 2 client kill type pubsub
    start=$(now)
    end_hold
    wait "$holder"
    within 4000 "$start"
    equals "$(cat "$T/held.err")" ''
    [ "$(at 2 exists dlock:job)" = 0 ]
}

@test "a connection whose other end has vanished is noticed before the next check" {
    unshare -rn sh -c 'ip link set lo up && ss -Htn' 2>/dev/null || skip 'needs a network of its own'
    cat >"$T/vanish" <<'E'
. "$1/lib/common.bash"
ip link set lo up
redis-server --port 7777 --unixsocket "$T/redis.sock" --save '' --dir "$T" --daemonize no >/dev/null 2>&1 &
echo $! >"$T/redis.pid"
until redis-cli -s "$T/redis.sock" ping; do sleep 0.02; done >/dev/null 2>&1
dlock -r "unix://$T/redis.sock" job sh -c 'until [ -e "$T/go" ]; do sleep 0.02; done' 2>"$T/holder.err" &
until redis-cli -s "$T/redis.sock" exists dlock:job | grep -q 1; do sleep 0.02; done
dlock -r redis://127.0.0.1:7777 --retry-for=60 -v job touch "$T/ran" </dev/null 2>"$T/waiter.err" &
waiter=$!
until redis-cli -s "$T/redis.sock" zcard '{dlock:job}:queue' | grep -q 1; do sleep 0.02; done
established() { ss -Htno state established dport = :7777 | grep -E "${1-}"; } >/dev/null
# The kernel's probes find the broken connection of an idle waiter.
for ((i = 0; ; i++)); do
    established 'timer:\(keepalive,([0-4](\.[0-9]+)?sec|[0-9.]+ms)' && break
    [ "$i" -lt 100 ] || exit 1
    sleep 0.05
done
ip link set lo down
start=$(now)
wait_until 20 not established
within 9000 "$start" || exit 2
ip link set lo up
touch "$T/go"
wait "$waiter"
status=$?
kill "$(cat "$T/redis.pid")"
exit "$status"
E
    run timeout 60 unshare -rn bash "$T/vanish" "$TESTS"
    echo "$output"
    equals "$status" 0
    [ -e "$T/ran" ]
}

@test "a connection that a firewall rejects is an outage, which is retried: exit 69" {
    LD_PRELOAD=$HELPERS/fault_connect_denied.so fails_with 69 'Permission denied; tried [2-9]' \
        dlock -r redis://127.0.0.1:1 --retry-for=300ms job touch "$T/ran"
    [ ! -e "$T/ran" ]
}
