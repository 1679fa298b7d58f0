"""What the programs of tests/bench/ share: servers, what they count, and tables."""

import contextlib
import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from figures import Table, add_options, report_of, versions, write_figures  # noqa: E402, F401 (the benchmarks have Table from here)

START_LIMIT = 20.0
STOP_LIMIT = 5.0

# Commands that only clients send: no script uses these, so they are never counted from inside one.
CLIENT_CALLS = {
    "auth", "client", "eval", "eval_ro", "evalsha", "evalsha_ro", "hello", "psubscribe", "punsubscribe",
    "script", "select", "ssubscribe", "subscribe", "sunsubscribe", "unsubscribe",
}


class BenchError(Exception):
    """An installed program could not be run."""


# ---- processes ----

def base_environment(work):
    """The same small environment for every row: nothing of the caller's configures dlock or a client."""
    env = {"HOME": work, "XDG_CONFIG_HOME": work, "DLOCK_LOCK_DIR": os.path.join(work, "locks"), "LC_ALL": "C"}
    for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH"):
        if name in os.environ:
            env[name] = os.environ[name]
    return env


def on_terminate(_number, _frame):
    raise SystemExit(1)


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


# ---- servers ----

def free_ports(count):
    """Loopback ports that nobody listens on at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def start_server(stack, work, name, argv, ready):
    """Starts a server, lets the stack stop it, and waits until it answers."""
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
    """One inline command over the Unix socket: the text of a simple or bulk reply, None if there is none."""
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
    """The body of a GET on loopback, empty if there is no good answer."""
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


def start_redis(stack, work, name="redis-server", more=()):
    """Starts a redis-server without persistence, with more arguments: returns its socket and port."""
    (port,) = free_ports(1)
    path = os.path.join(work, name + ".sock")
    start_server(stack, work, name, [
        shutil.which("redis-server"), "--bind", "127.0.0.1", "--port", str(port), "--unixsocket", path,
        "--dir", work, "--save", "", "--appendonly", "no", "--daemonize", "no", *more,
    ], lambda: redis_ask(path, "PING") == "PONG")
    return path, port


def make_certificate(work):
    """The files of a self-signed certificate for localhost and 127.0.0.1, and of its key."""
    certificate, key = (os.path.join(work, name) for name in ("tls.pem", "tls.key"))
    subprocess.run([
        shutil.which("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
    ], check=True, stderr=subprocess.DEVNULL)
    return certificate, key


def start_tls_redis(stack, work):
    """Starts a redis-server that speaks TLS as well: returns its certificate and TLS port."""
    certificate, key = make_certificate(work)
    (port,) = free_ports(1)
    start_redis(stack, work, "redis-tls", [
        "--tls-port", str(port), "--tls-cert-file", certificate, "--tls-key-file", key,
        "--tls-ca-cert-file", certificate, "--tls-auth-clients", "no",
    ])
    return certificate, port


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
    """True, after one line for each, if one of the programs is missing."""
    absent = [program for program in programs if shutil.which(program) is None]
    for program in absent:
        print("%s: not installed" % program)
    return bool(absent)


def round_order(count, number):
    """The order of a round, rotated so that each row comes after each other one equally often over the rounds
    (a Williams square): what a heavy row leaves behind in the caches falls on all of them alike."""
    zigzag = [(step + 1) // 2 if step % 2 else -(step // 2) for step in range(count)]
    order = [(place + number // 2) % count for place in zigzag]
    return order[::-1] if number % 2 else order


def processor_ticks():
    """Idle, stolen and all ticks of all processors since boot."""
    with open("/proc/stat", encoding="ascii") as stat:
        ticks = [int(word) for word in stat.readline().split()[1:9]]
    return ticks[3] + ticks[4], ticks[7], sum(ticks)


def verdict(value, budget):
    return "held" if value <= budget else "missed"


def held(value, budget, ours):
    """The cells for a budget and whether it was kept; empty if this peer has no budget."""
    return ["%g" % budget, verdict(value, budget)] if ours else ["", ""]


def all_calls(path):
    """Calls by command, including those from inside scripts, from INFO commandstats."""
    found = re.findall(r"^cmdstat_([^:]+):calls=(\d+)", redis_ask(path, "INFO commandstats") or "", re.M)
    return {name: int(count) for name, count in found}


def client_calls(path):
    """Calls by command, from clients only."""
    return {name: count for name, count in all_calls(path).items() if name.split("|")[0] in CLIENT_CALLS}


def client_usec(path):
    """Microseconds that the server has worked for clients' commands, including their scripts."""
    found = re.findall(r"^cmdstat_([^:]+):calls=\d+,usec=(\d+)", redis_ask(path, "INFO commandstats") or "", re.M)
    return sum(int(usec) for name, usec in found if name.split("|")[0] in CLIENT_CALLS)


def server_cpu(path):
    """Seconds of processor time that the server's main thread has used."""
    text = redis_ask(path, "INFO cpu") or ""
    return sum(float(found) for found in re.findall(r"^used_cpu_(?:sys|user):([\d.]+)", text, re.M))


def reads_of_server(path):
    """How often the server has read from a client, None if it does not count this (before Redis 6)."""
    found = re.search(r"^total_reads_processed:(\d+)", redis_ask(path, "INFO stats") or "", re.M)
    return int(found.group(1)) if found else None


# ---- what is said ----

def version_line():
    """Of the programs that dlock is compared with."""
    return versions("flock", "redis-server", "etcd", "consul", "sem")


def parse_options(parser):
    """Adds the options that all of them have: what to measure, and where to put the results."""
    add_options(parser, seed=None)
    parser.add_argument("dlock", metavar="PATH-TO-DLOCK")
    options = parser.parse_args()
    options.dlock = os.path.abspath(options.dlock)
    must_run(parser, options.dlock)
    return options


def tell(options, head, tables, after=()):
    """Prints the results, and writes them if requested."""
    print(report_of(head, tables, False, after))
    write_figures(options.json, tables, head, after)


def must_run(parser, path):
    if not os.access(path, os.X_OK):
        parser.error("%s: not there, or not executable" % path)
