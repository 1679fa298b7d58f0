#!/usr/bin/env python3
"""Nodes of a Cluster that answer each script as a test asks them to.

Usage: fake_nodes.py FILE ANSWER...
Each ANSWER is a node's: the text of an error, in which @N stands for the port
of the Nth node, after "SECONDS " where it comes so late; or "mute" for a node that
accepts and never answers. The ports are written to FILE, one a line, once all
listen; each script that a node gets is a line of its number on stdout.
"""
import os
import re
import socket
import sys
import threading
import time

path, answers = sys.argv[1], sys.argv[2:]
listeners = [socket.create_server(("127.0.0.1", 0)) for _ in answers]
ports = [str(listener.getsockname()[1]) for listener in listeners]


def serve(client, number, answer):
    late = re.match(r"([\d.]+) ", answer)
    answer = answer[late.end():] if late else answer
    data = b""
    while chunk := client.recv(65536):
        data += chunk
        # Whole commands: "*COUNT", then a length and a word for each.
        while match := re.match(rb"\*(\d+)\r\n", data):
            rest, words = data[match.end():], []
            for _ in range(int(match[1])):
                size = re.match(rb"\$(\d+)\r\n", rest)
                if not size or len(rest) < size.end() + int(size[1]) + 2:
                    break
                words.append(rest[size.end():size.end() + int(size[1])])
                rest = rest[size.end() + int(size[1]) + 2:]
            else:
                data = rest
                is_script = words[0] in (b"EVAL", b"EVALSHA")
                if is_script:
                    print(number, flush=True)
                if is_script and late:
                    time.sleep(float(late[1]))
                if answer != "mute":
                    client.sendall(b"-" + answer.encode() + b"\r\n" if is_script else b"+OK\r\n")
                continue
            break


def accept(listener, number, answer):
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, number, answer), daemon=True).start()


threads = []
for number, (listener, answer) in enumerate(zip(listeners, answers), 1):
    answer = re.sub("@(\\d+)", lambda match: ports[int(match[1]) - 1], answer)
    threads.append(threading.Thread(target=accept, args=(listener, number, answer), daemon=True))
    threads[-1].start()
with open(path + ".new", "w") as file:
    file.write("\n".join(ports) + "\n")
os.rename(path + ".new", path)
threads[0].join()
