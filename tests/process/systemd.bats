#!/usr/bin/env bats
# What dlock tells a service manager, which is a fake or a real systemd.
load ../lib/common

setup() {
    common_setup
    export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks
}

# manager: makes a notify socket; each message becomes a line of $T/told, with | for the
# newlines in it and the number of descriptors that came with it.
manager() {
    cat >"$T/manager.py" <<'P'
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
name = os.environ["T"] + "/notify"
s.bind(name)
open(name + ".ready", "w").close()
while True:
    text, fds, _, _ = socket.recv_fds(s, 8192, 8)
    print(text.decode().replace("\n", "|"), *(["fds=%d" % len(fds)] if fds else []), flush=True)
    for fd in fds: os.close(fd)
P
    python3 "$T/manager.py" >"$T/told" 2>&1 3>&- 4>&- &
    echo $! >"$T/manager.pid"
    wait_until 10 test -e "$T/notify.ready"
    export NOTIFY_SOCKET=$T/notify
}

# notify TEXT...: sends a message from the command, as sd_notify(3) does.
notify() {
    cat >"$T/bin/notify" <<'P'
#!/usr/bin/env python3
import array, os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
name = os.environ["NOTIFY_SOCKET"]
name = "\0" + name[1:] if name[0] == "@" else name
fds = [0] if os.environ.get("WITH_FD") else []
s.connect(name)
socket.send_fds(s, ["\n".join(sys.argv[1:]).encode()], fds)
P
    chmod +x "$T/bin/notify"
}

told() { grep -qE -- "$1" "$T/told"; }

# bats test_tags=slow
@test "--heartbeat: signs of life from root count for another user's job" {
    local user=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent)
    let_others_into "$T" || skip 'needs root, to become another user, who reaches the program'
    mkdir -m 777 "$T/theirs"
    "${user[@]}" "$DLOCK" --lock-dir="$T/theirs/locks" --heartbeat -t 4s job -- \
        sh -c 'cd "$T/theirs" && echo "$NOTIFY_SOCKET" >new && mv new socket; until [ -e end ]; do sleep 0.03; done' 3>&- 4>&- &
    local dlock=$!
    echo "$dlock" >"$T/dlock.pid"
    wait_until 10 test -e "$T/theirs/socket"
    python3 - "$(cat "$T/theirs/socket")" <<'P'
import socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for i in range(24):
    s.sendto(b"WATCHDOG=1", "\0" + sys.argv[1][1:])
    time.sleep(0.25)
P
    touch "$T/theirs/end"
    wait "$dlock"
}

@test "the service manager is notified of the wait, of a longer start timeout, and of the acquired lock" {
    manager
    unset NOTIFY_SOCKET
    hold_lock job -t 60s
    NOTIFY_SOCKET=$T/notify dlock job true 2>/dev/null 3>&- 4>&- &
    local dlock=$! clock='([0-9-]{10} )?[0-9:]{8} [+-][0-9]{4}'
    wait_until 10 told '^STATUS=waiting for job: held by .* [(]pid [0-9]+, .*[)] since '"$clock, until $clock"' at the latest'
    wait_until 10 told '^EXTEND_TIMEOUT_USEC=[1-9][0-9]{7}$'
    not told READY
    end_hold
    wait "$dlock"
    wait_until 10 told '^STATUS=holding the lock job until '"$clock"', running true$'
    wait_until 10 told '^READY=1$'
    not told MAINPID
}

@test "a service manager outside the virtual machine is notified over vsock, with the socket type of the hypervisor" {
    local type name
    cat >"$T/manager.py" <<'P'
import os, socket, sys
s = socket.socket(socket.AF_UNIX, int(sys.argv[1]))
s.bind(os.environ["T"] + "/vsock.2.99")
s.listen(9)
open(os.environ["T"] + "/ready", "w").close()
while True:
    one, text = s.accept()[0], b""
    while part := one.recv(8192): text += part
    print(text.decode().replace("\n", "|"), flush=True)
P
    for type in 1 5; do # SOCK_STREAM, SOCK_SEQPACKET
        rm -f "$T/vsock.2.99" "$T/ready"
        python3 "$T/manager.py" $type >"$T/told" 2>&1 3>&- 4>&- &
        echo $! >"$T/manager.pid"
        wait_until 10 test -e "$T/ready"
        for name in vsock:2:99 "vsock-$([ $type = 1 ] && echo stream || echo seqpacket):2:99"; do
            : >"$T/told"
            NOTIFY_SOCKET=$name VSOCK_TYPE=$type LD_PRELOAD=$HELPERS/fault_vsock.so dlock job true
            wait_until 10 told '^READY=1$'
            told '^STATUS=holding the lock job until .*, running true$'
        done
        for name in vsock:2 vsock:2:98 vsock:x:99 vsock-dgram:2:99 vsock:2:99x vsock:2:4294967395 vsock:4294967298:99; do
            : >"$T/told"
            equals "$(NOTIFY_SOCKET=$name VSOCK_TYPE=$type LD_PRELOAD=$HELPERS/fault_vsock.so dlock job -- echo ran)" ran
            [ ! -s "$T/told" ]
        done
        kill "$(cat "$T/manager.pid")"
    done
}

@test "a service manager that does not answer over vsock does not delay the stop" {
    local i plain
    # The time that the command ran.
    lasts() {
        fails_with 124 '' env "$@" dlock -t 300ms job -- sh -c 'trap "" TERM
            date +%s%3N >"$T/begin"; while :; do date +%s%3N >"$T/tick"; sleep 0.01; done'
        echo $(($(cat "$T/tick") - $(cat "$T/begin")))
    }
    for i in {1..5}; do
        plain=$(lasts true=)
        [ "$(lasts NOTIFY_SOCKET=vsock:2:99 VSOCK_TYPE=1 VSOCK_SILENT=1 LD_PRELOAD="$HELPERS/fault_vsock.so")" -ge $((plain + 40)) ] || return 0
    done
    false
}

@test "a service that could not be started is not reported as ready" {
    manager
    fails_with 127 '' dlock job "$T/nosuch"
    run dlock job true
    wait_until 10 told '^READY=1$'
    equals "$(grep -c READY "$T/told")" 1
}

@test "a service is ready when the exec of its command has succeeded" {
    manager
    cp "$BASH" "$T/slow"
    python3 "$TESTS/helpers/hold_exec.py" lease "$T/slow" 3>&- 4>&- &
    echo $! >"$T/holder.pid"
    wait_until 10 test -e "$T/slow.ready"
    dlock job "$T/slow" -c true 3>&- 4>&- &
    local dlock=$!
    wait_until 10 test -e "$T/slow.held"
    not told 'READY|running'
    : >"$T/slow.go"
    wait "$dlock"
    wait_until 10 told '^STATUS=holding the lock job until .* running '
    wait_until 10 told '^READY=1$'
}

@test "a stop is reported to the service manager" {
    manager
    fails_with 124 '' dlock -t 300ms job sleep 60
    wait_until 10 told '^STATUS=the lock job is no longer held; stopping the command'
}

@test "a NOTIFY_SOCKET that is nonsense, gone or full changes nothing" {
    local socket
    for socket in nonsense "$T/nosuch" @ "@dlock-test-nobody" "$(printf '/%0200d' 0)" ''; do
        NOTIFY_SOCKET=$socket run dlock job echo ok
        equals "$status $output" '0 ok'
    done
    python3 - <<'P'
import os, socket, subprocess
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(os.environ["T"] + "/full")
c = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
c.setblocking(False)
try:
    while True: c.sendto(b"x", os.environ["T"] + "/full")
except BlockingIOError: pass
assert subprocess.run(["dlock", "job", "true"], env=dict(os.environ, NOTIFY_SOCKET=os.environ["T"] + "/full"), timeout=30).returncode == 0
P
}

@test "messages carry their priority only if stderr is a journal stream" {
    : >"$T/journal"
    run bash -c 'JOURNAL_STREAM=$(stat -c %d:%i "$T/journal") dlock -v job true 2>"$T/journal"; cat "$T/journal"'
    [[ ${lines[0]} == '<6>dlock: job: requesting'* ]]
    run bash -c 'JOURNAL_STREAM=$(stat -c %d:%i "$T/journal") dlock -t 300ms job sleep 60 2>"$T/journal"; cat "$T/journal"'
    [[ $output == *'<3>dlock: job: the lease of 300ms'* ]]
    run bash -c 'JOURNAL_STREAM=$(stat -c %d:%i "$T/journal") dlock -v job true 2>&1 | cat'
    [[ ${lines[0]} == 'dlock: job: requesting'* ]]
    JOURNAL_STREAM=nonsense run dlock -v job true
    [[ ${lines[0]} == 'dlock: job: requesting'* ]]
}

@test "--heartbeat: everything that the command sends is passed on to the service manager, except MAINPID" {
    manager
    notify
    run dlock --heartbeat job -- sh -c 'notify STATUS=working MAINPID=1 MAINPIDFD=1 "X_A=b c"; WITH_FD=1 notify FDSTORE=1; notify READY=1'
    equals "$status $output" '0 '
    wait_until 10 told '^STATUS=working\|X_A=b c$'
    wait_until 10 told '^FDSTORE=1 fds=1$'
    wait_until 10 told '^READY=1$'
    # The command reports itself when it is ready.
    equals "$(grep -c READY "$T/told")" 1
    not told MAINPID
}

@test "--heartbeat: the command's last messages are passed on too" {
    manager
    notify
    local i
    for i in {1..20}; do
        : >"$T/told"
        dlock --heartbeat job -- notify "STATUS=last words"
        wait_until 10 told '^STATUS=last words'
    done
}

@test "--heartbeat: systemd-notify works and gets its answer" {
    command -v systemd-notify >/dev/null || skip 'no systemd-notify'
    local start
    start=$(now)
    run dlock --heartbeat job -- systemd-notify --status=working WATCHDOG=1
    equals "$status" 0
    within 1000 "$start" # it would wait for 5 s
}

@test "--heartbeat: the command is told the interval, or the service manager's if that is shorter" {
    run dlock --heartbeat -t 10s --grace=4s job -- sh -c 'echo "$WATCHDOG_USEC ${WATCHDOG_PID-unset} $NOTIFY_SOCKET"'
    [[ $output == '6000000 unset @dlock/'* ]]
    WATCHDOG_USEC=5000000 WATCHDOG_PID=1 run dlock --heartbeat -t 10s --grace=4s job -- sh -c 'echo "$WATCHDOG_USEC ${WATCHDOG_PID-unset}"'
    equals "$output" '5000000 unset'
}

@test "--heartbeat: signs of life from another user count for nothing" {
    [ "$(id -u)" -eq 0 ] && [ -x /usr/bin/python3 ] || skip 'needs another user'
    run dlock --heartbeat -t 2s job -- sh -c 'i=0; while [ $i -lt 100 ]; do setpriv --reuid=65534 --clear-groups /usr/bin/python3 -c "
import os, socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendto(b\"WATCHDOG=1\", \"\\0\" + os.environ[\"NOTIFY_SOCKET\"][1:])" || exit 3; i=$((i + 1)); sleep 0.1; done'
    equals "$status" 124
}

# --- a real systemd ------------------------------------------------------

# boot DRIVER: runs systemd as the first process of its own namespaces, with the
# units in $T/units, until the script DRIVER has ended; its output goes to $T/driver.
# Each has its own cgroup, because two in one would remove each other's cgroups.
boot() {
    [ "$(id -u)" -eq 0 ] && [ -x /lib/systemd/systemd ] && [ "${SANITIZER:-}" = '' ] || skip 'needs root and systemd'
    cat >"$T/units/driver.service" <<U
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
Environment=T=$T PATH=$PATH DLOCK_BACKEND=file DLOCK_LOCK_DIR=/run/locks
ExecStart=/bin/sh $T/driver.sh
ExecStopPost=/bin/kill -s RTMIN+14 1
StandardOutput=file:$T/driver
StandardError=file:$T/driver
U
    printf '%s\n' '[Unit]' DefaultDependencies=no Wants=driver.service >"$T/units/test.target"
    printf '%s\n' "$1" >"$T/driver.sh"
    cat >"$T/boot.sh" <<'S'
mount --make-rprivate / && mount -t tmpfs none /run && mkdir -p /run/systemd/system && cp "$T"/units/* /run/systemd/system/
mount -t tmpfs none /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup || exit 77
find /sys/fs/cgroup -mindepth 1 -type d >"$T/other_cgroups"
exec env -i container=lxc /lib/systemd/systemd --system --unit=test.target --log-target=null --show-status=no
S
    cat >"$T/machine.sh" <<'S'
mkdir "$T/cgroups" && mount -t cgroup2 none "$T/cgroups" && cd "$T/cgroups/$(sed -n 's/^0:://p' /proc/self/cgroup)" || exit 77
own=dlock-test-$$
mkdir "$own" || exit 77
sh -c 'echo $$ >"$1/cgroup.procs" && exec timeout --kill-after=5 60 unshare -fmpiuC --mount-proc --kill-child sh "$T/boot.sh"' sh "$own"
status=$?
tries=0 # the last of its processes may end after unshare
until find "$own" -depth -type d -exec rmdir {} + || [ $((tries += 1)) -gt 50 ]; do sleep 0.1; done
exit $status
S
    unshare -fmpiuC --mount-proc --kill-child true 2>/dev/null || skip 'no namespaces here'
    run unshare -m sh "$T/machine.sh" </dev/null
    [[ $status != 124 && $status != 137 ]] # it was killed by timeout
    [ ! -s "$T/other_cgroups" ]
    [ -s "$T/driver" ] || skip "systemd does not start here"
}

# The example's unit, without what would hide this dlock, and with what a file lock needs.
hardening() {
    sed -n '/^# Hardening/,/^$/ { /^[A-Z]/p }' "$TESTS/../doc/examples/leader.service" | grep -vE '^(PrivateTmp|ProtectHome)='
    echo ReadWritePaths=/run
}

@test "a real hardened unit of Type=notify: activating while it waits, even beyond its timeout; active with the lock" {
    mkdir "$T/units"
    cat >"$T/units/job.service" <<U
[Unit]
DefaultDependencies=no
[Service]
Type=notify
TimeoutStartSec=2
Environment=PATH=$PATH DLOCK_BACKEND=file DLOCK_LOCK_DIR=/run/locks
ExecStart=$(realpath "$DLOCK") job -- sleep 60
KillMode=mixed
$(hardening)
U
    boot 'dlock -t 60s job -- sh -c "touch /run/held; sleep 4" & holder=$!
while [ ! -e /run/held ]; do sleep 0.05; done
systemctl start --no-block job.service
sleep 3 # longer than TimeoutStartSec of the unit
systemctl show job.service -p ActiveState -p StatusText
wait $holder
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    systemctl is-active --quiet job.service && break; sleep 0.2; done
systemctl show job.service -p ActiveState -p StatusText
systemctl stop job.service
systemctl show job.service -p Result -p ExecMainStatus
ls /run/locks'
    cat "$T/driver"
    grep -qE '^StatusText=waiting( [0-9]+s)? for job: held by' "$T/driver"
    equals "$(grep -c '^ActiveState=activating' "$T/driver")" 1
    equals "$(grep -c '^ActiveState=active$' "$T/driver")" 1
    grep -q '^StatusText=holding the lock job' "$T/driver"
    grep -q '^Result=success$' "$T/driver" # it died of TERM: a clean end
    not grep -q 'job.lock' "$T/driver"
}

@test "a real unit acquires its lock before its start and releases it after its stop, with a token file" {
    mkdir "$T/units"
    local dlock
    dlock=$(realpath "$DLOCK")
    cat >"$T/units/job.service" <<U
[Unit]
DefaultDependencies=no
[Service]
Environment=PATH=$PATH DLOCK_BACKEND=file DLOCK_LOCK_DIR=/run/locks
ExecStartPre=$dlock --acquire -n -t 60s --owner-file=/run/job.token job
ExecStart=sleep 60
ExecStopPost=$dlock --release --owner-file=/run/job.token job
U
    boot 'systemctl start job.service
systemctl show job.service -p ActiveState
dlock -n job true; echo "while it runs: $?"
stat -c "token: %a" /run/job.token
systemctl stop job.service
systemctl show job.service -p Result
dlock -n job true; echo "after its stop: $?"
dlock -t 60s job -- sh -c "touch /run/held; sleep 60" & 
while [ ! -e /run/held ]; do sleep 0.05; done
systemctl start job.service || echo "not started while another has the lock"
dlock --status -q job && echo "the other has it still"'
    cat "$T/driver"
    grep -q '^ActiveState=active$' "$T/driver"
    grep -q '^while it runs: 75$' "$T/driver"
    grep -q '^token: 600$' "$T/driver"
    grep -q '^Result=success$' "$T/driver" # it died of TERM: a clean end
    grep -q '^after its stop: 0$' "$T/driver"
    grep -q '^not started while' "$T/driver"
    grep -q '^the other has it still$' "$T/driver"
}
