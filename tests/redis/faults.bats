#!/usr/bin/env bats
load ../lib/common
setup() { common_setup; URL=unix://$T/redis.sock; }

is_free() { [ "$(redis exists dlock:job)" = 0 ]; }

# bats test_tags=slow
@test "a release that a Redis that hangs answers after the lease's end: no lost lock, and the run is remembered" {
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock
    local late mode jobs
    # Beyond the end of the lease, and so far that dlock does not wait for it.
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
            # A later one that shares it finds no run without an end.
            fails_with 1 '^$' dlock $mode "job$mode" -- false
            dlock --status --json "job$mode" | grep '"losses":0' | grep -q '"failures_in_a_row":1'
        done
    done
}

# bats test_tags=slow
@test "a Redis that hangs, or is gone, when the lease ends keeps dlock for a second at most" {
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
@test "a signal while a Redis that hangs keeps the release: one short try more, and the lock waits for its lease" {
    local signal dlock second
    start_redis
    for signal in TERM HUP; do
        set_boot =86400
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
        # The tries without a signal end after 5 s, by a clock that stands otherwise. A window that changes its size
        # cuts none short.
        for second in 1 2 3; do
            kill -WINCH "$dlock" 2>/dev/null && kill -"$signal" "$dlock" && rest 0.3
            set_boot =8640$second
            rest 0.7
        done
        wait_until 10 gone "$dlock"
        wait "$dlock"
        kill -CONT "$(cat "$T/redis.pid")"
        grep -q 'the lock could not be released: .*; it is held until its lease ends' "$T/err"
    done
}

# bats test_tags=slow
@test "Redis gone and the lease over: the local deadline stands" {
    start_redis
    hold_lock job -r "$URL" -t 2
    stop_redis
    local status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
    grep -q 'the lease of 2s ends in .*stopping the command' "$T/held.err"
}

# bats test_tags=slow
@test "Redis gone in the middle is no loss: the command runs on, one warning at the release" {
    start_redis
    hold_lock job -r "$URL" -t 60
    stop_redis
    end_hold
    local status=0 start=$(now)
    wait "$HOLDER" || status=$?
    equals "$status" 0
    grep -q 'the lock could not be released: .*; it is held until its lease ends' "$T/held.err"
    equals "$(wc -l <"$T/held.err")" 1
    # It tries for five seconds, and no longer.
    within 6000 "$start"
}

@test "Redis down at start: retried within --retry-for, then exit 69 with what was tried; nothing run" {
    local start=$(now)
    fails_with 69 "unix://$T/redis.sock\?db=0: No such file or directory; tried [0-9]+ times in .*; the command was not run" \
        dlock -r "$URL" --retry-for=500ms job touch "$T/ran"
    [ $(($(now) - start)) -ge 500 ]
    [ ! -e "$T/ran" ]
    fails_with 69 'redis://127.0.0.1:.*: Connection refused' \
        dlock -r "redis://127.0.0.1:$(free_port)" --retry-for=0 job touch "$T/ran"
    [[ $output == *'; tried once; the command'* ]]
}

@test "an outage is never retried longer than --wait, and with -n not at all" {
    local start=$(now)
    run dlock -r "$URL" -w 200ms job touch "$T/ran"
    [ "$status" -eq 69 ]
    within 0 "$start"
    run dlock -r "$URL" -n job touch "$T/ran"
    [ "$status" -eq 69 ]
    [[ $output == *'; tried once; the command'* ]]
    [ ! -e "$T/ran" ]
}

@test "Redis that comes up within --retry-for is used" {
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
    fails_with 69 'it did not answer in time' dlock -r "unix://$T/fake.sock" --connect-timeout=300ms --retry-for=0 job touch "$T/ran"
    within 0 "$start"
    [ ! -e "$T/ran" ]
}

@test "Ctrl-C while a server does not answer ends dlock at once" {
    fake_redis mute
    run python3 "$TESTS/helpers/ctrl_c.py" asleep -r "unix://$T/fake.sock" --connect-timeout=60 job true
    [ "$status" -eq 0 ]
}

@test "no reply is trusted: garbage, endless, huge, cut off, nonsense, closed: exit 69, nothing run" {
    local mode
    for mode in garbage huge endless cut nonsense close; do
        fake_redis $mode
        run dlock -r "unix://$T/fake.sock" --connect-timeout=2 --retry-for=0 job touch "$T/ran"
        equals "$mode $status" "$mode 69"
        [ ! -e "$T/ran" ]
        kill "$(cat "$T/fake.pid")"
    done
}

@test "errors of a server in trouble are retried as an outage" {
    local error
    for error in 'LOADING Redis is loading' 'ERR Error running script: @user_script:3: -READONLY You cannot'; do
        fake_redis "error=$error"
        fails_with 69 "it answered: $error; tried [2-9]" dlock -r "unix://$T/fake.sock" --retry-for=400ms job touch "$T/ran"
        [ ! -e "$T/ran" ]
        kill "$(cat "$T/fake.pid")"
    done
}

@test "a server that refuses us: exit 77 at once, with what it refused" {
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
    # hset was missing; CLIENT SETNAME is a nicety.
    redis -a secret --no-auth-warning acl setuser bob +hset
    run dlock -r "unix://bob:pw@$T/redis.sock" job true
    equals "$status$output" 0
    fails_with 77 'NOPERM|permissions|The user executing' dlock -r "unix://bob:pw@$T/redis.sock" --prefix=other: job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "a password if none is needed: refused, and the lock that was taken meanwhile is given back" {
    start_redis
    fails_with 77 'AUTH' dlock -r "unix://:secret@$T/redis.sock" job touch "$T/ran"
    [ ! -e "$T/ran" ]
    is_free
}

@test "a database that is not there: exit 78, and nothing is left in another one" {
    start_redis
    fails_with 78 'DB index is out of range' dlock -r "unix://$T/redis.sock?db=999" job touch "$T/ran"
    [ ! -e "$T/ran" ]
    is_free
}

@test "a Unix socket that we may not use: exit 77" {
    let_others_into "$T" || skip 'needs root, to become another user, who reaches the program'
    start_redis redis --unixsocketperm 700
    fails_with 77 'Permission denied' setpriv --reuid=65534 --regid=65534 --clear-groups "$DLOCK" -r "$URL" job true
}

@test "the reply to a take is lost: the same token is asked for again, the command runs once, nothing is left" {
    start_redis
    # Scripts are known already, so that the first call is the take itself.
    dlock -r "$URL" other true
    fake_redis lose=1 "$T/redis.sock"
    run dlock -r "unix://$T/fake.sock" job -- sh -c 'echo ran; redis-cli -s "$T/redis.sock" hget "{dlock:job}:meta" takes'
    equals "$output" $'ran\n1'
    is_free
}

@test "the reply to a take is lost and its record is evicted: dlock does not wait for its own lock" {
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

@test "the reply to the release is lost: asked again, and not called a lost lock" {
    start_redis
    dlock -r "$URL" other true
    fake_redis lose=2 "$T/redis.sock"
    run dlock -r "unix://$T/fake.sock" job echo ran
    equals "$status $output" '0 ran'
    is_free
}

@test "the reply to the release is lost and another has the lock by then: still not a lost lock" {
    start_redis
    dlock -r "$URL" other true
    fake_redis lose=2 "$T/redis.sock" SET dlock:job another NX PX 60000
    run dlock -r "unix://$T/fake.sock" job echo ran
    equals "$status $output" '0 ran'
    equals "$(redis get dlock:job)" another
}

@test "the lock is taken away and the reply to that release is lost: one loss is counted" {
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

# next_waits [ARGUMENTS...]: another waits for the lock; once it has it, it opens the gate at which a
# fake server stands that has carried out what it was sent, and then loses the answer.
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

@test "the reply to --force-release is lost and the next one has the lock by then: that one keeps it, and the first is named" {
    start_redis
    fails_with 1 'the lock is free' dlock -r "$URL" --force-release other
    hold_lock job -r "$URL"
    next_waits
    run dlock -r "unix://$T/fake.sock" --connect-timeout=30 --force-release job
    equals "$status ${#lines[@]}" '0 1'
    [[ $output == "released job, held by "*" (pid $HOLDER"* ]]
    next_keeps_it
    # What is remembered is no more than that request: the next one is done.
    dlock -r "$URL" --acquire job >/dev/null
    dlock -r "$URL" --force-release job >/dev/null
    is_free
}

@test "the reply to --force-release of another client's lock is lost: told whose it was, and what is remembered goes with time" {
    start_redis
    fails_with 1 'the lock is free' dlock -r "$URL" --force-release other
    redis set dlock:job another >/dev/null
    fake_redis lose=1 "$T/redis.sock" SET dlock:job next NX
    fails_with 0 '"was":\[\{"owner":"another"[^{]*\]' dlock -r "unix://$T/fake.sock" --force-release --json job
    equals "$(redis get dlock:job)" next
    [ "$(redis pttl '{dlock:job}:meta')" -gt 0 ]
}

@test "the reply to --release is lost and the next one with the same --owner has the lock by then: that one keeps it" {
    start_redis
    dlock -r "$URL" other true
    dlock -r "$URL" --acquire --owner=me job >/dev/null
    next_waits --owner=me
    fails_with 0 '^$' dlock -r "unix://$T/fake.sock" --connect-timeout=30 --release --owner=me job
    next_keeps_it
}

@test "an answer that comes when the lease is as good as over is no lock: nothing run, nothing left" {
    start_redis
    dlock -r "$URL" other true
    fake_redis delay=300 "$T/redis.sock"
    fails_with 69 'its lease ended before the answer arrived' dlock -r "unix://$T/fake.sock" -t 100ms --retry-for=0 job touch "$T/ran"
    [ ! -e "$T/ran" ]
    wait_until 5 is_free
}

@test "a lock taken anew after an answer that came too late is released at the end" {
    start_redis
    dlock -r "$URL" other true
    fake_redis first=3700 "$T/redis.sock"
    # The lease of the second try would outlive the run by far, were it left.
    run dlock -r "unix://$T/fake.sock" -t 4s --connect-timeout=8 job echo ran
    equals "$status $output" '0 ran'
    is_free
}

@test "a take that came too late, and whose release is lost, is waited for, and not taken for an outer command's" {
    start_redis
    dlock -r "$URL" other true
    torture_proxy redis
    ask_proxy redis partition 0 1
    # Its clock is the test's: the answer comes when 95 % of the lease have passed.
    with_suspends dlock -v -r "unix://$T/redis.proxy" -t 100s --connect-timeout=1000 --retry-for=160 job -- \
        sh -c 'echo "$DLOCK_FENCE" >"$T/fence"' 2>"$T/err" 3>&- 4>&- &
    local dlock=$!
    echo "$dlock" >"$T/dlock.pid"
    wait_until 10 not is_free
    suspended 95
    # The answer arrives, and the release does not.
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

@test "a take found after lost and late replies ends when the key does, not later" {
    start_redis
    dlock -r "$URL" other true
    fake_redis lose=1,700 "$T/redis.sock"
    # The key lives two seconds from the first try; the reply to the second comes late.
    run dlock -r "unix://$T/fake.sock" -t 2s --grace=0 job -- \
        sh -c 'while :; do redis-cli -s "$T/redis.sock" exists dlock:job >>"$T/seen"; done'
    [ "$status" -eq 124 ]
    [ "$(grep -c 1 "$T/seen")" -gt 5 ]
    # What was asked in the very last moment may have seen it gone.
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
    grep -q '^dlock: job: waiting: .*; tried for another [12][0-9]s at most$' "$T/out"
    equals "$(grep -vc '^dlock: job: waiting' "$T/out") $(grep -E '^[01]$' "$T/out" | tr '\n' ' ')" '7 0 1 '
    is_free
    equals "$(redis -n 3 exists dlock:job)" 0
}

@test "a connection that breaks unseen does not keep the last look from finding an extension" {
    start_redis
    hold_lock job -r "$URL" -t 4s --grace=1s
    sleep 2.3 # the next look is the one at three seconds
    redis pexpire dlock:job 60000
    redis client kill type normal skipme yes
    sleep 2.5
    kill -0 "$(cat "$T/held")"
    end_hold
    wait "$HOLDER"
}

@test "a connection that is reset in the middle of a reply: exit 69, nothing run" {
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

@test "giving up after a lost reply gives the lock back" {
    start_redis
    dlock -r "$URL" other true
    # It is asked again at once, and may not answer that then.
    fake_redis lose=1 "$T/redis.sock" CONFIG SET maxmemory 1
    fails_with 69 'OOM' dlock -r "unix://$T/fake.sock" --retry-for=0 job touch "$T/ran"
    [ ! -e "$T/ran" ]
    is_free
}

@test "Redis restarted in the middle: reconnected, and the lock that went with it is a lost one" {
    start_redis
    hold_lock job -r "$URL" -t 10
    stop_redis
    rm -f "$T/redis.sock"
    start_redis
    local status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
    grep -q 'the lock is lost: .*the key dlock:job is gone' "$T/held.err"
}

@test "SCRIPT FLUSH in the middle is no loss" {
    start_redis
    hold_lock job -r "$URL" -t 10
    redis script flush
    end_hold
    wait "$HOLDER"
    is_free
}

@test "a name that does not resolve, or not in time: exit 69" {
    fails_with 69 'the name no-such-host.invalid cannot be resolved|was not resolved in time' \
        dlock -r redis://no-such-host.invalid --retry-for=0 job touch "$T/ran"
    local start=$(now)
    LD_PRELOAD=$HELPERS/fault_resolver.so fails_with 69 'the name localhost was not resolved in time' \
        dlock -r redis://localhost --connect-timeout=300ms --retry-for=0 job touch "$T/ran"
    within 2000 "$start"
    [ ! -e "$T/ran" ]
}

@test "Ctrl-C while a name is looked up ends dlock at once" {
    LD_PRELOAD=$HELPERS/fault_resolver.so run python3 "$TESTS/helpers/ctrl_c.py" threads -r redis://localhost --connect-timeout=60 job true
    [ "$status" -eq 0 ]
}

@test "a lock that is lost after an earlier take was given back for being late: 124, never 0" {
    start_redis
    fake_redis first=600 "$T/redis.sock"
    fails_with 124 'the lock (was lost before the command ended|is lost)' \
        dlock -r "unix://$T/fake.sock" -t 500ms job -- sh -c "redis-cli -s '$T/redis.sock' del dlock:job"
}

@test "a signal during the release of a lock in a Redis that is gone ends the tries, not the status" {
    start_redis
    hold held
    dlock -r "unix://$T/redis.sock" job -- "$T/held.sh" >/dev/null 2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0 start
    wait_until 10 test -e "$T/held"
    stop_redis
    start=$(now)
    touch "$T/held.end"
    # Its command is gone: it tries to release.
    wait_until 10 not has_command "$dlock"
    kill -TERM "$dlock"
    wait "$dlock" || status=$?
    equals "$status" 0
    within 1000 "$start"
    grep -q 'the lock could not be released' "$T/err"
}

@test "a lease that ends while a Redis that hangs does not answer to the release is no lost lock" {
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

@test "a release that failed says why, though the lease has ended and the server is back, empty, since" {
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

@test "the permissions that the manual names are enough to take a lock anew after a take that came too late" {
    start_redis
    manual_user
    fake_redis first=600 "$T/redis.sock"
    run dlock -r "unix://locker:secret@$T/fake.sock" -t 500ms job -- sh -c 'exit 5'
    equals "$status $output" '5 '
}

@test "a list of what was requested that is cut within a long answer costs the server no time" {
    start_redis
    hold_lock job -s -r "unix://$T/redis.sock" -t 60
    # As after some force-releases of a lock that many shared.
    redis hset '{dlock:job}:meta' requests "$(printf 'id - '; for i in {1..41}; do printf '%0999d ' "$i"; done)" >/dev/null
    local status=0 start=$(now)
    dlock -r "unix://$T/redis.sock" --force-release job
    wait "$HOLDER" || status=$?
    equals "$status" 124
    equals "$(timeout 20 redis-cli -s "$T/redis.sock" ping)" PONG
    within 2000 "$start"
}
