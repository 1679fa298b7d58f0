# The fence of a lock rises with every take. The tests load ../both/backend before.
# shellcheck shell=bash disable=SC2016

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
    equals $((off / 600)) 0 # to ten minutes
}
