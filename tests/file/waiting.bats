#!/usr/bin/env bats
# Waiters for a lock file acquire it in the order in which they came, at once, and
# whatever happens to the others: the orders at the top of
# store/file/queue.c.
load ../lib/common

setup() {
    common_setup
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
    F=$T/locks/dlock:job.lock
    SANITIZED=$((${#SANITIZER} > 0))
}

pid_of() { cat "$T/$1.pid"; }
ended() { ! kill -0 "$(pid_of "$1")" 2>/dev/null; }
is_frozen() { grep -q '^State:[[:space:]]T' "/proc/$(pid_of "$1")/status"; }
files() { find "$T/locks" -name '*.lock' | wc -l; }
waiters() { dlock --status --json job | grep -o '"waiters":[0-9]*' | grep -o '[0-9]*'; }
waiting() { [ "$(waiters)" = "$1" ]; }
order() { tr '\n' ' ' <"$T/order"; }

# share LABEL [DLOCK ARGUMENTS...]: holds the lock in the background, until its end.
share() {
    hold "$1"
    dlock "${@:2}" -- "$T/$1.sh" >/dev/null 2>"$T/$1.err" 3>&- 4>&- &
    echo $! >"$T/$1.pid"
}
holds() { wait_until 10 test -e "$T/$1"; }
leave() {
    touch "$T/$1.end"
    wait "$(pid_of "$1")"
}

# queue LABEL [DLOCK ARGUMENTS...]: starts another waiter, which
# writes the label down when it acquires the lock. Its command lasts as long as there is a $T/gate.
queue() {
    local before
    before=$(waiters)
    dlock "${@:2}" job -- sh -c "echo $1 >>'$T/order'; while [ -e '$T/gate' ]; do sleep 0.01; done" 2>"$T/$1.err" 3>&- 4>&- &
    echo $! >"$T/$1.pid"
    wait_until 10 waiting $((before + 1))
}

# all_moved COUNT: waits until COUNT waiters wait in the new file, behind one that holds the lock there, and opens the gate.
# If the holder removed the new file while another waiter joined it, that waiter could lose its place.
all_moved() {
    wait_until 20 waiting "$1"
    rm "$T/gate"
}

# through LABEL...: all of these must acquire the lock.
through() {
    local label
    for label in "$@"; do wait_until 20 ended "$label"; done
    for label in "$@"; do wait "$(pid_of "$label")"; done
}

# bats test_tags=slow
@test "however many of the first waiters are frozen, the lock is free for five seconds at most" {
    local i start how
    for how in TERM KILL; do
        rm -f "$T"/a "$T"/a.*
        : >"$T/order"
        share a job && holds a
        for i in {1..8}; do queue "$i"; done
        hold last
        share last job
        wait_until 10 waiting 9
        for i in {1..8}; do kill -STOP "$(pid_of "$i")"; done
        for i in {1..8}; do wait_until 10 is_frozen "$i"; done
        start=$(now)
        kill "-$how" "$(pid_of a)"
        wait_until 30 test -e "$T/last"
        within 5000 "$start" # one turn each would be 16 s
        for i in {1..8}; do kill -CONT "$(pid_of "$i")"; done
        leave last
        for i in {1..8}; do wait "$(pid_of "$i")"; done
        rm -f "$T"/last "$T"/last.*
        equals "$(wc -l <"$T/order")" 8
        equals "$(files)" 0
    done
}

# bats test_tags=slow
@test "two hundred waiters at once: each runs, one at a time, and the wait uses next to no processor time" {
    local i ticks
    share a job && holds a
    for i in {1..200}; do
        dlock job -- sh -c "mkdir '$T/in' && rmdir '$T/in' || echo overlap >>'$T/bad'; echo x >>'$T/order'" 2>>"$T/err" 3>&- 4>&- &
        echo $! >>"$T/pids"
    done
    wait_until 60 waiting 200
    cpu() { sed 's/.*) //' $(sed 's|.*|/proc/&/stat|' "$T/pids") | awk '{ sum += $12 + $13 } END { print sum }'; }
    ticks=$(cpu)
    sleep 3
    ticks=$(($(cpu) - ticks))
    echo "ticks $ticks"
    [ "${SANITIZER:-}" != '' ] || [ "$ticks" -lt 30 ]
    touch "$T/a.end"
    while read -r i; do wait "$i"; done <"$T/pids"
    [ ! -e "$T/bad" ]
    equals "$(wc -l <"$T/order")" 200
    equals "$(files)" 0
}

# The kernel lists locks in the order in which their owners came.
@test "waiters are counted, whatever the order in which the kernel lists their tickets" {
    hold_lock job
    python3 -c '
import fcntl, os, struct, subprocess, sys
for number in 2, 1, 3:
    fd = os.open(sys.argv[1], os.O_RDWR)
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, (1 << 61) + (number << 22), 1, 0))
subprocess.run(["dlock", "--status", "--json", "job"])' "$F" >"$T/status"
    grep -q '"waiters":3,' "$T/status"
}

@test "a waiter whose token already has a share leaves the queue: it blocks no other sharer" {
    hold_lock job
    queue a -s --owner=me
    queue b -s --owner=me
    touch "$T/gate"
    end_hold
    wait_until 10 test -s "$T/order"
    wait_until 10 waiting 0
    dlock -s -n job true
    rm "$T/gate"
    through a b
    equals "$(order | wc -w)" 2
}

@test "no waiter overtakes an earlier live one, even if the lock is free" {
    share a job && holds a
    queue first
    kill -STOP "$(pid_of first)"
    wait_until 10 is_frozen first
    leave a
    fails_with 75 'waited longer' dlock -v -n job touch "$T/ran"
    if ((!SANITIZED)); then # its turn of two seconds may be over
        fails_with 75 '' dlock -n -s job touch "$T/ran"
        fails_with 75 '' dlock -n --slots=2 job touch "$T/ran"
    fi
    run dlock --status job
    equals "$status" 1
    kill -CONT "$(pid_of first)"
    wait "$(pid_of first)"
    equals "$(order)" 'first '
    [ ! -e "$T/ran" ]
    equals "$(files)" 0
}

@test "a frozen first waiter loses its turn in about two seconds, and is the last one when it runs again" {
    local start
    share a job && holds a
    queue frozen
    queue second
    hold third
    share third job
    wait_until 10 waiting 3
    kill -STOP "$(pid_of frozen)"
    wait_until 10 is_frozen frozen
    start=$(now)
    leave a
    wait "$(pid_of second)"
    [ $(($(now) - start)) -ge 1500 ]
    within 3000 "$start"
    wait_until $((SANITIZED ? 10 : 2)) test -e "$T/third" # once is enough
    queue fourth
    kill -CONT "$(pid_of frozen)"
    wait_until 10 waiting 2
    sleep 1.5 # it has found the others frozen by then
    leave third
    through fourth frozen
    equals "$(order)" 'second fourth frozen '
    equals "$(files)" 0
}

@test "a newcomer overtakes a frozen first waiter as well" {
    share a job && holds a
    queue frozen
    kill -STOP "$(pid_of frozen)"
    wait_until 10 is_frozen frozen
    leave a
    wait_until 5 dlock -n job true
    run dlock -n job echo again
    equals "$output" again
    kill -CONT "$(pid_of frozen)"
    wait "$(pid_of frozen)"
    equals "$(files)" 0
}

@test "a waiter frozen in the middle of the queue delays the others by a few seconds only" {
    share a job && holds a
    queue 1
    queue 2
    queue 3
    kill -STOP "$(pid_of 2)"
    wait_until 10 is_frozen 2
    touch "$T/a.end"
    wait_until 15 ended 3
    kill -CONT "$(pid_of 2)"
    wait "$(pid_of 2)"
    equals "$(order)" '1 3 2 '
    equals "$(files)" 0
}

# has_marked NUMBER: the waiter with this ticket has marked its turn (store/file/queue.c).
has_marked() {
    awk -v inode=":$(stat -c %i "$F")\$" '$2 == "OFDLCK" && $6 ~ inode { print $7 }' /proc/locks | {
        while read -r at; do [ $((at >= 3 << 60 && (at & 0xFFFFFFFF) == $1)) = 0 ] || return 0; done
        return 1
    }
}

@test "a waiter that is frozen after it has found those before it frozen: the next one acquires the lock" {
    local i start
    share a job && holds a
    for i in {1..5}; do queue "$i"; done
    for i in 1 2; do kill -STOP "$(pid_of "$i")"; done
    for i in 1 2; do wait_until 10 is_frozen "$i"; done
    start=$(now)
    leave a
    wait_until 10 has_marked 3
    kill -STOP "$(pid_of 3)"
    wait_until 15 ended 4
    [ $(($(now) - start)) -ge 4500 ] # the turn of the first two, 3 s, then the third one's, 2 s
    wait_until 15 ended 5
    within $((SANITIZED ? 20000 : 9500)) "$start"
    equals "$(order)" '4 5 '
    for i in 1 2 3; do kill -CONT "$(pid_of "$i")"; done
    for i in 1 2 3; do wait "$(pid_of "$i")"; done
    equals "$(files)" 0
}

@test "if the first waiter is killed while the lock is free, the next one acquires it at once" {
    stop_time
    share a job && holds a
    queue 1
    queue 2
    kill -STOP "$(pid_of 1)"
    wait_until 10 is_frozen 1
    leave a
    kill -KILL "$(pid_of 1)"
    through 2
}

@test "when a holder is killed, the next waiter acquires the lock at once" {
    local start i sum=0
    for i in {1..8}; do
        rm -f "$T"/a*
        share a job && holds a
        queue next
        start=$(now)
        kill -KILL "$(pid_of a)"
        through next
        sum=$((sum + $(now) - start))
    done
    within 0 $(($(now) - sum)) # polling would take about 1 s each time
    equals "$(files)" 0
}

@test "--acquire by several waiters: each waits for the lease of the one before" {
    local i
    share a job && holds a
    for i in 1 2 3; do
        dlock --acquire --owner="$i" -t 300ms job >/dev/null 2>&1 3>&- 4>&- &
        echo $! >"$T/$i.pid"
        wait_until 10 waiting "$i"
    done
    local start
    start=$(now)
    leave a
    for i in 1 2 3; do wait "$(pid_of "$i")"; done
    within 600 "$start"
    run dlock -w 10 job echo last
    equals "$output" last
    equals "$(files)" 0
}

@test "--force-release while several wait: all of them acquire the lock, in order" {
    local i
    share a -t 60s job && holds a
    for i in 1 2 3 4; do timeless queue "$i"; done
    dlock --force-release job
    through 1 2 3 4
    equals "$(order)" '1 2 3 4 '
    wait "$(pid_of a)" || true
    equals "$(files)" 0
}

@test "a lock file removed or replaced while several wait: all of them acquire the lock" {
    local i
    share a -t 60s job && holds a
    for i in 1 2 3 4; do timeless queue "$i"; done
    touch "$T/gate"
    rm "$F"
    all_moved 3
    through 1 2 3 4
    share b -t 60s job && holds b
    for i in 5 6; do timeless queue "$i"; done
    touch "$T/gate"
    : >"$T/locks/new" && mv "$T/locks/new" "$F"
    all_moved 1
    through 5 6
    equals "$(order)" '1 2 3 4 5 6 '
    wait "$(pid_of a)" || true
    wait "$(pid_of b)" || true
    equals "$(files)" 0
}

@test "the lock directory removed or replaced while several wait: all of them acquire the lock" {
    local i how
    for how in removed replaced; do
        share a -t 60s job && holds a
        for i in 1 2 3 4; do timeless queue "$i"; done
        touch "$T/gate"
        mv "$T/locks" "$T/$how" # at once, or they start to wait in it again
        [ $how = removed ] || mkdir -m 700 "$T/locks" || true # a waiter may have been faster
        all_moved 3
        through 1 2 3 4
        wait "$(pid_of a)" || true
        rm -f "$T"/a*
        equals "$(files)" 0
        [ -e "$T/locks/.table-$(id -u)" ] # the table is there, too
    done
    equals "$(order)" '1 2 3 4 1 2 3 4 '
}

@test "the lock directory is removed while the first waiters are frozen: a later one waits for them, for some seconds" {
    local i ahead
    for ahead in return stay; do
        share a -t 60s job && holds a
        for i in 1 2 3 4; do timeless queue "$i"; done
        kill -STOP "$(pid_of 1)" "$(pid_of 2)"
        wait_until 5 is_frozen 2
        mv "$T/locks" "$T/$ahead"
        kill -KILL "$(pid_of 3)" # which wakes 4
        rest 0.3
        [ $ahead = return ] || { set_boot "=$((STILL + 3))" && wait_until 10 ended 4; }
        kill -CONT "$(pid_of 1)" "$(pid_of 2)"
        through 1 2 4
        wait "$(pid_of a)" || true
        wait "$(pid_of 3)" || true
        rm -f "$T"/a*
    done
    equals "$(order)" '1 2 4 4 1 2 '
}

@test "a file system is mounted over the lock directory: the holder is stopped at its next check, a waiter starts again" {
    [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip 'needs root and mounts'
    mkdir -m 700 "$T/locks"
    # shellcheck disable=SC2016
    unshare -m bash -c '
        dlock -t 10s job -- sh -c "echo >$T/in; sleep 60" 2>"$T/a.err" & a=$!
        until [ -e "$T/in" ]; do sleep 0.02; done
        dlock job -- sh -c "echo >$T/next; echo $T/locks/*.lock >$T/file" & b=$!
        until dlock --status --json job | grep -q "\"waiters\":1,"; do sleep 0.02; done
        mount -t tmpfs -o mode=700 tmpfs "$T/locks" || exit 99
        wait $b || exit 1
        wait $a
        [ $? = 124 ] || exit 2
        [ "$(ls -A "$T/locks")" = ".table-$(id -u)" ]' 3>&- 4>&-
    grep -q 'removed or replaced' "$T/a.err"
}

@test "the lock directory is removed while several wait, and cannot be created again: exit 73" {
    local i status=0
    mkdir "$T/above"
    DLOCK_LOCK_DIR=$T/above/locks
    share a -t 60s job && holds a
    for i in 1 2; do queue "$i"; done
    mv "$T/above" "$T/elsewhere"
    wait "$(pid_of 1)" || status=$?
    equals "$status" 73
    grep -q 'cannot open or create the lock directory .*: No such file' "$T/1.err"
    status=0
    wait "$(pid_of 2)" || status=$?
    equals "$status" 73
    wait "$(pid_of a)" || true
    [ ! -e "$T/order" ]
}

@test "waiters that may share the lock acquire it together, up to the first that may not" {
    stop_time
    share a job && holds a
    local label
    for label in b c d; do
        share "$label" -s job
    done
    wait_until 10 waiting 3
    share e job
    wait_until 10 waiting 4
    share f -s job
    wait_until 10 waiting 5
    leave a
    holds b && holds c && holds d
    fails_with 75 '' dlock -n -s job touch "$T/ran"
    leave b
    leave c
    [ ! -e "$T/e" ]
    touch "$T/d.end"
    holds e
    [ ! -e "$T/f" ]
    touch "$T/e.end"
    holds f
    leave f
    equals "$(files)" 0
}

@test "a waiter for a lock held under its own token blocks nobody" {
    stop_time
    share a --slots=3 --owner=me job && holds a
    share b --slots=3 --owner=me job
    wait_until 10 sh -c "ls -l /proc/$(pid_of b)/fd | grep -q inotify"
    run dlock -n --slots=3 job echo in
    equals "$output" in
    touch "$T/a.end"
    holds b
    leave b
    equals "$(files)" 0
}

@test "-w ends on time, for the first waiter and for those after it" {
    local start wait
    share a job && holds a
    for wait in 500ms 600ms; do # the second time as the second waiter
        start=$(now)
        run dlock -w $wait job touch "$T/ran"
        equals "$status" 75
        [ $(($(now) - start)) -ge "${wait%ms}" ]
        within "${wait%ms}" "$start"
        queue first
    done
    [ ! -e "$T/ran" ]
}

# Started without a shell's changes to the signals of its jobs.
with_signals() {
    python3 - "$@" <<'P'
import os, signal, subprocess, sys, time
count, what = int(sys.argv[1]), sys.argv[2:]
signal.signal(signal.SIGINT, signal.SIG_DFL)
waiter = subprocess.Popen(what)
def waiting():
    said = subprocess.run(["dlock", "--status", "--json", "job"], capture_output=True, text=True).stdout
    return f'"waiters":{count}' in said
while not waiting():
    time.sleep(0.01)
for _ in range(20): # it does not concern the waiter, and is lost on the way
    waiter.send_signal(signal.SIGURG)
time.sleep(0.1)
assert waiter.poll() is None
waiter.send_signal(signal.SIGINT)
try: assert waiter.wait(20) == -signal.SIGINT, waiter.returncode
finally: waiter.kill()
P
}

@test "a signal ends a waiter at once, whether it is the first or not" {
    stop_time
    share a job && holds a
    with_signals 1 dlock job touch "$T/ran"
    queue first
    with_signals 2 dlock job touch "$T/ran"
    queue second
    equals "$(waiters)" 2
    leave a
    wait "$(pid_of first)"
    wait "$(pid_of second)"
    equals "$(files)" 0
    [ ! -e "$T/ran" ]
}

@test "without a thread or without inotify the lock is still acquired, by polling" {
    local start
    share a job && holds a
    LD_PRELOAD=$HELPERS/fault_inotify.so queue 1
    # The watch of a lease needs a thread, too, but not for a command that ends at once.
    LD_PRELOAD=$HELPERS/fault_pthread_create.so queue 2
    start=$(now)
    leave a
    through 1 2
    within 400 "$start"
    equals "$(order)" '1 2 '
    equals "$(files)" 0
}

@test "a process that closes the file again and again does not keep a waiter busy" {
    local before reads
    share a job && holds a
    queue 1
    reads() { awk '/^syscr/ { print $2 }' "/proc/$(pid_of 1)/io"; }
    before=$(reads)
    timeout 1 bash -c 'while :; do : <"$0"; done' "$F" || [ $? -eq 124 ]
    reads=$(($(reads) - before))
    echo "$reads reads"
    [ "$reads" -le 10000 ] # 100 questions
    leave a
    wait "$(pid_of 1)"
}

@test "--lock-file: flock(1) and dlock acquire the file in the order in which they came" {
    local i
    stop_time
    # Prints who waits for the file, according to /proc/locks.
    stand() { [ "$(grep -c -- "-> FLOCK .*:$(stat -c %i "$T/exact") " /proc/locks)" = "$1" ]; }
    flock "$T/exact" sh -c "touch '$T/in'; while [ ! -e '$T/out' ]; do sleep 0.01; done" 3>&- 4>&- &
    wait_until 10 test -e "$T/in"
    for i in {1..8}; do
        if ((i % 2)); then
            dlock --lock-file="$T/exact" -- sh -c "echo $i >>'$T/order'" 2>"$T/$i.err" 3>&- 4>&- &
        else
            flock "$T/exact" sh -c "echo $i >>'$T/order'" 3>&- 4>&- &
        fi
        echo $! >"$T/$i.pid"
        wait_until 10 stand "$i"
    done
    touch "$T/out"
    through {1..8}
    equals "$(order)" '1 2 3 4 5 6 7 8 '
}

@test "--lock-file: a waiter that acquires the lock while it looks for the holder does not mistake itself for an outer dlock" {
    stand() { grep -q -- "$1.*:$(stat -c %i "$T/exact") " /proc/locks; }
    share a --lock-file="$T/exact" && holds a
    hold b
    LD_PRELOAD=$HELPERS/fault_locks_read_late.so dlock -v --lock-file="$T/exact" -- "$T/b.sh" 2>"$T/b.err" 3>&- 4>&- &
    echo $! >"$T/b.pid"
    wait_until 10 test -e "$T/late"
    wait_until 10 stand '-> FLOCK'
    leave a
    wait_until 10 stand " FLOCK .* $(pid_of b) "
    touch "$T/go_on"
    holds b
    not flock -n "$T/exact" true
    grep -q 'acquired (file' "$T/b.err"
    leave b
}

@test "--lock-file: a file that must be open for writing to be locked exclusively, as on NFS, works" {
    : >"$T/exact"
    LD_PRELOAD=$HELPERS/fault_flock_as_on_nfs.so run dlock --lock-file="$T/exact" echo in
    equals "$output" in
    share a --lock-file="$T/exact" && holds a
    LD_PRELOAD=$HELPERS/fault_flock_as_on_nfs.so fails_with 75 '' dlock -w 300ms --lock-file="$T/exact" echo in
    leave a
    mkdir "$T/directory"
    LD_PRELOAD=$HELPERS/fault_flock_as_on_nfs.so fails_with 73 'Bad file descriptor' dlock --lock-file="$T/directory" echo in
}

@test "--lock-file: the file is replaced, one wait times out and a signal ends another: the other waiters acquire the lock" {
    local i start
    share a --lock-file="$T/exact" && holds a
    start=$(now)
    run dlock -w 400ms --lock-file="$T/exact" touch "$T/ran"
    equals "$status" 75
    [ $(($(now) - start)) -ge 400 ]
    within 400 "$start"
    for i in 1 2 3; do
        dlock --lock-file="$T/exact" -- sh -c "echo $i >>'$T/order'" 2>"$T/$i.err" 3>&- 4>&- &
        echo $! >"$T/$i.pid"
    done
    wait_until 10 sh -c "[ \$(grep -c -- '-> FLOCK .*:$(stat -c %i "$T/exact") ' /proc/locks) = 3 ]"
    kill -TERM "$(pid_of 2)"
    start=$(now)
    local status=0
    wait "$(pid_of 2)" || status=$?
    equals "$status" 143
    within 0 "$start"
    mv "$T/exact" "$T/old"
    for i in 1 3; do wait "$(pid_of $i)"; done
    within 3000 "$start"
    equals "$(sort "$T/order" | tr '\n' ' ')" '1 3 '
    [ ! -e "$T/ran" ]
}

@test "a flock(1) that holds the lock's file and releases it is noticed" {
    mkdir -m 700 "$T/locks"
    flock "$F" sh -c "touch '$T/in'; while [ ! -e '$T/out' ]; do sleep 0.01; done" 3>&- 4>&- &
    wait_until 10 test -e "$T/in"
    fails_with 75 '' dlock -w 100ms job true
    [ -e "$F" ]
    queue 1
    queue 2
    sleep 2.5 # and nobody is mistaken for frozen
    touch "$T/out"
    through 1 2
    equals "$(order)" '1 2 '
    equals "$(files)" 0
}

# A server reports the end of a lease; a file does not.
@test "the host is suspended beyond a lease that others wait for: the waiter acquires the lock on waking" {
    with_suspends dlock --acquire -t 1h job >/dev/null
    with_suspends dlock job true 2>"$T/err" 3>&- 4>&- &
    echo $! >"$T/a.pid"
    wait_until 10 waiting 1
    suspended 3601
    wait_until 20 ended a
    wait "$(pid_of a)"
}
