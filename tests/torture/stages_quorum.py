"""Three or five independent servers.

"quorum3", "quorum5": each behind a proxy on a Unix socket, so that it can be slow, silent or out of reach by itself.
"quorum3-network": each on a host of its own, on a network that loses and reorders.

Servers keep all on disk before they answer, so that one that is killed comes back with its locks. One that comes back
without them is a fault of its own, across which exclusion is not promised: under contention a lock often stands on a bare
majority until its holder's next check, and if one of these forgets it, the server that has refused the holder and
this one are a majority for somebody else.
"""

import contextlib
import os
import random

from network import Link, Network
from proxy import UP, ProxyProcess
from servers import ALWAYS_KEPT, DELETE_SCRIPT, EXTRAS, NEEDED, NO_SERVER, Server, free_ports
from stage import Fault, Stage

PAUSE_MS = 400
# A server's clock is set by this many seconds, which is more than a lease.
CLOCK_STEP = 3


class Quorum(Stage):
    """What both kinds share: the faults of servers."""

    slots = in_order = False
    progress = 6.0
    fence_survives = False  # a lost counter is replaced by a clock
    stands_on = 6.0
    deafens = ("refuse-extras",)
    may_give = {"refuse-commands": (77,)}
    sets_back = {"clock-back-minority": CLOCK_STEP}

    def __init__(self, rng):
        self.rng = rng
        self.servers = []
        self.exclusive = True

    @property
    def minority(self):
        return (len(self.servers) - 1) // 2

    def start_all(self):
        for server in self.servers:
            server.ahead = 0
            server.start()
        for server in self.servers:
            server.wait_ready()

    def urls(self):
        raise NotImplementedError

    def arguments(self):
        return ["--redis=" + url for url in self.urls()]

    def each(self, do, rng, number):
        """Acts on this many servers, drawn at random; returns which."""
        chosen = sorted(rng.sample(range(len(self.servers)), number))
        for place in chosen:
            do(place)
        return ",".join(self.servers[place].name for place in chosen)

    def fault(self, name, do, number, may_lose=False):
        def begin(rng):
            self.exclusive = self.exclusive and not may_lose
            return self.each(do, rng, number)
        return Fault(name, may_lose, begin, self.heal)

    def faults(self):
        few, most, everyone = self.minority, self.minority + 1, len(self.servers)
        at = self.servers
        return [
            self.fault("kill-minority", lambda place: at[place].kill(), few),
            self.fault("kill-majority", lambda place: at[place].kill(), most),
            self.fault("freeze-minority", lambda place: at[place].freeze(), few),
            self.fault("freeze-majority", lambda place: at[place].freeze(), most),
            self.fault("restart-minority", self.restart, few),
            self.fault("restart-all-in-turn", self.restart, everyone),
            self.fault("restart-empty-minority", self.restart_empty, few, may_lose=True),
            self.fault("flush-minority", lambda place: at[place].ask("FLUSHALL"), few, may_lose=True),
            self.fault("clock-back-minority", lambda place: at[place].step(-CLOCK_STEP), few),
            self.fault("clock-forward-minority", lambda place: at[place].step(CLOCK_STEP), few, may_lose=True),
            self.fault("kill-clients", lambda place: at[place].kill_clients(), everyone),
            self.fault("refuse-extras", lambda place: at[place].refuse(self.rng, EXTRAS), everyone),
            self.fault("refuse-commands-minority", lambda place: at[place].refuse(self.rng, NEEDED), few),
            self.fault("refuse-commands", lambda place: at[place].refuse(self.rng, NEEDED), everyone),
            self.fault("replica-minority", lambda place: at[place].ask("REPLICAOF", *NO_SERVER), few),
            self.fault("replica-majority", lambda place: at[place].ask("REPLICAOF", *NO_SERVER), most),
            self.fault("pause-majority", lambda place: at[place].ask("CLIENT", "PAUSE", PAUSE_MS, "ALL"), most),
            self.fault("script-flush", lambda place: at[place].ask("SCRIPT", "FLUSH"), everyone),
        ]

    def restart(self, place):
        self.servers[place].kill()
        self.servers[place].start()
        self.servers[place].wait_ready()

    def restart_empty(self, place):
        self.servers[place].kill()
        self.servers[place].forget()
        self.servers[place].start()
        self.servers[place].wait_ready()

    def end_faults_of_network(self):
        raise NotImplementedError

    def heal(self):
        self.end_faults_of_network()
        for server in self.servers:
            server.thaw()
            server.start()
        for server in self.servers:
            server.wait_ready()
            server.allow_all()
            server.ask("REPLICAOF", "NO", "ONE")
            if server.ask("CLIENT", "UNPAUSE") != "OK":
                raise RuntimeError("%s stays paused" % server.name)

    def locks(self):
        return sorted({lock for server in self.servers for lock in server.locks()})

    def remove(self, lock):
        """Removes the lock where it can be reached: a removal must be reported, whatever happens to the rest. A list of tokens
        where servers had different ones."""
        tokens = []
        for server in self.servers:
            if not server.frozen:
                with contextlib.suppress(OSError, RuntimeError, ValueError):
                    tokens.append(server.ask("EVAL", DELETE_SCRIPT, 1, "dlock:" + lock))
        tokens = [token for token in tokens if token is not None]
        # The rest may be unreachable for this program and for its holder.
        self.surely_removed = len(tokens) == len(self.servers) and len(set(tokens)) == 1
        tokens = sorted(set(tokens))
        return tokens if len(tokens) > 1 else tokens[0] if tokens else None

    def close(self):
        for server in self.servers:
            server.kill()


class Quorum3Stage(Quorum):
    name, count = "quorum3", 3

    def __init__(self, work_dir, rng):
        super().__init__(rng)
        self.proxies = []
        try:
            self.servers = [Server(os.path.join(work_dir, self.name), "server%d" % number, ALWAYS_KEPT)
                            for number in range(1, self.count + 1)]
            self.start_all()
            for server in self.servers:
                self.proxies.append(ProxyProcess(server.socket_path, os.path.join(server.directory, "proxy")))
        except BaseException:
            self.close()
            raise

    def urls(self):
        return ["unix://" + proxy.address for proxy in self.proxies]

    def faults(self):
        few, most, everyone = self.minority, self.minority + 1, len(self.servers)
        at = self.proxies
        return super().faults() + [
            self.fault("partition-minority", lambda place: at[place].partition(), few),
            self.fault("partition-majority", lambda place: at[place].partition(), most),
            self.fault("partition-replies-minority", lambda place: at[place].partition(0, 1), few),
            self.fault("partition-replies-all", lambda place: at[place].partition(0, 1), everyone),
            self.fault("reset", lambda place: at[place].reset(), everyone),
            self.fault("refuse-minority", lambda place: at[place].refuse(), few),
            self.fault("delay-one", lambda place: at[place].delay(0.2, 0.1), 1),
            self.fault("delay-all", lambda place: at[place].delay(0.02, 0.02), everyone),
            self.fault("bandwidth-minority", lambda place: at[place].bandwidth(20000), few),
            self.fault("cut-replies", lambda place: at[place].cut(self.rng.randrange(1, 400)), most),
            self.fault("cut-requests", lambda place: at[place].cut(self.rng.randrange(1, 1500), UP), most),
        ]

    def end_faults_of_network(self):
        for proxy in self.proxies:
            proxy.heal()

    def close(self):
        for proxy in self.proxies:
            proxy.close()
        super().close()


class Quorum5Stage(Quorum3Stage):
    name, count = "quorum5", 5


class Quorum3NetworkStage(Quorum):
    name = "quorum3-network"

    def __init__(self, work_dir, rng):
        super().__init__(rng)
        names = ["server1", "server2", "server3"]
        self.network = Network(names, random.Random(1))
        try:
            port = free_ports(1)[0]
            arguments = ALWAYS_KEPT + ("--protected-mode", "no")
            self.servers = [Server(os.path.join(work_dir, self.name), host, arguments, port, self.network.within(host))
                            for host in names]
            self.start_all()
        except BaseException:
            self.close()
            raise

    def urls(self):
        return ["redis://%s:%d" % (self.network.address(server.name), server.port) for server in self.servers]

    def link(self, place, link):
        self.network.between([self.servers[place].name], ["client"], link)

    def faults(self):
        few, most, everyone = self.minority, self.minority + 1, len(self.servers)

        def one_way(place):
            self.network.rule([self.servers[place].name], ["client"], Link(cut=True))
        return super().faults() + [
            self.fault("partition-minority", lambda place: self.link(place, Link(cut=True)), few),
            self.fault("partition-majority", lambda place: self.link(place, Link(cut=True)), most),
            self.fault("partition-replies-minority", one_way, few),
            self.fault("loss", lambda place: self.link(place, Link(loss=0.05)), everyone),
            self.fault("delay-all", lambda place: self.link(place, Link(delay=0.01, jitter=0.005)), everyone),
            self.fault("reorder", lambda place: self.link(place, Link(delay=0.004, jitter=0.004, twice=0.1)), everyone),
        ]

    def end_faults_of_network(self):
        self.network.heal()

    def close(self):
        super().close()
        self.network.close()


def make(name, work_dir, rng):
    kinds = {kind.name: kind for kind in (Quorum3Stage, Quorum5Stage, Quorum3NetworkStage)}
    return kinds[name](work_dir, rng)
