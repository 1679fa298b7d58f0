"""Runs a command under a lock in Redis the way redlock clients do, for tests/bench/bench_waiting.py.

    redlock_poll.py SOCKET KEY ARRIVALS COMMAND [ARG...]

SET NX PX until it succeeds, with the pauses that node-redlock 5 makes unless told otherwise (200 ms, give or take up
to 100), but without giving up after ten; a compare-and-delete at the end. On a socket of its own, so that a poll costs
no more than it must. One line goes to ARRIVALS when the lock is first found taken.
"""

import os
import random
import socket
import sys
import time

RETRY_DELAY = 0.2
RETRY_JITTER = 0.1
TTL_MS = "3600000"
RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


def ask(conn, *words):
    """Sends one command, and returns its reply unparsed: one short line for everything that is asked here."""
    parts = [word.encode() for word in words]
    conn.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
    reply = b""
    while not reply.endswith(b"\r\n"):
        more = conn.recv(512)
        if not more:
            sys.exit("redlock_poll: the server has gone")
        reply += more
    return reply.decode().strip()


def take(conn, key, token, arrivals):
    told = False
    while ask(conn, "SET", key, token, "NX", "PX", TTL_MS) != "+OK":
        if not told:
            with open(arrivals, "a", encoding="ascii") as file:
                file.write(".")
            told = True
        time.sleep(RETRY_DELAY + random.uniform(-RETRY_JITTER, RETRY_JITTER))


def main():
    path, key, arrivals, *command = sys.argv[1:]
    conn = socket.socket(socket.AF_UNIX)
    conn.connect(path)
    token = os.urandom(16).hex()
    take(conn, key, token, arrivals)
    _, status = os.waitpid(os.posix_spawn(command[0], command, os.environ), 0)
    ask(conn, "EVAL", RELEASE, "1", key, token)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1


if __name__ == "__main__":
    sys.exit(main())
