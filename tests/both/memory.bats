#!/usr/bin/env bats
# A host may have hundreds of waiters: each is about as small as flock(1).
load backend
load ../lib/queue

# memory_of PID: prints, in kB, the pages that only this process has; those that it has, or had until it forked, except
# pages of files; and its peak memory with shared libraries.
memory_of() {
    echo "$(awk '/^(Private_Dirty|Anonymous):/ { print $2 }' "/proc/$1/smaps_rollup" | tr '\n' ' ')$(awk '/^VmHWM:/ { print $2 }' "/proc/$1/status")"
}

@test "a holder and a waiter use little memory of their own, and at their peak 1 MB more than flock" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    local pid own anonymous most peak least
    most=$([ "$BACKEND" = file ] && echo 220 || echo 352)
    [ "$(getconf PAGESIZE)" -eq 4096 ] || most=450
    exec 5>"$T/file"
    flock 5
    flock "$T/file" true 3>&- 4>&- 5>&- &
    echo $! >"$T/flock.pid"
    sleep 0.2
    read -r _ _ least <<<"$(memory_of $!)"
    exec 5>&-
    hold_lock job
    queue waiter
    wait_until 10 grep -q '^Threads:.2' "/proc/$HOLDER/status" # it watches its lease
    for pid in "$HOLDER" "$(pid_of waiter)"; do
        read -r own anonymous peak <<<"$(memory_of "$pid")"
        echo "own $own, anonymous $anonymous, peak $peak, flock's $least kB" >&2
        [ "$own" -gt 0 ]
        [ "$own" -le 450 ]
        [ "$anonymous" -le "$most" ]
        [ "$peak" -le $((least + 1024)) ]
    done
    end_hold
    ended waiter
    wait "$HOLDER"
}
