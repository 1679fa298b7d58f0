# Commands that start processes that are hard to find and to stop. Tests load ../both/backend first.
# shellcheck shell=bash

# Waits until the guard of the dlock with this pid sleeps: it has looked for processes once.
wait_for_guard() {
    wait_until 10 pgrep -P "$1" -x dlock-guard
    local guard
    guard=$(pgrep -P "$1" -x dlock-guard)
    wait_until 10 grep -q '^State:.S' "/proc/$guard/status"
}

# Makes $T/daemon.py, which starts a daemon in the usual way: double fork, own session, another name.
daemon() {
    cat >"$T/daemon.py" <<'E'
import ctypes, os, signal, sys, time
if os.fork():
    os.wait()
    sys.exit(int(sys.argv[2]))
os.setsid()
if os.fork():
    os._exit(0)
ctypes.CDLL(None).prctl(15, sys.argv[3].encode() if sys.argv[3:] else b"innocent", 0, 0, 0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for name in os.listdir("/proc/self/fd"):
    try: os.close(int(name))
    except OSError: pass
path = os.environ["T"] + "/daemon"
open(path + ".tmp", "w").write(str(os.getpid()))
os.rename(path + ".tmp", path)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end and not os.path.exists(path + ".end"):
    time.sleep(0.01)
E
}

# lose_daemon ARGUMENTS...: a command starts such a daemon, then loses its lock; dlock must stop the daemon too.
lose_daemon() {
    local status=0
    daemon
    # shellcheck disable=SC2016
    dlock --grace=200ms job -- sh -c 'python3 "$T/daemon.py" "$@"; sleep 600' sh "$@" 2>/dev/null 3>&- 4>&- &
    wait_until 10 test -s "$T/daemon"
    steal job
    wait $! || status=$?
    equals "$status" 124
    gone "$(cat "$T/daemon")"
    is_clean job
}
