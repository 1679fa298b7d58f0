#!/usr/bin/env bats
# Everything that the command has started is found, wherever it went.
load backend
load ../lib/tree

# bats test_tags=slow
@test "processes that the command started as another user: dlock waits 10 s for them, and names one" {
    becomes
    local dlock status=0 start
    "${user[@]}" "$DLOCK" --owner=me --grace=300ms job -- sh -c '"$T/become" --reuid=65533 --clear-groups -- sh -c "
        echo \$\$ >$T/theirs/new; mv $T/theirs/new $T/theirs/in; exec sleep 600"; :' 2>"$T/err" 3>&- 4>&- &
    dlock=$!
    echo "$dlock" >"$T/dlock.pid"
    wait_until 10 test -e "$T/theirs/in"
    cp "$T/theirs/in" "$T/in.pid"
    start=$(now)
    "${user[@]}" "$DLOCK" --extend --owner=me -t 1s job
    wait "$dlock" || status=$?
    equals "$status" 124
    [ $(($(now) - start)) -ge 10000 ]
    kill -0 "$(cat "$T/in.pid")"
    grep -q "cannot kill 1 process of the command: pid $(cat "$T/in.pid")\$" "$T/err"
    "${user[@]}" "$DLOCK" -n job true
}

# bats test_tags=slow
@test "a descendant that ignores TERM and outlives the stopped command is killed at the deadline, and waited for" {
    daemon
    run dlock -t 6s --grace=1s job -- sh -c "python3 $T/daemon.py 600 0; exec sleep 600"
    equals "$status" 124
    gone "$(cat "$T/daemon")"
}

# bats test_tags=slow
@test "--tree: all processes are stopped when the lease ends, even if the command itself has ended" {
    daemon
    run dlock --tree -t 5s job -- python3 "$T/daemon.py" 600 0
    equals "$status" 124
    gone "$(cat "$T/daemon")"
    is_clean job
}

@test "descendants are stopped with the command, even those in another session" {
    run dlock -t 1s job -- sh -c "setsid sh -c 'echo \$\$ >$T/daemon; trap \"\" TERM; while :; do sleep 0.01; done' & sleep 60"
    [ "$status" -eq 124 ]
    [ -s "$T/daemon" ]
    gone "$(cat "$T/daemon")"
}

@test "descendants get SIGTERM before the lease ends, even those in another session" {
    dlock --owner=me --grace=9s job -- sh -c 'for label in a b; do
        $([ $label = a ] || echo setsid) sh -c "trap \": >$T/$label.term; exit\" TERM; : >$T/$label.in; while :; do sleep 0.01; done" &
        done; wait' 2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0
    echo "$dlock" >"$T/dlock.pid"
    wait_until 10 test -e "$T/a.in"
    wait_until 10 test -e "$T/b.in"
    dlock --extend --owner=me -t 10s job
    wait "$dlock" || status=$?
    equals "$status" 124
    [ -e "$T/a.term" ] && [ -e "$T/b.term" ]
}

# trace_threads PID: traces the process as a debugger does, which does not reap it until $T/reap exists.
trace_threads() {
    rm -f "$T/traced" "$T/reap"
    python3 - "$1" 2>"$T/tracer.err" 3>&- 4>&- <<'P' &
import ctypes, os, sys, time
SEIZE, libc, folder = 0x4206, ctypes.CDLL(None, use_errno=True), os.environ["T"]
for thread in os.listdir(f"/proc/{sys.argv[1]}/task"):
    if libc.ptrace(SEIZE, int(thread), 0, 0) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
open(folder + "/traced", "w").close()
while not os.path.exists(folder + "/reap"):
    time.sleep(0.01)
P
    TRACER=$!
    echo "$TRACER" >"$T/tracer.pid"
    wait_until 10 eval '[ -e "$T/traced" ] || gone "$TRACER"'
    [ -e "$T/traced" ] || skip "no process can be traced here: $(cat "$T/tracer.err")"
}

@test "a killed command that a debugger does not reap counts as ended: dlock exits with 124, and a killed dlock's guard ends" {
    local end tree dlock status
    printf '%s\n' 'import os, threading, time' 'threading.Thread(target=time.sleep, args=(600,)).start()' \
        'open(os.environ["T"] + "/command", "w").write(str(os.getpid()))' 'time.sleep(600)' >"$T/command.py"
    for end in loss kill; do
        for tree in --no-tree --tree; do
            rm -f "$T/command"
            dlock --grace=0.1s $tree job python3 "$T/command.py" 2>"$T/err" 3>&- 4>&- &
            dlock=$!
            echo "$dlock" >"$T/dlock.pid"
            wait_until 10 test -s "$T/command"
            [ $tree = --tree ] || wait_for_guard "$dlock"
            trace_threads "$(cat "$T/command")"
            if [ $end = loss ]; then steal job; else kill -KILL "$dlock"; fi
            status=0
            wait_until 10 gone "$dlock"
            wait "$dlock" || status=$?
            equals "$end $tree $status" "$end $tree $([ $end = kill ] && echo 137 || echo 124)"
            wait_until 10 grep -q '^State:.Z' "/proc/$(cat "$T/command")/status"
            [ "$BACKEND" = redis ] || dlock -w 5 job true
            touch "$T/reap"
            wait "$TRACER"
            [ "$BACKEND" = file ] || redis del dlock:job
        done
    done
}

@test "if dlock is killed with SIGKILL, so is its command" {
    hold_lock job -t 2s
    kill -KILL "$HOLDER"
    wait_until 5 gone "$(cat "$T/held")"
    # The lock becomes free by itself.
    run dlock -w 20 job echo ok
    equals "$output" ok
}

@test "if dlock is killed with SIGKILL, so are later descendants that have left their parent" {
    daemon
    dlock -t 60s job -- sh -c 'echo $$ >"$T/command"; until [ -e "$T/go" ]; do sleep 0.01; done
        python3 "$T/daemon.py" 600 0 "$(printf "a\nb) R 1")"; sleep 600; :' >/dev/null 2>&1 3>&- 4>&- &
    local dlock=$! guard
    wait_until 10 test -s "$T/command"
    wait_for_guard "$dlock"
    guard=$(pgrep -P "$dlock" -x dlock-guard)
    kill -STOP "$guard" # it looks for processes no more
    touch "$T/go"
    wait_until 10 test -s "$T/daemon"
    kill -KILL "$dlock"
    wait_until 5 gone "$(cat "$T/command")"
    kill -0 "$(cat "$T/daemon")"
    # A file lock is held until no process is left.
    is_locked job
    kill -CONT "$guard"
    wait_until 5 gone "$(cat "$T/daemon")"
    wait_until 5 gone "$guard"
    [ "$BACKEND" = redis ] || dlock -n job true
}

@test "if dlock is killed with SIGKILL, a process that only shares its owner token, session or user is left alone" {
    # A process left by an ended run of the same lock starts another one during the next run.
    dlock --owner=ci job -- sh -c 'setsid sh -c "echo \$\$ >$T/before; until [ -e $T/go ]; do sleep 0.01; done
        sleep 600 & echo \$! >$T/heir; wait" & until [ -s "$T/before" ]; do sleep 0.01; done' >/dev/null 2>&1 3>&- 4>&-
    sleep 600 >/dev/null 2>&1 3>&- 4>&- &
    local other=$! dlock guard
    dlock --owner=ci job -- sh -c 'sleep 600 & echo $! >"$T/child"; wait' >/dev/null 2>&1 3>&- 4>&- &
    dlock=$!
    wait_until 10 test -s "$T/child"
    wait_for_guard "$dlock"
    guard=$(pgrep -P "$dlock" -x dlock-guard)
    touch "$T/go"
    wait_until 5 test -s "$T/heir"
    kill -KILL "$dlock"
    wait_until 5 gone "$(cat "$T/child")"
    wait_until 5 gone "$guard"
    kill -0 "$other"
    kill -0 "$(cat "$T/before")"
    kill -0 "$(cat "$T/heir")"
    kill -KILL "$other" "$(cat "$T/before")" "$(cat "$T/heir")"
}

@test "processes that the command leaves behind at a normal end are left alone" {
    daemon
    run dlock job -- sh -c "python3 $T/daemon.py 600 0; exit 4"
    equals "$status" 4
    is_clean job
    kill -0 "$(cat "$T/daemon")"
    cp "$T/daemon" "$T/daemon.pid"
}

# A user for dlock, and $T/become, which changes to another user as sudo(8) does.
becomes() {
    user=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent)
    let_others_into "$T" || skip 'needs root, to become another user, who reaches the program'
    findmnt -nT "$T" -o OPTIONS | not grep -qw nosuid || skip 'mounted nosuid'
    install -m 4755 "$(realpath "$(command -v setpriv)")" "$T/become"
    mkdir -m 777 "$T/theirs"
    [ "$BACKEND" = file ] || chmod 777 "$T/redis.sock"
    export DLOCK_LOCK_DIR=$T/theirs/locks
}

@test "a command that has become another user cannot be stopped: dlock waits for it, and a file lock is held until then" {
    becomes
    local status=0
    "${user[@]}" "$DLOCK" -v --owner=me --grace=300ms job -- "$T/become" --reuid=65533 --clear-groups -- \
        sh -c '>"$T/theirs/in"; until [ -e "$T/end" ]; do sleep 0.03; done' 2>"$T/err" 3>&- 4>&- &
    local dlock=$!
    echo "$dlock" >"$T/dlock.pid"
    wait_until 10 test -e "$T/theirs/in"
    "${user[@]}" "$DLOCK" --extend --owner=me -t 3s job
    wait_until 10 grep -q 'the command has not ended in time; killing it' "$T/err"
    if [ "$BACKEND" = file ]; then
        sleep 0.2 # the lease has ended by now
        fails_with 75 '' "${user[@]}" "$DLOCK" -n job touch "$T/theirs/ran"
        [ ! -e "$T/theirs/ran" ]
    else
        "${user[@]}" "$DLOCK" -w 10 job true
    fi
    kill -0 "$dlock"
    touch "$T/end"
    wait "$dlock" || status=$?
    equals "$status" 124
    "${user[@]}" "$DLOCK" -n job true
}

# --- --tree --------------------------------------------------------------

@test "--tree: the lock is held until the last descendant has ended; the status is the command's" {
    daemon
    dlock -v --tree job -- python3 "$T/daemon.py" 600 6 2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0
    wait_until 10 grep -q 'the command has ended; waiting for its descendants' "$T/err"
    is_locked job
    kill -0 "$(cat "$T/daemon")"
    touch "$T/daemon.end"
    wait "$dlock" || status=$?
    equals "$status" 6
    is_clean job
}

@test "--tree: exit statuses, signals and errors are the same as without it" {
    run dlock --tree job -- sh -c 'exit 7'
    equals "$status" 7
    run dlock --tree job -- sh -c 'kill -USR1 $$'
    equals "$status" 138
    fails_with 127 'cannot run nosuchcommand: No such file' dlock --tree job nosuchcommand
    : >"$T/plain"
    fails_with 126 'Permission denied' dlock --tree job "$T/plain"
    run dlock --tree job -- sh -c 'ls /proc/self/fd | wc -l'
    local with=$output
    run sh -c 'ls /proc/self/fd | wc -l'
    equals "$with" "$output"
    is_clean job
}

@test "--tree: the guard is killed with SIGKILL: the other processes are killed, with a message" {
    daemon
    dlock --tree job -- sh -c "python3 $T/daemon.py 600 0; echo \$\$ >$T/command; sleep 600" >/dev/null 2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0
    wait_until 10 test -s "$T/command"
    kill -KILL "$(pgrep -P "$dlock")"
    wait "$dlock" || status=$?
    equals "$status" 137
    grep -q 'the guard process of --tree was killed' "$T/err"
    gone "$(cat "$T/command")"
    gone "$(cat "$T/daemon")"
    is_clean job
}

@test "--tree: the guard is killed after the command has ended: the other processes are killed, never exit 0" {
    daemon
    dlock -v --tree job -- python3 "$T/daemon.py" 600 0 >/dev/null 2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0
    wait_until 10 grep -q 'the command has ended' "$T/err"
    kill -KILL "$(pgrep -P "$dlock")"
    wait "$dlock" || status=$?
    equals "$status" 137
    gone "$(cat "$T/daemon")"
    is_clean job
}
