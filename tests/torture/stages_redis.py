"""One redis-server on a Unix socket.

"redis": without persistence.
"redis-aof": with a log of every write, and behind a proxy, so that the network can fail while the store loses nothing.
"redis-tls": the same over TLS, with certificates that openssl(1) makes.
"""

import contextlib
import os
import re
import signal
import subprocess
import time

from proxy import UP, ProxyProcess
from servers import (ALLOW_ALL, EXTRAS, NEEDED, NO_SERVER, KeyStage, RedisClient, ask_once, env_of_clock, free_ports, refusal,
                     set_clock, spawn, write_clock)
from stage import Fault

# Commands that are renamed, as some services do. None of them is in the log of writes.
RENAMED = ("EVALSHA", "PUBLISH", "SUBSCRIBE")
HEAL_LIMIT = 20.0
PATIENCE = 2.0
LOCK_OF_KEY = re.compile(r"^\{?dlock:([^}]*)")
# Kept on purpose, with an expiry: fences, counters, what is known about waiters.
COMPANIONS = (":meta", ":counts", ":queue", ":waiters", ":claim")


# The server's clock is set by this many seconds: more than a lease, less than the time until the search for leftovers.
CLOCK_STEPS = (1, 2, 3)
# The certificate is so old, in seconds.
OLD_CERTIFICATE = 2 * 86400


class RedisStage(KeyStage):
    name = "redis"
    persistent = False
    proxy = None
    sets_back = {"clock back": max(CLOCK_STEPS)}
    deafens = ("refuse extras",)
    may_give = {"refuse commands": (77,), "rename command": (78,)}
    # After these, only the clock makes fences rise.
    forgets = ("kill", "rename command", "flushall", "evict", "delete some")

    def __init__(self, work, _rng):
        self.work = os.path.join(work, self.name)
        os.makedirs(self.work)
        self.path = os.path.join(self.work, "redis.sock")
        self.server = None
        self.stopped = False
        self.renamed = ()
        self.ahead = 0
        write_clock(self.work, self.ahead)
        self.heal()

    def start(self):
        log = ["--appendonly", "yes", "--appendfsync", "always"] if self.persistent else ["--appendonly", "no"]
        self.server = spawn(
            ["redis-server", "--port", "0", "--unixsocket", self.path, "--save", "", *log, "--dir", self.work, "--logfile",
             os.path.join(self.work, "redis.log"), "--maxclients", "2000", "--enable-debug-command", "yes",
             *self.renamed, *self.more()],
            env=env_of_clock(self.work))

    def more(self):
        """For the server's arguments."""
        return []

    def set_clock(self, seconds):
        self.ahead += seconds
        self.lost = set_clock(self.path, self.work, self.ahead)
        return "by %d s" % seconds

    def arguments(self):
        return ["-r", "unix://" + self.path]

    def ask(self, *words, patience=PATIENCE):
        return ask_once(self.path, *words, connect=patience, answer=patience)

    def ask_about(self, _lock):
        return self.ask

    # -- faults --

    def faults(self):
        forgets = not self.persistent
        return [
            Fault("kill", forgets, self.kill, self.nothing),
            Fault("freeze", False, self.freeze, self.thaw),
            Fault("flushall", True, lambda _rng: self.ask("FLUSHALL"), self.nothing),
            Fault("kill one client", False, self.kill_one_client, self.nothing),
            Fault("kill all clients", False, self.kill_all_clients, self.nothing),
            Fault("pause", False, self.pause, self.nothing),
            Fault("pause writes", False, lambda _rng: self.ask("CLIENT", "PAUSE", 5000, "WRITE"), self.unpause),
            Fault("script flush", False, lambda _rng: self.ask("SCRIPT", "FLUSH"), self.nothing),
            Fault("no memory", False, self.no_memory, self.memory),
            Fault("evict", True, self.evict, self.memory),
            Fault("sleep", False, self.sleep, self.nothing),
            Fault("delete some", True, self.delete_some, self.nothing),
            Fault("clock back", False, lambda rng: self.set_clock(-rng.choice(CLOCK_STEPS)), self.nothing),
            Fault("clock forward", True, lambda rng: self.set_clock(rng.choice(CLOCK_STEPS)), self.nothing),
            Fault("refuse extras", False, lambda rng: self.ask(*refusal(rng, EXTRAS)), self.allow_all),
            Fault("refuse commands", False, lambda rng: self.ask(*refusal(rng, NEEDED)), self.allow_all),
            Fault("rename command", forgets, self.rename_command, self.nothing),
            Fault("replica", False, lambda _rng: self.ask("REPLICAOF", *NO_SERVER), self.promote),
            Fault("no more clients", False, lambda _rng: self.ask("CONFIG", "SET", "maxclients", 10), self.clients),
        ]

    def nothing(self):
        pass

    def kill(self, _rng):
        self.server.kill()
        self.server.wait()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.server = None

    def freeze(self, _rng):
        self.stopped = True
        self.server.send_signal(signal.SIGSTOP)

    def thaw(self):
        if self.stopped:
            self.server.send_signal(signal.SIGCONT)
        self.stopped = False

    def clients_but_this(self, client):
        own = client.ask("CLIENT", "ID")
        ids = [fields["id"] for fields in (dict(word.split("=", 1) for word in line.split() if "=" in word)
                                           for line in client.ask("CLIENT", "LIST").splitlines())]
        return [one for one in ids if one != str(own)]

    def kill_clients(self, choose):
        client = RedisClient(self.path, PATIENCE)
        count = 0
        try:
            for one in choose(self.clients_but_this(client)):
                with contextlib.suppress(RuntimeError):  # it has gone by itself
                    client.ask("CLIENT", "KILL", "ID", one)
                    count += 1
        finally:
            client.close()
        return "killed %d" % count

    def kill_one_client(self, rng):
        return self.kill_clients(lambda ids: ids and [rng.choice(ids)])

    def kill_all_clients(self, _rng):
        return self.kill_clients(lambda ids: ids)

    def pause(self, rng):
        # For all commands, even the one that would end it.
        milliseconds = rng.choice((50, 300, 1000, 4000))
        self.ask("CLIENT", "PAUSE", milliseconds, "ALL")
        return "for %d ms" % milliseconds

    def unpause(self):
        self.ask("CLIENT", "UNPAUSE")

    def allow_all(self):
        self.ask(*ALLOW_ALL)

    def promote(self):
        self.ask("REPLICAOF", "NO", "ONE")

    def rename_command(self, rng):
        self.kill(rng)
        self.renamed = ("--rename-command", rng.choice(RENAMED), "")
        self.start()
        return self.renamed[1]

    def no_memory(self, _rng):
        self.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        self.ask("CONFIG", "SET", "maxmemory", "1")

    def evict(self, rng):
        self.ask("CONFIG", "SET", "maxmemory-policy", rng.choice(("allkeys-lru", "allkeys-random", "volatile-ttl")))
        self.ask("CONFIG", "SET", "maxmemory", "1")

    def memory(self):
        self.ask("CONFIG", "SET", "maxmemory", "0")

    def clients(self):
        # This program's own connection may be one too many.
        end = time.monotonic() + HEAL_LIMIT
        while time.monotonic() < end:
            with contextlib.suppress(OSError, RuntimeError):
                self.ask("CONFIG", "SET", "maxclients", 2000)
                return
            time.sleep(0.02)

    def sleep(self, rng):
        with contextlib.suppress(OSError):
            self.ask("DEBUG", "SLEEP", "%.3f" % rng.uniform(0.05, 1), patience=0.001)

    def delete_some(self, rng):
        keys = sorted(self.ask("KEYS", "*"))
        some = rng.sample(keys, min(len(keys), 5))
        self.touched = sorted({LOCK_OF_KEY.search(key).group(1) for key in some if LOCK_OF_KEY.search(key)})
        if some:
            self.ask("DEL", *some)
        return " ".join(some)

    def heal(self):
        self.thaw()
        if self.renamed:
            self.kill(None)
            self.renamed = ()
        if self.server is None or self.server.poll() is not None:
            self.start()
        if self.proxy is not None:
            self.proxy.heal()
        end = time.monotonic() + HEAL_LIMIT
        while True:
            try:
                self.allow_all()
                self.promote()
                self.memory()
                self.unpause()
                self.clients()
                return
            except (OSError, RuntimeError) as error:
                if time.monotonic() > end:
                    raise RuntimeError("the server does not answer: %s" % error) from error
                time.sleep(0.01)

    def locks(self):
        """Locks and places, entries of queues, and keys without an expiry."""
        left = []
        for key in self.ask("KEYS", "*"):
            if not key.endswith(COMPANIONS):
                left.append(key)
            elif key.endswith(":queue") and self.ask("ZCARD", key):
                left.append(key + " with somebody in it")
            elif self.ask("PTTL", key) == -1:
                left.append(key + " without an expiry")
        return left

    def close(self):
        if self.proxy is not None:
            self.proxy.close()
        if self.server is not None:
            self.server.kill()
            self.server.wait()


class RedisAofStage(RedisStage):
    """Whatever it has confirmed it has also written, so a restart loses nothing."""

    name = "redis-aof"
    persistent = True
    forgets = ("flushall", "evict", "delete some")

    def __init__(self, work, rng):
        super().__init__(work, rng)
        self.rng = rng
        try:
            self.proxy = ProxyProcess(self.behind_proxy(), self.before_proxy())
        except BaseException:
            self.close()
            raise

    def behind_proxy(self):
        return self.path

    def before_proxy(self):
        return os.path.join(self.work, "proxy")

    def arguments(self):
        return ["-r", "unix://" + self.proxy.address]

    def network(self, name, do):
        return Fault(name, False, lambda rng: do(self.proxy, rng), self.proxy.heal)

    def faults(self):
        return super().faults() + [
            self.network("partition", lambda proxy, _rng: proxy.partition()),
            self.network("partition replies", lambda proxy, _rng: proxy.partition(0, 1)),
            self.network("reset", lambda proxy, _rng: proxy.reset()),
            self.network("refuse", lambda proxy, _rng: proxy.refuse()),
            self.network("delay", lambda proxy, _rng: proxy.delay(0.02, 0.02)),
            self.network("bandwidth", lambda proxy, _rng: proxy.bandwidth(20000)),
            self.network("cut replies", lambda proxy, rng: proxy.cut(rng.randrange(1, 400))),
            # A request is about 1,000 bytes, so one that is sent together with another is cut off from it.
            self.network("cut requests", lambda proxy, rng: proxy.cut(rng.randrange(1, 3000), UP)),
        ]


class RedisTlsStage(RedisAofStage):
    name = "redis-tls"

    def __init__(self, work, rng):
        self.ports = free_ports(2)
        self.certificate, self.key = os.path.join(work, "certificate.pem"), os.path.join(work, "key.pem")
        # Valid by each clock that a dlock may have.
        write_clock(work, -OLD_CERTIFICATE)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "9", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                        "-keyout", self.key, "-out", self.certificate], stdin=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, env=env_of_clock(work), check=True)
        super().__init__(work, rng)

    def more(self):
        return ["--tls-port", str(self.ports[0]), "--bind", "127.0.0.1", "--tls-auth-clients", "no", "--tls-cert-file",
                self.certificate, "--tls-key-file", self.key, "--tls-ca-cert-file", self.certificate]

    def behind_proxy(self):
        return "127.0.0.1", self.ports[0]

    def before_proxy(self):
        return "127.0.0.1", self.ports[1]

    def arguments(self):
        return ["-r", "rediss://%s:%d" % self.proxy.address, "--cacert=" + self.certificate]


def make(name, work, rng):
    return {kind.name: kind for kind in (RedisStage, RedisAofStage, RedisTlsStage)}[name](work, rng)
