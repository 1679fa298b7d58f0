#!/usr/bin/env bats
# The queue in Redis: what others do to the queue, the lock and the connection.
load ../lib/common
load ../lib/queue
setup() {
    common_setup
    export DLOCK_REDIS=unix://$T/redis.sock
}

# Prints the number of waiters in the queue, alive or not.
waiters() { redis zcard '{dlock:job}:queue'; }

# Two idle waiters acquire the lock one after the other, each as soon as it is released.
two_are_called() {
    hold_lock job
    timeless queue a # it checks only if it is called
    timeless queue b
    end_hold
    ended a
    ended b
}

# rests: the timeless waiter polls only every five seconds from now on, starting at the second 86460.
rests() {
    local i before
    for i in {1..6}; do
        before=$(calls)
        set_boot "=$((STILL + 10 * i))"
        wait_until 10 eval '[ "$(calls)" -gt "$before" ]'
    done
}

# True if a waiter is notified of changes as well as called.
head_is_armed() { redis client list | grep -q 'name=dlock .* sub=2 '; }

# Acquires the lock as another kind of client does.
take_by_hand() { equals "$(redis set dlock:job somebody nx px "${1:-60000}")" OK; }

# plant N [LISTENS]: puts N dead waiters at the head of the queue.
plant() {
    redis eval 'local now = tonumber(redis.call("TIME")[1]) * 1000
        for i = 1, tonumber(ARGV[1]) do
            redis.call("ZADD", KEYS[1], i, "dead-" .. i)
            redis.call("HSET", KEYS[2], "dead-" .. i, string.format("1 %s %.0f 0 exclusive 0", ARGV[2], now - 5000))
        end' 2 '{dlock:job}:queue' '{dlock:job}:waiters' "$1" "${2:-1}"
}

# listen_for FIRST LAST: these waiters seem to live but are silent, as on a host that has crashed.
listen_for() {
    local channels=() i
    for ((i = $1; i <= $2; i++)); do channels+=("{dlock:job}:wake:dead-$i"); done
    redis-cli -s "$T/redis.sock" subscribe "${channels[@]}" >"$T/silent-$2" 3>&- 4>&- &
    echo $! >"$T/silent-$2.pid"
    wait_until 10 grep -qx ".*wake:dead-$2" "$T/silent-$2"
}

# Prints how often dlock has checked.
asks() { redis info commandstats | awk -F'[:=,]' '/cmdstat_evalsha/ { n = $3 } END { print n }'; }

# heard TEXT: it was sent on a waiter's channel since hear_all.
hear_all() {
    redis psubscribe '{dlock:job}:wake:*' >"$T/heard" 3>&- 4>&- &
    echo $! >"$T/listener.pid"
    wait_until 10 grep -q psubscribe "$T/heard"
}

# bats test_tags=slow
@test "a free lock reaches a waiter behind 64 unresponsive ones within seconds, whether or not one was called" {
    start_redis
    local how start
    for how in called uncalled; do
        if [ $how = called ]; then hold_lock job; else take_by_hand; fi
        listen_for 1 64
        plant 64
        queue z
        equals "$(waiters)" 65
        sleep 3
        if [ $how = called ]; then end_hold; else redis del dlock:job >/dev/null; fi
        start=$(now)
        wait_until 20 ran 'z '
        within 5000 "$start"
        ended z
        equals "$(redis zcard '{dlock:job}:queue')" 0
        kill "$(pid_of silent-64)"
        rm "$T/order"
    done
}

# bats test_tags=slow
@test "a free lock reaches a waiter that joined among the first 65 as another left within seconds" {
    start_redis
    local start
    take_by_hand
    listen_for 1 1
    listen_for 2 65
    plant 65
    queue z
    kill "$(pid_of silent-1)"
    wait_until 10 eval '[ "$(redis pubsub numsub "{dlock:job}:wake:dead-1" | tail -n 1)" = 0 ]'
    hear_all
    fails_with 75 '' dlock -w 1s job true # this drops the one that is gone
    told() { grep -a -B1 -x "$2" "$T/heard" | grep -qF ":wake:$1"; }
    wait_until 5 told "$(redis zrange '{dlock:job}:queue' 64 64)" seen
    told dead-9 near # an older dlock would check from the eighth place on
    redis del dlock:job >/dev/null && start=$(now)
    wait_until 20 ran 'z '
    within 5000 "$start"
    ended z
}

# --- clients that know no queue ----------------------------------------------

# bats test_tags=slow
@test "idle waiters poll rarely: one in ten polls for all" {
    start_redis
    take_by_hand 600000
    local i before looks
    for i in {1..10}; do queue "$i"; done
    sleep 8
    hear_all
    before=$(asks)
    sleep 5
    looks=$(grep -a -B1 -x seen "$T/heard" | grep -a 'wake:' | sort | uniq -c | sort -n | awk 'END { print $1 }')
    echo "$(($(asks) - before)) asks by ten in 5 s; one has heard of $looks" >&2
    [ $(($(asks) - before)) -le 15 ]
    [ "$looks" -ge 1 ]
    [ "$looks" -le 6 ]
}

# bats test_tags=slow
@test "a free lock reaches a waiter behind two frozen ones within seconds, even if nobody calls it" {
    start_redis
    take_by_hand
    queue a && queue b && queue c
    wait_until 5 head_is_armed
    sleep 8
    kill -STOP "$(pid_of a)" "$(pid_of b)"
    local start
    redis del dlock:job && start=$(now)
    wait_until 20 ran 'c '
    within 5000 "$start" # 5 s, and what a busy machine adds
    kill -CONT "$(pid_of a)" "$(pid_of b)"
    ended a && ended b && ended c
}

# bats test_tags=slow
@test "when the waiter behind a frozen one gives up, the next one acquires the lock within seconds" {
    one_behind_leaves 75 suspended 3601
}

# bats test_tags=slow
@test "when the waiter behind a frozen one is terminated, the next one acquires the lock within seconds" {
    terminates_b() { kill -TERM "$(pid_of b)"; }
    one_behind_leaves 143 terminates_b
}

# bats test_tags=slow
@test "the first waiter notices at once that the lease of the waiter before it is shortened" {
    start_redis
    local start
    dlock --acquire --owner=x -t 60s job
    dlock --acquire --owner=y -t 60s job >/dev/null 3>&- 4>&- &
    echo $! >"$T/a.pid"
    wait_until 10 waits 1
    queue b
    sleep 8
    dlock --release --owner=x job
    ended a
    wait_until 2 head_is_armed
    dlock --extend -t 300ms --owner=y job && start=$(now)
    ended b
    within 300 "$start" # it would check again only after 5 s
}

# bats test_tags=slow
@test "another client's release, or a change of its expiry, wakes the first waiter at once" {
    start_redis
    local command start
    for command in 'del dlock:job' flushall 'rename dlock:job elsewhere'; do
        take_by_hand 3600000
        set_boot "=$STILL"
        timeless queue a
        set_boot "=$((STILL + 2))"
        wait_until 5 head_is_armed
        rests
        # shellcheck disable=SC2086
        redis $command >/dev/null
        set_boot "=$((STILL + 61))" # it may check a moment after a change
        ended a
    done
    take_by_hand
    queue a
    wait_until 5 head_is_armed
    redis pexpire dlock:job 100 >/dev/null && start=$(now)
    ended a
    within 100 "$start"
}

# bats test_tags=slow
@test "--hold-at-least and a killed first waiter: the next one is notified when the hold ends" {
    start_redis
    local start b
    hold_lock job --hold-at-least=5s
    queue a && queue b
    hear_all
    kill -KILL "$(pid_of a)"
    wait_until 10 waits 1 # Redis has noticed
    end_hold && wait "$HOLDER"
    start=$(now)
    b=$(redis zrange '{dlock:job}:queue' -1 -1)
    wait_until 5 eval 'grep -E -B1 "^held [0-9]+\$" "$T/heard" | grep -qxF "{dlock:job}:wake:$b"'
    ended b
    within 5000 "$start"
}

# --- clients that know no queue ----------------------------------------------

@test "the end of another client's lease wakes the first waiter at once" {
    start_redis
    local start=$(now)
    take_by_hand 2500
    queue a
    ended a
    [ $(($(now) - start)) -ge 2500 ]
    within 2500 "$start"
}

@test "a waiter keeps its place if another client acquires the lock in the waiter's turn" {
    start_redis
    take_by_hand
    queue a && queue b
    wait_until 5 head_is_armed
    kill -STOP "$(pid_of a)"

    redis eval 'redis.call("DEL", KEYS[1]) redis.call("SET", KEYS[1], "third", "PX", 60000)' 1 dlock:job
    kill -CONT "$(pid_of a)"
    wait_until 5 head_is_armed
    redis del dlock:job
    ended a
    ended b
    equals "$(order)" 'a b '
}

@test "the second waiter becomes the first when that is killed, even if the holder is another client" {
    start_redis
    take_by_hand
    queue a && queue b -v
    kill -KILL "$(pid_of a)"
    wait_until 10 waits 1
    wait_until 10 head_is_armed
    local start
    redis del dlock:job && start=$(now)
    ended b
    within 0 "$start" # it has just checked, and would check again only after 5 s
}

@test "when the first waiter gives up or is terminated while another client holds the lock, the next is notified of changes" {
    start_redis
    local start how
    hear_all
    for how in TERM wait; do
        take_by_hand
        with_suspends queue a -w 1h
        queue b
        wait_until 5 head_is_armed
        : >"$T/heard"
        if [ $how = wait ]; then suspended 3601; else kill -TERM "$(pid_of a)"; fi
        wait "$(pid_of a)" || true
        wait_until 5 grep -qaE '^held [0-9]+$' "$T/heard"
        wait_until 5 head_is_armed
        redis del dlock:job && start=$(now)
        ended b
        within 0 "$start" # as above
    done
}

@test "another client changes the lock before the first waiter is subscribed to changes: the waiter learns of it within a second" {
    start_redis
    local how start
    for how in del 'pexpire' replaced leaves; do
        take_by_hand
        queue a && queue b
        not head_is_armed
        start=$(now)
        case $how in
        del) redis del dlock:job >/dev/null ;;
        pexpire) redis pexpire dlock:job 100 >/dev/null ;;
        replaced)
            redis eval 'redis.call("DEL", KEYS[1]) redis.call("SET", KEYS[1], "third", "PX", 60000)' 1 dlock:job
            wait_until 5 head_is_armed
            redis del dlock:job && start=$(now)
            ;;
        leaves)
            kill -TERM "$(pid_of a)"
            wait_until 5 head_is_armed
            redis del dlock:job && start=$(now)
            ;;
        esac
        case $how in leaves) ended a 143 ;; *) ended a ;; esac
        within 1000 "$start"
        ended b
        rm "$T/order"
    done
}

@test "a call without a reason, and a release before the called waiter listens again: the next one is called, and none is lost" {
    start_redis
    hold_lock job
    fake_redis delay=300 "$T/redis.sock"
    queue a -r "unix://$T/fake.sock" && queue b
    local channel
    channel="{dlock:job}:wake:$(redis zrange '{dlock:job}:queue' 0 0)"
    equals "$(redis publish "$channel" turn)" 1
    wait_until 5 eval '[ "$(redis publish "$channel" "")" = 0 ]' # it checks
    end_hold
    ended b
    ended a
    equals "$(waiters)" 0
}

# long_silent: the waiters last checked twenty seconds ago.
long_silent() {
    local id waiter
    for id in $(redis zrange '{dlock:job}:queue' 0 -1); do
        waiter=$(redis hget '{dlock:job}:waiters' "$id")
        redis hset '{dlock:job}:waiters' "$id" "$(awk '{ $3 -= 20000; print }' OFMT=%.0f CONVFMT=%.0f <<<"$waiter")"
    done
}

@test "waiters frozen for long together delay a -n request by one turn, not by one each" {
    start_redis
    local label
    take_by_hand
    for label in a b c d e; do
        queue $label
        kill -STOP "$(pid_of $label)"
    done
    long_silent
    redis del dlock:job
    fails_with 75 '' dlock -n job true
    sleep 1.6 # the turn of the first waiter, which all had together
    dlock -n job true
    # Each has its place when it comes back.
    take_by_hand
    for label in e d c b a; do
        kill -CONT "$(pid_of $label)"
    done
    wait_until 10 waits 5
    redis del dlock:job
    for label in a b c d e; do ended $label; done
    equals "$(order)" 'a b c d e '
}

@test "the server's clock is set forward: responsive waiters keep their places and are called at once" {
    echo 0 >"$T/wall_clock"
    LD_PRELOAD=$HELPERS/fault_wall_clock.so start_redis
    stop_time
    hold_lock job -t 1h
    queue a && queue b && queue c
    kill -STOP "$(pid_of a)" "$(pid_of b)" "$(pid_of c)" # none of them shows meanwhile that it lives
    echo 600 >"$T/wall_clock.tmp" && mv "$T/wall_clock.tmp" "$T/wall_clock"
    waits 3
    end_hold && wait "$HOLDER"
    kill -CONT "$(pid_of a)" "$(pid_of b)" "$(pid_of c)"
    ended a
    ended b
    ended c
    equals "$(order)" 'a b c '
}

# --- the server --------------------------------------------------------------

@test "the server restarts while many wait: they queue again, and each gets its turn once" {
    start_redis
    local i
    take_by_hand
    for i in {1..10}; do queue "$i" --retry-for=30s; done
    redis save
    stop_redis
    start_redis # the first has the lock, the others the queue
    wait_until 10 eval '[ "$(redis client list | grep -c "name=dlock .* sub=")" = 10 ]'
    redis del dlock:job
    for i in {1..10}; do ended "$i"; done
    equals "$(order)" '1 2 3 4 5 6 7 8 9 10 '
    equals "$(waiters)" 0
}

@test "the server comes back empty while many wait: each gets its turn once" {
    start_redis
    local i
    take_by_hand
    for i in {1..10}; do queue "$i" --retry-for=30s; done
    stop_redis
    start_redis
    for i in {1..10}; do ended "$i"; done
    equals "$(sort -n "$T/order" | tr '\n' ' ')" '1 2 3 4 5 6 7 8 9 10 '
    equals "$(waiters)" 0
}

@test "all keys are flushed while many wait: the lock is acquired at once, and no waiter is lost" {
    start_redis
    local i
    take_by_hand
    for i in 1 2 3; do queue "$i"; done
    wait_until 5 head_is_armed
    redis flushall
    wait_until 1 test -e "$T/order"
    for i in 1 2 3; do ended "$i"; done
    equals "$(sort "$T/order" | tr '\n' ' ')" '1 2 3 '
}

@test "a waiter whose connection is cut keeps its place" {
    start_redis
    take_by_hand
    queue a && queue b
    redis client kill type pubsub >/dev/null
    wait_until 10 eval '[ "$(redis client list | grep -c "name=dlock .* sub=[12] ")" = 2 ]'
    redis del dlock:job
    ended a
    ended b
    equals "$(order)" 'a b '
}

@test "the server goes away for good: exit 69 after --retry-for" {
    start_redis
    take_by_hand
    queue a --retry-for=1s
    stop_redis
    ended a 69
}

# --- servers and users that allow little -------------------------------------

@test "without channels, waiters poll, keep their order, and -v says so" {
    start_redis
    manual_user
    redis acl setuser locker resetchannels
    export DLOCK_REDIS="unix://locker:secret@$T/redis.sock"
    hold_lock job
    queue a -v && queue b
    wait_until 5 grep -qE 'cannot notify waiters.*PUBLISH: .*(can.t publish|permissions to access a channel)' "$T/a.err"
    local asked
    asked=$(asks)
    polled() { [ "$(asks)" -gt $((asked + 6)) ]; }
    wait_until 60 polled
    end_hold
    ended a
    equals "$(grep -c 'cannot notify waiters' "$T/a.err")" 1
    ended b
    equals "$(order)" 'a b '
}

@test "the permissions in the manual are enough to wait and to be called" {
    start_redis
    manual_user
    export DLOCK_REDIS="unix://locker:secret@$T/redis.sock"
    two_are_called
    equals "$(redis acl log | grep -c reason)" 0
}

@test "a server without CLIENT TRACKING still calls waiters" {
    start_redis redis --rename-command CLIENT ''
    two_are_called
}

@test "queue keys of another type, or full of nonsense, block nobody" {
    start_redis
    hold_lock job
    redis set '{dlock:job}:queue' x
    redis set '{dlock:job}:waiters' x
    dlock job -- sh -c 'echo a >>"$T/order"' 3>&- 4>&- &
    echo $! >"$T/a.pid"
    wait_until 10 eval 'redis client list | grep -q "name=dlock .* sub=[12]"'
    end_hold
    ended a
    redis del '{dlock:job}:queue' '{dlock:job}:waiters'
    redis zadd '{dlock:job}:queue' 1 nobody 2 another 3 turn
    redis hset '{dlock:job}:waiters' nobody '999999999999999 1 x' another '' turn 'turn 9 9'
    run dlock -n job echo in
    equals "$output" in
    is_gone() { [ "$(redis exists '{dlock:job}:queue')" = 0 ]; }
    is_gone
}

# A script in an endless loop can only be ended with the server.
@test "a queue that cannot be written (a replica, an ACL) causes no endless loop in the server" {
    start_redis
    plant 3
    redis replicaof 127.0.0.1 1
    fails_with 69 READONLY dlock -n --retry-for=300ms job true
    equals "$(timeout 20 redis-cli -s "$T/redis.sock" ping)" PONG
    redis replicaof no one
    manual_user
    redis acl setuser locker -zrem
    DLOCK_REDIS="unix://locker:secret@$T/redis.sock" run dlock -n job echo in
    equals "$output" in
    equals "$(timeout 20 redis-cli -s "$T/redis.sock" ping)" PONG
}

@test "a waiter that is terminated does not release another process's lock with the same --owner" {
    start_redis
    take_by_hand
    queue a --owner=somebody
    kill -TERM "$(pid_of a)"
    ended a 143
    equals "$(redis get dlock:job)" somebody
    redis del dlock:job
    dlock -s --acquire --owner=somebody -t 60s job
    redis del '{dlock:job}:holder:somebody'
    queue b --owner=somebody
    kill -TERM "$(pid_of b)"
    ended b 143
    equals "$(redis zcard '{dlock:job}:holders')" 1
}

# one_behind_leaves STATUS COMMAND...: COMMAND makes the waiter after a frozen one leave with this status.
one_behind_leaves() {
    local status=$1
    shift
    start_redis
    take_by_hand
    queue a && with_suspends queue b -w 1h && queue c
    sleep 8 # by now they poll rarely
    kill -STOP "$(pid_of a)"
    waits 3
    dlock --force-release job
    "$@"
    wait_until 4 ran 'c '
    kill -CONT "$(pid_of a)"
    ended a
    ended b "$status"
    ended c
}

@test "the last sharer leaves while another's lease has ended: an exclusive waiter is called" {
    start_redis
    hear_all
    local mode
    for mode in -s --slots=2; do
        dlock --acquire "$mode" --ttl=60 --owner=stays job >/dev/null
        dlock --acquire "$mode" --ttl=1 --owner=ends job >/dev/null
        queue a
        wait_until 10 not eval 'dlock --status --json job | grep -q "\"owner\":\"ends\""'
        equals "$(redis zcard '{dlock:job}:holders')" 2
        not grep -qx turn "$T/heard"
        dlock --release --owner=stays job
        wait_until 5 grep -qx turn "$T/heard"
        ended a
        : >"$T/heard"
    done
}

@test "a waiter that may not receive change notifications is still called when it becomes the first" {
    start_redis
    redis acl setuser locker on '>secret' '~*' +@all resetchannels '&{dlock:*'
    export DLOCK_REDIS="unix://locker:secret@$T/redis.sock"
    local start
    take_by_hand
    queue a && queue b
    sleep 2
    redis acl log reset
    kill -TERM "$(pid_of a)"
    ended a 143
    wait_until 10 eval 'redis acl log | grep -q __redis__:invalidate'
    sleep 0.3
    equals "$(redis client list | grep -c 'name=dlock.* sub=1 ')" 1
    dlock --force-release job && start=$(now)
    ended b
    within 0 "$start"
}

# --- price -------------------------------------------------------------------

@test "a thousand dead waiters at the head of the queue: the next one starts at once" {
    start_redis
    hold_lock job
    timeless queue z
    kill -STOP "$(pid_of z)" # otherwise it drops them before it is called
    plant 1000
    waits 1001
    kill -CONT "$(pid_of z)"
    end_hold
    ended z
    waits 0
}

@test "a thousand dead waiters and a free lock: a newcomer acquires it at once" {
    start_redis
    plant 1000
    local start=$(now)
    dlock -n job true
    within 0 "$start"
}

@test "--status counts only live waiters" {
    start_redis
    hold_lock job
    queue a
    plant 5
    run dlock --status --json job
    [[ $output == *'"waiters":1,'* ]]
    end_hold
    ended a
}

# Counts calls by clients, as tests/bench/bench_waiting.py does, whatever runs inside scripts.
calls() {
    redis info commandstats | sed -nE 's/^cmdstat_(auth|client|eval|evalsha|select|subscribe|unsubscribe)(\|[a-z]+)?:calls=([0-9]+),.*/\3/p' |
        awk '{ n += $1 } END { print n }'
}

# whole_runs N COMMAND...: prints what a run of the command costs from its first call to its last, in tenths of a call, if
# N wait for each other.
whole_runs() {
    local i count=$1
    shift
    rm -f "$T/held" "$T/held.end"
    hold_lock job
    redis config resetstat >/dev/null
    for ((i = 0; i < count; i++)); do
        dlock job "$@" 3>&- 4>&- &
        echo $! >"$T/q$i.pid"
    done
    wait_until 30 waits "$count"
    end_hold
    for ((i = 0; i < count; i++)); do ended "q$i"; done
    echo $(($(calls) * 10 / count))
}

@test "a run that waited costs the same few calls with 10 waiters as with 100" {
    start_redis
    local few many
    few=$(whole_runs 10 true)
    many=$(whole_runs 100 true)
    echo "tenths of a call: $few with 10, $many with 100" >&2
    [ "$few" -le 120 ]
    [ "$many" -le $((few + 10)) ]
}

@test "a watched run costs only a few calls more, and the same with 10 waiters as with 100" {
    start_redis
    local few many
    few=$(whole_runs 10 sleep 0.06)
    many=$(whole_runs 100 sleep 0.06)
    echo "tenths of a call: $few with 10, $many with 100" >&2
    [ "$few" -le 150 ] # with the calls of the holder that all wait for
    [ "$many" -le $((few + 10)) ]
}

@test "waiters that are called in their turn do not poll meanwhile, and are not tracked" {
    start_redis
    take_by_hand
    local i before
    for i in {1..10}; do queue "$i"; done
    wait_until 5 head_is_armed
    before=$(asks)
    sleep 1
    [ $(($(asks) - before)) -le 1 ] # one waiter polls for all
    equals "$(redis info commandstats | sed -nE 's/^cmdstat_client\|tracking:calls=([0-9]+),.*/\1/p')" 1
    redis del dlock:job
    for i in {1..10}; do ended "$i"; done
}

@test "a client that keeps sending messages or touching the lock makes a waiter poll 100 times a second at most" {
    start_redis
    take_by_hand 600000
    queue a
    wait_until 5 head_is_armed
    local channel before start
    channel=$(redis pubsub channels '*wake*')
    at_most() {
        before=$(asks)
        start=$(now)
        "$@" >"$T/flood"
        echo "$*: $(($(asks) - before)) asks in $(($(now) - start)) ms" >&2
        [ $(($(asks) - before)) -le $((($(now) - start) / 10 + 105)) ] # plus a burst of 100
    }
    for_a_second() { timeout 1 "$@" || [ $? -eq 124 ]; }
    flood() { for_a_second redis-cli -s "$T/redis.sock" -r 1000000 "$@"; }
    at_most flood publish "$channel" turn
    at_most flood set dlock:job somebody px 600000
    at_most flood eval 'redis.call("FLUSHALL") redis.call("SET", KEYS[1], "somebody")' 1 dlock:job
    # Each message resets the time of the next poll, and must leave room for it.
    at_most for_a_second bash -c 'while :; do echo "publish $0 \"held 0\""; sleep 0.002; done | redis-cli -s "$1"' "$channel" "$T/redis.sock"
}

@test "nonsense on a waiter's channel changes nothing" {
    start_redis
    take_by_hand 3000
    queue a
    local channel text
    channel=$(redis pubsub channels '*wake*')
    for text in 'held' 'held x' 'stand-by -5' 'held 99999999999999999999' '' 'turn turn' 'stand-by 99999999999' turn; do
        printf 'publish %s "%s"\n' "$channel" "$text"
    done | redis >"$T/heard"
    equals "$(grep -c 1 "$T/heard")" 8
    not ran 'a '
    ended a
}
