"""A client of Redis for the tests: RESP2 on a Unix socket, one command at a time."""

import socket
import time


class RedisClient:
    def __init__(self, path, seconds):
        """Connects to a server that is still starting, within so many seconds."""
        self.stream = self.connect(path, time.monotonic() + seconds)
        self.replies = self.stream.makefile("rb")

    @staticmethod
    def connect(path, end):
        while True:
            stream = socket.socket(socket.AF_UNIX)
            try:
                stream.connect(path)
                return stream
            except OSError:
                stream.close()
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def close(self):
        self.replies.close()
        self.stream.close()

    def ask(self, *words):
        self.send(*words)
        return self.reply()

    def send(self, *words):
        parts = [str(word).encode() for word in words]
        self.stream.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))

    def reply(self):
        line = self.replies.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.replies.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if kind == b"+":
            return rest.decode()
        raise RuntimeError("Redis says %r" % line)


def ask_once(path, *words, connect, answer):
    """One command, on its own connection; raises if the server does not let this client in, or
    does not answer, within so many seconds."""
    client = RedisClient(path, connect)
    try:
        client.stream.settimeout(answer)
        return client.ask(*words)
    finally:
        client.close()
