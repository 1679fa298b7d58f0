#!/usr/bin/env bats
# The lock is released before dlock waits for its threads and processes: run/watch.c, run/supervise.c.
load backend
load ../lib/queue
load ../lib/tree

# watched: starts a holder whose watch thread sleeps after its first check.
watched() {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    LD_PRELOAD=$HELPERS/fault_hold.so hold_lock job "$@"
    sleeps() { [ "$(ls "/proc/$HOLDER/task" | wc -l)" = 2 ] && not grep -q '^State:.R' "/proc/$HOLDER"/task/*/status; }
    wait_until 10 sleeps
    wait_for_guard "$HOLDER"
    sleep 0.3
    sleeps
}

# ended STATUS: the holder ends with this status once its threads run on; nothing they used was closed.
ended() {
    local status=0
    touch "$T/go_on"
    wait "$HOLDER" || status=$?
    equals "$status" "$1"
    [ ! -e "$T/closed" ]
}

@test "the lock is free before the thread that watches the lease has ended, and that thread touches nothing more" {
    watched -t 60s
    touch "$T/hold_woken"
    end_hold
    run dlock -w 5 job echo ran
    equals "$status $output" '0 ran'
    kill -0 "$HOLDER" # its thread is stopped as it wakes to end
    wait_until 10 test -e "$T/holds"
    ended 0
    equals "$(cat "$T/held.err")" ''
}

@test "the thread that watches the lease was notified of a loss, but has not checked yet when the command ends: 124" {
    watched -t 60s
    touch "$T/hold_woken"
    steal job
    wait_until 10 test -e "$T/holds"
    end_hold
    wait_until 10 grep -q 'the lock was lost before the command ended' "$T/held.err"
    ended 124
    equals "$(wc -l <"$T/held.err")" 1
}

@test "the connection breaks as the command ends: the release closes it while the thread that watches the lease polls its own copy" {
    [ "$BACKEND" = redis ] || skip 'files have no connection'
    watched -t 60s
    touch "$T/hold_woken"
    redis client kill type pubsub
    wait_until 10 test -e "$T/holds"
    end_hold
    wait_until 10 is_clean job
    ended 0
    equals "$(cat "$T/held.err")" ''
}

@test "the thread that watches the lease has just found a loss when the command ends: 124" {
    watched -t 60s
    touch "$T/hold_write"
    steal job
    wait_until 10 test -e "$T/holds"
    end_hold
    sleep 0.2
    equals "$(cat "$T/held.err")" '' # dlock waits for the watch
    ended 124
    equals "$(grep -c 'the lock was lost before the command ended' "$T/held.err")" 1
}

@test "the thread that watches the lease has just found a longer one when the command ends after the old one: the command's own status" {
    watched -t 2s
    touch "$T/hold_main"
    dlock --extend -t 60s --owner="$(dlock --status --json job | grep -oE '"(owner|token)":"[^"]*"' | head -1 | cut -d'"' -f4)" job
    wait_until 10 test -e "$T/holds"
    sleep 2.2 # the original lease has ended
    end_hold
    is_zombie() { grep -q '^State:.Z' "/proc/$(cat "$T/held")/status"; }
    wait_until 10 is_zombie
    ended 0
    equals "$(cat "$T/held.err")" ''
}

# hears FILE MASK: prints "listens", and "heard" once inotify(7) reports such an event.
hears() {
    python3 -u -c 'import ctypes, select, sys
libc = ctypes.CDLL(None)
news = libc.inotify_init()
assert libc.inotify_add_watch(news, sys.argv[1].encode(), int(sys.argv[2])) >= 0
print("listens")
print("heard" if select.select([news], [], [], 10)[0] else "")' "$@"
}

@test "the lock is free, and the first waiter is woken, while the guard of the last command still runs" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    FAULT_AT=released LD_PRELOAD=$HELPERS/fault_killed_at_end.so hold_lock job -t 60s
    wait_for_guard "$HOLDER"
    dlock -w 30 job touch "$T/ran" 3>&- 4>&- &
    local waiter=$!
    wait_until 10 waits 1
    if [ "$BACKEND" = file ]; then # in Redis the release calls the waiter
        hears "$T/locks/dlock:job.lock" 16 >"$T/heard" 3>&- 4>&- & # IN_CLOSE_NOWRITE
        wait_until 10 grep -q listens "$T/heard"
    fi
    end_hold
    wait "$waiter"
    [ -e "$T/ran" ]
    pgrep -P "$HOLDER" -x dlock-guard
    [ "$BACKEND" = redis ] || wait_until 10 grep -q heard "$T/heard"
    kill -CONT "$HOLDER"
    wait "$HOLDER"
}

# dies AT [ARGUMENTS...]: dlock is killed at this point, after its command has ended and left a child.
dies() {
    local status=0 at=$1
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    # shellcheck disable=SC2016
    FAULT_AT=$at LD_PRELOAD=$HELPERS/fault_killed_at_end.so dlock -t 60s "${@:2}" job -- env -u LD_PRELOAD sh -c '
        sleep 600 & echo $! >"$T/child.pid"; until pgrep -P $PPID -x dlock-guard >"$T/guard.pid"; do sleep 0.02; done; sleep 0.3' >/dev/null 2>&1 3>&- 4>&- || status=$?
    equals "$status" 137
}

@test "dlock is killed between its guard's dismissal and the release: the command's processes live on, and the lock ends as for any killed dlock" {
    dies dismissed
    case $BACKEND in
        file) dlock -w 1 job true ;;
        redis) fails_with 75 'lease ends in' dlock -v -n job true ;;
    esac
    wait_until 10 gone "$(cat "$T/guard.pid")"
    kill -0 "$(cat "$T/child.pid")"
}

@test "dlock is killed after the command's end, before it knows that the lease lasted: the command's processes are killed" {
    dies reaped
    wait_until 10 gone "$(cat "$T/child.pid")"
}
