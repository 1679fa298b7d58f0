#!/usr/bin/env bats
load ../lib/common
setup() { common_setup; URL=unix://$T/redis.sock; }

is_free() { [ "$(redis exists dlock:job)" = 0 ]; }

# bats test_tags=slow
@test "a release that a hanging Redis answers after the lease's end is no lost lock, and the run is remembered" {
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock
    local late mode jobs
    # Beyond the end of the lease, by so much that dlock does not wait for it.
    for late in 2.2 4; do
        rm -f "$T"/ready* "$T/go"
        jobs=()
        for mode in '' -s; do
            # shellcheck disable=SC2016
            dlock $mode -t 2s "job$mode" -- sh -c 'touch "$T/ready$0"; until [ -e "$T/go" ]; do sleep 0.01; done' "$mode" \
                2>"$T/err$mode" 3>&- 4>&- &
            jobs+=($!)
        done
        wait_until 10 test -e "$T/ready"
        wait_until 10 test -e "$T/ready-s"
        redis script flush >/dev/null
        kill -STOP "$(cat "$T/redis.pid")"
        touch "$T/go"
        sleep $late
        kill -CONT "$(cat "$T/redis.pid")"
        for mode in '' -s; do
            wait "${jobs[0]}"
            jobs=("${jobs[@]:1}")
            not grep -q lost "$T/err$mode"
            dlock --ran-within=1m "job$mode"
            # A later sharer finds no run without an end.
            fails_with 1 '^$' dlock $mode "job$mode" -- false
            dlock --status --json "job$mode" | grep '"losses":0' | grep -q '"failures_in_a_row":1'
        done
    done
}

# bats test_tags=slow
@test "a Redis that hangs or is gone when the lease ends delays dlock by a second at most" {
    local start how
    for how in STOP KILL; do
        start_redis
        start=$(now)
        # shellcheck disable=SC2016
        fails_with 124 'the lock could not be released: .*; its lease has ended' \
            dlock -r "unix://$T/redis.sock" -t 2s job -- sh -c 'kill -'$how' "$(cat "$T/redis.pid")"; exec sleep 30'
        within 2500 "$start"
        stop_redis
        rm -f "$T/redis.sock"
    done
}

# bats test_tags=slow
@test "a signal while a hanging Redis delays the release: one more short try, then the lock is left to its lease" {
    local signal dlock second
    start_redis
    for signal in TERM HUP; do
        set_boot "=$STILL"
        rm -f "$T/ready" "$T/go"
        # shellcheck disable=SC2016
        LD_PRELOAD=$HELPERS/fault_boot_clock.so dlock -r "$URL" -t 60s "$signal" -- sh -c 'echo $$ >"$T/ready"; until [ -e "$T/go" ]; do sleep 0.01; done' \
            2>"$T/err" 3>&- 4>&- &
        dlock=$!
        echo $dlock >"$T/dlock.pid"
        wait_until 10 test -s "$T/ready"
        kill -STOP "$(cat "$T/redis.pid")"
        touch "$T/go"
        wait_until 10 gone "$(cat "$T/ready")"
        # The tries without a signal end after 5 s, by a clock that otherwise stands still. A change of the window's size
        # shortens none.
        for second in 1 2 3; do
            kill -WINCH "$dlock" 2>/dev/null && kill -"$signal" "$dlock" && rest 0.3
            set_boot "=$((STILL + second))"
            rest 0.7
        done
        wait_until 10 gone "$dlock"
        wait "$dlock"
        kill -CONT "$(cat "$T/redis.pid")"
        grep -q 'the lock could not be released: .*; the lock stays held until its lease ends' "$T/err"
    done
}

# bats test_tags=slow
@test "Redis is gone when the lease ends: the command is stopped at the local deadline" {
    start_redis
    hold_lock job -r "$URL" -t 2
    stop_redis
    local status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
    grep -q 'the lease of 2s ends in .*stopping the command' "$T/held.err"
}

# bats test_tags=slow
@test "Redis goes away during a run: the command runs on, with one warning at the release" {
    start_redis
    hold_lock job -r "$URL" -t 60
    stop_redis
    end_hold
    local status=0 start=$(now)
    wait "$HOLDER" || status=$?
    equals "$status" 0
    grep -q 'the lock could not be released: .*; the lock stays held until its lease ends' "$T/held.err"
    equals "$(wc -l <"$T/held.err")" 1
    # dlock tries for five seconds and no longer.
    within 6000 "$start"
}

@test "Redis is down at the start: retried within --retry-for, then exit 69 with what was tried; nothing is run" {
    local start=$(now)
    fails_with 69 "unix://$T/redis.sock\?db=0: No such file or directory; tried [0-9]+ times in .*; the command was not run" \
        dlock -r "$URL" --retry-for=500ms job touch "$T/ran"
    [ $(($(now) - start)) -ge 500 ]
    [ ! -e "$T/ran" ]
    fails_with 69 'redis://127.0.0.1:.*: Connection refused' \
        dlock -r "redis://127.0.0.1:$(free_port)" --retry-for=0 job touch "$T/ran"
    [[ $output == *'; tried once; the command'* ]]
}

@test "an outage is never retried for longer than --wait, and not at all with -n" {
    local start=$(now)
    run dlock -r "$URL" -w 200ms job touch "$T/ran"
    [ "$status" -eq 69 ]
    within 0 "$start"
    run dlock -r "$URL" -n job touch "$T/ran"
    [ "$status" -eq 69 ]
    [[ $output == *'; tried once; the command'* ]]
    [ ! -e "$T/ran" ]
}

@test "a Redis that comes up within --retry-for is used" {
    dlock -r "$URL" --retry-for=30 job touch "$T/ran" 3>&- &
    local dlock=$!
    wait_until 10 grep -q . "/proc/$dlock/cmdline"
    start_redis
    wait "$dlock"
    [ -e "$T/ran" ]
    is_free
}

@test "a server that never answers: exit 69 within the connect timeout" {
    fake_redis mute
    local start=$(now)
    fails_with 69 'no answer in time' dlock -r "unix://$T/fake.sock" --connect-timeout=300ms --retry-for=0 job touch "$T/ran"
    within 0 "$start"
    [ ! -e "$T/ran" ]
}

@test "Ctrl-C while a server does not answer ends dlock at once" {
    fake_redis mute
    run python3 "$TESTS/helpers/ctrl_c.py" asleep -r "unix://$T/fake.sock" --connect-timeout=60 job true
    [ "$status" -eq 0 ]
}

@test "no invalid reply is trusted (garbage, endless, huge, truncated, closed): exit 69, nothing is run" {
    local mode
    for mode in garbage huge endless cut nonsense close; do
        fake_redis $mode
        run dlock -r "unix://$T/fake.sock" --connect-timeout=2 --retry-for=0 job touch "$T/ran"
        equals "$mode $status" "$mode 69"
        [ ! -e "$T/ran" ]
        kill "$(cat "$T/fake.pid")"
    done
}

@test "errors of a server in trouble are retried like an outage" {
    local error
    for error in 'LOADING Redis is loading' 'ERR Error running script: @user_script:3: -READONLY You cannot'; do
        fake_redis "error=$error"
        fails_with 69 "the server answered: $error; tried [2-9]" dlock -r "unix://$T/fake.sock" --retry-for=400ms job touch "$T/ran"
        [ ! -e "$T/ran" ]
        kill "$(cat "$T/fake.pid")"
    done
}

@test "a server that denies access: exit 77 at once, naming what it refused" {
    start_redis redis --requirepass secret
    fails_with 77 'NOAUTH Authentication required' dlock -r "$URL" job touch "$T/ran"
    fails_with 77 'WRONGPASS' dlock -r "unix://:wrong@$T/redis.sock" job touch "$T/ran"
    [[ $output != *wrong@* ]]
    run dlock -r "unix://:secret@$T/redis.sock" job true
    [ "$status" -eq 0 ]
    run dlock -r "unix://default:secret@$T/redis.sock?db=3" job true
    [ "$status" -eq 0 ]
    redis -a secret --no-auth-warning acl setuser bob on '>pw' '~dlock:*' '~{dlock:*' +eval +evalsha +get +set +del +pttl +hmget +pexpire +time
    fails_with 77 'NOPERM|permissions|The user executing' dlock -r "unix://bob:pw@$T/redis.sock" job touch "$T/ran"
    [ ! -e "$T/ran" ]
    equals "$(redis -a secret --no-auth-warning exists dlock:job)" 0
    # Without hset the lock cannot be acquired; CLIENT SETNAME is optional.
    redis -a secret --no-auth-warning acl setuser bob +hset
    run dlock -r "unix://bob:pw@$T/redis.sock" job true
    equals "$status$output" 0
    fails_with 77 'NOPERM|permissions|The user executing' dlock -r "unix://bob:pw@$T/redis.sock" --prefix=other: job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "a password that the server does not need is refused: exit 77, and no lock is left" {
    start_redis
    fails_with 77 'AUTH' dlock -r "unix://:secret@$T/redis.sock" job touch "$T/ran"
    [ ! -e "$T/ran" ]
    is_free
}

@test "a database that does not exist: exit 78, and nothing is left in another one" {
    start_redis
    fails_with 78 'DB index is out of range' dlock -r "unix://$T/redis.sock?db=999" job touch "$T/ran"
    [ ! -e "$T/ran" ]
    is_free
}

@test "a Unix socket that the user may not open: exit 77" {
    let_others_into "$T" || skip 'needs root, to become another user, who reaches the program'
    start_redis redis --unixsocketperm 700
    fails_with 77 'Permission denied' setpriv --reuid=65534 --regid=65534 --clear-groups "$DLOCK" -r "$URL" job true
}

@test "the reply to an acquire is lost: the request is repeated with the same token, the command runs once, nothing is left" {
    start_redis
    # The server knows the scripts already, so the first call is the one that acquires.
    dlock -r "$URL" other true
    fake_redis lose=1 "$T/redis.sock"
    run dlock -r "unix://$T/fake.sock" job -- sh -c 'echo ran; redis-cli -s "$T/redis.sock" hget "{dlock:job}:meta" takes'
    equals "$output" $'ran\n1'
    is_free
}

@test "the reply to an acquire is lost and its record evicted: dlock does not wait for its own lock" {
    start_redis
    dlock -r "$URL" other true
    local mode
    for mode in '' -s --slots=2; do
        fake_redis lose=1 "$T/redis.sock" DEL '{dlock:job}:meta'
        # shellcheck disable=SC2086
        run dlock -r "unix://$T/fake.sock" $mode -t 60s -w 20s job echo ran
        equals "$status $output" '0 ran'
        is_free
        kill "$(cat "$T/fake.pid")"
    done
}

@test "the reply to the release is lost: the release is repeated, and no lost lock is reported" {
    start_redis
    dlock -r "$URL" other true
    fake_redis lose=2 "$T/redis.sock"
    run dlock -r "unix://$T/fake.sock" job echo ran
    equals "$status $output" '0 ran'
    is_free
}

@test "the reply to the release is lost and another process holds the lock by then: no lost lock is reported" {
    start_redis
    dlock -r "$URL" other true
    fake_redis lose=2 "$T/redis.sock" SET dlock:job another NX PX 60000
    run dlock -r "unix://$T/fake.sock" job echo ran
    equals "$status $output" '0 ran'
    equals "$(redis get dlock:job)" another
}

@test "the lock is lost and the reply to its release is lost: one loss is counted" {
    start_redis
    dlock -r "$URL" other true
    local call
    for call in 1 2 3 4; do
        redis flushdb >/dev/null
        fake_redis "lose=$call" "$T/redis.sock"
        run dlock -r "unix://$T/fake.sock" --on-expire=warn job redis-cli -s "$T/redis.sock" del dlock:job
        equals "$call $status" "$call 0"
        kill "$(cat "$T/fake.pid")"
        [[ $(dlock -r "$URL" --status --json job) == *'"losses":1'* ]]
    done
}

# next_waits [ARGUMENTS...]: another process waits for the lock; once it holds it, it opens the gate of a
# fake server, which has then carried out a request and loses the reply.
next_waits() {
    hold next
    dlock -r "$URL" "$@" job -- sh -c 'redis-cli -s "$T/redis.sock" rpush gate open >/dev/null; exec "$T/next.sh"' \
        2>"$T/next.err" 3>&- 4>&- &
    echo $! >"$T/next.pid"
    wait_until 10 eval '[ "$(redis zcard "{dlock:job}:queue")" = 1 ]'
    fake_redis lose=1 "$T/redis.sock" BLPOP gate 30
}
next_keeps_it() {
    local status=0
    wait_until 10 test -e "$T/next"
    equals "$(redis exists dlock:job)" 1
    touch "$T/next.end"
    wait "$(cat "$T/next.pid")" || status=$?
    equals "$status $(cat "$T/next.err")" '0 '
    is_free
}

@test "the reply to --force-release is lost and the lock has a new holder by then: the new one keeps it, the first is reported" {
    start_redis
    fails_with 1 'the lock is free' dlock -r "$URL" --force-release other
    hold_lock job -r "$URL"
    next_waits
    run dlock -r "unix://$T/fake.sock" --connect-timeout=30 --force-release job
    equals "$status ${#lines[@]}" '0 1'
    [[ $output == "released job, held by "*" (pid $HOLDER"* ]]
    next_keeps_it
    # Only that one request is remembered: the next one is carried out.
    dlock -r "$URL" --acquire job >/dev/null
    dlock -r "$URL" --force-release job >/dev/null
    is_free
}

@test "the reply to --force-release of another client's lock is lost: its holder is reported, and the record expires in time" {
    start_redis
    fails_with 1 'the lock is free' dlock -r "$URL" --force-release other
    redis set dlock:job another >/dev/null
    fake_redis lose=1 "$T/redis.sock" SET dlock:job next NX
    fails_with 0 '"was":\[\{"owner":"another"[^{]*\]' dlock -r "unix://$T/fake.sock" --force-release --json job
    equals "$(redis get dlock:job)" next
    [ "$(redis pttl '{dlock:job}:meta')" -gt 0 ]
}

@test "the reply to --release is lost and a new holder has the same --owner: the new holder keeps the lock" {
    start_redis
    dlock -r "$URL" other true
    dlock -r "$URL" --acquire --owner=me job >/dev/null
    next_waits --owner=me
    fails_with 0 '^$' dlock -r "unix://$T/fake.sock" --connect-timeout=30 --release --owner=me job
    next_keeps_it
}

@test "a reply that arrives when the lease has almost ended does not acquire the lock: nothing is run, nothing is left" {
    start_redis
    dlock -r "$URL" other true
    fake_redis delay=300 "$T/redis.sock"
    fails_with 69 'its lease ended before the answer arrived' dlock -r "unix://$T/fake.sock" -t 100ms --retry-for=0 job touch "$T/ran"
    [ ! -e "$T/ran" ]
    wait_until 5 is_free
}

@test "a lock acquired again after a reply that came too late is released at the end" {
    start_redis
    dlock -r "$URL" other true
    fake_redis first=3700 "$T/redis.sock"
    # The second try's lease would far outlast the run if it were left.
    run dlock -r "unix://$T/fake.sock" -t 4s --connect-timeout=8 job echo ran
    equals "$status $output" '0 ran'
    is_free
}

@test "a lock granted too late whose release is lost is waited for, and not mistaken for an enclosing dlock's" {
    start_redis
    dlock -r "$URL" other true
    torture_proxy redis
    ask_proxy redis partition 0 1
    # Its clock is the test's: the reply arrives when 95 % of the lease have passed.
    with_suspends dlock -v -r "unix://$T/redis.proxy" -t 100s --connect-timeout=1000 --retry-for=160 job -- \
        sh -c 'echo "$DLOCK_FENCE" >"$T/fence"' 2>"$T/err" 3>&- 4>&- &
    local dlock=$!
    echo "$dlock" >"$T/dlock.pid"
    wait_until 10 not is_free
    suspended 95
    # The reply arrives, but the release does not.
    ask_proxy redis partition 1 0
    wait_until 10 grep -q 'waiting .*: the lock was acquired, but its lease ended before the answer arrived' "$T/err"
    ask_proxy redis reset
    ask_proxy redis heal
    refused() { [ "$(redis exists '{dlock:job}:queue')" = 1 ] || gone "$dlock"; }
    wait_until 10 refused
    redis pexpire dlock:job 1
    wait "$dlock"
    [ "$(cat "$T/fence")" -gt 0 ]
    is_free
}

@test "a lock found after lost and late replies counts until its key expires, not longer" {
    start_redis
    dlock -r "$URL" other true
    fake_redis lose=1,700 "$T/redis.sock"
    # The key lives for two seconds from the first try; the reply to the second arrives late.
    run dlock -r "unix://$T/fake.sock" -t 2s --grace=0 job -- \
        sh -c 'while :; do redis-cli -s "$T/redis.sock" exists dlock:job >>"$T/seen"; done'
    [ "$status" -eq 124 ]
    [ "$(grep -c 1 "$T/seen")" -gt 5 ]
    # A request in the very last moment may have found it gone.
    [ "$(grep -c 0 "$T/seen")" -le 2 ]
}

@test "a SELECT that fails for a while never leads to a lock in another database" {
    start_redis redis --lua-time-limit 10
    redis eval 'while true do end' 0 >/dev/null 2>&1 3>&- &
    wait_until 10 sh -c "redis-cli -s '$T/redis.sock' ping | grep -q BUSY"
    dlock -v -r "$URL?db=3" --retry-for=20 job -- sh -c 'for n in 0 3; do redis-cli -s "$T/redis.sock" -n $n exists dlock:job; done' \
        >"$T/out" 2>&1 3>&- &
    local dlock=$!
    sleep 0.5 # a few tries, each refused
    redis script kill
    wait "$dlock"
    grep -q '^dlock: job: waiting: .*; retrying for up to another [12][0-9]s$' "$T/out"
    equals "$(grep -vc '^dlock: job: waiting' "$T/out") $(grep -E '^[01]$' "$T/out" | tr '\n' ' ')" '7 0 1 '
    is_free
    equals "$(redis -n 3 exists dlock:job)" 0
}

@test "a connection that breaks unnoticed does not keep the last check from finding an extension" {
    start_redis
    hold_lock job -r "$URL" -t 4s --grace=1s
    sleep 2.3 # the next check is the one at three seconds
    redis pexpire dlock:job 60000
    redis client kill type normal skipme yes
    sleep 2.5
    kill -0 "$(cat "$T/held")"
    end_hold
    wait "$HOLDER"
}

@test "a connection reset in the middle of a reply: exit 69, nothing is run" {
    cat >"$T/resets.py" <<'P'
import os, socket, struct
server = socket.create_server(("127.0.0.1", 0))
with open(os.environ["T"] + "/port.tmp", "w") as file:
    print(server.getsockname()[1], file=file)
os.rename(os.environ["T"] + "/port.tmp", os.environ["T"] + "/port")
while True:
    client, _ = server.accept()
    client.recv(65536)
    client.sendall(b"+OK\r\n*5\r\n$5\r\ntak")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
P
    python3 "$T/resets.py" 3>&- 4>&- &
    echo $! >"$T/resets.pid"
    wait_until 10 test -e "$T/port"
    fails_with 69 'Connection reset by peer' dlock -r "redis://127.0.0.1:$(cat "$T/port")" --retry-for=0 job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "dlock gives the lock back if it gives up after a lost reply" {
    start_redis
    dlock -r "$URL" other true
    # dlock repeats the request at once, and the fake server may refuse it then.
    fake_redis lose=1 "$T/redis.sock" CONFIG SET maxmemory 1
    fails_with 69 'OOM' dlock -r "unix://$T/fake.sock" --retry-for=0 job touch "$T/ran"
    [ ! -e "$T/ran" ]
    is_free
}

@test "a host name that cannot be resolved, or not in time: exit 69" {
    fails_with 69 'the host name no-such-host.invalid cannot be resolved|was not resolved in time' \
        dlock -r redis://no-such-host.invalid --retry-for=0 job touch "$T/ran"
    local start=$(now)
    LD_PRELOAD=$HELPERS/fault_resolver.so fails_with 69 'the host name localhost was not resolved in time' \
        dlock -r redis://localhost --connect-timeout=300ms --retry-for=0 job touch "$T/ran"
    within 2000 "$start"
    [ ! -e "$T/ran" ]
}

@test "Ctrl-C while a host name is looked up ends dlock at once" {
    LD_PRELOAD=$HELPERS/fault_resolver.so run python3 "$TESTS/helpers/ctrl_c.py" threads -r redis://localhost --connect-timeout=60 job true
    [ "$status" -eq 0 ]
}

@test "a lock that is lost after an earlier one was given back as too late: 124, never 0" {
    start_redis
    fake_redis first=600 "$T/redis.sock"
    fails_with 124 'the lock (was lost before the command ended|is lost)' \
        dlock -r "unix://$T/fake.sock" -t 500ms job -- sh -c "redis-cli -s '$T/redis.sock' del dlock:job"
}

@test "a signal while a gone Redis delays the release ends the tries and leaves the status unchanged" {
    start_redis
    hold held
    dlock -r "unix://$T/redis.sock" job -- "$T/held.sh" >/dev/null 2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0 start
    wait_until 10 test -e "$T/held"
    stop_redis
    start=$(now)
    touch "$T/held.end"
    # Its command has ended: it tries to release.
    wait_until 10 not has_command "$dlock"
    kill -TERM "$dlock"
    wait "$dlock" || status=$?
    equals "$status" 0
    within 1000 "$start"
    grep -q 'the lock could not be released' "$T/err"
}

@test "a lease that ends while a hanging Redis does not answer the release is no lost lock" {
    start_redis
    local status=0
    dlock -r "unix://$T/redis.sock" --connect-timeout=500ms -t 2s job -- sh -c 'touch "$T/ready"; until [ -e "$T/go" ]; do sleep 0.01; done; exit 4' \
        2>"$T/err" 3>&- 4>&- &
    local dlock=$!
    wait_until 10 test -e "$T/ready"
    kill -STOP "$(cat "$T/redis.pid")"
    touch "$T/go"
    sleep 2.5 # beyond the end of the lease
    kill -CONT "$(cat "$T/redis.pid")"
    wait "$dlock" || status=$?
    equals "$status" 4
    grep -q 'the lock could not be released' "$T/err"
    not grep -q 'lost' "$T/err"
}

@test "a failed release says why, even if the lease has ended and the server is back without its data" {
    start_redis
    dlock -r "unix://$T/redis.sock" -t 3s job -- sh -c 'touch "$T/ready"; until [ -e "$T/go" ]; do sleep 0.01; done; exit 4' \
        2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0 start
    start=$(now)
    wait_until 10 test -e "$T/ready"
    stop_redis
    touch "$T/go"
    wait_until 10 not has_command "$dlock"
    wait_until 10 eval '(($(now) > start + 3200))'
    start_redis
    wait "$dlock" || status=$?
    equals "$status" 4
    grep -qE 'the lock could not be released: .*: (Connection refused|No such file or directory); its lease has ended' "$T/err"
}

@test "the permissions in the manual are enough to acquire a lock again after a reply that came too late" {
    start_redis
    manual_user
    fake_redis first=600 "$T/redis.sock"
    run dlock -r "unix://locker:secret@$T/fake.sock" -t 500ms job -- sh -c 'exit 5'
    equals "$status $output" '5 '
}

@test "a list of past requests that is cut off inside a long entry costs the server hardly any time" {
    start_redis
    hold_lock job -s -r "unix://$T/redis.sock" -t 60
    # As after several force-releases of a lock with many sharers.
    redis hset '{dlock:job}:meta' requests "$(printf 'id - '; for i in {1..41}; do printf '%0999d ' "$i"; done)" >/dev/null
    local status=0 start=$(now)
    dlock -r "unix://$T/redis.sock" --force-release job
    wait "$HOLDER" || status=$?
    equals "$status" 124
    equals "$(timeout 20 redis-cli -s "$T/redis.sock" ping)" PONG
    within 2000 "$start"
}
