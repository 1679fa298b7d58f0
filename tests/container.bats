#!/usr/bin/env bats
# dlock as the first process of a container.
load common

setup() {
    common_setup
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
    unshare -pf --mount-proc --kill-child true 2>/dev/null || skip 'no namespaces here'
}
teardown() { common_teardown; }

# The pid of the dlock that is pid 1 inside.
inside() { pgrep -P "$CONTAINER"; }

# contain COMMAND...: in the background, as pid 1 of a namespace of its own.
contain() {
    unshare -pf --mount-proc --kill-child "$@" >"$T/out" 2>"$T/err" 3>&- 4>&- &
    CONTAINER=$!
    echo "$CONTAINER" >"$T/container.pid"
}

@test "as pid 1: the command's status, and nothing said" {
    run unshare -pf --mount-proc --kill-child dlock job -- sh -c 'exit 7'
    equals "$status $output" '7 '
    run unshare -pf --mount-proc --kill-child dlock job -- sh -c 'kill -KILL $$'
    equals "$status $output" '137 '
}

@test "as pid 1: TERM is passed on to the command" {
    contain dlock job -- sh -c 'trap "echo got TERM; exit 33" TERM; touch "$T/ready"; while :; do sleep 0.01; done'
    wait_until 10 test -e "$T/ready"
    kill -TERM "$(inside)"
    local status=0
    wait "$CONTAINER" || status=$?
    equals "$status $(cat "$T/out")" '33 got TERM'
}

@test "as pid 1: TERM while it waits for the lock ends it, with nothing run" {
    hold_lock job
    contain dlock -w 60 job touch "$T/ran"
    blocked() { grep -q '^SigBlk:.*[1-9a-f]' "/proc/$(inside)/status"; }
    wait_until 10 blocked
    kill -TERM "$(inside)"
    local status=0
    wait "$CONTAINER" || status=$?
    equals "$status" 143
    [ ! -e "$T/ran" ]
    end_hold
    wait "$HOLDER"
}

@test "as pid 1: TERM while it waits for the lock to be free ends it" {
    hold_lock job
    contain dlock --wait-free -w 20 job
    blocked() { grep -q '^SigBlk:.*[1-9a-f]' "/proc/$(inside)/status"; }
    wait_until 10 blocked
    kill -TERM "$(inside)"
    local status=0
    wait "$CONTAINER" || status=$?
    equals "$status" 143
    end_hold
    wait "$HOLDER"
}

@test "as pid 1: orphans that end are reaped" {
    contain dlock job -- sh -c 'i=0; while [ $i -lt 30 ]; do (sh -c "sleep 0.02 & exit" &); i=$((i + 1)); done
        touch "$T/ready"; while [ ! -e "$T/end" ]; do sleep 0.05; done'
    wait_until 10 test -e "$T/ready"
    no_zombies() { ! ps -o stat= --ppid "$(inside)" | grep -q Z; }
    wait_until 10 no_zombies
    touch "$T/end"
    wait "$CONTAINER"
}

@test "as pid 1: the whole tree is stopped when the lease ends" {
    run unshare -pf --mount-proc --kill-child dlock -t 1s job -- sh -c \
        'setsid sh -c "trap \"\" TERM; exec sleep 77777" & exec sleep 77777'
    equals "$status" 124
    not pgrep -f 'sleep 77777'
}

@test "a /proc of another pid namespace is not believed: the command is stopped all the same, and nobody else" {
    sleep 66666 >/dev/null 2>&1 3>&- 4>&- &
    echo $! >"$T/other.pid"
    run timeout 30 unshare -pf --kill-child dlock -t 1s job sleep 600
    equals "$status" 124
    kill -0 "$(cat "$T/other.pid")"
}

@test "a /proc of another pid namespace: --tree still passes the stop on, and pid 1 stops all in its namespace" {
    run timeout 30 unshare -pf --kill-child dlock --tree -t 3s --grace=2s job -- bash -c 'trap "echo got TERM; exit 3" TERM; while :; do sleep 0.01; done'
    equals "$status" 124
    [[ $output == *'got TERM'* ]]
    run timeout 30 unshare -pf --kill-child dlock -t 1s job -- sh -c 'setsid sh -c "trap \"\" TERM; while :; do date +%s >\"$T/alive\"; sleep 0.05; done" & sleep 60'
    equals "$status" 124
    rm "$T/alive"
    sleep 0.3 # it would be made again
    [ ! -e "$T/alive" ]
}
