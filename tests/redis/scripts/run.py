#!/usr/bin/env python3
"""Calls the Lua scripts by themselves, on the test's own server, and compares the results with the tables beside this file.

    python3 tests/redis/scripts/run.py [PART] EMBEDDED.H SOCKET TABLE...
    python3 tests/redis/scripts/run.py --tap EMBEDDED.H [ROW]

EMBEDDED.H: the scripts as embed.sh makes them for the program. SOCKET: the socket of a server whose data are
removed. Without arguments the names of all tables are printed. For each row, the keys before the call are written,
the script is called, and its answer and everything stored must be as the row says. --tap: each row of all
tables is a test, or ROW alone, on a server that this program starts.

take.lua and release.lua first try the fast path. PART is --rest: the scripts leave the fast path out, and have the same
results; or --plain: the fast path alone decides the rows that are marked for it, and changes nothing in other rows.
"""

import contextlib
import hashlib
import importlib
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "lib")]
from redis_client import RedisClient
from table import Has, Json, Left, Moment, Said

LOCK = "dlock:job"
COMPANION = "{dlock:job}:"
KEYS = ("meta", "holder:", "holders", "slots", "counts", "queue", "waiters")
SECONDS = 10
# Moments in rows are at least this far apart; a row that took longer on a busy machine is run again.
MOMENT_US, TRIES = 90000, 50
WAITER = ("format", "listens", "asked", "turn", "mode", "slots", "who")


def key_of(name):
    return LOCK if name == "lock" else COMPANION + name


def read_scripts(path):
    """Each script's text by its name."""
    header = pathlib.Path(path).read_text(encoding="utf-8")
    scripts = {}
    for name, digest, lines in re.findall(r'^const struct redis_script redis_(\w+)_script = \{\n    "(\w+)",\n(.*?)^\};', header, re.M | re.S):
        text = re.sub(r"\\(.)", r"\1", "".join(line[5:-3] + "\n" for line in lines.splitlines()))
        assert hashlib.sha1(text.encode()).hexdigest() == digest, name
        scripts[name] = text
    return scripts


def part_of(text, part):
    """The script without the fast path, or the fast path alone; None if the script has none."""
    way = re.search(r"local (\w+)=(\w+\(\))\n.*?\nif \1 then\n.*?\nreturn \1\nend\n", text, re.S)
    if not way:
        return None
    return text[:way.start(2)] + "nil" + text[way.end(2):] if part == "--rest" else text[:way.end()] + "return {'not plain'}"


def part_row(row, part):
    """What that part of the scripts does with the row."""
    return row if part == "--rest" or row.plain else row._replace(answer=["not plain"], changes={}, hears={}, watched=(), writes=False)


class Lab:
    """The server, one caller, one that hears for all waiters, and one that hears of touched keys."""

    def __init__(self, path, scripts):
        self.path = path
        self.server, self.ears, self.touches = (self.connect() for _ in range(3))
        self.listener = self.touches.ask("CLIENT", "ID")
        self.touches.ask("SUBSCRIBE", "__redis__:invalidate")
        self.digests = {name: self.server.ask("SCRIPT", "LOAD", text) for name, text in scripts.items()}

    def connect(self):
        client = RedisClient(self.path, SECONDS)
        client.stream.settimeout(SECONDS)
        return client

    def now_us(self):
        seconds, micros = self.server.ask("TIME")
        return int(seconds) * 1000000 + int(micros)

    def written(self):
        return re.search(r"^rdb_changes_since_last_save:(\d+)", self.server.ask("INFO", "persistence"), re.M).group(1)

    # --- what is stored ---

    def write(self, places, now_us):
        self.server.ask("FLUSHALL")
        for place, value in places.items():
            name, _, field = place.partition(" ")
            if name != "hears" and field != "ends":
                self.write_one(name, field, plain(value, now_us))
        for place, value in places.items():
            name, _, field = place.partition(" ")
            if field == "ends":
                self.server.ask("PEXPIREAT", key_of(name), plain(value, now_us))

    def write_one(self, name, field, value):
        key = key_of(name)
        if isinstance(value, list):
            self.server.ask("RPUSH", key, *value)
        elif name == "slots" and not field:
            for slot in value:
                self.server.ask("SETBIT", key, slot, 1)
        elif name in ("holders", "queue") and field:
            self.server.ask("ZADD", key, value, field)
        elif name == "waiters" and isinstance(value, dict):
            words = [lines(value[part]) if part == "who" else str(value[part]) for part in WAITER]
            self.server.ask("HSET", key, field, " ".join(words))
        else:
            text = lines(value) if isinstance(value, dict) else value
            self.server.ask(*(("HSET", key, field, text) if field else ("SET", key, text)))

    def read(self):
        places = {}
        for key in self.server.ask("KEYS", "*"):
            name = "lock" if key == LOCK else key[len(COMPANION):] if key.startswith(COMPANION) else key
            self.read_one(places, name, key)
            ends = self.server.ask("PEXPIRETIME", key)
            if ends >= 0:
                places[name + " ends"] = str(ends)
        return places

    def read_one(self, places, name, key):
        kind = self.server.ask("TYPE", key)
        if kind == "hash":
            flat = self.server.ask("HGETALL", key)
            for field, text in zip(flat[::2], flat[1::2]):
                if field in ("success_fence", "history") and not text:
                    continue  # as without it
                places[name + " " + field] = read_waiter(text) if name == "waiters" else read_record(text) if field == "record" else text
        elif kind == "zset":
            flat = self.server.ask("ZRANGE", key, 0, -1, "WITHSCORES")
            for member, score in zip(flat[::2], flat[1::2]):
                places[name + " " + member] = score if math.isinf(float(score)) else "%d" % float(score)
        elif kind == "list":
            places[name] = self.server.ask("LRANGE", key, 0, -1)
        elif name == "slots":
            bits = self.server.ask("STRLEN", key) * 8
            places[name] = tuple(bit for bit in range(bits) if self.server.ask("GETBIT", key, bit))
        else:
            text = self.server.ask("GET", key)
            places[name] = read_record(text) if name.startswith("holder:") else text

    # --- the call ---

    def call(self, row, now_us):
        """The answer, and what the server tells the caller once others touch every key."""
        call = row.call
        own = [key_of(name) + (call.own if name == "holder:" else "") for name in ("lock", *KEYS)]
        keys = [own[0], own[2]] if call.script == "share" else own[:call.keys]
        client = self.connect() if row.denied or row.watched else self.server
        if row.denied:
            self.server.ask("ACL", "SETUSER", "limited", "reset", "on", "nopass", "~*", "&*", "+@all", "-" + row.denied)
            client.ask("AUTH", "limited", "x")
        if row.watched:  # as src/redis/subscribe.c does
            client.ask("CLIENT", "TRACKING", "ON", "REDIRECT", self.listener, "OPTOUT", "NOLOOP")
        try:
            answer = client.ask("EVALSHA", self.digests[call.script], len(keys), *keys, *(lines(word) if isinstance(word, dict) else word for word in (plain(word, now_us) for word in call.words)))
        except RuntimeError as error:
            answer = ["ERROR", str(error)]
        after = self.read()
        told = self.touched(own) if row.watched else ()
        if client is not self.server:
            client.close()
        return answer, after, told

    def touched(self, keys):
        """The keys that the server reports once another client has touched them all; not what the caller did itself."""
        self.told()
        for key in keys:
            self.server.ask("SET", key, "touched")
        return self.told()

    def told(self):
        told = set()
        self.touches.send("PING", "so far")
        while True:
            message = self.touches.reply()
            if message in (["pong", "so far"], "so far"):
                return told
            told.update(message[2])

    def listen(self, places):
        channels = [COMPANION + "wake:" + place.split()[1] for place in places if place.startswith("hears ")]
        if channels:
            self.ears.send("SUBSCRIBE", *channels)
            for _ in channels:
                self.ears.reply()

    def heard(self):
        """What each waiter was told; afterwards nobody listens any longer."""
        heard = {}
        self.ears.send("PING", "so far")
        while True:
            message = self.ears.reply()
            if message in (["pong", "so far"], "so far"):
                break
            heard.setdefault(message[1].rpartition(":")[2], []).append(message[2])
        self.ears.send("UNSUBSCRIBE")
        while self.ears.reply()[2] > 0:
            pass
        return heard

    def differences(self, row):
        for _ in range(TRIES):
            found, took = self.play(row)
            if took < MOMENT_US:
                break
        return found

    def play(self, row):
        """The differences, and how long it took (us)."""
        now_us = self.now_us()
        self.write(row.before, now_us)
        before = self.read()
        self.listen(row.before)
        time.sleep(0.002)  # what is written again has another time
        written = self.written() if row.writes else 0
        answer, after, told = self.call(row, now_us)
        span = now_us, self.now_us()
        found = list(compare("answer", row.answer, read_answer(answer), span))
        for place in sorted({*before, *after, *row.changes}):
            if place in row.changes:
                found += compare(place, row.changes[place], after.get(place), span)
            elif before.get(place) != after.get(place):
                found.append("%s: %r has become %r" % (place, before.get(place), after.get(place)))
        found += compare("hears", row.hears, self.heard(), span)
        found += ["it has written nothing"] if row.writes and self.written() == written else []
        found += ["%s is not watched" % name for name in row.watched if key_of(name) not in told]
        return found, span[1] - span[0]


def lines(record):
    """A record as it is stored."""
    if isinstance(record, Json):
        return json.dumps(record)
    return "".join("%s %s\n" % (name, 1 if value is True else value) for name, value in record.items())


def read_record(text):
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError):
        pass
    if not re.fullmatch(r"(\w+ [^\n]*\n)+", text):
        return text
    return dict(line.split(" ", 1) for line in text.splitlines())


def read_waiter(text):
    words = text.split(" ", len(WAITER) - 1)
    if len(words) < len(WAITER):
        return text
    return dict(zip(WAITER, words), who=read_record(words[-1]))


def read_answer(value):
    """The same, with its records."""
    if isinstance(value, list):
        return [read_answer(each) for each in value]
    return read_record(value) if isinstance(value, str) else value


def plain(value, now_us):
    """As it is stored."""
    if isinstance(value, Moment):
        return "%d" % (now_us + value.ms * 1000 if value.unit == "us" else now_us // 1000 + value.ms)
    if isinstance(value, dict):
        return type(value)({name: plain(each, now_us) for name, each in value.items()})
    if isinstance(value, (list, tuple, bool)) or value is None:
        return value
    return value if isinstance(value, (str, float)) else int(value)


def compare(what, wanted, got, span):
    """Each difference, as a sentence. Values that depend on the clock may differ by as much as the call has taken."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        for name in sorted(wanted if isinstance(wanted, Said) else {*wanted, *got}, key=str):
            yield from compare("%s %s" % (what, name), wanted.get(name), got.get(name), span)
    elif isinstance(wanted, (list, tuple)) and isinstance(got, (list, tuple)):
        if len(wanted) != len(got):
            yield "%s: %r, wanted %r" % (what, got, wanted)
            return
        for number, (one, other) in enumerate(zip(wanted, got)):
            yield from compare("%s[%d]" % (what, number), one, other, span)
    elif not is_same(wanted, got, span):
        yield "%s: %r, wanted %r" % (what, got, wanted)


def is_same(wanted, got, span):
    if wanted is None or got is None:
        return wanted is got
    if isinstance(wanted, Has):
        return re.search(wanted.text, str(got)) is not None
    if isinstance(wanted, (Moment, Left)) and not re.fullmatch(r"-?\d+", str(got)):
        return False
    took = span[1] - span[0]
    if isinstance(wanted, Left):
        return wanted.ms - took / 1000 - 2 <= int(got) <= wanted.ms + 2
    if isinstance(wanted, Moment):
        scale = 1 if wanted.unit == "us" else 1000
        middle = (span[0] + wanted.ms * 1000) / scale
        return middle - took / scale - 2 <= int(got) <= middle + took / scale + 2
    return str(1 if wanted is True else wanted) == str(got)


def read_tables():
    tables = {}
    for path in sorted(HERE.glob("rows_*.py")):
        tables.update(importlib.import_module(path.stem).TABLES)
    return tables


@contextlib.contextmanager
def own_server():
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/redis.sock"
        with subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:
            try:
                yield path
            finally:
                server.kill()


def run_tap(rows, header):
    wrong = 0
    with own_server() as path:
        lab = Lab(path, read_scripts(header))
        for number, (name, each) in enumerate(rows, 1):
            differences = lab.differences(each)
            wrong += differences != []
            print("%sok %d - %s" % ("not " * (differences != []), number, name), *differences, sep="\n# ", flush=True)
    print("1..%d" % len(rows))
    return wrong


def run_tables(rows, part, header, path):
    scripts = read_scripts(header)
    if part:
        scripts = {name: changed for name, text in scripts.items() if (changed := part_of(text, part))}
        rows = [(name, part_row(each, part)) for name, each in rows if each.call.script in scripts]
    lab = Lab(path, scripts)
    wrong = 0
    for name, each in rows:
        differences = lab.differences(each)
        wrong += differences != []
        for difference in differences:
            print("%s: %s" % (name, difference))
    print("%d rows, %d wrong" % (len(rows), wrong))
    return wrong


def main():
    tables, arguments = read_tables(), sys.argv[1:]
    part = arguments.pop(0) if arguments[:1] in (["--rest"], ["--plain"]) else ""
    if not arguments:
        print("\n".join(tables))
        return
    tap = arguments[0] == "--tap"
    rows = [("%s: %s" % (table, each.name), each) for table in (tables if tap else arguments[2:]) for each in tables[table]]
    assert len(dict(rows)) == len(rows), "two rows have one name"
    if tap:
        wrong = run_tap([row for row in rows if row[0] in (arguments[2:] or dict(rows))], arguments[1])
    else:
        wrong = run_tables(rows, part, *arguments[:2])
    sys.exit(wrong > 0 or not rows)


if __name__ == "__main__":
    main()
