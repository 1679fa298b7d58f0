#!/usr/bin/env bats
# Two versions in one fleet: a dlock of the next format (lock/format.h) runs beside this one.
load backend

NEWER='stored in format 3 by a newer dlock, but dlock [0-9.]+ supports formats up to 2 only; upgrade dlock on this host'

newer() { "$HELPERS/next/dlock" "$@"; }
query() { python3 -c 'import json, sys; s = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }
waits() { [ "$("${3:-dlock}" --status --json "$2" | query 's["waiters"]')" = "$1" ]; }
# snapshot NAME: prints all that the store has of this lock, except times.
snapshot() {
    case $BACKEND in
        file) cat "$T/locks/dlock:$1.lock" ;;
        redis) redis get "dlock:$1" && redis hgetall "{dlock:$1}:meta" && redis zrange "{dlock:$1}:queue" 0 -1 && redis keys "*dlock:$1*" | sort ;;
    esac
}
# newer_holds NAME [ARGUMENTS]: a dlock of the next format holds the lock, after one of this format has held it.
newer_holds() {
    local name=$1
    shift
    dlock "$name" true
    hold held
    newer "$@" "$name" -- "$T/held.sh" >/dev/null 2>"$T/held.err" 3>&- 4>&- &
    HOLDER=$!
    echo "$HOLDER" >"$T/holder.pid"
    wait_until 10 test -e "$T/held"
}

@test "an older dlock refuses a lock held by a newer one: the message names both formats, and nothing is changed" {
    local before action
    newer_holds job -t 60s
    before=$(snapshot job)
    fails_with 78 "^dlock: job: .*$NEWER; the command was not run\$" dlock -n job touch "$T/ran"
    fails_with 78 "$NEWER; the command was not run" dlock -w 60 job touch "$T/ran"
    fails_with 78 "$NEWER" dlock -s -n job touch "$T/ran"
    fails_with 78 "$NEWER" dlock --slots=3 -n job touch "$T/ran"
    fails_with 78 "$NEWER" dlock --once-per=1h -n job touch "$T/ran"
    fails_with 78 "$NEWER" dlock --acquire -n job
    fails_with 78 "$NEWER" dlock --status job
    fails_with 78 "\"code\":\"INVALID_CONFIG\".*$NEWER" dlock --status --json job
    fails_with 78 "$NEWER" dlock --ran-within=1h job
    fails_with 78 "$NEWER" dlock --wait-until-free -w 60 job
    fails_with 78 "$NEWER" dlock --extend --owner=x job
    fails_with 78 "$NEWER" dlock --release --owner=x job
    fails_with 78 "$NEWER" dlock --force-release job
    fails_with 78 "$NEWER" dlock --pause=60s --message=why job
    fails_with 78 "$NEWER" dlock --resume job
    [ ! -e "$T/ran" ]
    equals "$(snapshot job)" "$before"
    run dlock --list
    equals "$status" 0
    grep -qE '^job +- +- +format 3, written by a newer dlock$' <<<"$output"
    equals "$(dlock --list --json | query 's["key"], s["locked"], s["newer_format"]')" "('job', None, 3)"
    dlock other true
    end_hold
    wait "$HOLDER"
}

@test "in an older dlock's command under a newer one's lock, questions about that lock are refused, other locks work" {
    dlock other true
    newer job -- sh -c 'dlock job true; echo $?; dlock --current >&2; echo $?; dlock other echo other' >"$T/out" 2>"$T/err"
    equals "$(tr '\n' ' ' <"$T/out")" '78 78 other '
    equals "$(grep -cE "$NEWER" "$T/err")" 3 # a warning about the outer lock, and the refusals
}

@test "a newer dlock respects an older one's lock and knows all about it" {
    hold_lock job -t 60s --message=nightly
    local token
    token=$(newer --status --json job | query 's["owner"]')
    fails_with 75 'nightly' newer -v -n job touch "$T/ran"
    fails_with 75 'gave up after' newer -w 0.2 job touch "$T/ran"
    fails_with 75 '' newer -s -n job touch "$T/ran"
    fails_with 75 '' newer --wait-until-free -n job
    newer --extend --owner="$token" -t 50s job
    newer --list | grep -q nightly
    newer --pause=60s --message=why other
    newer --resume other
    newer -w 60 job echo newer >"$T/out" 2>"$T/err" 3>&- 4>&- &
    local waiter=$!
    wait_until 10 waits 1 job
    dlock --extend --owner="$token" -t 60s job
    local start
    start=$(now)
    end_hold
    wait "$HOLDER"
    wait "$waiter"
    within 0 "$start"
    equals "$(cat "$T/out" "$T/err")" newer
}

@test "a newer dlock can release an older one's lock, by token and by force" {
    dlock --acquire --owner=a -t 60s one
    dlock --acquire --owner=a -t 60s two
    newer --release --owner=a one
    newer --force-release two
    fails_with 1 '' newer --status one
    fails_with 1 '' newer --status two
    dlock -n one true
}

@test "old and new in one queue: an older waiter keeps its place, and is refused once a newer one before it holds the lock" {
    local a b c start
    hold_lock job -t 60s
    dlock -w 60 job -- sh -c "echo a >>'$T/order'" 2>"$T/a" 3>&- 4>&- &
    a=$!
    wait_until 10 waits 1 job
    newer -w 60 job -- sh -c "echo b >>'$T/order'; while [ ! -e '$T/end' ]; do sleep 0.05; done" 2>"$T/b" 3>&- 4>&- &
    b=$!
    wait_until 10 waits 2 job
    dlock -w 60 job -- sh -c "echo c >>'$T/order'" 2>"$T/c" 3>&- 4>&- &
    c=$!
    wait_until 10 waits 3 job
    start=$(now)
    end_hold
    wait "$HOLDER"
    wait "$a"
    wait_until 10 grep -q b "$T/order"
    within 2000 "$start"
    status=0
    wait "$c" || status=$?
    equals "$status" 78
    grep -qE "$NEWER" "$T/c"
    touch "$T/end"
    wait "$b"
    equals "$(tr '\n' ' ' <"$T/order")" 'a b '
}

@test "a newer dlock does not join holders of an older format, and an older one does not overtake a newer waiter" {
    local mode
    for mode in -s --slots=3; do
        rm -f "$T"/out* "$T/order"
        hold_lock "job$mode" -t 60s "$mode"
        dlock -n "$mode" "job$mode" true
        fails_with 75 '' newer -n "$mode" "job$mode" touch "$T/ran"
        newer -w 60 "$mode" "job$mode" echo newer >"$T/out" 2>&1 3>&- 4>&- &
        local waiter=$!
        wait_until 10 waits 1 "job$mode"
        fails_with 75 '' dlock -n "$mode" "job$mode" touch "$T/ran"
        end_hold
        wait "$HOLDER"
        wait "$waiter"
        equals "$(cat "$T/out")" newer
        [ ! -e "$T/ran" ]
    done
}

@test "newer holders share a lock or slots with each other, and older ones are refused" {
    local mode
    for mode in -s --slots=2; do
        rm -f "$T/held" "$T/held.end"
        newer_holds "job$mode" -t 60s "$mode"
        newer -n "$mode" "job$mode" true
        fails_with 78 "$NEWER" dlock -n "$mode" "job$mode" touch "$T/ran"
        fails_with 78 "$NEWER" dlock --force-release "job$mode"
        end_hold
        wait "$HOLDER"
    done
}

@test "an older holder whose lock a newer dlock has acquired since is stopped" {
    hold_lock job -t 60s
    newer --force-release job
    newer -n job true || newer -w 10 job true
    local status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
}

@test "a killed newer holder leaves nothing that an older dlock mistakes for a free lock" {
    newer_holds job -t 60s
    kill -KILL "$HOLDER"
    fails_with 78 "$NEWER" dlock -n job touch "$T/ran"
    [ ! -e "$T/ran" ]
    touch "$T/held.end"
    newer -w 70 -t 60s job true
}

@test "a newer lease without a process and a newer pause keep an older dlock out" {
    dlock job true
    newer --acquire --owner=a -t 60s job
    fails_with 78 "$NEWER" dlock -n job touch "$T/ran"
    fails_with 78 "$NEWER" dlock --release --owner=a job
    newer --release --owner=a job
    newer -n job true
    newer paused true
    newer --pause=60s --message=why paused
    fails_with 78 "$NEWER" dlock -n paused touch "$T/ran"
    fails_with 78 "$NEWER" dlock --resume paused
    fails_with 75 'paused' newer -n paused true
    newer --resume paused
    newer -n paused true
}

@test "a newer dlock adds its runs to the history of an older one" {
    fails_with 7 '' dlock job sh -c 'exit 7'
    fails_with 8 '' newer job sh -c 'exit 8'
    equals "$(newer --history --json job | query '[(r["status"], r["duration"] is not None) for r in s["runs"]]')" '[(8, True), (7, True)]'
}
