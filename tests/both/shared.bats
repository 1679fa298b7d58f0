#!/usr/bin/env bats
# Several holders at once: --shared and --slots.
load backend

# share LABEL [DLOCK ARGUMENTS...]: holds the lock in the background under a label, until
# leave LABEL. The pid of dlock is in $T/LABEL.pid, that of the command in $T/LABEL.
share() {
    hold "$1"
    rm -f "$T/$1" "$T/$1.end"
    dlock "${@:2}" -- "$T/$1.sh" >/dev/null 2>"$T/$1.err" 3>&- 4>&- &
    echo $! >"$T/$1.pid"
}
holds() { wait_until 10 test -e "$T/$1"; }
leave() {
    touch "$T/$1.end"
    wait "$(cat "$T/$1.pid")"
}
slot_of() { tr '\0' '\n' <"/proc/$(cat "$T/$1")/environ" | sed -n 's/^DLOCK_SLOT=//p'; }
waits() { [ "$(dlock --status --json "$1" | grep -o '"waiters":[0-9]*')" = "\"waiters\":$2" ]; }

@test "--shared: many processes hold the lock at once, and no exclusive holder beside them" {
    share one -s job && holds one
    share two --shared job && holds two
    fails_with 75 'held in shared mode by ' dlock -v -n job echo wrong
    leave one
    fails_with 75 '' dlock -n job echo wrong
    leave two
    is_clean job
    run dlock -n job echo next
    equals "$output" next
}

@test "--shared is refused beside an exclusive holder, and waits for it" {
    share one job && holds one
    fails_with 75 'held by' dlock -v -n -s job echo wrong
    share two -s -w 20 job
    wait_until 10 waits job 1
    [ ! -e "$T/two" ]
    leave one
    holds two
    leave two
    is_clean job
}

@test "--slots=N: N processes hold the lock and no more, each with its own number, the lowest that is free" {
    share a --slots=3 job && holds a
    share b --slots=3 job && holds b
    share c --slots=3 job && holds c
    equals "$(slot_of a) $(slot_of b) $(slot_of c)" '0 1 2'
    fails_with 75 '3 of 3 slots are taken, one by' dlock -v -n --slots=3 job echo wrong
    leave b
    share d -n --slots=3 job && holds d
    equals "$(slot_of d)" 1
    fails_with 75 '' dlock -n --slots=3 job echo wrong
    leave a
    leave c
    leave d
    is_clean job
}

@test "--slots: a waiter gets the slot of the first holder that leaves" {
    share a --slots=2 job && holds a
    share b --slots=2 job && holds b
    share c -w 20 --slots=2 job
    wait_until 10 waits job 1
    leave b
    holds c
    equals "$(slot_of c)" 1
    leave a && leave c
}

@test "a request in another mode or with other --slots is refused until all have left; an owner token holds the lock only once" {
    share a --slots=3 job && holds a
    fails_with 75 '' dlock -n --slots=2 job echo wrong
    fails_with 75 '' dlock -n -s job echo wrong
    fails_with 75 '' dlock -n job echo wrong
    leave a
    share a -s job && holds a
    fails_with 75 '' dlock -n --slots=3 job echo wrong
    run dlock -n -s job echo right
    equals "$output" right
    leave a
    share a -s --owner=me job && holds a
    fails_with 75 '' dlock -n -s --owner=me job echo wrong
    run dlock -n -s --owner=you job echo right
    equals "$output" right
    leave a
    run dlock -n --slots=2 job echo right
    equals "$output" right
    is_clean job
}

@test "a waiting writer is not starved by readers that arrive one after the other" {
    local i
    for i in 1 2 3; do # at each moment some of them hold the lock
        (while [ ! -e "$T/stop" ]; do dlock -s job -- sleep 0.2; done) 3>&- 4>&- &
        echo $! >"$T/reader$i.pid"
        sleep 0.07
    done
    run dlock -w 20 job echo in
    touch "$T/stop"
    equals "$output" in
    wait
}

@test "while a writer waits, new readers are refused; once it gives up, they are admitted" {
    share a -s job && holds a
    dlock -w 3s job echo wrong >"$T/out" 3>&- 4>&- &
    local writer=$! status=0
    wait_until 10 waits job 1
    fails_with 75 '' dlock -n -s job echo wrong
    wait "$writer" || status=$?
    equals "$status $(cat "$T/out")" '75 '
    run dlock -w 10 -s job echo in
    equals "$output" in
    leave a
    wait_until 5 is_clean job
}

@test "a waiter with another number of slots is not starved either" {
    share a --slots=2 job && holds a
    share b -w 20 --slots=3 job
    wait_until 10 waits job 1
    fails_with 75 '' dlock -n --slots=2 job echo wrong
    leave a
    holds b
    leave b
    is_clean job
}

@test "a frozen or killed writer does not keep readers out for long" {
    share a -s job && holds a
    dlock -w 60 job true 3>&- 4>&- &
    echo $! >"$T/writer.pid"
    wait_until 10 waits job 1
    fails_with 75 '' dlock -n -s job echo wrong
    kill -STOP "$(cat "$T/writer.pid")"
    run dlock -w 5 -s job echo in
    equals "$output" in
    kill -CONT "$(cat "$T/writer.pid")"
    wait_until 5 not dlock -n -s job true # the same process claims it again
    kill -KILL "$(cat "$T/writer.pid")"
    run dlock -w 5 -s job echo in
    equals "$output" in
    leave a
}

@test "each sharer has its own lease: when one ends, only its command is stopped" {
    share a -s -t 60s job && holds a
    fails_with 124 '' dlock -s -t 500ms job sleep 60
    kill -0 "$(cat "$T/a")"
    fails_with 75 '' dlock -n job echo wrong
    leave a
}

@test "a killed holder's place is free at once on files, and on Redis when its lease ends" {
    share a --slots=2 -t 3s job && holds a
    share b --slots=2 -t 60s job && holds b
    kill -KILL "$(cat "$T/a.pid")"
    wait_until 10 gone "$(cat "$T/a")"
    [ "$BACKEND" = redis ] || run dlock -n --slots=2 job -- sh -c 'echo $DLOCK_SLOT'
    [ "$BACKEND" = file ] || run dlock -w 10 --slots=2 job -- sh -c 'echo $DLOCK_SLOT'
    equals "$output" 0
    leave b
    is_clean job
}

@test "a removed lock is lost for all its sharers" {
    share a -s -t 10s job && holds a
    share b -s -t 10s job && holds b
    sleep 0.1
    steal job
    local status=0
    wait "$(cat "$T/a.pid")" || status=$?
    equals "$status" 124
    wait "$(cat "$T/b.pid")" || status=$?
    equals "$status" 124
}

@test "a place released from outside by its token is free again, and the other sharers keep theirs" {
    share a --slots=2 --owner=a job && holds a
    share b --slots=2 --owner=b job && holds b
    run dlock --release --owner=a job
    equals "$status" 0
    run dlock -w 5 --slots=2 job -- sh -c 'echo $DLOCK_SLOT'
    equals "$output" 0
    fails_with 1 'released' dlock --release --owner=a job
    kill -0 "$(cat "$T/a")" # whoever released it did so on purpose
    kill -0 "$(cat "$T/b")"
    fails_with 75 '' dlock -n job echo wrong
    leave a
    leave b
    is_clean job
}

@test "no slot is given twice: thirty processes, three at a time" {
    local i
    for i in {1..30}; do
        dlock --slots=3 job -- sh -c 'mkdir "$T/slot.$DLOCK_SLOT" && echo x >>"$T/count" && sleep 0.02 && rmdir "$T/slot.$DLOCK_SLOT" || echo overlap >>"$T/bad"' 3>&- &
    done
    wait $(jobs -p | grep -vx "$(cat "$T/redis.pid" 2>/dev/null || echo 0)")
    [ ! -e "$T/bad" ]
    equals "$(wc -l <"$T/count")" 30
    is_clean job
}

@test "readers and writers at random: no writer beside another holder" {
    local i
    mkdir "$T/in"
    for i in {1..24}; do
        if ((i % 4)); then
            dlock -s job -- sh -c ': >"$T/in/r'"$i"'"; sleep 0.02; [ ! -e "$T/in/w" ] || echo overlap >>"$T/bad"; rm "$T/in/r'"$i"'"; echo x >>"$T/count"' 3>&- &
        else
            dlock job -- sh -c '[ -z "$(ls "$T/in")" ] || echo overlap >>"$T/bad"; : >"$T/in/w"; sleep 0.02; rm "$T/in/w"; [ -z "$(ls "$T/in")" ] || echo overlap >>"$T/bad"; echo x >>"$T/count"' 3>&- &
        fi
    done
    wait $(jobs -p | grep -vx "$(cat "$T/redis.pid" 2>/dev/null || echo 0)")
    [ ! -e "$T/bad" ]
    equals "$(wc -l <"$T/count")" 24
    wait_until 5 is_clean job
}

@test "nesting: shared inside exclusive, and the same mode inside itself, run; slots keep their number" {
    run timeout 20 dlock job dlock -s job echo ok
    equals "$status $output" '0 ok'
    run timeout 20 dlock -s job dlock -s job echo ok
    equals "$status $output" '0 ok'
    run timeout 20 dlock --slots=1 job dlock --slots=1 job -- sh -c 'echo $DLOCK_SLOT'
    equals "$status $output" '0 0'
    run timeout 20 dlock -s job -- env -u DLOCK_HELD dlock -s job echo ok
    equals "$status $output" '0 ok'
    is_clean job
}

@test "nesting: exclusive inside shared, slots inside shared, or another number of slots: an error at once, not a deadlock" {
    local environment
    for environment in 'true' 'unset DLOCK_HELD'; do
        fails_with 64 'an enclosing dlock holds the lock in another mode; waiting would deadlock' timeout 20 dlock -s job -- sh -c "$environment; dlock job touch '$T/ran'"
        fails_with 64 'an enclosing dlock holds the lock in another mode; waiting would deadlock' timeout 20 dlock -s job -- sh -c "$environment; dlock --slots=2 job touch '$T/ran'"
        fails_with 64 'an enclosing dlock holds the lock in another mode; waiting would deadlock' timeout 20 dlock --slots=2 job -- sh -c "$environment; dlock --slots=3 job touch '$T/ran'"
        fails_with 64 'an enclosing dlock holds the lock in another mode; waiting would deadlock' timeout 20 dlock job -- sh -c "$environment; dlock --slots=2 job touch '$T/ran'"
    done
    [ ! -e "$T/ran" ]
    is_clean job
}

@test "clients that set a plain key or file lock are kept out in every mode, and keep dlock out" {
    case $BACKEND in
        redis)
            other() { [ "$(redis set dlock:job other NX PX 60000)" = OK ]; }
            end_other() { redis del dlock:job; }
            ;;
        file)
            other() { flock -n "$T/locks/dlock:job.lock" true; }
            end_other() { kill "$(cat "$T/flock.pid")"; wait_until 5 flock -n "$T/locks/dlock:job.lock" true; }
            ;;
    esac
    local mode
    for mode in -s --slots=2; do
        share a "$mode" job && holds a
        run other
        equals "$status" 1
        leave a
    done
    case $BACKEND in
        redis) other ;;
        file)
            flock "$T/locks/dlock:job.lock" sleep 600 3>&- 4>&- &
            pgrep -P $! >"$T/flock.pid" || wait_until 5 sh -c "pgrep -P $! >'$T/flock.pid'"
            wait_until 10 not other
            ;;
    esac
    for mode in -s --slots=2 -x; do
        fails_with 75 'another client' dlock -v -n "$mode" job echo wrong
    done
    end_other
    run dlock -n -s job echo next
    equals "$output" next
}

@test "--hold-at-least: a sharer may join, an exclusive waiter waits" {
    run dlock -s --hold-at-least=2s -t 60s job true
    equals "$status" 0
    fails_with 75 '' dlock -n job echo wrong
    run dlock -n -s job echo beside
    equals "$output" beside
    run dlock -w 20 job echo alone
    equals "$output" alone
    is_clean job
}

@test "DLOCK_SLOT is set only with --slots; in a scrubbed environment, the same share or slot inside itself is not acquired again" {
    run timeout 20 dlock --slots=2 job -- sh -c 'echo "$DLOCK_SLOT"; env -u DLOCK_HELD dlock --slots=2 -n job -- sh -c "echo \$DLOCK_SLOT"'
    equals "$status $output" $'0 0\n0'
    run timeout 20 dlock -s job -- sh -c 'env -u DLOCK_HELD dlock -s -n job -- dlock --status job'
    [[ $output == *'shared by 1'* ]]
    fails_with 64 'in another mode' timeout 20 dlock -s job -- env -u DLOCK_HELD dlock -n --slots=3 job true
    run dlock --slots=2 gpu -- sh -c 'echo "$DLOCK_SLOT"; dlock other -- sh -c "echo \${DLOCK_SLOT-none}"; dlock -s third -- sh -c "echo \${DLOCK_SLOT-none}"'
    equals "$output" $'0\nnone\nnone'
    DLOCK_SLOT=7 run dlock job -- sh -c 'echo "${DLOCK_SLOT-none}"'
    equals "$output" none
}

@test "a refusal distinguishes slots that are all taken from another number of --slots" {
    dlock --acquire --slots=2 -t 60s job >/dev/null
    fails_with 75 ': --slots=3 was requested, but the lock is held with --slots=2 by' dlock -nv --slots=3 job true
    fails_with 75 ': --slots=3 was requested, but the lock is held with --slots=2 by' dlock -w 100ms --slots=3 job true
    dlock --acquire --slots=2 -t 60s job >/dev/null
    fails_with 75 ': 2 of 2 slots are taken, one by' dlock -nv --slots=2 job true
    fails_with 75 ': waiting: 2 of 2 slots are taken, one by' dlock -v -w 100ms --slots=2 job true
    run dlock -nv job true
    [[ $status == 75 && $output == *': held with --slots by'* ]]
}
