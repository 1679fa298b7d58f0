#!/usr/bin/env bats
# --attach: the lock is held until the calling script ends, however it ends.
load backend
load ../lib/attach

waits() { dlock --status job | grep -q '1 waiting'; }

# --- the life of the lock ---------------------------------------------------

@test "a conflict exit code configured as 0 still ends a script whose lock is held by another" {
    script job <<<"dlock --attach job || exit; $stay"
    start job
    mkdir -p "$HOME/.config/dlock"
    printf '%s\n' '[lock job]' 'nonblock = yes' 'conflict-exit-code = 0' >"$HOME/.config/dlock/dlock.conf"
    script other <<<'dlock --attach job || exit; touch "$T/ran"'
    run "$T/other"
    equals "$status" 75
    script other <<<'dlock --attach -E 0 job || exit; touch "$T/ran"'
    run "$T/other"
    [[ $status = 64 && $output == *'--conflict-exit-code: with --attach, status 0 means that the lock was acquired'* ]]
    [ ! -e "$T/ran" ]
    end_script
    released
}

@test "a script with --attach in its first line holds the lock until it ends, without a message" {
    script job <<<"dlock --attach job || exit; $stay; exit 7"
    start job
    is_locked job
    fails_with 75 '' dlock -n job true
    equals "$(guards | wc -w)" 1
    end_script 7
    released
    equals "$(cat "$T/out" "$T/err")" ''
}

@test "a script gives the lock back within a second, however it ends" {
    local way begin
    script job <<<"dlock --attach job || exit; $stay"
    for way in KILL TERM INT SEGV; do
        start job
        kill "-$way" "$SCRIPT" || true
        [ "$way" != INT ] || touch "$T/end" # SIGINT is ignored in the background
        begin=$(now)
        wait "$SCRIPT" || true
        released
        within 1000 "$begin"
    done
}

@test "the next script with -n is not refused while the previous one's guard gives the lock back" {
    local guard begin
    script job <<<"dlock --attach -n job || exit; $stay"
    start job
    guard=$(guards)
    kill -STOP "$guard"
    end_script
    begin=$(now)
    fails_with 75 '^dlock: job: held by .*has ended' dlock -v -n job true
    within 0 "$begin"
    { sleep 0.1 && kill -CONT "$guard"; } 3>&- 4>&- &
    run dlock -n job echo ran
    equals "$status $output" '0 ran'
    released
}

@test "the next script with -n is not refused, either, if the lock is a --lock-file" {
    [ "$BACKEND" = file ] || skip 'a file'
    local guard
    run sh -c "for i in 1 2 3 4 5 6 7 8 9 10; do sh -c 'dlock --attach -n --lock-file=$T/exact || exit' || exit; done"
    equals "$status $output" '0 '
    # dlock waits for a guard that has not released the lock of an ended script, even a slow one.
    script job <<<"dlock --attach -n --lock-file=$T/exact || exit; $stay"
    start job
    guard=$(guards)
    kill -STOP "$guard"
    end_script
    { sleep 0.1 && kill -CONT "$guard"; } 3>&- 4>&- &
    run dlock -n --lock-file="$T/exact" echo ran
    equals "$status $output" '0 ran'
    flock -o "$T/exact" sleep 600 3>&- 4>&- &
    echo $! >"$T/other.pid"
    wait_until 10 not flock -n "$T/exact" true
    run dlock --attach -n --lock-file="$T/exact"
    equals "$status" 75
}

@test "a script whose lock is held by another: 75, and its || exit ends it; with -w it waits for its turn" {
    hold_lock job
    script job <<<'dlock -n --attach job || exit; echo ran'
    run "$T/job"
    equals "$status $output" '75 '
    end_hold
    wait "$HOLDER"
    script job <<<'dlock -n -E 9 --attach job || exit; echo ran'
    run "$T/job"
    equals "$status $output" '0 ran'
    released
    hold_lock job
    script job <<<'dlock -w 20 --attach job || exit; echo ran'
    "$T/job" >"$T/out" 3>&- 4>&- &
    local script=$!
    wait_until 10 waits
    end_hold
    wait "$script"
    equals "$(cat "$T/out")" ran
    released
}

@test "a script with two locks: each has its own guard" {
    script job <<<"dlock --attach a && dlock --attach b || exit; $stay"
    start job
    is_locked a
    is_locked b
    equals "$(guards | wc -w)" 2
    end_script
    released a
    released b
}

@test "attaching the same lock again in the script, in what it runs or becomes, or inside a dlock: already held" {
    script job <<<"dlock --attach job || exit; dlock -v --attach job; sh -c 'dlock -n --attach job; dlock -n job echo inside'; $stay"
    start job
    equals "$(guards | wc -w)" 1
    end_script
    released
    grep -q "job (pid $SCRIPT) is already running under the lock; nothing was acquired" "$T/err"
    equals "$(cat "$T/out")" inside
    script job <<<'dlock -v --attach job || exit; echo ran'
    run timeout 20 dlock job "$T/job"
    equals "$status" 0
    [[ $output == *'is already running under the lock'*ran* ]]
    is_unguarded
    is_clean job
    script job <<<'dlock --attach job || exit; exec dlock job -- echo ran'
    run timeout 20 "$T/job"
    equals "$status $output" '0 ran'
    released
}

@test "a shared lock or a slot that the script holds is not acquired again" {
    local mode
    for mode in --shared --slots=2; do
        script job <<<"dlock $mode --attach job || exit; dlock -v $mode --attach job; dlock -v $mode job echo inside; $stay"
        start job
        equals "$(guards | wc -w)" 1
        dlock -n "$mode" job true
        fails_with 75 '' dlock -n job true
        end_script
        released
        equals "$(grep -cE 'already (holds|running under) the lock' "$T/err")" 2
        equals "$(cat "$T/out")" inside
    done
}

@test "--attach=PID holds the lock for that process's life; inside another process's lock it is held by another" {
    sleep 60 3>&- 4>&- &
    local other=$!
    echo "$other" >"$T/other.pid"
    row_holds 75 '' timeout 20 dlock job -- dlock -n "--attach=$other" job
    is_clean job
    dlock "--attach=$other" job
    is_locked job
    kill -KILL "$other"
    released
}

@test "--json prints the lease, even if the lock is already held" {
    script job <<<'dlock --json --attach --owner=me --prefix=dlock:s: job || exit; dlock --json --attach --prefix=dlock:s: job'
    run "$T/job"
    equals "$status" 0
    run python3 - "${lines[@]}" <<'P'
import datetime, json, sys
lease, again = map(json.loads, sys.argv[1:3])
begin, end = (datetime.datetime.fromisoformat(lease.pop(name).replace("Z", "+00:00")) for name in ("acquired_at", "expires_at"))
print(abs((end - begin).total_seconds() - 3600) < 3, lease.pop("fence") > 1000000, lease)
print(again)
P
    equals "$output" "True True {'key': 'job', 'scope': None, 'full_key': 'dlock:s:job', 'acquired': True, 'owner': 'me', 'mode': 'exclusive'}
{'key': 'job', 'scope': None, 'full_key': 'dlock:s:job', 'acquired': True, 'owner': None, 'fence': None, 'acquired_at': None, 'expires_at': None, 'mode': 'exclusive'}"
    released s:job
}

@test "the guard keeps none of the caller's descriptors, directory or session" {
    mkdir "$T/there"
    script job /bin/bash <<<"exec 9>'$T/file'; flock 9; cd '$T/there'; dlock --attach job || exit; exec 9>&-; $stay"
    start job
    flock -n "$T/file" true
    local guard
    guard=$(guards)
    equals "$(readlink "/proc/$guard/cwd")" /
    equals "$(readlink "/proc/$guard/fd/0") $(readlink "/proc/$guard/fd/1") $(readlink "/proc/$guard/fd/2")" "/dev/null /dev/null $T/err"
    equals "$(ps -o sid= -p "$guard" | tr -d ' ')" "$guard"
    end_script
    released
}

@test "a relative lock directory stays the same one if the script changes its directory" {
    cd "$T"
    script job <<<"dlock --lock-dir=locks -t 4s --attach job || exit; $stay"
    start job
    is_locked job
    sleep 1.2 # the lock is checked every second
    is_locked job
    end_script
    released
    equals "$(cat "$T/err")" ''
}

# --- bad targets ------------------------------------------------------------

# --- what ends the start ----------------------------------------------------

@test "a signal ends the wait and leaves nothing" {
    hold_lock job
    dlock --attach job 3>&- 4>&- &
    local waiter=$! status=0
    wait_until 10 waits
    kill -TERM "$waiter"
    wait "$waiter" || status=$?
    equals "$status" 143
    end_hold
    wait "$HOLDER"
    released
}

@test "the target ends during the wait for its lock: the wait ends" {
    hold_lock job
    sleep 60 3>&- 4>&- &
    local other=$! status=0
    dlock "--attach=$other" job 2>"$T/err" 3>&- 4>&- &
    local waiter=$!
    wait_until 10 waits
    kill -KILL "$other"
    wait "$waiter" || status=$?
    equals "$status" 64
    grep -q "process $other ended before the lock was acquired for it; nothing is locked" "$T/err"
    is_locked job
    end_hold
    wait "$HOLDER"
    released
}

@test "a guard that cannot watch the script: exit 71, and the lock is given back" {
    fails_with 71 'cannot start the thread that watches the lease: .*; nothing is locked' \
        env LD_PRELOAD="$HELPERS/fault_pthread_create.so" dlock --attach job
    released
}

# attach_slowly: runs --attach for a process of its own, whose guard is stopped
# before it watches; DLOCK_PID, GUARD and OTHER are the pids.
attach_slowly() {
    sleep 60 3>&- 4>&- &
    OTHER=$!
    echo "$OTHER" >"$T/other.pid"
    LD_PRELOAD=$HELPERS/fault_pthread_create_stops.so dlock "$@" "--attach=$OTHER" job 2>"$T/err" 3>&- 4>&- &
    DLOCK_PID=$!
    wait_until 10 stands_still
    GUARD=$(guards)
    is_locked job
}
stands_still() { grep -q '^State:.T' "/proc/$(guards)/status"; }

@test "a signal while the guard starts: dlock dies by it, the lock is given back, the target lives on" {
    local status=0
    attach_slowly
    kill -INT "$DLOCK_PID"
    kill -TERM "$DLOCK_PID"
    wait "$DLOCK_PID" || status=$?
    [ "$status" -eq 143 ] || [ "$status" -eq 130 ]
    wait_until 5 is_clean job
    wait_until 5 is_unguarded
    kill -0 "$OTHER"
}

@test "dlock is killed while the guard starts: the guard gives the lock back" {
    attach_slowly
    kill -KILL "$DLOCK_PID"
    wait "$DLOCK_PID" || true
    kill -CONT "$GUARD"
    released
    kill -0 "$OTHER"
}

@test "the guard is killed while it starts: exit 71, and the lock is given back" {
    local status=0
    attach_slowly
    kill -KILL "$GUARD"
    wait "$DLOCK_PID" || status=$?
    equals "$status" 71
    grep -q 'the process that guards the lock was killed; nothing is locked' "$T/err"
    wait_until 5 is_clean job
}

@test "the lease ends before the guard has started: exit 71" {
    local status=0
    attach_slowly -t 4s
    wait "$DLOCK_PID" || status=$?
    equals "$status" 71
    grep -q 'the process that guards the lock did not start in time; nothing is locked' "$T/err"
    wait_until 5 is_clean job
    wait_until 5 is_unguarded
    kill -0 "$OTHER"
}

# --- the end of the lease ---------------------------------------------------

@test "the lease ends: the script gets TERM, and the reason is printed" {
    script job <<<"trap 'echo got TERM; exit 3' TERM; dlock -t 2s --grace=1s --attach job || exit; $stay"
    start job
    local status=0
    wait "$SCRIPT" || status=$?
    equals "$status $(cat "$T/out")" '3 got TERM'
    released
    grep -qE "job: the lease of 2s ends in [0-9]+ms; stopping job \(pid $SCRIPT\) with SIGTERM; use a longer --ttl" "$T/err"
    [[ $(dlock --status --json job) == *'"losses":1'* ]]
}

@test "a script that ignores TERM is killed with all that it runs before the lease ends" {
    script child <<<"trap '' TERM; echo \$\$ >>\"\$T/pids\"; [ \$1 = 0 ] && sleep 60 || \"\$T/child\" \$((\$1 - 1)); :"
    script job <<<"trap '' TERM; dlock -t 2s --attach job || exit; setsid \"\$T/child\" 3 & \"\$T/child\" 3 & sleep 60 & $stay"
    start job
    all_run() { [ "$(wc -l <"$T/pids")" -eq 8 ]; }
    wait_until 10 all_run
    local begin status=0 pid
    begin=$(now)
    wait "$SCRIPT" || status=$?
    equals "$status" 137
    released
    within 2000 "$begin"
    while read -r pid; do not lives "$pid"; done <"$T/pids"
}

@test "the script ends on TERM but its processes do not: the lock is held until they are killed too" {
    script child <<<"trap '' TERM; echo \$\$ >\"\$T/child.pid\"; while :; do sleep 0.01; done"
    script job <<<"dlock -t 3s --grace=2s --attach job || exit; \"\$T/child\" & $stay"
    start job
    wait_until 10 test -s "$T/child.pid"
    local status=0
    wait "$SCRIPT" || status=$?
    equals "$status" 143
    lives "$(cat "$T/child.pid")"
    is_locked job
    dlock -w 20 job touch "$T/next"
    not lives "$(cat "$T/child.pid")"
    released
}

@test "a stopped script never reaches its next step, whichever of its processes ends first" {
    local i status
    script job /bin/bash <<<'dlock --attach job || exit; for i in {1..20}; do sleep 60 & done; touch "$T/here"; wait %1; echo published >>"$T/published"'
    for i in {1..10}; do
        status=0
        start job
        steal job
        wait "$SCRIPT" || status=$?
        equals "$status" 143
        wait_until 5 is_unguarded
    done
    [ ! -e "$T/published" ]
}

@test "with almost no free descriptors the script's processes are stopped with it, or nothing is locked" {
    local limit status
    script job <<<"ulimit -n \$1; dlock --attach -t 600ms --grace=200ms job\$1 || exit
        sh -c 'trap \"\" TERM; echo \$\$ >\"\$0\"; sleep 600; :' \"\$T/pid\$1\" & sleep 600"
    for limit in {10..24}; do
        "$T/job" "$limit" >/dev/null 2>"$T/err$limit" 3>&- 4>&- &
        echo "$!" >"$T/job$limit.pid"
    done
    for limit in {10..24}; do
        status=0
        wait "$(cat "$T/job$limit.pid")" || status=$?
        echo "limit $limit: $status, $(cat "$T/err$limit")"
        [ "$status" -eq 143 ] || grep -q 'Too many open files' "$T/err$limit"
        wait_until 5 is_clean "job$limit"
        [ ! -s "$T/pid$limit" ] || not lives "$(cat "$T/pid$limit")"
    done
    equals "$status" 143
    wait_until 5 is_unguarded
}

@test "processes outside the script's tree, and those of other users, are left alone" {
    sleep 60 3>&- 4>&- &
    echo $! >"$T/other.pid"
    script job <<<"dlock -t 1s --attach job || exit; $stay"
    start job
    wait "$SCRIPT" || true
    released
    kill -0 "$(cat "$T/other.pid")"
}

@test "a script suspended by SIGSTOP is killed too" {
    script job <<<"dlock -t 1s --attach job || exit; kill -STOP \$\$; $stay"
    "$T/job" >/dev/null 2>"$T/err" 3>&- 4>&- &
    local status=0
    wait $! || status=$?
    [ "$status" -gt 128 ]
    released
}

@test "a lost lock: the script is stopped at once, with a message" {
    script job <<<"trap 'exit 3' TERM; dlock --attach job || exit; $stay"
    local way
    for way in steal overwrite; do
        start job
        local status=0 begin=$(now)
        "$way" job
        wait "$SCRIPT" || status=$?
        equals "$status" 3
        within 2000 "$begin" # the next check is after ten seconds
        wait_until 5 is_unguarded
        grep -q "job: the lock is lost: .*; stopping job (pid $SCRIPT) with SIGTERM" "$T/err"
        [ "$way" = steal ] || steal job
    done
}

@test "--on-expire=warn: one line is printed, and the script runs on" {
    script job <<<"dlock -q -t 500ms --on-expire=warn --attach job || exit; $stay; exit 4"
    start job
    wait_until 10 grep -q "the lease of 500ms has ended; job (pid $SCRIPT) keeps running without the lock" "$T/err"
    end_script 4
    wait_until 5 is_unguarded
    equals "$(wc -l <"$T/err")" 1
}

@test "a script frozen with its guard beyond the lease is stopped on waking, whichever wakes first" {
    local first second guard status
    for first in guard script; do
        script job <<<"dlock -t 1500ms --attach job || exit; $stay"
        start job
        guard=$(guards)
        kill -STOP "$guard" "$SCRIPT"
        sleep 1.6 # the test is about the passing of the lease
        [ "$first" = guard ] && second=$SCRIPT first=$guard || { second=$guard first=$SCRIPT; }
        kill -CONT "$first"
        sleep 0.1
        kill -CONT "$second" 2>/dev/null || true
        status=0
        wait "$SCRIPT" || status=$?
        [ "$status" -gt 128 ]
        wait_until 5 is_unguarded
        grep -qE 'the lease (of .* has|of .* ends|had) |the lock (is|was) lost' "$T/err"
        steal job >/dev/null 2>&1 || true
    done
}

@test "the host is suspended beyond the lease: the script is stopped on waking, with a message" {
    script job <<<"dlock -t 1h --attach job || exit; $stay"
    with_suspends start job
    local status=0
    suspended 3601
    wait_until 20 not lives "$SCRIPT"
    wait "$SCRIPT" || status=$?
    [ "$status" -gt 128 ]
    wait_until 5 is_unguarded
    grep -q 'the lease of 1h has ended' "$T/err"
}

@test "the script ends after its lease while the guard is frozen: the overrun is reported" {
    script job <<<"dlock -t 1s --attach job || exit; $stay"
    start job
    local guard
    guard=$(guards)
    kill -STOP "$guard"
    sleep 1.2 # the test is about the passing of the lease
    end_script
    kill -CONT "$guard"
    wait_until 5 is_unguarded
    grep -qE 'the lease had already ended when dlock saw that job .* had ended|the lock was lost before job' "$T/err"
}

@test "the guard is killed: nothing stops the script, and the lock expires" {
    script job <<<"dlock -t 4s --attach job || exit; $stay"
    start job
    kill -KILL "$(guards)"
    wait_until 10 dlock -n job true
    end_script
    is_clean job
}

# --- the lock in the script's hands -----------------------------------------

@test "dlock --release without a name in the script: the lock is released, the guard ends, the script runs on" {
    script job <<<"dlock --attach job || exit; dlock --release || exit; $stay"
    start job
    wait_until 5 is_unguarded
    is_clean job
    end_script
    equals "$(cat "$T/err")" ''
}

@test "a second dlock --release without a name: already released, and the lock around the script stays" {
    script job <<'E'
dlock --attach job || exit
dlock --release || exit
for action in --release --extend --release; do
    dlock $action && exit 1
done
for name in first second; do dlock --attach $name || exit; done
dlock --release || exit
until dlock --release 2>/dev/null; do sleep 0.01; done # the second lock's guard ends meanwhile
dlock --release && exit 1
dlock --current
E
    run dlock outer "$T/job"
    equals "$status" 0
    equals "$(grep -c ': already released$' <<<"$output")" 4
    grep -q '^outer (' <<<"$output"
    dlock --current || equals $? 1 # removes what a guard has left behind
    released job
}

@test "the guard is killed: dlock --release without a name releases no lock around the script" {
    script job <<<"dlock --attach job || exit; $stay; dlock --release; dlock --current"
    dlock outer "$T/job" >"$T/out" 2>"$T/err" 3>&- 4>&- &
    SCRIPT=$!
    wait_until 10 test -e "$T/here"
    kill -KILL "$(guards)"
    wait_until 5 is_unguarded
    end_script
    equals "$(cut -d' ' -f1 "$T/out")" outer
    steal job >/dev/null 2>&1 || true
}

@test "dlock --extend without a name in the script: the script outlives its first lease" {
    script job <<<'dlock -t 2s --attach job || exit; dlock --extend -t 20s || exit; sleep 2.5; echo ran'
    run "$T/job"
    equals "$status ${lines[-1]}" '0 ran'
    released
}

@test "dlock --current in the script lists the locks, the innermost first" {
    script inner <<<'dlock --attach c && dlock --attach d && dlock e dlock --current --json'
    script job <<<'dlock --attach b || exit; dlock --current --json; dlock a "$T/inner"; exit'
    run dlock outer "$T/job"
    equals "$status" 0
    equals "$(grep -oE '"key":"[^"]*"' <<<"$output" | cut -d'"' -f4 | sed 's/^dlock://' | tr '\n' ' ')" 'b outer e d c a b outer '
    released b
}

@test "the files that a killed guard leaves are ignored and removed" {
    script job <<<"dlock --attach job || exit; $stay; dlock --current"
    start job
    kill -KILL "$(guards)"
    wait_until 5 is_unguarded
    end_script 1
    dlock --current || equals $? 1 # the script has ended now
    equals "$(find "$T/locks" -name '.attached-*')" ''
    steal job >/dev/null 2>&1 || true
}

@test "nonsense in the file of an attachment is ignored" {
    echo text >"$T/precious"
    script job <<<"dlock --attach job || exit
        for text in '' x '1 1' '99999999999999999999999999 1 file a dlock:b' \"\$(printf %09000d 0)\"; do
            echo \"\$text\" >\$T/locks/.attached-\$\$-x; flock \$T/locks/.attached-\$\$-x dlock --current || exit
        done
        mkdir \$T/locks/.attached-\$\$-dir; mkfifo \$T/locks/.attached-\$\$-fifo; ln -s \$T/precious \$T/locks/.attached-\$\$-link
        dlock --current"
    run "$T/job"
    equals "$status" 0
    equals "$(grep -c job <<<"$output")" 6
    rm -r "$T"/locks/.attached-*
    released
}
