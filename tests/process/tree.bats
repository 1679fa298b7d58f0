#!/usr/bin/env bats
# Which processes are found, stopped and waited for. The store plays no part in this.
load ../both/backend
load ../lib/tree

@test "dlock is killed with SIGKILL: the command's descendants are killed too" {
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

@test "a nested dlock is killed with SIGKILL: its command's processes are killed, their siblings under the outer lock live on" {
    cat >"$T/outer.sh" <<'E'
dlock -t 60s inner -- sh -c 'setsid sh -c "echo \$\$ >$T/below; sleep 600; :" & sleep 600; :' &
echo $! >"$T/inner"
until [ -s "$T/below" ]; do sleep 0.05; done
sh -c 'echo $$ >"$T/sibling"; sleep 600; :'
E
    dlock -t 60s outer -- sh "$T/outer.sh" >/dev/null 2>&1 3>&- 4>&- &
    local outer=$! inner guard
    echo "$outer" >"$T/outer.pid"
    # The sibling is younger than the inner dlock, and has the outer lock in its DLOCK_HELD.
    wait_until 10 test -s "$T/sibling"
    inner=$(cat "$T/inner")
    wait_for_guard "$inner"
    guard=$(pgrep -P "$inner" -x dlock-guard)
    kill -KILL "$inner"
    wait_until 5 gone "$(cat "$T/below")"
    wait_until 5 gone "$guard" # the guard has found nothing more to kill
    kill -0 "$(cat "$T/sibling")"
    kill -KILL "$outer"
    wait_until 5 gone "$(cat "$T/sibling")"
}

@test "dlock is killed while it kills stopped processes: none is left, running or stopped" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    local tree
    for tree in '' --tree; do
        # shellcheck disable=SC2086
        LD_PRELOAD=$HELPERS/fault_killed_at_kill.so run dlock $tree -t 1s --grace=100ms job -- \
            sh -c 'trap "" TERM; echo $$ >"$T/command"; (sleep 600; :) & echo $! >"$T/child"; sleep 600; :'
        equals "$status" 137
        wait_until 5 gone "$(cat "$T/command")"
        wait_until 5 gone "$(cat "$T/child")"
    done
}

@test "a sandbox that refuses pidfd_send_signal(2) with any error: the command and its processes are stopped" {
    local error start
    for error in EPERM EACCES ENOSYS; do
        start=$(now)
        FAULT_ERRNO=$(python3 -c "import errno; print(errno.$error)") LD_PRELOAD=$HELPERS/fault_pidfd_send_signal.so \
            fails_with 124 'stopping the command' timeout -s KILL 20 dlock -t 1s --grace=300ms job -- \
            sh -c 'trap "" TERM; (sleep 600; :) & echo $! >"$T/child"; sleep 600; :'
        within 8000 "$start"
        wait_until 5 gone "$(cat "$T/child")"
    done
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

@test "a fork bomb cannot outrun the kill of its processes" {
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
    # A place that this user can reach.
    dir=$(mktemp -d /tmp/dlock-bomb.XXXXXX)
    cp "$(realpath "$DLOCK")" "$dir/dlock" && cp "$T/bomb.py" "$dir" && chmod 755 "$dir" "$dir"/* && chown -R "$user" "$dir"
    HOME=/nonexistent timeout 60 setpriv --reuid="$user" --regid="$user" --clear-groups prlimit --nproc=60 \
        "$dir/dlock" --backend=file --lock-dir="$dir" -t 2s job -- python3 "$dir/bomb.py" >/dev/null 2>&1 3>&- 4>&- || status=$?
    rm -rf "$dir"
    equals "$status" 124
    not pgrep -u "$user"
}

@test "short-lived processes that each fork the next are caught" {
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
    sleep 0.2 # a process that was missed would make them again
    [ -z "$(ls "$T"/hop? 2>/dev/null)" ]
}

@test "a descendant that has double-forked, called setsid and changed its name, even to one with a newline and a parenthesis, is stopped" {
    lose_daemon 600 0
    rm "$T/daemon"
    lose_daemon 600 0 $'a\nb) R 1'
}

@test "children are found even if the kernel does not list them" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    export LD_PRELOAD=$HELPERS/fault_no_children.so
    lose_daemon 600 0
}

@test "--tree: the guard's report that the command has started is lost: no failed start is reported" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    LD_PRELOAD=$HELPERS/fault_recv.so run dlock --tree job -- sh -c 'echo ran; exit 7'
    equals "$status $output" '7 ran'
}

@test "dlock is killed before its child is tied to its death: no command runs" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    LD_PRELOAD=$HELPERS/fault_parent_dies.so run dlock job touch "$T/ran"
    equals "$status" 137
    sleep 0.2
    [ ! -e "$T/ran" ]
}

@test "--tree: if dlock is killed with SIGKILL, the command and its descendants are killed too" {
    daemon
    dlock --tree job -- sh -c "python3 $T/daemon.py 600 0; echo \$\$ >$T/command; sleep 600" >/dev/null 2>&1 3>&- 4>&- &
    local dlock=$!
    wait_until 10 test -s "$T/command"
    kill -KILL "$dlock"
    wait_until 10 gone "$(cat "$T/command")"
    wait_until 10 gone "$(cat "$T/daemon")"
}

@test "--tree: signals reach the command once, and after its end the processes that are left" {
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

@test "--tree: a command stopped and continued repeatedly while dlock is frozen: its own status is returned" {
    export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 # it stops the process by itself, and hangs where others do
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
# The process ends while dlock sleeps.
open(os.environ["T"] + "/go", "w").close()
while os.path.exists(f"/proc/{pid}"): time.sleep(0.01)
dlock.send_signal(signal.SIGCONT)
raise SystemExit(dlock.wait(30))
P
    equals "$status $output" '3 '
}

@test "processes that dlock did not start are left alone and not waited for, however many they are" {
    run bash -c 'for i in $(seq 80); do sleep 600 >/dev/null 2>&1 3>&- 4>&- & echo $! >>"$T/others"; done; exec dlock -t 500ms job -- sleep 60'
    equals "$status" 124
    local pid
    while read -r pid; do
        kill -0 "$pid" || { echo "gone: $pid"; false; }
        kill -KILL "$pid"
    done <"$T/others"
}

@test "a descendant that reuses the pid of an ended process, which dlock did not start, is stopped with the command" {
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
