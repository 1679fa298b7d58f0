#!/usr/bin/env bats
# --wait-replicas, and servers that require replicas or have become one.
load ../lib/common
load ../lib/replication
load ../lib/queue
setup() { common_setup; export DLOCK_REDIS=unix://$T/a.sock; }

is_free() { [ "$(at_a exists dlock:job)" = 0 ]; }
is_taken() { not is_free; }
pause_replica() { kill -STOP "$(cat "$T/b.pid")"; }
resume_replica() { kill -CONT "$(cat "$T/b.pid")"; }
takes() { at_a hget '{dlock:job}:meta' takes; }

@test "--wait-replicas: the command runs once the replicas have the lock, in every mode" {
    start_pair
    local mode
    for mode in -x -s --slots=2; do
        run dlock $mode --wait-replicas=1 job -- redis-cli -s "$T/b.sock" exists dlock:job
        equals "$status $output" '0 1'
    done
    is_free
    run dlock --acquire --wait-replicas=1 -t 1m job
    equals "$(at_b get dlock:job)" "$output"
}

@test "too few replicas have the lock in time: exit 69, the command is not run, and the lock is given back" {
    start_pair
    local start=$(now)
    fails_with 69 'only 1 of 2 replicas confirmed the lock in time; tried once' \
        dlock --wait-replicas=2 --connect-timeout=400ms --retry-for=0 job touch "$T/ran"
    is_free
    within 0 "$start"
    pause_replica
    fails_with 69 'only 0 of 1 replicas confirmed the lock in time; tried [2-9]' \
        dlock --wait-replicas=1 --connect-timeout=300ms --retry-for=500ms job touch "$T/ran"
    resume_replica
    is_free
    [ ! -e "$T/ran" ]
    # The first try counts as well, and takes no longer than --retry-for permits.
    pause_replica
    start=$(now)
    fails_with 69 'only 0 of 1 replicas confirmed the lock in time; tried (once|2 times)' \
        dlock --wait-replicas=1 --connect-timeout=20s --retry-for=1s job touch "$T/ran"
    within 5000 "$start"
    resume_replica
    # The lease limits it as well.
    pause_replica
    fails_with 69 'only 0 of 1|its lease ended' dlock -n -t 200ms --wait-replicas=1 job touch "$T/ran"
    resume_replica
    [ ! -e "$T/ran" ]
}

@test "a slow replica: the same request is tried again, and nobody else acquires the lock in between" {
    start_pair
    pause_replica
    dlock --wait-replicas=1 --connect-timeout=300ms --retry-for=30s job -- sh -c 'echo ran >>"$T/ran"; exit 5' 2>"$T/err" 3>&- 4>&- &
    local dlock=$! status=0
    wait_until 10 is_taken
    fails_with 75 '' dlock -n job true
    [ ! -e "$T/ran" ]
    resume_replica
    wait "$dlock" || status=$?
    equals "$status $(cat "$T/ran") $(takes)" '5 ran 1'
    is_free
}

@test "a queued waiter is called, and waits for the replicas too" {
    start_pair
    hold_lock job
    queue first --wait-replicas=1
    queue second --wait-replicas=1
    end_hold
    ended first
    ended second
    ran 'first second '
    rm "$T/held.end" "$T/held" "$T/order"
    hold_lock job
    queue late --wait-replicas=1 --connect-timeout=700ms --retry-for=0
    pause_replica
    end_hold
    ended late 69
    resume_replica
    [ ! -e "$T/order" ]
    wait_until 5 is_free
}

@test "the connection ends during WAIT: nothing is run, and the lock is given back" {
    start_pair
    fake_redis closing=WAIT "$T/a.sock"
    fails_with 69 'closed the connection' dlock -r "unix://$T/fake.sock" --wait-replicas=1 --retry-for=300ms job touch "$T/ran"
    [ ! -e "$T/ran" ]
    equals "$(takes)" 1
    is_free
}

@test "the reply to an acquire is lost: the same request is found again, and still waits for the replicas" {
    start_pair
    dlock other true
    pause_replica
    fake_redis lose=1 "$T/a.sock"
    fails_with 69 'only 0 of 1 replicas' \
        dlock -r "unix://$T/fake.sock" --wait-replicas=1 --connect-timeout=300ms --retry-for=2s job touch "$T/ran"
    resume_replica
    [ ! -e "$T/ran" ]
    equals "$(takes)" 1
    is_free
}

@test "a user who may not run WAIT: exit 77 naming it, nothing is run, and the lock is given back" {
    start_redis a
    at_a acl setuser bob on '>pw' '~*' '&*' +@all -wait
    fails_with 77 "the server refuses the user bob: .*NOPERM.*'wait'.*; dlock-redis" dlock -r "unix://bob:pw@$T/a.sock" --wait-replicas=1 job touch "$T/ran"
    [ ! -e "$T/ran" ]
    is_free
    run dlock -r "unix://bob:pw@$T/a.sock" job true
    equals "$status" 0
}

@test "a master that requires replicas and has none is an outage" {
    start_redis a --min-replicas-to-write 1
    fails_with 69 'NOREPLICAS' dlock --retry-for=300ms job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "a server that has become a replica grants no lock, and releases one once it is a master again" {
    start_redis a
    hold_lock job
    at_a replicaof 127.0.0.1 1
    fails_with 69 'READONLY' dlock --retry-for=300ms other touch "$T/ran"
    [ ! -e "$T/ran" ]
    end_hold
    # Its command has ended, and it tries to release.
    wait_until 5 not has_command "$HOLDER"
    at_a replicaof no one
    wait "$HOLDER"
    is_free
}
