#!/usr/bin/env bats
load backend

@test "the lock is held while the command runs, and free however it ends: its status, 128+N, 127 or 126" {
    hold_lock job
    is_locked job
    end_hold
    wait "$HOLDER"
    is_clean job
    : >"$T/plain"
    ends() { row_holds "$@" && is_clean job; }
    ends 7 '^$' dlock job -- sh -c 'exit 7'
    ends 127 '^$' dlock job -- sh -c 'exit 127'
    ends 143 '^$' dlock job -- sh -c 'kill -TERM $$'
    ends 137 '^$' dlock job -- sh -c 'kill -KILL $$'
    ends 127 'cannot run .*nosuch: No such file' dlock job "$T/nosuch"
    ends 127 'cannot run nosuchcommand: No such file' dlock job nosuchcommand
    ends 127 "cannot run '': No such file" dlock job -- ''
    ends 126 'cannot run .*plain: Permission denied' dlock job "$T/plain"
    ends 126 'Permission denied' dlock job "$T"
}

@test "the command finds its lock in its environment, and each run gets its own UUID v4 as token" {
    run dlock --prefix=p:team: -t 90s --owner=me job -- env
    grep -qx 'DLOCK_NAME=job' <<<"$output"
    grep -qx 'DLOCK_HELD_KEY=p:team:job' <<<"$output"
    grep -qx 'DLOCK_HELD_OWNER=me' <<<"$output"
    grep -qx 'DLOCK_HELD_TTL=90' <<<"$output"
    grep -qx "DLOCK_HELD_BACKEND=$BACKEND" <<<"$output"
    # None of them has the name of a setting, so a dlock inside does not mistake it for one.
    not grep -qE '^DLOCK_(KEY|OWNER|TTL|TOLD_.*|LOCK_(KEY|OWNER|TTL|BACKEND))=' <<<"$output"
    grep -qxE "DLOCK_HELD=$BACKEND\?[^ ]*prefix=p:team:[^ ]* me [0-9a-f-]{36} p:team:job" <<<"$output"
    grep -qxE 'DLOCK_FENCE=[1-9][0-9]{15}' <<<"$output"
    grep -qxE 'DLOCK_EXPIRES_AT=20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-9:]{8}Z' <<<"$output"
    local uuid='[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}' first
    # A lease that is not a whole number of seconds is shown in milliseconds.
    row_holds 0 "^1\\.500 $uuid\$" dlock -t 1500ms job -- sh -c 'echo $DLOCK_HELD_TTL $DLOCK_HELD_OWNER'
    first=$output
    row_holds 0 "^1\\.500 $uuid\$" dlock -t 1500ms job -- sh -c 'echo $DLOCK_HELD_TTL $DLOCK_HELD_OWNER'
    [ "$output" != "$first" ]
}

@test "a lock inside another lock: both are held and shown, and DLOCK_ variables set by the user apply inside as well" {
    run dlock -t 90 --owner=outer a -- dlock b -- sh -c 'echo "$DLOCK_HELD"; echo "$DLOCK_HELD_OWNER $DLOCK_HELD_TTL $DLOCK_NAME"'
    [ "$status" -eq 0 ]
    [[ ${lines[0]} =~ ^$BACKEND\?[^\ ]*\ outer\ [0-9a-f-]{36}\ dlock:a$ ]]
    [[ ${lines[1]} =~ ^$BACKEND\?[^\ ]*\ ([0-9a-f-]{36})\ [0-9a-f-]{36}\ dlock:b$ ]]
    [[ ${lines[2]} =~ ^[0-9a-f-]{36}\ 3600\ b$ ]]
    # Inside a command, a lock is acquired in the same store as outside.
    hold_lock b
    row_holds 75 '^$' dlock a -- dlock -n b true
    end_hold
    wait "$HOLDER"
    export DLOCK_TTL=7m
    row_holds 0 '^420$' dlock -t 90 a -- dlock b -- sh -c 'echo $DLOCK_HELD_TTL'
    row_holds 0 "^420 $BACKEND\$" dlock a -- dlock b -- dlock c -- sh -c 'echo $DLOCK_HELD_TTL $DLOCK_HELD_BACKEND'
    row_holds 0 '^480$' dlock a -- env DLOCK_TTL=8m dlock b -- sh -c 'echo $DLOCK_HELD_TTL'
}

@test "no message about a run contains its token" {
    hold_lock job -vv
    local token
    token=$(dlock --status --json job | sed -E 's/.*"owner":"([^"]*)".*/\1/')
    [ "${#token}" -eq 36 ]
    fails_with 75 'held by' dlock -vv -n job true
    [[ $output != *"$token"* ]]
    fails_with 75 'held by' dlock -vv -w 100ms job true
    [[ $output != *"$token"* ]]
    dlock --force-release job >"$T/forced" 2>&1
    wait "$HOLDER" || equals "$?" 124
    grep -q 'lost' "$T/held.err"
    not grep -F -- "$token" "$T/held.err" "$T/forced"
}

@test "names with special characters work and do not collide" {
    local name
    for name in 'a/b' '.hidden' 'a%2Fb' 'ü ☃' '..' '{tag}x' '{}x' 'a}b' '*' '-' "$(printf 'n%.0s' {1..1023})"; do
        run dlock -n -- "$name" dlock -n -- "$name." sh -c 'echo ok'
        equals "$output" ok
    done
    # Names that have their first 200 characters in common are different locks.
    local long
    long=$(printf 'l%.0s' {1..1000})
    run dlock -n -- "${long}a" dlock -n -- "${long}b" echo ok
    equals "$output" ok
    run dlock -n -- "${long}a" dlock -v -n -- "${long}a" echo ok
    [[ $output == *'already holds the lock'*ok ]]
}

@test "none of dlock's descriptors reaches the command" {
    run dlock job -- sh -c 'ls /proc/self/fd | wc -l'
    local with=$output
    run sh -c 'ls /proc/self/fd | wc -l'
    equals "$with" "$output"
}

@test "-v reports each step of a run" {
    local from=DLOCK_BACKEND time='([0-9-]+ )?[0-9:]{8} [+-][0-9]{4}'
    [ "$BACKEND" = file ] || from=DLOCK_REDIS
    run dlock -v --ttl=5m job sh -c 'echo $$; exit 3'
    equals "$status ${#lines[@]}" '3 6'
    equals "${lines[0]}" "dlock: job: requesting dlock:job: $BACKEND backend ($from), TTL 5m (--ttl)"
    [[ ${lines[1]} =~ ^"dlock: job: acquired ($BACKEND, fence "[0-9]+") after "("less than ")?[0-9.]+"m"?"s; the lease ends at "$time$ ]]
    local said=("${lines[@]:2}")
    [[ " ${said[*]} " == *" dlock: job: started sh (pid $(grep -x '[0-9]*' <<<"$output")) "* ]]
    equals "${lines[4]}" 'dlock: job: the command exited with status 3'
    [[ ${lines[5]} =~ ^"dlock: job: released after "[0-9.]+m?s$ ]]
    run dlock -v job sh -c 'kill -INT $$'
    [[ $output == *'dlock: job: the command was killed by SIGINT'* ]]
    run dlock -v job sleep 1.1
    [[ $output =~ "dlock: job: released after "[1-9][0-9.]*s$ ]]
    run dlock -v job "$T/nosuch"
    [[ $output == *'acquired'*'released after'* && $output != *'started'* && $output != *'the command exited'* ]]
}
