#!/usr/bin/env bats
load backend

@test "-n does not wait: exit 75, silent, nothing run" {
    hold_lock job
    run dlock -n job touch "$T/ran"
    [ "$status" -eq 75 ]
    [ -z "$output" ]
    [ ! -e "$T/ran" ]
    for alias in --nb --nonblocking --nonblock --wait=0 '-w 0' --timeout=0s; do
        # shellcheck disable=SC2086
        run dlock $alias job touch "$T/ran"
        [ "$status" -eq 75 ]
    done
    is_locked job
}

@test "-E sets the exit status of a conflict" {
    hold_lock job
    run dlock -n -E 9 job true
    [ "$status" -eq 9 ]
    run dlock --conflict-exit-code=0 --nonblock job true
    [ "$status" -eq 0 ]
}

@test "-v says who holds it and until when" {
    hold_lock job -t 60
    LOGNAME=somebody fails_with 75 'held by .*@.*, pid [0-9]+, .*held\.sh, since .*, whose lease ends in 5[0-9]s' dlock -v -n job true
}

@test "-q is silent about a conflict even with -v before it" {
    hold_lock job
    run dlock -v -q -n job true
    [ "$status" -eq 75 ]
    [ -z "$output" ]
}

@test "-w waits that long and no longer" {
    hold_lock job
    local start end
    start=$(now)
    run dlock -w 300ms job touch "$T/ran"
    end=$(now)
    [ "$status" -eq 75 ]
    [ ! -e "$T/ran" ]
    [ $((end - start)) -ge 300 ]
    [ $((end - start)) -lt 3000 ]
    run dlock -w 1.2 job touch "$T/ran"
    [ "$status" -eq 75 ]
}

@test "a waiter has the lock when its holder ends" {
    hold_lock job
    dlock -w 30 job -- sh -c "[ -e '$T/held.end' ] && echo ran >'$T/ran'" 3>&- &
    local waiter=$!
    wait_until 10 test -d "/proc/$waiter"
    [ ! -e "$T/ran" ]
    end_hold
    wait "$waiter"
    [ -e "$T/ran" ]
    is_clean job
}

@test "twenty at once: never two at the same time, and all of them run" {
    local i
    for i in {1..20}; do
        dlock job -- sh -c "mkdir '$T/inside' && echo x >>'$T/count' && rmdir '$T/inside' || echo overlap >>'$T/bad'" 3>&- &
    done
    wait $(jobs -p | grep -vx "$(cat "$T/redis.pid" 2>/dev/null || echo 0)")
    [ ! -e "$T/bad" ]
    equals "$(wc -l <"$T/count")" 20
    is_clean job
}

@test "other names and prefixes are other locks" {
    hold_lock job
    run dlock -n job2 true
    [ "$status" -eq 0 ]
    run dlock -n --prefix=p: job true
    [ "$status" -eq 0 ]
    run dlock -n --prefix=dlock: job true
    [ "$status" -eq 75 ]
}

@test "the same owner token does not let a second one in" {
    hold_lock job --owner=me
    run dlock -n --owner=me job touch "$T/ran"
    [ "$status" -eq 75 ]
    [ ! -e "$T/ran" ]
    is_locked job
}

@test "a signal ends the wait at once, and dlock dies by it" {
    hold_lock job
    local signal
    for signal in INT TERM HUP; do
        # A shell's background jobs ignore SIGINT: a child of python does not.
        run python3 - "$signal" <<'P'
import os, signal, subprocess, sys, time
number = getattr(signal, "SIG" + sys.argv[1])
signal.signal(signal.SIGINT, signal.SIG_DFL)
waiter = subprocess.Popen(["dlock", "job", "touch", os.environ["T"] + "/ran"])
while int(open(f"/proc/{waiter.pid}/status").read().split("SigBlk:")[1].split()[0], 16) == 0:
    time.sleep(0.01)
waiter.send_signal(number)
begin = time.monotonic()
assert waiter.wait(10) == -number, waiter.returncode
assert time.monotonic() - begin < 1
P
        [ "$status" -eq 0 ]
        [ ! -e "$T/ran" ]
    done
    end_hold
    wait "$HOLDER"
    is_clean job
}

@test "a signal that dlock inherited as ignored does not end the wait" {
    hold_lock job
    sh -c "trap '' HUP; exec dlock -w 20 job true" 3>&- &
    local waiter=$!
    wait_until 10 grep -qx dlock "/proc/$waiter/comm" # no longer the shell
    kill -HUP "$waiter"
    end_hold
    wait "$waiter"
}

@test "on a terminal a conflict is reported, and names the holder" {
    python3 -c 'import os; os.openpty()' 2>/dev/null || skip 'no pseudo-terminals here'
    hold_lock job
    # A terminal on stderr alone is enough, as in a shell with stdout in a pipe.
    run python3 - <<'P'
import os, pty, subprocess
master, slave = pty.openpty()
code = subprocess.call(["dlock", "-n", "job", "true"], stdout=subprocess.DEVNULL, stderr=slave)
os.close(slave)
print(code, os.read(master, 4096).decode())
P
    [[ $output == '75 dlock: job: held by '*', pid '* ]]
}
