#!/usr/bin/env bats
# What happens to a lock file if processes die, freeze or are released by force
# at the wrong moment: the orders at the top of store/file/dir_backend.c.
load ../lib/common

setup() {
    common_setup
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
    F=$T/locks/dlock:job.lock
}

STOP=19 KILL=9

# at_write SIGNAL LABEL ARGUMENTS...: starts a dlock that gets this signal
# when it writes its record in the critical section (negative: after it has written it).
at_write() {
    hold "$2"
    env LD_PRELOAD="$HELPERS/fault_signal_at_pwrite.so" PWRITE_SIGNAL="$1" dlock "${@:3}" -- "$T/$2.sh" \
        >/dev/null 2>"$T/$2.err" 3>&- 4>&- &
    echo $! >"$T/$2.pid"
}
pid_of() { cat "$T/$1.pid"; }
is_frozen() { grep -q '^State:[[:space:]]T' "/proc/$(pid_of "$1")/status"; }

# share LABEL [DLOCK ARGUMENTS...]: holds the lock in the background.
share() {
    hold "$1"
    dlock "${@:2}" -- "$T/$1.sh" >/dev/null 2>"$T/$1.err" 3>&- 4>&- &
    echo $! >"$T/$1.pid"
    wait_until 10 test -e "$T/$1"
}
files() { find "$T/locks" -name '*.lock' | wc -l; }

# bats test_tags=slow
@test "dlock is frozen while it acquires the lock: others are refused, and it goes on when it runs again" {
    at_write $STOP frozen -t 60s job
    wait_until 10 is_frozen frozen
    local start=$(now)
    fails_with 75 '' dlock -n job echo wrong
    within 2000 "$start"
    run timeout 20 dlock --status job # --status waits for nobody, and sees the flock(2)
    equals "$status" 0
    fails_with 69 'another process began to change the lock file' dlock --release --owner=x job
    kill -CONT "$(pid_of frozen)"
    wait_until 10 test -e "$T/frozen"
    fails_with 75 '' dlock -n job echo wrong
    touch "$T/frozen.end"
    wait "$(pid_of frozen)"
    equals "$(files)" 0
}

# bats test_tags=slow
@test "a lock file with gigabytes of holes: it is locked at once, and no check of it exceeds its time limit" {
    mkdir -m 700 "$T/locks"
    truncate -s 16G "$F" || skip 'no such files here'
    run timeout 20 dlock --status job
    equals "$status" 1
    run timeout 20 dlock -n job echo in
    equals "$status $output" '0 in'
    # The hole is behind a record.
    dlock --acquire -t 1h job >/dev/null
    truncate -s 16G "$F"
    fails_with 75 '' timeout 20 dlock -n job touch "$T/ran"
    dlock --force-release job
    # A byte in the last place is locked, so each place is checked.
    truncate -s 16G "$F"
    python3 - "$F" 3>&- 4>&- <<'P' &
import fcntl, os, struct, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, (1 << 60) + (1 << 32) + (1 << 20) - 1, 1, 0))
open(os.environ["T"] + "/locked", "w").close()
time.sleep(600)
P
    echo $! >"$T/far.pid"
    wait_until 10 test -e "$T/locked"
    local start=$(now) whole limited
    fails_with 69 'cannot read the lock file' timeout 25 dlock -n job touch "$T/ran"
    whole=$(($(now) - start))
    [ "$whole" -ge 2900 ]
    within 6000 "$start"
    start=$(now)
    fails_with 69 'cannot read the lock file' timeout 25 dlock -w 200ms job touch "$T/ran"
    limited=$(($(now) - start))
    echo "$limited ms, and $whole without a limit of its own"
    [ "$limited" -lt "$whole" ]
    timeout 25 dlock job touch "$T/ran" 2>/dev/null 3>&- 4>&- &
    echo $! >"$T/waiter.pid"
    sleep 0.5
    kill -TERM "$(pid_of waiter)"
    local status=0
    wait "$(pid_of waiter)" || status=$?
    equals "$status" 143
    [ ! -e "$T/ran" ]
}

@test "dlock is killed while it acquires the lock, before or after its record is written: the lock is free at once" {
    local signal
    for signal in $KILL -$KILL; do
        at_write "$signal" dead -t 60s job
        wait_until 10 gone "$(pid_of dead)"
        [ -e "$F" ]
        run dlock --status job
        equals "$status" 1
        run dlock -n job echo next
        equals "$output" next
        equals "$(files)" 0
    done
}

@test "dlock is killed after it has written the record of a lease without a process: the lock is held all the same" {
    run env LD_PRELOAD="$HELPERS/fault_signal_at_pwrite.so" PWRITE_SIGNAL=-$KILL dlock --acquire --owner=me -t 60s job
    equals "$status" 137
    fails_with 75 '' dlock -n job echo wrong
    run dlock --release --owner=me job
    equals "$status" 0
    equals "$(files)" 0
}

# The frozen one runs again, and waits until the other has left the lock.
goes_on_after_the_other() {
    kill -CONT "$(pid_of frozen)"
    sleep 0.3
    [ ! -e "$T/frozen" ]
    touch "$T/other.end"
    wait "$(pid_of other)"
    wait_until 10 test -e "$T/frozen"
    touch "$T/frozen.end"
    wait "$(pid_of frozen)"
    equals "$(files)" 0
}

@test "dlock is frozen while it acquires a lock that --force-release then removes: another acquires it, and the frozen one waits" {
    at_write -$STOP frozen -t 60s job
    wait_until 10 is_frozen frozen
    run dlock --force-release job
    share other job
    goes_on_after_the_other
}

@test "dlock is frozen while it pauses the lock: --resume is refused meanwhile, and the pause counts when it runs again" {
    LD_PRELOAD=$HELPERS/fault_signal_at_pwrite.so PWRITE_SIGNAL=$STOP dlock --pause=1h --message=why job 3>&- 4>&- &
    echo $! >"$T/frozen.pid"
    wait_until 10 is_frozen frozen
    fails_with 69 'another process began to change the lock file' dlock --retry-for=0 --resume job
    equals "$(files)" 1
    kill -CONT "$(pid_of frozen)"
    wait "$(pid_of frozen)"
    fails_with 75 'paused by' dlock -n job echo wrong
    dlock --resume job
    equals "$(files)" 0
}

@test "dlock is frozen while it pauses a lock that --force-release then removes: the pause counts when it runs again" {
    LD_PRELOAD=$HELPERS/fault_signal_at_pwrite.so PWRITE_SIGNAL=$STOP dlock --pause=1h --message=why job 3>&- 4>&- &
    echo $! >"$T/frozen.pid"
    wait_until 10 is_frozen frozen
    run dlock --force-release job
    equals "$(files)" 0
    kill -CONT "$(pid_of frozen)"
    wait "$(pid_of frozen)"
    fails_with 75 'paused by' dlock -n job echo wrong
}

@test "dlock is frozen while it releases the lock: others wait, and acquire it when it runs again" {
    touch "$T/stop_at_unlink"
    LD_PRELOAD=$HELPERS/fault_stop_at.so dlock job true 2>"$T/a.err" 3>&- 4>&- &
    echo $! >"$T/a.pid"
    wait_until 10 is_frozen a
    fails_with 75 '' dlock -n job echo wrong
    dlock -w 20 job echo next >"$T/out" 3>&- 4>&- &
    local waiter=$!
    waits() { dlock --status job | grep -q '1 waiting'; }
    wait_until 10 waits
    kill -CONT "$(pid_of a)"
    wait "$(pid_of a)"
    wait "$waiter"
    equals "$(cat "$T/out")" next
    equals "$(files)" 0
}

@test "dlock is frozen while it releases a lock that --force-release then removes: on waking it removes the new file, which the new holder notices" {
    touch "$T/stop_at_unlink"
    LD_PRELOAD=$HELPERS/fault_stop_at.so dlock job true 2>"$T/a.err" 3>&- 4>&- &
    echo $! >"$T/a.pid"
    wait_until 10 is_frozen a
    dlock --force-release job
    share other job
    sleep 0.1 # long enough for its watch to start
    kill -CONT "$(pid_of a)"
    wait "$(pid_of a)"
    local status=0
    wait "$(pid_of other)" || status=$?
    equals "$status" 124
}

@test "dlock is frozen before it enters its critical section: it blocks nobody, and starts again with the new file" {
    touch "$T/stop_at_section"
    hold frozen
    LD_PRELOAD=$HELPERS/fault_stop_at.so dlock job -- "$T/frozen.sh" 2>"$T/frozen.err" 3>&- 4>&- &
    echo $! >"$T/frozen.pid"
    wait_until 10 is_frozen frozen
    run dlock -n job echo first # and removes the file that the frozen one has open
    equals "$output" first
    share other job
    goes_on_after_the_other
}

@test "a waiter that gives up removes the file that was kept for it" {
    share a -s job
    LD_PRELOAD=$HELPERS/fault_stop_at.so dlock -w 4s job true 2>"$T/waiter.err" 3>&- 4>&- &
    echo $! >"$T/waiter.pid"
    wait_until 10 not dlock -n -s job true
    sleep 1 # it has checked by then because of these
    touch "$T/stop_at_section" # it enters no critical section while it waits, only at the end
    wait_until 10 is_frozen waiter
    touch "$T/a.end"
    wait "$(pid_of a)"
    equals "$(files)" 1
    kill -CONT "$(pid_of waiter)"
    local status=0
    wait "$(pid_of waiter)" || status=$?
    equals "$status" 75
    equals "$(files)" 0
}

@test "a waiter is frozen while it gives up: a lease that others have acquired since keeps its file" {
    share a -s job
    LD_PRELOAD=$HELPERS/fault_stop_at.so dlock -w 3s job true 2>"$T/waiter.err" 3>&- 4>&- &
    echo $! >"$T/waiter.pid"
    wait_until 10 sh -c 'dlock --status --json job | grep -q "\"waiters\":1"'
    touch "$T/stop_at_section"
    wait_until 10 is_frozen waiter
    touch "$T/a.end"
    wait "$(pid_of a)"
    wait_until 10 dlock -n --acquire --slots=2 --owner=first -t 60s job # once the frozen waiter has lost its turn
    dlock -n --acquire --slots=2 --owner=second -t 60s job
    dlock --release --owner=first job
    kill -CONT "$(pid_of waiter)"
    local status=0
    wait "$(pid_of waiter)" || status=$?
    equals "$status" 75
    fails_with 75 '' dlock -n job touch "$T/ran"
    dlock --release --owner=second job
    equals "$(files)" 0
}

# frozen_sharer: makes a frozen sharer whose lease was released, and another that still holds the lock.
frozen_sharer() {
    share frozen -s --owner=me -t 60s job
    share other -s job
    kill -STOP "$(pid_of frozen)"
    wait_until 10 is_frozen frozen
    dlock --release --owner=me job
    hold first
}
sees_all_locks() { [ "$(readlink /proc/self/ns/pid)" = 'pid:[4026531836]' ]; }

@test "beside a frozen sharer whose lease was released, an exclusive waiter acquires the lock once the others have left" {
    sees_all_locks || skip 'a pid namespace that hides locks'
    frozen_sharer
    dlock job -- "$T/first.sh" >/dev/null 2>&1 3>&- 4>&- &
    echo $! >"$T/first.pid"
    wait_until 10 sh -c 'dlock --status --json job | grep -q "\"waiters\":1"'
    dlock job echo second >"$T/second" 2>&1 3>&- 4>&- &
    echo $! >"$T/second.pid"
    wait_until 10 sh -c 'dlock --status --json job | grep -q "\"waiters\":2"'
    flock -s -n "$F" sh -c 'touch "$T/flock"; while [ ! -e "$T/flock.end" ]; do sleep 0.03; done' 3>&- 4>&- &
    echo $! >"$T/flock.pid"
    wait_until 10 test -e "$T/flock"
    touch "$T/other.end"
    wait "$(pid_of other)"
    sleep 1.5 # flock(1) still holds it, and is not passed by
    [ ! -e "$T/first" ]
    touch "$T/flock.end"
    wait_until 10 test -e "$T/first"
    [ ! -s "$T/second" ]
    kill -CONT "$(pid_of frozen)"
    touch "$T/first.end" "$T/frozen.end"
    wait "$(pid_of first)"
    wait "$(pid_of second)"
    wait "$(pid_of frozen)" # it was released, not lost
    equals "$(cat "$T/second")" second
    equals "$(files)" 0
}

@test "beside a frozen sharer whose lease was released, a flock(1) holder that /proc/locks omits once still keeps others out" {
    sees_all_locks || skip 'a pid namespace that hides locks'
    frozen_sharer
    LD_PRELOAD=$HELPERS/fault_locks_omitted.so dlock job -- "$T/first.sh" >/dev/null 2>&1 3>&- 4>&- &
    echo $! >"$T/first.pid"
    wait_until 10 sh -c 'dlock --status --json job | grep -q "\"waiters\":1"'
    exec 9<"$F"
    flock -s -n 9
    touch "$T/other.end"
    wait "$(pid_of other)"
    sleep 1
    [ ! -e "$T/first" ]
    exec 9<&-
    wait_until 10 test -e "$T/first"
    kill -CONT "$(pid_of frozen)"
    touch "$T/first.end" "$T/frozen.end"
    wait "$(pid_of first)"
    wait "$(pid_of frozen)"
    equals "$(files)" 0
}

@test "beside a frozen sharer whose lease was released, a flock(1) holder that a container cannot see still keeps others out" {
    unshare -pf --mount-proc --kill-child true 2>/dev/null || skip 'no namespaces here'
    frozen_sharer
    exec 9<"$F"
    flock -s -n 9
    unshare -pf --mount-proc --kill-child dlock job -- "$T/first.sh" >/dev/null 2>&1 3>&- 4>&- 9<&- &
    echo $! >"$T/first.pid"
    wait_until 10 sh -c 'dlock --status --json job | grep -q "\"waiters\":1"'
    touch "$T/other.end"
    wait "$(pid_of other)"
    sleep 1
    [ ! -e "$T/first" ]
    exec 9<&-
    kill -CONT "$(pid_of frozen)"
    wait_until 10 test -e "$T/first"
    touch "$T/first.end" "$T/frozen.end"
    wait "$(pid_of first)"
    wait "$(pid_of frozen)"
    equals "$(files)" 0
}

@test "--force-release stops the command, and another process may acquire the lock at once" {
    share a -t 60s job
    run dlock --force-release job
    equals "$status" 0
    run dlock -n job echo next
    equals "$output" next
    local status=0
    wait "$(pid_of a)" || status=$?
    equals "$status" 124
    run dlock --status --json job
    [[ $output == *'"losses":1'* ]]
}

@test "a frozen holder whose slot was released keeps its number, but not its place among the holders" {
    share a --slots=2 --owner=a -t 60s job
    share b --slots=2 --owner=b -t 60s job
    kill -STOP "$(pid_of a)"
    wait_until 10 is_frozen a
    run dlock --release --owner=a job
    equals "$status" 0
    # Its command still runs, so nobody else may get its number.
    fails_with 75 '' dlock -n --slots=2 job echo wrong
    touch "$T/b.end"
    wait "$(pid_of b)"
    run dlock -n job echo alone # it is no longer a holder
    equals "$output" alone
    kill -CONT "$(pid_of a)"
    touch "$T/a.end"
    wait "$(pid_of a)"
    equals "$(files)" 0
}

@test "--release from outside is distinguished from a loss: the command runs on, and others acquire the lock at once" {
    share a --owner=a -t 60s job
    run dlock --release --owner=a job
    equals "$status" 0
    run dlock -n job echo next
    equals "$output" next
    touch "$T/a.end"
    wait "$(pid_of a)"
    run dlock --status --json job
    [[ $output == *'"losses":0'* ]]
}

@test "--release from outside respects --hold-at-least, and the record says so" {
    share a --owner=a --hold-at-least=3s -t 60s job
    run dlock --release --owner=a job
    equals "$status" 0
    fails_with 75 '' dlock -n job echo wrong
    grep -qx 'released 1' "$F"
    touch "$T/a.end"
    wait "$(pid_of a)"
    fails_with 75 '' dlock -n job echo wrong
    fails_with 1 'already released$' dlock --release --owner=a job
    run dlock -w 10 job echo next
    equals "$output" next
}

@test "the last of many sharers to leave removes the file, even if others were killed" {
    local label
    for label in a b c d; do share $label -s job; done
    kill -KILL "$(pid_of b)"
    wait_until 20 not pgrep -f "$T/b.sh" # which keeps its place until then
    touch "$T/a.end" "$T/d.end"
    wait "$(pid_of a)" "$(pid_of d)"
    equals "$(files)" 1
    touch "$T/c.end"
    wait "$(pid_of c)"
    equals "$(files)" 0
}

@test "the first of many sharers leaves before the others: they keep the lock" {
    [ "$(getconf LONG_BIT)" -eq 64 ] || skip 'struct flock is another one'
    share a -s job
    sharers 40 1
    touch "$T/a.end"
    wait "$(pid_of a)"
    equals "$(files)" 1
    fails_with 75 '' dlock -n job true
    kill "$(pid_of sharers)"
}

@test "a sharer with the token of another waits for that one's end, and comes after those in line" {
    share first -s --owner=me job
    dlock -w 60s job true 3>&- 4>&- &
    local waiter=$!
    wait_until 10 sh -c "dlock --status --json job | grep -q '\"waiters\":1'"
    run dlock -v -w 100ms -s --owner=me job echo wrong
    equals "$status" 75
    [[ $output == *'; 2nd in line'* && $output != *wrong* ]]
    touch "$T/first.end"
    wait "$(pid_of first)"
    wait "$waiter"
}

@test "a waiter that is killed after the file was kept for it blocks nobody" {
    share a -s job
    dlock -w 60 job true 2>/dev/null 3>&- 4>&- &
    echo $! >"$T/waiter.pid"
    wait_until 10 not dlock -n -s job true
    kill -STOP "$(pid_of waiter)"
    touch "$T/a.end"
    wait "$(pid_of a)"
    kill -KILL "$(pid_of waiter)"
    run dlock -w 5 -s job echo next
    equals "$output" next
    equals "$(files)" 0
}

@test "flock(1) sees whether the lock is shared or exclusive" {
    share a -s job
    flock -n -s "$F" true
    run flock -n -x "$F" true
    equals "$status" 1
    touch "$T/a.end"
    wait "$(pid_of a)"
    share b job
    run flock -n -s "$F" true
    equals "$status" 1
}

@test "checking keeps nobody out: locks are acquired while many processes check" {
    local i
    (while [ ! -e "$T/stop" ]; do dlock --status job >/dev/null || true; done) 3>&- 4>&- &
    (while [ ! -e "$T/stop" ]; do dlock --list >/dev/null || true; done) 3>&- 4>&- &
    for i in {1..50}; do dlock -n job true || echo "$i" >>"$T/bad"; done
    for i in {1..50}; do dlock -n -s job true || echo "$i" >>"$T/bad"; done
    touch "$T/stop"
    wait
    [ ! -e "$T/bad" ]
}

@test "simultaneous requests that do not exclude each other all succeed" {
    local i
    share a -s job
    for i in {1..20}; do
        dlock -n -s job true 3>&- 4>&- || echo "$i" >>"$T/bad" &
    done
    wait $(jobs -p | grep -vx "$(pid_of a)")
    [ ! -e "$T/bad" ]
    touch "$T/a.end"
    wait "$(pid_of a)"
    equals "$(files)" 0
}

@test "a lease without a process from an earlier boot is free" {
    dlock --acquire --owner=me -t 1h job
    fails_with 75 '' dlock -n job echo wrong
    sed -i 's/^boot .*/boot 00000000-0000-0000-0000-000000000000/' "$F"
    fails_with 1 'the lease has ended' dlock --extend --owner=me job
    run dlock -n job echo next
    equals "$output" next
    equals "$(files)" 0
}

# other_boot_id COMMAND...: runs the command in a container with a boot id of its own.
other_boot_id() {
    echo 11111111-1111-1111-1111-111111111111 >"$T/boot_id"
    # shellcheck disable=SC2016
    unshare -m sh -c 'mount --bind "$T/boot_id" /proc/sys/kernel/random/boot_id && exec "$@"' sh "$@"
}

@test "a container with its own boot id: a lock held on this kernel is held in both" {
    [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip 'needs root and mounts'
    local here there
    for here in '' other_boot_id; do
        there=other_boot_id
        [ "$here" = '' ] || there=
        $here dlock --acquire --owner=me -t 1h job
        fails_with 75 'held by' $there dlock -v -n job echo wrong
        run $there dlock --extend --owner=me -t 50m job
        equals "$status" 0
        $there dlock --release --owner=me job
        $here dlock --hold-at-least=1h job true
        fails_with 75 'but kept for' $there dlock -v -n job echo wrong
        dlock --force-release job
    done
    # Inside the container, its own id works as well as any.
    run other_boot_id timeout 20 dlock job env -u DLOCK_HELD dlock -n job echo in
    equals "$status $output" '0 in'
    equals "$(files)" 0
}

# other_clock SECONDS COMMAND...: runs the command in a time namespace whose boot clock is this far ahead.
other_clock() { unshare -T --boottime "$1" -f "${@:2}"; }
has_other_clock() { other_clock 7200 true 2>/dev/null || skip 'no time namespaces here'; }

@test "another time namespace: a lease ends at the same time in all of them" {
    has_other_clock
    local here
    for here in 7200 -300; do
        other_clock "$here" dlock --acquire --owner=me -t 100s job
        fails_with 75 'lease ends in 1m3' dlock -v -n job echo wrong
        fails_with 75 'lease ends in 1m3' other_clock 100 dlock -v -n job echo wrong
        dlock --extend --owner=me -t 200s job
        fails_with 75 'lease ends in 3m1' other_clock "$here" dlock -v -n job echo wrong
        dlock --release --owner=me job
        dlock --hold-at-least=100s job true
        fails_with 75 'for another 1m3' other_clock "$here" dlock -v -n job echo wrong
        dlock --force-release job
    done
    other_clock -300 dlock --acquire --owner=me -t 1s job
    wait_until 10 dlock -n job true
    equals "$(files)" 0
}

@test "another time namespace: the first waiter keeps its turn, and a lock inside the same lock does not wait" {
    has_other_clock
    share a job
    dlock job true 3>&- 4>&- &
    echo $! >"$T/head.pid"
    wait_until 10 sh -c 'dlock --status --json job | grep -q "\"waiters\":1"'
    kill -STOP "$(pid_of head)"
    wait_until 10 is_frozen head
    touch "$T/a.end"
    wait "$(pid_of a)"
    fails_with 75 'waited longer' other_clock 7200 dlock -v -n job touch "$T/ran"
    kill -CONT "$(pid_of head)"
    wait "$(pid_of head)"
    run timeout 20 dlock job unshare -T --boottime 7200 -f env -u DLOCK_HELD dlock -n job echo in
    equals "$status $output" '0 in'
    equals "$(files)" 0
}

@test "if no boot has an id, a lease without a process counts for any boot, unless it would last longer than a lease can" {
    dlock --acquire --owner=me -t 1h job
    sed -i 's/^boot .*/boot /' "$F"
    fails_with 75 '' dlock -n job echo wrong
    # 31 days from now, longer than any lease of this boot.
    sed -i "s/^expires .*/expires $(awk '{ printf "%d", ($1 + 31 * 86400) * 1e9 }' /proc/uptime)/" "$F"
    run dlock -n job echo next
    equals "$output" next
}

@test "garbled records: a locked place has an unknown holder; any other has none" {
    share a -s job
    share b -s job
    head -c 300 /dev/urandom | dd of="$F" conv=notrunc bs=1 seek=16384 status=none
    fails_with 75 '' dlock -n job echo wrong
    run dlock --status job
    equals "$status" 0
    touch "$T/a.end"
    wait "$(pid_of a)"
    fails_with 75 'another client' dlock -v -n job echo wrong
    touch "$T/b.end"
    wait "$(pid_of b)"
    run dlock -n job echo next
    equals "$output" next
    equals "$(files)" 0
}

@test "--list: sorted, long names taken from their records, files that are no locks skipped" {
    local long
    long=$(printf 'x%.0s' {1..600})
    dlock --acquire --owner=1 "$long" >/dev/null
    dlock --acquire --owner=2 b/c >/dev/null
    dlock --acquire --owner=3 'a b' >/dev/null
    dlock --acquire --owner=4 --prefix=other: z >/dev/null
    head -c 1000 /dev/urandom >"$T/locks/garbage.lock"
    : >"$T/locks/dlock:empty.lock" >"$T/precious"
    ln -s "$T/precious" "$T/locks/dlock:link.lock"
    mkfifo "$T/locks/dlock:pipe.lock"
    mkdir "$T/locks/dlock:dir.lock"
    run timeout 20 dlock --list --json
    equals "$status" 0
    equals "$(grep -o '"key":"[^"]*"' <<<"$output")" "\"key\":\"a b\"
\"key\":\"b/c\"
\"key\":\"$long\""
    run timeout 20 dlock --list --json 'b*'
    equals "$(grep -o '"key":"[^"]*"' <<<"$output")" '"key":"b/c"'
}

@test "--lock-file -s is compatible with flock -s, and without -s with flock -x" {
    share a -s --lock-file="$T/exact"
    flock -n -s "$T/exact" true
    run flock -n -x "$T/exact" true
    equals "$status" 1
    run dlock -n -s --lock-file="$T/exact" echo beside
    equals "$output" beside
    fails_with 75 "held in shared mode by .*pid $(pid_of a)" dlock -v -n --lock-file="$T/exact" echo wrong
    fails_with 64 'holds the lock in another mode' timeout 20 dlock -s --lock-file="$T/exact" dlock --lock-file="$T/exact" echo wrong
    run dlock --status --lock-file="$T/exact"
    equals "$status" 0
    [[ $output == *shared* ]]
    touch "$T/a.end"
    wait "$(pid_of a)"
    run dlock --status --lock-file="$T/exact"
    equals "$status" 1
}

@test "dlock is frozen while it gives up a lock that was released from outside: an exclusive waiter acquires the lock" {
    touch "$T/stop_at_unlocked"
    LD_PRELOAD=$HELPERS/fault_stop_at.so share released -s --owner=me -t 60s job
    share other -s job
    dlock --hold-at-least=100ms job echo in >"$T/out" 2>&1 3>&- 4>&- &
    echo $! >"$T/waiter.pid"
    wait_until 10 sh -c "dlock --status --json job | grep -q '\"waiters\":1'"
    dlock --release --owner=me job
    wait_until 10 is_frozen released
    touch "$T/other.end"
    wait_until 10 gone "$(pid_of other)"
    sleep 1.5 # long enough for it to check once more
    kill -CONT "$(pid_of released)"
    wait "$(pid_of waiter)"
    equals "$(cat "$T/out")" in
}

# sharers COUNT [FIRST]: COUNT processes hold the lock, at the places from FIRST on, with copies of the record at place 0.
sharers() {
    rm -f "$T/shared"
    python3 - "$F" "$1" "$T/shared" "${2:-0}" >/dev/null 2>"$T/sharers.err" 3>&- 4>&- <<'EOF' &
import fcntl, os, struct, sys, time
record = open(sys.argv[1], 'rb').read().split(b'\nend\n')[0].replace(b'detached 1', b'detached 0') + b'\nend\n'
for place in range(int(sys.argv[4]), int(sys.argv[4]) + int(sys.argv[2])):
    fd = os.open(sys.argv[1], os.O_RDWR)
    fcntl.fcntl(fd, 37, struct.pack('hhqqixxxx', fcntl.F_WRLCK, 0, (1 << 60) + (1 << 32) + place, 1, 0))
    fcntl.flock(fd, fcntl.LOCK_SH)
    os.pwrite(fd, record, 16384 * place)
open(sys.argv[3], 'w').close()
time.sleep(600)
EOF
    echo $! >"$T/sharers.pid"
    wait_until 20 test -e "$T/shared"
}

# reads ARGUMENTS...: prints how often a dlock reads a record.
reads() {
    env LD_PRELOAD="$HELPERS/fault_count_reads.so" READS="$T/reads" dlock "$@" job true || [ $? -eq 75 ]
    cat "$T/reads"
}

@test "a sharer or slot holder reads no more records when there are many holders than when there are few, nor does a refused one" {
    [ -z "${SANITIZER:-}" ] || skip 'a sanitizer counts its own'
    [ "$(getconf LONG_BIT)" -eq 64 ] || skip 'struct flock is another one'
    local mode count few refused
    for mode in --shared --slots=1000; do
        for count in 1 40 400; do
            rm -f "$F"
            dlock --acquire "$mode" -t 1h job >/dev/null
            sharers "$count"
            dlock "$mode" job true # from now on the taken places are known
            run reads "$mode"
            echo "$mode, $count: $output"
            [ "$count" -gt 1 ] || few=$output
            [ "$output" -le $((few + 12)) ]
            run reads -n
            echo "refused, $count: $output"
            [ "$count" -gt 1 ] || refused=$output
            [ "$output" -le $((refused + 12)) ]
            kill "$(pid_of sharers)"
        done
    done
}

@test "a place left by a killed sharer among many is used again" {
    [ "$(getconf LONG_BIT)" -eq 64 ] || skip 'struct flock is another one'
    local i
    dlock --acquire --slots=42 -t 1h job >/dev/null
    sharers 40
    equals "$(dlock --slots=42 job printenv DLOCK_SLOT)" 40
    share a --slots=42 job
    share b --slots=42 job
    fails_with 75 '' dlock -n --slots=42 job true
    kill -KILL "$(pid_of a)"
    touch "$T/a.end"
    equals "$(dlock -w 10 --slots=42 job printenv DLOCK_SLOT)" 40
    touch "$T/b.end"
    kill "$(pid_of sharers)"
}
