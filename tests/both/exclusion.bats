#!/usr/bin/env bats
load backend

@test "a conflict: -n does not wait and prints nothing, -v names the holder, -E sets the status, nothing is run" {
    hold_lock job -t 60
    table <<'ROWS'
75 '^$' dlock -n job touch "$T/ran"
75 ''   dlock --nb job touch "$T/ran"
75 ''   dlock --nonblocking job touch "$T/ran"
75 ''   dlock --nonblock job touch "$T/ran"
75 ''   dlock --wait=0 job touch "$T/ran"
75 ''   dlock -w 0 job touch "$T/ran"
75 ''   dlock --timeout=0s job touch "$T/ran"
75 'held by .*@.* [(]pid [0-9]+, .*held\.sh[)] since .*, lease ends in 5[0-9]s' env LOGNAME=somebody dlock -v -n job touch "$T/ran"
75 '^$' dlock -v -q -n job touch "$T/ran"
9  ''   dlock -n -E 9 job touch "$T/ran"
0  ''   dlock --conflict-exit-code=0 --nonblock job touch "$T/ran"
ROWS
    [ ! -e "$T/ran" ]
    is_locked job
}

@test "-w waits as long as it says, and no longer" {
    hold_lock job
    local start
    start=$(now)
    run dlock -w 300ms job touch "$T/ran"
    within 300 "$start"
    [ $(($(now) - start)) -ge 300 ]
    [ "$status" -eq 75 ]
    [ ! -e "$T/ran" ]
    run dlock -w 1.2 job touch "$T/ran"
    [ "$status" -eq 75 ]
}

@test "twenty processes at once: never two in the lock at the same time, and each gets its turn" {
    local i
    for i in {1..20}; do
        dlock job -- sh -c "mkdir '$T/inside' && echo x >>'$T/count' && rmdir '$T/inside' || echo overlap >>'$T/bad'" 3>&- &
    done
    wait $(jobs -p | grep -vx "$(cat "$T/redis.pid" 2>/dev/null || echo 0)")
    [ ! -e "$T/bad" ]
    equals "$(wc -l <"$T/count")" 20
    is_clean job
}

@test "another name or prefix is another lock, even with the same owner token" {
    hold_lock job --owner=me
    table <<'ROWS'
0  '' dlock -n job2 true
0  '' dlock -n --prefix=p: job true
75 '' dlock -n --prefix=dlock: job touch "$T/ran"
75 '' dlock -n --owner=me job touch "$T/ran"
ROWS
    [ ! -e "$T/ran" ]
    is_locked job
}
