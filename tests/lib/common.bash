# For all tests: the program, a lock directory and a redis-server for each test, and waits for
# conditions with a bound.
# shellcheck shell=bash

TESTS=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${DLOCK:=$TESTS/../src/dlock}"
: "${HELPERS:=$TESTS/helpers}"
export HELPERS
# A pipe without a writer: a shell that reads from it sleeps without executing a program.
NEVER=${BATS_RUN_TMPDIR:-/dev/null}/never
[ -p "$NEVER" ] || mkfifo -m 666 "$NEVER" 2>/dev/null || true

# A static program loads no library, so a test cannot put one in the place of its system calls. Skips a
# test that does, itself or through functions.
skip_if_static() {
    local body before='' name
    body=$(declare -f "$BATS_TEST_NAME")
    while [ "$body" != "$before" ]; do
        before=$body
        for name in $(compgen -A function | grep -vxE 'setup|skip_if_static'); do
            [[ $body == *"$name ()"* || ! $body =~ (^|[^[:alnum:]_])$name($|[^[:alnum:]_]) ]] || body+=$(declare -f "$name")
        done
    done
    ! [[ $body == *LD_PRELOAD* || $body == */fault_* ]] || skip 'a static program'
}

# The tests must not depend on the machine's configuration and terminal.
common_setup() {
    [ "${STATIC:-}" != yes ] || skip_if_static
    T=$BATS_TEST_TMPDIR
    mkdir -p "$T/home" "$T/bin"
    local variable
    for variable in $(compgen -e | grep '^DLOCK_'); do unset "$variable"; done
    unset XDG_CONFIG_HOME REDISCLI_AUTH NOTIFY_SOCKET CI
    # Without this, a sanitizer refuses to be loaded after a library that a test preloads.
    export ASAN_OPTIONS=verify_asan_link_order=0
    export HOME=$T/home SHELL=/bin/sh LC_ALL=C.UTF-8 T
    ln -sf "$DLOCK" "$T/bin/dlock"
    # If PATH has another user's folder that cannot be searched, execvp(3) reports a missing command as one that
    # cannot be run.
    local folder folders
    IFS=: read -ra folders <<<"$PATH"
    export PATH=$T/bin
    for folder in "${folders[@]}"; do [ ! -x "$folder" ] || PATH+=:$folder; done
}

# Kills what the test has started in the background and not disowned, and what it has noted in $T/*.pid.
common_teardown() {
    local file jobs
    mapfile -t jobs < <(jobs -rp)
    disown -a # otherwise bash reports each process that is killed
    [ ${#jobs[@]} -eq 0 ] || kill -KILL "${jobs[@]}" 2>/dev/null || true
    for file in "$T"/*.pid; do
        [ -e "$file" ] || continue
        kill -KILL "$(cat "$file")" 2>/dev/null || true
    done
}

# For test files that do not define their own.
setup() { common_setup; }
teardown() { common_teardown; }

# has_command PID: this dlock has a child other than its guard, which it reaps only after the release.
has_command() { pgrep -l -P "$1" | grep -v dlock-guard; }

# wait_until SECONDS COMMAND...: repeats the command until it succeeds; fails when time is up. The
# pauses grow, because each try costs processor time that other tests need. The limit is 5 s at
# least, so that a busy machine fails no test; use `within` to check that something is quick.
wait_until() {
    local end=$((${EPOCHREALTIME/[.,]/} + ($1 < 5 ? 5 : $1) * 1000000)) tries=0
    shift
    until "$@" >/dev/null 2>&1; do
        if ((${EPOCHREALTIME/[.,]/} > end)); then
            echo "not in time: $*" >&2
            return 1
        fi
        if ((tries++ < 10)); then rest 0.01; elif ((tries < 40)); then rest 0.03; else rest 0.1; fi
    done
}
# rest SECONDS: in a subshell, because of two bugs of bash 5.2. A shell that runs only builtins may miss the end of a
# child on a busy machine; the child stays a zombie, which is not gone(), until the shell waits for another one. And if
# the time is over before read waits, read gives the shell a signal mask at random.
rest() { (read -rt "$1" <>"$NEVER") || true; }

# let_others_into FOLDER: opens the folders that bats has made above FOLDER to other users. False if the test cannot
# become another user, or if that user cannot reach the folder or the program.
let_others_into() {
    local dir=$1 path
    [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || return
    while [[ $dir == "$BATS_RUN_TMPDIR"* ]]; do chmod o+x "$dir"; dir=${dir%/*}; done
    for path in "$1" "$DLOCK"; do
        setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$path" || return
    done
}

# start_redis [NAME [ARGUMENTS...]]: starts a server on the Unix socket $T/NAME.sock.
start_redis() {
    local name=${1:-redis}
    shift || true
    redis-server --port 0 --unixsocket "$T/$name.sock" --daemonize no --save '' --appendonly no \
        --dir "$T" --logfile "$T/$name.log" "$@" >/dev/null 2>&1 3>&- 4>&- &
    echo $! >"$T/$name.pid"
    disown
    wait_until 20 redis_answers "$name"
}

redis_answers() { redis-cli -s "$T/$1.sock" ping 2>&1 | grep -qE 'PONG|NOAUTH|LOADING'; }

stop_redis() {
    local pid
    pid=$(cat "$T/${1:-redis}.pid")
    kill -KILL "$pid" 2>/dev/null || true
    wait_until 10 gone "$pid"
}

redis() { redis-cli -s "$T/redis.sock" "$@"; }

# Makes the user "locker", with exactly the permissions that the manual names.
manual_user() {
    local manual
    manual=$(sed -n '/^redis-cli ACL SETUSER/,/^\.Ed/p' "$TESTS/../doc/dlock-redis.7" | sed '/^\.Ed/d; s/\\e$/\\/')
    eval "redis ${manual#redis-cli}"
}

# manual_adds WHAT: the permissions that the manual adds for WHAT, in the same section.
manual_adds() { sed -nE "s/^\.It (Fl )?-?$1 .*Ta Li (\+.*) Ta .*/\2/p" "$TESTS/../doc/dlock-redis.7" | grep .; }

not() { ! "$@"; }

# gone PID: true if there is no such process. An empty PID is a mistake in the test.
gone() {
    [ -n "${1:-}" ] || { echo 'no process to look for' >&2; return 1; }
    ! kill -0 "$1" 2>/dev/null
}

# reword TEXT [FROM TO]...: prints the text of an example with each FROM replaced by TO.
reword() {
    local text=$1
    shift
    while [ $# -gt 0 ]; do
        [[ $text == *"$1"* ]] || { echo "not in the example: $1" >&2; return 1; }
        text=${text//"$1"/$2}
        shift 2
    done
    printf '%s\n' "$text"
}

# fake_redis MODE [ARGUMENTS...]: starts a server that misbehaves, on $T/fake.sock.
fake_redis() {
    rm -f "$T/fake.sock"
    python3 "$TESTS/fakes/fake_redis.py" "$T/fake.sock" "$@" >"$T/fake.log" 2>&1 3>&- 4>&- &
    echo $! >"$T/fake.pid"
    echo $! >"$T/fake-$!.pid" # a test may start several, one after the other
    wait_until 30 test -S "$T/fake.sock"
}

# torture_proxy NAME: starts a proxy at $T/NAME.proxy for the server at $T/NAME.sock.
# ask_proxy NAME FAULT [NUMBERS...]: makes that proxy commit a fault (tests/torture/proxy.py).
torture_proxy() {
    rm -f "$T/$1.control"
    mkfifo "$T/$1.control"
    python3 "$TESTS/torture/proxy.py" "$T/$1.proxy" "$T/$1.sock" <>"$T/$1.control" >"$T/$1.said" 2>&1 3>&- 4>&- &
    echo $! >"$T/$1-proxy.pid"
    wait_until 30 test -S "$T/$1.proxy"
}
ask_proxy() {
    local name=$1 before
    before=$(grep -c "^ok" "$T/$name.said") || true
    shift
    echo "$*" >"$T/$name.control"
    wait_until 10 said_ok "$name" "$before"
}
said_ok() { [ "$(grep -c '^ok' "$T/$1.said")" -gt "$2" ]; }

# Prints a port that no process listens on now.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# set_wall SECONDS: from now on, the clock of processes with fault_wall_clock.so is SECONDS ahead.
set_wall() { echo "$1" >"$T/wall_clock.tmp" && mv "$T/wall_clock.tmp" "$T/wall_clock"; }

# suspended SECONDS: for the processes of with_suspends, the host was suspended for SECONDS since the test began,
# and for a day before that.
suspended() { set_boot $((86400 + $1)); }
set_boot() { echo "$1" >"$T/boot_clock.tmp" && mv "$T/boot_clock.tmp" "$T/boot_clock"; }
with_suspends() {
    [ -e "$T/boot_clock" ] || suspended 0
    LD_PRELOAD=$HELPERS/fault_boot_clock.so "$@"
}

# timeless COMMAND...: the command's clock stands at $STILL until set_boot =SECONDS, so no timeout passes in the
# command, which acts only on events. Processes that share a file lock compare their clocks, so this one is a day ahead
# of the others; stop_time stops the clock of every process that the test starts after it.
read -r STILL _ </proc/uptime
STILL=$((${STILL%.*} + 86400))
timeless() {
    [ -e "$T/boot_clock" ] || set_boot "=$STILL"
    LD_PRELOAD=$HELPERS/fault_boot_clock.so "$@"
}
stop_time() {
    set_boot "=$STILL"
    export LD_PRELOAD=$HELPERS/fault_boot_clock.so
}

# names_beside_job COUNT: prints names whose search in the table of a lock directory begins at the place of "job".
names_beside_job() {
    python3 - "$1" <<'P'
import sys
def place(text):
    value = 14695981039346656037
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return value % 1024
found, i = 0, 0
while found < int(sys.argv[1]):
    i += 1
    if place(f"dlock:other{i}") == place("dlock:job"):
        print(f"other{i}")
        found += 1
P
}

# fill_table TABLE FREE AGO NEEDED: gives all free places but FREE in a lock directory's table to other locks, each
# last used AGO seconds ago, with a success that must be kept for another NEEDED seconds.
fill_table() {
    python3 - "$@" <<'P'
import struct, sys, time
path, free, ago, needed = sys.argv[1], *map(int, sys.argv[2:])
def hashed(data, size):
    value = 14695981039346656037
    for at in range(0, len(data), size):
        value = (value ^ int.from_bytes(data[at:at + size], "little")) * 1099511628211 % 2**64
    return value
now = int(time.time() * 1000)
with open(path, "r+b") as f:
    f.seek(16)
    f.write(b"\xff" * 32)  # all slots are there
    f.seek(0, 2)
    f.truncate(max(f.tell(), 97 * 4096 + 1024 * 1024))
    for place in range(1024):
        f.seek(256 + 384 * place)
        if struct.unpack("<Q", f.read(8))[0]:
            continue
        if free:
            free -= 1
            continue
        key = hashed(b"dlock:filler%d" % place, 1)
        f.seek(256 + 384 * place)
        f.write(struct.pack("<Qq", key, now - ago * 1000 + place))
        run = b"1\t2\tstatus 0\t3\tu\th\tc\0"
        text = (b"dlock:filler%d\0" % place + run + run + b"7\0%d\0" % (now + needed * 1000)).ljust(122 * 8, b"\0")
        words = struct.pack("<QqQQ", key, now + 10**9, 0, 0) + text
        total = hashed(words, 8)
        f.seek(97 * 4096 + 1024 * place)
        f.write(struct.pack("<QQ", total, 0) + words)
P
}

# run COMMAND...: sets status, output (both streams) and lines. Replaces the function of bats, which warns about
# status 127, which dlock uses.
run() {
    status=0
    output=$("$@" 2>&1 3>&- 4>&-) || status=$?
    # shellcheck disable=SC2034
    mapfile -t lines <<<"$output"
}

# now: prints the time in milliseconds.
now() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

# within MILLISECONDS START: fails if more than MILLISECONDS + TEST_SLACK have passed since START. Every upper bound
# on a time is checked here, so that the machine's speed decides no test. Use `within` only if a program without the
# tested property takes seconds longer than that; otherwise start the program with `timeless`, or compare the time
# with one that is measured beside it. A build with a sanitizer may take much longer.
: "${TEST_SLACK:=$((${#SANITIZER} > 0 ? 15000 : 3000))}"
within() {
    local took=$(($(now) - $2)) most=$(($1 + TEST_SLACK))
    [ "$took" -le "$most" ] || {
        echo "it took $took ms, and may take $most: $1, and $TEST_SLACK for a slow machine" >&2
        return 1
    }
}

# fails_with STATUS PATTERN COMMAND...: the command must end with this status, and its output must match the
# extended regular expression.
fails_with() {
    local want=$1 pattern=$2
    shift 2
    run "$@"
    if [ "$status" -ne "$want" ] || ! grep -qE -- "$pattern" <<<"$output"; then
        printf 'status %s, wanted %s; output, wanted /%s/:\n%s\n' "$status" "$want" "$pattern" "$output" >&2
        return 1
    fi
}

# table: each line on stdin is a row "STATUS PATTERN COMMAND...", quoted as in the shell: the command must end
# with this status, and its whole output must match (^ and $ are the ends of the output). Prints each row that fails.
table() {
    local row rows=0 failed=0
    while IFS= read -r row; do
        [[ -n $row && $row != '#'* ]] || continue
        rows=$((rows + 1))
        eval "row_holds $row" </dev/null || { printf 'in the row: %s\n' "$row" >&2; failed=1; }
    done
    [ "$rows" -gt 0 ] && [ "$failed" -eq 0 ]
}
row_holds() {
    local want=$1 pattern=$2
    shift 2
    run "$@"
    [[ $status -eq $want && $output =~ $pattern ]] || {
        printf 'status %s, wanted %s; output, wanted /%s/:\n%s\n' "$status" "$want" "$pattern" "$output" >&2
        return 1
    }
}

# equals GOT WANTED: fails if the two differ.
equals() {
    [ "$1" = "$2" ] || {
        printf 'got    %q\nwanted %q\n' "$1" "$2" >&2
        return 1
    }
}

# hold NAME: makes the command $T/NAME.sh, which creates $T/NAME and runs until $T/NAME.end exists. In Perl, which
# sleeps without a process and, unlike bash in its read -t, keeps its signal mask.
# shellcheck disable=SC2016
hold() { printf '#!%s\nopen my $f, ">", q{%s.tmp}; print $f "$$\\n"; close $f; rename q{%s.tmp}, q{%s}; select undef, undef, undef, 0.03 until -e q{%s.end}\n' \
    "$(type -P perl)" "$T/$1" "$T/$1" "$T/$1" "$T/$1" >"$T/$1.sh"; chmod +x "$T/$1.sh"; }

# hold_lock NAME [DLOCK ARGUMENTS...]: holds the lock in the background; HOLDER is the pid. NAME is empty with --lock-file.
hold_lock() {
    local name=$1
    shift
    rm -f "$T/held" "$T/held.end" # of an earlier holder
    hold held
    dlock "$@" ${name:+"$name"} -- "$T/held.sh" >/dev/null 2>"$T/held.err" 3>&- 4>&- &
    HOLDER=$!
    echo "$HOLDER" >"$T/holder.$HOLDER.pid"
    wait_until 10 test -e "$T/held"
}

# needs_start_time: for tests in which a holder still runs after a wait of a second or more. Under qemu-user a
# process reads the start of qemu as its own start time, but others read the time of the earlier fork, so they
# think that the holder has ended.
needs_start_time() { [ -z "${EMULATED:-}" ] || skip 'qemu-user: a process is given a later start of its own than others are'; }

end_hold() { touch "$T/held.end"; }
