#!/usr/bin/env python3
"""Runs the rows of the Lua scripts, as far as they are about rules that lock files share, against the rules
of src/store/file/rules.c and memory.c: who may acquire a lock, what has become of a lease, what is remembered of runs.

    python3 tests/file/rules.py FILE_RULES

FILE_RULES: tests/helpers/file_rules. A lease in Redis is one without a process in a file. Prints the differences.
"""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "redis" / "scripts"))
import rows_lease
import rows_queue
import rows_release
import rows_take
from table import FORMAT, ROUND, Left, Moment

# Intended differences between the stores.
OTHERWISE = {
    # A file has the records of all its sharers, and no other value.
    "a share of an earlier round", "this token has had one in an earlier round", "the map of slots has gone: none is free",
    # The next holder overwrites the record of a place; until then the record says that it was released.
    "shared, after an exclusive lock of this take", "shared, after an exclusive lock of this token",
    "a share that has ended while it was kept",
    # Only the boot's clock counts.
    "its turn would be too long, by a clock that was set back: over",
    # There is no quorum of files.
    "it has another fence on this server of a quorum",
    # For a paused lock, no holder is named that the request could join.
    "paused: nobody joins", "paused for longer than its lease",
    # The table beside the files keeps the history apart from the last run.
    "an older dlock was to remember nothing: what was before is gone",
    # The record in a file is read completely or not at all.
    "its TTL cannot be read",
    # An exclusive holder in a file always has the highest fence.
    "it alone had the lock: its run is the last success, whatever the fences",
}


class NotAboutFiles(Exception):
    """The row is about a client of another kind, a key of another type, a lost reply, or the like."""


def want(condition):
    if not condition:
        raise NotAboutFiles


def ms(value):
    want(isinstance(value, Moment) and value.unit == "ms")
    return int(value.ms)


def places(before):
    """The line of each holder."""
    lock, meta = before.get("lock"), {place[5:]: value for place, value in before.items() if place.startswith("meta ")}
    want(not any(isinstance(value, list) for value in before.values()))
    want(not lock or meta.get("format") is not None)
    numbers = int(meta.get("format", FORMAT))
    if isinstance(meta.get("record"), dict) and lock != ROUND:
        record = meta["record"]
        want(lock in (None, meta["owner"]) and numbers == int(record.get("format") or 0))
        left = ms(before["lock ends"]) if "lock ends" in before and lock else -1000
        want(lock is None or "lock ends" in before)
        return [place(0, meta["owner"], record, "exclusive", 0, left)]
    want(lock in (None, ROUND) and (lock is None or any(name.startswith("holders ") and name != "holders ends" for name in before)))
    found = []
    for name in before:
        if lock == ROUND and name.startswith("holder:") and " " not in name:
            record, token = before[name], name[7:]
            want(isinstance(record, dict) and record["round"] == ROUND and int(record["format"]) == numbers)
            slot = int(record["slot"])
            want(("holders %d %s" % (slot, token) if slot >= 0 else "holders " + token) in before)
            found.append((slot if slot >= 0 else len(found), token, record, meta["mode"], int(meta["slots"]), ms(record["ends"])))
    want(len(found) == sum(1 for name in before if name.startswith("holders ") and name != "holders ends"))
    return [place(*each) for each in sorted(found, key=lambda each: each[0])]


def place(number, token, record, mode, slots, left):
    want(-1 <= int(str(record.get("slot", -1))) < 2 ** 31)
    released = int(record.get("released") in (True, "1", 1))
    return "place %d %s %s %s %d %s %s %d %d" % (number, token, record["take"], mode, slots, record.get("slot", -1), record["format"], left, released)


def paused(before):
    if "meta pause_ends" not in before:
        return []
    return ["pause %d" % max(ms(before["meta pause_ends"]), 0)]


def ended(before):
    lines = []
    for line in before.get("meta spent", "").splitlines():
        take, token, _ = line.split(" ")
        lines.append("ended %s %s" % (token, take))
    for line in before.get("meta forced", "").splitlines():
        take, token, by = line.split(" ")
        lines.append("forced %s %s %s" % (token, take, by))
    want("meta requests" not in before and "meta withdrawn" not in before)
    return lines


def waiter(before, own, came):
    """The only live waiter comes first, if there is one."""
    ahead = [name[6:] for name in before if name.startswith("queue ") and name != "queue ends" and name[6:] != own]
    ahead = [name for name in ahead if not came or before["queue " + name].ms < came]
    if not ahead:
        return []
    want(len(ahead) == 1)
    what = before.get("waiters " + ahead[0])
    want(isinstance(what, dict) and what["format"] == FORMAT and "hears " + ahead[0] in before and what["listens"] == "1")
    turn = what["turn"]
    since = -1 if turn == "0" else 100 if ms(turn) > 0 else 2100
    return ["waiter %s %s %d" % (what["mode"], what["slots"], since)]


def same_left(wanted, got):
    return not isinstance(wanted, Left) or abs(int(got) - wanted.ms) < 60


def take_row(row):
    token, _, name, again, _, mode, slots, _, _, _, came, _, _, once_per, _, fence, _ = row.call.words
    want(again == "0" and not once_per and not fence and not row.denied)
    want(row.answer[0] in ("taken", "held"))
    asked = [*places(row.before), *paused(row.before), *waiter(row.before, name, came.ms if came else 0), "take %s %s %d" % (token, mode, slots)]
    answer = yield asked
    words = answer[0].split()
    if row.answer[0] == "taken":
        yield words == ["taken", str(row.answer[3])]
        return
    left, reserved, slots, slots_taken, pause, holder = row.answer[1], row.answer[4], row.answer[11], row.answer[12], row.answer[8], row.answer[-1]
    free = words[0] == "reserved"
    if reserved or (free and row.before.get("lock") == ROUND):  # one more might join
        yield free
        return
    yield words[0] == "held" and words[1] == (holder.get("take", "-") if isinstance(holder, dict) else "-") \
        and same_left(left, words[2]) and words[3] == str(slots or 0) and (not slots or words[4] == str(slots_taken)) and same_left(pause, words[5])


def check_row(row):
    token, take_id, *fence = row.call.words
    want(not fence and not row.denied and row.call.keys == 4)
    want(row.answer[0] in ("ours", "released", "gone", "other"))
    answer = yield [*places(row.before), *ended(row.before), "check %s %s" % (token, take_id or "-")]
    words = answer[0].split()
    if row.answer[0] == "ours":
        _, left, _, mode, slots, slot = row.answer
        yield words[0] == "ours" and same_left(left, words[1]) and words[2:] == [mode, str(slots), str(slot)]
        return
    by = row.answer[1].removeprefix("forced ") if row.answer[1].startswith("forced ") else "-"
    yield words[:1] == row.answer[:1] and (row.answer[0] == "released" or words[1] == by)


def release_row(row):
    token, _, _, _, _, _, ended_ms, result, began, fence, *_ = row.call.words
    want(result and row.answer[0] == "released" and row.changes.get("meta run", "").split("\t")[3:] == ["7", "u", "h", "c"])
    # Those before it belong to another process: a run is recorded once.
    before = {place: value.replace("\t7\t", "\t8\t") if place in ("meta run", "meta success") else value for place, value in row.before.items()}
    record = before.get("meta record") if isinstance(before.get("meta record"), dict) else before.get("holder:" + token)
    want(isinstance(record, dict))
    own_fence = int(record.get("fence", before.get("meta fence", 0)))
    lines = ["last " + before.get("meta run", ""), "success " + before.get("meta success", ""),
             "history " + before.get("meta history", "").replace("\n", "|"),
             "counts %s %s %s" % (before.get("meta failures", 0), before.get("meta runs", 0), before.get("meta success_fence", 0))]
    answer = yield [*lines, "release %d %d %d %s %s" % (
        own_fence, began or int(record["since"]), ended_ms or int(record["since"]), record.get("ttl", 0), result)]
    after = {**before, **row.changes}
    if row.changes.get("meta success") == row.before.get("meta success"):
        after["meta success"] = before.get("meta success", "")
    yield answer == ["%s %s" % (after.get("meta failures", 0), after.get("meta runs", 0)), "last " + after["meta run"],
                     "success " + after.get("meta success", ""), "history " + after["meta history"].replace("\n", "|")]


KINDS = {"take": (take_row, 1), "check": (check_row, 1), "release": (release_row, 4)}


def main():
    tables = {name: rows for module in (rows_take, rows_lease, rows_queue, rows_release) for name, rows in module.TABLES.items()}
    ran = wrong = 0
    with subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as rules:
        for table, rows in tables.items():
            for row in rows:
                kind, count = KINDS.get(row.call.script, (None, 0))
                if kind is None or row.name in OTHERWISE:
                    continue
                asking = kind(row)
                try:
                    asked = next(asking)
                except (NotAboutFiles, KeyError, ValueError):
                    continue
                rules.stdin.write("".join(line + "\n" for line in asked))
                rules.stdin.flush()
                answer = [rules.stdout.readline().rstrip("\n") for _ in range(count)]
                ran += 1
                if not asking.send(answer):
                    wrong += 1
                    print("%s: %s: %s -> %s, wanted %s" % (table, row.name, "; ".join(asked), answer, row.answer))
    print("%d rows, %d wrong" % (ran, wrong))
    return wrong > 0 or ran < 100


if __name__ == "__main__":
    sys.exit(main())
