#!/usr/bin/env bats
load ../lib/common
setup() { common_setup; export DLOCK_BACKEND=file; D=$T/locks; }
teardown() {
    umount -l "$T/merged" 2>/dev/null || true
    common_teardown
}

@test "the directory is created 0700, a lock file 0600 and removed after use; its record names the holder" {
    (umask 0; dlock --lock-dir="$D" job true)
    equals "$(stat -c %a "$D")" 700
    equals "$(find "$D" -name '*.lock' | wc -l)" 0
    LOGNAME='some body' hold_lock job --lock-dir="$D" --owner=me
    local file=$D/dlock:job.lock
    equals "$(stat -c %a "$file")" 600
    equals "$(head -1 "$file")" 'dlock 2'
    equals "$(tail -1 "$file")" end
    grep -qx 'token me' "$file"
    grep -qx 'key dlock:job' "$file"
    grep -qx "pid $HOLDER" "$file"
    grep -qx 'user some body' "$file"
    grep -qx "boot $(cat /proc/sys/kernel/random/boot_id)" "$file"
    head -c 300 /dev/urandom >"$T/garbage"
    dd if="$T/garbage" of="$D/dlock:job.lock" conv=notrunc status=none
    fails_with 75 'held by another client' dlock -v -n --lock-dir="$D" job touch "$T/ran"
    end_hold
    wait "$HOLDER"
}

@test "a lock held in format 1 is respected, can be released and extended, and the next holder writes format 2" {
    export DLOCK_LOCK_DIR=$D
    dlock --acquire --owner=me -t 1h job
    local file=$D/dlock:job.lock
    # As dlock 0.9 wrote it: all fields, some without a value.
    sed -i 's/^dlock 2$/dlock 1/; s/^end$/message \nslots 0\nslot -1\ndetached 1\nreleased 0\nonce_per 0\nend/' "$file"
    grep -q '^dlock 1$' "$file"
    table <<'ROWS'
75 "job: held by .*" dlock -n -v job true
0 '^job: held, exclusive' dlock --status job
0 '' dlock --extend --owner=me -t 2h job
0 'lease ends in 1h59m' dlock --status job
0 '' dlock --release --owner=me job
1 'already released$' dlock --release --owner=me job
0 '^dlock 2$' dlock job head -n 1 "$file"
ROWS
}

@test "a record left by a crashed holder does not count as a lock" {
    mkdir -m 700 "$D"
    printf 'dlock 1\nkey dlock:job\ntoken x\npid 1\nend\n' >"$D/dlock:job.lock"
    run dlock -n --lock-dir="$D" job echo ok
    equals "$output" ok
    head -c 20000 /dev/urandom >"$D/dlock:job.lock"
    run dlock -n --lock-dir="$D" job echo ok
    equals "$output" ok
    equals "$(find "$D" -name '*.lock' | wc -l)" 0
}

@test "whatever the umask of the first run, the same user's later runs can use what it created" {
    let_others_into "$T" || skip 'needs root, to become another user, who reaches the program'
    local umask
    mkdir -m 1777 "$T/open"
    for umask in 077 0177 0137 0277 0377 0777; do
        # Each run with its own umask creates directory, lock file, table, owner file and the record of an attachment.
        # shellcheck disable=SC2016
        run timeout 30 setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent DLOCK_LOCK_DIR="$T/open/$umask" \
            PATH="$(dirname "$(realpath "$DLOCK")"):$PATH" sh -ec '
            strange() { (umask '$umask'; exec "$@"); }
            strange dlock job echo first
            strange dlock -q --pause=1h --message=why paused; dlock -q --resume paused
            strange dlock --acquire --owner-file="$DLOCK_LOCK_DIR.token" kept >/dev/null; dlock --release --owner-file="$DLOCK_LOCK_DIR.token" kept
            strange dlock --attach=$$ held; dlock -n held echo inside
            dlock job echo last'
        equals "$umask $status $output" "$umask 0 first"$'\ninside\nlast'
        equals "$(stat -c %a "$T/open/$umask" "$T/open/$umask/.table-65534" "$T/open/$umask.token")" $'700\n600\n600'
    done
}

@test "root's own directory is for root alone; an existing sticky one is used as it is" {
    [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip 'needs root and mounts'
    unshare -m sh -c "mount -t tmpfs -o mode=1777 none /run/lock && umask 0 && dlock job true &&
        stat -c %a /run/lock/dlock >'$T/mode'
        chmod 1777 /run/lock/dlock && dlock job true && stat -c %a /run/lock/dlock >>'$T/mode'" 3>&-
    equals "$(cat "$T/mode")" $'700\n1777'
}

@test "a directory that is a link, belongs to another user, is open to others, or cannot be created or written to: exit 77 or 73, nothing is run" {
    mkdir -m 700 "$T/real"
    ln -s "$T/real" "$T/link"
    fails_with 77 'the lock directory .*/link is a symbolic link' dlock --lock-dir="$T/link" job touch "$T/ran"
    fails_with 77 'the lock directory .*/link is a symbolic link' dlock --lock-dir="$T/link/" job touch "$T/ran"
    # The same for a fallback to a file.
    fails_with 77 'the lock directory .*/link is a symbolic link' \
        env -u DLOCK_BACKEND dlock -r "unix://$T/nowhere" --retry-for=0 --lock-dir="$T/link" --fallback=file job touch "$T/ran"
    mkdir -m 700 "$T/open"
    chmod 777 "$T/open"
    fails_with 77 'is writable by others' dlock --lock-dir="$T/open" job touch "$T/ran"
    chmod 1777 "$T/open"
    run dlock --lock-dir="$T/open" job true
    [ "$status" -eq 0 ]
    if [ "$(id -u)" -eq 0 ]; then
        mkdir "$T/other"
        chown 65534 "$T/other"
        fails_with 77 'belongs to another user' dlock --lock-dir="$T/other" job touch "$T/ran"
    fi
    fails_with 73 'cannot open or create the lock directory' dlock --lock-dir="$T/no/such/parent" job touch "$T/ran"
    : >"$T/file"
    fails_with 73 'cannot open or create the lock directory' dlock --lock-dir="$T/file" job touch "$T/ran"
    if [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null; then
        mkdir -m 700 "$D"
        fails_with 73 'cannot open the lock file .*Read-only file system' \
            unshare -m sh -c "mount -t tmpfs -o ro,mode=700 none '$D' && exec dlock --lock-dir='$D' job touch '$T/ran'"
    elif [ "$(id -u)" -ne 0 ]; then
        mkdir -m 500 "$D"
        fails_with 77 'cannot open the lock file' dlock --lock-dir="$D" job touch "$T/ran"
    fi
    [ ! -e "$T/ran" ]
}

@test "a lock file that is a link, a pipe or another user's: exit 77, and its target is not touched" {
    mkdir -m 700 "$D"
    echo precious >"$T/precious"
    ln -s "$T/precious" "$D/dlock:job.lock"
    fails_with 77 'cannot open the lock file' dlock --lock-dir="$D" job touch "$T/ran"
    equals "$(cat "$T/precious")" precious
    rm "$D/dlock:job.lock"
    mkfifo "$D/dlock:job.lock"
    fails_with 77 'is not a regular file of this user' dlock --lock-dir="$D" job touch "$T/ran"
    if [ "$(id -u)" -eq 0 ]; then
        rm "$D/dlock:job.lock"
        touch "$D/dlock:job.lock"
        chown 4242424 "$D/dlock:job.lock"
        fails_with 77 'of this user; the file belongs to user 4242424; use --lock-file=PATH or Redis for locks of several users;' \
            dlock --lock-dir="$D" job touch "$T/ran"
    fi
    [ ! -e "$T/ran" ]
}

@test "a full disk: exit 73, nothing is run, no file is left" {
    LD_PRELOAD=$HELPERS/fault_pwrite.so fails_with 73 'cannot write the lock file .*No space left' \
        dlock --lock-dir="$D" job touch "$T/ran"
    equals "$(find "$D" -name '*.lock' | wc -l)" 0
    [ "${SANITIZER:-}" = thread ] && skip 'the sanitizer writes files of its own'
    # A limit on file sizes is no different, and its signal does not kill dlock.
    fails_with 73 'File too large' bash -c "ulimit -f 0; exec dlock --lock-dir='$D' job touch '$T/ran'"
    equals "$(find "$D" -name '*.lock' | wc -l)" 0
    [ ! -e "$T/ran" ]
}

@test "holders never overlap while the file is removed and created again" {
    local i
    for i in 1 2 3 4; do
        (for _ in {1..40}; do
            dlock --lock-dir="$D" job -- sh -c "mkdir '$T/in' && rmdir '$T/in' || echo overlap >>'$T/bad'; echo x >>'$T/count'"
        done) 3>&- &
    done
    wait
    [ ! -e "$T/bad" ]
    equals "$(wc -l <"$T/count")" 160
    equals "$(find "$D" -name '*.lock' | wc -l)" 0
}

@test "a waiter whose file is removed starts again with the new one" {
    hold_lock job --lock-dir="$D"
    # flock(1) has opened the old file and waits for it, like a dlock between open and flock.
    flock "$D/dlock:job.lock" sh -c "echo x >'$T/old'; exec sleep 600" 3>&- &
    echo $! >"$T/flock.pid"
    wait_until 10 grep -q -- "-> FLOCK .*:$(stat -c %i "$D/dlock:job.lock") " /proc/locks
    end_hold
    wait "$HOLDER"
    wait_until 10 test -e "$T/old"
    # flock(1) now holds a lock on a removed file, which blocks nobody.
    run dlock -n --lock-dir="$D" job echo ok
    equals "$output" ok
    pkill -P "$(cat "$T/flock.pid")" || true
}

@test "a login shell and cron, with their different environments, use the same lock" {
    if [ "$(id -u)" -eq 0 ]; then
        run setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$DLOCK"
        [ "$status" -eq 0 ] || skip 'another user cannot reach the program'
        as() { env -u XDG_RUNTIME_DIR HOME=/nowhere "$1" setpriv --reuid=65534 --regid=65534 --clear-groups "${@:2}"; }
    else
        as() { env -u XDG_RUNTIME_DIR "$@"; }
    fi
    mkdir -m 777 "$T/runtime"
    local name=dlock-test-$$-$RANDOM
    run as "XDG_RUNTIME_DIR=$T/runtime" "$DLOCK" "$name" -- env -u XDG_RUNTIME_DIR "$DLOCK" -v -n "$name" true
    # For the same lock, the inner dlock finds that it is inside the outer one.
    [[ $status -eq 0 && $output == *'already holds the lock'* ]]
}

@test "a unit with a read-only /run/lock is refused with the reason; no other directory is used" {
    [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip 'needs root and mounts'
    cd / # below the new mount
    # as_user MODE [OPTIONS]: mounts /run/lock with this mode and these options.
    as_user() {
        unshare -m sh -c "mount -t tmpfs -o mode=755 none /mnt && install -m 755 '$(realpath "$DLOCK")' /mnt/dlock &&
            mount -t tmpfs -o mode=1777 none /tmp && mount -t tmpfs -o mode=$1 none /run/lock &&
            mount -o remount,$2 /run/lock && exec setpriv --reuid=65534 --regid=65534 --clear-groups \\
            env HOME=/nowhere /mnt/dlock job sh -c 'find /tmp /run/lock -name dlock-65534'"
    }
    fails_with 73 'the lock directory /run/lock/dlock-65534: Read-only file system; .*ReadWritePaths' as_user 1777 ro
    [[ $output != */tmp/* ]]
    run as_user 1777 rw
    equals "$status $output" '0 /run/lock/dlock-65534'
    run as_user 755 rw
    equals "$status $output" '0 /tmp/dlock-65534'
}

# elsewhere SCRIPT: runs the script with its own /run and /tmp, and dlock as /mnt/dlock; $user runs it as another user.
elsewhere() {
    [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip 'needs root and mounts'
    cd / # below the new mount
    # shellcheck disable=SC2016
    run timeout 60 unshare -m bash -ec 'mount -t tmpfs -o mode=755 none /mnt; install -m 755 "$2" /mnt/dlock; mkdir -m 1777 /mnt/at
        mount -t tmpfs -o mode=755 none /run; mkdir -m 755 /run/lock
        user="setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nowhere DLOCK_BACKEND=file"
        eval "$1"' bash "$1" "$(realpath "$DLOCK")"
}

@test "a unit's private /tmp (PrivateTmp=) is refused as the place for locks: exit 78" {
    local private row
    mkdir -p "$T/systemd-private-0-job.service-1/tmp" "$T/snap-private-tmp/tmp" "$T/plain"
    while read -r private row; do
        # shellcheck disable=SC2016
        elsewhere "$row; chmod 1777 /tmp"'
            $user /mnt/dlock job find /tmp /run -name "dlock-*" || echo "status $?"
            $user /mnt/dlock --doctor job >/mnt/doctor 2>&1 || true
            grep -o "use the same --lock-dir" /mnt/doctor || true
            $user /mnt/dlock --lock-dir=/tmp/mine job true
            mkdir -m 1777 /run/dlock; $user /mnt/dlock job find /run -path "*dlock/[0-9]*" ! -name "*-65534" ! -name "*.lock"'
        equals "$row $status" "$row 0"
        if [ "$private" = yes ]; then
            [[ $output == *'(PrivateTmp=)'*'use the same --lock-dir for all of them'$'\nstatus 78\nuse the same --lock-dir\n/run/dlock/65534' ]]
        else
            [[ $output == $'/tmp/dlock-65534\n/run/dlock/65534' ]]
        fi || equals "$row" "$output"
    done <<'ROWS'
yes mount --bind "$T/systemd-private-0-job.service-1/tmp" /tmp
yes mount --bind "$T/snap-private-tmp/tmp" /tmp
yes mount -t tmpfs -o mode=700 none /mnt/at; mkdir /mnt/at/tmp; mount --bind /mnt/at/tmp /tmp
yes mount -t tmpfs -o mode=700,size=10% none /tmp
no mount --bind "$T/plain" /tmp
no mount -t tmpfs -o mode=1777 none /tmp
no mount -t tmpfs none /tmp
ROWS
}

@test "a lock held in the former default directory cannot be acquired in the new one: exit 78" {
    # shellcheck disable=SC2016
    elsewhere 'mount -t tmpfs -o mode=1777 none /tmp
        hold() { rm -f /mnt/at/*; $user /mnt/dlock "$@" job -- sh -c "touch /mnt/at/here; until [ -e /mnt/at/end ]; do sleep 0.01; done" &
            until [ -e /mnt/at/here ]; do sleep 0.01; done; }
        second() { $user /mnt/dlock "$@" job echo ran || echo "status $?"; }
        hold; chmod 1777 /run/lock; second; second -w 1; second -s
        $user /mnt/dlock another echo another
        touch /mnt/at/end; wait; second
        hold -s; chmod 755 /run/lock; second -s; mkdir -m 1777 /run/dlock; second
        touch /mnt/at/end; wait; second
        $user /mnt/dlock -q --pause=1h --message=why job; chmod 1777 /run/lock; second
        find /tmp /run -name "*.lock"'
    local dir wanted=''
    for dir in /tmp/dlock-65534 /tmp/dlock-65534 /tmp/dlock-65534 'another ran' /run/lock/dlock-65534 /run/lock/dlock-65534 ran /run/dlock/65534; do
        case $dir in
            /*) wanted+="dlock: job: the lock is held in $dir, which was the default lock directory until /run/lock or /run/dlock was mounted or changed; use the same --lock-dir everywhere; the command was not run"$'\nstatus 78\n' ;;
            *) wanted+=${dir/ /$'\n'}$'\n' ;;
        esac
    done
    equals "$output" "$wanted/run/dlock/65534/dlock:job.lock"
}

@test "--status of a lock held in the former default directory fails as acquiring it does: 78, and the message says where" {
    elsewhere 'mount -t tmpfs -o mode=1777 none /tmp
        hold() { rm -f /mnt/at/*; $user /mnt/dlock "$@" job -- sh -c "touch /mnt/at/here; until [ -e /mnt/at/end ]; do sleep 0.01; done" &
            until [ -e /mnt/at/here ]; do sleep 0.01; done; }
        look() { $user /mnt/dlock "$@" >/mnt/at/out 2>&1 || echo "status $?"; sed "s/^\(dlock: [a-z: ]*is held in [^,]*\).*/\1/; s/  .*//; s/, last released.*//; /^$/d" /mnt/at/out; }
        hold; $user /mnt/dlock --acquire --owner=me -t 1h lease >/dev/null; chmod 1777 /run/lock
        $user /mnt/dlock -n here true
        look --status job; look --wait-until-free job; look --force-release job; look --release --owner=me lease; look --resume job; look --list
        look --status here; touch /mnt/at/end; wait; look --status job
        $user /mnt/dlock -q --lock-dir=/tmp/dlock-65534 --pause=1h --message=why job; look --resume job
        $user /mnt/dlock -q --lock-dir=/tmp/dlock-65534 --resume job; look --resume job'
    local held='is held in /tmp/dlock-65534'
    equals "$output" "status 78
dlock: job: the lock $held
status 78
dlock: job: the lock $held
status 78
dlock: job: the lock $held
status 78
dlock: lease: the lock $held
status 78
dlock: job: the lock $held
NAME
job
lease
dlock: the last of these locks are in another default lock directory; --status NAME shows which
status 1
here: free
status 1
job: free
status 78
dlock: job: the lock $held
status 1
dlock: job: the lock is not paused"
}

@test "--lock-file and flock(1) exclude each other; the file is neither written nor removed" {
    local file=$T/exact
    echo content >"$file"
    flock "$file" sh -c "touch '$T/in'; while [ ! -e '$T/out' ]; do sleep 0.01; done" 3>&- &
    wait_until 10 test -e "$T/in"
    run dlock -n --lock-file="$file" true
    [ "$status" -eq 75 ]
    touch "$T/out"
    wait
    hold_lock '' --lock-file="$file"
    run flock -n "$file" true
    [ "$status" -eq 1 ]
    end_hold
    wait "$HOLDER"
    run flock -n "$file" true
    [ "$status" -eq 0 ]
    equals "$(cat "$file")" content
}

@test "--lock-file: the fence is the clock in microseconds, and falls if the clock is set back" {
    local before first second
    fence_at() {
        set_wall "$1"
        LD_PRELOAD=$HELPERS/fault_wall_clock.so dlock --lock-file="$T/exact" -- env -u LD_PRELOAD sh -c 'echo "$DLOCK_FENCE"'
    }
    before=$(date +%s%6N)
    first=$(fence_at 0)
    [ "$before" -le "$first" ]
    [ "$first" -le "$(date +%s%6N)" ]
    second=$(fence_at 3600)
    [ $((second - first)) -ge 3600000000 ]
    [ "$(fence_at -3600)" -lt "$first" ]
}

@test "--lock-file creates the file, accepts links, directories and pipes as flock(1) does, and reports what it cannot open" {
    dlock --lock-file="$T/new" true
    [ -e "$T/new" ]
    [ ! -s "$T/new" ]
    ln -s "$T/new" "$T/link"
    run dlock --lock-file="$T/link" -- flock -n "$T/new" true
    [ "$status" -eq 1 ]
    run dlock --lock-file="$T" -- flock -n "$T" true
    [ "$status" -eq 1 ]
    fails_with 73 'cannot open the lock file .*No such file' dlock --lock-file="$T/no/such" touch "$T/ran"
    [ ! -e "$T/ran" ]
    mkfifo "$T/pipe"
    run timeout 20 dlock --lock-file="$T/pipe" echo ok
    equals "$output" ok
}

@test "--lock-file inside the same --lock-file does not wait for itself, nor inside a flock(1) that dlock has become" {
    run timeout 20 dlock --lock-file="$T/exact" --name=a dlock --lock-file="$T/exact" --name=b echo ok
    equals "$status $output" '0 ok'
    flock "$T/exact" timeout 20 dlock --lock-file="$T/exact" echo ok >"$T/out"
    equals "$(cat "$T/out")" ok
    run flock -F "$T/exact" dlock -n --lock-file="$T/exact" echo ok
    equals "$status $output" '0 ok'
}

@test "--lock-file inside a script that locked the file with flock(1) on a descriptor does not wait for itself" {
    local shell script='exec 9>"$1"; flock $2 9; timeout 20 dlock $3 --lock-file="$1" echo ok'
    for shell in bash dash; do
        command -v "$shell" >/dev/null || continue
        run "$shell" -c "$script" "$shell" "$T/exact" '' ''
        equals "$status ${lines[-1]}" '0 ok'
        run "$shell" -c "$script" "$shell" "$T/exact" -s -s
        equals "$status ${lines[-1]}" '0 ok'
        # dlock would wait for itself for ever.
        run "$shell" -c "$script" "$shell" "$T/exact" -s ''
        equals "$status" 64
    done
    run flock -s "$T/exact" timeout 20 dlock --lock-file="$T/exact" echo ok
    equals "$status" 64
    # An open descriptor alone is no lock.
    inherited "$T/exact"
    run bash -c 'exec 9>"$1"; timeout 20 dlock -n --lock-file="$1" echo ok' bash "$T/exact"
    equals "$status" 75
    touch "$T/out"
}

# inherited FILE: the process that locked the file has ended, and others have inherited the lock;
# DEAD is the pid that the kernel reports for the lock.
inherited() {
    sh -c "exec 9>'$1'; flock -n 9; touch '$T/in'; while [ ! -e '$T/out' ]; do sleep 0.01; done" 3>&- 4>&- &
    echo $! >"$T/inherited.pid"
    wait_until 10 test -e "$T/in"
    DEAD=$(awk -v inode=":$(stat -c %i "$1")\$" '$2 == "FLOCK" && $6 ~ inode { print $5 }' /proc/locks)
    [ -n "$DEAD" ] || skip 'a pid namespace that hides locks'
    gone "$DEAD"
}

@test "--lock-file: a process that reuses the pid of an ended holder is not the holder" {
    inherited "$T/exact"
    with_pid() { run python3 "$TESTS/helpers/with_pid.py" "$DEAD" "$@"; }
    with_pid true
    [ "$status" -eq 0 ] || skip "no pid can be chosen: $output"
    # Itself, and an ancestor.
    with_pid dlock -v -n --lock-file="$T/exact" touch "$T/ran"
    equals "$status" 75
    [[ $output == *'held by another client'* ]]
    with_pid sh -c "dlock -v -n --lock-file='$T/exact' touch '$T/ran'; exit \$?"
    equals "$status" 75
    with_pid sh -c "dlock --status --lock-file='$T/exact'; exit \$?"
    equals "$status" 0
    [ ! -e "$T/ran" ]
    touch "$T/out"
    wait_until 10 dlock -n --lock-file="$T/exact" true
}

@test "a lock that outlives the process that acquired it is not reported as free" {
    mkdir -m 700 "$D"
    inherited "$D/dlock:job.lock"
    local where
    for where in --lock-file="$D/dlock:job.lock" "--lock-dir=$D job"; do
        run dlock --status $where
        equals "$status" 0
        [[ $output == *'another client'* ]]
        run dlock --status --json $where
        equals "$status" 0
        fails_with 75 'another client' dlock -v --wait-until-free -n $where
    done
    touch "$T/out"
    for where in --lock-file="$D/dlock:job.lock" "--lock-dir=$D job"; do
        run dlock --wait-until-free -w 10 $where
        equals "$status" 0
    done
}

@test "--lock-file: a process that only waits for the file does not hold it" {
    flock "$T/exact" sh -c "touch '$T/in'; while [ ! -e '$T/out' ]; do sleep 0.01; done" 3>&- 4>&- &
    wait_until 10 test -e "$T/in"
    flock "$T/exact" true 3>&- 4>&- &
    wait_until 10 grep -q -- "-> FLOCK .*:$(stat -c %i "$T/exact") " /proc/locks
    run dlock --status --json --lock-file="$T/exact"
    equals "$(grep -o '"pid":' <<<"${output#*\"holders\"}" | wc -l)" 1
    touch "$T/out"
    wait
}

# The holder is found under whatever name its file system has: nested, dlock, flock(1).
holder_is_found() {
    run timeout 20 dlock --lock-file="$1" env -u DLOCK_HELD dlock -v --lock-file="$1" echo in
    [[ $status -eq 0 && $output == *'already holds the lock'*in ]]
    flock "$1" sleep 600 3>&- 4>&- &
    echo $! >"$T/flock.pid"
    wait_until 10 not flock -n "$1" true
    fails_with 75 "held by $(id -un)@$(hostname) [(]pid $!, flock" dlock -v -n --lock-file="$1" true
    fails_with 0 "[(]pid $!, flock; running[)]" dlock --status --lock-file="$1"
    pkill -P "$!"
    wait "$!" || true
}

@test "--lock-file: the holder is found even if stat(2) names another device than /proc/locks, as on btrfs" {
    holder_is_found "$T/plain"
    export LD_PRELOAD=$HELPERS/fault_other_device.so
    holder_is_found "$T/exact"
}

# in_chroot COMMAND...: runs the command in a root that is no mount point, so /proc/self/mountinfo has no row for it.
in_chroot() {
    # shellcheck disable=SC2016
    unshare -m bash -c 'mkdir "$T/root" || exit
        for dir in "$T" /bin /dev /etc /lib /lib64 /proc /usr "$(dirname "$DLOCK")" "$HELPERS"; do
            [ ! -d "$dir" ] || { mkdir -p "$T/root$dir" && mount --rbind "$dir" "$T/root$dir"; } || exit
        done
        exec chroot "$T/root" "$@"' bash "$@"
}

@test "--lock-file on btrfs in a chroot whose root is no mount point: the holder is found" {
    [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip 'needs root and mounts'
    export DLOCK HELPERS
    export NEVER
    export -f equals fails_with holder_is_found not rest run wait_until
    in_chroot bash -ec 'not grep "^[^ ]* [^ ]* [^ ]* [^ ]* / " /proc/self/mountinfo
        export LD_PRELOAD=$HELPERS/fault_other_device.so # stat(2) names another device, as on btrfs
        holder_is_found /exact
        chmod 600 /exact # its directory is readable
        flock /exact setpriv --reuid=65534 --regid=65534 --clear-groups dlock --status --lock-file=/exact'
}

@test "--lock-file: a file with the same inode number on another file system is another file" {
    [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip 'needs root and mounts'
    mkdir "$T/one" "$T/other"
    # shellcheck disable=SC2016
    run unshare -m sh -c 'for dir in one other; do mount -t tmpfs none "$T/$dir" && : >"$T/$dir/exact" && stat -c %i "$T/$dir/exact"; done
        flock "$T/one/exact" dlock --status --lock-file="$T/other/exact"; echo $?'
    equals "${lines[0]}" "${lines[1]}"
    equals "${lines[*]:2}" "$T/other/exact: free 1"
}

@test "--lock-file on overlayfs: the holder is found" {
    mkdir "$T/lower" "$T/upper" "$T/work" "$T/merged"
    : >"$T/lower/exact"
    mount -t overlay overlay -o "lowerdir=$T/lower,upperdir=$T/upper,workdir=$T/work" "$T/merged" 2>/dev/null || skip 'no overlayfs here'
    holder_is_found "$T/merged/exact"
}

@test "--lock-file without /proc: a held lock is not reported as free, and a lock inside the same lock does not wait" {
    [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip 'needs root and mounts'
    [ -z "${SANITIZER:-}" ] || skip 'a sanitizer needs /proc, even for its options'
    local flock
    for flock in 'flock -n' 'flock -n -s'; do
        run unshare -m sh -c "mount -t tmpfs none /proc && exec $flock '$T/exact' dlock --status --lock-file='$T/exact'"
        equals "$status" 0
        [[ $output == *'another client'* ]]
        fails_with 75 'another client' \
            unshare -m sh -c "mount -t tmpfs none /proc && exec $flock '$T/exact' dlock -v --wait-until-free -n --lock-file='$T/exact'"
    done
    run timeout 20 dlock --lock-file="$T/exact" unshare -m sh -c \
        "mount -t tmpfs none /proc && exec dlock --lock-file='$T/exact' echo in"
    equals "$status $output" '0 in'
    run dlock --status --lock-file="$T/exact"
    equals "$status" 1
    flock -n "$T/exact" true
}

@test "--lock-file: a run that has ended does not count as an outer lock, whoever holds the file now" {
    dlock --lock-file="$T/exact" --owner=me -- sh -c 'echo "$DLOCK_HELD"' >"$T/held_by"
    hold_lock '' --lock-file="$T/exact"
    fails_with 75 '' env DLOCK_HELD="$(cat "$T/held_by")" dlock -n --lock-file="$T/exact" touch "$T/ran"
    end_hold
}

# claim_of PID: the descriptor of its claim.
# shellcheck disable=SC2046
claim_name() { printf '@dlock-claim %x %x ' $(stat -c '%d %i' "$T/exact"); }
claim_of() {
    local socket=$(grep -o "[0-9]* $(claim_name)" /proc/net/unix | grep -o '^[0-9]*')
    find "/proc/$1/fd" -lname "socket:\[$socket\]" -printf '%f\n'
}

@test "--lock-file: no claim outlives the lock, even if another process shares it or all are killed" {
    dlock --lock-file="$T/exact" -- sh -c 'echo "$DLOCK_HELD" >"$T/held_by"; touch "$T/held"; until [ -e "$T/held.end" ]; do sleep 0.01; done' 3>&- 4>&- &
    HOLDER=$!
    echo "$HOLDER" >"$T/holder.pid"
    wait_until 10 test -e "$T/held"
    local claim=$(claim_of "$HOLDER") file=$(find "/proc/$HOLDER/fd" -lname "$T/exact" -printf '%f\n')
    [ "$claim" -lt "$file" ] # the kernel closes them in this order
    python3 - "$HOLDER" "$claim" <<'P' 3>&- 4>&- &
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
pinned = libc.syscall(434, int(sys.argv[1]), 0)  # pidfd_open
if pinned < 0 or libc.syscall(438, pinned, int(sys.argv[2]), 0) < 0:  # pidfd_getfd
    sys.exit("cannot share the socket")
open(os.environ["T"] + "/shared", "w").close()
time.sleep(600)
P
    echo $! >"$T/sharer.pid"
    wait_until 10 test -e "$T/shared"
    end_hold
    wait "$HOLDER"
    flock -o "$T/exact" sleep 600 3>&- 4>&- &
    echo $! >"$T/other.pid"
    wait_until 10 not flock -n "$T/exact" true
    fails_with 75 '' env DLOCK_HELD="$(cat "$T/held_by")" dlock -n --lock-file="$T/exact" touch "$T/ran"
    [ "$(grep -c "$(claim_name)" /proc/net/unix)" = 1 ] # the socket still exists, but nobody listens
    [ ! -e "$T/ran" ]
}

@test "--lock-file: another user who fills the queue of the holder's claim cannot keep it full" {
    hold_lock '' -t 10s --lock-file="$T/exact"
    cat >"$T/fill.py" <<'P'
import socket, sys
name = next(line.split("@", 1)[1].rstrip("\n") for line in open("/proc/net/unix") if sys.argv[1] in line)
most = int(sys.argv[2])
for count in range(most):
    one = socket.socket(socket.AF_UNIX)
    one.setblocking(False)
    try:
        one.connect("\0" + name)
    except BlockingIOError:
        sys.exit(1)
P
    fails_with 1 '' python3 "$T/fill.py" "$(claim_name)" 100000
    wait_until 10 python3 "$T/fill.py" "$(claim_name)" 1
    end_hold
    wait "$HOLDER"
}

@test "--lock-file: if another process keeps the queue of the holder's claim full, a dlock inside asks for a second, then goes on" {
    cat >"$T/fill.py" <<'P'
import os, socket
inode = "%x " % os.stat("exact").st_ino
name = next(line.split("@", 1)[1].rstrip("\n") for line in open("/proc/net/unix") if "dlock-claim" in line and inode in line)
while True:
    one = socket.socket(socket.AF_UNIX)
    one.setblocking(False)
    try:
        one.connect("\0" + name)
    except BlockingIOError:
        break
P
    cd "$T"
    # A stopped holder does not empty the queue. It is found in another way: its process is an ancestor.
    # shellcheck disable=SC2016
    fails_with 0 'cannot check the lock that dlock runs under: too many processes' timeout 20 dlock -t 60 --lock-file=exact -- \
        sh -c 'kill -STOP "$PPID"; python3 fill.py; dlock -v --lock-file=exact true; status=$?; kill -CONT "$PPID"; exit "$status"'
}

@test "a dlock inside a run with --lock-file or --fallback=file finds the file" {
    cd "$T"
    run timeout 20 dlock --lock-file=exact --name=job -- sh -c 'cd / && dlock --current && dlock -v --lock-file="$T/exact" echo nested'
    [[ $status -eq 0 && $output == *'job (file)'*'already holds the lock'*nested ]]
    # The lock is the file: one of the same name in another directory is another lock.
    fails_with 0 ': acquired \(file' timeout 20 dlock --lock-file=exact --name=job -- dlock -v job true
    run timeout 20 dlock --lock-file=exact -- dlock --extend
    [[ $status -eq 78 && $output == *'stores none in a --lock-file'* ]]
    fails_with 78 '--release needs a record of the lock' timeout 20 dlock --lock-file=exact --name=job -- dlock --release job
    fails_with 78 '--extend needs a record of the lock' timeout 20 dlock --lock-file=exact --name=job -- dlock --extend job
    # The lock is in a directory with a relative path, because Redis is unreachable; it is not tried again.
    env -u DLOCK_BACKEND -u DLOCK_LOCK_DIR timeout 20 dlock -r "unix://$T/nowhere" --retry-for=0 --lock-dir='a dir' --fallback=file job -- \
        sh -c 'cd / && dlock -v job echo nested && dlock --extend && dlock --current' >"$T/out" 2>&1
    grep -q 'already holds the lock' "$T/out"
    grep -q '^job (file), lease ends' "$T/out"
    equals "$(grep -c unreachable "$T/out")" 1
}

@test "--lock-file attached to a script: no process inside waits for it, and --current shows it" {
    local mode
    for mode in '' -s; do
        run timeout 20 sh -c "dlock --attach $mode --lock-file='$T/exact' && dlock $mode --lock-file='$T/exact' echo in
            dlock -v --attach $mode --lock-file='$T/exact'
            dlock -v --wait-until-free --lock-file='$T/exact'; echo \$?
            dlock --current --lock-file='$T/exact'"
        [[ $output == in*'is already running under the lock'*'waiting would deadlock'*64*"$T/exact (file)" ]]
        wait_until 10 flock -n "$T/exact" true
    done
    fails_with 64 'in another mode' timeout 20 sh -c "dlock --attach -s --lock-file='$T/exact' && dlock --lock-file='$T/exact' echo in; exit \$?"
    run timeout 20 sh -c "dlock --attach --name=a --lock-file='$T/exact' && dlock --name=b --lock-file='$T/exact' echo in; exit \$?"
    equals "$status $output" '0 in' # the file is the lock, whatever its name
    run dlock --lock-file="$T/exact" dlock --current --json --lock-file="$T/exact"
    equals "$status" 0
    [[ $output == *'"mode":"exclusive","expires_at":null,"ttl_remaining":null}' ]]
}

@test "--lock-file: a file that may not be created is reported as that: exit 77" {
    [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || skip 'needs root, to become another user'
    local dir
    dir=$(mktemp -d /tmp/dlock-test-XXXXXX)
    chmod 755 "$dir"
    cp "$DLOCK" "$dir/dlock"
    run setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent "$dir/dlock" --lock-file="$dir/new" true
    rm -r "$dir"
    equals "$status" 77
    [[ $output == *'cannot open the lock file'*'Permission denied'* ]]
}

@test "--lock-file: another user's file in a directory like /tmp works, although the kernel lets only its owner open it with O_CREAT" {
    : >"$T/exact"
    LD_PRELOAD=$HELPERS/fault_protected_regular.so run dlock --lock-file="$T/exact" -- env -u LD_PRELOAD flock -n "$T/exact" true
    equals "$status $output" '1 '
    LD_PRELOAD=$HELPERS/fault_protected_regular.so run dlock --lock-file="$T/new" echo in
    equals "$status $output" '0 in'
}

@test "--lock-file: a file removed or replaced while the command runs is a lost lock" {
    local change status start
    touch "$T/new"
    for change in "rm $T/exact" "mv $T/new $T/exact"; do
        rm -f "$T/exact"
        hold_lock '' --lock-file="$T/exact" -t 10
        status=0 start=$(now)
        $change
        wait "$HOLDER" || status=$?
        equals "$status" 124
        within 0 "$start"
        grep -q 'was removed or replaced' "$T/held.err"
    done
}

@test "the removal of a lock file is noticed at once, without waiting for a check" {
    hold_lock job --lock-dir="$D" -t 1h
    sleep 0.1 # the watch starts after the command's first moments
    local start=$(now)
    rm "$D/dlock:job.lock"
    wait_until 5 grep -q 'the lock is lost' "$T/held.err"
    within 0 "$start"
}

@test "a command of some milliseconds uses no inotify instance, a longer one uses one" {
    local where count='ls -l "/proc/$PPID/fd" | grep -c inotify'
    for where in "--lock-dir=$D job" --lock-file="$D/exact"; do
        # A busy machine may take longer for this command than the watch's delay.
        wait_until 20 sh -c "[ \"\$(dlock $where -- sh -c '$count')\" = 0 ]"
        run dlock $where -- sh -c "for i in \$(seq 200); do sleep 0.05; $count && break; done"
        [[ $output == *[12] ]] # the watch polls a copy of the descriptor
    done
}

@test "neither a holder nor a waiter waits for the kernel, which takes up to 20 ms to close an inotify instance" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    local where
    for where in "--lock-dir=$D job" --lock-file="$D/exact"; do
        LD_PRELOAD=$HELPERS/fault_inotify_close.so hold_lock '' -v $where
        is_watched() { ls -l "/proc/$HOLDER/fd" | grep -q inotify; }
        wait_until 10 is_watched
        LD_PRELOAD=$HELPERS/fault_inotify_close.so run dlock -w 0.2 $where true
        equals "$status" 75
        end_hold
        wait "$HOLDER"
        [ ! -e "$T/closed" ]
    done
}

@test "inotify instances that dlock leaves to the kernel are closed in time for later runs" {
    # A user namespace has its own limit.
    unshare -r sh -c 'echo 5 >/proc/sys/user/max_inotify_instances' 2>/dev/null || skip 'no limit can be set'
    # shellcheck disable=SC2016
    run unshare -r sh -c 'echo 5 >/proc/sys/user/max_inotify_instances
        for i in $(seq 20); do dlock -v job -- sh -c "until ls -l /proc/\$PPID/fd | grep -q inotify; do sleep 0.02; done" & wait; done'
    equals "$status" 0
    [[ $output != *inotify* ]]
}

@test "without inotify the removal of a lock file is noticed within about a second, and -v says why it takes so long" {
    local where
    for where in "--lock-dir=$D job" --lock-file="$D/exact"; do
        rm -f "$T"/held "$T"/held.*
        LD_PRELOAD=$HELPERS/fault_inotify.so hold_lock '' -v -t 1h $where
        wait_until 10 grep -q 'cannot report changes to the lock (no inotify(7) .*every 1s' "$T/held.err"
        local start=$(now)
        rm "$D/dlock:job.lock" "$D/exact" 2>/dev/null || true
        wait_until 9 grep -q 'the lock is lost' "$T/held.err"
        within 3000 "$start"
        wait "$HOLDER" || true
    done
}

@test "the move of a lock directory is noticed at once, too" {
    local where start
    for where in "--lock-dir=$D job" "--lock-file=$D/exact"; do
        rm -rf "$D" "$D.old" "$T"/held*
        mkdir -m 700 "$D"
        hold_lock '' -t 1h $where
        sleep 0.1 # the watch starts after the command's first moments
        start=$(now)
        mv "$D" "$D.old"
        wait_until 5 grep -q 'the lock is lost' "$T/held.err"
        within 0 "$start"
    done
}

@test "in a shared --lock-dir a second user is refused; in their own directories two users do not exclude each other" {
    local nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent "$T/copy" -n)
    let_others_into "$T" || skip 'needs root, to become another user, who reaches the program'
    install -m 755 "$DLOCK" "$T/copy"
    mkdir -m 1777 "$D.shared"
    hold_lock job --lock-dir="$D.shared"
    fails_with 77 'belongs to user root; use --lock-file=PATH or Redis for locks of several users' "${nobody[@]}" --lock-dir="$D.shared" job true
    fails_with 0 '' "${nobody[@]}" job true
}

@test "--on-degraded: each of warn, warn-throttled, proceed and fail does what it says" {
    unset DLOCK_BACKEND
    run dlock --lock-dir="$D" job true
    equals "$status" 0
    [[ $output == "dlock: job: no Redis is configured (DLOCK_REDIS, $HOME/.config/dlock/dlock.conf, "*"/dlock.conf); this lock holds on this host and for this user only"* ]]
    run dlock --lock-dir="$D" --status a b c
    equals "$status $(grep -c 'no Redis is configured' <<<"$output") $(grep -c ': free' <<<"$output")" '1 1 3'
    run dlock --lock-dir="$D" --on-degraded=proceed job true
    equals "$status$output" 0
    run dlock --lock-dir="$D" -q job true
    [[ $status == 0 && $output == *'no Redis is configured'* ]]
    mkdir -m 1777 "$D.shared"
    run dlock --lock-dir="$D.shared" job true
    [[ $output == *'; this lock holds on this host only; use --backend=file'* ]]
    run dlock --lock-dir="$D" --on-degraded=warn-throttled job true
    [[ $output == *'no Redis is configured'* ]]
    run dlock --lock-dir="$D" --on-degraded=warn-throttled job true
    equals "$status$output" 0
    touch -d '2 hours ago' "$D"/.degraded-*
    run dlock --lock-dir="$D" --on-degraded=warn-throttled job true
    [[ $output == *'no Redis is configured'* ]]
    fails_with 78 '--on-degraded=fail forbids a file lock' dlock --lock-dir="$D" --on-degraded=fail job touch "$T/ran"
    [ ! -e "$T/ran" ]
    # A dlock that is told to use a file gets no warning.
    DLOCK_ON_DEGRADED=fail run dlock --lock-dir="$D" --backend=file job true
    equals "$status$output" 0
}

@test "--fallback=file is off by default; if set, dlock uses the file lock and says so" {
    unset DLOCK_BACKEND
    run dlock -r "unix://$T/nowhere" --retry-for=0 job touch "$T/ran"
    equals "$status" 69
    [ ! -e "$T/ran" ]
    run dlock -r "unix://$T/nowhere" --retry-for=0 --lock-dir="$D" --fallback=file job -- sh -c 'echo $DLOCK_HELD_BACKEND'
    equals "$status" 0
    [[ $output == *'Redis is unreachable ('*'No such file'*'); using a file lock instead, which holds on this host only (--fallback=file)'*$'\nfile' ]]
    # The wait goes on without starting again: half of the minute is over when Redis is given up.
    stop_time
    dlock --lock-dir="$D" --backend=file job -- sh -c "touch '$T/in'; exec sleep 600" 2>/dev/null 3>&- &
    echo $! >"$T/file.pid"
    wait_until 10 test -e "$T/in"
    dlock -r "unix://$T/nowhere" -v -w 60 --retry-for=20 --lock-dir="$D" --fallback=file job touch "$T/ran" 2>"$T/err" 3>&- 4>&- &
    local waiter=$!
    echo "$waiter" >"$T/waiter.pid"
    wait_until 10 grep -q 'retrying for up to another' "$T/err"
    set_boot "=$((STILL + 30))"
    wait_until 10 grep -q -e '(--fallback=file)' "$T/err"
    waits() { dlock --lock-dir="$D" --backend=file --status --json job | grep '"waiters":1,'; }
    wait_until 10 waits
    set_boot "=$((STILL + 61))"
    wait_until 20 gone "$waiter"
    status=0
    wait "$waiter" || status=$?
    equals "$status" 75
    unset LD_PRELOAD
    # The fallback is for a Redis that is down, not for one that refuses the login.
    start_redis redis --requirepass secret
    run dlock -r "unix://$T/redis.sock" --lock-dir="$D" --fallback=file job touch "$T/ran"
    equals "$status" 77
    [ ! -e "$T/ran" ]
    # With -n there is no wait for the lock, however long the server did not answer.
    kill -STOP "$(cat "$T/redis.pid")"
    dlock --lock-dir="$D" --backend=file --acquire -t 1h held >/dev/null
    fails_with 75 'no answer in time' dlock -n -r "unix://$T/redis.sock" --connect-timeout=200ms --lock-dir="$D" --fallback=file held true
    [[ $(dlock --lock-dir="$D" --backend=file --status --json held) == *'"conflicts":1,'*'"waited":0.000,'* ]]
}

@test "--lock-file takes no NAME: the words are the command, the name is --name or the path, and the lock may be held without an end" {
    local file=$T/exact
    fails_with 0 "^$file ran$" dlock --lock-file="$file" -- sh -c 'echo "$DLOCK_NAME ran"'
    fails_with 0 "^$file$" dlock --lock-file="$file" -c 'echo $DLOCK_NAME'
    fails_with 0 '^job$' dlock --lock-file="$file" --name=job -- sh -c 'echo $DLOCK_NAME'
    fails_with 0 "^$file ran$" dlock --lock-file="$file" env WORD=ran sh -c 'echo "$DLOCK_NAME $WORD"'
    fails_with 64 "'job': --lock-file takes no NAME; use --name=job" dlock --lock-file="$file" job -- touch "$T/ran"
    fails_with 64 "'job': --lock-file takes no NAME; use --name=job" dlock job --lock-file="$file" touch "$T/ran"
    fails_with 127 '--lock-file takes no NAME; use --name=nosuchjob' dlock --lock-file="$file" nosuchjob touch "$T/ran"
    fails_with 1 "^$file: free" dlock --status --lock-file="$file"
    fails_with 64 'no command given' dlock --lock-file="$file" --
    fails_with 64 "--lock-file: '': the path is empty" dlock --lock-file= -- touch "$T/ran"
    fails_with 0 'TTL infinity .*ran' sh -c "dlock -v --lock-file='$file' --ttl=infinity -- echo ran 2>&1 | tr '\n' ' '"
    hold held
    dlock --lock-file="$file" -t infinity -- "$T/held.sh" >"$T/said" 2>&1 3>&- 4>&- &
    echo $! >"$T/holder.pid"
    wait_until 10 test -e "$T/held"
    fails_with 1 '' flock -n "$file" true
    fails_with 75 "^dlock: $file: held by " dlock -v -n --lock-file="$file" -- true
    end_hold
    wait "$(cat "$T/holder.pid")"
    equals "$(cat "$T/said")" ''
    fails_with 64 '--ttl: infinity needs --lock-file' dlock --ttl=infinity job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "files of an expired --hold-at-least are removed by the next process that checks" {
    local name
    for name in a b c; do dlock --lock-dir="$D" --hold-at-least=300ms "$name" true; done
    dlock --lock-dir="$D" --hold-at-least=60s kept true
    [ -e "$D/dlock:a.lock" ]
    wait_until 10 not dlock --lock-dir="$D" --status -q a
    [ ! -e "$D/dlock:a.lock" ]
    wait_until 10 eval '[ "$(dlock --lock-dir="$D" --list | wc -l)" -eq 2 ]' # the title, and the kept lock
    equals "$(cd "$D" && echo *.lock)" dlock:kept.lock
    # No file is removed while flock(1) holds it.
    dlock --lock-dir="$D" --hold-at-least=1ms other true
    flock "$D/dlock:other.lock" sleep 60 3>&- 4>&- &
    echo $! >"$T/flock.pid"
    wait_until 10 dlock --lock-dir="$D" --status -q other
    [ -e "$D/dlock:other.lock" ]
}

@test "--lock-file: if no thread can be started to wait in the kernel, the file is polled and locked" {
    flock "$T/exact" sleep 1 3>&- 4>&- &
    wait_until 10 not flock -n "$T/exact" true
    LD_PRELOAD=$HELPERS/fault_pthread_create.so dlock -w 20s --lock-file="$T/exact" true
    wait
}

@test "--attach: the process ends just as its lock is acquired: 64, and the lock is free" {
    sleep 60 3>&- 4>&- &
    local other=$! status=0
    export DLOCK_LOCK_DIR=$D
    touch "$T/stop_at_section"
    LD_PRELOAD=$HELPERS/fault_stop_at.so dlock "--attach=$other" job 2>"$T/err" 3>&- 4>&- &
    local dlock=$!
    wait_until 10 grep -q '^State:[[:space:]]T' "/proc/$dlock/status"
    kill -KILL "$other"
    wait "$other" || true
    kill -CONT "$dlock"
    wait "$dlock" || status=$?
    equals "$status" 64
    grep -q 'has ended; nothing is locked' "$T/err"
    dlock -n job true
}
