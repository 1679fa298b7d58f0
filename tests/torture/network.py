"""Hosts in network namespaces, and a switch between them that loses, delays, reorders and doubles frames.

    with Network(["a", "b"]) as network:
        subprocess.Popen(network.within("a") + ["redis-server", ...])
        network.rule(["a"], ["b"], Link(loss=0.1))

The thread that makes it becomes a host itself, "client": what it starts, and threads that it starts, are there until
close(); so there is one network in a process, and no server of the old namespace is reached by TCP meanwhile. Each host
is a namespace that lives as long as a process of ours, which ends with us, so nothing is left behind however we end.
Each has a TAP device, and its frames pass through one thread of this process, which does to them what a Link says: no
module of the kernel for queueing or filtering is needed.

The thread of the switch has the queue of frames. The table of links is replaced as a whole, never changed; a frame
goes by the table that it finds.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from typing import NamedTuple

from servers import spawn

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME_MOST = 65536
SUBNET = "10.77.0."
CLIENT = "client"


class Link(NamedTuple):
    """The path from one host to another. Seconds; probabilities. Jitter beyond the gap of two frames reorders."""
    loss: float = 0
    delay: float = 0
    jitter: float = 0
    twice: float = 0
    cut: bool = False


def why_not():
    """Why this machine cannot have a network, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "nsenter", "setpriv", "unshare"):
        if shutil.which(program) is None:
            return "the program %s is missing" % program
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        return "/dev/net/tun: %s" % error.strerror
    probe = subprocess.run(["unshare", "--net", "true"], stderr=subprocess.PIPE, check=False)
    return None if probe.returncode == 0 else probe.stderr.decode(errors="replace").strip()


def call_libc(name, *arguments):
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, "%s: %s" % (name, os.strerror(error)))


class Host:
    def __init__(self, name, number):
        self.name, self.number = name, number
        self.address = SUBNET + str(number)
        self.mac = bytes((2, 0, 0, 0, 0, number))
        self.process = None
        self.fd = -1

    def create(self):
        self.process = spawn(["unshare", "--net", "--", "sleep", "infinity"])
        here, end = os.readlink("/proc/self/ns/net"), time.monotonic() + 10
        while os.readlink("/proc/%d/ns/net" % self.process.pid) == here:
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the host %s has no namespace of its own" % self.name)
            time.sleep(0.005)

    def within(self):
        return ["nsenter", "--net=/proc/%d/ns/net" % self.process.pid, "--"] if self.process else []

    def plug(self):
        """A TAP device is created in the maker's namespace and moved; the descriptor stays open here."""
        device = "dlock%d" % self.number
        self.fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(self.fd, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
        if self.process:
            subprocess.run(["ip", "link", "set", device, "netns", str(self.process.pid)], check=True)
        commands = "link set lo up\nlink set %s address %s\naddr add %s/24 dev %s\nlink set %s up\n" % (
            device, ":".join("%02x" % byte for byte in self.mac), self.address, device, device)
        subprocess.run(self.within() + ["ip", "-batch", "-"], input=commands.encode(), check=True)

    def destroy(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Network:
    def __init__(self, names, rng=None):
        reason = why_not()
        if reason is not None:
            raise RuntimeError("no network of hosts here: %s" % reason)
        self.rng = rng or random.Random()
        self.links = {}
        self.frames, self.order = [], 0
        self.counts = {"passed": 0, "lost": 0}
        self.hosts = {name: Host(name, number) for number, name in enumerate([CLIENT] + list(names), 1)}
        self.home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.wake_r, self.wake_w = os.pipe2(os.O_CLOEXEC)
        self.thread = None
        try:
            call_libc("unshare", CLONE_NEWNET)
            for host in self.hosts.values():
                if host.name != CLIENT:
                    host.create()
                host.plug()
        except BaseException:
            self.close()
            raise
        self.thread = threading.Thread(target=self.switch, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def within(self, name):
        """The words before a command that runs it on this host."""
        return self.hosts[name].within()

    def address(self, name):
        return self.hosts[name].address

    # -- what is done to frames --

    def rule(self, sources, targets, link):
        """For each frame from one of these to one of those; the other direction stays as it is."""
        links = dict(self.links)
        for source in sources:
            for target in targets:
                links[self.hosts[source].number, self.hosts[target].number] = link
        self.links = links

    def between(self, some, others, link):
        """Both ways."""
        self.rule(some, others, link)
        self.rule(others, some, link)

    def all(self, link):
        self.between(self.hosts, self.hosts, link)

    def heal(self):
        self.links = {}

    # -- the switch --

    def switch(self):
        by_fd = {host.fd: host for host in self.hosts.values()}
        poll = select.poll()
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        poll.register(self.wake_r, select.POLLIN)
        while True:
            wait = max(self.frames[0][0] - time.monotonic(), 0) * 1000 if self.frames else None
            for fd, _ in poll.poll(wait):
                if fd == self.wake_r:
                    return
                self.take_in(by_fd[fd])
            self.send_due()

    def take_in(self, source):
        while True:
            try:
                frame = os.read(source.fd, FRAME_MOST)
            except OSError:
                return
            everybody = frame[0] & 1
            for target in self.hosts.values():
                if target is not source and (everybody or frame[:6] == target.mac):
                    self.enqueue(source, target, frame)

    def enqueue(self, source, target, frame):
        link = self.links.get((source.number, target.number))
        copies, now = 1, time.monotonic()
        if link is not None:
            if link.cut or (link.loss and self.rng.random() < link.loss):
                self.counts["lost"] += 1
                return
            copies += link.twice > 0 and self.rng.random() < link.twice
        for _ in range(copies):
            late = max(link.delay + self.rng.uniform(-link.jitter, link.jitter), 0) if link else 0
            self.order += 1
            heapq.heappush(self.frames, (now + late, self.order, target, frame))

    def send_due(self):
        while self.frames and self.frames[0][0] <= time.monotonic():
            target, frame = heapq.heappop(self.frames)[2:]
            try:
                os.write(target.fd, frame)
                self.counts["passed"] += 1
            except OSError:
                self.counts["lost"] += 1  # its queue is full

    def close(self):
        if self.home < 0:
            return
        if self.thread is not None:
            os.write(self.wake_w, b"x")
            self.thread.join(10)
        for host in self.hosts.values():
            host.destroy()
        call_libc("setns", self.home, CLONE_NEWNET)
        for fd in (self.home, self.wake_r, self.wake_w):
            os.close(fd)
        self.home = -1
