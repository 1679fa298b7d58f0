# The fence of a lock rises with every acquisition. Tests load ../both/backend first.
# shellcheck shell=bash disable=SC2016

# rises [DLOCK-ARGUMENTS...]: acquires the lock; the fence must be above the last one.
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

# holder [DLOCK-ARGUMENTS...]: holds the lock in the background; the fence must be above the last one.
holder() {
    rm -f "$T/fence"
    "${WALL[@]}" dlock -w 20 "$@" job -- sh -c 'echo "$DLOCK_FENCE" >"$T/fence.tmp"; mv "$T/fence.tmp" "$T/fence"; exec sleep 60' \
        2>/dev/null 3>&- 4>&- &
    HOLDER=$!
    echo "$HOLDER" >"$T/holder.pid"
    wait_until 20 test -e "$T/fence"
    above_last "$(cat "$T/fence")"
}

# The holder's dlock must end because it has stopped the command.
is_stopped() {
    local status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
}

# killed: kills the holder, which leaves its lock behind.
killed() {
    kill -KILL "$HOLDER"
    wait "$HOLDER" 2>/dev/null || true
}

# Makes set_wall change the clock that sets the fence: dlock's clock for files, the server's for Redis.
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

# off_by SECONDS FENCE: the fence must come from a clock that is SECONDS ahead.
off_by() {
    local off=$(($2 / 1000000 - $(date +%s) - $1))
    equals $((off / 600)) 0 # give or take ten minutes
}
