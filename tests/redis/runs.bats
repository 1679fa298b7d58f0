#!/usr/bin/env bats
# What a lock in Redis remembers of its runs if replies, keys or clocks are lost.
load ../lib/common

setup() {
    common_setup
    set_wall 0
    LD_PRELOAD=$HELPERS/fault_wall_clock.so start_redis
    export DLOCK_REDIS=unix://$T/redis.sock META='{dlock:job}:meta'
}

# memory EXPRESSION: evaluates it for the JSON object `s` of --status.
memory() { (dlock --status --json job || true) | python3 -c 'import json, sys; s = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }
counts() { equals "$(memory '(s["failures_in_a_row"], s["runs_since"], s["skipped_since"])')" "($1, $2, $3)"; }

@test "the reply to the release is lost: the run counts once" {
    fake_redis lose=2 "$T/redis.sock"
    dlock -r "unix://$T/fake.sock" other true
    fake_redis lose=2 "$T/redis.sock"
    fails_with 7 '' dlock -r "unix://$T/fake.sock" job sh -c 'exit 7'
    counts 1 1 0
    equals "$(memory 's["last_run"]["status"]')" 7
}

@test "a run that went on without its lock is recorded as lost, with the time of its end" {
    dlock -q -t 300ms --on-expire=warn job sleep 0.6
    local line
    line=$(dlock --status job | grep 'last run')
    [[ $line =~ "today "[0-9:]{8}" "[+]0000" to "[0-9:]{8}" "[+]0000" ("[0-9]+"ms), lost its lock"$ ]]
}

@test "the reply to an acquire is lost: --once-per does not refuse the run that was granted" {
    fake_redis lose=1 "$T/redis.sock"
    run dlock -r "unix://$T/fake.sock" --once-per=1h job echo ran
    equals "$status $output" '0 ran'
    counts 0 0 0
}

@test "the counts of skipped runs expire, too" {
    dlock --once-per=1h job true
    fails_with 75 '' dlock --once-per=1h job true
    [ "$(redis pttl '{dlock:job}:counts')" -gt 0 ]
}

@test "after FLUSHALL no run is known, and the next one is the first" {
    dlock job true
    redis flushall
    fails_with 1 '^job: no success within 1h: no run is known$' dlock --ran-within=1h job
    equals "$(memory '(s["last_run"], s["last_success"])')" '(None, None)'
    hold_lock job
    redis flushall
    wait "$HOLDER" || equals "$?" 124
    fails_with 1 'no run is known' dlock --ran-within=1h job
    dlock --once-per=1h job true
    counts 0 0 0
}

@test "the server's clock is set back: recent runs still count as recent" {
    dlock job true
    set_wall -86400
    dlock --ran-within=1h job
    fails_with 75 '' dlock --once-per=1h job true
    fails_with 1 '' dlock job false
    equals "$(memory '(s["last_run"]["status"], s["last_success"]["status"])')" '(1, 0)'
}

@test "a success recorded by a host whose clock was a year ahead does not count as today's" {
    set_wall 31536000
    LD_PRELOAD=$HELPERS/fault_wall_clock.so dlock job true
    set_wall 0
    fails_with 1 '^job: no success within 1h: the last success ended 20[0-9-]+ [0-9:]+ [+]0000 on [^,]*$' dlock --ran-within=1h job
    dlock --once-per=1h job touch "$T/ran"
    [ -e "$T/ran" ]
}

days() { echo $(($(redis pttl "$META") / 86400000)); }

@test "--remember: runs are kept for that long after the last one and after an extension" {
    dlock job true
    equals "$(days)" 100
    dlock --remember=400d job dlock --extend --ttl=49h
    equals "$(days)" 402
    dlock --remember=1d job true
    equals "$(days)" 30 # what the fence needs
}

@test "--remember=0: nothing is kept except what the fence needs" {
    dlock job true
    dlock --remember=0 job true
    equals "$(redis hmget "$META" run success failures runs host pid user command)" "$(printf '\n\n\n\n\n\n\n')"
    [ "$(redis hget "$META" fence)" -gt 0 ]
    equals "$(days)" 30
    hold_lock job --remember=0
    fails_with 75 '' dlock -n job true
    counts 0 0 0
    end_hold
    wait "$HOLDER"
}

@test "recording a run needs no further Redis command" {
    dlock job true
    redis config resetstat
    dlock job true
    equals "$(redis info commandstats | tr -d '\r' | sed -nE 's/^cmdstat_(evalsha|eval|hset|hmget|hget|hdel|hkeys|hincrby):calls=([0-9]+),.*/\1 \2/p' | sort)" \
        $'evalsha 2\nhmget 2\nhset 2'
}

@test "what another client writes in place of recorded runs is ignored and does no harm" {
    dlock job true
    redis hset "$META" run garbage success "$(printf 'x\tx\tx')" failures many runs x
    equals "$(memory '(s["last_run"], s["last_success"], s["failures_in_a_row"])')" '(None, None, 0)'
    fails_with 1 'no run is known' dlock --ran-within=1h job
    fails_with 1 '' dlock --once-per=1h job false
    counts 1 1 0
    redis hset "$META" run "$(printf '1\t2\tstatus 0\t3\tann\t\e[31mhost\tmake')"
    run dlock --status job
    [[ $output != *$'\e'* && $output == *'last run: \x1B[31mhost, 1970-01-01 00:00:00 +0000 to 00:00:00 +0000 (1ms), exit status 0'* ]]
}

# refused_for SECONDS SETTING VALUE [OPTION...]: runs for 0.3 s with a lock that is kept until its lease ends; at the run's
# end the server refuses writes for SECONDS.
refused_for() {
    cat >"$T/refused.sh" <<S
redis-cli -s '$T/redis.sock' config set $2 $3 >/dev/null
(sleep $1; redis-cli -s '$T/redis.sock' config set $2 0 >'$T/again') >/dev/null 2>&1 3>&- 4>&- &
sleep 0.3
S
    fails_with 0 '' dlock -t 20s --hold-at-least=20s "${@:4}" job sh "$T/refused.sh"
    wait_until 10 test -s "$T/again"
    rm "$T/again"
}

@test "the server refuses writes at the release of a lock that is kept: the success is recorded, or a warning says that it is not" {
    local setting mode
    for setting in 'min-replicas-to-write 1' 'maxmemory 1'; do
        for mode in "" -s; do
            redis flushall
            # shellcheck disable=SC2086
            refused_for 1 $setting $mode
            equals "$setting $mode $output" "$setting $mode "
            equals "$(memory '(s["last_run"]["status"], s["failures_in_a_row"])')" '(0, 0)'
            fails_with 75 'the last success started' dlock -v -n --once-per=1h job touch "$T/ran"
        done
    done
    redis flushall
    (wait_until 10 pgrep -f "$T/refused.sh" >"$T/pid"; wait_until 10 not pgrep -F "$T/pid"; sleep 0.3
        kill -TERM "$(pgrep -o -f "dlock.* job sh $T/refused.sh")") 3>&- 4>&- &
    refused_for 3 min-replicas-to-write 1
    [[ $output == *'could not be released: '*NOREPLICAS*'; the lock stays held until its lease ends; the run was not recorded' ]]
}

@test "the lock is released, with a warning, if the user may not record its run" {
    redis acl setuser default -hset >/dev/null 2>&1 || skip 'needs Redis 6'
    redis acl setuser default +hset
    fails_with 0 'the lock was released, but the run was not recorded: .*(hset|HSET)' \
        dlock job redis-cli -s "$T/redis.sock" acl setuser default -hset
    equals "$(redis exists dlock:job)" 0
    redis acl setuser default +hset
    dlock --acquire --owner=mine job
    redis acl setuser default -hset
    fails_with 0 'the run was not recorded: .*(hset|HSET)' dlock --release --owner=mine job
    equals "$(redis exists dlock:job)" 0
}

history() { redis hget "$META" history | grep .; }
# rows PATTERN...: the history has these rows, the newest first; each has started recently.
rows() {
    local row
    while IFS= read -r row; do
        [[ $row =~ ^1[0-9]{12}$'\t'${1:?no row may be left}$ ]]
        shift
    done < <(history)
    equals $# 0
}
# row LENGTH END TTL: prints the pattern of a row.
row() { printf '%s\t%s\t%s\t%s' "$1" "$2" "$3" "$(hostname)"; }

@test "the history: start, length, end, TTL and host of each run, the newest first" {
    local length='[0-9]{1,5}'
    dlock -t 5m job true
    fails_with 7 '' dlock -t 1h job sh -c 'exit 7'
    fails_with 143 '' dlock job sh -c 'kill $$'
    dlock --shared job sleep 0.2
    fails_with 124 '' dlock -t 300ms job sleep 60
    dlock -q -t 400ms --on-expire=warn job sleep 0.7
    fails_with 75 '' dlock --once-per=1h job true
    dlock --slots=2 job true
    rows "$(row "$length" 'status 0' 3600000)" "$(row '' lost 400)" "$(row "$length" stopped 300)" "$(row '[2-9][0-9]{2,3}' 'status 0' 3600000)" \
        "$(row "$length" 'signal 15' 3600000)" "$(row "$length" 'status 7' 3600000)" "$(row "$length" 'status 0' 300000)"
    dlock --remember=0 job true
    equals "$(redis hexists "$META" history)" 0
}

@test "the history: a killed holder's run is lost, and precedes the next holder's run" {
    hold_lock job
    redis del dlock:job
    wait "$HOLDER" || true
    hold_lock job
    kill -KILL "$HOLDER"
    wait "$HOLDER" || true
    redis del dlock:job
    dlock -w 10 job true
    rows "$(row '[0-9]+' 'status 0' 3600000)" "$(row '' lost 3600000)" "$(row '[0-9]*' '(stopped|lost)' 3600000)"
}

@test "the history: a run during which the clock is set back has no known length" {
    set_wall 0
    LD_PRELOAD=$HELPERS/fault_wall_clock.so dlock job sh -c "echo -3600 >'$T/wall_clock.tmp' && mv '$T/wall_clock.tmp' '$T/wall_clock'"
    rows "$(row '' 'status 0' 3600000)"
}

@test "the history: 32 runs are kept, whatever others write there" {
    redis hset "$META" run x history "$(printf '%s\n' x "$(seq -s ' ' 100)" $'1\t2\tstatus 0')"
    for ((i = 0; i < 33; i++)); do dlock job true; done
    equals "$(history | wc -l)" 32
    equals "$(history | grep -cP '^1\d{12}\t\d{1,5}\tstatus 0\t3600000\t[^\t]+$')" 32
}

@test "the history: a refusal says how long the holder usually takes, even if some rows cannot be read" {
    redis hset "$META" run x history "$(for _ in 1 2 3 4 5; do printf '%s\n' $'\e[31m\xff' $'1700000000000\t720000\tstatus 0\t3600000\th'; done)"
    hold_lock job
    fails_with 75 'usually 12m, about 1[12]m left' dlock -w 0.1 job true
}
