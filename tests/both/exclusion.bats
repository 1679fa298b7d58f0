#!/usr/bin/env bats
load backend

waits() { dlock --status job | grep -q '1 waiting'; }

@test "a conflict: -n does not wait and prints nothing, -v names the holder, -E sets the status, nothing is run" {
    hold_lock job -t 60
    table <<'ROWS'
75 '^$' dlock -n job touch "$T/ran"
75 ''   dlock --nb job touch "$T/ran"
75 ''   dlock --nonblocking job touch "$T/ran"
75 ''   dlock --nonblock job touch "$T/ran"
75 ''   dlock --wait=0 job touch "$T/ran"
75 ''   dlock -w 0 job touch "$T/ran"
75 ''   dlock --timeout=0s job touch "$T/ran"
75 'held by .*@.* [(]pid [0-9]+, .*held\.sh[)] since .*, lease ends in 5[0-9]s' env LOGNAME=somebody dlock -v -n job touch "$T/ran"
75 '^$' dlock -v -q -n job touch "$T/ran"
9  ''   dlock -n -E 9 job touch "$T/ran"
0  ''   dlock --conflict-exit-code=0 --nonblock job touch "$T/ran"
ROWS
    [ ! -e "$T/ran" ]
    is_locked job
}

@test "-w waits as long as it says, and no longer" {
    hold_lock job
    local start
    start=$(now)
    run dlock -w 300ms job touch "$T/ran"
    within 300 "$start"
    [ $(($(now) - start)) -ge 300 ]
    [ "$status" -eq 75 ]
    [ ! -e "$T/ran" ]
    run dlock -w 1.2 job touch "$T/ran"
    [ "$status" -eq 75 ]
}

@test "a waiter acquires the lock when its holder ends" {
    hold_lock job
    dlock -w 30 job -- sh -c "[ -e '$T/held.end' ] && echo ran >'$T/ran'" 3>&- &
    local waiter=$!
    wait_until 10 waits
    [ ! -e "$T/ran" ]
    end_hold
    wait "$waiter"
    [ -e "$T/ran" ]
    is_clean job
}

@test "twenty processes at once: never two in the lock at the same time, and each gets its turn" {
    local i
    for i in {1..20}; do
        dlock job -- sh -c "mkdir '$T/inside' && echo x >>'$T/count' && rmdir '$T/inside' || echo overlap >>'$T/bad'" 3>&- &
    done
    wait $(jobs -p | grep -vx "$(cat "$T/redis.pid" 2>/dev/null || echo 0)")
    [ ! -e "$T/bad" ]
    equals "$(wc -l <"$T/count")" 20
    is_clean job
}

@test "another name or prefix is another lock, even with the same owner token" {
    hold_lock job --owner=me
    table <<'ROWS'
0  '' dlock -n job2 true
0  '' dlock -n --prefix=p: job true
75 '' dlock -n --prefix=dlock: job touch "$T/ran"
75 '' dlock -n --owner=me job touch "$T/ran"
ROWS
    [ ! -e "$T/ran" ]
    is_locked job
}

@test "a signal ends the wait at once, and dlock dies by it" {
    hold_lock job
    local signal
    for signal in INT TERM HUP; do
        # A shell's background jobs ignore SIGINT; a child of Python does not.
        # Timeless, it would otherwise wait for ever.
        timeless run python3 - "$signal" <<'P'
import os, signal, subprocess, sys, time
number = getattr(signal, "SIG" + sys.argv[1])
signal.signal(signal.SIGINT, signal.SIG_DFL)
waiter = subprocess.Popen(["dlock", "job", "touch", os.environ["T"] + "/ran"])
while int(open(f"/proc/{waiter.pid}/status").read().split("SigBlk:")[1].split()[0], 16) == 0:
    time.sleep(0.01)
waiter.send_signal(number)
try: assert waiter.wait(20) == -number, waiter.returncode
finally: waiter.kill()
P
        equals "$status $output" '0 '
        [ ! -e "$T/ran" ]
    done
    end_hold
    wait "$HOLDER"
    is_clean job
}
