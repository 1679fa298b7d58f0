#!/usr/bin/env python3
"""Play random actions of several clients against dlock and a small model of it, and compare.

    python3 tests/model/model.py [OPTIONS] PATH-TO-DLOCK

One dlock process after the other takes, extends, releases, shares and looks at a few locks, in a Redis
of our own or in a directory; after each step the lock must look as the model says. All steps are drawn
from the seed, which is printed; a lock whose lease may or may not have ended meanwhile is not judged but
given up for a new one. Where something is wrong, the fewest steps that still show it are looked for and
printed as commands. Exit status 1: something was not as the model says.
"""

import argparse
import collections
import contextlib
import datetime
import fnmatch
import json
import os
import random
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from figures import Table, add_options, write_figures
from redis_client import RedisClient

# In seconds. Leases are judged only this far from their end; a step needs this much time.
NEAR, STEP_ROOM = 0.03, 0.2
# How exactly the rest of a lease is reported, over such a long time.
TOLD_EXACTLY = 0.05
# Of dlock: src/lock/run_memory.h.
HISTORY_MOST = 32
# The drift margin, as a share of the lease that --extend reports (src/lock/lease.c).
DRIFT_MOST = 1.01
# How long something that must happen at once may take on a busy machine.
SOON, LATE_MOST = 10.0, 3.0
# A lock remembers its last releases: at least so many on every store, and at most so many on any (KEPT in
# src/store/redis/scripts/meta.lua, in lines of a token of one letter).
REMEMBERED, REMEMBERED_MOST = 6, 48

EXCLUSIVE, SHARED, SLOTS = "exclusive", "shared", "slots"
CONFLICT, LOST = 75, 124
DONE = "ALREADY_DONE"
HELD, TIMEOUT, NOT_FOUND = "LOCK_ACQUISITION_FAILED", "LOCK_TIMEOUT", "LOCK_NOT_FOUND"
MISMATCH, RELEASED = "LOCK_OWNERSHIP_MISMATCH", "LOCK_ALREADY_RELEASED"
PAUSED = "LOCK_PAUSED"
STATUS_OF = {NOT_FOUND: 1, RELEASED: 1, MISMATCH: 2}

LOCKS = [("dlock:", "j1"), ("dlock:", "j2"), ("dlock:", "j3"), ("dlock:s:", "j1"), ("dlock:s:", "j2")]
TOKENS = "ABCDE"
HOLDER_TTL, HOLDER_GRACE = 86400.0, 0.1
SAY_WHAT_IS_HELD = 'echo "$DLOCK_HELD_OWNER $DLOCK_FENCE ${DLOCK_SLOT:--}"; '


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Wrong(Exception):
    """Something differs from the model. `kind` is the same however the step got there."""

    def __init__(self, kind, text):
        super().__init__("%s: %s" % (kind, text))
        self.kind = kind


class Unclear(Exception):
    """A lease may have ended before or after a step."""


# ---- the stores ----

class Redis:
    """A redis-server for this program on a Unix socket."""

    name = "redis"
    freed_at_death = False

    def __init__(self, work, stack):
        self.path = os.path.join(work, "redis.sock")
        server = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", self.path, "--save", "", "--appendonly", "no", "--dir", work,
             "--logfile", os.path.join(work, "redis.log")], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        stack.callback(server.wait)
        stack.callback(server.kill)
        self.client = RedisClient(self.path, 20)
        stack.callback(self.client.close)
        self.environment = {"DLOCK_REDIS": "unix://" + self.path}

    def ask(self, *words):
        return self.client.ask(*words)

    def clear(self):
        self.ask("FLUSHALL")

    def rest(self):
        """What is left; meta outlives the locks on purpose."""
        return [key for key in self.ask("KEYS", "*") if not key.endswith((":meta", ":counts"))]

    def sharers(self, key):
        """The sharers, each of which has its own key."""
        return {found.split(":holder:", 1)[1] for found in self.ask("KEYS", "{%s}:holder:*" % key)}


class Files:
    """A lock directory for this program."""

    name = "file"
    freed_at_death = True

    def __init__(self, work, _stack):
        self.path = os.path.join(work, "locks")
        self.environment = {"DLOCK_BACKEND": "file", "DLOCK_LOCK_DIR": self.path}

    def clear(self):
        shutil.rmtree(self.path, ignore_errors=True)

    def rest(self):
        return [name for name in os.listdir(self.path) if name.endswith(".lock")] if os.path.isdir(self.path) else []

    def sharers(self, _key):
        return set()


# ---- the model ----

class Span:
    """A time between two others."""

    def __init__(self, least, most):
        self.least, self.most = least, most

    def after(self, seconds):
        return Span(self.least + seconds, self.most + seconds)

    def earlier(self, other):
        return Span(min(self.least, other.least), min(self.most, other.most))

    def later(self, other):
        return Span(max(self.least, other.least), max(self.most, other.most))

    def is_over(self):
        return now() > self.most + NEAR

    def is_near(self, room=0.0):
        return self.least - NEAR - room < now() and not self.is_over()


class Lease:
    """What one holder holds."""

    def __init__(self, token, fence, slot, ttl, taken, hold=0.0, process=None, detached=True):
        self.token, self.fence, self.slot, self.ttl = token, fence, slot, ttl
        self.end = taken.after(ttl)
        self.hold = taken.after(hold) if hold else None
        self.process, self.detached = process, detached
        self.released, self.message = False, None

    def times(self):
        return [self.end] + [self.hold] * (self.hold is not None and not self.hold.is_over())

    def alive(self):
        return None if self.detached else self.process is not None and not self.released


class Memory:
    """What a lock remembers of its runs."""

    def __init__(self):
        self.last = None                      # outcome, exit status, signal
        self.succeeded = False
        self.failures = self.runs = self.skipped = self.success_fence = 0
        self.muddled = False                  # a sharer was lost: the store decides when that is recorded
        self.past = []                        # the last runs like `last`, newest first; None: as the next check shows
        self.seen_past = []                   # as --history last showed them

    def add(self, outcome, number=None, fence=0):
        self.last = (outcome, number if outcome == "exited" else None, number if outcome == "signal" else None)
        self.past = self.past if self.past is None else [self.last] + self.past[:HISTORY_MOST - 1]
        self.runs += 1
        if self.last == ("exited", 0, None):
            self.succeeded = True
            self.failures = 0
            if fence >= self.success_fence:   # of several sharers, the one that began last may have ended first
                self.success_fence = fence
                self.runs = self.skipped = 0
        elif outcome != "not known":
            self.failures += 1

    def told(self):
        return {"runs_since": self.runs, "skipped_since": self.skipped, "failures_in_a_row": self.failures,
                "last_success": self.succeeded, "last_run": self.last}

    def learn(self, told):
        self.runs, self.skipped, self.failures = told["runs_since"], told["skipped_since"], told["failures_in_a_row"]
        self.last = told["last_run"]
        self.past = None

    @staticmethod
    def of(state):
        last = state["last_run"]
        return {"runs_since": state["runs_since"], "skipped_since": state["skipped_since"],
                "failures_in_a_row": state["failures_in_a_row"], "last_success": state["last_success"] is not None,
                "last_run": last and (last["outcome"], last["status"], last["signal"])}


class Lock:
    """How a lock must look."""

    def __init__(self, prefix, name, generation=0):
        self.prefix, self.base, self.generation = prefix, name, generation
        self.name = name + (".%d" % generation if generation else "")
        self.key = prefix + self.name
        self.mode, self.slots = None, None
        self.leases = {}                      # token -> Lease, in the order in which they were acquired
        self.outcomes = {}                    # token -> what became of its last lease: "released", "ended"
        self.ended = set()                    # tokens that ever had a lease that ended without a release
        self.releases = []                    # tokens, the last one last
        self.forced = False                   # ever: on files that takes the place of a release
        self.takes = self.conflicts = self.timeouts = 0
        self.memory = Memory()
        self.paused = None                    # the message, and when the pause ends
        self.losses = 0                       # None: as the next check shows
        self.last_fence = self.last_owner = None
        self.seen = None                      # what --status showed, except times and counts
        self.failed = False                   # the last step has done so
        self.last_exclusive, self.exclusive_release = None, None  # who held it then, and how many releases there had been

    def words(self):
        return ["--prefix=" + self.prefix, self.name]

    def settle(self):
        """What has ended is removed."""
        if self.paused and self.paused[1].is_over():
            self.paused = self.seen = None
        for lease in [lease for lease in self.leases.values() if lease.end.is_over()]:
            self.drop(lease, "released" if lease.released else "ended")

    def drop(self, lease, outcome):
        del self.leases[lease.token]
        self.outcomes[lease.token] = outcome
        if outcome == "ended":
            self.ended.add(lease.token)
            self.memory.add("lost")
            self.memory.muddled |= self.mode != EXCLUSIVE
        self.seen = None
        if not self.leases:
            self.mode = self.slots = None

    def times(self):
        return [span for lease in self.leases.values() for span in lease.times()] + ([self.paused[1]] if self.paused else [])

    def admits(self, token, mode, slots):
        if self.paused:
            return False
        if not self.leases:
            return True
        if mode == EXCLUSIVE or (mode, slots) != (self.mode, self.slots) or token in self.leases:
            return False
        return mode == SHARED or len(self.leases) < slots

    def take(self, lease, mode, slots):
        self.mode, self.slots = mode, slots
        self.leases[lease.token] = lease
        self.outcomes.pop(lease.token, None)
        if mode == EXCLUSIVE:
            self.last_exclusive, self.exclusive_release = lease.token, None
        self.takes += 1
        self.last_fence = lease.fence

    def release(self, token, outcome, number=None):
        lease = self.leases[token]
        self.memory.add(outcome, number, lease.fence)
        self.releases.append(token)
        if self.mode == EXCLUSIVE:
            self.exclusive_release = len(self.releases)
        self.last_owner = token
        if lease.hold is None or lease.hold.is_over():
            self.drop(lease, "released")
            return
        lease.released = True
        lease.end = lease.end.earlier(lease.hold)

    def refused(self, token):
        """Codes that --extend and --release may return; none: they must succeed."""
        if token in self.leases:
            return [RELEASED] if self.leases[token].released else []
        codes = [MISMATCH if self.leases else NOT_FOUND]
        outcome = self.outcomes.get(token)
        if outcome == "released" and token in self.releases[-REMEMBERED:]:
            return [RELEASED] + (codes if self.forced else [])
        if outcome == "released" and token in self.releases[-REMEMBERED_MOST:]:
            codes.append(RELEASED)
        # A lease's end may be reported even if others hold the lock by now; and so may the fate of
        # the lease before it, if many have had the same token.
        if outcome is not None:
            codes.append(NOT_FOUND)
        if outcome == "ended" and token in self.releases[-REMEMBERED_MOST:]:
            codes.append(RELEASED)
        return codes

    def free_slots(self):
        return set(range(self.slots or 0)) - {lease.slot for lease in self.leases.values()}


# ---- what is seen ----

class Seen:
    """The result of a run of dlock."""

    def __init__(self, status, text, span):
        self.status, self.text, self.span = status, text, span
        self.documents = []
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                self.documents.append(json.loads(line))

    @property
    def document(self):
        return self.documents[0] if self.documents and isinstance(self.documents[0], dict) else {}

    @property
    def error(self):
        return self.document.get("error") or {}

    def brief(self):
        if self.error:
            return "%s %s" % (self.status, self.error.get("code"))
        line = self.text.partition("\n")[0]
        return "%s %s" % (self.status, line if len(line) <= 160 else line[:160] + "...")


def unchanging(document):
    """What an action that fails must leave unchanged."""
    moving = ("expires_at", "ttl_remaining", "hold_remaining", "alive", "counts", "skipped_since", "expected_end", "expected_wait")
    document = {key: value for key, value in document.items() if key not in moving}
    document["paused"] = document.get("paused") and document["paused"]["message"]
    document["holders"] = [unchanging(dict(holder, holders=[])) for holder in document["holders"]]
    return document


def swap_code(seen, _lock):
    error = seen.error
    error["code"] = MISMATCH if error["code"] != MISMATCH else NOT_FOUND


def to_success(seen, lock):
    seen.status = 0
    seen.documents = [{"key": lock.name, "scope": None, "full_key": lock.key, "acquired": True, "owner": "A", "fence": lock.last_fence + 1,
                       "mode": lock.mode, "slot": 0}]


def to_free(seen, _lock):
    seen.status = 1
    seen.document.update(locked=False, mode=None, slots=None, holders=[], owner=None)


def twin(seen, _lock):
    seen.document["holders"].append(dict(seen.document["holders"][0], owner="twin"))


def same_slot(seen, _lock):
    seen.document["holders"][1]["slot"] = seen.document["holders"][0]["slot"]


def first_holder(change):
    return lambda seen, _lock: seen.document["holders"][0].update(change(seen.document["holders"][0]))


def counted(what, number):
    return lambda seen, _lock: seen.document["counts"].update({what: seen.document["counts"][what] + number})


def set_to(**values):
    return lambda seen, _lock: seen.document.update(values)


def has_holders(seen, number=1):
    return len(seen.document.get("holders", ())) >= number


# Changes of what a step saw: kind -> which step, whether it can be changed, how.
PLANTS = {
    "status": ("release", lambda seen, lock: seen.status == 2, lambda seen, lock: setattr(seen, "status", 1)),
    "status-ok": ("extend", lambda seen, lock: seen.status == 1, lambda seen, lock: setattr(seen, "status", 0)),
    "code": ("release", lambda seen, lock: seen.error, swap_code),
    "taken-twice": ("acquire", lambda seen, lock: seen.error and lock.mode == EXCLUSIVE, to_success),
    "fence": ("acquire", lambda seen, lock: not seen.error and lock.last_fence,
              lambda seen, lock: seen.document.update(fence=lock.last_fence)),
    "token": ("acquire", lambda seen, lock: not seen.error, set_to(owner="somebody")),
    "slot-taken": ("acquire", lambda seen, lock: seen.document.get("mode") == SLOTS and lock.leases,
                   lambda seen, lock: seen.document.update(slot=next(iter(lock.leases.values())).slot)),
    "slot-range": ("acquire", lambda seen, lock: seen.document.get("mode") == SLOTS, set_to(slot=3)),
    "command-status": ("run", lambda seen, lock: seen.status == 3, lambda seen, lock: setattr(seen, "status", 0)),
    "not-stopped": ("stolen", lambda seen, lock: True, lambda seen, lock: setattr(seen, "status", 0)),
    "free": ("status", lambda seen, lock: seen.document.get("locked"), to_free),
    "twin": ("status", lambda seen, lock: has_holders(seen), twin),
    "no-holder": ("status", lambda seen, lock: has_holders(seen, 2), lambda seen, lock: seen.document["holders"].pop()),
    "same-slot": ("status", lambda seen, lock: seen.document.get("slots") and has_holders(seen, 2), same_slot),
    "mode": ("status", lambda seen, lock: seen.document.get("mode") == SHARED, set_to(mode=EXCLUSIVE)),
    "slots": ("status", lambda seen, lock: seen.document.get("slots"), lambda seen, lock: seen.document.update(
        slots=seen.document["slots"] + 1)),
    "owner": ("status", lambda seen, lock: has_holders(seen), first_holder(lambda holder: {"owner": "somebody"})),
    "ttl": ("status", lambda seen, lock: has_holders(seen), first_holder(
        lambda holder: {"ttl_remaining": holder["ttl_remaining"] + 2})),
    "expired-late": ("status", lambda seen, lock: has_holders(seen), first_holder(lambda holder: {"ttl_remaining": None})),
    "released": ("status", lambda seen, lock: has_holders(seen), first_holder(
        lambda holder: {"released": not holder["released"]})),
    "message": ("status", lambda seen, lock: has_holders(seen), first_holder(lambda holder: {"message": "another"})),
    "detached": ("status", lambda seen, lock: has_holders(seen), first_holder(
        lambda holder: {"detached": not holder["detached"]})),
    "holder-fence": ("status", lambda seen, lock: has_holders(seen), first_holder(
        lambda holder: {"fence": holder["fence"] + 1})),
    "last-fence": ("status", lambda seen, lock: seen.document.get("last_fence"), set_to(last_fence=7)),
    "last-owner": ("status", lambda seen, lock: seen.document.get("last_owner"), set_to(last_owner="somebody")),
    "takes": ("status", lambda seen, lock: lock.takes > 2, counted("takes", -1)),
    "conflicts": ("status", lambda seen, lock: True, counted("conflicts", 1)),
    "skips": ("status", lambda seen, lock: not lock.memory.muddled, set_to(skipped_since=99)),
    "runs": ("status", lambda seen, lock: not lock.memory.muddled, set_to(runs_since=99)),
    "failures": ("status", lambda seen, lock: not lock.memory.muddled, set_to(failures_in_a_row=99)),
    "outcome": ("status", lambda seen, lock: seen.document.get("last_run") and not lock.memory.muddled,
                lambda seen, lock: seen.document["last_run"].update(outcome="another")),
    "history": ("history", lambda seen, lock: seen.document.get("runs") and lock.memory.past,
                lambda seen, lock: seen.document["runs"].pop()),
    "not-done": ("run", lambda seen, lock: seen.error.get("code") == DONE, to_success),
    "paused": ("status", lambda seen, lock: seen.document.get("paused"), set_to(paused=None)),
    "resumed": ("resume", lambda seen, lock: seen.error, to_success),
    "ran": ("ran_within", lambda seen, lock: True, lambda seen, lock: setattr(seen, "status", 1 - seen.status)),
    "waiters": ("status", lambda seen, lock: True, set_to(waiters=1)),
    "changed": ("status", lambda seen, lock: lock.failed and has_holders(seen), first_holder(
        lambda holder: {"command": "another"})),
    "list-short": ("list", lambda seen, lock: seen.documents, lambda seen, lock: seen.documents.pop()),
    "list-long": ("list", lambda seen, lock: seen.documents, lambda seen, lock: seen.documents.append(seen.document)),
    "left": ("rest", lambda seen, lock: True, lambda seen, lock: seen.documents.append("planted")),
}


class Plant:
    """Changes what a step saw, once."""

    def __init__(self, kind, rng):
        self.where, self.can, self.change = PLANTS[kind] if kind else (None, None, None)
        self.rng = rng

    def corrupt(self, where, seen, lock):
        if where == self.where and self.can(seen, lock) and (where == "rest" or self.rng.random() < 0.5):
            self.change(seen, lock)
            self.where = None


# ---- the steps ----

class Holder:
    """A dlock in the background, whose command runs until it is told to end."""

    def __init__(self, argv, environment, error_path):
        self.error_path = error_path
        with open(error_path, "wb") as error:
            self.process = subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=error)

    def first_line(self):
        ready, _, _ = select.select([self.process.stdout], [], [], SOON)
        return self.process.stdout.readline().decode() if ready else ""

    def wait(self, close=False):
        """Its exit status and output; None if it does not end."""
        if close:
            self.process.stdin.close()
        try:
            status = self.process.wait(SOON)
        except subprocess.TimeoutExpired:
            return None, ""
        text = self.process.stdout.read().decode()
        self.close()
        return status, text

    def close(self):
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                stream.close()

    def says(self, text):
        end = now() + SOON
        while now() < end:
            with open(self.error_path, encoding="utf-8") as file:
                if text in file.read():
                    return True
            time.sleep(0.002)
        return False

    def destroy(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.close()


class World:
    """dlock with one store, and the model of it. Each step is a method, do_NAME."""

    def __init__(self, options, store, work, plant=None):
        self.options, self.store, self.work = options, store, work
        self.plant = plant or Plant(None, None)
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("DLOCK_") and name not in ("NOTIFY_SOCKET", "XDG_CONFIG_HOME")}
        self.environment.update(store.environment, HOME=work, SHELL="/bin/sh", LC_ALL="C.UTF-8")
        self.locks = [Lock(prefix, name) for prefix, name in LOCKS]
        self.loose = []          # holders whose lock was released with their token
        self.holders = []        # all other live ones
        self.counts = collections.Counter()
        self.trace = []
        self.done = []           # the steps, with what was chosen in them at the time
        self.step_number = self.holder_number = 0
        store.clear()

    def close(self):
        for holder in self.holders + self.loose:
            holder.destroy()

    # -- running dlock --

    def say(self, lock, words, result):
        self.trace.append((lock, "%4d  dlock %s  -> %s" % (self.step_number, shlex.join(words), result)))

    def note(self, lock, text, result):
        self.trace.append((lock, "%4d  # %s  -> %s" % (self.step_number, text, result)))

    def call(self, where, lock, words):
        argv = [self.options.dlock] + words
        begin = now()
        try:
            done = subprocess.run(argv, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            raise Wrong("hangs", " ".join(words)) from None
        seen = Seen(done.returncode, done.stdout.decode(), Span(begin, now()))
        self.plant.corrupt(where, seen, lock)
        self.counts["runs"] += 1
        if where not in ("status", "history"):
            self.say(lock, words, seen.brief())
        return seen

    def expect_error(self, seen, lock, codes, status=None):
        code = seen.error.get("code")
        if code not in codes:
            raise Wrong("code", "%s %s, wanted %s; %s" % (seen.status, code, " or ".join(codes), seen.text.strip()))
        wanted = STATUS_OF[code] if status is None else status
        if seen.status != wanted:
            raise Wrong("status", "%s with %s, wanted %s" % (seen.status, code, wanted))
        details = seen.error.get("details", {})
        if (details.get("key"), details.get("full_key")) != (lock.name, lock.key):
            raise Wrong("details", "of another lock: %s" % details)
        lock.failed = True
        self.counts[code] += 1

    def expect_success(self, seen, lock, what):
        document = seen.document
        if seen.status != 0 or seen.error:
            raise Wrong("status", "%s %s, wanted success" % (seen.status, seen.text.strip()))
        if (document.get("key"), document.get("full_key"), document.get(what)) != (lock.name, lock.key, True):
            raise Wrong("answer", "it tells of something else: %s" % document)
        self.counts[what] += 1

    # -- taking --

    def mode_words(self, lock, step):
        """What is requested, also as options."""
        mode, slots = step["mode"]
        if step["same"] and lock.leases:
            mode, slots = step["mode"] = lock.mode, lock.slots
        step["same"] = False
        words = {EXCLUSIVE: [], SHARED: ["--shared"], SLOTS: ["--slots=%s" % slots]}[mode]
        return mode, slots, words

    def token_words(self, step):
        owner = ["--owner=%s" % step["token"]] if step["token"] else []
        return owner + ["--hold-at-least=%dms" % step["hold"]] * bool(step["hold"])

    def patience(self, step):
        """How a refusal is reported: text, code, status."""
        words = ["-w", "40ms"] if step["waits"] else ["-n"]
        if step["conflict"]:
            words += ["-E", "9"]
        return words, TIMEOUT if step["waits"] else HELD, 9 if step["conflict"] else CONFLICT

    def expect_refusal(self, seen, lock, code, status):
        """If the lock is paused and held, either may be reported."""
        told = seen.error.get("code")
        self.expect_error(seen, lock, [code] + [PAUSED] * bool(lock.paused and code != DONE), status)
        self.refuse(lock, code if told != DONE else DONE)

    def refuse(self, lock, code):
        lock.memory.skipped += 1
        if code == DONE:
            return
        if code == TIMEOUT:
            lock.timeouts += 1
        else:
            lock.conflicts += 1

    def new_lease(self, lock, mode, slots, lease):
        """What must hold after each acquire."""
        if lease.fence <= (lock.last_fence or 0):
            raise Wrong("fence", "%d does not rise above %d" % (lease.fence, lock.last_fence))
        if mode != SLOTS and lease.slot is not None:
            raise Wrong("slot", "%s, of a lock without slots" % lease.slot)
        if mode == SLOTS and not 0 <= (-1 if lease.slot is None else lease.slot) < slots:
            raise Wrong("slot", "%s of %s" % (lease.slot, slots))
        if mode == SLOTS and lock.leases and lease.slot not in lock.free_slots():
            raise Wrong("slot", "%s is another's" % lease.slot)
        if lease.token in lock.leases:
            raise Wrong("owner", "%s has it twice" % lease.token)
        lock.take(lease, mode, slots)

    def do_acquire(self, lock, step):
        mode, slots, mode_words = self.mode_words(lock, step)
        patience, code, status = self.patience(step)
        words = ["--acquire", "--json"] + patience + mode_words + ["--ttl=%dms" % step["ttl"]]
        words += self.token_words(step) + lock.words()
        admits = lock.admits(step["token"], mode, slots)
        seen = self.call("acquire", lock, words)
        if not admits:
            self.expect_refusal(seen, lock, code, status)
            return
        self.expect_success(seen, lock, "acquired")
        told = seen.document
        if step["token"] and told.get("owner") != step["token"]:
            raise Wrong("owner", "it says %s" % told.get("owner"))
        if told.get("mode") != mode:
            raise Wrong("mode", "it says %s" % told)
        self.new_lease(lock, mode, slots, Lease(told["owner"], told["fence"], told.get("slot"), step["ttl"] / 1000, seen.span,
                                                step["hold"] / 1000))

    def do_run(self, lock, step):
        """A command that ends at once: its environment comes first in its output."""
        mode, slots, mode_words = self.mode_words(lock, step)
        patience, code, status = self.patience(step)
        words = ["--json"] + patience + mode_words + ["--ttl=60s"] + ["--once-per=1h"] * step["once"]
        words += self.token_words(step) + lock.words()
        command, wanted = self.command_of(lock, step, mode_words)
        admits = lock.admits(step["token"], mode, slots)
        if step["once"] and lock.memory.succeeded:
            admits, code = False, DONE
        seen = self.call("run", lock, words + ["--"] + command)
        if not admits:
            self.expect_refusal(seen, lock, code, status)
            return
        if seen.status != wanted:
            raise Wrong("status", "%s %s, wanted %s" % (seen.status, seen.text.strip(), wanted))
        token, fence, slot = self.told(lock, seen.text)
        self.new_lease(lock, mode, slots, Lease(token, fence, slot, 60, seen.span, step["hold"] / 1000, detached=False))
        if step["command"] == "release":
            lock.release(token, "not known")
        else:
            lock.release(token, *(("signal", wanted - 128) if wanted > 128 else ("exited", wanted)))

    def command_of(self, lock, step, mode_words):
        """The command, and its expected exit status."""
        inner, status = {
            "true": ("", 0),
            "false": ("exit 3", 3),
            "dies": ("kill -9 $$", 128 + 9),
            "release": ('"$0" --json --release && ! "$0" --json --release', 0),
            "extend": ('"$0" --json --extend', 0),
            "current": ('"$0" --json --current', 0),
            "nested": ('"$0" --json -n "$@" -- true', 0),
            "upgrade": ('"$0" --json -n --slots=9 "$@" -- true', 64),
        }[step["command"]]
        words = lock.words() if step["command"] == "upgrade" else mode_words + lock.words()
        return ["sh", "-c", SAY_WHAT_IS_HELD + inner, self.options.dlock] + words, status

    def told(self, lock, text):
        """Token, fence and slot from what a command printed."""
        words = (text.splitlines() or [""])[0].split()
        if len(words) != 3 or not words[1].isdigit():
            raise Wrong("answer", "the command was told %r" % text)
        return words[0], int(words[1]), int(words[2]) if words[2] != "-" else None

    # -- commands that stay --

    def do_hold(self, lock, step):
        mode, slots, mode_words = self.mode_words(lock, step)
        patience, code, status = self.patience(step)
        words = ["-v", "--json"] + patience + mode_words + ["--ttl=%ds" % HOLDER_TTL, "--grace=%dms" % (1000 * HOLDER_GRACE)]
        self.holder_number += 1
        message = "why %d" % self.holder_number
        words += ["--message=" + message] + lock.words() + ["--", "sh", "-c", SAY_WHAT_IS_HELD + "exec cat"]
        begin = now()
        holder = Holder([self.options.dlock] + words, self.environment, os.path.join(self.work, "holder%d" % self.holder_number))
        self.holders.append(holder)
        line = holder.first_line()
        self.say(lock, words, "in the background, %s" % line.strip())
        if not lock.admits("", mode, slots):
            ended, _ = holder.wait()
            self.holders.remove(holder)
            self.expect_refusal(Seen(ended, line, None), lock, code, status)
            return
        token, fence, slot = self.told(lock, line)
        self.new_lease(lock, mode, slots, Lease(token, fence, slot, HOLDER_TTL, Span(begin, now()), 0, holder, False))
        lock.leases[token].message = message
        self.counts["held commands"] += 1

    def do_end(self, lock, step):
        lease = self.holding(lock, step["which"])
        if lease is not None:
            self.end(lock, lease)

    def end(self, lock, lease):
        holder = lease.process
        status, text = holder.wait(close=True)
        self.holders.remove(holder)
        self.note(lock, "the command of %s ends" % lease.token, status)
        if status != 0:
            raise Wrong("status", "%s %s, of a command that ended by itself" % (status, text.strip()))
        lock.release(lease.token, "exited", 0)
        self.counts["held commands ended"] += 1

    def do_end_loose(self, lock, _step):
        """A run whose lock was released with its token ends as if nothing had happened."""
        if not self.loose:
            return
        holder = self.loose.pop(0)
        status, text = holder.wait(close=True)
        self.note(lock, "a command ends without a lock", status)
        for one in self.locks:
            one.losses = None  # the release may be forgotten by now
        if status != 0:
            raise Wrong("status", "%s %s, of a command whose lock was released" % (status, text.strip()))

    def do_kill(self, lock, step):
        lease = self.holding(lock, step["which"])
        if lease is None:
            return
        holder = lease.process
        holder.process.send_signal(signal.SIGKILL)
        status, _ = holder.wait()  # its command holds the pipe open: it has died, too
        self.holders.remove(holder)
        self.note(lock, "dlock of %s is killed" % lease.token, status)
        lease.process = None
        lock.seen = None
        self.counts["holders killed"] += 1
        if self.store.freed_at_death:
            lock.drop(lease, "ended")
            end = now() + 10  # the guard keeps the file locked until the command's processes have ended
            while now() < end:
                seen = self.call("status", lock, ["--status", "--json"] + lock.words())
                if len((seen.document or {}).get("holders") or []) <= len(lock.leases):
                    break

    def do_shorten(self, lock, step):
        """A lease that somebody makes end soon ends its command too."""
        lease = self.holding(lock, step["which"])
        if lease is None:
            return
        seen = self.call("extend", lock, ["--extend", "--json", "--ttl=400ms", "--owner=" + lease.token] + lock.words())
        self.expect_success(seen, lock, "extended")
        end = seen.span.after(0.4)
        self.expect_stopped(lock, lease)
        if now() > end.most + LATE_MOST:  # sooner is fine, by the drift margin of its own --ttl
            raise Wrong("stop", "%.3f s from the end of the lease" % (now() - end.most))
        while not end.is_over():
            time.sleep(0.01)
        # It releases the lock if there is still time for that.
        state = self.call("status", lock, ["--status", "--json"] + lock.words()).document
        released = state.get("last_owner") == lease.token
        lock.losses = None
        if released:
            lock.release(lease.token, "stopped")
        else:
            lock.drop(lease, "ended")

    def expect_stopped(self, lock, lease):
        holder = lease.process
        status, text = holder.wait()
        self.holders.remove(holder)
        seen = Seen(status, text, None)
        self.plant.corrupt("stolen", seen, lock)
        self.note(lock, "the command of %s is stopped" % lease.token, seen.brief())
        if seen.status != LOST or seen.error.get("code") != "LOCK_LOST":
            raise Wrong("not stopped", "%s %s" % (seen.status, text.strip()))
        self.counts["held commands stopped"] += 1

    def holding(self, lock, which):
        """The lease of a running command."""
        leases = [lease for lease in lock.leases.values() if lease.process is not None]
        return leases[int(which * len(leases))] if leases else None

    # -- extending, releasing --

    def token_of(self, lock, step):
        """The token that a step means, chosen at run time so that steps can be left out."""
        kind, which = step["who"]
        if kind == "token":
            return which
        others = [token for other in self.locks if other is not lock for token in other.leases]
        tokens = {
            "name": list(TOKENS),
            "holder": list(lock.leases),
            "past": [token for token in lock.outcomes if token not in lock.leases][-12:],
            "other": others,
            "nobody": [],
        }[kind]
        token = tokens[int(which * len(tokens))] if tokens else "nobody"
        if token in list(TOKENS) + ["nobody"]:
            step["who"] = ("token", token)
        return token

    def do_extend(self, lock, step):
        token, ttl = self.token_of(lock, step), step["ttl"]
        lease = lock.leases.get(token)
        if ttl and lease is not None and (lease.process is not None or lease.hold is not None):
            # A command would be stopped (see do_shorten); and whether others are kept out for --hold-at-least by
            # a lease that was made to end before is for nobody to rely on.
            ttl = max(ttl, 60000)
        words = ["--extend", "--json", "--owner=" + token] + ["--ttl=%dms" % ttl] * bool(ttl) + lock.words()
        refused = lock.refused(token)
        seen = self.call("extend", lock, words)
        if refused:
            self.expect_error(seen, lock, refused)
            return
        self.expect_success(seen, lock, "extended")
        end = seen.span.after(ttl / 1000 if ttl else lease.ttl)
        lease.end = end if ttl else lease.end.later(end)
        left = seen.document["ttl_remaining"]
        if not lease.end.least - seen.span.most - DRIFT_MOST - TOLD_EXACTLY < left < lease.end.most - seen.span.least + TOLD_EXACTLY:
            raise Wrong("ttl", "it says that %s s are left, not %.3f" % (left, lease.end.least - seen.span.least))
        if (seen.document.get("owner"), seen.document.get("fence")) != (token, lease.fence):
            raise Wrong("answer", "it tells of another lease: %s" % seen.document)

    def do_release(self, lock, step):
        token = self.token_of(lock, step)
        refused = lock.refused(token)
        status = step["exit"]
        words = ["--exit-status=%s" % status] if status is not None else []
        seen = self.call("release", lock, ["--release", "--json", "--owner=" + token] + words + lock.words())
        if refused:
            self.expect_error(seen, lock, refused)
            return
        self.expect_success(seen, lock, "released")
        if seen.document.get("owner") != token:
            raise Wrong("answer", "it tells of another lease: %s" % seen.document)
        lease = lock.leases[token]
        lock.release(token, *(("exited", status) if status is not None else ("not known",)))
        if lease.process is not None:
            self.holders.remove(lease.process)
            self.loose.append(lease.process)
            if not lease.process.says("keeps running without the lock"):
                raise Wrong("not told", "its command's dlock does not see that the lock was released")

    def do_force(self, lock, _step):
        seen = self.call("force", lock, ["--force-release", "--json"] + lock.words())
        if not lock.leases:
            self.expect_error(seen, lock, [NOT_FOUND])
            return
        self.expect_success(seen, lock, "released")
        was = sorted(owner["owner"] for owner in seen.document["was"])
        if was != sorted(lock.leases):
            raise Wrong("answer", "it was not held by %s but by %s" % (was, sorted(lock.leases)))
        lock.forced = True
        for lease in list(lock.leases.values()):
            if lease.process is not None:
                self.expect_stopped(lock, lease)
                lock.losses = lock.losses + 1 if lock.losses is not None else None
            lock.drop(lease, "released" if lease.released else "ended")

    def do_pause(self, lock, step):
        words = ["--pause=%dms" % step["ttl"], "--message=why %d" % self.step_number, "--json"]
        seen = self.call("pause", lock, words + lock.words())
        self.expect_success(seen, lock, "paused")
        lock.paused, lock.seen = ("why %d" % self.step_number, seen.span.after(step["ttl"] / 1000)), None

    def do_resume(self, lock, _step):
        seen = self.call("resume", lock, ["--resume", "--json"] + lock.words())
        if not lock.paused:
            self.expect_error(seen, lock, [NOT_FOUND])
        elif seen.status != 0 or seen.document.get("paused") is not False:
            raise Wrong("resume", "%s %s" % (seen.status, seen.text.strip()))
        lock.paused = lock.seen = None

    def do_ran_within(self, lock, step):
        seen = self.call("ran_within", lock, ["--ran-within=1h"] + lock.words())
        if seen.status != (0 if lock.memory.succeeded else 1):
            raise Wrong("--ran-within", "%s %s" % (seen.status, seen.text.strip()))

    # -- looking --

    def do_status(self, lock, _step):
        """The lock is checked after each step anyway."""

    def do_wait_until_free(self, lock, step):
        patience, code, status = self.patience(step)
        seen = self.call("wait-until-free", lock, ["--wait-until-free", "--json"] + patience + lock.words())
        if lock.leases:
            self.expect_error(seen, lock, [code], status)
        elif seen.status != 0:
            raise Wrong("status", "%s, though it is free" % seen.status)

    def do_list(self, lock, step):
        prefix, pattern = step["list"]
        words = ["--list", "--json", "--prefix=" + prefix] + ([pattern] if pattern else [])
        self.wait_for_clarity(*self.locks)
        seen = self.call("list", lock, words)
        if any(span.is_near() or span.is_over() for one in self.locks for span in one.times()):
            raise Unclear
        wanted = sorted(one.key for one in self.locks if (one.leases or one.paused) and one.key.startswith(prefix)
                        and fnmatch.fnmatchcase(one.key[len(prefix):], pattern or "*"))
        told = [prefix + str(row.get("key")) for row in seen.documents]
        if seen.status != 0 or told != wanted:
            raise Wrong("list", "%s %s, wanted %s" % (seen.status, told, wanted))
        by_name = {one.key: one for one in self.locks}
        for name, row in zip(told, seen.documents):
            self.compare(by_name[name], row, seen.span)

    def do_pass(self, lock, _step):
        """Waits until everything that ends soon has ended."""
        while any(span.is_near(2) for span in lock.times()):
            time.sleep(0.01)
        lock.settle()

    def look(self, lock):
        """The lock must look as the model says."""
        seen = self.call("status", lock, ["--status", "--json"] + lock.words())
        if seen.status != (0 if lock.leases else 1):
            raise Wrong("--status", "gives %s of a lock that is %s: %s" % (
                seen.status, "held by %s" % list(lock.leases) if lock.leases else "free", seen.text.strip()))
        if seen.document.get("key") != lock.name or seen.document.get("locked") != bool(lock.leases):
            raise Wrong("--status", "tells of something else: %s" % seen.document)
        self.compare(lock, seen.document, seen.span)
        if lock.memory.past != lock.memory.seen_past:
            self.look_at_history(lock)
        state = unchanging(seen.document)
        if lock.failed and lock.seen is not None and state != lock.seen and not lock.memory.muddled:
            raise Wrong("changed", "by an action that failed, from %s to %s" % (lock.seen, state))
        lock.seen = state

    def compare(self, lock, state, span):
        wanted = {
            "scope": None, "full_key": lock.key, "backend": self.store.name, "locked": bool(lock.leases), "mode": lock.mode,
            "slots": lock.slots if lock.mode == SLOTS else None, "last_fence": lock.last_fence, "last_owner": lock.last_owner,
            "owner": next(iter(lock.leases)) if lock.mode == EXCLUSIVE else None,
        }
        paused = state.get("paused") and state["paused"]["message"]
        if paused != (lock.paused and lock.paused[0]):
            raise Wrong("paused", "%s, wanted %s" % (state.get("paused"), lock.paused))
        if lock.paused and not lock.paused[1].least - span.most - TOLD_EXACTLY <= state["paused"]["remaining"] <= (
                lock.paused[1].most - span.least + TOLD_EXACTLY):
            raise Wrong("paused", "for %s s more" % state["paused"]["remaining"])
        if state.get("waiters") is not None:
            wanted["waiters"] = 0
        for what, value in wanted.items():
            if state.get(what) != value:
                raise Wrong(what, "%s, wanted %s" % (state.get(what), value))
        for what in ("takes", "conflicts", "timeouts"):
            if state["counts"][what] != getattr(lock, what):
                raise Wrong(what, "%s, wanted %s" % (state["counts"][what], getattr(lock, what)))
        self.compare_memory(lock, Memory.of(state))
        if lock.losses is None:
            lock.losses = state["counts"]["losses"]
        if state["counts"]["losses"] != lock.losses:
            raise Wrong("losses", "%s, wanted %s" % (state["counts"]["losses"], lock.losses))
        owners = [holder["owner"] for holder in state["holders"]]
        if sorted(owners) != sorted(lock.leases):
            raise Wrong("holders", "%s, wanted %s" % (owners, list(lock.leases)))
        for holder in state["holders"]:
            self.compare_holder(lock.leases[holder["owner"]], holder, span)

    def compare_memory(self, lock, told):
        memory = lock.memory
        if memory.muddled:
            memory.learn(told)
            memory.muddled = not (lock.mode == EXCLUSIVE and lock.leases)  # its acquire has recorded all of them
        for what, value in memory.told().items():
            if told[what] != value:
                raise Wrong(what, "%s, wanted %s" % (told[what], value))

    def look_at_history(self, lock):
        seen, memory = self.call("history", lock, ["--history", "--json"] + lock.words()), lock.memory
        if any(span.is_near() or span.is_over() for span in lock.times()):
            return
        rows = seen.document.get("runs", [])
        told = [(row["outcome"], row["status"], row["signal"]) for row in rows]
        if memory.past is None:
            memory.past = told
        if told != memory.past or seen.status != (0 if told else 1):
            raise Wrong("history", "%s %s, wanted %s" % (seen.status, told, memory.past))
        if any((row["duration"] is None) != (row["outcome"] == "lost") for row in rows):
            raise Wrong("history", "of these lengths: %s" % [row["duration"] for row in rows])
        memory.seen_past = memory.past

    def compare_holder(self, lease, told, span):
        for what, value in (("fence", lease.fence), ("slot", lease.slot), ("released", lease.released),
                            ("detached", lease.detached), ("alive", lease.alive()),
                            ("message", None if lease.released else lease.message)):
            if told[what] != value:
                raise Wrong("holder's " + what, "%s, wanted %s" % (told[what], value))
        left, hold = told["ttl_remaining"], told["hold_remaining"]
        if left is None or not lease.end.least - span.most - TOLD_EXACTLY <= left <= lease.end.most - span.least + TOLD_EXACTLY:
            raise Wrong("ttl", "%s s are left, wanted %.3f" % (left, lease.end.least - span.least))
        least, most = (lease.hold.least - span.most, lease.hold.most - span.least) if lease.hold else (0, 0)
        if not max(least, 0) - TOLD_EXACTLY <= hold <= max(most, 0) + TOLD_EXACTLY:
            raise Wrong("hold", "for %s s, wanted %.3f" % (hold, most))
        expires = datetime.datetime.fromisoformat(told["expires_at"].replace("Z", "+00:00")).timestamp()
        if abs(expires - time.time() - left) > 2 + now() - span.least:
            raise Wrong("expires_at", "%s, with %s s left" % (told["expires_at"], left))

    # -- the whole --

    def wait_for_clarity(self, *locks):
        """Nothing ends during the next step."""
        while any(span.is_near(STEP_ROOM) for lock in locks for span in lock.times()):
            time.sleep(0.005)
        for lock in locks:
            lock.settle()

    def end_old_holders(self):
        """Only a step that means it may stop a command because of its lease."""
        for lock in self.locks:
            for lease in [lease for lease in lock.leases.values() if lease.process is not None]:
                if lease.end.least - now() < 20:
                    self.end(lock, lease)
                    lock.seen = None

    def give_up(self, lock):
        """A lock whose state the clock leaves open is replaced by a new one."""
        self.counts["unclear"] += 1
        for lease in list(lock.leases.values()):
            if lease.process is not None:
                self.holders.remove(lease.process)
                lease.process.destroy()
        self.call("force", lock, ["--force-release"] + lock.words())
        self.call("resume", lock, ["--resume"] + lock.words())
        self.take_over(lock)
        self.locks[self.locks.index(lock)] = Lock(lock.prefix, lock.base, lock.generation + 1)

    def lock_of(self, step):
        """Most steps are more useful with a lock that somebody holds."""
        locks = []
        if step.get("fixed"):
            return self.locks[step["lock"]]
        if step["do"] in ("end", "kill", "shorten") or step["do"] == "force" and step["held"]:
            locks = [lock for lock in self.locks if self.holding(lock, 0) is not None]
        elif step["do"] in ("release", "extend") and step["held"]:
            locks = [lock for lock in self.locks if lock.leases]
        return locks[int(step["which"] * len(locks))] if locks else self.locks[step["lock"]]

    def perform(self, step):
        self.step_number += 1
        self.end_old_holders()
        lock = self.lock_of(step)
        self.done.append(dict(step, lock=self.locks.index(lock), fixed=True))
        try:
            self.perform_with(lock, self.done[-1])
        except Unclear:
            self.give_up(lock)

    def perform_with(self, lock, step):
        lock.failed = False
        self.wait_for_clarity(lock)
        if lock.seen is None:
            self.look(lock)
        takes, before = lock.takes, lock.times() if step["do"] != "pass" else []
        try:
            getattr(self, "do_" + step["do"])(lock, step)
            self.check_clock(lock, before)
            lock.settle()
            self.look(lock)
        except Wrong:
            self.check_clock(lock, before)
            raise
        if lock.takes > takes:
            self.check_sharers(lock)

    def check_clock(self, lock, before):
        if any(span.is_near() or span.is_over() for span in before) or any(span.is_near() for span in lock.times()):
            raise Unclear

    def check_sharers(self, lock):
        wanted = set(lock.leases) if lock.mode in (SHARED, SLOTS) else set()
        extra = self.store.sharers(lock.key) - wanted
        if extra:
            raise Wrong("record left", "of %s, who share nothing any more, after a take" % ", ".join(sorted(extra)))

    def take_over(self, lock):
        """Removes what a lease that ended by itself has left for the next holder."""
        command = [self.options.dlock, "-n"] + lock.words() + ["true"]
        if subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, timeout=60, check=False).returncode != 0:
            raise Wrong("not free", lock.key)

    def finish(self):
        """Ends everything, and searches for what is left."""
        while self.loose:
            self.do_end_loose(self.locks[0], None)
        for number in range(len(self.locks)):
            while self.holding(self.locks[number], 0) is not None:
                self.perform({"do": "end", "lock": number, "which": 0})
            self.wait_for_clarity(self.locks[number])
            if self.locks[number].paused:
                self.perform({"do": "resume", "lock": number, "fixed": True})
            if self.locks[number].leases:
                self.perform({"do": "force", "lock": number, "fixed": True})
            self.take_over(self.locks[number])
        rest = Seen(0, "", None)
        rest.documents = self.store.rest()
        self.plant.corrupt("rest", rest, None)
        if rest.documents:
            raise Wrong("left behind", ", ".join(rest.documents))

    def play(self, steps):
        """Returns what was wrong, or None."""
        try:
            for step in steps:
                self.perform(step)
            self.finish()
        except Wrong as wrong:
            return wrong
        finally:
            self.close()
        return None


# ---- drawing the steps ----

STEPS = {"acquire": 30, "release": 24, "extend": 14, "force": 5, "status": 2, "list": 4, "wait_until_free": 3, "run": 12, "hold": 5,
         "end": 4, "end_loose": 1, "kill": 2, "shorten": 0.4, "pass": 0.6, "pause": 2, "resume": 5, "ran_within": 1}
WHO = {"release": (("holder", 58), ("name", 10), ("past", 20), ("other", 8), ("nobody", 4)),
       "extend": (("holder", 66), ("name", 10), ("past", 14), ("other", 6), ("nobody", 4))}
LONG, SHORT = 60000, 300


def draw_step(rng):
    """A step that depends on nothing before it, so any step can be left out."""
    do = rng.choices(list(STEPS), STEPS.values())[0]
    kinds = WHO.get(do, WHO["release"])
    step = {"do": do, "lock": rng.randrange(len(LOCKS)), "which": rng.random(), "same": rng.random() < 0.6,
            "held": rng.random() < 0.6}
    step["mode"] = rng.choice([(EXCLUSIVE, None), (SHARED, None), (SLOTS, rng.randint(1, 3))])
    step["token"] = rng.choice(TOKENS) if rng.random() < 0.6 else None
    step["exit"], step["once"] = rng.choice((None, 0, 7)), rng.random() < 0.1
    step["waits"], step["conflict"] = rng.random() < 0.06, rng.random() < 0.1
    step["ttl"] = rng.choices((SHORT, LONG, 2 * LONG), (4, 90, 6))[0]
    step["hold"] = rng.choices((0, SHORT, 30000), (92, 3, 5))[0]
    step["who"] = (rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0], rng.random())
    step["command"] = rng.choices(("true", "false", "dies", "release", "extend", "current", "nested", "upgrade"),
                                  (40, 20, 5, 8, 8, 8, 8, 3))[0]
    step["list"] = rng.choice((("dlock:", None), ("dlock:", "j*"), ("dlock:s:", None), ("dlock:s:", "*1"), ("dlock:", "[js]*")))
    if do == "extend":
        step["ttl"] = rng.choices((0, SHORT, LONG, 3 * LONG), (40, 4, 30, 26))[0]
    if step["hold"] > step["ttl"] or step["command"] in ("release", "dies") and do == "run":
        step["hold"] = 0
    return step


def draw(seed, count, seconds=0):
    """The same steps for a seed, and fewer of them with a time limit."""
    rng, end = random.Random(seed), now() + (seconds or float("inf"))
    for _ in range(count):
        if now() > end:
            return
        yield draw_step(rng)


# ---- a failure, made short ----

class Shrinker:
    """Leaves out steps as long as the same failure occurs."""

    def __init__(self, options, store, work, wrong):
        self.options, self.store, self.work, self.kind = options, store, work, wrong.kind
        self.end = now() + options.shrink_seconds
        self.tries, self.best = 0, None

    def fails(self, steps):
        """Keeps the world of the shortest history that fails."""
        if not steps or now() > self.end:
            return False
        self.tries += 1
        world = World(self.options, self.store, self.work)
        wrong = world.play(steps)
        if wrong is None or wrong.kind != self.kind:
            return False
        self.best = (world.done, world, wrong)
        return True

    def shrink(self, steps):
        """`steps` failed at the last one."""
        alone = [step for step in steps if step["lock"] == steps[-1]["lock"]]
        tries = [alone[-5:], steps[-5:], alone[-30:], steps[-30:], alone, steps[-300:], steps, steps]
        if not any(self.fails(some) for some in tries):
            return
        size = len(self.best[0]) // 2
        while size > 0 and now() < self.end:
            size = min(size, len(self.best[0]))
            if not self.leave_out(size):
                size //= 2

    def leave_out(self, size):
        """Whether pieces of this size could be left out."""
        shorter, at = False, 0
        while at < len(self.best[0]):
            steps = self.best[0]
            wait = [dict(steps[-1], do="pass")] * (size > 1)  # their duration may have been the cause
            if self.fails(steps[:at] + steps[at + size:]) or wait and self.fails(steps[:at] + wait + steps[at + size:]):
                shorter = True
            else:
                at += size
        return shorter


def print_trace(trace, most=60):
    for _, line in trace[-most:]:
        print("  " + line)


def tell_failure(options, store, work, world, wrong):
    number = world.step_number
    print("%s: wrong at step %d of seed %s: %s" % (store.name, number, options.seed, wrong))
    lock = world.trace[-1][0] if world.trace else None
    print("the last steps with that lock:")
    print_trace([entry for entry in world.trace if entry[0] is lock], 25)
    if options.plant or options.shrink_seconds <= 0:
        return
    shrinker = Shrinker(options, store, work, wrong)
    shrinker.shrink(world.done)
    if shrinker.best is None:
        print("played again it does not go wrong; --seed=%s --steps=%d draws the same steps" % (options.seed, number))
        return
    kept, shortest, again = shrinker.best
    print("the shortest found, %d of %d steps, after %d tries: %s" % (len(kept), number, shrinker.tries, again))
    print_trace(shortest.trace)


# ---- the whole ----

def play(options, store, work, plant, rows):
    """Returns whether everything was as the model says, and adds a row of figures."""
    rng = random.Random("%s/plant" % options.seed)
    world = World(options, store, work, Plant(plant, rng))
    steps = draw(options.seed, options.steps, options.seconds)
    begin = now()
    wrong = world.play(steps)
    rows.append([store.name, "{:,}".format(world.step_number), "{:,}".format(world.counts["runs"]),
                 str(world.counts["unclear"]), "0" if wrong is None else "at step %d: %s" % (world.step_number, wrong)])
    if wrong is not None:
        tell_failure(options, store, work, world, wrong)
        return False
    seconds = now() - begin
    print("%s: %d steps, %d runs of dlock, %.1f s, %.0f steps a second; unclear: %d; all as the model says" % (
        store.name, world.step_number, world.counts["runs"], seconds, world.step_number / seconds, world.counts.pop("unclear", 0)))
    if options.verbose:
        print("  " + ", ".join("%s: %d" % item for item in sorted(world.counts.items())))
    return True


def find_plants(options, store, work):
    """Returns whether each of the planted faults is found, and nothing is found without one."""
    good = play(options, store, work, None, [])
    for kind in PLANTS:
        world = World(options, store, work, Plant(kind, random.Random(kind)))
        wrong = world.play(draw(options.seed, options.steps if kind != "left" else 10))
        found = wrong is not None and world.plant.where is None
        print("%s: planted %s: %s" % (store.name, kind, "found after %d steps: %s" % (world.step_number, str(wrong)[:120])
                                      if found else "NOT FOUND"))
        good = good and found
    return good


def on_terminate(_number, _frame):
    raise SystemExit(1)


def run(options):
    signal.signal(signal.SIGTERM, on_terminate)
    stores = {"redis": [Redis], "file": [Files], "both": [Redis, Files]}[options.backend]
    good, rows = True, []
    for kind in stores:
        with contextlib.ExitStack() as stack:
            work = tempfile.mkdtemp(prefix="dlock-model-")
            stack.callback(shutil.rmtree, work, ignore_errors=True)
            store = kind(work, stack)
            if options.plants:
                good = find_plants(options, store, work) and good
            else:
                good = play(options, store, work, options.plant, rows) and good
    write_figures(options.json, [Table("", ["store", "steps", "runs of dlock", "not judged: a lease may have ended", "wrong"], rows)])
    return good


def main():
    parser = argparse.ArgumentParser(description="Play random actions against dlock and a model of it, and compare.")
    parser.add_argument("--steps", type=int, default=1000, metavar="N", help="how many (default: 1000)")
    add_options(parser, seconds=0)
    parser.add_argument("--backend", default="both", choices=("redis", "file", "both"), help="default: both")
    parser.add_argument("--plant", choices=sorted(PLANTS), metavar="KIND",
                        help="change once what a step saw: must be found. One of: %s" % ", ".join(sorted(PLANTS)))
    parser.add_argument("--plants", action="store_true", help="try each plant; exit status 0: each is found")
    parser.add_argument("--shrink-seconds", type=float, default=60, metavar="N",
                        help="how long to look for fewer steps that show the same (default: 60)")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell what came how often")
    parser.add_argument("dlock", metavar="PATH-TO-DLOCK")
    options = parser.parse_args()
    options.dlock = os.path.abspath(options.dlock)
    options.seed = options.seed or str(random.SystemRandom().randrange(10 ** 6))
    print("seed %s, %d steps" % (options.seed, options.steps), flush=True)
    return 0 if run(options) else 1


if __name__ == "__main__":
    sys.exit(main())
