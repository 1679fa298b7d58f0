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
  instead=NAME,...=TEXT  passes all on but what begins with one of these commands:
            each in it is answered with TEXT, in which backslashes are Python's;
            with "bulk:" before it as a bulk string, and where it is empty not at all
  balance   passes all on, every other connection to the second socket, COMMAND
  behind    passes all on; when the server has confirmed the first SUBSCRIBE of
            a connection, COMMAND is carried out, and what the server says to
            that is passed on in one piece with the confirmation
  halves    passes all on; the first write that holds a SUBSCRIBE in two pieces, before
            the SUBSCRIBE, and COMMAND is carried out in between
  closing=TEXT  passes all on, but closes a connection on which TEXT is sent
  spoil=MODE  passes all on; at SIGUSR1 the open connections hear unasked what
            the modes garbage to close above answer ("messages": that keys were
            touched, a thousand times; "flood": without end)
  spoilt=MODE  the same, and later connections are answered as in MODE
  switch    passes all on; at SIGUSR1 the connections are closed, and later
            ones go to the second socket, COMMAND
  error=TEXT  answers every command with this error
  /FILE     answers all that comes in one piece with what is in FILE at that
            time; as the MODE of spoil and spoilt as well
  drip=/FILE  the same, a byte every 50 ms, over and over
  flood=/FILE the same without a pause
  dismiss=TEXT  says this error as soon as a client has connected, and closes
At SIGUSR2 a server that was spoilt is well again. Each connection is a line of
output.
"""
import contextlib
import os
import signal
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
instead, answered = [], b""
if mode.startswith("instead="):
    instead = argument.partition("=")[0].encode().split(b",")
    answered = argument.partition("=")[2].encode().decode("unicode_escape").encode("latin-1")
if answered.startswith(b"bulk:"):
    answered = b"$%d\r\n%s\r\n" % (len(answered) - 5, answered[5:])
replies = {
    "garbage": b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20,
    "huge": b"+OK\r\n*2147483647\r\n",
    "cut": b"+OK\r\n*3\r\n$5\r\ntak",
    "nonsense": b"+OK\r\n*3\r\n$5\r\ntaken\r\n$3\r\nabc\r\n$-1\r\n" * 20,
    "messages": b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$9\r\ndlock:job\r\n" * 1000,
}
relayed = []
signalled = False
whole = mode != "halves"


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def pour(client, data, slowly):
    while True:
        if not slowly:
            client.sendall(data)
            continue
        for byte in data:
            client.sendall(bytes([byte]))
            time.sleep(0.05)


def answer(client, mode):
    while True:
        data = client.recv(65536)
        if not data or mode == "close":
            break
        if mode.startswith("/"):
            client.sendall(contents(mode))
        elif mode.startswith(("drip=", "flood=")):
            pour(client, contents(argument), mode.startswith("drip="))
        elif mode in replies:
            client.sendall(replies[mode])
            if mode == "cut":
                break
        elif mode == "endless":
            client.sendall(b"+OK\r\n$1073741824\r\n")
            while True:
                client.sendall(b"x" * 65536)
        elif mode.startswith("error="):
            count = data.count(b"*") or 1
            client.sendall((b"-" + argument.encode() + b"\r\n") * count)
    client.close()


def spoil(client):
    with contextlib.suppress(OSError):
        if argument in replies:
            client.sendall(replies[argument])
        if argument.startswith("/"):
            client.sendall(contents(argument))
        while argument == "flood":
            client.sendall(replies["messages"])
        if argument == "endless":
            client.sendall(b"$1073741824\r\n")
        while argument == "endless":
            client.sendall(b"x" * 65536)
        if argument in ("cut", "close"):
            client.shutdown(socket.SHUT_RDWR)


def on_signal(_number, _frame):
    global signalled
    signalled = True
    for client in relayed[:]:
        if mode == "switch":
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        else:
            threading.Thread(target=spoil, args=(client,), daemon=True).start()


def on_recovery(_number, _frame):
    global signalled
    signalled = False


def other_client(words):
    other = socket.socket(socket.AF_UNIX)
    other.connect(sys.argv[3])
    other.sendall(" ".join(words).encode() + b"\r\n")
    other.recv(65536)


def split(server, data):
    """What is left of the data to send."""
    global whole
    at = data.find(b"\r\nSUBSCRIBE\r\n")
    if whole or at < 0:
        return data
    whole = True
    at = data.rindex(b"*", 0, at)
    server.sendall(data[:at])
    time.sleep(0.3)  # the server has read that by itself
    other_client(sys.argv[4:])
    return data[at:]


def relay(client):
    global calls
    server = socket.socket(socket.AF_UNIX)
    second = (signalled and mode == "switch") or (mode == "balance" and len(relayed) % 2 == 1)
    server.connect(sys.argv[4] if second else sys.argv[3])
    relayed.append(client)
    lost = threading.Event()

    def back():
        global delay
        before_first = mode == "behind"
        while True:
            data = server.recv(65536)
            if not data:
                if not lost.is_set():
                    client.shutdown(socket.SHUT_RDWR)
                break
            if before_first and b"\r\nsubscribe\r\n" in data:
                before_first = False
                other_client(sys.argv[4:])
                data += server.recv(65536)
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
            if b"\r\nSUBSCRIBE\r\n" not in data: # the check of a watched lock
                calls += data.count(b"EVALSHA") + data.count(b"\r\nEVAL\r\n")
            hit = before < lose <= calls
        if hit:
            lost.set()
            server.sendall(data)
            # The connection is lost only after the server has carried the command out.
            server.shutdown(socket.SHUT_WR)
            while server.recv(65536):
                pass
            if sys.argv[4:]:
                other_client(sys.argv[4:])
            client.shutdown(socket.SHUT_RDWR)
            break
        if mode.startswith("closing=") and argument.encode() in data:
            break
        first = data.split(b"\r\n")[2:3]
        if first and first[0] in instead:
            client.sendall(answered * data.count(b"\r\n" + first[0] + b"\r\n"))
            continue
        server.sendall(split(server, data))
    client.close()
    server.close()


def serve(client):
    with contextlib.suppress(OSError):
        if mode.startswith("dismiss="):
            client.sendall(b"-" + argument.encode() + b"\r\n")
            client.close()
        elif signalled and mode.startswith("spoilt="):
            answer(client, argument)
        elif sys.argv[3:]:
            relay(client)
        else:
            answer(client, mode)


signal.signal(signal.SIGUSR1, on_signal)
signal.signal(signal.SIGUSR2, on_recovery)

listener = socket.socket(socket.AF_UNIX)
listener.bind(path + ".new")
listener.listen(64)
os.rename(path + ".new", path)
while True:
    connection, _ = listener.accept()
    print("connection", flush=True)
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
