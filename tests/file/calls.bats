#!/usr/bin/env bats
# The number of system calls that dlock makes, which does not depend on the machine's load.
load ../lib/common

setup() {
    common_setup
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
    command -v strace >/dev/null || skip 'no strace'
    [ -z "$SANITIZER" ] || skip 'sanitizers make calls of their own'
    strace -o "$T/calls" true 2>/dev/null || skip 'no process can be traced here'
}

# waits_in_trace [DLOCK ARGUMENTS...]: waits for the held lock, traced, in the background.
waits_in_trace() {
    strace -o "$T/calls" "$DLOCK" "$@" 2>"$T/waiter.err" 3>&- 4>&- &
    WAITER=$!
}
waiting() { dlock --status --json job | grep -q '"waiters":1'; }

@test "a waiter reads its ancestors in /proc once, however often the lock is refused" {
    hold_lock job
    waits_in_trace -w 2.5s job true
    wait "$WAITER" || status=$?
    equals "$status" 75
    at_least=$(grep -c '^pread64(.*"dlock ' "$T/calls") # a refusal reads the holder's record
    [ "$at_least" -ge 3 ]
    equals "$(grep -c "/proc/$$/stat" "$T/calls")" 1
}

# From the last sleep until the waiter leaves the queue, and from the section of the release until the unlock.
@test "a woken waiter makes 16 calls about the lock before it starts its command, and 13 to release it" {
    local i
    for i in {1..5}; do # a busy machine may wake it twice
        rm -f "$T/held.end"
        hold_lock job
        waits_in_trace job true
        wait_until 10 waiting
        touch "$T/held.end"
        wait "$WAITER"
        awk '/^p?poll\(/ { n = 0; next }
            { n++ }
            /F_UNLCK.*l_start=2305843009213693952, l_len=0/ { taken = n }
            /F_WRLCK.*l_start=1152921504606846976/ { section = n }
            /LOCK_UN/ { print taken, n - section + 1 }' "$T/calls" >"$T/counts"
        read -r taken released <"$T/counts"
        [ "$taken" -gt 16 ] || [ "$released" -gt 13 ] || return 0
    done
    cat "$T/counts"
    false
}

# The last close of an inotify instance takes up to 20 ms.
@test "dlock leaves the close of its inotify instance to the kernel" {
    hold_lock job
    waits_in_trace job true
    wait_until 10 waiting
    touch "$T/held.end"
    wait "$WAITER"
    grep -q '^sendmsg(.*SCM_RIGHTS' "$T/calls"
}
