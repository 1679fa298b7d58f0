#!/usr/bin/env bats
load backend

# bats test_tags=slow
@test "a changed lease is shown as last set, and its grace is a tenth of that" {
    local start=$(now)
    fails_with 124 'the lease, last set to (3|2\.[0-9])s, ends in [0-9]+ms; stopping the command with SIGTERM$' \
        dlock -t 1h job -- sh -c 'dlock --extend --ttl=3 && exec sleep 60'
    [ $(($(now) - start)) -ge 2500 ]
    fails_with 124 'the lease, last set to (4|3\.[0-9])s, ends in [0-9]+ms; stopping the command with SIGTERM$' \
        dlock -t 1s --grace=100ms job -- sh -c 'dlock --extend --ttl=4 && exec sleep 60'
    [[ $output == *'90% of the lease has passed and the command is still running'$'\n'* ]]
    fails_with 124 'the lease of 2s ends in [0-9]+ms; .*SIGTERM; use a longer --ttl' \
        dlock -t 2s job -- sh -c 'sleep 0.5; dlock --extend && exec sleep 60'
}

# bats test_tags=slow
@test "an explicit --grace is kept if the lease changes, and is mentioned if the new lease is no longer than the grace" {
    local start=$(now)
    fails_with 124 'the lease, last set to (20|19)s, ends in 1[0-9]s.*; stopping the command with SIGTERM; the lease is no longer than --grace=30s' \
        dlock -t 1h --grace=30s job -- sh -c 'dlock --extend --ttl=20 && exec sleep 60'
    within 7000 "$start"
    fails_with 124 'the lease, last set to (2|1\.[0-9])s, ends in (1\.[0-9]s|1s|[0-9]+ms); stopping the command with SIGTERM$' \
        dlock -t 1h --grace=1500ms job -- sh -c 'dlock --extend --ttl=2 && exec sleep 60'
    # --grace means nothing if the command is not stopped.
    fails_with 0 '90% of the lease has passed and the command is still running$' \
        env DLOCK_GRACE=30s dlock -t 1h --on-expire=warn job -- sh -c 'env -u DLOCK_GRACE dlock --extend --ttl=3 && exec sleep 4'
}

@test "a command that outlives its lease is stopped with TERM: exit 124, with a message" {
    fails_with 124 'the lease of 1s ends in [0-9]+ms; stopping the command with SIGTERM; use a longer --ttl' \
        dlock -t 1s --grace=500ms job -- sh -c "trap 'echo got TERM; exit 0' TERM; while :; do sleep 0.01; done"
    [[ $output == *'got TERM'* ]]
    equals "$(grep -c '^dlock:' <<<"$output")" 1
    is_clean job
}

@test "a command that ignores TERM is killed when the lease ends, not later" {
    local start
    start=$(now)
    run dlock -t 1s job -- sh -c "trap '' TERM; while :; do sleep 0.01; done"
    within 1000 "$start"
    [ $(($(now) - start)) -ge 900 ]
    [ "$status" -eq 124 ]
    is_clean job
}

@test "a lease of 100 ms, the shortest, is enforced too" {
    run dlock -t 100ms job sleep 60
    [ "$status" -eq 124 ]
    run dlock -t 100ms --grace=0 job -- sh -c "trap 'echo got TERM' TERM; sleep 60"
    [ "$status" -eq 124 ]
    [[ $output != *'got TERM'* ]]
}

@test "--stop-signal is the signal sent first" {
    run dlock -t 1s --grace=700ms --stop-signal=USR1 job -- sh -c "trap 'echo got USR1; exit 0' USR1; while :; do sleep 0.01; done"
    [ "$status" -eq 124 ]
    [[ $output == *'got USR1'* ]]
}

@test "a command suspended by SIGSTOP is killed too" {
    run dlock -t 1s job -- sh -c 'kill -STOP $$; sleep 60'
    [ "$status" -eq 124 ]
}

@test "a command that ends in time is never reported as stopped" {
    local i
    for i in {1..10}; do
        run dlock -t 2s job sleep 0.01
        [ "$status" -eq 0 ]
        [ -z "$output" ]
    done
}

@test "the next holder's command never starts before the stopped one has ended" {
    dlock -t 500ms job -- sh -c "trap '' TERM; echo \$\$ >'$T/first'; while :; do sleep 0.01; done" 2>/dev/null 3>&- &
    wait_until 10 test -s "$T/first"
    run dlock -w 20 job -- sh -c "kill -0 $(cat "$T/first") && echo overlap"
    [ "$output" = "" ] || [[ $output == *'No such process'* ]]
    [[ $output != *overlap* ]]
}

@test "--on-expire=warn: the command runs on, two warnings are printed, and its status is returned" {
    run dlock -t 300ms --on-expire=warn job -- sh -c 'sleep 0.6; exit 5'
    [ "$status" -eq 5 ]
    equals "$(grep -c 'the lease of 300ms has ended; the command keeps running without the lock' <<<"$output")" 1
    [[ ${lines[-1]} == *'the command ran for '*' without the lock' ]]
}

# late [DLOCK ARGUMENTS...]: 90 % of the lease are over, and dlock is woken three times before the command ends.
late() {
    local dlock i
    rm -f "$T/woken" "$T/ready" "$T/end"
    set_boot "=$STILL"
    timeless exec dlock "$@" -t 1h --grace=1s job -- sh -c 'trap "echo x >>\"\$T/woken\"" USR1
        touch "$T/ready"; until [ -e "$T/end" ]; do sleep 0.01; done' 2>"$T/err" 3>&- 4>&- &
    dlock=$!
    echo $dlock >"$T/dlock.pid"
    wait_until 10 test -e "$T/ready"
    set_boot "=$((STILL + 3500))"
    for i in 1 2 3; do
        kill -USR1 $dlock
        wait_until 10 test -s "$T/woken"
        rm "$T/woken"
    done
    touch "$T/end"
    wait $dlock
}

@test "--on-expire=warn: --current and a dlock inside agree whether the lock is still held after the lease" {
    run timeout 20 dlock -q -t 300ms --on-expire=warn job -- sh -c 'sleep 0.6; dlock --current; echo $?; dlock -n -v job true'
    equals "$status" 0
    case $BACKEND in
        file) [[ $output == *'job (file), lease has ended'*0*'already holds the lock'* ]] ;;
        redis) [[ $output == *1*': acquired ('* ]] ;;
    esac
}

@test "the warning at 90 % names --ttl and is printed once" {
    late
    equals "$(grep -c '90% of the lease has passed.*--ttl' "$T/err")" 1
    late -q
    equals "$(cat "$T/err")" ''
}

# A shell whose child ends before the shell gets its own signal would go on.
@test "a stopped script never reaches its next step, whichever of its processes ends first" {
    local i status script='for i in {1..20}; do sleep 60 & done; touch "$T/here"; wait %1; echo published'
    for i in {1..20}; do
        status=0
        rm -f "$T/here"
        dlock job -- bash -c "$script" >>"$T/out" 2>/dev/null 3>&- 4>&- &
        wait_until 10 test -e "$T/here"
        steal job
        wait $! || status=$?
        equals "$status" 124
    done
    equals "$(cat "$T/out")" ''
}

@test "a stopped script never reaches its next step in a pipeline either, nor if it was suspended" {
    local i status script
    for script in 'sh -c "touch \"\$T/here\"; exec sleep 60" | { cat; echo published; }' \
        '(sleep 60 & wait $!; echo published) & sleep 0.02; kill -STOP $!; touch "$T/here"; wait; echo published' \
        'kill -STOP $BASHPID & touch "$T/here"; sleep 60; echo published'; do
        for i in {1..5}; do
            status=0
            rm -f "$T/here"
            dlock job -- bash -c "$script" >>"$T/out" 2>/dev/null 3>&- 4>&- &
            wait_until 10 test -e "$T/here"
            steal job
            wait $! || status=$?
            equals "$status" 124
        done
    done
    equals "$(cat "$T/out")" ''
}

@test "with almost no free descriptors the command's processes are stopped with it, or nothing is run" {
    local limit status
    for limit in {10..24}; do
        (
            ulimit -n "$limit"
            exec dlock -t 600ms "job$limit" -- sh -c "trap '' TERM; sh -c 'echo \$\$ >$T/pid$limit; sleep 600' & sleep 600"
        ) 2>"$T/err$limit" 3>&- 4>&- &
        echo "$!" >"$T/dlock$limit.pid"
    done
    for limit in {10..24}; do
        status=0
        wait "$(cat "$T/dlock$limit.pid")" || status=$?
        echo "limit $limit: $status, $(cat "$T/err$limit")"
        [ "$status" -eq 124 ] || grep -q 'Too many open files' "$T/err$limit"
        [ ! -s "$T/pid$limit" ] || gone "$(cat "$T/pid$limit")"
    done
    equals "$status" 124
}

@test "with too few descriptors the command is not run at all, instead of being stopped a moment later" {
    local limit status ran=0
    for limit in {8..20}; do
        status=0
        (ulimit -n "$limit"; exec dlock job -- sh -c "touch $T/ran$limit; sleep 0.2; touch $T/end$limit") 2>"$T/err" 3>&- 4>&- || status=$?
        echo "limit $limit: $status, $(cat "$T/err")"
        if [ -e "$T/ran$limit" ]; then
            ran=$((ran + 1))
            equals "$status" 0
            [ -e "$T/end$limit" ]
        else
            [ "$status" -ne 0 ]
        fi
    done
    [ "$ran" -gt 0 ]
}

@test "a stderr that the command fills while dlock writes to it does not delay the stop: pipe, socket, terminal" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    LD_PRELOAD='' run timeout -s KILL 60 python3 - <<'P'
import os, socket, subprocess
ends = [os.pipe(), [s.detach() for s in socket.socketpair()], os.openpty()]
environ = dict(os.environ, LD_PRELOAD=os.environ["HELPERS"] + "/fault_stderr_fills.so")
for reader, writer in ends:
    dlock = subprocess.Popen(["dlock", "-v", "-t", "1s", "--grace=200ms", "job", "sh", "-c", 'trap "" TERM; while :; do sleep 0.01; done'],
                             stderr=writer, env=environ)
    try: print(dlock.wait(15))
    except subprocess.TimeoutExpired: print("hangs"); dlock.kill()
P
    equals "$output" $'124\n124\n124'
}

@test "a stderr that accepts nothing does not delay the stop" {
    local start
    start=$(now)
    run python3 - <<'P'
import fcntl, os, subprocess
reader, writer = os.pipe()
fcntl.fcntl(writer, fcntl.F_SETFL, os.O_NONBLOCK)
try:
    while True:
        os.write(writer, b"x" * 4096)
except BlockingIOError:
    pass
fcntl.fcntl(writer, fcntl.F_SETFL, 0)
print(subprocess.call(["dlock", "-v", "-t", "1s", "job", "sleep", "60"], stderr=writer))
P
    within 5000 "$start"
    equals "$output" 124
}
