#!/usr/bin/env bats
# The table "Sharing locks with other clients" of the manual, row by row. A
# client that can be installed is itself the other side; for the rest, the tests send what it sends.
# For npm packages that are not found by themselves, NODE_PATH names the folders of
# redlock, and of ioredis.
load ../lib/common
setup() {
    common_setup
    set_wall 0
    LD_PRELOAD=$HELPERS/fault_wall_clock.so start_redis
    export DLOCK_REDIS=unix://$T/redis.sock
    CLIENTS=$TESTS/helpers/clients
}

# Each client is a command in THEM, with the actions acquire, release and
# extend, and a name for the lock in THEIRS; dlock needs the arguments in US for
# the same lock, and KEY is its key in Redis.

redis_py() {
    local python=python3
    "$python" -c 'import redis' 2>/dev/null || python=/usr/bin/python3
    "$python" -c 'import redis' 2>/dev/null || skip 'no python3-redis'
    THEM=("$python" "$CLIENTS/redis_py.py") THEIRS=reports KEY=reports US=(--prefix= reports)
}

# redlock MAJOR
redlock() {
    command -v node >/dev/null || skip 'no node'
    export REDLOCK=$1 NODE_PATH=${NODE_PATH:-$(npm root -g 2>/dev/null || true)}
    # shellcheck disable=SC2016
    node "$CLIENTS/redlock.js" probe || skip "no npm packages redlock $1 and ioredis in \$NODE_PATH"
    THEM=(node "$CLIENTS/redlock.js") THEIRS=locks:reports KEY=locks:reports US=(--prefix= locks:reports)
}

# laravel REDIS_PREFIX CACHE_PREFIX WHOLE: the first two as in .env, and the prefix that they result in.
laravel() {
    php -r 'exit(extension_loaded("redis") && stream_resolve_include_path("Illuminate/Redis/autoload.php")
        && stream_resolve_include_path("Illuminate/Cache/autoload.php") ? 0 : 1);' 2>/dev/null ||
        skip 'no php with redis, illuminate-cache and illuminate-redis'
    export REDIS_PREFIX=$1 CACHE_PREFIX=$2
    THEM=(php "$CLIENTS/laravel.php") THEIRS=reports KEY=${3}reports US=("--prefix=$3" reports)
}
laravel_8() { laravel laravel_database_ laravel_cache laravel_database_laravel_cache:; }

# by_hand KIND KEY DLOCK-ARGUMENTS...
by_hand() {
    THEM=("$CLIENTS/by_hand.sh" "$1") THEIRS=$2 KEY=$2 US=("${@:3}")
}
a_shell_script() { by_hand shell lock:reports --prefix=lock: reports; }
shedlock() { by_hand "$1" job-lock:production:reports --prefix=job-lock:production: reports; }
# The digest is the SHA-256 of the name.
parse() {
    local key=parse-stack:lock:v1:d4ec3f939017528eeddfc9c0fa9ebb1aa8495ed5cbc726d228b18b8e85b8838b
    by_hand parse "$key" --prefix=parse-stack:lock:v1: --hash=sha256 cron:nightly-rollup
}
redisson() { by_hand redisson reports --prefix= reports; }

# them ACTION ARGUMENTS...: the client does this to the lock.
them() { "${THEM[@]}" "$1" "$THEIRS" "${@:2}"; }

# refused ACTION ARGUMENTS...: the client is refused, and reports no other error.
refused() { fails_with 1 '^$' them "$@"; }

# A dlock has asked the server, and still runs.
one_waits() { redis client list | grep -q name=dlock; }

key_is_gone() { [ "$(redis exists "$KEY")" = 0 ]; }

# While the client holds the lock, dlock does not get it; once the client releases it, dlock does.
they_keep_us_out() {
    local token
    token=$(them acquire 60000)
    [ -n "$token" ]
    fails_with 75 'held by another client, lease ends in (1m|5[0-9]s)' dlock -v -n "${US[@]}" touch "$T/ran"
    equals "$(redis get "$KEY")" "$token"
    [ "$(redis pttl "$KEY")" -gt 50000 ]
    [ ! -e "$T/ran" ]
    them release "$token"
    run dlock -n "${US[@]}" -- sh -c 'echo "$DLOCK_HELD_KEY"'
    equals "$status $output" "0 $KEY"
    # A waiting dlock gets it after the release, well before the expiry.
    token=$(them acquire 60000)
    dlock -w 30 "${US[@]}" echo ran >"$T/out" 3>&- 4>&- &
    local waiter=$!
    wait_until 10 one_waits
    them release "$token"
    wait "$waiter"
    equals "$(cat "$T/out")" ran
}

# A lock that the client leaves behind goes to dlock at its expiry, not before.
they_expire() {
    local start
    start=$(now)
    them acquire 1000
    run dlock -w 20 "${US[@]}" echo ran
    equals "$status $output" '0 ran'
    [ $(($(now) - start)) -ge 1000 ]
    within 7000 "$start"
}

# dlock waits for a lock that the client extends.
they_extend() {
    local token
    token=$(them acquire 60000)
    dlock -w 60 "${US[@]}" echo ran >"$T/out" 3>&- 4>&- &
    local waiter=$!
    wait_until 10 one_waits
    them extend "$token" 3600000
    [ "$(redis pttl "$KEY")" -gt 3000000 ]
    set_wall 3000 # the server's, which removes expired keys
    fails_with 75 '' dlock -n "${US[@]}" touch "$T/ran"
    equals "$(cat "$T/out")" ''
    set_wall 3700
    wait "$waiter"
    equals "$(cat "$T/out")" ran
    [ ! -e "$T/ran" ]
}

# hold_ours [DLOCK-ARGUMENTS...]: dlock holds the lock that US names.
hold_ours() {
    local name=${US[-1]}
    rm -f "$T/held" "$T/held.end"
    hold_lock "$name" "${US[@]:0:${#US[@]}-1}" "$@"
}

# While dlock holds the lock, the client neither gets nor changes it; once dlock releases it, the client gets it.
we_keep_them_out() {
    hold_ours --owner=ours-0123 -t 60
    equals "$(redis get "$KEY")" ours-0123
    [ "$(redis pttl "$KEY")" -gt 50000 ]
    refused acquire 60000
    refused release theirs
    equals "$(redis get "$KEY")" ours-0123
    end_hold
    wait "$HOLDER"
    them acquire 60000
    [ "$(redis get "$KEY")" != ours-0123 ]
}

# After dlock's lease the client may get the lock; the end of dlock then takes nothing away.
we_leave_them_theirs() {
    hold_ours -t 1s --on-expire=warn
    wait_until 10 key_is_gone
    local token
    token=$(them acquire 60000)
    end_hold
    wait "$HOLDER"
    equals "$(redis get "$KEY")" "$token"
    them release "$token"
}

# With the token that the command is given, the client releases dlock's lock, and the command is stopped.
they_release_ours() {
    run dlock -t 60 "${US[@]}" -- sh -c '"$@" "$DLOCK_HELD_OWNER"; sleep 20' sh "${THEM[@]}" release "$THEIRS"
    equals "$status" 124
    [[ $output == *"the lock is lost: "*"$KEY is gone"* ]]
    key_is_gone
}

# With the token the client extends dlock's lease too: the command outlives its first lease.
they_extend_ours() {
    run dlock -t 2s "${US[@]}" -- sh -c '"$@" "$DLOCK_HELD_OWNER" 60000 && sleep 2.5 && echo "lived on"' sh "${THEM[@]}" extend "$THEIRS"
    equals "$status $output" '0 lived on'
    key_is_gone
}

# promises NAME...: checks each in turn, on an empty server; names the one that is broken.
promises() {
    local promise
    for promise; do
        echo "promise: $promise"
        "$promise"
        redis flushall
    done
}
# What holds while one side has the lock, and what happens after the end of a lease.
we_exclude_each_other() { promises they_keep_us_out we_keep_them_out they_release_ours; }
the_next_one_keeps_it() { promises they_expire we_leave_them_theirs; }

# --- redis-py ------------------------------------------------------------------

@test "redis-py's Lock and dlock exclude each other until the release; if it releases dlock's lock, the command is stopped" { redis_py; we_exclude_each_other; }
@test "redis-py's Lock and dlock acquire the other's lock only after its lease has expired, and keep it" { redis_py; the_next_one_keeps_it; }
@test "redis-py's Lock, extended, keeps dlock out until its new end" { redis_py; they_extend; }
@test "redis-py can extend dlock's lease with dlock's token" { redis_py; they_extend_ours; }

# --- node redlock --------------------------------------------------------------

@test "redlock 4 and dlock exclude each other until the release; if it releases dlock's lock, the command is stopped" { redlock 4; we_exclude_each_other; }
@test "redlock 4 and dlock acquire the other's lock only after its lease has expired, and keep it" { redlock 4; the_next_one_keeps_it; }
@test "redlock 4, extended, keeps dlock out until its new end" { redlock 4; they_extend; }
@test "redlock 4 can extend dlock's lease with dlock's token" { redlock 4; they_extend_ours; }
@test "redlock 5 and dlock exclude each other until the release; if it releases dlock's lock, the command is stopped" { redlock 5; we_exclude_each_other; }
@test "redlock 5 and dlock acquire the other's lock only after its lease has expired, and keep it" { redlock 5; the_next_one_keeps_it; }
@test "redlock 5, extended, keeps dlock out until its new end" { redlock 5; they_extend; }
@test "redlock 5 can extend dlock's lease with dlock's token" { redlock 5; they_extend_ours; }

# several_keys MAJOR: one redlock lock on several keys.
several_keys() {
    redlock "$1"
    local token
    THEIRS=a,b
    token=$(them acquire 60000)
    fails_with 75 '' dlock -n --prefix= a touch "$T/ran"
    fails_with 75 '' dlock -n --prefix= b touch "$T/ran"
    them release "$token"
    US=(--prefix= b)
    hold_ours
    refused acquire 60000
    equals "$(redis exists a)" 0
    end_hold
    wait "$HOLDER"
    them acquire 60000
    [ ! -e "$T/ran" ]
}

@test "redlock 4 on several keys acquires none of them if dlock holds one" { several_keys 4; }
@test "redlock 5 on several keys acquires none of them if dlock holds one" { several_keys 5; }

# What both versions send, for a machine without redlock: if no key exists, SET each with PX.
@test "redlock's script for several keys, sent by hand, acquires none of them if dlock holds one" {
    local script="for _, key in ipairs(KEYS) do if redis.call('exists', key) == 1 then return 0 end end
        for _, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS"
    US=(--prefix= b)
    hold_ours
    equals "$(redis eval "$script" 2 a b token 60000)" 0
    equals "$(redis exists a)" 0
    end_hold
    wait "$HOLDER"
    equals "$(redis eval "$script" 2 a b token 60000)" 2
    fails_with 75 'held by another client' dlock -v -n "${US[@]}" touch "$T/ran"
    [ ! -e "$T/ran" ]
}

# --- a shell script ------------------------------------------------------------

@test "a script with SET NX PX and dlock exclude each other until the release; if it releases dlock's lock, the command is stopped" { a_shell_script; we_exclude_each_other; }
@test "a script with SET NX PX and dlock acquire the other's lock only after its lease has expired, and keep it" { a_shell_script; the_next_one_keeps_it; }
@test "a script with SET NX PX that extends its lock keeps dlock out until its new end" { a_shell_script; they_extend; }
@test "a script with SET NX PX can extend dlock's lease with dlock's token" { a_shell_script; they_extend_ours; }

@test "a script that sets no expiry keeps dlock out until it releases" {
    a_shell_script
    redis set "$KEY" token NX
    fails_with 75 'held by another client' dlock -v -n "${US[@]}" touch "$T/ran"
    fails_with 75 '' dlock -w 300ms "${US[@]}" touch "$T/ran"
    them release token
    run dlock -n "${US[@]}" echo ran
    equals "$output" ran
    [ ! -e "$T/ran" ]
}

# --- Laravel -------------------------------------------------------------------

@test "Laravel's Cache::lock and dlock exclude each other until the release; if it releases dlock's lock, the command is stopped" { laravel_8; we_exclude_each_other; }
@test "Laravel's Cache::lock and dlock acquire the other's lock only after its lease has expired, and keep it" { laravel_8; the_next_one_keeps_it; }

@test "Laravel's lock without a time limit keeps dlock out, and its forceRelease stops dlock's command" {
    laravel_8
    local token status=0
    token=$(them acquire 0)
    equals "${#token}" 16
    equals "$(redis pttl "$KEY")" -1
    fails_with 75 'held by another client' dlock -v -n "${US[@]}" touch "$T/ran"
    them release "$token"
    hold_ours
    them force
    wait "$HOLDER" || status=$?
    equals "$status" 124
    [ ! -e "$T/ran" ]
}

@test "Laravel with a serializer and dlock exclude each other, but dlock's token releases nothing there" {
    laravel_8
    export SERIALIZE=1
    local token
    token=$(them acquire 60000)
    [[ $(redis get "$KEY") == *"\"$token\""* ]]
    fails_with 75 'held by another client' dlock -v -n "${US[@]}" touch "$T/ran"
    them release "$token"
    hold_ours --owner=ours-0123
    refused acquire 60000
    refused release ours-0123
    equals "$(redis get "$KEY")" ours-0123
    [ ! -e "$T/ran" ]
}

@test "each version of Laravel uses the keys that the manual gives" {
    local redis_prefix cache_prefix whole
    while read -r redis_prefix cache_prefix whole; do
        # This is version 8, which ends the cache prefix with a colon, as
        # 9 and 10 do; for later versions only both prefixes together count.
        laravel "$redis_prefix" "${cache_prefix/#-/}" "$whole"
        grep -qF -- "$whole" "$TESTS/../doc/dlock-clients.7" || { echo "not in the manual: $whole"; false; }
        they_keep_us_out
        redis flushall
    done <<'L'
laravel_database_ laravel_cache laravel_database_laravel_cache:
laravel_database_ laravel_cache_ laravel_database_laravel_cache_:
laravel_database_laravel_cache_ - laravel_database_laravel_cache_
laravel-database-laravel-cache- - laravel-database-laravel-cache-
L
}

# --- ShedLock, by hand ---------------------------------------------------------

@test "ShedLock and dlock exclude each other until the release; if it releases dlock's lock, the command is stopped" { shedlock safe; we_exclude_each_other; }
@test "ShedLock and dlock acquire the other's lock only after its lease has expired, and keep it" { shedlock safe; the_next_one_keeps_it; }
@test "ShedLock, extended, keeps dlock out until its new end" { shedlock safe; they_extend; }
@test "ShedLock without safeUpdate keeps dlock out until its release, and keeps the lock acquired after dlock's lease" {
    shedlock default
    promises they_keep_us_out we_leave_them_theirs
}
@test "ShedLock without safeUpdate, extended, keeps dlock out until its new end" { shedlock default; they_extend; }

@test "ShedLock's lockAtLeastFor keeps dlock out after its task, and --hold-at-least keeps ShedLock out after dlock's command" {
    shedlock safe
    local token start
    token=$(them acquire 60000)
    them extend "$token" 2000 # the end of a task with lockAtLeastFor of 2 s
    start=$(now)
    fails_with 75 'held by another client' dlock -v -n "${US[@]}" touch "$T/ran"
    run dlock -w 20 --hold-at-least=2s -t 60 "${US[@]}" echo ran
    equals "$output" ran
    [ $(($(now) - start)) -ge 1900 ]
    refused acquire 60000
    wait_until 10 them acquire 60000
    [ $(($(now) - start)) -ge 3800 ]
    [ ! -e "$T/ran" ]
}

@test "ShedLock without safeUpdate that ends late removes or changes dlock's lock, and the command is stopped" {
    shedlock default
    local token action status
    for action in release extend; do
        token=$(them acquire 100)
        dlock -w 10 "${US[@]}" true
        hold_ours
        them "$action" "$token" 3000
        status=0
        wait "$HOLDER" || status=$?
        equals "$status" 124
        redis flushall
    done
}

# --- Parse::Lock, by hand ------------------------------------------------------

@test "Parse::Lock and dlock exclude each other until the release; if it releases dlock's lock, the command is stopped" { parse; we_exclude_each_other; }
@test "Parse::Lock and dlock acquire the other's lock only after its lease has expired, and keep it" { parse; the_next_one_keeps_it; }

# --- Redisson, by hand ---------------------------------------------------------

@test "Redisson's RLock keeps dlock out until its release, and fails while dlock holds the lock" {
    redisson
    local token
    token=$(them acquire 60000)
    fails_with 75 'held by another client, lease ends in (1m|5[0-9]s)' dlock -v -n "${US[@]}" touch "$T/ran"
    equals "$(redis hgetall "$KEY")" "$token"$'\n1'
    [ ! -e "$T/ran" ]
    them release "$token"
    hold_ours
    refused acquire 60000
    run redis hincrby "$KEY" "$token" 1
    [[ $output == *WRONGTYPE* ]]
    equals "$(redis type "$KEY")" string
    end_hold
    wait "$HOLDER"
    them acquire 60000
}

@test "Redisson's RLock keeps dlock out until it expires" { redisson; they_expire; }
