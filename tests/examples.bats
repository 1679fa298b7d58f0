#!/usr/bin/env bats
# The examples in doc/examples do what they say they do.
load common
setup() {
    common_setup
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock
    export PATH=$TESTS/../doc/examples:$PATH
}
teardown() { common_teardown; }

# An example that stores, in WRITE, and what shows what it has stored, in SHOW.
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
# wakes up when another has written, and writes late.
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
    grep -q 'dlock: report: the command ran on for .* without the lease' "$T/err"
    equals "$($SHOW)" fresh
}

@test "fenced-write: a holder frozen beyond its lease writes late, and is refused" { file; frozen_holder_is_refused; }
@test "fenced-update: a holder frozen beyond its lease writes late, and is refused" { database; frozen_holder_is_refused; }

# One holder writes as often as it likes, and so does the next one.
holders_write() {
    dlock report -- sh -c "echo one | $WRITE && echo two | $WRITE"
    equals "$($SHOW)" two
    dlock report -- sh -c "echo three | $WRITE"
    equals "$($SHOW)" three
}

@test "fenced-write: each holder writes, and more than once" { file; holders_write; }
@test "fenced-update: each holder writes, and more than once" { database; holders_write; }

# However writers of many fences meet, the last word is that of the highest.
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

@test "fenced-write: of many writers at once the highest fence stays" { file; highest_stays; }
@test "fenced-update: of many writers at once the highest fence stays" { database; highest_stays; }

@test "fenced-write: nobody writes between the comparison and the write of another" {
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

without_a_fence() {
    fails_with 2 'DLOCK_FENCE is not set' dash -c "echo x | $WRITE"
    DLOCK_FENCE='1 OR 1' fails_with 1 'DLOCK_FENCE is not a number' sh -c "echo x | $WRITE"
    [ -z "$(find "$T" -name 'report*')" ]
}

@test "fenced-write: without a fence nothing is written" { file; without_a_fence; }
@test "fenced-update: without a fence nothing is written" { database; without_a_fence; }

@test "fenced-write: what is refused or fails leaves no file behind, and the mode is that of the umask" {
    file
    (umask 027 && echo x | DLOCK_FENCE=2 fenced-write "$T/report")
    equals "$(stat -c %a "$T/report")" 640
    DLOCK_FENCE=1 fails_with 3 refused fenced-write "$T/report" </dev/null
    equals "$(cd "$T" && echo report*)" 'report report.fence'
    DLOCK_FENCE=3 fails_with 1 '' fenced-write "$T/nowhere/report" </dev/null
}

@test "fenced-update: any text is stored as it is, under any key" {
    database
    local text key
    text=$(printf "it's\n'); DROP TABLE fenced; --\n\\\\n \$HOME \`id\` %%s \"q\"")
    key="o'key"
    printf %s "$text" | DLOCK_FENCE=1 fenced-update "$T/reports.db" "$key"
    equals "$(sqlite3 "$T/reports.db" "SELECT value FROM fenced WHERE key = 'o''key'")" "$text"
}
