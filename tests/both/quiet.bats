#!/usr/bin/env bats
# If all goes well, dlock prints nothing; otherwise it names the holder.
load backend

# silent WORDS...: a dlock with these arguments prints nothing at all and exits with 0.
silent() {
    dlock "$@" >"$T/out" 2>"$T/err" || return
    [ ! -s "$T/out" ] && [ ! -s "$T/err" ] || { cat "$T/out" "$T/err"; false; }
}

@test "nothing is printed if all goes well, even on a terminal" {
    silent job true
    silent -n job -- true
    silent -w 5 job true
    silent --tree -t 1m job true
    silent -c : job
    silent --shared job dlock --shared job true
    silent --slots=2 job true
    silent --hold-at-least=1ms job true
    silent --json job true
    silent --attach job -t 1m --attach=$$
    silent --attach=$$ job
    silent --wait-until-free -n other
    command -v script >/dev/null || skip 'no script(1)'
    row_holds 0 '^$' script -qec 'dlock -w 5 job true && dlock job true && dlock -n job true' /dev/null
}

@test "with -v a waiter names the holder" {
    hold_lock job -t 60s
    dlock -v -w 60 job true >"$T/out" 2>"$T/said" 3>&- 4>&- &
    local waiter=$!
    wait_until 10 grep -qE "^dlock: job: waiting: held by .* [(]pid $HOLDER, $T/held.sh[)] since .*, until " "$T/said"
    end_hold
    wait "$waiter"
    grep -qE 'acquired \(.* after [0-9.]+m?s; the lease ends at ' "$T/said"
    [ ! -s "$T/out" ]
}

@test "a message says who holds a lock that cannot be acquired and since when, except with -n, -q and -E 0; only a held lock is called held" {
    local said="held by .* [(]pid \$HOLDER, \$T/held.sh[)] since [0-9:]{8} .*, lease ends in [0-9]+s"
    dlock --acquire -t 60s left >/dev/null
    dlock --hold-at-least=60s kept true
    hold_lock job -t 60s
    table <<ROWS
75 "dlock: job: $said\$"                        dlock -v -n job true
75 "^dlock: job: gave up after [0-9a-z.]+: $said" dlock -w 100ms job true
75 '^$'                                         dlock -n job true
75 '^$'                                         dlock -q -w 100ms job true
0  '^$'                                         dlock -E 0 -w 100ms job true
75 "gave up after [0-9a-z.]+: held by .* [(]pid \$HOLDER, .*; running[)]" dlock --wait-until-free -w 100ms job
75 ': held by .*, lease ends in (1m|5[0-9]s)\$' dlock -v -n left true
75 ': released by .*, true[)], but kept for another (1m|5[0-9]s) [(]--hold-at-least[)]\$' dlock -v -n kept true
ROWS
    [ "$BACKEND" = redis ] || return 0 # the kernel frees a file lock at once
    kill -KILL "$HOLDER"
    wait_until 10 gone "$HOLDER"
    fails_with 75 "held by .* [(]pid $HOLDER, $T/held.sh; has ended[)] since .*, lease ends in" dlock -v -n job true
}

@test "CI: a long wait is reported once, and once more for each new holder" {
    hold_lock job -t 60s
    hold next
    dlock -t 60s job "$T/next.sh" 3>&- 4>&- &
    local next=$!
    echo "$next" >"$T/next-dlock.pid"
    wait_until 10 eval 'dlock --status job | grep -q "1 waiting"'
    CI=true dlock job true >"$T/out" 2>"$T/ci" 3>&- 4>&- &
    local waiter=$!
    echo "$waiter" >"$T/waiter.pid"
    wait_until 10 grep -qE "^dlock: job: waiting [0-9]+s: held by .* [(]pid $HOLDER, " "$T/ci"
    end_hold
    wait_until 20 grep -qE "^dlock: job: waiting [0-9]+s: held by .* [(]pid $next, " "$T/ci"
    touch "$T/next.end"
    wait "$waiter"
    equals "$(wc -l <"$T/ci")" 2
    CI=true silent job true
}
