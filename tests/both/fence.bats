#!/usr/bin/env bats
# The fence of a lock rises with every take, whatever happens in between.
load backend

# rises [DLOCK-ARGUMENTS...]: takes the lock, with a fence above the last one seen.
LAST=0
rises() {
    local fence
    fence=$("${WALL[@]}" dlock -w 20 "$@" job -- env -u LD_PRELOAD sh -c 'echo "$DLOCK_FENCE"')
    above_last "$fence"
}
WALL=(env)

above_last() {
    [ "$1" -gt "$LAST" ] || {
        echo "the fence $1 does not rise above $LAST" >&2
        return 1
    }
    LAST=$1
}

# holder [DLOCK-ARGUMENTS...]: holds the lock, with a fence above the last one seen.
holder() {
    rm -f "$T/fence"
    "${WALL[@]}" dlock -w 20 "$@" job -- sh -c 'echo "$DLOCK_FENCE" >"$T/fence.tmp"; mv "$T/fence.tmp" "$T/fence"; exec sleep 60' \
        2>/dev/null 3>&- 4>&- &
    HOLDER=$!
    echo "$HOLDER" >"$T/holder.pid"
    wait_until 20 test -e "$T/fence"
    above_last "$(cat "$T/fence")"
}

# The holder's command is stopped.
is_stopped() {
    local status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
}

# killed: the holder is, and has left its lock behind.
killed() {
    kill -KILL "$HOLDER"
    wait "$HOLDER" 2>/dev/null || true
}

# The clock that counts is dlock's own for files, the server's for Redis.
use_own_wall() {
    set_wall 0
    case $BACKEND in
        file) WALL=(env "LD_PRELOAD=$HELPERS/fault_wall_clock.so") ;;
        redis)
            stop_redis
            LD_PRELOAD=$HELPERS/fault_wall_clock.so start_redis redis
            ;;
    esac
}

# off_by SECONDS FENCE: whether the fence is of a clock that is off so much.
off_by() {
    local off=$(($2 / 1000000 - $(date +%s) - $1))
    [ "${off#-}" -lt 100 ]
}

@test "the fence rises over releases, a holder that is killed, and leases that end" {
    local i
    for i in {1..20}; do rises; done
    holder -t 2s
    killed
    rises
    holder -t 500ms
    is_stopped
    rises
}

@test "the fence rises over a lock that was taken away, or overwritten" {
    local what
    for what in steal overwrite; do
        holder
        $what job
        is_stopped
        is_clean job || steal job
        rises
    done
}

@test "the fence rises over a store that is emptied" {
    rises
    local i
    for i in {1..5}; do
        case $BACKEND in
            file) rm -r "$DLOCK_LOCK_DIR" ;;
            redis) redis flushall ;;
        esac
        rises
    done
}

@test "the fence rises in another store than the last one" {
    rises
    case $BACKEND in
        file) DLOCK_LOCK_DIR=$T/other rises ;;
        redis)
            start_redis other
            rises -r "unix://$T/other.sock"
            ;;
    esac
    rises
}

@test "the fence rises where many take the lock, in the order in which they had it" {
    local i takers=()
    for i in {1..6}; do
        sh -c 'for i in 1 2 3; do dlock -w 60 job -- sh -c "echo \$DLOCK_FENCE" >>"$T/fences" || exit; done' 3>&- 4>&- &
        takers+=($!)
    done
    for i in "${takers[@]}"; do wait "$i"; done
    equals "$(wc -l <"$T/fences")" 18
    sort -n -u -c "$T/fences"
}

@test "the fence rises although the clock steps back, by little or much, and on from there" {
    use_own_wall
    local by
    rises
    off_by 0 "$LAST"
    for by in -1 -3600 -31536000 -3600 0 86400; do
        set_wall "$by"
        rises
        rises
    done
    off_by 86400 "$LAST"
    set_wall 0
    rises
    # It goes on from the highest, one by one, until the clock has come after it.
    off_by 86400 "$LAST"
    set_wall 172800
    rises
    off_by 172800 "$LAST"
}

@test "the fence rises although the clock steps back while the lock is held" {
    use_own_wall
    rises
    holder -t 60s
    set_wall -3600
    killed
    steal job
    rises
}

@test "the fence rises over a restart of the server, with its data and without" {
    [ "$BACKEND" = redis ] || skip 'files have no server'
    rises
    stop_redis
    start_redis redis
    equals "$(redis dbsize)" 0
    rises
    redis shutdown save || true
    wait_until 10 gone "$(cat "$T/redis.pid")"
    start_redis redis
    equals "$(redis exists '{dlock:job}:meta')" 1
    rises
}

@test "the fence rises over a restart of the server on a clock that is behind, with its data" {
    [ "$BACKEND" = redis ] || skip 'files have no server'
    rises
    redis shutdown save || true
    wait_until 10 gone "$(cat "$T/redis.pid")"
    set_wall -7200
    LD_PRELOAD=$HELPERS/fault_wall_clock.so start_redis redis
    equals "$(redis exists '{dlock:job}:meta')" 1
    rises
}

@test "the fence rises over a switch to a server that has an older state, or a clock that is behind" {
    [ "$BACKEND" = redis ] || skip 'files have no server'
    # A replica that takes over without the last writes.
    start_redis replica --replicaof 127.0.0.1 1
    redis-cli -s "$T/replica.sock" replicaof no one
    rises
    meta_to() { redis --raw dump '{dlock:job}:meta' | head -c -1 | redis-cli -s "$T/$1.sock" -x restore '{dlock:job}:meta' 0; }
    equals "$(meta_to replica)" OK
    rises
    rises
    rises -r "unix://$T/replica.sock"
    rises
    # One that has all of it, and a clock that is behind.
    set_wall -7200
    LD_PRELOAD=$HELPERS/fault_wall_clock.so start_redis behind
    off_by -7200 "$(redis-cli -s "$T/behind.sock" time | head -1)000000"
    equals "$(meta_to behind)" OK
    rises -r "unix://$T/behind.sock"
    rises -r "unix://$T/behind.sock"
}
