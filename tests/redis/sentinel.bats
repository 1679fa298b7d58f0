#!/usr/bin/env bats
# Redis Sentinel: which master the lock is acquired from, and failovers while it is
# held or waited for.
load ../lib/common
load ../lib/replication
load ../lib/queue

at_sentinel() { redis-cli -p "$S" "$@"; }
# is_told PORT [NUMBER]: NUMBER connections of dlock listen to this Sentinel.
is_told() { [ "$(redis-cli -p "$1" client list | grep -c 'name=dlock .* sub=1 ')" = "${2:-1}" ]; }
# at_new_master [NUMBER]: NUMBER connections of dlock to b watch or wait there.
at_new_master() { [ "$(at_b client list | grep -c 'name=dlock .* sub=[12] ')" -ge "${1:-1}" ]; }

# start_failover: starts a pair, and a Sentinel that can let b take over.
start_failover() {
    start_pair "$@"
    start_sentinel s && S=$PORT
    wait_until 10 sentinel_knows_replica "$S"
    export DLOCK_REDIS=redis+sentinel://127.0.0.1:$S/prime
}

# A master that nobody can demote, and that keeps answering as a master.
immovable=(--rename-command REPLICAOF '' --rename-command SLAVEOF '')

fail_over() {
    wait_until 10 fails_over "$S"
    wait_until 20 has_switched s
}

# --- finding the master ------------------------------------------------------

@test "the lock is acquired from the master that the Sentinels name, and every action finds it there" {
    A=$(free_port)
    start_redis a --port "$A"
    start_sentinel s && S=$PORT
    export DLOCK_REDIS=redis+sentinel://127.0.0.1:$S/prime/2
    run dlock job -- sh -c 'redis-cli -s "$T/a.sock" -n 2 exists dlock:job; exit 5'
    equals "$status $output" '5 1'
    local owner=$(dlock --acquire job)
    fails_with 0 'held' dlock --status job
    equals "$(dlock --list | grep -c job)" 1
    dlock --extend -t 2h --owner "$owner" job
    dlock --release --owner "$owner" job
    equals "$(at_a -n 2 exists dlock:job)" 0
}

@test "Sentinels that are down, hang or send nonsense are skipped" {
    local good bad down=127.0.0.1:$(free_port) start
    A=$(free_port)
    start_redis a --port "$A"
    start_sentinel s && good=127.0.0.1:$PORT
    run dlock -r "redis+sentinel://$down,localhost:${good#*:},$down/prime" job echo in
    equals "$status $output" '0 in'
    local all=(mute close 'HTTP/1.1 400\r\n' '*-1\r\n' '$-1\r\n' '*0\r\n' ':7\r\n' '*2147483647\r\n' '+OK\r\n'
        '*2\r\n$0\r\n\r\n$4\r\n6379\r\n' '*2\r\n$9\r\n127.0.0.1\r\n$1\r\n0\r\n' '*2\r\n$9\r\n127.0.0.1\r\n$5\r\n65536\r\n'
        '*2\r\n$4\r\na\x00bc\r\n$4\r\n6379\r\n' '*2\r\n:1\r\n:2\r\n' '*1\r\n*2\r\n$1\r\na\r\n$4\r\n6379\r\n'
        "*2\\r\\n\$300\\r\\n$(printf 'x%.0s' {1..300})\\r\\n\$1\\r\\n1\\r\\n") twice=()
    for bad in "${all[@]}"; do twice+=("$bad" "$bad"); done
    fake_sentinel fake "${twice[@]}"
    for bad in "${all[@]}"; do
        start=$(now)
        run dlock -r "redis+sentinel://127.0.0.1:$PORT,$good/prime" --connect-timeout=600ms --retry-for=0 job echo in
        equals "$bad: $status $output" "$bad: 0 in"
        within 600 "$start"
        run dlock -r "redis+sentinel://127.0.0.1:$PORT/prime" --connect-timeout=200ms --retry-for=0 job touch "$T/ran"
        [ "$status" = 69 ] || [[ "$bad $status" == '*-1'*78 || "$bad $status" == '$-1'*78 ]] || { echo "$bad: $status $output"; false; }
    done
    [ ! -e "$T/ran" ]
}

@test "a request that does not wait asks a Sentinel for the master once, and does not subscribe there" {
    local before
    A=$(free_port)
    start_redis a --port "$A"
    fake_sentinel fake "$(address 127.0.0.1 "$A")"
    export DLOCK_REDIS=redis+sentinel://127.0.0.1:$PORT/prime
    dlock --acquire job
    before=$(wc -l <"$T/fake.log")
    fails_with 75 '' dlock -n job true
    equals "$(tail -n +$((before + 1)) "$T/fake.log")" question
}

@test "no Sentinel can be reached: exit 69 with how many were tried and what the last one said" {
    local down=127.0.0.1:$(free_port)
    fails_with 69 "redis\+sentinel://$down,$down/prime/0: 2 Sentinels were asked for the master prime without success; Sentinel $down: Connection refused; tried [2-9]" \
        dlock -r "redis+sentinel://$down,$down/prime" --retry-for=300ms job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "a master that no Sentinel knows, a server that is no Sentinel, or a Sentinel given as a plain server: exit 78 at once" {
    A=$(free_port)
    start_redis a --port "$A"
    start_sentinel s && S=$PORT
    fails_with 78 "the Sentinels know no master called other: 127.0.0.1:$S" \
        dlock -r "redis+sentinel://127.0.0.1:$S/other" job touch "$T/ran"
    fails_with 78 "Sentinel 127.0.0.1:$A: the server answered: ERR unknown command" \
        dlock -r "redis+sentinel://127.0.0.1:$A/prime" job touch "$T/ran"
    fails_with 78 "the server answered: ERR unknown .*; the server runs no scripts; for a Sentinel, use redis\+sentinel://" \
        dlock -r "redis://127.0.0.1:$S" job touch "$T/ran"
    # A Sentinel that cannot be reached may know the master.
    fails_with 69 'without success' dlock -r "redis+sentinel://127.0.0.1:$S,127.0.0.1:$(free_port)/other" --retry-for=0 job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "the master and the Sentinels each have their own login" {
    A=$(free_port)
    start_redis a --port "$A" --requirepass secret
    start_sentinel s 'requirepass open' 'sentinel auth-pass prime secret' && S=$PORT
    printf 'open\n' >"$T/password"
    (umask 077 && printf 'secret\n' >"$T/secret")
    local url=redis+sentinel://:secret@127.0.0.1:$S/prime
    fails_with 77 "Sentinel 127.0.0.1:$S: .*NOAUTH.*; use --sentinel-password-file" dlock -r "$url" job touch "$T/ran"
    chmod 644 "$T/password"
    fails_with 78 'other users can read this secret' dlock -r "$url" --sentinel-password-file="$T/password" job touch "$T/ran"
    chmod 600 "$T/password"
    run dlock -r "$url" --sentinel-password-file="$T/password" job echo in
    equals "$status $output" '0 in'
    fails_with 77 'the server requires a user and a password|NOAUTH' \
        dlock -r "redis+sentinel://127.0.0.1:$S/prime" --sentinel-password-file="$T/password" job touch "$T/ran"
    printf 'wrong' >"$T/password"
    fails_with 77 "Sentinel 127.0.0.1:$S: .*WRONGPASS" dlock -r "$url" --sentinel-password-file="$T/password" job touch "$T/ran"
    [[ $output != *wrong* ]]
    # A dlock inside the command finds the file by the environment.
    printf 'open' >"$T/password"
    DLOCK_REDIS=redis+sentinel://127.0.0.1:$S/prime DLOCK_PASSWORD_FILE=$T/secret DLOCK_SENTINEL_PASSWORD_FILE=$T/password run dlock job -- \
        sh -c 'cd / && dlock --extend -t 2h && dlock --release && dlock --doctor --json | grep -c HELD'
    equals "$status $output" '1 0'
    # The Sentinel has a user, who may do no more than this.
    at_sentinel -a open --no-auth-warning acl setuser watch on '>p:w' -@all +auth '+sentinel|get-master-addr-by-name' \
        '+client|setname' +subscribe +unsubscribe '&+switch-master'
    printf 'watch:p:w\n' >"$T/password"
    run dlock -r "$url" --sentinel-password-file="$T/password" job echo in
    equals "$status $output" '0 in'
    # If the user may not even subscribe, the lock is held all the same.
    at_sentinel -a open --no-auth-warning acl setuser watch -subscribe
    # shellcheck disable=SC2016
    run dlock -r "$url" --sentinel-password-file="$T/password" job -- \
        sh -c 'until redis-cli -p "$0" -a open acl log 2>&1 | grep -q subscribe; do sleep 0.01; done; exit 5' "$S"
    equals "$status $output" '5 '
    printf '\n' >"$T/password"
    fails_with 78 'the file is empty' dlock -r "$url" --sentinel-password-file="$T/password" job touch "$T/ran"
    printf 'watch:' >"$T/password"
    fails_with 78 'the password is empty' dlock -r "$url" --sentinel-password-file="$T/password" job touch "$T/ran"
    fails_with 78 'No such file' dlock -r "$url" --sentinel-password-file="$T/none" job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "a Sentinel that names a replica: no lock is requested there, and the real master is used once it is named" {
    start_pair
    fake_sentinel stale "$(address 127.0.0.1 "$B")"
    fails_with 69 "127.0.0.1 port $B is a replica: a failover is under way; tried [2-9]" \
        dlock -r "redis+sentinel://127.0.0.1:$PORT/prime" --retry-for=300ms job touch "$T/ran"
    [ ! -e "$T/ran" ]
    fake_sentinel late "$(address 127.0.0.1 "$B")" "$(address 127.0.0.1 1)" "$(address 127.0.0.1 "$A")"
    run dlock -r "redis+sentinel://127.0.0.1:$PORT/prime" job -- redis-cli -s "$T/a.sock" exists dlock:job
    equals "$status $output" '0 1'
    equals "$(at_b exists dlock:job)" 0
    # A user who may not ask for the role is refused.
    at_a acl setuser bob on '>pw' '~*' '&*' +@all -role
    fails_with 77 "NOPERM.*'role'" dlock -r "redis+sentinel://bob:pw@127.0.0.1:$PORT/prime" job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "if the first Sentinel names a replica or a server that is gone, the next Sentinel's answer is used" {
    local stale
    start_pair
    start_sentinel s && S=$PORT
    for stale in "$B" "$(free_port)"; do
        fake_sentinel stale "$(address 127.0.0.1 "$stale")"
        run dlock -r "redis+sentinel://127.0.0.1:$PORT,127.0.0.1:$S/prime" job -- redis-cli -s "$T/a.sock" exists dlock:job
        equals "$status $output" '0 1'
        equals "$(at_b exists dlock:job)" 0
    done
    # With the second Sentinel's answer no second try is needed.
    run dlock -r "redis+sentinel://127.0.0.1:$PORT,127.0.0.1:$S/prime" --retry-for=0 job echo in
    equals "$status $output" '0 in'
}

# listens NAME: somebody is subscribed to this fake Sentinel.
listens() { grep -q '^subscribe' "$T/$1.log"; }

@test "a Sentinel that allows no subscription replaces one that did: a new master is still noticed within seconds" {
    local one two start status=0
    A=$(free_port) B=$(free_port)
    start_redis a --port "$A"
    start_redis b --port "$B"
    fake_sentinel one "$(address 127.0.0.1 "$A")" && one=127.0.0.1:$PORT
    fake_sentinel two --deaf "$(address 127.0.0.1 "$A")" "$(address 127.0.0.1 "$B")" && two=127.0.0.1:$PORT
    export DLOCK_REDIS=redis+sentinel://$one,$two/prime
    hold_lock job --grace=100ms -t 1h
    wait_until 10 listens one
    kill "$(cat "$T/one.pid")" && start=$(now)
    wait "$HOLDER" || status=$?
    equals "$status" 124
    within 3000 "$start"
}

@test "a Sentinel that allows a subscription is preferred to one that does not" {
    local one two three
    A=$(free_port)
    start_redis a --port "$A"
    fake_sentinel one "$(address 127.0.0.1 "$A")" && one=127.0.0.1:$PORT
    fake_sentinel two --deaf "$(address 127.0.0.1 "$A")" && two=127.0.0.1:$PORT
    fake_sentinel three "$(address 127.0.0.1 "$A")" && three=127.0.0.1:$PORT
    export DLOCK_REDIS=redis+sentinel://$one,$two,$three/prime
    hold_lock job -t 1h
    wait_until 10 listens one
    kill "$(cat "$T/one.pid")"
    wait_until 10 listens three
    equals "$(grep -c refused "$T/two.log")" 1
    end_hold
    wait "$HOLDER"
}

@test "a Sentinel that hangs later blocks nobody: a lost lock is noticed at once" {
    local start status=0
    A=$(free_port)
    start_redis a --port "$A"
    fake_sentinel fake "$(address 127.0.0.1 "$A")" mute
    export DLOCK_REDIS=redis+sentinel://127.0.0.1:$PORT/prime
    hold_lock job --grace=100ms
    wait_until 5 eval 'at_a client list | grep -q "name=dlock .* sub=1 "'
    sleep 0.5 # the first check is over, the next one comes after ten seconds
    at_a del dlock:job && start=$(now)
    wait "$HOLDER" || status=$?
    equals "$status" 124
    within 0 "$start"
}

@test "a new master that cannot be reached at first: the lock stays held, and the tries are spaced out" {
    local start=$(now) down
    A=$(free_port)
    start_redis a --port "$A"
    down=$(address 127.0.0.1 "$(free_port)")
    fake_sentinel fake "$(address 127.0.0.1 "$A")" "$down" "$down" "$down" "$(address 127.0.0.1 "$A")"
    export DLOCK_REDIS=redis+sentinel://127.0.0.1:$PORT/prime
    hold_lock job
    wait_until 10 eval '[ "$(grep -c question "$T/fake.log")" -ge 5 ]'
    wait_until 5 eval 'at_a client list | grep -q "name=dlock .* sub=1 "'
    [ $(($(now) - start)) -ge 900 ]
    end_hold
    wait "$HOLDER"
    equals "$(at_a exists dlock:job)" 0
}

@test "a connection that ends before it has subscribed is replaced: no outage for a waiter that polls" {
    A=$(free_port)
    start_redis a --port "$A"
    start_sentinel s && S=$PORT
    at_a acl setuser bob on '>pw' '~*' '&*' +@all -subscribe
    at_a set dlock:job somebody px 60000
    dlock -r "redis+sentinel://bob:pw@127.0.0.1:$S/prime" --retry-for=0 job echo ran >"$T/out" 2>&1 3>&- 4>&- &
    wait_until 5 eval '[ "$(at_a zcard "{dlock:job}:queue")" = 1 ]'
    at_a client kill user bob
    at_a del dlock:job
    wait $!
    equals "$(cat "$T/out")" ran
}

@test "--doctor asks each Sentinel: two that disagree are a failure, one that is down or allows no subscription a warning" {
    local one two
    A=$(free_port)
    start_redis a --port "$A"
    fake_sentinel one "$(address 127.0.0.1 "$A")" && one=127.0.0.1:$PORT
    fake_sentinel two --deaf "$(address 127.0.0.1 "$A")" && two=127.0.0.1:$PORT
    fails_with 0 "ok +sentinel +$one: the master is 127.0.0.1:$A" dlock --doctor -r "redis+sentinel://$one,$two/prime"
    grep -q "warn  sentinel  *$two: .* the Sentinel does not allow dlock to subscribe" <<<"$output"
    kill "$(cat "$T/two.pid")"
    wait_until 10 gone "$(cat "$T/two.pid")"
    fails_with 0 "warn +sentinel +$two: Connection refused" dlock --doctor -q -r "redis+sentinel://$one,$two/prime"
    fake_sentinel two "$(address 127.0.0.1 1)" && two=127.0.0.1:$PORT
    fails_with 1 "fail +sentinel +$two says that the master is 127.0.0.1:1; another Sentinel says 127.0.0.1:$A" \
        dlock --doctor -q -r "redis+sentinel://$one,$two/prime"
    fake_sentinel two '*-1\r\n' && two=127.0.0.1:$PORT
    fails_with 1 "fail +sentinel +$two says that the master is none" dlock --doctor -q -r "redis+sentinel://$one,$two/prime"
}

# --- failovers ---------------------------------------------------------------

@test "a new master takes over while the old one runs: a lock that it has is kept, one that it lacks is lost at once" {
    start_failover "${immovable[@]}"
    hold kept && hold lost
    dlock kept -- sh -c '"$T/kept.sh"; exit 5' 2>"$T/kept.err" 3>&- 4>&- &
    local kept=$! lost status=0 start
    dlock --grace=100ms -t 1m lost -- "$T/lost.sh" 2>"$T/lost.err" 3>&- 4>&- &
    lost=$!
    wait_until 10 test -e "$T/kept"
    wait_until 10 test -e "$T/lost"
    wait_until 5 is_told "$S" 2
    wait_until 5 eval '[ "$(at_b exists dlock:kept dlock:lost)" = 2 ]'
    at_b del dlock:lost
    fail_over && start=$(now)
    wait "$lost" || status=$?
    equals "$status" 124
    within 0 "$start"
    wait_until 1 at_new_master
    equals "$(at_a role | head -1)" master
    touch "$T/kept.end"
    status=0
    wait "$kept" || status=$?
    equals "$status" 5
    equals "$(at_b exists dlock:kept)" 0
    equals "$(at_a exists dlock:kept)" 1
}

@test "the master dies while locks are held and waited for: they stay held, and each waiter gets its turn once" {
    start_failover
    at_a set dlock:job somebody px 60000
    hold_lock own --retry-for=30s -t 1m
    queue first --retry-for=30s
    queue second --retry-for=30s
    wait_until 5 is_told "$S" 3
    wait_until 5 eval '[ "$(at_b zcard "{dlock:job}:queue")" = 2 ]'
    stop_redis a
    wait_until 20 has_switched s
    wait_until 5 at_new_master 3
    at_b del dlock:job
    ended first
    ended second
    ran 'first second '
    end_hold
    wait "$HOLDER"
    equals "$(at_b exists dlock:own dlock:job '{dlock:job}:queue')" 0
}

@test "the master hangs: a call that waits for its answer ends when another master takes over" {
    start_failover
    hold_lock own --connect-timeout=60s -t 10s
    wait_until 5 is_told "$S"
    wait_until 5 eval '[ "$(at_b exists dlock:own)" = 1 ]'
    kill -STOP "$(cat "$T/a.pid")"
    wait_until 20 has_switched s
    wait_until 1 at_new_master
    end_hold
    wait "$HOLDER"
    equals "$(at_b exists dlock:own)" 0
}

@test "the Sentinel with the subscription ends: the next one is used, and the lock stays held" {
    local one two
    A=$(free_port)
    start_redis a --port "$A"
    start_sentinel s && one=$PORT
    start_sentinel t && two=$PORT
    export DLOCK_REDIS=redis+sentinel://127.0.0.1:$one,127.0.0.1:$two/prime
    hold_lock own -t 10s
    at_a set dlock:job somebody px 60000
    queue first
    wait_until 5 is_told "$one" 2
    stop_redis s
    wait_until 10 is_told "$two" 2
    at_a del dlock:job
    ended first
    end_hold
    wait "$HOLDER"
}
