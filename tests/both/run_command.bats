#!/usr/bin/env bats
load backend

@test "the command runs under the lock and its status is dlock's" {
    run dlock job -- sh -c 'exit 7'
    [ "$status" -eq 7 ]
    is_clean job
}

@test "nothing is said when all is well" {
    run dlock job true
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

@test "the lock is held while the command runs, and free afterwards" {
    hold_lock job
    is_locked job
    end_hold
    wait "$HOLDER"
    is_clean job
}

@test "arguments reach the command as they were, empty ones and dashes too" {
    run dlock job printf '<%s>' -n '' '--' 'a b' '$x' -- -x
    equals "$output" '<-n><><--><a b><$x><--><-x>'
}

@test "options come before and after the name, up to the command" {
    run dlock -w 5 job -t 10 -v -- sh -c 'echo $DLOCK_LOCK_TTL "$@"' sh -t 20
    [[ $output == *"10 -t 20"* ]]
    run dlock job --ttl=10 sh -c 'echo $DLOCK_LOCK_TTL'
    equals "$output" 10
    run dlock -- job echo -t 20
    equals "$output" '-t 20'
    run dlock -- -job- echo x
    equals "$output" x
}

@test "-c runs a shell command" {
    run dlock job -c 'echo $((1 + 1)) | cat; exit 3'
    equals "$output" 2
    [ "$status" -eq 3 ]
    run dlock -c 'echo before' job
    equals "$output" before
}

@test "-c uses the shell of \$SHELL" {
    printf '#!/bin/sh\necho "own shell: $*"\n' >"$T/shell"
    chmod +x "$T/shell"
    SHELL=$T/shell run dlock job -c 'a b'
    equals "$output" 'own shell: -c a b'
}

@test "stdin and stdout are the command's" {
    run bash -c 'echo hello | dlock job cat'
    equals "$output" hello
}

@test "a command ended by a signal gives 128+N" {
    run dlock job -- sh -c 'kill -TERM $$'
    [ "$status" -eq 143 ]
    run dlock job -- sh -c 'kill -KILL $$'
    [ "$status" -eq 137 ]
    is_clean job
}

@test "a command that is not there gives 127, one that cannot be executed 126" {
    fails_with 127 'cannot run .*nosuch: No such file' dlock job "$T/nosuch"
    fails_with 127 'cannot run nosuchcommand: No such file' dlock job nosuchcommand
    fails_with 127 "cannot run '': No such file" dlock job -- ''
    : >"$T/plain"
    fails_with 126 'cannot run .*plain: Permission denied' dlock job "$T/plain"
    fails_with 126 'Permission denied' dlock job "$T"
    is_clean job
}

@test "a command's own 126 and 127 are passed on without a word" {
    run dlock job -- sh -c 'exit 127'
    [ "$status" -eq 127 ]
    [ -z "$output" ]
}

@test "the command gets its lock in its environment" {
    run dlock --prefix=p:team: -t 90s --owner=me job -- env
    grep -qx 'DLOCK_NAME=job' <<<"$output"
    grep -qx 'DLOCK_LOCK_KEY=p:team:job' <<<"$output"
    grep -qx 'DLOCK_LOCK_OWNER=me' <<<"$output"
    grep -qx 'DLOCK_LOCK_TTL=90' <<<"$output"
    grep -qx "DLOCK_LOCK_BACKEND=$BACKEND" <<<"$output"
    # None of them is the name of a setting, so that a dlock inside takes none for one.
    grep -qE '^DLOCK_(KEY|OWNER|TTL|TOLD_.*|HELD_.*)=' <<<"$output" && false
    grep -qxE "DLOCK_HELD=$BACKEND me [0-9a-f-]{36} p:team:job" <<<"$output"
    grep -qxE 'DLOCK_FENCE=[1-9][0-9]{15}' <<<"$output"
    grep -qxE 'DLOCK_EXPIRES_AT=20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-9:]{8}Z' <<<"$output"
}

@test "a lease of less than a second is shown to the millisecond" {
    run dlock -t 1500ms job -- sh -c 'echo $DLOCK_LOCK_TTL'
    equals "$output" 1.500
}

@test "a lock inside a lock: both are held, both are shown, nothing is mixed up" {
    run dlock -t 90 --owner=outer a -- dlock b -- sh -c 'echo "$DLOCK_HELD"; echo "$DLOCK_LOCK_OWNER $DLOCK_LOCK_TTL $DLOCK_NAME"'
    [ "$status" -eq 0 ]
    [[ ${lines[0]} =~ ^$BACKEND\ outer\ [0-9a-f-]{36}\ dlock:a$ ]]
    [[ ${lines[1]} =~ ^$BACKEND\ ([0-9a-f-]{36})\ [0-9a-f-]{36}\ dlock:b$ ]]
    [[ ${lines[2]} =~ ^[0-9a-f-]{36}\ 3600\ b$ ]]
}

@test "dlock's variables count inside a command of dlock's as well" {
    export DLOCK_TTL=7m
    run dlock -t 90 a -- dlock b -- sh -c 'echo $DLOCK_LOCK_TTL'
    equals "$output" 420
    run dlock a -- dlock b -- dlock c -- sh -c 'echo $DLOCK_LOCK_TTL $DLOCK_LOCK_BACKEND'
    equals "$output" "420 $BACKEND"
    # And so does what is set in there.
    run dlock a -- env DLOCK_TTL=8m dlock b -- sh -c 'echo $DLOCK_LOCK_TTL'
    equals "$output" 480
    # A lock inside goes where it would go outside.
    unset DLOCK_TTL
    hold_lock b
    run dlock a -- dlock -n b true
    equals "$status" 75
}

@test "each take has its own UUID v4" {
    run dlock job -- sh -c 'echo $DLOCK_LOCK_OWNER'
    [[ $output =~ ^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$ ]]
    local first=$output
    run dlock job -- sh -c 'echo $DLOCK_LOCK_OWNER'
    [ "$output" != "$first" ]
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

@test "the fence rises with every take" {
    local last=0 i
    for i in {1..20}; do
        run dlock job -- sh -c 'echo $DLOCK_FENCE'
        [ "$output" -gt "$last" ]
        last=$output
    done
}

@test "the fence rises although the clock steps back" {
    [ -e "${FAKETIME:=$(echo /usr/lib/*/faketime/libfaketime.so.1)}" ] || skip "no libfaketime"
    [ "$BACKEND" = file ] || skip "the server's clock counts there"
    local first later
    first=$(dlock job -- sh -c 'echo $DLOCK_FENCE')
    later=$(LD_PRELOAD=$FAKETIME FAKETIME='-2h' FAKETIME_DONT_FAKE_MONOTONIC=1 dlock job -- sh -c 'echo $DLOCK_FENCE')
    [ "$later" -gt "$first" ]
}

@test "names that need coding work, and do not meet each other" {
    local name
    for name in 'a/b' '.hidden' 'a%2Fb' 'ü ☃' '..' '{tag}x' '{}x' 'a}b' '*' '-' "$(printf 'n%.0s' {1..1023})"; do
        run dlock -n -- "$name" dlock -n -- "$name." sh -c 'echo ok'
        equals "$output" ok
    done
    # Alike in their first 200 characters: told apart all the same.
    local long
    long=$(printf 'l%.0s' {1..1000})
    run dlock -n -- "${long}a" dlock -n -- "${long}b" echo ok
    equals "$output" ok
    run dlock -n -- "${long}a" dlock -v -n -- "${long}a" echo ok
    [[ $output == *'already holds the lock'*ok ]]
}

@test "no descriptor of dlock's reaches the command" {
    run dlock job -- sh -c 'ls /proc/self/fd | wc -l'
    local with=$output
    run sh -c 'ls /proc/self/fd | wc -l'
    equals "$with" "$output"
}

@test "mask and dispositions of signals are those that dlock was given" {
    # The low 31: signals 32 and 33 are the C library's own.
    local signals="sed -nE 's/^(Sig(Blk|Ign)).*([0-7].{7})\$/\\1 \\3/p' /proc/self/status"
    run sh -c "$signals"
    local plain=$output
    run dlock job -- sh -c "$signals"
    equals "$output" "$plain"
    run sh -c "trap '' INT PIPE CHLD; $signals"
    local trapped=$output
    run sh -c "trap '' INT PIPE CHLD; exec dlock job -- sh -c \"$signals\""
    equals "$output" "$trapped"
}

@test "-v tells the story of a run" {
    local from=DLOCK_BACKEND time='([0-9-]+ )?[0-9:]{8} [+-][0-9]{4}'
    [ "$BACKEND" = file ] || from=DLOCK_REDIS
    run dlock -v --ttl=5m job sh -c 'echo $$; exit 3'
    equals "$status ${#lines[@]}" '3 6'
    equals "${lines[0]}" "dlock: job: requesting dlock:job: $BACKEND ($from), ttl 5m (--ttl)"
    [[ ${lines[1]} =~ ^"dlock: job: taken ($BACKEND, fence "[0-9]+") after "("less than ")?[0-9.]+m?s", until "$time$ ]]
    local said=("${lines[@]:2}")
    [[ " ${said[*]} " == *" dlock: job: started sh, pid $(grep -x '[0-9]*' <<<"$output") "* ]]
    equals "${lines[4]}" 'dlock: job: the command ended with status 3'
    [[ ${lines[5]} =~ ^"dlock: job: released after "[0-9.]+m?s$ ]]
    run dlock -v job sh -c 'kill -INT $$'
    [[ $output == *'dlock: job: the command was ended by SIGINT'* ]]
    run dlock -v job sleep 1.1
    [[ $output =~ "dlock: job: released after "[1-9][0-9.]*s$ ]]
    [ -z "${SANITIZER:-}" ] || return 0 # where vfork is a fork, nobody waits for exec
    run dlock -v job "$T/nosuch"
    [[ $output == *'taken'*'released after'* && $output != *'started'* && $output != *'the command ended'* ]]
}

@test "a caller that ignores SIGCHLD: the command's own status, and the command ignores it too" {
    # cron of busybox and some supervisors do: the kernel would reap the command.
    run env --ignore-signal=CHLD dlock job -- sh -c 'exit 7'
    equals "$status" 7
    run env --ignore-signal=CHLD dlock job -- grep SigIgn /proc/self/status
    (((0x${output##*[[:space:]]} & 0x10000) != 0))
    is_clean job
}
