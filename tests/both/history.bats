#!/usr/bin/env bats
# How long runs take: --history, estimates for waiters, advice on the TTL.
load backend

# query EXPRESSION: evaluates it for the JSON object `s` on stdin.
query() { python3 -c 'import json, sys; s = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }

# history NAME EXPRESSION: evaluates it for --history --json.
history_of() { (dlock --history --json "$1" || true) | query "$2"; }

# runs COUNT NAME COMMAND...: runs the command COUNT times, one after the other.
runs() {
    local i
    for ((i = 0; i < $1; i++)); do dlock "${@:2}"; done
}

# bats test_tags=slow
@test "--history shows at most the last 32 runs" {
    local i
    for i in {1..35}; do dlock job sh -c "exit $i" || true; done
    equals "$(history_of job '[r["status"] for r in s["runs"]] == list(range(35, 3, -1))')" True
    run dlock --history job
    equals "${#lines[@]}" 35
    [[ ${lines[33]} =~ ^'32 runs in '[0-9a-z.]+', 0 succeeded, longest ' ]]
}

@test "--history of a name that never ran says so, and exits with 1" {
    fails_with 1 '' dlock -q --history job
    run dlock --history job
    equals "$status $output" '1 job: no run is known'
    run dlock --history --json job
    equals "$status" 1
    equals "$(query '(s["key"], s["full_key"], s["runs"], s["succeeded"], s["typical"], s["half_between"], s["longest"], s["longest_left"], s["enough"])' <<<"$output")" \
        "('job', 'dlock:job', [], 0, None, [], None, None, None)"
    fails_with 64 '--history' dlock --lock-file="$T/exact" --history
}

@test "--history shows the run that ended last first, with start, host, end, length and TTL" {
    dlock -t 1h job true
    fails_with 7 '' dlock -t 30m job sh -c 'exit 7'
    fails_with 143 '' dlock job sh -c 'kill $$'
    fails_with 124 '' dlock -t 2s job sleep 60
    [[ $(dlock --status job) == *'stopped: its lease ended, or the lock was lost'* ]]
    dlock --release --owner="$(dlock --acquire job)" job
    equals "$(history_of job '[(r["outcome"], r["status"], r["signal"], r["ttl"]) for r in s["runs"]]')" \
        "[('not known', None, None, 3600.0), ('stopped', None, None, 2.0), ('signal', None, 15, 3600.0), ('exited', 7, None, 1800.0), ('exited', 0, None, 3600.0)]"
    equals "$(history_of job '{r["host"] for r in s["runs"]} == {"'"$(hostname)"'"} and all(0 <= r["duration"] < 60 for r in s["runs"]) and sorted((r["began_at"] for r in s["runs"]), reverse=True) == [r["began_at"] for r in s["runs"]]')" True
    run dlock --history job
    [[ ${lines[0]} =~ ^'START +0000 '\ +'HOST '\ +'END '\ +'LENGTH  TTL USED'$ ]]
    [[ ${lines[2]} =~ ^today\ [0-9:]{8}\ +"$(hostname | cut -c1-8)".*\ stopped\ .*s\ + ]]
    [[ ${lines[4]} == *' status 7 '* && ${lines[5]} == *' status 0 '* ]]
    [[ ${lines[6]} =~ ^'5 runs in '[0-9a-z.]+', 1 succeeded; usually '.*', longest 1.'.*'s, when dlock stopped it'$ ]]
    [[ ${lines[7]} == 'the longest of the last 5 runs was stopped after 1.'*'s; recommended TTL: at least 10s' ]]
}

@test "--history shows no length for a lost run" {
    hold_lock job -t 1s
    kill -KILL "$HOLDER" "$(cat "$T/held")"
    wait_until 20 is_free job
    dlock job true
    equals "$(history_of job '[(r["outcome"], r["duration"] is None) for r in s["runs"]]')" "[('exited', False), ('lost', True)]"
}
is_free() { ! dlock --status -q "$1"; }

@test "--history includes the runs of sharers and slot holders, but not skipped ones; --remember=0 removes all" {
    dlock -s job true
    dlock --slots=2 job true
    hold_lock job -t 60s
    fails_with 75 '' dlock -n job true
    fails_with 75 '' dlock -w 0.1 job true
    end_hold
    wait "$HOLDER"
    fails_with 75 '' dlock --once-per=1h job true
    equals "$(history_of job '(len(s["runs"]), s["succeeded"])')" '(3, 3)'
    dlock --remember=0 job true
    fails_with 1 'no run is known' dlock --history job
}

@test "--history: each line of a run fits 40, 80 and 200 columns, in ASCII and in UTF-8" {
    runs 2 job -t 5s sleep 0.3
    fails_with 124 '' dlock -t 5s --grace=4s job sleep 60
    PYTHONPATH=$TESTS/helpers timeout 60 python3 - <<'P'
from terminal import Terminal, columns_of
for locale, bars in (("C", "#."), ("C.UTF-8", "\u2588\u2591")):
    for columns in (40, 80, 200):
        t = Terminal(["dlock", "--history", "job"], columns, LC_ALL=locale)
        assert t.end() == 0
        rows = t.text.replace("\r", "").split("\n")[:4]
        assert rows[0].startswith("START ") and " stopped " in rows[1], rows
        assert all(columns_of(row) <= columns and row == row.rstrip() for row in rows), (columns, rows)
        assert [bars in row for row in rows] == [False] + 3 * [columns > 40] or columns == 40, rows
        assert locale != "C" or t.text.isascii()
P
}

# at SECONDS COMMAND...: runs the command with a wall clock that is this far ahead.
at() {
    echo "$1" >"$T/wall_clock"
    LD_PRELOAD=$HELPERS/fault_wall_clock.so "${@:2}"
}

# takes SECONDS DLOCK ARGUMENTS...: a run that takes so long by the wall clock. The lease does not end meanwhile,
# however slow the machine is.
takes() {
    local end=$(($(cat "$T/wall_clock") + $1))
    LD_PRELOAD=$HELPERS/fault_wall_clock.so dlock "${@:2}" bash -c "$(declare -f set_wall); set_wall $end"
}

# took SECONDS NAME: records a success that took this long by the wall clock.
took() { at "$1" dlock --release --owner="$(at 0 dlock --acquire "$2")" --exit-status=0 "$2"; }

@test "--history: a run whose clock was set back has no length, and does not count for the usual length" {
    took -60 job
    equals "$(history_of job '(s["runs"][0]["status"], s["runs"][0]["duration"], s["succeeded"], s["typical"])')" '(0, None, 1, None)'
}

@test "an estimate: after runs of 10 to 41 minutes, 12m is usual; after 8m, about 4m are left" {
    local minutes
    for minutes in 41 11 13 10 12; do took $((minutes * 60)) job; done
    equals "$(history_of job '[int(s["typical"][m]) for m in ("median", "p90", "longest", "runs")] + [int(t) for t in s["half_between"]]')" \
        '[720, 2460, 2460, 5, 660, 780]'
    at 0 dlock --acquire -t 2h job >/dev/null
    [[ $(at 472 dlock --status job) == *'; usually 12m, about 4m left'* ]]
    fails_with 75 '; usually 12m, about 4m left$' at 472 dlock -w 0.1 job true
    [[ $(at 900 dlock --status job) == *'; usually 12m, about 2'[56]'m left'* ]]
    [[ $(at 2470 dlock --status job) == *'; longer than usual (usually 12m)'* ]]
}

# successes COUNT NAME SECONDS: COUNT successful runs at once, which share the lock.
successes() {
    local i
    for ((i = 0; i < $1; i++)); do dlock -s "$2" sleep "$3" 3>&- 4>&- & done
    wait
}

@test "an estimate: from five successes on, --status and a wait that timed out say how long runs usually take" {
    successes 4 job 3
    hold_lock job -t 60s
    [[ $(dlock --status job) != *usually* ]]
    equals "$(dlock --status --json job | query '(s["typical"]["runs"], s["expected_end"], s["expected_wait"])')" '(4, None, None)'
    end_hold
    wait "$HOLDER"

    dlock job sleep 3
    dlock --remember=100d job false || true # failures do not count as usual
    hold_lock job -t 60s
    run dlock --status job
    [[ ${lines[1]} =~ ', lease ends in '[0-9]+'s; usually 3'[.0-9]*'s, about '[0-9.ms]+' left'$ ]]
    dlock --status --json job >"$T/json"
    equals "$(query '(s["typical"]["runs"], 0 < s["typical"]["median"] <= s["typical"]["p90"] <= s["typical"]["longest"], s["holders"][0]["expected_end"] == s["expected_end"] > s["acquired_at"], 0 <= s["expected_wait"] <= s["typical"]["longest"])' <"$T/json")" \
        '(6, True, True, True)'
    fails_with 75 'lease ends in [0-9.]*s; usually 3[.0-9]*s, about [0-9.ms]* left$' dlock -w 0.1 job true
    [[ $(dlock --list -v) == *'  USUALLY  '*$'\n'*'  3'*s* ]]
    wait_until 20 is_longer job
    fails_with 75 '; longer than usual \(usually [.0-9]*s\)$' dlock -w 0.1 job true
    fails_with 75 '; longer than usual \(usually [.0-9]*s\)$' dlock --wait-until-free -w 0.1 job
    equals "$(dlock --status --json job | query '(s["expected_end"], s["expected_wait"])')" '(None, None)'
    end_hold
    wait "$HOLDER"
}
is_longer() { [[ $(dlock --status "$1") == *'; longer than usual (usually '* ]]; }

@test "an estimate: the waiting line shows a bar, the time left, and the time until the caller's turn" {
    needs_start_time
    successes 5 job 4
    hold_lock job -t 60s
    dlock job true 3>&- 4>&- &
    wait_until 10 sees_waiters 1 job
    [[ $(dlock --status --json job | query 's["expected_wait"] > s["typical"]["median"]') == True ]]
    PYTHONPATH=$TESTS/helpers timeout 60 python3 - <<'P'
import os, re
from terminal import Terminal
for locale, bar in (("C", "[#.]{10}"), ("C.UTF-8", "[\u2588\u2591]{10}")):
    t = Terminal(["dlock", "-w", "60", "job", "true"], 200, LC_ALL=locale)
    t.until_draws(1)
    assert re.match(rf"waiting( \ds)? for job: {bar} (usually 4[.\d]*s, about [.\d]*m?s left, about [.\d]*s until your turn|longer than usual \(usually 4[.\d]*s\)); held by ", t.last()), t.last()
    t.type(b"\x03")
    assert t.end() == -2
P
    CI=true fails_with 75 'dlock: job: waiting 1s: (longer than usual|usually).*; held by ' dlock -w 1.5 job true
    end_hold
    wait
}

sees_waiters() { [[ $(dlock --status --json "$2" | query 's["waiters"]') == "$1" ]]; }

@test "advice on the TTL: given once after a run that used more than 80 % of it, and by --doctor" {
    set_wall 0
    dlock job sleep 0.1
    [[ $(dlock --doctor job || true) == *'note  ttl '*'1h; the last run took '*'; recommended TTL: 10s'*'-> use a shorter --ttl'* ]]
    [[ $(dlock --doctor -t 2s job || true) == *'ok    ttl '*'2s; the last run took'* ]]
    fails_with 0 '^dlock: job: the run used 8[0-9]% of its TTL of 20s; the longest of the last 2 runs took 17s; recommended TTL: 1m$' takes 17 -t 20s job
    run dlock --doctor -t 20s job
    [[ $output == *'warn  ttl '*'20s; the longest of'*'-> use a longer --ttl'* ]]
    run takes 17 -t 20s job
    equals "$status $output" '0 '

    # Not with -q, or if nothing is remembered.
    run takes 17 -q -t 20s quiet
    equals "$status $output" '0 '
    run takes 17 --remember=0 -t 20s forgotten
    equals "$status $output" '0 '
}

@test "advice on the TTL: given after a run that was stopped, but not if the lock was released early or the lease was extended" {
    # A run that was stopped may have needed more time than it took.
    run dlock -t 2s stopped sleep 20
    [[ $status = 124 && $output == *'TTL of 2s; the last run was stopped after 1.'*'; recommended TTL: at least 10s' ]]
    [[ $(dlock --history stopped) == *', longest 1.'*'s, when dlock stopped it'* ]]
    equals "$(dlock --history --json stopped | query '[s["longest_left"], s["enough"]]')" '[None, None]'

    run dlock -t 1s early -c 'dlock --release; sleep 1.4'
    equals "$status $output" '0 '
    run dlock -t 3s extended -c 'sleep 1; dlock --extend; sleep 1.6'
    equals "$status $output" '0 '
}

@test "advice on the TTL: repeated if no other run has used as much of it for 36 hours" {
    local name
    for name in early late; do
        at 9 dlock --release --owner="$(at 0 dlock --acquire -t 10s $name)" --exit-status=0 $name
    done
    at $((35 * 3600)) fails_with 0 '^$' takes 17 -t 20s early
    at $((37 * 3600)) fails_with 0 '^dlock: late: the run used 8[0-9]% of its TTL of 20s; ' takes 17 -t 20s late
}
