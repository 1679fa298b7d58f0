#!/usr/bin/env bats
# Tries what doc/threat-model.md says that others cannot do.
load ../lib/common
setup() { common_setup; OPEN=$T/open PRECIOUS=$T/precious; }

# Sets up another user, who can reach the program and $OPEN, a directory like /tmp.
attacked() {
    ATTACKER=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent)
    let_others_into "$T" || skip 'needs root, to become another user, who reaches the program'
    mkdir -m 1777 "$OPEN"
    install -m 644 /dev/null "$PRECIOUS"
    echo 'of root alone' >"$PRECIOUS"
}

untouched() { equals "$(cat "$PRECIOUS")" 'of root alone'; equals "$(stat -c '%U %a' "$PRECIOUS")" 'root 644'; }

@test "a set-user-ID or set-group-ID copy refuses every use: exit 77, nothing is run" {
    [ -z "${SANITIZER:-}" ] || skip 'what looks for leaks cannot trace a program with borrowed rights'
    attacked
    local copy=$T/copy
    cp "$(realpath "$DLOCK")" "$copy"
    local mode
    for mode in 4755 2755 6755; do
        chmod "$mode" "$copy"
        run "${ATTACKER[@]}" env DLOCK_BACKEND=file DLOCK_LOCK_DIR="$OPEN/locks" "$copy" job -- touch "$OPEN/ran"
        [ "$status" -ne 0 ] || ! findmnt -nT "$T" -o OPTIONS | grep -qw nosuid || skip 'mounted nosuid'
        equals "$status" 77
        [[ $output == 'dlock: dlock has more privileges than its caller (set-user-ID'*'chmod ug-s'* ]]
        fails_with 77 'set-user-ID' "${ATTACKER[@]}" "$copy" --status job
        fails_with 77 'set-user-ID' "${ATTACKER[@]}" "$copy" --version
        # The refusal comes before dlock reads options, variables or a configuration file.
        fails_with 77 'set-user-ID' "${ATTACKER[@]}" env DLOCK_TTL=never DLOCK_CONFIG=/nowhere "$copy" --no-such-option job
    done
    [ ! -e "$OPEN/ran" ] && [ ! -e "$OPEN/locks" ]
}

@test "a copy with capabilities, or whose capabilities cannot be read, refuses every use too" {
    [ -z "${SANITIZER:-}" ] || skip 'what looks for leaks cannot trace a program with borrowed rights'
    [ -z "${EMULATED:-}" ] || skip 'qemu-user: /proc/self/exe has the capabilities of qemu, not of dlock'
    attacked
    local copy=$T/copy
    cp "$(realpath "$DLOCK")" "$copy"
    # CAP_DAC_OVERRIDE, permitted and effective, as setcap(8) stores it.
    python3 -c 'import os, struct, sys; os.setxattr(sys.argv[1], "security.capability", struct.pack("<5I", 0x02000001, 2, 0, 0, 0))' \
        "$copy" || skip 'no file capabilities here'
    fails_with 77 'file capabilities' "${ATTACKER[@]}" "$copy" --backend=file --lock-dir="$OPEN/locks" job -- touch "$OPEN/ran"
    # Without /proc dlock cannot know its capabilities.
    if unshare -m true 2>/dev/null; then
        # shellcheck disable=SC2016
        fails_with 77 'file capabilities' unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh \
            "${ATTACKER[@]}" "$copy" --backend=file --lock-dir="$OPEN/locks" job -- touch "$OPEN/ran"
    fi
    [ ! -e "$OPEN/ran" ]
    [ ! -e "$OPEN/locks" ]
    setfattr -x security.capability "$copy" 2>/dev/null ||
        python3 -c 'import os, sys; os.removexattr(sys.argv[1], "security.capability")' "$copy"
    "${ATTACKER[@]}" "$copy" --backend=file --lock-dir="$OPEN/locks" job -- touch "$OPEN/ran"
    [ -e "$OPEN/ran" ]
}

@test "a file, link or pipe that another user planted in place of a lock file or the table is refused, and its target is untouched" {
    attacked
    local name
    for name in dlock:job.lock .table-0; do
        rm -f "$OPEN/.table-0"
        "${ATTACKER[@]}" ln -s "$PRECIOUS" "$OPEN/$name"
        # Linux returns either error, depending on the directory's owner.
        fails_with 77 'Too many levels of symbolic links|Permission denied' dlock --backend=file --lock-dir="$OPEN" job -- touch "$T/ran"
        rm "$OPEN/$name"
        "${ATTACKER[@]}" mkfifo "$OPEN/$name"
        run timeout 20 dlock --backend=file --lock-dir="$OPEN" job -- touch "$T/ran"
        equals "$status" 77
        rm "$OPEN/$name"
        "${ATTACKER[@]}" touch "$OPEN/$name"
        run dlock --backend=file --lock-dir="$OPEN" job -- touch "$T/ran"
        equals "$status" 77
        rm "$OPEN/$name"
        "${ATTACKER[@]}" mkdir "$OPEN/$name"
        fails_with 73 'Is a directory' dlock --backend=file --lock-dir="$OPEN" job -- touch "$T/ran"
        rmdir "$OPEN/$name"
        # As another user could if fs.protected_hardlinks is 0.
        ln "$PRECIOUS" "$OPEN/$name"
        run dlock --backend=file --lock-dir="$OPEN" job -- touch "$T/ran"
        equals "$status" 77
        rm "$OPEN/$name"
        [ ! -e "$T/ran" ]
        untouched
    done
    dlock --backend=file --lock-dir="$OPEN" job -- true
}

@test "another user who keeps planting and removing links gets nothing written and no command run without its lock" {
    attacked
    cat >"$T/plant.py" <<'P'
import os, sys
where, target = sys.argv[1:]
open(where + "/planting", "w").close()
def attempt(call, *arguments):
    try:
        call(*arguments)
    except OSError:
        pass
while True:
    for name in ("dlock:job.lock", ".table-0", "locks", "report"):
        path = where + "/" + name
        attempt(os.symlink, target, path)
        attempt(os.unlink, path)
        attempt(os.mkdir, path)
        attempt(os.rmdir, path)
        attempt(os.link, target, path)
        attempt(os.unlink, path)
P
    [ -x /usr/bin/python3 ] || skip 'no python3 for another user'
    "${ATTACKER[@]}" "$(readlink -f /usr/bin/python3)" "$T/plant.py" "$OPEN" "$PRECIOUS" 3>&- 4>&- &
    echo $! >"$T/plant.pid"
    wait_until 10 test -e "$OPEN/planting"
    local i dir
    for i in {1..30}; do
        for dir in "$OPEN" "$OPEN/locks"; do
            run dlock --backend=file --lock-dir="$dir" --report="$OPEN/report" job -- sh -c "echo x >>'$T/ran'"
            echo "$status" >>"$T/statuses"
        done
        rm -rf "$OPEN/locks" "$OPEN/report" || true # the other user removes its own files meanwhile
    done
    kill -KILL "$(cat "$T/plant.pid")"
    untouched
    equals "$(grep -cvE '^(0|73|77)$' "$T/statuses")" 0
    equals "$(grep -cx 0 "$T/statuses")" "$(grep -c x "$T/ran" || true)"
}

@test "another user can neither read nor acquire nor remove a lock in a directory open to all" {
    attacked
    hold_lock job --backend=file --lock-dir="$OPEN"
    local file="$OPEN/dlock:job.lock"
    equals "$(stat -c %a "$file")" 600
    not "${ATTACKER[@]}" cat "$file"
    not "${ATTACKER[@]}" rm -f "$file"
    not "${ATTACKER[@]}" mv "$file" "$OPEN/away"
    not "${ATTACKER[@]}" flock -n "$file" true
    fails_with 77 'cannot open .*Permission denied; the file belongs to user root; use --lock-file=PATH or Redis for locks of several users;' \
        "${ATTACKER[@]}" "$DLOCK" --backend=file --lock-dir="$OPEN" -n job -- true
    local action
    for action in --force-release --status --release=x; do
        run "${ATTACKER[@]}" "$DLOCK" --backend=file --lock-dir="$OPEN" ${action/=x/ --owner=x} job
        [ "$status" -ne 0 ]
    done
    kill -0 "$HOLDER"
    equals "$(dlock --backend=file --lock-dir="$OPEN" --status job | head -n 1 | cut -c1-9)" 'job: held'
    end_hold
    wait "$HOLDER"
}

@test "the way to share a lock between users that --doctor suggests works" {
    attacked
    run dlock --doctor --backend=file --lock-dir="$T/locks"
    [[ $output == *'other users have directories of their own'*'--lock-file=PATH, a file that all of them can open, or Redis'* ]]
    "${ATTACKER[@]}" "$DLOCK" --lock-file="$OPEN/all" -- touch "$OPEN/ran"
    hold_lock '' --lock-file="$OPEN/all"
    rm "$OPEN/ran"
    fails_with 75 '' "${ATTACKER[@]}" "$DLOCK" --lock-file="$OPEN/all" -n -- touch "$OPEN/ran"
    [ ! -e "$OPEN/ran" ]
    end_hold
    wait "$HOLDER"
}

@test "a --lock-file that the user may not open is reported as held if it is; otherwise exit 77, never free" {
    attacked
    install -m 600 /dev/null "$OPEN/exact"
    hold_lock '' --lock-file="$OPEN/exact"
    fails_with 0 'exact: held' "${ATTACKER[@]}" "$DLOCK" --status --lock-file="$OPEN/exact"
    end_hold
    wait "$HOLDER"
    fails_with 77 'cannot find out whether the lock file .* is locked: Permission denied' \
        "${ATTACKER[@]}" "$DLOCK" --status --lock-file="$OPEN/exact"
}

@test "--report follows no link made by another user, but follows the user's own and root's" {
    attacked
    "${ATTACKER[@]}" ln -s "$PRECIOUS" "$OPEN/report"
    fails_with 77 'cannot open the report file .*(a symbolic link that another user created|Permission denied)' \
        dlock --backend=file --lock-dir="$T/locks" --report="$OPEN/report" job -- touch "$T/ran"
    mkdir "$T/plain"
    ln -s "$PRECIOUS" "$T/plain/report"
    chown -h 65534 "$T/plain/report"
    fails_with 77 'cannot open the report file .*a symbolic link that another user created' \
        dlock --backend=file --lock-dir="$T/locks" --report="$T/plain/report" job -- touch "$T/ran"
    [ ! -e "$T/ran" ]
    untouched
    ln -s "$T/real" "$T/report"
    dlock --backend=file --lock-dir="$T/locks" --report="$T/report" job -- true
    equals "$(grep -c '"key":"job"' "$T/real")" 1
    equals "$(dlock --backend=file --lock-dir="$T/locks" --report=/dev/stdout job -- true | grep -c '"key":"job"')" 1
}

@test "--owner-file replaces a link instead of writing through it" {
    attacked
    "${ATTACKER[@]}" ln -s "$PRECIOUS" "$OPEN/token"
    dlock --backend=file --lock-dir="$T/locks" --acquire --owner-file="$OPEN/token" job
    untouched
    equals "$(stat -c '%F %a %u' "$OPEN/token")" 'regular file 600 0'
    fails_with 77 'cannot read the owner file' "${ATTACKER[@]}" "$DLOCK" --backend=file --release --owner-file="$OPEN/token" job
    dlock --backend=file --lock-dir="$T/locks" --release --owner-file="$OPEN/token" job
}

@test "a configuration file that everybody can write to, or that is a pipe, is refused" {
    mkdir -p "$HOME/.config/dlock"
    echo 'backend = file' >"$HOME/.config/dlock/dlock.conf"
    chmod 646 "$HOME/.config/dlock/dlock.conf"
    fails_with 78 'dlock.conf: others can write to this path; use chmod o-w' dlock --lock-dir="$T/locks" job -- touch "$T/ran"
    [ ! -e "$T/ran" ]
    chmod 664 "$HOME/.config/dlock/dlock.conf"
    dlock --lock-dir="$T/locks" job -- true
    rm "$HOME/.config/dlock/dlock.conf"
    mkfifo "$HOME/.config/dlock/dlock.conf"
    fails_with 78 'not a regular file' timeout 20 "$DLOCK" --backend=file --lock-dir="$T/locks" job -- touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "a configuration file that another user or a group can change is refused" {
    [ "$(id -u)" -eq 0 ] || skip 'needs root, to give files away'
    local conf=$HOME/.config/dlock/dlock.conf
    mkdir -p "$HOME/.config/dlock"
    echo "lock-dir = $T/theirs" >"$conf"
    chown 65534 "$conf"
    fails_with 78 'dlock.conf: belongs to user (nobody|65534); set HOME or XDG_CONFIG_HOME' dlock --backend=file job -- touch "$T/ran"
    fails_with 78 'belongs to user' env HOME=/nowhere XDG_CONFIG_HOME="$HOME/.config" dlock --backend=file job -- touch "$T/ran"
    # Neither variable decides which file is read here.
    fails_with 78 "dlock.conf: belongs to user (nobody|65534), but must belong to you or root$" dlock --config="$conf" --backend=file job -- touch "$T/ran"
    DLOCK_CONFIG=$conf fails_with 78 "but must belong to you or root$" dlock --backend=file job -- touch "$T/ran"
    chown 0:65534 "$conf"
    chmod 664 "$conf"
    fails_with 78 'dlock.conf: the group can write to this path; use chmod g-w' dlock --backend=file job -- touch "$T/ran"
    [ ! -e "$T/ran" ]
    [ ! -e "$T/theirs" ]
    chmod 644 "$conf"
    dlock --backend=file job -- true
    [ -e "$T/theirs" ]
    # Root may give another user a file in that user's own group.
    attacked
    mkdir -p "$OPEN/home/.config/dlock"
    echo "lock-dir = $OPEN/their_locks" >"$OPEN/home/.config/dlock/dlock.conf"
    chown 0:65534 "$OPEN/home/.config/dlock/dlock.conf"
    chmod 664 "$OPEN/home/.config/dlock/dlock.conf"
    "${ATTACKER[@]}" HOME="$OPEN/home" "$DLOCK" --backend=file job -- true
    [ -e "$OPEN/their_locks" ]
}

@test "a DLOCK_HELD that is huge, nonsense, or names another holder's lock lets nobody in" {
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
    hold_lock job
    local token nonsense
    token=$(dlock --json --status job | python3 -c 'import json, sys; print(json.load(sys.stdin)["owner"])')
    nonsense=$(head -c 90000 /dev/zero | tr '\0' 'x')
    local held
    # A lock's token is a secret that dlock gives to its command. Other users do not see it.
    for held in "$nonsense" "file $nonsense dlock:job" "file" "file x y dlock:job" "redis $token $token dlock:job" $'\n\n\n' \
        $'file \e[31m \e[31m dlock:job' "file ${token}x $token dlock:job" "file $token ${token}x dlock:job" "file $token $token dlock:jo"; do
        run env DLOCK_HELD="$held" dlock -n job -- touch "$T/ran"
        equals "$status" 75
        [[ $output != *$'\e'* ]]
    done
    [ ! -e "$T/ran" ]
    end_hold
    wait "$HOLDER"
}

@test "text about a holder cannot disturb a terminal, a log or JSON" {
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock
    local bad=$'\e]0;title\a\e[2J\r\ndlock: job: released\xff\xe2\x80\xae"}'
    redis set dlock:job "$bad" px 600000 >/dev/null
    redis set $'dlock:a\e[2J\r\ndlock: job: released\xff\xe2\x80\xae' "$bad" px 600000 >/dev/null
    redis eval 'local bad, record = ARGV[1], {}
        for _, field in ipairs({"take", "host", "boot", "pid", "start", "user", "command", "since", "message"}) do record[field] = bad end
        redis.call("HSET", KEYS[1], "owner", bad, "fence", 7, "record", cjson.encode(record), "spent", "t " .. bad .. " 1\n", "run", bad)' \
        1 '{dlock:job}:meta' "$bad" >/dev/null
    local arguments
    for arguments in '-n -v job true' '-w 100ms -vv job true' '--status job' '--status -v job' '--list' '--json --list' '--json --status job' \
        '--json -n job true' '--doctor job' '--force-release job'; do
        # shellcheck disable=SC2086
        run dlock $arguments
        not grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80\xae' <<<"$output"
        not grep -qE '^dlock: job: released' <<<"$output"
        [[ $arguments != --json* ]] || python3 -c 'import json, sys; [json.loads(line) for line in sys.stdin if line.strip()]' <<<"$output"
    done
    [[ $(dlock --list) == *'a\x1B[2J'* ]]
}

@test "in a locale that is not UTF-8, text from others is shown in ASCII" {
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock
    local arguments name=$'Stra\xc3\x9fe' locale # the second byte is the C1 control APC
    LOGNAME=$name dlock --acquire -t 60s --message="$name" "$name" >/dev/null
    for locale in LC_ALL=C LANG=de_DE.ISO-8859-1; do
        for arguments in "-n -v $name true" "-w 100ms -vv $name true" "--status -v $name" --list "--doctor $name" "--print-config --message=$name $name" \
            "--ran-within=1h $name" "--history $name"; do
            # shellcheck disable=SC2086
            run env -u LC_ALL "$locale" "$DLOCK" $arguments
            [[ $output == *'Stra\xC3\x9Fe'* ]]
            not grep -qP '[\x80-\xff]' <<<"$output"
        done
    done
    run env -u LC_ALL LANG=C "$DLOCK" --force-release "$name"
    [[ $status = 0 && $output == 'released Stra\xC3\x9Fe, held by Stra\xC3\x9Fe@'* ]]
    # No locale at all, as in a cron job: text is UTF-8.
    run env -u LC_ALL -u LANG "$DLOCK" --status "$name"
    [[ $output == "$name: free"* ]]
}

@test "huge values and malicious records are shown as an unknown holder, and cost dlock nothing" {
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock
    redis eval "redis.call('SET', KEYS[1], string.rep('x', 4194304)) return 1" 1 dlock:job >/dev/null
    redis eval "local deep = string.rep('[', 100000)
        redis.call('SET', KEYS[1], 'dlock:shared:1', 'PX', 600000)
        for i, bomb in ipairs({deep, string.rep('{\"a\":', 100000), '1e999', '[1e400,-1e400]', 'null', '{\"fence\":1e308}', '\0', '{\"take\":{}}',
            string.rep('9', 100000)}) do
            redis.call('ZADD', KEYS[2], 9e15, 't' .. i)
            redis.call('SET', KEYS[3] .. i, bomb)
        end return 1" 3 dlock:shared '{dlock:shared}:holders' '{dlock:shared}:holder:t' >/dev/null
    local name arguments room=300000000
    [ -z "${SANITIZER:-}" ] || room=unlimited
    for name in job shared; do
        for arguments in '-n' '-w 100ms'; do
            # shellcheck disable=SC2086
            run dlock --connect-timeout=20s $arguments "$name" -- touch "$T/ran"
            equals "$status" 75
        done
        run prlimit --as="$room" "$DLOCK" --connect-timeout=20s --json --status "$name"
        equals "$status" 0
        python3 -c 'import json, sys; assert (s := json.load(sys.stdin))["locked"]; assert all(h["host"] is h["command"] is None for h in s["holders"])' <<<"$output"
    done
    [ ! -e "$T/ran" ]
}

@test "another user's files in a directory are not read, and cannot block --force-release" {
    attacked
    # The directory may hold any number of files; a record that no guard has locked would be removed.
    mkdir -m 755 "$T/theirs"
    : >"$T/theirs/.attached-1-stale-0"
    chown 65534 "$T/theirs"
    fails_with 1 '' dlock --current --lock-dir="$T/theirs"
    [ -e "$T/theirs/.attached-1-stale-0" ]
    # A --force-release of a paused lock creates another file.
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$OPEN
    dlock --acquire --owner=me job
    dlock --pause=1h --message=why job
    # shellcheck disable=SC2016
    run sh -c '"$@" touch "$DLOCK_LOCK_DIR/.paused-$$" && exec dlock --force-release job' sh "${ATTACKER[@]}"
    equals "$status" 0
    dlock --status job | grep paused
}

# listen_as_claim TYPE: as the attacker, waits for a claim of a --lock-file, and takes its name once that is free.
listen_as_claim() {
    cat >"$OPEN/listen.py" <<'P'
import os, socket, sys, time
name, folder, mark = "", sys.argv[1], "@dlock-claim %x %x " % tuple(map(int, sys.argv[3:]))
while not name:
    name = next((line.split("@", 1)[1].rstrip("\n") for line in open("/proc/net/unix") if mark in line), "")
open(folder + "/saw", "w").close()
thief = socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[2]))
while True:
    try:
        thief.bind("\0" + name)
        break
    except OSError:
        time.sleep(0.001)
if sys.argv[2] != "SOCK_DGRAM":
    thief.listen()
open(folder + "/bound", "w").close()
while not os.path.exists(folder + "/end"):
    time.sleep(0.01)
P
    rm -f "$OPEN/saw" "$OPEN/bound" "$OPEN/end"
    # shellcheck disable=SC2046
    "${ATTACKER[@]}" python3 "$OPEN/listen.py" "$OPEN" "$1" $(stat -c '%d %i' "$T/exact") 2>"$T/listen.err" 3>&- 4>&- &
    THIEF=$!
    echo "$THIEF" >"$T/thief.pid"
}

@test "--lock-file: a user who reuses the name of an ended claim does not count as a holder, whatever the socket type" {
    local type
    attacked
    : >"$T/exact"
    for type in SOCK_DGRAM SOCK_STREAM SOCK_SEQPACKET; do
        listen_as_claim $type
        # shellcheck disable=SC2016
        dlock --lock-file="$T/exact" -- sh -c 'echo "$DLOCK_HELD" >"$T/held_by"; until [ -e "$T/open/saw" ]; do sleep 0.01; done'
        wait_until 10 test -e "$OPEN/bound"
        flock -o "$T/exact" sleep 600 3>&- 4>&- &
        echo $! >"$T/other.pid"
        wait_until 10 not flock -n "$T/exact" true
        fails_with 75 '' env DLOCK_HELD="$(cat "$T/held_by")" dlock -n --lock-file="$T/exact" touch "$T/ran"
        touch "$OPEN/end"
        wait "$THIEF"
        kill "$(cat "$T/other.pid")"
    done
    [ ! -e "$T/ran" ]
}

@test "--lock-file: in the command, a user reached through sudo is inside the lock, and no other process is" {
    attacked
    : >"$OPEN/exact"
    install -m 4755 "$(command -v setpriv)" "$OPEN/sudo"
    ! findmnt -nT "$OPEN" -o OPTIONS | grep -qw nosuid || skip 'mounted nosuid'
    export DLOCK
    # shellcheck disable=SC2016
    timeout 20 "${ATTACKER[@]}" "$DLOCK" --lock-file="$OPEN/exact" -- sh -c 'echo "$DLOCK_HELD" >"$1/held_by"
        "$1/sudo" --reuid=65533 --regid=65533 --clear-groups "$DLOCK" -n --lock-file="$1/exact" echo in
        touch "$1/here"; until [ -e "$1/end" ]; do sleep 0.01; done' sh "$OPEN" >"$T/out" 2>&1 3>&- 4>&- &
    wait_until 10 test -e "$OPEN/here"
    equals "$(cat "$T/out")" in
    fails_with 75 '' setpriv --reuid=65533 --regid=65533 --clear-groups env HOME=/nonexistent DLOCK_HELD="$(cat "$OPEN/held_by")" \
        "$DLOCK" -n --lock-file="$OPEN/exact" echo in
    touch "$OPEN/end"
    wait $!
}
