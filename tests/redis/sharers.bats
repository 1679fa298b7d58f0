#!/usr/bin/env bats
# Sharers of a lock, with --shared or --slots, in Redis: what one of them costs the
# server and the others, and what becomes of leases that end or keys that others remove.
load ../lib/common
setup() {
    common_setup
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock
}
teardown() {
    [ ! -e "$T/pids" ] || xargs kill -CONT <"$T/pids" 2>/dev/null || true
    [ ! -e "$T/pids" ] || xargs kill <"$T/pids" 2>/dev/null || true
    common_teardown
}

armed_holders() { [ "$(redis client list | grep -cE 'name=dlock .* sub=1 ')" = "$1" ]; }
# ended NUMBER: NUMBER of the leases in the set have ended.
ended() { [ "$(redis zcount '{dlock:job}:holders' "$(now)" +inf)" = "$(($(holders) - $1))" ]; }
holders() { redis zcard '{dlock:job}:holders'; }

# share NUMBER OPTION...: NUMBER processes hold the lock, and are notified of changes.
share() {
    local i
    for ((i = 0; i < $1; i++)); do
        dlock "${@:2}" -t 1h job -- sleep 100 >/dev/null 2>&1 3>&- 4>&- &
        echo $! >>"$T/pids"
    done
    wait_until 30 armed_holders "$(wc -l <"$T/pids")"
}

# fill NUMBER OPTION...: NUMBER more leases hold the lock, without a process each.
fill() { seq "$1" | xargs -P 4 -I% "$DLOCK" --acquire "${@:2}" job >/dev/null; }

# Prints the commands that the server carries out for this one.
cost() {
    redis config resetstat >/dev/null
    "$@" >/dev/null
    redis info commandstats | grep -vE '^cmdstat_(info|config)' | sed -nE 's/^cmdstat_[^:]*:calls=([0-9]+),.*/\1/p' |
        awk '{ calls += $1 } END { print calls }'
}

join_and_leave() {
    dlock --acquire "$1" -t 1h --owner=one job
    dlock --release --owner=one job
}

watched_keys() { redis info stats | tr -d '\r' | sed -n 's/^tracking_total_items://p'; }

@test "joining and leaving a shared lock costs the server the same with 10 holders as with 150, and wakes none of them" {
    local mode few watched
    for mode in -s --slots=1000; do
        redis flushall
        share 10 "$mode"
        xargs kill -STOP <"$T/pids"
        watched=$(watched_keys)
        join_and_leave "$mode" # the scripts are known from here on
        few=$(cost join_and_leave "$mode")
        fill 140 "$mode" -t 1h
        equals "$(holders)" 150
        equals "$(cost join_and_leave "$mode")" "$few"
        equals "$(watched_keys)" "$watched"
        echo "$mode: $few commands" >&2
        [ "$few" -le 45 ]
        xargs kill -KILL <"$T/pids"
        rm "$T/pids"
        wait_until 10 armed_holders 0
    done
}

@test "an acquire and a refusal use no more server commands than they need" {
    local take refusal
    dlock job true # the scripts are known, and the lock has a history
    take=$(cost dlock job true)
    share 1
    xargs kill -STOP <"$T/pids" # it sends nothing more
    not dlock -n job true
    refusal=$(cost not dlock -n job true)
    xargs kill -KILL <"$T/pids"
    echo "take and release $take, refusal $refusal" >&2
    [ "$take" -le 16 ] && [ "$refusal" -le 12 ] # and one for the greeting
}

@test "a refusal costs the server the same with 10 holders as with 150" {
    local few
    refuse() { not dlock -n "$@" job true; }
    fill 10 -s -t 1h
    refuse --slots=9
    few=$(cost refuse --slots=9)$(cost refuse -x)
    fill 140 -s -t 1h
    refuse --slots=9 # the first one in a while may also tidy up
    equals "$(cost refuse --slots=9)$(cost refuse -x)" "$few"
    redis flushall
    fill 10 --slots=10 -t 1h
    few=$(cost refuse --slots=10)
    redis flushall
    fill 150 --slots=150 -t 1h
    equals "$(cost refuse --slots=150)" "$few"
}

@test "a shared lock or a holder's own key that another client removes is lost at once" {
    local mode key pid status start
    for mode in -s --slots=3; do
        for key in dlock:job '{dlock:job}:holder:me'; do
            redis flushall
            share 1 "$mode" --owner=me
            pid=$(cat "$T/pids")
            start=$(now)
            redis del "$key"
            status=0
            wait "$pid" || status=$?
            within 2000 "$start" # its next check would be ten seconds later
            equals "$mode $key $status" "$mode $key 124"
            rm "$T/pids"
        done
    done
}

@test "a sharer's lease from before the lock was removed is lost, even if others share the lock again" {
    local status=0
    share 1 --slots=2
    xargs kill -STOP <"$T/pids"
    redis del dlock:job
    run dlock -n --slots=2 job -- sh -c 'echo $DLOCK_SLOT'
    equals "$output" 0
    dlock --acquire --slots=2 --owner=other job
    xargs kill -CONT <"$T/pids"
    wait "$(cat "$T/pids")" || status=$?
    equals "$status" 124
    rm "$T/pids"
    equals "$(holders)" 1
}

@test "leases that have ended are removed a few at a time, and block nobody" {
    fill 120 --slots=121 -t 1h
    dlock --acquire --slots=121 -t 2h job
    # As if their leases had ended: by the clock, a slow machine would drop some meanwhile.
    redis eval "for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, 119)) do
        local key = KEYS[2] .. string.match(member, ' (.*)')
        redis.call('ZADD', KEYS[1], 1, member)
        redis.call('SET', key, (string.gsub(redis.call('GET', key), 'ends %d+', 'ends 1')))
    end" 2 '{dlock:job}:holders' '{dlock:job}:holder:'
    dlock --acquire --slots=121 -t 1h job
    equals "$(holders)" 102
    local i
    for i in 1 2 3 4 5; do dlock --acquire --slots=121 -t 1h job; done
    equals "$(holders) $(redis bitcount '{dlock:job}:slots') $(redis keys '{dlock:job}:holder:*' | wc -l)" '7 7 7'
    run dlock -n --slots=121 job -- sh -c 'echo $DLOCK_SLOT'
    [ "$output" -lt 121 ]
}

@test "the lock is free when all leases have ended, even while its key still exists" {
    local mode
    for mode in -s --slots=2; do
        dlock --acquire "$mode" -t 1s job
        [ "$(redis pttl dlock:job)" -le 1500 ]
        redis pexpire dlock:job 600000
        run dlock -w 30 job echo alone
        equals "$output" alone
        dlock --acquire "$mode" -t 1s job
        redis pexpire dlock:job 600000
        wait_until 10 ended 1
        fails_with 1 'the key dlock:job is gone' dlock --extend --owner=nobody job
        run dlock -n "$mode" job echo beside
        equals "$output" beside
    done
}

@test "the key of a shared lock that would far outlast all leases is shortened" {
    dlock --acquire -s -t 10s job
    dlock --acquire -s -t 1h --owner=long job
    [ "$(redis pttl dlock:job)" -gt 3600000 ]
    dlock --release --owner=long job
    [ "$(redis pttl dlock:job)" -le 15000 ]
}

@test "--force-release of a key that has outlived the last lease: exit 1, and the recorded release time is unchanged" {
    local mode
    for mode in --shared --slots=2; do
        dlock --acquire "$mode" -t 60s --hold-at-least=3s --owner=me "job$mode" >/dev/null
        dlock --release --owner=me "job$mode"
        equals "$(redis pexpire "dlock:job$mode" 60000)" 1 # without the change it would last half a lease longer
    done
    for mode in --shared --slots=2; do
        wait_until 10 dlock -q --wait-until-free -n "job$mode"
        fails_with 1 'the lock is free' dlock --force-release "job$mode"
        equals "$(redis exists "dlock:job$mode") $(redis hget "{dlock:job$mode}:meta" removed)" '0 '
    done
}

@test "the server forgets the keys that a holder watched once the lock is released" {
    local mode
    for mode in --wait=0 --shared --slots=2; do
        : >"$T/pids"
        share 1 "$mode"
        [ "$(watched_keys)" -gt 0 ]
        kill "$(cat "$T/pids")"
        wait_until 10 eval '[ "$(redis client list | grep -c name=dlock)" = 0 ]'
        equals "$mode $(watched_keys)" "$mode 0"
    done
    : >"$T/pids"
}

@test "a value that another client left in place of the holders of a free lock is removed" {
    local mode
    for mode in --shared --slots=2; do
        redis flushdb >/dev/null
        redis set '{dlock:job}:holders' 'of another kind' >/dev/null
        dlock -n "$mode" job true
        equals "$(redis exists '{dlock:job}:holders' dlock:job)" 0
    done
}

@test "a killed holder's run is kept for a day, not for as long as runs are remembered" {
    local mode key left
    for mode in --shared --slots=2; do
        hold_lock job "$mode" -t 300ms
        kill -KILL "$HOLDER" "$(cat "$T/held")"
        wait "$HOLDER" || true
        wait_until 10 eval '[ "$(redis exists dlock:job)" = 0 ]'
        [[ $(dlock --status job) == *'its end was never recorded'* ]]
        for key in $(redis keys '{dlock:job}:*'); do
            left=$(redis pttl "$key")
            case $key in
                *:meta) [ "$left" -gt 2592000000 ] ;;
                *) [ "$left" -gt 86000000 ] && [ "$left" -lt 87000000 ] ;;
            esac
        done
        redis flushall
    done
}
