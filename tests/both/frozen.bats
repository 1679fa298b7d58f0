#!/usr/bin/env bats
load backend

teardown() {
    local group
    for group in ${FREEZERS+"${FREEZERS[@]}"}; do
        thaw "$group" || true
    done
    common_teardown
    for group in ${FREEZERS+"${FREEZERS[@]}"}; do
        wait_until 5 rmdir "$group" || true
    done
}

# make_freezer v1|v2: makes a cgroup below the current one; FREEZER is its path.
make_freezer() {
    local mount inside
    case $1 in
        v1)
            mount=$(awk '$3 == "cgroup" && $4 ~ /(^|,)freezer(,|$)/ { print $2; exit }' /proc/self/mounts)
            inside=$(awk -F: '$2 == "freezer" { print $3 }' /proc/self/cgroup)
            ;;
        v2)
            mount=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)
            inside=$(awk -F: '$1 == 0 { print $3 }' /proc/self/cgroup)
            ;;
    esac
    [ -n "$mount" ] || skip "no cgroup $1 freezer here"
    FREEZER=$mount${inside%/}/dlock-test-$BACKEND-$$-$BATS_TEST_NUMBER
    mkdir "$FREEZER" 2>/dev/null || skip "no cgroup can be made in $mount$inside"
    FREEZERS=("$FREEZER")
    sleep 60 >/dev/null 2>&1 3>&- 4>&- &
    echo $! >"$T/mover.pid"
    { echo $! >"$FREEZER/cgroup.procs"; } 2>/dev/null || skip "no process can be moved into a cgroup in $mount$inside"
    kill -KILL $!
    [ -e "$FREEZER/freezer.state" ] || [ -e "$FREEZER/cgroup.freeze" ] || skip 'this kernel freezes no cgroups'
}

# freeze GROUP PID...: returns once all of the processes are frozen.
freeze() {
    local group=$1 pid
    shift
    for pid in "$@"; do
        echo "$pid" >"$group/cgroup.procs"
    done
    if [ -e "$group/freezer.state" ]; then
        # The state is written again because the kernel gives up on a process that is just forking.
        is_frozen() { echo FROZEN >"$group/freezer.state" && grep -qx FROZEN "$group/freezer.state"; }
        wait_until 20 is_frozen
    else
        echo 1 >"$group/cgroup.freeze"
        wait_until 20 grep -qx 'frozen 1' "$group/cgroup.events"
    fi
}

thaw() {
    if [ -e "$1/freezer.state" ]; then
        echo THAWED >"$1/freezer.state"
    else
        echo 0 >"$1/cgroup.freeze"
    fi
}

# What dlock prints on waking depends on what it checks first: the clock, or the
# store, in which the lock is gone by then.
is_told() {
    grep -qE 'the lease (of .* has|of .* ends|had) |the lock (is|was) lost' "$1" || {
        echo "said: $(cat "$1")"
        return 1
    }
}

# dlock must have stopped the command and say why, exit with 124, and leave nothing.
was_stopped() {
    local status=0
    wait_until 20 gone "$HOLDER"
    wait "$HOLDER" || status=$?
    equals "$status" 124
    is_told "$T/held.err"
    gone "$(cat "$T/held")"
    rm "$T/held"
    is_clean job
}

# Ends the command; the run must look as if nothing had happened.
ended_well() {
    local status=0
    kill -0 "$(cat "$T/held")"
    end_hold
    wait "$HOLDER" || status=$?
    equals "$status" 0
    equals "$(cat "$T/held.err")" ''
    rm "$T/held" "$T/held.end"
    is_clean job
}

# who WHAT: prints the pids of dlock, its command, or both.
who() {
    case $1 in
        dlock) echo "$HOLDER" ;;
        command) cat "$T/held" ;;
        both) echo "$HOLDER $(cat "$T/held")" ;;
    esac
}

# bats test_tags=slow
@test "dlock, its command or both frozen by a cgroup (v2) beyond the lease: the command is stopped on waking, 124" {
    frozen_beyond v2
}

# bats test_tags=slow
@test "dlock, its command or both frozen by a cgroup (v1) beyond the lease: the command is stopped on waking, 124" {
    frozen_beyond v1
}

# bats test_tags=slow
@test "dlock, its command or both frozen by SIGSTOP beyond the lease: the command is stopped on waking, 124" {
    local what pids
    for what in dlock command both; do
        hold_lock job -t 1500ms
        pids=$(who "$what")
        # shellcheck disable=SC2086
        kill -STOP $pids
        sleep 1.6
        # The kernel keeps a file lock for the frozen process.
        [ "$BACKEND" = redis ] || [ "$what" = command ] || fails_with 75 '' dlock -n job touch "$T/ran"
        [ ! -e "$T/ran" ]
        # shellcheck disable=SC2086
        kill -CONT $pids 2>/dev/null || [ "$what" = command ] # dlock has killed it meanwhile
        was_stopped
    done
}

# The following tests are about the passing of the lease, or of a part of it:
# there is nothing to wait for except the time.

@test "dlock frozen beyond its lease exits with 124 on waking, even if the command has succeeded" {
    dlock -t 1s job -- sh -c "echo x >'$T/started'; sleep 0.2" 2>"$T/err" 3>&- &
    local dlock=$!
    wait_until 10 test -s "$T/started"
    kill -STOP "$dlock"
    sleep 1.2
    kill -CONT "$dlock"
    local status=0
    wait "$dlock" || status=$?
    equals "$status" 124
    is_told "$T/err"
}

@test "dlock frozen beyond its lease before it starts the command exits with 124 on waking, and the command is not run" {
    touch "$T/stop_at_start"
    LD_PRELOAD=$HELPERS/fault_stop_at.so dlock -t 100ms job touch "$T/ran" 2>"$T/err" 3>&- 4>&- &
    local dlock=$!
    wait_until 10 grep -q '^State:.T' "/proc/$dlock/status"
    sleep 0.2
    kill -CONT "$dlock"
    local status=0
    wait "$dlock" || status=$?
    equals "$status" 124
    grep -q 'the lease ended before the command started; the command was not run' "$T/err"
    [ ! -e "$T/ran" ]
    is_clean job
}

@test "dlock, its command or both frozen by SIGSTOP for less than the lease: the run goes on as if nothing had happened" {
    local what pids
    for what in dlock command both; do
        hold_lock job -t 10s
        pids=$(who "$what")
        # shellcheck disable=SC2086
        kill -STOP $pids
        sleep 0.5
        # shellcheck disable=SC2086
        kill -CONT $pids
        ended_well
    done
}

# frozen_beyond v1|v2
frozen_beyond() {
    local what
    make_freezer "$1"
    for what in dlock command both; do
        hold_lock job -t 1500ms
        # shellcheck disable=SC2046
        freeze "$FREEZER" $(who "$what")
        sleep 1.6
        thaw "$FREEZER"
        was_stopped
    done
}

# frozen_briefly v1|v2
frozen_briefly() {
    local what
    make_freezer "$1"
    for what in dlock command both; do
        hold_lock job -t 10s
        # shellcheck disable=SC2046
        freeze "$FREEZER" $(who "$what")
        sleep 0.5
        thaw "$FREEZER"
        ended_well
    done
}

@test "dlock, its command or both frozen by a cgroup (v2) for less than the lease: the run goes on as if nothing had happened" {
    frozen_briefly v2
}

@test "dlock, its command or both frozen by a cgroup (v1) for less than the lease: the run goes on as if nothing had happened" {
    frozen_briefly v1
}

# with_own_wall COMMAND...: runs the command with that wall clock. The commands that dlock runs have the true one.
with_own_wall() { LD_PRELOAD=$HELPERS/fault_wall_clock.so "$@"; }

# A test cannot suspend its host, so a clock that only dlock sees jumps, as it would on waking. The
# leases are so long that only the jump can end them.

@test "the host is suspended beyond the lease: the command is stopped on waking, 124" {
    with_suspends hold_lock job -t 1h
    suspended 3601
    was_stopped
}

@test "the host wakes from a suspend within the grace: the command is stopped, and has the rest of the grace" {
    local status=0
    printf '%s\n' 'trap "echo \$(dlock --status --json job) >$T/told; exit 3" TERM; >$T/in; while :; do sleep 0.03; done' >"$T/stays"
    with_suspends dlock -t 1h --grace=20m job -- bash "$T/stays" 2>"$T/err" 3>&- 4>&- &
    HOLDER=$!
    echo "$HOLDER" >"$T/holder.pid"
    wait_until 10 test -e "$T/in"
    suspended 3000
    wait_until 20 gone "$HOLDER"
    wait "$HOLDER" || status=$?
    equals "$status" 124
    grep -q 'the lease of 1h ends in \(10m\|9m5\)' "$T/err"
    [ -s "$T/told" ] # it was not killed
}

@test "the host wakes from a suspend before the grace: the run goes on with that much less of its lease" {
    with_suspends hold_lock job -t 1h --grace=1m
    suspended 1800
    if [ "$BACKEND" = file ]; then # whose lease is on the same clock
        fails_with 75 'lease ends in (30m|29m5)' with_suspends dlock -v -n job true
    fi
    sleep 0.3 # nothing must happen
    ended_well
}

# Proof that dlock's own clock did jump: at the start dlock passes the time to its command,
# and at the end to Redis.
wall_has_jumped() {
    local year=$1 released
    if [ "$BACKEND" = redis ]; then
        released=$(redis hget '{dlock:job}:meta' spent | head -n 1 | cut -d' ' -f3)
        equals "$(date -u -d "@$((released / 1000))" +%Y)" "$year"
    fi
    run with_own_wall dlock other -- env -u LD_PRELOAD sh -c 'echo "${DLOCK_EXPIRES_AT%%-*}"'
    equals "$output" "$year"
}

@test "a wall clock that jumps by a year stops no running command" {
    local years year
    for years in 1 -1; do
        set_wall 0
        run with_own_wall dlock -t 20s job -- env -u LD_PRELOAD bash -c "
            sleep 0.1; echo $((years * 366 * 86400)) >'$T/new'; mv '$T/new' '$T/wall_clock'; sleep 1.2; exit 5"
        year=$(date -u -d "now $((years * 366)) days" +%Y)
        equals "$status:$output" 5:
        wall_has_jumped "$year"
        is_clean job
    done
}

@test "a wall clock that jumps by a year while the command runs makes no lease longer" {
    local years start
    for years in 1 -1; do
        set_wall 0
        start=$(now)
        run with_own_wall dlock -t 5500ms --grace=4s job -- env -u LD_PRELOAD bash -c "
            sleep 0.1; echo $((years * 366 * 86400)) >'$T/new'; mv '$T/new' '$T/wall_clock'; sleep 60"
        within 1500 "$start"
        [ $(($(now) - start)) -ge 1300 ]
        equals "$status" 124
        wall_has_jumped "$(date -u -d "now $((years * 366)) days" +%Y)"
        is_clean job
    done
}
