#!/usr/bin/env bats
# What a lock remembers of its runs: --status, --ran-within, --once-per, --remember, --list --all.
load backend

# query EXPRESSION: evaluates it for the JSON object `s` on stdin.
query() { python3 -c 'import json, sys; s = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }

# memory NAME EXPRESSION: evaluates it for what the lock remembers; r is the last run, g the last success.
memory() {
    (dlock --status --json "$1" || true) | python3 -c '
import json, sys
s = json.load(sys.stdin)
r, g, failures, runs, skipped = (s[m] for m in ("last_run", "last_success", "failures_in_a_row", "runs_since", "skipped_since"))
print(eval(sys.argv[1]))' "$2"
}

# counts NAME FAILURES RUNS SKIPPED OUTCOME: checks the counters and the outcome of the last run.
counts() { equals "$(memory "$1" '(failures, runs, skipped, r and r["outcome"])')" "($2, $3, $4, '$5')"; }

@test "a name that never ran: nothing is known or printed" {
    equals "$(dlock --status job || true)" 'job: free'
    equals "$(memory job '(r, g, failures, runs, skipped)')" '(None, None, 0, 0, 0)'
    fails_with 1 '^job: no success within 1h: no run is known$' dlock --ran-within=1h job
}

@test "--status shows the last run and the last success: where, when, how long and how they ended" {
    dlock job true
    run dlock --status job
    [[ $output =~ "  last run: $(hostname), today "[0-9:]{8}" "[+]0000" to "[0-9:]{8}" "[+]0000" ("[0-9a-z.]+"), exit status 0" ]]
    [[ $output =~ "  last success: $(hostname), today "[0-9:]{8}" "[+]0000" to "[0-9:]{8}" "[+]0000" ("[0-9a-z.]+")"$ ]]
    fails_with 7 '' dlock job sh -c 'exit 7'
    run dlock --status job
    [[ $output =~ "  last run: $(hostname), today ".*", exit status 7" ]]
    [[ $output =~ "  last success: $(hostname), today "[^\;]*"; since then 1 run, 0 skipped, 1 failed in a row"$ ]]
    equals "$(memory job '(r["status"], r["signal"], r["command"], r["host"], r["user"] is not None, r["pid"] > 0, 0 <= r["duration"] < 60, r["began_at"] <= r["ended_at"], g["status"])')" \
        "(7, None, 'sh', '$(hostname)', True, True, True, True, 0)"
}

@test "a success resets the count of failures; a signal, a stop and a command that cannot be executed are failures" {
    fails_with 1 '' dlock job false
    counts job 1 1 0 exited
    fails_with 143 '' dlock job sh -c 'kill $$'
    counts job 2 2 0 signal
    equals "$(memory job 'r["signal"]')" 15
    [[ $(dlock --status job) == *', killed by SIGTERM'* ]]
    fails_with 127 '' dlock job "$T/nothing"
    counts job 3 3 0 exited
    equals "$(memory job '(r["status"], g)')" '(127, None)'
    fails_with 124 '' dlock -t 300ms job sleep 60
    counts job 4 4 0 stopped
    dlock job true
    counts job 0 0 0 exited
}

@test "a refused run is counted as skipped; runs and skips are counted since the last success" {
    hold_lock job
    fails_with 75 '' dlock -n job true
    fails_with 75 '' dlock -w 0.1 job true
    equals "$(memory job 'skipped')" 2
    end_hold
    wait "$HOLDER"
    counts job 0 0 0 exited
}

@test "a run whose dlock is killed is recorded as lost once its lease has ended" {
    hold_lock job -t 1s
    kill -KILL "$HOLDER" "$(cat "$T/held")"
    wait_until 20 is_free job
    counts job 1 1 0 lost
    equals "$(memory job '(r["ended_at"], r["pid"])')" "(None, $HOLDER)"
    [[ $(dlock --status job) =~ "last run: $(hostname), today "[0-9:]{8}" "[+]0000", its end was never recorded" ]]
    dlock job true
    counts job 0 0 0 exited
}
is_free() { ! dlock --status -q "$1"; }

@test "a run that lost its lock to another process is recorded as lost" {
    hold_lock job
    steal job
    dlock job true
    counts job 0 0 0 exited
    end_hold
    wait "$HOLDER" || true
    counts job 0 0 0 exited
}

@test "--on-expire=warn: a run that outlives its lease is recorded as lost, whatever its status" {
    dlock -q -t 300ms --on-expire=warn job -- sleep 0.9
    counts job 1 1 0 lost
    equals "$(memory job 'r["ended_at"] is not None')" True
}

@test "a run whose lock is removed by --force-release is recorded as lost" {
    hold_lock job
    dlock --force-release job
    counts job 1 1 0 lost
    end_hold
    wait "$HOLDER" || true
    counts job 1 1 0 lost
}

@test "a run inside a run is not recorded separately" {
    fails_with 3 '' dlock job sh -c 'dlock job false; exit 3'
    counts job 1 1 0 exited
    equals "$(memory job 'r["status"]')" 3
}

@test "--acquire: a run ends with its release, and --exit-status sets its result" {
    local token
    token=$(dlock --acquire job)
    equals "$(memory job r)" None
    dlock --release --owner="$token" --exit-status=0 job
    counts job 0 0 0 exited
    token=$(dlock --acquire job)
    dlock --release --owner="$token" --exit-status=9 job
    counts job 1 1 0 exited
    equals "$(memory job '(r["status"], g["status"])')" '(9, 0)'
    fails_with 64 'exit-status is only for --release$' dlock --exit-status=9 job true
    fails_with 64 'all is only for --list$' dlock --all job true
}

@test "a release without --exit-status is neither a success nor a failure" {
    local token
    fails_with 1 '' dlock job false
    token=$(dlock --acquire job)
    dlock --release --owner="$token" job
    counts job 1 2 0 'not known'
    fails_with 1 'no success is known' dlock --ran-within=1h job
}

@test "--attach: a script's run ends with the script, which can set its result" {
    printf '#!/bin/sh\ndlock --attach job || exit\n[ -z "$1" ] || dlock --release --exit-status="$1" job\n' >"$T/script"
    chmod +x "$T/script"
    "$T/script" ''
    wait_until 10 ended job 'not known'
    "$T/script" 0
    wait_until 10 ended job exited
    equals "$(memory job 'r["status"]')" 0
}
ended() { [ "$(memory "$1" 'r and r["outcome"]')" = "$2" ]; }

@test "of several sharers, the run that ended last is recorded as the last run" {
    dlock -s job sh -c 'dlock -n -s --owner=other job true; exit 0' || true
    hold_lock job -s
    fails_with 5 '' dlock -s job sh -c 'exit 5'
    equals "$(memory job '(r["status"], failures)')" '(5, 1)'
    end_hold
    wait "$HOLDER"
    counts job 0 0 0 exited
    fails_with 6 '' dlock --slots=2 pool sh -c 'exit 6'
    equals "$(memory pool '(r["status"], failures)')" '(6, 1)'
}

@test "of several sharers, the success that began last is recorded, whichever ends last" {
    local how
    for how in -s --slots=2; do
        hold_lock "job$how" "$how"
        fails_with 1 '' dlock "$how" "job$how" false
        dlock "$how" "job$how" sh -c 'exit 0'
        fails_with 1 '' dlock "$how" "job$how" false
        end_hold
        wait "$HOLDER"
        equals "$how $(memory "job$how" '(g["command"], r["command"] != "sh", failures, runs)')" "$how ('sh', True, 0, 2)"
    done
}

@test "a killed sharer's run is recorded as lost once its lease has ended" {
    hold_lock job -s -t 1s
    kill -KILL "$HOLDER" "$(cat "$T/held")"
    wait_until 20 is_free job
    counts job 1 1 0 lost
    dlock -s job true
    counts job 0 0 0 exited
}

@test "--ran-within exits with 0 if the last success ended within that time, otherwise with 1, and prints one line" {
    dlock job true
    run dlock --ran-within=1h job
    equals "$status" 0
    [[ $output =~ ^"job: the last success ended today "[0-9:]{8}" "[+]0000" on $(hostname), "[0-9a-z.]+" ago"$ ]]
    fails_with 1 '' dlock job false
    run dlock --ran-within=1h job
    equals "$status" 0 # a failure does not undo it
    run dlock --ran-within=1ms job
    equals "$status" 1
    [[ $output =~ ^"job: no success within 1ms: the last success ended today "[0-9:]{8}" "[+]0000" on $(hostname), "[0-9a-z.]+" ago"$ ]]
    run dlock -q --ran-within=1h job
    equals "$status $output" '0 '
    equals "$(dlock --ran-within=1h --json job | query '(s["ran_within"], s["within"], s["last_success"]["status"], s["failures_in_a_row"])')" '(True, 3600.0, 0, 1)'
}

@test "--ran-within counts neither a current run nor a skip" {
    hold_lock job
    fails_with 1 'no run is known' dlock --ran-within=1h job
    fails_with 75 '' dlock -n job true
    fails_with 1 'no run is known' dlock --ran-within=1h job
    end_hold
    wait "$HOLDER"
    dlock --ran-within=1h job
}

@test "--once-per skips the job if a success has begun within that time; a failure does not count" {
    fails_with 1 '' dlock --once-per=1h job false
    dlock -v --once-per=1h job touch "$T/ran"
    rm "$T/ran"
    fails_with 75 'dlock: job: already done: the last success started [0-9a-z.]+ ago on .* \(--once-per=[0-9a-z]+\); the command was not run' dlock -v --once-per=1h job touch "$T/ran"
    fails_with 0 '' dlock -E 0 --once-per=1h job touch "$T/ran"
    equals "$(dlock --json --once-per=1h job true | query '(s["error"]["code"], s["error"]["retryable"])')" "('ALREADY_DONE', True)"
    [ ! -e "$T/ran" ]
    counts job 0 0 3 exited
    dlock --once-per=1ms job touch "$T/ran"
    [ -e "$T/ran" ]
    counts job 0 0 0 exited
    fails_with 64 'once-per: must not be longer than --remember' dlock --remember=1h --once-per=2h job true
}

@test "CI: a run skipped by --once-per or refused because the lock is held prints one line, and nothing under cron" {
    local done='^dlock: job: already done: the last success started [0-9a-z.]+ ago on .* \(--once-per=[0-9a-z]+\); the command was not run$'
    dlock --once-per=1h job true
    hold_lock held -t 60s
    export CI=true
    fails_with 75 "$done" dlock --once-per=1h job echo wrong
    equals "${#lines[@]}" 1
    fails_with 0 "$done" dlock -n -E 0 --once-per=1h job echo wrong
    fails_with 75 '^dlock: held: held by .*, lease ends in [0-9]+s$' dlock -n held echo wrong
    equals "${#lines[@]}" 1
    fails_with 0 '^dlock: held: held by ' dlock -n -E 0 held echo wrong
    fails_with 75 '^dlock: held: held by ' dlock --acquire -n held
    equals "$(dlock -q -n -E 0 --once-per=1h job echo wrong 2>&1; dlock -q -n -E 0 held echo wrong 2>&1)" ''
    equals "$(CI=false dlock -n -E 0 held echo wrong 2>&1)" ''
    unset CI
    equals "$(dlock -n -E 0 --once-per=1h job echo wrong 2>&1; dlock -n -E 0 held echo wrong 2>&1)" ''
    dlock -n -E 0 --once-per=1h --report="$T/report" job true
    dlock -n -E 0 --report="$T/report" held true
    equals "$(query_lines 's["key"], s["status"], s["acquired"], s["error"]' <"$T/report")" \
        $'job 0 False ALREADY_DONE\nheld 0 False LOCK_ACQUISITION_FAILED'
}

@test "--once-per: a waiter is skipped after a successful run, and runs after a failed one" {
    local i waiters=()
    hold_lock job
    for i in 1 2 3; do
        dlock --once-per=1h job sh -c 'echo ran >>"$T/ran"' >/dev/null 2>&1 3>&- 4>&- &
        waiters+=($!)
    done
    wait_until 10 equals_waiters job 3
    kill "$(cat "$T/held")" # a failure: one of them runs, and the others are skipped
    for i in "${waiters[@]}"; do wait "$i" || equals "$?" 75; done
    equals "$(cat "$T/ran")" ran
    counts job 0 0 2 exited
}
equals_waiters() { [ "$(dlock --status --json "$1" | query 's["waiters"]')" = "$2" ]; }

@test "--remember=0: no run is remembered, and earlier ones are forgotten" {
    dlock job true
    dlock --remember=0 job true
    equals "$(memory job '(r, g, runs)')" '(None, None, 0)'
    fails_with 1 'no run is known' dlock --ran-within=1h job
    hold_lock job -t 1s --remember=0
    kill -KILL "$HOLDER" "$(cat "$T/held")"
    wait_until 20 is_free job
    equals "$(memory job '(r, g, runs)')" '(None, None, 0)'
}

@test "--list --all also shows free locks that remember a run" {
    local name
    for name in b a 'c{x}y' 'd}e'; do dlock "$name" true; done
    dlock --remember=0 nothing true
    hold_lock held
    run dlock --list --all
    [[ ${lines[1]} == 'a      -        free       last run: '*', exit status 0' ]]
    equals "$(dlock --list --all --json | query_lines 's["key"], s["locked"]')" $'a False\nb False\nc{x}y False\nd}e False\nheld True'
    equals "$(dlock --list --all --json '[bc]*' | query_lines 's["key"]')" $'b\nc{x}y'
    equals "$(dlock --list --json | query_lines 's["key"]')" held
}
query_lines() { python3 -c 'import json, sys
for line in sys.stdin:
    s = json.loads(line)
    print(*eval("[" + sys.argv[1] + "]"))' "$1"; }

@test "the name of another user's command cannot disturb a terminal" {
    local name=$'\e[31mred\tx'
    printf '#!/bin/sh\n' >"$T/$name"
    chmod +x "$T/$name"
    dlock job "$T/$name"
    equals "$(memory job 'r["command"].endswith("red\tx")')" True
    run dlock --status --json job
    [[ $output != *$'\e'* ]]
}
