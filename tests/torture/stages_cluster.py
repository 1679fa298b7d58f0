"""A Cluster of three masters, each with a replica.

"cluster": takes count as soon as the master has them, so that an election may lose the last ones.
"cluster-replicas": with --wait-replicas=1, so that the one replica that can be elected has the lock.

Slots are moved with their keys while locks are in them, and masters change. What moves is a slot of a lock that is
there, or that was: the name of a lock tells the slot.
"""

import binascii
import os

from servers import EXTRAS, NEEDED, KeyStage, Server, free_ports, wait_until
from stage import Fault

MASTERS = 3
SLOTS = 16384
NODE_TIMEOUT_MS = 1000
KEYS_MOST = 100
# This many slots move at once: more would delay the schedule.
MOVES_MOST = 8


def slot_of(key):
    begin = key.find("{")
    end = key.find("}", begin + 1)
    if begin >= 0 and end > begin + 1:
        key = key[begin + 1:end]
    return binascii.crc_hqx(key.encode(), 0) % SLOTS


class Node(Server):
    def __init__(self, work_dir, name, port, bus_port):
        super().__init__(work_dir, name, [], port)
        self.bus_port = bus_port
        self.configure("redis.conf", [
            "cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-port %d" % bus_port, "bind 127.0.0.1",
            "cluster-node-timeout %d" % NODE_TIMEOUT_MS, "cluster-require-full-coverage no", "repl-diskless-sync-delay 0",
            "save \"\"", "appendonly yes", "appendfsync always"])
        self.id = None

    def is_master(self):
        return self.info("replication")["role"] == "master"

    def cluster_info(self):
        return dict(line.split(":") for line in self.ask("CLUSTER", "INFO").split("\r\n") if line)

    def nodes(self):
        """For each node that it knows: its id, and the rest of its line."""
        return {line.split()[0]: line.split()[1:] for line in self.ask("CLUSTER", "NODES").split("\n") if line}

    def slots(self):
        """Its own slots as a set, without those on the move."""
        own = set()
        for word in self.nodes()[self.id][7:]:
            if not word.startswith("["):
                first, _, last = word.partition("-")
                own.update(range(int(first), int(last or first) + 1))
        return own


class ClusterStage(KeyStage):
    name = "cluster"
    waits_for = 0
    deafens = ("refuse-extras",)
    may_give = {"refuse-commands": (77,)}
    fence_survives = False  # a lost counter is replaced by a clock

    def __init__(self, work_dir, rng):
        work_dir = os.path.join(work_dir, self.name)
        self.rng = rng
        ports = free_ports(4 * MASTERS)
        self.nodes = [Node(work_dir, "node%d" % (i + 1), ports[2 * i], ports[2 * i + 1]) for i in range(2 * MASTERS)]
        self.moving = {}  # slot: (from, to, the other masters)
        try:
            self.create()
        except BaseException:
            self.close()
            raise

    def create(self):
        for node in self.nodes:
            node.start()
        for number, node in enumerate(self.nodes):
            node.wait_ready()
            node.id = node.ask("CLUSTER", "MYID")
            if number < MASTERS:
                first, last = number * SLOTS // MASTERS, (number + 1) * SLOTS // MASTERS - 1
                node.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
                node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus_port)
        for number, node in enumerate(self.nodes[MASTERS:]):
            master = self.nodes[number].id
            wait_until(lambda: node.ask("CLUSTER", "REPLICATE", master) == "OK", what="%s has a master" % node.name)
        wait_until(self.is_whole, what="the Cluster is whole")

    def arguments(self):
        return ["--redis=redis+cluster://" + ",".join("127.0.0.1:%d" % node.port for node in self.nodes[:MASTERS]),
                "--wait-replicas=%d" % self.waits_for]

    def is_whole(self):
        """Each slot has a master, each master a replica with all data, and each node knows this."""
        masters = [node for node in self.nodes if node.is_master()]
        if len(masters) != MASTERS or sum(len(node.slots()) for node in masters) != SLOTS:
            return False
        for node in self.nodes:
            known, info = node.nodes(), node.cluster_info()
            if info["cluster_state"] != "ok" or len(known) != len(self.nodes):
                return False
            if any("fail" in words[1] for words in known.values()):
                return False
            if node not in masters and node.info("replication")["master_link_status"] != "up":
                return False
            # The next gossip replaces an old view of the slots.
            if any(self.owner_in(known, slot) != self.owner(masters, slot).id for slot in (0, SLOTS // 2, SLOTS - 1)):
                return False
        return all(node.info("replication")["connected_slaves"] == "1" for node in masters)

    @staticmethod
    def owner_in(known, slot):
        for identity, words in known.items():
            for word in words[7:]:
                first, _, last = word.partition("-")
                if not word.startswith("[") and int(first) <= slot <= int(last or first):
                    return identity
        return None

    @staticmethod
    def owner(masters, slot):
        for node in masters:
            if slot in node.slots():
                return node
        raise RuntimeError("slot %d has no master" % slot)

    def masters(self):
        return [node for node in self.nodes if node.is_up() and not node.frozen and node.is_master()]

    def replica_of(self, master):
        for node in self.nodes:
            if node.is_up() and node.info("replication").get("master_port") == str(master.port):
                return node
        raise RuntimeError("%s has no replica" % master.name)

    # -- slots on their way --

    def slots_in_use(self):
        """The slots with keys."""
        return sorted({slot_of(key) for node in self.masters() for key in node.ask("KEYS", "*")})

    def begin_move(self, slot, masters, rng):
        source = self.owner(masters, slot)
        target = rng.choice([node for node in masters if node is not source])
        self.moving[slot] = (source, target, [node for node in masters if node not in (source, target)])
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        return "slot %d from %s to %s" % (slot, source.name, target.name)

    def move_keys(self, slot, most=None):
        """The keys of a slot, one by one, or only so many of them."""
        source, target, _ = self.moving[slot]
        for key in source.ask("CLUSTER", "GETKEYSINSLOT", slot, KEYS_MOST)[:most]:
            source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 2000)

    def end_move(self, slot):
        source, target, others = self.moving[slot]
        while source.ask("CLUSTER", "COUNTKEYSINSLOT", slot) > 0:
            self.move_keys(slot)
        target.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        for node in [source] + others:
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        del self.moving[slot]

    def move_slots(self, rng, steps):
        """Some used slots start to move; steps: what else has been done by now."""
        words, slots, masters = [], self.slots_in_use(), self.masters()
        for slot in sorted(rng.sample(slots, min(len(slots), MOVES_MOST))):
            words.append(self.begin_move(slot, masters, rng))
            if steps == "half":
                self.move_keys(slot, 1)
            elif steps == "whole":
                self.end_move(slot)
        return "; ".join(words)

    def storm(self, rng):
        return "; ".join(self.move_slots(rng, "whole") for _ in range(5))

    # -- faults --

    def fault(self, name, do, may_lose=False):
        def begin(rng):
            self.exclusive = self.exclusive and not may_lose
            return do(rng)
        return Fault(name, may_lose, begin, self.heal)

    def to_master(self, do, *drawn_of):
        def begin(rng):
            node = rng.choice(self.masters())
            do(node, *([rng] if drawn_of else []), *drawn_of)
            return node.name
        return begin

    def fail_over(self, how=()):
        """By hand: the replica waits until it has all data, and the master accepts nothing meanwhile. With TAKEOVER it
        does not wait."""
        def begin(rng):
            master = rng.choice(self.masters())
            replica = self.replica_of(master)
            replica.ask("CLUSTER", "FAILOVER", *how)
            wait_until(replica.is_master, 10, "%s is a master" % replica.name)
            return "%s to %s" % (master.name, replica.name)
        return begin

    def elected(self, do):
        """A master goes down until the others have elected its replica by themselves."""
        def begin(rng):
            master = rng.choice(self.masters())
            replica = self.replica_of(master)
            do(master)
            wait_until(replica.is_master, 10, "%s is elected" % replica.name)
            return "%s, %s is elected" % (master.name, replica.name)
        return begin

    def faults(self):
        may_lose = self.waits_for == 0
        return [
            self.fault("begin-moves", lambda rng: self.move_slots(rng, "begun")),
            self.fault("half-moves", lambda rng: self.move_slots(rng, "half")),
            self.fault("moves", lambda rng: self.move_slots(rng, "whole")),
            self.fault("moved-storm", self.storm),
            self.fault("failover", self.fail_over()),
            self.fault("takeover", self.fail_over(("TAKEOVER",)), may_lose),
            self.fault("kill-master", self.to_master(Server.kill), may_lose),
            self.fault("freeze-master", self.to_master(Server.freeze), may_lose),
            self.fault("election", self.elected(Server.kill), may_lose),
            self.fault("election-of-frozen", self.elected(Server.freeze), may_lose),
            self.fault("kill-replica", lambda rng: self.kill_replica(rng)),
            self.fault("kill-clients", self.to_master(Server.kill_clients)),
            self.fault("refuse-extras", self.to_master(Server.refuse, EXTRAS)),
            self.fault("refuse-commands", self.to_master(Server.refuse, NEEDED)),
        ]

    def kill_replica(self, rng):
        node = self.replica_of(rng.choice(self.masters()))
        node.kill()
        return node.name

    def heal(self):
        for node in self.nodes:
            node.thaw()
            node.start()
        for node in self.nodes:
            node.wait_ready()
            node.allow_all()
        for slot in list(self.moving):
            self.end_move(slot)
        try:
            wait_until(self.is_whole, 8, what="the Cluster is whole")
        except RuntimeError:
            self.repair()
            wait_until(self.is_whole, what="the Cluster is whole")

    def repair(self):
        """As an administrator does if the nodes disagree about a slot, of which each says that another has it. So it is
        now and then (with Redis 8) after two moves: a replica that has not heard of the first one claims the slot for its
        master, whose epoch the second one has raised."""
        masters = self.masters()
        own = {node: node.slots() for node in masters}
        for slot in range(SLOTS):
            claimed = [node for node in masters if slot in own[node]]
            if len(claimed) != 1:
                owner = max(claimed or masters, key=lambda node: node.ask("CLUSTER", "COUNTKEYSINSLOT", slot))
                for node in [owner] + [node for node in masters if node is not owner]:
                    node.ask("CLUSTER", "SETSLOT", slot, "NODE", owner.id)
                owner.ask("CLUSTER", "BUMPEPOCH")

    def locks(self):
        return sorted({lock for node in self.masters() for lock in node.locks()})

    def ask_about(self, lock):
        return self.owner(self.masters(), slot_of("dlock:" + lock)).ask

    def close(self):
        for node in self.nodes:
            node.kill()


class ClusterReplicasStage(ClusterStage):
    name = "cluster-replicas"
    waits_for = 1


def make(name, work_dir, rng):
    return {kind.name: kind for kind in (ClusterStage, ClusterReplicasStage)}[name](work_dir, rng)
