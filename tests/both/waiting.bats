#!/usr/bin/env bats
# Waiters are served first come, first served, and at once. An idle waiter polls
# every few seconds; a timeless one checks only if it is called.
load backend
load ../lib/queue

# freeze_the_next [timeless]: the lock is free, and it is the turn of a, which is frozen; b waits after it.
freeze_the_next() {
    hold_lock job
    queue a
    "$@" queue b
    kill -STOP "$(pid_of a)"
    end_hold
    wait "$HOLDER"
}

@test "first come, first served" {
    local i
    stop_time
    hold_lock job
    for i in {1..8}; do queue "$i"; done
    end_hold
    for i in {1..8}; do ended "$i"; done
    equals "$(order)" '1 2 3 4 5 6 7 8 '
    is_clean job
}

@test "the next waiter starts at once when the lock is released" {
    hold_lock job
    timeless queue a
    [ ! -e "$T/order" ]
    end_hold
    wait_until 20 ran 'a '
    ended a
    is_clean job
}

@test "a waiter's lease begins when it acquires the lock, not when it came" {
    hold_lock job
    dlock -w 20 job dlock --status --json job >"$T/json" 3>&- 4>&- &
    local waiter=$! released
    wait_until 10 sh -c 'dlock --status --json job | grep -q "\"waiters\":1"'
    sleep 1.1
    released=$(date -u +%FT%TZ)
    end_hold
    wait "$waiter"
    [[ ! $(grep -o '"acquired_at":"[^"]*' "$T/json" | cut -d '"' -f 4) < $released ]]
}

@test "nobody overtakes a frozen first waiter until it loses its turn; it gets another when it runs again" {
    freeze_the_next
    fails_with 75 '' dlock -n job echo wrong
    wait_until 5 ran 'b '
    ended b
    kill -CONT "$(pid_of a)"
    ended a
    equals "$(order)" 'b a '
    is_clean job
}

@test "a caller that is refused because others have waited longer is told so" {
    freeze_the_next
    fails_with 75 'waited longer' dlock -v -n job echo wrong
    kill -CONT "$(pid_of a)"
    ended a && ended b
}

@test "several frozen waiters in a row delay the next one only a little" {
    local i start
    hold_lock job
    for i in {1..8}; do queue "$i"; done
    queue z
    for i in {1..8}; do kill -STOP "$(pid_of "$i")"; done
    end_hold && start=$(now)
    wait_until 20 ran "z "
    within 5000 "$start" # one turn each would be 12 s or more
    for i in {1..8}; do kill -CONT "$(pid_of "$i")"; done
    for i in {1..8} z; do ended "$i"; done
    is_clean job
}

@test "live waiters behind several frozen ones keep their order" {
    local i
    hold_lock job
    for i in {1..11}; do queue "$i"; done
    for i in 1 2 3; do kill -STOP "$(pid_of "$i")"; done
    end_hold
    for i in {4..11}; do ended "$i"; done
    equals "$(order)" '4 5 6 7 8 9 10 11 '
    for i in 1 2 3; do kill -CONT "$(pid_of "$i")"; done
    for i in 1 2 3; do ended "$i"; done
    is_clean job
}

@test "killed waiters do not delay those behind them" {
    local i
    stop_time
    hold_lock job
    for i in {1..12}; do queue "$i"; done
    queue z
    for i in {1..9} 11 12; do kill -KILL "$(pid_of "$i")"; done
    end_hold
    ended 10
    ended z
    equals "$(order)" '10 z '
    is_clean job
}

@test "a waiter that gives up or is terminated leaves its place at once" {
    stop_time
    hold_lock job
    queue a -w 60 && queue b && queue c
    kill -TERM "$(pid_of b)"
    ended b 143
    wait_until 1 waits 2
    set_boot "=$((STILL + 61))"
    ended a 75
    wait_until 1 waits 1
    end_hold
    ended c
    equals "$(order)" 'c '
    is_clean job
}

@test "a waiter that is terminated in its turn passes the turn on" {
    freeze_the_next timeless
    kill -TERM "$(pid_of a)"
    kill -CONT "$(pid_of a)"
    ended a 143
    ended b
}

@test "a lease without a process: its waiter gets the lock when it ends, is released, shortened or removed" {
    local start
    start=$(now)
    dlock --acquire -t 2s --owner=x job >/dev/null
    queue a
    ended a
    within 2000 "$start"
    timeless dlock --acquire -t 60s --owner=x job >/dev/null
    timeless queue b
    timeless dlock --release --owner=x job
    ended b
    dlock --acquire -t 60s --owner=x job >/dev/null
    queue c
    dlock --extend -t 300ms --owner=x job && start=$(now)
    ended c
    within 300 "$start"
    timeless dlock --acquire -t 60s --owner=x job >/dev/null
    timeless queue d
    timeless dlock --force-release job >/dev/null
    ended d
    equals "$(order)" 'a b c d '
}

@test "an extended lock is waited for until its new end" {
    dlock --acquire -t 1s --owner=x job >/dev/null
    queue a
    dlock --extend -t 3s --owner=x job
    local start=$(now)
    ended a
    [ $(($(now) - start)) -ge 2800 ]
    within 3000 "$start"
}

@test "waiters that may share the lock acquire it together, in the order in which they came" {
    stop_time
    hold_lock job
    hold r
    dlock -s job -- "$T/r.sh" 2>"$T/r.err" 3>&- 4>&- &
    echo $! >"$T/r.pid"
    wait_until 10 waits 1
    queue b -s && queue c -s && queue w && queue d -s
    end_hold
    wait_until 20 eval '[[ $(order) == "b c " || $(order) == "c b " ]]'
    wait_until 1 waits 2 # the writer, and the reader that came after it
    fails_with 75 '' dlock -n -s job echo wrong
    touch "$T/r.end"
    wait "$(pid_of r)"
    ended w
    ended d
    [[ $(order) == *'w d ' ]]
    is_clean job
}

@test "--slots: the first waiter gets the slot that becomes free" {
    local i
    stop_time
    hold one && hold two
    dlock --slots=2 job -- "$T/one.sh" 3>&- 4>&- &
    echo $! >"$T/one.pid"
    dlock --slots=2 job -- "$T/two.sh" 3>&- 4>&- &
    echo $! >"$T/two.pid"
    wait_until 10 eval '[ -e "$T/one" ] && [ -e "$T/two" ]'
    for i in 1 2 3 4; do queue "$i" --slots=2; done
    touch "$T/one.end"
    for i in 1 2 3 4; do ended "$i"; done
    equals "$(order)" '1 2 3 4 '
    touch "$T/two.end"
    wait "$(pid_of two)"
    is_clean job
}

@test "processes that acquire the lock again and again get it equally often" {
    local i
    touch "$T/order"
    for i in {1..5}; do
        (while [ "$(wc -l <"$T/order")" -lt 60 ]; do dlock job -- sh -c 'echo "$0" >>"$T/order"; sleep 0.02' "$i"; done) 2>/dev/null 3>&- 4>&- &
        echo $! >"$T/loop$i.pid"
    done
    for i in {1..5}; do wait "$(pid_of "loop$i")"; done
    sort "$T/order" | uniq -c >&2
    [ "$(sort "$T/order" | uniq -c | awk '{ print $1 }' | sort -n | head -1)" -ge 9 ]
}

@test "an idle waiter uses next to no processor time, nor does one whose predecessor has left" {
    hold_lock job
    queue a
    queue b
    queue c
    ticks() { awk '{ sum += $14 + $15 } END { print sum }' "/proc/$(pid_of a)/stat" "/proc/$(pid_of c)/stat"; }
    kill "$(pid_of b)"
    ended b 143
    sleep 1
    local before=$(ticks)
    sleep 3
    [ $(($(ticks) - before)) -le 4 ]
    end_hold
    ended a
    ended c
}

@test "a command that was run after a wait has the signals and descriptors that dlock was given" {
    hold_lock job
    queue first
    tell() { dlock "$1" -- python3 -c '
import os, sys
lines = [line.split(":") for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn"))]
own = 3 << 31 # the C library uses 32 and 33, and does not let them be ignored again
print(sorted(os.listdir("/proc/self/fd")), [(name, int(mask, 16) & ~own) for name, mask in lines], file=open(sys.argv[1], "w"))' \
        "$T/$2"; }
    tell job waited 3>&- 4>&- &
    echo $! >"$T/second.pid"
    wait_until 10 waits 2
    end_hold
    ended first
    ended second
    tell other direct 3>&- 4>&- &
    wait $!
    equals "$(cat "$T/waited")" "$(cat "$T/direct")"
}

@test "a suspend of the host, during which poll(2) timeouts stand still, does not prolong a wait" {
    with_suspends dlock --acquire -t 2h job >/dev/null
    with_suspends dlock -w 1h job true 2>"$T/err" 3>&- 4>&- &
    echo $! >"$T/a.pid"
    wait_until 10 waits 1
    suspended 3601
    wait_until 20 gone "$(pid_of a)"
    ended a 75
}
