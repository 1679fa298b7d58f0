#!/usr/bin/env bats
# The Lua scripts by themselves, without dlock: tables with one rule a row; tests/redis/scripts/table.py runs them.
load ../lib/common

# assemble FORMAT: prints the scripts as the program has them, in C.
assemble() { (cd "$BATS_TEST_DIRNAME/../.." && sh src/store/redis/scripts/embed.sh sha1sum "$1" src/store/redis/scripts/*.lua); }
format() { sed -n 's/^.define STORE_FORMAT //p' "$BATS_TEST_DIRNAME/../../src/lock/format.h"; }

setup_file() { assemble "$(format)" >"$BATS_FILE_TMPDIR/embedded.h"; }
setup() { common_setup; export PYTHONDONTWRITEBYTECODE=1 EMBEDDED=$BATS_FILE_TMPDIR/embedded.h; }

start_redis_7() {
    start_redis
    redis pexpiretime x | grep -q 2 || skip 'needs Redis 7'
}
run_rows() { python3 "$TESTS/redis/scripts/run.py" "$EMBEDDED" "$T/redis.sock" "$@"; }

# rows TABLE...: the scripts do what the rows of these tables say.
rows() {
    start_redis_7
    run_rows "$@"
}
# all_rows PART: checks the tables about acquire and release with that part of the scripts.
all_rows() { python3 "$TESTS/redis/scripts/run.py" | xargs -d '\n' python3 "$TESTS/redis/scripts/run.py" "$1" "$EMBEDDED" "$T/redis.sock"; }

@test "who holds the lock, for each value of the key and each record" { rows standing records; }
@test "check and extend: whether the caller holds the lock, and what is written" { rows check 'check of a share' extend; }
@test "the server notifies a client even of a change that the client's own script has made" { rows watched; }
@test "acquire: what is written for a free lock, even if the reply was lost" { rows free 'lost reply'; }
@test "acquire: the fence that a client proposes, and the fence of a lease that joins" { rows fences; }
@test "acquire: a refusal names the holder and is counted" { rows refused once-per; }
@test "acquire: sharers, slots, and leases that have ended" { rows shared dropped 'lost reply, shared'; }
@test "release: what is removed, kept and recorded for an exclusive lock" { rows release 'release of what is lost' 'release by another process'; }
@test "release: the last 32 runs, newest first, and what is written if they cannot be read" { rows history; }
@test "release: of a shared lock, and of an abandoned request" { rows 'release of a share' 'given up'; }
@test "release: the first waiter is called" { rows 'hand on'; }
@test "queue: who joins and leaves it, and who is notified" { rows 'join the queue' near; }
@test "queue: whose turn it is" { rows turn 'turn to share'; }
@test "status: what is reported about a lock, its holders and its waiters" { rows look 'look at shares' 'look at waiters'; }
@test "force and pause: what is removed, called and recorded" { rows force pause; }

# With the fast path alone, a row that is not marked for it must find nothing changed.
@test "the fast path of acquire and release decides exactly the rows marked for it" {
    start_redis_7
    all_rows --plain
}
@test "acquire and release give the same results without the fast path" {
    start_redis_7
    all_rows --rest
}

@test "each table of rows is used by one of these tests" {
    python3 "$TESTS/redis/scripts/run.py" | sort >"$T/tables"
    sed -nE 's/^@test .*\{ rows (.*); \}$/\1/p' "$BATS_TEST_FILENAME" | xargs printf '%s\n' | sort >"$T/tested"
    diff "$T/tables" "$T/tested"
}

@test "the scripts in the program are those that the rows test" {
    head -c 4 "$DLOCK" | grep -q ELF || skip 'a script runs the program'
    local sum count=0
    for sum in $(sed -nE 's/^    "([0-9a-f]{40})",$/\1/p' "$EMBEDDED"); do
        grep -qF "$sum" "$DLOCK"
        count=$((count + 1))
    done
    equals "$count" "$(grep -c '^const struct redis_script' "$EMBEDDED")"
}

@test "a script that does not do what a row says is found" {
    assemble $(($(format) + 1)) >"$T/next.h"
    start_redis_7
    EMBEDDED=$T/next.h run run_rows standing
    [ "$status" -eq 1 ]
    grep -q '^standing: a newer format: answer' <<<"$output"
    grep -qE '^[0-9]+ rows, [1-9][0-9]* wrong$' <<<"$output"
}
