#!/usr/bin/env bats
# A lock's life without a command: --acquire, --extend, --release, --force-release.
load backend

# field JSON NAME: prints this top-level member of a JSON object.
field() { python3 -c 'import json, sys; value = json.loads(sys.argv[1])[sys.argv[2]]; print(value if isinstance(value, str) else json.dumps(value))' "$1" "$2"; }

# code STATUS CODE COMMAND...: the command fails with this status, and prints nothing but this code as JSON.
code() {
    local want=$1 code=$2
    shift 2
    run "$@" --json
    equals "$status" "$want"
    python3 -c '
import json, sys
error = json.loads(sys.argv[1])["error"]
assert error["code"] == sys.argv[2], error
assert error["message"] and isinstance(error["retryable"], bool) and "key" in error["details"], error
' "$output" "$code"
}

# Prints what the store knows of the lock, except times that move on.
state_of() {
    dlock --status --json "$1" | python3 -c '
import json, sys
state = json.load(sys.stdin)
for one in [state] + state["holders"]:
    for name in ("ttl_remaining", "expires_at", "hold_remaining"): one.pop(name)
state.pop("counts")
print(json.dumps(state, sort_keys=True))'
}

# bats test_tags=slow
@test "inside the command --extend and --release need neither a name nor a token" {
    run timeout 30 dlock -t 5s job -- sh -c 'sleep 3; dlock --extend || exit 1; sleep 3; dlock --extend job || exit 2; sleep 1; echo end'
    equals "$status $output" '0 end'
    # Without a name, the innermost lock is released or extended; with a name, any of them.
    run timeout 30 dlock a -- dlock b -- sh -c 'dlock --release && dlock --status -q a && ! dlock --status -q b && dlock --release a && ! dlock --status -q a && echo done'
    equals "$status $output" '0 done'
    code 2 LOCK_OWNERSHIP_MISMATCH dlock job -- dlock --release --owner=other job
    fails_with 1 'is not running under a lock' dlock --release
    fails_with 1 'is not running under a lock' dlock --extend
    fails_with 64 'is not running under the lock' dlock --extend job
}

# bats test_tags=slow
@test "a lock released but kept by --hold-at-least is not held: no process runs as if inside it" {
    local status=0 start
    start=$(now)
    dlock --hold-at-least=5s -t 60s job -- sh -c 'dlock --release; dlock -n job touch "$T/inner"; echo $? >"$T/status"; dlock -w 60 job -- sh -c "date +%s%3N >$T/in"'
    equals "$(cat "$T/status")" 75
    [ ! -e "$T/inner" ]
    [ $(($(cat "$T/in") - start)) -ge 5000 ]
}

# bats test_tags=slow
@test "--hold-at-least with --acquire: after the release others are refused until the hold ends, and --status says so" {
    local start
    start=$(now)
    dlock --acquire --owner=short -t 60s --hold-at-least=3s short >/dev/null
    dlock --release --owner=short short
    run dlock -w 30 short echo next
    equals "$output" next
    [ $(($(now) - start)) -ge 3000 ]
    dlock --acquire --owner=hold -t 60s --hold-at-least=30s held >/dev/null
    code 64 INVALID_ARGUMENT dlock --extend -t 10s --owner=hold held
    [ "$(left held)" -gt 50000 ]
    dlock --extend -t 40s --owner=hold held
    dlock --acquire --owner=me -t 60s --hold-at-least=30s job >/dev/null
    [ "$(dlock --status --json job | python3 -c 'import json, sys; s = json.load(sys.stdin); print(int(0 < s["hold_remaining"] <= 30 and not s["released"]))')" = 1 ]
    dlock --release --owner=me job
    fails_with 75 '' dlock -n job echo wrong
    [[ $(dlock --status job) == *'released, but kept for another '*'(--hold-at-least)'* ]]
    [ "$(dlock --status --json job | python3 -c 'import json, sys; s = json.load(sys.stdin); print(int(s["locked"] and s["released"]))')" = 1 ]
    code 1 LOCK_ALREADY_RELEASED dlock --release --owner=me job
    code 1 LOCK_ALREADY_RELEASED dlock --extend --owner=me job
    code 75 LOCK_TIMEOUT dlock --acquire -w 0.1 job
}

@test "--acquire prints the token and keeps the lock; --release gives it back; --json also prints the lease's end" {
    local token before
    token=$(dlock --acquire -t 60s job)
    [[ $token =~ ^[0-9a-f-]{36}$ ]]
    fails_with 75 'held by .*; acquired with --acquire\)' dlock -v -n job touch "$T/ran"
    [ ! -e "$T/ran" ]
    run dlock --release --owner="$token" job
    equals "$status $output" '0 '
    run dlock -n job echo free
    equals "$output" free
    is_clean job
    before=$(date +%s)
    run dlock --acquire --json --prefix=dlock:s: --owner=me -t 60s job
    equals "$status" 0
    equals "$(field "$output" key) $(field "$output" full_key) $(field "$output" owner)" 'job dlock:s:job me'
    equals "$(field "$output" acquired)" true
    [[ $(field "$output" fence) =~ ^[0-9]+$ ]]
    python3 - "$output" "$before" <<'PY'
import json, sys, time, calendar
lease = json.loads(sys.argv[1])
at, end = (calendar.timegm(time.strptime(lease[x], "%Y-%m-%dT%H:%M:%SZ")) for x in ("acquired_at", "expires_at"))
assert int(sys.argv[2]) <= at <= time.time(), lease
assert 50 <= end - at <= 61, lease
PY
    dlock --release --prefix=dlock:s: --owner=me job
}

@test "--acquire waits, distinguishes a conflict from a timeout, and is refused inside a command that holds the lock" {
    fails_with 64 'an enclosing dlock already holds the lock; .*; use --extend or --release' timeout 20 dlock job -- dlock --acquire job
    code 64 INVALID_ARGUMENT timeout 20 dlock -t 60s job -- dlock --acquire -s job
    dlock --acquire --owner=first -t 60s job >/dev/null
    code 75 LOCK_ACQUISITION_FAILED dlock --acquire -n job
    code 75 LOCK_TIMEOUT dlock --acquire -w 0.3 job
    run dlock --acquire -n -E 9 job
    equals "$status $output" '9 '
    (sleep 0.5; dlock --release --owner=first job) 3>&- 4>&- &
    run dlock --acquire --owner=second -w 20 -t 60s job
    equals "$status $output" '0 second'
    wait
    dlock --release --owner=second job
}

@test "a conflict exit code configured as 0 does not make --acquire succeed without the lock" {
    dlock --acquire --owner=first -t 60s job >/dev/null
    mkdir -p "$HOME/.config/dlock"
    printf '%s\n' '[lock job]' 'nonblock = yes' 'conflict-exit-code = 0' >"$HOME/.config/dlock/dlock.conf"
    run dlock job touch "$T/ran"
    equals "$status $output" '0 '
    [ ! -e "$T/ran" ]
    run dlock --acquire job
    equals "$status $output" '75 '
    code 75 LOCK_ACQUISITION_FAILED dlock --acquire job
    run dlock --acquire -E 9 job
    equals "$status" 9
    code 64 INVALID_ARGUMENT dlock --acquire -E 0 job
    fails_with 64 '--conflict-exit-code: with --acquire, status 0 means that the lock was acquired' dlock --acquire -E 3 -E 0 free
    run dlock --acquire -E 0 -E 3 job
    equals "$status" 3
    dlock --release --owner=first job
    is_clean free
}

@test "a lease obtained by --acquire ends by itself" {
    local start
    start=$(now)
    dlock --acquire --owner=me -t 1s job >/dev/null
    run dlock -w 20 job echo mine
    equals "$output" mine
    [ $(($(now) - start)) -ge 950 ]
    within 3000 "$start"
    is_clean job
}

@test "--release needs only the token and works once; each failure has its own status and code and changes nothing" {
    code 1 LOCK_NOT_FOUND dlock --release --owner=nobody job
    dlock --acquire --owner=me -t 60s job >/dev/null
    dlock --acquire --owner=other -t 60s job2 >/dev/null
    local before
    before=$(state_of job)
    code 2 LOCK_OWNERSHIP_MISMATCH dlock --release --owner=other job
    code 2 LOCK_OWNERSHIP_MISMATCH dlock --release --owner=me2 job
    code 1 LOCK_NOT_FOUND dlock --release --owner=me --prefix=dlock:s: job
    equals "$(state_of job)" "$before"
    run dlock --release --owner=me job --json
    equals "$status $(field "$output" released) $(field "$output" owner)" '0 true me'
    code 1 LOCK_ALREADY_RELEASED dlock --release --owner=me job
    code 1 LOCK_NOT_FOUND dlock --release --owner=nobody job
    # Even if others have held the lock since, or hold it now.
    dlock -n job true
    code 1 LOCK_ALREADY_RELEASED dlock --release --owner=me job
    dlock --acquire --owner=third -t 60s job >/dev/null
    code 1 LOCK_ALREADY_RELEASED dlock --release --owner=me job
    code 1 LOCK_ALREADY_RELEASED dlock --extend --owner=me job
    # A token that acquires the lock again is valid again.
    dlock --release --owner=third job
    dlock --acquire --owner=me -t 60s job >/dev/null
    run dlock --release --owner=me job
    equals "$status" 0
    dlock --release --owner=other job2
}

@test "--release and --extend report a lease that has ended as not found" {
    dlock --acquire --owner=me -t 300ms job >/dev/null
    wait_until 10 not is_held job
    code 1 LOCK_NOT_FOUND dlock --extend --owner=me job
    fails_with 1 'lease has ended' dlock --release --owner=me job
    dlock --acquire --owner=other -t 60s job >/dev/null
    code 2 LOCK_OWNERSHIP_MISMATCH dlock --release --owner=me job
    dlock --release --owner=other job
}

is_held() { dlock --status -q "$1"; }

# left NAME: prints the lease's remaining milliseconds.
left() { dlock --status --json "$1" | python3 -c 'import json, sys; print(int(1000 * json.load(sys.stdin)["ttl_remaining"]))'; }

@test "--extend sets the original TTL again and never shortens the lease; with --ttl it sets exactly that time" {
    dlock --acquire --owner=me -t 60s job >/dev/null
    dlock --extend --owner=me -t 30s job
    [ "$(left job)" -le 30000 ]
    run dlock --extend --owner=me job
    equals "$status $output" '0 '
    [ "$(left job)" -gt 50000 ]
    dlock --extend --owner=me -t 1h job
    [ "$(left job)" -gt 3590000 ]
    DLOCK_TTL=60 dlock --extend --owner=me job # not set by --ttl: never shorter
    [ "$(left job)" -gt 3590000 ]
    run dlock --extend --owner=me -t 5s job
    [ "$(left job)" -le 5000 ]
    [[ $output == "dlock: job: the lease now ends in "*"s, 59m"*" earlier than before: --ttl counts from now" ]]
    run dlock --extend --owner=me -t 30s --json job # longer: nothing to tell
    equals "$(field "$output" extended) $(field "$output" owner)" 'true me'
    local before
    before=$(state_of job)
    code 2 LOCK_OWNERSHIP_MISMATCH dlock --extend --owner=other -t 2h job
    code 64 INVALID_ARGUMENT dlock --extend --owner=me -t 1ms job
    equals "$(state_of job)" "$before"
    [ "$(left job)" -le 30000 ]
    dlock --release --owner=me job
    code 1 LOCK_ALREADY_RELEASED dlock --extend --owner=me job
    code 1 LOCK_NOT_FOUND dlock --extend --owner=nobody job
}

@test "--extend from another process: the holder adopts the new deadline" {
    dlock -t 2s job -- sh -c 'echo "$DLOCK_HELD_OWNER" >"$T/token.tmp"; mv "$T/token.tmp" "$T/token"; sleep 4; echo end' >"$T/out" 3>&- 4>&- &
    wait_until 10 test -e "$T/token"
    dlock --extend --owner="$(cat "$T/token")" -t 30s job
    wait $!
    equals "$(cat "$T/out")" end
}

@test "a command that releases its lock runs on, and its status is returned" {
    run timeout 30 dlock -v job -- sh -c 'dlock --release; dlock -n job echo taken by another; sleep 0.3; exit 3'
    equals "$status" 3
    [[ $output == *'taken by another'* ]]
    [[ $output != *lost* ]]
    # A second release fails.
    run timeout 30 dlock job -- sh -c 'dlock --release; dlock --release --json; echo $?'
    [[ $output == *LOCK_ALREADY_RELEASED*1 ]]
}

@test "inside, the lock is found by its name in a scrubbed environment, and in the store that the outer command line named" {
    run timeout 20 dlock -t 60s job -- env -i PATH="$PATH" T="$T" ${DLOCK_REDIS:+DLOCK_REDIS="$DLOCK_REDIS"} \
        ${DLOCK_LOCK_DIR:+DLOCK_LOCK_DIR="$DLOCK_LOCK_DIR" DLOCK_BACKEND=file} \
        sh -c 'dlock --extend 2>&1; dlock --extend job -t 2h && dlock --release job && echo ok'
    equals "$status" 0
    [[ $output == *'this process is not running under a lock; give NAME and --owner'*ok ]]
    local where=()
    case $BACKEND in
        redis) where=(--redis="$DLOCK_REDIS") ;;
        file) where=(--backend=file --lock-dir="$T/elsewhere") ;;
    esac
    local outer=(env -u DLOCK_REDIS -u DLOCK_LOCK_DIR dlock "${where[@]}" -t 60s job --)
    fails_with 0 '^$' timeout 20 "${outer[@]}" dlock --extend
    fails_with 0 '^ok$' timeout 20 "${outer[@]}" sh -c '
        dlock --current "$@" && dlock --extend -t 2h "$@" && dlock --extend "$@" job && dlock --release "$@" && echo ok' sh "${where[@]}"
}

@test "a command that has released its lock is not stopped, whatever others do with the lock" {
    run timeout 30 dlock job -- sh -c 'dlock --release; for i in 1 2 3 4 5 6 7 8 9 10; do env -u DLOCK_HELD setsid dlock job true; done; sleep 0.5; echo ok'
    equals "$status $output" '0 ok'
    # Not even with the same token.
    run timeout 30 dlock --owner=same job -- sh -c 'dlock --release; dlock --owner=same job sleep 0.5; echo ok'
    equals "$status $output" '0 ok'
    run timeout 30 dlock -s --owner=same job -- sh -c 'dlock --release; dlock -s --owner=same job sleep 0.5; echo ok'
    equals "$status $output" '0 ok'
}

@test "--release from outside ends the lock of a running command without stopping it" {
    dlock -t 60s --owner=me -v job -- sh -c 'touch "$T/runs"; until [ -e "$T/go" ]; do sleep 0.01; done; exit 4' 2>"$T/err" 3>&- 4>&- &
    wait_until 10 test -e "$T/runs"
    dlock --release --owner=me job
    run dlock -n job echo mine
    equals "$output" mine
    wait_until 10 grep -q 'the lock was released with its owner token' "$T/err"
    touch "$T/go"
    status=0
    wait $! || status=$?
    equals "$status" 4
}

@test "--force-release removes the lock and reports its holder, whose command is stopped" {
    code 1 LOCK_NOT_FOUND dlock --force-release job
    hold_lock job -t 60s --owner=me
    run dlock --force-release job
    equals "$status" 0
    [[ $output == "released job, held by "*"@$(hostname) (pid $HOLDER, $T/held.sh; running) since "* ]]
    status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
    grep -q 'the lock is lost' "$T/held.err"
    run dlock -n job echo mine
    equals "$output" mine
    dlock --acquire --owner=me -t 60s job >/dev/null
    run dlock --force-release --json job
    equals "$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["was"][0]["owner"])' "$output")" me
    code 1 LOCK_NOT_FOUND dlock --release --owner=me job
}

@test "a loss by --force-release is reported with its author to the holder, later to its token, and to each sharer" {
    local by="taken away by eve\\\\x1B\\[31m@$(hostname)"
    hold_lock job -t 60s --owner=me
    LOGNAME=$'eve\e[31m' dlock --force-release job
    status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
    grep -qE "the lock is lost: .*$by with --force-release; stopping" "$T/held.err"
    fails_with 1 "$by" dlock --extend --owner=me job
    fails_with 1 "$by" dlock --release --owner=me job
    # Even if others have acquired the lock since.
    hold_lock job -t 60s --owner=you
    dlock -w 20 job -- sh -c 'sleep 0.2' 3>&- 4>&- &
    local waiter=$!
    wait_until 20 eval 'dlock --status --json job | grep -q "\"waiters\":1,"'
    LOGNAME=bob dlock --force-release job
    status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
    grep -q "the lock is lost: .*taken away by bob@$(hostname) with --force-release; stopping" "$T/held.err"
    wait "$waiter"
    dlock --acquire --owner=third -t 60s job
    fails_with 2 'taken away by bob@' dlock --release --owner=you job
    dlock --release --owner=third job
    # A lock that the same token acquires later is another one.
    dlock --acquire --owner=you -t 60s job
    dlock --release --owner=you job
    fails_with 1 ': already released$' dlock --release --owner=you job
    # Each sharer is told.
    dlock --acquire -s --owner=a -t 60s shared
    dlock --acquire -s --owner=b -t 60s shared
    LOGNAME=eve dlock --force-release shared
    fails_with 1 'taken away by eve@' dlock --extend --owner=a shared
    fails_with 1 'taken away by eve@' dlock --release --owner=b shared
    fails_with 1 'the lock is free|is gone$' dlock --release --owner=c shared
}

@test "--owner-file: created with mode 0600 once the lock is acquired, read by --extend and --release" {
    umask 0
    run dlock --acquire --owner-file="$T/token" -t 60s job
    equals "$(cat "$T/token")" "$output"
    equals "$(stat -c %a "$T/token")" 600
    # Nothing is acquired: the holder's file is unchanged, and no other is left.
    fails_with 75 '' dlock --acquire --owner-file="$T/token" -n job
    equals "$(cat "$T/token")" "$(dlock --status --json job | python3 -c 'import json, sys; print(json.load(sys.stdin)["owner"])')"
    equals "$(echo "$T"/token*)" "$T/token"
    dlock --extend --owner-file="$T/token" -t 2h job
    [ "$(left job)" -gt 3600000 ]
    dlock --release --owner-file="$T/token" job
    code 1 LOCK_ALREADY_RELEASED dlock --release --owner-file="$T/token" job
}

@test "--owner-file: a file that cannot be written or read is reported, and nothing is acquired" {
    fails_with 73 'cannot write the owner file' dlock --acquire --owner-file="$T/nosuch/token" job
    is_clean job
    mkdir "$T/folder"
    fails_with 73 'cannot write the owner file' dlock --acquire --owner-file="$T/folder" -t 60s job
    run dlock --status job
    equals "$status" 1
    # A path that is no regular file is not replaced by one.
    mkfifo "$T/pipe"
    ln -s pipe "$T/link"
    local path
    for path in pipe link; do
        fails_with 73 'is not a regular file' dlock --acquire --owner-file="$T/$path" job
        is_clean job
    done
    [ -p "$T/pipe" ]
    [ -L "$T/link" ]
    code 64 INVALID_ARGUMENT dlock --release --owner-file="$T/nosuch" job
    code 64 INVALID_ARGUMENT dlock --release --owner-file="$T/folder" job
    echo 'two words' >"$T/bad"
    code 64 INVALID_ARGUMENT dlock --release --owner-file="$T/bad" job
    : >"$T/empty"
    code 64 INVALID_ARGUMENT dlock --release --owner-file="$T/empty" job
}

@test "if the token cannot be printed, no lock is left behind" {
    fails_with 73 'cannot write to standard output' sh -c 'dlock --acquire -t 60s job >/dev/full'
    run dlock --status job
    equals "$status" 1
    fails_with 73 'cannot write to standard output' sh -c 'dlock --acquire -t 60s job >&-'
    fails_with 73 'cannot write to standard output' sh -c 'dlock --acquire --owner-file="$T/token" -t 60s job >/dev/full'
    run dlock --status job
    equals "$status" 1
    [ ! -e "$T/token" ]
    # A service whose output goes to a log needs only the file.
    run dlock --acquire -q --owner-file="$T/token" -t 60s job
    equals "$status $output" '0 '
    dlock --release --owner-file="$T/token" job
}
