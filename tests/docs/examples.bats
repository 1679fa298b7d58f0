#!/usr/bin/env bats
# The examples in doc/examples do what they promise.
load ../lib/common
setup() {
    common_setup
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock
    export PATH=$TESTS/../doc/examples:$PATH
}

# Sets WRITE to an example that stores, and SHOW to the command that shows what is stored.
file() { WRITE="fenced-write $T/report" SHOW="cat $T/report"; }
database() {
    command -v sqlite3 >/dev/null || skip 'no sqlite3'
    WRITE="fenced-update $T/reports.db daily"
    printf '#!/bin/sh\nsqlite3 "%s" "SELECT value FROM fenced WHERE key = '"'daily'"'"\n' "$T/reports.db" >"$T/show"
    chmod +x "$T/show"
    SHOW=$T/show
}

is_free() { [ "$(redis exists dlock:report)" = 0 ]; }

# A holder is frozen for longer than its lease, in the middle of its work. It
# wakes up after another has written, and writes late.
frozen_holder_is_refused() {
    dlock -t 1s --on-expire=warn report -- sh -c "echo first | $WRITE
        echo \$\$ >'$T/worker.pid.tmp'; mv '$T/worker.pid.tmp' '$T/worker.pid'
        until [ -e '$T/go' ]; do sleep 0.01; done; echo stale | $WRITE" 2>"$T/err" 3>&- 4>&- &
    local dlock=$! worker status=0
    echo "$dlock" >"$T/dlock.pid"
    wait_until 10 test -e "$T/worker.pid"
    worker=$(cat "$T/worker.pid")
    kill -STOP "$dlock" "$worker"
    equals "$($SHOW)" first
    wait_until 10 is_free
    dlock -w 10 report -- sh -c "echo fresh | $WRITE"
    equals "$($SHOW)" fresh
    touch "$T/go"
    kill -CONT "$dlock" "$worker"
    wait "$dlock" || status=$?
    equals "$status" 3
    grep -qE 'refused: fence [0-9]+ is older than' "$T/err"
    grep -q 'dlock: report: the command ran for .* without the lock' "$T/err"
    equals "$($SHOW)" fresh
}

@test "fenced-write: a holder frozen beyond its lease is refused when it writes late" { file; frozen_holder_is_refused; }
@test "fenced-update: a holder frozen beyond its lease is refused when it writes late" { database; frozen_holder_is_refused; }

# One holder writes as often as it wants, and so does the next one.
holders_write() {
    dlock report -- sh -c "echo one | $WRITE && echo two | $WRITE"
    equals "$($SHOW)" two
    dlock report -- sh -c "echo three | $WRITE"
    equals "$($SHOW)" three
}

without_a_fence() {
    fails_with 2 'DLOCK_FENCE is not set' dash -c "echo x | $WRITE"
    DLOCK_FENCE='1 OR 1' fails_with 1 'DLOCK_FENCE is not a number' sh -c "echo x | $WRITE"
    [ -z "$(find "$T" -name 'report*')" ]
}

@test "fenced-write: each holder can write, even more than once, but nobody without a fence" { file; without_a_fence; holders_write; }
@test "fenced-update: each holder can write, even more than once, but nobody without a fence" { database; without_a_fence; holders_write; }

# However writers with different fences meet, the highest fence wins.
highest_stays() {
    local fence writers=()
    for fence in 0000000000000000007 3 11 2 9 4 12 8 1 10 6 5; do
        { echo "of $fence" | DLOCK_FENCE=$fence $WRITE 2>/dev/null || [ $? -eq 3 ]; } 3>&- 4>&- &
        writers+=($!)
    done
    for fence in "${writers[@]}"; do wait "$fence"; done
    equals "$($SHOW)" 'of 12'
    DLOCK_FENCE=11 fails_with 3 'refused: fence 11 is older' sh -c "echo late | $WRITE"
    equals "$($SHOW)" 'of 12'
}

@test "fenced-write: of many writers at once, the one with the highest fence wins" { file; highest_stays; }
@test "fenced-update: of many writers at once, the one with the highest fence wins" { database; highest_stays; }

@test "fenced-write: no other write comes between the comparison and the write" {
    file
    : >"$T/report.fence"
    flock "$T/report.fence" sh -c 'touch "$T/inside"; until [ -e "$T/go" ] || [ ! -e "$T/inside" ]; do sleep 0.01; done; echo 2 >"$T/report.fence"; echo theirs >"$T/report"' 3>&- 4>&- &
    local other=$! writer status=0
    wait_until 10 test -e "$T/inside"
    echo ours | DLOCK_FENCE=1 fenced-write "$T/report" 2>/dev/null 3>&- 4>&- &
    writer=$!
    wait_until 10 grep -qE -- "-> FLOCK .*:$(stat -c %i "$T/report.fence") " /proc/locks
    touch "$T/go"
    wait "$other"
    wait "$writer" || status=$?
    equals "$status" 3
    equals "$(cat "$T/report")" theirs
}

@test "fenced-write: a write that is refused, fails or is stopped leaves no file, and the mode follows the umask" {
    file
    (umask 027 && echo x | DLOCK_FENCE=2 fenced-write "$T/report")
    equals "$(stat -c %a "$T/report")" 640
    DLOCK_FENCE=1 fails_with 3 refused fenced-write "$T/report" </dev/null
    equals "$(cd "$T" && echo report*)" 'report report.fence'
    DLOCK_FENCE=3 fails_with 1 '' fenced-write "$T/nowhere/report" </dev/null
    mkdir "$T/stopped"
    mkfifo "$T/pipe"
    DLOCK_FENCE=3 fenced-write "$T/stopped/report" <>"$T/pipe" 3>&- 4>&- &
    echo $! >"$T/writer.pid"
    wait_until 10 pgrep -P "$!" -x cat
    kill "$!"
    pkill -P "$!" -x cat
    wait "$!" || true
    equals "$(ls "$T/stopped")" ''
}

@test "fenced-update: any text is stored unchanged, under any key" {
    database
    local text key
    text=$(printf "it's\n'); DROP TABLE fenced; --\n\\\\n \$HOME \`id\` %%s \"q\"")
    key="o'key"
    printf %s "$text" | DLOCK_FENCE=1 fenced-update "$T/reports.db" "$key"
    equals "$(sqlite3 "$T/reports.db" "SELECT value FROM fenced WHERE key = 'o''key'")" "$text"
}

# sample NAME KEY: prints its value in $T/dlock.prom, read by the rules of the text
# format, which the whole file must follow.
sample() {
    python3 - "$T/dlock.prom" "$1" "$2" <<'PYTHON'
import re, sys
path, name, key = sys.argv[1:]
text = open(path, encoding='utf-8', newline='\n').read()
assert text == '' or text.endswith('\n'), 'the last line is not whole'
types, samples, last = {}, {}, None
for line in text.split('\n')[:-1]:
    comment = re.fullmatch(r'# (HELP|TYPE) (\w+) (.+)', line)
    if comment:
        if comment[1] == 'TYPE':
            assert comment[2] not in types and comment[3] in ('counter', 'gauge'), line
            types[comment[2]] = comment[3]
            last = comment[2]
        continue
    parts = re.fullmatch(r'(\w+)\{key="((?:[^"\\]|\\[\\"n])*)",backend="(redis|file)"\} ([0-9.]+)', line)
    assert parts, line
    assert parts[1] == last, f'{line}: not in its group'
    assert (types[last] == 'counter') == last.endswith('_total'), line
    label = re.sub(r'\\(.)', lambda found: '\n' if found[1] == 'n' else found[1], parts[2])
    assert (parts[1], label) not in samples, f'{line}: twice'
    samples[parts[1], label] = float(parts[4])
found = samples.get((name, key))
print('none' if found is None else f'{found:.12g}')
PYTHON
}

at_least() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "none" && a + 0 >= b + 0) }'; }

@test "dlock-textfile: every counter rises with what it counts" {
    dlock-textfile "$T/dlock.prom" report other
    local metric
    for metric in takes conflicts timeouts losses waited_seconds held_seconds; do
        equals "$(sample "dlock_${metric}_total" report)" 0
    done
    equals "$(sample dlock_locked report)" 0
    hold_lock report
    fails_with 75 '' dlock -n report true
    fails_with 75 '' dlock -w 50ms report true
    dlock -w 5m report sleep 0.05 2>/dev/null 3>&- 4>&- &
    local waiter=$!
    waits() { [ "$(dlock --status --json report | grep -o '"waiters":[0-9]*')" = '"waiters":1' ]; }
    wait_until 10 waits
    dlock-textfile "$T/dlock.prom" report other
    equals "$(sample dlock_takes_total report)" 1
    equals "$(sample dlock_conflicts_total report)" 1
    equals "$(sample dlock_timeouts_total report)" 1
    at_least "$(sample dlock_waited_seconds_total report)" 0.05
    equals "$(sample dlock_locked report)" 1
    equals "$(sample dlock_waiters report)" 1
    equals "$(sample dlock_takes_total other)" 0
    dlock --force-release report
    wait "$waiter"
    wait "$HOLDER" || true
    dlock-textfile "$T/dlock.prom" report other
    equals "$(sample dlock_takes_total report)" 2
    equals "$(sample dlock_losses_total report)" 1
    at_least "$(sample dlock_held_seconds_total report)" 0.05
    equals "$(sample dlock_locked report)" 0
    equals "$(sample dlock_waiters report)" 0
}

@test "dlock-textfile: shows when the last success ended, and how many runs have failed since" {
    local before
    dlock-textfile "$T/dlock.prom" report
    equals "$(sample dlock_last_success_timestamp_seconds report)" none
    equals "$(sample dlock_failures_in_a_row report)" 0
    before=$(date +%s)
    dlock report true
    fails_with 7 '' dlock report sh -c 'exit 7'
    dlock-textfile "$T/dlock.prom" report
    equals "$(sample dlock_failures_in_a_row report)" 1
    at_least "$(sample dlock_last_success_timestamp_seconds report)" "$before"
    at_least "$(date +%s)" "$(sample dlock_last_success_timestamp_seconds report)"
    at_least "$(sample dlock_last_run_timestamp_seconds report)" "$before"
}

@test "dlock-textfile: shows how long the last run took, and the median and the longest of the successes" {
    local metric time
    dlock-textfile "$T/dlock.prom" report
    for metric in last_run_duration run_duration_median run_duration_longest; do
        equals "$(sample "dlock_${metric}_seconds" report)" none
    done
    for time in 0 0.05 0.3; do
        dlock report sleep "$time"
    done
    fails_with 7 '' dlock report sh -c 'sleep 0.5; exit 7'
    dlock-textfile "$T/dlock.prom" report
    at_least "$(sample dlock_last_run_duration_seconds report)" 0.5
    at_least "$(sample dlock_run_duration_median_seconds report)" 0.05
    at_least "$(sample dlock_run_duration_longest_seconds report)" 0.3
    at_least "$(sample dlock_run_duration_longest_seconds report)" "$(sample dlock_run_duration_median_seconds report)"
    equals "$(dlock --history --json report | python3 -c 'import json, sys; print(json.load(sys.stdin)["typical"]["longest"])')" \
        "$(sample dlock_run_duration_longest_seconds report)"
}

@test "dlock-textfile: without names it covers all held locks, whatever they are called" {
    local name odd
    odd=$(printf '"a\\b\\n" {key="\303\244"} -')
    for name in report -odd "$odd" deploy:prod; do
        dlock --acquire -- "$name"
    done
    redis set "$(printf 'dlock:a\nb\001\302\205')" somebody px 60000
    dlock free true
    dlock-textfile "$T/dlock.prom"
    for name in report -odd "$odd" deploy:prod; do
        equals "$(sample dlock_takes_total "$name")" 1
        equals "$(sample dlock_locked "$name")" 1
    done
    equals "$(sample dlock_locked "$(printf 'a\nb\001\302\205')")" 1
    equals "$(sample dlock_locked free)" none
    dlock-textfile "$T/dlock.prom" "$odd" "$odd" free
    equals "$(sample dlock_takes_total "$odd")" 1
    equals "$(sample dlock_takes_total free)" 1
    equals "$(sample dlock_takes_total report)" none
}

@test "dlock-textfile: the file is replaced atomically, and a failure leaves it unchanged and no other file" {
    local old inode
    (umask 022 && dlock-textfile "$T/dlock.prom" report)
    equals "$(stat -c %a "$T/dlock.prom")" 644
    old=$(cat "$T/dlock.prom")
    inode=$(stat -c %i "$T/dlock.prom")
    exec 8<"$T/dlock.prom"
    dlock report true
    dlock-textfile "$T/dlock.prom" report
    [ "$(stat -c %i "$T/dlock.prom")" != "$inode" ]
    equals "$(cat <&8)" "$old"
    exec 8<&-
    equals "$(sample dlock_takes_total report)" 1
    old=$(cat "$T/dlock.prom")
    stop_redis
    DLOCK_RETRY_FOR=0 fails_with 69 'dlock-textfile: .*SERVICE_UNAVAILABLE' dlock-textfile "$T/dlock.prom" report
    DLOCK_RETRY_FOR=0 fails_with 69 'dlock-textfile: .*SERVICE_UNAVAILABLE' dlock-textfile "$T/dlock.prom"
    equals "$(cat "$T/dlock.prom")" "$old"
    equals "$(cd "$T" && echo dlock.prom*)" dlock.prom
}

# unit_line KEY: prints what the unit runs there, with this test's paths.
unit_line() {
    sed -n "s|^$1=-\{0,1\}||p" "$TESTS/../doc/examples/importer.service" |
        sed "s|/usr/local/bin/dlock|dlock|; s|%t|$T|g"
}

@test "importer.service: the lock is acquired before, released after, and never another's lock" {
    mkdir "$T/importer"
    eval "$(unit_line ExecStartPre)" >/dev/null
    equals "$(redis get dlock:importer)" "$(cat "$T/importer/token")"
    equals "$(stat -c %a "$T/importer/token")" 600
    fails_with 75 '' eval "$(unit_line ExecStartPre)"
    equals "$(redis get dlock:importer)" "$(cat "$T/importer/token")"
    eval "$(unit_line ExecStopPost)"
    equals "$(redis exists dlock:importer)" 0
    dlock --acquire --owner=another importer
    fails_with 1 ': already released$' eval "$(unit_line ExecStopPost)"
    equals "$(redis get dlock:importer)" another
}

@test "importer.service and importer.timer are valid units, and end within the lease" {
    local unit=$TESTS/../doc/examples/importer.service
    equals "$(grep -cE -- '--ttl=30m|^RuntimeMaxSec=25min|^TimeoutStopSec=2min' <(grep -v '^#' "$unit"))" 3
    command -v systemd-analyze >/dev/null || skip 'no systemd-analyze'
    sed "s|/usr/local/bin/dlock|$DLOCK|; s|/usr/local/bin/importer|/bin/true|" "$unit" >"$T/importer.service"
    cp "$TESTS/../doc/examples/importer.timer" "$T"
    run systemd-analyze verify --man=no "$T/importer.service" "$T/importer.timer"
    equals "$status: $(grep -F importer. <<<"$output")" '0: '
}

@test "the units are hardened: systemd-analyze rates their exposure below 4 of 10" {
    systemd-analyze security --help 2>/dev/null | grep -q -e --offline || skip 'no systemd-analyze, or before systemd 250'
    local unit
    for unit in "$TESTS"/../doc/examples/*.service; do
        run systemd-analyze security --offline=true --threshold=40 --no-pager "$unit"
        equals "$status" 0
        [[ $output == *'Overall exposure level'* ]]
    done
}
