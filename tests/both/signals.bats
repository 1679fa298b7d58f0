#!/usr/bin/env bats
load backend

# All signals that end a process by default, except those of a fault; two of the real-time signals.
ENDING=(TERM INT HUP QUIT USR1 USR2 ABRT ALRM VTALRM PROF XCPU IO PWR RTMIN RTMAX)

# All processes of a user share the count of pending signals: with this limit, a flood leaves room
# for the tests that run at the same time, some of which use timer_create(2).
FEW_PENDING=(bash -c 'ulimit -i 2000; exec "$@"' bash)

# flood PID: sends real-time signals, which the kernel queues, faster than one process can read them.
flood() {
    local i
    for i in 1 2 3; do
        perl -e 'while (time - $^T < 20) { kill 34, $ARGV[0] or exit }' "$1" 3>&- 4>&- &
    done
}

# bats test_tags=slow
@test "a flood of signals delays neither the lease's end nor the release" {
    local tree start dlock status
    start=$(now)
    # The command ignores the signal: if the kernel's queue is full, the sender is unknown, and dlock passes the signal on.
    fails_with 124 'stopping the command' "${FEW_PENDING[@]}" dlock -t 1s job perl -e '$SIG{RTMIN} = "IGNORE"; $p = getppid; kill 34, $p while time - $^T < 20'
    within 8000 "$start"
    cat >"$T/deaf" <<'E'
#!/bin/bash
trap '' RTMIN TERM
touch "$T/ready"
until [ -e "$T/end" ]; do sleep 0.01; done
E
    chmod +x "$T/deaf"
    for tree in '' --tree; do
        rm -f "$T/ready" "$T/end"
        start=$(now) status=0
        "${FEW_PENDING[@]}" dlock $tree -t 2s job "$T/deaf" 2>/dev/null 3>&- 4>&- &
        dlock=$!
        wait_until 10 test -e "$T/ready"
        flood "$dlock"
        wait "$dlock" || status=$?
        equals "$tree $status" "$tree 124"
        within 9000 "$start"
        rm "$T/ready"
        "${FEW_PENDING[@]}" dlock $tree job "$T/deaf" 3>&- 4>&- &
        dlock=$!
        wait_until 10 test -e "$T/ready"
        flood "$dlock"
        sleep 0.3 # a thousand and more are pending by then
        touch "$T/end"
        start=$(now)
        wait "$dlock"
        within 8000 "$start"
    done
    is_clean job
}

# bats test_tags=slow
@test "signals while the command is being stopped reach it, and change neither the deadline nor the status" {
    cat >"$T/deaf.py" <<'E'
import os, signal, time
def on_signal(number, frame):
    with open(os.environ["T"] + "/got", "a") as got:
        print(signal.Signals(number).name, file=got)
signal.signal(signal.SIGTERM, on_signal)
signal.signal(signal.SIGINT, on_signal)
while True:
    time.sleep(60)
E
    local dlock status=0 start
    start=$(now)
    python3 -c 'import os, signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp("dlock", ["dlock", "-t", "7s", "--grace=3s", "job", "python3", os.environ["T"] + "/deaf.py"])' 2>/dev/null 3>&- 4>&- &
    dlock=$!
    wait_until 10 grep -q TERM "$T/got"
    kill -INT "$dlock"
    wait_until 10 grep -q INT "$T/got"
    kill -INT "$dlock"
    kill -TERM "$dlock"
    twice() { [ "$(grep -c TERM "$T/got")" -ge 2 ]; }
    wait_until 10 twice
    wait "$dlock" || status=$?
    equals "$status" 124
    [ $(($(now) - start)) -ge 6800 ]
    is_clean job
}

# bats test_tags=slow
@test "a signal during the wait ends dlock by that signal, and leaves nothing" {
    hold_lock job
    local signal status
    for signal in "${ENDING[@]}"; do
        status=0
        python3 -c '
import os, signal, subprocess, sys
number = getattr(signal, "SIG" + sys.argv[1])
child = subprocess.Popen(["dlock", "-v", "-w", "60", "job", "touch", os.environ["T"] + "/ran"], stderr=subprocess.PIPE,
                         preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
assert any(b": waiting: held by" in line for line in child.stderr)
child.send_signal(number)
sys.exit(0 if child.wait(20) == -number else 1)' "$signal" || status=$?
        equals "$signal $status" "$signal 0"
    done
    [ ! -e "$T/ran" ]
    end_hold
    wait "$HOLDER"
    is_clean job
}

@test "an alarm set before dlock, as by perl -e 'alarm N; exec @ARGV', ends the command, and the lock is free" {
    run python3 -c 'import os, signal
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.alarm(2)
os.execvp("dlock", ["dlock", "job", "sh", "-c", "touch \"$T/ran\"; exec sleep 60"])'
    equals "$status" 142
    [ -e "$T/ran" ]
    is_clean job
    hold_lock job
    run python3 -c 'import os, signal
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.alarm(2)
os.execvp("dlock", ["dlock", "-v", "-w", "60", "job", "touch", os.environ["T"] + "/early"])'
    equals "$status" 142
    [[ $output == *'waiting: held by'* ]]
    [ ! -e "$T/early" ]
    end_hold
    wait "$HOLDER"
    is_clean job
}

@test "SIGTSTP sent to dlock stops the command; dlock goes on and enforces the lease" {
    hold_lock job -t 2s
    kill -TSTP "$HOLDER"
    wait_until 5 grep -q '^State:.*T' "/proc/$(cat "$T/held")/status"
    local status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
    gone "$(cat "$T/held")"
}

@test "TERM is passed on to the command, which dlock waits for: no orphan is left, unlike with flock(1)" {
    hold_lock job
    local status=0
    kill -TERM "$HOLDER"
    wait "$HOLDER" || status=$?
    equals "$status" 143
    gone "$(cat "$T/held")"
    is_clean job
}

@test "a signal after the lock is acquired and before the command starts reaches the command" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    LD_PRELOAD=$HELPERS/fault_signal_before_fork.so run dlock job sleep 60
    equals "$status" 143
    is_clean job
}

@test "ignored signals stay ignored, by a waiting dlock and by its command" {
    hold_lock job
    run bash -c 'trap "" TERM HUP; dlock -w 20 job -- sh -c "kill -TERM \$\$; kill -HUP \$\$; echo lived" & dlock=$!
        for i in {1..1000}; do dlock --status job | grep -q "1 waiting" && break; sleep 0.01; done
        kill -TERM $dlock; kill -HUP $dlock; touch "$T/held.end"; wait $dlock'
    equals "$output" lived
}

@test "a broken stderr or a full report does not end a command inside the lock" {
    run python3 - <<'P'
import os, subprocess
reader, writer = os.pipe()
os.close(reader)
print(subprocess.call(["dlock", "job", "dlock", "-v", "job", "touch", os.environ["T"] + "/told"], stderr=writer))
P
    equals "$status $output" '0 0'
    [ -e "$T/told" ]
    [[ ${SANITIZER:-} != thread && ${SANITIZER:-} != coverage ]] || return 0 # such a program also writes its own files
    run dlock job -- sh -c 'ulimit -f 0; exec dlock --report="$T/report" job touch "$T/reported"'
    equals "$status" 0
    [[ $output == *'File too large'* ]]
    [ -e "$T/reported" ]
}
