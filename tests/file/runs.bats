#!/usr/bin/env bats
# What a lock directory remembers of runs: where it is stored, and what can happen to it.
load ../lib/common

setup() {
    common_setup
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
    TABLE=$T/locks/.table-$(id -u)
    LOCK=$T/locks/dlock:job.lock
}

# memory NAME EXPRESSION: evaluates it; r is the last run, g the last success.
memory() {
    (dlock --status --json "$1" || true) | python3 -c '
import json, sys
s = json.load(sys.stdin)
r, g, failures, skipped = (s[m] for m in ("last_run", "last_success", "failures_in_a_row", "skipped_since"))
print(eval(sys.argv[1]))' "$2"
}

@test "names that hash to the same place of the table all have room, and none is run again" {
    local name names
    mapfile -t names < <(names_beside_job 40)
    for name in "${names[@]}"; do dlock --once-per=1h "$name" true; done
    for name in "${names[@]}"; do fails_with 75 '' dlock --once-per=1h "$name" touch "$T/ran"; done
}

@test "a full lock table: the oldest runs are dropped, after the names that remember none" {
    dlock job true
    dlock --remember=0 nothing true
    fill_table "$TABLE" 0 3600 0
    sleep 3.1 # until then these are in use
    dlock first true
    equals "$(dlock --status --json nothing | grep -c '"takes":0')" 1
    equals "$(dlock --list --all | grep -c filler)" 1022
    dlock second true
    equals "$(dlock --list --all | grep -c filler)" 1021
    for name in job first second; do equals "$(memory "$name" 'r["status"]')" 0; done
}

@test "a full lock table: what --once-per needs is kept, and a run without room causes a warning" {
    dlock --once-per=1h job true
    fill_table "$TABLE" 1 3600 3600
    fails_with 0 '^$' dlock last true
    sleep 3.1
    fails_with 0 '^$' dlock --once-per=1h next true # takes its place
    equals "$(memory last r)" None
    sleep 3.1
    fails_with 0 'the run was not recorded: the lock directory has no room for another lock' dlock --once-per=1h another true
    fails_with 0 '^$' dlock --remember=0 another true
    dlock --acquire --owner=me another
    fails_with 0 'the run was not recorded: the lock directory has no room for another lock' dlock --release --owner=me another
    for name in job next; do fails_with 75 '' dlock --once-per=1h "$name" touch "$T/ran"; done
    [ "$(dlock --list --all | wc -l)" -eq 1025 ]
}

@test "a directory that remembers no run uses no more space than before, and one run uses two pages" {
    dlock --remember=0 job true
    equals "$(stat -c %s "$TABLE")" $((256 + 384 * 1024))
    local before
    before=$(stat -c %b "$TABLE")
    dlock job true
    [ "$(($(stat -c %b "$TABLE") - before))" -le $((2 * $(getconf PAGESIZE) / 512)) ]
    equals "$(memory job 'r["status"]')" 0
}

@test "torn or garbage records of runs: nothing is known, and the next run is remembered" {
    dlock job true
    local where damage
    for damage in 'f.write(b"\0" * 8)' 'f.seek(300, 1); f.write(b"xyz")' 'f.write(os.urandom(1024))'; do
        python3 - "$TABLE" "$damage" <<'P'
import os, sys
with open(sys.argv[1], "r+b") as f:
    f.seek(f.read().rindex(b"dlock:job\0") - 48)
    exec(sys.argv[2])
P
        equals "$(memory job '(r, g)')" '(None, None)'
        run dlock --ran-within=1h job
        equals "$status" 1
        equals "$(dlock --list --all)" ''
        dlock --once-per=1h job true
        equals "$(memory job '(r["status"], g["status"], failures)')" '(0, 0, 0)'
    done
}

@test "the lock table is truncated while a command runs: the command's own status is returned, and the next run is remembered" {
    local size
    for size in 0 393472 400000; do
        dlock job true
        run env TABLE="$TABLE" "$DLOCK" job sh -c "truncate -s $size \"\$TABLE\"; exit 7"
        equals "$status $output" '7 '
        dlock job true
        equals "$(memory job '(r["status"], failures)')" '(0, 0)'
    done
}

@test "a full disk: the run is not remembered, with a warning, and nothing fails" {
    [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip 'needs root and mounts'
    mkdir -m 700 "$T/locks"
    # There is room only for the table and a lock file.
    run unshare -m sh -c "mount -t tmpfs -o size=\$((98 * $(getconf PAGESIZE))),mode=700 none '$T/locks' &&
        '$DLOCK' job sh -c 'exit 7'; echo \$?; '$DLOCK' --status job; '$DLOCK' job sh -c 'exit 8'; echo \$?"
    [[ $output == "dlock: job: the lock was released, but the run was not recorded: the lock directory has no room for another lock"*$'\n'7$'\n'"job: free, last released "*8 && $output != *'last run'* ]]
}

@test "dlock is killed after the run is recorded and before its lock's record is removed: the run is not counted again" {
    fails_with 1 '' dlock job false
    fails_with 7 '' dlock job sh -c "cp '$LOCK' '$T/copy'; exit 7"
    cp -p "$T/copy" "$LOCK"
    equals "$(memory job '(r["status"], failures)')" '(7, 2)'
    cp -p "$T/copy" "$LOCK"
    dlock job true
    equals "$(memory job '(r["status"], failures)')" '(0, 0)'
}

@test "dlock is killed: whoever removes or replaces its record first, the run is recorded as lost once" {
    local remover
    for remover in 'dlock --status job' 'dlock job false' 'dlock -s job false' 'dlock --force-release job' \
        'dlock --list' 'dlock -w 1 --slots=2 job false' 'dlock --once-per=1h job true'; do
        rm -rf "$T/locks"
        dlock job true
        hold_lock job
        kill -KILL "$HOLDER" "$(cat "$T/held")"
        wait "$HOLDER" || true
        wait_until 10 not_held
        $remover || true
        equals "$remover $(memory job 'r["outcome"] == "lost" or failures == 2')" "$remover True"
        fails_with 1 '' dlock job false
        equals "$remover $(memory job 'r["status"], failures in (2, 3)')" "$remover (1, True)"
    done
}
not_held() { flock -n "$LOCK" true; }

@test "a record from an earlier boot: the run is recorded as lost" {
    fails_with 7 '' dlock job sh -c "cp '$LOCK' '$T/copy'; exit 7"
    rm "$TABLE"
    sed 's/^boot .*/boot 00000000-0000-4000-8000-000000000000/' "$T/copy" >"$LOCK"
    chmod 600 "$LOCK"
    equals "$(memory job '(r["outcome"], failures)')" "('lost', 1)"
}

@test "an acquired lock that is never released: its run is recorded as lost when the lease ends" {
    dlock --acquire -t 300ms job
    equals "$(memory job r)" None
    wait_until 10 is_lost
    dlock --acquire -t 1h job
    equals "$(memory job '(r["outcome"], failures)')" "('lost', 1)"
}
is_lost() { [ "$(memory job 'r and r["outcome"]')" = lost ]; }

@test "many processes at once with --once-per: one runs" {
    local i
    for i in {1..12}; do
        dlock --once-per=1h job sh -c 'echo ran >>"$0"' "$T/ran" 2>/dev/null 3>&- 4>&- &
    done
    wait
    equals "$(cat "$T/ran") $(memory job 'skipped')" 'ran 11'
    equals "$(find "$T/locks" -name '*.lock' | wc -l)" 0
}

@test "--list --all: a name too long for the table is not listed while it is free" {
    local name
    name=$(printf 'n%.0s' {1..1000})
    fails_with 1 '' dlock "$name" false
    equals "$(memory "$name" 'r["status"]')" 1
    equals "$(dlock --list --all)" ''
}

@test "two users of one directory: each has its own record of runs" {
    mkdir -m 1777 "$T/locks"
    chmod 1777 "$T/locks"
    let_others_into "$T" || skip 'needs root, to become another user, who reaches the program'
    other() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent "$DLOCK" "$@"; }
    fails_with 7 '' other job sh -c 'exit 7'
    equals "$(memory job '(r, g)')" '(None, None)'
    dlock job true
    equals "$(other --status job | grep -c 'exit status 7')" 1
    equals "$(dlock --list --all | wc -l)" 2
}

@test "--lock-file remembers no runs, and says so" {
    dlock --lock-file="$T/exact" true
    run dlock --lock-file="$T/exact" --status
    [[ $output != *'last run'* ]]
    fails_with 64 'once-per: a --lock-file ' dlock --lock-file="$T/exact" --once-per=1h true
    fails_with 64 '--ran-within' dlock --lock-file="$T/exact" --ran-within=1h
}

# --- the history, which has a page of its own ---------------------------------

# past: prints the exit statuses in the history of job, newest first; "?" after a run without a length.
past() {
    (dlock --history --json job || true) | python3 -c '
import json, sys
print(*["%s%s" % (r["status"], "?" * (r["duration"] is None)) for r in json.load(sys.stdin)["runs"]])'
}
# on_page CODE: changes the page of the history; f is the table, positioned at its start.
on_page() {
    python3 - "$TABLE" "$T/page" "$1" <<'P'
import os, sys
with open(sys.argv[1], "r+b") as f:
    f.seek(f.read().index(b"\t3600000\t") // 4096 * 4096)
    exec(sys.argv[3])
P
}

@test "a torn or garbage history is ignored: the last run is known, and the next one starts a new history" {
    local damage
    for damage in 'f.write(b"\0" * 8)' 'f.seek(20, 1); f.write(b"x")' 'f.seek(3000, 1); f.write(b"x")' 'f.write(os.urandom(4096))'; do
        dlock job true
        on_page "$damage"
        equals "$(past)" ''
        equals "$(memory job '(r["status"], g["status"])')" '(0, 0)'
        fails_with 7 '' dlock job sh -c 'exit 7'
        equals "$(past)" 7
        dlock --remember=0 job true
    done
}

@test "dlock is killed after the run is recorded and before the history is: only that run is missing from the history" {
    fails_with 1 '' dlock job sh -c 'exit 1'
    on_page 'open(sys.argv[2], "wb").write(f.read(4096))'
    fails_with 2 '' dlock job sh -c 'exit 2'
    on_page 'f.write(open(sys.argv[2], "rb").read())'
    equals "$(past)" 1
    equals "$(memory job 'r["status"]')" 2
    fails_with 3 '' dlock job sh -c 'exit 3'
    equals "$(past)" '3 1'
}

@test "the table of an older dlock has no history: the last run is known, and the next one is added" {
    fails_with 7 '' dlock job sh -c 'exit 7'
    python3 - "$TABLE" <<'P'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(16 + 32)
    f.write(b"\0" * 128)
    f.truncate((97 + 256) * 4096)
P
    equals "$(memory job 'r["status"]') $(past)" '7 '
    fails_with 8 '' dlock job sh -c 'exit 8'
    equals "$(past)" 8
}

@test "the clock is set back while a command runs: the run has no known length" {
    set_wall 0
    LD_PRELOAD=$HELPERS/fault_wall_clock.so dlock job sh -c "echo -3600 >'$T/wall_clock.tmp' && mv '$T/wall_clock.tmp' '$T/wall_clock'"
    fails_with 7 '' dlock job sh -c 'exit 7'
    equals "$(past)" '7 0?'
}

@test "a full disk: the run is remembered without the history if there is room for it" {
    [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip 'needs root and mounts'
    mkdir -m 700 "$T/locks"
    run unshare -m sh -c "mount -t tmpfs -o size=\$((99 * $(getconf PAGESIZE))),mode=700 none '$T/locks' &&
        '$DLOCK' job sh -c 'exit 7'; echo \$?; '$DLOCK' --status job; '$DLOCK' --history job"
    [[ $output == 7$'\n''job: free, last released '*', exit status 7'*$'\n''job: no run is known' ]]
}

@test "a full lock table: a name inherits no history from the name whose place it takes" {
    fails_with 7 '' dlock before sh -c 'exit 7'
    fill_table "$TABLE" 0 3600 0
    python3 - "$TABLE" <<'P' # each place has another name's history
import sys
with open(sys.argv[1], "r+b") as f:
    whole = f.read()
    page = whole.index(b"\t3600000\t") // 4096 * 4096
    f.seek(16 + 32)
    f.write(b"\xff" * 128)
    for number in range(1024):
        f.seek((97 + 256 + number) * 4096)
        f.write(whole[page:page + 4096])
P
    sleep 3.1 # until then these are in use
    dlock job true
    equals "$(past)" 0
}

@test "the lock file is removed, and the next run ends just before the lost run is recorded: the next run stays the last" {
    is_stopped() { grep -q '^State:[[:space:]]T' "/proc/$lost/status"; }
    local lost status=0
    LD_PRELOAD=$HELPERS/fault_stop_at.so dlock -q job -- sleep 60 3>&- 4>&- &
    lost=$!
    wait_until 10 eval '[ "$(memory job "s[\"command\"]")" = sleep ]'
    touch "$T/stop_at_section"
    rm "$LOCK"
    wait_until 10 is_stopped # before the section of its own file
    touch "$T/stop_at_section"
    kill -CONT "$lost"
    wait_until 10 not test -e "$T/stop_at_section"
    wait_until 10 is_stopped # before the section of the file that the next holder may have created
    dlock job true
    kill -CONT "$lost"
    wait "$lost" || status=$?
    equals "$status" 124
    equals "$(memory job '(r["command"], failures)')" "('true', 0)"
    [ ! -e "$LOCK" ]
}
