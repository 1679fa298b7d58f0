#!/usr/bin/env bats
# --scope: the key is PREFIX, TEXT, a colon and NAME.
load backend

# query EXPRESSION: evaluates it for each JSON object `s` on stdin.
query() { python3 -c 'import json, sys
for line in sys.stdin: s = json.loads(line); print(eval(sys.argv[1]))' "$1"; }

@test "--scope=a b is the same lock as a:b for each action, and another lock than b" {
    hold_lock job --scope=web
    fails_with 75 'held by' dlock -v -n web:job true
    run dlock -n job echo global
    equals "$output" global
    fails_with 75 'held by' dlock -v --wait-until-free -n --scope=web job
    fails_with 1 '' dlock --status job
    run dlock --status --json --scope=web job
    equals "$(query 's["key"], s["scope"], s["full_key"], s["locked"]' <<<"$output")" "('job', 'web', 'dlock:web:job', True)"
    run dlock --status --json web:job
    equals "$(query 's["key"], s["scope"], s["full_key"], s["locked"]' <<<"$output")" "('web:job', None, 'dlock:web:job', True)"
}

@test "--list --scope shows the locks of the scope without its name; without --scope, all with their whole names" {
    hold_lock job --scope=web
    hold_lock other
    equals "$(dlock --list --json --scope=web | query 's["key"], s["scope"]')" "('job', 'web')"
    equals "$(dlock --list --json | query 's["key"], s["scope"]')" "('other', None)"$'\n'"('web:job', None)"
}

@test "--acquire and errors show the scope, --release and --extend find the lock by it, and DLOCK_SCOPE sets it too" {
    run dlock --acquire --json --scope=web --owner=me -t 1m job
    equals "$(query 's["scope"], s["full_key"]' <<<"$output")" "('web', 'dlock:web:job')"
    run env DLOCK_SCOPE=web dlock -n --json job true
    equals "$status $(query 's["error"]["details"]["key"], s["error"]["details"]["scope"]' <<<"$output")" "75 ('job', 'web')"
    fails_with 1 '' dlock --extend --owner=me job
    fails_with 0 '' dlock --extend --scope=web --owner=me job
    fails_with 0 '' env DLOCK_SCOPE=web dlock --release --owner=me job
}

@test "a dlock inside finds a lock with a scope by its NAME; --no-scope or another name is another lock" {
    fails_with 0 'already holds the lock' timeout 20 dlock --scope=web job -- dlock -v job true
    equals "$(dlock --scope=web job -- sh -c 'echo $DLOCK_NAME $DLOCK_HELD_KEY; dlock --current | cut -d, -f1')" $'job dlock:web:job\n'"job ($BACKEND)"
    fails_with 0 ': acquired \(' timeout 20 dlock --scope=web job -- dlock -v --no-scope job true
}

@test "a section of dlock.conf matches NAME without its scope, and may set the scope" {
    mkdir -p "$T/config/dlock"
    printf '[lock job]\nscope = web\n[lock web:*]\nttl = 5s\n' >"$T/config/dlock/dlock.conf"
    XDG_CONFIG_HOME=$T/config run dlock job -- sh -c 'echo $DLOCK_HELD_KEY $DLOCK_HELD_TTL'
    equals "$output" 'dlock:web:job 3600'
}

@test "prefix and scope have at most 1024 bytes together, and a scope is not empty" {
    fails_with 64 '--scope: too long: prefix, scope and colon' dlock --scope="$(printf 's%.0s' {1..1018})" job true
    fails_with 0 '' dlock --scope="$(printf 's%.0s' {1..1017})" job true
    fails_with 64 '--scope: ' dlock --scope= job true
}
