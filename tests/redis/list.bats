#!/usr/bin/env bats
# Reading the state of locks in a Redis that holds much else.
load ../lib/common

setup() {
    common_setup
    start_redis redis --enable-debug-command yes
    export DLOCK_REDIS=unix://$T/redis.sock
}

redis_has() { [ "$(redis exists "$1")" = 1 ]; }

@test "--list among a million keys works in steps that block nobody" {
    redis debug populate 1000000 other 10
    dlock --acquire -t 60s one >/dev/null
    dlock --acquire -t 60s two >/dev/null
    equals "$(timeout 60 dlock --list | awk 'NR > 1 { print $1 }')" $'one\ntwo'
    [ "$(redis info commandstats | sed -n 's/^cmdstat_scan:calls=\([0-9]*\),.*/\1/p')" -ge 500 ]
    equals "$(redis info commandstats | grep -c '^cmdstat_keys')" 0
}

@test "--list goes on for as long as the server answers each step, even if that takes longer than --retry-for in total" {
    redis debug populate 8000 other 10
    dlock --acquire -t 60s one >/dev/null
    fake_redis delay=300 "$T/redis.sock"
    local start=$(now)
    equals "$(dlock -r "unix://$T/fake.sock" --retry-for=2s --list | awk 'NR > 1 { print $1 }')" one
    [ $(($(now) - start)) -ge 2000 ]
}

@test "--list ends even if the server's SCAN never does" {
    redis debug populate 5000 other 10
    fake_redis 'instead=SCAN=*2\r\n$2\r\n17\r\n*0\r\n' "$T/redis.sock"
    fails_with 69 'SCAN does not end; tried once' timeout 20 dlock -r "unix://$T/fake.sock" --retry-for=0 --list
}

@test "--list tells locks, even with a hash tag in the name, from dlock's other keys and from other clients' locks" {
    dlock --acquire --prefix= -t 60s 'dlock:{tag}x' >/dev/null
    dlock --acquire -s -t 60s shared >/dev/null
    redis set dlock:plain token px 60000
    redis set dlock:for-ever token
    redis hset dlock:hash field value
    redis hset 'dlock:a:meta' field value
    dlock -w 20s shared true 3>&- 4>&- &
    echo $! >"$T/waiter.pid"
    wait_until 10 redis_has '{dlock:shared}:waiters'
    run dlock --list --prefix=
    [[ $output != *:waiters* && $output != *:queue* ]]
    run dlock --list
    equals "$(awk 'NR > 1 { print $1, $2 == "-" }' <<<"$output")" 'a:meta 1
for-ever 1
hash 1
plain 0
shared 0
{tag}x 0'
    [[ $output == *'another client'* ]]
    run dlock --status -v plain
    [[ $status = 0 && $output == *'by another client, lease ends in '*'owner token'* ]]
    run dlock --status -v hash
    [[ $status = 0 && $output == *'by another client, with no time limit'* ]]
}

@test "pattern characters in the prefix are taken literally" {
    dlock --acquire --prefix='a*[x]?\' -t 60s job >/dev/null
    dlock --acquire --prefix='ab[x]y\' -t 60s wrong >/dev/null
    equals "$(dlock --list --prefix='a*[x]?\' | awk 'NR > 1 { print $1 }')" job
}

@test "nonsense in dlock's other keys does not stop --status, --list and --force-release" {
    dlock --acquire -t 60s --owner=me job >/dev/null
    redis hset '{dlock:job}:meta' fence nonsense \
        record '{"take": "t", "pid": "x", "since": "-5", "ttl": "99999999999999999999"}' >/dev/null
    run dlock --status -v job
    equals "$status" 0
    [[ $output == *'held, exclusive'*'owner me'* ]]
    redis del '{dlock:job}:meta' '{dlock:job}:counts'
    redis set '{dlock:job}:meta' x
    redis set '{dlock:job}:counts' x
    redis set '{dlock:job}:queue' x
    redis set '{dlock:job}:holders' x
    run dlock --status --json job
    equals "$status" 0
    equals "$(python3 -c 'import json, sys; s = json.loads(sys.argv[1]); print(s["locked"], s["owner"], s["waiters"])' "$output")" 'True me None'
    run dlock --force-release job
    equals "$status" 0
    # A shared lock whose set or record was tampered with.
    dlock --acquire -s -t 60s --owner=me shared >/dev/null
    dlock --acquire -s -t 60s --owner=you shared >/dev/null
    for owner in me you; do redis set "{dlock:shared}:holder:$owner" '{nonsense' PX 60000 >/dev/null; done
    fails_with 0 '^shared: held, shared by 2$' dlock --status shared
    fails_with 0 '^shared +[0-9]+s +shared +2 holders$' dlock --list
    for owner in me you; do dlock --release --owner="$owner" shared; done
    dlock --acquire --slots=2 -t 60s --owner=me slots >/dev/null
    redis del '{dlock:slots}:holder:me' >/dev/null
    run dlock -n --slots=2 slots -- sh -c 'echo $DLOCK_SLOT' # the other slot is acquired all the same
    equals "$output" 1
    redis del '{dlock:slots}:slots' >/dev/null
    fails_with 75 '' dlock -n --slots=2 slots true # it is unknown which slots are taken
    redis del '{dlock:slots}:holders' >/dev/null
    fails_with 75 '' dlock -n --slots=2 slots true
    fails_with 75 '' dlock -n slots true
    run dlock --force-release slots
    fails_with 1 '' dlock --release --owner=me slots
    run dlock -n slots echo free
    equals "$output" free
}

@test "numbers in dlock's other keys that are too large are shown as long times, never as negative ones" {
    local huge=9223372036854775807 number
    for number in 9000000000000000 "$huge" -5; do
        redis hset '{dlock:job}:meta' takes 1 waited_ms "$number" held_ms "$number" removed "$number" \
            run "0	$huge	status 0	7	ann	host	make" success "0	$huge	status 0	7	ann	host	make" runs "$number" failures "$number" >/dev/null
        run dlock --status job
        equals "$status" 1
        [[ $output == *'waited '*', held '* && $output != *[\ \(]-[0-9]* ]]
        run dlock --status --json job
        python3 -c 'import json, sys
s = json.load(sys.stdin)
assert all(n >= 0 for n in [*s["counts"].values(), s["last_run"]["duration"], s["failures_in_a_row"], s["runs_since"]]), s' <<<"$output"
        run dlock --ran-within=1h job
        equals "$status" 1
    done
}

@test "the set of sharers is removed: everybody sees the lock as held by another client until the key expires" {
    dlock --acquire -s -t 60s shared >/dev/null
    redis del '{dlock:shared}:holders' >/dev/null
    fails_with 75 '' dlock -n -s shared true
    run dlock --status shared
    equals "$status" 0
    [[ $output == *'by another client, lease ends in '* ]]
    fails_with 75 '' dlock --wait-until-free -n shared
    run dlock --force-release shared
    equals "$status" 0
    run dlock -n shared echo free
    equals "$output" free
}

@test "a lock whose name looks like another lock's internal key is a lock of its own" {
    local part
    for part in meta holders counts queue claim; do
        dlock --acquire -t 60s --owner=me "j{eu}:$part" >/dev/null
    done
    dlock --acquire -s -t 60s --owner=s 'j{eu}' >/dev/null
    fails_with 75 '' dlock -w 0.3 'j{eu}' true
    dlock --release --owner=s 'j{eu}'
    dlock 'j{eu}' true
    for part in meta holders counts queue claim; do
        [ "$(redis pttl "dlock:j{eu}:$part")" -gt 50000 ]
    done
    equals "$(dlock --list | awk 'NR > 1 { printf "%s ", $1 }')" 'j{eu}:claim j{eu}:counts j{eu}:holders j{eu}:meta j{eu}:queue '
}

@test "if the database is refused, --release, --extend and --force-release change no lock in another database" {
    dlock --acquire -t 60s --owner=other job >/dev/null
    fails_with 1 '' dlock -r "unix://$T/redis.sock" --force-release another # the server knows the script there
    fails_with 78 'DB index is out of range' dlock -r "unix://$T/redis.sock?db=99" --force-release job
    local action
    for action in "--extend -t 2h" --release; do
        fails_with 1 '' dlock --owner=other ${action%% *} another
        fails_with 78 'DB index is out of range' dlock -r "unix://$T/redis.sock?db=99" --owner=other $action job
    done
    equals "$(redis get dlock:job)" other
    [ "$(redis pttl dlock:job)" -le 60000 ]
    dlock --force-release job
    equals "$(redis exists dlock:job)" 0
}
