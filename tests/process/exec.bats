#!/usr/bin/env bats
# The time between the start of the command's process and the end of its exec, which may hang. The store plays no part.
load ../both/backend

# slow HOW [CONTENT]: makes the program $T/slow, whose exec hangs until $T/slow.go exists. False if HOW is not permitted.
slow() {
    local holder status=0
    rm -f "$T"/slow* "$T/ran" "$T/out"
    if [ -n "${2:-}" ]; then echo "$2" >"$T/slow" && chmod +x "$T/slow"; else cp "$BASH" "$T/slow"; fi
    python3 "$TESTS/helpers/hold_exec.py" "$1" "$T/slow" 3>&- 4>&- &
    holder=$!
    echo "$holder" >"$T/slow.holder.pid"
    wait_until 10 eval "[ -e '$T/slow.ready' ] || gone $holder"
    [ -e "$T/slow.ready" ] || { wait "$holder" || status=$?; equals "$status" 77; return 1; }
}

# start OPTION...: starts dlock with this program.
start() {
    dlock -v "$@" job "$T/slow" -c ': >"$T/ran"; sleep 600' >/dev/null 2>"$T/out" 3>&- 4>&- &
    dlock=$!
    echo "$dlock" >"$T/dlock.pid"
    wait_until 10 test -e "$T/slow.held"
}

# ended STATUS: dlock has ended with this status, has reported no start, and no command runs, then or when exec could go on.
ended() {
    local status=0
    wait_until 5 gone "$dlock"
    wait "$dlock" || status=$?
    equals "$status" "$1"
    not grep -q "started $T/slow" "$T/out"
    is_clean job
    : >"$T/slow.go"
    wait_until 5 gone "$(cat "$T/slow.holder.pid")"
    [ ! -e "$T/ran" ]
}

# child_of_dlock OPTION: prints the pid of the command's process.
child_of_dlock() {
    local pid=$dlock
    [ "$1" != --tree ] || pid=$(pgrep -P "$dlock" -x dlock-guard)
    pgrep -P "$pid" -x dlock || pgrep -P "$dlock"
}

# each ORDER: provokes an order of events in all ways in which exec hangs and the command's process is started.
each() {
    local how option preload dlock
    for how in lease fanotify; do
        for option in --hold-at-least=0 --tree; do
            for preload in '' "$HELPERS/fault_clone.so"; do
                [ -z "$preload" ] || [ -z "${SANITIZER:-}" ] || continue
                slow "$how" "${2:-}" || continue
                echo "$how $option $preload" >&2
                FAULT_ERRNO=1 LD_PRELOAD=$preload "$1" "$option"
            done
        done
    done
}

lease_ends() { start "$1" -t 300ms; ended 124; grep -q 'the lease of 300ms' "$T/out"; }
lock_lost() { start "$1"; LD_PRELOAD='' steal job; ended 124; grep -q 'lost' "$T/out"; }
terminated() { start "$1"; kill -TERM "$dlock"; ended 143; }
hung_up_alone() { start "$1"; kill -WINCH "$dlock"; kill -HUP "$dlock"; ended 129; }
child_killed() { start "$1"; kill -KILL "$(child_of_dlock "$1")"; ended 137; }

@test "exec hangs: the lease ends, and the command never runs" { each lease_ends; }

@test "exec hangs: the lock is lost, and the command never runs" { each lock_lost; }

@test "exec hangs: SIGTERM ends dlock at once, and the command never runs" { each terminated; }

@test "exec hangs: SIGWINCH changes nothing, SIGHUP ends dlock at once" { each hung_up_alone; }

@test "exec hangs: the command's process is killed, and no start is reported" { each child_killed; }

# dead PID: the process has ended; init may be slow to reap it.
dead() { gone "$1" || grep -q '^State:.Z' "/proc/$1/status"; }

dlock_killed() {
    start "$1"
    local child
    child=$(child_of_dlock "$1")
    kill -KILL "$dlock"
    wait_until 5 dead "$child"
    : >"$T/slow.go"
    wait_until 5 gone "$(cat "$T/slow.holder.pid")"
    [ ! -e "$T/ran" ]
    dlock -w 5 job true
}
@test "exec hangs: if dlock is killed, so is the command's process" { each dlock_killed; }

let_go() {
    start "$1"
    not grep -q "started $T/slow" "$T/out"
    : >"$T/slow.go"
    wait_until 5 test -e "$T/ran"
    wait_until 5 grep -q "started $T/slow (pid" "$T/out"
    kill -TERM "$dlock"
    wait_until 5 gone "$dlock"
}
@test "exec hangs for a moment: the start is reported once exec has succeeded" { each let_go; }

fails_late() {
    start "$1"
    : >"$T/slow.go"
    ended 127
    grep -q "cannot run $T/slow: No such file or directory" "$T/out"
}
@test "exec hangs, then fails: the message and the status are those of any failed exec" { each fails_late '#!/nowhere/sh'; }

@test "exec hangs beyond the end of the lease: with --on-expire=warn the command still runs" {
    local dlock
    slow lease
    start -t 300ms --on-expire=warn
    wait_until 5 grep -q 'has ended' "$T/out"
    : >"$T/slow.go"
    wait_until 5 test -e "$T/ran"
    kill -TERM "$dlock"
    wait_until 5 gone "$dlock"
}

@test "the guard of --tree is killed while exec hangs: the command never runs" {
    local dlock
    slow lease
    start --tree
    kill -KILL "$(pgrep -P "$dlock" -x dlock-guard)"
    ended 137
}

@test "a signal before the exec of the command ends its process" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    LD_PRELOAD=$HELPERS/fault_signal_at_start.so run dlock -v job touch "$T/ran"
    equals "$status" 143
    [[ $output != *started* ]]
    [ ! -e "$T/ran" ]
    is_clean job
}

@test "a command that ends before dlock has noticed its start is reported as started, then as ended" {
    local dlock child
    slow lease
    dlock -v job "$T/slow" -c ': >"$T/ran"' 2>"$T/out" 3>&- 4>&- &
    dlock=$!
    wait_until 10 test -e "$T/slow.held"
    child=$(child_of_dlock '')
    kill -STOP "$dlock"
    : >"$T/slow.go"
    wait_until 5 dead "$child"
    [ -e "$T/ran" ]
    not grep -q started "$T/out"
    kill -CONT "$dlock"
    wait "$dlock"
    [[ $(cat "$T/out") == *"started $T/slow (pid $child)"*'exited with status 0'* ]]
}

@test "a failing exec in the memory shared with dlock leaves dlock's errno unchanged" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    LD_PRELOAD=$HELPERS/fault_errno_kept.so fails_with 127 'cannot run nosuch: No such file or directory' dlock job nosuch
}

# Each row must do the same as env(1), which calls execvp(3).
@test "the command is found along PATH, and a script without an interpreter line runs in sh" {
    mkdir "$T/refused" "$T/found" "$T/here"
    : >"$T/refused/prog"
    : >"$T/file"
    echo 'echo "$0 $#: $*"' >"$T/found/prog"
    chmod +x "$T/found/prog"
    cp "$T/found/prog" "$T/here/local"
    local env path name sh long
    env=$(type -P env) sh=$(type -P sh)
    long=$(printf '%0300d' 0)
    cd "$T/here"
    for path in "$T/found" "/nosuch:$T/file:$T/refused:$T/found" "$T/refused:/nosuch" ":/nosuch" "/nosuch:" "$T/$long:$T/found" ''; do
        for name in prog local ./local nosuch "$T/found/prog" "$T/found/none" "$T/file/x" "$long" ''; do
            local want got want_status=0 got_status=0
            want=$(PATH=$path "$env" "$name" a 'b c' 2>&1) || want_status=$?
            got=$(PATH=$path "$DLOCK" job "$name" a 'b c' 2>&1) || got_status=$?
            if [ "$want_status" -eq 0 ]; then equals "$got_status $got" "0 $want"; else equals "${got##*: }" "${want##*: }"; fi
        done
    done
    run env -u PATH "$DLOCK" job true
    equals "$status" 0
    # A folder with too long a path is skipped; glibc's execvp(3) searches the current folder instead.
    run env PATH="/$(printf '%05000d' 0):$T/found" "$DLOCK" job local
    equals "$status" 127
    run env PATH="/$(printf '%05000d' 0):$T/found" "$DLOCK" job prog a
    equals "$status $output" "0 $T/found/prog 1: a"
}
