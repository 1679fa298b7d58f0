#!/usr/bin/env bats
# Everything that the command has started, wherever it went.
load backend

@test "descendants are stopped with the command, also those in another session" {
    run dlock -t 1s job -- sh -c "setsid sh -c 'echo \$\$ >$T/daemon; trap \"\" TERM; while :; do sleep 0.01; done' & sleep 60"
    [ "$status" -eq 124 ]
    [ -s "$T/daemon" ]
    gone "$(cat "$T/daemon")"
}

@test "descendants get SIGTERM before the lease ends, also those in another session" {
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

@test "processes that dlock did not start are left alone, and not waited for" {
    run bash -c 'sleep 600 >/dev/null 2>&1 3>&- 4>&- & echo $! >"$T/other.pid"; exec dlock -t 500ms job -- sleep 60'
    [ "$status" -eq 124 ]
    kill -0 "$(cat "$T/other.pid")"
}

@test "dlock killed with SIGKILL takes its command along" {
    hold_lock job -t 2s
    kill -KILL "$HOLDER"
    wait_until 5 gone "$(cat "$T/held")"
    # And its lock clears by itself.
    run dlock -w 20 job echo ok
    equals "$output" ok
}

# Waits until the guard of the dlock with this pid has looked around.
wait_for_guard() {
    wait_until 10 pgrep -P "$1" -x dlock-guard
    local guard
    guard=$(pgrep -P "$1" -x dlock-guard)
    wait_until 10 grep -q '^State:.S' "/proc/$guard/status"
}

@test "dlock killed with SIGKILL: the command's descendants are killed too" {
    dlock -t 60s job -- sh -c 'setsid sh -c "echo \$\$ >$T/session; sleep 600; :" &
        env -i sleep 600 & echo $! >"$T/bare"
        (sh -c "echo \$\$ >$T/orphan; sleep 600; :" &)
        sh -c "echo \$\$ >$T/child; sleep 600; :"; :' >/dev/null 2>&1 3>&- 4>&- &
    local dlock=$! pid
    wait_until 10 eval '[ -s "$T/session" ] && [ -s "$T/bare" ] && [ -s "$T/orphan" ] && [ -s "$T/child" ]'
    wait_for_guard "$dlock"
    kill -KILL "$dlock"
    for pid in session bare orphan child; do wait_until 5 gone "$(cat "$T/$pid")"; done
    wait_until 5 not pgrep -P "$(cat "$T/child")"
}

@test "dlock killed with SIGKILL: later descendants that have left their parent are killed too" {
    daemon
    dlock -t 60s job -- sh -c 'echo $$ >"$T/command"; until [ -e "$T/go" ]; do sleep 0.01; done
        python3 "$T/daemon.py" 600 0 "$(printf "a\nb) R 1")"; sleep 600; :' >/dev/null 2>&1 3>&- 4>&- &
    local dlock=$! guard
    wait_until 10 test -s "$T/command"
    wait_for_guard "$dlock"
    guard=$(pgrep -P "$dlock" -x dlock-guard)
    kill -STOP "$guard" # it looks no more
    touch "$T/go"
    wait_until 10 test -s "$T/daemon"
    kill -KILL "$dlock"
    wait_until 5 gone "$(cat "$T/command")"
    kill -0 "$(cat "$T/daemon")"
    # A file lock is held until nobody is left.
    is_locked job
    kill -CONT "$guard"
    wait_until 5 gone "$(cat "$T/daemon")"
    wait_until 5 gone "$guard"
    [ "$BACKEND" = redis ] || dlock -n job true
}

@test "dlock killed with SIGKILL: a process that only shares its owner token, session or user is left alone" {
    # What an ended run of the same lock has left starts another process during the next one.
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

@test "dlock killed while it kills what it has stopped: no process is left, nor left stopped" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    LD_PRELOAD=$HELPERS/fault_killed_at_kill.so run dlock -t 1s --grace=100ms job -- \
        sh -c 'trap "" TERM; echo $$ >"$T/command"; (sleep 600; :) & echo $! >"$T/child"; sleep 600; :'
    equals "$status" 137
    wait_until 5 gone "$(cat "$T/command")"
    wait_until 5 gone "$(cat "$T/child")"
}

# A daemon as daemons are made: double fork, own session, another name.
daemon() {
    cat >"$T/daemon.py" <<'E'
import ctypes, os, signal, sys, time
if os.fork():
    os.wait()
    sys.exit(int(sys.argv[2]))
os.setsid()
if os.fork():
    os._exit(0)
ctypes.CDLL(None).prctl(15, sys.argv[3].encode() if sys.argv[3:] else b"innocent", 0, 0, 0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for name in os.listdir("/proc/self/fd"):
    try: os.close(int(name))
    except OSError: pass
path = os.environ["T"] + "/daemon"
open(path + ".tmp", "w").write(str(os.getpid()))
os.rename(path + ".tmp", path)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end and not os.path.exists(path + ".end"):
    time.sleep(0.01)
E
}

# lose_daemon ARGUMENTS...: a command that has started such a daemon loses its lock, once the daemon is there.
lose_daemon() {
    local status=0
    daemon
    # shellcheck disable=SC2016
    dlock --grace=200ms job -- sh -c 'python3 "$T/daemon.py" "$@"; sleep 600' sh "$@" 2>/dev/null 3>&- 4>&- &
    wait_until 10 test -s "$T/daemon"
    steal job
    wait $! || status=$?
    equals "$status" 124
    gone "$(cat "$T/daemon")"
    is_clean job
}

@test "what double-forked, called setsid and changed its name is stopped with the command" {
    lose_daemon 600 0
}

@test "a program with a newline and a parenthesis in its name is stopped like any other" {
    lose_daemon 600 0 $'a\nb) R 1'
}

@test "a descendant that outlives the stopped command by ignoring TERM is killed at the deadline, and waited for" {
    daemon
    run dlock -t 6s --grace=1s job -- sh -c "python3 $T/daemon.py 600 0; exec sleep 600"
    equals "$status" 124
    gone "$(cat "$T/daemon")"
}

@test "processes that the command has left on purpose after a normal end are left alone" {
    daemon
    run dlock job -- sh -c "python3 $T/daemon.py 600 0; exit 4"
    equals "$status" 4
    is_clean job
    kill -0 "$(cat "$T/daemon")"
    cp "$T/daemon" "$T/daemon.pid"
}

# A user of dlock, and $T/become, which becomes yet another one, as sudo(8) does.
becomes() {
    [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || skip 'needs root, to become another user'
    user=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent)
    let_others_into "$T"
    "${user[@]}" test -x "$DLOCK" || skip 'another user cannot reach the program'
    findmnt -nT "$T" -o OPTIONS | not grep -qw nosuid || skip 'mounted nosuid'
    install -m 4755 "$(realpath "$(command -v setpriv)")" "$T/become"
    mkdir -m 777 "$T/theirs"
    [ "$BACKEND" = file ] || chmod 777 "$T/redis.sock"
    export DLOCK_LOCK_DIR=$T/theirs/locks
}

@test "what the command has started as another user: dlock waits 10 s for it, and names it" {
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
    grep -q "1 process of the command cannot be killed, one of them is pid $(cat "$T/in.pid")\$" "$T/err"
    "${user[@]}" "$DLOCK" -n job true
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
    wait_until 10 grep -q 'the command has not ended: killing it' "$T/err"
    if [ "$BACKEND" = file ]; then
        sleep 0.2 # the lease is over now
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

@test "orphans of the command that end are reaped while it runs" {
    dlock job -- sh -c 'i=0; while [ $i -lt 20 ]; do (sh -c "sleep 0.05 & exit" &); i=$((i + 1)); done
        touch "$T/left"; while [ ! -e "$T/end" ]; do sleep 0.05; done' 3>&- 4>&- &
    local dlock=$!
    wait_until 10 test -e "$T/left"
    no_zombies() { ! ps -o stat= --ppid "$dlock" | grep -q Z; }
    wait_until 10 no_zombies
    touch "$T/end"
    wait "$dlock"
}

@test "a fork bomb that races the walk loses" {
    [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || skip 'only root can become a user without other processes'
    cat >"$T/bomb.py" <<'E'
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(0.3)
while True:
    try: os.fork()
    except OSError: pass
E
    local user=$((60000 + RANDOM % 5000)) status=0 dir
    # Where that user can reach it.
    dir=$(mktemp -d /tmp/dlock-bomb.XXXXXX)
    cp "$(realpath "$DLOCK")" "$dir/dlock" && cp "$T/bomb.py" "$dir" && chmod 755 "$dir" "$dir"/* && chown -R "$user" "$dir"
    HOME=/nonexistent timeout 60 setpriv --reuid="$user" --regid="$user" --clear-groups prlimit --nproc=60 \
        "$dir/dlock" --backend=file --lock-dir="$dir" -t 2s job -- python3 "$dir/bomb.py" >/dev/null 2>&1 3>&- 4>&- || status=$?
    rm -rf "$dir"
    equals "$status" 124
    not pgrep -u "$user"
}

@test "processes that live for a moment only, each forking the next, are caught" {
    cat >"$T/hop.py" <<'E'
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for i in range(3):
    if os.fork() == 0:
        os.setsid()
        mark = os.environ["T"] + "/hop%d" % i
        while True:
            if os.fork():
                os._exit(0)
            os.close(os.open(mark, os.O_CREAT | os.O_TRUNC | os.O_WRONLY))
time.sleep(600)
E
    local status=0
    dlock --grace=200ms job -- python3 "$T/hop.py" 2>/dev/null 3>&- 4>&- &
    wait_until 20 eval '[ -e "$T/hop0" ] && [ -e "$T/hop1" ] && [ -e "$T/hop2" ]'
    steal job
    wait $! || status=$?
    equals "$status" 124
    rm "$T"/hop?
    sleep 0.2 # what was missed would make them again
    [ -z "$(ls "$T"/hop? 2>/dev/null)" ]
}

@test "if the kernel does not list children, they are still found" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    export LD_PRELOAD=$HELPERS/fault_no_children.so
    lose_daemon 600 0
}

@test "--tree: the guard's first word is lost: the command that runs is not said not to" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    [ "$BACKEND" = file ] || skip 'the first word is the server'"'"'s'
    LD_PRELOAD=$HELPERS/fault_recv.so run dlock --tree job -- sh -c 'echo ran; exit 7'
    equals "$status $output" '7 ran'
}

@test "dlock killed before its child has asked to die with it: no command runs" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    LD_PRELOAD=$HELPERS/fault_parent_dies.so run dlock job touch "$T/ran"
    equals "$status" 137
    sleep 0.2
    [ ! -e "$T/ran" ]
}

# --- --tree --------------------------------------------------------------

@test "--tree: the lock is held until the last descendant has gone; the status is the command's" {
    daemon
    dlock -v --tree job -- python3 "$T/daemon.py" 600 6 2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0
    wait_until 10 grep -q 'the command has ended; waiting for the processes it started' "$T/err"
    is_locked job
    kill -0 "$(cat "$T/daemon")"
    touch "$T/daemon.end"
    wait "$dlock" || status=$?
    equals "$status" 6
    is_clean job
}

@test "--tree: exit statuses, signals and errors are as without" {
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

@test "--tree: no process for the command: exit 71, the lock is released" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    LD_PRELOAD=$HELPERS/fault_vfork.so fails_with 71 'cannot start a process for the command: Resource temporarily' \
        dlock --tree job touch "$T/ran"
    [ ! -e "$T/ran" ]
    is_clean job
}

@test "--tree: all are stopped when the lease ends, also when the command itself has ended" {
    daemon
    run dlock --tree -t 5s job -- python3 "$T/daemon.py" 600 0
    equals "$status" 124
    gone "$(cat "$T/daemon")"
    is_clean job
}

@test "--tree: dlock killed with SIGKILL takes command and descendants along" {
    daemon
    dlock --tree job -- sh -c "python3 $T/daemon.py 600 0; echo \$\$ >$T/command; sleep 600" >/dev/null 2>&1 3>&- 4>&- &
    local dlock=$!
    wait_until 10 test -s "$T/command"
    kill -KILL "$dlock"
    wait_until 10 gone "$(cat "$T/command")"
    wait_until 10 gone "$(cat "$T/daemon")"
}

@test "--tree: the guard killed with SIGKILL: the rest is killed, and told" {
    daemon
    dlock --tree job -- sh -c "python3 $T/daemon.py 600 0; echo \$\$ >$T/command; sleep 600" >/dev/null 2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0
    wait_until 10 test -s "$T/command"
    kill -KILL "$(pgrep -P "$dlock")"
    wait "$dlock" || status=$?
    equals "$status" 137
    grep -q 'guards the command for --tree was killed' "$T/err"
    gone "$(cat "$T/command")"
    gone "$(cat "$T/daemon")"
    is_clean job
}

@test "--tree: signals reach the command once, and when it has ended, those that are left" {
    cat >"$T/heirs.sh" <<'E'
bash -c 'trap "echo heir >>$T/got; exit" TERM; echo $$ >$T/heir; while :; do sleep 0.01; done' &
trap 'echo command >>$T/got' USR1
until [ -s $T/heir ]; do sleep 0.01; done
touch $T/ready
until [ -s $T/got ]; do sleep 0.01; done
E
    dlock -v --tree job -- bash "$T/heirs.sh" >/dev/null 2>"$T/err" 3>&- 4>&- &
    local dlock=$!
    wait_until 10 test -e "$T/ready"
    kill -USR1 "$dlock"
    wait_until 10 grep -q 'the command has ended' "$T/err"
    equals "$(cat "$T/got")" command
    kill -TERM "$dlock"
    wait "$dlock"
    equals "$(sort "$T/got" | tr '\n' ' ')" 'command heir '
}

@test "--tree: the guard killed when the command has ended: the rest is killed, never 0" {
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

@test "--tree: a command that is stopped and continued again and again while dlock is frozen: its own status" {
    export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 # which stops the process by itself, and hangs where others do
    run timeout 60 python3 - <<'P'
import os, signal, subprocess, time
dlock = subprocess.Popen(["dlock", "--tree", "job", "--", "sh", "-c", 'echo $$ >"$T/pid.tmp"; mv "$T/pid.tmp" "$T/pid"; until [ -e "$T/go" ]; do sleep 0.01; done; exit 3'])
path = os.environ["T"] + "/pid"
while not os.path.exists(path): time.sleep(0.01)
pid = int(open(path).read())
dlock.send_signal(signal.SIGSTOP)
for i in range(500):
    os.kill(pid, signal.SIGSTOP); time.sleep(0.0005)
    os.kill(pid, signal.SIGCONT); time.sleep(0.0005)
# Its end comes while dlock sleeps.
open(os.environ["T"] + "/go", "w").close()
while os.path.exists(f"/proc/{pid}"): time.sleep(0.01)
dlock.send_signal(signal.SIGCONT)
raise SystemExit(dlock.wait(30))
P
    equals "$status $output" '3 '
}

@test "however many processes dlock did not start, all are left alone" {
    run bash -c 'for i in $(seq 80); do sleep 600 >/dev/null 2>&1 3>&- 4>&- & echo $! >>"$T/others"; done; exec dlock -t 500ms job -- sleep 60'
    equals "$status" 124
    local pid
    while read -r pid; do
        kill -0 "$pid" || { echo "gone: $pid"; false; }
        kill -KILL "$pid"
    done <"$T/others"
}

@test "a descendant with the pid of a process that dlock did not start, and that has ended, is stopped with the command" {
    run python3 "$TESTS/helpers/with_pid.py" "$(sh -c 'echo $$')" true
    [ "$status" -eq 0 ] || skip "no pid can be chosen: $output"
    cat >"$T/command" <<'E2'
#!/bin/bash
touch "$T/end"
pid=$(cat "$T/other.pid")
while kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
python3 "$0.py" "$pid" sh -c 'trap "" TERM; sleep 600 & echo $! >"$T/below.pid"; echo $$ >"$T/same"; mv "$T/same" "$T/same.pid"; while :; do sleep 0.01; done'
E2
    chmod +x "$T/command"
    ln -s "$TESTS/helpers/with_pid.py" "$T/command.py"
    bash -c 'until [ -e "$T/end" ]; do sleep 0.01; done & echo $! >"$T/other.pid"; exec dlock --grace=300ms job "$T/command"' \
        2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0
    wait_until 20 test -e "$T/same.pid"
    equals "$(cat "$T/same.pid")" "$(cat "$T/other.pid")"
    steal job
    wait "$dlock" || status=$?
    equals "$status" 124
    gone "$(cat "$T/same.pid")"
    gone "$(cat "$T/below.pid")"
}
