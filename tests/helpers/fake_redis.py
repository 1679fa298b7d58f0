#!/usr/bin/env python3
"""A server that misbehaves as a test asks it to.

Usage: fake_redis.py SOCKET MODE [PROXY-SOCKET [COMMAND...]]
  mute      accepts, reads, never answers
  garbage   answers with what is not the protocol
  huge      answers with an array that claims two thousand million elements
  endless   answers with a string that never ends
  cut       answers with half a reply and closes
  nonsense  answers with well-formed replies that make no sense
  close     closes after the first bytes
  lose=N    passes all on to PROXY-SOCKET, but loses the replies to the Nth
            script call and closes that connection; COMMAND (words for Redis)
            is carried out in between
  delay=MS  passes all on, and each reply so much later
  first=MS  the same for the very first reply alone
  lose=N,MS both: the replies that come through are late
  error=TEXT  answers every command with this error
"""
import os
import socket
import sys
import threading
import time

path, mode = sys.argv[1], sys.argv[2]
argument = mode.partition("=")[2]
calls = 0
lose, delay = 0, 0.0
if mode.startswith("lose="):
    lose, _, late = argument.partition(",")
    lose, delay = int(lose), float(late or 0) / 1000
elif mode.startswith(("delay=", "first=")):
    delay = float(argument) / 1000
guard = threading.Lock()


def answer(client):
    replies = {
        "garbage": b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20,
        "huge": b"+OK\r\n*2147483647\r\n",
        "cut": b"+OK\r\n*3\r\n$5\r\ntak",
        "nonsense": b"+OK\r\n*3\r\n$5\r\ntaken\r\n$3\r\nabc\r\n$-1\r\n" * 20,
    }
    while True:
        data = client.recv(65536)
        if not data or mode == "close":
            break
        if mode in replies:
            client.sendall(replies[mode])
            if mode == "cut":
                break
        elif mode == "endless":
            client.sendall(b"+OK\r\n$1073741824\r\n")
            while True:
                client.sendall(b"x" * 65536)
        elif argument:
            count = data.count(b"*") or 1
            client.sendall((b"-" + argument.encode() + b"\r\n") * count)
    client.close()


def relay(client):
    global calls
    server = socket.socket(socket.AF_UNIX)
    server.connect(sys.argv[3])
    lost = threading.Event()

    def back():
        global delay
        while True:
            data = server.recv(65536)
            if not data:
                break
            if not lost.is_set():
                time.sleep(delay)
                if mode.startswith("first="):
                    delay = 0
                client.sendall(data)

    threading.Thread(target=back, daemon=True).start()
    while True:
        data = client.recv(65536)
        if not data:
            break
        with guard:
            before = calls
            calls += data.count(b"EVALSHA") + data.count(b"\r\nEVAL\r\n")
            hit = before < lose <= calls
        if hit:
            lost.set()
            server.sendall(data)
            # Only when the server has carried it out is the connection lost.
            server.shutdown(socket.SHUT_WR)
            while server.recv(65536):
                pass
            if sys.argv[4:]:
                other = socket.socket(socket.AF_UNIX)
                other.connect(sys.argv[3])
                other.sendall(" ".join(sys.argv[4:]).encode() + b"\r\n")
                other.recv(65536)
            client.shutdown(socket.SHUT_RDWR)
            break
        server.sendall(data)
    client.close()


def serve(client):
    try:
        (relay if sys.argv[3:] else answer)(client)
    except OSError:
        pass


listener = socket.socket(socket.AF_UNIX)
listener.bind(path + ".new")
listener.listen(64)
os.rename(path + ".new", path)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
