#!/usr/bin/env bats
# --pause and --resume: for a while nobody acquires the lock, and holders keep it.
load backend

query() { python3 -c 'import json, sys; s = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }
waits() { [ "$(dlock --status --json "$2" | query 's["waiters"]')" = "$1" ]; }

# bats test_tags=slow
@test "a lock that is paused while others wait goes to nobody when it is released" {
    hold_lock job -t 60s
    dlock -w 60 job touch "$T/waited" 3>&- 4>&- &
    local waiter=$!
    wait_until 10 waits 1 job
    dlock --pause=5s --message=why job
    end_hold
    wait "$HOLDER"
    sleep 1
    [ ! -e "$T/waited" ]
    waits 1 job
    wait "$waiter"
    [ -e "$T/waited" ]
}

@test "--pause: a free lock is refused until the pause ends, and callers learn who paused it, why and until when" {
    local start
    LOGNAME=ann dlock --pause=60s --message='disk swap' job
    fails_with 75 "^dlock: job: paused by ann@$(hostname) until [0-9:]+ [+0-9]+; message: disk swap\$" dlock -n job echo wrong
    fails_with 75 "gave up after [0-9a-z.]+: paused by ann@$(hostname) .*; message: disk swap$" dlock -w 0.2 job echo wrong
    run dlock -n -E 0 job echo wrong
    equals "$status $output" '0 '
    fails_with 75 '' dlock --acquire -n job
    fails_with 75 '' dlock -n -s job true
    fails_with 75 '' dlock -n --slots=2 job true
    start=$(now)
    dlock --pause=2s --message='disk swap' job
    run dlock -w 20 job echo ran
    equals "$status $output" '0 ran'
    [ $(($(now) - start)) -ge 1900 ]
    within 3000 "$start"
    is_clean job
}

@test "--pause of a held lock stops nothing: the holder goes on, extends and nests; others wait" {
    hold_lock job -t 60s
    local token
    token=$(dlock --status --json job | query 's["owner"]')
    dlock --pause=60s --message=maintenance job
    fails_with 75 'paused by .*; message: maintenance' dlock -n job true
    dlock --extend --owner="$token" job
    dlock -w 60 job touch "$T/waited" 3>&- 4>&- &
    local waiter=$!
    wait_until 10 waits 1 job
    run dlock --status job
    equals "$status" 0
    [[ $output == *'job: held, exclusive'*'  paused by '*'; message: maintenance'* ]]
    end_hold
    wait "$HOLDER"
    sleep 0.5
    [ ! -e "$T/waited" ]
    kill -0 "$waiter"
    dlock --resume job
    wait "$waiter"
    [ -e "$T/waited" ]
    dlock --pause=60s --message=maintenance nested
    dlock --resume nested
    dlock nested -- sh -c 'dlock -q --pause=60s --message=inner nested && dlock -n nested echo nested' >"$T/nested"
    equals "$(cat "$T/nested")" nested
    fails_with 75 '' dlock -n nested true
}

# three_wait [COMMAND...]: starts three waiters for a lock that is paused for an hour, by COMMAND; PIDS has their pids.
three_wait() {
    local i
    "$@" dlock --pause=1h --message=why job
    for i in 1 2 3; do
        "$@" dlock job -- sh -c "echo $i >>'$T/order'" 3>&- 4>&- &
        PIDS+=($!)
        wait_until 10 waits "$i" job
    done
}

@test "--resume wakes the waiters at once, in order" {
    three_wait timeless # so that they check only if they are called
    dlock --resume job
    wait_until 20 eval '[ "$(wc -l <"$T/order")" = 3 ]'
    wait "${PIDS[@]}"
    equals "$(tr '\n' ' ' <"$T/order")" '1 2 3 '
}

@test "waiters learn when a pause ends, even one that replaces it, and then acquire the lock in order" {
    local start
    three_wait
    start=$(now)
    dlock --pause=3s --message=sooner job
    wait "${PIDS[@]}"
    [ $(($(now) - start)) -ge 2900 ]
    within 6000 "$start"
    equals "$(tr '\n' ' ' <"$T/order")" '1 2 3 '
}

@test "another --pause replaces the pause; --force-release does not end it" {
    dlock --pause=60s --message=first job
    LOGNAME=eve dlock --pause=50s --message=second job
    equals "$(dlock --status --json job | query '(s["locked"], s["paused"]["by"], s["paused"]["message"], 40 < s["paused"]["remaining"] <= 50)')" \
        "(False, 'eve@$(hostname)', 'second', True)"
    dlock --resume job
    equals "$(dlock --status --json job | query 's["paused"]')" None
    dlock --acquire -t 60s job >/dev/null
    dlock --pause=60s --message=third job
    dlock --force-release job >/dev/null
    fails_with 75 ': third$' dlock -n job true
    fails_with 1 '' dlock --force-release job
    fails_with 75 ': third$' dlock -n job true
}

@test "--pause of a shared lock or slots admits no more holders and keeps the present ones" {
    hold_lock shared -t 60s -s
    dlock --pause=60s --message=why shared
    fails_with 75 'paused by .*; message: why' dlock -n -s shared true
    fails_with 75 'paused by .*; message: why' dlock -n shared true
    dlock --resume shared
    dlock -n -s shared true
    end_hold
    wait "$HOLDER"
    dlock --acquire -t 60s --slots=3 gpu >/dev/null
    dlock --pause=60s --message=why gpu
    fails_with 75 'paused by .*; message: why' dlock -n --slots=3 gpu true
    dlock --resume gpu
    dlock -n --slots=3 gpu true
}

@test "--resume of a lock that is not or no longer paused exits with 1; a pause may last 30d" {
    fails_with 1 'job: .*the lock is not paused' dlock --resume job
    dlock --pause=1ms --message=why job
    sleep 0.1
    fails_with 1 'job: .*the lock is not paused' dlock --resume job
    dlock --pause=60s --message=why job
    dlock --resume job
    fails_with 1 'the lock is not paused' dlock --resume job
    is_clean job
    dlock -n job true
    dlock --pause=30d --message=why job
    fails_with 75 'paused by' dlock -n job true
}

@test "--doctor NAME shows a pause; --list shows a paused free lock, but one that only remembers a run with --all only" {
    dlock -n ran true
    equals "$(dlock --list)" ''
    dlock --pause=60s --message='disk swap' job
    run dlock --doctor job
    grep -qE 'warn +pause +paused by .*; message: disk swap' <<<"$output"
    dlock --resume job
    run dlock --doctor job
    not grep -q 'paused' <<<"$output"
    dlock --pause=60s --message=why job
    [[ $(dlock --list) == NAME*$'\njob '*' free '*'paused by '*'; message: why' ]]
    not grep -q '^ran ' <<<"$(dlock --list)"
    equals "$(dlock --list --json '[a-j]*' | query '(s["key"], s["locked"], s["paused"]["message"])')" "('job', False, 'why')"
    equals "$(dlock --list '[k-z]*')" ''
    [[ $(dlock --list --all) == *$'\njob '*'paused by '*$'\nran '*'last run: '* ]]
    dlock --resume job
    equals "$(dlock --list)" ''
}

@test "--pause and --resume report what they did, with escaped text; with -q they print nothing" {
    local time='[0-9]{2}:[0-9]{2}:[0-9]{2} [+][0-9]{4}'
    TZ=UTC fails_with 0 "^paused deploy:prod until ([0-9-]+ )?$time \(2h\): disk swap\$" dlock --pause=2h --message='disk swap' deploy:prod
    fails_with 0 '^resumed deploy:prod$' dlock --resume deploy:prod
    fails_with 0 ' \(1m30s\): .x1B.31mwhy$' dlock --pause=90s --message=$'\e[31mwhy' job
    equals "$(dlock --pause=1h --message=why -q job 2>&1; dlock --resume -q job 2>&1)" ''
}

@test "--pause and --resume of a pattern are refused: names are exact" {
    local name
    for name in 'deploy:*' 'job?' 'job[12]'; do
        fails_with 64 'names are exact; for many locks use a gate, a lock that all their commands share$' dlock --pause=1h --message=why "$name"
        fails_with 64 'names are exact; for many locks use a gate, a lock that all their commands share$' dlock --resume "$name"
        dlock -n "$name" true
    done
    equals "$(dlock --list)" ''
}

@test "a pause is shown in JSON and by --list, with its text escaped" {
    run dlock --pause=60s --message=$'\e[31mwhy' --json job
    equals "$(query '(s["key"], s["full_key"], s["paused"], s["ends_at"] is not None)' <<<"$output")" "('job', 'dlock:job', True, True)"
    fails_with 75 ': \\x1B\[31mwhy' dlock -n job true
    equals "$(dlock -n --json job true | query 's["details"]["error"]["code"] if "details" in s else [v for v in s.values() if isinstance(v, dict)][0]["code"]')" LOCK_PAUSED
    [[ $(dlock --status job) == *': \x1B[31mwhy'* ]]
    dlock --resume job
    dlock --acquire -t 60s job >/dev/null
    dlock --pause=60s --message=why job
    [[ $(dlock --list) == *'job '*'paused by '*'; message: why' ]]
    run dlock --resume --json job
    equals "$(query '(s["paused"], s["ends_at"])' <<<"$output")" '(False, None)'
}
