#!/usr/bin/env python3
"""A Sentinel that answers what a test asks it to.

Usage: fake_sentinel.py PORT-FILE [--deaf] REPLY...
Listens on a port of 127.0.0.1, which it writes to PORT-FILE. Each question for
a master gets the next REPLY (with Python's escapes), the last one for ever;
"mute": none; "close": the connection ends. All else is answered with +OK, and
SUBSCRIBE as a server would, or refused with --deaf. Each question is a line on
stdout, and each SUBSCRIBE.
"""
import contextlib
import os
import socket
import sys
import threading

deaf = "--deaf" in sys.argv
replies = [reply.encode().decode("unicode_escape").encode("latin-1") for reply in sys.argv[3 if deaf else 2:]]
guard = threading.Lock()


def next_reply():
    with guard:
        return replies.pop(0) if len(replies) > 1 else replies[0]


def read_commands(client):
    """Yields commands as lists of words."""
    stream = client.makefile("rb")
    while line := stream.readline():
        words = []
        for _ in range(int(line[1:])):
            length = int(stream.readline()[1:])
            words.append(stream.read(length))
            stream.readline()
        yield words


def serve(client):
    with contextlib.suppress(OSError), client:
        for words in read_commands(client):
            name = words[0].upper()
            if name == b"SENTINEL":
                print("question", flush=True)
                reply = next_reply()
                if reply == b"close":
                    return
                if reply != b"mute":
                    client.sendall(reply)
            elif name == b"SUBSCRIBE" and deaf:
                print("refused", flush=True)
                client.sendall(b"-NOPERM this user has no permissions to run the 'subscribe' command\r\n")
            elif name in (b"SUBSCRIBE", b"UNSUBSCRIBE"):
                print(name.decode().lower(), flush=True)
                count = 1 if name == b"SUBSCRIBE" else 0
                client.sendall(b"*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:%d\r\n"
                               % (len(name), name.lower(), len(words[1]), words[1], count))
            else:
                client.sendall(b"+OK\r\n")


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(64)
with open(sys.argv[1] + ".new", "w", encoding="ascii") as file:
    file.write(str(listener.getsockname()[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
