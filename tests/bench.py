#!/usr/bin/env python3
"""Measure dlock against flock(1), redis-cli in a shell script, etcdctl lock and consul lock.

    python3 tests/bench.py [--runs N] [--markdown] [--idle] PATH-TO-DLOCK

Every server is started here, in a temporary directory and on loopback, and stopped at the end.
A missed budget is reported and changes nothing in the exit status; that is 1 only when something
that is installed could not be run.
"""

import argparse
import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

BUDGET_RATIO = 1.25
BUDGET_RSS_KB = 2500
BUDGET_IDLE_CALLS = 0.2
WARM_UP_ROUNDS = 10
PEAK_RUNS = 20
START_LIMIT = 20.0
STOP_LIMIT = 5.0
RUN_LIMIT = 60
IDLE_WINDOW = 20.0

# What a client sends itself: scripts have no use for these, so they are never counted from inside of one.
CLIENT_CALLS = {
    "auth", "client", "eval", "eval_ro", "evalsha", "evalsha_ro", "hello", "psubscribe", "punsubscribe",
    "script", "select", "ssubscribe", "subscribe", "sunsubscribe", "unsubscribe",
}

SHELL_SCRIPT = r"""
sock=$1 key=$2; shift 2
token=$(cat /proc/sys/kernel/random/uuid)
[ "$(redis-cli -s "$sock" SET "$key" "$token" NX PX 3600000)" = OK ] || exit 75
"$@"
status=$?
redis-cli -s "$sock" EVAL 'if redis.call("GET", KEYS[1]) == ARGV[1] then
    return redis.call("DEL", KEYS[1]) end return 0' 1 "$key" "$token"
exit $status
"""

Row = namedtuple("Row", "label argv env budget")
Table = namedtuple("Table", "title header rows")


class BenchError(Exception):
    """Something that is installed could not be run."""


# ---- processes ----

def base_environment(work):
    """The same small environment for every row: nothing of the caller's configures dlock or a client."""
    env = {"HOME": work, "XDG_CONFIG_HOME": work, "DLOCK_LOCK_DIR": os.path.join(work, "locks"), "LC_ALL": "C"}
    for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH"):
        if name in os.environ:
            env[name] = os.environ[name]
    return env


class Runner:
    """Starts a row's command with its output out of the way, and waits for it with a bound. One at a time."""

    def __init__(self, work):
        self.pid = None
        self.errors = os.path.join(work, "stderr")
        null = os.open(os.devnull, os.O_RDWR)
        error = os.open(self.errors, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1),
                        (os.POSIX_SPAWN_DUP2, error, 2)]

    def spawn(self, row):
        signal.alarm(RUN_LIMIT)
        self.pid = os.posix_spawn(row.argv[0], row.argv, row.env, file_actions=self.actions)
        return self.pid

    def reap(self, row):
        """Wait for the command of the row; anything but exit status 0 ends the benchmark."""
        _, status = os.waitpid(self.pid, 0)
        self.pid = None
        signal.alarm(0)
        if status != 0:
            self.fail(row, status)

    def stop(self):
        """End what an error left running."""
        signal.alarm(0)
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def time(self, row):
        """Seconds from before posix_spawn to after waitpid."""
        begin = time.perf_counter()
        self.spawn(row)
        self.reap(row)
        return time.perf_counter() - begin

    def fail(self, row, status):
        with open(self.errors, encoding="utf-8", errors="replace") as file:
            said = file.read().strip()[-2000:]
        how = "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "status %d" % os.WEXITSTATUS(status)
        raise BenchError("%s ended with %s\n%s" % (" ".join(row.argv), how, said))


def on_alarm(_number, _frame):
    raise BenchError("a command did not end within %d s" % RUN_LIMIT)


def on_terminate(_number, _frame):
    raise SystemExit(1)


# ---- servers ----

def free_ports(count):
    """Loopback ports that nobody listens on just now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def start_server(stack, work, name, argv, ready):
    """Start a server, have the stack stop it, and wait until it answers."""
    log_path = os.path.join(work, name + ".log")
    with open(log_path, "ab") as log:
        process = subprocess.Popen(argv, cwd=work, env=base_environment(work), stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log)
    stack.callback(stop_server, process)
    limit = time.monotonic() + START_LIMIT
    while not ready():
        if process.poll() is not None or time.monotonic() > limit:
            with open(log_path, encoding="utf-8", errors="replace") as log:
                raise BenchError("%s did not start\n%s" % (name, log.read()[-2000:]))
        time.sleep(0.02)
    if process.poll() is not None:
        raise BenchError("%s ended; another server answers at its address" % name)


def stop_server(process):
    process.terminate()
    try:
        process.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def redis_ask(path, command):
    """One inline command over the Unix socket: the text of a simple or bulk reply, None when there is none."""
    with contextlib.suppress(OSError, ValueError):
        with socket.socket(socket.AF_UNIX) as conn:
            conn.settimeout(2)
            conn.connect(path)
            conn.sendall(command.encode() + b"\r\n")
            with conn.makefile("rb") as reply:
                first = reply.readline().decode().strip()
                return reply.read(int(first[1:])).decode() if first.startswith("$") else first[1:]
    return None


def http_ask(port, path):
    """Body of a GET on loopback, empty when there is no good answer."""
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        conn.request("GET", path)
        answer = conn.getresponse()
        body = answer.read().decode("utf-8", "replace")
        return body if answer.status == 200 else ""
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        conn.close()


def start_redis(stack, work):
    (port,) = free_ports(1)
    path = os.path.join(work, "redis.sock")
    start_server(stack, work, "redis-server", [
        shutil.which("redis-server"), "--bind", "127.0.0.1", "--port", str(port), "--unixsocket", path,
        "--dir", work, "--save", "", "--appendonly", "no", "--daemonize", "no",
    ], lambda: redis_ask(path, "PING") == "PONG")
    return path, port


def start_etcd(stack, work):
    client, peer = ("http://127.0.0.1:%d" % port for port in free_ports(2))
    start_server(stack, work, "etcd", [
        shutil.which("etcd"), "--name", "bench", "--data-dir", os.path.join(work, "etcd"),
        "--listen-client-urls", client, "--advertise-client-urls", client,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "bench=" + peer,
    ], lambda: '"true"' in http_ask(int(client.rsplit(":", 1)[1]), "/health"))
    return client


def start_consul(stack, work):
    http_port, server, lan, wan = free_ports(4)
    start_server(stack, work, "consul", [
        shutil.which("consul"), "agent", "-dev", "-bind", "127.0.0.1", "-http-port", str(http_port),
        "-server-port", str(server), "-serf-lan-port", str(lan), "-serf-wan-port", str(wan),
        "-dns-port", "-1", "-grpc-port", "-1",
    ], lambda: ":" in http_ask(http_port, "/v1/status/leader"))
    return "http://127.0.0.1:%d" % http_port


# ---- what is measured ----

def missing(*programs):
    """True, and one line for each, when one of the programs is not there."""
    absent = [program for program in programs if shutil.which(program) is None]
    for program in absent:
        print("%s: not installed" % program)
    return bool(absent)


def dlock_variants(dlock, redis):
    """The ways of running dlock, each as label and leading arguments."""
    variants = [("dlock, file", [dlock, "--backend=file"])]
    if redis is not None:
        path, port = redis
        variants.append(("dlock, Redis on a Unix socket", [dlock, "-r", "unix://" + path]))
        variants.append(("dlock, Redis on loopback TCP", [dlock, "-r", "redis://127.0.0.1:%d" % port]))
    return variants


def timed_rows(stack, work, variants, redis):
    """The rows of the table of run times, the reference first. Starts etcd and consul where they are installed."""
    env = base_environment(work)
    true = shutil.which("true")
    rows = [
        Row("flock", [shutil.which("flock"), os.path.join(work, "flock.lock"), true], env, False),
        Row("no lock: true alone", [true], env, False),
    ]
    rows += [Row(label, argv + ["bench", true], env, True) for label, argv in variants]
    if redis is not None and not missing("redis-cli"):
        argv = [shutil.which("sh"), "-c", SHELL_SCRIPT, "sh", redis[0], "bench-sh", true]
        rows.append(Row("sh and redis-cli, Unix socket", argv, env, False))
    if not missing("etcd", "etcdctl"):
        etcd_env = dict(env, ETCDCTL_API="3", ETCDCTL_ENDPOINTS=start_etcd(stack, work))
        rows.append(Row("etcdctl lock", [shutil.which("etcdctl"), "lock", "bench", true], etcd_env, False))
    if not missing("consul"):
        consul_env = dict(env, CONSUL_HTTP_ADDR=start_consul(stack, work))
        rows.append(Row("consul lock", [shutil.which("consul"), "lock", "bench", true], consul_env, False))
    return rows


def round_order(count, number):
    """Order of a round. Rotated so that, over the rounds, each row comes after each other one equally often
    (a Williams square): what a heavy row leaves behind in the caches falls on all of them alike."""
    zigzag = [(step + 1) // 2 if step % 2 else -(step // 2) for step in range(count)]
    order = [(place + number // 2) % count for place in zigzag]
    return order[::-1] if number % 2 else order


def processor_ticks():
    """Idle, stolen and all ticks of all processors since boot."""
    with open("/proc/stat", encoding="ascii") as stat:
        ticks = [int(word) for word in stat.readline().split()[1:9]]
    return ticks[3] + ticks[4], ticks[7], sum(ticks)


def run_rounds(runner, rows, runs):
    """Seconds of each row, one list a row, one entry a round."""
    samples = [[] for _ in rows]
    for number in range(-WARM_UP_ROUNDS, runs):
        for index in round_order(len(rows), number):
            seconds = runner.time(rows[index])
            if number >= 0:
                samples[index].append(seconds)
    return samples


def spread(values):
    """Median, p10, p90."""
    deciles = statistics.quantiles(values, n=10, method="inclusive")
    return statistics.median(values), deciles[0], deciles[-1]


def verdict(value, budget):
    return "held" if value <= budget else "missed"


def time_table(rows, samples):
    lines = []
    for row, values in zip(rows, samples):
        median, low, high = spread([1e6 * value for value in values])
        ratio = spread([value / reference for value, reference in zip(values, samples[0])])
        lines.append([row.label, "%.0f" % median, "%.0f" % low, "%.0f" % high, "%.3f" % ratio[0],
                      "%.2f..%.2f" % ratio[1:], "%.2f" % BUDGET_RATIO if row.budget else "",
                      verdict(ratio[0], BUDGET_RATIO) if row.budget else ""])
    return Table("Whole run of `true` under the lock, %d rounds" % len(samples[0]),
                 ["what", "median µs", "p10", "p90", "x flock", "p10..p90", "budget", ""], lines)


def proc_field(pid, file, field):
    """A "Field:  N kB" of a file in /proc/PID, None once the process is gone."""
    return text_field(proc_text(pid, file), field)


def proc_text(pid, file):
    try:
        with open("/proc/%d/%s" % (pid, file), encoding="utf-8", errors="replace") as text:
            return text.read()
    except OSError:
        return ""


def text_field(text, field):
    found = re.search(r"^%s:\s+(\d+) kB" % field, text, re.MULTILINE)
    return int(found.group(1)) if found else None


def peak_memory(runner, row):
    """VmHWM in kB, read over and over to the end of the process.

    ru_maxrss of wait4(2) will not do: it is the largest of the process, of its reaped children and of what the
    process was before exec, and after posix_spawn that was this interpreter. For the same reason a reading
    counts only once the process bears the program's name.
    """
    name = "Name:\t%s\n" % os.path.basename(row.argv[0])[:15]
    pid = runner.spawn(row)
    peak = 0
    while True:
        status = proc_text(pid, "status")
        now = text_field(status, "VmHWM")
        if now is None:
            break
        if status.startswith(name):
            peak = max(peak, now)
    runner.reap(row)
    return peak


def loaded_libraries(pid):
    with open("/proc/%d/maps" % pid, encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.split(None, 5)[5].strip() for line in maps if line.count("/")}
    return {os.path.basename(path) for path in paths if re.search(r"\.so(\.|$)", os.path.basename(path))}


def look_at_holder(runner, row):
    """What a holder has in memory while its command sleeps: peak kB, private kB, libraries."""
    pid = runner.spawn(row)
    time.sleep(0.6)
    if proc_field(pid, "status", "VmHWM") is None:
        runner.reap(row)
        raise BenchError("%s did not wait for its command" % " ".join(row.argv))
    libraries = loaded_libraries(pid)
    peak = proc_field(pid, "status", "VmHWM")
    private = sum(proc_field(pid, "smaps_rollup", field) or 0 for field in ("Private_Clean", "Private_Dirty"))
    runner.reap(row)
    return peak, private, libraries


def memory_tables(runner, work, variants):
    """The table of peak memory, and the one of the shared libraries."""
    env = base_environment(work)
    true, sleep = shutil.which("true"), shutil.which("sleep")
    memory, libraries = [], []
    flock = ("flock", [shutil.which("flock")])
    for label, argv in [flock] + variants:
        name = os.path.join(work, "flock.lock") if label == "flock" else "bench"
        short = max(peak_memory(runner, Row(label, argv + [name, true], env, False)) for _ in range(PEAK_RUNS))
        peak, private, loaded = look_at_holder(runner, Row(label, argv + [name, sleep, "1"], env, False))
        ours = label != "flock"
        memory.append([label, str(short), str(peak), str(private), str(BUDGET_RSS_KB) if ours else "",
                       verdict(max(short, peak), BUDGET_RSS_KB) if ours else ""])
        tls = sorted(one for one in loaded if one.startswith(("libssl", "libcrypto")))
        libraries.append([label, ", ".join(sorted(loaded)), ", ".join(tls) if tls else "no"])
    return [
        Table("Memory of the process itself, kB (VmHWM)",
              ["what", "`true`: peak", "holder: peak", "holder: private", "budget", ""], memory),
        Table("Shared libraries of a holder", ["what", "loaded", "libssl, libcrypto"], libraries),
    ]


def client_calls(path):
    """Calls by command, those of clients only, from INFO commandstats."""
    calls = {}
    for name, count in re.findall(r"^cmdstat_([^:]+):calls=(\d+)", redis_ask(path, "INFO commandstats") or "", re.M):
        if name.split("|")[0] in CLIENT_CALLS:
            calls[name] = int(count)
    return calls


def reads_of_server(path):
    """How often the server has read something from a client, None where it does not count (before Redis 6)."""
    found = re.search(r"^total_reads_processed:(\d+)", redis_ask(path, "INFO stats") or "", re.M)
    return int(found.group(1)) if found else None


def idle_table(runner, work, path, dlock):
    """What an idle holder asks of Redis. A round trip is one write, whatever it carries: the server reads once.

    The questions that count this are read as well, and so are the ends of their connections: as many as a
    count of nothing shows.
    """
    argv = [dlock, "-r", "unix://" + path, "bench-idle", shutil.which("sleep"), "%g" % (IDLE_WINDOW + 3)]
    row = Row("idle holder", argv, base_environment(work), True)

    def count():
        calls = client_calls(path)
        return reads_of_server(path), calls

    nothing = [count()[0] for _ in range(2)]
    runner.spawn(row)
    time.sleep(1)
    reads_before, before = count()
    time.sleep(IDLE_WINDOW)
    reads_after, after = count()
    runner.reap(row)
    made = {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}
    what = ", ".join("%s %d" % item for item in sorted(made.items())) or "none"
    commands = sum(made.values()) / IDLE_WINDOW
    trips, held = "not counted by this server", ""
    if reads_after is not None:
        rate = (reads_after - reads_before - (nothing[1] - nothing[0])) / IDLE_WINDOW
        trips, held = "%.2f" % rate, verdict(rate, BUDGET_IDLE_CALLS)
    return Table("What an idle holder asks of Redis, default lease, %.0f s" % IDLE_WINDOW,
                 ["round trips a second", "budget", "", "commands in them", "commands a second"],
                 [[trips, "%.2f" % BUDGET_IDLE_CALLS, held, what, "%.2f" % commands]])


# ---- what is said ----

def version_line():
    """Versions of the programs beside dlock, as they give them."""
    found = []
    for argv in (["flock", "--version"], ["redis-server", "--version"], ["etcd", "--version"], ["consul", "version"]):
        if shutil.which(argv[0]):
            said = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=10, check=False)
            number = re.search(r"\d+(\.\d+)+", said.stdout.decode("utf-8", "replace"))
            found.append("%s %s" % (argv[0], number.group(0) if number else "?"))
    return ", ".join(found)


def show(table, markdown):
    if markdown:
        print("### %s\n" % table.title)
        print("| %s |" % " | ".join(table.header))
        print("| %s |" % " | ".join("---" for _ in table.header))
        for line in table.rows:
            print("| %s |" % " | ".join(line))
    else:
        print(table.title.replace("`", ""))
        lines = [[cell.replace("`", "") for cell in line] for line in [table.header] + table.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(table.header))]
        for line in lines:
            print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    print(flush=True)


def measure(options, stack):
    load = os.getloadavg()[0]
    work = tempfile.mkdtemp(prefix="dlock-bench-")
    stack.callback(shutil.rmtree, work, ignore_errors=True)
    os.mkdir(os.path.join(work, "locks"), 0o700)
    runner = Runner(work)
    stack.callback(runner.stop)
    redis = None if missing("redis-server") else start_redis(stack, work)
    variants = dlock_variants(options.dlock, redis)
    # Memory and idle calls first: nothing else runs yet.
    quiet = memory_tables(runner, work, variants)
    if options.idle and redis is not None:
        quiet.append(idle_table(runner, work, redis[0], options.dlock))
    rows = timed_rows(stack, work, variants, redis)
    before = processor_ticks()
    samples = run_rounds(runner, rows, options.runs)
    idle, stolen, total = (new - old for new, old in zip(processor_ticks(), before))
    print("%s" % version_line())
    print("Load average before: %.2f. Processors during the rounds: %.0f %% idle, %.0f %% taken by the host.\n"
          % (load, 100 * idle / max(total, 1), 100 * stolen / max(total, 1)))
    show(time_table(rows, samples), options.markdown)
    for table in quiet:
        show(table, options.markdown)


def run_count(text):
    if not text.isdigit() or int(text) < 2:
        raise argparse.ArgumentTypeError("a whole number, at least 2")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description="Measure dlock against flock(1) and others.")
    parser.add_argument("--runs", type=run_count, default=200, metavar="N", help="rounds (default: 200)")
    parser.add_argument("--markdown", action="store_true", help="print markdown tables")
    parser.add_argument("--idle", action="store_true",
                        help="count what an idle holder asks of Redis as well (takes 23 s)")
    parser.add_argument("dlock", metavar="PATH-TO-DLOCK")
    options = parser.parse_args()
    options.dlock = os.path.abspath(options.dlock)
    if not os.access(options.dlock, os.X_OK):
        parser.error("%s: not there, or not executable" % options.dlock)
    if missing("flock"):
        return 1
    signal.signal(signal.SIGALRM, on_alarm)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_terminate)
    try:
        with contextlib.ExitStack() as stack:
            measure(options, stack)
    except (BenchError, OSError) as error:
        print("bench: %s" % error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
