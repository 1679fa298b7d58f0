"""A proxy between dlock and a server, which does what a bad network does.

    proxy = ProxyProcess("/run/redis.sock", "/run/proxy.sock")
    proxy.delay(0.1, 0.05)
    ... connect to proxy.address ...
    proxy.heal()

Addresses are a path, or a pair of host and port. `python3 proxy.py LISTEN TARGET` is the proxy: it takes the names of
faults and their numbers from its standard input, a line each, and says "ok" when that holds. It is one thread, so
nothing is shared. ProxyProcess runs one beside us, where it does not wait for whatever else this process does.

What is held back arrives when that is over, as TCP sends again what was not acknowledged. A connection that is made
meanwhile is accepted, since the kernel does that, and silent.
"""

import asyncio
import collections
import contextlib
import os
import random
import socket
import struct
import subprocess
import sys

from servers import spawn

UP, DOWN = 0, 1  # to the server; from it
END = b""
RESETS = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s


class Side(asyncio.Protocol):
    """Bytes from the client go up, bytes from the server go down."""

    def __init__(self, connection, direction):
        self.connection, self.direction = connection, direction

    def connection_made(self, transport):
        self.connection.transports[1 - self.direction] = transport
        if self.direction == UP:
            self.connection.open_server()

    def data_received(self, data):
        self.connection.pass_on(self.direction, data)

    def eof_received(self):
        self.connection.pass_on(self.direction, END)
        return True  # the other direction stays open

    def connection_lost(self, _error):
        """Bytes sent before that still arrive, as in a network."""
        self.connection.pass_on(self.direction, END)


class Connection:
    """A client's connection, and the one to the server. transports and queues: by the direction of the bytes."""

    def __init__(self, proxy):
        self.proxy = proxy
        self.transports = [None, None]
        self.queues = (collections.deque(), collections.deque())  # (when it is due, bytes)
        self.last_due, self.ended = [0.0, 0.0], [False, False]
        self.cut_left = list(proxy.cut_after)
        self.held = proxy.holds > 0
        proxy.holds -= self.held
        proxy.connections.add(self)
        self.opening = None

    def open_server(self):
        self.opening = asyncio.ensure_future(self.connect())

    async def connect(self):
        loop, target = asyncio.get_running_loop(), self.proxy.target
        try:
            if isinstance(target, str):
                await loop.create_unix_connection(lambda: Side(self, DOWN), target)
            else:
                await loop.create_connection(lambda: Side(self, DOWN), *target)
        except OSError:
            self.close(with_reset=True)
        self.flush(UP)

    def pass_on(self, direction, data):
        now = asyncio.get_running_loop().time()
        due = max(self.last_due[direction], now + self.proxy.latency()) + self.proxy.time_for(data)
        self.last_due[direction] = due
        self.queues[direction].append((due, data))
        self.flush(direction)

    def flush(self, direction):
        queue, loop = self.queues[direction], asyncio.get_running_loop()
        while queue and not self.held and self.proxy.is_open[direction] and self.transports[direction] is not None:
            due, data = queue[0]
            if due > loop.time():
                loop.call_at(due, self.flush, direction)
                return
            queue.popleft()
            self.write(direction, data)

    def write(self, direction, data):
        transport = self.transports[direction]
        if self.ended[direction] or transport.is_closing():
            self.ended[direction] = True
        elif data == END:
            self.ended[direction] = True
            with contextlib.suppress(OSError):  # its peer has just reset it
                transport.write_eof()
        elif self.cut_left[direction] is not None and len(data) >= self.cut_left[direction]:
            transport.write(data[:self.cut_left[direction]])
            self.close(with_reset=False)  # what was written arrives first
        else:
            transport.write(data)
            if self.cut_left[direction] is not None:
                self.cut_left[direction] -= len(data)
        if all(self.ended):
            self.close(with_reset=False)

    def close(self, with_reset):
        self.proxy.connections.discard(self)
        for transport in self.transports:
            if transport is None or transport.is_closing():
                continue
            if with_reset:
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
                transport.abort()
            else:
                transport.close()


class Proxy:
    """Its calls run in asyncio's loop."""

    def __init__(self, target, listen):
        self.target, self.address = target, listen
        self.rng = random.Random(1)
        self.connections = set()
        self.server = None
        self.is_open = [True, True]
        self.seconds = self.jitter = self.rate = self.holds = 0
        self.cut_after = [None, None]

    def latency(self):
        return max(self.seconds + self.rng.uniform(-self.jitter, self.jitter), 0) if self.seconds else 0

    def time_for(self, data):
        return len(data) / self.rate if self.rate else 0

    async def listen(self):
        loop = asyncio.get_running_loop()
        if self.server is not None:
            return
        if isinstance(self.address, str):
            if os.path.exists(self.address):
                os.unlink(self.address)
            self.server = await loop.create_unix_server(lambda: Side(Connection(self), UP), self.address, backlog=1000)
        else:
            self.server = await loop.create_server(lambda: Side(Connection(self), UP), *self.address, backlog=1000)
            self.address = self.server.sockets[0].getsockname()[:2]

    def flush(self):
        for connection in list(self.connections):
            connection.flush(UP)
            connection.flush(DOWN)

    # -- faults --

    async def partition(self, up=1, down=1):
        """Holds back bytes to the server (up), bytes from it (down), or both."""
        self.is_open = [not up, not down]
        self.flush()

    async def delay(self, seconds, jitter=0.0):
        """In each direction, with up to `jitter` more or less; the bytes of a connection stay in order."""
        self.seconds, self.jitter = seconds, jitter

    async def bandwidth(self, bytes_per_second):
        self.rate = bytes_per_second

    async def hold(self, count):
        """Holds back everything on the next so many connections, so that others overtake them."""
        self.holds = int(count)

    async def hang(self):
        """Holds back everything on the current connections. Later ones pass."""
        for connection in self.connections:
            connection.held = True

    async def cut(self, after, direction=DOWN):
        """Ends each connection after so many more bytes have passed: of replies, or of requests (UP), so that the server
        carries out a part of what is sent at once."""
        self.cut_after[int(direction)] = int(after)
        for connection in self.connections:
            connection.cut_left[int(direction)] = int(after)

    async def reset(self):
        """Resets all current connections."""
        for connection in list(self.connections):
            connection.close(with_reset=True)

    async def refuse(self):
        """Refuses new connections, and resets the current ones."""
        if self.server is not None:
            self.server.close()
            self.server = None
        if isinstance(self.address, str) and os.path.exists(self.address):
            os.unlink(self.address)
        await self.reset()

    async def heal(self):
        self.is_open = [True, True]
        self.seconds = self.jitter = self.rate = self.holds = 0
        self.cut_after = [None, None]
        for connection in list(self.connections):
            connection.held, connection.cut_left = False, [None, None]
        self.flush()
        await self.listen()


FAULTS = ("partition", "delay", "bandwidth", "hold", "hang", "cut", "reset", "refuse", "heal")


class ProxyProcess:
    """A Proxy in a process of its own, which ends with this one. Each fault is called by its name."""

    def __init__(self, target, listen):
        words = [sys.executable, os.path.abspath(__file__), text_of(listen), text_of(target)]
        self.process = spawn(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, text=True)
        ready = self.process.stdout.readline().split()
        if ready[:1] != ["ready"]:
            raise RuntimeError("the proxy before %s does not start" % text_of(target))
        self.address = address_of(ready[1])

    def __getattr__(self, name):
        if name not in FAULTS:
            raise AttributeError(name)
        return lambda *numbers: self.ask(" ".join([name] + [str(float(number)) for number in numbers]))

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "ok\n":
            raise RuntimeError("the proxy does not do this: %s" % line)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def address_of(text):
    host, colon, port = text.rpartition(":")
    return (host, int(port)) if colon and port.isdigit() else text


def text_of(address):
    return address if isinstance(address, str) else "%s:%d" % address


async def serve(listen, target):
    proxy, loop = Proxy(target, listen), asyncio.get_running_loop()
    await proxy.listen()
    print("ready", text_of(proxy.address), flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        name, *numbers = line.split()
        if name not in FAULTS:
            raise SystemExit("no such fault: " + name)
        await getattr(proxy, name)(*map(float, numbers))
        print("ok", flush=True)


if __name__ == "__main__":
    asyncio.run(serve(address_of(sys.argv[1]), address_of(sys.argv[2])))
