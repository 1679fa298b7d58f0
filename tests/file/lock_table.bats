#!/usr/bin/env bats
# What is remembered of locks in a table beside their files.
load ../lib/common

setup() {
    common_setup
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
    TABLE=$T/locks/.table-$(id -u)
}

fence() { dlock "${1:-job}" -- sh -c 'echo $DLOCK_FENCE'; }
counts() { dlock --status --json "${1:-job}" | grep -o '"counts":{[^}]*}'; }

@test "the counts and the last release survive the removal of the lock file" {
    dlock --owner=me job true
    hold_lock job
    dlock -n job true || true
    dlock -w 100ms job true || true
    end_hold
    wait "$HOLDER"
    run counts
    [[ $output =~ '"takes":2,"conflicts":1,"timeouts":1,"losses":0,"waited":'(0\.[1-9]|[1-9]) ]]
    run dlock --status --json job
    [[ $output == *'"released_at":"20'* ]]
}

@test "each lock has its own counts, and there is room for many locks" {
    local i
    for i in {1..40}; do dlock "job$i" true; done
    for i in 1 7 40; do [[ $(counts "job$i") == *'"takes":1,'* ]]; done
}

@test "a full table forgets the oldest entry, and nothing fails" {
    # Every entry belongs to another lock, last used in 1970 or later.
    dlock job true
    python3 - "$TABLE" <<'P'
import struct, sys
with open(sys.argv[1], "r+b") as f:
    for i in range(1, 1025):
        f.seek(256 + 384 * (i - 1))
        f.write(struct.pack("<QqqQ", i * 7919 + 1, i, 5, 5))
P
    dlock job true
    [[ $(counts) == *'"takes":1,'* ]]
    dlock job true
    [[ $(counts) == *'"takes":2,'* ]]
    [ "$(stat -c %s "$TABLE")" -ge $((256 + 384 * 1024)) ]
}

@test "a full table: a lock with waiters is not replaced" {
    hold_lock job
    dlock job true 3>&- 4>&- &
    local waiter=$!
    wait_until 10 sh -c 'dlock --status --json job | grep -q "\"waiters\":1"'
    fill_table "$TABLE" 0 3600 3600
    sleep 3.1 # it checks every second
    dlock --remember=0 other true
    [[ $(counts) == *'"takes":1,'* ]]
    [[ $(counts other) == *'"takes":0,'* ]]
    end_hold
    wait "$waiter"
}

@test "a full table: a lock inherits nothing from the lock whose place it takes" {
    dlock --acquire --owner=me job
    dlock --release --owner=me job
    fill_table "$TABLE" 0 3600 3600
    sleep 3.1 # until then it is in use
    dlock other true
    [[ $(counts other) == *'"takes":1,'* && $(counts job) == *'"takes":0,'* ]]
    fails_with 1 'the lock is free' dlock --release --owner=me other
}

@test "a release is remembered for its token, and forgotten if that token acquires the lock again" {
    dlock --acquire --owner=me job
    dlock --release --owner=me job
    fails_with 1 'already released$' dlock --release --owner=me job
    fails_with 1 'already released$' dlock --extend --owner=me job
    fails_with 1 'the lock is free' dlock --release --owner=you job
    fails_with 1 'the lock is free' dlock --release --owner=me other
    dlock --acquire --owner=me -t 1h job
    LOGNAME=eve dlock --force-release job
    fails_with 1 'the lock is free' dlock --release --owner=you job
    fails_with 1 "taken away by eve@$(hostname)" dlock --release --owner=me job
    dlock --acquire --owner=me -t 1h job
    rm "$DLOCK_LOCK_DIR"/*job.lock
    fails_with 1 'the lock is free' dlock --release --owner=me job
}

@test "the fence keeps rising if the table is removed, short, sparse, empty or garbage" {
    local last next damage
    last=$(fence)
    for damage in 'rm "$TABLE"' ': >"$TABLE"' 'truncate -s 100 "$TABLE"' 'truncate -s 0 "$TABLE"; truncate -s 393472 "$TABLE"' \
        'head -c 393472 /dev/urandom >"$TABLE"' 'head -c 5000 /dev/urandom >"$TABLE"' 'head -c 393472 /dev/zero >"$TABLE"' \
        'yes | head -c 5000000 >"$TABLE"'; do
        eval "$damage"
        run dlock --status job
        equals "$status" 1
        next=$(fence)
        [ "$next" -gt "$last" ]
        last=$next
    done
    [[ $(counts) == *'"takes":1,'* ]]
}

@test "a fence that has reached the largest number: 73, nothing is run, nothing is left" {
    dlock job true
    python3 -c 'import os, struct, sys; os.pwrite(os.open(sys.argv[1], os.O_WRONLY), struct.pack("=q", 2**63 - 1), 8)' "$TABLE"
    fails_with 73 'has reached its maximum' dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
    equals "$(find "$T/locks" -name '*.lock')" ''
}

@test "a table truncated while a command runs or waits: the command's own status is returned" {
    export TABLE
    local size
    for size in 0 100 100000; do
        run dlock job -- sh -c "truncate -s $size \"\$TABLE\"; exit 7"
        equals "$status $output" '7 '
    done
    run dlock job -- sh -c 'truncate -s 0 "$TABLE"; dlock --extend -t 60s; dlock --release; dlock --status job; exit 7'
    equals "$status" 7
    hold_lock job
    dlock -w 20 job -- sh -c 'echo $DLOCK_FENCE' >"$T/waited" 2>&1 3>&- 4>&- &
    local waiter=$!
    sleep 0.3
    truncate -s 0 "$TABLE"
    end_hold
    wait "$HOLDER" "$waiter"
    [ "$(fence)" -gt "$(cat "$T/waited")" ]
    [ "$(stat -c %s "$TABLE")" -ge $((256 + 384 * 1024)) ]
}

@test "garbage entries in a valid table are shown as they are, and nothing fails" {
    dlock job true
    head -c 393216 /dev/urandom | dd of="$TABLE" conv=notrunc bs=256 seek=1 status=none
    run dlock --status --json job
    equals "$status" 1
    run dlock job echo ok
    equals "$output" ok
    [[ $(counts) == *'"takes":1,'* ]]
}

@test "a table that is a link, a directory or another user's file: exit 77 or 73, nothing is run" {
    mkdir -m 700 "$T/locks"
    ln -s "$T/elsewhere" "$TABLE"
    fails_with 77 'cannot store the fence' dlock job touch "$T/ran"
    rm "$TABLE"
    mkdir "$TABLE"
    fails_with 73 'cannot store the fence' dlock job touch "$T/ran"
    fails_with 73 'cannot store the fence' dlock --once-per=1h job touch "$T/ran"
    rmdir "$TABLE"
    equals "$(find "$T/locks" -name '*.lock' | wc -l)" 0
    [ ! -e "$T/ran" ] && [ ! -e "$T/elsewhere" ]
}

@test "a full disk: no table and no lock, but no crash" {
    [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip 'needs root and mounts'
    mkdir -m 700 "$T/locks"
    fails_with 73 'cannot store the fence .*No space left' \
        unshare -m sh -c "mount -t tmpfs -o size=64k,mode=700 none '$T/locks' && exec dlock job touch '$T/ran'"
    # A table with holes on a disk that has since become full.
    fails_with 73 'cannot store the fence .*No space left' unshare -m sh -c "mount -t tmpfs -o size=64k,mode=700 none '$T/locks' &&
        truncate -s 393472 '$TABLE' && exec dlock job touch '$T/ran'"
    [ ! -e "$T/ran" ]
}

@test "--status creates neither a table nor a lock file" {
    mkdir -m 700 "$T/locks"
    table <<'ROWS'
1 '^job: free$' dlock --status job
0 '^$'          dlock --list
1 'not locked|no lock|free' dlock --release --owner=x job
ROWS
    equals "$(find "$T/locks" -type f | wc -l)" 0
}

@test "many processes at once: every acquire is counted, and no fence is given twice" {
    local i
    for i in {1..60}; do
        dlock -s job -- sh -c 'echo $DLOCK_FENCE' >>"$T/fences" 3>&- &
    done
    wait
    equals "$(sort -u "$T/fences" | wc -l)" 60
    [[ $(counts) == *'"takes":60,'* ]]
}

@test "a directory whose table was made by a newer dlock is refused, --doctor reports it, and the table stays" {
    local before newer='stored in format 3 by a newer dlock, but dlock [0-9.]+ supports formats up to 2 only; upgrade dlock on this host'
    "$HELPERS/next/dlock" job true
    before=$(sha256sum "$TABLE")
    table <<'ROWS'
78 "^dlock: other: .*$newer; the command was not run$" dlock -n other touch "$T/ran"
78 "$newer" dlock --acquire other
78 "$newer" dlock --status other
78 "$newer" dlock --doctor
ROWS
    [ ! -e "$T/ran" ]
    equals "$(sha256sum "$TABLE")" "$before"
    equals "$(ls "$T/locks")" ''
}
