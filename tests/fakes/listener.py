#!/usr/bin/env python3
"""A TCP server on a free port of 127.0.0.1, whose number it writes into PORT-FILE.

Usage: listener.py PORT-FILE MODE [ARGUMENTS...]
  mute                  accepts and never says a word
  close                 closes each connection when something has come
  proxy SOCKET          passes all on to a server on a Unix socket; closes where that is down
  relay CERT KEY SOCKET TLS 1.3; passes all on to a server on a Unix socket
  old CERT KEY          TLS 1.1 alone
  anonymous             TLS 1.2 without a certificate; prints what it is told
  flood                 sends HelloRequests without end
  turn FILE CERT KEY SOCKET  as relay until FILE is there; then it ends all
                        connections, and does as flood
"""
import contextlib
import os
import select
import socket
import ssl
import sys
import threading

port_file, mode = sys.argv[1:3]
turn = sys.argv.pop(3) if mode == "turn" else "/nonexistent"


def relay(tls, server):
    """In one thread, because OpenSSL's sessions are used by one thread at a time."""
    while not os.path.exists(turn):
        ready = [tls] if isinstance(tls, ssl.SSLSocket) and tls.pending() else select.select([tls, server], [], [], 0.1)[0]
        for source in ready:
            data = source.recv(65536)
            if not data:
                return
            (server if source is tls else tls).sendall(data)


def context():
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if mode == "anonymous":
        made.set_ciphers("aNULL:@SECLEVEL=0")
        made.maximum_version = ssl.TLSVersion.TLSv1_2
        return made
    made.load_cert_chain(sys.argv[3], sys.argv[4])
    if mode == "old":
        made.set_ciphers("ALL:@SECLEVEL=0")
        made.minimum_version = made.maximum_version = ssl.TLSVersion.TLSv1_1
    return made


def flood(client):
    """Records of TLS 1.2, each full of handshake messages of type 0 and length 0."""
    with contextlib.suppress(OSError), client:
        while True:
            client.sendall(b"\x16\x03\x03\x40\x00" + bytes(16384))


def serve(client):
    if mode == "flood" or os.path.exists(turn):
        flood(client)
        return
    if mode == "mute":
        client.recv(1 << 20)
        threading.Event().wait()
    if mode == "close":
        client.recv(1 << 20)
        client.close()
        return
    if mode == "proxy":
        with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:
            server.connect(sys.argv[3])
            relay(client, server)
        return
    with contextlib.suppress(OSError):
        tls = context().wrap_socket(client, server_side=True)
        if mode == "anonymous":
            print(tls.cipher()[0], tls.recv(65536), flush=True)
        server = socket.socket(socket.AF_UNIX)
        server.connect(sys.argv[5])
        with server, tls:
            relay(tls, server)


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(64)
with open(port_file + ".new", "w", encoding="ascii") as file:
    file.write(str(listener.getsockname()[1]))
os.rename(port_file + ".new", port_file)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
