#!/usr/bin/env bats
load ../lib/common
setup() { common_setup; start_redis; export DLOCK_REDIS=unix://$T/redis.sock; }

@test "the key is a standard lock (value: the token, expiry: the TTL), so other clients and dlock exclude each other" {
    hold_lock job --owner=me -t 60
    equals "$(redis get dlock:job)" me
    local ttl
    ttl=$(redis pttl dlock:job)
    [ "$ttl" -gt 50000 ]
    [ "$ttl" -le 60000 ]
    equals "$(redis type dlock:job)" string
    equals "$(redis set dlock:job theirs NX PX 60000)" ''
    end_hold
    wait "$HOLDER"
    equals "$(redis set dlock:job theirs NX PX 60000)" OK
    fails_with 75 'held by another client, lease ends in (1m|5[0-9]s)' dlock -v -n job touch "$T/ran"
    equals "$(redis get dlock:job)" theirs
    [ ! -e "$T/ran" ]
    redis pexpire dlock:job 700
    local start=$(now)
    run dlock -w 20 job echo ran
    equals "$output" ran
    within 2000 "$start"
}

@test "a key of another type counts as held and is never changed by any action" {
    local kind
    redis lpush dlock:list x
    redis sadd dlock:set x
    redis hset dlock:hash user ann
    redis zadd dlock:zset 1 x
    for kind in list set hash zset; do
        fails_with 75 'held by another client' dlock -v -n "$kind" touch "$T/ran"
        fails_with 78 "$kind: .*the key dlock:$kind cannot be used: it is no lock, but a $kind$" dlock --force-release "$kind"
        fails_with 2 '' dlock --release --owner=me "$kind"
        equals "$(redis type "dlock:$kind")" "$kind"
    done
    equals "$(redis hget dlock:hash user)" ann
    [ ! -e "$T/ran" ]
}

@test "a key whose type changes during a run is a lost lock" {
    hold_lock job -t 60
    # In one step: a key that is gone for a moment would already be a loss.
    redis eval "redis.call('del', KEYS[1]) return redis.call('lpush', KEYS[1], 'x')" 1 dlock:job
    local status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
    grep -q 'the lock is lost' "$T/held.err"
    equals "$(redis type dlock:job)" list
}

@test "a meta key that is no hash, or whose fence has reached the largest number, is refused: exit 78, nothing is run, nothing is left" {
    redis set '{dlock:job}:meta' x
    fails_with 78 'the key \{dlock:job\}:meta cannot be used: it is not a hash' dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
    fails_with 78 'the key \{dlock:job\}:meta cannot be used: it is not a hash' dlock --pause=1m --message=why job
    fails_with 78 'the key \{dlock:job\}:meta cannot be used: it is not a hash' dlock --resume job
    equals "$(redis keys '*')" '{dlock:job}:meta'
    equals "$(redis get '{dlock:job}:meta')" x
    local action
    for action in --status '--status --json' --wait-until-free --ran-within=1h; do
        # shellcheck disable=SC2086
        fails_with 78 'the key \{dlock:job\}:meta cannot be used: it is not a hash' dlock $action job # the lock is not free
    done
    dlock other true
    fails_with 0 '^other ' dlock --list --all
    redis del '{dlock:job}:meta' '{dlock:other}:meta'
    redis hset '{dlock:job}:meta' fence 9007199254740991
    fails_with 78 'its fence has reached its maximum' dlock --status job
    fails_with 78 'its fence has reached its maximum' dlock job touch "$T/ran"
    redis hset '{dlock:job}:meta' fence nan
    fails_with 78 'its fence has reached its maximum' dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
    equals "$(redis exists dlock:job)" 0
}

@test "the meta key names the current and the last holder, and shares the lock's hash slot" {
    LOGNAME=somebody hold_lock job --owner=me
    local meta='{dlock:job}:meta'
    equals "$(redis hget "$meta" owner)" me
    equals "$(redis hget "$meta" record | python3 -c 'import sys
record = dict(line.split(" ", 1) for line in sys.stdin.read().splitlines() if line)
print(*(record[field] for field in ("pid", "host", "user", "command", "boot", "start")))')" \
        "$HOLDER $(hostname) somebody $T/held.sh $(cat /proc/sys/kernel/random/boot_id) $(sed 's/.*) //' "/proc/$HOLDER/stat" | cut -d' ' -f20)"
    equals "$(redis hget '{dlock:job}:meta' takes)" 1
    [ "$(redis pttl "$meta")" -gt 2592000000 ]
    end_hold
    wait "$HOLDER"
    equals "$(redis hget "$meta" record)" ''
    [[ $(redis hget "$meta" spent) =~ ^[^\ ]+\ me\ [0-9]+$ ]]
    [ "$(redis hget '{dlock:job}:meta' held_ms)" -ge 0 ]
    dlock '{tag}x' true
    equals "$(redis exists '{tag}dlock:{tag}x:meta')" 1
    dlock plain true
    equals "$(redis exists '{dlock:plain}:meta')" 1
    dlock 'a{}b' true
    equals "$(redis exists '{dlock:a{}b}:meta')" 1
}

@test "the fence is the server's clock in microseconds, and rises even if the last one is ahead of the clock" {
    local fence time
    time=$(redis time | head -1)
    fence=$(dlock job -- sh -c 'echo $DLOCK_FENCE')
    [ $((fence / 1000000 - time)) -le 2 ]
    redis hset '{dlock:job}:meta' fence 4000000000000000
    equals "$(dlock job -- sh -c 'echo $DLOCK_FENCE')" 4000000000000001
    redis flushall
    fence=$(dlock job -- sh -c 'echo $DLOCK_FENCE')
    [ "$fence" -lt 4000000000000001 ] && [ "$fence" -gt 1000000000000000 ]
}

@test "an uncontended run makes three calls: set the name, acquire, release" {
    dlock job true
    redis config resetstat
    dlock job true
    local stats
    stats=$(redis info commandstats | tr -d '\r')
    grep -q 'cmdstat_evalsha:calls=2,' <<<"$stats"
    grep -q 'cmdstat_client|setname:calls=1,' <<<"$stats"
    not grep -q 'cmdstat_eval:' <<<"$stats"
}

@test "an extension by another client is adopted: the command outlives its first lease" {
    hold_lock job --owner=me -t 3s
    redis pexpire dlock:job 60000
    # The first lease has ended by then: the command must have outlived it.
    sleep 3.2
    kill -0 "$(cat "$T/held")"
    end_hold
    wait "$HOLDER"
}

@test "an expiry that another client shortened is adopted too" {
    hold_lock job -t 60s
    redis pexpire dlock:job 12000
    redis pexpire dlock:job 1500
    local status=0 start=$(now)
    wait "$HOLDER" || status=$?
    equals "$status" 124
    within 12000 "$start"
    # Otherwise the key would be gone, which would be a lost lock.
    grep -q 'the lease, last set to 1.5s, ends in .*; stopping' "$T/held.err"
}

@test "if another client removes the expiry, the lease still ends on time" {
    hold_lock job -t 2s
    redis persist dlock:job
    local status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
}

@test "two runs with the same --owner do not mistake each other's lock for their own" {
    hold_lock job --owner=me -t 10s
    redis del dlock:job
    dlock --owner=me -t 60 job -- sh -c 'echo in >"$T/second"; while [ ! -e "$T/over" ]; do sleep 0.01; done' 3>&- &
    local second=$! status=0
    wait_until 10 test -e "$T/second"
    wait "$HOLDER" || status=$?
    equals "$status" 124
    equals "$(redis get dlock:job)" me
    touch "$T/over"
    wait "$second"
    equals "$(redis exists dlock:job)" 0
    # An earlier run with the same token does not hide a lost lock either.
    fails_with 124 'the lock (is lost|was lost before the command ended)' dlock --owner=me job -- redis-cli -s "$T/redis.sock" del dlock:job
}

@test "an expiry beyond the range of clocks is treated as a long time" {
    redis set dlock:job theirs PX 10000000000000
    redis config resetstat
    run dlock -w 1500ms job touch "$T/ran"
    [ "$status" -eq 75 ]
    local calls
    calls=$(redis info commandstats | sed -n 's/cmdstat_evalsha:calls=\([0-9]*\).*/\1/p')
    [ "$calls" -lt 30 ]
    redis del dlock:job
    hold_lock job -t 10s
    redis pexpire dlock:job 10000000000000
    sleep 2.2 # two checks
    kill -0 "$(cat "$T/held")"
    end_hold
    wait "$HOLDER"
}

@test "the user and password in a URL are hidden in the process's arguments" {
    redis acl setuser bob on '>secret' '~*' '+@all'
    hold_lock job -r "unix://bob:secret@$T/redis.sock"
    run tr '\0' ' ' </proc/$HOLDER/cmdline
    [[ $output != *secret* && $output != *bob* && $output == *redis.sock* ]]
    # The command's own arguments are left alone.
    run dlock -r "unix://bob:secret@$T/redis.sock" job2 echo "unix://bob:secret@$T/redis.sock"
    equals "$output" "unix://bob:secret@$T/redis.sock"
    # Two URLs with a comma instead of a blank between them would be one path.
    fails_with 64 'contains another URL' dlock -r "unix://$T/redis.sock,redis://:secret@h" job touch "$T/ran"
    [[ $output != *secret* && ! -e $T/ran ]]
}

@test "dlock never renews the lease by itself" {
    hold_lock job -t 5s
    local first later calls
    checks() { redis info commandstats | sed -n 's/cmdstat_evalsha:calls=\([0-9]*\).*/\1/p'; }
    first=$(redis pexpiretime dlock:job)
    calls=$(checks)
    sleep 2.5 # two checks
    later=$(redis pexpiretime dlock:job)
    equals "$later" "$first"
    [ "$(checks)" -ge $((calls + 2)) ]
}

@test "Redis is reached over IPv4, IPv6 and a name with several addresses" {
    local port
    port=$(free_port)
    start_redis tcp --port "$port" --bind 127.0.0.1 -::1
    run dlock -r "redis://127.0.0.1:$port/2" job -- redis-cli -p "$port" -n 2 exists dlock:job
    equals "$output" 1
    run dlock -r "redis://localhost:$port" job echo ok
    equals "$output" ok
    LD_PRELOAD=$HELPERS/fault_two_addresses.so \
        run dlock -r "redis://both.example:$port" job echo ok
    equals "$output" ok
    redis-cli -h ::1 -p "$port" ping >/dev/null 2>&1 || skip 'no IPv6 here'
    run dlock -r "redis://[::1]:$port" job echo ok
    equals "$output" ok
}

@test "an invalid URL: exit 64 with the valid form and without the password; user, password and path may be percent-encoded" {
    fails_with 64 '^dlock: job: --redis: the port is not a number from 1 to 65535; expected redis://' dlock -r redis://host:x job touch "$T/ran"
    fails_with 64 '^dlock: job: --redis: foo:// is an unknown scheme; expected redis://' dlock -r foo://user:topsecret@host job touch "$T/ran"
    [[ $output != *topsecret* ]]
    fails_with 64 '--redis: a quorum needs at least 3 servers, not 2' dlock -r unix:///a -r unix:///b job touch "$T/ran"
    [ ! -e "$T/ran" ]
    redis acl setuser 'b:b' on '>p@ss/word' '~*' '+@all'
    run dlock -r "unix://b%3Ab:p%40ss%2Fword@$T/redis%2Esock" job echo ok
    equals "$output" ok
}

@test "no script formats a number with %d, which a 32-bit server would truncate" {
    run grep -nE "string\.format\('[^']*%[0-9]*[di]" -r --include=*.lua "$TESTS/../src"
    equals "$output" ''
}

@test "nonsense that others write into a sharer's record blocks nobody" {
    local record
    for record in '[]' '{}' '7' '{"take":{"a":1}}' '{"take":null,"slot":[1],"host":{},"fence":{},"hold":[],"released":{}}' \
        '{"take":"x","slot":NaN}' '{"take":"x","slot":1e300}' '{"take":"x","host":[1],"user":{}}' 'take x' $'slot 1\n' \
        $'take x\nslot NaN\n' $'take x\nslot 1e300\n' $'take x\nslot one\n' $'\n' $'take\n'; do
        rm -f "$T/held" "$T/held.end"
        hold_lock job -s -t 60s --owner=me
        redis set '{dlock:job}:holder:me' "$record" PX 60000 >/dev/null
        dlock --extend --owner=me job
        dlock -s -n job true
        fails_with 75 'held in shared mode by ' dlock -v -n job true
        dlock --status job >/dev/null
        kill -0 "$HOLDER"
        end_hold
        wait "$HOLDER"
        dlock -n job true
    done
}

@test "another client's token and texts may hold any bytes: the lock is shown as held or paused" {
    redis eval "return redis.call('SET', KEYS[1], 'a\\0b', 'PX', 60000)" 1 dlock:job
    fails_with 75 'held by another client' dlock -v -n job touch "$T/ran"
    [[ $(dlock --status job) == *'by another client, lease ends in '* ]]
    fails_with 0 '^job .* another client' dlock --list
    redis del dlock:job
    dlock --pause=600s --message=why job
    redis eval "return redis.call('HSET', KEYS[1], 'paused_by', 'a\\0b', 'pause_why', '\\0')" 1 '{dlock:job}:meta'
    fails_with 75 'paused by a until ' dlock -n job touch "$T/ran"
    [[ $(dlock --status job) == *'paused by a until '* ]]
    [ ! -e "$T/ran" ]
}

@test "nonsense that others write into the slots: the lock counts as held, and others are told so" {
    dlock --acquire --slots=2 -t 60s job
    redis hset '{dlock:job}:meta' slots x
    fails_with 75 'held in shared mode by ' dlock -v -n --slots=2 job touch "$T/ran"
    redis hset '{dlock:job}:meta' slots 2
    redis set '{dlock:job}:holders' x # the server reports no number for this
    fails_with 75 'held in shared mode by another client' dlock -v -n --slots=2 job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "a holder without an end that others add to the set of sharers holds the lock until it is removed" {
    hold_lock job -s -t 60s
    redis zadd '{dlock:job}:holders' inf stranger -inf ghost >/dev/null
    dlock -s -n job true
    end_hold
    wait "$HOLDER"
    [ "$(redis pttl dlock:job)" -gt 60000 ]
    fails_with 75 'held in shared mode by' dlock -v -n job true
    dlock --status job >/dev/null
    dlock -w 60 job touch "$T/ran" 3>&- 4>&- &
    local waiter=$! start
    wait_until 10 eval '[ "$(redis zcard "{dlock:job}:queue")" = 1 ]'
    start=$(now)
    dlock --force-release job
    wait "$waiter"
    within 2000 "$start"
}

# to_format_1 NAME: turns the record of the lock's exclusive holder into one of format 1.
to_format_1() {
    python3 - "$(redis hget "{dlock:$1}:meta" record)" <<'END' | redis -x hset "{dlock:$1}:meta" format 1 record >/dev/null
import json, sys
record = dict(line.split(" ", 1) for line in sys.argv[1].splitlines())
record["space"] = record.pop("pid_space", "")
print(end=json.dumps({**record, "format": "1", "message": "50% done\npid 1"}))
END
}

@test "a holder that uses format 1 is shown as running or ended, and commands under its lock run" {
    dlock -t 60s job -- sh -c ': >"$T/ready"; until [ -e "$T/go" ]; do sleep 0.01; done
        dlock -n job echo nested; env -u DLOCK_HELD dlock -n job echo again; exec sleep 600' >"$T/out" 2>&1 3>&- 4>&- &
    local holder=$!
    wait_until 10 test -e "$T/ready"
    to_format_1 job
    : >"$T/go"
    wait_until 10 grep -qs again "$T/out"
    equals "$(cat "$T/out")" $'nested\nagain'
    run dlock --status job
    [[ $output == *'; running) '*': 50% done?pid 1'* ]]
    kill -KILL $holder
    wait_until 10 gone $holder
    [[ $(dlock --status job) == *'; has ended) '* ]]
}

@test "a member of the set of holders whose number is no slot keeps no one out, and costs the server no memory" {
    local slot options
    for slot in 10000 4294967295 18446744073709551615; do
        dlock --acquire -s -t 60s --owner=me job
        redis zadd '{dlock:job}:holders' -5 "$slot token" >/dev/null
        dlock --release --owner=me job
        for options in '-s' '--slots=2' ''; do
            # shellcheck disable=SC2086
            dlock -n $options job true
            redis zadd '{dlock:job}:holders' -5 "$slot token" >/dev/null
        done
        redis flushall >/dev/null
    done
    [ "$(redis info memory | sed -n 's/^used_memory_peak:\([0-9]*\).*/\1/p')" -lt 100000000 ]
}
