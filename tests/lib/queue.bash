# Those who wait for the lock "job", for the tests of the queue.
# shellcheck shell=bash

# queue LABEL [DLOCK ARGUMENTS...]: one more waits, and writes its label to
# $T/order when it runs. Its pid is in $T/LABEL.pid.
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

# order: who has run so far; ran LABELS: whether it is these.
order() { tr '\n' ' ' <"$T/order" 2>/dev/null; }
ran() { [ "$(order)" = "$1" ]; }
pid_of() { cat "$T/$1.pid"; }

# ended LABEL [STATUS]: it has ended with this status.
ended() {
    local status=0
    wait "$(pid_of "$1")" || status=$?
    equals "$status" "${2:-0}"
}

# at_once START: not as late as by asking again, which Redis is after 5 s and a file after 1.
at_once() {
    local limit=2500
    [ "${BACKEND:-redis}" != file ] || limit=1000
    within "$limit" "$1"
}
