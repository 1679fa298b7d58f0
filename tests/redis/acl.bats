#!/usr/bin/env bats
# The permissions that a Redis user needs, and what is reported if one is
# missing. The user is the manual's; each test takes one permission away.
load ../lib/common
load ../lib/queue
setup() {
    common_setup
    start_redis
    manual_user >/dev/null
    export DLOCK_REDIS=unix://locker:secret@$T/redis.sock
}

# without PERMISSION...: sets up the manual's user without these, and an empty server.
without() {
    manual_user >/dev/null
    redis acl setuser locker "${@/#/-}" >/dev/null
    redis flushall >/dev/null
    redis script flush >/dev/null
}

# names COMMAND DLOCK ARGUMENTS...: it is refused at once; the message names user and command.
names() {
    local command=$1 start=$(now)
    shift
    fails_with 77 "the server refuses the user locker.*(command $command[)]?:|'${command,,}' command|\\($command\\)).*dlock-redis\\(7\\)" \
        dlock --fallback=file "$@" job touch "$T/ran"
    within 0 "$start"
    [ ! -e "$T/ran" ]
    equals "$(redis exists dlock:job)" 0
}

# not_served COMMAND ACTION...: the same for an action on a held lock.
not_served() {
    local command=$1
    shift
    fails_with 77 "the server refuses the user locker.*(command $command[)]?:|'${command,,}' command|\\($command\\))" dlock "$@"
}

@test "without a permission needed to acquire: exit 77 naming the user and the command, nothing is run, nothing is left" {
    local command
    for command in EVAL EVALSHA GET SET PEXPIRE TIME HMGET HSET; do
        without "${command,,}"
        names $command -n
    done
    for command in ZADD ZRANGE; do
        without "${command,,}"
        names $command -s -n
    done
}

@test "without a permission that only some actions need, those are refused and the others work" {
    local token
    without pttl
    run dlock job echo in
    equals "$output" in
    dlock --acquire --owner=me job
    not_served PTTL -n job true
    not_served PTTL --extend --owner=me job
    not_served PTTL --status job
    dlock --release --owner=me job
    without del
    dlock --acquire --owner=me job
    dlock --status job
    dlock --extend --owner=me job
    not_served DEL --release --owner=me job
    not_served DEL --force-release job
    without zrem
    dlock --acquire -s --owner=me job
    dlock --extend --owner=me job
    not_served ZREM --release --owner=me job
    without zrangebyscore
    dlock --acquire -s --owner=me job
    dlock --extend --owner=me job
    not_served ZRANGEBYSCORE -n -s job true
    dlock --release --owner=me job
    without scan
    dlock job true
    not_served SCAN --list
}

@test "if the user may not release the lock, a message says so and the command's status is returned" {
    without del
    run dlock job sh -c 'exit 3'
    equals "$status" 3
    grep -qE "could not be released: .*refuses the user locker.*(command DEL[)]?:|'del' command)" <<<"$output"
    without zrem
    run dlock -s job sh -c 'exit 3'
    equals "$status" 3
    grep -qE "could not be released: .*refuses the user locker.*(command ZREM[)]?:|'zrem' command)" <<<"$output"
}

@test "missing optional permissions cause no message" {
    local words
    for words in 'hget hincrby zcount zrank zcard pubsub' 'client|setname client|id client|tracking client|caching' 'client|id' 'client|caching'; do
        # shellcheck disable=SC2086
        without $words
        run dlock job echo in
        equals "$words $output" "$words in"
        run dlock --slots=2 job echo in
        equals "$words $output" "$words in"
        dlock --acquire --owner=me job
        fails_with 75 '^$' dlock -n job true
        run dlock --extend --owner=me job
        equals "$words $output" "$words "
        run dlock --release --owner=me job
        equals "$words $output" "$words "
    done
}

@test "keys that the user may not access: exit 77 naming the keys" {
    fails_with 77 'the user locker \(missing: the keys other:job and \{other:job\}:\*\): NOPERM' \
        dlock --prefix=other: job touch "$T/ran"
    redis acl setuser locker resetkeys '~dlock:*' >/dev/null
    fails_with 77 'missing: the keys dlock:job and \{dlock:job\}:\*' dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
    equals "$(redis exists dlock:job)" 0
}

@test "a user without SELECT on another database: exit 77, nothing is written to database 0" {
    without select
    DLOCK_REDIS+='?db=2' fails_with 77 "user locker: NOPERM .*'select'" dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
    equals "$(redis exists dlock:job)" 0
}

@test "a permission revoked while the lock is held does not count as a lost lock" {
    hold_lock job -t 1h # checked every ten seconds, and after a notification
    redis acl log reset >/dev/null
    redis acl setuser locker -eval -evalsha -get -pttl -del >/dev/null
    redis pexpire dlock:job 3500000 >/dev/null
    wait_until 20 eval 'redis acl log | grep -q reason'
    sleep 0.3 # nothing must happen
    kill -0 "$(cat "$T/held")"
    equals "$(cat "$T/held.err")" ''
    manual_user >/dev/null
    redis acl setuser locker -del >/dev/null
    end_hold
    wait "$HOLDER"
    grep -qE "could not be released: .*(command DEL[)]?:|'del' command)" "$T/held.err"
}

# The server has deleted the share when the script ends, so a second release finds no share.
@test "a share whose release an ACL has ended halfway was released, and not lost" {
    dlock --acquire -s --owner=other job
    dlock --acquire -s --owner=me job
    redis acl setuser locker -pttl >/dev/null
    not_served PTTL --release --owner=me job
    manual_user >/dev/null
    fails_with 1 'already released' dlock --release --owner=me job
    equals "$(redis zrange '{dlock:job}:holders' 0 -1)" other
}

@test "a waiter that may not join the queue or be notified polls instead, and -v says why" {
    local word
    redis set dlock:job another >/dev/null
    for word in zadd publish subscribe unsubscribe multi exec; do
        manual_user >/dev/null
        redis acl setuser locker "-$word" >/dev/null
        run dlock -v -w 1.6 job true # the first waiter subscribes once more, within a second
        equals "$status" 75
        [[ $output == *"cannot notify waiters (${word^^}: "* ]]
    done
    run dlock -w 0.2 job true
    [[ $status = 75 && $output != *'cannot notify'* ]]
    manual_user >/dev/null
    redis acl setuser locker resetchannels >/dev/null
    run dlock -v -w 0.5 job true
    [[ $output == *'cannot notify waiters'*'channel'* ]]
}

@test "a waiter that may not join the queue acquires the lock soon after its release" {
    redis acl setuser locker -zadd >/dev/null
    redis set dlock:job another px 60000 >/dev/null
    dlock -v job sh -c 'echo in >>"$T/order"' 2>"$T/a.err" 3>&- 4>&- &
    echo $! >"$T/a.pid"
    wait_until 10 grep -q ZADD "$T/a.err"
    redis del dlock:job >/dev/null
    wait_until 6 ran 'in '
    ended a
}

@test "with the permissions in the manual every action works and the server refuses nothing" {
    dlock --acquire --owner=me -t 60 job
    fails_with 75 '' dlock -w 0.3 job true
    dlock --status job
    dlock --list
    dlock --extend --owner=me job
    dlock --release --owner=me job
    dlock --acquire -s --owner=me -t 60 --hold-at-least=1ms job
    dlock --acquire -s --owner=second -t 60 job
    dlock --release --owner=me job
    dlock --force-release job
    dlock --slots=2 other true
    dlock -s other -- dlock --current
    DLOCK_REDIS+='?db=1' dlock -s job true
    equals "$(redis acl log | grep -c reason)" 0
}

@test "a sharer that cannot be read still holds the lock, however the server words its refusal" {
    start_redis other --rename-command ZRANGE ''
    fails_with 78 'the server answered: ERR Unknown .*called from script.*\(ZRANGE\)' \
        dlock --fallback=file -r "unix://$T/other.sock" -s job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "a command missing on the server is no outage: exit 78 naming the command, no fallback to a file" {
    start_redis other --rename-command HSET ''
    fails_with 78 'the server does not know the command HSET: ERR Unknown .*called from script;' \
        dlock --fallback=file -r "unix://$T/other.sock" job touch "$T/ran"
    [ ! -e "$T/ran" ]
}
