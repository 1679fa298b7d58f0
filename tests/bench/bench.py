#!/usr/bin/env python3
"""Measure dlock against flock(1), GNU sem, redis-cli in a shell script, cronlock, etcdctl lock and consul lock.

    python3 tests/bench/bench.py [--runs N] [--json FILE] [--idle] [--tls] [--quorum] PATH-TO-DLOCK

Every server is started here, in a temporary directory and on loopback, and stopped at the end.
A missed budget is reported and changes nothing in the exit status; that is 1 only when something
that is installed could not be run.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import namedtuple

from bench_common import (
    BenchError, Table, base_environment, client_calls, parse_options, held, missing, on_terminate, proc_field, proc_text,
    processor_ticks, reads_of_server, round_order, start_consul, start_etcd, start_redis, start_tls_redis, tell, text_field,
    verdict, version_line,
)

BUDGET_TRUE = {"file": 1.05, "Redis": 1.15}
BUDGET_SLEEP = {"file": 1.02, "Redis": 1.03}
BUDGET_PEAK_KB, BUDGET_PRIVATE_KB = 2100, 450
BUDGET_QUORUM = 1.3
BUDGET_IDLE_CALLS = 0.2
WARM_UP_ROUNDS = 10
PEAK_RUNS = 20
RUN_LIMIT = 60
IDLE_WINDOW = 20.0

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


# ---- processes ----

class Runner:
    """Starts a row's command with its output discarded, and waits for it with a time limit. One at a time."""

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
        """Waits for the row's command; any status except 0 ends the benchmark."""
        _, status = os.waitpid(self.pid, 0)
        self.pid = None
        signal.alarm(0)
        if status != 0:
            self.fail(row, status)

    def stop(self):
        """Ends what an error left running."""
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


# ---- what is measured ----

def dlock_variants(dlock, redis):
    """The ways of running dlock, each as label and leading arguments."""
    variants = [("dlock, file", [dlock, "--backend=file"])]
    if redis is not None:
        path, port = redis
        variants.append(("dlock, Redis on a Unix socket", [dlock, "-r", "unix://" + path]))
        variants.append(("dlock, Redis on loopback TCP", [dlock, "-r", "redis://127.0.0.1:%d" % port]))
    return variants


def run_groups(stack, work, variants, redis):
    """The rows of whole runs: the rows of a group take turns, and its first is the reference of the others. Commands of
    60 ms outlast the start of the watch. The other tools have a group of their own, since they leave cold caches."""
    env, flock = base_environment(work), [shutil.which("flock"), os.path.join(work, "flock.lock")]
    true, sleep = [shutil.which("true")], [shutil.which("sleep"), "0.06"]

    def group(name, command, budgets):
        ours = [Row(label + name, argv + ["bench"] + command, env, budgets[label.split()[1]])
                for label, argv in variants]
        return [Row("flock" + name, flock + command, env, 0)] + ours
    runs = group("", true, BUDGET_TRUE)
    # People's shells have a UTF-8 locale; cron has none.
    runs.insert(1, Row("flock, LC_ALL=C.UTF-8", flock + true, dict(env, LC_ALL="C.UTF-8"), 0))
    runs.insert(2, Row("no lock: true alone", true, env, 0))
    others = [Row("flock beside other tools", flock + true, env, 0)] + peer_rows(stack, work, env, true[0], redis)
    return [runs, group(", `sleep 0.06`", sleep, BUDGET_SLEEP)] + ([others] if len(others) > 1 else [])


def peer_rows(stack, work, env, true, redis):
    """Other tools, if they are installed. Starts etcd and consul."""
    rows = []
    if redis is not None and not missing("redis-cli"):
        argv = [shutil.which("sh"), "-c", SHELL_SCRIPT, "sh", redis[0], "bench-sh", true]
        rows.append(Row("sh and redis-cli, Unix socket", argv, env, 0))
    if not missing("sem"):
        # Its records are in a directory of its own, where it asks nobody to cite it.
        home = os.path.join(work, "parallel")
        os.mkdir(home)
        with open(os.path.join(home, "will-cite"), "w", encoding="ascii"):
            pass
        argv = [shutil.which("sem"), "--fg", "--id", "bench", true]
        rows.append(Row("GNU sem --fg", argv, dict(env, PARALLEL_HOME=home), 0))
    if redis is not None and not missing("cronlock"):
        # It would keep its lock for GRACE + 1 seconds after the start, even after a faster command: not here.
        cron_env = dict(env, CRONLOCK_HOST="127.0.0.1", CRONLOCK_PORT=str(redis[1]), CRONLOCK_GRACE="-2")
        rows.append(Row("cronlock, loopback TCP", [shutil.which("cronlock"), true], cron_env, 0))
    if not missing("etcd", "etcdctl"):
        etcd_env = dict(env, ETCDCTL_API="3", ETCDCTL_ENDPOINTS=start_etcd(stack, work))
        rows.append(Row("etcdctl lock", [shutil.which("etcdctl"), "lock", "bench", true], etcd_env, 0))
    if not missing("consul"):
        consul_env = dict(env, CONSUL_HTTP_ADDR=start_consul(stack, work))
        rows.append(Row("consul lock", [shutil.which("consul"), "lock", "bench", true], consul_env, 0))
    return rows


def run_rounds(runner, rows, runs):
    """Seconds of each row: one list a row, one entry a round."""
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


def run_table(runner, groups, runs):
    """All groups of whole runs. Each row is compared with the first of its group in the same round."""
    lines = []
    for rows in groups:
        samples = run_rounds(runner, rows, runs)
        for row, values in zip(rows, samples):
            ratio = spread([value / first for value, first in zip(values, samples[0])])
            lines.append([row.label, *("%.0f" % (1e6 * value) for value in spread(values)), "%.3f" % ratio[0],
                          "%.2f..%.2f" % ratio[1:], *held(ratio[0], row.budget, row.budget)])
    return Table("Whole runs, %d rounds; commands are `true` unless named" % runs,
                 ["what", "median µs", "p10", "p90", "x first of group", "p10..p90", "budget", ""], lines)


def peak_memory(runner, row):
    """VmHWM in kB, read repeatedly until the process ends.

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
    """A holder's memory while its command sleeps: peak kB, private kB, libraries."""
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


def memory_table(runner, work, variants):
    """Peak and private memory, and the shared libraries."""
    env = base_environment(work)
    true, sleep = shutil.which("true"), shutil.which("sleep")
    lines = []
    for label, argv in [("flock", [shutil.which("flock")])] + variants:
        ours = label != "flock"
        name = "bench" if ours else os.path.join(work, "flock.lock")
        short = max(peak_memory(runner, Row(label, argv + [name, true], env, 0)) for _ in range(PEAK_RUNS))
        peak, private, loaded = look_at_holder(runner, Row(label, argv + [name, sleep, "1"], env, 0))
        lines.append([label, str(short), str(peak), *held(max(short, peak), BUDGET_PEAK_KB, ours), str(private),
                      *held(private, BUDGET_PRIVATE_KB, ours), ", ".join(sorted(loaded))])
    return Table("Memory of the process itself, kB (VmHWM)", [
        "what", "`true`: peak", "holder: peak", "budget", "", "holder: private", "budget", "", "libraries"], lines)


def idle_table(runner, work, path, dlock):
    """What an idle holder asks of Redis. A round trip is one write, whatever it contains: the server reads once.

    The questions that count this are read as well, and so are the ends of their connections: as many as a
    count of nothing shows.
    """
    argv = [dlock, "-r", "unix://" + path, "bench-idle", shutil.which("sleep"), "%g" % (IDLE_WINDOW + 3)]
    row = Row("idle holder", argv, base_environment(work), 0)

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


def tls_group(stack, work, dlock):
    """A whole run over TLS beside one command of redis-cli, which acquires no lock."""
    certificate, port = start_tls_redis(stack, work)
    env, cli, true = base_environment(work), shutil.which("redis-cli"), shutil.which("true")
    at, tls = ["-h", "127.0.0.1", "-p", str(port)], ["--tls", "--cacert", certificate]
    return [
        Row("redis-cli --tls SET", [cli, *at, *tls, "SET", "bench", "x"], env, 0),
        Row("dlock, TLS", [
            dlock, "-r", "rediss://127.0.0.1:%d" % port, "--cacert", certificate, "bench-tls", true], env, 0),
    ]


def quorum_groups(stack, work, dlock):
    """Whole runs on a majority of three servers beside one of them; all share this machine's processors."""
    servers = [start_redis(stack, work, "redis-%d" % number) for number in (1, 2, 3)]
    env, true, nobody = base_environment(work), shutil.which("true"), "unix:///nowhere/at/all"
    for kind, urls in (("Unix sockets", ["unix://" + path for path, _ in servers]),
                       ("TCP", ["redis://127.0.0.1:%d" % port for _, port in servers])):
        yield [Row("%s, %s" % (label, kind), [dlock, *("--redis=" + url for url in chosen), "bench-quorum", true], env,
                   BUDGET_QUORUM if len(chosen) > 1 else 0)
               for label, chosen in (("one server", urls[:1]), ("3 servers", urls),
                                     ("3, one of them down", urls[:2] + [nobody]))]


# ---- what is said ----

def measure(options, stack):
    load = os.getloadavg()[0]
    work = tempfile.mkdtemp(prefix="dlock-bench-")
    stack.callback(shutil.rmtree, work, ignore_errors=True)
    os.mkdir(os.path.join(work, "locks"), 0o700)
    runner = Runner(work)
    stack.callback(runner.stop)
    redis = None if missing("redis-server") else start_redis(stack, work)
    variants = dlock_variants(options.dlock, redis)
    # Memory and idle calls first, because nothing else runs yet.
    quiet = [memory_table(runner, work, variants)]
    if options.idle and redis is not None:
        quiet.append(idle_table(runner, work, redis[0], options.dlock))
    groups = run_groups(stack, work, variants, redis)
    if options.tls and redis is not None and not missing("redis-cli", "openssl"):
        groups.append(tls_group(stack, work, options.dlock))
    if options.quorum and redis is not None:
        groups += quorum_groups(stack, work, options.dlock)
    before = processor_ticks()
    tables = [run_table(runner, groups, options.runs)] + quiet
    idle, stolen, total = (new - old for new, old in zip(processor_ticks(), before))
    head = "%s\nLoad average before: %.2f. Processors during the rounds: %.0f %% idle, %.0f %% taken by the host." % (
        version_line(), load, 100 * idle / max(total, 1), 100 * stolen / max(total, 1))
    tell(options, head, tables)


def run_count(text):
    if not text.isdigit() or int(text) < 2:
        raise argparse.ArgumentTypeError("a whole number, at least 2")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description="Measure dlock against flock(1) and others.")
    parser.add_argument("--runs", type=run_count, default=200, metavar="N", help="rounds (default: 200)")
    parser.add_argument("--idle", action="store_true",
                        help="count what an idle holder asks of Redis as well (takes 23 s)")
    parser.add_argument("--tls", action="store_true", help="time TLS beside redis-cli as well")
    parser.add_argument("--quorum", action="store_true", help="time a quorum of three servers as well")
    options = parse_options(parser)
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
