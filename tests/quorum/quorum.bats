#!/usr/bin/env bats
# One lock on several servers. Each test has its own servers, $T/1.sock and so on.
load ../lib/common
load ../lib/fence

url() { echo "unix://$T/$1.sock"; }

# quorum NUMBER [DOWN]: starts NUMBER servers, and names DOWN more that
# do not exist.
quorum() {
    local i
    DLOCK_REDIS=
    for ((i = 1; i <= $1 + ${2:-0}; i++)); do
        DLOCK_REDIS+=" $(url "$i")"
        [ "$i" -gt "$1" ] || serve "$i"
    done
    export DLOCK_REDIS
    for ((i = 1; i <= $1; i++)); do wait_until 20 redis_answers "$i"; done
}

# serve NAME [COMMAND...]: starts a server without waiting for it.
serve() {
    local name=$1
    shift
    "$@" redis-server --port 0 --unixsocket "$T/$name.sock" --daemonize no --save '' --appendonly no --dir "$T" \
        --logfile "$T/$name.log" >/dev/null 2>&1 3>&- 4>&- &
    echo $! >"$T/$name.pid"
    disown
}

on() { redis-cli -s "$T/$1.sock" "${@:2}"; }
is_free_on() { [ "$(on "$1" exists dlock:job)" = 0 ]; }
is_held_on() { [ "$(on "$1" exists dlock:job)" = 1 ]; }
has_fence_on() { [ "$(fence_on "$1")" -ge "$2" ]; }
fence_on() { on "$1" hget '{dlock:job}:meta' fence; }
# Prints how often a server has been asked so far.
asked() { on "$1" info commandstats | sed -nE 's/^cmdstat_evalsha:calls=([0-9]+),.*/\1/p'; }
asked_more() { [ "$(asked "$1")" -gt "$2" ]; }
freeze() { kill -STOP "$(cat "$T/$1.pid")"; }

# ends_with STATUS PID: the process must end with this status.
ends_with() {
    local status=0
    wait "$2" || status=$?
    equals "$status" "$1"
}

# bats test_tags=slow
@test "-v names each server that lacks the lock while it is held" {
    quorum 3
    hold_lock job -v --ttl=10
    local i times looks
    looked() { [ "$(asked 2)" -ge $((looks + 2)) ]; }
    told() { [ "$(grep -c "the lock is held on 2 of 3 servers; $(url "$1")" "$T/held.err")" -ge "$2" ]; }
    for i in 1 2 3; do wait_until 10 is_held_on $i; done
    for times in '1 1' '3 1' '1 2'; do
        i=${times% *}
        stop_redis "$i"
        # shellcheck disable=SC2086
        wait_until 20 told $times
        serve "$i"
        wait_until 20 is_held_on "$i"
        dlock --extend --owner="$(on 2 get dlock:job)" job
        looks=$(asked 2)
        wait_until 20 looked # of all three
    done
    end_hold
    wait "$HOLDER"
}

# bats test_tags=slow
@test "a waiter that gets only a part of the servers while one hangs keeps that part from others for less than half of the time" {
    quorum 3
    on 1 set dlock:job another >/dev/null
    freeze 3
    dlock job true 3>&- 4>&- &
    local waiter=$! held
    wait_until 60 asked_more 1 6 # so often that its pauses are the longest
    held=$(on 2 -r 240 -i 0.04 exists dlock:job | grep -c 1)
    [ "$held" -gt 0 ]
    [ "$held" -lt 160 ] # with a margin
    on 1 del dlock:job >/dev/null
    ends_with 0 "$waiter"
}

# bats test_tags=slow
@test "another client acquires the lock before the fence is written to a majority: exit 75, and the holder is named" {
    serve 1
    serve 2 ahead -86400 # so that the other server's fence is written there
    for i in 1 2; do wait_until 20 redis_answers $i; done
    torture_proxy 2
    ask_proxy 2 delay 0.5
    DLOCK_REDIS="$(url 1) unix://$T/2.proxy $(url none)" \
        dlock -nv job touch "$T/ran" 2>"$T/err" 3>&- 4>&- &
    local taker=$!
    wait_until 10 is_held_on 2
    on 2 set dlock:job another >/dev/null
    ends_with 75 "$taker"
    grep -q 'held by ' "$T/err"
    [ ! -e "$T/ran" ]
    is_free_on 1
    equals "$(on 2 get dlock:job)" another
}

# bats test_tags=slow
@test "distant servers: the lock is acquired with one of five down, and a restarted server gets it again" {
    quorum 4
    far 120 1 2 3 4
    local all="$(url far1) $(url far2) $(url far3) $(url far4) $(url none)"
    DLOCK_REDIS=$all fails_with 0 'acquired .*on [34] of 5 servers' dlock -v --retry-for=0 job true
    export DLOCK_REDIS="$(url far1) $(url far2) $(url far3)"
    hold_lock job --ttl=10
    wait_until 10 is_held_on 3
    stop_redis 3
    serve 3
    wait_until 10 redis_answers 3
    wait_until 8 is_held_on 3
    end_hold
    wait "$HOLDER"
    is_free_on 3
}

@test "with three servers the lock is acquired on all, with the command's fence, and released on all" {
    quorum 3
    printf '#!/bin/sh\necho $DLOCK_HELD_OWNER $DLOCK_FENCE $DLOCK_HELD_BACKEND >"$T/seen"\nexec "$T/held.sh"\n' >"$T/see.sh"
    chmod +x "$T/see.sh"
    hold held
    dlock -v job "$T/see.sh" 2>"$T/held.err" 3>&- 4>&- &
    HOLDER=$!
    wait_until 10 test -e "$T/held"
    local token fence backend i
    read -r token fence backend <"$T/seen"
    for i in 1 2 3; do
        wait_until 10 is_held_on $i
        equals "$(on $i get dlock:job)" "$token"
        wait_until 10 has_fence_on $i "$fence" # on a bare majority at first
    done
    run dlock --status --json job
    [[ $output == *"\"fence\":$fence,"* ]]
    equals "$backend" redis
    end_hold
    ends_with 0 "$HOLDER"
    grep -qE "acquired \(redis, fence $fence, on [23] of 3 servers.*\) after" "$T/held.err"
    for i in 1 2 3; do is_free_on $i; done
}

@test "several --redis on the command line replace those in the environment; a dlock inside finds them" {
    quorum 3
    local all=$DLOCK_REDIS
    unset DLOCK_REDIS
    DLOCK_REDIS="unix://$T/none.sock" dlock -r "$(url 1)" -r "$(url 2)" job --redis="$(url 3)" -- env DLOCK_REDIS="$all" sh -c '
        dlock --current && dlock --extend --ttl=2h && dlock --release' >"$T/out"
    grep -q '^job (redis), lease ends' "$T/out"
    for i in 1 2 3; do is_free_on $i; done
    fails_with 0 'already holds the lock' dlock -r "$(url 1)" -r "$(url 2)" job -r "$(url 3)" -- dlock -v job dlock --extend
    printf 'redis = %s\n' "$all" >"$T/home/dlock.conf"
    mkdir -p "$T/home/.config/dlock" && mv "$T/home/dlock.conf" "$T/home/.config/dlock/"
    fails_with 0 'already holds the lock' dlock -v job dlock -v job true
    # With passwords, which the command does not get; the file separates them in another way.
    for i in 1 2 3; do on $i config set requirepass secret >/dev/null; done
    local with=() i
    for i in 1 2 3; do with+=("unix://:secret@$T/$i.sock"); done
    printf 'redis = %s   %s  %s\n' "${with[@]}" >"$T/home/.config/dlock/dlock.conf"
    chmod 600 "$T/home/.config/dlock/dlock.conf"
    dlock -r "${with[0]}" -r "${with[1]}" -r "${with[2]}" job dlock --extend --ttl=2h
    for i in 1 2 3; do redis-cli -s "$T/$i.sock" -a secret config set requirepass '' >/dev/null 2>&1; done
    # The URLs of a weaker source are not added.
    fails_with 69 "unix://$T/none.sock" dlock -r "unix://$T/none.sock" --retry-for=0 job true
}

@test "invalid quorums are refused: two servers, one of them listed twice, too many, --slots" {
    fails_with 64 '--redis: a quorum needs at least 3 servers, not 2' dlock -r unix:///a -r unix:///b job touch "$T/ran"
    fails_with 64 '--redis: URL 3: .*is the same server as URL 1' \
        dlock -r redis://one:6379/1 -r unix:///a -r redis://ONE/2 job touch "$T/ran"
    fails_with 64 '--redis: URL 3: .*is the same server as URL 1' \
        dlock -r rediss://one -r rediss://two -r rediss://one/2 job touch "$T/ran"
    fails_with 64 'more than 15 servers' dlock -r "$(printf 'unix:///%s ' {1..16})" job touch "$T/ran"
    fails_with 64 'URL 2: ftp:// is an unknown scheme' dlock -r unix:///a -r ftp://x -r unix:///b job touch "$T/ran"
    DLOCK_REDIS="unix:///a unix:///b" fails_with 78 'DLOCK_REDIS: a quorum needs at least 3 servers, not 2' dlock job touch "$T/ran"
    DLOCK_REDIS="unix:///a unix:///b unix:///c" fails_with 64 '--slots: a quorum cannot limit' \
        dlock --slots=2 job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "one server under several names is detected, and never counts as a majority" {
    quorum 2
    ln -s 1.sock "$T/alias.sock"
    ln -s 1.sock "$T/other.sock"
    DLOCK_REDIS="$(url 1) $(url alias) $(url other)" fails_with 78 \
        '2 of 3 servers cannot be reached.*this URL leads to the same server as another URL of the quorum' dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
    is_free_on 1
    DLOCK_REDIS="$(url 1) $(url alias) $(url 2)" wait_until 10 fails_with 0 'the same server as another URL' dlock -v job true
}

@test "one server under several names is detected even if the clock is set back meanwhile" {
    quorum 1
    ln -s 1.sock "$T/alias.sock"
    ln -s 1.sock "$T/other.sock"
    on 1 set dlock:job foreign
    echo 0 >"$T/wall_clock"
    LD_PRELOAD=$HELPERS/fault_wall_clock.so DLOCK_REDIS="$(url 1) $(url alias) $(url other)" \
        dlock -v job touch "$T/ran" 2>"$T/err" 3>&- 4>&- &
    local waiter=$!
    wait_until 10 grep -q 'another client' "$T/err"
    echo -3600 >"$T/wall_clock"
    on 1 del dlock:job
    ends_with 78 "$waiter"
    grep -q 'this URL leads to the same server as another URL of the quorum' "$T/err"
    [ ! -e "$T/ran" ]
    is_free_on 1
}

@test "no thread can be started: the lock is still checked, nothing is left, and a release reaches all servers" {
    quorum 3
    local token
    LD_PRELOAD=$HELPERS/fault_pthread_create.so dlock -v job sh -c 'until [ -e "$T/end" ]; do sleep 0.01; done' 2>"$T/err" 3>&- 4>&- &
    wait_until 10 grep -q 'thread that watches the lease' "$T/err"
    for i in 1 2; do on $i del dlock:job; done
    ends_with 124 $!
    grep -q 'the lock is lost' "$T/err"
    for i in 1 2 3; do is_free_on $i; done
    token=$(dlock --acquire job)
    LD_PRELOAD="$HELPERS/fault_pthread_create.so" dlock --release --owner="$token" job
    for i in 1 2 3; do is_free_on $i; done
}

@test "one of three servers hangs, another is briefly held by others: a waiter does not wait for the hanging one" {
    quorum 3
    local start
    freeze 3
    on 1 set dlock:job foreign px 500
    start=$(now)
    run dlock --connect-timeout=10s -w 8 job echo ran
    equals "$status $output" '0 ran'
    within 0 "$start"
    # Nor does it wait for the server that it has held against the others meanwhile.
    on 1 set dlock:job foreign
    start=$(now)
    fails_with 75 '' dlock --connect-timeout=10s -n job true
    within 0 "$start"
    is_free_on 2
}

@test "one of three servers is distant, another is held by others: a single try still acquires the lock" {
    quorum 3
    far 300 3
    on 1 set dlock:job foreign
    DLOCK_REDIS="$(url 1) $(url 2) $(url far3)" run dlock -n job echo ran
    equals "$status $output" '0 ran'
    is_free_on 2
    is_free_on 3
}

# far MILLISECONDS NUMBER...: puts these servers at this distance, at $T/farNUMBER.sock.
far() {
    local i late=$1
    shift
    for i; do
        python3 "$TESTS/fakes/fake_redis.py" "$T/far$i.sock" delay="$late" "$T/$i.sock" >/dev/null 2>&1 3>&- 4>&- &
        echo $! >"$T/far$i.pid"
    done
    for i; do wait_until 30 test -S "$T/far$i.sock"; done
}

@test "a signal while a majority is frozen ends dlock quickly" {
    quorum 3
    freeze 1
    freeze 2
    dlock --connect-timeout=60 job touch "$T/ran" 2>/dev/null 3>&- 4>&- &
    local waiter=$!
    wait_until 10 is_held_on 3
    local start=$(now)
    kill -TERM "$waiter"
    wait "$waiter" || true
    within 2000 "$start"
    is_free_on 3
    [ ! -e "$T/ran" ]
}

@test "one of three servers or two of five are down: the lock is acquired; one more: exit 69, nothing is run or left on the others" {
    quorum 4 1
    local all="$DLOCK_REDIS"
    fails_with 0 'on [34] of 5 servers; .*unix://.*/5.sock\?db=0: ' dlock -v job true
    stop_redis 4
    fails_with 0 'on 3 of 5 servers' dlock -v job true
    export DLOCK_REDIS="$(url 1) $(url 2) $(url 4)"
    fails_with 0 'on 2 of 3 servers' dlock -v job true
    run dlock job true
    equals "$status $output" '0 ' # a minority that is down is not worth a mail
    stop_redis 3
    export DLOCK_REDIS=$all
    fails_with 69 '[345] of 5 servers cannot be reached, and 3 are needed: unix://.*3.sock.*4.sock.*5.sock' \
        dlock --retry-for=200ms job touch "$T/ran"
    [ ! -e "$T/ran" ]
    is_free_on 1
    is_free_on 2
    fails_with 69 'servers cannot be reached' dlock --status --retry-for=0 job
}

@test "a frozen server delays neither a run nor a release; locks that it grants late are given back" {
    quorum 3
    freeze 2
    local start=$(now)
    fails_with 0 'on 2 of 3 servers; unix://.*/2.sock\?db=0: slower than the other servers' \
        dlock -v --connect-timeout=20 job true
    within 0 "$start"
    kill -CONT "$(cat "$T/2.pid")"
    wait_until 10 redis_answers 2
    wait_until 5 is_free_on 2
}

@test "a server that was slow once gets the lock soon afterwards, for the rest of the lease only" {
    quorum 3
    freeze 2
    hold_lock job --ttl=20
    kill -CONT "$(cat "$T/2.pid")"
    wait_until 20 is_held_on 2
    local first
    first=$(on 1 pttl dlock:job) # asked before the other server, whose time only gets less meanwhile
    [ "$(on 2 pttl dlock:job)" -le "$first" ]
    end_hold
    wait "$HOLDER"
    for i in 1 2 3; do is_free_on $i; done
}

@test "a server that comes back gets the lock before the next check is due" {
    quorum 2 1
    local start
    hold_lock job --ttl=1h # checked every 10 s
    serve 3
    wait_until 20 redis_answers 3
    start=$(now)
    wait_until 20 is_held_on 3
    within 3000 "$start"
    end_hold
    wait "$HOLDER"
    for i in 1 2 3; do is_free_on $i; done
}

@test "a server that lost the lock gets it again soon, even if another server has been down for long" {
    quorum 4 1
    hold_lock job --ttl=1h
    local start i
    for i in 1 2 3 4; do wait_until 10 is_held_on $i; done
    for i in 1 2 3 4 5 6; do # each time it checks, and finds the fifth still down
        on 1 pexpire dlock:job 3600000 >/dev/null
        sleep 0.15
    done
    on 2 del dlock:job >/dev/null
    start=$(now)
    wait_until 20 is_held_on 2
    within 2000 "$start"
    end_hold
    wait "$HOLDER"
    for i in 1 2 3 4; do is_free_on $i; done
}

@test "-v names a server that lacks the lock once, not at each check" {
    quorum 3
    hold_lock job -v --ttl=10
    for i in 1 2 3; do wait_until 10 is_held_on $i; done
    stop_redis 1
    wait_until 20 grep -qF "the lock is held on 2 of 3 servers; $(url 1)" "$T/held.err"
    local looks
    looks=$(asked 2)
    wait_until 20 asked_more 2 $((looks + 2))
    end_hold
    wait "$HOLDER"
    # While it is away, another slow server is a change; the same line twice in a row is not.
    grep "the lock is held on" "$T/held.err" >"$T/notes"
    equals "$(uniq -d "$T/notes")" ""
}

@test "a server that restarts empty while the lock is held gets it again; the command runs on" {
    quorum 3
    hold_lock job -v --ttl=10
    for i in 1 2 3; do wait_until 10 is_held_on $i; done
    stop_redis 1
    wait_until 10 grep -q 'the lock is held on [12] of 3 servers; unix://' "$T/held.err" # perhaps of a server that was slow
    serve 1
    wait_until 20 is_held_on 1
    kill -0 "$HOLDER"
    fails_with 75 "held by" dlock -n -v job touch "$T/ran"
    end_hold
    wait "$HOLDER"
    [ ! -e "$T/ran" ]
}

@test "a majority loses the lock: the command is stopped at once, exit 124, and nothing is left" {
    quorum 3
    hold_lock job --ttl=1h
    for i in 1 2 3; do wait_until 10 is_held_on $i; done
    on 1 del dlock:job # one is not enough
    wait_until 20 is_held_on 1
    on 1 del dlock:job
    local start=$(now)
    on 3 set dlock:job another
    ends_with 124 "$HOLDER"
    within 2000 "$start" # the next check is after ten seconds
    grep -qE '2 of 3 servers did not grant the lock: .*(1|2).sock' "$T/held.err"
    wait_until 5 is_free_on 2
    is_free_on 1
    equals "$(on 3 get dlock:job)" another
}

# is_stopped: what hold_lock started is stopped because the lock is lost, and nothing is left on server 1.
is_stopped() {
    local start=$(now)
    wait_until 10 gone "$(cat "$T/held")"
    within 2000 "$start" # the next check is after ten seconds
    ends_with 124 "$HOLDER"
    grep -qE '2 of 3 servers did not grant the lock: .*2.sock.* is gone; .*3.sock' "$T/held.err"
    is_free_on 1
}

@test "one of a bare majority loses the lock, the third server was never reached: the command is stopped, exit 124" {
    quorum 2 1
    hold_lock job --ttl=1h
    on 2 flushall
    is_stopped
}

@test "one of a bare majority loses the lock, others held the third server: the command is stopped, exit 124" {
    quorum 3
    on 3 set dlock:job another
    hold_lock job --ttl=1h
    freeze 3
    on 2 flushall
    is_stopped
}

@test "the lock is removed on one server after the other: it is lost, and not restored on each" {
    quorum 3
    hold_lock job --ttl=10
    local start=$(now)
    for i in 1 2 3; do
        on $i del dlock:job
        sleep 0.2
    done
    ends_with 124 "$HOLDER"
    within 1000 "$start"
    for i in 1 2 3; do is_free_on $i; done
}

@test "a majority of servers dies while the lock is held: the command runs until the lease ends, no longer" {
    quorum 3
    with_suspends hold_lock job --ttl=1h --grace=20m
    stop_redis 1
    stop_redis 2
    local command=$(cat "$T/held")
    suspended 2300
    sleep 0.3 # nothing must happen
    kill -0 "$command"
    suspended 2401
    wait_until 20 gone "$command"
    kill -TERM "$HOLDER" # otherwise it would try to release for 5 s
    ends_with 124 "$HOLDER"
    grep -q '2 of 3 servers cannot be reached' "$T/held.err"
}

@test "a server that agrees to everything and one that sends nonsense do not grant a lock" {
    quorum 3
    hold_lock job
    fake_redis error='OOM no'
    local mode
    for mode in nonsense close; do
        kill "$(cat "$T/fake.pid")"
        fake_redis $mode
        export DLOCK_REDIS="$(url 1) $(url fake) $(url 3)"
        fails_with 75 'held by' dlock -nv job touch "$T/ran"
        fails_with 0 'on 2 of 3 servers; .*fake.sock' dlock -v "other$mode" true
    done
    # A server that truly says that nobody holds the lock there.
    serve 4
    wait_until 20 redis_answers 4
    DLOCK_REDIS="$(url 1) $(url 2) $(url 4)" fails_with 75 'held by' dlock -nv job touch "$T/ran"
    [ ! -e "$T/ran" ]
    wait_until 5 is_free_on 4
    end_hold
    wait "$HOLDER"
}

@test "ten processes, again and again: one at a time, and each gets its turn" {
    quorum 3
    export COUNT=$T/count
    echo 0 >"$COUNT"
    cat >"$T/add.sh" <<'S'
mkdir "$T/inside" || exit 1
n=$(cat "$COUNT"); echo $((n + 1)) >"$COUNT"
rmdir "$T/inside"
S
    local pids=() i
    for i in {1..10}; do
        (for _ in 1 2 3; do dlock -w 30 job sh "$T/add.sh" || exit 1; done) >>"$T/out" 2>&1 3>&- 4>&- &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i"; done
    equals "$(cat "$COUNT")" 30
    for i in 1 2 3; do is_free_on $i; done
}

# ahead SECONDS COMMAND...: runs the command with its own wall clock.
ahead() {
    local folder=$T/ahead$1
    mkdir "$folder" && echo "$1" >"$folder/wall_clock"
    shift
    T=$folder LD_PRELOAD=$HELPERS/fault_wall_clock.so exec "$@"
}

@test "a majority grants the lock, then neither the fence nor the release arrives: a message says that the lock is still held" {
    serve 1
    serve 2 ahead -86400 # so that the other server's fence must be written there
    for i in 1 2; do
        wait_until 20 redis_answers $i
        fake_redis "closing='ours'" "$T/$i.sock" # all scripts that check a lease, but not the one that acquires
        mv "$T/fake.sock" "$T/fake$i.sock"
    done
    export DLOCK_REDIS="unix://$T/fake1.sock unix://$T/fake2.sock $(url none)"
    fails_with 69 'the release did not reach 2 of 3 servers; there, the lock is held until its lease ends: ' \
        dlock --retry-for=0 job touch "$T/ran"
    [ ! -e "$T/ran" ]
    for i in 1 2; do is_held_on $i; done
    fails_with 0 'the release did not reach 2 of 3 servers' dlock --retry-for=0 --fallback=file --lock-dir="$T/locks" next true
    # After the end of the lease the message does not say so.
    fails_with 69 'the command was not run' dlock --ttl=1s --retry-for=3s short touch "$T/ran"
    [[ $output != *'is held until'* ]]
    # A majority that granted nothing is not said to hold anything.
    fake_redis mute
    export DLOCK_REDIS="unix://$T/fake.sock unix://$T/fake1.sock $(url none)"
    fails_with 69 'the command was not run' dlock --retry-for=0 --connect-timeout=300ms other touch "$T/ran"
    [[ $output != *'is held until'* ]]
}

@test "the fence keeps rising even if the server with the highest one is gone and another's clock is behind" {
    serve 1 ahead -172800
    serve 2 ahead -86400
    serve 3
    for i in 1 2 3; do wait_until 20 redis_answers $i; done
    export DLOCK_REDIS="$(url 1) $(url 2) $(url 3)"
    local first second third
    first=$(dlock job sh -c 'echo $DLOCK_FENCE')
    [[ "$(fence_on 1) $(fence_on 2)" == *"$first"* ]] # a slower server may lack it
    stop_redis 3
    second=$(dlock job sh -c 'echo $DLOCK_FENCE')
    [ "$second" -gt "$first" ]
    serve 3 ahead -259200
    wait_until 20 redis_answers 3
    stop_redis 2
    third=$(dlock job sh -c 'echo $DLOCK_FENCE')
    [ "$third" -gt "$second" ]
    # In shared mode the holder's own record has the fence as well.
    run dlock -s other sh -c 'echo $DLOCK_FENCE; dlock --status --json other'
    [[ $output == *"\"fence\":${lines[0]},"* ]]
}

# rises_on_majority: acquires the lock on three servers. The fence must rise, and a majority must have it.
rises_on_majority() {
    local i have=0
    rises
    for i in 1 2 3; do
        [ "$(fence_on $i)" != "$LAST" ] || have=$((have + 1))
    done
    [ $have -ge 2 ]
}

# remembers FENCE: the servers have granted this fence before.
remembers() { for i in 1 2 3; do on $i hset '{dlock:job}:meta' fence "$1" >/dev/null; done; }

# asked_twice: a run that asked each server at most twice, once to acquire the lock and once to release it. If this machine is
# so busy that the proposal came late, the servers were asked to raise their fences as well.
asked_twice() {
    local i before=(0)
    for i in 1 2 3; do before[i]=$(asked $i); done
    dlock job true || return
    for i in 1 2 3; do wait_until 10 is_free_on $i && [ "$(asked $i)" -le $((before[i] + 2)) ] || return; done
}

@test "the servers accept the fence that the client proposes: a run makes two calls to each" {
    quorum 3
    remembers 1
    local run
    for run in 1 2 3; do
        rises_on_majority
        for i in 1 2 3; do wait_until 10 is_free_on $i; done
        wait_until 10 asked_twice
    done
}

@test "the fence keeps rising and follows the servers' clocks, whatever the clients' clocks show" {
    quorum 3
    WALL=(env "LD_PRELOAD=$HELPERS/fault_wall_clock.so")
    local ahead
    for ahead in 0 1 0 -1 3600 -3600 0; do
        set_wall $ahead
        rises_on_majority
        off_by 0 "$LAST"
    done
    # All servers are emptied after a client whose clock was ahead.
    set_wall 1
    rises_on_majority
    set_wall 0
    for i in 1 2 3; do on $i flushall >/dev/null; done
    rises_on_majority
    for i in 1 2 3; do on $i flushall >/dev/null; done
    rises_on_majority
}

@test "the fence rises above one that no server expects, one that only one server knows, and those of clients that propose none" {
    quorum 3
    rises_on_majority
    remembers $((LAST + 3600000000)) # a proposal is below it
    LAST=$((LAST + 3600000000))
    rises_on_majority
    rises_on_majority
    # Clients that propose no fence, on one server each, at three different times.
    for i in 1 2 3; do dlock -r "$(url $i)" job true; done
    rises_on_majority
    # One server has missed the last fence, and another is emptied.
    stop_redis 3
    rises
    serve 3
    wait_until 20 redis_answers 3
    rises_on_majority
    stop_redis 3
    on 1 flushall >/dev/null
    rises
    on 1 flushall >/dev/null
    rises
}

@test "a server that joins late gets the lease's fence, not one of its own" {
    quorum 2 1
    local i
    for i in 1 2; do on $i hset '{dlock:job}:meta' fence 1 >/dev/null; done
    hold_lock job --ttl=10
    serve 3
    wait_until 20 is_held_on 3
    equals "$(fence_on 3)" "$(fence_on 1)"
    equals "$(fence_on 3)" "$(fence_on 2)"
    end_hold
    wait "$HOLDER"
}

@test "a lock on a minority is no lock: --status says so, it blocks nobody, and --force-release removes it" {
    quorum 3
    on 2 set dlock:job another px 100000
    fails_with 1 'another client holds the lock on 1 of 3 servers, which is not a majority' dlock --status job
    dlock job true
    equals "$(on 2 get dlock:job)" another
    [ -z "$(dlock --list)" ]
    dlock --force-release job
    is_free_on 2
    on 2 set dlock:job another px 100000
    on 3 set dlock:job another px 90000
    fails_with 0 'held.*another client|another client' dlock --status job
    fails_with 75 'held by another client, lease ends in 1m2' dlock -nv job touch "$T/ran"
    is_free_on 1
    [ ! -e "$T/ran" ]
}

@test "a lock that other clients split between them is not free: --status, --list and --wait-until-free say so, as an acquire does" {
    quorum 3
    on 1 set dlock:job first px 100000
    on 2 set dlock:job second px 100000
    fails_with 75 '' dlock -n job touch "$T/ran"
    run dlock --status job
    [[ $status = 0 && $output == *'job: held'*'another client'*'other clients hold the lock on 2 of 3 servers, but none has a majority'* ]]
    fails_with 0 '^job ' dlock --list
    fails_with 75 'held by another client' dlock -v --wait-until-free -n job
    dlock --force-release job
    fails_with 1 'job: free' dlock --status job
    [ ! -e "$T/ran" ]
}

@test "a --resume that does not reach a server is retried, then exit 69 naming it, because the lock may still be paused there" {
    quorum 3
    dlock --pause=600s --message=why job
    freeze 3
    fails_with 69 "the end of the pause did not reach 1 of 3 servers; there, the pause may continue: .*$T/3.sock.*; repeat --resume" \
        dlock --resume --retry-for=0 job
    fails_with 0 'ran' dlock -n job echo ran
    fails_with 69 "$T/3.sock" dlock --resume --retry-for=0 job # nor is it known whether the lock is paused
    dlock --resume job 2>"$T/err" 3>&- 4>&- &
    local resume=$!
    sleep 1.2 # the first try has ended
    kill -CONT "$(cat "$T/3.pid")"
    ends_with 0 "$resume"
    [ ! -s "$T/err" ]
    equals "$(on 3 hexists '{dlock:job}:meta' pause_ends)" 0
    fails_with 1 'the lock is not paused' dlock --resume job
}

@test "three waits of 0.2s while one server hangs and others split the rest: each ends on time" {
    quorum 3
    on 1 set dlock:job another >/dev/null
    freeze 3
    local start=$(now)
    for _ in 1 2 3; do fails_with 75 'held by another client' dlock -v -w 0.2s job touch "$T/ran"; done
    within 600 "$start"
    [ ! -e "$T/ran" ]
}

@test "--extend gives a lock of --acquire to a server that came back without it, for the rest of the lease" {
    quorum 3
    stop_redis 3
    dlock --acquire --owner=me --message=why -t 60s job
    serve 3
    wait_until 20 redis_answers 3
    dlock --extend --owner=me job
    is_held_on 3
    equals "$(on 3 get dlock:job)" me
    [ "$(on 3 pttl dlock:job)" -le "$(($(on 1 pttl dlock:job) + 100))" ]
    [ "$(fence_on 3)" -ge "$(fence_on 1)" ]
    stop_redis 1 # now the others are a majority
    dlock --extend --owner=me --ttl=30s job
    [[ $(dlock --status job) == *why* ]]
    dlock --release --owner=me job
    for i in 2 3; do is_free_on $i; done
}

@test "--extend leaves a server held by another client alone, and gives it a shared lock once it is free" {
    quorum 3
    stop_redis 3
    dlock --acquire --owner=me -t 60s job
    serve 3
    wait_until 20 redis_answers 3
    on 3 set dlock:job another px 50000 >/dev/null
    dlock --extend --owner=me job
    equals "$(on 3 get dlock:job)" another
    dlock --release --owner=me job
    dlock --acquire --shared --owner=me -t 60s job
    is_free_on 3 || equals "$(on 3 get dlock:job)" another
    on 3 del dlock:job >/dev/null
    dlock --extend --owner=me job
    fails_with 0 'of 3 servers' dlock --shared -nv job true
    fails_with 75 '' dlock -n job touch "$T/ran"
    [ "$(on 3 zcard '{dlock:job}:holders')" = 1 ]
    dlock --release --owner=me job
    dlock -n job true
}

@test "a loss by --force-release is reported with its author" {
    quorum 3
    hold_lock job -t 60s --owner=me
    LOGNAME=eve dlock --force-release job
    ends_with 124 "$HOLDER"
    grep -q "the lock is lost: .*taken away by eve@$(hostname)" "$T/held.err"
    fails_with 1 "taken away by eve@$(hostname)" dlock --extend --owner=me job
    fails_with 1 "taken away by eve@$(hostname)" dlock --release --owner=me job
}

@test "the replies to --force-release are lost on a majority: a newer holder there keeps the lock, the first is reported" {
    quorum 3
    fails_with 1 'the lock is free' dlock --force-release other
    dlock --acquire --owner=first job >/dev/null
    local i
    for i in 2 3; do
        fake_redis lose=1 "$T/$i.sock" SET dlock:job next NX
        mv "$T/fake.sock" "$T/fake$i.sock"
    done
    DLOCK_REDIS="$(url 1) $(url fake2) $(url fake3)"
    fails_with 0 '"was":\[\{"owner":"first"' dlock --force-release --json job
    [[ $output != *next* ]]
    equals "$(on 1 exists dlock:job) $(on 2 get dlock:job) $(on 3 get dlock:job)" '0 next next'
}

@test "a lease that another process changed is reported as last set, and its grace is a tenth of that" {
    quorum 3
    fails_with 124 'the lease, last set to (3|2\.[0-9])s, ends in [0-9]+ms; stopping the command with SIGTERM$' \
        dlock -t 1h job -- sh -c 'dlock --extend --ttl=3 && exec sleep 60'
}

@test "acquire, extend, list and release by token work with one server down" {
    quorum 2 1
    local token
    token=$(dlock --acquire --ttl=10 job)
    fails_with 0 'job' dlock --list
    dlock --extend --owner="$token" --ttl=100 job
    [ "$(on 1 pttl dlock:job)" -gt 90000 ]
    [ "$(on 2 pttl dlock:job)" -gt 90000 ]
    dlock --extend --owner="$token" --ttl=20 job
    [ "$(on 2 pttl dlock:job)" -le 20000 ]
    fails_with 2 'held under another owner token' dlock --release --owner=wrong job
    stop_redis 2
    fails_with 69 'cannot be reached' dlock --extend --owner="$token" --retry-for=0 job
    serve 2
    wait_until 20 redis_answers 2
    # One server holds the lock, one does not, one is down: nobody knows.
    fails_with 69 '1 of 3 servers cannot be reached' dlock --extend --owner="$token" --retry-for=0 job
    serve 3
    wait_until 20 redis_answers 3
    fails_with 1 '2 of 3 servers did not grant the lock: .*2.sock.* is gone; .*3.sock.* is gone' dlock --extend --owner="$token" job
    fails_with 1 '2 of 3 servers did not grant the lock' dlock --extend --owner="$token" --ttl=2h job
    # What a minority still holds ends when it would have ended anyway.
    [ "$(on 1 pttl dlock:job)" -le 100000 ]
}

@test "a reason that is too long for a message about several servers is cut visibly" {
    quorum 3
    local server
    for server in 1 2 3; do on "$server" config set requirepass x; done
    fails_with 77 'the server requires a password.*\.\.\.; unix:' dlock -n job touch "$T/ran"
}

@test "one server holds the lock, one does not, one is down: the lock is never reported as free" {
    quorum 3
    dlock --acquire job >/dev/null
    on 2 del dlock:job
    fails_with 0 '' dlock -q --status job
    stop_redis 3
    fails_with 69 ' holds the lock on 1 of 3 servers, and perhaps on a majority' dlock --status --retry-for=0 job
    fails_with 69 'perhaps on a majority' dlock --wait-until-free --retry-for=0 job
    [[ $(dlock --list) == *job* ]]
}

@test "--list with a hanging server does not wait for it once per lock" {
    quorum 3
    for i in {1..15}; do on 1 set "dlock:job$i" x px 90000; on 2 set "dlock:job$i" x px 90000; done >/dev/null
    freeze 3
    local start=$(now)
    equals "$(dlock --list 2>/dev/null | grep -c ^job)" 15
    within 0 "$start"
}

@test "a lock is released by another process while one server hangs: the command runs on and is not stopped" {
    quorum 3
    hold_lock job --ttl=2s --grace=300ms --owner=mine
    sleep 0.2
    freeze 3
    dlock --release --owner=mine job
    sleep 2 # beyond the end of the lease
    end_hold
    ends_with 0 "$HOLDER"
    equals "$(grep -v "the run used" "$T/held.err")" "" # because of the length of its TTL
}

# released_on NUMBER OTHER...: releases the lock on that server alone; the holder has seen it once it has asked the others.
released_on() {
    local i before=()
    for i in "${@:2}"; do before[i]=$(asked "$i"); done
    dlock -r "$(url "$1")" --release --owner=mine job
    for i in "${@:2}"; do wait_until 10 asked_more "$i" "${before[i]}"; done
}

@test "a release reaches only one server, and the lock is later lost on another: the command is stopped, exit 124" {
    quorum 3
    hold_lock job -v --ttl=20 --owner=mine
    for i in 1 2 3; do wait_until 10 is_held_on $i; done
    released_on 1 2 3
    kill -0 "$HOLDER"
    on 2 flushall
    wait_until 10 gone "$(cat "$T/held")"
    ends_with 124 "$HOLDER"
    grep -q '2 of 3 servers did not grant the lock' "$T/held.err"
    not grep -q 'keeps running' "$T/held.err"
}

@test "a release reaches one server after the other: the command runs on and is not stopped" {
    quorum 5
    hold_lock job -v --ttl=20 --owner=mine
    for i in 1 2 3 4 5; do wait_until 10 is_held_on $i; done
    released_on 1 2 3 4 5
    released_on 2 3 4 5
    kill -0 "$HOLDER"
    not grep -q 'keeps running' "$T/held.err"
    dlock -r "$(url 3)" --release --owner=mine job
    wait_until 10 grep -q 'the lock was released with its owner token' "$T/held.err"
    end_hold
    ends_with 0 "$HOLDER"
}

@test "one of a bare majority hangs beyond the lease's end: no lost lock, and the run is remembered" {
    quorum 2 1
    dlock -t 2s job -- sh -c 'touch "$T/ready"; until [ -e "$T/go" ]; do sleep 0.01; done' 2>"$T/err" 3>&- 4>&- &
    wait_until 10 test -e "$T/ready"
    freeze 2
    touch "$T/go"
    wait_until 10 is_free_on 1
    # The lease has ended 2 s after its command started; dlock tries for another second.
    until [ "$(now)" -gt "$(($(date -r "$T/ready" +%s%3N) + 2050))" ]; do sleep 0.01; done
    kill -CONT "$(cat "$T/2.pid")"
    wait $!
    equals "$(cat "$T/err")" ''
    dlock --ran-within=1m job
    wait_until 10 is_free_on 2
}

@test "a release that does not reach one server is reported only with -v, and the next process acquires the lock" {
    quorum 3
    local left='the release did not reach 1 of 3 servers; there, the lock is held until its lease ends: unix://.*/3.sock'
    hold_lock job -v --owner=mine
    for i in 1 2 3; do wait_until 10 is_held_on $i; done
    freeze 3
    end_hold
    ends_with 0 "$HOLDER"
    grep -qE "$left" "$T/held.err"
    dlock -n --acquire --owner=yours job
    fails_with 0 "$left" dlock -v --release --owner=yours job
    fails_with 0 '^$' dlock -n job true
}

@test "an extension that reaches no majority does not move the deadline" {
    quorum 3
    local start=$(now)
    hold_lock job --ttl=2 --grace=300ms
    redis-cli -s "$T/1.sock" pexpire dlock:job 100000
    ends_with 124 "$HOLDER"
    within 2000 "$start"
    wait_until 2 is_free_on 1
}

@test "a server that refuses the login causes a warning; a majority that does: exit 77" {
    quorum 3
    on 2 config set requirepass secret
    # Each run whose slowest server is not far behind prints the warning.
    wait_until 10 fails_with 0 "unix://.*/2.sock\?db=0: .*NOAUTH" dlock job true
    wait_until 10 fails_with 0 "unix://.*/2.sock\?db=0: .*NOAUTH" dlock --pause=60s --message=why other
    on 3 config set requirepass secret
    fails_with 77 '[23] of 3 servers cannot be reached.*NOAUTH' dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
    is_free_on 1
}

@test "--shared: many processes share the lock, and an exclusive request waits for all of them" {
    quorum 3
    hold_lock job --shared
    fails_with 0 'acquired .*of 3 servers' dlock -s -v job true
    fails_with 75 'share' dlock -nv job touch "$T/ran"
    dlock job sh -c 'touch $T/alone' 3>&- 4>&- &
    local waiter=$!
    end_hold
    wait "$HOLDER"
    wait "$waiter"
    [ -e "$T/alone" ]
    [ ! -e "$T/ran" ]
}

@test "Ctrl-C during a wait leaves nothing on any server" {
    quorum 3
    hold_lock job
    dlock -v job touch "$T/ran" 2>"$T/waiter.err" 3>&- 4>&- &
    local waiter=$!
    wait_until 10 grep -q 'a quorum has no queue' "$T/waiter.err"
    kill -TERM "$waiter"
    ends_with 143 "$waiter"
    end_hold
    wait "$HOLDER"
    for i in 1 2 3; do is_free_on $i; done
    [ ! -e "$T/ran" ]
}

@test "--doctor checks each server, and whether enough are reliable; one that is down is a warning" {
    quorum 3
    run dlock --doctor
    equals "$status" 0
    [[ $output == *'3 of 3 servers can be trusted; 2 are needed'* ]]
    for i in 1 2 3; do [ -z "$(on "$i" keys '*')" ]; done
    on 3 config set maxmemory 1gb >/dev/null
    on 3 config set maxmemory-policy allkeys-lru >/dev/null
    run dlock --doctor -q
    equals "$status" 0
    [[ $output == *"$(url 3)"*'warn  eviction'*'2 of 3 servers can be trusted'* ]]
    on 2 config set maxmemory 1gb >/dev/null
    on 2 config set maxmemory-policy allkeys-lru >/dev/null
    run dlock --doctor -q
    equals "$status" 1
    [[ $output == *'fail  eviction'*'1 of 3 servers can be trusted; 2 are needed'* ]]
    on 2 config set maxmemory-policy noeviction >/dev/null
    kill "$(cat "$T/3.pid")"
    wait_until 10 not on 3 ping
    run dlock --doctor -q
    equals "$status" 0
    [[ $output == *"$(url 3)"*'warn  connect'*'2 of 3 servers can be trusted'* ]]
    kill "$(cat "$T/2.pid")"
    wait_until 10 not on 2 ping
    run dlock --doctor -q
    equals "$status" 69
    [[ $output == *'1 of 3 servers can be trusted; 2 are needed'* ]]
}

# status EXPRESSION: evaluates it for the JSON object `s` of --status.
status() { (dlock --status --json job || true) | python3 -c 'import json, sys; s = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }

succeeds_on() { dlock job true && wait_until 10 is_free_on "$1" && [ "$(on "$1" hexists '{dlock:job}:meta' success)" = 1 ]; }

# fails_after_success: a success and then a failure, both of which all servers have recorded; a server that is slower misses one.
fails_after_success() {
    dlock job true
    fails_with 1 '' dlock job false
    local i
    for i in 1 2 3; do wait_until 10 is_free_on $i; done
    [ "$(for i in 1 2 3; do on $i hmget '{dlock:job}:meta' success run | paste -sd'|'; done | sort -u | wc -l)" = 1 ]
}

# runs_on_all: a run that all servers have recorded; a server that is slower misses one.
runs_on_all() {
    local i
    dlock job true || return
    for i in 1 2 3; do wait_until 10 is_free_on $i; done
    [ "$(for i in 1 2 3; do on $i hget '{dlock:job}:meta' run; done | sort -u | wc -l)" = 1 ]
}

@test "the history of a quorum is the longest among the servers that know the newest run" {
    local i lost
    quorum 3
    for i in 1 2 3; do wait_until 10 runs_on_all; done
    for lost in 1 2 3; do
        on $lost flushall
        wait_until 10 runs_on_all
        [ "$(dlock --history --json job | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["runs"]))')" -ge 3 ]
    done
}

@test "a quorum knows the newest run, even if a server has missed it" {
    quorum 3
    wait_until 10 succeeds_on 2 # it may be the slower server, and then knows nothing
    stop_redis 3
    fails_with 1 '' dlock job false
    wait_until 10 is_free_on 2
    serve 3
    wait_until 20 redis_answers 3
    stop_redis 1
    equals "$(status '(s["last_run"]["status"], s["last_success"]["status"], s["failures_in_a_row"])')" '(1, 0, 1)'
    equals "$(dlock --history --json job | python3 -c 'import json, sys; print(json.load(sys.stdin)["runs"][0]["status"])')" 1
    dlock --ran-within=1h job
    dlock job true
    equals "$(status '(s["last_run"]["status"], s["failures_in_a_row"], s["waiters"], s["queue"])')" '(0, 0, None, None)'
    equals "$(dlock --list --all --json | wc -l)" 1
    stop_redis 2
    fails_with 69 'of 3 servers cannot be reached' dlock --retry-for=0 --ran-within=1h job
}

@test "a quorum knows its last success, even if a server has missed it but knows the run after it" {
    quorum 3
    wait_until 10 succeeds_on 3
    local old=$(on 3 hget '{dlock:job}:meta' success)
    wait_until 20 fails_after_success
    on 3 hset '{dlock:job}:meta' success "$old" runs 5 >/dev/null
    [ "$(status 's["last_success"]["pid"]')" != "$(cut -f 4 <<<"$old")" ]
    equals "$(status '(s["last_run"]["status"], s["failures_in_a_row"])')" '(1, 1)'
}

@test "of several sharers of a quorum, the one that began last is the last success, even if a server has missed its run" {
    quorum 3
    hold_lock job -s
    stop_redis 3
    dlock -s job -- sh -c 'echo $PPID >"$T/late"'
    serve 3
    wait_until 20 is_held_on 3
    end_hold
    wait "$HOLDER"
    wait_until 10 is_free_on 3
    equals "$(on 3 hget '{dlock:job}:meta' success | cut -f 4)" "$HOLDER"
    equals "$(status '(s["last_success"]["pid"], s["last_run"]["pid"])')" "($(cat "$T/late"), $HOLDER)"
}

@test "in a quorum, the last success counts as the last run even if a slow clock dates it earlier" {
    quorum 3
    fails_with 5 '' dlock job sh -c 'exit 5'
    wait_until 10 is_free_on 3
    stop_redis 3
    dlock job true
    fails_with 7 '' ahead -3600 "$DLOCK" job -- env -u LD_PRELOAD sh -c 'exit 7'
    serve 3
    wait_until 20 redis_answers 3
    equals "$(status '(s["last_run"]["status"], s["last_success"]["status"])')" '(0, 0)'
}

@test "--once-per in a quorum counts a success that one server has missed" {
    quorum 3
    stop_redis 3
    dlock --once-per=1h job true
    serve 3
    wait_until 20 redis_answers 3
    stop_redis 1
    fails_with 75 'the last success started .* ago on .* \(--once-per=1h\)' dlock -v -n --once-per=1h job true
    wait_until 10 is_free_on 3
    equals "$(status '(s["last_run"]["status"], s["skipped_since"])')" '(0, 1)'
}

began_on() { on "$1" hget '{dlock:job}:meta' success | cut -f 1; }
since_on() { on "$1" hget '{dlock:job}:meta' record | sed -nE 's/^since ([0-9]+)$/\1/p'; }

@test "servers that join a quorum late know when the run began, so --once-per runs it when it is due" {
    quorum 3
    hold_lock job
    sleep 1.5
    for i in 2 3; do
        on $i flushall
        wait_until 20 is_held_on $i
        [ "$(since_on $i)" -lt $(($(since_on 1) + 1000)) ]
    done
    end_hold
    wait "$HOLDER"
    for i in 2 3; do equals "$(began_on $i)" "$(began_on 1)"; done
    run dlock -n --once-per=3s job true # each has joined after a second or more
    equals "$status" 0
}

@test "a quorum that hangs: --hold-at-least and --once-per count from the moment when the lock was granted" {
    quorum 3
    freeze 1
    freeze 2
    dlock --hold-at-least=2s job true 3>&- 4>&- &
    local dlock=$! taken
    sleep 2.2
    taken=$(date +%s)
    kill -CONT "$(cat "$T/1.pid")" "$(cat "$T/2.pid")"
    wait "$dlock"
    fails_with 75 'but kept for another' dlock -n -v job touch "$T/ran"
    [ "$(date +%s -d "$(status 's["last_success"]["began_at"]')")" -ge "$taken" ]
}

@test "a killed run in a quorum is recorded as lost; a lock that only a minority granted is no run" {
    quorum 3
    hold_lock job -t 1s
    kill -KILL "$HOLDER" "$(cat "$T/held")"
    wait_until 20 not dlock --status -q job
    equals "$(status '(s["last_run"]["outcome"], s["failures_in_a_row"])')" "('lost', 1)"
    dlock job true
    on 2 hset '{dlock:job}:meta' unended 1 record '{"take": "x", "since": "99999999999999", "pid": "1"}'
    equals "$(status '(s["last_run"]["outcome"], s["failures_in_a_row"])')" "('exited', 0)"
}

@test "a killed sharer is the last run if its lease ends after the success of a later sharer" {
    quorum 3
    hold_lock job --shared -t 3s
    kill -KILL "$HOLDER" "$(cat "$T/held")"
    dlock --shared job true
    wait_until 20 not dlock --status -q job
    equals "$(status '(s["last_run"]["outcome"], s["failures_in_a_row"])')" "('lost', 1)"
    DLOCK_REDIS=$(url 1) # one server says the same
    equals "$(status '(s["last_run"]["outcome"], s["failures_in_a_row"])')" "('lost', 1)"
}

@test "--pause: a quorum with one server down is paused by a majority, and resumed" {
    quorum 2 1
    dlock --pause=60s --message=maintenance job
    fails_with 75 'paused by .*; message: maintenance' dlock -n job true
    [[ $(dlock --status job) == *': maintenance'* ]]
    serve 3
    wait_until 20 redis_answers 3
    fails_with 75 'paused by .*; message: maintenance' dlock -n job true
    dlock --resume job
    run dlock -n job echo ran
    equals "$status $output" '0 ran'
    fails_with 1 'the lock is not paused' dlock --resume job
    on 1 hset '{dlock:job}:meta' pause_ends 99999999999999 paused_by x pause_why x
    run dlock -w 20 job echo ran # a minority keeps nobody out
    equals "$status $output" '0 ran'
    stop_redis 2
    stop_redis 3
    fails_with 69 '2 of 3 servers cannot be reached' dlock --retry-for=0 --pause=60s --message=why other
    equals "$(on 1 hexists '{dlock:other}:meta' pause_ends)" 1 # a minority, as above
}

@test "a server with a newer format counts as refusing and is left alone: a majority of the others is enough" {
    local i newer='format 3 by a newer dlock, but dlock [0-9.]+ supports formats up to 2 only; upgrade dlock on this host'
    quorum 3
    dlock job true
    DLOCK_REDIS=$(url 1) "$HELPERS/next/dlock" job true
    run dlock job echo ran # the refusal is reported if it arrives before the majority's answers
    equals "$status" 0
    grep -qx ran <<<"$output"
    fails_with 1 'free' dlock --status job
    equals "$(on 1 hget '{dlock:job}:meta' format)" 3
    for i in 2 3; do equals "$(on $i hget '{dlock:job}:meta' format)" 2; done
    "$HELPERS/next/dlock" --acquire --owner=me -t 60s job
    fails_with 78 "3 of 3 servers .*$newer" dlock job touch "$T/ran"
    fails_with 78 "$newer" dlock --status job
    fails_with 78 "$newer" dlock --release --owner=me job
    fails_with 78 "$newer" dlock --force-release job
    dlock --acquire -t 60s later
    fails_with 0 'format 3, written by a newer dlock' dlock --list
    grep -q '^later .* exclusive ' <<<"$output"
    equals "$("$HELPERS/next/dlock" --status --json job | grep -o '"locked":[a-z]*')" '"locked":true'
    [ ! -e "$T/ran" ]
    "$HELPERS/next/dlock" --release --owner=me job
}

# asked_first NUMBER: the waiter has asked the first server at least NUMBER times.
asked_first() { [ "$(on 1 info commandstats | sed -n 's/^cmdstat_evalsha:calls=\([0-9]*\),.*/\1/p')" -ge "$1" ]; }
# open_in PID: counts its descriptors and threads.
open_in() { ls "/proc/$1/fd" "/proc/$1/task" | wc -l; }

@test "a waiter that keeps polling uses no more descriptors and threads than at first" {
    quorum 3
    hold_lock job
    dlock -w 60 job true 2>/dev/null 3>&- 4>&- &
    local waiter=$! first
    on 1 config resetstat >/dev/null
    wait_until 20 asked_first 2
    first=$(for _ in 1 2 3 4 5 6 7 8 9; do open_in "$waiter"; sleep 0.05; done | sort -n | head -n 1)
    wait_until 30 asked_first 6
    wait_until 10 eval "[ \"\$(open_in $waiter)\" -le $first ]"
    kill "$waiter"
}
