"""What the contenders of a lock ask of dlock, what they run under it, and what is done to them.

Two plans: the ends of leases (make stress), where each command ends about when its lease does, and takes (make
torture), where many short commands in all modes contend while the stores fail.
"""

import os
import random
import shlex
import signal
from typing import Callable, NamedTuple

import surroundings

HARMLESS = (signal.SIGCHLD, signal.SIGCONT, signal.SIGPIPE, signal.SIGWINCH, signal.SIGURG)
SIGNALS = (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
           signal.SIGALRM) + HARMLESS


class Deed(NamedTuple):
    """An action on one run."""

    what: str
    since: str     # counted from "spawn" or "start"
    after: float   # seconds after that
    value: object  # drawn for the action


NOTHING = Deed("nothing", "spawn", 0, 0)


class Plan:
    """One run: dlock's arguments, what is logged about it, and what will be done to it."""

    def __init__(self, ttl, grace, words, deed, daemon=False):
        self.ttl, self.grace, self.words, self.daemon, self.deed = ttl, grace, words, daemon, deed
        self.how, self.mode = "run", "exclusive"
        self.wait = None
        self.hold = 0
        self.once = None
        self.tree = self.newer = False
        self.options = []

    def fields(self):
        """For the log; usual values are left out."""
        fields = {"ttl": self.ttl, "grace": self.grace, "daemon": int(self.daemon)}
        fields.update({key: value for key, value, usual in (
            ("tree", int(self.tree), 0), ("mode", self.mode, "exclusive"), ("how", self.how, "run"),
            ("wait", self.wait, None),
            ("hold", self.hold, 0), ("once", self.once, None), ("newer", int(self.newer), 0),
            ("options", ",".join(self.options), ""),
            ("deed", "%s:%s:%.3f:%s" % self.deed, "%s:%s:%.3f:%s" % NOTHING))
            if value != usual})
        return fields

    def argv(self, dlock, stage_options, name, owner, command):
        store = list(stage_options)
        release = [option for option in store if not option.startswith("--wait-replicas")]
        options = store + ["-t", "%dms" % self.ttl, "--owner=" + owner] + self.options
        if self.how != "acquire":
            options.append("--grace=%dms" % self.grace)
        if self.mode == "shared":
            options.append("-s")
        elif self.mode != "exclusive":
            options.append("--slots=" + self.mode.partition(":")[2])
        if self.wait is not None:
            options += ["-n"] if self.wait == 0 else ["-w", "%dms" % self.wait]
        if self.hold:
            options.append("--hold-at-least=%dms" % self.hold)
        if self.once is not None:
            options.append("--once-per=%dms" % self.once)
        if self.tree:
            options.append("--tree")
        if self.how == "attach":
            # By its number: if a shell is killed before dlock asks for its parent, that would be the campaign, a
            # subreaper, which dlock would then stop with everything that it has started.
            attach = "%s --attach=$$ %s" % (shlex.quote(dlock), shlex.join(options + [name]))
            return ["/bin/sh", "-c", "%s && exec %s" % (attach, shlex.join(command))]
        if self.how == "acquire":
            return ["/bin/sh", "-c", "%s >/dev/null || exit; %s; s=$?; %s; echo release=$? >&2; exit $s" % (
                shlex.join([dlock, "--acquire"] + options + [name]), shlex.join(command),
                shlex.join([dlock, "--release", "-q"] + release + ["--owner=" + owner, name]))]
        return [dlock] + options + [name, "--"] + command


def ends_of_leases(rng, options, _stage, _kind):
    """Commands that end at about the end of their lease, ignore TERM, stop themselves, leave daemons."""
    ttl = rng.choice([ms for ms in (100, 200, 300, 500, 500, 700, 1000, 1000, 1500)
                      if options.ttl_least <= ms <= options.ttl_most])
    grace = rng.choice([ttl // 10, ttl // 10, ttl // 4, 0])
    deadline = ttl - max(ttl / 100, 2)
    kind = rng.choices(("quick", "in time", "at the stop", "at the deadline", "too long", "deaf", "stopped", "daemon",
                        "hydra", "dies"), (15, 8, 14, 18, 8, 14, 7, 8, 5, 3))[0]
    status = rng.choice((0, 0, 1, 7, 42))
    long = ttl + 700
    words, daemon = {
        "quick": (["ms=%.1f" % rng.uniform(0, 5)], False),
        "in time": (["ms=%.1f" % (ttl * rng.uniform(0.1, 0.6))], False),
        "at the stop": (["ms=%.2f" % max(deadline - grace + rng.uniform(-15, 10), 0)], False),
        "at the deadline": (["ms=%.2f" % (deadline + rng.uniform(-12, 8)), "deaf"], False),
        "too long": (["ms=%d" % long], False),
        "deaf": (["ms=%d" % long, "deaf"], False),
        "stopped": (["ms=%d" % long, "stop=%.1f" % (ttl * rng.uniform(0, 0.95))] + rng.choice(([], ["deaf"])), False),
        "daemon": (["ms=%d" % long, "daemon=%d" % long] + rng.choice(([], ["deaf"])), True),
        "hydra": (["ms=%d" % long, "hydra=%d" % long], True),
        "dies": (["ms=%.1f" % (ttl * rng.uniform(0, 0.9)), "die"], False),
    }[kind]
    if options.tree and kind in ("quick", "in time", "dies") and rng.random() < 0.3:
        words, daemon = words + ["daemon=%.1f" % (ttl * rng.uniform(0.1, 1.1))], True
    what = rng.choices(("nothing", "kill", "freeze", "blink", "remove"), (76, 6, 6, 6, 6))[0]
    if rng.random() < 0.1:  # most probably while it waits
        deed = Deed(what, "spawn", rng.uniform(0, ttl) / 1000, 0)
    elif rng.random() < 0.5:
        deed = Deed(what, "start", rng.uniform(0, ttl) / 1000, 0)
    else:
        deed = Deed(what, "start", max(deadline - rng.choice((0, grace)) + rng.uniform(-10, 10), 0) / 1000, 0)
    plan = Plan(ttl, grace, words + ["exit=%d" % status], deed, daemon)
    plan.tree = options.tree
    return plan


# How many waiters of a lock are killed or frozen together, as if their host crashed or stalled.
GROUP_SIZES = (3, 5, 8, 10)


class Kind(NamedTuple):
    """Of deeds: how often one is drawn, where, and how."""

    weight: int
    values: tuple = (0,)  # one is drawn for each action
    on: Callable = lambda stage: True
    around: bool = False  # it surrounds dlock from its beginning (surroundings.py); the others are done later (nemesis.py)
    to_scripts: bool = False  # it also acts on a script that holds the lock itself


def has_namespaces(stage):
    return stage.namespaces


def can(what):
    return lambda stage: hasattr(stage, what)


DEEDS = {
    "kill": Kind(15, to_scripts=True),
    "kill-command": Kind(10, (int(signal.SIGKILL),)),
    "kill-tree": Kind(10),
    "kill-waiters": Kind(5, GROUP_SIZES),
    "freeze": Kind(5),
    "freeze-long": Kind(5),
    "freeze-command": Kind(10),
    "freeze-tree": Kind(5),
    "freeze-waiters": Kind(5, GROUP_SIZES),
    "blink": Kind(10),
    "signal": Kind(25, tuple(map(int, SIGNALS))),
    "signal-command": Kind(10, tuple(map(int, SIGNALS[:7]))),
    "flood": Kind(10),
    "remove": Kind(25, to_scripts=True),
    "overwrite": Kind(15, on=can("overwrite")),
    "move": Kind(15, (0.0, 0.02, 0.1, 0.5), on=can("move"), to_scripts=True),  # seconds
    "touch": Kind(10, on=can("touch")),  # the watch is notified although nothing is wrong
    "look": Kind(10, to_scripts=True),   # what --status prints is judged
    "pause": Kind(15, (0.3, 0.6, 1.0, 2.0), to_scripts=True),  # seconds
    "limit": Kind(20, surroundings.LIMITS, around=True),
    "clock": Kind(20, surroundings.CLOCKS, around=True),
    "umask": Kind(10, surroundings.UMASKS, around=True),
    "refuse-call": Kind(15, surroundings.CALLS_REFUSED, around=True),
    "hidepid": Kind(8, around=True),
    "boot-id": Kind(8, on=has_namespaces, around=True),
    "boot-clock": Kind(8, on=has_namespaces, around=True),
}
# Options that change no promise, for any run; and those that only servers accept.
OPTIONS = ("--message=torture", "--close", "--remember=30d", "--report=/dev/null", "--stop-signal=INT")
OPTIONS_OF_SERVERS = ("--connect-timeout=1s", "--retry-for=1s")
# The watch looks this many milliseconds after its last look (src/run/watch.c), and when the store notifies it. Some commands end
# within this range of a look, or of what is done to the lock, while the watch is at work.
LOOK, AT_A_LOOK = 1000, (-12, 6)
AROUND = {name for name, kind in DEEDS.items() if kind.around}

# What the contenders of a lock do, by the number of the lock.
KINDS = ("exclusive", "exclusive", "readers and writers", "slots", "scripts", "daily", "held", "extended", "nonblock",
         "convoy", "crowd")
# How many contenders there are beyond the two or three of each lock. In a crowd, the largest group has others around it.
MORE_CONTENDERS = {"slots": 3, "convoy": 3, "crowd": 2 * max(GROUP_SIZES)}


def takes(rng, options, stage, kind):
    """Short commands in all modes, and sometimes one that its lease ends."""
    ttl = rng.choice((500, 700, 1000, 1000, 1500, 2000))
    grace = rng.choice((ttl // 10, ttl // 10, ttl // 10, ttl // 4, 0))
    length = rng.uniform(1, 20) if rng.random() < 0.8 else rng.uniform(20, 150)
    if ttl > LOOK and rng.random() < 0.05:
        length = LOOK + rng.uniform(*AT_A_LOOK)
    if kind == "convoy" and rng.random() < 0.3:
        ttl, length = 2000, rng.uniform(600, 900)
    if kind == "crowd":
        length = rng.uniform(20, 150)  # so that the others wait meanwhile
    words = []
    daemon = tree = False
    ending = rng.random()
    if ending < 0.02:
        length = ttl + 700
        words = rng.choice(([], ["deaf"]))
    elif ending < 0.04:
        daemon, tree = True, rng.random() < 0.5
        words = ["daemon=%.1f" % rng.uniform(10, 200)]
    elif ending < 0.05:
        words = ["die"]
    plan = Plan(ttl, grace, ["ms=%.1f" % length] + words + ["exit=%d" % rng.choice((0, 0, 1, 7, 42))], NOTHING, daemon)
    plan.tree = tree or rng.random() < 0.1
    draw_wait(plan, rng, kind)
    length = draw_kind(plan, rng, kind, length)
    if plan.how == "run" and rng.random() < 0.3:
        options_here = OPTIONS + (() if stage.name == "file" else OPTIONS_OF_SERVERS)
        plan.options += rng.sample(options_here, rng.choice((1, 2, 3)))
    if kind != "convoy":  # its order is judged, so nothing is done to it
        plan.deed = draw_deed(plan, rng, [name for name, row in DEEDS.items() if row.on(stage)], kind, length, options)
    return plan


def draw_wait(plan, rng, kind):
    if kind == "crowd":  # if its first waiter is silent, nobody who leaves or comes may wake the others
        return
    draw = rng.random()
    if draw < (0.5 if kind == "nonblock" else 0.05):
        plan.wait = 0
    elif draw < 0.25 and kind != "convoy":
        plan.wait = rng.choice((50, 200, 500, 2000))


def draw_kind(plan, rng, kind, length):
    """Returns how long the command may run."""
    if kind == "readers and writers" and rng.random() < 0.7:
        plan.mode = "shared"
    elif kind == "slots" and rng.random() < 0.95:
        plan.mode = "slots:3"
    elif kind == "scripts":
        plan.how = rng.choice(("attach", "acquire", "run"))
        if plan.how != "run":
            plan.tree = plan.daemon = False
            plan.words = [word for word in plan.words if not word.startswith(("daemon", "deaf"))]
        if plan.how == "acquire":
            plan.ttl = 2000
            length = min(length, 100)  # nobody stops a script at the end of such a lease
            plan.words[0] = "ms=%.1f" % length
    elif kind == "held" and rng.random() < 0.3:
        plan.hold = rng.choice((50, 150, 300))
    elif kind == "daily":
        plan.once = rng.choice((300, 700, 1500))
    elif kind == "extended" and rng.random() < 0.5:
        if rng.random() < 0.5:
            plan.words += ["extend=%.1f" % (length * rng.uniform(0, 1))]
        else:
            plan.options += ["--heartbeat"]
            plan.words += ["beats=60"]
    return length


def draw_deed(plan, rng, names, kind, length, options):
    """Most runs are left alone, so that they can be compared."""
    if options.only:
        names = [name for name in names if name in options.only]
    groups = [name for name in names if DEEDS[name].values == GROUP_SIZES]
    what = None
    if kind == "crowd" and groups and rng.random() < (0.3 if options.only else 0.1):
        what = rng.choice(groups)
    elif names and rng.random() < (0.3 if options.only else 0.2):
        what = rng.choices(names, [DEEDS[name].weight for name in names])[0]
    if what is None or (plan.how != "run" and not DEEDS[what].to_scripts):
        return NOTHING
    value = rng.choice(DEEDS[what].values)
    if what in AROUND:
        return Deed(what, "spawn", 0, value)
    if what == "flood":  # beyond the end of the lease, when dlock must stop the command all the same
        length = rng.choice((length, plan.ttl + 1500))
        plan.words.append("steady")
    if rng.random() < 0.3:
        return Deed(what, "spawn", rng.uniform(0, 0.15), value)
    length = max(length, rng.uniform(50, 300))  # not so short that it ends before the action
    plan.words[0] = "ms=%.1f" % length
    after = length - rng.uniform(*AT_A_LOOK) if rng.random() < 0.25 else rng.uniform(0, length)
    return Deed(what, "start", after / 1000, value)


class Contender:
    """One contender of a lock, which runs again and again."""

    def __init__(self, stage, lock, number, kind, options):
        self.stage, self.lock, self.kind, self.options = stage, lock, kind, options
        self.rng = random.Random("%s/%s/%s/%d" % (options.seed, stage.name, lock, number))
        # How many of its runs use the next format: a lock changes over with the first one that acquires it.
        self.newer = random.Random("%s/%s/%s" % (options.seed, stage.name, lock)).choice((0.01, 0.05, 0.2, 0.5))

    def plan(self):
        plan = self.draw()
        if plan.mode.startswith("slots") and not self.stage.slots:
            plan.mode = "shared"
        if self.options.two_formats:
            plan.newer = self.rng.random() < self.newer
        return plan

    def draw(self):
        return (takes if self.options.plan == "takes" else ends_of_leases)(
            self.rng, self.options, self.stage, self.kind)
