#!/usr/bin/env bats
load ../lib/common
setup() { common_setup; export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks; }

@test "the command's process cannot be started: exit 71, and the lock is released" {
    local tree
    for tree in --no-tree --tree; do
        LD_PRELOAD="$HELPERS/fault_clone.so $HELPERS/fault_fork.so" fails_with 71 'cannot start a process for the command: Resource temporarily' \
            dlock $tree job touch "$T/ran"
        [ ! -e "$T/ran" ]
        equals "$(find "$T/locks" -name '*.lock' | wc -l)" 0
    done
}

# A row has the status, a preparation (with a stack of any size), and the arguments of the action.
@test "a stack of 50 kB is enough for every action, on both stores" {
    [ -z "${SANITIZER:-}" ] || skip 'with a sanitizer, or for coverage, frames are larger'
    start_redis
    local expected first words held='dlock --acquire --owner=token -t 60s'
    export DLOCK_REDIS=unix://$T/redis.sock
    sleep 60 3>&- 4>&- &
    echo $! >"$T/sleep.pid"
    for DLOCK_BACKEND in file redis; do
        while IFS='|' read -r expected first words; do
            echo "$DLOCK_BACKEND: $words"
            eval "$first" >/dev/null
            run bash -c "ulimit -s 50; exec dlock $words"
            equals "$status" "${expected// /}"
        done <<EOF
0  |                           | run sh -c 'sleep 0.1'
0  |                           | --tree --once-per=1h tree true
0  |                           | --slots=3 slots true
0  |                           | --shared shared true
0  |                           | outer dlock --current
75 | $held held                | -v -n held true
0  |                           | --status held
0  |                           | --status --json held
0  |                           | --list
0  |                           | --list --all --json
0  |                           | --extend --owner=token -t 50s held
0  |                           | --release --owner=token held
0  | $held forced              | --force-release forced
0  |                           | --acquire -t 60s acquired
0  | dlock --acquire -t 1s free | --wait-until-free -w 20s free
0  | dlock --acquire -t 1s free | -w 20s free true
0  |                           | --attach=$(<"$T/sleep.pid") attached
0  |                           | --pause=60s --message=why paused
1  |                           | --status paused
0  |                           | --resume paused
0  |                           | --ran-within=1h tree
0  |                           | --history tree
0  |                           | --history --json tree
124 |                          | -t 500ms tight sleep 9
0  |                           | --list --all -v
0  |                           | --print-config
0  |                           | --doctor
EOF
    done
}

@test "too few descriptors: exit 71, or the loader's 127, and nothing is run" {
    local limit
    for limit in 3 4 5 6; do
        run bash -c "exec 3>&- 4>&- 5>&- 6>&- 7>&-; ulimit -n $limit; exec dlock job touch '$T/ran'"
        [ "$status" -eq 71 ] || { [ "$limit" -eq 3 ] && [ "$status" -eq 127 ]; } || [ -n "${SANITIZER:-}" ]
        [ "$status" -ne 0 ]
        [ ! -e "$T/ran" ]
        equals "$(find "$T/locks" -name '*.lock' 2>/dev/null | wc -l)" 0
    done
}

# without CALL KIND NUMBER ARGUMENTS...: runs dlock; call NUMBER fails, and with the kind "rest" all later ones too.
without() {
    : >"$T/page"
    truncate -s 8192 "$T/page"
    run timeout -s KILL 30 env FAIL_PAGE="$T/page" FAIL_CALL="$1" FAIL_ERRNO=5 FAIL_KIND="$2" FAIL_AT="$3" LD_PRELOAD="$HELPERS/fail_nth.so" \
        "$DLOCK" "${@:4}"
    echo "$output"
}

@test "without memory, --extend and --release without a name do not report that there is no lock" {
    [ -z "${SANITIZER:-}" ] || skip 'a sanitizer has calls of its own'
    local action
    # shellcheck disable=SC2016
    DLOCK_HELD=$(dlock job -- sh -c 'echo "$DLOCK_HELD"')
    export DLOCK_HELD
    for action in --extend --release; do
        without realloc error 1 "$action"
        equals "$status" 71
        [[ $output == *'out of memory'* ]]
    done
}

@test "a watch that cannot poll ends with its command" {
    [ -z "${SANITIZER:-}" ] || skip 'a sanitizer has calls of its own'
    without poll rest 1 -t 10m job sh -c 'sleep 0.3; exit 7'
    equals "$status" 7
}

@test "--lock-file: a path that cannot be checked is an outage, not a holder; if it fails once at the release, it is checked again" {
    [ -z "${SANITIZER:-}" ] || skip 'a sanitizer has calls of its own'
    without stat64 rest 1 -w 300ms --lock-file="$T/file" touch "$T/ran"
    equals "$status" 69
    [[ $output == *'cannot examine the lock file'*'Input/output error'* ]]
    [ ! -e "$T/ran" ]
    local at
    for at in 1 2 3 4; do
        without stat64 error "$at" -w 10s --lock-file="$T/file" true
        equals "$status" 0
        equals "$output" ''
    done
}

@test "a lock file whose holder the kernel does not report is an outage, not a holder" {
    [ -z "${SANITIZER:-}" ] || skip 'a sanitizer has calls of its own'
    hold_lock job
    without fcntl64 rest 1 -w 300ms job touch "$T/ran"
    equals "$status" 69
    [[ $output == *'cannot read the lock file'* ]]
    [ ! -e "$T/ran" ]
    end_hold
    wait "$HOLDER"
}

@test "a pause that cannot be read, or is garbled, still counts: nobody acquires the lock or removes its file until --resume" {
    [ -z "${SANITIZER:-}" ] || skip 'a sanitizer has calls of its own'
    without pread64 rest 1 --pause=60s --message=why job
    equals "$status" 0
    fails_with 75 'paused by .*; message: why' dlock -n job touch "$T/ran"
    without pread64 error 1 -n job touch "$T/ran"
    equals "$status" 75
    printf 'dlock 1\nexpires 12' | dd of="$T/locks/dlock:job.lock" bs=1 seek=10240 conv=notrunc status=none
    fails_with 75 'paused by unknown .*: the record cannot be read' dlock -n job touch "$T/ran"
    [ ! -e "$T/ran" ]
    dlock --resume job
    dlock -n job touch "$T/ran"
    [ -e "$T/ran" ]
    equals "$(find "$T/locks" -name '*.lock' | wc -l)" 0
}

@test "--doctor does not wait forever for a file that is listed but cannot be read" {
    [ -z "${SANITIZER:-}" ] || skip 'a sanitizer has calls of its own'
    local start=$(now)
    without read rest 1 --doctor job
    within 7000 "$start"
    equals "$status" 0
    [[ $output == *'warn  handed over'*'but without a notification: none arrived'* ]]
}

@test "a closed or full stderr or stdout changes nothing" {
    run bash -c 'dlock -v job -- sh -c "exit 5" 2>&-'
    [ "$status" -eq 5 ]
    run bash -c 'dlock -v job -- sh -c "exit 5" 2>/dev/full'
    [ "$status" -eq 5 ]
    run bash -c 'dlock -v job -- sh -c "exit 5" 0<&- 1>&- 2>&-'
    [ "$status" -eq 5 ]
    # If the reader has gone away, a writer gets SIGPIPE.
    run bash -c '(dlock -v job -- sh -c "sleep 0.3; exit 5"; echo $? >"$T/status") 2>&1 >/dev/null | true; cat "$T/status"'
    wait_until 10 test -s "$T/status"
    equals "$(cat "$T/status")" 5
}

@test "closed standard descriptors are filled, so that no message goes into a file or a connection; the command finds them closed" {
    run bash -c 'exec 3>&- 4>&-; dlock -v job -- sh -c "cat $T/locks/*.lock >$T/record" <&- >&- 2>&-'
    equals "$status" 0
    equals "$(head -n 1 "$T/record")" 'dlock 2'
    run bash -c 'exec 3>&- 4>&-; dlock job -- sh -c "[ -e /proc/self/fd/2 ] || exit 9" <&- >&- 2>&-'
    equals "$status" 9
    start_redis
    run bash -c 'exec 3>&- 4>&-; dlock -v --backend=redis -r "unix://$T/redis.sock" -t 2s job -- sleep 0.5 <&- >&- 2>&-'
    equals "$status" 0
    equals "$(redis-cli -s "$T/redis.sock" info errorstats | grep -c errorstat_ERR)" 0
}
