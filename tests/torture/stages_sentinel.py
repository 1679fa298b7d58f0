"""A master, two replicas and three Sentinels.

"sentinel": takes count as soon as the master has them, so that a failover may lose the last ones.
"sentinel-replicas": with --wait-replicas=1. When a master has died, Sentinels prefer the replica that has got the most, and
that one has the lock. Where a master is replaced that is alive, or back before the failover is over, it may count a take
that only the other replica gets.
"sentinel-all-replicas": with --wait-replicas=2, so that whichever takes over has the lock. Nothing is taken while one is
down.
"sentinel-network": the same as "sentinel-replicas", with each server and its Sentinel on a host of its own.

All keep their data on disk before they answer: a master that comes back empty before anybody has noticed would take the
replicas' locks away as well, whatever was waited for.
"""

import os
import random

from network import Link, Network
from servers import EXTRAS, NEEDED, KeyStage, Server, free_ports, wait_until
from stage import Fault

MASTER = "prime"
DOWN_AFTER_MS = 700
SENTINEL_LINES = [
    "protected-mode no",
    "sentinel resolve-hostnames no",
    "sentinel down-after-milliseconds %s %d" % (MASTER, DOWN_AFTER_MS),
    "sentinel failover-timeout %s 4000" % MASTER,
    "sentinel parallel-syncs %s 2" % MASTER,
]
# Replicas log in as their own user: without it, only they are cut off.
SERVER_LINES = ["masteruser replica", "masterauth replica", "user replica on >replica +psync +replconf +ping",
                "repl-diskless-sync-delay 0", "repl-timeout 3", "protected-mode no", "save \"\"", "appendonly yes",
                "appendfsync always"]


class Replicated(Server):
    """Its role survives a restart in its configuration file, which Sentinels make it write."""

    def __init__(self, work_dir, name, host, port, within):
        super().__init__(work_dir, name, (), port, within)
        self.host = host
        self.configure("redis.conf", SERVER_LINES)

    def is_master(self):
        return self.info("replication")["role"] == "master"

    def follows(self, master):
        state = self.info("replication")
        return (state["role"] == "slave" and state["master_link_status"] == "up" and
                (state["master_host"], state["master_port"]) == (master.host, str(master.port)))


class Sentinel(Server):
    def __init__(self, work_dir, name, host, port, within):
        super().__init__(work_dir, name, ["--sentinel"], port, within)
        self.host = host


class SentinelStage(KeyStage):
    name = "sentinel"
    waits_for = 0
    deafens = ("refuse-extras",)
    may_give = {"refuse-commands": (77,)}
    fence_survives = False  # a lost counter is replaced by a clock
    on_hosts = False

    def __init__(self, work_dir, rng):
        self.rng = rng
        self.network = None
        self.servers, self.sentinels = [], []
        try:
            if self.on_hosts:
                self.network = Network(["host1", "host2", "host3"], random.Random(1))
            self.create(os.path.join(work_dir, self.name))
            self.heal()
        except BaseException:
            self.close()
            raise

    def create(self, work_dir):
        ports = free_ports(6)
        for number in (1, 2, 3):
            host = "host%d" % number
            address = self.network.address(host) if self.network else "127.0.0.1"
            within = self.network.within(host) if self.network else []
            self.servers.append(Replicated(work_dir, "server%d" % number, address, ports[number - 1], within))
            self.sentinels.append(Sentinel(work_dir, "sentinel%d" % number, address, ports[number + 2], within))
        first = self.servers[0]
        for server in self.servers:
            server.start()
            server.wait_ready()
        for server in self.servers[1:]:
            self.follow(server, first)
        wait_until(lambda: all(server.follows(first) for server in self.servers[1:]), what="the replicas follow")
        for sentinel in self.sentinels:
            sentinel.configure("sentinel.conf", ["sentinel monitor %s %s %d 2" % (MASTER, first.host, first.port)] +
                               SENTINEL_LINES)
            sentinel.start()
            sentinel.wait_ready()

    @staticmethod
    def follow(server, master):
        server.ask("REPLICAOF", master.host, master.port)
        server.ask("CONFIG", "REWRITE")

    def arguments(self):
        hosts = ",".join("%s:%d" % (sentinel.host, sentinel.port) for sentinel in self.sentinels)
        return ["--redis=redis+sentinel://%s/%s" % (hosts, MASTER)] + ["--wait-replicas=%d" % self.waits_for]

    # -- who is what --

    def named_by(self, sentinel):
        host, port = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return next(server for server in self.servers if (server.host, str(server.port)) == (host, port))

    def master(self):
        for sentinel in self.sentinels:
            try:
                return self.named_by(sentinel)
            except (OSError, RuntimeError):
                continue
        raise RuntimeError("no Sentinel names the master")

    def replicas(self):
        master = self.master()
        return [server for server in self.servers if server is not master]

    def knows_all(self, sentinel):
        flat = sentinel.ask("SENTINEL", "MASTER", MASTER)
        state = dict(zip(flat[::2], flat[1::2]))
        return state["num-other-sentinels"] == "2" and state["num-slaves"] == "2" and state["flags"] == "master"

    # -- faults --

    def fault(self, name, do, may_lose=False):
        """Sentinels may replace a master that is cut off from them for a moment, which no fault has requested."""
        def begin(rng):
            self.exclusive = self.exclusive and not may_lose
            begin.before = self.master()
            return do(rng)

        def end():
            self.heal()
            if self.master() is not begin.before and self.waits_for < len(self.servers) - 1:
                self.lost, self.exclusive = True, False
        return Fault(name, may_lose, begin, end)

    def faults(self):
        may_lose = self.waits_for < len(self.servers) - 1
        faults = [
            self.fault("kill-master", lambda rng: self.to_one([self.master()], rng, Server.kill), may_lose),
            self.fault("freeze-master", lambda rng: self.to_one([self.master()], rng, Server.freeze), may_lose),
            self.fault("failover", self.fail_over, may_lose),
            self.fault("cut-off-replicas", self.cut_off_replicas),
            self.fault("cut-off-and-failover", self.fail_over_to_one_behind, may_lose),
            self.fault("kill-replica", lambda rng: self.to_one(self.replicas(), rng, Server.kill)),
            self.fault("freeze-replica", lambda rng: self.to_one(self.replicas(), rng, Server.freeze)),
            self.fault("kill-sentinel", lambda rng: self.to_one(self.sentinels, rng, Server.kill)),
            self.fault("freeze-sentinel", lambda rng: self.to_one(self.sentinels, rng, Server.freeze)),
            self.fault("kill-clients", lambda rng: self.to_one([self.master()], rng, Server.kill_clients)),
            self.fault("refuse-extras", lambda rng: self.master().refuse(rng, EXTRAS)),
            self.fault("refuse-commands", lambda rng: self.master().refuse(rng, NEEDED)),
            self.fault("kill-clients-of-sentinels", self.kill_clients_of_sentinels),
        ]
        return faults + (self.faults_of_network(may_lose) if self.network else [])

    def faults_of_network(self, may_lose):
        def between(link, others):
            def do(_rng):
                host = "host%d" % (self.servers.index(self.master()) + 1)
                names = [name for name in self.network.hosts if name not in ("client", host)] if others else ["client"]
                self.network.between([host], names, link)
                return host
            return do

        def everywhere(link):
            return lambda _rng: self.network.all(link)
        return [
            self.fault("partition-master-from-hosts", between(Link(cut=True), True), may_lose),
            self.fault("partition-master-from-clients", between(Link(cut=True), False)),
            self.fault("loss", everywhere(Link(loss=0.05)), may_lose),
            self.fault("delay", everywhere(Link(delay=0.01, jitter=0.005))),
            self.fault("reorder", everywhere(Link(delay=0.004, jitter=0.004, twice=0.1))),
        ]

    @staticmethod
    def to_one(servers, rng, do):
        server = rng.choice(servers)
        do(server)
        return server.name

    def fail_over(self, _rng):
        """Requested while the master is well: the replica does not wait for data on their way."""
        old = self.master()

        def asks():
            try:
                return self.sentinels[0].ask("SENTINEL", "FAILOVER", MASTER) == "OK"
            except RuntimeError as error:
                if "NOGOODSLAVE" in str(error) or "INPROG" in str(error):
                    return False
                raise
        wait_until(asks, 10, "a failover begins")
        wait_until(lambda: self.named_by(self.sentinels[0]) is not old, 10, "the failover is over")
        return "%s to %s" % (old.name, self.named_by(self.sentinels[0]).name)

    def cut_off_replicas(self, _rng):
        """The Sentinels cannot reach the master; everybody else can."""
        master = self.master()
        master.ask("ACL", "SETUSER", "replica", "off")
        master.ask("CLIENT", "KILL", "TYPE", "replica")
        return master.name

    def fail_over_to_one_behind(self, rng):
        self.cut_off_replicas(rng)
        master = self.master()
        wait_until(lambda: all(not server.follows(master) for server in self.replicas()), 5, "the replicas are cut off")
        return self.fail_over(rng)

    def kill_clients_of_sentinels(self, _rng):
        return ",".join(str(sentinel.kill_clients()) for sentinel in self.sentinels)

    def heal(self):
        if self.network:
            self.network.heal()
        for server in self.servers + self.sentinels:
            server.thaw()
            server.start()
        for server in self.servers + self.sentinels:
            server.wait_ready()
        for server in self.servers:
            server.ask("ACL", "SETUSER", "replica", "on")
            server.allow_all()
        wait_until(self.is_whole, what="one master that all follow")

    def is_whole(self):
        """A master that comes back after a failover is told to follow only after about 8 s; an operator is quicker."""
        master = self.named_by(self.sentinels[0])
        if any(self.named_by(sentinel) is not master for sentinel in self.sentinels) or not master.is_master():
            return False
        others = [server for server in self.servers if server is not master]
        for server in others:
            if server.is_master() and self.has_been_agreed(master):
                self.follow(server, master)
        return (all(server.follows(master) for server in others) and
                all(self.knows_all(sentinel) for sentinel in self.sentinels))

    def has_been_agreed(self, master):
        """No failover is under way."""
        flat = self.sentinels[0].ask("SENTINEL", "MASTER", MASTER)
        return dict(zip(flat[::2], flat[1::2]))["flags"] == "master" and master.is_master()

    def locks(self):
        return sorted(self.master().locks())

    def ask_about(self, _lock):
        return self.master().ask

    def close(self):
        for server in self.sentinels + self.servers:
            server.kill()
        if self.network:
            self.network.close()


class SentinelReplicasStage(SentinelStage):
    name = "sentinel-replicas"
    waits_for = 1


class SentinelAllReplicasStage(SentinelStage):
    name = "sentinel-all-replicas"
    waits_for = 2


class SentinelNetworkStage(SentinelReplicasStage):
    name = "sentinel-network"
    on_hosts = True


def make(name, work_dir, rng):
    kinds = (SentinelStage, SentinelReplicasStage, SentinelAllReplicasStage, SentinelNetworkStage)
    return {kind.name: kind for kind in kinds}[name](work_dir, rng)
