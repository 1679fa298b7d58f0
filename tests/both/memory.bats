#!/usr/bin/env bats
# A host may have hundreds of waiters: each is about as small as flock(1).
load backend
load ../lib/queue

# memory_of PID: prints its own memory, and its peak memory with shared libraries, in kB.
memory_of() {
    echo "$(awk '/^Private_Dirty:/ { print $2 }' "/proc/$1/smaps_rollup") $(awk '/^VmHWM:/ { print $2 }' "/proc/$1/status")"
}

@test "a holder and a waiter use less than 0.45 MB of their own, and at their peak 1 MB more than flock" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    local pid own peak least
    exec 5>"$T/file"
    flock 5
    flock "$T/file" true 3>&- 4>&- 5>&- &
    echo $! >"$T/flock.pid"
    sleep 0.2
    read -r _ least <<<"$(memory_of $!)"
    exec 5>&-
    hold_lock job
    queue waiter
    sleep 0.2 # long enough for the watch to start
    for pid in "$HOLDER" "$(pid_of waiter)"; do
        read -r own peak <<<"$(memory_of "$pid")"
        echo "own $own, peak $peak, flock's $least kB" >&2
        [ "$own" -gt 0 ]
        [ "$own" -le 450 ]
        [ "$peak" -le $((least + 1024)) ]
    done
    end_hold
    ended waiter
    wait "$HOLDER"
}
