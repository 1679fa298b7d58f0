# Waiters for the lock "job", for the tests of the queue.
# shellcheck shell=bash

# queue LABEL [DLOCK ARGUMENTS...]: starts another waiter, whose command writes the label to $T/order. The waiter's
# pid is in $T/LABEL.pid.
queue() {
    local label=$1 before
    shift
    before=$(waiters)
    # shellcheck disable=SC2016
    dlock "$@" job -- sh -c 'echo "$0" >>"$T/order"' "$label" 2>"$T/$label.err" 3>&- 4>&- &
    echo $! >"$T/$label.pid"
    wait_until 10 waits $((before + 1))
}
waiters() { dlock --status --json job | sed -E 's/.*"waiters":([0-9]+).*/\1/'; }
waits() { [ "$(waiters)" = "$1" ]; }

# order: prints the labels of those commands that have run; ran LABELS: true if these have run, in this order.
order() { tr '\n' ' ' <"$T/order" 2>/dev/null; }
ran() { [ "$(order)" = "$1" ]; }
pid_of() { cat "$T/$1.pid"; }

# ended LABEL [STATUS]: the waiter must end with this status.
ended() {
    local status=0
    wait_until 20 gone "$(pid_of "$1")"
    wait "$(pid_of "$1")" || status=$?
    equals "$status" "${2:-0}"
}
