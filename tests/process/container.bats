#!/usr/bin/env bats
# dlock as the first process of a container.
load ../lib/common

setup() {
    common_setup
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
    unshare -pf --mount-proc --kill-child true 2>/dev/null || skip 'no namespaces here'
}

# Prints the pid of the dlock that is pid 1 inside.
inside() { pgrep -P "$CONTAINER"; }

# contain COMMAND...: runs it in the background, as pid 1 of its own namespace.
contain() {
    unshare -pf --mount-proc --kill-child "$@" >"$T/out" 2>"$T/err" 3>&- 4>&- &
    CONTAINER=$!
    echo "$CONTAINER" >"$T/container.pid"
}

@test "under unshare -p without -f, where the command could outlive dlock, nothing is run: exit 71 with the reason" {
    [ "${SANITIZER:-coverage}" = coverage ] || skip 'a build for the sanitizers, which start other processes'
    fails_with 71 'cannot run touch: the command would run in a new pid namespace; use unshare -f' \
        unshare -p dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
    equals "$(find "$T/locks" -name '*.lock' | wc -l)" 0
}

@test "as pid 1: TERM is passed on to the command, whose status is returned, and nothing is printed" {
    contain dlock job -- sh -c 'trap "echo got TERM; exit 33" TERM; touch "$T/ready"; while :; do sleep 0.01; done'
    wait_until 10 test -e "$T/ready"
    kill -TERM "$(inside)"
    local status=0
    wait "$CONTAINER" || status=$?
    equals "$status $(cat "$T/out")" '33 got TERM'
    run unshare -pf --mount-proc --kill-child dlock job -- sh -c 'exit 7'
    equals "$status $output" '7 '
    run unshare -pf --mount-proc --kill-child dlock job -- sh -c 'kill -KILL $$'
    equals "$status $output" '137 '
}

@test "as pid 1: TERM ends a wait for the lock, and one until it is free; nothing is run" {
    local action status command=(touch "$T/ran")
    hold_lock job
    for action in -x --wait-until-free; do
        [ $action = -x ] || command=()
        status=0
        contain dlock -v "$action" -w 60 job "${command[@]}"
        wait_until 10 grep -q 'waiting: held by' "$T/err"
        kill -TERM "$(inside)"
        wait "$CONTAINER" || status=$?
        equals "$status" 143
    done
    [ ! -e "$T/ran" ]
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

@test "in a container whose pid 1 does not reap, a finished run leaves no process, not even a zombie" {
    [ "$(id -u)" -eq 0 ] || skip 'only root can enter a namespace'
    local tree
    contain sleep 600
    wait_until 10 inside
    for tree in --no-tree --tree; do
        # shellcheck disable=SC2016
        run nsenter -t "$(inside)" -p -m dlock $tree job -- sh -c 'until ls -l "/proc/$PPID/fd" 2>/dev/null | grep -q inotify; do sleep 0.02; [ '$tree' = --no-tree ] || exit 0; done'
        equals "$status $output" '0 '
        equals "$(pgrep -P "$(inside)")" ''
    done
    kill "$CONTAINER"
}

@test "as pid 1: the whole tree is stopped when the lease ends" {
    # The kernel kills every process that is left once pid 1 has ended; the TERM comes from dlock.
    run unshare -pf --mount-proc --kill-child dlock -t 3s --grace=2s job -- sh -c \
        'setsid sh -c "trap \": >\$T/told; exit\" TERM; while :; do sleep 0.01; done" & exec sleep 600'
    equals "$status" 124
    [ -e "$T/told" ]
}

@test "a /proc of another pid namespace is not trusted: the command is still stopped, and nothing else is" {
    sleep 66666 >/dev/null 2>&1 3>&- 4>&- &
    echo $! >"$T/other.pid"
    run timeout 30 unshare -pf --kill-child dlock -t 1s job sleep 600
    equals "$status" 124
    kill -0 "$(cat "$T/other.pid")"
}

# Skips a test that needs another user, $user, and a /proc that hides other users' processes.
hidden() {
    export DLOCK
    mkdir -p "$T/proc" "$T/open" && chmod 777 "$T/open"
    [ "$(id -u)" -eq 0 ] && let_others_into "$T/open" && unshare -pfm mount -t proc -o hidepid=2 proc "$T/proc" ||
        skip 'needs root and mounts'
}
user='setpriv --reuid=65534 --regid=65534 --clear-groups env CI=1 HOME=/nonexistent'

@test "a holder that /proc hides (hidepid=2) is reported as ended only once it has ended" {
    hidden
    use_store redis
    chmod 777 "$T/redis.sock"
    # shellcheck disable=SC2016
    run timeout -s KILL 60 unshare -pfm --kill-child sh -c 'mount -t proc -o hidepid=2 proc /proc || exit
        "$DLOCK" job -- sh -c ": >\"\$T/ready\"; exec sleep 600" & holder=$!
        until [ -e "$T/ready" ]; do sleep 0.02; done
        '"$user"' "$DLOCK" -w 2.5s job true; echo "status $?"
        '"$user"' "$DLOCK" --status job; '"$user"' "$DLOCK" --status --json job | grep -o "\"alive\":[a-z]*"
        kill -KILL $holder; wait $holder; echo killed
        '"$user"' "$DLOCK" -w 2.5s job true; echo "status $?"; '"$user"' "$DLOCK" --status job'
    echo "$output"
    local alive=${output%%killed*} ended=${output##*alive}
    [[ $alive == *"waiting 1s: held by root@"*" (pid "*", sh; hidden by /proc) since "*"status 75"*", sh; hidden by /proc) since "*'"alive":null'* ]]
    [[ $alive != *'has ended'* && $alive != *force-release* ]]
    [[ $ended == *', sh; has ended) since '*'; the lease ends at '*'; to release the lock now: dlock --force-release job'*"status 75"*', sh; has ended) since '* ]]
}

@test "processes that the command starts as another user, and /proc hides, are stopped and waited for" {
    hidden
    cp "$(command -v sleep)" "$T/open/sleep"
    chmod 4755 "$T/open/sleep"
    ! findmnt -nT "$T" -o OPTIONS | grep -qw nosuid || skip 'mounted nosuid'
    local tree
    for tree in --no-tree --tree; do
        # shellcheck disable=SC2016
        run timeout -s KILL 60 unshare -pfm --kill-child sh -c 'mount -t proc -o hidepid=2 proc /proc || exit
            '"$user"' "$DLOCK" -t 1s '$tree' --lock-dir="$T/open/locks" job -- sh -c "
                \"\$T/open/sleep\" 600 & while [ -e /proc/\$! ]; do sleep 0.01; done; echo hidden; exec sleep 600"
            echo "status $?"; pgrep -a sleep'
        echo "$output"
        [[ $output == *'hidden'*'stopping the command with SIGTERM'*'status 124' ]]
    done
}

@test "a /proc of another pid namespace: --tree still passes the stop on, and pid 1 stops all processes of its namespace" {
    run timeout 30 unshare -pf --kill-child dlock --tree -t 3s --grace=2s job -- bash -c 'trap "echo got TERM; exit 3" TERM; while :; do sleep 0.01; done'
    equals "$status" 124
    [[ $output == *'got TERM'* ]]
    run timeout 30 unshare -pf --kill-child dlock -t 1s job -- sh -c 'setsid sh -c "trap \"\" TERM; while :; do date +%s >\"$T/alive\"; sleep 0.05; done" & sleep 60'
    equals "$status" 124
    rm "$T/alive"
    sleep 0.3 # make would create it again
    [ ! -e "$T/alive" ]
}

@test "dlock is killed after /proc has gone: the command is killed too, with --tree as well, and no guard keeps the lock" {
    [ "${SANITIZER:-coverage}" = coverage ] || skip 'a sanitizer needs /proc, even for its options'
    local tree
    for tree in --no-tree --tree; do
        rm -f "$T/command"
        # shellcheck disable=SC2016
        timeout 30 unshare -m sh -c 'dlock '$tree' job sh -c "echo \$\$ >\"\$T/command\"; exec sleep 600" &
            until [ -s "$T/command" ] && pgrep -P $! -x dlock-guard; do sleep 0.02; done
            sleep 0.3 # the guard has found /proc
            mount -t tmpfs none /proc && kill -KILL $!' >/dev/null 2>&1 3>&- 4>&-
        wait_until 5 gone "$(cat "$T/command")"
        dlock -w 5 job true
    done
}

# same_start [VARIABLE=VALUE...] COMMAND...: runs the command as if all processes had started in one tick of the clock.
same_start() { env LD_PRELOAD="$HELPERS/fault_same_start.so" "$@"; }

# use_store NAME: replaces the lock directory by this store.
use_store() {
    [ "$1" = redis ] || return 0
    unset DLOCK_BACKEND
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock
}

# second COMMAND...: runs it as pid 1 of another container than `contain`, started in the same tick.
second() { same_start unshare -pf --mount-proc --kill-child "$@"; }

# first SCRIPT: runs it in a container until the end of the test; "$stay" in the script waits for that.
first() {
    rm -f "$T/ready" "$T/end"
    contain env LD_PRELOAD="$HELPERS/fault_same_start.so" sh -c "$1"
    wait_until 10 test -e "$T/ready"
}
stay='touch "$T/ready"; while [ ! -e "$T/end" ]; do sleep 0.05; done'
end_first() {
    touch "$T/end"
    wait "$CONTAINER"
}

@test "two containers on one host start in the same tick: the second does not run under the first one's lock" {
    local store mode
    for store in file redis; do
        use_store "$store"
        for mode in --ttl=60s --slots=1; do
            first "exec dlock $mode job -- sh -c '$stay'"
            fails_with 75 '(held|slots are taken, one) by .* [(]pid 1, sh[)] ' second dlock -v "$mode" -n job touch "$T/ran"
            fails_with 75 'held by .*lease ends in' second dlock -v --wait-until-free -n job
            [ ! -e "$T/ran" ]
            end_first
            run second dlock -n "$mode" job echo ran
            equals "$status $output" '0 ran'
        done
        # A sharer of its own, with its own deadline.
        first "exec dlock -s --owner=first job -- sh -c '$stay'"
        run second dlock -s -n --owner=second job dlock --status -v job
        equals "$status $(grep -c '^  owner' <<<"$output")" '0 2'
        end_first
    done
}

@test "two containers on one host start in the same tick: the second does not release the first one's lock" {
    local store
    for store in file redis; do
        use_store "$store"
        first "exec dlock -t 60s job -- sh -c '$stay; dlock --current >\"\$T/own\"'"
        fails_with 64 'is not running under the lock' second dlock --release job
        fails_with 64 'is not running under the lock' second dlock --extend -t 1s job
        end_first
        grep -q job "$T/own"
        rm "$T/own"
        # A script is pid 1, and the lock is attached to it.
        first "dlock --attach=1 -t 60s job || exit; $stay; dlock --current >\"\$T/own\""
        run second sh -c 'dlock --current; dlock --release; exit 0'
        [[ $output != *job* ]]
        fails_with 75 'held by' second dlock -v -n job touch "$T/ran"
        end_first
        grep -q job "$T/own"
        rm "$T/own"
    done
}

@test "--attach=1 refuses a pid 1 of another session, which has only adopted the caller" {
    # In a namespace of its own, so that without the check no other process is in danger.
    run timeout 20 unshare -pf --mount-proc --kill-child sh -c 'setsid -w dlock --attach=1 -t 60s job; echo "$?"; dlock --status -q job; echo "$?"'
    equals "$status" 0
    [[ $output == *'pid 1 belongs to another session '*'; nothing is locked'*$'\n64\n1' ]]
    run timeout 20 unshare -pf --mount-proc --kill-child setsid -w sh -c 'dlock --attach=1 --on-expire=warn -t 60s job; echo "$?"'
    equals "$status $output" '0 0'
}

@test "--attach=1 warns that dlock cannot kill pid 1 of a container; a pid 1 that handles the stop signal is stopped" {
    local pid1='timeout 20 unshare -pf --mount-proc --kill-child setsid -w sh -c'
    fails_with 0 'dlock cannot kill sh \(pid 1\): .*--on-expire=warn' $pid1 'dlock --attach=1 -t 60s job; exit "$?"'
    fails_with 7 '' $pid1 'trap "exit 7" TERM; dlock --attach=1 -t 2s job || exit; while :; do sleep 0.1; done'
}

@test "a container inside the lock's command is inside the lock if it has the environment" {
    local store
    for store in file redis; do
        use_store "$store"
        run timeout 20 dlock job -- unshare -pf --mount-proc --kill-child dlock -n job -- unshare -pf --kill-child dlock -n job echo ok
        equals "$status $output" '0 ok'
        run timeout 20 dlock -s job -- unshare -pf --mount-proc --kill-child dlock -v -n -s job true
        [[ $status -eq 0 && $output == *'an enclosing dlock already holds the lock'* ]]
        run timeout 20 dlock job -- unshare -pf --mount-proc --kill-child dlock -n job -- dlock --extend job
        equals "$status" 0
    done
}

@test "--lock-file in a container: a holder outside is noticed, and a process inside the lock does not wait" {
    local file=$T/exact mode flock lock="--lock-file=$T/exact"
    for flock in 'flock -n' 'flock -n -s'; do
        run $flock "$file" unshare -pf --mount-proc --kill-child dlock --status "$lock"
        equals "$status" 0
        fails_with 75 'another client' $flock "$file" unshare -pf --mount-proc --kill-child dlock -v --wait-until-free -n "$lock"
    done
    for mode in '' -s; do
        run timeout 20 dlock $mode "$lock" -- unshare -pf --mount-proc --kill-child dlock -v $mode "$lock" echo ok
        [[ $status -eq 0 && $output == *'already holds the lock'*ok ]]
        fails_with 64 'waiting would deadlock' timeout 20 \
            dlock $mode "$lock" -- unshare -pf --mount-proc --kill-child dlock --wait-until-free "$lock"
    done
    # A script is pid 1, and the lock is attached to it.
    run timeout 20 unshare -pf --mount-proc --kill-child sh -c "dlock --attach=1 --on-expire=warn '$lock' && dlock '$lock' echo ok; exit \$?"
    equals "$status $output" '0 ok'
}

@test "if the pid namespace is unknown, an outer lock is found by the environment, not by the processes" {
    local store
    for store in file redis; do
        use_store "$store"
        run same_start FAULT_NO_SPACE=1 timeout 20 dlock job -- dlock -n job echo ok
        equals "$status $output" '0 ok'
        fails_with 75 'held by' same_start FAULT_NO_SPACE=1 timeout 20 dlock job -- env -u DLOCK_HELD dlock -v -n job echo wrong
    done
}
